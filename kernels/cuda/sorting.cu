// SORT along the last axis of the iteration space, and searches in sorted rows.
//
// Every element becomes a pair of a key (kernels/sorting.h) and its position in its row. Sorted
// pieces, of one pair at first, are merged with their neighbours, all rows at once: a pair's place
// is its own in its piece and its rank in the other, where equal ones of the first piece come
// before. One launch per doubling; the result, a stable order, is unique.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/walk.cuh"
#include "kernels/sorting.h"

namespace nd_cuda {

struct Pair {
    uint64_t key;
    int64_t position;
};

struct ReadPairs {
    const void *x;
    nd_dtype dtype;
    Walk<1> rows;
    int64_t size, stride;
    uint64_t turned; ///< descending: all bits
    Pair *out;       ///< [rows][size]

    ND_BOTH void operator()(int64_t index) const {
        int64_t row = index / size, place = index % size;
        uint64_t key = nd__sorting_key(x, dtype, rows.offset(row) + place * stride);
        out[index] = Pair{key ^ turned, place};
    }
};

struct MergePairs {
    const Pair *from;
    Pair *to;
    int64_t size, width; ///< of a row and of its sorted pieces

    ND_BOTH void operator()(int64_t index) const {
        int64_t row = index / size * size, place = index - row;
        int64_t first = place / (2 * width) * (2 * width), other = first + width;
        bool behind = place >= other;
        // The other piece, [begin, end) of the row; it may be short or missing.
        int64_t begin = behind ? first : other, end = begin + width;
        begin = begin < size ? begin : size;
        end = end < size ? end : size;
        Pair own = from[index];
        int64_t low = begin;
        while (low < end) {
            int64_t middle = low + (end - low) / 2;
            uint64_t key = from[row + middle].key;
            if (key < own.key || (behind && key == own.key))
                low = middle + 1;
            else
                end = middle;
        }
        int64_t inside = place - (behind ? other : first);
        to[row + first + inside + (low - begin)] = own;
    }
};

struct WritePositions {
    const Pair *from;
    int64_t *out;
    Walk<1> rows;
    int64_t size, kept, stride;

    ND_BOTH void operator()(int64_t index) const {
        int64_t row = index / kept, place = index % kept;
        out[rows.offset(row) + place * stride] = from[row * size + place].position;
    }
};

static nd_status argsort(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    int last = call->ndim - 1;
    int64_t size = call->shape[last], kept = call->attrs.i[1];
    Walk<1> rows[2];
    for (int axis = 0; axis < last; axis++)
        for (int which = 0; which < 2; which++)
            rows[which].add_axis(call->shape[axis], &call->operand[which].strides[axis]);
    int64_t total = rows[0].count * size;
    if (total == 0 || kept == 0)
        return ND_OK;
    Scratch scratch(queue, 2 * total * (int64_t)sizeof(Pair));
    if (scratch.status != ND_OK)
        return scratch.status;
    Pair *from = (Pair *)scratch.data, *to = from + total;
    const nd_operand &x = call->operand[1];
    nd_status status = run_elements(queue, total,
                                    ReadPairs{x.data, x.dtype, rows[1], size, x.strides[last],
                                              call->attrs.i[0] ? UINT64_MAX : 0, from});
    for (int64_t width = 1; width < size && status == ND_OK; width *= 2) {
        status = run_elements(queue, total, MergePairs{from, to, size, width});
        Pair *other = from;
        from = to;
        to = other;
    }
    if (status == ND_OK)
        status = run_elements(queue, rows[0].count * kept,
                              WritePositions{from, (int64_t *)call->operand[0].data, rows[0], size,
                                             kept, call->operand[0].strides[last]});
    return status;
}

struct SearchSorted {
    int64_t *out;
    const void *sorted, *values;
    nd_dtype dtype;
    Walk<3> walk; ///< out, the row of sorted, values
    int64_t size, stride;
    bool right;

    ND_BOTH void operator()(int64_t index) const {
        int64_t offset[3];
        walk.offsets(index, offset);
        uint64_t key = nd__sorting_key(values, dtype, offset[2]);
        out[offset[0]] = nd__sorting_rank(sorted, dtype, offset[1], stride, size, key, right);
    }
};

static nd_status searchsorted(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    SearchSorted body{(int64_t *)call->operand[0].data,
                      call->operand[1].data,
                      call->operand[2].data,
                      call->operand[1].dtype,
                      Walk<3>(call),
                      call->attrs.i[0],
                      call->attrs.i[1],
                      call->attrs.i[2] != 0};
    if (body.walk.count == 0)
        return ND_OK;
    return run_elements(queue, body.walk.count, body);
}

} // namespace nd_cuda

nd_status nd__cuda_sorting(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->op) {
    case ND_OP_argsort:
        return nd_cuda::argsort(queue, call);
    case ND_OP_searchsorted:
        return nd_cuda::searchsorted(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
