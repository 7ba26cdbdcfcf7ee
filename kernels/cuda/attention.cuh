// What the kernels of attention and of its gradient share: tiles of the operands in shared memory, dot
// products of their rows, and which query sees which key.
//
// A block has 256 threads, as a square of 16 by 16. A thread makes every 16th row and every 16th column
// of what two tiles give, so that threads beside each other read rows beside each other; f32 and tensor
// cores share work in ways of their own. f16 and bf16 are computed in f32.
#ifndef ND_KERNELS_CUDA_ATTENTION_CUH
#define ND_KERNELS_CUDA_ATTENTION_CUH
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/held.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

/// Numbers 16 bytes long.
template <class Number> using Quad = Pack<Number, 16 / (int)sizeof(Number)>;

/// A matrix of a batch: where its first row is, and how its rows lie.
template <class Stored> struct Matrix {
    const Stored *data;
    int64_t stride;
    int rows, columns;
    bool packed; ///< every row begins at a multiple of 16 bytes and is whole packs long
};

/// `head_` is at least the queries' and the values' length.
template <class Format, int head_> struct AttentionTiles {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    static constexpr int threads = 256, least_blocks = 2;
    static constexpr int head = head_;
    static constexpr int side = 16; ///< of the square of threads
    static constexpr int quad = 16 / (int)sizeof(Number);
    static constexpr int pitch = head + quad;
    static constexpr int width =
        head / side < quad ? head / side : quad; ///< of a piece of a thread's columns
    static constexpr int pieces = head / side / width;
    typedef Pack<Number, width> Piece;

    Format format;
    const void *mask; ///< or NULL
    bool mask_is_bool, causal;
    bool packed; ///< rows of all operands begin at multiples of 16 bytes and are whole packs
    int queries, all_keys, length, value_length;
    int64_t mask_row, mask_column;
    Number scale;

    AttentionTiles(const Format &of, const nd_kernel_call *call, const nd_operand &hiding)
        : format(of), mask(hiding.data), mask_is_bool(hiding.dtype == ND_BOOL),
          causal(call->attrs.i[10] != 0), packed(true), queries((int)call->attrs.i[0]),
          all_keys((int)call->attrs.i[1]), length((int)call->attrs.i[2]),
          value_length((int)call->attrs.i[3]), mask_row(call->attrs.i[8]),
          mask_column(call->attrs.i[9]), scale((Number)call->attrs.f[0]) {
        constexpr int pack = 16 / (int)sizeof(Stored);
        packed = length % pack == 0 && value_length % pack == 0;
    }
    /// One more operand, whose rows are `row_stride` apart.
    void read(const nd_kernel_call *call, int which, int64_t row_stride) {
        constexpr int64_t pack = 16 / (int64_t)sizeof(Stored);
        const nd_operand &operand = call->operand[which];
        packed = packed && (uintptr_t)operand.data % 16 == 0 && row_stride % pack == 0;
        for (int axis = 0; axis < call->ndim; axis++)
            packed = packed && operand.strides[axis] % pack == 0;
    }

    /// A tile of `tile_rows` rows, with zeros beyond the matrix.
    template <int tile_rows>
    ND_BOTH void load(const Matrix<Stored> &from, int thread, Number *tile) const {
        constexpr int pack = 16 / (int)sizeof(Stored);
        constexpr int row_packs = head / pack;
        ND_UNROLL
        for (int i = thread; i < tile_rows * row_packs; i += threads) {
            int row = i / row_packs, column = i % row_packs * pack;
            Pack<Stored, pack> moved = {};
            if (row < from.rows && from.packed) {
                if (column < from.columns)
                    moved = *(const Pack<Stored, pack> *)(from.data + row * from.stride + column);
            } else if (row < from.rows) {
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    if (column + e < from.columns)
                        moved.element[e] = from.data[row * from.stride + column + e];
            }
            ND_UNROLL
            for (int q = 0; q < pack / quad; q++) {
                Quad<Number> wide;
                ND_UNROLL
                for (int e = 0; e < quad; e++)
                    wide.element[e] = format.load(moved.element[q * quad + e]);
                *(Quad<Number> *)(tile + row * pitch + column + q * quad) = wide;
            }
        }
    }

    ND_BOTH Number masked(Number score, int64_t offset, int row, int key_number) const {
        if (row >= queries || key_number >= all_keys || (causal && key_number > row))
            return -(Number)INFINITY;
        if (!mask)
            return score;
        int64_t at = offset + row * mask_row + key_number * mask_column;
        if (mask_is_bool)
            return ((const uint8_t *)mask)[at] ? score : -(Number)INFINITY;
        return score + ((const Number *)mask)[at];
    }

    /// Of rows of two tiles: the first's side by the second's.
    template <int rows, int columns>
    ND_BOTH static void dots(int thread, const Number *first, const Number *second,
                             Number ret_dot[rows][columns]) {
        ND_UNROLL
        for (int i = 0; i < rows; i++)
            ND_UNROLL
        for (int j = 0; j < columns; j++)
            ret_dot[i][j] = 0;
        ND_UNROLL_2
        for (int column = 0; column < head; column += quad) {
            Quad<Number> a[rows], b[columns];
            ND_UNROLL
            for (int i = 0; i < rows; i++)
                a[i] = *(const Quad<Number> *)(first + (thread / side + i * side) * pitch + column);
            ND_UNROLL
            for (int j = 0; j < columns; j++)
                b[j] =
                    *(const Quad<Number> *)(second + (thread % side + j * side) * pitch + column);
            ND_UNROLL
            for (int e = 0; e < quad; e++)
                ND_UNROLL
            for (int i = 0; i < rows; i++)
                ND_UNROLL
            for (int j = 0; j < columns; j++)
                ret_dot[i][j] += a[i].element[e] * b[j].element[e];
        }
    }

    /// sum += factors tile, where a row of factors has `terms` numbers, of as many rows of the tile.
    template <int rows, int terms>
    ND_BOTH static void add_rows(int thread, const Number *factors, int factor_pitch,
                                 const Number *tile, Piece sum[rows][pieces]) {
        for (int k = 0; k < terms; k += quad) {
            Quad<Number> factor[rows];
            ND_UNROLL
            for (int i = 0; i < rows; i++)
                factor[i] = *(const Quad<Number> *)(factors +
                                                    (thread / side + i * side) * factor_pitch + k);
            ND_UNROLL
            for (int n = 0; n < quad; n++)
                ND_UNROLL
            for (int p = 0; p < pieces; p++) {
                Piece v =
                    *(const Piece *)(tile + (k + n) * pitch + (p * side + thread % side) * width);
                ND_UNROLL
                for (int i = 0; i < rows; i++)
                    ND_UNROLL
                for (int e = 0; e < width; e++)
                    sum[i][p].element[e] += factor[i].element[n] * v.element[e];
            }
        }
    }
};

} // namespace nd_cuda
#endif
