// MATMUL without cuBLAS: any strides, any batch axes, a bias and an activation behind it.
//
// Floats of 32 and 64 bits and integers are multiplied by the ordinary units (tile.cuh), 16-bit
// floats by tensor cores (tensor.cuh). f32 is never rounded to TF32. The backend prefers cuBLAS;
// these kernels are for where that is missing and for what it cannot express.
//
// Computed, not measured, for the 128 x 128 tile in f32 on a multiprocessor of 128 lanes: a k is
// 128 * 128 multiplications with additions, 128 cycles. For it every thread issues 64 of them, 4
// reads of 16 bytes from shared memory and, of the reads from device memory, the stores and the
// barrier, which serve 16 k, about 6 instructions: 64 of 74 issue slots are arithmetic, 86 %. A
// warp's 4 reads touch 384 different bytes, a block's 3072: 24 cycles at 128 bytes per cycle where
// lanes that read one address are served together, at most 128. With 128 registers two blocks are
// resident: 4 warps per scheduler, each with 64 independent sums. From device memory a tile reads 2
// * 128 numbers for a k, 32 operations per byte before any cache: 3.35 TB/s would feed 107 TFLOP/s
// of f32, which has 67.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/halves.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/tensor.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

template <class T> struct ErasedLoad {
    typedef T Element;
    static constexpr bool is_plain = false;
    const void *x;
    nd_dtype dtype;

    ND_BOTH T at(int64_t index) const {
        return load_as<T>(x, dtype, index);
    }
};

/// Results of type Sum, stored as what they are.
template <class T> struct PlainStore {
    typedef T Sum;
    typedef T Stored;

    explicit PlainStore(nd_dtype) {
    }
    ND_BOTH Stored round(Sum value) const {
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
static bool is_batch_aligned(const nd_kernel_call *call, int operand, int64_t pack) {
    for (int axis = 0; axis < call->ndim; axis++)
        if (call->operand[operand].strides[axis] % pack != 0)
            return false;
    return true;
}

template <class Load>
static Strided<Load> operand_lines(const nd_kernel_call *call, int operand, const Load &load) {
    const int64_t *i = call->attrs.i;
    const bool aligned =
        is_batch_aligned(call, operand, 16 / (int64_t)sizeof(typename Load::Element));
    if (operand == 1)
        return Strided<Load>(load, call->operand[1].data, i[0], i[3], i[4], aligned);
    return Strided<Load>(load, call->operand[2].data, i[1], i[6], i[5], aligned);
}

/// Products that a kernel with tiles of 64 x 64 results does for a matrix.
static TileGrid grid_of(const nd_kernel_call *call, int rows, int columns) {
    const int64_t *i = call->attrs.i;
    return TileGrid(Walk<3>(call).count, i[0], i[1], i[2], rows, columns);
}

/// Whether tiles of 128 x 128 results, cut along k, keep the device busy.
static bool takes_large_tiles(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const TileGrid grid = grid_of(call, 128, 128);
    const int64_t parts = grid.k / 128 > 1 ? grid.k / 128 : 1;
    return grid.m > 64 && grid.n > 64 && grid.tiles() * parts >= queue->multiprocessors;
}

template <class Load, class Store, int own_rows, int own_columns, int slice>
static nd_status run_numbers(const nd_cuda_queue *queue, const nd_kernel_call *call, const Load &a,
                             const Load &b) {
    typedef MatrixResult<Store> Result;
    typedef Strided<Load> Lines;
    typedef FmaTile<Lines, Lines, Result, own_rows, own_columns, slice> Body;
    return run_products<Body, typename Load::Element>(
        queue, grid_of(call, Body::rows, Body::columns), operand_lines(call, 1, a),
        operand_lines(call, 2, b), Result(call));
}

static nd_status run_f32(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const PlainLoad<float> a = {(const float *)call->operand[1].data};
    const PlainLoad<float> b = {(const float *)call->operand[2].data};
    if (takes_large_tiles(queue, call))
        return run_numbers<PlainLoad<float>, PlainStore<float>, 8, 8, 16>(queue, call, a, b);
    return run_numbers<PlainLoad<float>, PlainStore<float>, 4, 4, 16>(queue, call, a, b);
}

static nd_status run_f64(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const PlainLoad<double> a = {(const double *)call->operand[1].data};
    const PlainLoad<double> b = {(const double *)call->operand[2].data};
    if (takes_large_tiles(queue, call))
        return run_numbers<PlainLoad<double>, PlainStore<double>, 8, 4, 8>(queue, call, a, b);
    return run_numbers<PlainLoad<double>, PlainStore<double>, 4, 4, 8>(queue, call, a, b);
}

/// By their low 64 bits.
static nd_status run_integers(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const nd_dtype dtype = call->operand[0].dtype;
    typedef ErasedLoad<uint64_t> Load;
    return run_numbers<Load, IntegerStore, 4, 4, 8>(queue, call, Load{call->operand[1].data, dtype},
                                                    Load{call->operand[2].data, dtype});
}

template <bool brain, int own_rows, int own_columns>
static nd_status run_halves(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    typedef PlainLoad<uint16_t> Load;
    typedef MatrixResult<HalfStore> Result;
    typedef Strided<Load> Lines;
    typedef TensorTile<brain, Lines, Lines, Result, own_rows, own_columns> Body;
    return run_products<Body, float>(
        queue, grid_of(call, Body::rows, Body::columns),
        operand_lines(call, 1, Load{(const uint16_t *)call->operand[1].data}),
        operand_lines(call, 2, Load{(const uint16_t *)call->operand[2].data}), Result(call));
}

template <bool brain>
static nd_status run_format(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (takes_large_tiles(queue, call))
        return run_halves<brain, 4, 2>(queue, call);
    return run_halves<brain, 2, 1>(queue, call);
}

} // namespace nd_cuda

nd_status nd__cuda_matmul(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    switch (call->operand[0].dtype) {
    case ND_F32:
        return run_f32(queue, call);
    case ND_F64:
        return run_f64(queue, call);
    case ND_F16:
        return run_format<false>(queue, call);
    case ND_BF16:
        return run_format<true>(queue, call);
    case ND_BOOL:
        return ND_ERROR_UNSUPPORTED;
    default:
        return run_integers(queue, call);
    }
}
