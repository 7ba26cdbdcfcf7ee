// LOSS: cross entropy, the mean over rows of logits, and its gradient.
//
// A row that fits in registers is kept there and read once (exponentials.cuh), also by the gradient,
// which is written where its logits were read. A longer one is read by a block, by packs from its first
// multiple of 16 bytes on, once for the loss and twice for its gradient: few rows are under way at a time,
// so that the second reading finds them in the cache. The losses of rows are added up in double. Logits of
// 16 bits are computed in f32, and so is the mean; their gradient is rounded once.
#include "kernels/cuda/exponentials.cuh"
#include <type_traits>

namespace nd_cuda {

/// The rows of one call.
template <class Format> struct LogitRows {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    Format format;
    const Stored *logits;
    const int64_t *targets;
    int64_t rows, classes;

    LogitRows(const Format &of, const nd_kernel_call *call, int first)
        : format(of), logits((const Stored *)call->operand[first].data),
          targets((const int64_t *)call->operand[first + 1].data), rows(call->attrs.i[0]),
          classes(call->attrs.i[1]) {
    }
    ND_BOTH Number at(int64_t row, int64_t position) const {
        return format.load(logits[row * classes + position]);
    }
    ND_BOTH bool has_target(int64_t row) const {
        return targets[row] >= 0 && targets[row] < classes;
    }
    /// A lane's share of a row that is not kept.
    ND_BOTH Exponentials<Number> share(int64_t row, int lane, int lanes) const {
        Exponentials<Number> state = Exponentials<Number>::none();
        for (int64_t position = lane; position < classes; position += lanes)
            state.add(at(row, position));
        return state;
    }
};

/// A row that a block reads by packs: the elements before the first whole pack and those behind the last
/// are read one by one.
template <class Format, int threads_> struct LongRow {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    typedef Exponentials<Number> State;
    static constexpr int lanes = threads_, threads = threads_, least_blocks = 1;
    static constexpr int pack = 16 / (int)sizeof(Stored);
    static constexpr int ahead =
        sizeof(Number) > 4 ? 2 : 16 / pack; ///< packs that are read together
    static constexpr int rounds = 1;
    struct Kept {
        int64_t row;
    };
    LogitRows<Format> of;

    explicit LongRow(const LogitRows<Format> &rows) : of(rows) {
    }
    ND_BOTH void load(Kept &kept, int64_t row, int) const {
        kept.row = row;
    }
    template <int round> ND_BOTH State combine(const State &a, const State &b) const {
        return State::join(a, b);
    }
    /// What stands before the first whole pack of a row that begins there.
    ND_BOTH int head(const Stored *row) const {
        int beyond = (int)((uintptr_t)row % 16) / (int)sizeof(Stored),
            skipped = (pack - beyond) % pack;
        return skipped < of.classes ? skipped : (int)of.classes;
    }
    /// packs(position, count) for so many packs of a lane, `lanes` apart, `ahead` of them but for the last;
    /// one(position) for each other element.
    template <class Packs, class One>
    ND_BOTH void each(const Stored *row, int lane, const Packs &packs, const One &one) const {
        const int length = (int)of.classes, first = head(row);
        constexpr int step = lanes * pack;
        if (lane < first)
            one(lane);
        int position = first + lane * pack;
        for (; position + (ahead - 1) * step + pack <= length; position += ahead * step)
            packs(position, std::integral_constant<int, ahead>());
        for (; position + pack <= length; position += step)
            packs(position, std::integral_constant<int, 1>());
        for (int e = 0; e < pack && position + e < length; e++)
            one(position + e);
    }
    template <int count> ND_BOTH void read(const Stored *row, int position, Number *ret_x) const {
        ND_UNROLL
        for (int k = 0; k < count; k++) {
            Pack<Stored, pack> moved =
                *(const Pack<Stored, pack> *)(row + position + k * lanes * pack);
            ND_UNROLL
            for (int e = 0; e < pack; e++)
                ret_x[k * pack + e] = of.format.load(moved.element[e]);
        }
    }
    template <int round> ND_BOTH State share(const Kept &kept, int lane, const State &) const {
        const Stored *row = of.logits + kept.row * of.classes;
        State state = State::none();
        each(
            row, lane,
            [&](int position, auto count) {
                Number x[decltype(count)::value * pack];
                read<decltype(count)::value>(row, position, x);
                state.template add_all<decltype(count)::value * pack>(x);
            },
            [&](int position) { state.add(of.format.load(row[position])); });
        return state;
    }
};

/// Positions are int.
constexpr int long_row_threads = 1024;
constexpr int64_t shortest_long_row = 8192, longest_row = (int64_t)1 << 30;

template <class Format> struct LongRowLoss : LongRow<Format, long_row_threads / 2> {
    typedef LongRow<Format, long_row_threads / 2> Base;
    static constexpr int least_blocks = 2;
    double *loss;
    int32_t *out_of_range;

    LongRowLoss(const LogitRows<Format> &rows, double *losses, int32_t *flag)
        : Base(rows), loss(losses), out_of_range(flag) {
    }
    ND_BOTH void finish(const typename Base::Kept &, int64_t row, int lane,
                        const typename Base::State &state) const {
        if (lane != 0)
            return;
        const auto &of = this->of;
        loss[row] = 0;
        if (!of.has_target(row))
            *out_of_range = 1;
        else
            loss[row] = (double)(log_of(state.sum) + (state.largest - of.at(row, of.targets[row])));
    }
};

template <class Format, class Shape> struct HeldRowLoss : ExponentialRow<Format, Shape> {
    typedef ExponentialRow<Format, Shape> Base;
    using typename Base::Kept, typename Base::Number, typename Base::State, typename Base::Row;
    LogitRows<Format> of;
    double *loss;
    int classes;
    int32_t *out_of_range;

    HeldRowLoss(const LogitRows<Format> &rows, double *losses, int32_t *flag)
        : of(rows), loss(losses), classes((int)rows.classes), out_of_range(flag) {
    }
    ND_BOTH void load(Kept &kept, int64_t row, int lane) const {
        Row::load(of.format, of.logits + row * classes, classes, lane, -(Number)INFINITY, kept.x);
    }
    template <int round> ND_BOTH State share(Kept &kept, int, const State &before) const {
        return Base::template share_of<round, false>(kept, before);
    }
    /// Whoever keeps the target's element, less the largest, writes.
    ND_BOTH void finish(const Kept &kept, int64_t row, int lane, State sum) const {
        int64_t target = of.targets[row];
        bool inside = of.has_target(row);
        if (lane == 0 && !inside) {
            loss[row] = 0;
            *out_of_range = 1;
        }
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++) {
            int position = (i / Row::pack * Shape::lanes + lane) * Row::pack + i % Row::pack;
            if (inside && position == target)
                loss[row] = (double)(log_of(sum) - kept.x[i]);
        }
    }
};

/// The loss of each row, into scratch memory.
template <class Format> struct RowLoss {
    typedef Exponentials<typename Format::Number> State;
    LogitRows<Format> of;
    double *loss;
    int32_t *out_of_range;

    ND_BOTH State accumulate(int64_t row, int lane, int lanes) const {
        return of.share(row, lane, lanes);
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State::join(a, b);
    }
    ND_BOTH void finish(int64_t row, int lane, int, const State &state) const {
        if (lane != 0)
            return;
        loss[row] = 0;
        if (!of.has_target(row))
            *out_of_range = 1;
        else
            loss[row] = (double)(log_of(state.sum) + (state.largest - of.at(row, of.targets[row])));
    }
};

/// Mean of the rows' losses.
template <class T> struct MeanLoss {
    typedef double State;
    const double *loss;
    T *out;
    int64_t rows;

    ND_BOTH State accumulate(int64_t, int lane, int lanes) const {
        State sum = 0;
        for (int64_t row = lane; row < rows; row += lanes)
            sum += loss[row];
        return sum;
    }
    ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t, int lane, int, State sum) const {
        if (lane == 0)
            *out = (T)(sum / (double)rows);
    }
};

/// (softmax - 1 at the target) grad / rows, of a row that is kept.
template <class Format, class Shape> struct HeldRowLossGrad : ExponentialRow<Format, Shape> {
    typedef ExponentialRow<Format, Shape> Base;
    typedef typename Format::Stored Stored;
    using typename Base::Kept, typename Base::Number, typename Base::State, typename Base::Row;
    LogitRows<Format> of;
    const Number *grad;
    Stored *out;
    int classes;
    Number share_of_row;

    HeldRowLossGrad(const LogitRows<Format> &rows, const nd_kernel_call *call)
        : of(rows), grad((const Number *)call->operand[1].data),
          out((Stored *)call->operand[0].data), classes((int)rows.classes),
          share_of_row((Number)(1.0 / (double)rows.rows)) {
    }
    ND_BOTH void load(Kept &kept, int64_t row, int lane) const {
        Row::load(of.format, of.logits + row * classes, classes, lane, -(Number)INFINITY, kept.x);
    }
    template <int round> ND_BOTH State share(Kept &kept, int, const State &before) const {
        return Base::template share_of<round, true>(kept, before);
    }
    ND_BOTH void finish(const Kept &kept, int64_t row, int lane, State sum) const {
        int64_t target = of.targets[row];
        Number scale = (Number)1 / sum, factor = *grad * share_of_row;
        Row::store(of.format, out + row * classes, classes, lane, [&](int i, int position) {
            Number chosen = position == target ? (Number)1 : (Number)0;
            return (kept.x[i] * scale - chosen) * factor;
        });
    }
};

/// The same of a row that a block reads twice; `out` lies as the logits to multiples of 16 bytes.
template <class Format> struct LongRowLossGrad : LongRow<Format, long_row_threads> {
    typedef LongRow<Format, long_row_threads> Base;
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    const Number *grad;
    Stored *out;
    Number share_of_row;

    LongRowLossGrad(const LogitRows<Format> &rows, const nd_kernel_call *call)
        : Base(rows), grad((const Number *)call->operand[1].data),
          out((Stored *)call->operand[0].data), share_of_row((Number)(1.0 / (double)rows.rows)) {
    }
    ND_BOTH void finish(const typename Base::Kept &, int64_t row, int lane,
                        const typename Base::State &state) const {
        const LogitRows<Format> &of = this->of;
        const Stored *from = of.logits + row * of.classes;
        Stored *to = out + row * of.classes;
        const int target = of.has_target(row) ? (int)of.targets[row] : -1;
        const Number scale = (Number)1 / state.sum, factor = *grad * share_of_row;
        auto value = [&](Number x, int position) {
            Number chosen = position == target ? (Number)1 : (Number)0;
            return of.format.store((exp_of(x - state.largest) * scale - chosen) * factor);
        };
        this->each(
            from, lane,
            [&](int position, auto count) {
                constexpr int pack = Base::pack;
                Number x[decltype(count)::value * pack];
                this->template read<decltype(count)::value>(from, position, x);
                ND_UNROLL
                for (int k = 0; k < decltype(count)::value; k++) {
                    Pack<Stored, pack> moved;
                    const int first = position + k * Base::lanes * pack;
                    ND_UNROLL
                    for (int e = 0; e < pack; e++)
                        moved.element[e] = value(x[k * pack + e], first + e);
                    *(Pack<Stored, pack> *)(to + first) = moved;
                }
            },
            [&](int position) { to[position] = value(of.format.load(from[position]), position); });
    }
};

/// The same of a row that a group of threads reads twice.
template <class Format> struct RowLossGrad {
    typedef typename Format::Number Number;
    typedef Exponentials<Number> State;
    LogitRows<Format> of;
    const Number *grad;
    typename Format::Stored *out;
    Number share_of_row;

    ND_BOTH State accumulate(int64_t row, int lane, int lanes) const {
        return of.share(row, lane, lanes);
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State::join(a, b);
    }
    ND_BOTH void finish(int64_t row, int lane, int lanes, const State &state) const {
        int64_t target = of.targets[row];
        Number scale = (Number)1 / state.sum, factor = *grad * share_of_row;
        ND_UNROLL_4
        for (int64_t position = lane; position < of.classes; position += lanes) {
            Number power = exp_of(of.at(row, position) - state.largest);
            Number chosen = position == target ? (Number)1 : (Number)0;
            out[row * of.classes + position] = of.format.store((power * scale - chosen) * factor);
        }
    }
};

/// Whether a block may read a row that is not kept.
template <class Format> static bool rows_are_long(const LogitRows<Format> &of) {
    return of.classes >= shortest_long_row && of.classes <= longest_row &&
           (uintptr_t)of.logits % sizeof(typename Format::Stored) == 0;
}

template <class Format>
static nd_status run_loss(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Format &format) {
    typedef typename Format::Number Number;
    LogitRows<Format> of(format, call, 1);
    Scratch losses(queue, (of.rows > 0 ? of.rows : 1) * (int64_t)sizeof(double));
    if (losses.status != ND_OK)
        return losses.status;
    double *loss = (double *)losses.data;
    bool packed = rows_are_packed<typename Format::Stored>(of.logits, of.classes, 0);
    nd_status status = with_row_shape<Format, 1>(of.classes, packed, [&](auto shape) {
        return run_rows(queue, of.rows,
                        HeldRowLoss<Format, decltype(shape)>(of, loss, queue->out_of_range));
    });
    if (status == ND_ERROR_UNSUPPORTED && rows_are_long(of))
        status = run_rows(queue, of.rows, LongRowLoss<Format>(of, loss, queue->out_of_range));
    else if (status == ND_ERROR_UNSUPPORTED)
        status = run_groups(queue, of.rows, GroupShape{lanes_for(of.classes), true},
                            RowLoss<Format>{of, loss, queue->out_of_range});
    if (status != ND_OK)
        return status;
    MeanLoss<Number> mean{loss, (Number *)call->operand[0].data, of.rows};
    return run_groups(queue, 1, GroupShape{lanes_for(of.rows), true}, mean);
}

template <class Format>
static nd_status run_loss_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                               const Format &format) {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    LogitRows<Format> of(format, call, 2);
    Stored *out = (Stored *)call->operand[0].data;
    bool packed = rows_are_packed<Stored>(of.logits, of.classes, 0) &&
                  rows_are_packed<Stored>(out, of.classes, 0);
    nd_status status = with_row_shape<Format, 1>(of.classes, packed, [&](auto shape) {
        return run_rows(queue, of.rows, HeldRowLossGrad<Format, decltype(shape)>(of, call));
    });
    if (status != ND_ERROR_UNSUPPORTED)
        return status;
    if (rows_are_long(of) && ((uintptr_t)of.logits - (uintptr_t)out) % 16 == 0)
        return run_rows(queue, of.rows, LongRowLossGrad<Format>(of, call));
    RowLossGrad<Format> body{of, (const Number *)call->operand[1].data, out,
                             (Number)(1.0 / (double)of.rows)};
    return run_groups(queue, of.rows, GroupShape{lanes_for(of.classes), true}, body);
}

template <class Format>
static nd_status run_either(const nd_cuda_queue *queue, const nd_kernel_call *call,
                            const Format &format) {
    return call->op == ND_OP_cross_entropy ? run_loss(queue, call, format)
                                           : run_loss_grad(queue, call, format);
}

} // namespace nd_cuda

nd_status nd__cuda_cross_entropy(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    nd_dtype dtype = call->operand[call->op == ND_OP_cross_entropy ? 1 : 0].dtype;
    switch (dtype) {
    case ND_F32:
        return run_either(queue, call, Plain<float>());
    case ND_F64:
        return run_either(queue, call, Plain<double>());
    case ND_F16:
    case ND_BF16:
        return run_either(queue, call, Halves(dtype));
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
