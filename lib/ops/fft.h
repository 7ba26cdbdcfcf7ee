// The transforms that are recorded, which are linear maps along an axis. With the sign, the number
// of results, the scale and the weight free, the adjoint of each is one of them.
//
// What is recorded: i[0] = axis, i[1] = n, i[2] = sign, f[0] = scale, f[1] = weight.
#ifndef ND_LIB_OPS_FFT_H
#define ND_LIB_OPS_FFT_H
#include "lib/tensor/tensor.h"
#include <nd/fft.h>

/// What kernels/cpu/fft.h computes.
typedef struct nd__fft_map {
    nd_op op;
    int axis;       ///< not negative
    int64_t n;      ///< length of the transform
    int64_t places; ///< of the result along the axis
    int sign;
    double scale, weight;
} nd__fft_map;

/// The map of x, f32 or f64 on any device, which it has the axis of.
nd_tensor *nd__fft_along(const char *name, const nd_tensor *x, const nd__fft_map *map);
#endif
