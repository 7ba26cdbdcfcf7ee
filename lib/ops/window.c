#include "lib/ops/window.h"

#include "lib/base/error.h"

#include "kernels/windows.h"

nd_status nd__window_check_option(const char *name, const char *option, int axes,
                                  const int64_t *values, int64_t least) {
    for (int axis = 0; axis < axes; axis++) {
        if (values[axis] >= least)
            continue;
        if (axes == 1)
            return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is %lld and must be at least %lld",
                             name, option, (long long)values[axis], (long long)least);
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s[%d] is %lld and must be at least %lld",
                         name, option, axis, (long long)values[axis], (long long)least);
    }
    return ND_OK;
}

void nd__window_align(int axes, const int64_t *values, int64_t missing, int64_t *ret_three) {
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        int from = axis - (ND_WINDOW_AXES - axes);
        ret_three[axis] = from < 0 ? missing : values[from];
    }
}

nd_status nd__window_count(const char *name, int axis, int64_t size, int64_t kernel, int64_t stride,
                           int64_t padding, int64_t dilation, bool ceil_mode, int64_t *ret_count) {
    int64_t padded, span;
    if (__builtin_mul_overflow(padding, (int64_t)2, &padded) ||
        __builtin_add_overflow(padded, size, &padded))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: padding[%d] is %lld, too large for an axis of size %lld", name, axis,
                         (long long)padding, (long long)size);
    *ret_count = 0;
    if (__builtin_mul_overflow(dilation, kernel - 1, &span))
        return ND_OK;
    int64_t rest = padded - span - 1; // behind the first window
    if (rest >= 0)
        *ret_count = rest / stride + 1;
    if (!ceil_mode)
        return ND_OK;
    if (rest < 0)
        *ret_count = -rest < stride && size + padding > 0;
    else if (rest % stride != 0 && stride < size + padding - (rest - rest % stride))
        ++*ret_count;
    return ND_OK;
}
