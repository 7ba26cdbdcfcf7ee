// Kernels: what the stubs register, and launches.
//
// The threads of a block run one after the other, the blocks too, each in its turn. A kernel that
// meets no barrier in its first block needs no stacks for the others.
#include "tests/cudart/runtime.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BUCKETS = 1024, MOST_THREADS = 1024 };

typedef struct cudart_kernel {
    const void *function;
    const char *name;
    const cudart_fat_binary *binary; ///< NULL: of another compiler
    bool without_barrier;
    int shared_asked[CUDART_DEVICES]; ///< dynamic shared memory, on each device; 0: nothing
    struct cudart_kernel *next;
} cudart_kernel;

static cudart_kernel *buckets[BUCKETS];
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;

dim3 blockIdx, blockDim, gridDim;

// ------------------------------------------------------------------------------------------------
// registering

static cudart_kernel *find(const void *function) {
    pthread_mutex_lock(&registry);
    cudart_kernel *kernel = buckets[(uintptr_t)function / 16 % BUCKETS];
    while (kernel && kernel->function != function)
        kernel = kernel->next;
    pthread_mutex_unlock(&registry);
    return kernel;
}

int cudart_is_registered(const void *function) {
    return find(function) != NULL;
}

/// A module is the address of its fat binary.
void **__cudaRegisterFatBinary(void *fat_binary) {
    void **module = cudart_allocate(sizeof *module);
    *module = fat_binary;
    return module;
}

void __cudaRegisterFatBinaryEnd(void **module) {
    free(module);
}

void __cudaUnregisterFatBinary(void **module) {
    (void)module;
}

void __cudaRegisterFunction(void **module, const char *host_function, char *device_function,
                            const char *name, int thread_limit, void *thread_index,
                            void *block_index, dim3 *block, dim3 *grid, int *warp_size) {
    (void)device_function, (void)thread_limit, (void)thread_index, (void)block_index;
    (void)block, (void)grid, (void)warp_size;
    if (find(host_function))
        return;
    const cudart_fat_binary *binary = *module;
    cudart_kernel *kernel = cudart_allocate(sizeof *kernel);
    kernel->function = host_function;
    kernel->name = name;
    kernel->binary = binary && binary->magic == CUDART_FAT_BINARY_MAGIC ? binary : NULL;
    pthread_mutex_lock(&registry);
    cudart_kernel **bucket = &buckets[(uintptr_t)host_function / 16 % BUCKETS];
    kernel->next = *bucket;
    *bucket = kernel;
    pthread_mutex_unlock(&registry);
}

// ------------------------------------------------------------------------------------------------
// launching

/// The arguments behind their addresses, in one piece.
static void **copy_arguments(const cudart_fat_binary *binary, void *const *arguments) {
    size_t bytes = CUDART_MAX_ARGUMENTS * sizeof(void *);
    for (unsigned i = 0; i < binary->arguments; i++)
        bytes += (binary->sizes[i] + 63) / 64 * 64;
    void **copies = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!copies)
        cudart_abort(NULL, "the host has no memory");
    char *at = (char *)copies + CUDART_MAX_ARGUMENTS * sizeof(void *);
    for (unsigned i = 0; i < binary->arguments; i++) {
        copies[i] = memcpy(at, arguments[i], binary->sizes[i]);
        at += (binary->sizes[i] + 63) / 64 * 64;
    }
    return copies;
}

static cudaError_t launch(const char *call, const cudaLaunchConfig_t *config, const void *function,
                          void **arguments) {
    cudart_stream *stream;
    cudaError_t error = cudart_stream_of(config->stream, &stream);
    if (error != cudaSuccess)
        return error;
    cudart_kernel *kernel = find(function);
    if (!kernel)
        return cudaErrorInvalidDeviceFunction;
    if (!kernel->binary || stream->device->capability < (int)kernel->binary->capability)
        return cudaErrorNoKernelImageForDevice;
    dim3 grid = config->gridDim, threads = config->blockDim;
    if (grid.x == 0 || grid.x > INT32_MAX || threads.x == 0 || threads.x > MOST_THREADS)
        return cudaErrorInvalidConfiguration;
    const cudaLaunchAttribute *attribute = config->numAttrs > 0 ? config->attrs : NULL;
    if (grid.y != 1 || grid.z != 1 || threads.y != 1 || threads.z != 1 || config->numAttrs > 1 ||
        (attribute && (attribute->id != cudaLaunchAttributeProgrammaticStreamSerialization ||
                       stream->device->capability < 90)))
        return cudaErrorNotSupported;
    if (config->dynamicSmemBytes > CUDART_SHARED &&
        config->dynamicSmemBytes > (size_t)kernel->shared_asked[stream->device->ordinal])
        return cudaErrorInvalidValue;
    cudart_step *step = cudart_step_new(stream, CUDART_KERNEL, call);
    step->kernel = kernel;
    step->name = kernel->name;
    step->grid = grid;
    step->threads = threads;
    step->shared_bytes = config->dynamicSmemBytes;
    step->overlaps = attribute && attribute->val.programmaticStreamSerializationAllowed;
    step->arguments = copy_arguments(kernel->binary, arguments);
    step->order = cudart_draw(UINT64_MAX);
    cudart_issue(step);
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute name, int value) {
    cudaError_t error = cudart_begin("cudaFuncSetAttribute", true);
    cudart_kernel *kernel = find(function);
    if (error == cudaSuccess && !kernel)
        error = cudaErrorInvalidDeviceFunction;
    if (error == cudaSuccess && (name != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
                                 value > CUDART_SHARED_ASKED))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        kernel->shared_asked[cudart_device_now()->ordinal] = value;
    return cudart_end(error);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                void **arguments) {
    cudaError_t error = cudart_begin("cudaLaunchKernelExC", true);
    if (error == cudaSuccess)
        error = launch("cudaLaunchKernelExC", config, function, arguments);
    return cudart_end(error);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream) {
    cudaLaunchConfig_t config = {
        .gridDim = grid, .blockDim = block, .dynamicSmemBytes = shared_bytes, .stream = stream};
    cudaError_t error = cudart_begin("cudaLaunchKernel", true);
    if (error == cudaSuccess)
        error = launch("cudaLaunchKernel", &config, function, arguments);
    return cudart_end(error);
}

static _Thread_local cudaLaunchConfig_t pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *stream) {
    pushed = (cudaLaunchConfig_t){
        .gridDim = grid, .blockDim = block, .dynamicSmemBytes = shared_bytes, .stream = stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *ret_grid, dim3 *ret_block, size_t *ret_shared_bytes,
                                       void *ret_stream) {
    *ret_grid = pushed.gridDim;
    *ret_block = pushed.blockDim;
    *ret_shared_bytes = pushed.dynamicSmemBytes;
    *(cudaStream_t *)ret_stream = pushed.stream;
    return cudaSuccess;
}

// ------------------------------------------------------------------------------------------------
// running

static char *shared; ///< up to here, and no further, a block's dynamic shared memory reaches
static void *shared_now;

void *cudart_shared_memory(void) {
    return shared_now;
}

/// Memory that ends where nothing may be touched, and is aligned as CUDA's.
static void give_shared_memory(size_t bytes) {
    enum { ALIGNED = 1024, PAGE = 4096 };
    const size_t room = CUDART_SHARED_ASKED + PAGE - CUDART_SHARED_ASKED % PAGE;
    if (!shared) {
        char *memory = mmap(NULL, room + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, room, PROT_READ | PROT_WRITE) != 0)
            cudart_abort(NULL, "the host has no memory");
        shared = memory + room;
    }
    shared_now = bytes ? shared - (bytes + ALIGNED - 1) / ALIGNED * ALIGNED : NULL;
    if (bytes)
        memset(shared_now, cudart.poison, bytes);
}

static unsigned awaited; ///< threads of the block that waited for what is queued before

void cudart_earlier_awaited(void) {
    awaited++;
}

static void run_one(void *data, unsigned i) {
    const cudart_step *step = data;
    threadIdx.x = i;
    step->kernel->binary->call(step->kernel->function, step->arguments);
}

void cudart_run_kernel(cudart_step *step) {
    cudart_kernel *kernel = step->kernel;
    uint64_t order = step->order;
    unsigned threads = step->threads.x;
    gridDim = step->grid;
    blockDim = step->threads;
    for (unsigned i = 0; i < step->grid.x; i++) {
        blockIdx = (dim3){cudart_shuffled(i, step->grid.x, order), 0, 0};
        give_shared_memory(step->shared_bytes);
        awaited = 0;
        if (kernel->without_barrier)
            for (unsigned thread = 0; thread < threads; thread++)
                run_one(step, cudart_shuffled(thread, threads, order >> 8));
        else
            kernel->without_barrier = !cudart_run_block(threads, run_one, step, order >> 8);
        if (step->overlaps && awaited != threads)
            cudart_abort(NULL, "%s may begin early and does not wait for what is queued before it",
                         step->name);
    }
}
