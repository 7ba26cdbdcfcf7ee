// INDEX: take, gather, scatter_add, scatter_reduce, one_hot, masked_select, nonzero.
//
// An index out of range raises the queue's flag and is otherwise left out. Elements that are only
// moved are compiled per size.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/walk.cuh"
#include <string.h>
#include <type_traits>

namespace nd_cuda {

/// What take moves at once.
struct alignas(16) Unit16 {
    uint64_t half[2];
};

/// Whether the elements of a row lie one behind the other.
static bool takes_dense_rows(const nd_kernel_call *call) {
    return call->attrs.i[2] == 1 || call->attrs.i[6] == 1;
}

template <class T> struct Take {
    const T *x;
    const int64_t *indices;
    T *out;
    Walk<2> walk;      ///< over [outer, indices, inner]; x without the indexed axis, indices
    int64_t size, row; ///< the second: from row to row of x
    int32_t *out_of_range;

    ND_BOTH void operator()(int64_t element) const {
        int64_t offset[2];
        walk.offsets(element, offset);
        int64_t index = indices[offset[1]];
        if (index < 0 || index >= size)
            *out_of_range = 1;
        else
            out[element] = x[offset[0] + index * row];
    }
};

/// `bytes` as so many units.
template <class T> static int64_t units(int64_t bytes) {
    return bytes / (int64_t)sizeof(T);
}

/// In units of T, which rows, where they lie dense, and strides are multiples of.
template <class T>
static nd_status run_take(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const int64_t bytes = dtype_bytes(call->operand[0].dtype), *i = call->attrs.i;
    const int64_t outer = i[0], count = i[1], size = i[3], inner = units<T>(i[2] * bytes);
    Take<T> body{(const T *)call->operand[1].data,
                 (const int64_t *)call->operand[2].data,
                 (T *)call->operand[0].data,
                 Walk<2>(),
                 size,
                 units<T>(i[5] * bytes),
                 queue->out_of_range};
    int64_t outer_stride[2] = {units<T>(i[4] * bytes), 0}, index_stride[2] = {0, 1};
    int64_t inner_stride[2] = {takes_dense_rows(call) ? 1 : i[6], 0};
    body.walk.add_axis(outer, outer_stride);
    body.walk.add_axis(count, index_stride);
    body.walk.add_axis(inner, inner_stride);
    if (body.walk.count == 0)
        return ND_OK;
    return run_elements(queue, body.walk.count, body);
}

/// Moves rows in the largest units that rows, strides and addresses are multiples of.
static nd_status take(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const uint64_t bytes = (uint64_t)dtype_bytes(call->operand[0].dtype);
    const int64_t *i = call->attrs.i;
    uint64_t common = bytes;
    if (takes_dense_rows(call))
        common = bytes * (uint64_t)(i[2] | i[5] | (i[0] > 1 ? i[4] : 0)) |
                 (uint64_t)(uintptr_t)call->operand[0].data |
                 (uint64_t)(uintptr_t)call->operand[1].data;
    if (common % 16 == 0)
        return run_take<Unit16>(queue, call);
    if (common % 8 == 0)
        return run_take<uint64_t>(queue, call);
    if (common % 4 == 0)
        return run_take<uint32_t>(queue, call);
    if (common % 2 == 0)
        return run_take<uint16_t>(queue, call);
    return run_take<uint8_t>(queue, call);
}

template <class T> struct Gather {
    const T *x;
    const int64_t *indices;
    T *out;
    Walk<3> walk; ///< out, x without the indexed axis, indices
    int64_t size, stride;
    int32_t *out_of_range;

    ND_BOTH void operator()(int64_t element) const {
        int64_t offset[3];
        walk.offsets(element, offset);
        int64_t index = indices[offset[2]];
        if (index < 0 || index >= size)
            *out_of_range = 1;
        else
            out[offset[0]] = x[offset[1] + index * stride];
    }
};

template <class T>
static nd_status run_gather(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    int axis = (int)call->attrs.i[0];
    Gather<T> body{(const T *)call->operand[1].data,
                   (const int64_t *)call->operand[2].data,
                   (T *)call->operand[0].data,
                   Walk<3>(call),
                   call->attrs.i[1],
                   call->operand[1].strides[axis],
                   queue->out_of_range};
    body.walk.strides[1][axis] = 0;
    if (body.walk.count == 0)
        return ND_OK;
    return run_elements(queue, body.walk.count, body);
}

// What a place holds and what comes to it, joined; NaN wins.
struct Sum {
    template <class T> static ND_BOTH T of(T a, T b) {
        typedef typename Wide<T>::type W;
        return (T)((W)a + (W)b);
    }
};
struct Product {
    template <class T> static ND_BOTH T of(T a, T b) {
        typedef typename Wide<T>::type W;
        return (T)((W)a * (W)b);
    }
};
struct Least {
    template <class T> static ND_BOTH T of(T a, T b) {
        return b < a || is_nan(b) ? b : a;
    }
};
struct Greatest {
    template <class T> static ND_BOTH T of(T a, T b) {
        return b > a || is_nan(b) ? b : a;
    }
};

/// An unsigned integer as large as T, 4 or 8 bytes, that the hardware compares and swaps.
template <class T>
using Word = typename std::conditional<sizeof(T) == 4, unsigned, unsigned long long>::type;

/// Joins beside other threads that do the same to the same element.
template <class Join> struct Shared {
    template <class T> static ND_BOTH void join(T *to, T value) {
#ifdef __CUDA_ARCH__
        Word<T> *word = (Word<T> *)to, seen = *(volatile Word<T> *)word, expected;
        do {
            expected = seen;
            T joined, before;
            memcpy(&before, &expected, sizeof before);
            joined = Join::of(before, value);
            Word<T> next;
            memcpy(&next, &joined, sizeof next);
            if (next == expected)
                return;
            seen = atomicCAS(word, expected, next);
        } while (seen != expected);
#else
        *to = Join::of(*to, value);
#endif
    }
};
template <> struct Shared<Sum> {
    template <class T> static ND_BOTH void join(T *to, T value) {
#ifdef __CUDA_ARCH__
        atomicAdd(to, value);
#else
        *to = Sum::of(*to, value);
#endif
    }
    static ND_BOTH void join(int64_t *to, int64_t value) {
#ifdef __CUDA_ARCH__
        atomicAdd((unsigned long long *)to, (unsigned long long)value);
#else
        *to = Sum::of(*to, value);
#endif
    }
};

template <class T> struct Scatter {
    const T *source;
    const int64_t *indices;
    T *out;
    Walk<3> walk; ///< out without the indexed axis, indices, source
    int64_t size, stride;
    int32_t *out_of_range;
};

/// One thread per line along the axis. Elements of different lines never meet, so the order of
/// joining is that of the line.
template <class T, class Join> struct ScatterLines : Scatter<T> {
    int64_t length, index_stride, source_stride; ///< of the axis, which the walk leaves out

    ND_BOTH void operator()(int64_t line) const {
        int64_t offset[3];
        this->walk.offsets(line, offset);
        for (int64_t position = 0; position < length; position++) {
            int64_t index = this->indices[offset[1] + position * index_stride];
            if (index < 0 || index >= this->size) {
                *this->out_of_range = 1;
                continue;
            }
            T *to = this->out + offset[0] + index * this->stride;
            *to = Join::of(*to, this->source[offset[2] + position * source_stride]);
        }
    }
};

/// One thread per element; the order of joining is the hardware's.
template <class T, class Join> struct ScatterElements : Scatter<T> {
    ND_BOTH void operator()(int64_t element) const {
        int64_t offset[3];
        this->walk.offsets(element, offset);
        int64_t index = this->indices[offset[1]];
        if (index < 0 || index >= this->size)
            *this->out_of_range = 1;
        else
            Shared<Join>::join(this->out + offset[0] + index * this->stride,
                               this->source[offset[2]]);
    }
};

/// Lines give the same bits every time, and are taken where the call asks for that, while there are
/// enough of them, or they are short. Integers have the same bits in any order; products of floats
/// always keep to lines, because their order may decide between 0, infinity and NaN.
constexpr int64_t enough_lines = 1024, short_line = 64;

template <class T, class Join>
static nd_status run_scatter(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    int axis = (int)call->attrs.i[0];
    ScatterLines<T, Join> lines = {};
    lines.source = (const T *)call->operand[2].data;
    lines.indices = (const int64_t *)call->operand[1].data;
    lines.out = (T *)call->operand[0].data;
    lines.out_of_range = queue->out_of_range;
    lines.size = call->attrs.i[1];
    lines.stride = call->operand[0].strides[axis];
    lines.length = call->shape[axis];
    lines.index_stride = call->operand[1].strides[axis];
    lines.source_stride = call->operand[2].strides[axis];
    for (int other = 0; other < call->ndim; other++) {
        int64_t stride[3] = {call->operand[0].strides[other], call->operand[1].strides[other],
                             call->operand[2].strides[other]};
        if (other != axis)
            lines.walk.add_axis(call->shape[other], stride);
    }
    if (lines.walk.count * lines.length == 0)
        return ND_OK;
    if constexpr (sizeof(T) >= 4 && !(is_float<T> && std::is_same<Join, Product>::value)) {
        bool any_order = call->attrs.i[2] == 0 || std::is_integral<T>::value;
        if (any_order && lines.walk.count < enough_lines && lines.length > short_line) {
            ScatterElements<T, Join> elements = {};
            (Scatter<T> &)elements = lines;
            elements.walk = Walk<3>(call);
            elements.walk.strides[0][axis] = 0;
            return run_elements(queue, elements.walk.count, elements);
        }
    }
    return run_elements(queue, lines.walk.count, lines);
}

struct OneHot {
    const int64_t *indices;
    void *out;
    nd_dtype dtype;
    int64_t classes;
    int32_t *out_of_range;

    ND_BOTH void operator()(int64_t element) const {
        int64_t position = element / classes;
        int64_t label = element - position * classes;
        int64_t index = indices[position];
        if (label == 0 && (index < 0 || index >= classes))
            *out_of_range = 1;
        store_as<int64_t>(out, dtype, element, index == label);
    }
};

static nd_status one_hot(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    int64_t count = call->attrs.i[0], classes = call->attrs.i[1];
    if (count * classes == 0)
        return count == 0 ? ND_OK : ND_ERROR_INVALID_ARGUMENT;
    const nd_operand &out = call->operand[0];
    return run_elements(queue, count * classes,
                        OneHot{(const int64_t *)call->operand[1].data, out.data, out.dtype, classes,
                               queue->out_of_range});
}

// masked_select and nonzero: how many elements each chunk of the mask lets through gives, summed in
// two levels, where each chunk writes.
constexpr int64_t chunk_length = 256;

struct CountChunk {
    const uint8_t *mask;
    int64_t *counts;
    int64_t numel;

    ND_BOTH void operator()(int64_t chunk) const {
        int64_t end = (chunk + 1) * chunk_length < numel ? (chunk + 1) * chunk_length : numel;
        int64_t count = 0;
        for (int64_t index = chunk * chunk_length; index < end; index++)
            count += mask[index] != 0;
        counts[chunk] = count;
    }
};

/// Replaces every entry by the sum of those before it in its chunk; the chunk's sum goes to totals.
struct SumBefore {
    int64_t *counts;
    int64_t *totals;
    int64_t ncounts, length;

    ND_BOTH void operator()(int64_t chunk) const {
        int64_t end = (chunk + 1) * length < ncounts ? (chunk + 1) * length : ncounts;
        int64_t sum = 0;
        for (int64_t index = chunk * length; index < end; index++) {
            int64_t count = counts[index];
            counts[index] = sum;
            sum += count;
        }
        totals[chunk] = sum;
    }
};

/// The element itself.
template <class T> struct WriteElement {
    const T *x;
    T *out;

    ND_BOTH void operator()(int64_t to, int64_t index) const {
        out[to] = x[index];
    }
};

/// Its place along each axis.
struct WritePlace {
    int64_t *out;
    int64_t sizes[ND_MAX_DIMS];
    int axes;

    ND_BOTH void operator()(int64_t to, int64_t index) const {
        // Sizes whose places the compiler knows need no local memory.
        ND_UNROLL
        for (int axis = ND_MAX_DIMS - 1; axis > 0; axis--)
            if (axis < axes) {
                int64_t outer = index / sizes[axis];
                out[to * axes + axis] = index - outer * sizes[axis];
                index = outer;
            }
        out[to * axes] = index;
    }
};

template <class Write> struct SelectChunk {
    Write write;
    const uint8_t *mask;
    const int64_t *before, *chunks_before;
    int64_t numel;

    ND_BOTH void operator()(int64_t chunk) const {
        int64_t end = (chunk + 1) * chunk_length < numel ? (chunk + 1) * chunk_length : numel;
        int64_t next = before[chunk] + chunks_before[chunk / chunk_length];
        for (int64_t index = chunk * chunk_length; index < end; index++)
            if (mask[index])
                write(next++, index);
    }
};

/// Writes what the mask lets through, in its order.
template <class Write>
static nd_status run_select(const nd_cuda_queue *queue, const Write &write, const uint8_t *mask,
                            int64_t numel) {
    if (numel == 0)
        return ND_OK;
    int64_t chunks = divide_up(numel, chunk_length);
    int64_t superchunks = divide_up(chunks, chunk_length);
    Scratch scratch(queue, (chunks + superchunks + 1) * (int64_t)sizeof(int64_t));
    if (scratch.status != ND_OK)
        return scratch.status;
    int64_t *before = (int64_t *)scratch.data;
    int64_t *chunks_before = before + chunks;
    int64_t *total = chunks_before + superchunks;
    nd_status status = run_elements(queue, chunks, CountChunk{mask, before, numel});
    if (status == ND_OK)
        status = run_elements(queue, superchunks,
                              SumBefore{before, chunks_before, chunks, chunk_length});
    if (status == ND_OK)
        status = run_elements(queue, 1, SumBefore{chunks_before, total, superchunks, superchunks});
    if (status == ND_OK)
        status = run_elements(queue, chunks,
                              SelectChunk<Write>{write, mask, before, chunks_before, numel});
    return status;
}

template <class T>
static nd_status masked_select(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    WriteElement<T> write{(const T *)call->operand[1].data, (T *)call->operand[0].data};
    return run_select(queue, write, (const uint8_t *)call->operand[2].data, call->attrs.i[0]);
}

static nd_status nonzero(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    WritePlace write{(int64_t *)call->operand[0].data, {0}, (int)call->attrs.i[2]};
    for (int axis = 0; axis < write.axes; axis++)
        write.sizes[axis] = call->attrs.i[3 + axis];
    return run_select(queue, write, (const uint8_t *)call->operand[1].data, call->attrs.i[0]);
}

/// Sums and products that wrap have the same bits with a sign and without.
template <class Join>
static nd_status scatter_wrapping(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->operand[0].dtype) {
    case ND_U8:
    case ND_I8:
        return run_scatter<uint8_t, Join>(queue, call);
    case ND_U16:
    case ND_I16:
        return run_scatter<uint16_t, Join>(queue, call);
    case ND_U32:
    case ND_I32:
        return run_scatter<int32_t, Join>(queue, call);
    case ND_U64:
    case ND_I64:
        return run_scatter<int64_t, Join>(queue, call);
    case ND_F32:
        return run_scatter<float, Join>(queue, call);
    case ND_F64:
        return run_scatter<double, Join>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

template <class Join>
static nd_status scatter_ordered(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->operand[0].dtype) {
    case ND_I8:
        return run_scatter<int8_t, Join>(queue, call);
    case ND_I16:
        return run_scatter<int16_t, Join>(queue, call);
    case ND_U32:
        return run_scatter<uint32_t, Join>(queue, call);
    case ND_U64:
        return run_scatter<uint64_t, Join>(queue, call);
    default:
        return scatter_wrapping<Join>(queue, call);
    }
}

static nd_status scatter_reduce(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->attrs.i[3]) {
    case ND_SCATTER_PRODUCT:
        return scatter_wrapping<Product>(queue, call);
    case ND_SCATTER_LEAST:
        return scatter_ordered<Least>(queue, call);
    default:
        return scatter_ordered<Greatest>(queue, call);
    }
}

template <class T> static nd_status moving(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->op == ND_OP_gather)
        return run_gather<T>(queue, call);
    return masked_select<T>(queue, call);
}

} // namespace nd_cuda

nd_status nd__cuda_index(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    switch (call->op) {
    case ND_OP_take:
        return take(queue, call);
    case ND_OP_scatter_add:
        return scatter_wrapping<Sum>(queue, call);
    case ND_OP_scatter_reduce:
        return scatter_reduce(queue, call);
    case ND_OP_one_hot:
        return one_hot(queue, call);
    case ND_OP_nonzero:
        return nonzero(queue, call);
    case ND_OP_gather:
    case ND_OP_masked_select:
        switch (dtype_bytes(call->operand[0].dtype)) {
        case 1:
            return moving<uint8_t>(queue, call);
        case 2:
            return moving<uint16_t>(queue, call);
        case 4:
            return moving<uint32_t>(queue, call);
        default:
            return moving<uint64_t>(queue, call);
        }
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
