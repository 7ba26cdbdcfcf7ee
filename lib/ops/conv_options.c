#include "lib/ops/conv_options.h"

#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/window.h"

#include <stdio.h>

/// The numbers of an options struct, whose arrays have `axes` entries. One of the last two is NULL.
typedef struct numbers {
    int axes;
    const int64_t *stride, *padding, *dilation;
    int64_t groups;
    const int64_t *extra_padding, *output_padding;
} numbers;

/// Says "option[1]", or "option" where there is one axis.
static const char *option_text(char *buffer, size_t bytes, const numbers *n, const char *option,
                               int axis) {
    if (n->axes == 1)
        snprintf(buffer, bytes, "%s", option);
    else
        snprintf(buffer, bytes, "%s[%d]", option, axis);
    return buffer;
}

static nd_status check_extra(const char *name, const numbers *n) {
    char text[40];
    for (int axis = 0; axis < n->axes; axis++) {
        int64_t behind;
        if (__builtin_add_overflow(n->padding[axis], n->extra_padding[axis], &behind) || behind < 0)
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: %s is %lld; with padding %lld that is no number of zeros", name,
                             option_text(text, sizeof text, n, "extra_padding", axis),
                             (long long)n->extra_padding[axis], (long long)n->padding[axis]);
    }
    return ND_OK;
}

static nd_status check_output_padding(const char *name, const numbers *n) {
    char text[40];
    for (int axis = 0; axis < n->axes; axis++) {
        int64_t output = n->output_padding[axis];
        if (output < 0 || (output >= n->stride[axis] && output >= n->dilation[axis]))
            return nd__error(
                ND_ERROR_INVALID_ARGUMENT,
                "%s: %s is %lld and must be at least 0, and less than the stride, which "
                "is %lld, or the dilation, which is %lld",
                name, option_text(text, sizeof text, n, "output_padding", axis), (long long)output,
                (long long)n->stride[axis], (long long)n->dilation[axis]);
    }
    return ND_OK;
}

static nd_status check(const char *name, const numbers *n) {
    nd_status status = nd__window_check_option(name, "stride", n->axes, n->stride, 1);
    if (status == ND_OK)
        status = nd__window_check_option(name, "padding", n->axes, n->padding, 0);
    if (status == ND_OK)
        status = nd__window_check_option(name, "dilation", n->axes, n->dilation, 1);
    if (status == ND_OK)
        status = nd__window_check_option(name, "groups", 1, &n->groups, 1);
    if (status == ND_OK && n->extra_padding)
        status = check_extra(name, n);
    if (status == ND_OK && n->output_padding)
        status = check_output_padding(name, n);
    return status;
}

static nd_status give(const char *name, const numbers *n, nd__conv_options *ret_options) {
    nd_status status = check(name, n);
    if (status != ND_OK || !ret_options)
        return status;
    *ret_options = (nd__conv_options){.geometry = {.groups = n->groups}};
    nd__window_align(n->axes, n->stride, 1, ret_options->geometry.stride);
    nd__window_align(n->axes, n->padding, 0, ret_options->geometry.padding);
    nd__window_align(n->axes, n->dilation, 1, ret_options->geometry.dilation);
    if (n->extra_padding)
        nd__window_align(n->axes, n->extra_padding, 0, ret_options->extra_padding);
    if (n->output_padding)
        nd__window_align(n->axes, n->output_padding, 0, ret_options->output_padding);
    return ND_OK;
}

// `address` makes a pointer of a field, which is a number where there is one axis and else an
// array.
#define READER(which, TYPE, INIT, count, address, extra, output)                          \
    nd_status nd__conv_options_##which(const char *name, const TYPE *options,             \
                                       nd__conv_options *ret_options) {                   \
        TYPE read = INIT;                                                                 \
        nd_status status = nd__versioned_read(name, #INIT, options, &read, sizeof(TYPE)); \
        const numbers n = {.axes = count,                                                 \
                           .stride = address read.stride,                                 \
                           .padding = address read.padding,                               \
                           .dilation = address read.dilation,                             \
                           .groups = read.groups,                                         \
                           .extra_padding = extra,                                        \
                           .output_padding = output};                                     \
        return status == ND_OK ? give(name, &n, ret_options) : status;                    \
    }
READER(1d, nd_conv1d_options, ND_CONV1D_OPTIONS_INIT, 1, &, &read.extra_padding, NULL)
READER(2d, nd_conv2d_options, ND_CONV2D_OPTIONS_INIT, 2, , read.extra_padding, NULL)
READER(3d, nd_conv3d_options, ND_CONV3D_OPTIONS_INIT, 3, , read.extra_padding, NULL)
READER(transpose1d, nd_conv_transpose1d_options, ND_CONV_TRANSPOSE1D_OPTIONS_INIT, 1, &, NULL,
       &read.output_padding)
READER(transpose2d, nd_conv_transpose2d_options, ND_CONV_TRANSPOSE2D_OPTIONS_INIT, 2, , NULL,
       read.output_padding)
READER(transpose3d, nd_conv_transpose3d_options, ND_CONV_TRANSPOSE3D_OPTIONS_INIT, 3, , NULL,
       read.output_padding)
