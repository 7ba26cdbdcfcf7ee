// REDUCE and ARGREDUCE over any axes.
//
// A group of threads works on one result. When results are few and long, each is cut into parts
// whose states go to scratch memory and are joined by a second kernel, so that a full reduction
// occupies the whole device. Sums of f32 are kept in f64. The order of joining depends on the shape
// and the device alone, so the same call gives the same bits.
#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/walk.cuh"
#include <type_traits>

namespace nd_cuda {

// A Kind is what is computed: State of a share, start(), add(state, x, position), join(state,
// state), result(state).

/// Sums of floats are kept in f64, those of integers in 64 bits, which wrap; the result is of the
/// element's dtype, or of the integer of 64 bits that has its sign.
template <class T> struct Sum {
    typedef std::conditional_t<is_float<T>, double, uint64_t> State;
    typedef std::conditional_t<is_float<T>, T, int64_t> Result;

    ND_BOTH State start() const {
        return 0;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return state + (State)x;
    }
    ND_BOTH State join(State a, State b) const {
        return a + b;
    }
    ND_BOTH Result result(State state) const {
        return (Result)state;
    }
};

/// What means and the like of T are given as.
template <class T> using Real = std::conditional_t<is_float<T>, T, float>;

template <class T> struct Mean {
    typedef double State;
    typedef Real<T> Result;
    double count;

    ND_BOTH State start() const {
        return 0;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return state + (double)x;
    }
    ND_BOTH State join(State a, State b) const {
        return a + b;
    }
    ND_BOTH Result result(State state) const {
        return (Result)(state / count);
    }
};

/// How many elements, their mean, and the sum of squared differences from it.
struct Moments {
    double count, mean, squares;
};

/// Variance in one pass (Welford 1962; joined as by Chan, Golub and LeVeque 1979).
template <class T> struct Variance {
    typedef Moments State;
    typedef Real<T> Result;
    double divisor;

    ND_BOTH State start() const {
        return State{0, 0, 0};
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        double count = state.count + 1, difference = (double)x - state.mean;
        double mean = state.mean + difference / count;
        return State{count, mean, state.squares + difference * ((double)x - mean)};
    }
    ND_BOTH State join(State a, State b) const {
        if (a.count == 0 || b.count == 0)
            return a.count == 0 ? b : a;
        double count = a.count + b.count, difference = b.mean - a.mean, part = b.count / count;
        return State{count, a.mean + difference * part,
                     a.squares + b.squares + difference * difference * a.count * part};
    }
    ND_BOTH Result result(State state) const {
        return (Result)(state.squares / divisor);
    }
};

/// The largest element, or the smallest; NaN wins over any number.
template <class T, bool largest> struct Extremum {
    typedef T State;
    typedef T Result;

    ND_BOTH State start() const {
        if constexpr (is_float<T>)
            return largest ? -(T)INFINITY : (T)INFINITY;
        else
            return largest ? Limits<T>::lowest : Limits<T>::highest;
    }
    ND_BOTH State join(State a, State b) const {
        return ((largest ? a > b : a < b) || is_nan(a)) ? a : b;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return join(state, x);
    }
    ND_BOTH T result(State state) const {
        return state;
    }
};

template <class T> struct Found {
    T value;
    int64_t position; ///< -1: none yet
};

/// Position of the first extremum; the first NaN, where there is one.
template <class T, bool largest> struct Position {
    typedef Found<T> State;
    typedef int64_t Result;

    static ND_BOTH bool better(T a, T b) {
        return (largest ? a > b : a < b) || (is_nan(a) && !is_nan(b));
    }
    ND_BOTH State start() const {
        return State{(T)0, -1};
    }
    ND_BOTH State join(State a, State b) const {
        if (a.position < 0 || b.position < 0)
            return a.position < 0 ? b : a;
        if (better(a.value, b.value))
            return a;
        if (better(b.value, a.value))
            return b;
        return a.position < b.position ? a : b;
    }
    ND_BOTH State add(State state, T x, int64_t position) const {
        return state.position < 0 || better(x, state.value) ? State{x, position} : state;
    }
    ND_BOTH int64_t result(State state) const {
        return state.position;
    }
};

/// First kernel: group = part * results + result.
template <class T, class Kind> struct ReduceParts {
    typedef typename Kind::State State;
    Kind kind;
    const T *x;
    typename Kind::Result *out;
    State *partial; ///< [parts][results], or NULL when there is one part
    Walk<2> kept;   ///< out, x
    Walk<1> reduced;
    int64_t part_length;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        int64_t part = partial ? group / kept.count : 0;
        int64_t result = group - part * kept.count;
        int64_t offset[2];
        kept.offsets(result, offset);
        int64_t end = (part + 1) * part_length;
        if (end > reduced.count)
            end = reduced.count;
        const T *first = x + offset[1];
        State state = kind.start();
        ND_UNROLL_4
        for (int64_t position = part * part_length + lane; position < end; position += lanes)
            state = kind.add(state, first[reduced.offset(position)], position);
        return state;
    }
    ND_BOTH State combine(State a, State b) const {
        return kind.join(a, b);
    }
    ND_BOTH void finish(int64_t group, int lane, int, State state) const {
        if (lane != 0)
            return;
        if (partial) {
            partial[group] = state;
        } else {
            int64_t offset[2];
            kept.offsets(group, offset);
            out[offset[0]] = kind.result(state);
        }
    }
};

/// Second kernel: joins the parts of each result.
template <class Kind> struct ReduceJoin {
    typedef typename Kind::State State;
    Kind kind;
    const State *partial;
    typename Kind::Result *out;
    Walk<2> kept;
    int64_t parts;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        State state = kind.start();
        for (int64_t part = lane; part < parts; part += lanes)
            state = kind.join(state, partial[part * kept.count + group]);
        return state;
    }
    ND_BOTH State combine(State a, State b) const {
        return kind.join(a, b);
    }
    ND_BOTH void finish(int64_t group, int lane, int, State state) const {
        if (lane != 0)
            return;
        int64_t offset[2];
        kept.offsets(group, offset);
        out[offset[0]] = kind.result(state);
    }
};

/// Axes of a call that stay and axes that go.
struct ReduceAxes {
    Walk<2> kept;
    Walk<1> reduced;

    /// Reduced axes are those on which the output does not move.
    explicit ReduceAxes(const nd_kernel_call *call) {
        const int64_t *out = call->operand[0].strides, *x = call->operand[1].strides;
        for (int axis = 0; axis < call->ndim; axis++) {
            int64_t stride[2] = {out[axis], x[axis]};
            if (out[axis] == 0)
                reduced.add_axis(call->shape[axis], &stride[1]);
            else
                kept.add_axis(call->shape[axis], stride);
        }
    }

    /// Neighbouring threads should read neighbouring elements: along the kept axes when those are
    /// the closer ones, else along the reduced axes.
    GroupShape shape() const {
        int64_t kept_stride = kept.count > 1 ? kept.strides[1][kept.ndim - 1] : INT64_MAX;
        int64_t reduced_stride = reduced.count > 1 ? reduced.strides[0][reduced.ndim - 1] : 0;
        int lanes = lanes_for(reduced.count);
        if (reduced_stride <= kept_stride)
            return GroupShape{lanes, true};
        return GroupShape{lanes < 8 ? lanes : 8, false};
    }

    /// Enough parts to fill the device, each at least sixteen elements per lane.
    int64_t parts(const nd_cuda_queue *queue, int lanes) const {
        int64_t wanted = divide_up((int64_t)queue->multiprocessors * 2048, kept.count * lanes);
        int64_t possible = reduced.count / ((int64_t)lanes * 16);
        int64_t parts = wanted < possible ? wanted : possible;
        return parts > 1 ? parts : 1;
    }
};

template <class T, class Kind>
static nd_status run_kind(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Kind &kind) {
    typedef typename Kind::State State;
    ReduceAxes axes(call);
    if (axes.kept.count == 0)
        return ND_OK;
    GroupShape shape = axes.shape();
    int64_t parts = axes.parts(queue, shape.lanes);
    const T *x = (const T *)call->operand[1].data;
    typename Kind::Result *out = (typename Kind::Result *)call->operand[0].data;
    ReduceParts<T, Kind> first{kind, x, out, nullptr, axes.kept, axes.reduced, axes.reduced.count};
    if (parts == 1)
        return run_groups(queue, axes.kept.count, shape, first);

    first.part_length = divide_up(axes.reduced.count, parts);
    parts = divide_up(axes.reduced.count, first.part_length);
    Scratch scratch(queue, parts * axes.kept.count * (int64_t)sizeof(State));
    if (scratch.status != ND_OK)
        return scratch.status;
    first.partial = (State *)scratch.data;
    nd_status status = run_groups(queue, parts * axes.kept.count, shape, first);
    if (status != ND_OK)
        return status;
    ReduceJoin<Kind> second{kind, first.partial, out, axes.kept, parts};
    return run_groups(queue, axes.kept.count, GroupShape{lanes_for(parts), true}, second);
}

template <class T>
static nd_status run_reduce(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->op) {
    case ND_OP_sum:
        return run_kind<T>(queue, call, Sum<T>());
    case ND_OP_mean:
        return run_kind<T>(queue, call, Mean<T>{(double)call->attrs.i[0]});
    case ND_OP_var: {
        double divisor = (double)call->attrs.i[0] - call->attrs.f[0];
        return run_kind<T>(queue, call, Variance<T>{divisor > 0 ? divisor : 0});
    }
    case ND_OP_max:
        return run_kind<T>(queue, call, Extremum<T, true>());
    case ND_OP_min:
        return run_kind<T>(queue, call, Extremum<T, false>());
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

template <class T>
static nd_status run_argreduce(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->op == ND_OP_argmax)
        return run_kind<T>(queue, call, Position<T, true>());
    return run_kind<T>(queue, call, Position<T, false>());
}

} // namespace nd_cuda

nd_status nd__cuda_reduce(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    switch (call->operand[1].dtype) {
    case ND_BOOL: // 0 and 1 order as false and true
    case ND_U8:
        return run_reduce<uint8_t>(queue, call);
    case ND_I32:
        return run_reduce<int32_t>(queue, call);
    case ND_I64:
        return run_reduce<int64_t>(queue, call);
    case ND_F32:
        return run_reduce<float>(queue, call);
    case ND_F64:
        return run_reduce<double>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

nd_status nd__cuda_argreduce(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    switch (call->operand[1].dtype) {
    case ND_BOOL:
    case ND_U8:
        return run_argreduce<uint8_t>(queue, call);
    case ND_I32:
        return run_argreduce<int32_t>(queue, call);
    case ND_I64:
        return run_argreduce<int64_t>(queue, call);
    case ND_F32:
        return run_argreduce<float>(queue, call);
    case ND_F64:
        return run_argreduce<double>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
