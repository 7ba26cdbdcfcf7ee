/// @file
/// The functions that make a tensor, for C++: nd::add(a, b) is nd_add(a, b), owned. Part of <nd/nd.hpp>.
///
/// docs/operations.py writes this file from the headers; it is not edited by hand. A call is no macro here: objects made by it
/// have no creation site, and no scope takes them.
#ifndef ND_DETAIL_FUNCTIONS_HPP
#define ND_DETAIL_FUNCTIONS_HPP
#ifndef ND_ND_HPP
#error "include <nd/nd.hpp>"
#endif

namespace nd {

/// @cond
// clang-format off
inline tensor add(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_add)(a, b));
}
inline tensor sub(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_sub)(a, b));
}
inline tensor mul(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_mul)(a, b));
}
inline tensor div(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_div)(a, b));
}
inline tensor floor_divide(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_floor_divide)(a, b));
}
inline tensor remainder(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_remainder)(a, b));
}
inline tensor pow(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_pow)(a, b));
}
inline tensor maximum(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_maximum)(a, b));
}
inline tensor minimum(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_minimum)(a, b));
}
inline tensor atan2(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_atan2)(a, b));
}
inline tensor hypot(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_hypot)(a, b));
}
inline tensor logaddexp(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_logaddexp)(a, b));
}
inline tensor copysign(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_copysign)(a, b));
}
inline tensor nextafter(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_nextafter)(a, b));
}
inline tensor bitwise_and(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_bitwise_and)(a, b));
}
inline tensor bitwise_or(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_bitwise_or)(a, b));
}
inline tensor bitwise_xor(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_bitwise_xor)(a, b));
}
inline tensor bitwise_left_shift(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_bitwise_left_shift)(a, b));
}
inline tensor bitwise_right_shift(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_bitwise_right_shift)(a, b));
}
inline tensor equal(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_equal)(a, b));
}
inline tensor not_equal(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_not_equal)(a, b));
}
inline tensor less(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_less)(a, b));
}
inline tensor less_equal(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_less_equal)(a, b));
}
inline tensor greater(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_greater)(a, b));
}
inline tensor greater_equal(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_greater_equal)(a, b));
}
inline tensor logical_and(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_logical_and)(a, b));
}
inline tensor logical_or(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_logical_or)(a, b));
}
inline tensor logical_xor(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_logical_xor)(a, b));
}
inline tensor logical_not(const nd_tensor *x) noexcept {
    return tensor((nd_logical_not)(x));
}
inline tensor where(const nd_tensor *condition, const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_where)(condition, a, b));
}
inline tensor add_scalar(const nd_tensor *x, nd_number value) noexcept {
    return tensor((nd_add_scalar)(x, value));
}
inline tensor sub_scalar(const nd_tensor *x, nd_number value) noexcept {
    return tensor((nd_sub_scalar)(x, value));
}
inline tensor mul_scalar(const nd_tensor *x, nd_number value) noexcept {
    return tensor((nd_mul_scalar)(x, value));
}
inline tensor div_scalar(const nd_tensor *x, nd_number value) noexcept {
    return tensor((nd_div_scalar)(x, value));
}
inline tensor pow_scalar(const nd_tensor *x, nd_number exponent) noexcept {
    return tensor((nd_pow_scalar)(x, exponent));
}
inline tensor neg(const nd_tensor *x) noexcept {
    return tensor((nd_neg)(x));
}
inline tensor (abs)(const nd_tensor *x) noexcept {
    return tensor((nd_abs)(x));
}
inline tensor sign(const nd_tensor *x) noexcept {
    return tensor((nd_sign)(x));
}
inline tensor square(const nd_tensor *x) noexcept {
    return tensor((nd_square)(x));
}
inline tensor exp(const nd_tensor *x) noexcept {
    return tensor((nd_exp)(x));
}
inline tensor expm1(const nd_tensor *x) noexcept {
    return tensor((nd_expm1)(x));
}
inline tensor log(const nd_tensor *x) noexcept {
    return tensor((nd_log)(x));
}
inline tensor log1p(const nd_tensor *x) noexcept {
    return tensor((nd_log1p)(x));
}
inline tensor log2(const nd_tensor *x) noexcept {
    return tensor((nd_log2)(x));
}
inline tensor log10(const nd_tensor *x) noexcept {
    return tensor((nd_log10)(x));
}
inline tensor sqrt(const nd_tensor *x) noexcept {
    return tensor((nd_sqrt)(x));
}
inline tensor rsqrt(const nd_tensor *x) noexcept {
    return tensor((nd_rsqrt)(x));
}
inline tensor sin(const nd_tensor *x) noexcept {
    return tensor((nd_sin)(x));
}
inline tensor cos(const nd_tensor *x) noexcept {
    return tensor((nd_cos)(x));
}
inline tensor tan(const nd_tensor *x) noexcept {
    return tensor((nd_tan)(x));
}
inline tensor asin(const nd_tensor *x) noexcept {
    return tensor((nd_asin)(x));
}
inline tensor acos(const nd_tensor *x) noexcept {
    return tensor((nd_acos)(x));
}
inline tensor atan(const nd_tensor *x) noexcept {
    return tensor((nd_atan)(x));
}
inline tensor sinh(const nd_tensor *x) noexcept {
    return tensor((nd_sinh)(x));
}
inline tensor cosh(const nd_tensor *x) noexcept {
    return tensor((nd_cosh)(x));
}
inline tensor asinh(const nd_tensor *x) noexcept {
    return tensor((nd_asinh)(x));
}
inline tensor acosh(const nd_tensor *x) noexcept {
    return tensor((nd_acosh)(x));
}
inline tensor atanh(const nd_tensor *x) noexcept {
    return tensor((nd_atanh)(x));
}
inline tensor tanh(const nd_tensor *x) noexcept {
    return tensor((nd_tanh)(x));
}
inline tensor sigmoid(const nd_tensor *x) noexcept {
    return tensor((nd_sigmoid)(x));
}
inline tensor relu(const nd_tensor *x) noexcept {
    return tensor((nd_relu)(x));
}
inline tensor gelu(const nd_tensor *x) noexcept {
    return tensor((nd_gelu)(x));
}
inline tensor gelu_tanh(const nd_tensor *x) noexcept {
    return tensor((nd_gelu_tanh)(x));
}
inline tensor silu(const nd_tensor *x) noexcept {
    return tensor((nd_silu)(x));
}
inline tensor mish(const nd_tensor *x) noexcept {
    return tensor((nd_mish)(x));
}
inline tensor softplus(const nd_tensor *x) noexcept {
    return tensor((nd_softplus)(x));
}
inline tensor logsigmoid(const nd_tensor *x) noexcept {
    return tensor((nd_logsigmoid)(x));
}
inline tensor softsign(const nd_tensor *x) noexcept {
    return tensor((nd_softsign)(x));
}
inline tensor relu6(const nd_tensor *x) noexcept {
    return tensor((nd_relu6)(x));
}
inline tensor hardsigmoid(const nd_tensor *x) noexcept {
    return tensor((nd_hardsigmoid)(x));
}
inline tensor hardswish(const nd_tensor *x) noexcept {
    return tensor((nd_hardswish)(x));
}
inline tensor hardtanh(const nd_tensor *x, nd_number low, nd_number high) noexcept {
    return tensor((nd_hardtanh)(x, low, high));
}
inline tensor leaky_relu(const nd_tensor *x, nd_number slope) noexcept {
    return tensor((nd_leaky_relu)(x, slope));
}
inline tensor elu(const nd_tensor *x, nd_number alpha) noexcept {
    return tensor((nd_elu)(x, alpha));
}
inline tensor selu(const nd_tensor *x) noexcept {
    return tensor((nd_selu)(x));
}
inline tensor erf(const nd_tensor *x) noexcept {
    return tensor((nd_erf)(x));
}
inline tensor floor(const nd_tensor *x) noexcept {
    return tensor((nd_floor)(x));
}
inline tensor ceil(const nd_tensor *x) noexcept {
    return tensor((nd_ceil)(x));
}
inline tensor round(const nd_tensor *x) noexcept {
    return tensor((nd_round)(x));
}
inline tensor trunc(const nd_tensor *x) noexcept {
    return tensor((nd_trunc)(x));
}
inline tensor bitwise_invert(const nd_tensor *x) noexcept {
    return tensor((nd_bitwise_invert)(x));
}
inline tensor isnan(const nd_tensor *x) noexcept {
    return tensor((nd_isnan)(x));
}
inline tensor isinf(const nd_tensor *x) noexcept {
    return tensor((nd_isinf)(x));
}
inline tensor isfinite(const nd_tensor *x) noexcept {
    return tensor((nd_isfinite)(x));
}
inline tensor signbit(const nd_tensor *x) noexcept {
    return tensor((nd_signbit)(x));
}
inline tensor reciprocal(const nd_tensor *x) noexcept {
    return tensor((nd_reciprocal)(x));
}
inline tensor clip(const nd_tensor *x, nd_number low, nd_number high) noexcept {
    return tensor((nd_clip)(x, low, high));
}
inline tensor sum(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_sum)(x, naxes, axes, keepdims));
}
inline tensor mean(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_mean)(x, naxes, axes, keepdims));
}
inline tensor (max)(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_max)(x, naxes, axes, keepdims));
}
inline tensor (min)(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_min)(x, naxes, axes, keepdims));
}
inline tensor var(const nd_tensor *x, int naxes, const int *axes, double correction, bool keepdims) noexcept {
    return tensor((nd_var)(x, naxes, axes, correction, keepdims));
}
inline tensor std(const nd_tensor *x, int naxes, const int *axes, double correction, bool keepdims) noexcept {
    return tensor((nd_std)(x, naxes, axes, correction, keepdims));
}
inline tensor prod(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_prod)(x, naxes, axes, keepdims));
}
inline tensor any(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_any)(x, naxes, axes, keepdims));
}
inline tensor all(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_all)(x, naxes, axes, keepdims));
}
inline tensor count_nonzero(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_count_nonzero)(x, naxes, axes, keepdims));
}
inline tensor logsumexp(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_logsumexp)(x, naxes, axes, keepdims));
}
inline tensor norm(const nd_tensor *x, double ord, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_norm)(x, ord, naxes, axes, keepdims));
}
inline tensor argmax(const nd_tensor *x, int axis, bool keepdims) noexcept {
    return tensor((nd_argmax)(x, axis, keepdims));
}
inline tensor argmin(const nd_tensor *x, int axis, bool keepdims) noexcept {
    return tensor((nd_argmin)(x, axis, keepdims));
}
inline tensor cumsum(const nd_tensor *x, int axis) noexcept {
    return tensor((nd_cumsum)(x, axis));
}
inline tensor cumprod(const nd_tensor *x, int axis) noexcept {
    return tensor((nd_cumprod)(x, axis));
}
inline tensor cummax(const nd_tensor *x, int axis) noexcept {
    return tensor((nd_cummax)(x, axis));
}
inline tensor cummin(const nd_tensor *x, int axis) noexcept {
    return tensor((nd_cummin)(x, axis));
}
inline tensor sum_to(const nd_tensor *x, int ndim, const int64_t *shape) noexcept {
    return tensor((nd_sum_to)(x, ndim, shape));
}
inline tensor matmul(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_matmul)(a, b));
}
inline tensor linear(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias) noexcept {
    return tensor((nd_linear)(x, weight, bias));
}
inline tensor linear_activation(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, nd_activation activation) noexcept {
    return tensor((nd_linear_activation)(x, weight, bias, activation));
}
inline tensor softmax(const nd_tensor *x, int axis) noexcept {
    return tensor((nd_softmax)(x, axis));
}
inline tensor log_softmax(const nd_tensor *x, int axis) noexcept {
    return tensor((nd_log_softmax)(x, axis));
}
inline tensor masked_softmax(const nd_tensor *x, const nd_tensor *mask, int axis) noexcept {
    return tensor((nd_masked_softmax)(x, mask, axis));
}
inline tensor cross_entropy(const nd_tensor *logits, const nd_tensor *targets) noexcept {
    return tensor((nd_cross_entropy)(logits, targets));
}
inline tensor mse_loss(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_mse_loss)(a, b));
}
inline tensor take(const nd_tensor *x, const nd_tensor *indices, int axis) noexcept {
    return tensor((nd_take)(x, indices, axis));
}
inline tensor gather(const nd_tensor *x, const nd_tensor *index, int axis) noexcept {
    return tensor((nd_gather)(x, index, axis));
}
inline tensor scatter_add(const nd_tensor *x, const nd_tensor *index, const nd_tensor *source, int axis) noexcept {
    return tensor((nd_scatter_add)(x, index, source, axis));
}
inline tensor one_hot(const nd_tensor *indices, int64_t classes, nd_dtype dtype) noexcept {
    return tensor((nd_one_hot)(indices, classes, dtype));
}
inline tensor masked_select(const nd_tensor *x, const nd_tensor *mask) noexcept {
    return tensor((nd_masked_select)(x, mask));
}
inline tensor masked_fill(const nd_tensor *x, const nd_tensor *mask, nd_number value) noexcept {
    return tensor((nd_masked_fill)(x, mask, value));
}
inline tensor layer_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, double epsilon, int naxes) noexcept {
    return tensor((nd_layer_norm)(x, weight, bias, epsilon, naxes));
}
inline tensor rms_norm(const nd_tensor *x, const nd_tensor *weight, double epsilon, int naxes) noexcept {
    return tensor((nd_rms_norm)(x, weight, epsilon, naxes));
}
inline tensor group_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, int64_t groups, double epsilon) noexcept {
    return tensor((nd_group_norm)(x, weight, bias, groups, epsilon));
}
inline tensor batch_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, nd_tensor *running_mean, nd_tensor *running_var, const nd_batch_norm_options *options) noexcept {
    return tensor((nd_batch_norm)(x, weight, bias, running_mean, running_var, options));
}
inline tensor instance_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, nd_tensor *running_mean, nd_tensor *running_var, const nd_batch_norm_options *options) noexcept {
    return tensor((nd_instance_norm)(x, weight, bias, running_mean, running_var, options));
}
inline tensor embedding(const nd_tensor *weight, const nd_tensor *indices, int64_t padding) noexcept {
    return tensor((nd_embedding)(weight, indices, padding));
}
inline tensor dropout(const nd_tensor *x, nd_key key, double p, bool training) noexcept {
    return tensor((nd_dropout)(x, key, p, training));
}
inline tensor attention(const nd_tensor *query, const nd_tensor *key, const nd_tensor *value, const nd_tensor *mask, const nd_attention_options *options) noexcept {
    return tensor((nd_attention)(query, key, value, mask, options));
}
inline tensor l1_loss(const nd_tensor *a, const nd_tensor *b, nd_reduction reduction) noexcept {
    return tensor((nd_l1_loss)(a, b, reduction));
}
inline tensor smooth_l1_loss(const nd_tensor *a, const nd_tensor *b, double beta, nd_reduction reduction) noexcept {
    return tensor((nd_smooth_l1_loss)(a, b, beta, reduction));
}
inline tensor huber_loss(const nd_tensor *a, const nd_tensor *b, double delta, nd_reduction reduction) noexcept {
    return tensor((nd_huber_loss)(a, b, delta, reduction));
}
inline tensor kl_div(const nd_tensor *log_probabilities, const nd_tensor *targets, bool log_targets, nd_reduction reduction) noexcept {
    return tensor((nd_kl_div)(log_probabilities, targets, log_targets, reduction));
}
inline tensor bce_with_logits(const nd_tensor *logits, const nd_tensor *targets, const nd_tensor *weight, const nd_tensor *positive_weight, nd_reduction reduction) noexcept {
    return tensor((nd_bce_with_logits)(logits, targets, weight, positive_weight, reduction));
}
inline tensor nll_loss(const nd_tensor *log_probabilities, const nd_tensor *targets, const nd_tensor *weight, int64_t ignored, nd_reduction reduction) noexcept {
    return tensor((nd_nll_loss)(log_probabilities, targets, weight, ignored, reduction));
}
inline tensor cross_entropy_with(const nd_tensor *logits, const nd_tensor *targets, const nd_tensor *weight, const nd_cross_entropy_options *options) noexcept {
    return tensor((nd_cross_entropy_with)(logits, targets, weight, options));
}
inline tensor cosine_similarity(const nd_tensor *a, const nd_tensor *b, double epsilon, int axis) noexcept {
    return tensor((nd_cosine_similarity)(a, b, epsilon, axis));
}
inline tensor cosine_embedding_loss(const nd_tensor *a, const nd_tensor *b, const nd_tensor *targets, double margin, nd_reduction reduction) noexcept {
    return tensor((nd_cosine_embedding_loss)(a, b, targets, margin, reduction));
}
inline tensor empty(int ndim, const int64_t *shape, nd_dtype dtype) noexcept {
    return tensor((nd_empty)(ndim, shape, dtype));
}
inline tensor zeros(int ndim, const int64_t *shape, nd_dtype dtype) noexcept {
    return tensor((nd_zeros)(ndim, shape, dtype));
}
inline tensor ones(int ndim, const int64_t *shape, nd_dtype dtype) noexcept {
    return tensor((nd_ones)(ndim, shape, dtype));
}
inline tensor full(int ndim, const int64_t *shape, nd_number value, nd_dtype dtype) noexcept {
    return tensor((nd_full)(ndim, shape, value, dtype));
}
inline tensor scalar(nd_number value, nd_dtype dtype) noexcept {
    return tensor((nd_scalar)(value, dtype));
}
inline tensor arange(nd_number start, nd_number stop, nd_number step, nd_dtype dtype) noexcept {
    return tensor((nd_arange)(start, stop, step, dtype));
}
inline tensor linspace(double start, double stop, int64_t count, nd_dtype dtype) noexcept {
    return tensor((nd_linspace)(start, stop, count, dtype));
}
inline tensor eye(int64_t n, nd_dtype dtype) noexcept {
    return tensor((nd_eye)(n, dtype));
}
inline tensor from_data(const void *data, int ndim, const int64_t *shape, nd_dtype dtype) noexcept {
    return tensor((nd_from_data)(data, ndim, shape, dtype));
}
inline tensor wrap(void *data, int ndim, const int64_t *shape, nd_dtype dtype, void (*free_function)(void *pointer, size_t bytes)) noexcept {
    return tensor((nd_wrap)(data, ndim, shape, dtype, free_function));
}
inline tensor empty_like(const nd_tensor *x) noexcept {
    return tensor((nd_empty_like)(x));
}
inline tensor zeros_like(const nd_tensor *x) noexcept {
    return tensor((nd_zeros_like)(x));
}
inline tensor ones_like(const nd_tensor *x) noexcept {
    return tensor((nd_ones_like)(x));
}
inline tensor full_like(const nd_tensor *x, nd_number value) noexcept {
    return tensor((nd_full_like)(x, value));
}
inline tensor rand(nd_key key, int ndim, const int64_t *shape, nd_dtype dtype) noexcept {
    return tensor((nd_rand)(key, ndim, shape, dtype));
}
inline tensor randn(nd_key key, int ndim, const int64_t *shape, nd_dtype dtype) noexcept {
    return tensor((nd_randn)(key, ndim, shape, dtype));
}
inline tensor randint(nd_key key, int64_t low, int64_t high, int ndim, const int64_t *shape, nd_dtype dtype) noexcept {
    return tensor((nd_randint)(key, low, high, ndim, shape, dtype));
}
inline tensor randperm(nd_key key, int64_t n) noexcept {
    return tensor((nd_randperm)(key, n));
}
inline tensor reshape(const nd_tensor *x, int ndim, const int64_t *shape) noexcept {
    return tensor((nd_reshape)(x, ndim, shape));
}
inline tensor permute(const nd_tensor *x, int naxes, const int *axes) noexcept {
    return tensor((nd_permute)(x, naxes, axes));
}
inline tensor transpose(const nd_tensor *x, int axis0, int axis1) noexcept {
    return tensor((nd_transpose)(x, axis0, axis1));
}
inline tensor expand(const nd_tensor *x, int ndim, const int64_t *shape) noexcept {
    return tensor((nd_expand)(x, ndim, shape));
}
inline tensor slice(const nd_tensor *x, int64_t start, int64_t stop, int64_t step, int axis) noexcept {
    return tensor((nd_slice)(x, start, stop, step, axis));
}
inline tensor select(const nd_tensor *x, int64_t index, int axis) noexcept {
    return tensor((nd_select)(x, index, axis));
}
inline tensor squeeze(const nd_tensor *x, int axis) noexcept {
    return tensor((nd_squeeze)(x, axis));
}
inline tensor unsqueeze(const nd_tensor *x, int axis) noexcept {
    return tensor((nd_unsqueeze)(x, axis));
}
inline tensor flatten(const nd_tensor *x, int start_axis) noexcept {
    return tensor((nd_flatten)(x, start_axis));
}
inline tensor as_strided(const nd_tensor *x, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset) noexcept {
    return tensor((nd_as_strided)(x, ndim, shape, strides, offset));
}
inline tensor detach(const nd_tensor *x) noexcept {
    return tensor((nd_detach)(x));
}
inline tensor contiguous(const nd_tensor *x) noexcept {
    return tensor((nd_contiguous)(x));
}
inline tensor clone(const nd_tensor *x) noexcept {
    return tensor((nd_clone)(x));
}
inline tensor cast(const nd_tensor *x, nd_dtype dtype) noexcept {
    return tensor((nd_cast)(x, dtype));
}
inline tensor to(const nd_tensor *x, nd_device device) noexcept {
    return tensor((nd_to)(x, device));
}
inline tensor concat(size_t count, const nd_tensor *const *inputs, int axis) noexcept {
    return tensor((nd_concat)(count, inputs, axis));
}
inline tensor stack(size_t count, const nd_tensor *const *inputs, int axis) noexcept {
    return tensor((nd_stack)(count, inputs, axis));
}
inline tensor outer(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_outer)(a, b));
}
inline tensor tensordot(const nd_tensor *a, const nd_tensor *b, int naxes, const int *a_axes, const int *b_axes) noexcept {
    return tensor((nd_tensordot)(a, b, naxes, a_axes, b_axes));
}
inline tensor vecdot(const nd_tensor *a, const nd_tensor *b, int axis) noexcept {
    return tensor((nd_vecdot)(a, b, axis));
}
inline tensor cross(const nd_tensor *a, const nd_tensor *b, int axis) noexcept {
    return tensor((nd_cross)(a, b, axis));
}
inline tensor kron(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_kron)(a, b));
}
inline tensor einsum(const char *equation, size_t count, const nd_tensor *const *operands) noexcept {
    return tensor((nd_einsum)(equation, count, operands));
}
inline tensor conv1d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, const nd_conv1d_options *options) noexcept {
    return tensor((nd_conv1d)(x, weight, bias, options));
}
inline tensor conv2d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, const nd_conv2d_options *options) noexcept {
    return tensor((nd_conv2d)(x, weight, bias, options));
}
inline tensor conv3d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, const nd_conv3d_options *options) noexcept {
    return tensor((nd_conv3d)(x, weight, bias, options));
}
inline tensor conv_transpose1d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, const nd_conv_transpose1d_options *options) noexcept {
    return tensor((nd_conv_transpose1d)(x, weight, bias, options));
}
inline tensor conv_transpose2d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, const nd_conv_transpose2d_options *options) noexcept {
    return tensor((nd_conv_transpose2d)(x, weight, bias, options));
}
inline tensor conv_transpose3d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, const nd_conv_transpose3d_options *options) noexcept {
    return tensor((nd_conv_transpose3d)(x, weight, bias, options));
}
inline tensor from_dlpack(struct DLManagedTensorVersioned *managed) noexcept {
    return tensor((nd_from_dlpack)(managed));
}
inline tensor from_dlpack_unversioned(struct DLManagedTensor *managed) noexcept {
    return tensor((nd_from_dlpack_unversioned)(managed));
}
inline tensor fft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) noexcept {
    return tensor((nd_fft)(x, n, axis, norm));
}
inline tensor ifft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) noexcept {
    return tensor((nd_ifft)(x, n, axis, norm));
}
inline tensor fftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes, nd_fft_norm norm) noexcept {
    return tensor((nd_fftn)(x, naxes, sizes, axes, norm));
}
inline tensor ifftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes, nd_fft_norm norm) noexcept {
    return tensor((nd_ifftn)(x, naxes, sizes, axes, norm));
}
inline tensor rfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) noexcept {
    return tensor((nd_rfft)(x, n, axis, norm));
}
inline tensor irfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) noexcept {
    return tensor((nd_irfft)(x, n, axis, norm));
}
inline tensor rfftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes, nd_fft_norm norm) noexcept {
    return tensor((nd_rfftn)(x, naxes, sizes, axes, norm));
}
inline tensor irfftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes, nd_fft_norm norm) noexcept {
    return tensor((nd_irfftn)(x, naxes, sizes, axes, norm));
}
inline tensor hfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) noexcept {
    return tensor((nd_hfft)(x, n, axis, norm));
}
inline tensor ihfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) noexcept {
    return tensor((nd_ihfft)(x, n, axis, norm));
}
inline tensor fftfreq(int64_t n, double spacing, nd_dtype dtype) noexcept {
    return tensor((nd_fftfreq)(n, spacing, dtype));
}
inline tensor rfftfreq(int64_t n, double spacing, nd_dtype dtype) noexcept {
    return tensor((nd_rfftfreq)(n, spacing, dtype));
}
inline tensor fftshift(const nd_tensor *x, int naxes, const int *axes) noexcept {
    return tensor((nd_fftshift)(x, naxes, axes));
}
inline tensor ifftshift(const nd_tensor *x, int naxes, const int *axes) noexcept {
    return tensor((nd_ifftshift)(x, naxes, axes));
}
inline tensor gguf_load_array(const nd_gguf *the_gguf, const char *key) noexcept {
    return tensor((nd_gguf_load_array)(the_gguf, key));
}
inline tensor gguf_load_tensor(const nd_gguf *the_gguf, const char *name, nd_dtype dtype, const nd_load_options *options) noexcept {
    return tensor((nd_gguf_load_tensor)(the_gguf, name, dtype, options));
}
inline tensor load_image(const char *path, const nd_image_options *options) noexcept {
    return tensor((nd_load_image)(path, options));
}
inline tensor decode_image(const void *data, size_t bytes, const nd_image_options *options) noexcept {
    return tensor((nd_decode_image)(data, bytes, options));
}
inline tensor encode_png(const nd_tensor *image, const nd_png_options *options) noexcept {
    return tensor((nd_encode_png)(image, options));
}
inline tensor encode_jpeg(const nd_tensor *image, const nd_jpeg_options *options) noexcept {
    return tensor((nd_encode_jpeg)(image, options));
}
inline tensor index(const nd_tensor *x, size_t count, const nd_tensor *const *indices) noexcept {
    return tensor((nd_index)(x, count, indices));
}
inline tensor index_put(const nd_tensor *x, size_t count, const nd_tensor *const *indices, const nd_tensor *values, bool accumulate) noexcept {
    return tensor((nd_index_put)(x, count, indices, values, accumulate));
}
inline tensor index_add(const nd_tensor *x, const nd_tensor *indices, const nd_tensor *source, int axis) noexcept {
    return tensor((nd_index_add)(x, indices, source, axis));
}
inline tensor scatter(const nd_tensor *x, const nd_tensor *index, const nd_tensor *source, int axis, nd_scatter_reduction reduction, bool include_self) noexcept {
    return tensor((nd_scatter)(x, index, source, axis, reduction, include_self));
}
inline tensor interpolate(const nd_tensor *x, const nd_interpolate_options *options) noexcept {
    return tensor((nd_interpolate)(x, options));
}
inline tensor pixel_shuffle(const nd_tensor *x, int64_t factor) noexcept {
    return tensor((nd_pixel_shuffle)(x, factor));
}
inline tensor pixel_unshuffle(const nd_tensor *x, int64_t factor) noexcept {
    return tensor((nd_pixel_unshuffle)(x, factor));
}
inline tensor unfold(const nd_tensor *x, const nd_unfold_options *options) noexcept {
    return tensor((nd_unfold)(x, options));
}
inline tensor fold(const nd_tensor *x, int64_t h, int64_t w, const nd_unfold_options *options) noexcept {
    return tensor((nd_fold)(x, h, w, options));
}
inline tensor load_idx(const char *path) noexcept {
    return tensor((nd_load_idx)(path));
}
inline tensor load_csv(const char *path, nd_dtype dtype, const nd_csv_options *options) noexcept {
    return tensor((nd_load_csv)(path, dtype, options));
}
inline tensor load_npy(const char *path, const nd_load_options *options) noexcept {
    return tensor((nd_load_npy)(path, options));
}
inline tensor solve(const nd_tensor *a, const nd_tensor *b) noexcept {
    return tensor((nd_solve)(a, b));
}
inline tensor solve_triangular(const nd_tensor *a, const nd_tensor *b, bool upper, bool unit_diagonal) noexcept {
    return tensor((nd_solve_triangular)(a, b, upper, unit_diagonal));
}
inline tensor inv(const nd_tensor *x) noexcept {
    return tensor((nd_inv)(x));
}
inline tensor lstsq(const nd_tensor *a, const nd_tensor *b, double tolerance) noexcept {
    return tensor((nd_lstsq)(a, b, tolerance));
}
inline tensor matrix_power(const nd_tensor *x, int64_t power) noexcept {
    return tensor((nd_matrix_power)(x, power));
}
inline tensor pinv(const nd_tensor *x, double tolerance) noexcept {
    return tensor((nd_pinv)(x, tolerance));
}
inline tensor cholesky(const nd_tensor *x) noexcept {
    return tensor((nd_cholesky)(x));
}
inline tensor svdvals(const nd_tensor *x) noexcept {
    return tensor((nd_svdvals)(x));
}
inline tensor eigvalsh(const nd_tensor *x) noexcept {
    return tensor((nd_eigvalsh)(x));
}
inline tensor det(const nd_tensor *x) noexcept {
    return tensor((nd_det)(x));
}
inline tensor matrix_rank(const nd_tensor *x, double tolerance) noexcept {
    return tensor((nd_matrix_rank)(x, tolerance));
}
inline tensor matrix_norm(const nd_tensor *x, nd_matrix_norm_kind kind, bool keepdims) noexcept {
    return tensor((nd_matrix_norm)(x, kind, keepdims));
}
inline tensor pad(const nd_tensor *x, int naxes, const int64_t *padding, nd_number value, nd_padding mode) noexcept {
    return tensor((nd_pad)(x, naxes, padding, value, mode));
}
inline tensor flip(const nd_tensor *x, int naxes, const int *axes) noexcept {
    return tensor((nd_flip)(x, naxes, axes));
}
inline tensor roll(const nd_tensor *x, int64_t shift, int axis) noexcept {
    return tensor((nd_roll)(x, shift, axis));
}
inline tensor tril(const nd_tensor *x, int64_t diagonal) noexcept {
    return tensor((nd_tril)(x, diagonal));
}
inline tensor triu(const nd_tensor *x, int64_t diagonal) noexcept {
    return tensor((nd_triu)(x, diagonal));
}
inline tensor repeat(const nd_tensor *x, int64_t count, int axis) noexcept {
    return tensor((nd_repeat)(x, count, axis));
}
inline tensor tile(const nd_tensor *x, int ndim, const int64_t *counts) noexcept {
    return tensor((nd_tile)(x, ndim, counts));
}
inline tensor moveaxis(const nd_tensor *x, int source, int destination) noexcept {
    return tensor((nd_moveaxis)(x, source, destination));
}
inline tensor sliding_window(const nd_tensor *x, int64_t size, int64_t step, int axis) noexcept {
    return tensor((nd_sliding_window)(x, size, step, axis));
}
inline tensor diff(const nd_tensor *x, int64_t order, int axis) noexcept {
    return tensor((nd_diff)(x, order, axis));
}
inline tensor diagonal(const nd_tensor *x, int64_t offset, int axis1, int axis2) noexcept {
    return tensor((nd_diagonal)(x, offset, axis1, axis2));
}
inline tensor trace(const nd_tensor *x, int64_t offset) noexcept {
    return tensor((nd_trace)(x, offset));
}
inline tensor module_forward(const nd_module *the_module, const nd_tensor *x) noexcept {
    return tensor((nd_module_forward)(the_module, x));
}
inline tensor attention_module_run(const nd_module *the_module, const nd_tensor *query, const nd_tensor *key, const nd_tensor *value, const nd_tensor *mask) noexcept {
    return tensor((nd_attention_module_run)(the_module, query, key, value, mask));
}
inline tensor checkpoint(nd_checkpoint_function function, const void *context, size_t count, const nd_tensor *const *inputs) noexcept {
    return tensor((nd_checkpoint)(function, context, count, inputs));
}
inline tensor checkpoint_module(const nd_module *the_module, const nd_tensor *x) noexcept {
    return tensor((nd_checkpoint_module)(the_module, x));
}
inline tensor loss_scaler_scale(const nd_loss_scaler *scaler, const nd_tensor *loss) noexcept {
    return tensor((nd_loss_scaler_scale)(scaler, loss));
}
inline tensor weak_get_tensor(const nd_weak *the_weak) noexcept {
    return tensor((nd_weak_get_tensor)(the_weak));
}
inline tensor max_pool1d(const nd_tensor *x, const nd_max_pool1d_options *options) noexcept {
    return tensor((nd_max_pool1d)(x, options));
}
inline tensor max_pool2d(const nd_tensor *x, const nd_max_pool2d_options *options) noexcept {
    return tensor((nd_max_pool2d)(x, options));
}
inline tensor max_pool3d(const nd_tensor *x, const nd_max_pool3d_options *options) noexcept {
    return tensor((nd_max_pool3d)(x, options));
}
inline tensor avg_pool1d(const nd_tensor *x, const nd_avg_pool1d_options *options) noexcept {
    return tensor((nd_avg_pool1d)(x, options));
}
inline tensor avg_pool2d(const nd_tensor *x, const nd_avg_pool2d_options *options) noexcept {
    return tensor((nd_avg_pool2d)(x, options));
}
inline tensor avg_pool3d(const nd_tensor *x, const nd_avg_pool3d_options *options) noexcept {
    return tensor((nd_avg_pool3d)(x, options));
}
inline tensor adaptive_avg_pool1d(const nd_tensor *x, int64_t length) noexcept {
    return tensor((nd_adaptive_avg_pool1d)(x, length));
}
inline tensor adaptive_avg_pool2d(const nd_tensor *x, int64_t h, int64_t w) noexcept {
    return tensor((nd_adaptive_avg_pool2d)(x, h, w));
}
inline tensor adaptive_avg_pool3d(const nd_tensor *x, int64_t d, int64_t h, int64_t w) noexcept {
    return tensor((nd_adaptive_avg_pool3d)(x, d, h, w));
}
inline tensor adaptive_max_pool1d(const nd_tensor *x, int64_t length) noexcept {
    return tensor((nd_adaptive_max_pool1d)(x, length));
}
inline tensor adaptive_max_pool2d(const nd_tensor *x, int64_t h, int64_t w) noexcept {
    return tensor((nd_adaptive_max_pool2d)(x, h, w));
}
inline tensor adaptive_max_pool3d(const nd_tensor *x, int64_t d, int64_t h, int64_t w) noexcept {
    return tensor((nd_adaptive_max_pool3d)(x, d, h, w));
}
inline tensor global_avg_pool(const nd_tensor *x) noexcept {
    return tensor((nd_global_avg_pool)(x));
}
inline tensor global_max_pool(const nd_tensor *x) noexcept {
    return tensor((nd_global_max_pool)(x));
}
inline tensor dequantize(const nd_tensor *values, const nd_tensor *scales, const nd_tensor *zeros, nd_dtype dtype) noexcept {
    return tensor((nd_dequantize)(values, scales, zeros, dtype));
}
inline tensor pack_int4(const nd_tensor *x) noexcept {
    return tensor((nd_pack_int4)(x));
}
inline tensor unpack_int4(const nd_tensor *x) noexcept {
    return tensor((nd_unpack_int4)(x));
}
inline tensor quantized_linear(const nd_tensor *x, const nd_tensor *values, const nd_tensor *scales, const nd_tensor *zeros, const nd_tensor *bias) noexcept {
    return tensor((nd_quantized_linear)(x, values, scales, zeros, bias));
}
inline tensor matmul_integer(const nd_tensor *a, const nd_tensor *b, const nd_tensor *a_zero_point, const nd_tensor *b_zero_point) noexcept {
    return tensor((nd_matmul_integer)(a, b, a_zero_point, b_zero_point));
}
inline tensor sort(const nd_tensor *x, int axis, bool descending) noexcept {
    return tensor((nd_sort)(x, axis, descending));
}
inline tensor argsort(const nd_tensor *x, int axis, bool descending) noexcept {
    return tensor((nd_argsort)(x, axis, descending));
}
inline tensor searchsorted(const nd_tensor *sorted, const nd_tensor *values, bool right) noexcept {
    return tensor((nd_searchsorted)(sorted, values, right));
}
inline tensor nonzero(const nd_tensor *x) noexcept {
    return tensor((nd_nonzero)(x));
}
inline tensor quantile(const nd_tensor *x, size_t count, const double *q, nd_quantile_method method, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_quantile)(x, count, q, method, naxes, axes, keepdims));
}
inline tensor median(const nd_tensor *x, int naxes, const int *axes, bool keepdims) noexcept {
    return tensor((nd_median)(x, naxes, axes, keepdims));
}
inline tensor histogram(const nd_tensor *x, const nd_tensor *edges, const nd_tensor *weights) noexcept {
    return tensor((nd_histogram)(x, edges, weights));
}
inline tensor bincount(const nd_tensor *x, const nd_tensor *weights, int64_t minimum) noexcept {
    return tensor((nd_bincount)(x, weights, minimum));
}
// clang-format on
/// @endcond

} // namespace nd

#endif
