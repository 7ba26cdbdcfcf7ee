// Convolutions of f32 and bf16 through oneDNN, in parts that threads claim.
//
// A part is a range of images and, where there are few images, a range of channels: those of the
// output, or of the input for its gradient; of both, by whole groups, where there are groups. Where rows
// are long it is a range of a row's runs (onednn_row.h) instead, which are computed one by one.
// oneDNN computes a part on one thread. Parts write to different places, but for the gradient of
// the weight: there each range of images or runs makes a sum of its own, and the sums are added in order.
// The gradient of a weight of bf16 is a sum of f32, which is rounded at the end.
// How a convolution is cut depends on panels.h. Memory for reordered operands and scratch is the
// computing thread's own; that there is none is said apart from other failures, since the caller may
// find some.
#include "kernels/cpu/onednn_row.h"

#if ND_HAVE_ONEDNN
#include "kernels/cpu/panels.h"
#include "kernels/cpu/scratch.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/// The fewest channels of a part, and what their number is a multiple of.
#define CHANNELS 16
/// Elements of x and y that a part has, about, where their images are many: in another layout they
/// are working memory, which a cache should hold, and which is kept for the next part up to a size.
#define PART_ELEMENTS ((int64_t)1 << 20)

typedef struct conv_job {
    const nd_kernel_call *call;
    nd__conv_part whole;
    nd__conv_row row;
    int64_t images, channels, stretches; ///< ranges of images, of channels, of runs
    int64_t units, step; ///< what ranges of channels divide, by how many: channels or groups
    int64_t weights;     ///< elements of the weight
    int64_t bytes;       ///< of an element
    float *sums; ///< of the weight's gradient, of all ranges but the first; of bf16 of that, too
    void *reordered; ///< the weight as `layout`, or NULL
    dnnl_memory_desc_t layout;
    _Atomic nd_status status; ///< of the first part that failed
} conv_job;

static nd_status status_of(dnnl_status_t status) {
    if (status == dnnl_success)
        return ND_OK;
    return status == dnnl_out_of_memory ? ND_ERROR_OUT_OF_MEMORY : ND_ERROR_UNSUPPORTED;
}

static void fail(conv_job *job, nd_status status) {
    nd_status none = ND_OK;
    atomic_compare_exchange_strong(&job->status, &none, status);
}

static nd_status run_reorder(dnnl_primitive_t reorder, dnnl_memory_t from, dnnl_memory_t to,
                             dnnl_stream_t stream) {
    dnnl_exec_arg_t arguments[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return status_of(dnnl_primitive_execute(reorder, stream, 2, arguments));
}

static size_t rounded(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/// Operand memory in our layout and in theirs (the same where they agree), and the scratchpad. Copies of
/// pieces of rows are in our layout.
typedef struct conv_memory {
    float *copies[3];
    dnnl_memory_t ours[4], theirs[3], scratch;
    dnnl_stream_t stream;
} conv_memory;

/// Operands of a part, in our layout, and the weight in theirs where that was made for all parts.
typedef struct conv_operands {
    void *data[4];             ///< and a bias
    nd__conv_pieces pieces[3]; ///< of a run: what is copied; without images: nothing
    void *reordered;
} conv_operands;

static nd_status make_memory(const nd__conv_plan *plan, const conv_operands *operands,
                             conv_memory *memory) {
    size_t bytes = rounded(plan->scratch_bytes);
    for (int i = 0; i < 3; i++) {
        if (plan->reorder[i])
            bytes += rounded(dnnl_memory_desc_get_size(&plan->theirs[i]));
        if (operands->pieces[i].images)
            bytes += rounded(dnnl_memory_desc_get_size(&plan->ours[i]));
    }
    char *block = bytes ? (char *)nd__cpu_scratch(bytes) : NULL;
    if (bytes && !block)
        return ND_ERROR_OUT_OF_MEMORY;
    dnnl_status_t made =
        dnnl_stream_create(&memory->stream, plan->engine, dnnl_stream_default_flags);
    for (int i = 0; i < 3 && made == dnnl_success; i++) {
        void *data = operands->data[i];
        if (operands->pieces[i].images) {
            data = memory->copies[i] = (float *)block;
            block += rounded(dnnl_memory_desc_get_size(&plan->ours[i]));
        }
        made = dnnl_memory_create(&memory->ours[i], &plan->ours[i], plan->engine, data);
        if (made == dnnl_success && plan->reorder[i]) {
            void *theirs = i == 2 && operands->reordered ? operands->reordered : block;
            made = dnnl_memory_create(&memory->theirs[i], &plan->theirs[i], plan->engine, theirs);
            block += rounded(dnnl_memory_desc_get_size(&plan->theirs[i]));
        }
    }
    if (made == dnnl_success && plan->part.has_bias)
        made =
            dnnl_memory_create(&memory->ours[3], &plan->ours[3], plan->engine, operands->data[3]);
    if (made == dnnl_success && plan->scratch_bytes) {
        dnnl_memory_desc_t scratch;
        dnnl_dims_t size = {(dnnl_dim_t)plan->scratch_bytes};
        made = dnnl_memory_desc_init_by_tag(&scratch, 1, size, dnnl_u8, dnnl_a);
        if (made == dnnl_success)
            made = dnnl_memory_create(&memory->scratch, &scratch, plan->engine, block);
    }
    return status_of(made);
}

static void destroy_memory(conv_memory *memory) {
    for (int i = 0; i < 4; i++)
        if (memory->ours[i])
            dnnl_memory_destroy(memory->ours[i]);
    for (int i = 0; i < 3; i++)
        if (memory->theirs[i])
            dnnl_memory_destroy(memory->theirs[i]);
    if (memory->scratch)
        dnnl_memory_destroy(memory->scratch);
    if (memory->stream)
        dnnl_stream_destroy(memory->stream);
}

static nd_status run_plan(const nd__conv_plan *plan, const conv_operands *operands) {
    conv_memory memory;
    memset(&memory, 0, sizeof memory);
    nd_status status = make_memory(plan, operands, &memory);
    dnnl_exec_arg_t arguments[5];
    int count = 3;
    for (int i = 0; i < 3 && status == ND_OK; i++) {
        bool reordered = plan->reorder[i] != NULL;
        if (memory.copies[i] && i > 0)
            nd__conv_row_read(&operands->pieces[i], memory.copies[i]);
        arguments[i].arg = plan->argument[i];
        arguments[i].memory = reordered ? memory.theirs[i] : memory.ours[i];
        if (reordered && i > 0 && !(i == 2 && operands->reordered))
            status = run_reorder(plan->reorder[i], memory.ours[i], memory.theirs[i], memory.stream);
    }
    if (memory.scratch)
        arguments[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, memory.scratch};
    if (memory.ours[3])
        arguments[count++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, memory.ours[3]};
    if (status == ND_OK)
        status =
            status_of(dnnl_primitive_execute(plan->convolution, memory.stream, count, arguments));
    if (status == ND_OK && plan->reorder[0])
        status = run_reorder(plan->reorder[0], memory.theirs[0], memory.ours[0], memory.stream);
    if (memory.stream)
        dnnl_stream_wait(memory.stream);
    if (status == ND_OK && memory.copies[0])
        nd__conv_row_write(&operands->pieces[0], memory.copies[0]);
    destroy_memory(&memory);
    return status;
}

// ------------------------------------------------------------------------------------------- parts

/// Where the range with that number begins.
static int64_t begin_of_images(const conv_job *job, int64_t range) {
    return job->whole.sizes.n * range / job->images;
}
static int64_t begin_of_units(const conv_job *job, int64_t range) {
    if (range == job->channels)
        return job->units;
    return job->units * range / job->channels / job->step * job->step;
}

static int64_t begin_of_runs(const conv_job *job, int64_t range) {
    return job->row.runs * range / job->stretches;
}

static nd__conv_part whole_of(const nd_kernel_call *call) {
    nd__conv_part whole = {.sizes = nd__conv_sizes_of(call)};
    const nd__conv_sizes *s = &whole.sizes;
    whole.x_stride = s->ci * nd__windows_volume(s->x);
    whole.y_stride = s->co * nd__windows_volume(s->y);
    whole.weight_stride = s->ci / s->groups * nd__windows_volume(s->kernel);
    whole.is_bf16 = call->operand[1].dtype == ND_BF16;
    whole.has_bias = call->noperands > 3;
    return whole;
}

/// The part's ranges: of images, of runs, of channels.
static int64_t images_of(const conv_job *job, int64_t part) {
    return part / job->channels / job->stretches;
}
static int64_t stretch_of(const conv_job *job, int64_t part) {
    return part / job->channels % job->stretches;
}
static int64_t channels_of(const conv_job *job, int64_t part) {
    return part % job->channels;
}

/// With whole rows.
static nd__conv_part part_of(const conv_job *job, int64_t part) {
    int64_t image = images_of(job, part), range = channels_of(job, part);
    int64_t units = begin_of_units(job, range + 1) - begin_of_units(job, range);
    nd__conv_part result = job->whole;
    nd__conv_sizes *s = &result.sizes;
    s->n = begin_of_images(job, image + 1) - begin_of_images(job, image);
    if (s->groups > 1) {
        s->ci = s->ci / s->groups * units;
        s->co = s->co / s->groups * units;
        s->groups = units;
    } else if (job->call->op == ND_OP_conv_grad_input) {
        s->ci = units;
    } else {
        s->co = units;
    }
    return result;
}

/// The sum of a range: the first is the result, where that is of f32.
static float *sum_of(const conv_job *job, int64_t range) {
    if (!job->whole.is_bf16 && range-- == 0)
        return (float *)job->call->operand[0].data;
    return job->sums + range * job->weights;
}

static void operands_of_part(const conv_job *job, int64_t part, conv_operands *ret_operands) {
    const nd_kernel_call *call = job->call;
    const nd__conv_part *whole = &job->whole;
    const nd__conv_sizes *s = &whole->sizes;
    int64_t image = begin_of_images(job, images_of(job, part));
    int64_t unit = begin_of_units(job, channels_of(job, part)), groups = s->groups;
    bool by_input = call->op == ND_OP_conv_grad_input;
    // First channels of the part. Those of the input are also the weight's where they are divided.
    int64_t ci = groups > 1 ? unit * (s->ci / groups) : by_input ? unit : 0;
    int64_t co = groups > 1 ? unit * (s->co / groups) : by_input ? 0 : unit;
    int64_t x = image * whole->x_stride + ci * nd__windows_volume(s->x);
    int64_t y = image * whole->y_stride + co * nd__windows_volume(s->y);
    int64_t weight =
        co * whole->weight_stride + (groups > 1 ? 0 : ci * nd__windows_volume(s->kernel));
    const bool by_weight = call->op == ND_OP_conv_grad_weight;
    const int64_t from[4] = {by_input ? x : y, by_input ? y : x, by_weight ? y : weight, co};
    for (int i = 0; i < call->noperands; i++)
        ret_operands->data[i] = (char *)call->operand[i].data + from[i] * job->bytes;
    if (by_weight)
        ret_operands->data[0] = sum_of(job, part / job->channels) + weight;
}

/// Convolutions of sizes alike that oneDNN may treat differently are of different kinds, mostly.
static uint32_t kind_of(const conv_job *job) {
    uint32_t mix = (uint32_t)job->call->op;
    for (int i = 0; i < 10; i++) // strides, paddings, dilations, groups
        mix = mix * 31 + (uint32_t)(64 - __builtin_clzll((uint64_t)job->call->attrs.i[i] | 1));
    mix = mix * 31 + job->row.cut;
    mix = mix * 31 + (uint32_t)job->whole.is_bf16;
    return 2 * ND__ONEDNN_FAMILY + mix % ND__ONEDNN_FAMILY;
}

/// Has operands of a part with whole rows be those of a run.
static void cut_operands(const conv_job *job, const nd__conv_part *part, int64_t run,
                         conv_operands *operands) {
    static const int of_conv[3] = {ND__ROW_OF_Y, ND__ROW_OF_X, -1};
    static const int of_input[3] = {ND__ROW_OF_X, ND__ROW_OF_Y, -1};
    static const int of_weight[3] = {-1, ND__ROW_OF_X, ND__ROW_OF_Y};
    const int *of = job->call->op == ND_OP_conv              ? of_conv
                    : job->call->op == ND_OP_conv_grad_input ? of_input
                                                             : of_weight;
    for (int i = 0; i < 3; i++)
        if (of[i] >= 0)
            operands->pieces[i] =
                nd__conv_row_pieces(&job->row, part, of[i], run, operands->data[i]);
}

/// The part, or any run of it: all have the same sizes.
static nd__conv_part sizes_of_run(const conv_job *job, const nd__conv_part *part) {
    return job->row.cut ? nd__conv_row_cut(&job->row, part) : *part;
}

static nd_status run_run(const conv_job *job, const nd__conv_part *part, conv_operands operands,
                         int64_t run, float *sum) {
    const nd__conv_part sizes = sizes_of_run(job, part);
    if (job->row.cut)
        cut_operands(job, part, run, &operands);
    if (sum)
        operands.data[0] = sum;
    nd__conv_plan *plan;
    nd_status status = nd__conv_plan_acquire(job->call->op, &sizes, &plan);
    if (status != ND_OK)
        return status;
    if (job->reordered && dnnl_memory_desc_equal(&plan->theirs[2], &job->layout))
        operands.reordered = job->reordered;
    status = run_plan(plan, &operands);
    nd__conv_plan_release(plan);
    return status;
}

/// All runs of a part. Those of a weight's gradient are added up.
static nd_status run_part(const conv_job *job, int64_t number) {
    const nd__conv_part part = part_of(job, number);
    conv_operands operands;
    memset(&operands, 0, sizeof operands);
    operands_of_part(job, number, &operands);
    const int64_t stretch = stretch_of(job, number);
    const int64_t begin = begin_of_runs(job, stretch), end = begin_of_runs(job, stretch + 1);
    const int64_t weights = part.sizes.co * part.weight_stride;
    float *sum = NULL;
    if (job->call->op == ND_OP_conv_grad_weight && end - begin > 1) {
        sum = malloc((size_t)weights * sizeof *sum);
        if (!sum)
            return ND_ERROR_OUT_OF_MEMORY;
    }
    nd_status status = ND_OK;
    for (int64_t run = begin; run < end && status == ND_OK; run++) {
        const bool adds = sum && run > begin;
        status = run_run(job, &part, operands, run, adds ? sum : NULL);
        float *out = (float *)operands.data[0];
        for (int64_t i = 0; adds && status == ND_OK && i < weights; i++)
            out[i] += sum[i];
    }
    free(sum);
    return status;
}

static void run_parts(void *context, int64_t begin, int64_t end) {
    conv_job *job = (conv_job *)context;
    nd__onednn_before before;
    if (!nd__onednn_enter(kind_of(job), &before)) {
        fail(job, ND_ERROR_UNSUPPORTED);
        return;
    }
    for (int64_t part = begin; part < end && atomic_load(&job->status) == ND_OK; part++) {
        if (part > begin && nd__onednn_is_waited_for()) {
            nd__onednn_leave(&before);
            if (!nd__onednn_enter(kind_of(job), &before)) {
                fail(job, ND_ERROR_UNSUPPORTED);
                return;
            }
        }
        nd_status status = run_part(job, part);
        if (status != ND_OK)
            fail(job, status);
    }
    nd__onednn_leave(&before);
}

static void add_sums(void *context, int64_t begin, int64_t end) {
    const conv_job *job = (const conv_job *)context;
    float *out = sum_of(job, 0);
    for (int64_t range = 1; range < job->images * job->stretches; range++) {
        const float *sum = sum_of(job, range);
        for (int64_t i = begin; i < end; i++)
            out[i] += sum[i];
    }
    if (job->whole.is_bf16) {
        char *const to = (char *)job->call->operand[0].data + begin * job->bytes;
        nd__cpu_loops_now()->convert[ND_F32][ND_BF16](
            end - begin, (char *[]){to, (char *)(out + begin)}, (int64_t[]){1, 1}, NULL);
    }
}

/// Brings the weight into the layout of one part's plan, so that not every part does. Where
/// that fails they do.
static void reorder_weight(conv_job *job) {
    nd__conv_part part = part_of(job, 0), sizes = sizes_of_run(job, &part);
    nd__onednn_before before;
    if (!nd__onednn_enter(kind_of(job), &before))
        return;
    nd__conv_plan *plan;
    bool planned = nd__conv_plan_acquire(job->call->op, &sizes, &plan) == ND_OK;
    if (planned && plan->reorder[2]) {
        dnnl_memory_t from = NULL, to = NULL;
        dnnl_stream_t stream = NULL;
        job->layout = plan->theirs[2];
        void *memory = aligned_alloc(64, rounded(dnnl_memory_desc_get_size(&job->layout)));
        bool done =
            memory &&
            dnnl_stream_create(&stream, plan->engine, dnnl_stream_default_flags) == dnnl_success &&
            dnnl_memory_create(&from, &plan->ours[2], plan->engine, job->call->operand[2].data) ==
                dnnl_success &&
            dnnl_memory_create(&to, &job->layout, plan->engine, memory) == dnnl_success &&
            run_reorder(plan->reorder[2], from, to, stream) == ND_OK &&
            dnnl_stream_wait(stream) == dnnl_success;
        if (from)
            dnnl_memory_destroy(from);
        if (to)
            dnnl_memory_destroy(to);
        if (stream)
            dnnl_stream_destroy(stream);
        job->reordered = done ? memory : NULL;
        if (!done)
            free(memory);
    }
    if (planned)
        nd__conv_plan_release(plan);
    nd__onednn_leave(&before);
}

/// What oneDNN takes for each element of a row of results while it makes code for it, of which 1 kB are
/// left, or 3.5 kB with padding, and more on the way. It ends the process where that is not there.
#define CODE_OF_A_PLACE 16384
/// Longer rows are asked for.
#define LONG_ROW 2048

static bool has_room_for_code(const conv_job *job) {
    const nd__conv_part part = sizes_of_run(job, &job->whole);
    const int64_t *of_x = part.sizes.x, *of_y = part.sizes.y, axis = ND_WINDOW_AXES - 1;
    const int64_t row = of_x[axis] > of_y[axis] ? of_x[axis] : of_y[axis];
    return row <= LONG_ROW || nd__onednn_has_room_beside(CODE_OF_A_PLACE * (size_t)row);
}

/// A size that oneDNN, which keeps it as int, can tell. Of paddings wider than windows it makes far more
/// code than of others.
static bool size_suits(int64_t size, int64_t least) {
    return size >= least && size <= INT32_MAX / 4;
}

static bool sizes_suit(const nd__conv_sizes *s) {
    bool suit = size_suits(s->n, 1) && size_suits(s->ci, 1) && size_suits(s->co, 1) &&
                size_suits(s->groups, 1);
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        suit = suit && size_suits(s->x[axis], 1) && size_suits(s->kernel[axis], 1) &&
               size_suits(s->y[axis], 1) && size_suits(s->stride[axis], 1) &&
               size_suits(s->padding[axis], 0) && size_suits(s->dilation[axis], 1) &&
               s->padding[axis] <= 2 * (s->dilation[axis] * (s->kernel[axis] - 1) + 1);
    return suit;
}

/// Whether oneDNN loses its place in the depth of a weight's gradient, with AVX-512, as its versions up to
/// 2.6 do: it goes through the windows that begin before x by more than one step, and takes one of
/// these, or the first behind them, for one that ends inside x. The sum then misses planes, has wrong
/// ones, or is what lay in the memory. Such shallow images are few; no version is asked for them.
static bool loses_depth(const nd__conv_sizes *s) {
    int64_t window = s->dilation[0] * (s->kernel[0] - 1) + 1;
    return s->stride[0] > 1 && s->padding[0] > s->stride[0] && window + s->stride[0] > s->x[0];
}

/// Divides the work into ranges of images, and of runs or of channels. Returns how many multiplications there
/// are.
static int64_t divide(conv_job *job) {
    const nd__conv_sizes *s = &job->whole.sizes;
    bool by_input = job->call->op == ND_OP_conv_grad_input;
    job->units = s->groups > 1 ? s->groups : by_input ? s->ci : s->co;
    job->step = CHANNELS;
    if (s->groups > 1) {
        int64_t ci = s->ci / s->groups, co = s->co / s->groups;
        int64_t least = ci < co ? ci : co;
        job->step = least < CHANNELS ? CHANNELS / least : 1;
    }
    job->weights = s->co * job->whole.weight_stride;
    int64_t size = s->n * nd__windows_volume(s->y) * job->weights;
    int64_t parts = nd__parts_of(size), most = job->units / job->step;
    job->images = s->n < parts ? s->n : parts;
    int64_t ranges = s->n * (job->whole.x_stride + job->whole.y_stride) / PART_ELEMENTS;
    ranges = ranges < s->n ? ranges : s->n;
    if (job->images < ranges && job->call->op != ND_OP_conv_grad_weight)
        job->images = ranges; // each of a weight's gradient would be a sum of its own
    job->stretches = 1;
    if (job->row.runs > 1) {
        most = 1;
        job->stretches = parts / job->images < job->row.runs ? parts / job->images : job->row.runs;
        job->stretches = job->stretches > 0 ? job->stretches : 1;
    }
    job->channels = parts / job->images < most ? parts / job->images : most;
    job->channels = job->channels > 0 ? job->channels : 1;
    return size;
}

/// Multiplications of a convolution of bf16, and elements of a window of it and of its gradients, from which
/// oneDNN takes less than f32 does.
#define LEAST_OF_BF16 ((int64_t)1 << 21)
#define LEAST_WINDOW_OF_BF16 32
#define LEAST_WINDOW_OF_GRADIENT 16

/// oneDNN adds up pairs of products, of which one may be of a zero beyond the end and whatever lies there:
/// what is not finite would make NaN of it.
static bool is_finite(const nd_operand *operand, int64_t elements) {
    enum { TOGETHER = 256 }; // a number that is known, for vectors
    const uint16_t *of = (const uint16_t *)operand->data;
    uint16_t any = 0;
    for (; elements >= TOGETHER; elements -= TOGETHER, of += TOGETHER) {
        for (int i = 0; i < TOGETHER; i++)
            any |= (of[i] & 0x7F80) == 0x7F80;
        if (any)
            return false;
    }
    for (int64_t i = 0; i < elements; i++)
        any |= (of[i] & 0x7F80) == 0x7F80;
    return !any;
}

static bool suits_bf16(const conv_job *job, int64_t size) {
    const nd__conv_sizes *s = &job->whole.sizes;
    const bool is_forward = job->call->op == ND_OP_conv;
    const int64_t least_window = is_forward ? LEAST_WINDOW_OF_BF16 : LEAST_WINDOW_OF_GRADIENT;
    if (job->row.cut || s->groups > 1 || job->whole.weight_stride < least_window ||
        size < LEAST_OF_BF16 || (job->whole.has_bias && !is_forward))
        return false;
    const int64_t x = s->n * job->whole.x_stride, y = s->n * job->whole.y_stride;
    const nd_operand *operands = job->call->operand;
    switch (job->call->op) {
    case ND_OP_conv:
        return is_finite(&operands[1], x) && is_finite(&operands[2], job->weights);
    case ND_OP_conv_grad_input:
        return is_finite(&operands[1], y) && is_finite(&operands[2], job->weights);
    default:
        return is_finite(&operands[1], x) && is_finite(&operands[2], y);
    }
}

nd_status nd__onednn_conv(const nd_kernel_call *call) {
    if (!nd__onednn_is_used())
        return ND_ERROR_UNSUPPORTED;
    conv_job job = {.call = call, .whole = whole_of(call)};
    job.bytes = job.whole.is_bf16 ? sizeof(uint16_t) : sizeof(float);
    if (!sizes_suit(&job.whole.sizes))
        return ND_ERROR_UNSUPPORTED;
    job.row = nd__conv_row_of(call->op, &job.whole.sizes);
    if (!has_room_for_code(&job) ||
        (call->op == ND_OP_conv_grad_weight && loses_depth(&job.whole.sizes)))
        return ND_ERROR_UNSUPPORTED;
    int64_t size = divide(&job);
    int64_t ranges = job.images * job.stretches, parts = ranges * job.channels;
    const bool is_bf16 = job.whole.is_bf16;
    if (is_bf16 && !suits_bf16(&job, size))
        return ND_ERROR_UNSUPPORTED;
    bool sums = call->op == ND_OP_conv_grad_weight && (ranges > 1 || is_bf16);
    if (sums) {
        job.sums = malloc((size_t)((ranges - !is_bf16) * job.weights) * sizeof(float));
        if (!job.sums)
            return ND_ERROR_OUT_OF_MEMORY;
    } else if (job.images * job.row.runs > 1 && job.channels == 1 &&
               call->op != ND_OP_conv_grad_weight) {
        reorder_weight(&job);
    }
    nd__cpu_parallel(parts, size / parts / 16 + 16, 1, run_parts, &job);
    nd_status status = atomic_load(&job.status);
    if (sums && status == ND_OK)
        nd__cpu_parallel(job.weights, ranges, 64, add_sums, &job);
    free(job.sums);
    free(job.reordered);
    return status;
}

#else

nd_status nd__onednn_conv(const nd_kernel_call *call) {
    (void)call;
    return ND_ERROR_UNSUPPORTED;
}
#endif
