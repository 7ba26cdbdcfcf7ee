// Products of 16-bit floats whose rows are aligned, by tensor cores (mma.sync m16n8k16) and a ring of
// slices in shared memory (pipeline.cuh).
//
// A slice is 64 elements of k. Both operands stay as they lie in memory, as rows of 128 bytes, 8 packs
// of 16: with k along a row, a row for each line; or with 64 lines along a row, a row for each k, and
// for more lines one such panel behind the other. Pack c of row r lies in place c ^ r % 8. So the eight
// threads that copy a row write all banks, and the eight rows that ldmatrix reads of one column of
// packs lie in different ones.
//
// Computed, not measured, for the tile of 128 x 256 results by 8 warps of 64 x 64 each, of which a
// multiprocessor holds one block. For 16 k it does 256 mma: 512 cycles on an A100, at 1,024
// multiplications with additions a cycle; a H100 does twice as many by wgmma, of which mma.sync
// reaches about 62 % in published microbenchmarks: 413 cycles. A warp reads 2 x 64 x 16 elements from
// shared memory, a block 32 KiB, and 12 KiB are copied there: 352 cycles at 128 bytes a cycle, 69 % of
// the tensor cores' time on an A100 and 85 % on a H100. In the machine code for 9.0 a slice is 275 to
// 283 instructions of a warp, 128 of them mma (nvdisasm): of a scheduler's two warps at most 566 of
// 2,048 or 1,650 issue slots. For a k a block reads 384 elements from the second cache and does 65,536
// operations with them, 85 a byte: at 28 bytes a cycle for each multiprocessor (6.5 TB/s for all of a
// H100, taken from published microbenchmarks too) a slice of 64 k takes 1,755 cycles, a little more
// than its mma. So the bounds are about the tensor cores' rate on an A100, and 58 % of it on a H100,
// before what the ends of a tile and the last tiles cost. Copies of two slices are under way, 96 KiB,
// and begin 3,400 cycles before they are waited for.
//
// A tile of 128 x 128 by 4 warps reads 32 KiB for a slice of half as many products (64 operations a
// byte), one of 64 x 128 24 KiB for a quarter (43 a byte): they are for what large ones would not fill
// the device with, and where a block cannot have the 144 KiB of the large ring.
//
// What is left out, because it can be tried on a Hopper GPU alone: wgmma reads operands from shared
// memory itself, for 64 lines of four warps at once, so fragments cost neither registers nor the reads
// above, and multiplies at the full rate; TMA copies a slice by one instruction of one thread, and for
// several multiprocessors at once (multicast), which halves what is read from the second cache.
//
// Where there are no tensor cores each lane reads from the addresses that the lanes of its warp would
// give to ldmatrix, and multiplies with the fragments that they hold.
#ifndef ND_KERNELS_CUDA_TENSOR_PIPELINE_CUH
#define ND_KERNELS_CUDA_TENSOR_PIPELINE_CUH
#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/tensor.cuh"

namespace nd_cuda {

/// Lines of an operand, of which one axis has stride 1: rows of memory are lines, or have a k each.
/// They are 16-byte aligned, `stride` elements apart, and long a multiple of 8.
struct AlignedLines {
    const uint16_t *data;
    int64_t lines, stride;
};

/// A number that is kept in a register and not computed anew from what it was made of.
ND_BOTH int kept_number(int number) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(number));
#endif
    return number;
}

/// What one of `threads` threads copies of a tile's slices: of every threads / 8-th row one pack.
template <bool along_k, int width, int threads> struct SliceCopies {
    static constexpr int slice = 64, pack = 8, apart = threads / 8, count = width / apart;
    static_assert(apart % 8 == 0 && count * apart == width,
                  "a thread's packs have one place in their rows");
    const uint16_t *from; ///< its first pack of the next slice
    int place;            ///< where it goes in a slice
    uint32_t inside;      ///< bit i: the lines of pack i are there
    int k_left;           ///< from its first pack's k on

    /// Where its pack i lies: in lines of the tile and k of the slice.
    static ND_BOTH int line_of(int thread, int i) {
        return along_k ? thread / 8 + i * apart : i * apart / 64 * 64 + thread % 8 * pack;
    }
    static ND_BOTH int k_of(int thread, int i) {
        return along_k ? thread % 8 * pack : thread / 8 + i * apart % 64;
    }
    ND_BOTH void begin(const AlignedLines &lines, int64_t offset, int64_t first_line,
                       const Tile &tile, int thread) {
        const int64_t line = first_line + line_of(thread, 0), k = tile.first_k + k_of(thread, 0);
        from = lines.data + offset + (along_k ? line * lines.stride + k : k * lines.stride + line);
        k_left = (int)(tile.end_k - k);
        place = kept_number(thread / 8 * 64 + ((thread ^ thread / 8) & 7) * pack);
        inside = 0;
        ND_UNROLL
        for (int i = 0; i < count; i++)
            inside |= (uint32_t)(first_line + line_of(thread, i) < lines.lines) << i;
    }
    /// Copies first ... end - 1 of the next slice, whose rows begin at `to`.
    template <int first, int end, class Copies>
    ND_BOTH void start(const AlignedLines &lines, Copies &copies, uint16_t *to) const {
        ND_UNROLL
        for (int i = first; i < end; i++) {
            const int further = along_k ? 0 : i * apart % 64;
            const bool there = (inside >> i & 1) && k_left > further;
            const int64_t step =
                along_k ? i * apart * lines.stride : further * lines.stride + i * apart / 64 * 64;
            copies.start(to + place + i * apart * 64, there ? from + step : lines.data, there);
        }
    }
    ND_BOTH void advance(const AlignedLines &lines) {
        from += along_k ? slice : slice * lines.stride;
        k_left -= slice;
    }
};

/// Where a lane's rows for ldmatrix lie in the rows of a slice. Blocks are those of a Fragment; of the
/// right operand ldmatrix reads the second and the third in turned order, so that what one mma takes of
/// it is in registers beside each other, and none is moved.
template <bool along_k, bool is_right> struct FragmentRows {
    int place;
#ifndef __CUDA_ARCH__
    int line, lane;
#endif

    /// For 16 lines from `line` on and the first 16 k. Where lines lie along rows, those of a warp
    /// are in one panel, and begin where further fragments change other bits than `line` has.
    static ND_BOTH int first(int line, int lane) {
        const int upper_half = lane / 8 % 2, lower_half = lane / 16;
        const int line_half = is_right ? lower_half : upper_half;
        const int k_half = is_right ? upper_half : lower_half;
        if constexpr (along_k)
            return (line + line_half * 8 + lane % 8) * 64 + ((k_half ^ lane) & 7) * 8;
        else
            return line / 64 * 4096 + (k_half * 8 + lane % 8) * 64 +
                   (((line % 64 / 8 + line_half) ^ lane) & 7) * 8;
    }
    /// From there to `lines` lines (a multiple of 16) and 16 `step` k further on.
    static ND_BOTH int further(int first, int lines, int step) {
        return along_k ? (first ^ step * 16) + lines * 64 : (first ^ lines) + step * 16 * 64;
    }
    ND_BOTH void begin(int of_line, int of_lane) {
        place = kept_number(first(of_line, of_lane));
#ifndef __CUDA_ARCH__
        line = of_line;
        lane = of_lane;
#endif
    }
    ND_BOTH void load(const uint16_t *slice, int lines, int step, Fragment *ret_fragment) const {
        constexpr int second = is_right ? 2 : 1, third = is_right ? 1 : 2;
        uint32_t *block = ret_fragment->block;
#ifdef __CUDA_ARCH__
        const uint32_t address =
            (uint32_t)__cvta_generic_to_shared(slice) + 2 * (uint32_t)further(place, lines, step);
        if constexpr (along_k)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(block[0]), "=r"(block[second]), "=r"(block[third]), "=r"(block[3])
                         : "r"(address)
                         : "memory");
        else
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(block[0]), "=r"(block[second]), "=r"(block[third]), "=r"(block[3])
                         : "r"(address)
                         : "memory");
#else
        const int places[4] = {0, second, third, 3};
        for (int i = 0; i < 4; i++) {
            // Row r of what is read as number i is the one that lane 8 i + r names.
            const auto row = [&](int r) {
                return slice + further(first(line, 8 * i + r), lines, step);
            };
            const int pair = lane % 4 * 2;
            const uint16_t low = along_k ? row(lane / 4)[pair] : row(pair)[lane / 4];
            const uint16_t high = along_k ? row(lane / 4)[pair + 1] : row(pair + 1)[lane / 4];
            block[places[i]] = (uint32_t)low | (uint32_t)high << 16;
        }
#endif
    }
};

/// A tile of warps_down x warps_across warps, each of which keeps own_rows x 2 own_columns blocks of
/// 16 x 8 results.
template <bool brain, bool a_along_k, bool b_along_k, class Result, int warps_down,
          int warps_across, int own_rows, int own_columns, int resident_>
struct PipelinedTile {
    static constexpr int threads = 32 * warps_down * warps_across;
    static constexpr int rows = 16 * own_rows * warps_down;
    static constexpr int columns = 16 * own_columns * warps_across;
    static constexpr int slice = 64, steps = 4, stages = 3;
    static constexpr int resident = resident_;
    typedef SliceCopies<a_along_k, rows, threads> LeftCopies;
    typedef SliceCopies<b_along_k, columns, threads> RightCopies;

    TileGrid grid;
    AlignedLines left, right;
    Result result;
    PartialSums<float> partial;

    struct Slot {
        alignas(128) uint16_t a[rows * slice];
        alignas(128) uint16_t b[columns * slice];
    };
    struct Thread {
        CopiesUnderWay<stages *(LeftCopies::count + RightCopies::count)> copies;
        LeftCopies a_copies;
        RightCopies b_copies;
        FragmentRows<a_along_k, false> a_rows;
        FragmentRows<b_along_k, true> b_rows;
        Fragment a[2][own_rows], b[2][own_columns];
        float sum[own_rows][2 * own_columns][4];
        int64_t block;
        int thread;
    };
    /// A warp's sums in the ring: 8 more than it has in a row, so that the rows of which a warp writes
    /// runs of 8 at a time lie in different banks.
    static constexpr int kept_row = 16 * own_columns + 8, kept_rows = 16 * own_rows;
    static_assert(sizeof(Slot) * stages >=
                      sizeof(float) * kept_row * kept_rows * warps_down * warps_across,
                  "the ring takes the sums");

    static ND_BOTH int row_of(int thread) {
        return thread / 32 / warps_across * kept_rows;
    }
    static ND_BOTH int column_of(int thread) {
        return thread / 32 % warps_across * 16 * own_columns;
    }

    ND_BOTH int begin(Thread &own, int64_t block, int thread) const {
        const Tile tile = grid.locate(block);
        own.block = block;
        own.thread = thread;
        own.copies.begin();
        own.a_rows.begin(row_of(thread), thread % warp_threads);
        own.b_rows.begin(column_of(thread), thread % warp_threads);
        own.a_copies.begin(left, result.left_offset(tile.entry), tile.first_row, tile, thread);
        own.b_copies.begin(right, result.right_offset(tile.entry), tile.first_column, tile, thread);
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            ND_UNROLL
            for (int j = 0; j < 2 * own_columns; j++) {
                ND_UNROLL
                for (int of = 0; of < 4; of++)
                    own.sum[i][j][of] = 0;
            }
        }
        return (int)divide_up(tile.end_k - tile.first_k, slice);
    }
    template <int part> ND_BOTH void start(Thread &own, Slot &slot) const {
        constexpr int of_a = LeftCopies::count, of_b = RightCopies::count, parts = steps - 1;
        own.a_copies.template start<of_a * part / parts, of_a *(part + 1) / parts>(left, own.copies,
                                                                                   slot.a);
        own.b_copies.template start<of_b * part / parts, of_b *(part + 1) / parts>(
            right, own.copies, slot.b);
    }
    ND_BOTH void advance(Thread &own) const {
        own.a_copies.advance(left);
        own.b_copies.advance(right);
    }
    template <int step> ND_BOTH void load(Thread &own, const Slot &slot) const {
        ND_UNROLL
        for (int i = 0; i < own_rows; i++)
            own.a_rows.load(slot.a, 16 * i, step, &own.a[step % 2][i]);
        ND_UNROLL
        for (int j = 0; j < own_columns; j++)
            own.b_rows.load(slot.b, 16 * j, step, &own.b[step % 2][j]);
    }
    /// The fragments i and j of the other lanes.
    struct Others {
        const Lanes<Thread> &lanes;
        int of, i, j;

        ND_BOTH const Fragment &a(int lane) const {
            return lanes.thread[lane]->a[of][i];
        }
        ND_BOTH const Fragment &b(int lane) const {
            return lanes.thread[lane]->b[of][j];
        }
    };
    template <int step> ND_BOTH void multiply(Thread &own, const Lanes<Thread> &lanes) const {
        constexpr int of = step % 2;
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            ND_UNROLL
            for (int j = 0; j < own_columns; j++) {
                ND_UNROLL
                for (int half = 0; half < 2; half++)
                    multiply_fragments<brain>(own.sum[i][2 * j + half], own.a[of][i], own.b[of][j],
                                              half, own.thread % warp_threads,
                                              Others{lanes, of, i, j});
            }
        }
    }
    static ND_BOTH float *kept_of(Slot *ring, int thread) {
        return (float *)(void *)ring + thread / warp_threads * kept_row * kept_rows;
    }
    ND_BOTH void keep(Thread &own, Slot *ring) const {
        const int lane = own.thread % warp_threads;
        float *const kept = kept_of(ring, own.thread) + lane / 4 * kept_row + lane % 4 * 2;
        struct alignas(8) Pair {
            float sum[2];
        };
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            ND_UNROLL
            for (int j = 0; j < 2 * own_columns; j++) {
                ND_UNROLL
                for (int lower = 0; lower < 2; lower++)
                    *(Pair *)(void *)(kept + (16 * i + 8 * lower) * kept_row + 8 * j) =
                        Pair{{own.sum[i][j][2 * lower], own.sum[i][j][2 * lower + 1]}};
            }
        }
        own.copies.end();
    }
    /// A row of the warp's by neighbouring lanes, four results each.
    ND_BOTH void finish(const Thread &own, Slot *ring) const {
        constexpr int run = 4, of_row = 16 * own_columns / run, together = warp_threads / of_row;
        const Tile tile = grid.locate(own.block);
        const int lane = own.thread % warp_threads, inner = lane % of_row * run;
        const float *const kept = kept_of(ring, own.thread);
        const int64_t row = tile.first_row + row_of(own.thread);
        const int64_t column = tile.first_column + column_of(own.thread) + inner;
        ND_UNROLL_2
        for (int i = lane / of_row; i < kept_rows; i += together) {
            const TilePack<float> sums =
                *(const TilePack<float> *)(const void *)(kept + i * kept_row + inner);
            if (partial.data && grid.n % run == 0)
                keep_part(tile, row + i, column, sums);
            else
                put_sums<run>(grid, result, partial, tile, row + i, column, sums.element);
        }
    }
    ND_BOTH void keep_part(const Tile &tile, int64_t row, int64_t column,
                           const TilePack<float> &sums) const {
        if (row < grid.m && column < grid.n)
            *(TilePack<float> *)(void *)(partial.data + partial.place(grid, tile.part, tile.entry,
                                                                      row, column)) = sums;
    }
};

} // namespace nd_cuda
#endif
