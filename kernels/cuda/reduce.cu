// REDUCE and ARGREDUCE over any axes.
//
// A group of threads works on one result. When results are few and long, each is cut into parts
// whose states go to scratch memory and are joined by a second kernel, so that a full reduction
// occupies the whole device. Floats that lie one behind the other, from multiples of 16 bytes on, are
// read by packs; where results do, a thread works on as many as a pack holds. Sums of f32 are kept in
// f64. The order of joining depends on the shape
// and the device alone, so the same call gives the same bits.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/halves.cuh"
#include "kernels/cuda/walk.cuh"
#include <type_traits>

namespace nd_cuda {

// A Kind is what is computed: State of a share, start(), add(state, x, position), join(state,
// state), result(state). A source is how x is read (erased.cuh).

/// Sums of floats are kept in f64, those of integers in 64 bits, which wrap.
template <class T> using Wider = std::conditional_t<is_float<T>, double, uint64_t>;

template <class T> struct Sum {
    typedef Wider<T> State;

    ND_BOTH State start() const {
        return 0;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return state + (State)x;
    }
    ND_BOTH State join(State a, State b) const {
        return a + b;
    }
    ND_BOTH State result(State state) const {
        return state;
    }
};

template <class T> struct Product {
    typedef Wider<T> State;

    ND_BOTH State start() const {
        return 1;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return state * (State)x;
    }
    ND_BOTH State join(State a, State b) const {
        return a * b;
    }
    ND_BOTH State result(State state) const {
        return state;
    }
};

template <class T> struct Mean {
    typedef double State;
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
    ND_BOTH double result(State state) const {
        return state / count;
    }
};

/// How many elements, their mean, and the sum of squared differences from it.
struct Moments {
    double count, mean, squares;
};

/// Variance in one pass (Welford 1962; joined as by Chan, Golub and LeVeque 1979), or its root.
template <class T> struct Variance {
    typedef Moments State;
    double divisor;
    bool root;

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
    ND_BOTH double result(State state) const {
        double variance = state.squares / divisor;
        return root ? sqrt_of(variance) : variance;
    }
};

/// Sum of |x|^order, and its root of that order.
template <class T> struct Norm {
    typedef double State;
    double order;

    ND_BOTH State start() const {
        return 0;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        double value = fabs_of((double)x);
        return state + (order == 2 ? value * value : order == 1 ? value : power_of(value, order));
    }
    ND_BOTH State join(State a, State b) const {
        return a + b;
    }
    ND_BOTH double result(State state) const {
        return order == 2 ? sqrt_of(state) : order == 1 ? state : power_of(state, 1 / order);
    }
};

/// Largest element so far, and sum of exp(x - largest).
template <class T> struct Logarithm {
    T largest;
    double sum;
};

/// log(sum(exp(x))). An infinite or NaN maximum is the result.
template <class T> struct LogSumExp {
    typedef Logarithm<T> State;

    static ND_BOTH bool is_finite(T x) {
        return x - x == (T)0;
    }
    ND_BOTH State start() const {
        return State{-(T)INFINITY, 0};
    }
    ND_BOTH State join(State a, State b) const {
        bool first = a.largest > b.largest || is_nan(a.largest);
        State high = first ? a : b, low = first ? b : a;
        if (!is_finite(high.largest))
            return high;
        return State{high.largest, high.sum + low.sum * (double)exp_of(low.largest - high.largest)};
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return join(state, State{x, 1});
    }
    ND_BOTH double result(State state) const {
        double largest = (double)state.largest;
        return is_finite(state.largest) ? largest + log_of(state.sum) : largest;
    }
};

/// How many elements are not 0; whether there is one; whether all are.
template <class T> struct Count {
    typedef int64_t State;
    nd_op op;
    int64_t elements;

    ND_BOTH State start() const {
        return 0;
    }
    ND_BOTH State add(State state, T x, int64_t) const {
        return state + (x != (T)0);
    }
    ND_BOTH State join(State a, State b) const {
        return a + b;
    }
    ND_BOTH State result(State state) const {
        if (op == ND_OP_count_nonzero)
            return state;
        return op == ND_OP_any ? state > 0 : state == elements;
    }
};

/// The largest element, or the smallest; NaN wins over any number.
template <class T, bool largest> struct Extremum {
    typedef T State;

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

/// f16 and bf16, in f32.
struct HalfSource {
    typedef float Element;
    typedef uint16_t Stored;
    const uint16_t *x;
    HalfFormat format;

    ND_BOTH float at(int64_t index) const {
        return format.load(x[index]);
    }
    ND_BOTH float of(uint16_t stored) const {
        return format.load(stored);
    }
};

/// f32 and f64.
template <class T> struct FloatSource : Direct<T> {
    typedef T Stored;

    ND_BOTH T of(T stored) const {
        return stored;
    }
};

/// Elements that a source reads at once; 1 for those that are read one by one.
template <class Source, class = void> inline constexpr int pack_of = 1;
template <class Source>
inline constexpr int
    pack_of<Source, std::void_t<typename Source::Stored>> = 16 /
                                                            (int)sizeof(typename Source::Stored);

/// First kernel: group = part * results + result.
template <class Source, class Kind, bool packed> struct ReduceParts {
    typedef typename Kind::State State;
    Kind kind;
    Source x;
    void *out;
    nd_dtype out_dtype;
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
        if constexpr (packed)
            return accumulate_packs(x.x + offset[1], part * part_length, end, lane, lanes);
        State state = kind.start();
        ND_UNROLL_4
        for (int64_t position = part * part_length + lane; position < end; position += lanes)
            state = kind.add(state, x.at(offset[1] + reduced.offset(position)), position);
        return state;
    }
    /// A part begins at a whole pack; the last of its elements may be fewer.
    template <class Stored>
    ND_BOTH State accumulate_packs(const Stored *row, int64_t begin, int64_t end, int lane,
                                   int lanes) const {
        constexpr int pack = pack_of<Source>;
        State state = kind.start();
        ND_UNROLL_4
        for (int64_t position = begin + lane * pack; position + pack <= end;
             position += lanes * pack) {
            Pack<Stored, pack> moved = *(const Pack<Stored, pack> *)(row + position);
            ND_UNROLL
            for (int e = 0; e < pack; e++)
                state = kind.add(state, x.of(moved.element[e]), position + e);
        }
        for (int64_t position = begin + (end - begin) / pack * pack + lane; position < end;
             position += lanes)
            state = kind.add(state, x.of(row[position]), position);
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
            store_as(out, out_dtype, offset[0], kind.result(state));
        }
    }
};

/// The states of as many results as a pack has elements.
template <class Kind, int pack> struct PackState { typename Kind::State state[pack]; };

/// First kernel where results lie one behind the other, and so do what they are made of: group = part *
/// packs of results + pack.
template <class Source, class Kind> struct ReduceColumns {
    static constexpr int most = sizeof(typename Kind::State) > 16 ? 2 : 4;
    static constexpr int pack = pack_of<Source> > most ? most : pack_of<Source>;
    typedef PackState<Kind, pack> State;
    typedef typename Source::Stored Stored;
    Kind kind;
    Source x;
    void *out;
    nd_dtype out_dtype;
    typename Kind::State *partial; ///< [parts][results], or NULL when there is one part
    Walk<2> kept;                  ///< out, x: by packs
    Walk<1> reduced;
    int64_t part_length;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        int64_t part = partial ? group / kept.count : 0;
        int64_t offset[2];
        kept.offsets(group - part * kept.count, offset);
        int64_t end = (part + 1) * part_length;
        if (end > reduced.count)
            end = reduced.count;
        State result;
        ND_UNROLL
        for (int e = 0; e < pack; e++)
            result.state[e] = kind.start();
        ND_UNROLL_4
        for (int64_t position = part * part_length + lane; position < end; position += lanes) {
            Pack<Stored, pack> moved =
                *(const Pack<Stored, pack> *)(x.x + offset[1] + reduced.offset(position));
            ND_UNROLL
            for (int e = 0; e < pack; e++)
                result.state[e] = kind.add(result.state[e], x.of(moved.element[e]), position);
        }
        return result;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        State result;
        ND_UNROLL
        for (int e = 0; e < pack; e++)
            result.state[e] = kind.join(a.state[e], b.state[e]);
        return result;
    }
    ND_BOTH void finish(int64_t group, int lane, int, const State &all) const {
        if (lane != 0)
            return;
        int64_t offset[2];
        if (!partial)
            kept.offsets(group, offset);
        ND_UNROLL
        for (int e = 0; e < pack; e++) {
            if (partial)
                partial[group * pack + e] = all.state[e];
            else
                store_as(out, out_dtype, offset[0] + e, kind.result(all.state[e]));
        }
    }
};

/// Second kernel: joins the parts of each result.
template <class Kind> struct ReduceJoin {
    typedef typename Kind::State State;
    Kind kind;
    const State *partial;
    void *out;
    nd_dtype out_dtype;
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
        store_as(out, out_dtype, offset[0], kind.result(state));
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
    int64_t parts(const nd_cuda_queue *queue, int64_t groups, int lanes) const {
        int64_t wanted = divide_up((int64_t)queue->multiprocessors * 2048, groups * lanes);
        int64_t possible = reduced.count / ((int64_t)lanes * 16);
        int64_t parts = wanted < possible ? wanted : possible;
        return parts > 1 ? parts : 1;
    }

    /// Rows that can be read by packs of `pack` elements.
    bool has_packed_rows(const void *x, int pack) const {
        if ((uintptr_t)x % 16 != 0 || !reduced.contiguous() || reduced.count < 2 * pack)
            return false;
        for (int axis = 0; axis < kept.ndim; axis++)
            if (kept.shape[axis] != 1 && kept.strides[1][axis] % pack != 0)
                return false;
        return true;
    }

    /// Results that can be made by packs, in packs: one behind the other, as are the elements.
    bool has_packed_columns(const void *x, int pack, int64_t bytes, Walk<2> *ret_packs) const {
        int last = kept.ndim - 1;
        if ((uintptr_t)x % (uintptr_t)(pack * bytes) != 0 || last < 0 ||
            kept.shape[last] % pack != 0 || kept.strides[0][last] != 1 ||
            kept.strides[1][last] != 1)
            return false;
        for (int axis = 0; axis < reduced.ndim; axis++)
            if (reduced.strides[0][axis] % pack != 0)
                return false;
        for (int axis = 0; axis <= last; axis++) {
            int64_t stride[2] = {kept.strides[0][axis], kept.strides[1][axis]};
            if (axis < last && stride[1] % pack != 0)
                return false;
            if (axis == last)
                stride[0] = stride[1] = pack;
            ret_packs->add_axis(axis < last ? kept.shape[axis] : kept.shape[axis] / pack, stride);
        }
        return true;
    }
};

/// Runs the first kernel, and the second where there are parts. `groups` of the first kernel make all
/// results once.
template <class First>
static nd_status run_parts(const nd_cuda_queue *queue, const ReduceAxes &axes, GroupShape shape,
                           int64_t groups, int64_t whole, First &first) {
    typedef decltype(first.kind) Kind;
    int64_t parts = axes.parts(queue, groups, shape.lanes);
    first.partial = nullptr;
    first.part_length = axes.reduced.count;
    if (parts == 1)
        return run_groups(queue, groups, shape, first);

    first.part_length = divide_up(divide_up(axes.reduced.count, parts), whole) * whole;
    parts = divide_up(axes.reduced.count, first.part_length);
    Scratch scratch(queue, parts * axes.kept.count * (int64_t)sizeof(*first.partial));
    if (scratch.status != ND_OK)
        return scratch.status;
    first.partial = (decltype(first.partial))scratch.data;
    nd_status status = run_groups(queue, parts * groups, shape, first);
    if (status != ND_OK)
        return status;
    ReduceJoin<Kind> second{first.kind,      first.partial, first.out,
                            first.out_dtype, axes.kept,     parts};
    return run_groups(queue, axes.kept.count, GroupShape{lanes_for(parts), true}, second);
}

template <class Source, class Kind>
static nd_status run_kind(const nd_cuda_queue *queue, const nd_kernel_call *call, const Source &x,
                          const Kind &kind) {
    constexpr int pack = pack_of<Source>;
    ReduceAxes axes(call);
    if (axes.kept.count == 0)
        return ND_OK;
    GroupShape shape = axes.shape();
    void *out = call->operand[0].data;
    nd_dtype dtype = call->operand[0].dtype;
    if constexpr (pack > 1) {
        typedef ReduceColumns<Source, Kind> Columns;
        Walk<2> packs;
        if (shape.lanes_adjacent && axes.has_packed_rows(call->operand[1].data, pack)) {
            ReduceParts<Source, Kind, true> first{kind,    x,         out,          dtype,
                                                  nullptr, axes.kept, axes.reduced, 0};
            return run_parts(queue, axes, shape, axes.kept.count, pack, first);
        }
        if (!shape.lanes_adjacent && axes.reduced.count > 0 &&
            axes.has_packed_columns(call->operand[1].data, Columns::pack,
                                    sizeof(typename Source::Stored), &packs)) {
            Columns first{kind, x, out, dtype, nullptr, packs, axes.reduced, 0};
            return run_parts(queue, axes, shape, packs.count, 1, first);
        }
    }
    ReduceParts<Source, Kind, false> first{kind,    x,         out,          dtype,
                                           nullptr, axes.kept, axes.reduced, 0};
    return run_parts(queue, axes, shape, axes.kept.count, 1, first);
}

/// What is real: means and the like. x.at() gives floats.
template <class Source>
static nd_status run_real(const nd_cuda_queue *queue, const nd_kernel_call *call, const Source &x) {
    typedef typename Source::Element T;
    double elements = (double)call->attrs.i[0], divisor = elements - call->attrs.f[0];
    switch (call->op) {
    case ND_OP_mean:
        return run_kind(queue, call, x, Mean<T>{elements});
    case ND_OP_var:
    case ND_OP_std:
        return run_kind(queue, call, x,
                        Variance<T>{divisor > 0 ? divisor : 0, call->op == ND_OP_std});
    case ND_OP_norm:
        return run_kind(queue, call, x, Norm<T>{call->attrs.f[0]});
    case ND_OP_logsumexp:
        return run_kind(queue, call, x, LogSumExp<T>());
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

/// What every dtype has. x.at() gives a type that holds all of its numbers.
template <class Source>
static nd_status run_any(const nd_cuda_queue *queue, const nd_kernel_call *call, const Source &x) {
    typedef typename Source::Element T;
    switch (call->op) {
    case ND_OP_sum:
        return run_kind(queue, call, x, Sum<T>());
    case ND_OP_prod:
        return run_kind(queue, call, x, Product<T>());
    case ND_OP_max:
        return run_kind(queue, call, x, Extremum<T, true>());
    case ND_OP_min:
        return run_kind(queue, call, x, Extremum<T, false>());
    case ND_OP_argmax:
        return run_kind(queue, call, x, Position<T, true>());
    case ND_OP_argmin:
        return run_kind(queue, call, x, Position<T, false>());
    case ND_OP_any:
    case ND_OP_all:
    case ND_OP_count_nonzero:
        return run_kind(queue, call, x, Count<T>{call->op, call->attrs.i[0]});
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

static bool is_real(nd_op op) {
    return op == ND_OP_mean || op == ND_OP_var || op == ND_OP_std || op == ND_OP_norm ||
           op == ND_OP_logsumexp;
}

} // namespace nd_cuda

nd_status nd__cuda_reduce(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const nd_operand &x = call->operand[1];
    FloatSource<float> f32{{(const float *)x.data}};
    FloatSource<double> f64{{(const double *)x.data}};
    HalfSource half{(const uint16_t *)x.data, HalfFormat(x.dtype)};
    bool real = is_real(call->op);
    switch (x.dtype) {
    case ND_F32:
        return real ? run_real(queue, call, f32) : run_any(queue, call, f32);
    case ND_F64:
        return real ? run_real(queue, call, f64) : run_any(queue, call, f64);
    case ND_F16:
    case ND_BF16:
        return real ? run_real(queue, call, half) : run_any(queue, call, half);
    case ND_U64:
        if (!real)
            return run_any(queue, call, Direct<uint64_t>{(const uint64_t *)x.data});
        return run_real(queue, call, Erased<double>{x.data, x.dtype});
    default:
        if (!real)
            return run_any(queue, call, Erased<int64_t>{x.data, x.dtype});
        return run_real(queue, call, Erased<double>{x.data, x.dtype});
    }
}

nd_status nd__cuda_argreduce(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return nd__cuda_reduce(queue, call);
}
