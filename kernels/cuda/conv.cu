// CONV and POOL, computed directly from their definition on contiguous NCHW tensors.
//
// These are right rather than fast: one thread per element of the result, or a group of threads per
// element of a weight gradient, whose sum runs over the whole batch.
#include "kernels/cuda/arithmetic.cuh"

namespace nd_cuda {

/// Sizes of a convolution, in the order in which the call lists them.
struct ConvSizes {
    int64_t n, ci, h, w, co, kh, kw, stride, padding, oh, ow;

    explicit ConvSizes(const int64_t i[])
        : n(i[0]), ci(i[1]), h(i[2]), w(i[3]), co(i[4]), kh(i[5]), kw(i[6]), stride(i[7]),
          padding(i[8]), oh(i[9]), ow(i[10]) {
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
        int64_t column = next_position(&rest, s.ow) * s.stride - s.padding;
        int64_t row = next_position(&rest, s.oh) * s.stride - s.padding;
        int64_t channel = next_position(&rest, s.co);
        const T *image = x + rest * s.ci * s.h * s.w;
        const T *filter = weight + channel * s.ci * s.kh * s.kw;
        T sum = 0;
        for (int64_t input = 0; input < s.ci; input++)
            for (int64_t i = 0; i < s.kh; i++)
                for (int64_t j = 0; j < s.kw; j++) {
                    int64_t y = row + i, z = column + j;
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
        int64_t column = next_position(&rest, s.w) + s.padding;
        int64_t row = next_position(&rest, s.h) + s.padding;
        int64_t input = next_position(&rest, s.ci);
        const T *image = grad + rest * s.co * s.oh * s.ow;
        T sum = 0;
        for (int64_t i = 0; i < s.kh; i++)
            for (int64_t j = 0; j < s.kw; j++) {
                // The result's position whose window holds this element at (i, j), if there is one.
                int64_t y = row - i, z = column - j;
                if (y < 0 || z < 0 || y % s.stride != 0 || z % s.stride != 0)
                    continue;
                y /= s.stride;
                z /= s.stride;
                if (y >= s.oh || z >= s.ow)
                    continue;
                for (int64_t channel = 0; channel < s.co; channel++)
                    sum += image[(channel * s.oh + y) * s.ow + z] *
                           weight[((channel * s.ci + input) * s.kh + i) * s.kw + j];
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
        int64_t input = next_position(&rest, s.ci), channel = rest;
        int64_t positions = s.n * s.oh * s.ow;
        T sum = 0;
        for (int64_t position = lane; position < positions; position += lanes) {
            int64_t batch = position;
            int64_t column = next_position(&batch, s.ow), row = next_position(&batch, s.oh);
            int64_t y = row * s.stride - s.padding + i, z = column * s.stride - s.padding + j;
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
    ConvSizes s(call->attrs.i);
    T *out = (T *)call->operand[0].data;
    const T *a = (const T *)call->operand[1].data, *b = (const T *)call->operand[2].data;
    switch (call->op) {
    case ND_OP_conv2d:
        return run_elements(queue, s.n * s.co * s.oh * s.ow, Conv<T>{a, b, out, s});
    case ND_OP_conv2d_grad_input:
        return run_elements(queue, s.n * s.ci * s.h * s.w, ConvGradInput<T>{a, b, out, s});
    case ND_OP_conv2d_grad_weight:
        return run_groups(queue, s.co * s.ci * s.kh * s.kw,
                          GroupShape{lanes_for(s.n * s.oh * s.ow), true},
                          ConvGradWeight<T>{a, b, out, s});
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

template <class T> struct MaxPool {
    const T *x;
    T *out;
    int64_t *positions;
    int64_t h, w, kernel, stride, oh, ow;

    ND_BOTH void operator()(int64_t index) const {
        int64_t plane = index;
        int64_t column = next_position(&plane, ow) * stride;
        int64_t row = next_position(&plane, oh) * stride;
        const T *image = x + plane * h * w;
        int64_t best = row * w + column;
        for (int64_t i = 0; i < kernel; i++)
            for (int64_t j = 0; j < kernel; j++) {
                int64_t position = (row + i) * w + column + j;
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
    const int64_t *i = call->attrs.i;
    return run_elements(queue, i[0] * i[1] * i[6] * i[7],
                        MaxPool<T>{(const T *)call->operand[2].data, (T *)call->operand[0].data,
                                   (int64_t *)call->operand[1].data, i[2], i[3], i[4], i[5], i[6],
                                   i[7]});
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
