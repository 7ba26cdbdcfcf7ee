// Gradients of a module on their way: in buckets, reduced by a thread of their own while the
// backward pass goes on.
//
//   part      one parameter's gradient, somewhere in a bucket
//   bucket    memory for parts of one dtype, sent as a whole once all of them are there
//   flags     the last bucket: which parts had a gradient on any rank
//
// Invariants: buckets are sent in their order, the same on all ranks. The thread touches no object
// and no memory but the buckets': gradients are copied into them, so that no manager, close or
// collection can take away what is being sent. Buckets are where the communicator moves data: over
// NCCL on its device, where that copy is queued behind what computes the gradient and the host waits
// for neither; the thread does, before it sends. A step is all or nothing: whatever a rank fails at,
// it says in place of its next bucket, and all ranks fail that step.
#ifndef ND_LIB_DISTRIBUTED_BUCKETS_H
#define ND_LIB_DISTRIBUTED_BUCKETS_H
#include "lib/distributed/communicator.h"

typedef struct nd_buckets nd_buckets;

typedef struct nd_bucket_limits {
    uint64_t first, others; ///< bytes at most; a bucket has at least one part. The last parts, of
                            ///< `first` together or just more, are not with those before
    bool sharded;           ///< each part is reduced for one rank alone, its owner
} nd_bucket_limits;

/// Buckets for `count` parts of these dtypes and sizes, filled from the last part to the first,
/// with their thread. `comm` is borrowed, and nobody else's. NULL with an error.
nd_buckets *nd__buckets_new(const char *operation, const nd_communicator *comm, size_t count,
                            const nd_dtype *dtypes, const int64_t *numels, nd_bucket_limits limits);
/// Ends the thread; no step is under way.
void nd__buckets_free(nd_buckets *buckets);
size_t nd__buckets_get_count(const nd_buckets *buckets);

/// Begins a step. After the first one that succeeded the buckets are filled anew, in the order in
/// which rank 0 had its gradients: a collective call then.
nd_status nd__buckets_begin(nd_buckets *buckets, const char *operation);
/// Between steps: the order is that of the beginning again, so that what follows does not depend on
/// the steps before.
nd_status nd__buckets_forget_order(nd_buckets *buckets, const char *operation);
/// Where a part's gradient is to be written, and read when the step is reduced: memory of that device
/// (bucket_memory.h).
void *nd__buckets_memory(const nd_buckets *buckets, size_t part);
nd_device nd__buckets_get_device(const nd_buckets *buckets);
/// What a part's memory is laid out for.
nd_dtype nd__buckets_get_dtype(const nd_buckets *buckets, size_t part);
/// A part's gradient is there; `used`: it is not only zeros because there was none.
void nd__buckets_set(nd_buckets *buckets, size_t part, bool used);
bool nd__buckets_is_set(const nd_buckets *buckets, size_t part);
/// Waits until all buckets are reduced, or one has failed.
nd_status nd__buckets_wait(nd_buckets *buckets);
/// All parts are there: waits until the bucket of one of them is reduced, or one has failed.
nd_status nd__buckets_wait_for(nd_buckets *buckets, size_t part);
/// The part at a place of the order in which buckets are filled, and so sent.
size_t nd__buckets_get_part(const nd_buckets *buckets, size_t place);
/// Whether this rank had a gradient for a part that is set, so that nd__buckets_was_used will say so.
bool nd__buckets_was_used_here(const nd_buckets *buckets, size_t part);
/// Whether any rank had a gradient for a part, after nd__buckets_wait.
bool nd__buckets_was_used(const nd_buckets *buckets, size_t part);
/// The rank that a part is reduced for: for good, and with shares of about the same size. 0 where
/// parts are reduced for all.
int nd__buckets_get_owner(const nd_buckets *buckets, size_t part);
/// Whether a part is reduced for this rank.
bool nd__buckets_is_own(const nd_buckets *buckets, size_t part);
/// Between steps, a collective call: with `shares` what each owner has written to the memory of its
/// parts becomes everybody's. `status` not ND_OK: this rank has failed, and all get an error.
nd_status nd__buckets_gather(nd_buckets *buckets, const char *operation, bool shares,
                             nd_status status);

/// Ends the step with this rank's status: the same answer on every rank, but for the words of the
/// one that failed. The status of nd__buckets_wait is not said twice.
nd_status nd__buckets_end(nd_buckets *buckets, const char *operation, nd_status status);
#endif
