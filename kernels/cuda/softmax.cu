// SOFTMAX along the last axis of the iteration space, and LOSS (cross entropy).
//
// One pass finds a row's largest element and the sum of exp(x - largest) together, correcting the
// sum whenever the largest changes; the second reads the row again, from the cache when it is
// short, and writes. NaN and infinities give what the textbook formula gives: NaN and +inf make the
// whole row NaN, -inf becomes 0.
#include "kernels/cuda/erased.cuh"
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
    RowLoss<T> row_loss{(const T *)call->operand[1].data, (const int64_t *)call->operand[2].data,
                        (double *)losses.data, classes, queue->out_of_range};
    nd_status status = run_groups(queue, rows, GroupShape{lanes_for(classes), true}, row_loss);
    if (status != ND_OK)
        return status;
    MeanLoss<T> mean{(const double *)losses.data, (T *)call->operand[0].data, rows};
    return run_groups(queue, 1, GroupShape{lanes_for(rows), true}, mean);
}

template <class Source>
static nd_status run_either(const nd_cuda_queue *queue, const nd_kernel_call *call,
                            const Source &x) {
    return call->op == ND_OP_log_softmax ? run_softmax<Source, true>(queue, call, x)
                                         : run_softmax<Source, false>(queue, call, x);
}

} // namespace nd_cuda

nd_status nd__cuda_softmax(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const nd_operand &x = call->operand[1];
    switch (x.dtype) {
    case ND_F32:
        return run_either(queue, call, Direct<float>{(const float *)x.data});
    case ND_F64:
        return run_either(queue, call, Direct<double>{(const double *)x.data});
    case ND_F16:
    case ND_BF16:
        return run_either(queue, call, Erased<float>{x.data, x.dtype});
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
