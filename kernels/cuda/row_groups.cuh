// Rows along the last axis in any layout, which a group of threads each reads twice: what serves where
// a row is too long, or lies too far apart, to be held in registers (held.cuh).
#ifndef ND_KERNELS_CUDA_ROW_GROUPS_CUH
#define ND_KERNELS_CUDA_ROW_GROUPS_CUH
#include "kernels/cuda/walk.cuh"

namespace nd_cuda {

/// What a body of run_groups() derives from: where rows begin, and how their elements lie.
template <int operands> struct RowGroups {
    Walk<operands> rows;
    int64_t length;
    int64_t stride[operands];

    explicit RowGroups(const nd_kernel_call *call) : rows(), length(1) {
        const int last = call->ndim - 1;
        for (int which = 0; which < operands; which++)
            stride[which] = 1;
        for (int axis = 0; axis <= last; axis++) {
            int64_t along[operands];
            for (int which = 0; which < operands; which++)
                along[which] = call->operand[which].strides[axis];
            if (axis < last) {
                rows.add_axis(call->shape[axis], along);
                continue;
            }
            length = call->shape[axis];
            for (int which = 0; which < operands; which++)
                stride[which] = along[which];
        }
    }
};

/// Runs it. Neighbouring threads take what lies closer in the operand `read`: elements of a row, or
/// rows.
template <class Body>
nd_status run_row_groups(const nd_cuda_queue *queue, const Body &body, int read) {
    if (body.rows.count == 0 || body.length == 0)
        return ND_OK;
    const int lanes = lanes_for(body.length);
    const bool rows_closer =
        body.rows.count > 1 && body.rows.strides[read][body.rows.ndim - 1] < body.stride[read];
    GroupShape shape = {rows_closer && lanes > 8 ? 8 : lanes, !rows_closer};
    return run_groups(queue, body.rows.count, shape, body);
}

} // namespace nd_cuda
#endif
