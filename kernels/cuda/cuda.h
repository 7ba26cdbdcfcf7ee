// What the CUDA kernels need from a backend, and what they offer to it: plain C, no CUDA header.
//
// A kernel queues its work on `stream` and never waits. What only the data can tell, an index out
// of range, raises the queue's flag: the kernel leaves that element out, and the backend answers
// ND_ERROR_INVALID_ARGUMENT when it next waits for the stream. Temporary memory comes from the
// queue and is ordered like everything else on the stream, so it is given back right after the
// kernel that uses it was queued. The kernels never pick a device: the backend makes the stream's
// device current before it calls.
#ifndef ND_KERNELS_CUDA_CUDA_H
#define ND_KERNELS_CUDA_CUDA_H
#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nd_cuda_queue {
    void *stream;          ///< cudaStream_t
    int multiprocessors;   ///< of the device
    int shared_bytes;      ///< of shared memory that a block may have there when it asks
    bool overlaps;         ///< a kernel's blocks may come while those before it on the stream end
    bool has_warpgroups;   ///< wgmma: the device's compute capability is 9.0, no other
    int32_t *out_of_range; ///< host memory that the device can write
    void *context;         ///< for the functions below
    nd_status (*allocate)(void *context, size_t bytes, void **ret_pointer);
    void (*release)(void *context, void *pointer);
    /// Device to device.
    nd_status (*copy)(void *context, void *destination, const void *source, size_t bytes);
} nd_cuda_queue;

/// Queues one call of any family but VIEW. ND_ERROR_UNSUPPORTED for a pair (op, dtype) without a
/// kernel.
nd_status nd__cuda_launch(const nd_cuda_queue *queue, const nd_kernel_call *call);

/// Queues chains, none of which writes what another reads or writes, as few launches.
/// ND_ERROR_UNSUPPORTED for an operation that no optimizer has.
nd_status nd__cuda_chains(const nd_cuda_queue *queue, size_t count, const nd_chain *chains);

/// Compute capability (90 for 9.0) below which the kernels in this library cannot be loaded.
int nd__cuda_minimum_capability(void);

// One function per family, or group of families, of kernels/ops.inc; called by nd__cuda_launch.
nd_status nd__cuda_unary(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_predicate(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_binary(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_compare(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_logical(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_where(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_copy(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_concat(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_create(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_reduce(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_argreduce(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_scan(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_sorting(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_softmax(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_masked_softmax(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_softmax_grad(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_cross_entropy(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_pair_loss(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_nll(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_norm(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_index(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_matmul(const nd_cuda_queue *queue, const nd_kernel_call *call);
/// Of one row or one column of floats.
nd_status nd__cuda_matvec(const nd_cuda_queue *queue, const nd_kernel_call *call);
/// Of 16-bit floats whose rows are aligned; ND_ERROR_UNSUPPORTED for other operands and devices.
nd_status nd__cuda_matmul_f16(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_matmul_bf16(const nd_cuda_queue *queue, const nd_kernel_call *call);
/// Of integers of 8 bits.
nd_status nd__cuda_matmul_integer(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_quantized(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_conv(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_unfold(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_pool(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_resample(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_attention(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_attention_grad(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_cell(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status nd__cuda_dropout(const nd_cuda_queue *queue, const nd_kernel_call *call);

#ifdef __cplusplus
}
#endif
#endif
