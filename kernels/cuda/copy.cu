// COPY: out = x for any two dtypes and any strides.
//
// Without a change of dtype elements are moved unseen, so those kernels are compiled per element
// size: a contiguous copy is the driver's, one between two orders of axes goes through shared memory
// (transpose.cuh). What lies in runs in both operands is moved by units of up to 16 bytes, as if those
// were its elements. Between f32 and 16-bit floats packs are moved, as
// between f64, f32, i64, i32, u8 and bool. All other pairs share four kernels: one for each type that
// holds the elements on their way, told both dtypes when they run.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/transpose.cuh"

namespace nd_cuda {

template <class Out, class In> struct Cast {
    ND_BOTH Out operator()(const In &x) const {
        return convert<Out>(x);
    }
};

/// The most bytes, up to 16, at whose multiples all runs of both operands begin and end.
static int64_t unit_bytes(const nd_kernel_call *call, const Walk<2> &walk, int64_t bytes) {
    const int last = walk.ndim - 1;
    if (last < 0 || walk.strides[0][last] != 1 || walk.strides[1][last] != 1)
        return bytes;
    // Every place in bytes, and the pointers: their lowest bit that is set.
    uint64_t places = 16 | (uint64_t)(walk.shape[last] * bytes);
    for (int operand = 0; operand < 2; operand++) {
        places |= (uintptr_t)call->operand[operand].data;
        for (int axis = 0; axis < last; axis++)
            places |= (uint64_t)(walk.strides[operand][axis] * bytes);
    }
    return (int64_t)(places & -places);
}

/// Of elements of `bytes`, moved as units of a type.
template <class Unit>
static nd_status move_units(const nd_cuda_queue *queue, const nd_kernel_call *call,
                            const Walk<2> &walk, int64_t bytes) {
    const int64_t elements = (int64_t)sizeof(Unit) / bytes;
    const int last = walk.ndim - 1;
    Walk<2> units;
    for (int axis = 0; axis <= last; axis++) {
        int64_t stride[2] = {walk.strides[0][axis], walk.strides[1][axis]};
        for (int operand = 0; operand < 2 && elements > 1; operand++)
            stride[operand] = axis == last ? 1 : stride[operand] / elements;
        units.add_axis(axis == last ? walk.shape[axis] / elements : walk.shape[axis], stride);
    }
    StridedElementwise<Cast<Unit, Unit>, Unit, Unit, None, None> body(call, Cast<Unit, Unit>{},
                                                                      units);
    return run_threads(queue, body.blocks(), body);
}

template <class T>
static nd_status run_move(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    constexpr int64_t bytes = sizeof(T);
    const nd_operand &out = call->operand[0], &x = call->operand[1];
    Walk<2> walk;
    for (int axis = 0; axis < call->ndim; axis++) {
        int64_t stride[2] = {out.strides[axis], x.strides[axis]};
        walk.join_axis(call->shape[axis], stride);
    }
    if (walk.contiguous() && walk.count > 0)
        return queue->copy(queue->context, out.data, x.data, (size_t)walk.count * sizeof(T));
    nd_status status = run_transpose<T>(queue, call);
    if (status != ND_ERROR_UNSUPPORTED)
        return status;
    switch (unit_bytes(call, walk, bytes)) {
    case 1:
        return move_units<uint8_t>(queue, call, walk, bytes);
    case 2:
        return move_units<uint16_t>(queue, call, walk, bytes);
    case 4:
        return move_units<uint32_t>(queue, call, walk, bytes);
    case 8:
        return move_units<uint64_t>(queue, call, walk, bytes);
    default:
        return move_units<Pack<uint32_t, 4>>(queue, call, walk, bytes);
    }
}

// The bits of half.h, NaN's too.
struct ToHalf {
    bool brain;
    ND_BOTH uint16_t operator()(const float &x) const {
        return brain ? nd__f32_to_bf16(x) : nd__f32_to_f16(x);
    }
};
struct FromHalf {
    bool brain;
    ND_BOTH float operator()(const uint16_t &x) const {
        return brain ? nd__bf16_to_f32(x) : nd__f16_to_f32(x);
    }
};

/// T holds every element of `from`.
template <class T> struct CastErased {
    void *out;
    const void *in;
    nd_dtype to, from;
    Walk<2> walk;

    ND_BOTH void operator()(int64_t index) const {
        int64_t offset[2];
        walk.offsets(index, offset);
        store_converted(out, to, offset[0], load_as<T>(in, from, offset[1]));
    }
};

template <class T>
static nd_status run_cast_by(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    const nd_operand &out = call->operand[0], &in = call->operand[1];
    Walk<2> walk(call);
    return run_elements(queue, walk.count,
                        CastErased<T>{out.data, in.data, out.dtype, in.dtype, walk});
}

static bool is_half(nd_dtype dtype) {
    return dtype == ND_F16 || dtype == ND_BF16;
}

static nd_status run_cast_erased(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    nd_dtype to = call->operand[0].dtype, from = call->operand[1].dtype;
    if (from == ND_F32 && is_half(to))
        return run_elementwise<uint16_t, float>(queue, call, ToHalf{to == ND_BF16});
    if (to == ND_F32 && is_half(from))
        return run_elementwise<float, uint16_t>(queue, call, FromHalf{from == ND_BF16});
    if (from == ND_F64)
        return run_cast_by<double>(queue, call);
    if (from == ND_F32 || is_half(from))
        return run_cast_by<float>(queue, call);
    return from == ND_U64 ? run_cast_by<uint64_t>(queue, call) : run_cast_by<int64_t>(queue, call);
}

template <class Out, class In>
static nd_status run_cast(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return run_elementwise<Out, In>(queue, call, Cast<Out, In>{});
}

template <class Out>
static nd_status run_cast_to(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->operand[1].dtype) {
    case ND_BOOL:
        return run_cast<Out, Bool>(queue, call);
    case ND_U8:
        return run_cast<Out, uint8_t>(queue, call);
    case ND_I32:
        return run_cast<Out, int32_t>(queue, call);
    case ND_I64:
        return run_cast<Out, int64_t>(queue, call);
    case ND_F32:
        return run_cast<Out, float>(queue, call);
    case ND_F64:
        return run_cast<Out, double>(queue, call);
    default:
        return run_cast_erased(queue, call);
    }
}

static nd_status move(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (dtype_bytes(call->operand[0].dtype)) {
    case 1:
        return run_move<uint8_t>(queue, call);
    case 2:
        return run_move<uint16_t>(queue, call);
    case 4:
        return run_move<uint32_t>(queue, call);
    default:
        return run_move<uint64_t>(queue, call);
    }
}

} // namespace nd_cuda

nd_status nd__cuda_copy(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    if (call->operand[0].dtype == call->operand[1].dtype)
        return nd_cuda::move(queue, call);
    switch (call->operand[0].dtype) {
    case ND_BOOL:
        return run_cast_to<Bool>(queue, call);
    case ND_U8:
        return run_cast_to<uint8_t>(queue, call);
    case ND_I32:
        return run_cast_to<int32_t>(queue, call);
    case ND_I64:
        return run_cast_to<int64_t>(queue, call);
    case ND_F32:
        return run_cast_to<float>(queue, call);
    case ND_F64:
        return run_cast_to<double>(queue, call);
    default:
        return run_cast_erased(queue, call);
    }
}
