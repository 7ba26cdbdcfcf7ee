// ATTENTION, its gradient: two kernels that make each tile of weights again, from the logarithms of the
// rows' sums (Dao et al. 2022), so that no memory grows with queries times keys.
//
// One goes over the keys that a run of queries sees and adds up the queries' gradient; the other over
// the queries that see a run of keys, for those of keys and values. Both make the weights, so that
// nothing is added to memory by several blocks: the same bits every time. Of each query one number is
// found before: delta, the sum of grad times result. f32 has bodies of its own (attention_grad_floats.cuh);
// longer heads of 16-bit floats go to tensor cores.
#include "kernels/cuda/attention_grad_floats.cuh"
#include "kernels/cuda/attention_grad_tensor.cuh"

namespace nd_cuda {

/// Delta of each query, by which the gradients of its scores are lower.
template <class Format> struct AttentionDelta {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    typedef Number State;
    static constexpr int pack = 16 / (int)sizeof(Stored);
    Format format;
    Walk<3> rows; ///< grad, result, log_sums
    const Stored *grad, *result;
    int value_length;
    bool packed;   ///< rows begin at multiples of 16 bytes and are whole packs
    Number *delta; ///< as log_sums lie

    AttentionDelta(const Format &of, const nd_kernel_call *call)
        : format(of), rows(call, attention_grad::GRAD),
          grad((const Stored *)call->operand[attention_grad::GRAD].data),
          result((const Stored *)call->operand[attention_grad::RESULT].data),
          value_length((int)call->attrs.i[3]), packed(true), delta(nullptr) {
        const int64_t row[3] = {call->attrs.i[7], call->attrs.i[11], 1};
        rows.add_axis(call->attrs.i[0], row);
        for (int which = 0; which < 2; which++) {
            const nd_operand &operand = call->operand[attention_grad::GRAD + which];
            packed = packed && rows_are_packed<Stored>(operand.data, value_length, row[which]);
            for (int axis = 0; axis < call->ndim; axis++)
                packed = packed && operand.strides[axis] % pack == 0;
        }
    }
    /// One for each pack, or for each four numbers.
    int lanes() const {
        return lanes_for(packed ? 4 * divide_up(value_length, pack) : value_length);
    }
    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        int64_t offset[3];
        rows.offsets(group, offset);
        const Stored *a = grad + offset[0], *b = result + offset[1];
        State sum = 0;
        if (packed) {
            for (int column = lane * pack; column < value_length; column += lanes * pack) {
                const Pack<Stored, pack> x = *(const Pack<Stored, pack> *)(a + column);
                const Pack<Stored, pack> y = *(const Pack<Stored, pack> *)(b + column);
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    sum += format.load(x.element[e]) * format.load(y.element[e]);
            }
            return sum;
        }
        for (int column = lane; column < value_length; column += lanes)
            sum += format.load(a[column]) * format.load(b[column]);
        return sum;
    }
    ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t group, int lane, int, State sum) const {
        int64_t offset[3];
        if (lane != 0)
            return;
        rows.offsets(group, offset);
        delta[offset[2]] = sum;
    }
};

/// `of_keys`: the gradients of keys and values, else that of queries. Tiles have as many queries as
/// keys.
template <class Format, int head_, int tile_, bool of_keys>
struct AttentionGrad : AttentionGradRuns<Format, head_, tile_, of_keys> {
    typedef AttentionTiles<Format, head_> Base;
    typedef AttentionGradRuns<Format, head_, tile_, of_keys> Runs;
    using Base::side, Base::quad, Base::pitch, Base::width, Base::pieces, Base::scale;
    using Runs::tile, Runs::gradients;
    using typename Base::Number;
    using typename Base::Piece;
    using typename Base::Stored;
    using typename Runs::Place;
    static constexpr int phases = of_keys ? 7 : 6;
    static constexpr int my = tile / side, score_pitch = tile + quad;

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
    using Runs::Runs;

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
            Place at = this->place(block, step);
            this->template load<tile>(this->queries_of(at), thread, shared.queries);
            this->template load<tile>(this->keys_of(at), thread, shared.keys);
        } else if (number == 1) {
            weigh(this->place(block, step), thread, shared, own);
        } else if (number == 2) {
            Place at = this->place(block, step);
            this->template load<tile>(this->grads_of(at), thread, shared.queries);
            this->template load<tile>(this->values_of(at), thread, shared.keys);
        } else if (number == 3) {
            find_slopes(this->place(block, step), thread, shared, own);
        } else if (!of_keys) {
            if (number == 4)
                this->template load<tile>(this->keys_of(this->place(block, step)), thread,
                                          shared.keys);
            else
                Base::template add_rows<my, tile>(thread, shared.scores[0], score_pitch,
                                                  shared.keys, own.result[0]);
        } else if (number == 4) {
            Base::template add_rows<my, tile>(thread, shared.scores[gradients - 1], score_pitch,
                                              shared.queries, own.result[gradients - 1]);
        } else if (number == 5) {
            this->template load<tile>(this->queries_of(this->place(block, step)), thread,
                                      shared.queries);
        } else {
            Base::template add_rows<my, tile>(thread, shared.scores[0], score_pitch, shared.queries,
                                              own.result[0]);
        }
    }

    ND_BOTH void finish(int64_t block, int thread, const Shared &, const Own &own) const {
        ND_UNROLL
        for (int which = 0; which < gradients; which++) {
            int columns;
            Stored *result = this->result_of(block, which, &columns);
            Number factor = which == 0 ? scale : (Number)1;
            ND_UNROLL
            for (int i = 0; i < my; i++) {
                int row = this->first_of(block) + thread / side + i * side;
                if (row >= this->all_rows())
                    continue;
                Stored *to = result + (int64_t)row * columns;
                ND_UNROLL
                for (int p = 0; p < pieces; p++) {
                    int column = (p * side + thread % side) * width;
                    ND_UNROLL
                    for (int e = 0; e < width; e++)
                        if (column + e < columns)
                            to[column + e] =
                                this->format.store(own.result[which][i][p].element[e] * factor);
                }
            }
        }
    }

  private:
    /// Beyond the matrix, and where a query sees nothing, whose logarithm is infinity, there is none.
    ND_BOTH void weigh(const Place &at, int thread, const Shared &shared, Own &own) const {
        Number dot[my][my];
        Base::template dots<my, my>(thread, shared.queries, shared.keys, dot);
        ND_UNROLL
        for (int i = 0; i < my; i++) {
            int row = at.first_row + thread / side + i * side;
            Number log_sum = this->log_sum_of(at, row);
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
            Number lower = this->delta_of(at, at.first_row + row);
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

template <class Body> static nd_status run_body(const nd_cuda_queue *queue, const Body &body) {
    return run_phases(queue, body.blocks(), body);
}
template <int head, bool of_keys, bool apart>
static nd_status run_body(const nd_cuda_queue *queue,
                          const AttentionGradFloats<head, of_keys, apart> &body) {
    return run_warps(queue, body.blocks(), body);
}

/// `Body<of_keys>` makes the gradients of keys and values, or that of queries.
template <template <bool> class Body, class Format>
static nd_status run_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Format &format) {
    using namespace attention_grad;
    typedef typename Format::Number Number;
    AttentionDelta<Format> delta(format, call);
    Scratch deltas(queue, delta.rows.count * (int64_t)sizeof(Number));
    if (deltas.status != ND_OK)
        return deltas.status;
    delta.delta = (Number *)deltas.data;
    nd_status status = run_groups(queue, delta.rows.count, GroupShape{delta.lanes(), true}, delta);
    if (status == ND_OK && call->operand[OF_QUERY].data) {
        Body<false> body(format, call, deltas.data);
        status = run_body(queue, body);
    }
    if (status == ND_OK && call->operand[OF_KEY].data) {
        Body<true> body(format, call, deltas.data);
        status = run_body(queue, body);
    }
    return status;
}

template <class Format, int head, int tile> struct Simple {
    template <bool of_keys> using Body = AttentionGrad<Format, head, tile, of_keys>;
};
template <int head, bool apart> struct OfFloats {
    template <bool of_keys> using Body = AttentionGradFloats<head, of_keys, apart>;
};
template <bool brain, int head, int tile> struct OnTensorCores {
    template <bool of_keys> using Body = AttentionGradTensor<brain, head, tile, of_keys>;
};

static int64_t longest_row(const nd_kernel_call *call) {
    return call->attrs.i[2] > call->attrs.i[3] ? call->attrs.i[2] : call->attrs.i[3];
}

/// The tiles that fit in 48 KiB of shared memory.
static nd_status run_f32(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const int64_t most = longest_row(call);
    const Plain<float> format;
    if (most <= 32)
        return run_grad<OfFloats<32, true>::Body>(queue, call, format);
    if (most <= 64)
        return run_grad<OfFloats<64, true>::Body>(queue, call, format);
    if (most <= 128)
        return run_grad<OfFloats<128, false>::Body>(queue, call, format);
    return ND_ERROR_UNSUPPORTED;
}
static nd_status run_f64(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const int64_t most = longest_row(call);
    const Plain<double> format;
    if (most <= 64)
        return run_grad<Simple<Plain<double>, 64, 16>::Body>(queue, call, format);
    if (most <= 128)
        return run_grad<Simple<Plain<double>, 128, 16>::Body>(queue, call, format);
    return ND_ERROR_UNSUPPORTED;
}

template <bool brain>
static nd_status run_halves(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const int64_t most = longest_row(call);
    const Halves format(brain ? ND_BF16 : ND_F16);
    if (most <= 32)
        return run_grad<Simple<Halves, 32, 32>::Body>(queue, call, format);
    if (most <= 64)
        return run_grad<OnTensorCores<brain, 64, 64>::template Body>(queue, call, format);
    if (most <= 128)
        return run_grad<OnTensorCores<brain, 128, 32>::template Body>(queue, call, format);
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
        return run_f32(queue, call);
    case ND_F64:
        return run_f64(queue, call);
    case ND_F16:
        return run_halves<false>(queue, call);
    case ND_BF16:
        return run_halves<true>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
