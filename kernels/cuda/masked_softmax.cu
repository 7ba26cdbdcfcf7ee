// SOFTMAX with a mask: what is not kept counts nothing, and its result is 0.
//
// As softmax.cu, whose rows these are: kept in registers and read once where they fit, with one bit of
// each element for the mask, else read again. The mask is read where it lies, along an axis that it
// does not have as well.
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/exponentials.cuh"
#include "kernels/cuda/row_groups.cuh"

namespace nd_cuda {

template <class Format, class Shape> struct MaskedSoftmaxRow : ExponentialRow<Format, Shape> {
    typedef ExponentialRow<Format, Shape> Base;
    typedef typename Format::Stored Stored;
    using typename Base::Number, typename Base::State, typename Base::Row;
    static_assert(Shape::elements <= 32, "a bit of a word for each element");
    struct Kept : Base::Kept {
        uint32_t seen;
    };
    Format format;
    Stored *out;
    const Stored *x;
    const uint8_t *mask;
    int64_t step; ///< of the mask along a row
    Walk<3> rows; ///< out, x, mask
    int length;

    MaskedSoftmaxRow(const Format &of, const nd_kernel_call *call, const Walk<3> &over,
                     int64_t elements)
        : format(of), out((Stored *)call->operand[0].data),
          x((const Stored *)call->operand[1].data), mask((const uint8_t *)call->operand[2].data),
          step(call->operand[2].strides[call->ndim - 1]), rows(over), length((int)elements) {
    }
    /// Bits of the elements that a thread keeps, in their order.
    ND_BOTH uint32_t seen_of(const uint8_t *of, int lane) const {
        uint32_t seen = 0;
        ND_UNROLL
        for (int i = 0; i < Row::packs; i++) {
            int position = (i * Shape::lanes + lane) * Row::pack;
            if (position >= length)
                continue;
            Pack<uint8_t, Row::pack> moved;
            if constexpr (Shape::packed)
                moved = *(const Pack<uint8_t, Row::pack> *)(of + position);
            else
                moved.element[0] = of[position * step];
            ND_UNROLL
            for (int e = 0; e < Row::pack; e++)
                seen |= (uint32_t)(moved.element[e] != 0) << (i * Row::pack + e);
        }
        return seen;
    }
    ND_BOTH void load(Kept &kept, int64_t row, int lane) const {
        int64_t offset[3];
        rows.offsets(row, offset);
        Row::load(format, x + offset[1], length, lane, -(Number)INFINITY, kept.x);
        kept.seen = seen_of(mask + offset[2], lane);
        ND_UNROLL
        for (int i = 0; i < Shape::elements; i++)
            kept.x[i] = kept.seen >> i & 1 ? kept.x[i] : -(Number)INFINITY;
    }
    template <int round> ND_BOTH State share(Kept &kept, int, const State &before) const {
        return Base::template share_of<round, true>(kept, before);
    }
    ND_BOTH void finish(const Kept &kept, int64_t row, int lane, State sum) const {
        int64_t offset[3];
        rows.offsets(row, offset);
        Number scale = (Number)1 / sum;
        Row::store(format, out + offset[0], length, lane,
                   [&](int i, int) { return kept.seen >> i & 1 ? kept.x[i] * scale : (Number)0; });
    }
};

/// ND_ERROR_UNSUPPORTED for rows that are not kept.
template <class Format>
static nd_status run_held(const nd_cuda_queue *queue, const nd_kernel_call *call,
                          const Format &format) {
    typedef typename Format::Stored Stored;
    const int last = call->ndim - 1;
    if (last < 0 || call->operand[0].strides[last] != 1 || call->operand[1].strides[last] != 1)
        return ND_ERROR_UNSUPPORTED;
    constexpr int64_t pack = 16 / (int64_t)sizeof(Stored);
    const nd_operand &mask = call->operand[2];
    bool packed = mask.strides[last] == 1 && (uintptr_t)mask.data % pack == 0;
    Walk<3> rows;
    for (int axis = 0; axis <= last; axis++) {
        int64_t stride[3];
        for (int which = 0; which < 3; which++)
            stride[which] = call->operand[which].strides[axis];
        for (int which = 0; which < 2; which++)
            packed = packed && rows_are_packed<Stored>(call->operand[which].data, call->shape[last],
                                                       axis == last ? 0 : stride[which]);
        packed = packed && (axis == last || stride[2] % pack == 0);
        if (axis < last)
            rows.add_axis(call->shape[axis], stride);
    }
    return with_row_shape<Format, 1>(call->shape[last], packed, [&](auto shape) {
        return run_rows(
            queue, rows.count,
            MaskedSoftmaxRow<Format, decltype(shape)>(format, call, rows, call->shape[last]));
    });
}

template <class Source> struct MaskedSoftmax : RowGroups<3> { ///< out, x, mask
    typedef typename Source::Element T;
    typedef Exponentials<T> State;
    Source x;
    const uint8_t *mask;
    void *out;
    nd_dtype out_dtype;

    MaskedSoftmax(const nd_kernel_call *call, const Source &source)
        : RowGroups<3>(call), x(source), mask((const uint8_t *)call->operand[2].data),
          out(call->operand[0].data), out_dtype(call->operand[0].dtype) {
    }
    ND_BOTH State accumulate(int64_t row, int lane, int lanes) const {
        int64_t offset[3];
        rows.offsets(row, offset);
        State state = State::none();
        for (int64_t position = lane; position < length; position += lanes)
            if (mask[offset[2] + position * stride[2]])
                state.add(x.at(offset[1] + position * stride[1]));
        return state;
    }
    ND_BOTH State combine(const State &a, const State &b) const {
        return State::join(a, b);
    }
    ND_BOTH void finish(int64_t row, int lane, int lanes, const State &state) const {
        int64_t offset[3];
        rows.offsets(row, offset);
        T scale = (T)1 / state.sum;
        for (int64_t position = lane; position < length; position += lanes) {
            bool seen = mask[offset[2] + position * stride[2]] != 0;
            T y = seen ? exp_of(x.at(offset[1] + position * stride[1]) - state.largest) * scale
                       : (T)0;
            store_as(out, out_dtype, offset[0] + position * stride[0], y);
        }
    }
};

template <class Format, class Source>
static nd_status run_masked(const nd_cuda_queue *queue, const nd_kernel_call *call,
                            const Format &format, const Source &x) {
    nd_status status = run_held(queue, call, format);
    return status == ND_ERROR_UNSUPPORTED ? run_row_groups(queue, MaskedSoftmax<Source>(call, x), 1)
                                          : status;
}

} // namespace nd_cuda

nd_status nd__cuda_masked_softmax(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    const nd_operand &x = call->operand[1];
    switch (x.dtype) {
    case ND_F32:
        return run_masked(queue, call, Plain<float>(), Direct<float>{(const float *)x.data});
    case ND_F64:
        return run_masked(queue, call, Plain<double>(), Direct<double>{(const double *)x.data});
    case ND_F16:
    case ND_BF16:
        return run_masked(queue, call, Halves(x.dtype), Erased<float>{x.data, x.dtype});
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
