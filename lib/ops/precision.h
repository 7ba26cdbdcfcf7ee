// In which dtype a composed function computes: f64 for f64, f32 for all smaller floats.
#ifndef ND_LIB_OPS_PRECISION_H
#define ND_LIB_OPS_PRECISION_H
#include "lib/tensor/tensor.h"

/// An operand must be usable and of floats; writes the dtype to compute in.
nd_status nd__precision_check(const char *name, const char *argument, const nd_tensor *x,
                              nd_dtype *ret_dtype);
/// A parameter must have x's dtype, or be f32 beside an x of f16 or bf16.
nd_status nd__precision_check_beside(const char *name, const char *argument,
                                     const nd_tensor *parameter, const nd_tensor *x);
#endif
