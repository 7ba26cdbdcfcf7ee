// Where an operation writes its result: a new tensor, or one that the caller owns (<nd/out.h>).
//
// Both forms of an operation are one function that takes `out` (NULL: a new tensor) down to where
// the result is made, and asks nd__out_result for it there, when nothing but memory can fail any
// more. The caller's tensor comes back with one more reference, so that what follows releases one
// or the other alike.
#ifndef ND_LIB_TENSOR_OUT_H
#define ND_LIB_TENSOR_OUT_H
#include "lib/tensor/tensor.h"

/// How the caller's tensor may lie to the operands.
typedef enum nd_out_place {
    ND__OUT_OVER_OPERAND, ///< exactly over one, or apart: element i is made of elements i alone
    ND__OUT_APART,
} nd_out_place;

/// `out`, retained and counted as written, once it is what the result must be and may be written.
/// NULL with an error, and nothing was written.
nd_tensor *nd__out_take(const char *operation, nd_tensor *out, nd_out_place place,
                        const nd_tensor *const *operands, size_t count, nd_device device,
                        nd_dtype dtype, int ndim, const int64_t *shape);

/// What an operation on `operands` (entries may be NULL) writes, and then hands to nd__record or
/// releases: nd__tensor_result() where out is NULL. A new tensor is contiguous, the caller's lies
/// as it will.
static inline nd_tensor *nd__out_result(const char *operation, nd_tensor *out, nd_out_place place,
                                        const nd_tensor *const *operands, size_t count,
                                        nd_device device, nd_dtype dtype, int ndim,
                                        const int64_t *shape) {
    if (__builtin_expect(!out, 1))
        return nd__tensor_result(operation, operands, count, device, dtype, ndim, shape);
    return nd__out_take(operation, out, place, operands, count, device, dtype, ndim, shape);
}

/// The status of a form with `out`, of the result, which it consumes.
static inline nd_status nd__out_status(nd_tensor *result) {
    if (!result)
        return nd_error_get_status();
    nd_object_release(result);
    return ND_OK;
}

/// The value of a form with `out`: `call` is the shared function with out, evaluated when there is
/// one.
#define ND__OUT_FORM(operation, out, call)                                           \
    (nd__tensor_check_operand(operation, "out", out) == ND_OK ? nd__out_status(call) \
                                                              : nd_error_get_status())

/// The tensor that a kernel of contiguous results is given: out, or NULL, for a new one.
static inline nd_tensor *nd__out_dense(nd_tensor *out) {
    return nd__tensor_is_contiguous(out) ? out : NULL;
}

/// Behind such a kernel: the status, with `result` (consumed) copied to out where it is another
/// tensor.
nd_status nd__out_deliver(const char *operation, nd_tensor *result,
                          const nd_tensor *const *operands, size_t count, nd_tensor *out);
#endif
