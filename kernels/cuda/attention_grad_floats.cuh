// ATTENTION's gradient of f32 whose rows are at most 64 long (attention_grad.cu).
//
// A block has 32 rows of its own, queries or keys, and goes over tiles of the others; a warp has 16 of the own rows
// and all others of a tile, so that its weights become factors without the other warp (attention_lanes.cuh). What
// a step needs last is on its way while its first products are made, what the next needs first while the last are.
#ifndef ND_KERNELS_CUDA_ATTENTION_GRAD_FLOATS_CUH
#define ND_KERNELS_CUDA_ATTENTION_GRAD_FLOATS_CUH
#include "kernels/cuda/attention_grad.cuh"
#include "kernels/cuda/attention_lanes.cuh"

namespace nd_cuda {

/// `of_keys`: the gradients of keys and values, else that of queries.
template <int head_, bool of_keys>
struct AttentionGradFloats : AttentionGradRuns<Plain<float>, head_, 32, of_keys, true> {
    typedef AttentionGradRuns<Plain<float>, head_, 32, of_keys, true> Runs;
    typedef AttentionLanes<head_, 32> Tiles;
    typedef typename Runs::Place Place;
    typedef typename Tiles::Sums Sums;
    typedef typename Tiles::Scores Scores;
    using Runs::all_keys, Runs::causal, Runs::gradients, Runs::mask, Runs::queries, Runs::scale;
    using Runs::tile;
    static constexpr int threads = Tiles::threads, phases = of_keys ? 5 : 3;
    static constexpr int least_blocks = of_keys && head_ > 32 ? 4 : 5;
    static constexpr int pitch = Tiles::pitch;
    static constexpr int my_rows = Tiles::my_rows, my_others = Tiles::my_others;
    static constexpr int my_queries = of_keys ? my_others : my_rows;

    struct Shared {
        alignas(16) float own[2][tile * pitch];   ///< queries and gradients, or keys and values
        alignas(16) float other[2][tile * pitch]; ///< keys and values, or queries and gradients
        alignas(16) float weights[tile * Tiles::weight_pitch];
    };
    struct Own {
        Sums result[gradients];
        Scores slope;              ///< of a score
        float log_sum[my_queries]; ///< of this lane's queries
        float lower[my_queries];   ///< delta
        Place at;                  ///< of the step
        int steps;
        int left; ///< tiles of queries that this head has, of a step of keys
    };
    typedef Lanes<Own> Others;
    bool whole; ///< results are written by packs

    AttentionGradFloats(const Plain<float> &of, const nd_kernel_call *call, const void *deltas)
        : Runs(of, call, deltas), whole(true) {
        for (int which = 0; which < gradients; which++) {
            whole = whole && (uintptr_t)this->out[which] % 16 == 0;
            whole = whole && (which == 0 ? this->length : this->value_length) % 4 == 0;
        }
        for (int which = attention_grad::OF_QUERY; which <= attention_grad::OF_VALUE; which++)
            for (int axis = 0; axis < call->ndim; axis++)
                whole = whole && call->operand[which].strides[axis] % 4 == 0;
    }
    /// Behind the others lies a barrier between what the warps read and what takes its place.
    template <int number>
    static constexpr bool ends_in_warp = of_keys ? number == 1 || number == 3 : number == 1;

    ND_BOTH void begin(int64_t block, int thread, Shared &shared, Own &own) const {
        const Place at = own.at = this->place(block, 0);
        own.steps = (int)this->steps(block);
        own.left = this->seeing_runs(at.first_row / tile);
        Tiles::template start<tile>(of_keys ? this->keys_of(at) : this->queries_of(at), thread,
                                    shared.own[0]);
        Tiles::template start<tile>(of_keys ? this->values_of(at) : this->grads_of(at), thread,
                                    shared.own[1]);
        start_slopes(at, thread, shared);
        ND_UNROLL
        for (int which = 0; which < gradients; which++)
            Tiles::clear(own.result[which]);
        if (!of_keys)
            read_queries(thread, own);
        wait_for_copies();
    }

    template <int number>
    ND_BOTH void phase(int64_t block, int thread, int64_t step, Shared &shared, Own &own,
                       const Others &) const {
        if (number == 0) {
            Tiles::template start<tile>(of_keys ? this->queries_of(own.at) : this->keys_of(own.at),
                                        thread, shared.other[0]);
            if (of_keys)
                read_queries(thread, own);
            Tiles::find_dots(thread, shared.own[1], shared.other[1], own.slope);
            wait_for_copies();
        } else if (number == 1) {
            const Place at = own.at;
            if (!of_keys)
                start_next(block, step, thread, shared, own);
            weigh(at, thread, shared, own);
        } else if (number == 2 && of_keys) {
            Tiles::add_products(thread, shared.weights, shared.other[1], own.result[gradients - 1]);
        } else if (number == 3) {
            start_next(block, step, thread, shared, own);
            Tiles::put(thread, own.slope, shared.weights);
        } else {
            Tiles::add_products(thread, shared.weights, shared.other[0], own.result[0]);
            wait_for_copies();
        }
    }

    ND_BOTH void finish(int64_t block, int thread, const Own &own, const Others &) const {
        const int first = of_keys ? own.at.first_key : own.at.first_row;
        ND_UNROLL
        for (int which = 0; which < gradients; which++) {
            int columns;
            float *result = this->result_of(block, which, &columns);
            ND_UNROLL
            for (int i = 0; i < my_rows; i++) {
                const int row = first + Tiles::row_of(thread, i);
                if (row < this->all_rows())
                    Tiles::put_row(result + (int64_t)row * columns, columns, whole, thread,
                                   own.result[which][i], which == 0 ? scale : 1.0f);
            }
        }
    }

  private:
    /// What slopes are made of.
    ND_BOTH void start_slopes(const Place &at, int thread, Shared &shared) const {
        Tiles::template start<tile>(of_keys ? this->grads_of(at) : this->values_of(at), thread,
                                    shared.other[1]);
    }
    /// Nothing of this step is read at its place any more.
    ND_BOTH void start_next(int64_t block, int64_t step, int thread, Shared &shared,
                            Own &own) const {
        if (step + 1 >= own.steps)
            return;
        if (!of_keys) {
            own.at.first_key += tile;
        } else if (--own.left > 0) {
            own.at.first_row += tile;
        } else { // another head
            own.at = this->place(block, step + 1);
            own.left = this->seeing_runs(own.at.first_row / tile);
        }
        start_slopes(own.at, thread, shared);
    }
    ND_BOTH void read_queries(int thread, Own &own) const {
        const Place &at = own.at;
        ND_UNROLL
        for (int i = 0; i < my_queries; i++) {
            const int row =
                at.first_row + (of_keys ? Tiles::other_of(thread, i) : Tiles::row_of(thread, i));
            own.log_sum[i] = this->log_sum_of(at, row);
            own.lower[i] = this->delta_of(at, row);
        }
    }

    /// Weights, and weight (grad value^T - delta). Beyond the matrix, and where a query sees nothing, whose
    /// logarithm is infinity, there is none.
    ND_BOTH void weigh(const Place &at, int thread, Shared &shared, Own &own) const {
        Scores weight;
        Tiles::find_dots(thread, shared.own[0], shared.other[0], weight);
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_others; j++)
            weight[i][j] *= scale;
        if (mask || at.first_row + tile > queries || at.first_key + tile > all_keys ||
            (causal && at.first_key + tile - 1 > at.first_row))
            hide(at, thread, weight);
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_others; j++) {
            const int query = of_keys ? j : i;
            weight[i][j] = exp_of(weight[i][j] - own.log_sum[query]);
            own.slope[i][j] = weight[i][j] * (own.slope[i][j] - own.lower[query]);
        }
        Tiles::put(thread, of_keys ? weight : own.slope, shared.weights);
    }
    ND_BOTH void hide(const Place &at, int thread, Scores &score) const {
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_others; j++) {
            const int own_row = Tiles::row_of(thread, i), other = Tiles::other_of(thread, j);
            score[i][j] = this->masked(score[i][j], at.offset[attention_grad::MASK],
                                       at.first_row + (of_keys ? other : own_row),
                                       at.first_key + (of_keys ? own_row : other));
        }
    }
};

} // namespace nd_cuda
#endif
