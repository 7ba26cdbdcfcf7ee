// Shapes and strides: checks, broadcasting, texts. No memory is touched here.
//
// A shape that passed nd__shape_check has sizes >= 0 whose product, zero sizes taken as one, fits
// int64 in elements and in bytes; so no arithmetic on it overflows afterwards.
#include "lib/tensor/shape.h"
#include "lib/base/error.h"
#include "lib/tensor/tensor.h"
#include <stdio.h>

/// Says what is wrong with a shape that nd__shape_check found impossible. Apart, because the text's
/// buffer would cost every shape that is fine.
__attribute__((cold, noinline)) static nd_status
refuse_shape(const char *operation, int ndim, const int64_t *shape, nd_dtype dtype) {
    if ((unsigned)dtype >= ND_DTYPE_COUNT)
        return nd__error(ND_ERROR_DTYPE, "%s: there is no dtype %d", operation, (int)dtype);
    if (ndim < 0 || ndim > ND_MAX_DIMS)
        return nd__error(ND_ERROR_SHAPE, "%s: %d dimensions were asked for; 0 to %d are possible",
                         operation, ndim, ND_MAX_DIMS);
    if (!shape)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: shape is NULL", operation);
    char text[ND__SHAPE_TEXT];
    nd__shape_text(text, ndim, shape);
    for (int i = 0; i < ndim; i++)
        if (shape[i] < 0)
            return nd__error(ND_ERROR_SHAPE, "%s: shape %s has a negative size", operation, text);
    return nd__error(ND_ERROR_SHAPE, "%s: shape %s of %s has too many elements or bytes", operation,
                     text, nd_dtype_get_name(dtype));
}

nd_status nd__shape_check(const char *operation, int ndim, const int64_t *shape, nd_dtype dtype,
                          int64_t *ret_numel) {
    bool wrong =
        (unsigned)dtype >= ND_DTYPE_COUNT || (unsigned)ndim > ND_MAX_DIMS || (ndim > 0 && !shape);
    if (__builtin_expect(wrong, 0))
        return refuse_shape(operation, ndim, shape, dtype);
    int64_t span = nd__dtype_bytes[dtype], numel = 1;
    for (int i = 0; i < ndim; i++) {
        wrong |= shape[i] < 0;
        wrong |= __builtin_mul_overflow(span, shape[i] == 0 ? 1 : shape[i], &span);
        // Cannot overflow unless span has.
        numel = (int64_t)((uint64_t)numel * (uint64_t)shape[i]);
    }
    if (__builtin_expect(wrong, 0))
        return refuse_shape(operation, ndim, shape, dtype);
    *ret_numel = numel;
    return ND_OK;
}

int nd__shape_refuse_axis(const char *operation, int axis, int ndim) {
    nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: axis %d is out of range for %d dimension%s",
              operation, axis, ndim, ndim == 1 ? "" : "s");
    return -1;
}

int nd__shape_broadcast(const char *operation, int andim, const int64_t *ashape, int bndim,
                        const int64_t *bshape, int64_t *ret_shape) {
    int ndim = andim > bndim ? andim : bndim;
    for (int i = 0; i < ndim; i++) {
        int a = i - (ndim - andim), b = i - (ndim - bndim);
        int64_t asize = a < 0 ? 1 : ashape[a], bsize = b < 0 ? 1 : bshape[b];
        if (asize != bsize && asize != 1 && bsize != 1) {
            char atext[ND__SHAPE_TEXT], btext[ND__SHAPE_TEXT];
            nd__error(ND_ERROR_SHAPE, "%s: shapes %s and %s do not broadcast", operation,
                      nd__shape_text(atext, andim, ashape), nd__shape_text(btext, bndim, bshape));
            return -1;
        }
        ret_shape[i] = asize == 1 ? bsize : asize;
    }
    return ndim;
}

const char *nd__shape_text(char *buffer, int ndim, const int64_t *shape) {
    size_t at = 0;
    buffer[at++] = '[';
    for (int i = 0; i < ndim && i < ND_MAX_DIMS; i++)
        at += (size_t)snprintf(buffer + at, ND__SHAPE_TEXT - at, i ? ", %lld" : "%lld",
                               (long long)shape[i]);
    buffer[at++] = ']';
    buffer[at] = '\0';
    return buffer;
}

nd_operand nd__shape_broadcast_operand(const nd_tensor *x, int ndim, const int64_t *shape) {
    nd_operand operand;
    operand.data = x->data;
    operand.dtype = x->dtype;
    int missing = ndim - x->ndim;
    for (int i = 0; i < ndim; i++) {
        bool repeats = i < missing || (x->shape[i - missing] == 1 && shape[i] != 1);
        operand.strides[i] = repeats ? 0 : nd__tensor_strides(x)[i - missing];
    }
    return operand;
}

/// True when axis i of every operand continues axis `last` so that the two are one.
static bool mergeable(const nd_kernel_call *call, int last, int64_t size, const int64_t *strides) {
    for (int k = 0; k < call->noperands; k++)
        if (call->operand[k].strides[last] != size * strides[k])
            return false;
    return true;
}

void nd__shape_collapse(nd_kernel_call *call) {
    int kept = 0;
    for (int i = 0; i < call->ndim; i++) {
        int64_t size = call->shape[i];
        if (size == 1)
            continue;
        int64_t strides[ND_MAX_OPERANDS];
        for (int k = 0; k < call->noperands; k++)
            strides[k] = call->operand[k].strides[i];
        if (kept > 0 && mergeable(call, kept - 1, size, strides))
            call->shape[kept - 1] *= size;
        else
            call->shape[kept++] = size;
        for (int k = 0; k < call->noperands; k++)
            call->operand[k].strides[kept - 1] = strides[k];
    }
    call->ndim = kept;
}
