// What becomes of the sums of a product: a bias, an activation, rounding, and where they are stored.
#ifndef ND_KERNELS_CUDA_PRODUCT_CUH
#define ND_KERNELS_CUDA_PRODUCT_CUH
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/halves.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

/// Results of type Sum, stored as what they are.
template <class T> struct PlainStore {
    typedef T Sum;
    typedef T Stored;

    explicit PlainStore(nd_dtype) {
    }
    ND_BOTH Stored round(Sum value) const {
        return value;
    }
    ND_BOTH Sum widen(Stored value) const {
        return value;
    }
    ND_BOTH Sum load(const void *data, int64_t index) const {
        return ((const T *)data)[index];
    }
    ND_BOTH void store(void *data, int64_t index, Sum value) const {
        ((T *)data)[index] = value;
    }
};
struct HalfStore {
    typedef float Sum;
    typedef uint16_t Stored;
    HalfFormat format;

    explicit HalfStore(nd_dtype dtype) : format(dtype) {
    }
    ND_BOTH Stored round(Sum value) const {
        return format.store(value);
    }
    ND_BOTH Sum widen(Stored value) const {
        return format.load(value);
    }
    ND_BOTH Sum load(const void *data, int64_t index) const {
        return format.load(((const uint16_t *)data)[index]);
    }
    ND_BOTH void store(void *data, int64_t index, Sum value) const {
        ((uint16_t *)data)[index] = format.store(value);
    }
};
struct IntegerStore {
    typedef uint64_t Sum;
    nd_dtype dtype;

    explicit IntegerStore(nd_dtype of) : dtype(of) {
    }
    ND_BOTH Sum load(const void *data, int64_t index) const {
        return load_as<uint64_t>(data, dtype, index);
    }
    ND_BOTH void store(void *data, int64_t index, Sum value) const {
        store_as(data, dtype, index, value);
    }
};

template <class T> ND_BOTH_CALLED T activated(nd_op activation, T x) {
    switch (activation) {
    case ND_OP_relu:
        return unary_relu<T>{}(x);
    case ND_OP_gelu:
        return unary_gelu<T>{}(x);
    case ND_OP_sigmoid:
        return unary_sigmoid<T>{}(x);
    case ND_OP_tanh:
        return unary_tanh<T>{}(x);
    default:
        return x;
    }
}

/// What a MATMUL call makes of the sums, and where its matrices lie.
template <class Store> struct MatrixResult {
    typedef typename Store::Sum Sum;
    Store store;
    void *out;
    const void *bias; ///< NULL: none
    int64_t bias_stride, out_row;
    Walk<3> batch; ///< out, a, b
    nd_op activation;
    bool accumulate;
    bool wide; ///< two results at a time are aligned

    explicit MatrixResult(const nd_kernel_call *call)
        : store(call->operand[0].dtype), out(call->operand[0].data), bias(nullptr), bias_stride(0),
          out_row(call->attrs.i[7]), batch(call), activation(ND_OP_none),
          accumulate(call->attrs.f[0] != 0), wide(false) {
        if (call->op == ND_OP_linear) {
            activation = call->attrs.i[9] ? (nd_op)(call->attrs.i[9] - 1) : ND_OP_none;
            bias = call->noperands > 3 ? call->operand[3].data : nullptr;
            bias_stride = bias ? call->attrs.i[10] : 0;
        }
        wide = out_row % 4 == 0 && (uintptr_t)out % 16 == 0;
        for (int axis = 0; axis < call->ndim; axis++)
            wide = wide && call->operand[0].strides[axis] % 4 == 0;
    }
    ND_BOTH int64_t operand_offset(int64_t entry, int operand) const {
        int64_t offsets[3];
        batch.offsets(entry, offsets);
        return offsets[operand];
    }
    ND_BOTH int64_t offset(int64_t entry) const {
        return operand_offset(entry, 0);
    }
    ND_BOTH int64_t left_offset(int64_t entry) const {
        return operand_offset(entry, 1);
    }
    ND_BOTH int64_t right_offset(int64_t entry) const {
        return operand_offset(entry, 2);
    }
    ND_BOTH Sum finished(int64_t at, int64_t column, Sum sum) const {
        if (accumulate)
            sum = store.load(out, at) + sum;
        if (bias)
            sum = store.load(bias, column * bias_stride) + sum;
        if constexpr (is_float<Sum>) {
            if (activation != ND_OP_none)
                sum = activated<Sum>(activation, sum);
        }
        return sum;
    }
    template <int count>
    ND_BOTH void put(int64_t first, int64_t row, int64_t column, int64_t columns,
                     const Sum *sums) const {
        const int64_t at = first + row * out_row + column;
        if constexpr (count > 1 && is_float<Sum>) {
            if (wide && column + count <= columns) {
                typedef typename Store::Stored Stored;
                struct alignas(count * sizeof(Stored) < 16 ? count * sizeof(Stored) : 16) Run {
                    Stored element[count];
                } run;
                ND_UNROLL
                for (int j = 0; j < count; j++)
                    run.element[j] = store.round(finished(at + j, column + j, sums[j]));
                *(Run *)((Stored *)out + at) = run;
                return;
            }
        }
        ND_UNROLL
        for (int j = 0; j < count; j++)
            if (column + j < columns)
                store.store(out, at + j, finished(at + j, column + j, sums[j]));
    }
};

/// Whether what batches add to an operand is a multiple of a pack.
static inline bool is_batch_aligned(const nd_kernel_call *call, int operand, int64_t pack) {
    for (int axis = 0; axis < call->ndim; axis++)
        if (call->operand[operand].strides[axis] % pack != 0)
            return false;
    return true;
}

} // namespace nd_cuda
#endif
