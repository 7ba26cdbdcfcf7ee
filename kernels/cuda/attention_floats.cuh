// ATTENTION of f32 (attention.cu).
//
// A block has a run of queries, a warp 16 of them and all keys of a tile, so that its scores become its weights
// without the others (attention_lanes.cuh). While scores are made the values are on their way, while values are
// added up the next keys: where both have room. Else each takes the other's place, and other blocks go on.
#ifndef ND_KERNELS_CUDA_ATTENTION_FLOATS_CUH
#define ND_KERNELS_CUDA_ATTENTION_FLOATS_CUH
#include "kernels/cuda/attention_lanes.cuh"

namespace nd_cuda {

/// `apart`: keys and values have rooms of their own.
template <int head_, int rows_, bool apart_> struct AttentionFloats : AttentionLanes<head_, rows_> {
    typedef AttentionLanes<head_, rows_> Base;
    using Base::causal, Base::queries, Base::all_keys, Base::length, Base::value_length;
    using Base::mask, Base::scale, Base::packed, Base::pitch, Base::weight_pitch, Base::pieces;
    using Base::my_rows, Base::my_others, Base::row_of, Base::other_of, Base::across;
    using Base::rows, Base::quad;
    using typename Base::Scores;
    using typename Base::Sums;
    static constexpr int tile = Base::others; ///< keys
    static constexpr bool apart = apart_;
    static constexpr int phases = apart ? 3 : 4, least_blocks = rows_ > 32 ? 3 : 5;

    struct Shared {
        alignas(16) float queries[rows * pitch];
        alignas(16) float keys[tile * pitch]; ///< or values, where these are not apart
        alignas(16) float values[apart ? tile * pitch : 4];
        alignas(16) float weights[rows * weight_pitch];
    };
    struct Own {
        Sums result;
        Scores score;
        float highest[my_rows]; ///< score of the tile that this lane has
        float largest[my_rows]; ///< score of the row so far
        float sum[my_rows];     ///< of this lane's weights
        int first_row;
        const float *keys, *values; ///< of the batch
    };
    typedef Lanes<Own> Others;

    Walk<6> batches; ///< out, log_sums, query, key, value, mask
    float *out, *log_sums;
    const float *query, *key, *value;
    int64_t query_stride, key_stride, value_stride, out_stride;
    int runs;   ///< of queries in a batch
    bool whole; ///< the result is written by packs

    explicit AttentionFloats(const nd_kernel_call *call)
        : Base(Plain<float>(), call, call->operand[5]), batches(call),
          out((float *)call->operand[0].data), log_sums((float *)call->operand[1].data),
          query((const float *)call->operand[2].data), key((const float *)call->operand[3].data),
          value((const float *)call->operand[4].data), query_stride(call->attrs.i[4]),
          key_stride(call->attrs.i[5]), value_stride(call->attrs.i[6]),
          out_stride(call->attrs.i[7]), runs((int)divide_up(call->attrs.i[0], rows)) {
        for (int which = 2; which < 5; which++)
            this->read(call, which, call->attrs.i[2 + which]);
        whole = (uintptr_t)out % 16 == 0 && out_stride % quad == 0 && value_length % quad == 0;
        for (int axis = 0; axis < call->ndim; axis++)
            whole = whole && call->operand[0].strides[axis] % quad == 0;
    }
    int64_t blocks() const {
        return batches.count * runs;
    }
    template <int number> static constexpr bool ends_in_warp = number == 0 && apart;

    /// The runs that see most keys begin first, those of all batches: multiprocessors get as much to do.
    ND_BOTH int first_row_of(int64_t block) const {
        const uint32_t number = (uint32_t)block, of = (uint32_t)runs;
        return (int)(causal ? of - 1 - number / (uint32_t)batches.count : number % of) * rows;
    }
    ND_BOTH void find_offsets(int64_t block, int64_t ret_offset[6]) const {
        const uint32_t number = (uint32_t)block, count = (uint32_t)batches.count;
        batches.offsets(causal ? number % count : number / (uint32_t)runs, ret_offset);
    }
    static ND_BOTH float *values_in(Shared &shared) {
        return apart ? shared.values : shared.keys;
    }
    ND_BOTH int64_t steps(int64_t block) const {
        const int last = first_row_of(block) + rows;
        return divide_up(causal && last < all_keys ? last : all_keys, tile);
    }

    ND_BOTH void begin(int64_t block, int thread, Shared &shared, Own &own) const {
        int64_t offset[6];
        find_offsets(block, offset);
        own.first_row = first_row_of(block);
        this->template start<rows>({query + offset[2] + own.first_row * query_stride, query_stride,
                                    queries - own.first_row, length, packed},
                                   thread, shared.queries);
        own.keys = key + offset[3];
        own.values = value + offset[4];
        start_keys(0, thread, shared, own);
        Base::clear(own.result);
        ND_UNROLL
        for (int i = 0; i < my_rows; i++) {
            own.largest[i] = -(float)INFINITY;
            own.sum[i] = 0;
        }
        wait_for_copies();
    }

    template <int number>
    ND_BOTH void phase(int64_t block, int thread, int64_t step, Shared &shared, Own &own,
                       const Others &lanes) const {
        const int first_key = (int)step * tile;
        const bool hidden =
            causal &&
            first_key > own.first_row + row_of(thread / warp_threads * warp_threads, 0) + 15;
        if (number == (apart ? 0 : 1))
            this->template start<tile>({own.values + first_key * value_stride, value_stride,
                                        all_keys - first_key, value_length, packed},
                                       thread, values_in(shared));
        if (number == (apart ? 2 : 3) && first_key + tile < all_keys)
            start_keys(first_key + tile, thread, shared, own);
        if (number == 0 && !hidden)
            find_scores(block, first_key, thread, shared, own);
        if (number == 1 && !hidden)
            weigh(thread, shared, own, lanes);
        if (number == 2 && !hidden)
            Base::add_products(thread, shared.weights, values_in(shared), own.result);
        if (number == 1 || number == (apart ? 2 : 3))
            wait_for_copies();
    }

    ND_BOTH void finish(int64_t block, int thread, const Own &own, const Others &lanes) const {
        int64_t offset[6];
        find_offsets(block, offset);
        ND_UNROLL
        for (int i = 0; i < my_rows; i++) {
            const float sum = joined_among<across>(
                thread % warp_threads, lanes, own.sum[i], [=](const Own &of) { return of.sum[i]; },
                [](float a, float b) { return a + b; });
            const int row = own.first_row + row_of(thread, i);
            if (row >= queries)
                continue;
            if (thread % across == 0) {
                const float log_sum = log_of(sum) + own.largest[i];
                log_sums[offset[1] + row] = log_sum == -(float)INFINITY ? (float)INFINITY : log_sum;
            }
            Base::put_row(out + offset[0] + row * out_stride, value_length, whole, thread,
                          own.result[i], sum == 0 ? 1.0f : 1.0f / sum);
        }
    }

  private:
    ND_BOTH void start_keys(int first_key, int thread, Shared &shared, const Own &own) const {
        this->template start<tile>(
            {own.keys + first_key * key_stride, key_stride, all_keys - first_key, length, packed},
            thread, shared.keys);
    }

    /// Scores of the lane's queries and keys, and the highest of each row.
    ND_BOTH void find_scores(int64_t block, int first_key, int thread, const Shared &shared,
                             Own &own) const {
        Base::find_dots(thread, shared.queries, shared.keys, own.score);
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_others; j++)
            own.score[i][j] *= scale;
        const int first = own.first_row;
        const int first_of_warp = first + row_of(thread / warp_threads * warp_threads, 0);
        if (mask || first_key + tile > all_keys ||
            (causal && first_key + tile - 1 > first_of_warp)) {
            int64_t offset[6];
            find_offsets(block, offset);
            ND_UNROLL
            for (int i = 0; i < my_rows; i++)
                ND_UNROLL
            for (int j = 0; j < my_others; j++)
                own.score[i][j] =
                    this->masked(own.score[i][j], offset[5], first + row_of(thread, i),
                                 first_key + other_of(thread, j));
        }
        ND_UNROLL
        for (int i = 0; i < my_rows; i++) {
            own.highest[i] = -(float)INFINITY;
            ND_UNROLL
            for (int j = 0; j < my_others; j++) // of a NaN and a number: the number
                own.highest[i] = fmaxf(own.highest[i], own.score[i][j]);
        }
    }

    /// Scores to weights; a row that has seen nothing yet has nothing to subtract.
    ND_BOTH void weigh(int thread, Shared &shared, Own &own, const Others &lanes) const {
        Scores weight;
        ND_UNROLL
        for (int i = 0; i < my_rows; i++) {
            const float highest = joined_among<across>(
                thread % warp_threads, lanes, own.highest[i],
                [=](const Own &of) { return of.highest[i]; },
                [](float a, float b) { return fmaxf(a, b); });
            const float old = own.largest[i], now = fmaxf(old, highest);
            const float base = now == -(float)INFINITY ? 0.0f : now;
            const float fall = exp_of(old - base);
            own.sum[i] *= fall;
            ND_UNROLL
            for (int j = 0; j < my_others; j++) {
                weight[i][j] = exp_of(own.score[i][j] - base);
                own.sum[i] += weight[i][j];
            }
            ND_UNROLL
            for (int p = 0; p < pieces; p++)
                ND_UNROLL
            for (int e = 0; e < quad; e++)
                own.result[i][p].element[e] *= fall;
            own.largest[i] = now;
        }
        Base::put(thread, weight, shared.weights);
    }
};

} // namespace nd_cuda
#endif
