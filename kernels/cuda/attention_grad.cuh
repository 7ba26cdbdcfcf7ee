// What both kernels of attention's gradient share: the operands, and which tiles a block goes over.
//
// A block has a tile of queries, or of keys, and goes over the tiles of the others that it sees, or that
// see it; keys that several heads of queries share get the sum over these in one block.
#ifndef ND_KERNELS_CUDA_ATTENTION_GRAD_CUH
#define ND_KERNELS_CUDA_ATTENTION_GRAD_CUH
#include "kernels/cuda/attention.cuh"

namespace nd_cuda {

/// The operands of the call.
namespace attention_grad {
enum { OF_QUERY, OF_KEY, OF_VALUE, QUERY, KEY, VALUE, MASK, GRAD, RESULT, LOG_SUMS, OPERANDS };
}

/// `of_keys`: the gradients of keys and values, else that of queries. Tiles have as many queries as
/// keys. `longest_first`: of all batches those tiles begin first that see, or are seen by, most.
template <class Format, int head_, int tile_, bool of_keys, bool longest_first = false>
struct AttentionGradRuns : AttentionTiles<Format, head_> {
    typedef AttentionTiles<Format, head_> Base;
    using Base::causal, Base::queries, Base::all_keys, Base::length, Base::value_length;
    using typename Base::Number;
    using typename Base::Stored;
    static constexpr int tile = tile_;
    static constexpr int gradients = of_keys ? 2 : 1;

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

    AttentionGradRuns(const Format &of, const nd_kernel_call *call, const void *deltas)
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

    /// Which tile of a batch a block has, and which batch; blocks have 31 bits.
    ND_BOTH int run_of(int64_t block) const {
        const uint32_t number = (uint32_t)block, here = (uint32_t)(of_keys ? key_runs : runs);
        if (!longest_first || !causal)
            return (int)(number % here);
        const uint32_t run = number / (uint32_t)batches.count;
        return (int)(of_keys ? run : here - 1 - run);
    }
    ND_BOTH int64_t batch_of(int64_t block) const {
        const uint32_t number = (uint32_t)block, here = (uint32_t)(of_keys ? key_runs : runs);
        return longest_first && causal ? number % (uint32_t)batches.count : number / here;
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
            return repeats.count * seeing_runs(first_run(run_of(block) * tile));
        int last = (run_of(block) + 1) * tile;
        return divide_up(causal && last < all_keys ? last : all_keys, tile);
    }
    ND_BOTH Place place(int64_t block, int64_t step) const {
        Place at;
        if (of_keys) {
            at.first_key = run_of(block) * tile;
            int from = first_run(at.first_key), each = seeing_runs(from);
            at.first_row = (from + (int)((uint32_t)step % (uint32_t)each)) * tile;
            batches.offsets(batch_of(block), at.offset);
            int64_t more[attention_grad::OPERANDS];
            repeats.offsets((uint32_t)step / (uint32_t)each, more);
            ND_UNROLL
            for (int which = 0; which < attention_grad::OPERANDS; which++)
                at.offset[which] += more[which];
        } else {
            at.first_row = run_of(block) * tile;
            at.first_key = (int)step * tile;
            batches.offsets(batch_of(block), at.offset);
        }
        return at;
    }
    /// The rows of an operand that a tile has.
    ND_BOTH Matrix<Stored> queries_of(const Place &at) const {
        return {query + at.offset[attention_grad::QUERY] + at.first_row * query_stride,
                query_stride, queries - at.first_row, length, this->packed};
    }
    ND_BOTH Matrix<Stored> grads_of(const Place &at) const {
        return {grad + at.offset[attention_grad::GRAD] + at.first_row * grad_stride, grad_stride,
                queries - at.first_row, value_length, this->packed};
    }
    ND_BOTH Matrix<Stored> keys_of(const Place &at) const {
        return {key + at.offset[attention_grad::KEY] + at.first_key * key_stride, key_stride,
                all_keys - at.first_key, length, this->packed};
    }
    ND_BOTH Matrix<Stored> values_of(const Place &at) const {
        return {value + at.offset[attention_grad::VALUE] + at.first_key * value_stride,
                value_stride, all_keys - at.first_key, value_length, this->packed};
    }
    /// Where the first row of a result lies; its rows are `columns` long.
    ND_BOTH Stored *result_of(int64_t block, int which, int *ret_columns) const {
        int64_t offset[attention_grad::OPERANDS];
        batches.offsets(batch_of(block), offset);
        *ret_columns = which == 0 ? length : value_length;
        return out[which] + offset[!of_keys     ? attention_grad::OF_QUERY
                                   : which == 0 ? attention_grad::OF_KEY
                                                : attention_grad::OF_VALUE];
    }
    /// The number of a block's first row, and of all rows.
    ND_BOTH int first_of(int64_t block) const {
        return run_of(block) * tile;
    }
    ND_BOTH int all_rows() const {
        return of_keys ? all_keys : queries;
    }
    ND_BOTH Number log_sum_of(const Place &at, int row) const {
        return row < queries ? log_sums[at.offset[attention_grad::LOG_SUMS] + row] : (Number)0;
    }
    ND_BOTH Number delta_of(const Place &at, int row) const {
        return row < queries ? delta[at.offset[attention_grad::LOG_SUMS] + row] : (Number)0;
    }
};

} // namespace nd_cuda
#endif
