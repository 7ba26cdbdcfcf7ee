// What tiles have in common whose operands are 16-bit floats with aligned rows and come through a ring of
// slices in shared memory (pipeline.cuh): how slices lie there, who copies what of them, and what becomes
// of the sums.
//
// A slice is 64 elements of k. Both operands stay as they lie in memory, as rows of 128 bytes, 8 packs
// of 16: with k along a row, a row for each line; or with 64 lines along a row, a row for each k, and
// for more lines one such panel behind the other. Pack c of row r lies in place c ^ r % 8. So the eight
// threads that copy a row write all banks, and the eight rows that ldmatrix reads of one column of
// packs lie in different ones. It is the order that wgmma calls a swizzle of 128 bytes, too.
#ifndef ND_KERNELS_CUDA_RING_TILE_CUH
#define ND_KERNELS_CUDA_RING_TILE_CUH
#include "kernels/cuda/pipeline.cuh"

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

/// A tile of which each warp keeps kept_rows_ x kept_columns_ sums, with a ring of stages_ slices. A tile's
/// Thread has `copies`, `a_copies`, `b_copies`, `block` and `thread`.
template <bool a_along_k, bool b_along_k, class Result, int rows_, int columns_, int threads_,
          int kept_rows_, int kept_columns_, int stages_>
struct RingTile {
    static constexpr int rows = rows_, columns = columns_, threads = threads_;
    static constexpr int kept_rows = kept_rows_, kept_columns = kept_columns_;
    static constexpr int slice = 64, stages = stages_;
    typedef SliceCopies<a_along_k, rows, threads> LeftCopies;
    typedef SliceCopies<b_along_k, columns, threads> RightCopies;
    typedef CopiesUnderWay<stages *(LeftCopies::count + RightCopies::count)> Copies;

    TileGrid grid;
    AlignedLines left, right;
    Result result;
    PartialSums<float> partial;

    struct Slot {
        alignas(1024) uint16_t a[rows * slice];
        alignas(1024) uint16_t b[columns * slice];
    };
    /// A warp's sums in the ring: 8 more than it has in a row, so that the rows of which a warp writes
    /// runs of 8 at a time lie in different banks.
    static constexpr int kept_row = kept_columns + 8;
    static_assert(sizeof(Slot) * stages >= sizeof(float) * kept_row * kept_rows * threads / 32,
                  "the ring takes the sums");

    static ND_BOTH int row_of(int thread) {
        return thread / 32 / (columns / kept_columns) * kept_rows;
    }
    static ND_BOTH int column_of(int thread) {
        return thread / 32 % (columns / kept_columns) * kept_columns;
    }
    template <class Thread> ND_BOTH Tile begin_tile(Thread &own, int64_t block, int thread) const {
        own.block = block;
        own.thread = thread;
        own.copies.begin();
        return grid.locate(block);
    }
    template <class Thread> ND_BOTH void begin_copies(Thread &own, const Tile &tile) const {
        own.a_copies.begin(left, result.left_offset(tile.entry), tile.first_row, tile, own.thread);
        own.b_copies.begin(right, result.right_offset(tile.entry), tile.first_column, tile,
                           own.thread);
    }
    static ND_BOTH int slices_of(const Tile &tile) {
        return (int)divide_up(tile.end_k - tile.first_k, slice);
    }
    /// Copies of the next slice, one of `parts` shares.
    template <int part, int parts, class Thread>
    ND_BOTH void start_share(Thread &own, Slot &slot) const {
        constexpr int of_a = LeftCopies::count, of_b = RightCopies::count;
        own.a_copies.template start<of_a * part / parts, of_a *(part + 1) / parts>(left, own.copies,
                                                                                   slot.a);
        own.b_copies.template start<of_b * part / parts, of_b *(part + 1) / parts>(
            right, own.copies, slot.b);
    }
    template <class Thread> ND_BOTH void advance(Thread &own) const {
        own.a_copies.advance(left);
        own.b_copies.advance(right);
    }
    static ND_BOTH float *kept_of(Slot *ring, int thread) {
        return (float *)(void *)ring + thread / warp_threads * kept_row * kept_rows;
    }
    /// A lane's sums of 16 rows from `row` of the warp's on, as mma and wgmma leave them: of 8 columns
    /// the lanes l / 4 and l / 4 + 8 have two beside each other.
    template <int count>
    static ND_BOTH void keep_rows(Slot *ring, int thread, int row, const float (&sum)[count][4]) {
        const int lane = thread % warp_threads;
        float *const kept = kept_of(ring, thread) + lane / 4 * kept_row + lane % 4 * 2;
        struct alignas(8) Pair {
            float sum[2];
        };
        ND_UNROLL
        for (int j = 0; j < count; j++) {
            ND_UNROLL
            for (int lower = 0; lower < 2; lower++)
                *(Pair *)(void *)(kept + (row + 8 * lower) * kept_row + 8 * j) =
                    Pair{{sum[j][2 * lower], sum[j][2 * lower + 1]}};
        }
    }
    /// A row of the warp's by neighbouring lanes, four results each.
    template <class Thread> ND_BOTH void finish(const Thread &own, Slot *ring) const {
        constexpr int run = 4, of_row = kept_columns / run;
        constexpr int lanes = of_row < warp_threads ? of_row : warp_threads;
        const Tile tile = grid.locate(own.block);
        const int lane = own.thread % warp_threads, inner = lane % lanes * run;
        const float *const kept = kept_of(ring, own.thread);
        const int64_t row = tile.first_row + row_of(own.thread);
        const int64_t column = tile.first_column + column_of(own.thread) + inner;
        ND_UNROLL_2
        for (int i = lane / lanes; i < kept_rows; i += warp_threads / lanes) {
            ND_UNROLL
            for (int across = 0; across < kept_columns; across += lanes * run) {
                const TilePack<float> sums =
                    *(const TilePack<float> *)(const void *)(kept + i * kept_row + inner + across);
                if (partial.data && grid.n % run == 0)
                    keep_part(tile, row + i, column + across, sums);
                else
                    put_sums<run>(grid, result, partial, tile, row + i, column + across,
                                  sums.element);
            }
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
