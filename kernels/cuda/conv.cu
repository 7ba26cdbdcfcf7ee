// CONV and POOL, computed directly from their definition on contiguous NCHW tensors.
//
// These are right rather than fast: one thread per element of the result, or a group of threads per
// element of a weight gradient, whose sum runs over the whole batch.
#include "kernels/cuda/arithmetic.cuh"

namespace nd_cuda {

/// Sizes of a convolution. Of the channels, gi and go belong to one group. Where h and w have a
/// number each, it ends in y and x.
struct ConvSizes {
    int64_t n, ci, h, w, co, kh, kw, stride_y, stride_x, padding_y, padding_x, dilation_y,
        dilation_x, gi, go, oh, ow;

    explicit ConvSizes(const nd_kernel_call *call)
        : n(call->shape[0]), ci(call->shape[1]), h(call->shape[2]), w(call->shape[3]),
          co(call->shape[4]), kh(call->shape[5]), kw(call->shape[6]), stride_y(call->attrs.i[0]),
          stride_x(call->attrs.i[1]), padding_y(call->attrs.i[2]), padding_x(call->attrs.i[3]),
          dilation_y(call->attrs.i[4]), dilation_x(call->attrs.i[5]),
          gi(call->shape[1] / call->attrs.i[6]), go(call->shape[4] / call->attrs.i[6]),
          oh(call->attrs.i[7]), ow(call->attrs.i[8]) {
    }
};

/// Splits off the position along the innermost axis.
ND_BOTH int64_t next_position(int64_t *rest, int64_t size) {
    int64_t quotient = *rest / size;
    int64_t position = *rest - quotient * size;
    *rest = quotient;
    return position;
}

template <class T> struct Conv {
    const T *x, *weight;
    T *out;
    ConvSizes s;

    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index;
        int64_t column = next_position(&rest, s.ow) * s.stride_x - s.padding_x;
        int64_t row = next_position(&rest, s.oh) * s.stride_y - s.padding_y;
        int64_t channel = next_position(&rest, s.co);
        const T *image = x + (rest * s.ci + channel / s.go * s.gi) * s.h * s.w;
        const T *filter = weight + channel * s.gi * s.kh * s.kw;
        T sum = 0;
        for (int64_t input = 0; input < s.gi; input++)
            for (int64_t i = 0; i < s.kh; i++)
                for (int64_t j = 0; j < s.kw; j++) {
                    int64_t y = row + i * s.dilation_y, z = column + j * s.dilation_x;
                    if (y >= 0 && y < s.h && z >= 0 && z < s.w)
                        sum += image[(input * s.h + y) * s.w + z] *
                               filter[(input * s.kh + i) * s.kw + j];
                }
        out[index] = sum;
    }
};

template <class T> struct ConvGradInput {
    const T *grad, *weight;
    T *out;
    ConvSizes s;

    ND_BOTH void operator()(int64_t index) const {
        int64_t rest = index;
        int64_t column = next_position(&rest, s.w) + s.padding_x;
        int64_t row = next_position(&rest, s.h) + s.padding_y;
        int64_t input = next_position(&rest, s.ci), first = input / s.gi * s.go;
        const T *image = grad + (rest * s.co + first) * s.oh * s.ow;
        const T *filters = weight + (first * s.gi + input % s.gi) * s.kh * s.kw;
        T sum = 0;
        for (int64_t i = 0; i < s.kh; i++)
            for (int64_t j = 0; j < s.kw; j++) {
                // The result's position whose window holds this element at (i, j), if there is one.
                int64_t y = row - i * s.dilation_y, z = column - j * s.dilation_x;
                if (y < 0 || z < 0 || y % s.stride_y != 0 || z % s.stride_x != 0)
                    continue;
                y /= s.stride_y;
                z /= s.stride_x;
                if (y >= s.oh || z >= s.ow)
                    continue;
                for (int64_t channel = 0; channel < s.go; channel++)
                    sum += image[(channel * s.oh + y) * s.ow + z] *
                           filters[(channel * s.gi * s.kh + i) * s.kw + j];
            }
        out[index] = sum;
    }
};

template <class T> struct ConvGradWeight {
    typedef T State;
    const T *x, *grad;
    T *out;
    ConvSizes s;

    ND_BOTH T accumulate(int64_t index, int lane, int lanes) const {
        int64_t rest = index;
        int64_t j = next_position(&rest, s.kw), i = next_position(&rest, s.kh);
        int64_t input = next_position(&rest, s.gi), channel = rest;
        input += channel / s.go * s.gi;
        int64_t positions = s.n * s.oh * s.ow;
        T sum = 0;
        for (int64_t position = lane; position < positions; position += lanes) {
            int64_t batch = position;
            int64_t column = next_position(&batch, s.ow), row = next_position(&batch, s.oh);
            int64_t y = row * s.stride_y - s.padding_y + i * s.dilation_y;
            int64_t z = column * s.stride_x - s.padding_x + j * s.dilation_x;
            if (y >= 0 && y < s.h && z >= 0 && z < s.w)
                sum += x[((batch * s.ci + input) * s.h + y) * s.w + z] *
                       grad[((batch * s.co + channel) * s.oh + row) * s.ow + column];
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

template <class T>
static nd_status run_conv(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    ConvSizes s(call);
    T *out = (T *)call->operand[0].data;
    const T *a = (const T *)call->operand[1].data, *b = (const T *)call->operand[2].data;
    switch (call->op) {
    case ND_OP_conv2d:
        return run_elements(queue, s.n * s.co * s.oh * s.ow, Conv<T>{a, b, out, s});
    case ND_OP_conv2d_grad_input:
        return run_elements(queue, s.n * s.ci * s.h * s.w, ConvGradInput<T>{a, b, out, s});
    case ND_OP_conv2d_grad_weight:
        return run_groups(queue, s.co * s.gi * s.kh * s.kw,
                          GroupShape{lanes_for(s.n * s.oh * s.ow), true},
                          ConvGradWeight<T>{a, b, out, s});
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

/// A window along one axis, `dilation` between its places.
struct PoolAxis {
    int64_t size, kernel, stride, padding, dilation, out;

    PoolAxis(const nd_kernel_call *call, int axis)
        : size(call->shape[2 + axis]), kernel(call->attrs.i[axis]), stride(call->attrs.i[2 + axis]),
          padding(call->attrs.i[4 + axis]), dilation(call->attrs.i[6 + axis]),
          out(call->attrs.i[8 + axis]) {
    }
    /// Which of a window's places there are, in x: from *first, below *end.
    ND_BOTH void reach(int64_t window, int64_t *first, int64_t *end) const {
        *first = window * stride - padding;
        *end = *first + dilation * (kernel - 1) + 1;
        if (*first < 0)
            *first = dilation - 1 - (-*first - 1) % dilation;
        if (*end > size)
            *end = size;
    }
};

template <class T> struct MaxPool {
    const T *x;
    T *out;
    int64_t *positions;
    PoolAxis high, wide;

    ND_BOTH void operator()(int64_t index) const {
        int64_t plane = index, left, right, top, bottom;
        wide.reach(next_position(&plane, wide.out), &left, &right);
        high.reach(next_position(&plane, high.out), &top, &bottom);
        const T *image = x + plane * high.size * wide.size;
        int64_t best = top * wide.size + left;
        for (int64_t y = top; y < bottom; y += high.dilation)
            for (int64_t z = left; z < right; z += wide.dilation) {
                int64_t position = y * wide.size + z;
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
    PoolAxis high(call, 0), wide(call, 1);
    return run_elements(queue, call->shape[0] * call->shape[1] * high.out * wide.out,
                        MaxPool<T>{(const T *)call->operand[2].data, (T *)call->operand[0].data,
                                   (int64_t *)call->operand[1].data, high, wide});
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
