// Dropout. Which elements are dropped is a function of the key and their place alone.
//
// The backward pass makes the random numbers again, so that nothing is kept for it but the key.
#include "lib/ops/dropout.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/create.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/manager.h>
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

typedef struct dropout {
    nd_key key;
    double p;
} dropout;

static const nd_type dropout_type = {.size = sizeof(nd_type), .version = 1, .name = "dropout"};

static nd_status keep(nd_object *self, void *data) {
    *(dropout *)nd_object_get_data(self) = *(const dropout *)data;
    return ND_OK;
}

/// What was dropped has no gradient, and the rest is scaled alike.
static nd_status backward(const nd_object *context, size_t noutputs,
                          const nd_tensor *const *grad_outputs, size_t ninputs,
                          nd_tensor **ret_grad_inputs) {
    (void)noutputs;
    (void)ninputs;
    const dropout *of = nd_object_get_data(context);
    ret_grad_inputs[0] = of ? nd_dropout(grad_outputs[0], of->key, of->p, true) : NULL;
    return ret_grad_inputs[0] ? ND_OK : nd_error_get_status();
}

// Forward is run by nd_dropout itself.
static const nd_function dropout_function = {sizeof(nd_function), 1, "dropout", NULL, backward};

static nd_status record(dropout *of, const nd_tensor *x, nd_tensor *result) {
    if (!nd__record_wants_history(&x, 1))
        return ND_OK;
    nd_auto nd_manager *manager = nd_get_manager_retained(result);
    nd_auto nd_object *context = NULL;
    if (manager)
        nd_with_manager(manager) {
            context = nd_object_new_with(&dropout_type, sizeof *of, keep, of);
        }
    return context ? nd__record_function(&dropout_function, context, &result, 1, &x, 1)
                   : nd_error_get_status();
}

static nd_tensor *dropped(const nd_tensor *x, dropout *of) {
    nd_auto nd_tensor *result =
        nd__tensor_result("dropout", &x, 1, x->device, x->dtype, x->ndim, x->shape);
    if (!result)
        return NULL;
    nd_status status = ND_OK;
    if (x->numel > 0) {
        nd_kernel_call call = {.op = ND_OP_dropout, .noperands = 2, .ndim = x->ndim};
        for (int axis = 0; axis < x->ndim; axis++)
            call.shape[axis] = x->shape[axis];
        call.operand[0] = nd__shape_broadcast_operand(result, x->ndim, x->shape);
        call.operand[1] = nd__shape_broadcast_operand(x, x->ndim, x->shape);
        call.attrs =
            (nd_op_attrs){.f = {of->p}, .i = {(int64_t)of->key.seed, (int64_t)of->key.stream}};
        nd__shape_collapse(&call);
        status = nd__launch("dropout", x->device, &call);
    }
    if (status == ND_OK)
        status = record(of, x, result);
    return status == ND_OK ? nd_steal(&result) : NULL;
}

nd_tensor *nd_dropout(const nd_tensor *x, nd_key key, double p, bool training) {
    ND__ERROR_NAMED("dropout");
    nd_status status = nd__tensor_check_operand("dropout", "x", x);
    if (status == ND_OK && !nd__dtype_is_float(x->dtype))
        status = nd__error(ND_ERROR_DTYPE, "dropout: x is %s and must be of floats",
                           nd_dtype_get_name(x->dtype));
    if (status != ND_OK || nd__dropout_check("dropout", p) != ND_OK)
        return NULL;
    if (!training || p == 0.0)
        return nd_retain(x);
    return dropped(x, &(dropout){key, p});
}
