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
//
// Captured work is ordered in the same way among itself: a graph keeps points of its own for what it
// uses, on streams that stand for those on which the thread captures. So its nodes are one behind the
// other where they share memory that one of them writes, or a stream, and else beside each other.
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

/// Memory that is to be given back, and behind which stream's work, from now, nothing uses it any
/// more.
typedef struct nd_cuda_retired {
    nd_cuda_stream *stream; ///< NULL: it is not to be given back
    nd_cuda_device *device; ///< whose memory it is
    void *data;
    size_t bytes; ///< as nd__order_add was told
    bool kept;    ///< the stream keeps it, so the pool does not get it
} nd_cuda_retired;

/// A block of that size that the stream keeps, noted as one that it has just allocated; NULL: there is
/// none.
void *nd__order_take_kept(nd_cuda_stream *stream, size_t bytes);
/// Gives all that the device's streams keep back to its pool; the bytes.
uint64_t nd__order_give_up_kept(nd_cuda_device *device);

/// The program has released a block: its last user keeps it or it is forgotten, unless a graph holds
/// it. Streams may be made to wait for what uses it, the host only when CUDA refuses to.
nd_cuda_retired nd__order_remove(nd_cuda_device *device, void *data);

/// Before a piece of work is queued on `stream`: it waits for what others did with the memory. Of one
/// that is captured: for what other captured work did, and what it uses is listed (nd__order_list).
nd_status nd__order_before(nd_cuda_stream *stream, size_t count, const nd_cuda_access *accesses);

/// After it was queued, also if that failed: notes it.
void nd__order_after(nd_cuda_stream *stream, size_t count, const nd_cuda_access *accesses);

/// How much of a stream is queued, for nd__order_done.
uint64_t nd__order_queued(nd_cuda_stream *stream);

/// The host has seen that a stream's work is done up to a number.
void nd__order_done(nd_cuda_stream *stream, uint64_t queued);

/// What a graph uses: blocks, each once, and held.
typedef struct nd_cuda_uses {
    size_t count, capacity;
    nd_cuda_access *access;        ///< owned; the beginnings of the blocks
    struct nd_cuda_points *points; ///< owned; of each, the captured work that touched it
    uint64_t number;               ///< of the list, once there is something in it
    bool unordered;                ///< captured work could not be put behind other captured work
} nd_cuda_uses;

/// A device's captured streams, those that are made, begin to be: their work's uses go into a list.
/// Only the first is in the capture.
void nd__order_begin_capture(nd_cuda_device *device, nd_cuda_uses *uses);
/// The first one comes behind the work of all that have joined. ND_ERROR_DEVICE: it does not, and no
/// graph can be made.
nd_status nd__order_join_captured(nd_cuda_device *device);
/// What is captured is not captured any more.
void nd__order_end_capture(nd_cuda_device *device);
/// Whether captured work on a stream comes behind all other that has used a block, anyway.
bool nd__order_is_behind(const nd_cuda_stream *stream, const void *data);

/// Lists what captured work will do. ND_ERROR_STATE: it uses memory that is in no block;
/// ND_ERROR_OUT_OF_MEMORY: there is none on the host. Then nothing was listed.
nd_status nd__order_list(nd_cuda_uses *uses, size_t count, const nd_cuda_access *accesses);

/// A block is held once more: its release by the program does not give it back.
void nd__order_hold(void *data);
/// Held once less. What the program has released goes back behind its uses when nothing holds it.
nd_cuda_retired nd__order_let_go(void *data);
/// Whether the program has released a block that is held.
bool nd__order_is_released(const void *data);
/// The program uses such a block again.
void nd__order_use_again(void *data);

/// Blocks whose release waits for the end of a capture.
typedef struct nd_cuda_put_off {
    struct nd_cuda_block *first;
} nd_cuda_put_off;

/// The program releases a block, but nothing is given back yet.
void nd__order_put_off(nd_cuda_put_off *list, void *data);
/// The next of those that are to be given back now; false: there is none left.
bool nd__order_next_put_off(nd_cuda_put_off *list, nd_cuda_retired *ret_retired);

/// The accesses of a kernel call; returns their number, at most ND_MAX_OPERANDS.
size_t nd__order_of_call(const nd_kernel_call *call, nd_cuda_access *ret_accesses);

/// Those of a chain, so many.
#define ND__ORDER_OF_CHAIN (ND_CHAIN_OPERANDS + 1)
void nd__order_of_chain(const nd_chain *chain, nd_cuda_access *ret_accesses);
#endif
