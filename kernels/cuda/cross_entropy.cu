// LOSS: cross entropy, the mean over rows of logits, and its gradient.
//
// A row that fits in registers is kept there and read once (exponentials.cuh), also by the gradient,
// which is written where its logits were read. The losses of rows are added up in double. Logits of 16
// bits are computed in f32, and so is the mean; their gradient is rounded once.
#include "kernels/cuda/exponentials.cuh"

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

/// The same of a row that is read twice.
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
    if (status == ND_ERROR_UNSUPPORTED)
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
