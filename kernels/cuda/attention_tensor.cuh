// ATTENTION by tensor cores, for 16-bit floats (attention.cu).
//
// A warp has 16 queries, or 32, as fragments in registers, and all keys of a tile: its scores become its
// weights where they are, without a way through shared memory, which holds keys and values alone (Dao 2023).
// While scores are made the values are on their way, while values are added up the next keys. Scores, the
// largest of a row and the sum are f32; weights, which are at most 1, are rounded to 16 bits for the product
// with the values, and not for the sum.
#ifndef ND_KERNELS_CUDA_ATTENTION_TENSOR_CUH
#define ND_KERNELS_CUDA_ATTENTION_TENSOR_CUH
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tensor.cuh"
#include "kernels/cuda/warps.cuh"

namespace nd_cuda {

/// 2^x; less than 2^-126 may be 0. gelu_of() keeps digits there, so it has no use for this.
ND_BOTH float power_of_2(float x) {
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return exp2f(x);
#endif
}

/// `warps` of 16 `parts` queries each.
template <bool brain_, int head_, int warps_, int parts_>
struct AttentionTensor : AttentionTiles<Halves, head_> {
    typedef AttentionTiles<Halves, head_> Base;
    using Base::format, Base::causal, Base::packed, Base::queries, Base::all_keys, Base::length;
    using Base::head, Base::value_length, Base::scale, Base::mask;
    static constexpr bool brain = brain_;
    static constexpr int warps = warps_, parts = parts_, threads = warps * warp_threads;
    static constexpr int phases = 3;
    static constexpr int least_blocks = threads > 128 ? 1 : 2;
    static constexpr int rows = 16 * parts * warps;
    static constexpr int tile = parts > 1 ? 32 : 64; ///< keys: as many as leave all in registers
    static constexpr int gap = 8;                    ///< so that eight rows lie in different banks
    static constexpr int pitch = head + gap;

    struct Shared {
        alignas(16) uint16_t keys[tile * pitch];
        alignas(16) uint16_t values[tile * pitch];
    };
    /// Of 8 columns a lane has two neighbours of two rows, 8 apart.
    struct Own {
        Fragment query[parts][head / 16];
        float score[parts][tile / 8][4];
        Fragment weight[parts][tile / 16];
        float result[parts][head / 8][4];
        float highest[parts][2]; ///< score of the tile that this lane has
        float largest[parts][2]; ///< score of the row so far
        float sum[parts][2];     ///< of this lane's weights
    };
    typedef Lanes<Own> Others;

    Walk<6> batches; ///< out, log_sums, query, key, value, mask
    uint16_t *out;
    float *log_sums;
    const uint16_t *query, *key, *value;
    int64_t query_stride, key_stride, value_stride, out_stride;
    int runs;    ///< of queries in a batch
    bool paired; ///< two numbers of the result may be written at once

    AttentionTensor(const Halves &of, const nd_kernel_call *call)
        : Base(of, call, call->operand[5]), batches(call), out((uint16_t *)call->operand[0].data),
          log_sums((float *)call->operand[1].data), query((const uint16_t *)call->operand[2].data),
          key((const uint16_t *)call->operand[3].data),
          value((const uint16_t *)call->operand[4].data), query_stride(call->attrs.i[4]),
          key_stride(call->attrs.i[5]), value_stride(call->attrs.i[6]),
          out_stride(call->attrs.i[7]), runs((int)divide_up(call->attrs.i[0], rows)) {
        for (int which = 2; which < 5; which++)
            this->read(call, which, call->attrs.i[2 + which]);
        paired = (uintptr_t)out % 4 == 0 && out_stride % 2 == 0;
        for (int axis = 0; axis < call->ndim; axis++)
            paired = paired && call->operand[0].strides[axis] % 2 == 0;
    }
    int64_t blocks() const {
        return batches.count * runs;
    }
    template <int number> static constexpr bool ends_in_warp = number == 0;

    /// The runs that see most keys begin first.
    ND_BOTH int first_row(int64_t block) const {
        const int run = (int)(block % runs);
        return (causal ? runs - 1 - run : run) * rows;
    }
    ND_BOTH int64_t steps(int64_t block) const {
        const int last = first_row(block) + rows;
        return divide_up(causal && last < all_keys ? last : all_keys, tile);
    }

    ND_BOTH void begin(int64_t block, int thread, Shared &shared, Own &own) const {
        int64_t offset[6];
        batches.offsets(block / runs, offset);
        start(offset[3], key, key_stride, 0, length, thread, shared.keys);
        ND_UNROLL
        for (int part = 0; part < parts; part++) {
            ND_UNROLL
            for (int k = 0; k < head / 16; k++)
                own.query[part][k] =
                    read_query(offset[2], first_row(block), row_of(thread, part), k, thread);
            ND_UNROLL
            for (int lower = 0; lower < 2; lower++) {
                own.largest[part][lower] = -(float)INFINITY;
                own.sum[part][lower] = 0;
            }
            clear(own.result[part]);
        }
        wait_for_copies();
    }

    template <int number>
    ND_BOTH void phase(int64_t block, int thread, int64_t step, Shared &shared, Own &own,
                       const Others &lanes) const {
        const int row = first_row(block), first_key = (int)step * tile;
        const bool hidden = causal && first_key > row + row_of(thread, parts) - 1;
        int64_t offset[6];
        if (number != 1)
            batches.offsets(block / runs, offset);
        if (number == 0) {
            start(offset[4], value, value_stride, first_key, value_length, thread, shared.values);
            if (!hidden)
                find_scores(row, first_key, offset[5], thread, shared, own, lanes);
        } else if (number == 1) {
            if (!hidden)
                weigh(thread, own, lanes);
            wait_for_copies();
        } else {
            if (first_key + tile < all_keys)
                start(offset[3], key, key_stride, first_key + tile, length, thread, shared.keys);
            if (!hidden)
                add_values(thread, shared, own, lanes);
            wait_for_copies();
        }
    }

    ND_BOTH void finish(int64_t block, int thread, const Own &own, const Others &lanes) const {
        int64_t offset[6];
        batches.offsets(block / runs, offset);
        ND_UNROLL
        for (int part = 0; part < parts; part++) {
            ND_UNROLL
            for (int lower = 0; lower < 2; lower++) {
                const float sum = joined_among<4>(
                    thread % warp_threads, lanes, own.sum[part][lower],
                    [=](const Own &of) { return of.sum[part][lower]; },
                    [](float a, float b) { return a + b; });
                const int row =
                    first_row(block) + row_of(thread, part) + thread % warp_threads / 4 + 8 * lower;
                if (row >= queries)
                    continue;
                if (thread % 4 == 0) {
                    const float log_sum = log_of(sum) + own.largest[part][lower];
                    log_sums[offset[1] + row] =
                        log_sum == -(float)INFINITY ? (float)INFINITY : log_sum;
                }
                put_row(out + offset[0] + row * out_stride, thread, own.result[part], lower,
                        sum == 0 ? 1.0f : 1.0f / sum);
            }
        }
    }

  private:
    /// The first of 16 queries of a warp, in the block's.
    static ND_BOTH int row_of(int thread, int part) {
        return (thread / warp_threads * parts + part) * 16;
    }
    template <int count> static ND_BOTH void clear(float (&sum)[count][4]) {
        ND_UNROLL
        for (int j = 0; j < count; j++) {
            ND_UNROLL
            for (int i = 0; i < 4; i++)
                sum[j][i] = 0;
        }
    }
    ND_BOTH uint32_t pair_of(float low, float high) const {
        return (uint32_t)format.store(low) | (uint32_t)format.store(high) << 16;
    }

    /// 16 queries by 16 k, with zeros beyond the matrix.
    ND_BOTH Fragment read_query(int64_t offset, int first, int part_row, int k, int thread) const {
        Fragment fragment;
        ND_UNROLL
        for (int i = 0; i < 4; i++) {
            const int row = first + part_row + i % 2 * 8 + thread % warp_threads / 4;
            const int column = 16 * k + i / 2 * 8 + thread % 4 * 2;
            const uint16_t *from = query + offset + row * query_stride + column;
            uint32_t pair = 0;
            if (row < queries && column < length) {
                if (packed)
                    pair = *(const uint32_t *)(const void *)from;
                else
                    pair = from[0] | (column + 1 < length ? (uint32_t)from[1] << 16 : (uint32_t)0);
            }
            fragment.block[i] = pair;
        }
        return fragment;
    }

    /// Begins to copy `tile` rows of a matrix from row `first` on, with zeros beyond it; those that are
    /// no packs arrive at once.
    ND_BOTH void start(int64_t offset, const uint16_t *matrix, int64_t stride, int first,
                       int columns, int thread, uint16_t *to) const {
        constexpr int pack = 8, row_packs = head / pack;
        const uint16_t *from = matrix + offset + first * stride;
        ND_UNROLL
        for (int i = thread; i < tile * row_packs; i += threads) {
            const int row = i / row_packs, column = i % row_packs * pack;
            const bool inside = first + row < all_keys && column < columns;
            uint16_t *place = to + row * pitch + column;
            if (packed) {
                start_copy(place, inside ? from + row * stride + column : from, inside);
                continue;
            }
            Pack<uint16_t, pack> moved = {};
            ND_UNROLL
            for (int e = 0; e < pack; e++)
                if (inside && column + e < columns)
                    moved.element[e] = from[row * stride + column + e];
            *(Pack<uint16_t, pack> *)(void *)place = moved;
        }
    }

    /// Scores of the warp's queries and the tile's keys, and the highest of each row in this lane.
    ND_BOTH void find_scores(int first, int first_key, int64_t mask_offset, int thread,
                             const Shared &shared, Own &own, const Others &lanes) const {
        const int lane = thread % warp_threads;
        ND_UNROLL
        for (int part = 0; part < parts; part++)
            clear(own.score[part]);
        ND_UNROLL
        for (int k = 0; k < head / 16; k++) {
            ND_UNROLL
            for (int j = 0; j < tile / 16; j++) {
                const FragmentPlace place{shared.keys, true, pitch, 16 * j, 16 * k};
                const Fragment of_keys = place.read(lane);
                ND_UNROLL
                for (int part = 0; part < parts; part++) {
                    const OfQueries others{lanes, place, part, k};
                    ND_UNROLL
                    for (int half = 0; half < 2; half++)
                        multiply_fragments<brain>(own.score[part][2 * j + half], own.query[part][k],
                                                  of_keys, half, lane, others);
                }
            }
        }
        const bool all_seen = !mask && first_key + tile <= all_keys &&
                              (!causal || first_key + tile - 1 <= first + row_of(thread, 0));
        ND_UNROLL
        for (int part = 0; part < parts; part++) {
            scale_scores(own.score[part]);
            if (!all_seen)
                hide(first + row_of(thread, part), first_key, mask_offset, lane, own.score[part]);
            find_highest(own.score[part], own.highest[part]);
        }
    }
    ND_BOTH void scale_scores(float (&score)[tile / 8][4]) const {
        ND_UNROLL
        for (int j = 0; j < tile / 8; j++) {
            ND_UNROLL
            for (int i = 0; i < 4; i++)
                score[j][i] *= scale;
        }
    }
    /// With the mask, and without what is not seen or not there.
    ND_BOTH void hide(int first, int first_key, int64_t mask_offset, int lane,
                      float (&score)[tile / 8][4]) const {
        ND_UNROLL
        for (int j = 0; j < tile / 8; j++) {
            few_at_a_time();
            ND_UNROLL
            for (int i = 0; i < 4; i++)
                score[j][i] = this->masked(score[j][i], mask_offset, first + lane / 4 + i / 2 * 8,
                                           first_key + 8 * j + lane % 4 * 2 + i % 2);
        }
    }
    /// The compiler does not load what comes behind before: all numbers of a mask at once would take the
    /// registers of other things.
    static ND_BOTH void few_at_a_time() {
#ifdef __CUDA_ARCH__
        asm volatile("" ::: "memory");
#endif
    }
    static ND_BOTH void find_highest(const float (&score)[tile / 8][4], float (&highest)[2]) {
        ND_UNROLL
        for (int lower = 0; lower < 2; lower++) {
            highest[lower] = -(float)INFINITY;
            ND_UNROLL
            for (int j = 0; j < tile / 8; j++) {
                ND_UNROLL
                for (int side = 0; side < 2; side++) // of a NaN and a number: the number
                    highest[lower] = fmaxf(highest[lower], score[j][2 * lower + side]);
            }
        }
    }

    /// Scores to weights; a row that has seen nothing yet has nothing to subtract.
    ND_BOTH void weigh(int thread, Own &own, const Others &lanes) const {
        constexpr float log2_e = 1.44269504088896340736f;
        ND_UNROLL
        for (int part = 0; part < parts; part++) {
            ND_UNROLL
            for (int lower = 0; lower < 2; lower++) {
                const float highest = joined_among<4>(
                    thread % warp_threads, lanes, own.highest[part][lower],
                    [=](const Own &of) { return of.highest[part][lower]; },
                    [](float a, float b) { return fmaxf(a, b); });
                const float old = own.largest[part][lower], now = fmaxf(old, highest);
                const float base = now == -(float)INFINITY ? 0.0f : now;
                const float fall = power_of_2((old - base) * log2_e);
                float sum = own.sum[part][lower] * fall;
                ND_UNROLL
                for (int j = 0; j < tile / 8; j++) {
                    float *score = &own.score[part][j][2 * lower];
                    const float low = power_of_2((score[0] - base) * log2_e);
                    const float high = power_of_2((score[1] - base) * log2_e);
                    sum += low + high;
                    own.weight[part][j / 2].block[j % 2 * 2 + lower] = pair_of(low, high);
                }
                if (fall != 1) {
                    ND_UNROLL
                    for (int j = 0; j < head / 8; j++) {
                        own.result[part][j][2 * lower] *= fall;
                        own.result[part][j][2 * lower + 1] *= fall;
                    }
                }
                own.largest[part][lower] = now;
                own.sum[part][lower] = sum;
            }
        }
    }

    ND_BOTH void add_values(int thread, const Shared &shared, Own &own, const Others &lanes) const {
        const int lane = thread % warp_threads;
        ND_UNROLL
        for (int k = 0; k < tile / 16; k++) {
            ND_UNROLL
            for (int j = 0; j < head / 16; j++) {
                const FragmentPlace place{shared.values, false, pitch, 16 * j, 16 * k};
                const Fragment of_values = place.read(lane);
                ND_UNROLL
                for (int part = 0; part < parts; part++) {
                    const OfWeights others{lanes, place, part, k};
                    ND_UNROLL
                    for (int half = 0; half < 2; half++)
                        multiply_fragments<brain>(own.result[part][2 * j + half],
                                                  own.weight[part][k], of_values, half, lane,
                                                  others);
                }
            }
        }
    }

    /// A lane's part of one row of the result.
    ND_BOTH void put_row(uint16_t *to, int thread, const float (&result)[head / 8][4], int lower,
                         float factor) const {
        ND_UNROLL
        for (int j = 0; j < head / 8; j++) {
            const int column = 8 * j + thread % 4 * 2;
            const uint32_t pair =
                pair_of(result[j][2 * lower] * factor, result[j][2 * lower + 1] * factor);
            if (paired && column + 1 < value_length) {
                *(uint32_t *)(void *)(to + column) = pair;
            } else if (column < value_length) {
                to[column] = (uint16_t)pair;
                if (column + 1 < value_length)
                    to[column + 1] = (uint16_t)(pair >> 16);
            }
        }
    }

    /// What the other lanes multiply, where no hardware knows it.
    struct OfQueries {
        const Others &lanes;
        const FragmentPlace &place;
        int part, k;
        ND_BOTH Fragment a(int lane) const {
            return lanes.thread[lane]->query[part][k];
        }
        ND_BOTH Fragment b(int lane) const {
            return place.read(lane);
        }
    };
    struct OfWeights {
        const Others &lanes;
        const FragmentPlace &place;
        int part, k;
        ND_BOTH Fragment a(int lane) const {
            return lanes.thread[lane]->weight[part][k];
        }
        ND_BOTH Fragment b(int lane) const {
            return place.read(lane);
        }
    };
};

} // namespace nd_cuda
#endif
