/// @file
/// Memory under pressure: what happens between "no memory" and an error, and how a program
/// takes part.
///
/// An allocation that fails, or that a quota refuses, walks a ladder, and looks again after each
/// stage whether it goes now: frees that the device has finished are taken back, caches go back to
/// the system, the collector runs (where it is on) at the asking manager and then at its ancestors,
/// the program's callbacks are asked, and the device is waited for once, at most a second. A quota
/// walks the stages that help it: the first, the collector and the callbacks. Only then comes
/// ND_ERROR_OUT_OF_MEMORY or ND_ERROR_QUOTA, which says what was tried; nothing has changed then.
/// docs/memory.md says more.
#ifndef ND_MEMORY_H
#define ND_MEMORY_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

/// The stages, in the order in which they are walked.
typedef enum nd_memory_stage {
    ND_MEMORY_STAGE_RETIRE =
        0, ///< what a device's callbacks released, and frees it has finished, are taken back
    ND_MEMORY_STAGE_TRIM,     ///< caches go back to the system
    ND_MEMORY_STAGE_COLLECT,  ///< the collector, where it is on
    ND_MEMORY_STAGE_CALLBACK, ///< the program's callbacks, nearest first
    ND_MEMORY_STAGE_WAIT,     ///< one bounded wait for the device's queue
    ND_MEMORY_STAGE_COUNT,
} nd_memory_stage;

/// What a callback is told. More may be added at the end: look at `size` before reading beyond what
/// this version has.
typedef struct nd_memory_pressure {
    uint32_t size;             ///< sizeof(nd_memory_pressure)
    uint32_t version;          ///< 1
    uint64_t bytes;            ///< that are wanted; 0: not known (working memory of a kernel)
    nd_device_kind kind;       ///< of the memory that is wanted
    bool quota;                ///< a quota refused; false: there is no memory
    const nd_manager *manager; ///< that asks. Borrowed: valid until the callback returns
} nd_memory_pressure;

/// The program's part: gives memory up, such as a cache it can do without, and answers whether it
/// did. Set size and version with ND_MEMORY_CALLBACK_INIT.
///
/// It runs on the thread that asks, in the middle of the operation that needs the memory, with no
/// lock held. It may allocate, release, close managers, collect, and set or remove callbacks, its
/// own included; it must leave alone what the operation was given. While it runs, no other
/// callback runs on that thread: what it allocates itself does without this stage. It may run on
/// several threads at once. The error it leaves is forgotten.
typedef struct nd_memory_callback {
    uint32_t size;    ///< sizeof(nd_memory_callback)
    uint32_t version; ///< 1
    /// Gives memory up; true when it did.
    bool (*give_up)(const nd_memory_pressure *pressure, void *data);
    void *data; ///< handed to both functions
    /// Frees `data`: called once, when the callback has been replaced or removed, or its manager
    /// was closed, and no thread runs it. NULL: nothing to free; nd_object_release() where `data` is
    /// an owned handle.
    void (*free)(void *data);
} nd_memory_callback;
/// What an nd_memory_callback must begin as; `give_up` must be set.
#define ND_MEMORY_CALLBACK_INIT ND__SIZED(nd_memory_callback)

/// Sets the callback of a manager, for allocations there and below; a callback that was there is
/// removed. Asked are the nearest manager that has one, then those above it, until the memory
/// suffices.
///
/// @param manager NULL: the root
/// @param callback copied; NULL: only removes
/// @return ND_OK, or the error; then nothing has changed, and `callback->free` is not called
/// @errors ND_ERROR_INVALID_ARGUMENT (no size or version, no function), ND_ERROR_CLOSED (the
///         manager), ND_ERROR_OUT_OF_MEMORY
/// @threads any
ND_API nd_status nd_memory_set_callback(const nd_manager *manager,
                                        const nd_memory_callback *callback);

/// Places for stages in nd_memory_stats. Fixed, and more than there are stages, so that a new one
/// changes the size of no struct; a place without a stage is 0.
#define ND_MAX_MEMORY_STAGES 8

/// What one stage did since the program started.
typedef struct nd_memory_stage_stats {
    uint64_t reached; ///< walks that came to it and for which it could do something
    uint64_t enough;  ///< of these, those that ended there with the memory
    /// What it brought back, where that is known: what the backend says of retiring, trimming and
    /// waiting, what the collector freed (of all device kinds), and by how much the program's live
    /// bytes of the kind fell during callbacks (other threads' doings included).
    uint64_t bytes;
} nd_memory_stage_stats;

/// The ladder since the program started. walks = failures + the sum of `enough` over the stages,
/// when no thread is on the ladder.
typedef struct nd_memory_stats {
    uint32_t size;                                      ///< sizeof(nd_memory_stats)
    uint32_t version;                                   ///< 1
    uint64_t walks;                                     ///< requests that did not go at first
    uint64_t quota_walks;                               ///< of these, those that a quota refused
    uint64_t failures;                                  ///< of walks, those that ended in an error
    nd_memory_stage_stats stages[ND_MAX_MEMORY_STAGES]; ///< by nd_memory_stage
} nd_memory_stats;
/// What an nd_memory_stats must begin as.
#define ND_MEMORY_STATS_INIT ND__SIZED(nd_memory_stats)

/// Reads the statistics of the process, in constant time. Beside threads that are on the ladder the
/// figures may belong to slightly different moments.
///
/// @param ret_stats begun with ND_MEMORY_STATS_INIT
/// @return ND_OK, or the error; then nothing is written
/// @errors ND_ERROR_INVALID_ARGUMENT (NULL, no size or version)
/// @threads any
ND_API nd_status nd_memory_get_stats(nd_memory_stats *ret_stats);

/// Gives what the library keeps for reuse back to the system: memory of dead objects, freed data,
/// working memory of kernels, a device's cached memory. Slow, and what is needed next has to be
/// obtained anew; for a program that was large and will be small. Threads of the library that
/// compute for others end, and begin again when they are needed. What other threads keep for
/// themselves stays: 32 KiB for each size of objects, and 16 MiB of working memory, at most.
///
/// @return bytes given back, as far as that is known (glibc's malloc does not say it of its own)
/// @errors none. A kind without devices gives 0
/// @threads any. Does nothing, gives 0 and sets no error inside a callback that a device runs, and
///          for kinds but the CPU while the thread captures a graph
ND_API uint64_t nd_memory_trim(nd_device_kind kind);

/// Bytes that the library keeps for reuse, of all devices of a kind: not in use, and not given back
/// to the system (nd_memory_cache_stats says of what they are).
///
/// @return bytes, as far as they are known; 0 for a kind without devices, and for all but the CPU
///         while this thread captures a graph
/// @errors none
/// @threads any
ND_API uint64_t nd_memory_get_cached(nd_device_kind kind);

/// Bounds what is kept for reuse of a kind, for each of its devices, from now on; what is more goes
/// back to the system. docs/pooling.md says what holds without a bound.
///
/// On the CPU a quarter of it is for the memory of dead objects and the rest for freed data. Not
/// bounded are the free places beside living objects (memory goes back by 16 KiB) and what threads
/// keep for themselves. How much there is is looked at each time that an eighth of the bound, and a
/// MiB at least, has been freed, so there may be so much more for a moment. On a device, memory whose
/// release is queued counts when the device has come to it.
///
/// @param kind of device
/// @param bytes 0: nothing is kept. UINT64_MAX: as at first
/// @return ND_OK, or the error; then nothing has changed. A kind without devices is none
/// @errors ND_ERROR_INVALID_ARGUMENT (no such kind), ND_ERROR_STATE (inside a callback that a device
///         runs; for kinds but the CPU, while the thread captures a graph)
/// @threads any
ND_API nd_status nd_memory_set_cache_limit(nd_device_kind kind, uint64_t bytes);

/// What is kept for reuse of a kind. More may be added at the end.
typedef struct nd_memory_cache_stats {
    uint32_t size;    ///< sizeof(nd_memory_cache_stats)
    uint32_t version; ///< 1
    /// Of nd_memory_set_cache_limit; UINT64_MAX: none was set.
    uint64_t limit;
    /// Bytes of dead objects; 0 for kinds other than the CPU. Their memory is the host's.
    uint64_t objects;
    /// Bytes of freed data, the device's other memory included.
    uint64_t data;
    /// Bytes of the working memory of kernels, in use or not; 0 for kinds other than the CPU.
    uint64_t workspaces;
} nd_memory_cache_stats;
/// What an nd_memory_cache_stats must begin as.
#define ND_MEMORY_CACHE_STATS_INIT ND__SIZED(nd_memory_cache_stats)

/// Reads what is kept for reuse of a kind. Beside other threads the figures may belong to slightly
/// different moments.
///
/// @param kind of device
/// @param ret_stats begun with ND_MEMORY_CACHE_STATS_INIT
/// @return ND_OK, or the error; then nothing is written
/// @errors ND_ERROR_INVALID_ARGUMENT (NULL, no size or version, no such kind), ND_ERROR_STATE (for
///         kinds but the CPU, while the thread captures a graph)
/// @threads any
ND_API nd_status nd_memory_get_cache_stats(nd_device_kind kind, nd_memory_cache_stats *ret_stats);

/// Bounds the memory that the library takes of one device, from now on: data, working memory of
/// kernels, what waits for a queue, and what is kept for reuse. A request that would need more walks
/// the ladder, and is refused as if the device had no more. What is kept for reuse and too much goes
/// back at once; of what is in use nothing is taken away, so a device that has more already gives
/// nothing out until it has less.
///
/// A device that takes its memory in pieces (CUDA's pools do) counts whole pieces. It finds out that a
/// piece is too much when it has it, so that it may have one request more until it has come to what
/// was queued before. The host's memory is bounded by quotas (nd_manager_set_quota()).
///
/// @param device whose
/// @param bytes UINT64_MAX: all that it has
/// @return ND_OK, or the error; then nothing has changed
/// @errors ND_ERROR_DEVICE (no such device, or it failed), ND_ERROR_UNSUPPORTED (the CPU),
///         ND_ERROR_STATE (inside a callback that a device runs, or while the thread captures a
///         graph)
/// @threads any
ND_API nd_status nd_memory_set_limit(nd_device device, uint64_t bytes);

/// The memory of one device, in bytes; UINT64_MAX: not known. More may be added at the end.
typedef struct nd_memory_device_stats {
    uint32_t size;    ///< sizeof(nd_memory_device_stats)
    uint32_t version; ///< 1
    uint64_t total;   ///< that the device has
    uint64_t limit;   ///< of nd_memory_set_limit(); UINT64_MAX: none was set
    uint64_t live;    ///< of the program's data, and what graphs hold (<nd/graph.h>)
    /// Given up by the program, and the queue has not come to it; working memory of kernels, and
    /// what data are rounded up by, included.
    uint64_t pending;
    uint64_t cached; ///< kept for reuse
    uint64_t peak;   ///< the most that these three were together
    /// The largest request that could go at once, if what is free need not lie in one piece: cached,
    /// and what the limit and the device leave.
    uint64_t available;
} nd_memory_device_stats;
/// What an nd_memory_device_stats must begin as.
#define ND_MEMORY_DEVICE_STATS_INIT ND__SIZED(nd_memory_device_stats)

/// Reads how a device's memory is used. Waits for nothing; beside other threads, and beside the
/// device, the figures may belong to slightly different moments.
///
/// @param device whose
/// @param ret_stats begun with ND_MEMORY_DEVICE_STATS_INIT
/// @return ND_OK, or the error; then nothing is written
/// @errors ND_ERROR_INVALID_ARGUMENT (NULL, no size or version), ND_ERROR_DEVICE (no such device),
///         ND_ERROR_STATE (inside a callback that a device runs, or while the thread captures a
///         graph)
/// @threads any
ND_API nd_status nd_memory_get_device_stats(nd_device device, nd_memory_device_stats *ret_stats);

#ifdef __cplusplus
}
#endif
#endif
