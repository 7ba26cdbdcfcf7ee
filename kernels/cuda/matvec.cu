// MATMUL of a matrix and one vector of floats, on either side: the matrix is read once, by packs of 16
// bytes where it lies so, and nothing else takes time.
//
// Lines are the rows of a left matrix and the columns of a right one. Where a line's elements lie one
// behind the other, a group of threads goes along it; where lines lie beside each other, a thread has
// a pack of them, and goes with others over the sum. Few lines are cut along the sum, in parts that are
// added up in order. 16-bit floats are multiplied and added up in f32.
#include "kernels/cuda/product.cuh"

namespace nd_cuda {

template <class Store> struct VectorProduct {
    typedef typename Store::Sum Sum;
    typedef typename Store::Stored Stored;
    MatrixResult<Store> result;
    const Stored *matrix, *vector;
    bool left; ///< the matrix is the first operand
    int64_t entries, lines, length;
    int64_t line_stride, stride, vector_stride;
    int64_t parts, part_length;
    Sum *partial; ///< [parts][entries][lines], or NULL when there is one part

    explicit VectorProduct(const nd_kernel_call *call)
        : result(call), left(call->attrs.i[1] == 1), entries(result.batch.count),
          lines(call->attrs.i[left ? 0 : 1]), length(call->attrs.i[2]),
          line_stride(call->attrs.i[left ? 3 : 6]), stride(call->attrs.i[left ? 4 : 5]),
          vector_stride(call->attrs.i[left ? 5 : 4]), parts(1), part_length(length),
          partial(nullptr) {
        matrix = (const Stored *)call->operand[left ? 1 : 2].data;
        vector = (const Stored *)call->operand[left ? 2 : 1].data;
    }
    /// Whether what is read by packs begins at multiples of 16 bytes: lines that are `apart`, and of
    /// the vector with `along` its elements.
    bool is_packed(const nd_kernel_call *call, int64_t apart, bool along) const {
        constexpr int64_t pack = 16 / (int64_t)sizeof(Stored);
        bool packed = (uintptr_t)matrix % 16 == 0 && apart % pack == 0 &&
                      is_batch_aligned(call, left ? 1 : 2, pack);
        if (!along)
            return packed;
        return packed && vector_stride == 1 && (uintptr_t)vector % 16 == 0 &&
               is_batch_aligned(call, left ? 2 : 1, pack);
    }
    /// What a group of threads does: `width` lines of an entry, in one part of the sum.
    struct Share {
        int64_t part, entry, line, first, end;
        const Stored *matrix, *vector; ///< of the entry
    };
    ND_BOTH Share share(int64_t group, int width) const {
        int64_t runs = divide_up(lines, width), all = group / runs;
        Share of;
        of.line = (group - all * runs) * width;
        of.part = partial ? all / entries : 0;
        of.entry = all - of.part * entries;
        of.first = of.part * part_length;
        of.end = of.first + part_length < length ? of.first + part_length : length;
        int64_t first = result.left_offset(of.entry), second = result.right_offset(of.entry);
        of.matrix = matrix + (left ? first : second);
        of.vector = vector + (left ? second : first);
        return of;
    }
    /// Sums of lines beside each other, to the result or as a part of it.
    template <int width> ND_BOTH void put(const Share &of, const Sum *sums) const {
        if (partial) {
            ND_UNROLL
            for (int j = 0; j < width; j++)
                if (of.line + j < lines)
                    partial[(of.part * entries + of.entry) * lines + of.line + j] = sums[j];
        } else if (left) {
            ND_UNROLL
            for (int j = 0; j < width; j++)
                if (of.line + j < lines)
                    result.template put<1>(result.offset(of.entry), of.line + j, 0, 1, &sums[j]);
        } else {
            result.template put<width>(result.offset(of.entry), 0, of.line, lines, sums);
        }
    }
};

/// A group of threads goes along one line.
template <class Store, bool packed> struct AlongLines {
    typedef typename Store::Stored Stored;
    typedef typename Store::Sum State;
    static constexpr int pack = packed ? 16 / (int)sizeof(Stored) : 1, width = 1;
    VectorProduct<Store> of;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        typename VectorProduct<Store>::Share share = of.share(group, width);
        const Stored *line = share.matrix + share.line * of.line_stride;
        const Store &store = of.result.store;
        State sum = 0;
        int64_t whole = share.first + (share.end - share.first) / pack * pack;
        ND_UNROLL_4
        for (int64_t k = share.first + lane * pack; k < whole; k += lanes * pack) {
            if constexpr (packed) {
                Pack<Stored, pack> a = *(const Pack<Stored, pack> *)(line + k);
                Pack<Stored, pack> b = *(const Pack<Stored, pack> *)(share.vector + k);
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    sum += store.widen(a.element[e]) * store.widen(b.element[e]);
            } else {
                sum += store.widen(line[k * of.stride]) *
                       store.widen(share.vector[k * of.vector_stride]);
            }
        }
        for (int64_t k = whole + lane; k < share.end; k += lanes)
            sum += store.widen(line[k]) * store.widen(share.vector[k]);
        return sum;
    }
    ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t group, int lane, int, const State &sum) const {
        if (lane == 0)
            of.template put<1>(of.share(group, width), &sum);
    }
};

/// A thread has `width_` lines, which lie beside each other.
template <class Store, int width_> struct AcrossLines {
    typedef typename Store::Stored Stored;
    typedef typename Store::Sum Sum;
    static constexpr int width = width_;
    struct State {
        Sum sum[width];
    };
    VectorProduct<Store> of;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        typename VectorProduct<Store>::Share share = of.share(group, width);
        const Stored *first = share.matrix + share.line;
        const Store &store = of.result.store;
        State state;
        ND_UNROLL
        for (int j = 0; j < width; j++)
            state.sum[j] = 0;
        bool whole = share.line + width <= of.lines;
        ND_UNROLL_4
        for (int64_t k = share.first + lane; k < share.end; k += lanes) {
            Sum x = store.widen(share.vector[k * of.vector_stride]);
            Pack<Stored, width> a = {};
            if (whole) {
                a = *(const Pack<Stored, width> *)(first + k * of.stride);
            } else {
                ND_UNROLL
                for (int j = 0; j < width; j++)
                    if (share.line + j < of.lines)
                        a.element[j] = first[k * of.stride + j];
            }
            ND_UNROLL
            for (int j = 0; j < width; j++)
                state.sum[j] += store.widen(a.element[j]) * x;
        }
        return state;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        State result;
        ND_UNROLL
        for (int j = 0; j < width; j++)
            result.sum[j] = a.sum[j] + b.sum[j];
        return result;
    }
    ND_BOTH void finish(int64_t group, int lane, int, const State &state) const {
        if (lane == 0)
            of.template put<width>(of.share(group, width), state.sum);
    }
};

/// Adds up the parts of each sum.
template <class Store> struct JoinVectorParts {
    VectorProduct<Store> of;

    ND_BOTH void operator()(int64_t index) const {
        int64_t all = of.entries * of.lines, entry = index / of.lines;
        typename Store::Sum sum = of.partial[index];
        for (int64_t part = 1; part < of.parts; part++)
            sum += of.partial[part * all + index];
        int64_t line = index - entry * of.lines;
        of.result.template put<1>(of.result.offset(entry), of.left ? line : 0, of.left ? 0 : line,
                                  of.left ? 1 : of.lines, &sum);
    }
};

/// `Body` for all lines, by `lanes` threads each.
template <class Body, class Store>
static nd_status run_lines(const nd_cuda_queue *queue, VectorProduct<Store> of, int lanes,
                           bool adjacent) {
    constexpr int64_t pack = 16 / (int64_t)sizeof(typename Store::Stored);
    int64_t groups = of.entries * divide_up(of.lines, Body::width);
    int64_t wanted = (int64_t)queue->multiprocessors * 2048 / (groups * lanes);
    int64_t possible = of.length / (lanes * pack * 8);
    GroupShape shape = {lanes, adjacent};
    int64_t parts = wanted < possible ? wanted : possible;
    if (parts <= 1)
        return run_groups(queue, groups, shape, Body{of});
    of.part_length = divide_up(divide_up(of.length, parts), pack) * pack;
    of.parts = divide_up(of.length, of.part_length);
    Scratch partial(queue, of.parts * of.entries * of.lines * (int64_t)sizeof(*of.partial));
    if (partial.status != ND_OK)
        return partial.status;
    of.partial = (typename Store::Sum *)partial.data;
    nd_status status = run_groups(queue, groups * of.parts, shape, Body{of});
    return status == ND_OK ? run_elements(queue, of.entries * of.lines, JoinVectorParts<Store>{of})
                           : status;
}

/// A warp goes along a line where there are many, else up to a block.
template <class Store>
static nd_status run_along(const nd_cuda_queue *queue, const nd_kernel_call *call,
                           const VectorProduct<Store> &of) {
    constexpr int64_t pack = 16 / (int64_t)sizeof(typename Store::Stored);
    bool packed = of.stride == 1 && of.is_packed(call, of.line_stride, true);
    int lanes = lanes_for(packed ? of.length / pack : of.length);
    bool many = of.entries * of.lines >= (int64_t)queue->multiprocessors * 32;
    lanes = many && lanes > warp_threads ? warp_threads : lanes;
    if (packed)
        return run_lines<AlongLines<Store, true>>(queue, of, lanes, true);
    return run_lines<AlongLines<Store, false>>(queue, of, lanes, true);
}

/// At least 128 bytes of lines that lie beside each other are read together, where there are so many.
template <class Store>
static nd_status run_across(const nd_cuda_queue *queue, const nd_kernel_call *call,
                            const VectorProduct<Store> &of) {
    constexpr int pack = 16 / (int)sizeof(typename Store::Stored);
    bool packed = of.is_packed(call, of.stride, false);
    int64_t runs = divide_up(of.lines, packed ? pack : 1);
    int lanes = lanes_for(of.length), most = 32;
    while (most < block_threads && runs * most < block_threads)
        most *= 2;
    lanes = lanes < most ? lanes : most;
    if (packed)
        return run_lines<AcrossLines<Store, pack>>(queue, of, lanes, false);
    return run_lines<AcrossLines<Store, 1>>(queue, of, lanes, false);
}

template <class Store>
static nd_status run_matvec(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    VectorProduct<Store> of(call);
    if (of.entries * of.lines == 0)
        return ND_OK;
    bool across = of.line_stride == 1 && of.stride != 1 && of.lines > 1;
    return across ? run_across(queue, call, of) : run_along(queue, call, of);
}

} // namespace nd_cuda

nd_status nd__cuda_matvec(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    switch (call->operand[0].dtype) {
    case ND_F32:
        return run_matvec<PlainStore<float>>(queue, call);
    case ND_F64:
        return run_matvec<PlainStore<double>>(queue, call);
    case ND_F16:
    case ND_BF16:
        return run_matvec<HalfStore>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
