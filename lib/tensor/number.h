// Numbers (<nd/number.h>) as dtypes hold them and as kernels are handed them.
#ifndef ND_LIB_TENSOR_NUMBER_H
#define ND_LIB_TENSOR_NUMBER_H
#include "kernels/kernel.h"
#include <nd/number.h>

/// True when `dtype` holds the number: a float always, an integer dtype when it is an integer in
/// range, bool for 0 and 1. False for what is no number, a struct with another kind.
bool nd__number_held(nd_dtype dtype, nd_number number);
/// The same for a number whose fraction is cut off first; bool takes every number.
bool nd__number_held_cut(nd_dtype dtype, nd_number number);
/// True, and its value, when the number is an int64.
bool nd__number_is_i64(nd_number number, int64_t *ret_value);
/// Likewise for a uint64.
bool nd__number_is_u64(nd_number number, uint64_t *ret_value);
/// True when it is an integer, whatever its size. An infinity and NaN are none.
bool nd__number_is_integer(nd_number number);
/// The number as a double, rounded to nearest.
double nd__number_as_f64(nd_number number);

/// Hands number `which` (0 or 1) to a kernel that computes in `dtype`, as kernels/kernel.h says:
/// rounded once, beyond the range of an integer dtype its end.
void nd__number_pass(nd_op_attrs *attrs, int which, nd_dtype dtype, nd_number number);

/// The number that an element of `dtype` in host memory is, exactly: a double for floats, else a
/// signed or an unsigned integer.
nd_number nd__number_at(nd_dtype dtype, const void *element);

/// Long enough for every number.
#define ND__NUMBER_TEXT 32
/// The number as an error writes it, in `text`.
const char *nd__number_text(char text[static ND__NUMBER_TEXT], nd_number number);
#endif
