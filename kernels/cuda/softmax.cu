// SOFTMAX along the last axis of the iteration space, and LOSS (cross entropy).
//
// A row that fits in registers is kept there (held.cuh): its largest element, the sum of
// exp(x - largest), and what is written come from one reading. Of any other row one pass finds both
// together, correcting the sum whenever the largest changes; the second reads the row again, from the
// cache when it is short, and writes. NaN and infinities give what the textbook formula gives: NaN and
// +inf make the whole row NaN, -inf becomes 0.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/held.cuh"
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

/// Largest element so far, and sum of exp(x - largest).
template <class T> struct Exponentials {
    T largest;
    T sum;

    static ND_BOTH Exponentials none() {
        return Exponentials{-(T)INFINITY, (T)0};
    }
    ND_BOTH void add(T x) {
        if (x > largest) {
            // x - x is 0, or NaN for +inf, whose row has no softmax.
            sum = sum * exp_of(largest - x) + (T)1 + (x - x);
            largest = x;
        } else if (!(x == -(T)INFINITY)) {
            sum += exp_of(x - largest);
        }
    }
    static ND_BOTH Exponentials join(const Exponentials &a, const Exponentials &b) {
        if (a.largest == b.largest)
            return Exponentials{a.largest, a.sum + b.sum};
        if (a.largest > b.largest)
            return Exponentials{a.largest, a.sum + b.sum * exp_of(b.largest - a.largest)};
        return Exponentials{b.largest, b.sum + a.sum * exp_of(a.largest - b.largest)};
    }
};

/// The largest element and the sum of exp(x - largest) of a row that is kept.
template <class Format, class Shape> struct ExponentialRow : Shape {
    typedef typename Format::Number Number;
    typedef Number State;
    typedef HeldRow<Format, Shape> Row;
    struct Kept {
        Number x[Shape::elements];
    };
    static constexpr int rounds = 2;

    /// Round 1 leaves x - largest in x, or with `powers` its exponential.
    template <int round, bool powers>
    static ND_BOTH State share_of(Kept &kept, const State &largest) {
        State state = round == 0 ? -(Number)INFINITY : (Number)0;
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++) {
            Number &x = kept.x[i];
            if (round == 0) {
                state = x > state ? x : state;
            } else {
                x -= largest;
                Number power = exp_of(x);
                state += power;
                if (powers)
                    x = power;
            }
        }
        return state;
    }
    template <int round> ND_BOTH State combine(State a, State b) const {
        return round == 1 ? a + b : a > b ? a : b;
    }
};

template <class Format, class Shape, bool logarithm>
struct SoftmaxRow : ExponentialRow<Format, Shape> {
    typedef ExponentialRow<Format, Shape> Base;
    typedef typename Format::Stored Stored;
    using typename Base::Kept, typename Base::Number, typename Base::State, typename Base::Row;
    Format format;
    Stored *out;
    const Stored *x;
    Walk<2> rows; ///< out, x
    int length;

    SoftmaxRow(const Format &of, const nd_kernel_call *call, const Walk<2> &over, int64_t elements)
        : format(of), out((Stored *)call->operand[0].data),
          x((const Stored *)call->operand[1].data), rows(over), length((int)elements) {
    }
    ND_BOTH void load(Kept &kept, int64_t row, int lane) const {
        int64_t offset[2];
        rows.offsets(row, offset);
        Row::load(format, x + offset[1], length, lane, -(Number)INFINITY, kept.x);
    }
    template <int round> ND_BOTH State share(Kept &kept, int, const State &before) const {
        return Base::template share_of<round, !logarithm>(kept, before);
    }
    ND_BOTH void finish(const Kept &kept, int64_t row, int lane, State sum) const {
        int64_t offset[2];
        rows.offsets(row, offset);
        Number scale = logarithm ? log_of(sum) : (Number)1 / sum;
        Row::store(format, out + offset[0], length, lane,
                   [&](int i, int) { return logarithm ? kept.x[i] - scale : kept.x[i] * scale; });
    }
};

/// ND_ERROR_UNSUPPORTED for rows that are not kept.
template <bool logarithm, class Format>
static nd_status run_softmax_rows(const nd_cuda_queue *queue, const nd_kernel_call *call,
                                  const Format &format) {
    typedef typename Format::Stored Stored;
    int last = call->ndim - 1;
    if (last < 0 || call->operand[0].strides[last] != 1 || call->operand[1].strides[last] != 1)
        return ND_ERROR_UNSUPPORTED;
    Walk<2> rows;
    bool packed = true;
    for (int axis = 0; axis <= last; axis++) {
        int64_t stride[2] = {call->operand[0].strides[axis], call->operand[1].strides[axis]};
        for (int which = 0; which < 2; which++)
            packed = packed && rows_are_packed<Stored>(call->operand[which].data, call->shape[last],
                                                       axis == last ? 0 : stride[which]);
        if (axis < last)
            rows.add_axis(call->shape[axis], stride);
    }
    return with_row_shape<typename Format::Number, 1>(call->shape[last], packed, [&](auto shape) {
        return run_rows(
            queue, rows.count,
            SoftmaxRow<Format, decltype(shape), logarithm>(format, call, rows, call->shape[last]));
    });
}

template <class Source, bool logarithm> struct Softmax {
    typedef typename Source::Element T;
    typedef Exponentials<T> State;
    Source x;
    void *out;
    nd_dtype out_dtype;
    Walk<2> rows; ///< out, x
    int64_t length;
    int64_t out_stride, x_stride;

    ND_BOTH State accumulate(int64_t row, int lane, int lanes) const {
        int64_t offset[2];
        rows.offsets(row, offset);
        State state = State::none();
        for (int64_t position = lane; position < length; position += lanes)
            state.add(x.at(offset[1] + position * x_stride));
        return state;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State::join(a, b);
    }
    ND_BOTH void finish(int64_t row, int lane, int lanes, const State &state) const {
        int64_t offset[2];
        rows.offsets(row, offset);
        T scale = logarithm ? log_of(state.sum) : (T)1 / state.sum;
        ND_UNROLL_4
        for (int64_t position = lane; position < length; position += lanes) {
            T shifted = x.at(offset[1] + position * x_stride) - state.largest;
            store_as(out, out_dtype, offset[0] + position * out_stride,
                     logarithm ? shifted - scale : exp_of(shifted) * scale);
        }
    }
};

template <class Source, bool logarithm>
static nd_status run_softmax(const nd_cuda_queue *queue, const nd_kernel_call *call,
                             const Source &x) {
    int last = call->ndim - 1;
    Walk<2> rows;
    for (int axis = 0; axis < last; axis++) {
        int64_t stride[2] = {call->operand[0].strides[axis], call->operand[1].strides[axis]};
        rows.add_axis(call->shape[axis], stride);
    }
    Softmax<Source, logarithm> body{x, call->operand[0].data, call->operand[0].dtype, rows, 1, 1,
                                    1};
    if (last >= 0) {
        body.length = call->shape[last];
        body.out_stride = call->operand[0].strides[last];
        body.x_stride = call->operand[1].strides[last];
    }
    if (rows.count == 0 || body.length == 0)
        return ND_OK;
    int lanes = lanes_for(body.length);
    bool rows_closer = rows.count > 1 && rows.strides[1][rows.ndim - 1] < body.x_stride;
    GroupShape shape = {rows_closer && lanes > 8 ? 8 : lanes, !rows_closer};
    return run_groups(queue, rows.count, shape, body);
}

/// The same of a row that is kept.
template <class Format, class Shape> struct HeldRowLoss : ExponentialRow<Format, Shape> {
    typedef ExponentialRow<Format, Shape> Base;
    using typename Base::Kept, typename Base::Number, typename Base::State, typename Base::Row;
    const Number *logits;
    const int64_t *targets;
    double *loss;
    int classes;
    int32_t *out_of_range;

    HeldRowLoss(const nd_kernel_call *call, double *losses, int32_t *flag)
        : logits((const Number *)call->operand[1].data),
          targets((const int64_t *)call->operand[2].data), loss(losses),
          classes((int)call->attrs.i[1]), out_of_range(flag) {
    }
    ND_BOTH void load(Kept &kept, int64_t row, int lane) const {
        Row::load(Format(), logits + row * classes, classes, lane, -(Number)INFINITY, kept.x);
    }
    template <int round> ND_BOTH State share(Kept &kept, int, const State &before) const {
        return Base::template share_of<round, false>(kept, before);
    }
    /// Whoever keeps the target's element, less the largest, writes.
    ND_BOTH void finish(const Kept &kept, int64_t row, int lane, State sum) const {
        int64_t target = targets[row];
        bool inside = target >= 0 && target < classes;
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
template <class T> struct RowLoss {
    typedef Exponentials<T> State;
    const T *logits;
    const int64_t *targets;
    double *loss;
    int64_t classes;
    int32_t *out_of_range;

    ND_BOTH State accumulate(int64_t row, int lane, int lanes) const {
        State state = State::none();
        for (int64_t position = lane; position < classes; position += lanes)
            state.add(logits[row * classes + position]);
        return state;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State::join(a, b);
    }
    ND_BOTH void finish(int64_t row, int lane, int, const State &state) const {
        if (lane != 0)
            return;
        int64_t target = targets[row];
        loss[row] = 0;
        if (target < 0 || target >= classes)
            *out_of_range = 1;
        else
            loss[row] =
                (double)(log_of(state.sum) + (state.largest - logits[row * classes + target]));
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

template <class T>
static nd_status run_loss(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    int64_t rows = call->attrs.i[0], classes = call->attrs.i[1];
    Scratch losses(queue, (rows > 0 ? rows : 1) * (int64_t)sizeof(double));
    if (losses.status != ND_OK)
        return losses.status;
    bool packed = rows_are_packed<T>(call->operand[1].data, classes, 0);
    nd_status status = with_row_shape<T, 1>(classes, packed, [&](auto shape) {
        return run_rows(queue, rows,
                        HeldRowLoss<Plain<T>, decltype(shape)>(call, (double *)losses.data,
                                                               queue->out_of_range));
    });
    RowLoss<T> row_loss{(const T *)call->operand[1].data, (const int64_t *)call->operand[2].data,
                        (double *)losses.data, classes, queue->out_of_range};
    if (status == ND_ERROR_UNSUPPORTED)
        status = run_groups(queue, rows, GroupShape{lanes_for(classes), true}, row_loss);
    if (status != ND_OK)
        return status;
    MeanLoss<T> mean{(const double *)losses.data, (T *)call->operand[0].data, rows};
    return run_groups(queue, 1, GroupShape{lanes_for(rows), true}, mean);
}

template <class Format, class Source>
static nd_status run_either(const nd_cuda_queue *queue, const nd_kernel_call *call,
                            const Format &format, const Source &x) {
    bool logarithm = call->op == ND_OP_log_softmax;
    nd_status status = logarithm ? run_softmax_rows<true>(queue, call, format)
                                 : run_softmax_rows<false>(queue, call, format);
    if (status != ND_ERROR_UNSUPPORTED)
        return status;
    return logarithm ? run_softmax<Source, true>(queue, call, x)
                     : run_softmax<Source, false>(queue, call, x);
}

} // namespace nd_cuda

nd_status nd__cuda_softmax(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const nd_operand &x = call->operand[1];
    switch (x.dtype) {
    case ND_F32:
        return run_either(queue, call, Plain<float>(), Direct<float>{(const float *)x.data});
    case ND_F64:
        return run_either(queue, call, Plain<double>(), Direct<double>{(const double *)x.data});
    case ND_F16:
    case ND_BF16:
        return run_either(queue, call, Halves(x.dtype), Erased<float>{x.data, x.dtype});
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

nd_status nd__cuda_loss(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->operand[1].dtype == ND_F32)
        return nd_cuda::run_loss<float>(queue, call);
    if (call->operand[1].dtype == ND_F64)
        return nd_cuda::run_loss<double>(queue, call);
    return ND_ERROR_UNSUPPORTED;
}
