// NORM: sets of numbers of layer, group and batch norm and their gradient, with and without parameters
// and what else may be missing; of 16 bits beside the same in f32.
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"
#include <math.h>
#include <stdlib.h>

#define TOLERANCE 500

/// x's sizes and its groups.
typedef struct norm_shape {
    int64_t samples, channels, places, groups;
} norm_shape;

static int64_t numbers_of(const norm_shape *shape) {
    return shape->samples * shape->channels * shape->places;
}

static nd_kernel_call norm_call(nd_op op, const norm_shape *shape, bool centered) {
    nd_kernel_call call = {.op = op, .noperands = 5};
    call.attrs = (nd_op_attrs){
        .f = {1e-3},
        .i = {shape->samples, shape->channels, shape->places, shape->groups, centered ? 1 : 0}};
    return call;
}

/// An operand that is there or not.
static nd_operand operand(const nd_kernel_call *call, bool there, nd_dtype dtype, int64_t count) {
    return contiguous(call, there ? values(dtype, count) : NULL, dtype);
}

/// The dtype of parameters, statistics and their gradients.
static nd_dtype wide_of(nd_dtype dtype) {
    return dtype == ND_F64 ? ND_F64 : ND_F32;
}

/// `way` says what is missing: bit 0 the weight, bit 1 the bias, bit 2 the second result. Bit 3: x or
/// the gradient does not begin at a multiple of 16 bytes.
static nd_kernel_call call_of(nd_op op, nd_dtype dtype, const norm_shape *shape, int way,
                              bool centered, int64_t *ret_lengths) {
    bool weight = !(way & 1), bias = !(way & 2), second = !(way & 4);
    int64_t numbers = numbers_of(shape), channels = shape->channels;
    int64_t sets = shape->groups ? shape->samples * shape->groups : channels;
    nd_dtype wide = wide_of(dtype);
    nd_kernel_call call = norm_call(op, shape, centered);
    bool backward = op == ND_OP_layer_norm_grad;
    call.operand[0] = operand(&call, true, dtype, numbers);
    call.operand[1] = operand(&call, second, wide, 2 * (backward ? channels : sets));
    call.operand[2] = operand(&call, true, dtype, numbers);
    call.operand[3] =
        backward ? operand(&call, true, dtype, numbers) : operand(&call, weight, wide, channels);
    call.operand[4] = operand(&call, backward ? weight : bias, wide, channels);
    if (way & 8) {
        call.operand[2] = operand(&call, true, dtype, numbers + 1);
        call.operand[2].data = (char *)call.operand[2].data + dtype_bytes(dtype);
    }
    ret_lengths[0] = numbers;
    ret_lengths[1] = second ? 2 * (backward ? channels : sets) : 0;
    return call;
}

/// f64 has no wider type to add up a set's numbers, or a channel's, in.
static double tolerance_of(const norm_shape *shape, nd_dtype dtype) {
    int64_t set = shape->groups ? shape->channels / shape->groups * shape->places : 0;
    int64_t channel = shape->samples * shape->places;
    return dtype == ND_F64 ? tolerance_of_sums(TOLERANCE, set > channel ? set : channel)
                           : TOLERANCE;
}

static void norm_agrees(nd_op op, nd_dtype dtype, const norm_shape *shape, int way, bool centered) {
    int64_t lengths[2];
    nd_kernel_call call = call_of(op, dtype, shape, way, centered, lengths);
    assert_int_equal(both(&call, lengths[1] ? 2 : 1, lengths, tolerance_of(shape, dtype)), ND_OK);
    free_values();
}

/// Numbers of 16 bits give what the CPU makes of the same numbers in f32, rounded; and what it makes of
/// 16 bits, where it takes them.
static void norm_of_halves_agrees(nd_op op, nd_dtype dtype, const norm_shape *shape, int way,
                                  bool centered) {
    int64_t lengths[2];
    nd_kernel_call call = call_of(op, dtype, shape, way, centered, lengths);
    nd_kernel_call wide = call;
    for (int i = 0; i < call.noperands; i++)
        if (call.operand[i].dtype == dtype) {
            wide.operand[i].data = converted(&call.operand[i], ND_F32, lengths[0]);
            wide.operand[i].dtype = ND_F32;
        }
    wide.operand[1].data = lengths[1] ? values(ND_F32, lengths[1]) : NULL;
    assert_int_equal(run_on_cpu(&wide), ND_OK);
    const void *rounded = converted(&wide.operand[0], dtype, lengths[0]);
    for (int on_cuda = 0; on_cuda < 2; on_cuda++) {
        const nd_status status = on_cuda ? run_on_cuda(&call) : run_on_cpu(&call);
        if (!on_cuda && status == ND_ERROR_UNSUPPORTED)
            continue;
        assert_int_equal(status, ND_OK);
        compare_values(&call, 0, lengths[0], rounded, call.operand[0].data, TOLERANCE);
        compare_values(&call, 1, lengths[1], wide.operand[1].data, call.operand[1].data, TOLERANCE);
    }
    free_values();
}

/// Variances are not negative.
static void square_variances(const nd_operand *statistics, int64_t channels) {
    for (int64_t i = channels; i < 2 * channels; i++)
        if (statistics->dtype == ND_F32)
            ((float *)statistics->data)[i] *= ((float *)statistics->data)[i];
        else
            ((double *)statistics->data)[i] *= ((double *)statistics->data)[i];
}

/// The gradients with statistics that are given, without those that bit 1 and bit 2 say.
static void channel_norm_grad_agrees(nd_dtype dtype, const norm_shape *shape, int way) {
    int64_t numbers = numbers_of(shape), channels = shape->channels;
    bool gradient = !(way & 2), sums = !(way & 4) || !gradient;
    nd_kernel_call call = norm_call(ND_OP_channel_norm_grad, shape, true);
    call.noperands = 6;
    call.operand[0] = operand(&call, gradient, dtype, numbers);
    call.operand[1] = operand(&call, sums, dtype, 2 * channels);
    call.operand[2] = operand(&call, true, dtype, numbers);
    call.operand[3] = operand(&call, true, dtype, numbers);
    call.operand[4] = operand(&call, !(way & 1), dtype, channels);
    call.operand[5] = operand(&call, true, dtype, 2 * channels);
    square_variances(&call.operand[5], channels);
    const int64_t lengths[] = {gradient ? numbers : 0, 2 * channels};
    assert_int_equal(both(&call, sums ? 2 : 1, lengths, tolerance_of(shape, dtype)), ND_OK);
    free_values();
}

/// With statistics that are given.
static void channel_norm_agrees(nd_dtype dtype, const norm_shape *shape, int way) {
    int64_t numbers = numbers_of(shape), channels = shape->channels;
    nd_kernel_call call = norm_call(ND_OP_channel_norm, shape, true);
    call.operand[0] = operand(&call, true, dtype, numbers);
    call.operand[1] = operand(&call, true, dtype, numbers);
    call.operand[2] = operand(&call, !(way & 1), dtype, channels);
    call.operand[3] = operand(&call, true, dtype, 2 * channels);
    call.operand[4] = operand(&call, !(way & 2), dtype, channels);
    square_variances(&call.operand[3], channels);
    assert_int_equal(both(&call, 1, &numbers, TOLERANCE), ND_OK);
    free_values();
}

static const norm_shape shapes[] = {
    {1, 3, 1, 1},
    {5, 8, 1, 1},
    {33, 10, 1, 1},
    {300, 4, 1, 1},
    {3, 5000, 1, 1},
    {6, 8, 1, 4},
    {3, 6, 5, 2},
    {2, 4, 300, 4},
    {70, 4, 3, 1},
    {9, 200, 1, 0},
    {4, 3, 70, 0},
    {40, 17, 2, 0},
    {1, 2, 1000, 0},
    {3, 4, 6, 4},
    // Sets that a warp, a block of each size, or nobody keeps; by packs and not.
    {9, 64, 1, 1},
    {5, 66, 1, 1},
    {3, 512, 1, 1},
    {7, 768, 1, 1},
    {3, 1000, 1, 1},
    {3, 1026, 1, 1},
    {2, 4100, 1, 1},
    {2, 8192, 1, 1},
    {1, 9001, 1, 1},
    {2, 33000, 1, 1},
    {5, 12, 32, 3},
    {2, 6, 700, 2},
    // Channels in parts.
    {3000, 33, 1, 1},
    {3000, 4, 1, 0},
    {600, 4, 40, 2},
    // Sets in parts: by packs and not, with an end that is none, of few channels and of many, of groups.
    {40, 3, 196, 0},
    {64, 3, 75, 0},
    {9, 5, 1032, 0},
    {700, 30, 8, 0},
    {1500, 2, 3, 0},
    {1, 6, 20000, 3},
    {2, 2, 33001, 1},
};

void test_norms_agree(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int way = 0; way < 16; way++)
            for (int which = 0; which < 2; which++) {
                bool centered = way != 5;
                norm_agrees(ND_OP_layer_norm, dtypes[which], &shapes[i], way, centered);
                norm_agrees(ND_OP_layer_norm_grad, dtypes[which], &shapes[i], way, centered);
                channel_norm_agrees(dtypes[which], &shapes[i], way);
                channel_norm_grad_agrees(dtypes[which], &shapes[i], way);
            }
}

/// Numbers that are large beside their deviation, the first of each set among them or far from them, or
/// no number.
static void special_sets_agree(nd_op op, const norm_shape *shape, int kind) {
    int64_t lengths[2];
    nd_kernel_call call = call_of(op, ND_F32, shape, 0, true, lengths);
    float *x = call.operand[op == ND_OP_layer_norm ? 2 : 3].data;
    for (int64_t i = 0; i < numbers_of(shape); i++)
        x[i] = kind == 0 ? 4096.0f + x[i] / 64.0f : x[i];
    const float first[] = {4096.0f, 1e6f, NAN, INFINITY};
    x[0] = first[kind];
    assert_int_equal(both(&call, 2, lengths, kind < 2 ? 5000 : TOLERANCE), ND_OK);
    free_values();
}

/// In which set number i stands.
static int64_t set_of(const norm_shape *shape, int64_t i) {
    const int64_t channel = i / shape->places % shape->channels;
    if (shape->groups == 0)
        return channel;
    return i / shape->places / shape->channels * shape->groups +
           channel / (shape->channels / shape->groups);
}

/// Numbers so large that their mean is rounded by a good part of their deviation: the mean is the nearest
/// number of the dtype, and the variance is that from there. Beside sums of long doubles.
static void far_sets_agree(nd_dtype dtype, const norm_shape *shape) {
    const int64_t numbers = numbers_of(shape);
    const int64_t sets = shape->groups ? shape->samples * shape->groups : shape->channels;
    const double base = dtype == ND_F64 ? 0x1p49 : 0x1p20, step = dtype == ND_F64 ? 0x1p-3 : 0x1p-4;
    int64_t lengths[2];
    nd_kernel_call call = call_of(ND_OP_layer_norm, dtype, shape, 3, true, lengths);
    const void *x = call.operand[2].data, *found = call.operand[1].data;
    long double *mean = calloc((size_t)sets, sizeof *mean);
    long double *variance = calloc((size_t)sets, sizeof *variance);
    assert_non_null(mean);
    assert_non_null(variance);
    for (int64_t i = 0; i < numbers; i++) {
        const double near = element_as_double(x, dtype, i) / 8;
        set_element(call.operand[2].data, dtype, i, base + near);
        mean[set_of(shape, i)] += ((long double)element_as_double(x, dtype, i) - base) *
                                  (long double)sets / (long double)numbers;
    }
    assert_int_equal(run_on_cuda(&call), ND_OK);
    for (int64_t set = 0; set < sets; set++)
        assert_true(fabsl(element_as_double(found, dtype, set) - base - mean[set]) <= 0.51L * step);
    for (int64_t i = 0; i < numbers; i++) {
        const int64_t set = set_of(shape, i);
        const long double distance =
            (long double)element_as_double(x, dtype, i) - element_as_double(found, dtype, set);
        variance[set] += distance * distance * (long double)sets / (long double)numbers;
    }
    for (int64_t set = 0; set < sets; set++) {
        const long double of = element_as_double(found, dtype, sets + set);
        if (!(fabsl(of - variance[set]) <= 1e-5L * variance[set]))
            fail_msg("dtype %d: the variance of set %lld is %.9Lg, and should be %.9Lg", (int)dtype,
                     (long long)set, of, variance[set]);
    }
    free(mean);
    free(variance);
    free_values();
}

/// Without a gradient of x those of weight and bias are the same bits.
static void sums_alone_agree(nd_dtype dtype, const norm_shape *shape) {
    int64_t lengths[2];
    nd_kernel_call call = call_of(ND_OP_layer_norm_grad, dtype, shape, 0, true, lengths);
    nd_kernel_call alone = call;
    alone.operand[0].data = NULL;
    alone.operand[1].data = values(wide_of(dtype), lengths[1]);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    assert_int_equal(run_on_cuda(&alone), ND_OK);
    compare_values(&call, 1, lengths[1], call.operand[1].data, alone.operand[1].data,
                   shape->groups ? TOLERANCE : 0);
    free_values();
}

void test_norms_in_parts(void **state) {
    (void)state;
    static const norm_shape parted[] = {
        {40, 3, 196, 0}, {64, 3, 75, 0}, {700, 30, 8, 0}, {1500, 2, 3, 0}, {1, 6, 20000, 3}};
    for (size_t i = 0; i < sizeof parted / sizeof *parted; i++) {
        for (int kind = 0; kind < 4; kind++) {
            special_sets_agree(ND_OP_layer_norm, &parted[i], kind);
            special_sets_agree(ND_OP_layer_norm_grad, &parted[i], kind);
        }
        far_sets_agree(ND_F32, &parted[i]);
        far_sets_agree(ND_F64, &parted[i]);
        sums_alone_agree(ND_F32, &parted[i]);
        sums_alone_agree(ND_F64, &parted[i]);
        sums_alone_agree(ND_BF16, &parted[i]);
    }
}

void test_norms_of_halves_agree(void **state) {
    (void)state;
    static const norm_shape packed[] = {
        {5, 72, 1, 1}, {5, 264, 1, 1}, {3, 24, 11, 3}, {2, 16, 64, 2}};
    static const nd_dtype halves[] = {ND_F16, ND_BF16};
    const size_t count = sizeof shapes / sizeof *shapes, more = sizeof packed / sizeof *packed;
    for (size_t i = 0; i < count + more; i++)
        for (int way = 0; way < 16; way++) {
            const norm_shape *shape = i < count ? &shapes[i] : &packed[i - count];
            nd_dtype dtype = halves[(i + (size_t)way) % 2];
            norm_of_halves_agrees(ND_OP_layer_norm, dtype, shape, way, way != 5);
            norm_of_halves_agrees(ND_OP_layer_norm_grad, dtype, shape, way, way != 5);
        }
}
