// Layer, group and batch norm and their gradient: hands sets of numbers to the loops, on several
// threads.
//
// 16-bit floats go through the loops of f32 a few sets at a time, in a thread's own memory.
//
// Invariant: sums over samples are added up by blocks of samples, which depend on sizes alone, and
// then block by block.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <stdatomic.h>
#include <string.h>

enum { MOST_BLOCKS = 64, LEAST_BLOCKS = 4, NUMBERS_PER_SUM = 32 };
/// Numbers of 16-bit floats that are brought together at once, if a set has no more, and what a set
/// has at most.
enum { TOGETHER = 2048, MOST_TOGETHER = 1 << 20 };

typedef struct norm_work {
    nd__norm norm;
    nd__norm_loop loop;
} norm_work;

static void tasks(void *context, int64_t begin, int64_t end) {
    const norm_work *work = (const norm_work *)context;
    work->loop(&work->norm, begin, end);
}

static nd__norm norm_of(const nd_kernel_call *call) {
    const int64_t *size = call->attrs.i;
    return (nd__norm){.out = call->operand[0].data,
                      .samples = size[0],
                      .channels = size[1],
                      .places = size[2],
                      .groups = size[3],
                      .blocks = 1,
                      .epsilon = call->attrs.f[0],
                      .centered = size[4] != 0};
}

/// Tasks of a call without blocks of samples.
static int64_t tasks_of(const nd__norm *norm) {
    if (norm->groups > 0)
        return norm->samples * norm->groups;
    return norm->places > 1 ? norm->channels
                            : (norm->channels + ND__NORM_COLUMNS - 1) / ND__NORM_COLUMNS;
}

static void run(norm_work *work, int64_t count, int64_t passes) {
    const nd__norm *norm = &work->norm;
    int64_t numbers = norm->samples * norm->channels * norm->places;
    if (numbers > 0)
        nd__cpu_parallel(count, passes * (numbers / count), 1, tasks, work);
}

static nd_status forward(const nd_kernel_call *call, const nd__norm_loops *loops) {
    norm_work work = {norm_of(call), loops->forward};
    work.norm.statistics = call->operand[1].data;
    work.norm.x = call->operand[2].data;
    work.norm.weight = call->operand[3].data;
    work.norm.bias = call->operand[4].data;
    run(&work, tasks_of(&work.norm), 3);
    return ND_OK;
}

static nd_status by_channel(const nd_kernel_call *call, const nd__norm_loops *loops) {
    norm_work work = {norm_of(call), loops->by_channel};
    work.norm.x = call->operand[1].data;
    work.norm.weight = call->operand[2].data;
    work.norm.statistics = call->operand[3].data;
    work.norm.bias = call->operand[4].data;
    work.norm.groups = 0;
    run(&work, work.norm.places > 1 ? work.norm.samples * work.norm.channels : tasks_of(&work.norm),
        1);
    return ND_OK;
}

// ------------------------------------------------------------------------------- 16-bit floats

typedef struct narrow_work {
    const nd__norm *norm; ///< of f32, but x and out
    nd__norm_loop loop;
    nd_dtype x, out;
    bool given; ///< the statistics
    _Atomic bool failed;
} narrow_work;

/// `rows` rows of numbers of x that are normalised by themselves: which task, channel and set is the
/// first.
typedef struct narrow_part {
    int64_t tasks;
    int64_t start, rows, length, stride; ///< of x and out, in numbers
    int64_t channel, set, sets;
    nd__norm norm; ///< where they lie behind each other
} narrow_part;

/// The tasks from `task` on that are done together.
static narrow_part part_of(const narrow_work *work, int64_t task, int64_t end) {
    const nd__norm *whole = work->norm;
    const int64_t all = whole->channels * whole->places;
    narrow_part part = {.tasks = 1, .rows = whole->samples, .stride = all, .norm = *whole};
    nd__norm *norm = &part.norm;
    if (whole->groups == 0 && whole->places == 1) {
        const int64_t left = whole->channels - task * ND__NORM_COLUMNS;
        part.channel = part.start = task * ND__NORM_COLUMNS;
        norm->channels = part.length = left < ND__NORM_COLUMNS ? left : ND__NORM_COLUMNS;
    } else if (whole->groups == 0 && work->given) {
        part.channel = task % whole->channels;
        part.start = task * whole->places;
        part.length = whole->places;
        part.rows = norm->samples = norm->channels = 1;
    } else if (whole->groups == 0) {
        part.channel = task;
        part.start = task * whole->places;
        part.length = whole->places;
        norm->channels = 1;
    } else {
        part.length = part.stride = all / whole->groups;
        const int64_t most = whole->groups == 1 ? TOGETHER / part.length : 1;
        part.tasks = most < 1 ? 1 : most < end - task ? most : end - task;
        part.rows = norm->samples = part.tasks;
        part.start = task * part.length;
        norm->channels = whole->channels / whole->groups;
        part.channel = task % whole->groups * norm->channels;
        norm->groups = 1;
    }
    part.set = whole->groups ? task : part.channel;
    part.sets = whole->groups ? part.tasks : norm->channels;
    return part;
}

/// Statistics of the part's sets, from those of all or to there: two rows.
static void copy_statistics(const narrow_work *work, const narrow_part *part, float *own) {
    const nd__norm *whole = work->norm;
    const int64_t sets = whole->groups ? whole->samples * whole->groups : whole->channels;
    const size_t bytes = (size_t)part->sets * sizeof *own;
    for (int row = 0; row < 2; row++) {
        float *of_all = (float *)whole->statistics + row * sets + part->set;
        float *of_part = own + row * part->sets;
        memcpy(work->given ? of_part : of_all, work->given ? of_all : of_part, bytes);
    }
}

static void normalise_part(const narrow_work *work, narrow_part *part, float *numbers,
                           float *statistics) {
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    const int64_t out_bytes = nd__dtype_bytes(work->out), strides[] = {1, 1};
    const uint16_t *x = (const uint16_t *)work->norm->x + part->start;
    char *out = (char *)work->norm->out + part->start * out_bytes;
    nd__norm *norm = &part->norm;
    for (int64_t row = 0; row < part->rows; row++)
        loops->convert[work->x][ND_F32](part->length,
                                        (char *[]){(char *)(numbers + row * part->length),
                                                   (char *)(uintptr_t)(x + row * part->stride)},
                                        strides, NULL);
    norm->x = norm->out = numbers;
    norm->weight = norm->weight ? (const float *)norm->weight + part->channel : NULL;
    norm->bias = norm->bias ? (const float *)norm->bias + part->channel : NULL;
    if (work->given)
        copy_statistics(work, part, statistics);
    norm->statistics = norm->statistics ? statistics : NULL;
    work->loop(norm, 0, norm->groups ? part->tasks : 1);
    if (!work->given && norm->statistics)
        copy_statistics(work, part, statistics);
    for (int64_t row = 0; row < part->rows; row++)
        loops->convert[ND_F32][work->out](part->length,
                                          (char *[]){out + row * part->stride * out_bytes,
                                                     (char *)(numbers + row * part->length)},
                                          strides, NULL);
}

static void narrow_tasks(void *context, int64_t begin, int64_t end) {
    narrow_work *work = (narrow_work *)context;
    while (begin < end) {
        narrow_part part = part_of(work, begin, end);
        const int64_t count = part.rows * part.length;
        float *numbers =
            (float *)nd__cpu_scratch((size_t)(count + 2 * part.sets) * sizeof *numbers);
        if (!numbers) {
            atomic_store(&work->failed, true);
            return;
        }
        normalise_part(work, &part, numbers, numbers + count);
        begin += part.tasks;
    }
}

/// Numbers of a task.
static int64_t numbers_of(const nd__norm *norm, bool given) {
    if (norm->groups > 0)
        return norm->channels / norm->groups * norm->places;
    if (norm->places > 1)
        return given ? norm->places : norm->samples * norm->places;
    return norm->samples * (norm->channels < ND__NORM_COLUMNS ? norm->channels : ND__NORM_COLUMNS);
}

/// x of 16 bits beside parameters and statistics of f32. Of sets that are too large it is not worth it.
static nd_status narrow(const nd_kernel_call *call, const nd__norm_loops *loops) {
    const bool given = call->op == ND_OP_channel_norm;
    nd__norm norm = norm_of(call);
    norm.x = call->operand[given ? 1 : 2].data;
    norm.weight = call->operand[given ? 2 : 3].data;
    norm.statistics = call->operand[given ? 3 : 1].data;
    norm.bias = call->operand[4].data;
    norm.groups = given ? 0 : norm.groups;
    const int64_t numbers = norm.samples * norm.channels * norm.places;
    if (numbers == 0 || numbers_of(&norm, given) > MOST_TOGETHER)
        return ND_ERROR_UNSUPPORTED;
    narrow_work work = {.norm = &norm,
                        .loop = given ? loops->by_channel : loops->forward,
                        .x = call->operand[given ? 1 : 2].dtype,
                        .out = call->operand[0].dtype,
                        .given = given};
    const int64_t count = given && norm.places > 1 ? norm.samples * norm.channels : tasks_of(&norm);
    nd__cpu_parallel(count, 4 * (numbers / count), 1, narrow_tasks, &work);
    return atomic_load(&work.failed) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}

// ------------------------------------------------------------------------------------- gradients

/// How many blocks the samples are cut into, so that their sums are few beside the numbers.
static int64_t blocks_of(const nd__norm *norm) {
    int64_t blocks = norm->samples * norm->places / NUMBERS_PER_SUM;
    blocks = blocks < LEAST_BLOCKS ? LEAST_BLOCKS : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
    blocks = norm->samples < blocks ? norm->samples : blocks;
    return blocks > 0 ? blocks : 1;
}

/// Writes the sums of all blocks, [2, channels]. Block by block, in the order of memory.
static void write_sums(const nd__norm *norm, const nd_operand *out) {
    int64_t count = 2 * norm->channels;
    for (int64_t block = 1; block < norm->blocks; block++)
        for (int64_t i = 0; i < count; i++)
            norm->sums[i] += norm->sums[block * count + i];
    nd__cpu_loops_now()->convert[ND_F64][out->dtype](
        count, (char *[]){(char *)out->data, (char *)norm->sums}, (int64_t[]){1, 1}, NULL);
}

/// With statistics that are given, or those of x itself.
static nd_status backward(const nd_kernel_call *call, const nd__norm_loops *loops, bool given) {
    norm_work work = {norm_of(call), given ? loops->by_channel_grad : loops->backward};
    nd__norm *norm = &work.norm;
    const nd_operand *sums = &call->operand[1];
    norm->grad = call->operand[2].data;
    norm->x = call->operand[3].data;
    norm->weight = call->operand[4].data;
    if (given) {
        norm->statistics = call->operand[5].data;
        norm->groups = 0;
    }
    int64_t count = tasks_of(norm);
    if (norm->groups > 0) {
        norm->blocks = sums->data ? blocks_of(norm) : norm->samples;
        count = norm->blocks * norm->groups;
    }
    if (sums->data) {
        size_t bytes = (size_t)(norm->blocks * 2 * norm->channels) * sizeof(double);
        norm->sums = (double *)nd__cpu_scratch(bytes ? bytes : 1);
        if (!norm->sums)
            return ND_ERROR_OUT_OF_MEMORY;
        memset(norm->sums, 0, bytes);
    }
    run(&work, count, given ? 3 : 5);
    if (sums->data)
        write_sums(norm, sums);
    return ND_OK;
}

static bool is_half(nd_dtype dtype) {
    return dtype == ND_F16 || dtype == ND_BF16;
}

/// Whether a call is forward, of 16-bit floats beside f32.
static bool is_narrow(const nd_kernel_call *call) {
    const bool given = call->op == ND_OP_channel_norm;
    if (!given && call->op != ND_OP_layer_norm)
        return false;
    const nd_operand *x = &call->operand[given ? 1 : 2];
    const nd_operand *statistics = &call->operand[given ? 3 : 1];
    const nd_dtype out = call->operand[0].dtype;
    return is_half(x->dtype) && (out == x->dtype || out == ND_F32) && statistics->dtype == ND_F32;
}

nd_status nd__cpu_norm(const nd_kernel_call *call) {
    const nd_dtype dtype = call->operand[0].dtype;
    int type = nd__float_index(dtype);
    if (is_narrow(call))
        return narrow(call, &nd__cpu_loops_now()->norm[nd__float_index(ND_F32)]);
    // Of one dtype: one of these is x, and the others are f32 beside 16-bit floats.
    if (type < 0 || call->operand[call->op == ND_OP_channel_norm ? 1 : 2].dtype != dtype)
        return ND_ERROR_UNSUPPORTED;
    const nd__norm_loops *loops = &nd__cpu_loops_now()->norm[type];
    if (call->op == ND_OP_layer_norm)
        return forward(call, loops);
    if (call->op == ND_OP_channel_norm)
        return by_channel(call, loops);
    return backward(call, loops, call->op == ND_OP_channel_norm_grad);
}
