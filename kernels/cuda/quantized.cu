// QUANTIZED: a product with a weight of 8 and 4 bits, read as it lies.
//
// A group of threads computes one result: each takes every so many elements of a row of x and of
// the weight.
#include "kernels/cuda/erased.cuh"

namespace nd_cuda {

template <class T> struct QuantizedProduct {
    typedef T State;
    T *out;
    const T *x;
    const void *values;
    Erased<float> scales, zeros; ///< zeros.x may be NULL
    bool packed;
    int64_t n, k, group;

    /// Element of the weight, before its scale and without its zero.
    ND_BOTH T integer(int64_t index) const {
        if (!packed)
            return (T)((const int8_t *)values)[index];
        int byte = ((const uint8_t *)values)[index / 2];
        return (T)(index % 2 ? byte >> 4 : byte & 15);
    }
    ND_BOTH State accumulate(int64_t result, int lane, int lanes) const {
        int64_t row = result / n, column = result - row * n, groups = k / group;
        State sum = 0;
        for (int64_t position = lane; position < k; position += lanes) {
            int64_t index = column * groups + position / group;
            T zero = zeros.x ? (T)zeros.at(index) : packed ? (T)8 : (T)0;
            T weight = (integer(column * k + position) - zero) * (T)scales.at(index);
            sum += x[row * k + position] * weight;
        }
        return sum;
    }
    ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t result, int lane, int, State sum) const {
        if (lane == 0)
            out[result] = sum;
    }
};

template <class T>
static nd_status run_quantized(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    nd_dtype dtype = call->operand[3].dtype;
    const void *zeros = call->noperands > 4 ? call->operand[4].data : NULL;
    QuantizedProduct<T> body{(T *)call->operand[0].data,
                             (const T *)call->operand[1].data,
                             call->operand[2].data,
                             Erased<float>{call->operand[3].data, dtype},
                             Erased<float>{zeros, dtype},
                             call->operand[2].dtype == ND_U8,
                             i[1],
                             i[2],
                             i[3]};
    return run_groups(queue, i[0] * i[1], GroupShape{lanes_for(i[2]), true}, body);
}

} // namespace nd_cuda

nd_status nd__cuda_quantized(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    switch (call->operand[0].dtype) {
    case ND_F32:
        return run_quantized<float>(queue, call);
    case ND_F64:
        return run_quantized<double>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
