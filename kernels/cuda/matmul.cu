// MATMUL without cuBLAS: any strides, any batch axes, a bias and an activation behind it.
//
// Floats of 32 and 64 bits and integers are multiplied by the ordinary units (tile.cuh), 16-bit
// floats by tensor cores: where rows are aligned from a ring of slices (matmul_halves.cuh,
// tensor_pipeline.cuh), else from two buffers (tensor.cuh). f32 is never rounded to TF32. One row or
// one column of floats has kernels of its own (matvec.cu). The backend prefers cuBLAS; these kernels
// are for where that is missing and for what it cannot express.
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
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tensor.cuh"

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
    const nd_status status =
        brain ? nd__cuda_matmul_bf16(queue, call) : nd__cuda_matmul_f16(queue, call);
    if (status != ND_ERROR_UNSUPPORTED)
        return status;
    if (takes_large_tiles(queue, call))
        return run_halves<brain, 4, 2>(queue, call);
    return run_halves<brain, 2, 1>(queue, call);
}

} // namespace nd_cuda

nd_status nd__cuda_matmul(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    if (is_float_dtype(call->operand[0].dtype) && (call->attrs.i[0] == 1 || call->attrs.i[1] == 1))
        return nd__cuda_matvec(queue, call);
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
