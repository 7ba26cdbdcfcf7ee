// The order of what several streams do with the same memory.
//
// Every block of device memory has points: the last work that wrote it, and of each stream the last
// that read it since. A stream that is about to touch a block first waits, on the device, for the
// points that conflict: a reader for the writer, a writer for all. So the result of a program does
// not depend on the streams it uses, and a block is given back behind all work that uses it.
//
// A point is a stream and the number of a piece of its work. Work is numbered when it has been
// queued, so an event that is recorded afterwards stands behind all numbers given out. While no
// stream but the devices' first is in use nothing is noted, and that stream's order is enough: all
// it did until then counts as number 1.
#ifndef ND_LIB_DEVICE_CUDA_ORDER_H
#define ND_LIB_DEVICE_CUDA_ORDER_H
#include "lib/device/cuda/cuda_device.h"

/// What a piece of work does with the memory behind an address.
typedef struct nd_cuda_access {
    const void *data; ///< anywhere in a block; NULL: nothing
    bool write;
} nd_cuda_access;

/// From now on points are noted, for every device. Never undone.
void nd__order_activate(void);

/// A block that `stream` has just allocated. ND_ERROR_OUT_OF_MEMORY: it could not be noted.
nd_status nd__order_add(nd_cuda_stream *stream, void *data, size_t bytes);

/// Forgets a block, and says behind which stream's work, from now, nothing uses it any more.
/// Streams may be made to wait for that, the host only when CUDA refuses to.
nd_cuda_stream *nd__order_remove(nd_cuda_device *device, void *data);

/// Before a piece of work is queued on `stream`: it waits for what others did with the memory.
nd_status nd__order_before(nd_cuda_stream *stream, size_t count, const nd_cuda_access *accesses);

/// After it was queued, also if that failed: notes it.
void nd__order_after(nd_cuda_stream *stream, size_t count, const nd_cuda_access *accesses);

/// How much of a stream is queued, for nd__order_done.
uint64_t nd__order_queued(nd_cuda_stream *stream);

/// The host has seen that a stream's work is done up to a number.
void nd__order_done(nd_cuda_stream *stream, uint64_t queued);

/// The accesses of a kernel call; returns their number, at most ND_MAX_OPERANDS.
size_t nd__order_of_call(const nd_kernel_call *call, nd_cuda_access *ret_accesses);

/// Those of a chain, ND_CHAIN_OPERANDS.
void nd__order_of_chain(const nd_chain *chain, nd_cuda_access *ret_accesses);
#endif
