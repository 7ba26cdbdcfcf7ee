// CONV, POOL and RESAMPLE, computed directly from their definition on contiguous tensors.
//
// These are right rather than fast: one thread per element of the result, or a group of threads per
// element of a weight gradient, whose sum runs over the whole batch.
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/windows.h"

namespace nd_cuda {

/// Splits off the position along the innermost axis.
ND_BOTH int64_t next_position(int64_t *rest, int64_t size) {
    int64_t quotient = *rest / size;
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
    /// The place in a channel of x that a result's window has at `tap`; false: it is outside.
    ND_BOTH bool place(int64_t result, int64_t tap, int64_t *ret_place) const {
        int64_t at[ND_WINDOW_AXES];
        for (int axis = ND_WINDOW_AXES - 1; axis >= 0; axis--) {
            at[axis] = next_position(&result, s.y[axis]) * s.stride[axis] - s.padding[axis] +
                       next_position(&tap, s.kernel[axis]) * s.dilation[axis];
            if (at[axis] < 0 || at[axis] >= s.x[axis])
                return false;
        }
        *ret_place = (at[0] * s.x[1] + at[1]) * s.x[2] + at[2];
        return true;
    }
    /// The result whose window has that place of x at `tap`, if there is one.
    ND_BOTH bool result(int64_t place, int64_t tap, int64_t *ret_result) const {
        int64_t at[ND_WINDOW_AXES];
        for (int axis = ND_WINDOW_AXES - 1; axis >= 0; axis--) {
            int64_t from = next_position(&place, s.x[axis]) + s.padding[axis] -
                           next_position(&tap, s.kernel[axis]) * s.dilation[axis];
            at[axis] = from / s.stride[axis];
            if (from < 0 || from % s.stride[axis] != 0 || at[axis] >= s.y[axis])
                return false;
        }
        *ret_result = (at[0] * s.y[1] + at[1]) * s.y[2] + at[2];
        return true;
    }
};

template <class T> struct Conv {
    const T *x, *weight;
    T *out;
    ConvSizes c;

    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index, place;
        int64_t result = next_position(&rest, c.plane);
        int64_t channel = next_position(&rest, c.s.co);
        const T *images = x + (rest * c.s.ci + channel / c.go * c.gi) * c.image;
        const T *filters = weight + channel * c.gi * c.window;
        T sum = 0;
        for (int64_t tap = 0; tap < c.window; tap++)
            if (c.place(result, tap, &place))
                for (int64_t input = 0; input < c.gi; input++)
                    sum += images[input * c.image + place] * filters[input * c.window + tap];
        out[index] = sum;
    }
};

template <class T> struct ConvGradInput {
    const T *grad, *weight;
    T *out;
    ConvSizes c;

    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index, result;
        int64_t place = next_position(&rest, c.image);
        int64_t input = next_position(&rest, c.s.ci), first = input / c.gi * c.go;
        const T *planes = grad + (rest * c.s.co + first) * c.plane;
        const T *filters = weight + (first * c.gi + input % c.gi) * c.window;
        T sum = 0;
        for (int64_t tap = 0; tap < c.window; tap++)
            if (c.result(place, tap, &result))
                for (int64_t channel = 0; channel < c.go; channel++)
                    sum += planes[channel * c.plane + result] *
                           filters[channel * c.gi * c.window + tap];
        out[index] = sum;
    }
};

template <class T> struct ConvGradWeight {
    typedef T State;
    const T *x, *grad;
    T *out;
    ConvSizes c;

    ND_BOTH T accumulate(int64_t index, int lane, int lanes) const {
        int64_t rest = index, place;
        int64_t tap = next_position(&rest, c.window), input = next_position(&rest, c.gi);
        int64_t channel = rest;
        input += channel / c.go * c.gi;
        T sum = 0;
        for (int64_t position = lane; position < c.s.n * c.plane; position += lanes) {
            int64_t batch = position;
            int64_t result = next_position(&batch, c.plane);
            if (c.place(result, tap, &place))
                sum += x[(batch * c.s.ci + input) * c.image + place] *
                       grad[(batch * c.s.co + channel) * c.plane + result];
        }
        return sum;
    }
    ND_BOTH T combine(T a, T b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t index, int lane, int, T sum) const {
        if (lane == 0)
            out[index] = sum;
    }
};

/// An element of the matrix of windows.
template <class T> struct Unfold {
    const T *x;
    T *out;
    ConvSizes c;

    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index, place;
        int64_t result = next_position(&rest, c.plane), tap = next_position(&rest, c.window);
        out[index] = c.place(result, tap, &place) ? x[rest * c.image + place] : T(0);
    }
};

/// An element of x: the sum of all that windows have of it.
template <class T> struct Fold {
    const T *matrix;
    T *out;
    ConvSizes c;

    ND_BOTH void operator()(int64_t index) const {
        int64_t channel = index, result;
        int64_t place = next_position(&channel, c.image);
        T sum = 0;
        for (int64_t tap = 0; tap < c.window; tap++)
            if (c.result(place, tap, &result))
                sum += matrix[(channel * c.window + tap) * c.plane + result];
        out[index] = sum;
    }
};

template <class T>
static nd_status run_conv(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    ConvSizes c(call);
    T *out = (T *)call->operand[0].data;
    const T *a = (const T *)call->operand[1].data, *b = (const T *)call->operand[2].data;
    switch (call->op) {
    case ND_OP_conv:
        return run_elements(queue, c.s.n * c.s.co * c.plane, Conv<T>{a, b, out, c});
    case ND_OP_conv_grad_input:
        return run_elements(queue, c.s.n * c.s.ci * c.image, ConvGradInput<T>{a, b, out, c});
    case ND_OP_conv_grad_weight:
        return run_groups(queue, c.s.co * c.gi * c.window,
                          GroupShape{lanes_for(c.s.n * c.plane), true},
                          ConvGradWeight<T>{a, b, out, c});
    case ND_OP_unfold:
        return run_elements(queue, c.s.n * c.s.ci * c.window * c.plane, Unfold<T>{a, out, c});
    case ND_OP_fold:
        return run_elements(queue, c.s.n * c.s.ci * c.image, Fold<T>{a, out, c});
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

template <class T> struct MaxPool {
    const T *x;
    T *out;
    int64_t *positions;
    nd__pool_axis deep, high, wide;

    ND_BOTH void operator()(int64_t index) const {
        int64_t plane = index, left, right, top, bottom, front, back;
        nd__pool_axis_reach(&wide, next_position(&plane, wide.out), &left, &right);
        nd__pool_axis_reach(&high, next_position(&plane, high.out), &top, &bottom);
        nd__pool_axis_reach(&deep, next_position(&plane, deep.out), &front, &back);
        const T *image = x + plane * deep.size * high.size * wide.size;
        int64_t best = (front * high.size + top) * wide.size + left;
        for (int64_t d = front; d < back; d += deep.dilation)
            for (int64_t y = top; y < bottom; y += high.dilation)
                for (int64_t z = left; z < right; z += wide.dilation) {
                    int64_t position = (d * high.size + y) * wide.size + z;
                    if (image[position] > image[best] ||
                        (is_nan(image[position]) && !is_nan(image[best])))
                        best = position;
                }
        out[index] = image[best];
        positions[index] = best;
    }
};

template <class T>
static nd_status run_pool(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    nd__pool_axis deep = nd__pool_axis_of(call, 0), high = nd__pool_axis_of(call, 1),
                  wide = nd__pool_axis_of(call, 2);
    return run_elements(queue, call->shape[0] * deep.out * high.out * wide.out,
                        MaxPool<T>{(const T *)call->operand[2].data, (T *)call->operand[0].data,
                                   (int64_t *)call->operand[1].data, deep, high, wide});
}

template <class T> struct Resample {
    const T *x;
    T *out;
    nd__resample_axis axis;

    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index;
        int64_t column = next_position(&rest, axis.inner), o = next_position(&rest, axis.out);
        nd__resample_taps taps = nd__resample_taps_of(&axis, o);
        const T *from = x + (rest * axis.in + taps.first) * axis.inner + column;
        T sum = 0;
        for (int64_t j = 0; j < taps.count; j++)
            sum += from[j * axis.inner] * (taps.even ? T(1) : T(taps.weight[j]));
        out[index] = taps.even ? sum / T(taps.weight[0]) : sum;
    }
};

template <class T> struct ResampleAdjoint {
    const T *grad;
    T *out;
    nd__resample_axis axis;

    /// The first result that reaches as far as element i.
    ND_BOTH int64_t first_with(int64_t i) const {
        int64_t low = 0, high = axis.out;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            nd__resample_taps taps = nd__resample_taps_of(&axis, middle);
            if (taps.first + taps.count > i)
                high = middle;
            else
                low = middle + 1;
        }
        return low;
    }
    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index;
        int64_t column = next_position(&rest, axis.inner), i = next_position(&rest, axis.in);
        T sum = 0;
        for (int64_t o = first_with(i); o < axis.out; o++) {
            nd__resample_taps taps = nd__resample_taps_of(&axis, o);
            if (taps.first > i)
                break;
            T g = grad[(rest * axis.out + o) * axis.inner + column];
            sum += taps.even ? g / T(taps.weight[0]) : g * T(taps.weight[i - taps.first]);
        }
        out[index] = sum;
    }
};

template <class T>
static nd_status run_resample(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    nd__resample_axis axis = nd__resample_axis_of(call);
    T *out = (T *)call->operand[0].data;
    const T *in = (const T *)call->operand[1].data;
    if (call->op == ND_OP_resample)
        return run_elements(queue, axis.outer * axis.out * axis.inner, Resample<T>{in, out, axis});
    return run_elements(queue, axis.outer * axis.in * axis.inner,
                        ResampleAdjoint<T>{in, out, axis});
}

} // namespace nd_cuda

nd_status nd__cuda_conv(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_conv<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_conv<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}

nd_status nd__cuda_pool(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_pool<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_pool<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}

nd_status nd__cuda_resample(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_resample<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_resample<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}
