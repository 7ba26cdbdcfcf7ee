// Copies between two orders of axes: out's elements lie one behind the other along one axis, x's along
// another. A block moves a square of the two through shared memory, so that neighbouring threads read
// and write neighbouring elements.
#ifndef ND_KERNELS_CUDA_TRANSPOSE_CUH
#define ND_KERNELS_CUDA_TRANSPOSE_CUH
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

template <class T> struct Transpose {
    static constexpr int threads = 256, phases = 2, least_blocks = 4;
    static constexpr int side = 32;
    struct Shared {
        T tile[side][side + 1]; ///< x's rows; a column of it is in 32 banks
    };
    struct Own {};
    T *out;
    const T *x;
    Walk<2> others;        ///< out, x: the other axes
    int64_t rows, columns; ///< of x; columns lie one behind the other there, rows in out
    int64_t out_stride;    ///< from a column to the next
    int64_t x_stride;      ///< from a row to the next
    int64_t row_tiles, column_tiles;

    ND_BOTH int64_t steps(int64_t) const {
        return 1;
    }
    ND_BOTH void begin(int64_t, int, Own &) const {
    }
    ND_BOTH void finish(int64_t, int, const Shared &, const Own &) const {
    }
    template <int number>
    ND_BOTH void phase(int64_t block, int thread, int64_t, Shared &shared, Own &) const {
        int64_t offset[2];
        int64_t matrix = block / (row_tiles * column_tiles);
        int64_t tile = block - matrix * (row_tiles * column_tiles);
        int64_t first_row = tile / column_tiles * side, first_column = tile % column_tiles * side;
        others.offsets(matrix, offset);
        ND_UNROLL
        for (int i = thread / side; i < side; i += threads / side) {
            int64_t row = first_row + (number == 0 ? i : thread % side);
            int64_t column = first_column + (number == 0 ? thread % side : i);
            if (row >= rows || column >= columns)
                continue;
            if (number == 0)
                shared.tile[i][thread % side] = x[offset[1] + row * x_stride + column];
            else
                out[offset[0] + column * out_stride + row] = shared.tile[thread % side][i];
        }
    }
};

/// The axis along which an operand's elements lie one behind the other; -1: none.
inline int dense_axis(const nd_kernel_call *call, int operand) {
    for (int axis = call->ndim - 1; axis >= 0; axis--)
        if (call->operand[operand].strides[axis] == 1 && call->shape[axis] > 1)
            return axis;
    return -1;
}

/// ND_ERROR_UNSUPPORTED for what is no such copy, or too small for squares.
template <class T> nd_status run_transpose(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    constexpr int64_t least = Transpose<T>::side / 2;
    const nd_operand &out = call->operand[0], &x = call->operand[1];
    int row = dense_axis(call, 0), column = dense_axis(call, 1);
    if (row < 0 || column < 0 || row == column || call->shape[row] < least ||
        call->shape[column] < least || out.data == x.data)
        return ND_ERROR_UNSUPPORTED;
    Transpose<T> body = {(T *)out.data,
                         (const T *)x.data,
                         Walk<2>(),
                         call->shape[row],
                         call->shape[column],
                         out.strides[column],
                         x.strides[row],
                         0,
                         0};
    body.row_tiles = divide_up(body.rows, Transpose<T>::side);
    body.column_tiles = divide_up(body.columns, Transpose<T>::side);
    for (int axis = 0; axis < call->ndim; axis++) {
        int64_t stride[2] = {out.strides[axis], x.strides[axis]};
        if (axis != row && axis != column)
            body.others.add_axis(call->shape[axis], stride);
    }
    return run_phases(queue, body.others.count * body.row_tiles * body.column_tiles, body);
}

} // namespace nd_cuda
#endif
