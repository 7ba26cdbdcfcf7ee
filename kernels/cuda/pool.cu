// Unfold and fold (of CONV), POOL and RESAMPLE on contiguous tensors: one thread per element of the
// result, neighbours writing beside each other.
#include "kernels/cuda/walk.cuh"
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

/// Division by one number, by multiplication where both have at most 31 bits.
struct Quotient {
    int64_t by;
    bool narrow;
    Divider divider;

    Quotient(int64_t divisor, int64_t most) : by(divisor), narrow(false), divider() {
        const int64_t end = (int64_t)1 << 31;
        if (divisor < 1 || divisor >= end || most >= end)
            return;
        narrow = true;
        divider.set((uint32_t)divisor);
    }
    ND_BOTH int64_t of(int64_t n) const {
        return narrow ? (int64_t)divider.divide((uint32_t)n) : n / by;
    }
};

/// The windows of one axis that can hold a place; those of a dilated kernel may pass over it.
struct Covering {
    nd__pool_axis axis;
    Quotient by_size, by_stride;

    Covering(const nd__pool_axis &of, int64_t numbers)
        : axis(of), by_size(of.size, larger_of(numbers, (of.size + 1) * (of.out + 1))),
          by_stride(of.stride, of.size + of.padding + of.stride) {
    }
    static int64_t larger_of(int64_t a, int64_t b) {
        return a > b ? a : b;
    }
    ND_BOTH void windows(int64_t place, int64_t *ret_first, int64_t *ret_last) const {
        if (axis.kernel == 0) {
            *ret_first = by_size.of(place * axis.out);
            *ret_last = by_size.of((place + 1) * axis.out + axis.size - 1) - 1;
            return;
        }
        int64_t end = place + axis.padding, begin = end - axis.dilation * (axis.kernel - 1);
        int64_t last = by_stride.of(end);
        *ret_first = begin > 0 ? by_stride.of(begin + axis.stride - 1) : 0;
        *ret_last = last < axis.out ? last : axis.out - 1;
    }
};

/// An element of x: the sum of the gradients of the windows whose largest it is, in their order.
template <class T> struct MaxPoolGrad {
    const T *grad;
    const int64_t *positions;
    T *out;
    Covering deep, high, wide;

    ND_BOTH static int64_t split(int64_t *rest, const Covering &along) {
        int64_t quotient = along.by_size.of(*rest), position = *rest - quotient * along.axis.size;
        *rest = quotient;
        return position;
    }
    ND_BOTH void operator()(int64_t index) const {
        int64_t plane = index, left, right, top, bottom, front, back;
        const int64_t z = split(&plane, wide), y = split(&plane, high), d = split(&plane, deep);
        const int64_t position = (d * high.axis.size + y) * wide.axis.size + z;
        wide.windows(z, &left, &right);
        high.windows(y, &top, &bottom);
        deep.windows(d, &front, &back);
        T sum = 0;
        for (int64_t a = front; a <= back; a++)
            for (int64_t b = top; b <= bottom; b++)
                for (int64_t c = left; c <= right; c++) {
                    int64_t window =
                        ((plane * deep.axis.out + a) * high.axis.out + b) * wide.axis.out + c;
                    if (positions[window] == position)
                        sum += grad[window];
                }
        out[index] = sum;
    }
};

template <class T>
static nd_status run_pool(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    nd__pool_axis deep = nd__pool_axis_of(call, 0), high = nd__pool_axis_of(call, 1),
                  wide = nd__pool_axis_of(call, 2);
    if (call->op == ND_OP_max_pool_grad) {
        const int64_t numbers = call->shape[0] * deep.size * high.size * wide.size;
        return run_elements(queue, numbers,
                            MaxPoolGrad<T>{(const T *)call->operand[2].data,
                                           (const int64_t *)call->operand[1].data,
                                           (T *)call->operand[0].data, Covering(deep, numbers),
                                           Covering(high, numbers), Covering(wide, numbers)});
    }
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
