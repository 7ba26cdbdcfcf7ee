// LOSS: losses of pairs and their gradients, each row of kernels/losses.inc a functor. A sum is of the
// shares of many groups of threads, kept in double, and then of those.
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/grid.cuh"

namespace nd_cuda {

/// What a pair costs, and how that changes with a and with b.
#define ND_PAIR_LOSS(name, value_expression, slope_a_expression, slope_b_expression, cost) \
    template <class T> struct Pair_##name {                                                \
        T p;                                                                               \
        ND_BOTH T value(T a, T b) const {                                                  \
            return value_expression;                                                       \
        }                                                                                  \
        ND_BOTH T slope_a(T a, T b) const {                                                \
            (void)a, (void)b;                                                              \
            return slope_a_expression;                                                     \
        }                                                                                  \
        ND_BOTH T slope_b(T a, T b) const {                                                \
            (void)a, (void)b;                                                              \
            return slope_b_expression;                                                     \
        }                                                                                  \
    };
#include "kernels/losses.inc"

template <class T, class Pair> struct PairEach {
    Pair pair;
    const T *a, *b;
    T *out;
    T factor;

    ND_BOTH void operator()(int64_t i) const {
        out[i] = pair.value(a[i], b[i]) * factor;
    }
};

template <class T, class Pair> struct PairGrad {
    Pair pair;
    const T *g, *a, *b;
    T *out_a, *out_b; ///< or NULL
    T factor;
    bool each; ///< each pair has a gradient of its own

    ND_BOTH void operator()(int64_t i) const {
        T steep = g[each ? i : 0] * factor;
        if (out_a)
            out_a[i] = steep * pair.slope_a(a[i], b[i]);
        if (out_b)
            out_b[i] = steep * pair.slope_b(a[i], b[i]);
    }
};

/// The share of each of `shares` groups of threads, which take turns at neighbouring pairs.
template <class T, class Pair> struct PairShare {
    typedef double State;
    Pair pair;
    const T *a, *b;
    double *share;
    int64_t count, shares;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        State sum = 0;
        for (int64_t i = group * lanes + lane; i < count; i += shares * lanes)
            sum += (double)pair.value(a[i], b[i]);
        return sum;
    }
    ND_BOTH State combine(State x, State y) const {
        return x + y;
    }
    ND_BOTH void finish(int64_t group, int lane, int, State sum) const {
        if (lane == 0)
            share[group] = sum;
    }
};

template <class T> struct PairTotal {
    typedef double State;
    const double *share;
    T *out;
    int64_t shares;
    double factor;

    ND_BOTH State accumulate(int64_t, int lane, int lanes) const {
        State sum = 0;
        for (int64_t i = lane; i < shares; i += lanes)
            sum += share[i];
        return sum;
    }
    ND_BOTH State combine(State x, State y) const {
        return x + y;
    }
    ND_BOTH void finish(int64_t, int lane, int, State sum) const {
        if (lane == 0)
            *out = (T)(sum * factor);
    }
};

constexpr int64_t most_shares = 1024;
constexpr int64_t pairs_of_a_share = 16 * block_threads;

template <class T, class Pair>
static nd_status run_sum(const nd_cuda_queue *queue, const nd_kernel_call *call, Pair pair) {
    int64_t count = call->attrs.i[1], shares = divide_up(count, pairs_of_a_share);
    shares = shares < most_shares ? shares : most_shares;
    Scratch share(queue, shares * (int64_t)sizeof(double));
    if (share.status != ND_OK)
        return share.status;
    PairShare<T, Pair> body{pair,
                            (const T *)call->operand[1].data,
                            (const T *)call->operand[2].data,
                            (double *)share.data,
                            count,
                            shares};
    nd_status status = run_groups(queue, shares, GroupShape{block_threads, true}, body);
    if (status != ND_OK)
        return status;
    PairTotal<T> total{(const double *)share.data, (T *)call->operand[0].data, shares,
                       call->attrs.f[1]};
    return run_groups(queue, 1, GroupShape{lanes_for(shares), true}, total);
}

template <class T, class Pair>
static nd_status run_pair(const nd_cuda_queue *queue, const nd_kernel_call *call, Pair pair) {
    const nd_operand *operand = call->operand;
    int64_t count = call->attrs.i[1];
    T factor = (T)call->attrs.f[1];
    bool sums = call->attrs.i[2] != 0;
    if (call->op == ND_OP_pair_loss_grad)
        return run_elements(queue, count,
                            PairGrad<T, Pair>{pair, (const T *)operand[2].data,
                                              (const T *)operand[3].data,
                                              (const T *)operand[4].data, (T *)operand[0].data,
                                              (T *)operand[1].data, factor, !sums});
    if (sums)
        return run_sum<T>(queue, call, pair);
    return run_elements(queue, count,
                        PairEach<T, Pair>{pair, (const T *)operand[1].data,
                                          (const T *)operand[2].data, (T *)operand[0].data,
                                          factor});
}

template <class T>
static nd_status run_loss_of(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    T p = (T)call->attrs.f[0];
    switch (call->attrs.i[0]) {
#define ND_PAIR_LOSS(name, ...) \
    case ND_PAIR_LOSS_##name:   \
        return run_pair<T>(queue, call, Pair_##name<T>{p});
#include "kernels/losses.inc"
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

} // namespace nd_cuda

nd_status nd__cuda_pair_loss(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[0].dtype == ND_F32)
        return nd_cuda::run_loss_of<float>(queue, call);
    if (call->operand[0].dtype == ND_F64)
        return nd_cuda::run_loss_of<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}
