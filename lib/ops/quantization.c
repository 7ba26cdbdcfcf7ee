// Weights of 8 and 4 bits (<nd/quantization.h>): making them, unpacking them, and the product.
//
// All but the product are compositions of operations, seen as one row for each group. Invariant: a
// scale is rounded up to its dtype, so that no element of its group lies beyond the integers.
#include "lib/base/error.h"
#include "lib/ops/autocast.h"
#include "lib/ops/operands.h"
#include "lib/ops/precision.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <math.h>
#include <nd/quantization.h>

/// What int4 counts from where it has no zeros.
#define INT4_ZERO 8

// -------------------------------------------------------------------------------------------------
// int4, two to a byte

static nd_status check_packable(const char *name, const nd_tensor *x, bool takes_i8) {
    nd_status status = nd__tensor_check_operand(name, "x", x);
    if (status != ND_OK)
        return status;
    if (x->dtype != ND_U8 && !(takes_i8 && x->dtype == ND_I8))
        return nd__error(ND_ERROR_DTYPE, "%s: x is %s and must be uint8%s", name,
                         nd_dtype_get_name(x->dtype), takes_i8 ? " or int8" : "");
    if (x->ndim == 0)
        return nd__error(ND_ERROR_SHAPE, "%s: x has no dimensions", name);
    return ND_OK;
}

nd_tensor *nd_pack_int4(const nd_tensor *x) {
    ND__ERROR_NAMED("pack_int4");
    const char *name = "pack_int4";
    if (check_packable(name, x, true) != ND_OK)
        return NULL;
    int last = x->ndim - 1;
    if (x->shape[last] % 2 != 0) {
        char text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must be even along its last axis", name,
                  nd__shape_text(text, x->ndim, x->shape));
        return NULL;
    }
    int64_t pairs[ND_MAX_DIMS];
    for (int i = 0; i < last; i++)
        pairs[i] = x->shape[i];
    pairs[last] = x->shape[last] / 2;
    nd_auto nd_tensor *bytes = nd__operands_as_dtype(x, ND_U8);
    nd_auto nd_tensor *flat = nd_reshape(bytes, ND_SHAPE(x->numel / 2, 2));
    nd_auto nd_tensor *mask = nd__operands_number_like(name, x, ND_U8, ND_NUMBER(15));
    nd_auto nd_tensor *bits = nd__operands_number_like(name, x, ND_U8, ND_NUMBER(4));
    nd_auto nd_tensor *first = nd_select(flat, 0, 1);
    nd_auto nd_tensor *second = nd_select(flat, 1, 1);
    nd_auto nd_tensor *lower = nd_bitwise_and(first, mask);
    nd_auto nd_tensor *masked = nd_bitwise_and(second, mask);
    nd_auto nd_tensor *upper = nd_bitwise_left_shift(masked, bits);
    nd_auto nd_tensor *packed = nd_bitwise_or(lower, upper);
    return nd_reshape(packed, x->ndim, pairs);
}

nd_tensor *nd_unpack_int4(const nd_tensor *x) {
    ND__ERROR_NAMED("unpack_int4");
    const char *name = "unpack_int4";
    if (check_packable(name, x, false) != ND_OK)
        return NULL;
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = x->shape[i] * (i == x->ndim - 1 ? 2 : 1);
    nd_auto nd_tensor *flat = nd_reshape(x, 1, &x->numel);
    nd_auto nd_tensor *mask = nd__operands_number_like(name, x, ND_U8, ND_NUMBER(15));
    nd_auto nd_tensor *bits = nd__operands_number_like(name, x, ND_U8, ND_NUMBER(4));
    nd_auto nd_tensor *lower = nd_bitwise_and(flat, mask);
    nd_auto nd_tensor *upper = nd_bitwise_right_shift(flat, bits);
    nd_auto nd_tensor *pairs = nd_stack(2, (const nd_tensor *[]){lower, upper}, 1);
    return nd_reshape(pairs, x->ndim, shape);
}

// -------------------------------------------------------------------------------------------------
// what a quantized weight is made of

static bool is_scale_dtype(nd_dtype dtype) {
    return dtype == ND_F32 || nd__dtype_is_half(dtype);
}

static nd_status check_dtypes(const char *name, const nd_tensor *values, const nd_tensor *scales,
                              const nd_tensor *zeros) {
    nd_status status = nd__operands_check_pair(name, "values", values, "scales", scales);
    if (status == ND_OK && zeros)
        status = nd__operands_check_pair(name, "values", values, "zeros", zeros);
    if (status != ND_OK)
        return status;
    if (values->dtype != ND_I8 && values->dtype != ND_U8)
        return nd__error(ND_ERROR_DTYPE,
                         "%s: values is %s and must be int8, or uint8 with two int4 to a byte",
                         name, nd_dtype_get_name(values->dtype));
    if (!is_scale_dtype(scales->dtype))
        return nd__error(ND_ERROR_DTYPE,
                         "%s: scales is %s and must be float32, float16 or bfloat16", name,
                         nd_dtype_get_name(scales->dtype));
    if (zeros && zeros->dtype != scales->dtype)
        return nd__error(ND_ERROR_DTYPE, "%s: zeros is %s and scales %s", name,
                         nd_dtype_get_name(zeros->dtype), nd_dtype_get_name(scales->dtype));
    return ND_OK;
}

/// Elements along the last axis of what `values` stands for.
static int64_t row_length(const nd_tensor *values) {
    return values->shape[values->ndim - 1] * (values->dtype == ND_U8 ? 2 : 1);
}

/// Checks all three and writes the size of a group. `empty`: without elements along the last axis there
/// are no groups.
static nd_status check_weight(const char *name, const nd_tensor *values, const nd_tensor *scales,
                              const nd_tensor *zeros, bool empty, int64_t *ret_group) {
    nd_status status = check_dtypes(name, values, scales, zeros);
    if (status != ND_OK)
        return status;
    char a[ND__SHAPE_TEXT], b[ND__SHAPE_TEXT];
    int last = values->ndim - 1;
    bool fits = last >= 0 && scales->ndim == values->ndim;
    for (int i = 0; i < last && fits; i++)
        fits = scales->shape[i] == values->shape[i];
    int64_t groups = fits ? scales->shape[last] : 0, k = fits ? row_length(values) : 0;
    const bool is_empty = empty && fits && groups == 0 && k == 0;
    if (!is_empty && (groups == 0 || k == 0 || k % groups != 0))
        return nd__error(ND_ERROR_SHAPE,
                         "%s: scales has shape %s and values %s; they must agree but for the last "
                         "axis, along which the groups divide the elements",
                         name, nd__shape_text(a, scales->ndim, scales->shape),
                         nd__shape_text(b, values->ndim, values->shape));
    *ret_group = is_empty ? 2 : k / groups; // what an int4 row may have
    if (values->dtype == ND_U8 && *ret_group % 2 != 0)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: a group of int4 has %lld elements and must have an even number", name,
                         (long long)*ret_group);
    if (zeros && !nd__operands_same_shape(zeros, scales))
        return nd__error(ND_ERROR_SHAPE, "%s: zeros has shape %s and scales %s", name,
                         nd__shape_text(a, zeros->ndim, zeros->shape),
                         nd__shape_text(b, scales->ndim, scales->shape));
    return ND_OK;
}

/// One number for each group as a column beside the rows, in `dtype`.
static nd_tensor *as_column(const nd_tensor *numbers, nd_dtype dtype) {
    nd_auto nd_tensor *wide = nd__operands_as_dtype(numbers, dtype);
    return nd_reshape(wide, ND_SHAPE(numbers->numel, 1));
}

/// The weight of checked parts.
static nd_tensor *dequantized(const nd_tensor *values, const nd_tensor *scales,
                              const nd_tensor *zeros, int64_t group, nd_dtype dtype) {
    nd_dtype wide = dtype == ND_F64 ? ND_F64 : ND_F32;
    bool packed = values->dtype == ND_U8;
    nd_auto nd_tensor *integers = packed ? nd_unpack_int4(values) : nd_retain(values);
    nd_auto nd_tensor *numbers = integers ? nd_cast(integers, wide) : NULL;
    nd_auto nd_tensor *rows = nd_reshape(numbers, ND_SHAPE(scales->numel, group));
    nd_auto nd_tensor *scale = as_column(scales, wide);
    nd_auto nd_tensor *zero = zeros ? as_column(zeros, wide) : NULL;
    nd_auto nd_tensor *shifted = zeros    ? nd_sub(rows, zero)
                                 : packed ? nd_sub_scalar(rows, INT4_ZERO)
                                          : nd_retain(rows);
    nd_auto nd_tensor *product = nd_mul(shifted, scale);
    nd_auto nd_tensor *weight =
        integers ? nd_reshape(product, integers->ndim, integers->shape) : NULL;
    return weight ? nd__operands_as_dtype(weight, dtype) : NULL;
}

nd_tensor *nd_dequantize(const nd_tensor *values, const nd_tensor *scales, const nd_tensor *zeros,
                         nd_dtype dtype) {
    ND__ERROR_NAMED("dequantize");
    int64_t group;
    if (check_weight("dequantize", values, scales, zeros, true, &group) != ND_OK)
        return NULL;
    if ((unsigned)dtype >= ND_DTYPE_COUNT || !nd__dtype_is_float(dtype)) {
        nd__error(ND_ERROR_DTYPE, "dequantize: dtype is %s and must be of floats",
                  nd_dtype_get_name(dtype));
        return NULL;
    }
    return dequantized(values, scales, zeros, group, dtype);
}

// -------------------------------------------------------------------------------------------------
// quantizing

static nd_status check_quantize(const char *name, const nd_tensor *weight, int bits, int64_t group,
                                nd_dtype scale_dtype) {
    nd_status status = nd__tensor_check_operand(name, "weight", weight);
    if (status != ND_OK)
        return status;
    if (!nd__dtype_is_float(weight->dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: weight is %s and must be of floats", name,
                         nd_dtype_get_name(weight->dtype));
    if ((unsigned)scale_dtype >= ND_DTYPE_COUNT || !is_scale_dtype(scale_dtype))
        return nd__error(ND_ERROR_DTYPE,
                         "%s: scale_dtype is %s and must be float32, float16 or bfloat16", name,
                         nd_dtype_get_name(scale_dtype));
    if (bits != 8 && bits != 4)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: bits is %d and must be 8 or 4", name,
                         bits);
    if (weight->ndim == 0 || weight->shape[weight->ndim - 1] == 0) {
        char text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_SHAPE,
                         "%s: weight has shape %s and must have elements along its last axis", name,
                         nd__shape_text(text, weight->ndim, weight->shape));
    }
    int64_t k = weight->shape[weight->ndim - 1], size = group == 0 ? k : group;
    if (size < 0 || k % size != 0 || (bits == 4 && size % 2 != 0))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: group is %lld and must divide the %lld elements along the last "
                         "axis%s",
                         name, (long long)group, (long long)k,
                         bits == 4 ? ", and be even for 4 bits" : "");
    return ND_OK;
}

/// The numbers as scales of the dtype: rounded up, at least its smallest normal number.
static nd_tensor *rounded_up(const nd_tensor *numbers, nd_dtype dtype) {
    if (!numbers)
        return NULL;
    double least = dtype == ND_F16 ? 0x1p-14 : 0x1p-126;
    nd_auto nd_tensor *nearest = nd_cast(numbers, dtype);
    nd_auto nd_tensor *back = nearest ? nd_cast(nearest, ND_F32) : NULL;
    nd_auto nd_tensor *infinity =
        nd__operands_number_like("quantize", numbers, dtype, ND_NUMBER(INFINITY));
    nd_auto nd_tensor *above = nd_nextafter(nearest, infinity);
    nd_auto nd_tensor *is_below = nd_less(back, numbers);
    nd_auto nd_tensor *scales = nd_where(is_below, above, nearest);
    return nd_clip(scales, least, INFINITY);
}

/// What nd_quantize makes, one row for each group.
typedef struct quantized_rows {
    nd_tensor *integers; ///< owned: floats that are whole
    nd_tensor *scales;   ///< owned: [rows, 1] of their dtype
    nd_tensor *zeros;    ///< owned: likewise, or NULL
} quantized_rows;

static void quantize_symmetric(const nd_tensor *rows, int bits, nd_dtype dtype,
                               quantized_rows *made) {
    double most = bits == 8 ? 127.0 : 7.0;
    const int axis = 1;
    nd_auto nd_tensor *sizes = nd_abs(rows);
    nd_auto nd_tensor *largest = nd_max(sizes, 1, &axis, true);
    nd_auto nd_tensor *exact = nd_div_scalar(largest, most);
    made->scales = rounded_up(exact, dtype);
    nd_auto nd_tensor *divisor = made->scales ? nd_cast(made->scales, ND_F32) : NULL;
    nd_auto nd_tensor *quotient = nd_div(rows, divisor);
    nd_auto nd_tensor *whole = nd_round(quotient);
    nd_auto nd_tensor *clipped = nd_clip(whole, -most, most);
    made->integers = nd_add_scalar(clipped, bits == 8 ? 0 : INT4_ZERO);
}

static void quantize_with_zeros(const nd_tensor *rows, int bits, nd_dtype dtype,
                                quantized_rows *made) {
    double lowest = bits == 8 ? -128.0 : 0.0, highest = bits == 8 ? 127.0 : 15.0;
    const int axis = 1;
    nd_auto nd_tensor *smallest = nd_min(rows, 1, &axis, true);
    nd_auto nd_tensor *largest = nd_max(rows, 1, &axis, true);
    nd_auto nd_tensor *low = nd_clip(smallest, -INFINITY, 0.0);
    nd_auto nd_tensor *high = nd_clip(largest, 0.0, INFINITY);
    nd_auto nd_tensor *low_part = nd_div_scalar(low, highest - lowest);
    nd_auto nd_tensor *high_part = nd_div_scalar(high, highest - lowest);
    nd_auto nd_tensor *exact = nd_sub(high_part, low_part);
    made->scales = rounded_up(exact, dtype);
    nd_auto nd_tensor *divisor = made->scales ? nd_cast(made->scales, ND_F32) : NULL;
    nd_auto nd_tensor *below = nd_div(low, divisor);
    nd_auto nd_tensor *rounded = nd_round(below);
    nd_auto nd_tensor *negative = nd_neg(rounded);
    nd_auto nd_tensor *shifted = nd_add_scalar(negative, lowest);
    nd_auto nd_tensor *zero = nd_clip(shifted, lowest, highest);
    nd_auto nd_tensor *quotient = nd_div(rows, divisor);
    nd_auto nd_tensor *whole = nd_round(quotient);
    nd_auto nd_tensor *sum = nd_add(whole, zero);
    made->integers = nd_clip(sum, lowest, highest);
    made->zeros = zero ? nd_cast(zero, dtype) : NULL;
}

/// The weight's shape with `size` along the last axis.
static nd_tensor *shaped_beside(const nd_tensor *x, const nd_tensor *weight, int64_t size) {
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < weight->ndim; i++)
        shape[i] = i == weight->ndim - 1 ? size : weight->shape[i];
    return nd_reshape(x, weight->ndim, shape);
}

/// ND_OK when every scale is finite, which it is when every element of its group is.
static nd_status check_finite(const nd_tensor *scales, nd_dtype dtype) {
    nd_auto nd_tensor *finite = nd_isfinite(scales);
    nd_auto nd_tensor *all = nd_all(finite, 0, NULL, false);
    int64_t fine;
    nd_status status = all ? nd_get_item_i64(all, &fine) : nd_error_get_status();
    if (status == ND_OK && !fine)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "quantize: an element of weight is not finite, or too large for scales of "
                         "%s",
                         nd_dtype_get_name(dtype));
    return status;
}

static nd_status quantize(const nd_tensor *weight, int bits, int64_t group, nd_dtype scale_dtype,
                          nd_tensor **ret_values, nd_tensor **ret_scales, nd_tensor **ret_zeros) {
    int64_t k = weight->shape[weight->ndim - 1], groups = k / group;
    quantized_rows made = {NULL, NULL, NULL};
    nd_auto nd_tensor *wide = nd__operands_as_dtype(weight, ND_F32);
    nd_auto nd_tensor *rows = nd_reshape(wide, ND_SHAPE(weight->numel / group, group));
    (ret_zeros ? quantize_with_zeros : quantize_symmetric)(rows, bits, scale_dtype, &made);
    nd_auto nd_tensor *integers = made.integers;
    nd_auto nd_tensor *scale_column = made.scales;
    nd_auto nd_tensor *zero_column = made.zeros;
    if (!integers || !scale_column || (ret_zeros && !zero_column))
        return nd_error_get_status();
    nd_status status = check_finite(scale_column, scale_dtype);
    if (status != ND_OK)
        return status;
    nd_auto nd_tensor *bytes = nd_cast(integers, bits == 8 ? ND_I8 : ND_U8);
    nd_auto nd_tensor *shaped = shaped_beside(bytes, weight, k);
    nd_auto nd_tensor *values = bits == 8 ? nd_retain(shaped) : nd_pack_int4(shaped);
    nd_auto nd_tensor *scales = shaped_beside(scale_column, weight, groups);
    nd_auto nd_tensor *zeros = ret_zeros ? shaped_beside(zero_column, weight, groups) : NULL;
    if (!values || !scales || (ret_zeros && !zeros))
        return nd_error_get_status();
    *ret_values = nd_steal(&values);
    *ret_scales = nd_steal(&scales);
    if (ret_zeros)
        *ret_zeros = nd_steal(&zeros);
    return ND_OK;
}

nd_status nd_quantize(const nd_tensor *weight, int bits, int64_t group, nd_dtype scale_dtype,
                      nd_tensor **ret_values, nd_tensor **ret_scales, nd_tensor **ret_zeros) {
    ND__ERROR_NAMED("quantize");
    if (!ret_values || !ret_scales)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "quantize: %s is NULL",
                         ret_values ? "ret_scales" : "ret_values");
    nd_status status = check_quantize("quantize", weight, bits, group, scale_dtype);
    if (status != ND_OK)
        return status;
    int64_t size = group == 0 ? weight->shape[weight->ndim - 1] : group;
    nd_no_grad {
        status = quantize(weight, bits, size, scale_dtype, ret_values, ret_scales, ret_zeros);
    }
    return status;
}

// -------------------------------------------------------------------------------------------------
// the product

static nd_status check_product(const char *name, const nd_tensor *x, const nd_tensor *values,
                               const nd_tensor *bias, nd_dtype *ret_wide) {
    nd_status status = nd__operands_check_pair(name, "x", x, "values", values);
    if (status == ND_OK && bias)
        status = nd__operands_check_pair(name, "x", x, "bias", bias);
    if (status == ND_OK)
        status = nd__precision_check(name, "x", x, ret_wide);
    if (status == ND_OK && bias)
        status = nd__precision_check_beside(name, "bias", bias, x);
    if (status != ND_OK)
        return status;
    char a[ND__SHAPE_TEXT], b[ND__SHAPE_TEXT];
    if (x->ndim == 0 || values->ndim != 2 || x->shape[x->ndim - 1] != row_length(values))
        return nd__error(ND_ERROR_SHAPE,
                         "%s: x has shape %s and values %s of %s; x must be [..., k], and values "
                         "[n, k] of int8 or [n, k / 2] of uint8",
                         name, nd__shape_text(a, x->ndim, x->shape),
                         nd__shape_text(b, values->ndim, values->shape),
                         nd_dtype_get_name(values->dtype));
    if (bias && (bias->ndim != 1 || bias->shape[0] != values->shape[0]))
        return nd__error(ND_ERROR_SHAPE, "%s: bias has shape %s and must have [%lld]", name,
                         nd__shape_text(a, bias->ndim, bias->shape), (long long)values->shape[0]);
    return ND_OK;
}

/// Runs the kernel into `result` (consumed) on operands that it can read: all contiguous.
static nd_tensor *run_product(const char *name, nd_tensor *result, const nd_tensor *const *inputs,
                              int64_t group) {
    const nd_tensor *values = inputs[0], *x = inputs[3];
    nd_auto nd_tensor *owned = result;
    int64_t k = x->shape[x->ndim - 1];
    nd_kernel_call call;
    call.op = ND_OP_quantized_linear;
    call.noperands = inputs[2] ? 5 : 4;
    call.ndim = 0;
    const nd_tensor *operands[] = {result, x, values, inputs[1], inputs[2]};
    nd_tensor *dense[5] = {NULL};
    bool fine = true;
    for (int i = 0; i < call.noperands && fine; i++) {
        dense[i] =
            i == 0 ? nd_retain(result) : nd__operands_dense(name, operands[i], operands[i]->dtype);
        fine = dense[i] != NULL;
        if (fine) {
            call.operand[i].data = dense[i]->data;
            call.operand[i].dtype = dense[i]->dtype;
        }
    }
    const int64_t attrs[4] = {x->numel / k, values->shape[0], k, group};
    for (int i = 0; i < 4; i++)
        call.attrs.i[i] = attrs[i];
    fine = fine && nd__launch(name, result->device, &call) == ND_OK;
    for (int i = 0; i < 5; i++)
        nd_release(dense[i]);
    return fine ? nd_steal(&owned) : NULL;
}

/// x of the dtype that is computed in.
static nd_tensor *product(const char *name, const nd_tensor *x, const nd_tensor *values,
                          const nd_tensor *scales, const nd_tensor *zeros, int64_t group) {
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = i == x->ndim - 1 ? values->shape[0] : x->shape[i];
    const nd_tensor *places[] = {x, values, scales, zeros};
    nd_tensor *result =
        nd__tensor_result(name, places, zeros ? 4 : 3, x->device, x->dtype, x->ndim, shape);
    // In the order in which the row says what is saved.
    const nd_tensor *inputs[] = {values, scales, zeros, x};
    if (result && result->numel > 0)
        result = run_product(name, result, inputs, group);
    nd_op_attrs attrs = {.i = {zeros != NULL}};
    return nd__record(ND_OP_quantized_linear, result, inputs, 4, &attrs);
}

nd_tensor *nd_quantized_linear(const nd_tensor *x, const nd_tensor *values, const nd_tensor *scales,
                               const nd_tensor *zeros, const nd_tensor *bias) {
    ND__ERROR_NAMED("quantized_linear");
    ND__AUTOCAST(lower, x, NULL, bias, nd_quantized_linear(x0, values, scales, zeros, x2))
    const char *name = "quantized_linear";
    int64_t group;
    nd_dtype wide;
    if (check_weight(name, values, scales, zeros, false, &group) != ND_OK ||
        check_product(name, x, values, bias, &wide) != ND_OK)
        return NULL;
    nd_auto nd_tensor *x_wide = nd__operands_as_dtype(x, wide);
    nd_auto nd_tensor *bias_wide = bias ? nd__operands_as_dtype(bias, wide) : NULL;
    if (!x_wide || (bias && !bias_wide))
        return NULL;
    nd_auto nd_tensor *sum = NULL;
    if (nd__record_wants_history((const nd_tensor *[]){scales, zeros}, 2)) {
        nd_auto nd_tensor *weight = dequantized(values, scales, zeros, group, wide);
        sum = nd_linear(x_wide, weight, bias_wide);
    } else {
        nd_auto nd_tensor *plain = product(name, x_wide, values, scales, zeros, group);
        sum = bias ? nd_add(plain, bias_wide) : nd_retain(plain);
    }
    return sum ? nd__operands_as_dtype(sum, x->dtype) : NULL;
}
