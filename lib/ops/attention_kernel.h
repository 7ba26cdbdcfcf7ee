// Attention as one kernel, where the device has one for it.
#ifndef ND_LIB_OPS_ATTENTION_KERNEL_H
#define ND_LIB_OPS_ATTENTION_KERNEL_H
#include "lib/ops/attention_blocks.h"

/// As nd__attention_blocks_forward(), without dropout; query, key and value may be of 16 bits, log_sums
/// are f32 then, and so is a mask that is added. ND_ERROR_UNSUPPORTED without an error where the device
/// computes it better by blocks.
nd_status nd__attention_kernel_forward(const nd__attention *a, nd_tensor **ret_result,
                                       nd_tensor **ret_log_sums);
/// As nd__attention_blocks_backward(), of the dtype of query, key, value, grad and result, which may
/// have 16 bits; without dropout, and without the mask's gradient. ND_ERROR_UNSUPPORTED without an error
/// where the device has no kernel for it, or computes it better by blocks.
nd_status nd__attention_kernel_backward(const nd__attention *a, const nd_tensor *grad,
                                        const nd_tensor *result, const nd_tensor *log_sums,
                                        const bool *wanted, nd_tensor **ret_grads);
#endif
