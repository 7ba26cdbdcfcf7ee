// The memory of a CUDA device.
#ifndef ND_LIB_DEVICE_CUDA_CUDA_MEMORY_H
#define ND_LIB_DEVICE_CUDA_CUDA_MEMORY_H
#include "lib/device/cuda/order.h"

/// A block for the program's data, noted (order.h) and counted as live: one of that size that the stream
/// keeps (cuda_kept.h), or the pool's.
nd_status nd__cuda_take(nd_cuda_stream *stream, size_t bytes, void **ret_pointer);
/// The pool's, for what goes back to it by cudaFreeAsync.
nd_status nd__cuda_take_new(nd_cuda_stream *stream, size_t bytes, void **ret_pointer);
/// Gives back what nothing uses any more (order.h).
void nd__cuda_give_back(const nd_cuda_retired *retired);
/// Whether the pool has at most what it may have, at least once it has given back what it keeps.
bool nd__cuda_is_within_bound(nd_cuda_device *device);

extern const nd_memory_functions nd__cuda_memory_functions;
#endif
