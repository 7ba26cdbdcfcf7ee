// The functions of rule_cases.h, for products, windows, softmax, losses and quantized weights.
#ifndef ND_TESTS_UNIT_AUTOGRAD_RULE_FUNCTIONS_WINDOW_H
#define ND_TESTS_UNIT_AUTOGRAD_RULE_FUNCTIONS_WINDOW_H
#include "lib/ops/conv.h"
#include "lib/ops/resample.h"
#include "tests/unit/autograd/rule_case.h"
#include "tests/windows.h"

#include <nd/quantization.h>

// -------------------------------------------------------------------------------------------------
// linear algebra

F(f_matmul_transposed) {
    UNUSED;
    nd_auto nd_tensor *a = nd_transpose(x[0], 0, 1);
    nd_auto nd_tensor *b = nd_transpose(x[1], 0, 1);
    return nd_matmul(a, b);
}

F(f_linear) {
    UNUSED;
    return nd_linear(x[0], x[1], count > 2 ? x[2] : NULL);
}

/// Weights of int4 with zeros and of int8 without, in two groups of two.
F(f_quantized_linear) {
    UNUSED;
    const int8_t bytes[] = {1, -3, 5, 2, -7, 4, 0, 6};
    const uint8_t pairs[] = {1, 35, 240, 127, 64, 9};
    const float numbers[] = {0.5F, 0.25F, 0.1F, 0.3F, 0.2F, 0.4F}, others[] = {7, 8, 9, 0, 15, 1};
    bool packed = count == 1 && nd_get_ndim(x[0]) == 2;
    int64_t rows = packed ? 3 : 2;
    nd_auto nd_tensor *values = packed ? nd_from_data(pairs, ND_SHAPE(rows, 2), ND_U8)
                                       : nd_from_data(bytes, ND_SHAPE(rows, 4), ND_I8);
    nd_auto nd_tensor *scales = nd_from_data(numbers, ND_SHAPE(rows, 2), ND_F32);
    nd_auto nd_tensor *zeros = packed ? nd_from_data(others, ND_SHAPE(rows, 2), ND_F32) : NULL;
    return nd_quantized_linear(x[0], values, scales, zeros, count > 1 ? x[1] : NULL);
}

F(f_conv2d) {
    UNUSED;
    return nd_conv2d(x[0], x[1], count > 2 ? x[2] : NULL, CONV(2, 1));
}

/// Two groups, and another stride, padding and dilation for each axis.
#define CONV_OF_GROUPS CONV_WITH(1, 2, 2, 1, 2, 1, 2)

/// What CONV_OF_GROUPS and CONV(2, 1) say.
static const nd__conv_geometry groups_geometry = {{1, 1, 2}, {0, 2, 1}, {1, 2, 1}, 2};
static const nd__conv_geometry plain_geometry = {{1, 2, 2}, {0, 1, 1}, {1, 1, 1}, 1};

F(f_conv2d_groups) {
    UNUSED;
    return nd_conv2d(x[0], x[1], NULL, CONV_OF_GROUPS);
}

F(f_conv2d_groups_grad_input) {
    UNUSED;
    return nd__conv_grad_input(x[0], x[1], (const int64_t[]){2, 4, 5, 6}, &groups_geometry);
}

F(f_conv2d_groups_grad_weight) {
    UNUSED;
    return nd__conv_grad_weight(x[0], x[1], (const int64_t[]){2, 2, 3, 2}, &groups_geometry);
}

F(f_conv2d_grad_input) {
    UNUSED;
    return nd__conv_grad_input(x[0], x[1], (const int64_t[]){2, 2, 5, 5}, &plain_geometry);
}

F(f_conv2d_grad_weight) {
    UNUSED;
    return nd__conv_grad_weight(x[0], x[1], (const int64_t[]){3, 2, 3, 3}, &plain_geometry);
}

F(f_conv1d) {
    UNUSED;
    nd_conv1d_options options = ND_CONV1D_OPTIONS_INIT;
    options.stride = 2;
    options.padding = 3;
    options.dilation = 2;
    options.extra_padding = -2;
    return nd_conv1d(x[0], x[1], x[2], &options);
}

F(f_conv3d) {
    UNUSED;
    nd_conv3d_options options = ND_CONV3D_OPTIONS_INIT;
    options.stride[1] = 2;
    options.padding[0] = options.padding[2] = 1;
    options.dilation[2] = 2;
    options.extra_padding[1] = 1;
    return nd_conv3d(x[0], x[1], x[2], &options);
}

F(f_conv_transpose1d) {
    UNUSED;
    nd_conv_transpose1d_options options = ND_CONV_TRANSPOSE1D_OPTIONS_INIT;
    options.dilation = 3;
    options.output_padding = 2;
    options.padding = 1;
    return nd_conv_transpose1d(x[0], x[1], x[2], &options);
}

F(f_conv_transpose2d) {
    UNUSED;
    nd_conv_transpose2d_options options = ND_CONV_TRANSPOSE2D_OPTIONS_INIT;
    options.stride[0] = 2;
    options.stride[1] = 3;
    options.padding[0] = options.output_padding[0] = 1;
    options.output_padding[1] = 2;
    options.groups = 2;
    return nd_conv_transpose2d(x[0], x[1], x[2], &options);
}

F(f_conv_transpose3d) {
    UNUSED;
    nd_conv_transpose3d_options options = ND_CONV_TRANSPOSE3D_OPTIONS_INIT;
    options.stride[0] = 2;
    options.padding[2] = 1;
    return nd_conv_transpose3d(x[0], x[1], x[2], &options);
}

F(f_unfold) {
    UNUSED;
    const nd_unfold_options options = {sizeof options, 1, {2, 3}, {2, 1}, {1, 1}, {1, 2}};
    return nd_unfold(x[0], &options);
}

F(f_fold) {
    UNUSED;
    const nd_unfold_options options = {sizeof options, 1, {2, 3}, {2, 1}, {1, 1}, {1, 2}};
    return nd_fold(x[0], 4, 5, &options);
}

F(f_avg_pool2d) {
    UNUSED;
    const nd_avg_pool2d_options options = {sizeof options, 1,    {3, 2}, {2, 1},
                                           {1, 0},         true, true,   0};
    return nd_avg_pool2d(x[0], &options);
}

F(f_avg_pool2d_exact) {
    UNUSED;
    const nd_avg_pool2d_options options = {sizeof options, 1,     {2, 3}, {2, 2},
                                           {1, 1},         false, false,  0};
    return nd_avg_pool2d(x[0], &options);
}

F(f_avg_pool1d_divisor) {
    UNUSED;
    const nd_avg_pool1d_options options = {sizeof options, 1, 3, 2, 1, false, true, 5};
    return nd_avg_pool1d(x[0], &options);
}

F(f_adaptive_avg_pool3d) {
    UNUSED;
    return nd_adaptive_avg_pool3d(x[0], 2, 3, -1);
}

F(f_adaptive_max_pool2d) {
    UNUSED;
    return nd_adaptive_max_pool2d(x[0], 3, 2);
}

F(f_max_pool1d_ceil) {
    UNUSED;
    const nd_max_pool1d_options options = {sizeof options, 1, 2, 2, 0, 1, true};
    return nd_max_pool1d(x[0], &options);
}

F(f_max_pool3d) {
    UNUSED;
    const nd_max_pool3d_options options = {sizeof options, 1,         {2, 2, 1}, {1, 2, 1},
                                           {1, 0, 0},      {2, 1, 1}, false};
    return nd_max_pool3d(x[0], &options);
}

/// Interpolation to the sizes that follow.
#define INTERPOLATION(name, mode, align, ...)                                        \
    F(name) {                                                                        \
        UNUSED;                                                                      \
        const nd_interpolate_options options = {sizeof options, 1,    {__VA_ARGS__}, \
                                                {0, 0, 0},      mode, align};        \
        return nd_interpolate(x[0], &options);                                       \
    }
INTERPOLATION(f_interpolate_nearest, ND_INTERPOLATION_NEAREST, false, 7, 2)
INTERPOLATION(f_interpolate_nearest_exact, ND_INTERPOLATION_NEAREST_EXACT, false, 3)
INTERPOLATION(f_interpolate_linear, ND_INTERPOLATION_LINEAR, false, 5)
INTERPOLATION(f_interpolate_bilinear, ND_INTERPOLATION_LINEAR, false, 3, 7)
INTERPOLATION(f_interpolate_bilinear_aligned, ND_INTERPOLATION_LINEAR, true, 6, 2)
INTERPOLATION(f_interpolate_trilinear, ND_INTERPOLATION_LINEAR, false, 3, 4, 1)
INTERPOLATION(f_interpolate_bicubic, ND_INTERPOLATION_CUBIC, false, 6, 2)
INTERPOLATION(f_interpolate_bicubic_aligned, ND_INTERPOLATION_CUBIC, true, 3, 7)

F(f_pixel_shuffle) {
    UNUSED;
    return nd_pixel_shuffle(x[0], 2);
}

F(f_pixel_unshuffle) {
    UNUSED;
    return nd_pixel_unshuffle(x[0], 2);
}

/// The gradient of a map is one of the table's rows, too.
F(f_resample_adjoint) {
    UNUSED;
    const int64_t shape[] = {2, 7, 3};
    const nd_op_attrs attrs = {.i = {ND__RESAMPLE_CUBIC, 2, 7, 4, 3}};
    return nd__resample_apply("resample_adjoint", ND_OP_resample_adjoint, x[0], shape, &attrs);
}

F(f_max_pool2d) {
    UNUSED;
    return nd_max_pool2d(x[0], POOL(2, 2));
}

F(f_max_pool2d_overlapping) {
    UNUSED;
    return nd_max_pool2d(x[0], POOL(3, 1));
}

F(f_max_pool2d_padded) {
    UNUSED;
    return nd_max_pool2d(x[0], POOL_WITH(2, 3, 1, 2, 1, 1, 2, 1));
}
#endif
