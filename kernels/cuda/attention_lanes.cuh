// What attention of f32 and its gradient share: the ordinary units multiply, and a warp owns the rows that it makes.
//
// A warp has 16 rows of a block's tile and goes over tiles of 32 other rows. Of its 4 by 8 lanes each makes every
// 4th row by every 8th other one: of scores 4 by 4, of a product with the other rows 4 by head / 8. For each 16
// bytes that it reads of shared memory it makes at least eight products; four and eight rows beside each other lie
// in different banks. What becomes of scores stays with the warp, in registers and in shared memory of its own.
#ifndef ND_KERNELS_CUDA_ATTENTION_LANES_CUH
#define ND_KERNELS_CUDA_ATTENTION_LANES_CUH
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/warps.cuh"

namespace nd_cuda {

/// `rows` of a block: 16 for each warp.
template <int head_, int rows_> struct AttentionLanes : AttentionTiles<Plain<float>, head_> {
    typedef AttentionTiles<Plain<float>, head_> Base;
    using Base::head, Base::pitch, Base::quad, Base::packed;
    static constexpr int rows = rows_, threads = rows / 16 * warp_threads;
    static constexpr int down = 4, across = 8; ///< lanes of a warp
    static constexpr int others = 32;          ///< rows of a tile that it goes over
    static constexpr int my_rows = 16 / down, my_others = others / across;
    static constexpr int pieces = head / (across * quad);
    static constexpr int weight_pitch = others + 8;
    static_assert(pieces * across * quad == head, "lanes have whole packs of a row");
    typedef Quad<float> Sums[my_rows][pieces];
    typedef float Scores[my_rows][my_others];

    using Base::Base;

    static ND_BOTH int row_of(int thread, int i) {
        return thread / warp_threads * 16 + thread % warp_threads / across + i * down;
    }
    static ND_BOTH int other_of(int thread, int j) {
        return thread % across + j * across;
    }
    static ND_BOTH int column_of(int thread, int piece) {
        return (piece * across + thread % across) * quad;
    }
    static ND_BOTH void clear(Sums &sums) {
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int p = 0; p < pieces; p++)
            sums[i][p] = {};
    }

    /// Begins to copy a tile, with zeros beyond the matrix; rows that are no packs arrive at once.
    template <int tile_rows>
    ND_BOTH static void start(const Matrix<float> &from, int thread, float *to) {
        constexpr int row_packs = head / quad, apart = threads / row_packs;
        static_assert(tile_rows % apart == 0,
                      "a thread has one column of packs, as many as others");
        const int first = thread / row_packs, column = thread % row_packs * quad;
        const float *at = from.data + first * from.stride + column;
        float *place = to + first * pitch + column;
        if (from.packed) {
            ND_UNROLL
            for (int row = 0; row < tile_rows; row += apart) {
                const bool inside = first + row < from.rows && column < from.columns;
                start_copy(place + row * pitch, inside ? at + row * from.stride : from.data,
                           inside);
            }
            return;
        }
        ND_ROLLED
        for (int row = 0; row < tile_rows; row += apart) {
            Quad<float> moved = {};
            ND_UNROLL
            for (int e = 0; e < quad; e++)
                if (first + row < from.rows && column + e < from.columns)
                    moved.element[e] = at[row * from.stride + e];
            *(Quad<float> *)(place + row * pitch) = moved;
        }
    }

    /// Of the lane's rows by the lane's other rows.
    static ND_BOTH void find_dots(int thread, const float *tile, const float *other_tile,
                                  Scores &dot) {
        const float *first = tile + row_of(thread, 0) * pitch;
        const float *second = other_tile + other_of(thread, 0) * pitch;
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_others; j++)
            dot[i][j] = 0;
        ND_UNROLL_4
        for (int column = 0; column < head; column += quad) {
            Quad<float> a[my_rows], b[my_others];
            ND_UNROLL
            for (int i = 0; i < my_rows; i++)
                a[i] = *(const Quad<float> *)(first + i * down * pitch + column);
            ND_UNROLL
            for (int j = 0; j < my_others; j++)
                b[j] = *(const Quad<float> *)(second + j * across * pitch + column);
            ND_UNROLL
            for (int e = 0; e < quad; e++)
                ND_UNROLL
            for (int i = 0; i < my_rows; i++)
                ND_UNROLL
            for (int j = 0; j < my_others; j++)
                dot[i][j] += a[i].element[e] * b[j].element[e];
        }
    }

    /// To where the lanes of the warp read them as add_products() does; the warp meets before.
    static ND_BOTH void put(int thread, const Scores &weight, float *weights) {
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_others; j++)
            weights[row_of(thread, i) * weight_pitch + other_of(thread, j)] = weight[i][j];
    }

    /// sums += weights of the lane's rows by the other rows.
    static ND_BOTH void add_products(int thread, const float *weights, const float *other_tile,
                                     Sums &sums) {
        const float *factors = weights + row_of(thread, 0) * weight_pitch;
        const float *columns = other_tile + column_of(thread, 0);
        ND_UNROLL_2
        for (int k = 0; k < others; k += quad) {
            Quad<float> factor[my_rows];
            ND_UNROLL
            for (int i = 0; i < my_rows; i++)
                factor[i] = *(const Quad<float> *)(factors + i * down * weight_pitch + k);
            ND_UNROLL
            for (int n = 0; n < quad; n++)
                ND_UNROLL
            for (int p = 0; p < pieces; p++) {
                const Quad<float> x =
                    *(const Quad<float> *)(columns + (k + n) * pitch + p * across * quad);
                ND_UNROLL
                for (int i = 0; i < my_rows; i++)
                    ND_UNROLL
                for (int e = 0; e < quad; e++)
                    sums[i][p].element[e] += factor[i].element[n] * x.element[e];
            }
        }
    }

    /// The lane's part of one row times `factor`; `whole` where packs may be written.
    static ND_BOTH void put_row(float *to, int columns, bool whole, int thread,
                                const Quad<float> (&sums)[pieces], float factor) {
        ND_UNROLL
        for (int p = 0; p < pieces; p++) {
            const int column = column_of(thread, p);
            Quad<float> y;
            ND_UNROLL
            for (int e = 0; e < quad; e++)
                y.element[e] = sums[p].element[e] * factor;
            if (whole && column < columns) {
                *(Quad<float> *)(to + column) = y;
                continue;
            }
            ND_UNROLL
            for (int e = 0; e < quad; e++)
                if (column + e < columns)
                    to[column + e] = y.element[e];
        }
    }
};

} // namespace nd_cuda
#endif
