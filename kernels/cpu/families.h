// The kernel of each family (kernels/kernel.h), for cpu.c. All trust their call.
#ifndef ND_KERNELS_CPU_FAMILIES_H
#define ND_KERNELS_CPU_FAMILIES_H
#include "kernels/cpu/isa.h"

/// Runs `loop` over the iteration space. `cost` is the work of one element in additions of floats.
nd_status nd__cpu_elementwise(const nd_kernel_call *call, nd__loop loop, int64_t cost);
/// The same row by row as the axes are given, whatever the rows: for copies and fills.
nd_status nd__cpu_rows(const nd_kernel_call *call, nd__loop loop, int64_t cost);
/// nd__cpu_elementwise() for operands of which some are 16-bit floats; `loop` is that of f32.
nd_status nd__cpu_elementwise_halves(const nd_kernel_call *call, nd__loop loop, int64_t cost);
nd_status nd__cpu_copy(const nd_kernel_call *call);
nd_status nd__cpu_concat(const nd_kernel_call *call);
nd_status nd__cpu_reduce(const nd_kernel_call *call);
nd_status nd__cpu_argreduce(const nd_kernel_call *call);
nd_status nd__cpu_scan(const nd_kernel_call *call);
nd_status nd__cpu_sorting(const nd_kernel_call *call);
nd_status nd__cpu_matmul(const nd_kernel_call *call);
nd_status nd__cpu_quantized(const nd_kernel_call *call);
nd_status nd__cpu_softmax(const nd_kernel_call *call);
nd_status nd__cpu_masked_softmax(const nd_kernel_call *call);
nd_status nd__cpu_softmax_grad(const nd_kernel_call *call);
nd_status nd__cpu_cross_entropy(const nd_kernel_call *call);
nd_status nd__cpu_pair_loss(const nd_kernel_call *call);
nd_status nd__cpu_nll(const nd_kernel_call *call);
nd_status nd__cpu_norm(const nd_kernel_call *call);
/// `sparing`: without oneDNN where that has found no working memory; else that is an error.
nd_status nd__cpu_conv(const nd_kernel_call *call, bool sparing);
/// Does a CONV call that is depthwise, where its sizes suit the loops; false: somebody else must.
bool nd__cpu_depthwise(const nd_kernel_call *call);
/// Does a CONV call by direct sums, where its sizes suit them; false: somebody else must.
bool nd__cpu_direct(const nd_kernel_call *call);
/// Does a CONV call whose windows have one element each as products; false: somebody else must.
bool nd__cpu_pointwise(const nd_kernel_call *call);
nd_status nd__cpu_pool(const nd_kernel_call *call);
nd_status nd__cpu_resample(const nd_kernel_call *call);
nd_status nd__cpu_attention(const nd_kernel_call *call);
nd_status nd__cpu_attention_grad(const nd_kernel_call *call);
nd_status nd__cpu_cell(const nd_kernel_call *call);
nd_status nd__cpu_index(const nd_kernel_call *call);
nd_status nd__cpu_create(const nd_kernel_call *call);
nd_status nd__cpu_dropout(const nd_kernel_call *call);

/// Results from this size on bypass the caches, which could not hold them.
#define ND__STREAM_BYTES ((int64_t)32 << 20)

/// Bytes of an element.
static inline int64_t nd__dtype_bytes(nd_dtype dtype) {
    static const int8_t bytes[ND_DTYPE_COUNT] = {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = sizeof(T),
#include "kernels/dtypes.inc"
#undef ND_DTYPE
    };
    return bytes[dtype];
}
/// 0 for f32, 1 for f64, -1 for the others: index of the tables that only floats have.
static inline int nd__float_index(nd_dtype dtype) {
    return dtype == ND_F32 ? 0 : dtype == ND_F64 ? 1 : -1;
}
static inline int64_t nd__call_total(const nd_kernel_call *call) {
    int64_t total = 1;
    for (int axis = 0; axis < call->ndim; axis++)
        total *= call->shape[axis];
    return total;
}
/// Gives a call that has fewer than ND_MAX_NDIM axes a last one, along which its operands go by these
/// steps. None where it would have one element: its steps may be any numbers.
static inline void nd__call_add_axis(nd_kernel_call *call, int64_t size, const int64_t *steps) {
    if (size == 1)
        return;
    call->shape[call->ndim] = size;
    for (int i = 0; i < call->noperands; i++)
        call->operand[i].strides[call->ndim] = steps[i];
    call->ndim++;
}
/// The same with an axis of another call, with operands that are as many or more.
static inline void nd__call_add_axis_of(nd_kernel_call *call, const nd_kernel_call *of, int axis) {
    int64_t steps[ND_MAX_OPERANDS];
    for (int i = 0; i < call->noperands; i++)
        steps[i] = of->operand[i].strides[axis];
    nd__call_add_axis(call, of->shape[axis], steps);
}
#endif
