// ATTENTION in one kernel: no tensor of scores is written.
//
// A block attends with a run of queries. Keys come by tiles through shared memory; of each query the
// largest score so far, the sum of the powers below it and the values weighted with them are kept, and
// scaled when a larger score comes (Milakov, Gimelshein 2018; Dao et al. 2022). f32 has
// a body of its own (attention_floats.cuh); f16 and bf16 go to tensor cores (attention_tensor.cuh).
#include "kernels/cuda/attention_floats.cuh"
#include "kernels/cuda/attention_tensor.cuh"

namespace nd_cuda {

template <class Format, int head_, int rows_, int keys_>
struct Attention : AttentionTiles<Format, head_> {
    typedef AttentionTiles<Format, head_> Base;
    using Base::format, Base::causal, Base::packed, Base::queries, Base::all_keys, Base::length;
    using Base::threads, Base::head, Base::side, Base::quad, Base::pitch, Base::width, Base::pieces;
    using Base::value_length, Base::scale;
    using typename Base::Stored, typename Base::Number, typename Base::Piece;
    static constexpr int phases = 5;
    static constexpr int rows = rows_, keys = keys_, score_pitch = keys + quad;
    static constexpr int my_rows = rows / side, my_keys = keys / side;
    static constexpr int row_threads =
        threads / rows; ///< that find a row's largest score and its sum

    struct alignas(16) Shared {
        Number queries[rows * pitch];
        Number others[keys * pitch]; ///< keys, then values
        Number scores[rows * score_pitch];
        Number fall[rows];    ///< what is left of what was added up before
        Number largest[rows]; ///< score
        Number sums[threads];
    };
    struct Own {
        Piece result[my_rows][pieces];
        Number largest, old, sum;
    };

    Walk<6> batches; ///< out, log_sums, query, key, value, mask
    void *out;
    Number *log_sums;
    const Stored *query, *key, *value;
    int64_t query_stride, key_stride, value_stride, out_stride;
    int runs; ///< of queries in a batch

    Attention(const Format &of, const nd_kernel_call *call)
        : Base(of, call, call->operand[5]), batches(call), out(call->operand[0].data),
          log_sums((Number *)call->operand[1].data), query((const Stored *)call->operand[2].data),
          key((const Stored *)call->operand[3].data), value((const Stored *)call->operand[4].data),
          query_stride(call->attrs.i[4]), key_stride(call->attrs.i[5]),
          value_stride(call->attrs.i[6]), out_stride(call->attrs.i[7]),
          runs((int)divide_up(call->attrs.i[0], rows)) {
        for (int which = 2; which < 5; which++)
            this->read(call, which, call->attrs.i[2 + which]);
    }

    ND_BOTH int64_t steps(int64_t block) const {
        int last = ((int)(block % runs) + 1) * rows;
        return divide_up(causal && last < all_keys ? last : all_keys, keys);
    }
    ND_BOTH void begin(int64_t, int, Own &own) const {
        own.largest = -(Number)INFINITY;
        own.old = own.sum = 0;
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int p = 0; p < pieces; p++)
            ND_UNROLL
        for (int e = 0; e < width; e++)
            own.result[i][p].element[e] = 0;
    }

    template <int number>
    ND_BOTH void phase(int64_t block, int thread, int64_t step, Shared &shared, Own &own) const {
        int64_t offset[6];
        int first_row = (int)(block % runs) * rows, first_key = (int)step * keys;
        if (number < 3)
            batches.offsets(block / runs, offset);
        if (number == 0) {
            if (step == 0)
                this->template load<rows>({query + offset[2] + first_row * query_stride,
                                           query_stride, queries - first_row, length, packed},
                                          thread, shared.queries);
            this->template load<keys>({key + offset[3] + first_key * key_stride, key_stride,
                                       all_keys - first_key, length, packed},
                                      thread, shared.others);
        } else if (number == 1) {
            score(thread, first_row, first_key, offset[5], shared);
        } else if (number == 2) {
            this->template load<keys>({value + offset[4] + first_key * value_stride, value_stride,
                                       all_keys - first_key, value_length, packed},
                                      thread, shared.others);
            find_largest(thread, shared, own);
        } else if (number == 3) {
            raise(thread, shared, own);
        } else {
            add_values(thread, shared, own);
        }
    }

    ND_BOTH void finish(int64_t block, int thread, const Shared &shared, const Own &own) const {
        int64_t offset[6];
        batches.offsets(block / runs, offset);
        int first_row = (int)(block % runs) * rows;
        ND_UNROLL
        for (int i = 0; i < my_rows; i++) {
            int row = thread / side + i * side;
            if (first_row + row >= queries)
                continue;
            Number sum = 0;
            ND_UNROLL
            for (int part = 0; part < row_threads; part++)
                sum += shared.sums[row * row_threads + part];
            if (thread % side == 0) {
                Number log_sum = log_of(sum) + shared.largest[row];
                log_sums[offset[1] + first_row + row] =
                    log_sum == -(Number)INFINITY ? (Number)INFINITY : log_sum;
            }
            Number divisor = sum == 0 ? (Number)1 : sum;
            Stored *to = (Stored *)out + offset[0] + (first_row + row) * out_stride;
            ND_UNROLL
            for (int p = 0; p < pieces; p++) {
                int column = (p * side + thread % side) * width;
                ND_UNROLL
                for (int e = 0; e < width; e++)
                    if (column + e < value_length)
                        to[column + e] = format.store(own.result[i][p].element[e] / divisor);
            }
        }
    }

  private:
    ND_BOTH void score(int thread, int first_row, int first_key, int64_t mask_offset,
                       Shared &shared) const {
        Number dot[my_rows][my_keys];
        Base::template dots<my_rows, my_keys>(thread, shared.queries, shared.others, dot);
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_keys; j++) {
            int row = thread / side + i * side, column = thread % side + j * side;
            shared.scores[row * score_pitch + column] =
                this->masked(dot[i][j] * scale, mask_offset, first_row + row, first_key + column);
        }
    }

    /// All threads of a row find the same.
    ND_BOTH void find_largest(int thread, const Shared &shared, Own &own) const {
        const Number *row = shared.scores + thread / row_threads * score_pitch;
        own.old = own.largest;
        ND_UNROLL
        for (int i = 0; i < keys; i++)
            own.largest = row[i] > own.largest ? row[i] : own.largest;
    }

    /// A row's scores to their powers; a row that has seen nothing yet has nothing to subtract.
    ND_BOTH void raise(int thread, Shared &shared, Own &own) const {
        int row = thread / row_threads, part = thread % row_threads;
        Number base = own.largest == -(Number)INFINITY ? (Number)0 : own.largest;
        Number fall = exp_of(own.old - base);
        own.sum *= fall;
        ND_UNROLL
        for (int i = 0; i < keys / row_threads; i++) {
            Number *at = shared.scores + row * score_pitch + i * row_threads + part;
            *at = exp_of(*at - base);
            own.sum += *at;
        }
        shared.sums[thread] = own.sum;
        if (part == 0) {
            shared.fall[row] = fall;
            shared.largest[row] = own.largest;
        }
    }

    ND_BOTH void add_values(int thread, const Shared &shared, Own &own) const {
        ND_UNROLL
        for (int i = 0; i < my_rows; i++) {
            Number fall = shared.fall[thread / side + i * side];
            ND_UNROLL
            for (int p = 0; p < pieces; p++)
                ND_UNROLL
            for (int e = 0; e < width; e++)
                own.result[i][p].element[e] *= fall;
        }
        Base::template add_rows<my_rows, keys>(thread, shared.scores, score_pitch, shared.others,
                                               own.result);
    }
};

template <class Format, int head, int rows, int keys>
static nd_status run_tiles(const nd_cuda_queue *queue, const nd_kernel_call *call,
                           const Format &format) {
    Attention<Format, head, rows, keys> body(format, call);
    return run_phases(queue, body.batches.count * body.runs, body);
}

static int64_t longest_row(const nd_kernel_call *call) {
    return call->attrs.i[2] > call->attrs.i[3] ? call->attrs.i[2] : call->attrs.i[3];
}

template <int head, int rows, bool apart>
static nd_status run_floats(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const AttentionFloats<head, rows, apart> body(call);
    return run_warps(queue, body.blocks(), body);
}

/// The tiles that fit in 48 KiB of shared memory.
static nd_status run_f32(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const int64_t most = longest_row(call);
    if (most <= 32)
        return run_floats<32, 64, true>(queue, call);
    if (most <= 64)
        return run_floats<64, 64, true>(queue, call);
    if (most <= 128)
        return run_floats<128, 32, false>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}
static nd_status run_f64(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const int64_t most = longest_row(call);
    const Plain<double> format;
    if (most <= 64)
        return run_tiles<Plain<double>, 64, 32, 16>(queue, call, format);
    if (most <= 128)
        return run_tiles<Plain<double>, 128, 16, 16>(queue, call, format);
    return ND_ERROR_UNSUPPORTED;
}

/// Of 128 queries in a block, or of 64 where there are too few of these for all multiprocessors.
template <bool brain, int head>
static nd_status run_tensor(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const Halves format(brain ? ND_BF16 : ND_F16);
    // Longer rows leave no registers for two parts.
    constexpr int parts = head <= 64 ? 2 : 1;
    const AttentionTensor<brain, head, 8 / parts, parts> large(format, call);
    if (large.blocks() >= queue->multiprocessors)
        return run_warps(queue, large.blocks(), large);
    const AttentionTensor<brain, head, 4, 1> small(format, call);
    return run_warps(queue, small.blocks(), small);
}

template <bool brain>
static nd_status run_halves(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const int64_t most = longest_row(call);
    if (most <= 32)
        return run_tensor<brain, 32>(queue, call);
    if (most <= 64)
        return run_tensor<brain, 64>(queue, call);
    if (most <= 128)
        return run_tensor<brain, 128>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}

} // namespace nd_cuda

nd_status nd__cuda_attention(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const int64_t *i = call->attrs.i;
    if (i[0] > INT32_MAX / 2 || i[1] > INT32_MAX / 2)
        return ND_ERROR_UNSUPPORTED;
    switch (call->operand[0].dtype) {
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
