/// @file
/// Weights of 8 and 4 bits: groups of small integers that share a scale, and products with them;
/// and the product of integers of 8 bits, for models both of whose operands are quantized.
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
/// (a - a_zero_point) (b - b_zero_point), a matrix product of integers of 8 bits: ONNX's
/// MatMulInteger. a, b: i8 or u8 each, of the shapes that nd_matmul() takes, batched and broadcast as
/// there -> i32. Sums wrap: they are exact modulo 2^32, whatever the processor; of up to 33,025
/// products none leaves i32.
/// A zero point has its operand's dtype; NULL is 0. Of one element (0-d or [1]) it is the whole
/// operand's; else a_zero_point has one for each row of a, [m] or [..., m, 1], and b_zero_point one
/// for each column of b, [n] or [..., 1, n], whose leading axes broadcast to the operand's: sizes
/// equal, 1, or missing on the left.
/// The result has no gradient. What the operands stand for has the product scale_a scale_b times it:
///
///     nd_tensor *sums = nd_matmul_integer(x, weight, x_zero_point, NULL);  // [..., n]
///     nd_tensor *y = nd_mul(nd_cast(sums, ND_F32), scales);                // scales: [n]
///
/// Errors: ND_ERROR_DTYPE, ND_ERROR_SHAPE, and those of nd_matmul().
ND_API nd_tensor *nd_matmul_integer(const nd_tensor *a, const nd_tensor *b,
                                    const nd_tensor *a_zero_point,
                                    const nd_tensor *b_zero_point) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
