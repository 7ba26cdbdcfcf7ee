// Layer, group and batch norm and their gradient: hands sets of numbers to the loops, on several
// threads.
//
// Invariant: sums over samples are added up by blocks of samples, which depend on sizes alone, and
// then block by block.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <string.h>

enum { MOST_BLOCKS = 64, LEAST_BLOCKS = 4, NUMBERS_PER_SUM = 32 };

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

nd_status nd__cpu_norm(const nd_kernel_call *call) {
    const nd_dtype dtype = call->operand[0].dtype;
    int type = nd__float_index(dtype);
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
