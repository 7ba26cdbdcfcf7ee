// What a number is to a dtype. Integers are compared as integers, so that nothing is rounded before
// it is known to fit.
#include "lib/tensor/number.h"
#include "kernels/half.h"
#include "lib/base/locale.h"
#include "lib/tensor/dtype.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_number(nd_number number) {
    return (unsigned)number.kind <= ND_NUMBER_U64;
}

bool nd__number_is_i64(nd_number number, int64_t *ret_value) {
    switch (number.kind) {
    case ND_NUMBER_F64:
        if (!(number.value.f64 >= -0x1p63 && number.value.f64 < 0x1p63) ||
            number.value.f64 != trunc(number.value.f64))
            return false;
        *ret_value = (int64_t)number.value.f64;
        return true;
    case ND_NUMBER_I64:
        *ret_value = number.value.i64;
        return true;
    case ND_NUMBER_U64:
        *ret_value = (int64_t)number.value.u64;
        return number.value.u64 <= INT64_MAX;
    default:
        return false;
    }
}

bool nd__number_is_u64(nd_number number, uint64_t *ret_value) {
    switch (number.kind) {
    case ND_NUMBER_F64:
        if (!(number.value.f64 >= 0.0 && number.value.f64 < 0x1p64) ||
            number.value.f64 != trunc(number.value.f64))
            return false;
        *ret_value = (uint64_t)number.value.f64;
        return true;
    case ND_NUMBER_I64:
        *ret_value = (uint64_t)number.value.i64;
        return number.value.i64 >= 0;
    case ND_NUMBER_U64:
        *ret_value = number.value.u64;
        return true;
    default:
        return false;
    }
}

bool nd__number_is_integer(nd_number number) {
    if (number.kind == ND_NUMBER_F64)
        return isfinite(number.value.f64) && number.value.f64 == trunc(number.value.f64);
    return is_number(number);
}

double nd__number_as_f64(nd_number number) {
    if (number.kind == ND_NUMBER_F64)
        return number.value.f64;
    return number.kind == ND_NUMBER_I64 ? (double)number.value.i64 : (double)number.value.u64;
}

bool nd__number_held(nd_dtype dtype, nd_number number) {
    // A dtype that there is not is refused elsewhere.
    if ((unsigned)dtype >= ND_DTYPE_COUNT || nd__dtype_is_float(dtype))
        return is_number(number);
    int bits = dtype == ND_BOOL ? 1 : 8 * nd__dtype_bytes[dtype];
    if (nd__dtype_kinds[dtype] == ND_KIND_SIGNED) {
        int64_t value;
        return nd__number_is_i64(number, &value) && value >> (bits - 1) == value >> 63;
    }
    uint64_t value;
    return nd__number_is_u64(number, &value) && (bits == 64 || value >> bits == 0);
}

bool nd__number_held_cut(nd_dtype dtype, nd_number number) {
    if (dtype == ND_BOOL)
        return is_number(number);
    if (number.kind == ND_NUMBER_F64)
        number.value.f64 = trunc(number.value.f64);
    return nd__number_held(dtype, number);
}

/// The int64 nearest to the number, towards zero; 0 for NaN.
static int64_t nearest_i64(nd_number number) {
    if (number.kind == ND_NUMBER_F64)
        number.value.f64 = trunc(number.value.f64);
    int64_t value;
    if (nd__number_is_i64(number, &value))
        return value;
    if (number.kind == ND_NUMBER_F64 && !(number.value.f64 > 0.0))
        return isnan(number.value.f64) ? 0 : INT64_MIN;
    return INT64_MAX;
}

static uint64_t nearest_u64(nd_number number) {
    if (number.kind == ND_NUMBER_F64)
        number.value.f64 = trunc(number.value.f64);
    uint64_t value;
    if (nd__number_is_u64(number, &value))
        return value;
    return number.kind == ND_NUMBER_F64 && number.value.f64 > 0.0 ? UINT64_MAX : 0;
}

/// The double that the rounding to `dtype` of what a kernel is handed makes one rounding of.
static double as_f64_for(nd_dtype dtype, nd_number number) {
    if (number.kind == ND_NUMBER_F64)
        return number.value.f64;
    bool is_signed = number.kind == ND_NUMBER_I64;
    if (dtype == ND_F32)
        return (double)(is_signed ? (float)number.value.i64 : (float)number.value.u64);
    if (nd__dtype_is_half(dtype))
        return is_signed ? nd__i64_to_f64_odd(number.value.i64)
                         : nd__u64_to_f64_odd(number.value.u64);
    return nd__number_as_f64(number);
}

void nd__number_pass(nd_op_attrs *attrs, int which, nd_dtype dtype, nd_number number) {
    if (dtype == ND_I64)
        attrs->i[which] = nearest_i64(number);
    else if (dtype == ND_U64)
        attrs->i[which] = (int64_t)nearest_u64(number);
    attrs->f[which] = as_f64_for(dtype, number);
}

nd_number nd__number_at(nd_dtype dtype, const void *element) {
    uint64_t bits = 0;
    size_t bytes = nd__dtype_bytes[dtype];
    memcpy(&bits, element, bytes); // little-endian: the bytes that are not there are the upper ones
    switch (nd__dtype_kinds[dtype]) {
    case ND_KIND_BOOL:
    case ND_KIND_UNSIGNED:
        return (nd_number){ND_NUMBER_U64, {.u64 = bits}};
    case ND_KIND_SIGNED:
        return (nd_number){ND_NUMBER_I64,
                           {.i64 = (int64_t)(bits << (64 - 8 * bytes)) >> (64 - 8 * bytes)}};
    default:
        break;
    }
    nd_number number = {ND_NUMBER_F64, {.u64 = bits}};
    if (dtype == ND_F16)
        number.value.f64 = nd__f16_to_f64((uint16_t)bits);
    else if (dtype == ND_BF16)
        number.value.f64 = nd__bf16_to_f64((uint16_t)bits);
    else if (dtype == ND_F32)
        number.value.f64 = (double)nd__f32_of_bits((uint32_t)bits);
    return number;
}

const char *nd__number_text(char text[static ND__NUMBER_TEXT], nd_number number) {
    locale_t before = nd__locale_begin_plain();
    if (number.kind == ND_NUMBER_F64)
        snprintf(text, ND__NUMBER_TEXT, "%g", number.value.f64);
    else if (number.kind == ND_NUMBER_I64)
        snprintf(text, ND__NUMBER_TEXT, "%lld", (long long)number.value.i64);
    else if (number.kind == ND_NUMBER_U64)
        snprintf(text, ND__NUMBER_TEXT, "%llu", (unsigned long long)number.value.u64);
    else
        snprintf(text, ND__NUMBER_TEXT, "kind %d", (int)number.kind);
    nd__locale_end(before);
    return text;
}
