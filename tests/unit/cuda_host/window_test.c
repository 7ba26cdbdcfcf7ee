// CONV, POOL and RESAMPLE: the CUDA kernels, compiled for the host, against the CPU's.
#include "kernels/windows.h"
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"
#include <math.h>

/// n, ci, co, groups; sizes of x, windows, strides, paddings, dilations.
typedef struct conv_case {
    int64_t n, ci, co, groups, x[3], kernel[3], stride[3], padding[3], dilation[3];
} conv_case;

static nd__conv_sizes sizes_of(const conv_case *c) {
    nd__conv_sizes sizes = {.n = c->n, .ci = c->ci, .co = c->co, .groups = c->groups};
    memcpy(sizes.x, c->x, sizeof sizes.x);
    memcpy(sizes.kernel, c->kernel, sizeof sizes.x);
    memcpy(sizes.stride, c->stride, sizeof sizes.x);
    memcpy(sizes.padding, c->padding, sizeof sizes.x);
    memcpy(sizes.dilation, c->dilation, sizeof sizes.x);
    nd_kernel_call call;
    nd__conv_sizes_into(&sizes, &call);
    return nd__conv_sizes_of(&call);
}

static void convolve(nd_op op, nd_dtype dtype, const conv_case *c) {
    nd_kernel_call call = {.op = op, .noperands = 3};
    nd__conv_sizes s = sizes_of(c);
    nd__conv_sizes_into(&s, &call);
    int64_t image = s.n * s.ci * nd__windows_volume(s.x), plane = nd__windows_volume(s.y);
    int64_t weight = s.co * (s.ci / s.groups) * nd__windows_volume(s.kernel);
    int64_t result = s.n * s.co * plane;
    int64_t lengths[3] = {result, image, weight};
    if (op == ND_OP_conv_grad_input)
        lengths[0] = image, lengths[1] = result;
    if (op == ND_OP_conv_grad_weight)
        lengths[0] = weight, lengths[1] = image, lengths[2] = result;
    if (op == ND_OP_unfold || op == ND_OP_fold) {
        int64_t columns = s.n * s.ci * nd__windows_volume(s.kernel) * plane;
        call.noperands = 2;
        lengths[0] = op == ND_OP_unfold ? columns : image;
        lengths[1] = op == ND_OP_unfold ? image : columns;
    }
    for (int operand = 0; operand < call.noperands; operand++)
        call.operand[operand] = contiguous(&call, values(dtype, lengths[operand]), dtype);
    both(&call, 1, lengths, 4000);
    free_values();
}

/// The numbers of an operand of 16 bits, as f32.
static nd_operand widened(const nd_kernel_call *call, int which, int64_t length) {
    float *wide = values(ND_F32, length);
    for (int64_t i = 0; i < length; i++)
        wide[i] =
            (float)element_as_double(call->operand[which].data, call->operand[which].dtype, i);
    return contiguous(call, wide, ND_F32);
}

/// By tensor cores, beside the CPU's in f32 of the same numbers, behind a bias but in a weight's
/// gradient. Returns whether there is a kernel.
static bool convolve_narrow(nd_op op, nd_dtype dtype, const conv_case *c) {
    const bool has_bias = op != ND_OP_conv_grad_weight;
    nd_kernel_call call = {.op = op, .noperands = has_bias ? 4 : 3};
    nd__conv_sizes s = sizes_of(c);
    nd__conv_sizes_into(&s, &call);
    const int64_t image = s.n * s.ci * nd__windows_volume(s.x), plane = nd__windows_volume(s.y);
    const int64_t weight = s.co * (s.ci / s.groups) * nd__windows_volume(s.kernel);
    int64_t lengths[4] = {s.n * s.co * plane, image, weight, s.co};
    if (op == ND_OP_conv_grad_input)
        lengths[0] = image, lengths[1] = s.n * s.co * plane, lengths[3] = s.ci;
    if (op == ND_OP_conv_grad_weight)
        lengths[0] = weight, lengths[2] = s.n * s.co * plane;
    const int64_t places = lengths[0] / (s.n * lengths[3]); // of a channel of the result
    for (int i = 0; i < call.noperands; i++)
        call.operand[i] = contiguous(&call, values(dtype, lengths[i]), dtype);
    // Of bf16 it has some, where the processor multiplies it.
    const nd_status beside = run_on_cpu(&call);
    assert_true(beside == ND_ERROR_UNSUPPORTED || (beside == ND_OK && dtype == ND_BF16));
    const nd_status status = run_on_cuda(&call);
    const bool there = status == ND_OK;
    assert_true(there || status == ND_ERROR_UNSUPPORTED);
    if (there) {
        nd_kernel_call wide = call;
        wide.noperands = 3;
        for (int i = 0; i < 3; i++)
            wide.operand[i] = widened(&call, i, lengths[i]);
        assert_int_equal(run_on_cpu(&wide), ND_OK);
        for (int64_t i = 0; has_bias && i < lengths[0]; i++)
            ((float *)wide.operand[0].data)[i] +=
                (float)element_as_double(call.operand[3].data, dtype, i / places % lengths[3]);
        compare_values(&call, 0, lengths[0], converted(&wide.operand[0], dtype, lengths[0]),
                       call.operand[0].data, 1);
    }
    free_values();
    return there;
}

static const conv_case conv_cases[] = {
    {1, 1, 1, 1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {2, 3, 4, 1, {1, 9, 11}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {3, 2, 5, 1, {1, 8, 8}, {1, 5, 3}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}},
    {1, 4, 2, 1, {1, 7, 5}, {1, 2, 2}, {1, 3, 3}, {0, 2, 2}, {1, 1, 1}},
    {4, 1, 8, 1, {1, 28, 28}, {1, 5, 5}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 3, 4, 1, {1, 9, 12}, {1, 3, 2}, {1, 1, 2}, {0, 3, 0}, {1, 2, 5}},
    {2, 6, 9, 3, {1, 7, 8}, {1, 3, 3}, {1, 2, 1}, {0, 1, 2}, {1, 1, 2}},
    {3, 8, 8, 8, {1, 6, 5}, {1, 3, 1}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},
    {1, 4, 8, 4, {1, 5, 9}, {1, 2, 3}, {1, 1, 3}, {0, 0, 4}, {1, 3, 2}},
    // Of one axis, and of three.
    {3, 4, 6, 2, {1, 1, 17}, {1, 1, 3}, {1, 1, 2}, {0, 0, 1}, {1, 1, 3}},
    {2, 2, 3, 1, {5, 4, 6}, {3, 2, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
    {2, 4, 4, 2, {7, 5, 3}, {2, 3, 2}, {2, 1, 3}, {1, 2, 1}, {3, 1, 2}},
    {1, 3, 3, 3, {4, 1, 9}, {4, 1, 2}, {5, 1, 1}, {0, 0, 0}, {1, 1, 4}},
    {2, 3, 3, 3, {1, 11, 18}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    // Channels enough for products: around tiles of 64 and 128, long sums, groups, gaps and strides.
    {1, 8, 8, 1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {2, 16, 24, 1, {1, 9, 11}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {3, 65, 63, 1, {1, 5, 5}, {1, 2, 3}, {1, 2, 1}, {0, 0, 2}, {1, 1, 2}},
    {5, 130, 67, 1, {1, 6, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {2, 24, 20, 2, {1, 8, 6}, {1, 3, 3}, {1, 2, 3}, {0, 2, 1}, {1, 3, 1}},
    {3, 9, 27, 1, {1, 1, 29}, {1, 1, 5}, {1, 1, 3}, {0, 0, 2}, {1, 1, 2}},
    {2, 8, 10, 1, {5, 4, 6}, {3, 2, 3}, {2, 1, 2}, {1, 0, 1}, {1, 2, 1}},
    {2, 128, 129, 1, {1, 12, 13}, {1, 1, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {7, 8, 16, 1, {1, 17, 19}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
};

void test_convolutions_of_16_bits_agree(void **state) {
    (void)state;
    static const nd_op ops[] = {ND_OP_conv, ND_OP_conv_grad_input, ND_OP_conv_grad_weight};
    int there = 0;
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++)
        for (int op = 0; op < 3; op++) {
            there += convolve_narrow(ops[op], ND_F16, &conv_cases[i]);
            there += convolve_narrow(ops[op], ND_BF16, &conv_cases[i]);
        }
    assert_true(there >= 50); // those with eight channels or more
}

void test_convolutions_agree(void **state) {
    (void)state;
    static const nd_op ops[] = {ND_OP_conv, ND_OP_conv_grad_input, ND_OP_conv_grad_weight};
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++)
        for (int op = 0; op < 3; op++) {
            convolve(ops[op], ND_F32, &conv_cases[i]);
            convolve(ops[op], ND_F64, &conv_cases[i]);
        }
}

void test_unfolding_agrees(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
        conv_case c = conv_cases[i];
        c.co = c.groups = 1;
        convolve(ND_OP_unfold, ND_F32, &c);
        convolve(ND_OP_fold, ND_F64, &c);
    }
}

/// Axes of x; windows, strides, paddings and dilations, or how many adaptive ones.
typedef struct pool_case {
    int64_t planes, size[3], kernel[3], stride[3], padding[3], dilation[3], out[3];
} pool_case;

/// Of the call of a max_pool that has run: each window's gradient goes to its position, in their order.
static void max_pool_grad_agrees(const nd_kernel_call *of, nd_dtype dtype) {
    const int64_t *shape = of->shape;
    const int64_t windows = nd__windows_volume(shape + 4), image = nd__windows_volume(shape + 1);
    const int64_t numbers = shape[0] * image;
    nd_kernel_call call = *of;
    call.op = ND_OP_max_pool_grad;
    call.operand[0] = contiguous(&call, values(dtype, numbers), dtype);
    call.operand[2] = contiguous(&call, values(dtype, shape[0] * windows), dtype);
    void *expected = values(dtype, numbers);
    for (int64_t i = 0; i < numbers; i++)
        set_element(expected, dtype, i, 0.0);
    for (int64_t i = 0; i < shape[0] * windows; i++) {
        const int64_t at = i / windows * image + ((const int64_t *)call.operand[1].data)[i];
        set_element(expected, dtype, at,
                    element_as_double(expected, dtype, at) +
                        element_as_double(call.operand[2].data, dtype, i));
    }
    assert_int_equal(run_on_cpu(&call), ND_ERROR_UNSUPPORTED);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    compare_values(&call, 0, numbers, expected, call.operand[0].data, 0);
    count_compared(call.op);
}

/// Numbers that differ; with NaN and infinities among them; and so few that many are equal, of which the
/// first counts.
static void *pooled_values(int kind, int64_t count) {
    float *x = kind == 1 ? special_values(ND_F32, count) : values(ND_F32, count);
    for (int64_t i = 0; i < count && kind == 2; i++)
        x[i] = rintf(x[i] / 2);
    return x;
}

void test_max_pool_agrees(void **state) {
    (void)state;
    static const pool_case cases[] = {
        {1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}},
        {6, {1, 8, 8}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, {1, 4, 4}},
        {6, {1, 9, 11}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, {1, 4, 5}},
        {5, {1, 7, 6}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {1, 5, 4}},
        {4, {1, 7, 9}, {1, 3, 4}, {1, 2, 1}, {0, 1, 2}, {1, 1, 2}, {1, 4, 7}},
        {4, {1, 6, 5}, {1, 2, 3}, {1, 3, 2}, {0, 1, 1}, {1, 4, 1}, {1, 2, 3}},
        // Three axes; the number of windows rounded up; adaptive ones.
        {3, {5, 4, 7}, {2, 3, 2}, {1, 2, 2}, {1, 0, 1}, {2, 1, 3}, {5, 1, 3}},
        {2, {1, 5, 8}, {1, 2, 3}, {1, 2, 3}, {0, 0, 0}, {1, 1, 1}, {1, 3, 3}},
        {3, {1, 7, 5}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {1, 3, 4}},
        {2, {4, 3, 6}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {3, 5, 1}},
    };
    const size_t count = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < 3 * count; i++) {
        const pool_case *c = &cases[i % count];
        nd_kernel_call call = {.op = ND_OP_max_pool, .noperands = 3, .shape = {c->planes}};
        memcpy(call.shape + 1, c->size, sizeof c->size);
        memcpy(call.shape + 4, c->out, sizeof c->out);
        memcpy(call.attrs.i, c->kernel, 4 * sizeof c->kernel);
        int64_t results = c->planes * nd__windows_volume(c->out);
        const int64_t lengths[2] = {results, results};
        call.operand[0] = contiguous(&call, values(ND_F32, results), ND_F32);
        call.operand[1] = contiguous(&call, values(ND_I64, results), ND_I64);
        const int64_t numbers = c->planes * nd__windows_volume(c->size);
        call.operand[2] = contiguous(&call, pooled_values((int)(i / count), numbers), ND_F32);
        both(&call, 2, lengths, 0);
        assert_int_equal(run_on_cpu(&call), ND_OK);
        max_pool_grad_agrees(&call, ND_F32);
        max_pool_grad_agrees(&call, ND_F64);
        free_values();
    }
}

static void resample(nd_op op, nd_dtype dtype, const nd__resample_axis *a) {
    nd_kernel_call call = {.op = op, .noperands = 2, .attrs = {.f = {a->step}}};
    const int64_t numbers[] = {a->mode,   a->outer,  a->in,      a->out,  a->inner,
                               a->kernel, a->stride, a->padding, a->flags};
    memcpy(call.attrs.i, numbers, sizeof numbers);
    int64_t small = a->outer * a->inner;
    int64_t lengths[2] = {small * a->out, small * a->in};
    if (op == ND_OP_resample_adjoint)
        lengths[0] = small * a->in, lengths[1] = small * a->out;
    for (int operand = 0; operand < 2; operand++)
        call.operand[operand] = contiguous(&call, values(dtype, lengths[operand]), dtype);
    both(&call, 1, lengths, 100);
    free_values();
}

void test_resampling_agrees(void **state) {
    (void)state;
    const int both_flags = ND__RESAMPLE_COUNT_PADDING;
    const nd__resample_axis windows[] = {
        {ND__RESAMPLE_WINDOW, 3, 9, 4, 2, 3, 2, 1, both_flags, 0},
        {ND__RESAMPLE_WINDOW, 2, 7, 4, 1, 2, 2, 0, 0, 0},
        {ND__RESAMPLE_WINDOW, 2, 8, 3, 5, 5, 4, 2, ND__RESAMPLE_SUM, 0},
        {ND__RESAMPLE_WINDOW, 1, 5, 2, 3, 2, 4, 1, 0, 0},
        {ND__RESAMPLE_ADAPTIVE, 3, 7, 3, 4, 0, 0, 0, 0, 0},
        {ND__RESAMPLE_ADAPTIVE, 2, 3, 8, 1, 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        resample(ND_OP_resample, ND_F32, &windows[i]);
        resample(ND_OP_resample_adjoint, ND_F64, &windows[i]);
    }
    for (int mode = ND__RESAMPLE_NEAREST; mode <= ND__RESAMPLE_CUBIC; mode++)
        for (int64_t in = 1; in < 9; in += 1 + in / 4)
            for (int64_t out = 1; out < 13; out += 1 + out / 3)
                for (int flags = 0; flags <= ND__RESAMPLE_ALIGN_CORNERS;
                     flags += ND__RESAMPLE_ALIGN_CORNERS) {
                    nd__resample_axis axis = {
                        (nd__resample_mode)mode, 2, in, out, 3, 0, 0, 0, flags, 0};
                    resample(ND_OP_resample, ND_F64, &axis);
                    axis.step = (double)in / ((double)out + 0.5);
                    resample(ND_OP_resample_adjoint, ND_F32, &axis);
                }
}
