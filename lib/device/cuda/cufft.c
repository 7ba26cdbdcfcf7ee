// See cufft.h. cuFFT is opened at run time (ND_CUFFT names the file, as ND_CUBLAS does); the prototypes
// are those of CUDA 12 and 13.
//
// cuFFT transforms lines that lie one behind the other. Kernels of ndarc's own put them there, cut or
// filled with zeros, multiply and put the results where they belong; what lies right already is
// neither copied nor multiplied.
//
// A plan is all that depends on sizes alone. Making one takes the host's time, and it holds memory of the
// device, so the last ones are kept, MOST_PLANS of each device, and beside them those that graphs were
// captured with, as long as there are these graphs: launches use what a plan holds. Working memory is no
// plan's own: it is given to a plan for each run, so that runs on several streams do not share it.
#include "lib/device/cuda/cufft.h"
#include "lib/base/alloc.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/cuda_graph.h"

enum { MOST_PLANS = 64 };
#define ALIGNMENT ((size_t)256) ///< of what is cut from one piece of memory

typedef int make_function(int *ret_plan);
typedef int set_number_function(int plan, int number);
typedef int lay_out_function(int plan, int rank, long long *n, long long *in_sizes,
                             long long in_stride, long long in_apart, long long *out_sizes,
                             long long out_stride, long long out_apart, int type, long long count,
                             size_t *ret_bytes);
typedef int set_stream_function(int plan, cudaStream_t stream);
typedef int set_memory_function(int plan, void *memory);
typedef int run_signed_function(int plan, void *in, void *out, int sign);
typedef int run_function(int plan, void *in, void *out);
typedef int destroy_function(int plan);

static struct {
    make_function *make;
    set_number_function *set_allocates;
    lay_out_function *lay_out;
    set_stream_function *set_stream;
    set_memory_function *set_memory;
    run_signed_function *run_c2c, *run_z2z;
    run_function *run_r2c, *run_c2r, *run_d2z, *run_z2d;
    destroy_function *destroy;
} cufft;

static const nd_library_function functions[] = {
    {"cufftCreate", &cufft.make},
    {"cufftSetAutoAllocation", &cufft.set_allocates},
    {"cufftMakePlanMany64", &cufft.lay_out},
    {"cufftSetStream", &cufft.set_stream},
    {"cufftSetWorkArea", &cufft.set_memory},
    {"cufftExecC2C", &cufft.run_c2c},
    {"cufftExecZ2Z", &cufft.run_z2z},
    {"cufftExecR2C", &cufft.run_r2c},
    {"cufftExecC2R", &cufft.run_c2r},
    {"cufftExecD2Z", &cufft.run_d2z},
    {"cufftExecZ2D", &cufft.run_z2d},
    {"cufftDestroy", &cufft.destroy},
    {0},
};

static nd_library library = {
    .variable = "ND_CUFFT",
    .stem = "libcufft",
    .versions = {12, 11},
    .folders = {"cufft", "cu13"},
    .functions = functions,
    .lock = ND_LIBRARY_LOCK,
};

// ------------------------------------------------------------------------------------------------
// a call

/// One side of a transform: where its numbers are in a tensor, and how a line of them is.
typedef struct fft_side {
    void *tensor, *lines; ///< the same where a line lies in the tensor as it should
    int64_t numbers;      ///< of a place: 1, or 2 of a pair
    int64_t in_tensor;    ///< places along the axis
    int64_t in_line;      ///< places of a line
    int64_t both;         ///< the smaller number
    size_t bytes;         ///< of all lines
} fft_side;

typedef struct fft_run {
    const nd_cuda_queue *queue;
    nd_op op;
    nd_dtype dtype;
    int64_t outer, inner, n, sign;
    double scale, weight;
    fft_side x, out;
} fft_run;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/// False: more bytes than can be counted.
static bool describe_side(const fft_run *run, const nd_operand *operand, bool pairs, bool half,
                          int64_t in_tensor, fft_side *ret_side) {
    fft_side side = {
        .tensor = operand->data,
        .numbers = pairs ? 2 : 1,
        .in_tensor = in_tensor,
        .in_line = half ? run->n / 2 + 1 : run->n,
    };
    side.both = least(in_tensor, side.in_line);
    const bool is_overwritten = half && run->op == ND_OP_irfft; // by cuFFT, which reads it
    const bool lies_right = run->inner == 1 && in_tensor == side.in_line && !is_overwritten &&
                            (uintptr_t)operand->data % 16 == 0;
    side.lines = lies_right ? side.tensor : NULL;
    size_t place = (run->dtype == ND_F64 ? 8u : 4u) * (size_t)side.numbers;
    bool fits = !__builtin_mul_overflow((size_t)run->outer * (size_t)run->inner,
                                        (size_t)side.in_line * place, &side.bytes) &&
                side.bytes < (size_t)INT64_MAX / 4;
    *ret_side = side;
    return fits;
}

static bool describe(const nd_cuda_queue *queue, const nd_kernel_call *call, fft_run *ret_run) {
    const int64_t *i = call->attrs.i;
    *ret_run = (fft_run){
        .queue = queue,
        .op = call->op,
        .dtype = call->operand[0].dtype,
        .outer = i[0],
        .inner = i[1],
        .n = i[4],
        .sign = i[5],
        .scale = call->attrs.f[0],
        .weight = call->attrs.f[1],
    };
    const bool from_half = call->op == ND_OP_irfft, to_half = call->op == ND_OP_rfft;
    return describe_side(ret_run, &call->operand[1], !to_half, from_half, i[2], &ret_run->x) &&
           describe_side(ret_run, &call->operand[0], !from_half, to_half, i[3], &ret_run->out);
}

// ------------------------------------------------------------------------------------------------
// places and factors

static nd_status fill_with_zeros(const fft_run *run, void *data, size_t bytes) {
    const nd_kernel_call call = {
        .op = ND_OP_fill,
        .noperands = 1,
        .ndim = 1,
        .shape = {(int64_t)(bytes / (run->dtype == ND_F64 ? 8 : 4))},
        .operand = {{.data = data, .dtype = run->dtype, .strides = {1}}},
    };
    return nd__cuda_launch(run->queue, &call);
}

/// Copies between a tensor and lines, as many places as both have.
static nd_status move(const fft_run *run, const fft_side *side, bool to_lines) {
    const int64_t numbers = side->numbers;
    const nd_operand tensor = {
        side->tensor,
        run->dtype,
        {side->in_tensor * run->inner * numbers, numbers, run->inner * numbers, 1}};
    const nd_operand lines = {
        side->lines,
        run->dtype,
        {run->inner * side->in_line * numbers, side->in_line * numbers, numbers, 1}};
    const nd_kernel_call call = {
        .op = ND_OP_clone,
        .noperands = 2,
        .ndim = 4,
        .shape = {run->outer, run->inner, side->both, numbers},
        .operand = {to_lines ? lines : tensor, to_lines ? tensor : lines},
    };
    return nd__cuda_launch(run->queue, &call);
}

/// Multiplies the numbers `part` (0: real, 1: imaginary) of the places [begin, end) of each half among
/// the lines; by 0: whatever they were.
static nd_status multiply_places(const fft_run *run, const fft_side *half, int part, int64_t begin,
                                 int64_t end, double factor) {
    if (begin >= end || factor == 1)
        return ND_OK;
    const size_t number = run->dtype == ND_F64 ? 8 : 4;
    const nd_operand places = {(char *)half->lines + (size_t)(2 * begin + part) * number,
                               run->dtype,
                               {2 * half->in_line, 2}};
    const nd_kernel_call call = {
        .op = factor == 0 ? ND_OP_fill : ND_OP_mul_scalar,
        .noperands = factor == 0 ? 1 : 2,
        .ndim = 2,
        .shape = {run->outer * run->inner, end - begin},
        .operand = {places, places},
        .attrs = {.f = {factor}},
    };
    return nd__cuda_launch(run->queue, &call);
}

/// The factors of kernels/cpu/fft.h on each half: `ends` where a place is real, which then loses its
/// imaginary part; elsewhere that times the weight, and the imaginary part times `sign` too.
static nd_status weigh(const fft_run *run, const fft_side *half, double ends, double sign) {
    const int64_t middle = run->n / 2, behind = (run->n + 1) / 2;
    const double inner = ends * run->weight;
    nd_status status = multiply_places(run, half, 0, 0, 1, ends);
    if (status == ND_OK)
        status = multiply_places(run, half, 1, 0, 1, 0);
    if (status == ND_OK && run->n % 2 == 0)
        status = multiply_places(run, half, 0, middle, middle + 1, ends);
    if (status == ND_OK && run->n % 2 == 0)
        status = multiply_places(run, half, 1, middle, middle + 1, 0);
    if (status == ND_OK)
        status = multiply_places(run, half, 0, 1, behind, inner);
    return status == ND_OK ? multiply_places(run, half, 1, 1, behind, sign * inner) : status;
}

static nd_status scale(const fft_run *run) {
    if (run->scale == 1)
        return ND_OK;
    const nd_operand all = {run->out.lines, run->dtype, {1}};
    const nd_kernel_call call = {
        .op = ND_OP_mul_scalar,
        .noperands = 2,
        .ndim = 1,
        .shape = {(int64_t)(run->out.bytes / (run->dtype == ND_F64 ? 8 : 4))},
        .operand = {all, all},
        .attrs = {.f = {run->scale}},
    };
    return nd__cuda_launch(run->queue, &call);
}

static nd_status bring_in(const fft_run *run) {
    const fft_side *x = &run->x;
    nd_status status = ND_OK;
    if (x->lines != x->tensor) {
        if (x->both < x->in_line)
            status = fill_with_zeros(run, x->lines, x->bytes);
        if (status == ND_OK)
            status = move(run, x, true);
    }
    if (status == ND_OK && run->op == ND_OP_irfft)
        status = weigh(run, x, 1, (double)run->sign); // cuFFT's sign is 1
    return status;
}

static nd_status bring_out(const fft_run *run) {
    const fft_side *out = &run->out;
    nd_status status = run->op == ND_OP_rfft
                           ? weigh(run, out, run->scale, -(double)run->sign) // cuFFT's sign is -1
                           : scale(run);
    if (status != ND_OK || out->lines == out->tensor)
        return status;
    if (out->both < out->in_tensor) {
        const size_t place = (run->dtype == ND_F64 ? 8u : 4u) * (size_t)out->numbers;
        status = fill_with_zeros(run, out->tensor,
                                 (size_t)(run->outer * run->inner * out->in_tensor) * place);
    }
    return status == ND_OK ? move(run, out, false) : status;
}

// ------------------------------------------------------------------------------------------------
// plans

/// Of so many lines of n elements. A size that cuFFT refused has one, which is not made.
typedef struct fft_plan {
    struct fft_plan *next;
    nd_cuda_device *device;
    int type;
    int64_t n, count;
    bool made;
    int handle;
    size_t bytes;    ///< of working memory
    uint64_t used;   ///< number of the call that it was used for last
    uint64_t graphs; ///< captured uses of graphs that there are
} fft_plan;

/// By ndarc's number of the device, each guarded by that device's blas_lock.
static struct {
    uint64_t calls;
    fft_plan *plans; ///< owned
} kept[ND__CUDA_DEVICES];

/// Whether that is said of a size, and will be said of it again.
static bool is_refusal(int status) {
    return status == ND__FFT_INVALID_TYPE || status == ND__FFT_INVALID_VALUE ||
           status == ND__FFT_INVALID_SIZE || status == ND__FFT_NOT_IMPLEMENTED ||
           status == ND__FFT_NOT_SUPPORTED;
}

/// ND_ERROR_UNSUPPORTED: there is no plan now, and where it was refused there never will be.
static nd_status make_plan(fft_plan *plan, bool *ret_refused) {
    long long n = plan->n;
    *ret_refused = false;
    int status = cufft.make(&plan->handle);
    if (status != ND__FFT_SUCCESS)
        return status == ND__FFT_ALLOC_FAILED ? ND_ERROR_OUT_OF_MEMORY : ND_ERROR_UNSUPPORTED;
    status = cufft.set_allocates(plan->handle, 0);
    if (status == ND__FFT_SUCCESS)
        status = cufft.lay_out(plan->handle, 1, &n, NULL, 1, 0, NULL, 1, 0, plan->type, plan->count,
                               &plan->bytes);
    if (status == ND__FFT_SUCCESS)
        return ND_OK;
    *ret_refused = is_refusal(status);
    (void)cufft.destroy(plan->handle);
    (void)nd__cuda_status(cudaGetLastError()); // what a refusal may have left
    return status == ND__FFT_ALLOC_FAILED ? ND_ERROR_OUT_OF_MEMORY : ND_ERROR_UNSUPPORTED;
}

/// Of the plans that no graph uses, where the one is that was used longest ago; NULL: there are fewer than
/// MOST_PLANS.
static fft_plan **oldest_of_many(const nd_cuda_device *device) {
    fft_plan **oldest = NULL;
    int count = 0;
    for (fft_plan **at = &kept[device->index].plans; *at; at = &(*at)->next) {
        if ((*at)->graphs > 0)
            continue;
        count++;
        if (!oldest || (*at)->used < (*oldest)->used)
            oldest = at;
    }
    return count < MOST_PLANS ? NULL : oldest;
}

static void make_room(const nd_cuda_device *device) {
    fft_plan **at;
    while ((at = oldest_of_many(device))) {
        fft_plan *plan = *at;
        *at = plan->next;
        if (plan->made)
            (void)cufft.destroy(plan->handle); // waits for its runs
        nd__alloc_free(plan);
    }
}

/// A new plan, or none for a size that is refused.
static nd_status add_plan(nd_cuda_device *device, int type, int64_t n, int64_t count,
                          fft_plan **ret_plan) {
    if (nd__capture_running())
        return ND_ERROR_UNSUPPORTED;
    make_room(device);
    fft_plan *plan = nd__alloc(sizeof *plan);
    if (!plan)
        return ND_ERROR_OUT_OF_MEMORY;
    *plan = (fft_plan){.device = device, .type = type, .n = n, .count = count};
    bool refused;
    nd_status status = make_plan(plan, &refused);
    if (status != ND_OK && !refused) { // there may be room later
        nd__alloc_free(plan);
        return status;
    }
    plan->made = status == ND_OK;
    plan->next = kept[device->index].plans;
    kept[device->index].plans = plan;
    *ret_plan = plan;
    return ND_OK;
}

/// Caller holds blas_lock.
static nd_status plan_for(nd_cuda_device *device, int type, int64_t n, int64_t count,
                          fft_plan **ret_plan) {
    fft_plan *plan = kept[device->index].plans;
    while (plan && (plan->type != type || plan->n != n || plan->count != count))
        plan = plan->next;
    nd_status status = plan ? ND_OK : add_plan(device, type, n, count, &plan);
    if (status != ND_OK)
        return status;
    plan->used = ++kept[device->index].calls;
    *ret_plan = plan;
    return plan->made ? ND_OK : ND_ERROR_UNSUPPORTED;
}

/// A graph is gone.
static void let_go(void *data) {
    fft_plan *plan = data;
    pthread_mutex_lock(&plan->device->blas_lock);
    plan->graphs--;
    pthread_mutex_unlock(&plan->device->blas_lock);
}

/// While this thread captures, its graph keeps the plan.
static nd_status keep_in_graph(fft_plan *plan) {
    if (!nd__capture_running())
        return ND_OK;
    nd_status status = nd__cuda_graph_keep(plan, let_go);
    plan->graphs += status == ND_OK;
    return status;
}

// ------------------------------------------------------------------------------------------------
// running

static int type_of(const fft_run *run) {
    const bool wide = run->dtype == ND_F64;
    switch (run->op) {
    case ND_OP_rfft:
        return wide ? ND__FFT_D2Z : ND__FFT_R2C;
    case ND_OP_irfft:
        return wide ? ND__FFT_Z2D : ND__FFT_C2R;
    default:
        return wide ? ND__FFT_Z2Z : ND__FFT_C2C;
    }
}

static int run_plan(const fft_run *run, int handle) {
    void *in = run->x.lines, *out = run->out.lines;
    switch (type_of(run)) {
    case ND__FFT_R2C:
        return cufft.run_r2c(handle, in, out);
    case ND__FFT_D2Z:
        return cufft.run_d2z(handle, in, out);
    case ND__FFT_C2R:
        return cufft.run_c2r(handle, in, out);
    case ND__FFT_Z2D:
        return cufft.run_z2d(handle, in, out);
    case ND__FFT_Z2Z:
        return cufft.run_z2z(handle, in, out, (int)run->sign);
    default:
        return cufft.run_c2c(handle, in, out, (int)run->sign);
    }
}

/// Lines of one element are their own transforms.
static nd_status copy_elements(const fft_run *run) {
    const fft_side *x = &run->x, *out = &run->out;
    const nd_kernel_call call = {
        .op = ND_OP_clone,
        .noperands = 2,
        .ndim = 2,
        .shape = {run->outer * run->inner, least(x->numbers, out->numbers)},
        .operand = {{out->lines, run->dtype, {out->numbers, 1}},
                    {x->lines, run->dtype, {x->numbers, 1}}},
    };
    nd_status status =
        out->numbers > x->numbers ? fill_with_zeros(run, out->lines, out->bytes) : ND_OK;
    return status == ND_OK ? nd__cuda_launch(run->queue, &call) : status;
}

static nd_status transform_lines(const fft_run *run, fft_plan *plan, void *memory) {
    nd_status status = keep_in_graph(plan);
    if (status != ND_OK)
        return status;
    if (cufft.set_stream(plan->handle, (cudaStream_t)run->queue->stream) == ND__FFT_SUCCESS &&
        (!memory || cufft.set_memory(plan->handle, memory) == ND__FFT_SUCCESS) &&
        run_plan(run, plan->handle) == ND__FFT_SUCCESS)
        return ND_OK;
    (void)nd__cuda_status(cudaGetLastError());
    return ND_ERROR_DEVICE;
}

static nd_status transform(const fft_run *run, fft_plan *plan, void *memory) {
    nd_status status = bring_in(run);
    if (status == ND_OK)
        status = plan ? transform_lines(run, plan, memory) : copy_elements(run);
    return status == ND_OK ? bring_out(run) : status;
}

static size_t rounded(size_t bytes) {
    return (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

/// With memory for the lines that are not tensors, and for the plan, which lines of one element have not.
static nd_status transform_in_memory(fft_run *run, fft_plan *plan) {
    const size_t of_x = run->x.lines ? 0 : rounded(run->x.bytes);
    const size_t of_out = run->out.lines ? 0 : rounded(run->out.bytes);
    const size_t of_plan = plan ? plan->bytes : 0;
    if (of_plan > SIZE_MAX / 2)
        return ND_ERROR_OUT_OF_MEMORY;
    void *memory = NULL;
    const size_t bytes = of_x + of_out + of_plan;
    nd_status status =
        bytes > 0 ? run->queue->allocate(run->queue->context, bytes, &memory) : ND_OK;
    if (status != ND_OK)
        return status;
    if (!run->x.lines)
        run->x.lines = memory;
    if (!run->out.lines)
        run->out.lines = (char *)memory + of_x;
    status = transform(run, plan, of_plan > 0 ? (char *)memory + of_x + of_out : NULL);
    if (memory)
        run->queue->release(run->queue->context, memory);
    return status;
}

nd_status nd__cufft_transform(nd_cuda_device *device, const nd_cuda_queue *queue,
                              const nd_kernel_call *call) {
    fft_run run;
    if (!nd__library_open(&library) || !describe(queue, call, &run))
        return ND_ERROR_UNSUPPORTED;
    if (run.n == 1)
        return transform_in_memory(&run, NULL);
    fft_plan *plan;
    pthread_mutex_lock(&device->blas_lock);
    nd_status status = plan_for(device, type_of(&run), run.n, run.outer * run.inner, &plan);
    if (status == ND_OK)
        status = transform_in_memory(&run, plan);
    pthread_mutex_unlock(&device->blas_lock);
    return status;
}
