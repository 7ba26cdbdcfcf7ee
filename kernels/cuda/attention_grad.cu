// ATTENTION, its gradient: two kernels that make each tile of weights again, from the logarithms of the
// rows' sums (Dao et al. 2022), so that no memory grows with queries times keys.
//
// One goes over the keys that a run of queries sees and adds up the queries' gradient; the other over
// the queries that see a run of keys, for those of keys and values. Both make the weights, so that
// nothing is added to memory by several blocks: the same bits every time. Of each query one number is
// found before: delta, the sum of grad times result.
#include "kernels/cuda/attention.cuh"

namespace nd_cuda {

/// The operands of the call.
namespace attention_grad {
enum { OF_QUERY, OF_KEY, OF_VALUE, QUERY, KEY, VALUE, MASK, GRAD, RESULT, LOG_SUMS, OPERANDS };
}

/// Delta of each query, by which the gradients of its scores are lower.
template <class Format> struct AttentionDelta {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    typedef Number State;
    Format format;
    Walk<3> batches; ///< grad, result, log_sums
    const Stored *grad, *result;
    int64_t grad_stride, result_stride;
    int queries, value_length;
    Number *delta; ///< as log_sums lie

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        int64_t offset[3], row = group % queries;
        batches.offsets(group / queries, offset);
        State sum = 0;
        for (int column = lane; column < value_length; column += lanes)
            sum += format.load(grad[offset[0] + row * grad_stride + column]) *
                   format.load(result[offset[1] + row * result_stride + column]);
        return sum;
    }
    ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t group, int lane, int, State sum) const {
        int64_t offset[3];
        if (lane != 0)
            return;
        batches.offsets(group / queries, offset);
        delta[offset[2] + group % queries] = sum;
    }
};

/// `of_keys`: the gradients of keys and values, else that of queries. Tiles have as many queries as
/// keys.
template <class Format, int head_, int tile_, bool of_keys>
struct AttentionGrad : AttentionTiles<Format, head_> {
    typedef AttentionTiles<Format, head_> Base;
    using Base::format, Base::causal, Base::queries, Base::all_keys, Base::length;
    using Base::side, Base::quad, Base::pitch, Base::width, Base::pieces;
    using Base::value_length, Base::scale;
    using typename Base::Number;
    using typename Base::Piece;
    using typename Base::Stored;
    static constexpr int phases = of_keys ? 7 : 6;
    static constexpr int tile = tile_, my = tile / side, score_pitch = tile + quad;
    static constexpr int gradients = of_keys ? 2 : 1;

    struct alignas(16) Shared {
        Number queries[tile * pitch]; ///< or their results' gradients
        Number keys[tile * pitch];    ///< or values
        /// The scores' gradients and, of keys, the weights: by key then, else by query.
        Number scores[gradients][tile * score_pitch];
    };
    struct Own {
        Piece result[gradients][my][pieces];
        Number weight[my][my];
    };
    struct Place {
        int first_row, first_key;
        int64_t offset[attention_grad::OPERANDS];
    };

    Walk<attention_grad::OPERANDS> batches;
    Walk<attention_grad::OPERANDS> repeats; ///< of queries that share keys and values
    Stored *out[2];
    const Stored *query, *key, *value, *grad;
    const Number *log_sums, *delta;
    int64_t query_stride, key_stride, value_stride, grad_stride;
    int runs, key_runs; ///< tiles of a batch

    AttentionGrad(const Format &of, const nd_kernel_call *call, const void *deltas)
        : Base(of, call, call->operand[attention_grad::MASK]),
          query((const Stored *)call->operand[attention_grad::QUERY].data),
          key((const Stored *)call->operand[attention_grad::KEY].data),
          value((const Stored *)call->operand[attention_grad::VALUE].data),
          grad((const Stored *)call->operand[attention_grad::GRAD].data),
          log_sums((const Number *)call->operand[attention_grad::LOG_SUMS].data),
          delta((const Number *)deltas), query_stride(call->attrs.i[4]),
          key_stride(call->attrs.i[5]), value_stride(call->attrs.i[6]),
          grad_stride(call->attrs.i[7]), runs((int)divide_up(call->attrs.i[0], tile)),
          key_runs((int)divide_up(call->attrs.i[1], tile)) {
        out[0] =
            (Stored *)call->operand[of_keys ? attention_grad::OF_KEY : attention_grad::OF_QUERY]
                .data;
        out[1] = of_keys ? (Stored *)call->operand[attention_grad::OF_VALUE].data : nullptr;
        this->read(call, attention_grad::QUERY, query_stride);
        this->read(call, attention_grad::KEY, key_stride);
        this->read(call, attention_grad::VALUE, value_stride);
        this->read(call, attention_grad::GRAD, grad_stride);
        for (int axis = 0; axis < call->ndim; axis++) {
            int64_t stride[attention_grad::OPERANDS];
            for (int which = 0; which < attention_grad::OPERANDS; which++)
                stride[which] = call->operand[which].strides[axis];
            bool repeated = of_keys && stride[attention_grad::OF_KEY] == 0;
            (repeated ? repeats : batches).add_axis(call->shape[axis], stride);
        }
    }
    int64_t blocks() const {
        return batches.count * (of_keys ? key_runs : runs);
    }

    /// The first run of queries that sees a key of this run, and how many see one: one at least, which
    /// may lie behind the last query, so that every block meets barriers.
    ND_BOTH int first_run(int first_key) const {
        return causal ? first_key / tile : 0;
    }
    ND_BOTH int seeing_runs(int from) const {
        return from < runs ? runs - from : 1;
    }
    ND_BOTH int64_t steps(int64_t block) const {
        if (of_keys)
            return repeats.count * seeing_runs(first_run((int)(block % key_runs) * tile));
        int last = ((int)(block % runs) + 1) * tile;
        return divide_up(causal && last < all_keys ? last : all_keys, tile);
    }
    ND_BOTH void begin(int64_t, int, Own &own) const {
        ND_UNROLL
        for (int which = 0; which < gradients; which++)
            ND_UNROLL
        for (int i = 0; i < my; i++)
            ND_UNROLL
        for (int p = 0; p < pieces; p++)
            ND_UNROLL
        for (int e = 0; e < width; e++)
            own.result[which][i][p].element[e] = 0;
    }

    template <int number>
    ND_BOTH void phase(int64_t block, int thread, int64_t step, Shared &shared, Own &own) const {
        if (number == 0) {
            Place at = place(block, step);
            load_queries(at, thread, shared);
            load_keys(at, thread, shared);
        } else if (number == 1) {
            weigh(place(block, step), thread, shared, own);
        } else if (number == 2) {
            Place at = place(block, step);
            this->template load<tile>(
                {grad + at.offset[attention_grad::GRAD] + at.first_row * grad_stride, grad_stride,
                 queries - at.first_row, value_length, this->packed},
                thread, shared.queries);
            this->template load<tile>(
                {value + at.offset[attention_grad::VALUE] + at.first_key * value_stride,
                 value_stride, all_keys - at.first_key, value_length, this->packed},
                thread, shared.keys);
        } else if (number == 3) {
            find_slopes(place(block, step), thread, shared, own);
        } else if (!of_keys) {
            if (number == 4)
                load_keys(place(block, step), thread, shared);
            else
                Base::template add_rows<my, tile>(thread, shared.scores[0], score_pitch,
                                                  shared.keys, own.result[0]);
        } else if (number == 4) {
            Base::template add_rows<my, tile>(thread, shared.scores[gradients - 1], score_pitch,
                                              shared.queries, own.result[gradients - 1]);
        } else if (number == 5) {
            load_queries(place(block, step), thread, shared);
        } else {
            Base::template add_rows<my, tile>(thread, shared.scores[0], score_pitch, shared.queries,
                                              own.result[0]);
        }
    }

    ND_BOTH void finish(int64_t block, int thread, const Shared &, const Own &own) const {
        int64_t offset[attention_grad::OPERANDS];
        int tiles = of_keys ? key_runs : runs, all = of_keys ? all_keys : queries;
        batches.offsets(block / tiles, offset);
        ND_UNROLL
        for (int which = 0; which < gradients; which++) {
            int columns = which == 0 ? length : value_length;
            Number factor = which == 0 ? scale : (Number)1;
            int64_t start = offset[!of_keys     ? attention_grad::OF_QUERY
                                   : which == 0 ? attention_grad::OF_KEY
                                                : attention_grad::OF_VALUE];
            ND_UNROLL
            for (int i = 0; i < my; i++) {
                int row = (int)(block % tiles) * tile + thread / side + i * side;
                if (row >= all)
                    continue;
                Stored *to = out[which] + start + (int64_t)row * columns;
                ND_UNROLL
                for (int p = 0; p < pieces; p++) {
                    int column = (p * side + thread % side) * width;
                    ND_UNROLL
                    for (int e = 0; e < width; e++)
                        if (column + e < columns)
                            to[column + e] =
                                format.store(own.result[which][i][p].element[e] * factor);
                }
            }
        }
    }

  private:
    ND_BOTH Place place(int64_t block, int64_t step) const {
        Place at;
        if (of_keys) {
            at.first_key = (int)(block % key_runs) * tile;
            int from = first_run(at.first_key), each = seeing_runs(from);
            at.first_row = (from + (int)(step % each)) * tile;
            batches.offsets(block / key_runs, at.offset);
            int64_t more[attention_grad::OPERANDS];
            repeats.offsets(step / each, more);
            ND_UNROLL
            for (int which = 0; which < attention_grad::OPERANDS; which++)
                at.offset[which] += more[which];
        } else {
            at.first_row = (int)(block % runs) * tile;
            at.first_key = (int)step * tile;
            batches.offsets(block / runs, at.offset);
        }
        return at;
    }
    ND_BOTH void load_queries(const Place &at, int thread, Shared &shared) const {
        this->template load<tile>(
            {query + at.offset[attention_grad::QUERY] + at.first_row * query_stride, query_stride,
             queries - at.first_row, length, this->packed},
            thread, shared.queries);
    }
    ND_BOTH void load_keys(const Place &at, int thread, Shared &shared) const {
        this->template load<tile>({key + at.offset[attention_grad::KEY] + at.first_key * key_stride,
                                   key_stride, all_keys - at.first_key, length, this->packed},
                                  thread, shared.keys);
    }

    /// Beyond the matrix, and where a query sees nothing, whose logarithm is infinity, there is none.
    ND_BOTH void weigh(const Place &at, int thread, const Shared &shared, Own &own) const {
        Number dot[my][my];
        Base::template dots<my, my>(thread, shared.queries, shared.keys, dot);
        ND_UNROLL
        for (int i = 0; i < my; i++) {
            int row = at.first_row + thread / side + i * side;
            Number log_sum =
                row < queries ? log_sums[at.offset[attention_grad::LOG_SUMS] + row] : (Number)0;
            ND_UNROLL
            for (int j = 0; j < my; j++) {
                int key_number = at.first_key + thread % side + j * side;
                Number score = this->masked(dot[i][j] * scale, at.offset[attention_grad::MASK], row,
                                            key_number);
                own.weight[i][j] = exp_of(score - log_sum);
            }
        }
    }

    /// weight (grad value^T - delta)
    ND_BOTH void find_slopes(const Place &at, int thread, Shared &shared, const Own &own) const {
        Number dot[my][my];
        Base::template dots<my, my>(thread, shared.queries, shared.keys, dot);
        ND_UNROLL
        for (int i = 0; i < my; i++) {
            int row = thread / side + i * side;
            Number lower = at.first_row + row < queries
                               ? delta[at.offset[attention_grad::LOG_SUMS] + at.first_row + row]
                               : (Number)0;
            ND_UNROLL
            for (int j = 0; j < my; j++) {
                int column = thread % side + j * side;
                int to = of_keys ? column * score_pitch + row : row * score_pitch + column;
                shared.scores[0][to] = own.weight[i][j] * (dot[i][j] - lower);
                if (of_keys)
                    shared.scores[gradients - 1][to] = own.weight[i][j];
            }
        }
    }
};

template <class Format, int head, int tile>
static nd_status run_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Format &format) {
    using namespace attention_grad;
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    Walk<3> batches(call, GRAD);
    int64_t rows = batches.count * call->attrs.i[0];
    Scratch deltas(queue, rows * (int64_t)sizeof(Number));
    if (deltas.status != ND_OK)
        return deltas.status;
    AttentionDelta<Format> delta{format,
                                 batches,
                                 (const Stored *)call->operand[GRAD].data,
                                 (const Stored *)call->operand[RESULT].data,
                                 call->attrs.i[7],
                                 call->attrs.i[11],
                                 (int)call->attrs.i[0],
                                 (int)call->attrs.i[3],
                                 (Number *)deltas.data};
    nd_status status =
        run_groups(queue, rows, GroupShape{lanes_for(call->attrs.i[3]), true}, delta);
    if (status == ND_OK && call->operand[OF_QUERY].data) {
        AttentionGrad<Format, head, tile, false> body(format, call, deltas.data);
        status = run_phases(queue, body.blocks(), body);
    }
    if (status == ND_OK && call->operand[OF_KEY].data) {
        AttentionGrad<Format, head, tile, true> body(format, call, deltas.data);
        status = run_phases(queue, body.blocks(), body);
    }
    return status;
}

/// The tiles that fit in 48 KiB of shared memory.
template <class Format>
static nd_status run_attention_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                                    const Format &format) {
    int64_t most = call->attrs.i[2] > call->attrs.i[3] ? call->attrs.i[2] : call->attrs.i[3];
    constexpr bool lean = sizeof(typename Format::Number) == sizeof(float);
    constexpr int tile = lean ? 32 : 16;
    if constexpr (lean)
        if (most <= 32)
            return run_grad<Format, 32, tile>(queue, call, format);
    if (most <= 64)
        return run_grad<Format, 64, tile>(queue, call, format);
    if (most <= 128)
        return run_grad<Format, 128, tile>(queue, call, format);
    return ND_ERROR_UNSUPPORTED;
}

} // namespace nd_cuda

nd_status nd__cuda_attention_grad(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const int64_t *i = call->attrs.i;
    if (i[0] > INT32_MAX / 2 || i[1] > INT32_MAX / 2)
        return ND_ERROR_UNSUPPORTED;
    nd_dtype dtype = call->operand[attention_grad::QUERY].dtype;
    switch (dtype) {
    case ND_F32:
        return run_attention_grad(queue, call, Plain<float>());
    case ND_F64:
        return run_attention_grad(queue, call, Plain<double>());
    case ND_F16:
    case ND_BF16:
        return run_attention_grad(queue, call, Halves(dtype));
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
