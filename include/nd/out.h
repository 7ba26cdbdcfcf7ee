/// @file
/// The same operations with their result in a tensor that the caller owns: nd_NAME_out() writes to
/// `out` what nd_NAME() returns, bit for bit (of a NaN, that it is one), and makes no result. For loops that should not
/// allocate: a buffer of a decoder, the rows of a cache, windows of one large tensor.
///
/// `out` has exactly the shape, dtype and device of the result; it is not broadcast, and nothing is
/// converted to it (nd_copy_() converts). It may lie in any way, transposed or a window of another
/// tensor, but not share memory with itself, as an expanded one does (nor interleave with itself, as
/// only nd_as_strided() can make it). Of an elementwise operation it
/// may be an operand, or exactly the same window as one; where it has only part of its elements in
/// common with an operand, or for any other operation one at all, it is refused (but for an operand
/// that is converted first, which is read from its copy). A refused `out` has the bytes that it had.
/// Where the device finds an index out of range while it writes, some elements are written.
///
/// Nothing is recorded. While recording is on, an operand that requires a gradient is an error, and
/// so is such an `out`, or one that is a view of a tensor with history; nd_no_grad is the place to
/// call these. The version of `out` moves (nd_get_version()), so that a gradient that needs what it
/// held is refused. nd_autocast is not looked at: operands are computed with as
/// they are, and what they are says the dtype of `out`, also where nd_NAME() would lower them.
///
/// What is allocated all the same: a converted copy of an operand whose dtype is not the one that
/// the operation computes in, a dense copy of one that the kernel cannot read as it lies, scratch of
/// the kernel, views of nd_stack_out()'s inputs. nd_matmul_out(), nd_linear_out(), nd_matmul_integer_out(),
/// nd_take_out() and nd_embedding_out() write a contiguous `out` directly, and make any other a copy of their result.
/// (On CUDA the last bits of a product may depend on how its memory is aligned, as cuBLAS chooses by
/// that; a new tensor begins at 256 bytes.)
///
/// nd_copy_() is the form of nd_cast(), nd_clone(), nd_contiguous() and nd_to(), nd_fill_() that of
/// nd_full(); nd_add_() and the other functions that end so are shorter, and recorded, where `out`
/// is the first operand. Operations without such a form are made of several steps, the last of which
/// would only be copied (nd_norm(), losses, normalization, attention, recurrent nets, indices of
/// several tensors, contractions, linear algebra), have a size that the data say (nd_nonzero(),
/// nd_unique(), nd_masked_select()), begin with a copy of their operand (nd_scatter(),
/// nd_masked_fill(), of which nd_masked_fill_() writes the operand itself), or bring operands and
/// result into a form of their own (sorting, nd_one_hot(), quantized weights, convolution, pooling).
///
/// Errors beyond those of nd_NAME(): ND_ERROR_SHAPE, ND_ERROR_DTYPE and ND_ERROR_DEVICE where `out`
/// is not what the result is, ND_ERROR_INVALID_ARGUMENT for memory that is shared, ND_ERROR_STATE for
/// gradients. Safe from any thread while no other uses `out`, what it is a view of, or another view
/// of that, and nobody writes the operands.
#ifndef ND_OUT_H
#define ND_OUT_H
#include <nd/neural.h>
#include <nd/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

// ----------------------------------------------------------------------- elementwise, two operands

/// nd_add().
ND_API nd_status nd_add_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_sub().
ND_API nd_status nd_sub_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_mul().
ND_API nd_status nd_mul_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_div().
ND_API nd_status nd_div_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_floor_divide().
ND_API nd_status nd_floor_divide_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_remainder().
ND_API nd_status nd_remainder_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_pow().
ND_API nd_status nd_pow_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_maximum().
ND_API nd_status nd_maximum_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_minimum().
ND_API nd_status nd_minimum_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_atan2().
ND_API nd_status nd_atan2_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_hypot().
ND_API nd_status nd_hypot_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_logaddexp().
ND_API nd_status nd_logaddexp_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_copysign().
ND_API nd_status nd_copysign_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_nextafter().
ND_API nd_status nd_nextafter_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_bitwise_and().
ND_API nd_status nd_bitwise_and_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_bitwise_or().
ND_API nd_status nd_bitwise_or_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_bitwise_xor().
ND_API nd_status nd_bitwise_xor_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_bitwise_left_shift().
ND_API nd_status nd_bitwise_left_shift_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_bitwise_right_shift().
ND_API nd_status nd_bitwise_right_shift_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_equal().
ND_API nd_status nd_equal_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_not_equal().
ND_API nd_status nd_not_equal_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_less().
ND_API nd_status nd_less_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_less_equal().
ND_API nd_status nd_less_equal_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_greater().
ND_API nd_status nd_greater_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_greater_equal().
ND_API nd_status nd_greater_equal_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_logical_and().
ND_API nd_status nd_logical_and_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_logical_or().
ND_API nd_status nd_logical_or_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_logical_xor().
ND_API nd_status nd_logical_xor_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_where().
ND_API nd_status nd_where_out(const nd_tensor *condition, const nd_tensor *a, const nd_tensor *b,
                              nd_tensor *out);

// ------------------------------------------------------------------------------ with a number of C

/// nd_add_scalar().
ND_API nd_status nd_add_scalar_out(const nd_tensor *x, nd_number value, nd_tensor *out);
/// nd_sub_scalar().
ND_API nd_status nd_sub_scalar_out(const nd_tensor *x, nd_number value, nd_tensor *out);
/// nd_mul_scalar().
ND_API nd_status nd_mul_scalar_out(const nd_tensor *x, nd_number value, nd_tensor *out);
/// nd_div_scalar().
ND_API nd_status nd_div_scalar_out(const nd_tensor *x, nd_number value, nd_tensor *out);
/// nd_pow_scalar().
ND_API nd_status nd_pow_scalar_out(const nd_tensor *x, nd_number exponent, nd_tensor *out);

// ------------------------------------------------------------------------ elementwise, one operand

/// nd_logical_not().
ND_API nd_status nd_logical_not_out(const nd_tensor *x, nd_tensor *out);
/// nd_neg().
ND_API nd_status nd_neg_out(const nd_tensor *x, nd_tensor *out);
/// nd_abs().
ND_API nd_status nd_abs_out(const nd_tensor *x, nd_tensor *out);
/// nd_sign().
ND_API nd_status nd_sign_out(const nd_tensor *x, nd_tensor *out);
/// nd_square().
ND_API nd_status nd_square_out(const nd_tensor *x, nd_tensor *out);
/// nd_exp().
ND_API nd_status nd_exp_out(const nd_tensor *x, nd_tensor *out);
/// nd_expm1().
ND_API nd_status nd_expm1_out(const nd_tensor *x, nd_tensor *out);
/// nd_log().
ND_API nd_status nd_log_out(const nd_tensor *x, nd_tensor *out);
/// nd_log1p().
ND_API nd_status nd_log1p_out(const nd_tensor *x, nd_tensor *out);
/// nd_log2().
ND_API nd_status nd_log2_out(const nd_tensor *x, nd_tensor *out);
/// nd_log10().
ND_API nd_status nd_log10_out(const nd_tensor *x, nd_tensor *out);
/// nd_sqrt().
ND_API nd_status nd_sqrt_out(const nd_tensor *x, nd_tensor *out);
/// nd_rsqrt().
ND_API nd_status nd_rsqrt_out(const nd_tensor *x, nd_tensor *out);
/// nd_sin().
ND_API nd_status nd_sin_out(const nd_tensor *x, nd_tensor *out);
/// nd_cos().
ND_API nd_status nd_cos_out(const nd_tensor *x, nd_tensor *out);
/// nd_tan().
ND_API nd_status nd_tan_out(const nd_tensor *x, nd_tensor *out);
/// nd_asin().
ND_API nd_status nd_asin_out(const nd_tensor *x, nd_tensor *out);
/// nd_acos().
ND_API nd_status nd_acos_out(const nd_tensor *x, nd_tensor *out);
/// nd_atan().
ND_API nd_status nd_atan_out(const nd_tensor *x, nd_tensor *out);
/// nd_sinh().
ND_API nd_status nd_sinh_out(const nd_tensor *x, nd_tensor *out);
/// nd_cosh().
ND_API nd_status nd_cosh_out(const nd_tensor *x, nd_tensor *out);
/// nd_asinh().
ND_API nd_status nd_asinh_out(const nd_tensor *x, nd_tensor *out);
/// nd_acosh().
ND_API nd_status nd_acosh_out(const nd_tensor *x, nd_tensor *out);
/// nd_atanh().
ND_API nd_status nd_atanh_out(const nd_tensor *x, nd_tensor *out);
/// nd_tanh().
ND_API nd_status nd_tanh_out(const nd_tensor *x, nd_tensor *out);
/// nd_sigmoid().
ND_API nd_status nd_sigmoid_out(const nd_tensor *x, nd_tensor *out);
/// nd_relu().
ND_API nd_status nd_relu_out(const nd_tensor *x, nd_tensor *out);
/// nd_gelu().
ND_API nd_status nd_gelu_out(const nd_tensor *x, nd_tensor *out);
/// nd_gelu_tanh().
ND_API nd_status nd_gelu_tanh_out(const nd_tensor *x, nd_tensor *out);
/// nd_silu().
ND_API nd_status nd_silu_out(const nd_tensor *x, nd_tensor *out);
/// nd_mish().
ND_API nd_status nd_mish_out(const nd_tensor *x, nd_tensor *out);
/// nd_softplus().
ND_API nd_status nd_softplus_out(const nd_tensor *x, nd_tensor *out);
/// nd_logsigmoid().
ND_API nd_status nd_logsigmoid_out(const nd_tensor *x, nd_tensor *out);
/// nd_softsign().
ND_API nd_status nd_softsign_out(const nd_tensor *x, nd_tensor *out);
/// nd_relu6().
ND_API nd_status nd_relu6_out(const nd_tensor *x, nd_tensor *out);
/// nd_hardsigmoid().
ND_API nd_status nd_hardsigmoid_out(const nd_tensor *x, nd_tensor *out);
/// nd_hardswish().
ND_API nd_status nd_hardswish_out(const nd_tensor *x, nd_tensor *out);
/// nd_hardtanh().
ND_API nd_status nd_hardtanh_out(const nd_tensor *x, nd_number low, nd_number high, nd_tensor *out);
/// nd_leaky_relu().
ND_API nd_status nd_leaky_relu_out(const nd_tensor *x, nd_number slope, nd_tensor *out);
/// nd_elu().
ND_API nd_status nd_elu_out(const nd_tensor *x, nd_number alpha, nd_tensor *out);
/// nd_selu().
ND_API nd_status nd_selu_out(const nd_tensor *x, nd_tensor *out);
/// nd_erf().
ND_API nd_status nd_erf_out(const nd_tensor *x, nd_tensor *out);
/// nd_floor().
ND_API nd_status nd_floor_out(const nd_tensor *x, nd_tensor *out);
/// nd_ceil().
ND_API nd_status nd_ceil_out(const nd_tensor *x, nd_tensor *out);
/// nd_round().
ND_API nd_status nd_round_out(const nd_tensor *x, nd_tensor *out);
/// nd_trunc().
ND_API nd_status nd_trunc_out(const nd_tensor *x, nd_tensor *out);
/// nd_bitwise_invert().
ND_API nd_status nd_bitwise_invert_out(const nd_tensor *x, nd_tensor *out);
/// nd_isnan().
ND_API nd_status nd_isnan_out(const nd_tensor *x, nd_tensor *out);
/// nd_isinf().
ND_API nd_status nd_isinf_out(const nd_tensor *x, nd_tensor *out);
/// nd_isfinite().
ND_API nd_status nd_isfinite_out(const nd_tensor *x, nd_tensor *out);
/// nd_signbit().
ND_API nd_status nd_signbit_out(const nd_tensor *x, nd_tensor *out);
/// nd_reciprocal().
ND_API nd_status nd_reciprocal_out(const nd_tensor *x, nd_tensor *out);
/// nd_clip().
ND_API nd_status nd_clip_out(const nd_tensor *x, nd_number low, nd_number high, nd_tensor *out);

// -------------------------------------------------------------------------------------- reductions

/// nd_sum().
ND_API nd_status nd_sum_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims,
                            nd_tensor *out);
/// nd_mean().
ND_API nd_status nd_mean_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims,
                             nd_tensor *out);
/// nd_max().
ND_API nd_status nd_max_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims,
                            nd_tensor *out);
/// nd_min().
ND_API nd_status nd_min_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims,
                            nd_tensor *out);
/// nd_var().
ND_API nd_status nd_var_out(const nd_tensor *x, int naxes, const int *axes, double correction,
                            bool keepdims, nd_tensor *out);
/// nd_std().
ND_API nd_status nd_std_out(const nd_tensor *x, int naxes, const int *axes, double correction,
                            bool keepdims, nd_tensor *out);
/// nd_prod().
ND_API nd_status nd_prod_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims,
                             nd_tensor *out);
/// nd_any().
ND_API nd_status nd_any_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims,
                            nd_tensor *out);
/// nd_all().
ND_API nd_status nd_all_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims,
                            nd_tensor *out);
/// nd_count_nonzero().
ND_API nd_status nd_count_nonzero_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims,
                                      nd_tensor *out);
/// nd_logsumexp().
ND_API nd_status nd_logsumexp_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims,
                                  nd_tensor *out);
/// nd_argmax().
ND_API nd_status nd_argmax_out(const nd_tensor *x, int axis, bool keepdims, nd_tensor *out);
/// nd_argmin().
ND_API nd_status nd_argmin_out(const nd_tensor *x, int axis, bool keepdims, nd_tensor *out);
/// nd_cumsum().
ND_API nd_status nd_cumsum_out(const nd_tensor *x, int axis, nd_tensor *out);
/// nd_cumprod().
ND_API nd_status nd_cumprod_out(const nd_tensor *x, int axis, nd_tensor *out);
/// nd_cummax().
ND_API nd_status nd_cummax_out(const nd_tensor *x, int axis, nd_tensor *out);
/// nd_cummin().
ND_API nd_status nd_cummin_out(const nd_tensor *x, int axis, nd_tensor *out);

// ------------------------------------------------------------------------ products, neural networks

/// nd_matmul().
ND_API nd_status nd_matmul_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out);
/// nd_linear().
ND_API nd_status nd_linear_out(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                               nd_tensor *out);
/// nd_matmul_integer().
ND_API nd_status nd_matmul_integer_out(const nd_tensor *a, const nd_tensor *b,
                                       const nd_tensor *a_zero_point, const nd_tensor *b_zero_point,
                                       nd_tensor *out);
/// nd_softmax().
ND_API nd_status nd_softmax_out(const nd_tensor *x, int axis, nd_tensor *out);
/// nd_log_softmax().
ND_API nd_status nd_log_softmax_out(const nd_tensor *x, int axis, nd_tensor *out);
/// nd_masked_softmax().
ND_API nd_status nd_masked_softmax_out(const nd_tensor *x, const nd_tensor *mask, int axis,
                                       nd_tensor *out);

// ----------------------------------------------------------------------------- indexing and joining

/// nd_take().
ND_API nd_status nd_take_out(const nd_tensor *x, const nd_tensor *indices, int axis,
                             nd_tensor *out);
/// nd_gather().
ND_API nd_status nd_gather_out(const nd_tensor *x, const nd_tensor *index, int axis,
                               nd_tensor *out);
/// nd_embedding().
ND_API nd_status nd_embedding_out(const nd_tensor *weight, const nd_tensor *indices,
                                  int64_t padding, nd_tensor *out);
/// nd_concat().
ND_API nd_status nd_concat_out(size_t count, const nd_tensor *const *inputs, int axis,
                               nd_tensor *out);
/// nd_stack().
ND_API nd_status nd_stack_out(size_t count, const nd_tensor *const *inputs, int axis,
                              nd_tensor *out);

#ifndef __cplusplus
/// @cond
#define nd_add_scalar_out(...) (nd_add_scalar_out)(ND__NUMBER_BETWEEN(__VA_ARGS__))
#define nd_sub_scalar_out(...) (nd_sub_scalar_out)(ND__NUMBER_BETWEEN(__VA_ARGS__))
#define nd_mul_scalar_out(...) (nd_mul_scalar_out)(ND__NUMBER_BETWEEN(__VA_ARGS__))
#define nd_div_scalar_out(...) (nd_div_scalar_out)(ND__NUMBER_BETWEEN(__VA_ARGS__))
#define nd_pow_scalar_out(...) (nd_pow_scalar_out)(ND__NUMBER_BETWEEN(__VA_ARGS__))
#define nd_leaky_relu_out(...) (nd_leaky_relu_out)(ND__NUMBER_BETWEEN(__VA_ARGS__))
#define nd_elu_out(...) (nd_elu_out)(ND__NUMBER_BETWEEN(__VA_ARGS__))
#define nd_hardtanh_out(...) (nd_hardtanh_out)(ND__NUMBERS_BETWEEN(__VA_ARGS__))
#define nd_clip_out(...) (nd_clip_out)(ND__NUMBERS_BETWEEN(__VA_ARGS__))
/// @endcond
#endif

#ifdef __cplusplus
}
#endif
#endif
