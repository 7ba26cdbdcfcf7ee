/// @file
/// Operations on tensors. Definitions follow the Python Array API standard (2024.12) where it has
/// the operation.
///
/// All return a new owned tensor on the operands' device, which shares no memory with them, placed at
/// the operands' manager (<nd/manager.h>), or NULL with an error. Operands broadcast (sizes equal, 1, or missing on the
/// left) and promote dtypes. Operands on different devices are an error. Safe from any thread while
/// nobody writes the operands.
///
/// Integers wrap. An elementwise operation on 16-bit floats is computed in f32, a number given with
/// it too, and rounded once, at the end; what becomes the operand of another operation was rounded.
#ifndef ND_OPS_H
#define ND_OPS_H
#include <nd/convolution.h>
#include <nd/interpolation.h>
#include <nd/pooling.h>
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

// ----------------------------------------------------------------------- elementwise, two operands
//
// Shapes a, b broadcast to the result. bool operands: only logical_*, bitwise_and, _or and _xor,
// comparisons and where. Where a row below says nothing of integers: div, atan2, hypot, logaddexp,
// copysign and nextafter make f32 of them.

/// a + b.
ND_API nd_tensor *nd_add(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a - b.
ND_API nd_tensor *nd_sub(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a * b.
ND_API nd_tensor *nd_mul(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// True division; integer operands give f32 (f64 when one is f64).
ND_API nd_tensor *nd_div(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a / b rounded down. Integers divided by 0 give 0. A float beyond 2^22 (f64: 2^51) may
/// be one off, as NumPy's: it is made of a - remainder, which the dtype rounds.
ND_API nd_tensor *nd_floor_divide(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a - b floor(a / b), of the sign of b, as in Python. Of integers divided by 0: 0.
ND_API nd_tensor *nd_remainder(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a to the power of b. Integers wrap; a negative exponent gives the true value, truncated.
ND_API nd_tensor *nd_pow(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// The larger of two; NaN propagates. Where both are equal each gets half the gradient; where one
/// is NaN both get all of it.
ND_API nd_tensor *nd_maximum(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// The smaller of two; as nd_maximum().
ND_API nd_tensor *nd_minimum(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// Angle of the point (b, a), in [-pi, pi]. Where both are 0 the gradients are 0.
ND_API nd_tensor *nd_atan2(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// sqrt(a^2 + b^2), without overflow on the way.
ND_API nd_tensor *nd_hypot(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// log(exp(a) + exp(b)), without overflow.
ND_API nd_tensor *nd_logaddexp(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a with the sign of b.
ND_API nd_tensor *nd_copysign(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// The next number after a in the direction of b. No gradient.
ND_API nd_tensor *nd_nextafter(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a and b, bit by bit; bool operands, too, as the others of its kind.
ND_API nd_tensor *nd_bitwise_and(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a or b, bit by bit.
ND_API nd_tensor *nd_bitwise_or(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a or b but not both, bit by bit.
ND_API nd_tensor *nd_bitwise_xor(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a moved left by b bits; 0 when b is negative or not less than the number of bits.
ND_API nd_tensor *nd_bitwise_left_shift(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// a moved right by b bits with its sign; what is moved too far, or by a negative number,
/// leaves only the sign: 0 or -1.
ND_API nd_tensor *nd_bitwise_right_shift(const nd_tensor *a, const nd_tensor *b) ND_OWNED;

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
/// a or b but not both, both bool.
ND_API nd_tensor *nd_logical_xor(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// not x, which is bool.
ND_API nd_tensor *nd_logical_not(const nd_tensor *x) ND_OWNED;

/// condition ? a : b, elementwise; condition is bool.
ND_API nd_tensor *nd_where(const nd_tensor *condition, const nd_tensor *a,
                           const nd_tensor *b) ND_OWNED;

// With a number of C instead of the second operand. dtype is x's (integer x with a fraction, an
// infinity or NaN: f32), and the number is rounded to it once, for f16 and bf16 to f32, in which they are computed (<nd/number.h>). Error: x is of integers, and its dtype cannot hold
// the number. Integers wrap.
/// x + value.
ND_API nd_tensor *nd_add_scalar(const nd_tensor *x, nd_number value) ND_OWNED;
/// x - value.
ND_API nd_tensor *nd_sub_scalar(const nd_tensor *x, nd_number value) ND_OWNED;
/// x * value.
ND_API nd_tensor *nd_mul_scalar(const nd_tensor *x, nd_number value) ND_OWNED;
/// x / value; integers become f32.
ND_API nd_tensor *nd_div_scalar(const nd_tensor *x, nd_number value) ND_OWNED;
/// x to the power of exponent.
ND_API nd_tensor *nd_pow_scalar(const nd_tensor *x, nd_number exponent) ND_OWNED;

// ------------------------------------------------------------------------ elementwise, one operand
//
// neg, abs, sign, square, clip, floor, ceil, round, trunc: any number; bitwise_invert: integers and
// bool; isnan, isinf, isfinite: any number, and the result, like signbit's, is bool without
// gradient; the others take floats and promote integers to f32. floor, ceil, round, trunc and sign
// are constant between their steps, and their results require no gradient.

/// -x; the smallest integer stays.
ND_API nd_tensor *nd_neg(const nd_tensor *x) ND_OWNED;
/// |x|; the smallest integer stays. The gradient at 0 and of NaN is 0.
ND_API nd_tensor *nd_abs(const nd_tensor *x) ND_OWNED;
/// -1, 0 or 1; NaN for NaN. No gradient.
ND_API nd_tensor *nd_sign(const nd_tensor *x) ND_OWNED;
/// x * x.
ND_API nd_tensor *nd_square(const nd_tensor *x) ND_OWNED;
/// e to the power of x.
ND_API nd_tensor *nd_exp(const nd_tensor *x) ND_OWNED;
/// exp(x) - 1, without cancellation near 0.
ND_API nd_tensor *nd_expm1(const nd_tensor *x) ND_OWNED;
/// Natural logarithm; NaN below 0, -infinity at 0.
ND_API nd_tensor *nd_log(const nd_tensor *x) ND_OWNED;
/// log(1 + x), without cancellation near 0; NaN below -1, -infinity there.
ND_API nd_tensor *nd_log1p(const nd_tensor *x) ND_OWNED;
/// Logarithm to base 2; as nd_log().
ND_API nd_tensor *nd_log2(const nd_tensor *x) ND_OWNED;
/// Logarithm to base 10; as nd_log().
ND_API nd_tensor *nd_log10(const nd_tensor *x) ND_OWNED;
/// Square root; NaN below 0.
ND_API nd_tensor *nd_sqrt(const nd_tensor *x) ND_OWNED;
/// 1 / sqrt(x).
ND_API nd_tensor *nd_rsqrt(const nd_tensor *x) ND_OWNED;
/// Sine of x in radians.
ND_API nd_tensor *nd_sin(const nd_tensor *x) ND_OWNED;
/// Cosine of x in radians.
ND_API nd_tensor *nd_cos(const nd_tensor *x) ND_OWNED;
/// Tangent of x in radians.
ND_API nd_tensor *nd_tan(const nd_tensor *x) ND_OWNED;
/// Inverse sine in [-pi/2, pi/2]; NaN outside [-1, 1].
ND_API nd_tensor *nd_asin(const nd_tensor *x) ND_OWNED;
/// Inverse cosine in [0, pi]; NaN outside [-1, 1].
ND_API nd_tensor *nd_acos(const nd_tensor *x) ND_OWNED;
/// Inverse tangent in [-pi/2, pi/2].
ND_API nd_tensor *nd_atan(const nd_tensor *x) ND_OWNED;
/// Hyperbolic sine.
ND_API nd_tensor *nd_sinh(const nd_tensor *x) ND_OWNED;
/// Hyperbolic cosine.
ND_API nd_tensor *nd_cosh(const nd_tensor *x) ND_OWNED;
/// Inverse hyperbolic sine.
ND_API nd_tensor *nd_asinh(const nd_tensor *x) ND_OWNED;
/// Inverse hyperbolic cosine; NaN below 1.
ND_API nd_tensor *nd_acosh(const nd_tensor *x) ND_OWNED;
/// Inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond.
ND_API nd_tensor *nd_atanh(const nd_tensor *x) ND_OWNED;
/// Hyperbolic tangent.
ND_API nd_tensor *nd_tanh(const nd_tensor *x) ND_OWNED;
/// 1 / (1 + exp(-x)).
ND_API nd_tensor *nd_sigmoid(const nd_tensor *x) ND_OWNED;
/// x above 0, else 0. The gradient at 0 is 0, of NaN 1.
ND_API nd_tensor *nd_relu(const nd_tensor *x) ND_OWNED;
/// x/2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel 2016, exact form). Of a negative x in f32 and
/// 16-bit floats the CPU's error is up to 4 ulps of x in f32, so that a small result loses its digits:
/// at -5 it is 14 % off, below -5.3 it may be -0. In f64 it keeps them.
ND_API nd_tensor *nd_gelu(const nd_tensor *x) ND_OWNED;
/// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), which approximates nd_gelu().
ND_API nd_tensor *nd_gelu_tanh(const nd_tensor *x) ND_OWNED;
/// x sigmoid(x) (Hendrycks and Gimpel 2016; also called swish).
ND_API nd_tensor *nd_silu(const nd_tensor *x) ND_OWNED;
/// x tanh(log(1 + exp(x))) (Misra 2019).
ND_API nd_tensor *nd_mish(const nd_tensor *x) ND_OWNED;
/// log(1 + exp(x)), without overflow.
ND_API nd_tensor *nd_softplus(const nd_tensor *x) ND_OWNED;
/// log(sigmoid(x)), without overflow.
ND_API nd_tensor *nd_logsigmoid(const nd_tensor *x) ND_OWNED;
/// x / (1 + |x|).
ND_API nd_tensor *nd_softsign(const nd_tensor *x) ND_OWNED;
/// x limited to [0, 6]. The gradient at the limits is 0, and of NaN (where PyTorch has 1).
ND_API nd_tensor *nd_relu6(const nd_tensor *x) ND_OWNED;
/// (x + 3)/6 limited to [0, 1]. The gradient at -3 and 3 is 0.
ND_API nd_tensor *nd_hardsigmoid(const nd_tensor *x) ND_OWNED;
/// x hardsigmoid(x) (Howard et al. 2019). The gradient at -3 is 0 and at 3 is 1, and of NaN.
ND_API nd_tensor *nd_hardswish(const nd_tensor *x) ND_OWNED;
/// x limited to [low, high], of floats. The gradient at the limits is 0, and of NaN (where PyTorch
/// has 1).
ND_API nd_tensor *nd_hardtanh(const nd_tensor *x, nd_number low, nd_number high) ND_OWNED;
/// x above 0, else slope * x. The gradient at 0 is the slope.
ND_API nd_tensor *nd_leaky_relu(const nd_tensor *x, nd_number slope) ND_OWNED;
/// x above 0, else alpha (exp(x) - 1). The gradient at 0 is alpha.
ND_API nd_tensor *nd_elu(const nd_tensor *x, nd_number alpha) ND_OWNED;
/// 1.0507... x above 0, else 1.7581... (exp(x) - 1) (Klambauer et al. 2017).
ND_API nd_tensor *nd_selu(const nd_tensor *x) ND_OWNED;
/// Error function.
ND_API nd_tensor *nd_erf(const nd_tensor *x) ND_OWNED;
/// The largest integer not above x.
ND_API nd_tensor *nd_floor(const nd_tensor *x) ND_OWNED;
/// The smallest integer not below x.
ND_API nd_tensor *nd_ceil(const nd_tensor *x) ND_OWNED;
/// The nearest integer, of two the even one.
ND_API nd_tensor *nd_round(const nd_tensor *x) ND_OWNED;
/// The nearest integer towards 0.
ND_API nd_tensor *nd_trunc(const nd_tensor *x) ND_OWNED;
/// Every bit of x inverted; of bool, not x.
ND_API nd_tensor *nd_bitwise_invert(const nd_tensor *x) ND_OWNED;
/// Whether x is NaN.
ND_API nd_tensor *nd_isnan(const nd_tensor *x) ND_OWNED;
/// Whether x is an infinity.
ND_API nd_tensor *nd_isinf(const nd_tensor *x) ND_OWNED;
/// Whether x is neither NaN nor an infinity.
ND_API nd_tensor *nd_isfinite(const nd_tensor *x) ND_OWNED;
/// Whether x has a minus sign, as -0.0 has.
ND_API nd_tensor *nd_signbit(const nd_tensor *x) ND_OWNED;
/// 1 / x.
ND_API nd_tensor *nd_reciprocal(const nd_tensor *x) ND_OWNED;
/// Limited to [low, high]; use -INFINITY / INFINITY for one-sided. A limit beyond the range of x's
/// integers is the end of that range; where one has a fraction, integers become f32, and so does the
/// result. The gradient at the limits and of NaN is 0. Error: a limit is NaN.
ND_API nd_tensor *nd_clip(const nd_tensor *x, nd_number low, nd_number high) ND_OWNED;

// -------------------------------------------------------------------------------------- reductions
//
// Over `naxes` axes: 0, NULL is all, 1, (int[]){-1} the last one. keepdims keeps reduced axes with
// size 1. Any dtype. A sum of integers or bool is of i64, of unsigned ones u64, and wraps; mean and
// var of them are of f32, computed in f64. Floats keep their dtype; f16, bf16 and f32 are added up
// in f64. (A sum of bf16 may add neighbours by twos in f32 before: that is off by 2^-24 of the sum of
// magnitudes at most.) max/min of nothing is an error; NaN propagates.

/// Sum; 0 of nothing.
ND_API nd_tensor *nd_sum(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Mean; NaN of nothing.
ND_API nd_tensor *nd_mean(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Gradient goes, shared equally, to the elements that equal the extremum.
ND_API nd_tensor *nd_max(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Smallest; the gradient as for nd_max().
ND_API nd_tensor *nd_min(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Sum of squared deviations from the mean over (n - correction); the mean is found first, so that
/// a large one costs no digits.
ND_API nd_tensor *nd_var(const nd_tensor *x, int naxes, const int *axes, double correction,
                         bool keepdims) ND_OWNED;
/// Square root of nd_var(). Where it is 0 the gradient is 0.
ND_API nd_tensor *nd_std(const nd_tensor *x, int naxes, const int *axes, double correction,
                         bool keepdims) ND_OWNED;
/// Product; 1 of nothing. dtype as for nd_sum().
ND_API nd_tensor *nd_prod(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Whether an element is not 0: bool; false of nothing. NaN is not 0.
ND_API nd_tensor *nd_any(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// Whether no element is 0: bool; true of nothing.
ND_API nd_tensor *nd_all(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;
/// How many elements are not 0: i64.
ND_API nd_tensor *nd_count_nonzero(const nd_tensor *x, int naxes, const int *axes,
                                   bool keepdims) ND_OWNED;
/// log(sum(exp(x))) without overflow; -infinity of nothing. dtype as for nd_mean().
ND_API nd_tensor *nd_logsumexp(const nd_tensor *x, int naxes, const int *axes,
                               bool keepdims) ND_OWNED;
/// Vector norm sum(|x|^ord)^(1/ord) over the axes; ord infinity: the largest |x|, -infinity the
/// smallest, 0: how many are not 0, without a gradient (the Array API's linalg.vector_norm). dtype
/// as for nd_mean(); where the norm is 0 the gradient is 0. Over nothing: 0, or
/// infinity where ord is negative. Error: ord is NaN, or a largest or smallest of nothing.
ND_API nd_tensor *nd_norm(const nd_tensor *x, double ord, int naxes, const int *axes,
                          bool keepdims) ND_OWNED;
/// Index of the first extremum along one axis: i64.
ND_API nd_tensor *nd_argmax(const nd_tensor *x, int axis, bool keepdims) ND_OWNED;
/// Index of the first smallest along one axis: i64.
ND_API nd_tensor *nd_argmin(const nd_tensor *x, int axis, bool keepdims) ND_OWNED;
/// Running sum along an axis: result[k] = x[0] + ... + x[k] (the Array API's cumulative_sum). dtype
/// as for nd_sum().
ND_API nd_tensor *nd_cumsum(const nd_tensor *x, int axis) ND_OWNED;
/// Running product along an axis (cumulative_prod). dtype as for nd_sum().
ND_API nd_tensor *nd_cumprod(const nd_tensor *x, int axis) ND_OWNED;
/// Largest element so far along an axis; NaN stays. Of equal ones the last gets the gradient.
ND_API nd_tensor *nd_cummax(const nd_tensor *x, int axis) ND_OWNED;
/// Smallest element so far along an axis; as nd_cummax().
ND_API nd_tensor *nd_cummin(const nd_tensor *x, int axis) ND_OWNED;
/// Sums x down to `shape`, the inverse of broadcasting; a copy of x where it has that shape.
ND_API nd_tensor *nd_sum_to(const nd_tensor *x, int ndim, const int64_t *shape) ND_OWNED;

// ---------------------------------------------------------------------------------- linear algebra

/// a: [..., m, k], b: [..., k, n] -> [..., m, n]; leading axes broadcast; 1-d operands as in the
/// Array API. Any numbers, promoted: f16 and bf16 are added up in f32 and rounded once, integers
/// wrap. A processor that multiplies bf16 itself takes what is below 2^-126 for 0 there, in products
/// that are not small.
ND_API nd_tensor *nd_matmul(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// x: [..., in], weight: [out, in], bias: [out] or NULL -> [..., out] = x weight^T + bias. dtypes
/// as for nd_matmul().
ND_API nd_tensor *nd_linear(const nd_tensor *x, const nd_tensor *weight,
                            const nd_tensor *bias) ND_OWNED;
/// A function that a layer's results go through.
typedef enum nd_activation {
    ND_ACTIVATION_RELU = 0, ///< nd_relu()
    ND_ACTIVATION_GELU,     ///< nd_gelu()
    ND_ACTIVATION_SIGMOID,  ///< nd_sigmoid()
    ND_ACTIVATION_TANH,     ///< nd_tanh()
} nd_activation;
/// An activation of nd_linear()'s result, to the last bit, in one pass over the results and without a
/// tensor between the two; in two steps on other devices than the CPU, and where a gradient needs
/// what was before a GELU. x, weight and bias as for nd_linear(). Source: torch.nn.functional.linear
/// and the function behind it.
ND_API nd_tensor *nd_linear_activation(const nd_tensor *x, const nd_tensor *weight,
                                       const nd_tensor *bias, nd_activation activation) ND_OWNED;

// ---------------------------------------------------------------------------------- neural network
//
// Convolution is in <nd/convolution.h>, pooling in <nd/pooling.h>, images of other sizes in
// <nd/interpolation.h>; this header includes all three.

/// exp(x) / sum(exp(x)) along one axis, without overflow; f16 and bf16 computed in f32.
ND_API nd_tensor *nd_softmax(const nd_tensor *x, int axis) ND_OWNED;
/// x - log(sum(exp(x))) along one axis, without overflow.
ND_API nd_tensor *nd_log_softmax(const nd_tensor *x, int axis) ND_OWNED;
/// nd_softmax() of the elements that a mask keeps, in one pass; 0 for the others, which are not looked
/// at. mask: bool, true where an element is kept, and broadcasts to x's shape. Where it keeps nothing
/// along the axis all is 0, as in nd_attention().
ND_API nd_tensor *nd_masked_softmax(const nd_tensor *x, const nd_tensor *mask, int axis) ND_OWNED;
/// What becomes of the elements of a loss.
typedef enum nd_reduction {
    ND_REDUCTION_MEAN = 0,   ///< their mean
    ND_REDUCTION_SUM,        ///< their sum
    ND_REDUCTION_NONE,       ///< they are the result
    ND_REDUCTION_BATCH_MEAN, ///< their sum over the first size: nd_kl_div() alone
} nd_reduction;
/// Mean over the batch of -log softmax(logits)[target]. logits: [n, classes] of floats, targets:
/// [n] of any integer dtype -> []. f16 and bf16 are computed in f32. NaN of no rows; an error without
/// classes. With options: nd_cross_entropy_with() of <nd/neural.h>.
ND_API nd_tensor *nd_cross_entropy(const nd_tensor *logits, const nd_tensor *targets) ND_OWNED;
/// Mean of (a - b)^2 -> [].
ND_API nd_tensor *nd_mse_loss(const nd_tensor *a, const nd_tensor *b) ND_OWNED;

// ---------------------------------------------------------------------------------------- indexing

/// Rows `indices` of an axis: x: [a, n, b], indices: [i...] i64 or i32 -> [a, i..., b]. A negative
/// index counts from the end. Out of range is an error, also where the rows are empty (a or b is 0;
/// then, on a device, this waits for it).
ND_API nd_tensor *nd_take(const nd_tensor *x, const nd_tensor *indices, int axis) ND_OWNED;
/// result[i][j] = x[index[i][j]][j] (axis 0): index has x's ndim; sizes elsewhere <= x's. Its
/// dtypes and what it may hold are as in nd_take(), and all of it is looked at.
ND_API nd_tensor *nd_gather(const nd_tensor *x, const nd_tensor *index, int axis) ND_OWNED;
/// Copy of x with source added at index along axis; repeated indices accumulate (16-bit floats in
/// f32). Numbers of every dtype; x and source have the same. index as in nd_gather(), of source's
/// shape.
ND_API nd_tensor *nd_scatter_add(const nd_tensor *x, const nd_tensor *index,
                                 const nd_tensor *source, int axis) ND_OWNED;
/// indices: [...] i64 or i32 -> [..., classes] of `dtype`. Error: one is outside 0 ... classes - 1.
ND_API nd_tensor *nd_one_hot(const nd_tensor *indices, int64_t classes, nd_dtype dtype) ND_OWNED;
/// Elements of x where mask (same shape, bool) holds, in row-major order: [count].
ND_API nd_tensor *nd_masked_select(const nd_tensor *x, const nd_tensor *mask) ND_OWNED;
/// Copy of x with `value` where mask (broadcast to x) holds. Error: x's dtype cannot hold it.
ND_API nd_tensor *nd_masked_fill(const nd_tensor *x, const nd_tensor *mask,
                                 nd_number value) ND_OWNED;

// ---------------------------------------------------------------------------------------- in place
//
// Write x, bump its version counter, and return a status. y broadcasts to x, and is of numbers
// whose dtype promotes with x's to x's own (nd_promote_dtypes(): an x of f32 takes integers and
// f16, one of i32 no floats); nd_copy_() takes any. Errors: x needs history and is a leaf that
// requires a gradient, or a view of one (outside nd_no_grad); x overlaps itself (expanded); partial
// overlap of x and y; x's dtype cannot hold the result, or the number (<nd/number.h>).
//
// x may be a view: the tensor it is a view of, and all other views of that, have the history of the
// write afterwards, as in PyTorch. Refused with ND_ERROR_STATE is a write of what requires a
// gradient through a view that was made inside nd_no_grad, or of a tensor that is not contiguous,
// while others hold the same memory. nd_detach() is the way to write values alone. Whoever writes x
// must be the only one to use x, what it is a view of, and the other views of that.

/// x += y.
ND_API nd_status nd_add_(nd_tensor *x, const nd_tensor *y);
/// x -= y.
ND_API nd_status nd_sub_(nd_tensor *x, const nd_tensor *y);
/// x *= y.
ND_API nd_status nd_mul_(nd_tensor *x, const nd_tensor *y);
/// x /= y; x is of floats.
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
#define nd_sub_scalar(...) (nd_sub_scalar)(ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_div_scalar(...) (nd_div_scalar)(ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_leaky_relu(...) (nd_leaky_relu)(ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_elu(...) (nd_elu)(ND__NUMBER_SECOND(__VA_ARGS__))
#define nd_hardtanh(...) (nd_hardtanh)(ND__NUMBER_SECOND_AND_THIRD(__VA_ARGS__))
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
