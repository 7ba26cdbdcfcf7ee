// Reads the rows of kernels/ops.inc for the element type that a type_<dtype>.inc named.
//
// ND__ROW_<types>(text) expands to text where the current dtype belongs to `types`; it has to be
// chosen anew for each dtype (rows_for_type.inc). The ND_<FUNCTION> names are the same for all.
#ifndef ND_KERNELS_CPU_ROWS_H
#define ND_KERNELS_CPU_ROWS_H
#include "kernels/cpu/functions.h"
#include "kernels/cpu/isa.h"

#define ND__PASTE3_(a, b, c) a##b##_##c
#define ND__PASTE3(a, b, c) ND__PASTE3_(a, b, c)
/// name_<dtype>
#define ND__TYPED(name) ND__PASTE3(, name, TYPE)
/// nd__name_<dtype>
#define ND__FUNCTION(name) ND__PASTE3(nd__, name, TYPE)
/// A call's number `which` in the current dtype.
#define ND__SCALAR(attrs, which) ND__FUNCTION(scalar)(attrs, which)

#define ND_ABS(x) ND__FUNCTION(abs)(x)
#define ND_SIGN(x) ND__FUNCTION(sign)(x)
#define ND_POW(a, b) ND__FUNCTION(pow)(a, b)
#define ND_EXP(x) ND__FUNCTION(exp)(x)
#define ND_LOG(x) ND__FUNCTION(log)(x)
#define ND_SQRT(x) ND__FUNCTION(sqrt)(x)
#define ND_SIN(x) ND__FUNCTION(sin)(x)
#define ND_COS(x) ND__FUNCTION(cos)(x)
#define ND_TANH(x) ND__FUNCTION(tanh)(x)
#define ND_SIGMOID(x) ND__FUNCTION(sigmoid)(x)
#define ND_GELU(x) ND__FUNCTION(gelu)(x)
#define ND_ERF(x) ND__FUNCTION(erf)(x)

// Every loop may be told so: an output is either exactly an operand or apart from it.
#define ND__PRAGMA(text) _Pragma(#text)
#define ND__INDEPENDENT ND__PRAGMA(omp simd)
#endif
