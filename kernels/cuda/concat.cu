// concat, of COPY: rows of several operands behind each other, in one launch.
//
// Threads go along the result, so that neighbours write neighbouring places, and find the operand by the
// place in the row. Elements are moved unseen, in units of the most bytes, up to 16, at whose multiples
// all runs of all operands begin and end; a thread asks for all of its units before it has the first.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/erased.cuh"

namespace nd_cuda {

constexpr int most_parts = ND_MAX_OPERANDS - 1;

/// Strides, and places in a row, are in units.
template <class Unit> struct Concat {
    static constexpr int units = sizeof(Unit) < 4 ? 8 : 4; ///< per thread
    static constexpr int least_blocks = 4;
    struct Part {
        const Unit *data;
        int64_t stride;
        int64_t begin; ///< in a row of the result; INT64_MAX where there is no such part
    };
    Unit *out;
    int64_t out_stride;
    Walk<2> walk; ///< over rows and their units: the place in the result, and the row
    Part part[most_parts];

    int64_t blocks() const {
        return divide_up(walk.count, (int64_t)block_threads * units);
    }
    ND_BOTH Unit at(int64_t row, int64_t column) const {
        int which = 0;
        ND_UNROLL
        for (int k = 1; k < most_parts; k++)
            which += column >= part[k].begin;
        const Part &of = part[which];
        return of.data[row * of.stride + column - of.begin];
    }
    ND_BOTH void operator()(int64_t block, int thread) const {
        Unit moved[units];
        int64_t place[units];
        const int64_t first = block * block_threads * units + thread;
        ND_UNROLL
        for (int i = 0; i < units; i++) {
            const int64_t index = first + i * block_threads;
            if (index >= walk.count)
                continue;
            int64_t offset[2];
            walk.offsets(index, offset);
            place[i] = offset[0];
            moved[i] = at(offset[1], offset[0] - offset[1] * out_stride);
        }
        ND_UNROLL
        for (int i = 0; i < units; i++)
            if (first + i * block_threads < walk.count)
                out[place[i]] = moved[i];
    }
};

/// The most bytes, up to 16, at whose multiples all runs begin and end: of every place in bytes, and the
/// pointers, the lowest bit that is set.
static int64_t unit_bytes(const nd_kernel_call *call, int64_t bytes) {
    uint64_t places = 16;
    for (int k = 0; k < call->noperands; k++) {
        const nd_operand &of = call->operand[k];
        places |= (uintptr_t)of.data;
        places |= k > 0 ? (uint64_t)(call->attrs.i[k - 1] * bytes) : 0;
        places |= call->shape[0] > 1 ? (uint64_t)(of.strides[0] * bytes) : 0;
    }
    return (int64_t)(places & -places);
}

/// Of elements of `bytes`.
template <class Unit>
static nd_status run_concat(const nd_cuda_queue *queue, const nd_kernel_call *call, int64_t bytes) {
    constexpr int64_t unit = sizeof(Unit);
    const int64_t rows = call->shape[0];
    const auto stride_of = [&](const nd_operand &of) {
        return rows > 1 ? of.strides[0] * bytes / unit : 0;
    };
    Concat<Unit> body = {(Unit *)call->operand[0].data, stride_of(call->operand[0]), Walk<2>(), {}};
    int64_t columns = 0;
    for (int k = 0; k < most_parts; k++) {
        body.part[k].begin = INT64_MAX;
        if (k + 1 >= call->noperands)
            continue;
        const nd_operand &x = call->operand[k + 1];
        body.part[k] = {(const Unit *)x.data, stride_of(x), columns};
        columns += call->attrs.i[k] * bytes / unit;
    }
    const int64_t row[2] = {body.out_stride, 1}, column[2] = {1, 0};
    if (rows != 1)
        body.walk.add_axis(rows, row);
    body.walk.add_axis(columns, column);
    return run_threads(queue, body.blocks(), body);
}

} // namespace nd_cuda

nd_status nd__cuda_concat(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const int64_t bytes = dtype_bytes(call->operand[0].dtype);
    switch (unit_bytes(call, bytes)) {
    case 1:
        return run_concat<uint8_t>(queue, call, bytes);
    case 2:
        return run_concat<uint16_t>(queue, call, bytes);
    case 4:
        return run_concat<uint32_t>(queue, call, bytes);
    case 8:
        return run_concat<uint64_t>(queue, call, bytes);
    default:
        return run_concat<Pack<uint32_t, 4>>(queue, call, bytes);
    }
}
