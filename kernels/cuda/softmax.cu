// SOFTMAX along the last axis of the iteration space.
//
// A row that fits in registers is kept there and read once (exponentials.cuh). Any other row is read
// again, from the cache when it is short, and written.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/exponentials.cuh"
#include "kernels/cuda/row_groups.cuh"

namespace nd_cuda {

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
    return with_row_shape<Format, 1>(call->shape[last], packed, [&](auto shape) {
        return run_rows(
            queue, rows.count,
            SoftmaxRow<Format, decltype(shape), logarithm>(format, call, rows, call->shape[last]));
    });
}

template <class Source, bool logarithm> struct Softmax : RowGroups<2> { ///< out, x
    typedef typename Source::Element T;
    typedef Exponentials<T> State;
    Source x;
    void *out;
    nd_dtype out_dtype;

    Softmax(const nd_kernel_call *call, const Source &source)
        : RowGroups<2>(call), x(source), out(call->operand[0].data),
          out_dtype(call->operand[0].dtype) {
    }
    ND_BOTH State accumulate(int64_t row, int lane, int lanes) const {
        int64_t offset[2];
        rows.offsets(row, offset);
        State state = State::none();
        for (int64_t position = lane; position < length; position += lanes)
            state.add(x.at(offset[1] + position * stride[1]));
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
            T shifted = x.at(offset[1] + position * stride[1]) - state.largest;
            store_as(out, out_dtype, offset[0] + position * stride[0],
                     logarithm ? shifted - scale : exp_of(shifted) * scale);
        }
    }
};

template <class Format, class Source>
static nd_status run_either(const nd_cuda_queue *queue, const nd_kernel_call *call,
                            const Format &format, const Source &x) {
    bool logarithm = call->op == ND_OP_log_softmax;
    nd_status status = logarithm ? run_softmax_rows<true>(queue, call, format)
                                 : run_softmax_rows<false>(queue, call, format);
    if (status != ND_ERROR_UNSUPPORTED)
        return status;
    return logarithm ? run_row_groups(queue, Softmax<Source, true>(call, x), 1)
                     : run_row_groups(queue, Softmax<Source, false>(call, x), 1);
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
