// Blocks that a stream has freed, kept for its next allocations of the same size: the driver's pool
// takes a microsecond for a block and its return, as long as all else that an operation does.
//
// A block that comes back behind a stream's work (order.h) is at once that stream's again, with no
// call. What is kept counts as free in all statistics, and goes back to the pool when a program trims,
// when memory runs out, when the program sets a limit, from which on nothing is kept, and when there
// is too much of it: at most a sixty-fourth of the device's memory for each stream. ND_CUDA_KEEP=0 in
// the environment keeps nothing, so that compute-sanitizer sees every free.
//
// Invariant: what is here is in order.c's tree, and every function but the first and the last is called
// with its lock held.
#ifndef ND_LIB_DEVICE_CUDA_CUDA_KEPT_H
#define ND_LIB_DEVICE_CUDA_CUDA_KEPT_H
#include "lib/device/cuda/cuda_device.h"

struct nd_cuda_block;

/// How much a device's streams may keep each: at its first use, with the device current.
void nd__cuda_kept_prepare(nd_cuda_device *device);

/// Keeps a block that nothing uses behind the stream's work from now. False: it was not kept.
bool nd__cuda_kept_put(nd_cuda_stream *stream, struct nd_cuda_block *block, size_t bytes);

/// A kept block of exactly that size, which is kept no longer; NULL: there is none.
struct nd_cuda_block *nd__cuda_kept_take(nd_cuda_stream *stream, size_t bytes);
/// One of another size, in whose place those of that size would be.
struct nd_cuda_block *nd__cuda_kept_take_other(nd_cuda_stream *stream, size_t bytes);
/// One of any size.
struct nd_cuda_block *nd__cuda_kept_take_any(nd_cuda_stream *stream);

/// Bytes that the device's streams keep.
uint64_t nd__cuda_kept_bytes(const nd_cuda_device *device);
#endif
