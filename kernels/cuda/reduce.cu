// REDUCE and ARGREDUCE over any axes.
//
// A group of threads works on one result: of long rows of which there are many a warp or a part of one,
// so that each thread asks for many packs before it looks at the first. When results are few and long,
// each is cut into parts whose states go to scratch memory and are joined by a second kernel, so that a
// full reduction occupies the whole device. Floats that lie one behind the other, from multiples of 16
// bytes on, are read by packs, also where they do so in runs of whole packs; where results do, a thread
// works on as many as a pack holds. Sums of f32 are kept in f64. The order of joining depends on the
// shape and the device alone, so the same call gives the same bits.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/halves.cuh"
#include "kernels/cuda/reduce_kinds.cuh"
#include "kernels/cuda/walk.cuh"
#include <type_traits>

namespace nd_cuda {

// What is computed is a Kind (reduce_kinds.cuh); a source is how x is read (erased.cuh).

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

/// Units of a part are counted in 31 bits.
constexpr int64_t longest_part = (int64_t)1 << 30;

/// Elements that a source reads at once; 1 for those that are read one by one.
template <class Source, class = void> inline constexpr int pack_of = 1;
template <class Source>
inline constexpr int
    pack_of<Source, std::void_t<typename Source::Stored>> = 16 /
                                                            (int)sizeof(typename Source::Stored);

/// Where the units of a row lie: a fixed distance apart, or in runs of a fixed length.
struct Units {
    int64_t count;
    bool one_run;
    int64_t stride, run_stride;
    Divider run; ///< its length

    /// Of a walk of at most two axes, of fewer than 2^31 elements where there are two. The inner axis has
    /// units of `unit` elements.
    Units(const Walk<1> &walk, int64_t unit)
        : count(walk.count), one_run(walk.ndim < 2), stride(1), run_stride(0), run() {
        if (walk.ndim == 0)
            return;
        const int last = walk.ndim - 1;
        const int64_t size = walk.shape[last] / unit;
        stride = walk.strides[0][last] * unit;
        count = size;
        if (!one_run) {
            count = walk.shape[0] * size;
            run_stride = walk.strides[0][0];
            run.set((uint32_t)size);
        }
    }
    /// Where there are several runs.
    ND_BOTH int64_t offset(int64_t index) const {
        uint32_t number = run.divide((uint32_t)index);
        return number * run_stride + ((uint32_t)index - number * run.divisor) * stride;
    }
};

/// Blocks of a multiprocessor, so that each thread has the registers for what it asks for.
template <class Kind> inline constexpr int blocks_of = Kind::flight > 4 ? 4 : 3;

/// What a group of a first kernel works on: units of a part, `begin` and `length` of them, and where the
/// elements of its result begin.
struct PartPlace {
    int64_t begin, offset;
    int length;

    template <class First> ND_BOTH PartPlace(const First &first, int64_t group) {
        int64_t part = first.partial ? group / first.kept.count : 0;
        int64_t offsets[2];
        first.kept.offsets(group - part * first.kept.count, offsets);
        offset = offsets[1];
        begin = part * first.part_length;
        int64_t left = first.units.count - begin;
        length = (int)(left < first.part_length ? left : first.part_length);
    }
};
/// A first kernel's result, or its part of it.
template <class First>
ND_BOTH void give(const First &first, int64_t group, const typename First::State &state) {
    if (first.partial) {
        first.partial[group] = state;
    } else {
        int64_t offset[2];
        first.kept.offsets(group, offset);
        store_as(first.out, first.out_dtype, offset[0], first.kind.result(state));
    }
}

/// First kernel: group = part * results + result.
template <class Source, class Kind> struct ReduceParts {
    typedef typename Kind::State State;
    static constexpr int flight = 4, least_blocks = 3;
    Kind kind;
    Source x;
    void *out;
    nd_dtype out_dtype;
    State *partial; ///< [parts][results], or NULL when there is one part
    Walk<2> kept;   ///< out, x
    Walk<1> units;  ///< elements of a result
    int64_t part_length;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        PartPlace at(*this, group);
        State state = kind.start();
        for (int first = lane; first < at.length; first += flight * lanes) {
            typename Source::Element moved[flight];
            ND_UNROLL
            for (int i = 0; i < flight; i++)
                if (first + i * lanes < at.length)
                    moved[i] = x.at(at.offset + units.offset(at.begin + first + i * lanes));
            ND_UNROLL
            for (int i = 0; i < flight; i++)
                if (first + i * lanes < at.length)
                    state = kind.add(state, moved[i], at.begin + first + i * lanes);
        }
        return state;
    }
    ND_BOTH State combine(State a, State b) const {
        return kind.join(a, b);
    }
    ND_BOTH void finish(int64_t group, int lane, int, State state) const {
        if (lane == 0)
            give(*this, group, state);
    }
};

/// First kernel where the elements of each result can be read by packs.
template <class Source, class Kind> struct ReduceRows {
    typedef typename Kind::State State;
    typedef typename Source::Stored Stored;
    static constexpr int pack = pack_of<Source>;
    // 16-bit elements are twice as many in the same bytes, and so is what is done with them.
    static constexpr int flight = pack > 4 ? Kind::flight / 2 : Kind::flight;
    static constexpr int least_blocks = blocks_of<Kind>;
    typedef Pack<Stored, pack> Moved;
    Kind kind;
    Source x;
    void *out;
    nd_dtype out_dtype;
    State *partial;
    Walk<2> kept;
    Units units; ///< packs
    int rest;    ///< elements behind the last pack, which the last part has
    int64_t part_length;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        PartPlace at(*this, group);
        const Stored *row = x.x + at.offset;
        State state = kind.start();
        for (int first = lane; first < at.length; first += flight * lanes) {
            Moved moved[flight];
            load(moved, row, at, first, lanes);
            ND_UNROLL
            for (int i = 0; i < flight; i++) {
                if (first + i * lanes >= at.length)
                    break;
                int64_t position = (at.begin + first + i * lanes) * pack;
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    state = kind.add(state, x.of(moved[i].element[e]), position + e);
            }
        }
        if (at.begin + at.length == units.count && lane < rest) {
            int64_t position = units.count * pack + lane;
            state = kind.add(state, x.of(row[position]), position);
        }
        return state;
    }
    /// All packs of a turn are asked for before the first is looked at.
    ND_BOTH void load(Moved *ret_moved, const Stored *row, const PartPlace &at, int first,
                      int lanes) const {
        if (units.one_run) {
            const Moved *from = (const Moved *)row + at.begin + first;
            ND_UNROLL
            for (int i = 0; i < flight; i++)
                if (first + i * lanes < at.length)
                    ret_moved[i] = from[i * lanes];
        } else {
            ND_UNROLL
            for (int i = 0; i < flight; i++)
                if (first + i * lanes < at.length)
                    ret_moved[i] =
                        *(const Moved *)(row + units.offset(at.begin + first + i * lanes));
        }
    }
    ND_BOTH State combine(State a, State b) const {
        return kind.join(a, b);
    }
    ND_BOTH void finish(int64_t group, int lane, int, State state) const {
        if (lane == 0)
            give(*this, group, state);
    }
};

/// The states of as many results as a pack has elements.
template <class Kind, int pack> struct PackState { typename Kind::State state[pack]; };

/// First kernel where results lie one behind the other, and so do what they are made of: group = part *
/// packs of results + pack.
template <class Source, class Kind> struct ReduceColumns {
    static constexpr int most = sizeof(typename Kind::State) > 16 ? 2 : 4;
    static constexpr int pack = pack_of<Source> > most ? most : pack_of<Source>;
    static constexpr int flight = Kind::flight, least_blocks = 3;
    typedef PackState<Kind, pack> State;
    typedef typename Source::Stored Stored;
    typedef Pack<Stored, pack> Moved;
    Kind kind;
    Source x;
    void *out;
    nd_dtype out_dtype;
    typename Kind::State *partial; ///< [parts][results], or NULL when there is one part
    Walk<2> kept;                  ///< out, x: by packs
    Units units;                   ///< rows
    int64_t part_length;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        PartPlace at(*this, group);
        State result;
        ND_UNROLL
        for (int e = 0; e < pack; e++)
            result.state[e] = kind.start();
        for (int first = lane; first < at.length; first += flight * lanes) {
            Moved moved[flight];
            load(moved, x.x + at.offset, at, first, lanes);
            ND_UNROLL
            for (int i = 0; i < flight; i++) {
                if (first + i * lanes >= at.length)
                    break;
                ND_UNROLL
                for (int e = 0; e < pack; e++)
                    result.state[e] = kind.add(result.state[e], x.of(moved[i].element[e]),
                                               at.begin + first + i * lanes);
            }
        }
        return result;
    }
    /// All rows of a turn are asked for before the first is looked at.
    ND_BOTH void load(Moved *ret_moved, const Stored *column, const PartPlace &at, int first,
                      int lanes) const {
        if (units.one_run) {
            const Stored *from = column + (at.begin + first) * units.stride;
            ND_UNROLL
            for (int i = 0; i < flight; i++)
                if (first + i * lanes < at.length)
                    ret_moved[i] = *(const Moved *)(from + i * lanes * units.stride);
        } else {
            ND_UNROLL
            for (int i = 0; i < flight; i++)
                if (first + i * lanes < at.length)
                    ret_moved[i] =
                        *(const Moved *)(column + units.offset(at.begin + first + i * lanes));
        }
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
    static constexpr int flight = 4;
    Kind kind;
    const State *partial;
    void *out;
    nd_dtype out_dtype;
    Walk<2> kept;
    int64_t parts;

    ND_BOTH State accumulate(int64_t group, int lane, int lanes) const {
        State state = kind.start();
        for (int64_t part = lane; part < parts; part += flight * lanes) {
            State moved[flight];
            ND_UNROLL
            for (int i = 0; i < flight; i++)
                if (part + i * lanes < parts)
                    moved[i] = partial[(part + i * lanes) * kept.count + group];
            ND_UNROLL
            for (int i = 0; i < flight; i++)
                if (part + i * lanes < parts)
                    state = kind.join(state, moved[i]);
        }
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
    /// Where results are many, neighbouring threads read neighbouring ones.
    GroupShape shape() const {
        int lanes = lanes_for(parts);
        if (kept.count < 16)
            return GroupShape{lanes, true};
        return GroupShape{lanes < 16 ? lanes : 16, false};
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
                reduced.join_axis(call->shape[axis], &stride[1]);
            else
                kept.join_axis(call->shape[axis], stride);
        }
    }

    /// Neighbouring threads should read neighbouring elements: along the kept axes when those are
    /// the closer ones, else along the reduced axes.
    GroupShape shape(const nd_cuda_queue *queue) const {
        int64_t kept_stride = kept.count > 1 ? kept.strides[1][kept.ndim - 1] : INT64_MAX;
        int64_t reduced_stride = reduced.count > 1 ? reduced.strides[0][reduced.ndim - 1] : 0;
        int lanes = lanes_for(reduced.count);
        if (reduced_stride > kept_stride)
            return GroupShape{lanes < 8 ? lanes : 8, false};
        while (lanes > warp_threads && kept.count * lanes >= 2 * threads_of(queue))
            lanes /= 2;
        return GroupShape{lanes, true};
    }
    /// Lanes that read rows by packs: one turn of `flight` of them each, in a warp, and more where the
    /// rows are too few to fill the device.
    int lanes_of_packs(const nd_cuda_queue *queue, int64_t packs, int flight) const {
        int lanes = 8;
        while (lanes < block_threads && (int64_t)lanes * flight < packs &&
               (lanes < warp_threads || kept.count * lanes < threads_of(queue)))
            lanes *= 2;
        return lanes;
    }
    /// Threads that occupy the device with the registers that they need.
    static int64_t threads_of(const nd_cuda_queue *queue) {
        return (int64_t)queue->multiprocessors * 4 * block_threads;
    }

    /// Rows that can be read by packs of `pack` elements: those of one run with a rest, of several whole.
    bool has_packed_rows(const void *x, int pack) const {
        const int last = reduced.ndim - 1;
        if ((uintptr_t)x % 16 != 0 || reduced.count < 2 * pack || reduced.strides[0][last] != 1 ||
            reduced.shape[last] < pack || !kept_step_by(pack))
            return false;
        return last == 0 || (last == 1 && reduced.narrow && reduced.shape[1] % pack == 0 &&
                             reduced.strides[0][0] % pack == 0);
    }
    bool kept_step_by(int pack) const {
        for (int axis = 0; axis < kept.ndim; axis++)
            if (kept.strides[1][axis] % pack != 0)
                return false;
        return true;
    }

    /// Results that can be made by packs, in packs: one behind the other, as are the elements.
    bool has_packed_columns(const void *x, int pack, int64_t bytes, Walk<2> *ret_packs) const {
        int last = kept.ndim - 1;
        if ((uintptr_t)x % (uintptr_t)(pack * bytes) != 0 || last < 0 || reduced.count == 0 ||
            reduced.ndim > 2 || (reduced.ndim == 2 && !reduced.narrow) ||
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

/// Parts of each result: enough to fill the device twice, each at least `least` units per lane.
template <class First>
static int64_t parts_of(const nd_cuda_queue *queue, const First &first, int64_t groups, int lanes,
                        int least) {
    int64_t threads = (int64_t)queue->multiprocessors * First::least_blocks * block_threads;
    int64_t wanted = 2 * threads / (groups * lanes);
    int64_t possible = first.units.count / ((int64_t)lanes * least);
    int64_t parts = wanted < possible ? wanted : possible;
    int64_t needed = divide_up(first.units.count, longest_part);
    return parts > needed ? parts : needed > 1 ? needed : 1;
}

/// Runs the first kernel, and the second where there are parts. `groups` of the first kernel make all
/// results once.
template <class First>
static nd_status run_parts(const nd_cuda_queue *queue, const Walk<2> &results, GroupShape shape,
                           int64_t groups, int least, First &first) {
    typedef decltype(first.kind) Kind;
    int64_t parts = parts_of(queue, first, groups, shape.lanes, least);
    first.partial = nullptr;
    first.part_length = first.units.count;
    if (parts == 1)
        return run_groups(queue, groups, shape, first);

    first.part_length = divide_up(first.units.count, parts);
    parts = divide_up(first.units.count, first.part_length);
    Scratch scratch(queue, parts * results.count * (int64_t)sizeof(*first.partial));
    if (scratch.status != ND_OK)
        return scratch.status;
    first.partial = (decltype(first.partial))scratch.data;
    nd_status status = run_groups(queue, parts * groups, shape, first);
    if (status != ND_OK)
        return status;
    ReduceJoin<Kind> second{first.kind, first.partial, first.out, first.out_dtype, results, parts};
    return run_groups(queue, results.count, second.shape(), second);
}

template <class Source, class Kind>
static nd_status run_kind(const nd_cuda_queue *queue, const nd_kernel_call *call, const Source &x,
                          const Kind &kind) {
    constexpr int pack = pack_of<Source>;
    ReduceAxes axes(call);
    if (axes.kept.count == 0)
        return ND_OK;
    GroupShape shape = axes.shape(queue);
    void *out = call->operand[0].data;
    nd_dtype dtype = call->operand[0].dtype;
    if constexpr (pack > 1) {
        typedef ReduceRows<Source, Kind> Rows;
        typedef ReduceColumns<Source, Kind> Columns;
        Walk<2> columns;
        if (shape.lanes_adjacent && axes.has_packed_rows(call->operand[1].data, pack)) {
            Units packs(axes.reduced, pack);
            int rest = (int)(axes.reduced.count - packs.count * pack);
            Rows first{kind, x, out, dtype, nullptr, axes.kept, packs, rest, 0};
            shape.lanes = axes.lanes_of_packs(queue, packs.count, Rows::flight);
            return run_parts(queue, axes.kept, shape, axes.kept.count, 4, first);
        }
        if (!shape.lanes_adjacent &&
            axes.has_packed_columns(call->operand[1].data, Columns::pack,
                                    sizeof(typename Source::Stored), &columns)) {
            Columns first{kind, x, out, dtype, nullptr, columns, Units(axes.reduced, 1), 0};
            return run_parts(queue, axes.kept, shape, columns.count, 8, first);
        }
    }
    ReduceParts<Source, Kind> first{kind, x, out, dtype, nullptr, axes.kept, axes.reduced, 0};
    return run_parts(queue, axes.kept, shape, axes.kept.count, 16, first);
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
