// Which tiles products of 16-bit floats take: large ones where these fill the device, small ones and sums
// in parts where they do not, and what fits into a block's shared memory.
#include "kernels/cuda/matmul_halves.cuh"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first, and is C.
extern "C" {
#include <cmocka.h>
}

struct Chosen {
    int64_t rows, columns, parts, tiles;
    bool by_warpgroups;
};

static Chosen chosen_of(int64_t m, int64_t n, int64_t k, int multiprocessors, int shared_bytes,
                        bool has_warpgroups = false) {
    nd_kernel_call call = {};
    call.attrs.i[0] = m;
    call.attrs.i[1] = n;
    call.attrs.i[2] = k;
    nd_cuda_queue queue = {};
    queue.multiprocessors = multiprocessors;
    queue.shared_bytes = shared_bytes;
    queue.has_warpgroups = has_warpgroups;
    nd_cuda::TileGrid grid(0, 0, 0, 0, 1, 1);
    const int tile = nd_cuda::choose_tiles(&queue, &call, &grid);
    if (tile < 0)
        return {0, 0, 0, 0, false};
    // Parts are all of the sum, none is empty, and each but the last ends with a slice.
    assert_true(grid.parts * grid.part_length >= k && (grid.parts - 1) * grid.part_length < k);
    assert_true(grid.parts == 1 || grid.part_length % nd_cuda::slice_of_tiles == 0);
    return {grid.rows, grid.columns, grid.parts, grid.tiles(),
            nd_cuda::tile_costs[tile].by_warpgroups};
}

extern "C" void test_tiles_fill_the_device(void **);

void test_tiles_fill_the_device(void **) {
    const int h100 = 227 << 10, a100 = 163 << 10, rtx = 99 << 10, before = 48 << 10;
    Chosen chosen = chosen_of(4096, 4096, 4096, 132, h100);
    assert_true(chosen.rows == 128 && chosen.columns == 256 && chosen.parts == 1);
    chosen = chosen_of(2048, 2048, 2048, 132, h100); // 128 tiles
    assert_true(chosen.rows == 128 && chosen.columns == 256 && chosen.parts == 1);
    chosen = chosen_of(8192, 8192, 8192, 108, a100);
    assert_true(chosen.rows == 128 && chosen.columns == 256);
    chosen = chosen_of(8192, 8192, 8192, 84, rtx); // where 144 KiB do not fit
    assert_true(chosen.rows == 128 && chosen.columns == 128);
    chosen = chosen_of(1024, 1024, 1024, 132, h100);
    assert_true(chosen.tiles * chosen.parts > 60);
    assert_int_equal(chosen_of(1024, 1024, 1024, 132, before).rows, 0);
    // wgmma where the device has it, its ring fits, and its tiles fill the device.
    assert_false(chosen_of(4096, 4096, 4096, 132, h100).by_warpgroups);
    chosen = chosen_of(4096, 4096, 4096, 132, h100, true);
    assert_true(chosen.by_warpgroups && chosen.columns == 256 && chosen.parts == 1);
    assert_true(chosen_of(2048, 2048, 2048, 132, h100, true).by_warpgroups);
    chosen = chosen_of(1024, 1024, 1024, 132, h100, true);
    assert_true(!chosen.by_warpgroups && chosen.tiles == 128);
    assert_false(chosen_of(8192, 8192, 8192, 132, 72 << 10, true).by_warpgroups);
    // A long sum of few results is cut, a short one is not.
    chosen = chosen_of(256, 256, 65536, 132, h100);
    assert_true(chosen.parts > 8);
    chosen = chosen_of(64, 64, 1 << 20, 132, h100);
    assert_true(chosen.parts > 60);
    assert_int_equal(chosen_of(64, 64, 128, 132, h100).parts, 1);
    // Every size has tiles that reach over all of it.
    for (int64_t size = 1; size < 5000; size += 137) {
        chosen = chosen_of(size, 5000 - size, 8 * size, 132, h100);
        assert_true(chosen.tiles >= nd_cuda::divide_up(size, chosen.rows) *
                                        nd_cuda::divide_up(5000 - size, chosen.columns));
    }
}
