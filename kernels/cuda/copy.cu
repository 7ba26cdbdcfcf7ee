// COPY: out = x for any two dtypes and any strides.
//
// Without a change of dtype elements are moved unseen, so those kernels are compiled per element
// size, and a contiguous copy is the driver's.
#include "kernels/cuda/elementwise.cuh"

namespace nd_cuda {

template <class Out, class In> struct Cast {
    ND_BOTH Out operator()(const In &x) const {
        return convert<Out>(x);
    }
};

template <class T>
static nd_status run_move(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    Walk<2> walk(call);
    if (walk.contiguous() && walk.count > 0)
        return queue->copy(queue->context, call->operand[0].data, call->operand[1].data,
                           (size_t)walk.count * sizeof(T));
    return run_elementwise<T, T>(queue, call, Cast<T, T>{});
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
        return ND_ERROR_UNSUPPORTED;
    }
}

static nd_status move(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->operand[0].dtype) {
    case ND_BOOL:
    case ND_U8:
    case ND_I8:
        return run_move<uint8_t>(queue, call);
    case ND_U16:
    case ND_I16:
    case ND_F16:
    case ND_BF16:
        return run_move<uint16_t>(queue, call);
    case ND_U32:
    case ND_I32:
    case ND_F32:
        return run_move<uint32_t>(queue, call);
    case ND_U64:
    case ND_I64:
    case ND_F64:
        return run_move<uint64_t>(queue, call);
    default:
        return ND_ERROR_UNSUPPORTED;
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
        return ND_ERROR_UNSUPPORTED;
    }
}
