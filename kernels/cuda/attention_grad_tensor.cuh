// The gradient of attention by tensor cores, for 16-bit floats (attention_grad.cu).
//
// Tiles stay 16-bit floats in shared memory, where all products read them; weights and the scores'
// gradients, which are found in f32, are rounded to them there. A warp has 16 rows of a tile and half of
// the columns.
//
// A score's gradient may be more than an f16 can hold where no gradient is that is asked for. The gradients
// of such a query's scores in a tile (of keys: of such a key's) are divided by a power of 2 before they are
// rounded, and so is the sum that their products are added to, and brought back behind that.
#ifndef ND_KERNELS_CUDA_ATTENTION_GRAD_TENSOR_CUH
#define ND_KERNELS_CUDA_ATTENTION_GRAD_TENSOR_CUH
#include "kernels/cuda/attention_grad.cuh"
#include "kernels/cuda/tensor.cuh"

namespace nd_cuda {

template <bool brain, int head_, int tile_, bool of_keys>
struct AttentionGradTensor : AttentionGradRuns<Halves, head_, tile_, of_keys> {
    typedef AttentionGradRuns<Halves, head_, tile_, of_keys> Runs;
    using Runs::scale, Runs::tile, Runs::gradients, Runs::head;
    using typename Runs::Place;
    static constexpr int threads = tile / 16 * 2 * warp_threads;
    static constexpr int least_blocks = head == 64 ? 2 : of_keys ? 3 : 4;
    static constexpr bool lowers = !brain; ///< what f16 cannot hold
    static constexpr int phases = of_keys ? 5 : lowers ? 4 : 3;
    static constexpr int gap = 8; ///< so that eight rows lie in different banks
    static constexpr int pitch = head + gap, score_pitch = tile + gap;
    /// Of a warp: fragments of 16 columns of a tile's keys, and of a result.
    static constexpr int score_fragments = tile / 32, result_fragments = head / 32;

    struct Shared {
        alignas(16) uint16_t queries[tile * pitch];
        alignas(16) uint16_t grads[tile * pitch];
        alignas(16) uint16_t keys[tile * pitch];
        alignas(16) uint16_t values[tile * pitch];
        alignas(16) uint16_t scores[tile * score_pitch]; ///< by query: weights, or their gradients
        /// The bits of the largest gradient of a score that f16 cannot hold, without its sign; 0 without one.
        int32_t largest[lowers ? tile : 1]; ///< by query, of keys by key
    };
    struct Own {
        float result[gradients][2 * result_fragments][4];
        float slope[2 * score_fragments][4];
    };
    bool paired; ///< two numbers of a result may be written at once

    AttentionGradTensor(const Halves &of, const nd_kernel_call *call, const void *deltas)
        : Runs(of, call, deltas) {
        paired = this->packed;
        for (int which = 0; which < gradients; which++)
            paired = paired && (uintptr_t)this->out[which] % 4 == 0;
        for (int axis = 0; axis < call->ndim; axis++)
            for (int which = 0; which < 3; which++)
                paired = paired && call->operand[which].strides[axis] % 2 == 0;
    }
    ND_BOTH void begin(int64_t, int, Own &own) const {
        ND_UNROLL
        for (int which = 0; which < gradients; which++)
            clear(own.result[which]);
    }

    template <int number>
    ND_BOTH void phase(int64_t block, int thread, int64_t step, Shared &shared, Own &own) const {
        if (number == 0) {
            const Place at = this->place(block, step);
            if (lowers && thread < tile)
                shared.largest[thread] = 0;
            if (of_keys || step == 0) {
                move(this->queries_of(at), thread, shared.queries);
                move(this->grads_of(at), thread, shared.grads);
            }
            if (!of_keys || step == 0) {
                move(this->keys_of(at), thread, shared.keys);
                move(this->values_of(at), thread, shared.values);
            }
        } else if (number == 1) {
            weigh(this->place(block, step), thread, shared, own);
        } else if (of_keys && number == 2) {
            add(shared.scores, false, shared.grads, thread, own.result[gradients - 1]);
        } else if (number < phases - 1) {
            lower_slopes(thread, shared, own.slope);
            put_scores(own.slope, thread, shared.scores);
        } else if (of_keys) {
            add_slopes(shared, shared.queries, thread, own.result[0]);
        } else {
            add_slopes(shared, shared.keys, thread, own.result[0]);
        }
    }

    ND_BOTH void finish(int64_t block, int thread, const Shared &, const Own &own) const {
        ND_UNROLL
        for (int which = 0; which < gradients; which++) {
            int columns;
            uint16_t *result = this->result_of(block, which, &columns);
            const float factor = which == 0 ? scale : 1.0f;
            ND_UNROLL
            for (int j = 0; j < 2 * result_fragments; j++) {
                const int column = column_of(thread, head) + 8 * j;
                ND_UNROLL
                for (int lower = 0; lower < 2; lower++) {
                    const int row = this->first_of(block) + row_of(thread) + 8 * lower;
                    if (row >= this->all_rows() || column >= columns)
                        continue;
                    const float *of = &own.result[which][j][2 * lower];
                    uint16_t *to = result + (int64_t)row * columns + column;
                    const uint32_t both = pair_of(of[0] * factor, of[1] * factor);
                    if (paired) {
                        *(uint32_t *)to = both;
                    } else {
                        to[0] = (uint16_t)both;
                        if (column + 1 < columns)
                            to[1] = (uint16_t)(both >> 16);
                    }
                }
            }
        }
    }

  private:
    /// A lane's first row and column in what its warp has of a tile with so many columns.
    static ND_BOTH int warp_row(int thread) {
        return thread / warp_threads / 2 * 16;
    }
    static ND_BOTH int warp_column(int thread, int columns) {
        return thread / warp_threads % 2 * (columns / 2);
    }
    static ND_BOTH int row_of(int thread) {
        return warp_row(thread) + thread % warp_threads / 4;
    }
    static ND_BOTH int column_of(int thread, int columns) {
        return warp_column(thread, columns) + thread % 4 * 2;
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
        return (uint32_t)this->format.store(low) | (uint32_t)this->format.store(high) << 16;
    }

    /// A tile of a matrix, with zeros beyond it.
    ND_BOTH void move(const Matrix<uint16_t> &from, int thread, uint16_t *to) const {
        constexpr int pack = 8, row_packs = head / pack;
        ND_UNROLL
        for (int i = thread; i < tile * row_packs; i += threads) {
            const int row = i / row_packs, column = i % row_packs * pack;
            Pack<uint16_t, pack> moved = {};
            if (row < from.rows && from.packed) {
                if (column < from.columns)
                    moved = *(const Pack<uint16_t, pack> *)(from.data + row * from.stride + column);
            } else if (row < from.rows) {
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    if (column + e < from.columns)
                        moved.element[e] = from.data[row * from.stride + column + e];
            }
            *(Pack<uint16_t, pack> *)(to + row * pitch + column) = moved;
        }
    }

    /// Scores of the tile's queries and keys, and in the same way the gradients of their weights.
    ND_BOTH void dots(const uint16_t *queries, const uint16_t *keys, int thread,
                      float (&sum)[2 * score_fragments][4]) const {
        clear(sum);
        multiply_rows<brain, score_fragments, head>(
            {queries, true, pitch, warp_row(thread), 0},
            {keys, true, pitch, warp_column(thread, tile), 0}, thread % warp_threads, sum);
    }

    /// Weights, and weight (grad value^T - delta). Beyond the matrix, and where a query sees nothing,
    /// whose logarithm is infinity, both are 0.
    ND_BOTH void weigh(const Place &at, int thread, Shared &shared, Own &own) const {
        float weight[2 * score_fragments][4];
        dots(shared.queries, shared.keys, thread, weight);
        dots(shared.grads, shared.values, thread, own.slope);
        ND_UNROLL
        for (int lower = 0; lower < 2; lower++) {
            const int row = at.first_row + row_of(thread) + 8 * lower;
            const float log_sum = this->log_sum_of(at, row), delta = this->delta_of(at, row);
            ND_UNROLL
            for (int j = 0; j < 2 * score_fragments; j++) {
                ND_UNROLL
                for (int i = 2 * lower; i < 2 * lower + 2; i++) {
                    const int key = at.first_key + column_of(thread, tile) + 8 * j + i % 2;
                    const float score = this->masked(weight[j][i] * scale,
                                                     at.offset[attention_grad::MASK], row, key);
                    weight[j][i] = exp_of(score - log_sum);
                    own.slope[j][i] = weight[j][i] * (own.slope[j][i] - delta);
                    if (lowers && fabs_of(own.slope[j][i]) > most_of_f16)
                        note(fabs_of(own.slope[j][i]), line_of(thread, j, i), shared);
                }
            }
        }
        if (of_keys)
            put_scores(weight, thread, shared.scores);
        else if (!lowers)
            put_scores(own.slope, thread, shared.scores);
    }

    // ---------------------------------------------------------------------------------------------
    // what is more than f16 can hold

    static constexpr float most_of_f16 = 65504;

    /// Of a tile's lines with a divisor of their own, which are queries or keys, that of a number in a
    /// lane's fragments.
    static ND_BOTH int line_of(int thread, int j, int i) {
        return of_keys ? column_of(thread, tile) + 8 * j + i % 2 : row_of(thread) + i / 2 * 8;
    }
    static ND_BOTH void note(float size, int line, Shared &shared) {
        int32_t bits;
        memcpy(&bits, &size, sizeof bits); // which grow with numbers that have no sign
#ifdef __CUDA_ARCH__
        atomicMax(&shared.largest[line], bits);
#else
        if (bits > shared.largest[line])
            shared.largest[line] = bits;
#endif
    }
    /// What the line is divided by: 2^exponent, after which the largest is below 2^15.
    static ND_BOTH int exponent_of(const Shared &shared, int line) {
        const int32_t bits = shared.largest[line];
        return bits ? (bits >> 23) - 127 - 14 : 0;
    }
    /// 2^exponent of -126 ... 127.
    static ND_BOTH float power_of(int exponent) {
        const int32_t bits = (exponent + 127) << 23;
        float power;
        memcpy(&power, &bits, sizeof power);
        return power;
    }
    ND_BOTH void lower_slopes(int thread, const Shared &shared,
                              float (&slope)[2 * score_fragments][4]) const {
        if constexpr (lowers) {
            ND_UNROLL
            for (int j = 0; j < 2 * score_fragments; j++) {
                ND_UNROLL
                for (int i = 0; i < 4; i++)
                    slope[j][i] *= power_of(-exponent_of(shared, line_of(thread, j, i)));
            }
        }
    }
    static ND_BOTH void scale_rows(const int (&exponent)[2], int sign,
                                   float (&sum)[2 * result_fragments][4]) {
        ND_UNROLL
        for (int j = 0; j < 2 * result_fragments; j++) {
            ND_UNROLL
            for (int i = 0; i < 4; i++)
                sum[j][i] *= power_of(sign * exponent[i / 2]);
        }
    }
    /// sum += the scores' gradients, as they were put, times the rows of a tile.
    ND_BOTH void add_slopes(const Shared &shared, const uint16_t *rows, int thread,
                            float (&sum)[2 * result_fragments][4]) const {
        if constexpr (lowers) {
            const int exponent[2] = {exponent_of(shared, row_of(thread)),
                                     exponent_of(shared, row_of(thread) + 8)};
            const bool lowered = exponent[0] != 0 || exponent[1] != 0;
            if (lowered)
                scale_rows(exponent, -1, sum);
            add(shared.scores, !of_keys, rows, thread, sum);
            if (lowered)
                scale_rows(exponent, 1, sum);
        } else {
            add(shared.scores, !of_keys, rows, thread, sum);
        }
    }

    // ---------------------------------------------------------------------------------------------

    ND_BOTH void put_scores(const float (&of)[2 * score_fragments][4], int thread,
                            uint16_t *scores) const {
        ND_UNROLL
        for (int j = 0; j < 2 * score_fragments; j++) {
            ND_UNROLL
            for (int lower = 0; lower < 2; lower++)
                *(uint32_t *)(scores + (row_of(thread) + 8 * lower) * score_pitch +
                              column_of(thread, tile) + 8 * j) =
                    pair_of(of[j][2 * lower], of[j][2 * lower + 1]);
        }
    }

    /// sum += scores, or these turned, times the rows of a tile.
    ND_BOTH void add(const uint16_t *scores, bool by_query, const uint16_t *rows, int thread,
                     float (&sum)[2 * result_fragments][4]) const {
        multiply_rows<brain, result_fragments, tile>(
            {scores, by_query, score_pitch, warp_row(thread), 0},
            {rows, false, pitch, warp_column(thread, head), 0}, thread % warp_threads, sum);
    }
};

} // namespace nd_cuda
#endif
