// Products of 16-bit floats by tensor cores, added up in f32: tiles whose warps multiply fragments
// together (mma.sync m16n8k16, PTX ISA, "Warp Level Matrix Instructions").
//
// Both operands stay as they lie in memory, with k or the lines going along a row of shared memory:
// ldmatrix turns those of the second kind on the way into registers. A row of shared memory is
// eight elements longer than its data, so that the eight rows that one ldmatrix reads lie in
// different banks. Where there are no tensor cores each lane computes its four results from the
// fragments that the others of its warp hold, in the same places.
#ifndef ND_KERNELS_CUDA_TENSOR_CUH
#define ND_KERNELS_CUDA_TENSOR_CUH
#include "kernels/cuda/tile.cuh"
#include "kernels/half.h"

namespace nd_cuda {

/// Four 8 x 8 blocks of 16-bit elements, as registers of the warp's threads: lane l has of each
/// block elements 2 (l % 4) and 2 (l % 4) + 1 along k of line l / 4. Blocks: lines 0-7 and 8-15 of
/// k 0-7, then of k 8-15.
struct Fragment {
    uint32_t block[4];
};

/// Lines `line` ... + 15 by k `k` ... + 15 of a slice in shared memory. along_k: rows are lines.
ND_BOTH void load_fragment(const uint16_t *slice, bool along_k, int row_length, int line, int k,
                           int lane, Fragment *ret_fragment) {
    uint32_t *block = ret_fragment->block;
#ifdef __CUDA_ARCH__
    // Lane l names row l % 8 of block l / 8.
    const int block_line = line + lane / 8 % 2 * 8, block_k = k + lane / 16 * 8, row = lane % 8;
    const uint16_t *from = along_k ? slice + (block_line + row) * row_length + block_k
                                   : slice + (block_k + row) * row_length + block_line;
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(from);
    if (along_k)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(block[0]), "=r"(block[1]), "=r"(block[2]), "=r"(block[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(block[0]), "=r"(block[1]), "=r"(block[2]), "=r"(block[3])
                     : "r"(address)
                     : "memory");
#else
    for (int i = 0; i < 4; i++) {
        const int at_line = line + i % 2 * 8 + lane / 4, at_k = k + i / 2 * 8 + lane % 4 * 2;
        const uint16_t low =
            slice[along_k ? at_line * row_length + at_k : at_k * row_length + at_line];
        const uint16_t high =
            slice[along_k ? at_line * row_length + at_k + 1 : (at_k + 1) * row_length + at_line];
        block[i] = (uint32_t)low | (uint32_t)high << 16;
    }
#endif
}

template <bool brain> ND_BOTH float half_of(uint32_t pair, int which) {
    const uint16_t bits = (uint16_t)(pair >> 16 * which);
    return brain ? nd__bf16_to_f32(bits) : nd__f16_to_f32(bits);
}

/// sum += a b for 16 lines of a, 8 of b (the first or the last of its fragment) and 16 k. A lane
/// has results 2 (l % 4) and the next one of rows l / 4 and l / 4 + 8. `others(l)` are the
/// fragments of lane l, of which hardware needs to be told nothing.
template <bool brain, class Others>
ND_BOTH void multiply_fragments(float (&sum)[4], const Fragment &a, const Fragment &b, int half,
                                int lane, const Others &others) {
#ifdef __CUDA_ARCH__
    (void)lane, (void)others;
    if constexpr (brain)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a.block[0]), "r"(a.block[1]), "r"(a.block[2]), "r"(a.block[3]),
                       "r"(b.block[half]), "r"(b.block[half + 2]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a.block[0]), "r"(a.block[1]), "r"(a.block[2]), "r"(a.block[3]),
                       "r"(b.block[half]), "r"(b.block[half + 2]));
#else
    (void)a, (void)b;
    // Of the lane's rows, which the same lanes have, and of its two columns.
    Fragment row[4], column[2][4];
    for (int quarter = 0; quarter < 4; quarter++) {
        row[quarter] = others.a(lane / 4 * 4 + quarter);
        for (int side = 0; side < 2; side++)
            column[side][quarter] = others.b((lane % 4 * 2 + side) * 4 + quarter);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++)
            sum[i] += half_of<brain>(row[k % 8 / 2].block[i / 2 + k / 8 * 2], k % 2) *
                      half_of<brain>(column[i % 2][k % 8 / 2].block[half + k / 8 * 2], k % 2);
#endif
}

/// Where fragments lie in shared memory. Where there are no tensor cores, those of the other lanes are
/// read there again.
struct FragmentPlace {
    const uint16_t *slice;
    bool along_k;
    int row_length, line, k;

    ND_BOTH Fragment read(int lane) const {
        Fragment fragment;
        load_fragment(slice, along_k, row_length, line, k, lane, &fragment);
        return fragment;
    }
};

/// sum += rows of one matrix in shared memory times rows of another, over k below `depth`: 16 rows of
/// the first from `a.line` on by 16 `fragments` of the second from `b.line` on.
template <bool brain, int fragments, int depth>
ND_BOTH void multiply_rows(const FragmentPlace &a, const FragmentPlace &b, int lane,
                           float (&sum)[2 * fragments][4]) {
    ND_UNROLL
    for (int k = 0; k < depth; k += 16) {
        const FragmentPlace left{a.slice, a.along_k, a.row_length, a.line, k};
        const Fragment of_rows = left.read(lane);
        ND_UNROLL
        for (int j = 0; j < fragments; j++) {
            const FragmentPlace right{b.slice, b.along_k, b.row_length, b.line + 16 * j, k};
            const Fragment of_columns = right.read(lane);
            struct {
                const FragmentPlace &left, &right;
                ND_BOTH Fragment a(int of) const {
                    return left.read(of);
                }
                ND_BOTH Fragment b(int of) const {
                    return right.read(of);
                }
            } others{left, right};
            ND_UNROLL
            for (int half = 0; half < 2; half++)
                multiply_fragments<brain>(sum[2 * j + half], of_rows, of_columns, half, lane,
                                          others);
        }
    }
}

/// A tile of 32 * own_rows by 64 * own_columns: 2 x 4 warps, each of which keeps own_rows x
/// 2 own_columns blocks of 16 x 8 results.
template <bool brain, class Left, class Right, class Result, int own_rows, int own_columns>
struct TensorTile {
    static constexpr int rows = 32 * own_rows, columns = 64 * own_columns, slice = 32;
    static constexpr int fragments = slice / 16;
    static constexpr int resident = own_rows * own_columns > 4 ? 1 : 2;
    static constexpr bool collective = true;
    static constexpr int gap = 8;

    TileGrid grid;
    Left left;
    Right right;
    Result result;
    PartialSums<float> partial;

    static constexpr int larger(int a, int b) {
        return a > b ? a : b;
    }
    struct Shared {
        alignas(16) uint16_t a[larger(rows * (slice + gap), slice *(rows + gap))];
        alignas(16) uint16_t b[larger(columns * (slice + gap), slice *(columns + gap))];
    };
    struct Thread {
        typename Left::template Reader<rows, slice> a_reader;
        typename Right::template Reader<columns, slice> b_reader;
        Fragment a[own_rows], b[own_columns];
        float sum[own_rows][2 * own_columns][4];
        int64_t block;
        int thread;
    };

    static ND_BOTH int row_of(int thread) {
        return thread / 128 * 16 * own_rows;
    }
    static ND_BOTH int column_of(int thread) {
        return thread / 32 % 4 * 16 * own_columns;
    }

    ND_BOTH int64_t begin(Thread &own, int64_t block, int thread) const {
        const Tile tile = grid.locate(block);
        own.block = block;
        own.thread = thread;
        own.a_reader.begin(left, result.left_offset(tile.entry), tile.first_row, tile, thread);
        own.b_reader.begin(right, result.right_offset(tile.entry), tile.first_column, tile, thread);
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            ND_UNROLL
            for (int j = 0; j < 2 * own_columns; j++) {
                ND_UNROLL
                for (int of = 0; of < 4; of++)
                    own.sum[i][j][of] = 0;
            }
        }
        return divide_up(tile.end_k - tile.first_k, slice);
    }
    ND_BOTH void fetch(Thread &own) const {
        own.a_reader.fetch(left);
        own.b_reader.fetch(right);
    }
    ND_BOTH void store(Thread &own, Shared &shared) const {
        own.a_reader.store_along(left, shared.a);
        own.b_reader.store_along(right, shared.b);
    }
    ND_BOTH void load(Thread &own, const Shared &shared, int fragment) const {
        const int lane = own.thread % warp_threads;
        ND_UNROLL
        for (int i = 0; i < own_rows; i++)
            load_fragment(shared.a, left.along_k, (left.along_k ? slice : rows) + gap,
                          row_of(own.thread) + 16 * i, 16 * fragment, lane, &own.a[i]);
        ND_UNROLL
        for (int j = 0; j < own_columns; j++)
            load_fragment(shared.b, right.along_k, (right.along_k ? slice : columns) + gap,
                          column_of(own.thread) + 16 * j, 16 * fragment, lane, &own.b[j]);
    }
    /// The fragments i and j of the other lanes.
    struct Others {
        const Lanes<Thread> &lanes;
        int i, j;

        ND_BOTH const Fragment &a(int lane) const {
            return lanes.thread[lane]->a[i];
        }
        ND_BOTH const Fragment &b(int lane) const {
            return lanes.thread[lane]->b[j];
        }
    };
    ND_BOTH void multiply(Thread &own, const Lanes<Thread> &lanes) const {
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            ND_UNROLL
            for (int j = 0; j < own_columns; j++) {
                ND_UNROLL
                for (int half = 0; half < 2; half++)
                    multiply_fragments<brain>(own.sum[i][2 * j + half], own.a[i], own.b[j], half,
                                              own.thread % warp_threads, Others{lanes, i, j});
            }
        }
    }
    ND_BOTH void finish(const Thread &own) const {
        const Tile tile = grid.locate(own.block);
        const int lane = own.thread % warp_threads;
        const int64_t row = tile.first_row + row_of(own.thread) + lane / 4;
        const int64_t column = tile.first_column + column_of(own.thread) + lane % 4 * 2;
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            ND_UNROLL
            for (int j = 0; j < 2 * own_columns; j++) {
                ND_UNROLL
                for (int lower = 0; lower < 2; lower++)
                    put_sums<2>(grid, result, partial, tile, row + 16 * i + 8 * lower,
                                column + 8 * j, &own.sum[i][j][2 * lower]);
            }
        }
    }
};

} // namespace nd_cuda
#endif
