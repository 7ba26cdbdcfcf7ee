// Windows that move over up to three axes, for C and for CUDA: the numbers of a CONV call and of a
// POOL call by name, and which elements of an axis a result of RESAMPLE is made of.
//
// Invariant: a call has always three axes, depth, height and width; one that a tensor lacks has
// size 1 and a window of 1.
#ifndef ND_KERNELS_WINDOWS_H
#define ND_KERNELS_WINDOWS_H
#include "kernels/kernel.h"
#include <math.h>

#ifdef __CUDACC__
#define ND_WINDOWS_FUNCTION static __host__ __device__ __forceinline__
#else
#define ND_WINDOWS_FUNCTION static inline
#endif

enum { ND_WINDOW_AXES = 3 };

// --------------------------------------------------------------------------------------------------------------- CONV

typedef struct nd__conv_sizes {
    int64_t n, ci, co, groups;
    int64_t x[ND_WINDOW_AXES], kernel[ND_WINDOW_AXES], y[ND_WINDOW_AXES];
    int64_t stride[ND_WINDOW_AXES], padding[ND_WINDOW_AXES], dilation[ND_WINDOW_AXES];
} nd__conv_sizes;

ND_WINDOWS_FUNCTION nd__conv_sizes nd__conv_sizes_of(const nd_kernel_call *call) {
    const int64_t *s = call->shape, *i = call->attrs.i;
    nd__conv_sizes sizes;
    sizes.n = s[0];
    sizes.ci = s[1];
    sizes.groups = i[9];
    sizes.co = i[10];
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        sizes.x[axis] = s[2 + axis];
        sizes.kernel[axis] = s[5 + axis];
        sizes.stride[axis] = i[axis];
        sizes.padding[axis] = i[3 + axis];
        sizes.dilation[axis] = i[6 + axis];
        sizes.y[axis] =
            (s[2 + axis] + 2 * i[3 + axis] - i[6 + axis] * (s[5 + axis] - 1) - 1) / i[axis] + 1;
    }
    return sizes;
}

/// Writes shape[] and attributes of a call from them; y follows.
ND_WINDOWS_FUNCTION void nd__conv_sizes_into(const nd__conv_sizes *sizes,
                                             nd_kernel_call *ret_call) {
    int64_t *s = ret_call->shape, *i = ret_call->attrs.i;
    s[0] = sizes->n;
    s[1] = sizes->ci;
    i[9] = sizes->groups;
    i[10] = sizes->co;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        s[2 + axis] = sizes->x[axis];
        s[5 + axis] = sizes->kernel[axis];
        i[axis] = sizes->stride[axis];
        i[3 + axis] = sizes->padding[axis];
        i[6 + axis] = sizes->dilation[axis];
    }
}

/// Elements of three axes.
ND_WINDOWS_FUNCTION int64_t nd__windows_volume(const int64_t *sizes) {
    return sizes[0] * sizes[1] * sizes[2];
}

// --------------------------------------------------------------------------------------------------------------- POOL

/// The windows of one axis. Kernel 0: adaptive, where `out` windows share the axis as evenly as
/// they can, and some overlap.
typedef struct nd__pool_axis {
    int64_t size, kernel, stride, padding, dilation, out;
} nd__pool_axis;

ND_WINDOWS_FUNCTION nd__pool_axis nd__pool_axis_of(const nd_kernel_call *call, int axis) {
    const int64_t *s = call->shape + 1 + axis, *i = call->attrs.i + axis;
    nd__pool_axis of = {s[0], i[0], i[3], i[6], i[9], s[3]};
    return of;
}

/// Which places of a window there are, in x: from *ret_first, below *ret_end, `dilation` apart.
ND_WINDOWS_FUNCTION void nd__pool_axis_reach(const nd__pool_axis *axis, int64_t window,
                                             int64_t *ret_first, int64_t *ret_end) {
    if (axis->kernel == 0) {
        *ret_first = window * axis->size / axis->out;
        *ret_end = ((window + 1) * axis->size + axis->out - 1) / axis->out;
        return;
    }
    int64_t first = window * axis->stride - axis->padding;
    int64_t end = first + axis->dilation * (axis->kernel - 1) + 1;
    *ret_first = first >= 0 ? first : axis->dilation - 1 - (-first - 1) % axis->dilation;
    *ret_end = end < axis->size ? end : axis->size;
}

// ----------------------------------------------------------------------------------------------------------- RESAMPLE

/// How a result along an axis is made of elements of x.
typedef enum nd__resample_mode {
    ND__RESAMPLE_WINDOW,        ///< mean of a window
    ND__RESAMPLE_ADAPTIVE,      ///< mean of one of `out` windows that share the axis
    ND__RESAMPLE_NEAREST,       ///< the element below the result's left edge
    ND__RESAMPLE_NEAREST_EXACT, ///< the element below the result's centre
    ND__RESAMPLE_LINEAR,        ///< between the two elements beside it
    ND__RESAMPLE_CUBIC,         ///< cubic convolution of the four around it (Keys 1981, a = -0.75)
    ND__RESAMPLE_WINDOWS, ///< mean of a window over all axes at once: nd__resample_windows, where a
                          ///< backend has it
} nd__resample_mode;

enum {
    ND__RESAMPLE_COUNT_PADDING = 1, ///< WINDOW: the divisor counts places of the padding
    ND__RESAMPLE_SUM = 2,           ///< WINDOW: the sum, not the mean
    ND__RESAMPLE_ALIGN_CORNERS =
        4, ///< LINEAR, CUBIC: the first and the last element of x and of the result coincide
};

typedef struct nd__resample_axis {
    nd__resample_mode mode;
    int64_t outer, in, out, inner;
    int64_t kernel, stride, padding, flags;
    double step; ///< from one result to the next, in elements of x; 0: in / out, exactly
} nd__resample_axis;

ND_WINDOWS_FUNCTION nd__resample_axis nd__resample_axis_of(const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    nd__resample_axis axis = {
        (nd__resample_mode)i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], call->attrs.f[0]};
    return axis;
}

/// A RESAMPLE call of mode WINDOWS: x [n, c, in], out [n, c, out], of as many numbers as there are
/// axes, the missing ones in front: shape[0..7] = n, c, in, out; i[1..10] = kernel, stride, padding,
/// flags. Of the adjoint likewise, where what is read has the sizes of out.
typedef struct nd__resample_windows {
    int64_t n, c, in[ND_WINDOW_AXES], out[ND_WINDOW_AXES];
    int64_t kernel[ND_WINDOW_AXES], stride[ND_WINDOW_AXES], padding[ND_WINDOW_AXES];
    bool counts_padding;
} nd__resample_windows;

ND_WINDOWS_FUNCTION nd__resample_windows nd__resample_windows_of(const nd_kernel_call *call) {
    const int64_t *s = call->shape, *i = call->attrs.i + 1;
    nd__resample_windows of = {s[0],
                               s[1],
                               {s[2], s[3], s[4]},
                               {s[5], s[6], s[7]},
                               {i[0], i[1], i[2]},
                               {i[3], i[4], i[5]},
                               {i[6], i[7], i[8]},
                               (i[9] & ND__RESAMPLE_COUNT_PADDING) != 0};
    return of;
}

/// The elements of x that one result is made of: `count` from `first` on. Sum of weight[j] x[first
/// + j], or, where `even`, the sum of x over the divisor weight[0].
typedef struct nd__resample_taps {
    int64_t first, count;
    bool even;
    double weight[4];
} nd__resample_taps;

/// Where the centre of result `o` stands between the centres of x.
ND_WINDOWS_FUNCTION double nd__resample_position(const nd__resample_axis *axis, int64_t o) {
    if (axis->flags & ND__RESAMPLE_ALIGN_CORNERS)
        return axis->out > 1 ? (double)o * ((double)(axis->in - 1) / (double)(axis->out - 1)) : 0;
    double step = axis->step > 0 ? axis->step : (double)axis->in / (double)axis->out;
    return ((double)o + 0.5) * step - 0.5;
}

ND_WINDOWS_FUNCTION int64_t nd__resample_nearest(const nd__resample_axis *axis, int64_t o) {
    bool exact = axis->mode == ND__RESAMPLE_NEAREST_EXACT;
    int64_t at;
    if (axis->step > 0)
        at = (int64_t)floor((exact ? (double)o + 0.5 : (double)o) * axis->step);
    else
        at = exact ? (2 * o + 1) * axis->in / (2 * axis->out) : o * axis->in / axis->out;
    return at < axis->in ? at : axis->in - 1;
}

/// Adds weights for the elements from `at` on, those beyond an end being the end's.
ND_WINDOWS_FUNCTION nd__resample_taps nd__resample_clamped(const nd__resample_axis *axis,
                                                           int64_t at, int count,
                                                           const double *weights) {
    nd__resample_taps taps = {0, 0, false, {0, 0, 0, 0}};
    int64_t last = axis->in - 1;
    taps.first = at < 0 ? 0 : at > last ? last : at;
    for (int j = 0; j < count; j++) {
        int64_t place = at + j < 0 ? 0 : at + j > last ? last : at + j;
        taps.weight[place - taps.first] += weights[j];
        taps.count = place - taps.first + 1;
    }
    return taps;
}

ND_WINDOWS_FUNCTION nd__resample_taps nd__resample_cubic(const nd__resample_axis *axis, int64_t o) {
    const double a = -0.75;
    double position = nd__resample_position(axis, o), below = floor(position), t = position - below;
    double weights[4];
    for (int j = 0; j < 4; j++) {
        double d = j < 2 ? t + (double)(1 - j) : (double)(j - 1) - t; // distance from the tap
        weights[j] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
                            : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
    return nd__resample_clamped(axis, (int64_t)below - 1, 4, weights);
}

ND_WINDOWS_FUNCTION nd__resample_taps nd__resample_window(const nd__resample_axis *axis,
                                                          int64_t o) {
    int64_t begin = o * axis->stride - axis->padding, end = begin + axis->kernel;
    end = end < axis->in + axis->padding ? end : axis->in + axis->padding;
    nd__resample_taps taps = {0, 0, true, {1, 0, 0, 0}};
    int64_t all = end - begin;
    taps.first = begin < 0 ? 0 : begin;
    taps.count = (end < axis->in ? end : axis->in) - taps.first;
    if (!(axis->flags & ND__RESAMPLE_SUM))
        taps.weight[0] = (double)(axis->flags & ND__RESAMPLE_COUNT_PADDING ? all : taps.count);
    return taps;
}

/// What result `o` is made of. `first` and `first + count` never decrease with o.
ND_WINDOWS_FUNCTION nd__resample_taps nd__resample_taps_of(const nd__resample_axis *axis,
                                                           int64_t o) {
    nd__resample_taps taps = {0, 1, true, {1, 0, 0, 0}};
    double position, weights[2];
    switch (axis->mode) {
    case ND__RESAMPLE_WINDOW:
        return nd__resample_window(axis, o);
    case ND__RESAMPLE_ADAPTIVE:
        taps.first = o * axis->in / axis->out;
        taps.count = ((o + 1) * axis->in + axis->out - 1) / axis->out - taps.first;
        taps.weight[0] = (double)taps.count;
        return taps;
    case ND__RESAMPLE_LINEAR:
        position = nd__resample_position(axis, o);
        position = position < 0 ? 0 : position;
        weights[1] = position - floor(position);
        weights[0] = 1 - weights[1];
        return nd__resample_clamped(axis, (int64_t)position, 2, weights);
    case ND__RESAMPLE_CUBIC:
        return nd__resample_cubic(axis, o);
    default:
        taps.first = nd__resample_nearest(axis, o);
        return taps;
    }
}
#endif
