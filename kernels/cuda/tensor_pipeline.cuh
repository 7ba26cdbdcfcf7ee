// Products of 16-bit floats whose rows are aligned, by tensor cores (mma.sync m16n8k16) and a ring of
// slices in shared memory (ring_tile.cuh). For compute capability 9.0, whose tensor cores mma.sync does not
// use in full, warpgroup_pipeline.cuh has other tiles.
//
// Computed for the tile of 128 x 256 results by 8 warps of 64 x 64 each, of which a
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
// and begin 3,400 cycles before they are waited for. An H200 did 438 TFLOP/s of 8,192 x 8,192, 44 % of its
// full rate.
//
// A tile of 128 x 128 by 4 warps reads 32 KiB for a slice of half as many products (64 operations a
// byte), one of 64 x 128 24 KiB for a quarter (43 a byte): they are for what large ones would not fill
// the device with, and where a block cannot have the 144 KiB of the large ring.
//
// Where there are no tensor cores each lane reads from the addresses that the lanes of its warp would
// give to ldmatrix, and multiplies with the fragments that they hold.
#ifndef ND_KERNELS_CUDA_TENSOR_PIPELINE_CUH
#define ND_KERNELS_CUDA_TENSOR_PIPELINE_CUH
#include "kernels/cuda/ring_tile.cuh"
#include "kernels/cuda/tensor.cuh"

namespace nd_cuda {

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
struct PipelinedTile : RingTile<a_along_k, b_along_k, Result, 16 * own_rows * warps_down,
                                16 * own_columns * warps_across, 32 * warps_down * warps_across,
                                16 * own_rows, 16 * own_columns, 3> {
    typedef RingTile<a_along_k, b_along_k, Result, 16 * own_rows * warps_down,
                     16 * own_columns * warps_across, 32 * warps_down * warps_across, 16 * own_rows,
                     16 * own_columns, 3>
        Ring;
    typedef typename Ring::Slot Slot;
    static constexpr bool multiplies_beside = false;
    static constexpr int steps = 4, resident = resident_;

    struct Thread {
        typename Ring::Copies copies;
        typename Ring::LeftCopies a_copies;
        typename Ring::RightCopies b_copies;
        FragmentRows<a_along_k, false> a_rows;
        FragmentRows<b_along_k, true> b_rows;
        Fragment a[2][own_rows], b[2][own_columns];
        float sum[own_rows][2 * own_columns][4];
        int64_t block;
        int thread;
    };

    ND_BOTH int begin(Thread &own, int64_t block, int thread) const {
        const Tile tile = this->begin_tile(own, block, thread);
        own.a_rows.begin(Ring::row_of(thread), thread % warp_threads);
        own.b_rows.begin(Ring::column_of(thread), thread % warp_threads);
        this->begin_copies(own, tile);
        ND_UNROLL
        for (int i = 0; i < own_rows; i++) {
            ND_UNROLL
            for (int j = 0; j < 2 * own_columns; j++) {
                ND_UNROLL
                for (int of = 0; of < 4; of++)
                    own.sum[i][j][of] = 0;
            }
        }
        return Ring::slices_of(tile);
    }
    template <int part> ND_BOTH void start(Thread &own, Slot &slot) const {
        this->template start_share<part, steps - 1>(own, slot);
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
    ND_BOTH void keep(Thread &own, Slot *ring) const {
        ND_UNROLL
        for (int i = 0; i < own_rows; i++)
            Ring::keep_rows(ring, own.thread, 16 * i, own.sum[i]);
        own.copies.end();
    }
};

} // namespace nd_cuda
#endif
