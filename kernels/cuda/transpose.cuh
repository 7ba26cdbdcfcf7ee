// Copies between two orders of axes: out's elements lie one behind the other along one axis, x's along
// another. A block moves a square of the two through shared memory, so that neighbouring threads read
// and write neighbouring elements. A thread asks for all of its elements before it has the first, and
// where they lie is computed once: numbers of tiles by multiplication, distances in a tile in bytes.
#ifndef ND_KERNELS_CUDA_TRANSPOSE_CUH
#define ND_KERNELS_CUDA_TRANSPOSE_CUH
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

/// A warp moves 32 neighbouring elements of one line at a time.
template <class T, int side_> struct Transpose {
    static constexpr int threads = 256, phases = 2, least_blocks = side_ > 32 ? 4 : 6;
    static constexpr int side = side_;
    static constexpr int step = threads / side; ///< lines that the threads move at once
    static constexpr int each = side / step;    ///< elements of a thread
    static constexpr int gap = sizeof(T) < 4 ? 4 / (int)sizeof(T) : 1;
    struct Shared {
        T tile[side][side + gap]; ///< x's rows; neighbours in a column of it are in different banks
    };
    struct Own {
        const T *from;
        T *to;
        int rows, columns; ///< of x that are inside
    };
    T *out;
    const T *x;
    Walk<2> others;        ///< out, x: the other axes
    int64_t rows, columns; ///< of x; columns lie one behind the other there, rows in out
    int64_t out_stride;    ///< from a column to the next
    int64_t x_stride;      ///< from a row to the next
    Divider row_tiles, column_tiles;

    ND_BOTH int64_t steps(int64_t) const {
        return 1;
    }
    ND_BOTH void begin(int64_t block, int thread, Own &own) const {
        // Neighbouring blocks write neighbouring squares.
        uint32_t line = row_tiles.divide((uint32_t)block), matrix = column_tiles.divide(line);
        int64_t first_row = ((int64_t)block - (int64_t)line * row_tiles.divisor) * side;
        int64_t first_column = (int64_t)(line - matrix * column_tiles.divisor) * side;
        int64_t offset[2];
        others.offsets(matrix, offset);
        int line_in_tile = thread / side, place = thread % side;
        own.from = x + offset[1] + (first_row + line_in_tile) * x_stride + first_column + place;
        own.to = out + offset[0] + (first_column + line_in_tile) * out_stride + first_row + place;
        own.rows = rows - first_row < side ? (int)(rows - first_row) : side;
        own.columns = columns - first_column < side ? (int)(columns - first_column) : side;
    }
    ND_BOTH void finish(int64_t, int, const Shared &, const Own &) const {
    }
    template <int number>
    ND_BOTH void phase(int64_t, int thread, int64_t, Shared &shared, Own &own) const {
        if (own.rows == side && own.columns == side)
            move<number, true>(thread, shared, own);
        else
            move<number, false>(thread, shared, own);
    }
    template <int number, bool whole>
    ND_BOTH void move(int thread, Shared &shared, const Own &own) const {
        int line = thread / side, place = thread % side;
        if constexpr (number == 0) {
            T held[each];
            ND_UNROLL
            for (int i = 0; i < each; i++)
                if (whole || (line + i * step < own.rows && place < own.columns))
                    held[i] = own.from[i * step * x_stride];
            ND_UNROLL
            for (int i = 0; i < each; i++)
                if (whole || (line + i * step < own.rows && place < own.columns))
                    shared.tile[line + i * step][place] = held[i];
        } else {
            ND_UNROLL
            for (int i = 0; i < each; i++)
                if (whole || (line + i * step < own.columns && place < own.rows))
                    own.to[i * step * out_stride] = shared.tile[place][line + i * step];
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

/// By squares of a size.
template <class T, int side>
nd_status run_tiles(const nd_cuda_queue *queue, const nd_kernel_call *call, int row, int column) {
    const nd_operand &out = call->operand[0], &x = call->operand[1];
    Transpose<T, side> body = {(T *)out.data,    (const T *)x.data,   Walk<2>(),
                               call->shape[row], call->shape[column], out.strides[column],
                               x.strides[row],   Divider(),           Divider()};
    for (int axis = 0; axis < call->ndim; axis++) {
        int64_t stride[2] = {out.strides[axis], x.strides[axis]};
        if (axis != row && axis != column)
            body.others.join_axis(call->shape[axis], stride);
    }
    const int64_t row_tiles = divide_up(body.rows, side),
                  column_tiles = divide_up(body.columns, side);
    const int64_t blocks = body.others.count * row_tiles * column_tiles;
    if (blocks > INT32_MAX)
        return ND_ERROR_UNSUPPORTED;
    if (blocks == 0)
        return ND_OK;
    body.row_tiles.set((uint32_t)row_tiles);
    body.column_tiles.set((uint32_t)column_tiles);
    return run_phases(queue, blocks, body);
}

/// ND_ERROR_UNSUPPORTED for what is no such copy, or too small for squares.
template <class T> nd_status run_transpose(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    constexpr int64_t least = 16;
    int row = dense_axis(call, 0), column = dense_axis(call, 1);
    if (row < 0 || column < 0 || row == column || call->shape[row] < least ||
        call->shape[column] < least || call->operand[0].data == call->operand[1].data)
        return ND_ERROR_UNSUPPORTED;
    // Squares of 64 have more on their way; smaller ones where they would be half empty, and of elements
    // that are wide themselves.
    if constexpr (sizeof(T) < 8)
        if (call->shape[row] > 32 && call->shape[column] > 32)
            return run_tiles<T, 64>(queue, call, row, column);
    return run_tiles<T, 32>(queue, call, row, column);
}

} // namespace nd_cuda
#endif
