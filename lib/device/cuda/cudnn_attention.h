// Attention, forward, by cuDNN. Its gradient is ndarc's: the plans of cuDNN's add up the queries'
// gradient by atomic additions, in an order that is another one each time.
#ifndef ND_LIB_DEVICE_CUDA_CUDNN_ATTENTION_H
#define ND_LIB_DEVICE_CUDA_CUDNN_ATTENTION_H
#include "lib/device/cuda/library.h"

/// attention of f16 or bf16, causal or not. ND_ERROR_UNSUPPORTED, with nothing queued, when cuDNN is
/// missing, is older than 9.21, or has no plan that gives the same bits every time and finds its
/// working memory; for a call with a mask, of other dtypes or lengths, of few queries, of strides
/// that cuDNN does not take; and for sizes that are new in a capture, or when as many are kept as may
/// be.
nd_status nd__cudnn_attend(nd_cuda_device *device, const nd_cuda_queue *queue,
                           const nd_kernel_call *call);
#endif
