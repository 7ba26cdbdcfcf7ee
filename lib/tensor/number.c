// What a number is to a dtype. Integers are compared as integers, so that nothing is rounded before
// it is known to fit.
#include "lib/tensor/number.h"
#include <math.h>
#include <stdio.h>

/// The range of an integer dtype; false for the others.
static bool integer_range(nd_dtype dtype, int64_t *ret_lowest, int64_t *ret_highest) {
    switch (dtype) {
    case ND_U8:
        *ret_lowest = 0, *ret_highest = UINT8_MAX;
        return true;
    case ND_I32:
        *ret_lowest = INT32_MIN, *ret_highest = INT32_MAX;
        return true;
    case ND_I64:
        *ret_lowest = INT64_MIN, *ret_highest = INT64_MAX;
        return true;
    default:
        return false;
    }
}

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
    int64_t value, lowest, highest;
    if (dtype == ND_BOOL)
        lowest = 0, highest = 1;
    else if (!integer_range(dtype, &lowest, &highest))
        return is_number(number);
    return nd__number_is_i64(number, &value) && value >= lowest && value <= highest;
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

void nd__number_pass(nd_op_attrs *attrs, int which, nd_dtype dtype, nd_number number) {
    if (dtype == ND_I64)
        attrs->i[which] = nearest_i64(number);
    // An integer that becomes a double and then a float would be rounded twice.
    if (dtype == ND_F32 && number.kind == ND_NUMBER_I64)
        attrs->f[which] = (double)(float)number.value.i64;
    else if (dtype == ND_F32 && number.kind == ND_NUMBER_U64)
        attrs->f[which] = (double)(float)number.value.u64;
    else
        attrs->f[which] = nd__number_as_f64(number);
}

const char *nd__number_text(char text[static ND__NUMBER_TEXT], nd_number number) {
    if (number.kind == ND_NUMBER_F64)
        snprintf(text, ND__NUMBER_TEXT, "%g", number.value.f64);
    else if (number.kind == ND_NUMBER_I64)
        snprintf(text, ND__NUMBER_TEXT, "%lld", (long long)number.value.i64);
    else if (number.kind == ND_NUMBER_U64)
        snprintf(text, ND__NUMBER_TEXT, "%llu", (unsigned long long)number.value.u64);
    else
        snprintf(text, ND__NUMBER_TEXT, "kind %d", (int)number.kind);
    return text;
}
