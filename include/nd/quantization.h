/// @file
/// Weights of 8 and 4 bits: groups of small integers that share a scale, and products with them.
///
/// A quantized weight is three ordinary tensors, kept in files and moved to devices as any other:
///
///     values   [..., k] i8, or [..., k / 2] u8 with two int4 to a byte, the first of them in the
///              lower four bits
///     scales   [..., groups] f32, f16 or bf16; groups divides k, and k / groups neighbours along
///              the last axis share a scale; of int4 they are an even number
///     zeros    shape and dtype of scales, or NULL
///
/// and stands for scales (values - zeros). An int8 is -128 ... 127, an int4 0 ... 15; where zeros is
/// NULL, the zero is 0 for int8 and 8 for int4. So files of other programs are read: weights of GPTQ
/// and AWQ, once their 4-bit integers lie in this order, with or without zeros; llama.cpp's Q8_0 and
/// Q4_0 without; its Q4_1 with zeros -minimum / scale.
///
/// Results are new owned tensors on the operands' device, at the operands' manager, or NULL with an
/// error. Values are integers and have no gradient.
#ifndef ND_QUANTIZATION_H
#define ND_QUANTIZATION_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// The quantized weight next to a weight [..., k] of floats, of 8 or 4 bits, in groups of `group`
/// neighbours along the last axis; 0: the whole of it. scale_dtype: f32, f16 or bf16. Without
/// ret_zeros (NULL) the integers are symmetric, -127 ... 127 or 8 - 7 ... 8 + 7; with it the
/// range from the smallest element to the largest, zero included, is spread over all of them, and
/// zeros are whole numbers. No element is further from what stands for it than scale (1/2 + 2^-15);
/// a scale is at least the smallest normal number of its dtype. Nothing is recorded. On error
/// nothing is written. Errors: a weight that is not of floats, or has no elements along its last
/// axis; group does not divide k, or is odd for 4 bits; an element is not finite, or too large for
/// scale_dtype.
ND_API nd_status nd_quantize(const nd_tensor *weight, int bits, int64_t group, nd_dtype scale_dtype,
                             nd_tensor **ret_values, nd_tensor **ret_scales, nd_tensor **ret_zeros);
/// scales (values - zeros) -> [..., k] of floats `dtype`; computed in f64 for f64, else in f32, and
/// rounded to dtype. Differentiable with respect to scales and zeros.
ND_API nd_tensor *nd_dequantize(const nd_tensor *values, const nd_tensor *scales,
                                const nd_tensor *zeros, nd_dtype dtype) ND_OWNED;
/// Two int4 to a byte: x: [..., k] u8 or i8, of which the lower four bits count -> [..., k / 2] u8.
/// k is even.
ND_API nd_tensor *nd_pack_int4(const nd_tensor *x) ND_OWNED;
/// What nd_pack_int4() packed: x: [..., n] u8 -> [..., 2 n] u8, each 0 ... 15.
ND_API nd_tensor *nd_unpack_int4(const nd_tensor *x) ND_OWNED;
/// nd_linear() with a quantized weight: x: [..., k] floats, values: [n, k] or [n, k / 2], bias: [n]
/// of x's dtype, or f32 beside an x of f16 or bf16, or NULL -> [..., n] of x's dtype = x weight^T +
/// bias. Halves are multiplied, added up and given their bias in f32, and rounded once. The weight
/// is not unpacked as a whole. Differentiable to any order with respect to x and bias; also to
/// scales and zeros, then through a weight of nd_dequantize().
ND_API nd_tensor *nd_quantized_linear(const nd_tensor *x, const nd_tensor *values,
                                      const nd_tensor *scales, const nd_tensor *zeros,
                                      const nd_tensor *bias) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
