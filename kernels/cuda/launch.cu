// From an operation to the function of its family, by the table of operations.
#include "kernels/cuda/grid.cuh"

enum class Family {
    UNARY,
    PREDICATE,
    BINARY,
    COMPARE,
    LOGICAL,
    TERNARY,
    REDUCE,
    ARGREDUCE,
    SCAN,
    SORT,
    MATMUL,
    QUANTIZED,
    SOFTMAX,
    LOSS,
    NORM,
    INDEX,
    CREATE,
    COPY,
    CONV,
    POOL,
    RESAMPLE,
    ATTENTION,
    CELL,
    DROPOUT,
    LINALG,
    FFT,
    VIEW,
};

static Family family_of(nd_op op) {
    switch (op) {
#define ND_OP(name, family, inputs, differentiable, saves) \
    case ND_OP_##name:                                     \
        return Family::family;
#include "kernels/ops.inc"
#undef ND_OP
    default:
        return Family::VIEW;
    }
}

static nd_status launch_loss(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->op == ND_OP_cross_entropy || call->op == ND_OP_cross_entropy_grad)
        return nd__cuda_cross_entropy(queue, call);
    bool of_pairs = call->op == ND_OP_pair_loss || call->op == ND_OP_pair_loss_grad;
    return of_pairs ? nd__cuda_pair_loss(queue, call) : nd__cuda_nll(queue, call);
}

static nd_status launch_softmax(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    if (call->op == ND_OP_softmax_grad)
        return nd__cuda_softmax_grad(queue, call);
    return call->op == ND_OP_masked_softmax ? nd__cuda_masked_softmax(queue, call)
                                            : nd__cuda_softmax(queue, call);
}

nd_status nd__cuda_launch(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (family_of(call->op)) {
    case Family::UNARY:
        return nd__cuda_unary(queue, call);
    case Family::PREDICATE:
        return nd__cuda_predicate(queue, call);
    case Family::BINARY:
        return nd__cuda_binary(queue, call);
    case Family::COMPARE:
        return nd__cuda_compare(queue, call);
    case Family::LOGICAL:
        return nd__cuda_logical(queue, call);
    case Family::TERNARY:
        return nd__cuda_where(queue, call);
    case Family::REDUCE:
        return nd__cuda_reduce(queue, call);
    case Family::ARGREDUCE:
        return nd__cuda_argreduce(queue, call);
    case Family::SCAN:
        return nd__cuda_scan(queue, call);
    case Family::SORT:
        return nd__cuda_sorting(queue, call);
    case Family::MATMUL:
        return call->op == ND_OP_matmul_integer ? nd__cuda_matmul_integer(queue, call)
                                                : nd__cuda_matmul(queue, call);
    case Family::QUANTIZED:
        return nd__cuda_quantized(queue, call);
    case Family::SOFTMAX:
        return launch_softmax(queue, call);
    case Family::LOSS:
        return launch_loss(queue, call);
    case Family::NORM:
        return nd__cuda_norm(queue, call);
    case Family::INDEX:
        return nd__cuda_index(queue, call);
    case Family::CREATE:
        return nd__cuda_create(queue, call);
    case Family::COPY:
        return call->op == ND_OP_concat ? nd__cuda_concat(queue, call) : nd__cuda_copy(queue, call);
    case Family::CONV:
        return nd__cuda_conv(queue, call);
    case Family::POOL:
        return nd__cuda_pool(queue, call);
    case Family::RESAMPLE:
        return nd__cuda_resample(queue, call);
    case Family::ATTENTION:
        return call->op == ND_OP_attention ? nd__cuda_attention(queue, call)
                                           : nd__cuda_attention_grad(queue, call);
    case Family::CELL:
        return nd__cuda_cell(queue, call);
    case Family::DROPOUT:
        return nd__cuda_dropout(queue, call);
    case Family::LINALG:
    case Family::FFT:
    case Family::VIEW:
        break;
    }
    return ND_ERROR_UNSUPPORTED;
}

int nd__cuda_minimum_capability(void) {
#ifdef __CUDA_ARCH_LIST__
    const int architectures[] = {__CUDA_ARCH_LIST__};
    return architectures[0] / 10;
#else
    return 0;
#endif
}
