// ATTENTION's gradient of f32 (attention_grad.cu).
//
// A block has 32 rows of its own, queries or keys, and goes over tiles of the others; a warp has 16 of the own rows
// and all others of a tile, so that its weights become factors without the other warp (attention_lanes.cuh). Where
// all four tiles have room, what a step needs last is on its way while its first products are made, and what the
// next needs first while the last are. Longer rows take each other's place.
#ifndef ND_KERNELS_CUDA_ATTENTION_GRAD_FLOATS_CUH
#define ND_KERNELS_CUDA_ATTENTION_GRAD_FLOATS_CUH
#include "kernels/cuda/attention_grad.cuh"
#include "kernels/cuda/attention_lanes.cuh"

namespace nd_cuda {

/// `of_keys`: the gradients of keys and values, else that of queries. `apart`: all tiles have room.
template <int head_, bool of_keys, bool apart>
struct AttentionGradFloats : AttentionGradRuns<Plain<float>, head_, 32, of_keys, true> {
    typedef AttentionGradRuns<Plain<float>, head_, 32, of_keys, true> Runs;
    typedef AttentionLanes<head_, 32> Tiles;
    typedef typename Runs::Place Place;
    typedef typename Tiles::Sums Sums;
    typedef typename Tiles::Scores Scores;
    using Runs::all_keys, Runs::causal, Runs::gradients, Runs::mask, Runs::queries, Runs::scale;
    using Runs::tile;
    static constexpr int threads = Tiles::threads;
    static constexpr int phases = apart ? of_keys ? 5 : 3 : of_keys ? 7 : 6;
    static constexpr int least_blocks = head_ > (of_keys ? 32 : 64) ? 4 : 5;
    static constexpr int pitch = Tiles::pitch;
    static constexpr int my_rows = Tiles::my_rows, my_others = Tiles::my_others;
    static constexpr int my_queries = of_keys ? my_others : my_rows;

    static constexpr int rooms = apart ? 2 : 1;
    /// Of two operands: first queries and keys, which make scores, then gradients and values.
    struct Shared {
        alignas(16) float own[rooms][tile * pitch];
        alignas(16) float other[rooms][tile * pitch];
        alignas(16) float weights[tile * Tiles::weight_pitch];
    };
    struct Own {
        Sums result[gradients];
        Scores weight;
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
    static constexpr bool ends_in_warp = apart ? number == 1 || (of_keys && number == 3)
                                               : of_keys &&number == 3;

    ND_BOTH void begin(int64_t block, int thread, Shared &shared, Own &own) const {
        own.at = this->place(block, 0);
        own.steps = (int)this->steps(block);
        own.left = this->seeing_runs(own.at.first_row / tile);
        ND_UNROLL
        for (int which = 0; which < gradients; which++)
            Tiles::clear(own.result[which]);
        if (!of_keys)
            read_queries(thread, own);
        if (apart) {
            start_own<0>(own.at, thread, shared);
            start_own<1>(own.at, thread, shared);
            start_other<1>(own.at, thread, shared);
            wait_for_copies();
        }
    }
    template <int number>
    ND_BOTH void phase(int64_t block, int thread, int64_t step, Shared &shared, Own &own,
                       const Others &) const {
        if (apart)
            overlapped<number>(block, thread, step, shared, own);
        else
            in_turn<number>(block, thread, step, shared, own);
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
    template <int number>
    ND_BOTH void overlapped(int64_t block, int thread, int64_t step, Shared &shared,
                            Own &own) const {
        if (number == 0) {
            start_other<0>(own.at, thread, shared);
            if (of_keys)
                read_queries(thread, own);
            find_slopes(thread, shared, own);
            wait_for_copies();
        } else if (number == 1) {
            const Place at = own.at;
            if (!of_keys && go_on(block, step, own))
                start_other<1>(own.at, thread, shared);
            find_weights(at, thread, shared, own);
            lower_slopes(own);
            Tiles::put(thread, of_keys ? own.weight : own.slope, shared.weights);
        } else if (number == 2 && of_keys) {
            add<gradients - 1>(thread, shared, own);
        } else if (number == 3) {
            if (go_on(block, step, own))
                start_other<1>(own.at, thread, shared);
            Tiles::put(thread, own.slope, shared.weights);
        } else {
            add<0>(thread, shared, own);
            wait_for_copies();
        }
    }
    template <int number>
    ND_BOTH void in_turn(int64_t block, int thread, int64_t step, Shared &shared, Own &own) const {
        if (number == 0) {
            if (of_keys)
                read_queries(thread, own);
            start_own<0>(own.at, thread, shared);
            start_other<0>(own.at, thread, shared);
        } else if (number == 1) {
            find_weights(own.at, thread, shared, own);
        } else if (number == 2) {
            start_own<1>(own.at, thread, shared);
            start_other<1>(own.at, thread, shared);
        } else if (number == 3) {
            find_slopes(thread, shared, own);
            lower_slopes(own);
            Tiles::put(thread, of_keys ? own.weight : own.slope, shared.weights);
        } else if (number == 4 && of_keys) {
            add<gradients - 1>(thread, shared, own);
        } else if (number == phases - 2) {
            start_other<0>(own.at, thread, shared);
            if (of_keys)
                Tiles::put(thread, own.slope, shared.weights);
        } else {
            add<0>(thread, shared, own);
            (void)go_on(block, step, own);
        }
        if (number == 0 || number == 2 || number == phases - 2)
            wait_for_copies();
    }

    /// Begins to copy the block's own rows, or the others, of the first operand or of the second.
    template <int which> ND_BOTH void start_own(const Place &at, int thread, Shared &shared) const {
        Tiles::template start<tile>(rows_of<which, of_keys>(at), thread,
                                    shared.own[apart ? which : 0]);
    }
    template <int which>
    ND_BOTH void start_other(const Place &at, int thread, Shared &shared) const {
        Tiles::template start<tile>(rows_of<which, !of_keys>(at), thread,
                                    shared.other[apart ? which : 0]);
    }
    template <int which, bool by_key> ND_BOTH Matrix<float> rows_of(const Place &at) const {
        if (by_key)
            return which == 0 ? this->keys_of(at) : this->values_of(at);
        return which == 0 ? this->queries_of(at) : this->grads_of(at);
    }
    /// To the place of the next step, where there is one.
    ND_BOTH bool go_on(int64_t block, int64_t step, Own &own) const {
        if (step + 1 >= own.steps)
            return false;
        if (!of_keys) {
            own.at.first_key += tile;
        } else if (--own.left > 0) {
            own.at.first_row += tile;
        } else { // another head
            own.at = this->place(block, step + 1);
            own.left = this->seeing_runs(own.at.first_row / tile);
        }
        return true;
    }
    ND_BOTH void read_queries(int thread, Own &own) const {
        ND_UNROLL
        for (int i = 0; i < my_queries; i++) {
            const int row = own.at.first_row +
                            (of_keys ? Tiles::other_of(thread, i) : Tiles::row_of(thread, i));
            own.log_sum[i] = this->log_sum_of(own.at, row);
            own.lower[i] = this->delta_of(own.at, row);
        }
    }
    template <int which> ND_BOTH static void add(int thread, const Shared &shared, Own &own) {
        Tiles::add_products(thread, shared.weights, shared.other[apart ? which : 0],
                            own.result[which]);
    }

    /// Beyond the matrix, and where a query sees nothing, whose logarithm is infinity, there is none.
    ND_BOTH void find_weights(const Place &at, int thread, const Shared &shared, Own &own) const {
        Tiles::find_dots(thread, shared.own[0], shared.other[0], own.weight);
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_others; j++)
            own.weight[i][j] *= scale;
        if (mask || at.first_row + tile > queries || at.first_key + tile > all_keys ||
            (causal && at.first_key + tile - 1 > at.first_row))
            hide(at, thread, own.weight);
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_others; j++)
            own.weight[i][j] = exp_of(own.weight[i][j] - own.log_sum[of_keys ? j : i]);
    }
    ND_BOTH static void find_slopes(int thread, const Shared &shared, Own &own) {
        Tiles::find_dots(thread, shared.own[rooms - 1], shared.other[rooms - 1], own.slope);
    }
    /// weight (grad value^T - delta)
    ND_BOTH static void lower_slopes(Own &own) {
        ND_UNROLL
        for (int i = 0; i < my_rows; i++)
            ND_UNROLL
        for (int j = 0; j < my_others; j++)
            own.slope[i][j] = own.weight[i][j] * (own.slope[i][j] - own.lower[of_keys ? j : i]);
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
