// The kernels of normalisation, for nd_layer_norm and its kin and for the gradients' rules.
#ifndef ND_LIB_OPS_NORM_H
#define ND_LIB_OPS_NORM_H
#include "lib/tensor/tensor.h"

/// What a NORM call is told (kernels/kernel.h): of x as [samples, channels, places]. A node keeps it,
/// and in i[5] whether there is a weight.
nd_op_attrs nd__norm_attrs(int64_t samples, int64_t channels, int64_t places, int64_t groups,
                           double epsilon, bool centered);

/// The gradients of layer_norm, or with statistics those of channel_norm, unrecorded, where `grad` is
/// that of its result: of x, in its shape, and the sums [2, channels], which are those of weight and
/// bias. Either may be NULL: not wanted. x, weight and statistics, which may both be NULL, are dense;
/// all are of one dtype, f32 or f64, or x of 16 bits, grad as x or f32, and the others of f32. Then the
/// gradient of x may be f32 as well.
nd_status nd__norm_grad(const nd_tensor *grad, const nd_tensor *x, const nd_tensor *weight,
                        const nd_tensor *statistics, const nd_op_attrs *attrs, nd_tensor **ret_grad,
                        nd_tensor **ret_sums);
#endif
