// What the kernels of windows share: places along axes, and the sizes of a convolution.
#ifndef ND_KERNELS_CUDA_WINDOW_CUH
#define ND_KERNELS_CUDA_WINDOW_CUH
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/windows.h"

namespace nd_cuda {

/// n / by, in 32 bits where both have no more: a division of 64 is many times as long.
ND_BOTH int64_t quotient_of(int64_t n, int64_t by) {
    if (((uint64_t)n | (uint64_t)by) >> 32 == 0)
        return (int64_t)((uint32_t)n / (uint32_t)by);
    return n / by;
}

/// Splits off the position along the innermost axis.
ND_BOTH int64_t next_position(int64_t *rest, int64_t size) {
    int64_t quotient = quotient_of(*rest, size);
    int64_t position = *rest - quotient * size;
    *rest = quotient;
    return position;
}

/// Sizes of a convolution. Of the channels, gi and go belong to one group.
struct ConvSizes {
    nd__conv_sizes s;
    int64_t gi, go, image, window, plane; ///< elements of one channel: of x, of the weight, of y

    explicit ConvSizes(const nd_kernel_call *call)
        : s(nd__conv_sizes_of(call)), gi(s.ci / s.groups), go(s.co / s.groups),
          image(nd__windows_volume(s.x)), window(nd__windows_volume(s.kernel)),
          plane(nd__windows_volume(s.y)) {
    }
    /// The place in a channel of x that stands `from` behind a result's first place, where windows
    /// are not padded; false: it is outside.
    ND_BOTH bool place(int64_t result, const int64_t *from, int64_t *ret_place) const {
        int64_t place = 0, volume = 1;
        for (int axis = ND_WINDOW_AXES - 1; axis >= 0; axis--) {
            const int64_t at = next_position(&result, s.y[axis]) * s.stride[axis] + from[axis];
            if (at < 0 || at >= s.x[axis])
                return false;
            place += at * volume;
            volume *= s.x[axis];
        }
        *ret_place = place;
        return true;
    }
    /// The result along an axis whose window has at `tap` what is `from` behind the first window's
    /// first place; negative: there is none.
    ND_BOTH int64_t result_along(int axis, int64_t from, int64_t tap) const {
        const int64_t distance = from - tap * s.dilation[axis];
        if (distance < 0)
            return -1;
        const int64_t result =
            s.stride[axis] == 1 ? distance : quotient_of(distance, s.stride[axis]);
        return result * s.stride[axis] == distance && result < s.y[axis] ? result : -1;
    }
    /// use(tap, result) for every window that has that place of x.
    template <class Use> ND_BOTH void each_result(int64_t place, const Use &use) const {
        int64_t from[ND_WINDOW_AXES];
        for (int axis = ND_WINDOW_AXES - 1; axis >= 0; axis--)
            from[axis] = next_position(&place, s.x[axis]) + s.padding[axis];
        for (int64_t z = 0; z < s.kernel[0]; z++) {
            const int64_t deep = result_along(0, from[0], z);
            for (int64_t y = 0; y < s.kernel[1] && deep >= 0; y++) {
                const int64_t high = result_along(1, from[1], y);
                for (int64_t w = 0; w < s.kernel[2] && high >= 0; w++) {
                    const int64_t wide = result_along(2, from[2], w);
                    if (wide >= 0)
                        use((z * s.kernel[1] + y) * s.kernel[2] + w,
                            (deep * s.y[1] + high) * s.y[2] + wide);
                }
            }
        }
    }
};

} // namespace nd_cuda
#endif
