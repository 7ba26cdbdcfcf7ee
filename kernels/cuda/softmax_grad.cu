// SOFTMAX backward: (g - sum(g y)) y of the gradient g and the result y, along the last axis.
//
// A row of both that fits in registers is kept there and read once; any other is read again.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/held.cuh"
#include "kernels/cuda/row_groups.cuh"

namespace nd_cuda {

template <class Format, class Shape> struct SoftmaxGradRow : Shape {
    typedef typename Format::Stored Stored;
    typedef typename Format::Number Number;
    typedef Number State;
    typedef HeldRow<Format, Shape> Row;
    struct Kept {
        Number g[Shape::elements], y[Shape::elements];
    };
    static constexpr int rounds = 1;
    Format format;
    Stored *out;
    const Stored *g, *y;
    Walk<3> rows; ///< out, g, y
    int length;

    SoftmaxGradRow(const Format &of, const nd_kernel_call *call, const Walk<3> &over,
                   int64_t elements)
        : format(of), out((Stored *)call->operand[0].data),
          g((const Stored *)call->operand[1].data), y((const Stored *)call->operand[2].data),
          rows(over), length((int)elements) {
    }
    ND_BOTH void load(Kept &kept, int64_t row, int lane) const {
        int64_t offset[3];
        rows.offsets(row, offset);
        Row::load(format, g + offset[1], length, lane, (Number)0, kept.g);
        Row::load(format, y + offset[2], length, lane, (Number)0, kept.y);
    }
    template <int round> ND_BOTH State share(Kept &kept, int, const State &) const {
        State sum = 0;
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++)
            sum += kept.g[i] * kept.y[i];
        return sum;
    }
    template <int round> ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(const Kept &kept, int64_t row, int lane, State sum) const {
        int64_t offset[3];
        rows.offsets(row, offset);
        Row::store(format, out + offset[0], length, lane,
                   [&](int i, int) { return (kept.g[i] - sum) * kept.y[i]; });
    }
};

/// ND_ERROR_UNSUPPORTED for rows that are not kept.
template <class Format>
static nd_status run_held(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Format &format) {
    typedef typename Format::Stored Stored;
    const int last = call->ndim - 1;
    bool packed = true;
    for (int which = 0; which < 3; which++)
        if (last < 0 || call->operand[which].strides[last] != 1)
            return ND_ERROR_UNSUPPORTED;
    Walk<3> rows;
    for (int axis = 0; axis <= last; axis++) {
        int64_t stride[3];
        for (int which = 0; which < 3; which++) {
            stride[which] = call->operand[which].strides[axis];
            packed = packed && rows_are_packed<Stored>(call->operand[which].data, call->shape[last],
                                                       axis == last ? 0 : stride[which]);
        }
        if (axis < last)
            rows.add_axis(call->shape[axis], stride);
    }
    return with_row_shape<Format, 2>(call->shape[last], packed, [&](auto shape) {
        return run_rows(
            queue, rows.count,
            SoftmaxGradRow<Format, decltype(shape)>(format, call, rows, call->shape[last]));
    });
}

template <class Source> struct SoftmaxGrad : RowGroups<3> { ///< out, g, y
    typedef typename Source::Element T;
    typedef double State;
    Source g, y;
    void *out;
    nd_dtype out_dtype;

    SoftmaxGrad(const nd_kernel_call *call, const Source &gradient, const Source &result)
        : RowGroups<3>(call), g(gradient), y(result), out(call->operand[0].data),
          out_dtype(call->operand[0].dtype) {
    }
    ND_BOTH State accumulate(int64_t row, int lane, int lanes) const {
        int64_t offset[3];
        rows.offsets(row, offset);
        State sum = 0;
        for (int64_t position = lane; position < length; position += lanes)
            sum += (double)(g.at(offset[1] + position * stride[1]) *
                            y.at(offset[2] + position * stride[2]));
        return sum;
    }
    ND_BOTH State combine(State a, State b) const {
        return a + b;
    }
    ND_BOTH void finish(int64_t row, int lane, int lanes, State sum) const {
        int64_t offset[3];
        rows.offsets(row, offset);
        for (int64_t position = lane; position < length; position += lanes)
            store_as(out, out_dtype, offset[0] + position * stride[0],
                     (g.at(offset[1] + position * stride[1]) - (T)sum) *
                         y.at(offset[2] + position * stride[2]));
    }
};

template <class Format, class Source>
static nd_status run_grad(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Format &format, const Source &g, const Source &y) {
    nd_status status = run_held(queue, call, format);
    return status == ND_ERROR_UNSUPPORTED
               ? run_row_groups(queue, SoftmaxGrad<Source>(call, g, y), 2)
               : status;
}

} // namespace nd_cuda

nd_status nd__cuda_softmax_grad(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const void *g = call->operand[1].data, *y = call->operand[2].data;
    const nd_dtype dtype = call->operand[2].dtype;
    switch (dtype) {
    case ND_F32:
        return run_grad(queue, call, Plain<float>(), Direct<float>{(const float *)g},
                        Direct<float>{(const float *)y});
    case ND_F64:
        return run_grad(queue, call, Plain<double>(), Direct<double>{(const double *)g},
                        Direct<double>{(const double *)y});
    case ND_F16:
    case ND_BF16:
        return run_grad(queue, call, Halves(dtype), Erased<float>{g, dtype},
                        Erased<float>{y, dtype});
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
