// Dropout. Which elements are dropped is a function of the key and their place alone.
#include "lib/ops/dropout.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/create.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/neural.h>

nd_status nd__dropout_check(const char *name, double p) {
    if (p >= 0.0 && p <= 1.0)
        return ND_OK;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a probability of %g is outside 0 ... 1", name,
                     p);
}

nd_tensor *nd__dropout_factors(const char *name, const nd_tensor *like, int ndim,
                               const int64_t *shape, nd_dtype dtype, nd_key key, double p) {
    nd_tensor *factors = NULL;
    nd_no_grad {
        nd_op_attrs attrs = {.i = {(int64_t)key.seed, (int64_t)key.stream}};
        nd_auto nd_tensor *numbers = nd__create_with(
            name, ND_OP_rand, nd__tensor_result(name, &like, 1, like->device, ND_F32, ndim, shape),
            &attrs);
        nd_auto nd_tensor *limit =
            numbers ? nd__operands_number_like(name, like, ND_F32, ND_NUMBER(p)) : NULL;
        nd_auto nd_tensor *kept = nd_greater_equal(numbers, limit);
        nd_auto nd_tensor *ones = kept ? nd_cast(kept, dtype) : NULL;
        factors = p < 1.0 ? nd_mul_scalar(ones, 1.0 / (1.0 - p)) : nd_steal(&ones);
    }
    return factors;
}

nd_tensor *nd_dropout(const nd_tensor *x, nd_key key, double p, bool training) {
    nd_status status = nd__tensor_check_operand("dropout", "x", x);
    if (status == ND_OK && !nd__dtype_is_float(x->dtype))
        status = nd__error(ND_ERROR_DTYPE, "dropout: x is %s and must be of floats",
                           nd_dtype_get_name(x->dtype));
    if (status != ND_OK || nd__dropout_check("dropout", p) != ND_OK)
        return NULL;
    if (!training || p == 0.0)
        return nd_retain(x);
    // A half would round 1 / (1 - p), and so change the mean: the factors are f32 then.
    nd_dtype dtype = nd__dtype_is_half(x->dtype) ? ND_F32 : x->dtype;
    nd_auto nd_tensor *factors =
        nd__dropout_factors("dropout", x, x->ndim, x->shape, dtype, key, p);
    nd_auto nd_tensor *result = nd_mul(x, factors);
    return result ? nd__operands_as_dtype(result, x->dtype) : NULL;
}
