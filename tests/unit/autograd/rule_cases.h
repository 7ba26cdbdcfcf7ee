// The functions by which rules_test.c checks each row of ops.inc, and the inputs they are tried on.
//
// A case belongs to a row: its graph must contain a node of it. Elementwise rows make theirs
// themselves. Inputs keep away from where a function has no derivative.
#ifndef ND_TESTS_UNIT_AUTOGRAD_RULE_CASES_H
#define ND_TESTS_UNIT_AUTOGRAD_RULE_CASES_H
#include "lib/autograd/autograd.h"
#include "lib/device/fake/fake.h"
#include "lib/ops/conv.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/resample.h"
#include "lib/ops/scan.h"
#include "lib/tensor/join.h"
#include "lib/tensor/rebase.h"
#include "tests/elementwise.h"
#include "tests/windows.h"

#include <math.h>
#include <nd/linalg.h>
#include <nd/quantization.h>

enum { MAX_INPUTS = 3 };

typedef struct input {
    int ndim;
    int64_t shape[ND_MAX_DIMS];
    double low, high;
} input;

typedef struct rule_case {
    nd_op op;
    nd_gradcheck_function f;
    int count;
    input inputs[MAX_INPUTS];
    nd_dtype dtype;        ///< 0: f64
    double eps, tolerance; ///< 0: 1e-6 and 1e-4
} rule_case;

#define F(name) static nd_tensor *name(size_t count, const nd_tensor *const *x, void *data)
#define UNUSED ((void)count, (void)data)

// -------------------------------------------------------------------------------------------------
// elementwise

// The public ones are those of the table: f_<name>, on its row's domain.
#define DEFINE_NONE(name)
#define DEFINE_X(name)          \
    F(f_##name) {               \
        UNUSED;                 \
        return nd_##name(x[0]); \
    }
#define DEFINE_XP(name)              \
    F(f_##name) {                    \
        UNUSED;                      \
        return nd_##name(x[0], 1.5); \
    }
#define DEFINE_XPQ(name)                    \
    F(f_##name) {                           \
        UNUSED;                             \
        return nd_##name(x[0], -0.5, 0.75); \
    }
#define DEFINE_AB(name)               \
    F(f_##name) {                     \
        UNUSED;                       \
        return nd_##name(x[0], x[1]); \
    }
#define DEFINE_YES(name, form) DEFINE_##form(name)
#define DEFINE_NO(name, form)
#define DEFINE_ZERO(name, form)
#define ND_UNARY(name, types, expression, cost, differentiable, saves, form, ...) \
    DEFINE_##differentiable(name, form)
#define ND_BINARY ND_UNARY
#include "kernels/ops.inc"
DEFINE_X(clone)
DEFINE_AB(matmul)

F(f_mul_same) {
    UNUSED;
    return nd_mul(x[0], x[0]);
}

F(f_pow_scalar_3) {
    UNUSED;
    return nd_pow_scalar(x[0], 3.0);
}

F(f_pow_scalar_half) {
    UNUSED;
    return nd_pow_scalar(x[0], 0.5);
}

F(f_pow_scalar_2) {
    UNUSED;
    return nd_pow_scalar(x[0], 2.0);
}

F(f_pow_scalar_0) {
    UNUSED;
    return nd_pow_scalar(x[0], 0.0);
}

F(f_clip_below) {
    UNUSED;
    return nd_clip(x[0], -0.5, INFINITY);
}

F(f_relu_grad) {
    UNUSED;
    return nd__elementwise_relu_grad(x[0], x[1]);
}

F(f_where) {
    UNUSED;
    nd_auto nd_tensor *condition = nd_greater(x[0], x[1]);
    nd_auto nd_tensor *square = nd_square(x[0]);
    return nd_where(condition, square, x[2]);
}

/// x0 as a fresh result, so that it may be written in place.
static nd_tensor *writable(const nd_tensor *x) {
    return nd_mul_scalar(x, 1.5);
}

F(f_add_scaled_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_add_scaled_(y, x[1], -0.5) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_add_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_add_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_sub_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_sub_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_mul_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_mul_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_div_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_div_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_mul_scalar_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_mul_scalar_(y, 3.0) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_copy_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    return nd_copy_(y, x[1]) == ND_OK ? nd_steal(&y) : NULL;
}

F(f_masked_fill_) {
    UNUSED;
    nd_auto nd_tensor *y = writable(x[0]);
    nd_auto nd_tensor *mask = nd_greater(x[0], x[1]);
    return nd_masked_fill_(y, mask, 3.0) == ND_OK ? nd_steal(&y) : NULL;
}

// -------------------------------------------------------------------------------------------------
// reductions

#define REDUCTION(name, call)       \
    F(f_##name) {                   \
        UNUSED;                     \
        const int axes[] = {0, -1}; \
        (void)axes;                 \
        return call;                \
    }

REDUCTION(sum_all, nd_sum(x[0], 0, NULL, false))
REDUCTION(sum_keep, nd_sum(x[0], 1, axes, true))
REDUCTION(sum_two, nd_sum(x[0], 2, axes, false))
REDUCTION(sum_to, nd_sum_to(x[0], 2, (const int64_t[]){3, 1}))
REDUCTION(mean_all, nd_mean(x[0], 0, NULL, true))
REDUCTION(mean_two, nd_mean(x[0], 2, axes, false))
REDUCTION(max_all, nd_max(x[0], 0, NULL, false))
REDUCTION(max_two, nd_max(x[0], 2, axes, false))
REDUCTION(min_last, nd_min(x[0], 1, axes + 1, true))
REDUCTION(min_all, nd_min(x[0], 0, NULL, false))
REDUCTION(var_two, nd_var(x[0], 2, axes, 1.0, false))
REDUCTION(std_two, nd_std(x[0], 2, axes, 1.0, false))
REDUCTION(prod_two, nd_prod(x[0], 2, axes, false))
REDUCTION(prod_all, nd_prod(x[0], 0, NULL, false))
REDUCTION(norm_one, nd_norm(x[0], 1.0, 2, axes, true))
REDUCTION(norm_two, nd_norm(x[0], 2.0, 2, axes, false))
REDUCTION(norm_three, nd_norm(x[0], 3.0, 0, NULL, false))
REDUCTION(norm_half, nd_norm(x[0], 0.5, 1, axes, false))
REDUCTION(norm_largest, nd_norm(x[0], (double)INFINITY, 1, axes, false))
REDUCTION(logsumexp_two, nd_logsumexp(x[0], 2, axes, false))
REDUCTION(cumsum, nd_cumsum(x[0], axes[0]))
REDUCTION(cumprod, nd_cumprod(x[0], 1))
REDUCTION(cumprod_back, nd__scan(ND_OP_cumprod, x[0], 1, true))
REDUCTION(cummax, nd_cummax(x[0], 1))
REDUCTION(cummin, nd_cummin(x[0], 2))
F(f_recurrence) {
    UNUSED;
    return nd__scan_recurrence(x[0], x[1], 1, false);
}
F(f_recurrence_back) {
    UNUSED;
    return nd__scan_recurrence(x[0], x[1], 0, true);
}
REDUCTION(softmax, nd_softmax(x[0], 1))
REDUCTION(softmax_first, nd_softmax(x[0], 0))
REDUCTION(log_softmax, nd_log_softmax(x[0], -1))

F(f_cross_entropy) {
    UNUSED;
    const int64_t classes[] = {2, 0, 4};
    nd_auto nd_tensor *targets = nd_from_data(classes, ND_SHAPE(3), ND_I64);
    return nd_cross_entropy(x[0], targets);
}

F(f_mse_loss) {
    UNUSED;
    return nd_mse_loss(x[0], x[1]);
}

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

// -------------------------------------------------------------------------------------------------
// linear algebra on the host

/// x + 4 times the identity.
static nd_tensor *regular(const nd_tensor *x) {
    nd_auto nd_tensor *one = nd_eye(nd_get_shape(x)[nd_get_ndim(x) - 1], nd_get_dtype(x));
    nd_auto nd_tensor *part = nd_mul_scalar(one, 4);
    return nd_add(x, part);
}

F(f_solve) {
    UNUSED;
    nd_auto nd_tensor *a = regular(x[0]);
    return nd_solve(a, x[1]);
}

F(f_inv_elsewhere) {
    UNUSED;
    nd_auto nd_tensor *a = regular(x[0]);
    nd_auto nd_tensor *far = nd_to(a, (nd_device){ND_FAKE, 0});
    nd_auto nd_tensor *inverse = nd_inv(far);
    return nd_to(inverse, (nd_device){ND_CPU, 0});
}

F(f_solve_upper) {
    UNUSED;
    nd_auto nd_tensor *a = regular(x[0]);
    return nd_solve_triangular(a, x[1], true, false);
}

F(f_solve_unit_lower) {
    UNUSED;
    return nd_solve_triangular(x[0], x[1], false, true);
}

F(f_lstsq) {
    UNUSED;
    return nd_lstsq(x[0], x[1], -1);
}

F(f_pinv) {
    UNUSED;
    return nd_pinv(x[0], -1);
}

F(f_cholesky) {
    UNUSED;
    nd_auto nd_tensor *turned = nd_transpose(x[0], -2, -1);
    nd_auto nd_tensor *square = nd_matmul(x[0], turned);
    nd_auto nd_tensor *positive = regular(square);
    return nd_cholesky(positive);
}

/// Both parts of a decomposition, which it consumes, in one row.
static nd_tensor *both_parts(nd_tensor *first, nd_tensor *second) {
    nd_auto nd_tensor *left = nd_flatten(first, 0);
    nd_auto nd_tensor *right = nd_flatten(second, 0);
    const nd_tensor *parts[] = {left, right};
    nd_release(first);
    nd_release(second);
    return left && right ? nd_concat(2, parts, 0) : NULL;
}

F(f_qr) {
    UNUSED;
    nd_tensor *q = NULL, *r = NULL;
    return nd_qr(x[0], &q, &r) == ND_OK ? both_parts(q, r) : NULL;
}

F(f_svd) {
    UNUSED;
    nd_tensor *u = NULL, *s = NULL, *vt = NULL;
    if (nd_svd(x[0], &u, &s, &vt) != ND_OK)
        return NULL;
    nd_auto nd_tensor *row = nd_unsqueeze(s, -2);
    nd_tensor *scaled = nd_mul(u, row);
    nd_release(u);
    nd_release(s);
    return both_parts(scaled, vt);
}

F(f_eigh) {
    UNUSED;
    nd_tensor *values = NULL, *vectors = NULL;
    return nd_eigh(x[0], &values, &vectors) == ND_OK ? both_parts(values, vectors) : NULL;
}

F(f_slogdet) {
    UNUSED;
    nd_auto nd_tensor *a = regular(x[0]);
    nd_auto nd_tensor *det = nd_det(a);
    nd_tensor *logarithm = NULL;
    if (nd_slogdet(a, NULL, &logarithm) != ND_OK)
        return NULL;
    nd_tensor *product = nd_mul(det, logarithm);
    nd_release(logarithm);
    return product;
}

// -------------------------------------------------------------------------------------------------
// indexing

F(f_take) {
    UNUSED;
    const int64_t rows[] = {2, 0, 2, 1};
    nd_auto nd_tensor *indices = nd_from_data(rows, ND_SHAPE(2, 2), ND_I64);
    return nd_take(x[0], indices, 1);
}

F(f_take_i32) {
    UNUSED;
    const int32_t rows[] = {1, 1, 0};
    nd_auto nd_tensor *indices = nd_from_data(rows, ND_SHAPE(3), ND_I32);
    return nd_take(x[0], indices, 0);
}

static nd_tensor *index_tensor(void) {
    const int64_t index[] = {2, 0, 1, 1, 1, 2};
    return nd_from_data(index, ND_SHAPE(2, 3), ND_I64);
}

F(f_gather) {
    UNUSED;
    nd_auto nd_tensor *index = index_tensor();
    return nd_gather(x[0], index, 0);
}

F(f_scatter_add) {
    UNUSED;
    nd_auto nd_tensor *index = index_tensor();
    return nd_scatter_add(x[0], index, x[1], 0);
}

static nd_tensor *scatter_reduced(const nd_tensor *const *x, nd_scatter_reduction reduction) {
    nd_auto nd_tensor *index = index_tensor();
    return nd_scatter(x[0], index, x[1], 0, reduction, true);
}

F(f_scatter_prod) {
    UNUSED;
    return scatter_reduced(x, ND_SCATTER_PROD);
}

F(f_scatter_amin) {
    UNUSED;
    return scatter_reduced(x, ND_SCATTER_AMIN);
}

F(f_scatter_amax) {
    UNUSED;
    return scatter_reduced(x, ND_SCATTER_AMAX);
}

static nd_tensor *mask_tensor(void) {
    const uint8_t mask[] = {1, 0, 0, 1, 1, 0, 1, 0, 1, 0, 0, 1};
    return nd_from_data(mask, ND_SHAPE(3, 4), ND_BOOL);
}

F(f_masked_select) {
    UNUSED;
    nd_auto nd_tensor *mask = mask_tensor();
    return nd_masked_select(x[0], mask);
}

F(f_masked_fill) {
    UNUSED;
    nd_auto nd_tensor *mask = mask_tensor();
    return nd_masked_fill(x[0], mask, 7.0);
}

// -------------------------------------------------------------------------------------------------
// copies and views

F(f_cast) {
    UNUSED;
    nd_auto nd_tensor *narrow = nd_cast(x[0], ND_F32);
    return nd_cast(narrow, ND_F64);
}

F(f_to) {
    UNUSED;
    nd_auto nd_tensor *far = nd_to(x[0], (nd_device){ND_FAKE, 0});
    nd_auto nd_tensor *square = nd_square(far);
    return nd_to(square, (nd_device){ND_CPU, 0});
}

F(f_contiguous) {
    UNUSED;
    nd_auto nd_tensor *transposed = nd_transpose(x[0], 0, 1);
    return nd_contiguous(transposed);
}

F(f_unslice) {
    UNUSED;
    return nd__join_unslice(x[0], 2, (const int64_t[]){3, 9}, 1, 1, 2);
}

F(f_as_strided) {
    UNUSED;
    return nd_as_strided(x[0], 2, (const int64_t[]){2, 3}, (const int64_t[]){6, 2}, 1);
}

F(f_as_strided_overlapping) {
    UNUSED;
    return nd_as_strided(x[0], 3, (const int64_t[]){3, 2, 4}, (const int64_t[]){1, 0, 2}, 2);
}

F(f_as_strided_scatter) {
    UNUSED;
    const nd_op_attrs window = {.i = {6, 2, [8] = 1, [9] = 1}};
    return nd__rebase_write_window(x[0], x[1], &window);
}

/// x[0] with a row of it multiplied by x[1], through a view of a view.
F(f_written_through_views) {
    UNUSED;
    nd_auto nd_tensor *base = nd_square(x[0]);
    nd_auto nd_tensor *turned = nd_transpose(base, 0, 1);
    nd_auto nd_tensor *part = nd_select(turned, 1, 0);
    nd_auto nd_tensor *other = nd_flatten(base, 0);
    if (!part || nd_mul_(part, x[1]) != ND_OK)
        return NULL;
    return nd_mul(other, other);
}

F(f_concat) {
    UNUSED;
    const nd_tensor *parts[] = {x[0], x[1], x[0]};
    return nd_concat(3, parts, 1);
}

F(f_stack) {
    UNUSED;
    return nd_stack(2, x, 1);
}

F(f_reshape) {
    UNUSED;
    return nd_reshape(x[0], ND_SHAPE(2, -1));
}

F(f_reshape_copy) {
    UNUSED;
    nd_auto nd_tensor *transposed = nd_transpose(x[0], 0, 1);
    return nd_flatten(transposed, 0);
}

F(f_permute) {
    UNUSED;
    return nd_permute(x[0], 3, (const int[]){2, 0, 1});
}

F(f_expand) {
    UNUSED;
    return nd_expand(x[0], ND_SHAPE(2, 3, 4));
}

F(f_slice) {
    UNUSED;
    return nd_slice(x[0], 1, INT64_MAX, 2, 1);
}

F(f_slice_empty) {
    UNUSED;
    nd_auto nd_tensor *nothing = nd_slice(x[0], 2, 2, 1, 1);
    const nd_tensor *parts[] = {nothing, x[0]};
    return nd_concat(2, parts, 1);
}

F(f_slice_backwards) {
    UNUSED;
    return nd_slice(x[0], -2, INT64_MIN, -2, 1);
}

/// The product of parts, of which one is left out.
F(f_split) {
    UNUSED;
    nd_tensor *parts[3];
    if (nd_split(x[0], 3, (const int64_t[]){2, 1, 2}, 1, parts) != ND_OK)
        return NULL;
    nd_tensor *product = nd_mul(parts[0], parts[2]);
    for (int i = 0; i < 3; i++)
        nd_release(parts[i]);
    return product;
}

/// Of a result, which the parts follow: what the product saves of them keeps which part it was.
F(f_split_of_result) {
    UNUSED;
    nd_auto nd_tensor *square = nd_square(x[0]);
    const nd_tensor *whole = square;
    return square ? f_split(1, &whole, NULL) : NULL;
}

F(f_sliding_window) {
    UNUSED;
    return nd_sliding_window(x[0], 3, 1, 1);
}

/// Of an input that is not contiguous.
F(f_sliding_window_of_columns) {
    UNUSED;
    nd_auto nd_tensor *transposed = nd_transpose(x[0], 0, 1);
    return nd_sliding_window(transposed, 2, 2, 0);
}

F(f_select) {
    UNUSED;
    nd_auto nd_tensor *row = nd_select(x[0], -1, 0);
    nd_auto nd_tensor *wide = nd_unsqueeze(row, 0);
    nd_auto nd_tensor *narrow = nd_squeeze(wide, 0);
    return nd_square(narrow);
}

// -------------------------------------------------------------------------------------------------
// a user function: the cube, with its input kept in a list as context

static nd_status cube_forward(const nd_object *context, size_t ninputs,
                              const nd_tensor *const *inputs, size_t noutputs,
                              nd_tensor **ret_outputs) {
    (void)ninputs, (void)noutputs;
    ret_outputs[0] = nd_pow_scalar(inputs[0], 3.0);
    return ret_outputs[0] ? nd_list_append((nd_list *)context, inputs[0]) : nd_error_get_status();
}

static nd_status cube_backward(const nd_object *context, size_t noutputs,
                               const nd_tensor *const *grad_outputs, size_t ninputs,
                               nd_tensor **ret_grad_inputs) {
    (void)noutputs, (void)ninputs;
    const nd_tensor *x = (const nd_tensor *)nd_list_get((nd_list *)context, 0);
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *slope = nd_mul_scalar(square, 3.0);
    ret_grad_inputs[0] = nd_mul(grad_outputs[0], slope);
    return ret_grad_inputs[0] ? ND_OK : nd_error_get_status();
}

static const nd_function cube = {
    sizeof(nd_function), 1, "cube", cube_forward, cube_backward,
};

F(f_function) {
    UNUSED;
    nd_auto nd_list *context = nd_list_new();
    nd_tensor *y = NULL;
    return nd_function_apply(&cube, context, 1, x, 1, &y) == ND_OK ? y : NULL;
}

// -------------------------------------------------------------------------------------------------
// the table

#define V(low, high) 1, {5}, (low), (high)
#define M(rows, columns) 2, {(rows), (columns)}, -2.0, 2.0
#define POSITIVE(rows, columns) 2, {(rows), (columns)}, 0.5, 2.0

#define CASE_NONE(name, domain)
#define UNARY_CASE(name, domain) {ND_OP_##name, f_##name, 1, {{V domain}}, 0, 0, 0},
#define CASE_X UNARY_CASE
#define CASE_XP UNARY_CASE
#define CASE_XPQ UNARY_CASE
#define PAIR(low, high, other_low, other_high) \
    {2, {3, 4}, (low), (high)}, {              \
        2, {1, 4}, (other_low), (other_high)   \
    }
#define CASE_AB(name, domain) {ND_OP_##name, f_##name, 2, {PAIR domain}, 0, 0, 0},
#define CASE_YES(name, form, domain) CASE_##form(name, domain)
#define CASE_NO(name, form, domain)
#define CASE_ZERO(name, form, domain)

static const rule_case cases[] = {
#define ND_UNARY(name, types, expression, cost, differentiable, saves, form, domain, ...) \
    CASE_##differentiable(name, form, domain)
#define ND_BINARY ND_UNARY
#include "kernels/ops.inc"

    {ND_OP_mul_scalar, f_mul_scalar_, 1, {{V(-2, 2)}}, 0, 0, 0},
    {ND_OP_pow_scalar, f_pow_scalar_3, 1, {{V(-2, 2)}}, 0, 0, 0},
    {ND_OP_pow_scalar, f_pow_scalar_half, 1, {{V(0.5, 2)}}, 0, 0, 0},
    {ND_OP_pow_scalar, f_pow_scalar_2, 1, {{V(-2, 2)}}, 0, 0, 0},
    {ND_OP_pow_scalar, f_pow_scalar_0, 1, {{V(-2, 2)}}, 0, 0, 0},
    {ND_OP_clip, f_clip_below, 1, {{V(-2, 2)}}, 0, 0, 0},

    {ND_OP_add, f_add, 2, {{M(3, 4)}, {M(3, 4)}}, 0, 0, 0},
    {ND_OP_add, f_add, 2, {{M(3, 1)}, {1, {4}, -2, 2}}, 0, 0, 0},
    {ND_OP_add, f_add, 2, {{0, {0}, -2, 2}, {M(2, 3)}}, 0, 0, 0},
    {ND_OP_add, f_add_, 2, {{M(3, 4)}, {1, {4}, -2, 2}}, 0, 0, 0},
    {ND_OP_sub, f_sub, 2, {{M(3, 4)}, {M(1, 4)}}, 0, 0, 0},
    {ND_OP_sub, f_sub_, 2, {{M(3, 4)}, {M(3, 1)}}, 0, 0, 0},
    {ND_OP_mul, f_mul, 2, {{M(3, 4)}, {M(3, 4)}}, 0, 0, 0},
    {ND_OP_mul, f_mul, 2, {{M(3, 1)}, {1, {4}, -2, 2}}, 0, 0, 0},
    {ND_OP_mul, f_mul_same, 1, {{M(3, 2)}}, 0, 0, 0},
    {ND_OP_mul, f_mul_, 2, {{M(3, 4)}, {1, {4}, -2, 2}}, 0, 0, 0},
    {ND_OP_div, f_div, 2, {{M(3, 4)}, {POSITIVE(3, 4)}}, 0, 0, 0},
    {ND_OP_div, f_div, 2, {{0, {0}, -2, 2}, {POSITIVE(3, 4)}}, 0, 0, 0},
    {ND_OP_div, f_div_, 2, {{M(3, 4)}, {POSITIVE(3, 1)}}, 0, 0, 0},
    {ND_OP_pow, f_pow, 2, {{POSITIVE(3, 4)}, {M(3, 4)}}, 0, 0, 0},
    {ND_OP_pow, f_pow, 2, {{POSITIVE(3, 1)}, {M(1, 4)}}, 0, 0, 0},
    {ND_OP_maximum, f_maximum, 2, {{M(3, 4)}, {M(1, 4)}}, 0, 0, 0},
    {ND_OP_minimum, f_minimum, 2, {{M(3, 4)}, {M(3, 4)}}, 0, 0, 0},
    {ND_OP_add_scaled, f_add_scaled_, 2, {{M(3, 4)}, {M(1, 4)}}, 0, 0, 0},
    {ND_OP_relu_grad, f_relu_grad, 2, {{M(3, 4)}, {M(3, 4)}}, 0, 0, 0},
    {ND_OP_where, f_where, 3, {{M(3, 4)}, {M(1, 4)}, {M(3, 1)}}, 0, 0, 0},
    {ND_OP_where, f_masked_fill, 1, {{M(3, 4)}}, 0, 0, 0},

    {ND_OP_sum, f_sum_all, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_sum, f_sum_keep, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_sum, f_sum_two, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_sum, f_sum_to, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_mean, f_mean_all, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_mean, f_mean_two, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_var, f_var_two, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_std, f_std_two, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_prod, f_prod_two, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_prod, f_prod_all, 1, {{3, {2, 2, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_norm, f_norm_one, 1, {{3, {2, 3, 4}, 0.5, 2}}, 0, 0, 0},
    {ND_OP_norm, f_norm_two, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_norm, f_norm_three, 1, {{3, {2, 3, 4}, 0.5, 2}}, 0, 0, 0},
    {ND_OP_norm, f_norm_half, 1, {{3, {2, 3, 4}, 0.5, 2}}, 0, 0, 0},
    {ND_OP_max, f_norm_largest, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_logsumexp, f_logsumexp_two, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_cumsum, f_cumsum, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_cumprod, f_cumprod, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_cumprod, f_cumprod_back, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_cummax, f_cummax, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_cummin, f_cummin, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_recurrence, f_recurrence, 2, {{M(3, 4)}, {M(3, 4)}}, 0, 0, 0},
    {ND_OP_recurrence, f_recurrence_back, 2, {{M(3, 4)}, {M(3, 4)}}, 0, 0, 0},
    {ND_OP_max, f_max_all, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_max, f_max_two, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_min, f_min_last, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_min, f_min_all, 1, {{M(3, 4)}}, 0, 0, 0},

    {ND_OP_matmul, f_matmul, 2, {{M(3, 4)}, {M(4, 2)}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul_transposed, 2, {{M(4, 3)}, {M(2, 4)}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul, 2, {{3, {2, 3, 4}, -2, 2}, {3, {2, 4, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul, 2, {{3, {2, 3, 4}, -2, 2}, {M(4, 2)}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul, 2, {{M(3, 4)}, {3, {2, 4, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul, 2, {{4, {2, 1, 2, 3}, -2, 2}, {3, {2, 3, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul, 2, {{1, {4}, -2, 2}, {1, {4}, -2, 2}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul, 2, {{1, {4}, -2, 2}, {M(4, 3)}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul, 2, {{M(3, 4)}, {1, {4}, -2, 2}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul, 2, {{1, {4}, -2, 2}, {3, {2, 4, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_matmul, f_matmul, 2, {{3, {2, 3, 4}, -2, 2}, {1, {4}, -2, 2}}, 0, 0, 0},
    {ND_OP_linear, f_linear, 3, {{M(3, 4)}, {M(2, 4)}, {1, {2}, -2, 2}}, 0, 0, 0},
    {ND_OP_linear, f_linear, 3, {{3, {2, 3, 4}, -2, 2}, {M(2, 4)}, {1, {2}, -2, 2}}, 0, 0, 0},
    {ND_OP_linear, f_linear, 2, {{1, {4}, -2, 2}, {M(2, 4)}}, 0, 0, 0},
    {ND_OP_quantized_linear, f_quantized_linear, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_quantized_linear, f_quantized_linear, 1, {{1, {4}, -2, 2}}, 0, 0, 0},
    {ND_OP_quantized_linear,
     f_quantized_linear,
     2,
     {{3, {2, 1, 4}, -2, 2}, {1, {2}, -2, 2}},
     0,
     0,
     0},
    {ND_OP_solve, f_solve, 2, {{3, {2, 3, 3}, -1, 1}, {M(3, 2)}}, 0, 0, 0},
    {ND_OP_solve, f_inv_elsewhere, 1, {{3, {2, 3, 3}, -1, 1}}, 0, 0, 0},
    {ND_OP_solve_triangular, f_solve_upper, 2, {{M(3, 3)}, {3, {2, 3, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_solve_triangular, f_solve_unit_lower, 2, {{M(3, 3)}, {1, {3}, -2, 2}}, 0, 0, 0},
    {ND_OP_lstsq, f_lstsq, 2, {{M(4, 2)}, {M(4, 2)}}, 0, 0, 0},
    {ND_OP_lstsq, f_lstsq, 2, {{M(2, 4)}, {1, {2}, -2, 2}}, 0, 0, 0},
    {ND_OP_pinv, f_pinv, 1, {{3, {2, 4, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_pinv, f_pinv, 1, {{M(2, 3)}}, 0, 0, 0},
    {ND_OP_cholesky, f_cholesky, 1, {{3, {2, 3, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_qr, f_qr, 1, {{3, {2, 4, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_qr, f_qr, 1, {{M(2, 4)}}, 0, 0, 0},
    {ND_OP_svd, f_svd, 1, {{3, {2, 4, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_svd, f_svd, 1, {{M(2, 4)}}, 0, 0, 0},
    {ND_OP_svd, f_svd, 1, {{M(3, 3)}}, 0, 0, 0},
    {ND_OP_eigh, f_eigh, 1, {{3, {2, 3, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_slogdet, f_slogdet, 1, {{3, {2, 3, 3}, -1, 1}}, 0, 0, 0},
    {ND_OP_softmax, f_softmax, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_softmax, f_softmax_first, 1, {{3, {2, 3, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_log_softmax, f_log_softmax, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_cross_entropy, f_cross_entropy, 1, {{M(3, 5)}}, 0, 0, 0},
    {ND_OP_conv,
     f_conv2d,
     3,
     {{4, {2, 2, 5, 5}, -1, 1}, {4, {3, 2, 3, 3}, -1, 1}, {1, {3}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_conv,
     f_conv2d,
     3,
     {{4, {2, 2, 5, 5}, -1, 1}, {4, {3, 2, 3, 3}, -1, 1}, {1, {3}, -1, 1}},
     ND_F32,
     1e-2,
     2e-2},
    {ND_OP_conv_grad_input,
     f_conv2d_grad_input,
     2,
     {{4, {2, 3, 3, 3}, -1, 1}, {4, {3, 2, 3, 3}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_conv_grad_input,
     f_conv2d_grad_input,
     2,
     {{4, {2, 3, 3, 3}, -1, 1}, {4, {3, 2, 3, 3}, -1, 1}},
     ND_F32,
     1e-2,
     2e-2},
    {ND_OP_conv_grad_weight,
     f_conv2d_grad_weight,
     2,
     {{4, {2, 2, 5, 5}, -1, 1}, {4, {2, 3, 3, 3}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_conv_grad_weight,
     f_conv2d_grad_weight,
     2,
     {{4, {2, 2, 5, 5}, -1, 1}, {4, {2, 3, 3, 3}, -1, 1}},
     ND_F32,
     1e-2,
     2e-2},
    {ND_OP_conv, f_conv2d_groups, 2, {{4, {2, 4, 5, 6}, -1, 1}, {4, {2, 2, 3, 2}, -1, 1}}, 0, 0, 0},
    {ND_OP_conv,
     f_conv2d_groups,
     2,
     {{4, {2, 4, 5, 6}, -1, 1}, {4, {2, 2, 3, 2}, -1, 1}},
     ND_F32,
     1e-2,
     2e-2},
    {ND_OP_conv_grad_input,
     f_conv2d_groups_grad_input,
     2,
     {{4, {2, 2, 5, 4}, -1, 1}, {4, {2, 2, 3, 2}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_conv_grad_input,
     f_conv2d_groups_grad_input,
     2,
     {{4, {2, 2, 5, 4}, -1, 1}, {4, {2, 2, 3, 2}, -1, 1}},
     ND_F32,
     1e-2,
     2e-2},
    {ND_OP_conv_grad_weight,
     f_conv2d_groups_grad_weight,
     2,
     {{4, {2, 4, 5, 6}, -1, 1}, {4, {2, 2, 5, 4}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_conv_grad_weight,
     f_conv2d_groups_grad_weight,
     2,
     {{4, {2, 4, 5, 6}, -1, 1}, {4, {2, 2, 5, 4}, -1, 1}},
     ND_F32,
     1e-2,
     2e-2},
    {ND_OP_conv,
     f_conv1d,
     3,
     {{3, {2, 3, 7}, -1, 1}, {3, {2, 3, 3}, -1, 1}, {1, {2}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_conv,
     f_conv3d,
     3,
     {{5, {1, 2, 3, 3, 4}, -1, 1}, {5, {2, 2, 2, 2, 2}, -1, 1}, {1, {2}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_conv_grad_input,
     f_conv_transpose1d,
     3,
     {{3, {2, 2, 4}, -1, 1}, {3, {2, 3, 2}, -1, 1}, {1, {3}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_conv_grad_input,
     f_conv_transpose2d,
     3,
     {{4, {1, 4, 3, 2}, -1, 1}, {4, {4, 1, 2, 3}, -1, 1}, {1, {2}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_conv_grad_input,
     f_conv_transpose3d,
     3,
     {{5, {1, 2, 2, 2, 3}, -1, 1}, {5, {2, 1, 2, 2, 3}, -1, 1}, {1, {1}, -1, 1}},
     0,
     0,
     0},
    {ND_OP_unfold, f_unfold, 1, {{4, {2, 2, 4, 5}, -2, 2}}, 0, 0, 0},
    {ND_OP_fold, f_fold, 1, {{3, {2, 12, 9}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_avg_pool2d, 1, {{4, {2, 1, 4, 5}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_avg_pool2d_exact, 1, {{4, {1, 2, 5, 5}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_avg_pool1d_divisor, 1, {{3, {2, 2, 6}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_adaptive_avg_pool3d, 1, {{5, {1, 2, 5, 4, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_interpolate_nearest, 1, {{4, {1, 2, 4, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_interpolate_nearest_exact, 1, {{3, {1, 2, 5}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_interpolate_linear, 1, {{3, {2, 1, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_interpolate_bilinear, 1, {{4, {1, 2, 5, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_interpolate_bilinear_aligned, 1, {{4, {1, 1, 4, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_interpolate_trilinear, 1, {{5, {1, 1, 2, 3, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_interpolate_bicubic, 1, {{4, {1, 1, 4, 5}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample, f_interpolate_bicubic_aligned, 1, {{4, {1, 2, 4, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_resample_adjoint, f_resample_adjoint, 1, {{3, {2, 4, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_max_pool, f_adaptive_max_pool2d, 1, {{4, {1, 2, 4, 5}, -2, 2}}, 0, 0, 0},
    {ND_OP_max_pool, f_max_pool1d_ceil, 1, {{3, {2, 2, 5}, -2, 2}}, 0, 0, 0},
    {ND_OP_max_pool, f_max_pool3d, 1, {{5, {1, 2, 4, 4, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_max_pool, f_max_pool2d_padded, 1, {{4, {2, 1, 5, 6}, -2, 2}}, 0, 0, 0},
    {ND_OP_max_pool, f_max_pool2d, 1, {{4, {1, 2, 4, 5}, -2, 2}}, 0, 0, 0},
    {ND_OP_max_pool, f_max_pool2d, 1, {{4, {1, 2, 4, 5}, -2, 2}}, ND_F32, 1e-3, 2e-2},
    {ND_OP_max_pool, f_max_pool2d_overlapping, 1, {{4, {1, 1, 4, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_max_pool, f_max_pool2d_overlapping, 1, {{4, {1, 1, 4, 4}, -2, 2}}, ND_F32, 1e-3, 2e-2},

    {ND_OP_take, f_take, 1, {{3, {2, 3, 2}, -2, 2}}, 0, 0, 0},
    {ND_OP_take, f_take_i32, 1, {{M(2, 3)}}, 0, 0, 0},
    {ND_OP_gather, f_gather, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_scatter_add, f_scatter_add, 2, {{M(3, 4)}, {M(2, 3)}}, 0, 0, 0},
    {ND_OP_scatter_reduce, f_scatter_prod, 2, {{M(3, 4)}, {M(2, 3)}}, 0, 0, 0},
    {ND_OP_scatter_reduce, f_scatter_amin, 2, {{M(3, 4)}, {M(2, 3)}}, 0, 0, 0},
    {ND_OP_scatter_reduce, f_scatter_amax, 2, {{M(3, 4)}, {M(2, 3)}}, 0, 0, 0},
    {ND_OP_masked_select, f_masked_select, 1, {{M(3, 4)}}, 0, 0, 0},

    {ND_OP_cast, f_cast, 1, {{V(-2, 2)}}, 0, 1e-2, 1e-2},
    {ND_OP_clone, f_clone, 1, {{V(-2, 2)}}, 0, 0, 0},
    {ND_OP_clone, f_contiguous, 1, {{M(2, 3)}}, 0, 0, 0},
    {ND_OP_to, f_to, 1, {{V(-2, 2)}}, 0, 0, 0},
    {ND_OP_unslice, f_unslice, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_as_strided, f_as_strided, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_as_strided, f_as_strided_overlapping, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_as_strided_scatter, f_as_strided_scatter, 2, {{M(3, 4)}, {M(2, 3)}}, 0, 0, 0},
    {ND_OP_as_strided_scatter, f_written_through_views, 2, {{M(3, 4)}, {1, {3}, -2, 2}}, 0, 0, 0},
    {ND_OP_concat, f_concat, 2, {{M(2, 3)}, {M(2, 2)}}, 0, 0, 0},
    {ND_OP_concat, f_stack, 2, {{M(2, 3)}, {M(2, 3)}}, 0, 0, 0},
    {ND_OP_concat, f_slice_empty, 1, {{M(2, 3)}}, 0, 0, 0},
    {ND_OP_reshape, f_reshape, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_reshape, f_reshape_copy, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_permute, f_permute, 1, {{3, {2, 3, 4}, -2, 2}}, 0, 0, 0},
    {ND_OP_expand, f_expand, 1, {{M(3, 1)}}, 0, 0, 0},
    {ND_OP_slice, f_slice, 1, {{M(3, 5)}}, 0, 0, 0},
    {ND_OP_slice, f_slice_backwards, 1, {{M(3, 5)}}, 0, 0, 0},
    {ND_OP_split, f_split, 1, {{M(3, 5)}}, 0, 0, 0},
    {ND_OP_split, f_split_of_result, 1, {{M(3, 5)}}, 0, 0, 0},
    {ND_OP_sliding_window, f_sliding_window, 1, {{M(3, 5)}}, 0, 0, 0},
    {ND_OP_sliding_window, f_sliding_window_of_columns, 1, {{M(3, 5)}}, 0, 0, 0},
    {ND_OP_slice, f_select, 1, {{M(3, 4)}}, 0, 0, 0},
    {ND_OP_function, f_function, 1, {{M(3, 4)}}, 0, 0, 0},
};

/// Made of several rows; which ones is not theirs to promise.
static const rule_case composed_cases[] = {
    {ND_OP_none, f_pixel_shuffle, 1, {{4, {1, 8, 2, 3}, -2, 2}}, 0, 0, 0},
    {ND_OP_none, f_pixel_unshuffle, 1, {{4, {1, 2, 4, 6}, -2, 2}}, 0, 0, 0},
    {ND_OP_none, f_mse_loss, 2, {{M(3, 4)}, {M(3, 4)}}, 0, 0, 0},
    {ND_OP_none, f_copy_, 2, {{M(3, 4)}, {M(1, 4)}}, 0, 0, 0},
    {ND_OP_none, f_masked_fill_, 2, {{M(3, 4)}, {M(3, 4)}}, 0, 0, 0},
};

#endif
