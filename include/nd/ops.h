/// @file
/// Operations on tensors. Definitions follow the Python Array API standard (2022.12) where it has
/// the operation.
///
/// All return a new owned tensor on the operands' device, placed at the operands' manager
/// (<nd/manager.h>), or NULL with an error. Operands broadcast (sizes equal, 1, or missing on the
/// left) and promote dtypes. Operands on different devices are an error. Safe from any thread while
/// nobody writes the operands.
#ifndef ND_OPS_H
#define ND_OPS_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

// ----------------------------------------------------------------------- elementwise, two operands
//
// Shapes a, b broadcast to the result. bool operands: only logical_*, comparisons and where.

/// a + b.
ND_API nd_tensor *nd_add(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a - b.
ND_API nd_tensor *nd_sub(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a * b.
ND_API nd_tensor *nd_mul(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// True division; integer operands give f32 (f64 when one is f64).
ND_API nd_tensor *nd_div(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a to the power of b. Integers wrap; a negative exponent gives the true value, truncated.
ND_API nd_tensor *nd_pow(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// The larger of two; NaN propagates. Where both are equal each gets half the gradient.
ND_API nd_tensor *nd_maximum(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// The smaller of two; as nd_maximum().
ND_API nd_tensor *nd_minimum(const nd_tensor *a, const nd_tensor *b) ND_OWNED;

// Comparisons and logic: result bool, no gradient.
/// a = b; NaN equals nothing.
ND_API nd_tensor *nd_equal(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a != b; NaN differs from everything.
ND_API nd_tensor *nd_not_equal(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a < b; false with NaN, as the three that follow.
ND_API nd_tensor *nd_less(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a <= b.
ND_API nd_tensor *nd_less_equal(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a > b.
ND_API nd_tensor *nd_greater(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a >= b.
ND_API nd_tensor *nd_greater_equal(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a and b, both bool.
ND_API nd_tensor *nd_logical_and(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a or b, both bool.
ND_API nd_tensor *nd_logical_or(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// not x, which is bool.
ND_API nd_tensor *nd_logical_not(const nd_tensor *x) ND_OWNED;

/// condition ? a : b, elementwise; condition is bool.
ND_API nd_tensor *nd_where(const nd_tensor *condition, const nd_tensor *a,
                           const nd_tensor *b) ND_OWNED;

// With a number of C instead of the second operand, exactly (<nd/number.h>). dtype is x's (integer
// x with a fraction, an infinity or NaN: f32). Error: x is of integers, and its dtype cannot hold
// the number. Integers wrap.
/// x + value.
ND_API nd_tensor *nd_add_scalar(const nd_tensor *x, nd_number value) ND_OWNED;
/// x * value.
ND_API nd_tensor *nd_mul_scalar(const nd_tensor *x, nd_number value) ND_OWNED;
/// x to the power of exponent.
ND_API nd_tensor *nd_pow_scalar(const nd_tensor *x, nd_number exponent) ND_OWNED;

// ------------------------------------------------------------------------ elementwise, one operand
//
// neg, abs, sign, square: any number; the others take f32/f64 and promote integers to f32.

/// -x; the smallest integer stays.
ND_API nd_tensor *nd_neg(const nd_tensor *x) ND_OWNED;
/// |x|; the smallest integer stays.
ND_API nd_tensor *nd_abs(const nd_tensor *x) ND_OWNED;
/// -1, 0 or 1; NaN for NaN. No gradient.
ND_API nd_tensor *nd_sign(const nd_tensor *x) ND_OWNED;
/// x * x.
ND_API nd_tensor *nd_square(const nd_tensor *x) ND_OWNED;
/// e to the power of x.
ND_API nd_tensor *nd_exp(const nd_tensor *x) ND_OWNED;
/// Natural logarithm; NaN below 0, -infinity at 0.
ND_API nd_tensor *nd_log(const nd_tensor *x) ND_OWNED;
/// Square root; NaN below 0.
ND_API nd_tensor *nd_sqrt(const nd_tensor *x) ND_OWNED;
/// Sine of x in radians.
ND_API nd_tensor *nd_sin(const nd_tensor *x) ND_OWNED;
/// Cosine of x in radians.
ND_API nd_tensor *nd_cos(const nd_tensor *x) ND_OWNED;
/// Hyperbolic tangent.
ND_API nd_tensor *nd_tanh(const nd_tensor *x) ND_OWNED;
/// 1 / (1 + exp(-x)).
ND_API nd_tensor *nd_sigmoid(const nd_tensor *x) ND_OWNED;
/// x above 0, else 0. The gradient at 0 is 0.
ND_API nd_tensor *nd_relu(const nd_tensor *x) ND_OWNED;
/// x/2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel 2016, exact form).
ND_API nd_tensor *nd_gelu(const nd_tensor *x) ND_OWNED;
/// Error function.
ND_API nd_tensor *nd_erf(const nd_tensor *x) ND_OWNED;
/// 1 / x.
ND_API nd_tensor *nd_reciprocal(const nd_tensor *x) ND_OWNED;
/// Limited to [low, high]; use -INFINITY / INFINITY for one-sided. A limit beyond the range of x's
/// integers is the end of that range. Error: a limit is NaN.
ND_API nd_tensor *nd_clip(const nd_tensor *x, nd_number low, nd_number high) ND_OWNED;

// -------------------------------------------------------------------------------------- reductions
//
// Over `naxes` axes (0, NULL: all). keepdims keeps reduced axes with size 1. Any dtype. A sum of
// integers or bool is of i64, of unsigned ones u64, and wraps; mean and var of them are of f32,
// computed in f64. Floats keep their dtype; f16, bf16 and f32 are added up in f64. max/min of
// nothing is an error; NaN propagates.

/// Sum; 0 of nothing.
ND_API nd_tensor *nd_sum(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Mean; NaN of nothing.
ND_API nd_tensor *nd_mean(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Gradient goes, shared equally, to the elements that equal the extremum.
ND_API nd_tensor *nd_max(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Smallest; the gradient as for nd_max().
ND_API nd_tensor *nd_min(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Sum of squared deviations from the mean over (n - correction); the mean is found first, so that a
/// large one costs no digits.
ND_API nd_tensor *nd_var(const nd_tensor *x, int naxes, const int *axes, double correction,
                         bool keepdims) ND_OWNED;
/// Index of the first extremum along one axis: i64.
ND_API nd_tensor *nd_argmax(const nd_tensor *x, int axis, bool keepdims) ND_OWNED;
/// Index of the first smallest along one axis: i64.
ND_API nd_tensor *nd_argmin(const nd_tensor *x, int axis, bool keepdims) ND_OWNED;
/// Sums x down to `shape`, the inverse of broadcasting.
ND_API nd_tensor *nd_sum_to(const nd_tensor *x, int ndim, const int64_t *shape) ND_OWNED;

// ---------------------------------------------------------------------------------- linear algebra

/// a: [..., m, k], b: [..., k, n] -> [..., m, n]; leading axes broadcast; 1-d operands as in the
/// Array API. f32, f64.
ND_API nd_tensor *nd_matmul(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// x: [..., in], weight: [out, in], bias: [out] or NULL -> [..., out] = x weight^T + bias.
ND_API nd_tensor *nd_linear(const nd_tensor *x, const nd_tensor *weight,
                            const nd_tensor *bias) ND_OWNED;

// ---------------------------------------------------------------------------------- neural network

/// exp(x) / sum(exp(x)) along one axis, without overflow.
ND_API nd_tensor *nd_softmax(const nd_tensor *x, int axis) ND_OWNED;
/// x - log(sum(exp(x))) along one axis, without overflow.
ND_API nd_tensor *nd_log_softmax(const nd_tensor *x, int axis) ND_OWNED;
/// What becomes of the elements of a loss.
typedef enum nd_reduction {
    ND_REDUCTION_MEAN = 0,   ///< their mean
    ND_REDUCTION_SUM,        ///< their sum
    ND_REDUCTION_NONE,       ///< they are the result
    ND_REDUCTION_BATCH_MEAN, ///< their sum over the first size: nd_kl_div() alone
} nd_reduction;
/// Mean over the batch of -log softmax(logits)[target]. logits: [n, classes] f32/f64, targets: [n]
/// of any integer dtype -> [].
ND_API nd_tensor *nd_cross_entropy(const nd_tensor *logits, const nd_tensor *targets) ND_OWNED;
/// Mean of (a - b)^2 -> [].
ND_API nd_tensor *nd_mse_loss(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// Options of nd_conv2d(). Pairs are of h and w, in this order.
typedef struct nd_conv2d_options {
    uint32_t size;       ///< sizeof(nd_conv2d_options)
    uint32_t version;    ///< 1
    int64_t stride[2];   ///< from one window to the next, at least 1
    int64_t padding[2];  ///< zeros on either side of x, at least 0
    int64_t dilation[2]; ///< from one element of a window to the next, at least 1
    int64_t groups;      ///< of channels that see only each other; divides ci and co
} nd_conv2d_options;
/// What an nd_conv2d_options must begin as: stride 1, no padding, dilation 1, one group.
#define ND_CONV2D_OPTIONS_INIT \
    { sizeof(nd_conv2d_options), 1, {1, 1}, {0, 0}, {1, 1}, 1 }
/// x: [n, ci, h, w], weight: [co, ci / groups, kh, kw], bias: [co] or NULL -> [n, co, oh, ow],
/// where a size s becomes (s + 2 padding - dilation (k - 1) - 1) / stride + 1. All f32, or all f64.
/// Options NULL: as ND_CONV2D_OPTIONS_INIT.
ND_API nd_tensor *nd_conv2d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                            const nd_conv2d_options *options) ND_OWNED;

/// Options of nd_max_pool2d(). Pairs are of h and w, in this order.
typedef struct nd_max_pool2d_options {
    uint32_t size;     ///< sizeof(nd_max_pool2d_options)
    uint32_t version;  ///< 1
    int64_t kernel[2]; ///< size of a window; must be set
    int64_t stride[2]; ///< from one window to the next; 0: the kernel's size
    int64_t padding
        [2]; ///< places on either side of x that are never chosen; at most half of the kernel
    int64_t dilation[2]; ///< from one element of a window to the next, at least 1
} nd_max_pool2d_options;
/// What an nd_max_pool2d_options must begin as; `kernel` must be set. Stride of the kernel's size,
/// no padding, dilation 1.
#define ND_MAX_POOL2D_OPTIONS_INIT                                  \
    {                                                               \
        sizeof(nd_max_pool2d_options), 1, {0, 0}, {0, 0}, {0, 0}, { \
            1, 1                                                    \
        }                                                           \
    }
/// Largest element of each window; NaN wins, and of equal elements the first gets the gradient. x:
/// [n, c, h, w] -> [n, c, oh, ow], sizes as for nd_conv2d(). f32, f64. A window that reaches no
/// element of x, as a dilation beyond its size allows, is ND_ERROR_SHAPE.
ND_API nd_tensor *nd_max_pool2d(const nd_tensor *x, const nd_max_pool2d_options *options) ND_OWNED;

// ---------------------------------------------------------------------------------------- indexing

/// Rows `indices` of an axis: x: [a, n, b], indices: [i...] i64 or i32 -> [a, i..., b]. Out of
/// range is an error.
ND_API nd_tensor *nd_take(const nd_tensor *x, const nd_tensor *indices, int axis) ND_OWNED;
/// result[i][j] = x[index[i][j]][j] (axis 0): index has x's ndim; sizes elsewhere <= x's.
ND_API nd_tensor *nd_gather(const nd_tensor *x, const nd_tensor *index, int axis) ND_OWNED;
/// Copy of x with source added at index along axis; repeated indices accumulate (16-bit floats in
/// f32). Numbers of every dtype; x and source have the same.
ND_API nd_tensor *nd_scatter_add(const nd_tensor *x, const nd_tensor *index,
                                 const nd_tensor *source, int axis) ND_OWNED;
/// indices: [...] i64 -> [..., classes] of `dtype`.
ND_API nd_tensor *nd_one_hot(const nd_tensor *indices, int64_t classes, nd_dtype dtype) ND_OWNED;
/// Elements of x where mask (same shape, bool) holds, in row-major order: [count].
ND_API nd_tensor *nd_masked_select(const nd_tensor *x, const nd_tensor *mask) ND_OWNED;
/// Copy of x with `value` where mask (broadcast to x) holds. Error: x's dtype cannot hold it.
ND_API nd_tensor *nd_masked_fill(const nd_tensor *x, const nd_tensor *mask,
                                 nd_number value) ND_OWNED;

// ---------------------------------------------------------------------------------------- in place
//
// Write x, bump its version counter, and return a status. y broadcasts to x. Errors: x needs
// history and is a leaf that requires a gradient (outside nd_no_grad); x overlaps itself
// (expanded); partial overlap of x and y; x's dtype cannot hold the number (<nd/number.h>).

/// x += y.
ND_API nd_status nd_add_(nd_tensor *x, const nd_tensor *y);
/// x -= y.
ND_API nd_status nd_sub_(nd_tensor *x, const nd_tensor *y);
/// x *= y.
ND_API nd_status nd_mul_(nd_tensor *x, const nd_tensor *y);
/// x /= y; x is f32 or f64.
ND_API nd_status nd_div_(nd_tensor *x, const nd_tensor *y);
/// x += alpha * y.
ND_API nd_status nd_add_scaled_(nd_tensor *x, const nd_tensor *y, nd_number alpha);
/// x *= value.
ND_API nd_status nd_mul_scalar_(nd_tensor *x, nd_number value);
/// x = value everywhere.
ND_API nd_status nd_fill_(nd_tensor *x, nd_number value);
/// x = y, converting dtype and crossing devices.
ND_API nd_status nd_copy_(nd_tensor *x, const nd_tensor *y);
/// x = value where mask (bool, broadcast to x) holds.
ND_API nd_status nd_masked_fill_(nd_tensor *x, const nd_tensor *mask, nd_number value);

#ifndef __cplusplus
/// @cond
#define nd_add_scalar(...) (nd_add_scalar)(ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_mul_scalar(...) (nd_mul_scalar)(ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_pow_scalar(...) (nd_pow_scalar)(ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_clip(...) (nd_clip)(ND__NUMBER_SECOND_AND_THIRD(__VA_ARGS__))
#define nd_masked_fill(...) (nd_masked_fill)(ND__NUMBER_THIRD(__VA_ARGS__))
#define nd_add_scaled_(...) (nd_add_scaled_)(ND__NUMBER_THIRD(__VA_ARGS__))
#define nd_mul_scalar_(...) (nd_mul_scalar_)(ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_fill_(...) (nd_fill_)(ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_masked_fill_(...) (nd_masked_fill_)(ND__NUMBER_THIRD(__VA_ARGS__))
/// @endcond
#endif

#ifdef __cplusplus
}
#endif
#endif
