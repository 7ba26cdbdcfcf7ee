// MATMUL of 16-bit floats whose operands and rows are 16-byte aligned, as those of nearly all nets
// are: which tiles, and into how many parts a sum is cut. Everything else goes to matmul.cu.
#ifndef ND_KERNELS_CUDA_MATMUL_HALVES_CUH
#define ND_KERNELS_CUDA_MATMUL_HALVES_CUH
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tensor_pipeline.cuh"
#include "kernels/cuda/warpgroup_pipeline.cuh"

namespace nd_cuda {

/// An operand as a pipeline takes it.
struct AlignedOperand {
    AlignedLines lines;
    bool along_k, there; ///< there: it may be taken
};

inline AlignedOperand aligned_operand(const nd_kernel_call *call, int operand) {
    const int64_t *i = call->attrs.i;
    const int64_t k = i[2], lines = operand == 1 ? i[0] : i[1];
    const int64_t line_stride = operand == 1 ? i[3] : i[6], k_stride = operand == 1 ? i[4] : i[5];
    const uint16_t *data = (const uint16_t *)call->operand[operand].data;
    const bool aligned = (uintptr_t)data % 16 == 0 && is_batch_aligned(call, operand, 8);
    if (k_stride == 1 && line_stride % 8 == 0 && k % 8 == 0)
        return AlignedOperand{{data, lines, line_stride}, true, aligned};
    return AlignedOperand{{data, lines, k_stride},
                          false,
                          aligned && line_stride == 1 && k_stride % 8 == 0 && lines % 8 == 0};
}

/// What a tile costs: fitted to products of 2,048 to 8,192 rows, columns and k on an H200.
struct TileCost {
    int rows, columns;
    int cycles; ///< of a multiprocessor for a slice: tensor cores, or reads from shared memory
    int ends;   ///< before the first slice and behind the last one
    int shared_bytes;   ///< of a block
    bool by_warpgroups; ///< for devices that have wgmma, and code for it
};
static constexpr int slice_of_tiles = 64;
static constexpr double l2_bytes_per_cycle = 36; ///< of a multiprocessor, when all read

template <int rows, int columns, int stages = 3>
constexpr TileCost tile_cost(int cycles, int ends, bool by_warpgroups = false) {
    return TileCost{
        rows, columns, cycles, ends, stages * slice_of_tiles * 2 * (rows + columns), by_warpgroups};
}
static constexpr TileCost tile_costs[] = {
    tile_cost<128, 256>(2200, 4000),      tile_cost<128, 128>(1200, 3000),
    tile_cost<64, 128>(700, 2000),        tile_cost<128, 256, 4>(1600, 4000, true),
    tile_cost<128, 128>(900, 3000, true),
};

/// Cycles that a grid of such tiles takes, with sums in `grid.parts`.
inline double cycles_of(const TileGrid &grid, const TileCost &cost, double multiprocessors) {
    const double blocks = (double)(grid.tiles() * grid.parts);
    const double slices = (double)divide_up(grid.part_length, slice_of_tiles);
    const double in_turn = (double)divide_up((int64_t)blocks, (int64_t)multiprocessors);
    const double to_multiply = in_turn * (slices * cost.cycles + cost.ends);
    const double bytes = blocks * slices * slice_of_tiles * 2 * (cost.rows + cost.columns);
    const double to_read = bytes / (l2_bytes_per_cycle * multiprocessors) + cost.ends;
    double cycles = to_multiply > to_read ? to_multiply : to_read;
    if (grid.parts > 1) {
        const double sums = (double)(grid.entries * grid.m * grid.n);
        cycles += 5000 + sums * 8 * (double)grid.parts / (20 * multiprocessors);
    }
    return cycles;
}

/// The quickest of all grids; -1: no tile fits into the device's shared memory.
inline int choose_tiles(const nd_cuda_queue *queue, const nd_kernel_call *call,
                        TileGrid *ret_grid) {
    static const int parts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
    const int64_t *i = call->attrs.i, entries = Walk<3>(call).count;
    int chosen = -1;
    double least = 0;
    for (int tile = 0; tile < (int)(sizeof tile_costs / sizeof *tile_costs); tile++) {
        const TileCost &cost = tile_costs[tile];
        if (cost.shared_bytes > queue->shared_bytes ||
            (cost.by_warpgroups && !(queue->has_warpgroups && ND_CODE_FOR_SM_90A)))
            continue;
        TileGrid grid(entries, i[0], i[1], i[2], cost.rows, cost.columns);
        for (int part : parts) {
            // Of two slices at least, and no more than fill the device.
            if (part > 1 && (i[2] / part < 2 * slice_of_tiles ||
                             grid.tiles() * (part - 1) >= 2 * queue->multiprocessors))
                break;
            grid.cut_into(part, slice_of_tiles);
            const double cycles = cycles_of(grid, cost, queue->multiprocessors);
            if (chosen < 0 || cycles < least) {
                chosen = tile;
                least = cycles;
                *ret_grid = grid;
            }
        }
    }
    return chosen;
}

typedef MatrixResult<HalfStore> HalfResult;

template <class Body>
nd_status run_tile(const nd_cuda_queue *queue, const nd_kernel_call *call, const TileGrid &grid,
                   const AlignedLines &a, const AlignedLines &b) {
    const HalfResult result(call);
    return run_parts<float>(
        queue, grid, result, [&](int64_t blocks, const PartialSums<float> &partial) {
            return run_pipelines(queue, blocks, Body{{grid, a, b, result, partial}});
        });
}

template <bool brain, bool a_along_k, bool b_along_k>
nd_status run_layout(const nd_cuda_queue *queue, const nd_kernel_call *call, const AlignedLines &a,
                     const AlignedLines &b) {
    TileGrid grid(0, 0, 0, 0, 1, 1);
    const int tile = choose_tiles(queue, call, &grid);
    switch (tile) {
    case 0:
        return run_tile<PipelinedTile<brain, a_along_k, b_along_k, HalfResult, 2, 4, 4, 4, 1>>(
            queue, call, grid, a, b);
    case 1:
        return run_tile<PipelinedTile<brain, a_along_k, b_along_k, HalfResult, 2, 2, 4, 4, 2>>(
            queue, call, grid, a, b);
    case 2:
        return run_tile<PipelinedTile<brain, a_along_k, b_along_k, HalfResult, 2, 2, 2, 4, 3>>(
            queue, call, grid, a, b);
    }
#if ND_CODE_FOR_SM_90A
    if (tile == 3)
        return run_tile<WarpgroupTile<brain, a_along_k, b_along_k, HalfResult, 2, 256, 4, 1, 1>>(
            queue, call, grid, a, b);
    if (tile == 4)
        return run_tile<WarpgroupTile<brain, a_along_k, b_along_k, HalfResult, 2, 128, 3, 1, 2>>(
            queue, call, grid, a, b);
#endif
    return ND_ERROR_UNSUPPORTED;
}

template <bool brain>
nd_status run_aligned(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const AlignedOperand a = aligned_operand(call, 1), b = aligned_operand(call, 2);
    const int64_t k = call->attrs.i[2], longest = (int64_t)1 << 30;
    if (!a.there || !b.there || k == 0 || k > longest)
        return ND_ERROR_UNSUPPORTED;
    if (a.along_k)
        return b.along_k ? run_layout<brain, true, true>(queue, call, a.lines, b.lines)
                         : run_layout<brain, true, false>(queue, call, a.lines, b.lines);
    return b.along_k ? run_layout<brain, false, true>(queue, call, a.lines, b.lines)
                     : run_layout<brain, false, false>(queue, call, a.lines, b.lines);
}

} // namespace nd_cuda
#endif
