// The options of pooling, read and checked: one form for one, two and three axes.
#ifndef ND_LIB_OPS_POOL_H
#define ND_LIB_OPS_POOL_H
#include "kernels/windows.h"
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// What a program asked for, by axis of three.
typedef struct nd__pool_options {
    int64_t kernel[ND_WINDOW_AXES], stride[ND_WINDOW_AXES], padding[ND_WINDOW_AXES],
        dilation[ND_WINDOW_AXES];
    bool ceil_mode, count_include_pad; ///< the second of means alone
    int64_t divisor;                   ///< of means alone
} nd__pool_options;

// Each reads the options that a program gave to an operation, or to a module that holds them. A
// stride of 0 becomes the kernel's size. Errors as in lib/base/versioned.h, and
// ND_ERROR_INVALID_ARGUMENT for a number that no pooling can have; then nothing is written.
// ret_options may be NULL.
nd_status nd__pool_max1d_options(const char *name, const nd_max_pool1d_options *options,
                                 nd__pool_options *ret_options);
nd_status nd__pool_max2d_options(const char *name, const nd_max_pool2d_options *options,
                                 nd__pool_options *ret_options);
nd_status nd__pool_max3d_options(const char *name, const nd_max_pool3d_options *options,
                                 nd__pool_options *ret_options);
nd_status nd__pool_avg1d_options(const char *name, const nd_avg_pool1d_options *options,
                                 nd__pool_options *ret_options);
nd_status nd__pool_avg2d_options(const char *name, const nd_avg_pool2d_options *options,
                                 nd__pool_options *ret_options);
nd_status nd__pool_avg3d_options(const char *name, const nd_avg_pool3d_options *options,
                                 nd__pool_options *ret_options);

/// The gradient of max_pool's x, of that shape, unrecorded, from that of its result and its positions, with
/// the node's numbers. ND_ERROR_UNSUPPORTED without an error where the device has no kernel.
nd_status nd__pool_max_grad(const nd_tensor *grad, const nd_tensor *positions,
                            const nd_op_attrs *attrs, const int64_t *shape, nd_tensor **ret_grad);
#endif
