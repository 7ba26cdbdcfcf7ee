// The CUDA backend: which devices there are, their memory, and the way into the kernels.
//
// The driver is first touched when somebody asks for a device, and a machine without one is a
// normal answer. No CUDA call is made in a child of a process that had touched it, nor once exit
// has begun: every function asks nd__cuda_enter() first, and exit waits for those that were let in.
// A sticky error makes CUDA refuse everything afterwards, which every function passes on as
// ND_ERROR_DEVICE.
#include "kernels/cuda/cuda.h"
#include "lib/base/cancel.h"
#include "lib/device/backends.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/cuda_device.h"
#include "lib/device/cuda/cuda_graph.h"
#include "lib/device/cuda/cuda_kept.h"
#include "lib/device/cuda/cuda_memory.h"
#include "lib/device/cuda/cuda_peer.h"
#include "lib/device/cuda/cuda_stream.h"
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/order.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static nd_cuda_device devices[ND__CUDA_DEVICES];
static int device_total;
static bool only_one; ///< CUDA has no device but one, which is then current
static pthread_once_t discovered = PTHREAD_ONCE_INIT;
static _Atomic bool touched;     ///< the driver was asked for something
static _Atomic bool unreachable; ///< child of a process that had touched it, or exit has begun
static _Atomic bool left_behind; ///< that child
static _Atomic int inside;       ///< functions that may call CUDA

// ------------------------------------------------------------------------------------------------
// finding devices

nd_status nd__cuda_status(cudaError_t error) {
    if (error == cudaSuccess)
        return ND_OK;
    (void)cudaGetLastError();
    return error == cudaErrorMemoryAllocation ? ND_ERROR_OUT_OF_MEMORY : ND_ERROR_DEVICE;
}

static void after_fork_in_child(void) {
    if (atomic_load(&touched)) {
        atomic_store(&unreachable, true);
        atomic_store(&left_behind, true);
    }
}

/// Whether CUDA may be called from here to step_out(). The end of the process is told before it
/// looks who is inside, and who comes inside looks whether it has ended afterwards.
static bool step_in(void) {
    atomic_fetch_add(&inside, 1);
    if (!atomic_load(&unreachable))
        return true;
    atomic_fetch_sub(&inside, 1);
    return false;
}

static void step_out(void) {
    atomic_fetch_sub(&inside, 1);
}

/// Waits for other threads' calls, so that the driver's own handlers do not run under them; not for
/// ever, since one may wait for work that never ends.
static void at_process_exit(void) {
    enum { TRIES = 20000 }; // two seconds
    atomic_store(&unreachable, true);
    for (int i = 0; i < TRIES && atomic_load(&inside) > 0 && !atomic_load(&left_behind); i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static int attribute(enum cudaDeviceAttr name, int ordinal) {
    int value = 0;
    return nd__cuda_status(cudaDeviceGetAttribute(&value, name, ordinal)) == ND_OK ? value : 0;
}

/// 90 for 9.0.
static int capability_of(int ordinal) {
    return 10 * attribute(cudaDevAttrComputeCapabilityMajor, ordinal) +
           attribute(cudaDevAttrComputeCapabilityMinor, ordinal);
}

/// From Hopper on; ND_CUDA_OVERLAP=0 in the environment forbids it.
static bool can_overlap(int ordinal) {
    const char *chosen = secure_getenv("ND_CUDA_OVERLAP");
    return capability_of(ordinal) >= 90 && !(chosen && strcmp(chosen, "0") == 0);
}

/// True when the kernels can be loaded on a device and its memory can be stream-ordered.
static bool is_usable(int ordinal) {
    return capability_of(ordinal) >= nd__cuda_minimum_capability() &&
           attribute(cudaDevAttrMemoryPoolsSupported, ordinal) &&
           attribute(cudaDevAttrComputeMode, ordinal) != cudaComputeModeProhibited;
}

static void discover(void) {
    // Without the handler a child could not know, so there is no device then.
    if (pthread_atfork(NULL, NULL, after_fork_in_child) != 0)
        return;
    atomic_store(&touched, true);
    int found = 0;
    // No driver, an old one, the toolkit's stub, no device: whatever the error, there is none.
    if (nd__cuda_status(cudaGetDeviceCount(&found)) != ND_OK)
        return;
    // Handlers run last in, first out: this one runs before those that the driver has just set up.
    if (atexit(at_process_exit) != 0)
        return;
    only_one = found == 1;
    for (int ordinal = 0; ordinal < found && device_total < ND__CUDA_DEVICES; ordinal++) {
        if (!is_usable(ordinal))
            continue;
        nd_cuda_device *device = &devices[device_total];
        nd__cuda_stream_number(device, device_total++);
        device->ordinal = ordinal;
        device->multiprocessors = attribute(cudaDevAttrMultiProcessorCount, ordinal);
        device->overlaps = can_overlap(ordinal);
        device->shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal);
        device->has_warpgroups = capability_of(ordinal) == 90;
        pthread_mutex_init(&device->lock, NULL);
        pthread_mutex_init(&device->blas_lock, NULL);
        pthread_mutex_init(&device->staging.lock, NULL);
    }
}

static int cuda_device_count(void) {
    ND__UNCANCELLED;
    if (!step_in())
        return 0;
    pthread_once(&discovered, discover);
    step_out();
    return device_total;
}

/// Stream, pool and flag of a device, at its first use. What a failure leaves is taken up again by
/// the next try.
static nd_status prepare(nd_cuda_device *device) {
    nd_status status = nd__cuda_stream_make(&device->streams[ND__CUDA_DEFAULT]);
    if (status == ND_OK && !device->pool) {
        struct cudaMemPoolProps properties = {
            .allocType = cudaMemAllocationTypePinned,
            .location = {.type = cudaMemLocationTypeDevice, .id = device->ordinal},
        };
        status = nd__cuda_status(cudaMemPoolCreate(&device->pool, &properties));
    }
    if (status == ND_OK) {
        uint64_t keep_all = UINT64_MAX;
        status = nd__cuda_status(
            cudaMemPoolSetAttribute(device->pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
    }
    if (status == ND_OK && !device->out_of_range) {
        void *flag = NULL;
        status = nd__cuda_status(
            cudaHostAlloc(&flag, sizeof *device->out_of_range, cudaHostAllocPortable));
        if (status == ND_OK) {
            device->out_of_range = flag;
            *device->out_of_range = 0;
        }
    }
    if (status == ND_OK)
        nd__cuda_kept_prepare(device);
    // The context set up handlers of its own, which must run after ours.
    if (status == ND_OK && atexit(at_process_exit) != 0)
        status = ND_ERROR_OUT_OF_MEMORY;
    return status;
}

/// Makes a device current in this thread, prepared. Every function but device_count begins here.
nd_status nd__cuda_enter(int index, nd_cuda_device **ret_device, nd_cuda_caller *ret_caller) {
    ret_caller->entered = ret_caller->entered || step_in();
    if (!ret_caller->entered)
        return ND_ERROR_DEVICE;
    pthread_once(&discovered, discover);
    if (index < 0 || index >= device_total)
        return ND_ERROR_DEVICE;
    nd_cuda_device *device = &devices[index];
    int ordinal = device->ordinal;
    nd_status status = only_one ? ND_OK : nd__cuda_status(cudaGetDevice(&ordinal));
    if (status == ND_OK && ordinal != device->ordinal) {
        status = nd__cuda_status(cudaSetDevice(device->ordinal));
        if (status == ND_OK)
            ret_caller->ordinal = ordinal;
    }
    if (status != ND_OK)
        return status;
    if (!only_one)
        nd__cuda_graph_free_thread();
    if (!atomic_load_explicit(&device->ready, memory_order_acquire)) {
        pthread_mutex_lock(&device->lock);
        if (!atomic_load_explicit(&device->ready, memory_order_relaxed)) {
            status = prepare(device);
            if (status == ND_OK)
                atomic_store_explicit(&device->ready, true, memory_order_release);
        }
        pthread_mutex_unlock(&device->lock);
    }
    *ret_device = device;
    return status;
}

nd_status nd__cuda_enter_uncaptured(int index, nd_cuda_device **ret_device,
                                    nd_cuda_caller *ret_caller) {
    return nd__capture_running() ? ND_ERROR_STATE : nd__cuda_enter(index, ret_device, ret_caller);
}

/// For work, which a thread that captures does on the captured device alone.
static nd_status enter_to_work(int index, nd_cuda_device **ret_device, nd_cuda_caller *ret_caller) {
    return nd__capture_is_of(ND_CUDA, index)
               ? nd__cuda_enter(index, ret_device, ret_caller)
               : nd__cuda_enter_uncaptured(index, ret_device, ret_caller);
}

void nd__cuda_leave(nd_cuda_caller *caller) {
    if (caller->ordinal >= 0)
        (void)nd__cuda_status(cudaSetDevice(caller->ordinal));
    if (caller->entered)
        step_out();
    *caller = (nd_cuda_caller){.ordinal = -1};
}

// ------------------------------------------------------------------------------------------------
// memory

static nd_status cuda_allocate(int index, size_t bytes, void **ret_pointer) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = enter_to_work(index, &device, &caller);
    if (status != ND_OK)
        return status;
    bytes = bytes ? bytes : 1;
    nd_cuda_stream *stream = nd__cuda_stream_now(device);
    if (stream->captured)
        return nd__cuda_graph_allocate(stream, bytes, ret_pointer);
    return nd__cuda_take(stream, bytes, ret_pointer);
}

static void cuda_release(int index, void *pointer, size_t bytes) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    (void)bytes;
    if (!pointer || index >= cuda_device_count())
        return;
    if (nd__capture_running()) {
        nd__cuda_graph_put_off(pointer);
        return;
    }
    // The work queued so far that uses it comes first; a device that has failed keeps its memory.
    if (nd__cuda_enter(index, &device, &caller) != ND_OK)
        return;
    const nd_cuda_retired retired = nd__order_remove(device, pointer);
    nd__cuda_give_back(&retired);
}

// ------------------------------------------------------------------------------------------------
// copies and waiting

bool nd__cuda_is_final(cudaError_t error) {
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
        return true;
    default:
        return false;
    }
}

/// Waits for a stream. A wait that fails is tried again, because what is queued may be a copy
/// from or to memory that the caller takes back as soon as this returns; of a device that is lost,
/// which does nothing any more, the answer stays the same.
static nd_status empty_stream(nd_cuda_stream *stream) {
    const uint64_t queued = nd__order_queued(stream);
    cudaError_t error = cudaStreamSynchronize(stream->handle);
    const nd_status status = nd__cuda_status(error);
    for (int again = 0; error != cudaSuccess && again < 3; again++) {
        error = cudaStreamSynchronize(stream->handle);
        (void)nd__cuda_status(error);
    }
    if (error == cudaSuccess)
        nd__order_done(stream, queued);
    else if (nd__cuda_is_final(error))
        atomic_store(&stream->device->failed, true);
    return status;
}

nd_status nd__cuda_data_status(nd_cuda_device *device) {
    if (__atomic_load_n(device->out_of_range, __ATOMIC_ACQUIRE) == 0)
        return ND_OK;
    return __atomic_exchange_n(device->out_of_range, 0, __ATOMIC_ACQ_REL)
               ? ND_ERROR_INVALID_ARGUMENT
               : ND_OK;
}

/// Waits for a stream and says what its work made of its data.
nd_status nd__cuda_wait_for(nd_cuda_stream *stream) {
    nd_status status = empty_stream(stream);
    if (status == ND_OK)
        status = nd__cuda_data_status(stream->device);
    return status == ND_OK ? nd__cuda_peer_status(stream->device) : status;
}

static nd_status cuda_copy_from_host(int index, void *destination, const void *source,
                                     size_t bytes) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    if (status != ND_OK || bytes == 0)
        return status;
    nd_cuda_stream *stream = nd__cuda_stream_now(device);
    const nd_cuda_access written = {destination, true};
    status = nd__order_before(stream, 1, &written);
    if (status != ND_OK)
        return status;
    if (bytes <= ND__CUDA_STAGING_BYTES) {
        status = nd__staging_take(stream, destination, source, bytes);
        if (status != ND_ERROR_UNSUPPORTED) {
            nd__order_after(stream, 1, &written);
            return status;
        }
    }
    status = nd__cuda_status(
        cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, stream->handle));
    nd__order_after(stream, 1, &written);
    if (status != ND_OK)
        return status;
    // The caller may change or free its memory as soon as this returns.
    return empty_stream(stream);
}

static nd_status cuda_copy_to_host(int index, void *destination, const void *source, size_t bytes) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    if (status != ND_OK)
        return status;
    nd_cuda_stream *stream = nd__cuda_stream_now(device);
    const nd_cuda_access read = {source, false};
    if (bytes > 0) {
        status = nd__order_before(stream, 1, &read);
        if (status == ND_OK)
            status = nd__cuda_status(cudaMemcpyAsync(destination, source, bytes,
                                                     cudaMemcpyDeviceToHost, stream->handle));
        nd__order_after(stream, 1, &read);
    }
    return status == ND_OK ? nd__cuda_wait_for(stream) : status;
}

/// Every stream, that of releases last: it waits for the others.
static nd_status cuda_synchronize(int index) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    if (status != ND_OK)
        return status;
    const uint64_t sources = nd__cuda_peer_sources(device);
    for (int place = ND__CUDA_STREAMS - 1; place >= 0; place--)
        if (nd__cuda_stream_is_made(&device->streams[place])) {
            nd_status waited = empty_stream(&device->streams[place]);
            status = status == ND_OK ? waited : status;
        }
    if (status == ND_OK)
        status = nd__cuda_data_status(device);
    if (status != ND_OK)
        return status;
    status = nd__cuda_peer_status(device);
    nd__cuda_peer_forget(device, sources);
    return status;
}

// ------------------------------------------------------------------------------------------------
// kernels

static nd_status scratch_allocate(void *context, size_t bytes, void **ret_pointer) {
    nd_cuda_stream *stream = context;
    return stream->captured ? nd__cuda_graph_allocate(stream, bytes, ret_pointer)
                            : nd__cuda_take_new(stream, bytes, ret_pointer);
}

static void scratch_release(void *context, void *pointer) {
    nd_cuda_stream *stream = context;
    if (stream->captured) {
        const nd_cuda_access used = {pointer, true};
        nd__order_after(stream, 1, &used); // the work is no operand's
        nd__cuda_graph_put_off(pointer);
    } else {
        (void)nd__cuda_status(cudaFreeAsync(pointer, stream->handle));
    }
}

static nd_status copy_on_device(void *context, void *destination, const void *source,
                                size_t bytes) {
    const nd_cuda_stream *stream = context;
    return nd__cuda_status(
        cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, stream->handle));
}

static nd_status launch_on(nd_cuda_stream *stream, const nd_kernel_call *call) {
    nd_cuda_queue queue = {
        .stream = stream->handle,
        .multiprocessors = stream->device->multiprocessors,
        .shared_bytes = stream->device->shared_bytes,
        .overlaps = stream->device->overlaps,
        .has_warpgroups = stream->device->has_warpgroups,
        .out_of_range = stream->device->out_of_range,
        .context = stream,
        .allocate = scratch_allocate,
        .release = scratch_release,
        .copy = copy_on_device,
    };
    nd_status status = nd__library_launch(stream->device, &queue, call);
    return status == ND_ERROR_UNSUPPORTED ? nd__cuda_launch(&queue, call) : status;
}

static nd_status cuda_launch(int index, const nd_kernel_call *call) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = enter_to_work(index, &device, &caller);
    if (status != ND_OK)
        return status;
    nd_cuda_stream *stream = nd__cuda_stream_now(device);
    nd_cuda_access accesses[ND_MAX_OPERANDS];
    const size_t count = nd__order_of_call(call, accesses);
    status = nd__order_before(stream, count, accesses);
    if (status != ND_OK)
        return status;
    status = launch_on(stream, call);
    nd__order_after(stream, count, accesses);
    nd__cuda_graph_note(stream, status);
    return status;
}

static nd_status cuda_launch_chains(int index, size_t count, const nd_chain *chains) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = enter_to_work(index, &device, &caller);
    if (status != ND_OK)
        return status;
    nd_cuda_stream *stream = nd__cuda_stream_now(device);
    nd_cuda_access accesses[ND__ORDER_OF_CHAIN];
    for (size_t i = 0; i < count && status == ND_OK; i++) {
        nd__order_of_chain(&chains[i], accesses);
        status = nd__order_before(stream, ND__ORDER_OF_CHAIN, accesses);
    }
    if (status != ND_OK)
        return status;
    nd_cuda_queue queue = {.stream = stream->handle,
                           .multiprocessors = device->multiprocessors,
                           .overlaps = device->overlaps};
    status = nd__cuda_chains(&queue, count, chains);
    for (size_t i = 0; i < count; i++) {
        nd__order_of_chain(&chains[i], accesses);
        nd__order_after(stream, ND__ORDER_OF_CHAIN, accesses);
    }
    nd__cuda_graph_note(stream, status);
    return status;
}

/// On a thread of the driver, which must not call CUDA meanwhile. A device that has failed may
/// never get there: CUDA runs no such function behind a sticky error.
static nd_status cuda_call(int index, void (*function)(void *data), void *data) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    return status == ND_OK ? nd__cuda_status(cudaLaunchHostFunc(nd__cuda_stream_now(device)->handle,
                                                                function, data))
                           : status;
}

static bool cuda_lost(int index) {
    (void)index;
    return atomic_load(&left_behind);
}

static bool cuda_failed(int index) {
    return index < ND__CUDA_DEVICES && atomic_load(&devices[index].failed);
}

const nd_backend nd__cuda_backend = {
    .name = "cuda",
    .host_accessible = false,
    .fuses = true,
    .device_count = cuda_device_count,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .copy_from_host = cuda_copy_from_host,
    .copy_to_host = cuda_copy_to_host,
    .synchronize = cuda_synchronize,
    .launch = cuda_launch,
    .launch_chains = cuda_launch_chains,
    .call = cuda_call,
    .copy_peer = nd__cuda_peer_copy,
    .streams = &nd__cuda_stream_functions,
    .graphs = &nd__cuda_graph_functions,
    .memory = &nd__cuda_memory_functions,
    .lost = cuda_lost,
    .failed = cuda_failed,
};
