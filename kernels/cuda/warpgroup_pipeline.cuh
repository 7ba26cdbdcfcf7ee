// Tiles of products of 16-bit floats whose rows are aligned, multiplied by warpgroups (wgmma) from a ring
// of slices in shared memory, on devices of compute capability 9.0.
//
// wgmma reads both operands from shared memory for 64 lines of four warps at once, so fragments cost
// neither registers nor instructions, and it runs beside the threads that started it: they wait for the
// next slice and copy the one after that meanwhile.
//
// Computed for the tile of 128 x 256 results by two warpgroups of 64 x 256 each, of which a
// multiprocessor holds one block: a slice is 8 wgmma of 128 cycles at 2,048 multiplications with additions
// a cycle, 1,024 cycles. Each reads 10 KiB of shared memory, 80 cycles at 128 bytes a cycle, and 48 KiB are
// copied there in that time: together all that shared memory can do. From the second cache a slice takes
// 1,755 cycles at 28 bytes a cycle (tensor_pipeline.cuh), so that is the bound, at 58 % of the full rate,
// where copies of several multiprocessors are not joined by TMA (multicast), which is left out. The tile of
// 128 x 128 reads 32 KiB for half as many products: 1,170 cycles for 512. Two blocks of it are beside each
// other, and one multiplies while the other begins or ends. An H200 did 638 TFLOP/s of 8,192 x 8,192, 64 %
// of its full rate, so its second cache gives a little more; with three slots in place of four, 497.
#ifndef ND_KERNELS_CUDA_WARPGROUP_PIPELINE_CUH
#define ND_KERNELS_CUDA_WARPGROUP_PIPELINE_CUH
#include "kernels/cuda/ring_tile.cuh"
#include "kernels/cuda/warpgroups.cuh"

namespace nd_cuda {

/// A tile of 64 groups x columns_ results by so many warpgroups. `running_`: slices whose products may be on
/// their way when the next one is there.
template <bool brain, bool a_along_k, bool b_along_k, class Result, int groups, int columns_,
          int stages_, int running_, int resident_>
struct WarpgroupTile : RingTile<a_along_k, b_along_k, Result, groups * warpgroup_lines, columns_,
                                groups * warpgroup_threads, 16, columns_, stages_> {
    typedef RingTile<a_along_k, b_along_k, Result, groups * warpgroup_lines, columns_,
                     groups * warpgroup_threads, 16, columns_, stages_>
        Ring;
    typedef typename Ring::Slot Slot;
    static constexpr bool multiplies_beside = true;
    static constexpr int running = running_, resident = resident_;
    static_assert(running <= 1, "more groups of wgmma than it is good for");

    struct Thread {
        typename Ring::Copies copies;
        typename Ring::LeftCopies a_copies;
        typename Ring::RightCopies b_copies;
        ProductsUnderWay<brain, a_along_k, b_along_k, columns_, Ring::slice, running + 1> products;
        int64_t block;
        int thread;
        int first; ///< where the warpgroup's lines begin in a slice of the left operand
    };

    ND_BOTH int begin(Thread &own, int64_t block, int thread) const {
        int group = thread / warpgroup_threads;
#ifdef __CUDA_ARCH__
        group =
            __shfl_sync(0xFFFFFFFFu, group, 0); // the same in all lanes, as the compiler cannot see
#endif
        // Either 64 rows or a panel.
        own.first = group * warpgroup_lines * Ring::slice;
        own.products.begin(thread);
        const Tile tile = this->begin_tile(own, block, thread);
        this->begin_copies(own, tile);
        return Ring::slices_of(tile);
    }
    ND_BOTH void start(Thread &own, Slot &slot) const {
        this->template start_share<0, 1>(own, slot);
        this->advance(own);
    }
    ND_BOTH void multiply(Thread &own, const Slot &slot) const {
        own.products.start(slot.a + own.first, slot.b);
    }
    ND_BOTH void keep(Thread &own, Slot *ring) const {
        Ring::keep_rows(ring, own.thread, 0, own.products.sum);
        own.copies.end();
    }
};

} // namespace nd_cuda
#endif
