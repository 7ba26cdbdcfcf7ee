// In which dtype a composed function computes: f64 for f64, f32 for all smaller floats.
#include "lib/ops/precision.h"
#include "lib/base/error.h"

nd_status nd__precision_check(const char *name, const char *argument, const nd_tensor *x,
                              nd_dtype *ret_dtype) {
    nd_status status = nd__tensor_check_operand(name, argument, x);
    if (status != ND_OK)
        return status;
    if (!nd__dtype_is_float(x->dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: %s is %s and must be of floats", name, argument,
                         nd_dtype_get_name(x->dtype));
    *ret_dtype = x->dtype == ND_F64 ? ND_F64 : ND_F32;
    return ND_OK;
}

nd_status nd__precision_check_beside(const char *name, const char *argument,
                                     const nd_tensor *parameter, const nd_tensor *x) {
    bool fits =
        parameter->dtype == x->dtype || (parameter->dtype == ND_F32 && nd__dtype_is_half(x->dtype));
    if (fits)
        return ND_OK;
    return nd__error(ND_ERROR_DTYPE, "%s: %s is %s and x %s", name, argument,
                     nd_dtype_get_name(parameter->dtype), nd_dtype_get_name(x->dtype));
}
