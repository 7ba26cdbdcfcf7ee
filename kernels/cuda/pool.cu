// Unfold and fold (of CONV), POOL and RESAMPLE on contiguous tensors: one thread per element of the
// result, neighbours writing beside each other.
#include "kernels/cuda/window.cuh"

namespace nd_cuda {

/// An element of the matrix of windows.
template <class T> struct Unfold {
    const T *x;
    T *out;
    ConvSizes c;

    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index, place, from[ND_WINDOW_AXES];
        const int64_t result = next_position(&rest, c.plane);
        for (int axis = ND_WINDOW_AXES - 1; axis >= 0; axis--)
            from[axis] =
                next_position(&rest, c.s.kernel[axis]) * c.s.dilation[axis] - c.s.padding[axis];
        out[index] = c.place(result, from, &place) ? x[rest * c.image + place] : T(0);
    }
};

/// An element of x: the sum of all that windows have of it.
template <class T> struct Fold {
    const T *matrix;
    T *out;
    ConvSizes c;

    ND_BOTH void operator()(int64_t index) const {
        int64_t channel = index;
        const int64_t place = next_position(&channel, c.image);
        T sum = 0;
        c.each_result(place, [&](int64_t tap, int64_t result) {
            sum += matrix[(channel * c.window + tap) * c.plane + result];
        });
        out[index] = sum;
    }
};

template <class T>
static nd_status run_unfolding(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    ConvSizes c(call);
    T *out = (T *)call->operand[0].data;
    const T *in = (const T *)call->operand[1].data;
    if (call->op == ND_OP_unfold)
        return run_elements(queue, c.s.n * c.s.ci * c.window * c.plane, Unfold<T>{in, out, c});
    return run_elements(queue, c.s.n * c.s.ci * c.image, Fold<T>{in, out, c});
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

nd_status nd__cuda_unfold(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_unfolding<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_unfolding<double>(queue, call);
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
    if (call->attrs.i[0] == ND__RESAMPLE_WINDOWS)
        return ND_ERROR_UNSUPPORTED;
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_resample<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_resample<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}
