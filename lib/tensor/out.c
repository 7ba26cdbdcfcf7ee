// Results in a tensor of the caller's: every check that it may be written, before it is.
//
// Invariant: a refused tensor has the bytes, the version and the history that it had.
#include "lib/tensor/out.h"
#include "lib/device/registry.h"
#include "lib/object/callback.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/node.h"
#include "lib/tensor/overlap.h"
#include "lib/tensor/shape.h"
#include <stdio.h>

static nd_status check_form(const char *operation, const nd_tensor *out, nd_device device,
                            nd_dtype dtype, int ndim, const int64_t *shape) {
    bool same = out->ndim == ndim;
    for (int i = 0; i < ndim && same; i++)
        same = out->shape[i] == shape[i];
    char out_text[ND__SHAPE_TEXT], text[ND__SHAPE_TEXT];
    if (!same)
        return nd__error(ND_ERROR_SHAPE, "%s: out has shape %s, and the result %s", operation,
                         nd__shape_text(out_text, out->ndim, out->shape),
                         nd__shape_text(text, ndim, shape));
    if (out->dtype != dtype)
        return nd__error(ND_ERROR_DTYPE, "%s: out is %s, and the result %s", operation,
                         nd_dtype_get_name(out->dtype), nd_dtype_get_name(dtype));
    if (out->device.kind != device.kind || out->device.index != device.index) {
        char out_device[32]; // the text of a device may be the thread's one buffer
        snprintf(out_device, sizeof out_device, "%s", nd__registry_device_text(out->device));
        return nd__error(ND_ERROR_DEVICE, "%s: out is on %s, and the result on %s", operation,
                         out_device, nd__registry_device_text(device));
    }
    return ND_OK;
}

/// What is written has no history: nobody may expect one.
static nd_status check_history(const char *operation, const nd_tensor *out,
                               const nd_tensor *const *operands, size_t count) {
    if (nd__node_recording_off)
        return ND_OK;
    if (nd__tensor_requires_grad(out))
        return nd__error(ND_ERROR_STATE,
                         "%s: out requires a gradient, and what is written to it has no history; "
                         "write it inside nd_no_grad",
                         operation);
    if (nd__node_any_requires_grad(operands, count))
        return nd__error(ND_ERROR_STATE,
                         "%s: an operand requires a gradient, and what is written to out has no "
                         "history; use nd_%s, or write inside nd_no_grad",
                         operation, operation);
    return ND_OK;
}

static nd_status check_memory(const char *operation, const nd_tensor *out, nd_out_place place,
                              const nd_tensor *const *operands, size_t count) {
    char out_text[ND__SHAPE_TEXT], text[ND__SHAPE_TEXT];
    if (nd__overlap_within(out))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: elements of out (shape %s) share memory with each other", operation,
                         nd__shape_text(out_text, out->ndim, out->shape));
    for (size_t k = 0; k < count; k++) {
        const nd_tensor *x = operands[k];
        bool meets = x && (place == ND__OUT_APART ? nd__overlap_any(out, x)
                                                  : nd__overlap(out, x) == ND__PARTIAL);
        if (meets)
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: out (shape %s) shares %s memory with an operand of shape %s",
                             operation, nd__shape_text(out_text, out->ndim, out->shape),
                             place == ND__OUT_APART ? "some" : "part of its",
                             nd__shape_text(text, x->ndim, x->shape));
    }
    return ND_OK;
}

nd_tensor *nd__out_take(const char *operation, nd_tensor *out, nd_out_place place,
                        const nd_tensor *const *operands, size_t count, nd_device device,
                        nd_dtype dtype, int ndim, const int64_t *shape) {
    // A callback for memory may have closed it since the operation began.
    if (nd__tensor_check_operand(operation, "out", out) != ND_OK ||
        nd__callback_check(operation) != ND_OK ||
        nd__tensor_check_writable(operation, "out", out) != ND_OK ||
        check_form(operation, out, device, dtype, ndim, shape) != ND_OK ||
        check_history(operation, out, operands, count) != ND_OK ||
        check_memory(operation, out, place, operands, count) != ND_OK)
        return NULL;
    nd__tensor_bump_version(out);
    return nd_retain(out);
}

nd_status nd__out_deliver(const char *operation, nd_tensor *result,
                          const nd_tensor *const *operands, size_t count, nd_tensor *out) {
    if (!result || result == out)
        return nd__out_status(result);
    nd_tensor *taken = nd__out_take(operation, out, ND__OUT_APART, operands, count, result->device,
                                    result->dtype, result->ndim, result->shape);
    nd_status status = taken ? nd__copy_into(operation, taken, result) : nd_error_get_status();
    nd_object_release(taken);
    nd_object_release(result);
    return status;
}
