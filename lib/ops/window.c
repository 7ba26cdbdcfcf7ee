#include "lib/ops/window.h"

#include "lib/base/error.h"

nd_status nd__window_check_pair_option(const char *name, const char *option, const int64_t *pair,
                                       int64_t least) {
    for (int axis = 0; axis < 2; axis++)
        if (pair[axis] < least)
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: %s[%d] is %lld and must be at least %lld", name, option, axis,
                             (long long)pair[axis], (long long)least);
    return ND_OK;
}

nd_status nd__window_count(const char *name, int axis, int64_t size, int64_t kernel, int64_t stride,
                           int64_t padding, int64_t dilation, int64_t *ret_count) {
    int64_t padded, span;
    if (__builtin_mul_overflow(padding, (int64_t)2, &padded) ||
        __builtin_add_overflow(padded, size, &padded))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: padding[%d] is %lld, too large for an axis of size %lld", name, axis,
                         (long long)padding, (long long)size);
    bool fits = !__builtin_mul_overflow(dilation, kernel - 1, &span) && span < padded;
    *ret_count = fits ? (padded - span - 1) / stride + 1 : 0;
    return ND_OK;
}
