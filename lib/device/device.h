// The table of functions a backend fills. Nothing above this layer knows which backend it talks to.
//
// Contract of every backend: work is queued in order on the stream of the device that is current in
// the calling thread, and behind all that other streams do with the same memory, so that only time
// depends on the streams; `release` is ordered after all work queued before it that uses the memory,
// and never waits; copy_to_host waits for what it reads; after `synchronize` all is done, on every
// stream. What only the data shows (an index out of range) a backend may report
// late, by the next copy_to_host or synchronize.
#ifndef ND_LIB_DEVICE_DEVICE_H
#define ND_LIB_DEVICE_DEVICE_H
#include "kernels/kernel.h"
#include "lib/manager/request.h"
#include "lib/pressure/pressure.h"
#include <nd/tensor.h>

/// What a piece of work does with the memory behind an address.
typedef struct nd_device_use {
    const void *data; ///< anywhere in a block that the backend has allocated
    bool write;
} nd_device_use;
enum { ND_DEVICE_USES = 2 }; ///< of one piece of work, at most

/// Streams of a device beside its default one, and events. A stream is NULL where the default one is
/// meant. No function but the two `synchronize` waits. What is released may have work before it.
typedef struct nd_stream_functions {
    nd_status (*make)(int index, void **ret_stream);
    void (*release)(int index, void *stream);
    /// The calling thread's work on the device goes there from now on. Returns where it went before.
    void *(*use)(int index, void *stream);
    /// For work that a library of the maker's puts on a stream (NCCL): calls function(stream, data)
    /// with the device current and the thread's stream as that library knows it, which waits for all
    /// that others do with that memory. What the function has queued when it returns, whatever it
    /// returns, counts as such a use. Its status is the answer.
    nd_status (*lend)(int index, size_t count, const nd_device_use *uses,
                      nd_status (*function)(void *stream, void *data), void *data);
    nd_status (*synchronize)(int index, void *stream);
    nd_status (*query)(int index, void *stream, bool *ret_done);
    nd_status (*event_make)(int index, bool timed, void **ret_event);
    void (*event_release)(int index, void *event);
    nd_status (*event_record)(int index, void *event, void *stream);
    nd_status (*event_wait)(int index, void *stream, void *event); ///< of any device of the kind
    nd_status (*event_synchronize)(int index, void *event);
    nd_status (*event_query)(int index, void *event, bool *ret_done);
    /// Between two events that were recorded and reached, which were made to be timed.
    nd_status (*event_elapsed)(int index, void *start, void *end, double *ret_milliseconds);
} nd_stream_functions;

/// Graphs of captured work. Between `begin` and `end` what the calling thread asks of the device is
/// captured, not done: `launch` and `launch_chains`; allocations come from the graph's arena, and a
/// release gives nothing back before the end. All other functions answer ND_ERROR_STATE there, and
/// so does a launch that uses memory of others. The thread's record says that it captures
/// (capture.h). None of these functions waits.
typedef struct nd_graph_functions {
    /// ND_ERROR_STATE: another thread captures on this device.
    nd_status (*begin)(int index, void **ret_graph);
    /// On an error there is no graph, as after `release`. Behind the end of the thread's capture.
    nd_status (*end)(int index, void *graph);
    /// By how many bytes the arena would grow for an allocation; while it is captured.
    uint64_t (*growth)(int index, void *graph, size_t bytes);
    uint64_t (*bytes)(int index, void *graph); ///< of the arena
    /// Behind all that others do with the same memory, on the thread's stream.
    nd_status (*launch)(int index, void *graph);
    /// Behind all launches. Of a graph whose capture has not ended: gives that up.
    void (*release)(int index, void *graph);
} nd_graph_functions;

typedef struct nd_backend {
    const char *name;     ///< "cpu", "cuda"
    bool host_accessible; ///< memory can be read and written by the host directly, at any time
    /// Has kernels that do in one pass what takes several elsewhere (kernels/kernel.h: "where a
    /// backend has it"); which ones, launch answers.
    bool fuses;
    /// May have convolutions of bf16 as they are, though it fuses nothing; launch answers again.
    bool convolves_bf16;
    /// Whether products of that 16-bit dtype, casts of an operand and of the result included, take
    /// less time than the same of f32, also where they are small; NULL: none does.
    bool (*multiplies)(nd_dtype dtype);
    /// Its argsort may be asked for a few ranks alone (kernels/kernel.h).
    bool selects_ranks;
    int (*device_count)(void);
    /// 64-byte aligned (256 for devices), at least one byte. ND_ERROR_OUT_OF_MEMORY: none left.
    /// Sets no message.
    nd_status (*allocate)(int index, size_t bytes, void **ret_pointer);
    void (*release)(int index, void *pointer, size_t bytes);
    nd_status (*copy_from_host)(int index, void *destination, const void *source, size_t bytes);
    nd_status (*copy_to_host)(int index, void *destination, const void *source, size_t bytes);
    /// To a device's memory from that of another of the kind, in the order of the streams; NULL: it
    /// cannot.
    nd_status (*copy_peer)(int index, void *destination, int source_index, const void *source,
                           size_t bytes);
    nd_status (*synchronize)(int index);
    nd_status (*launch)(int index, const nd_kernel_call *call);
    /// A call for which launch and the ladder found no working memory, once more in a way that takes
    /// less. NULL: there is none.
    nd_status (*launch_sparing)(int index, const nd_kernel_call *call);
    /// Runs chains that do not write what another of them reads; NULL: they are launched call by
    /// call. ND_ERROR_OUT_OF_MEMORY: none of them has run.
    nd_status (*launch_chains)(int index, size_t count, const nd_chain *chains);
    /// Calls function(data) on some thread of the host when all work queued before is done, once;
    /// what is queued later waits for it to return. The function calls no backend. On an error it
    /// is never called.
    nd_status (*call)(int index, void (*function)(void *data), void *data);
    /// NULL: every device has one stream only.
    const nd_stream_functions *streams;
    /// NULL: it captures nothing.
    const nd_graph_functions *graphs;
    /// What it can do when memory is short; NULL: nothing.
    const nd_memory_functions *memory;
    /// True in a forked child whose parent has the device; NULL: never.
    bool (*lost)(int index);
    /// True when nothing of what was queued will be done any more, because the device failed for
    /// good and whoever waited for it was told; NULL: never.
    bool (*failed)(int index);
} nd_backend;

#endif
