// LOSS: the negative log likelihood of classes, and its gradient. Sums are of the shares of many groups
// of threads, kept in double, and then of those.
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/grid.cuh"

namespace nd_cuda {

/// Targets [n, places], and what each counts.
template <class T> struct NllTargets {
    const int64_t *targets;
    const T *weight; ///< or NULL
    int64_t classes, places, ignored, count;

    ND_BOTH bool counts(int64_t i) const {
        return targets[i] != ignored && targets[i] >= 0 && targets[i] < classes;
    }
    ND_BOTH T weight_of(int64_t i) const {
        return weight ? weight[targets[i]] : (T)1;
    }
    /// Where the element of a target stands in x.
    ND_BOTH int64_t place_of(int64_t i) const {
        return (i / places * classes + targets[i]) * places + i % places;
    }
};

struct NllSums {
    double loss, weight;
};

template <class T> struct NllShare {
    typedef NllSums State;
    NllTargets<T> of;
    const T *x; ///< NULL: only the weights count
    T *each;    ///< or NULL
    NllSums *share;
    int64_t shares;
    int32_t *out_of_range;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        State sums = {0, 0};
        for (int64_t i = group * lanes + lane; i < of.count; i += shares * lanes) {
            bool counts = of.counts(i);
            if (!counts && of.targets[i] != of.ignored)
                *out_of_range = 1;
            double weight = counts ? (double)of.weight_of(i) : 0.0;
            double loss = counts && x ? -(double)x[of.place_of(i)] * weight : 0.0;
            sums.loss += loss;
            sums.weight += weight;
            if (each)
                each[i] = (T)loss;
        }
        return sums;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State{a.loss + b.loss, a.weight + b.weight};
    }
    ND_BOTH void finish(int64_t group, int lane, int, const State &sums) const {
        if (lane == 0)
            share[group] = sums;
    }
};

template <class T> struct NllTotal {
    typedef NllSums State;
    NllSums *share; ///< the total takes the first's place
    T *out;         ///< or NULL
    int64_t shares;
    bool mean;

    ND_BOTH State accumulate(int64_t, int lane, int lanes) const {
        State sums = {0, 0};
        for (int64_t i = lane; i < shares; i += lanes)
            sums = combine(sums, share[i]);
        return sums;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State{a.loss + b.loss, a.weight + b.weight};
    }
    ND_BOTH void finish(int64_t, int lane, int, const State &sums) const {
        if (lane != 0)
            return;
        share[0] = sums;
        if (out)
            *out = (T)(mean ? sums.loss / sums.weight : sums.loss);
    }
};

template <class T> struct NllGrad {
    NllTargets<T> of;
    const T *grad;
    T *out;
    const NllSums *total;
    bool each, mean;

    /// By element of x.
    ND_BOTH void operator()(int64_t at) const {
        int64_t sample = at / (of.classes * of.places), place = at % of.places;
        int64_t i = sample * of.places + place;
        double result = 0;
        if (of.counts(i) && of.place_of(i) == at)
            result = -(double)grad[each ? i : 0] * (double)of.weight_of(i) /
                     (mean ? total->weight : 1.0);
        out[at] = (T)result;
    }
};

constexpr int64_t most_nll_shares = 1024;

template <class T>
static nd_status run_nll(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const nd_operand *operand = call->operand;
    bool backward = call->op == ND_OP_nll_loss_grad;
    bool each = call->attrs.i[4] == ND_NLL_EACH, mean = call->attrs.i[4] == ND_NLL_MEAN;
    int64_t count = call->attrs.i[0] * call->attrs.i[2];
    NllTargets<T> of{(const int64_t *)operand[2].data,
                     (const T *)operand[3].data,
                     call->attrs.i[1],
                     call->attrs.i[2],
                     call->attrs.i[3],
                     count};
    int64_t shares = divide_up(count, 4 * block_threads);
    shares = shares < most_nll_shares ? shares : most_nll_shares;
    Scratch share(queue, shares * (int64_t)sizeof(NllSums));
    if (share.status != ND_OK)
        return share.status;
    T *out = (T *)operand[0].data;
    NllShare<T> body{of,
                     backward ? nullptr : (const T *)operand[1].data,
                     each && !backward ? out : nullptr,
                     (NllSums *)share.data,
                     shares,
                     queue->out_of_range};
    nd_status status = run_groups(queue, shares, GroupShape{block_threads, true}, body);
    if (status == ND_OK)
        status = run_groups(
            queue, 1, GroupShape{lanes_for(shares), true},
            NllTotal<T>{(NllSums *)share.data, each || backward ? nullptr : out, shares, mean});
    if (status != ND_OK || !backward)
        return status;
    NllGrad<T> grad{of, (const T *)operand[1].data, out, (const NllSums *)share.data, each, mean};
    return run_elements(queue, count * of.classes, grad);
}

} // namespace nd_cuda

nd_status nd__cuda_nll(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_nll<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_nll<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}
