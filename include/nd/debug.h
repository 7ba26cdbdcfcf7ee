// Questions to a running program: what is alive, where, since when, made at which line, who holds it.
//
// Everything here is off until it is called, and costs nothing then; a trace costs one branch where
// objects are made and die while it is off. All functions may be called from any thread, beside
// running ones, but not from `traverse`, `clear` or `describe` of a type. Those that look at edges
// (holders, JSON, DOT, snapshots) close the collector's gate for as long as copying every object
// takes, about 0.1 us each: retain and release of other threads go on meanwhile, writers of
// edges wait. Counts therefore may change while edges are read; on an idle program they are exact.
#ifndef ND_DEBUG_H
#define ND_DEBUG_H
#include <nd/base.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// --------------------------------------------------------------------------------------------- dump

/// Writes the tree below m to `stream`: name, counts, bytes and the oldest objects of each manager
/// with type, name, count, bytes and creation site. NULL m: the root. Errors: stream NULL,
/// ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO.
ND_API nd_status nd_debug_dump(const nd_manager *manager, FILE *stream);

/// Writes the objects below m (NULL: the root), their edges and the managers as one JSON object:
/// `managers` [{id, name, parent, bytes}], `objects` [{id, type, name, manager, count, handles,
/// tracked, closed, bytes, file, line}], `edges` [{from, to, label}]. `handles` is the count minus the
/// edges found; below a manager other than the root, edges from elsewhere are among the handles. At
/// most `limit` objects (0: all), the oldest of each manager first, and the edges between those.
/// Errors as nd_debug_dump.
ND_API nd_status nd_debug_dump_json(const nd_manager *manager, FILE *stream, uint64_t limit);

/// The same as a graph for graphviz (`dot -Tsvg`): managers are clusters; filled: held by the
/// program; grey: cannot be part of a cycle; double frame: closed.
ND_API nd_status nd_debug_dump_dot(const nd_manager *manager, FILE *stream, uint64_t limit);

/// Writes every live object below m (at most `limit`; 0: all), grouped by creation site where
/// known. Returns how many objects are alive. With ND_LEAK_CHECK=1 in the environment it runs at
/// exit, for the root, to stderr.
ND_API uint64_t nd_debug_report_leaks(const nd_manager *manager, FILE *stream, uint64_t limit);

/// Walks every invariant that can be checked (list links, counters, accounts). ND_OK, or
/// ND_ERROR_STATE with what broke.
ND_API nd_status nd_debug_check(void);

// ------------------------------------------------------------------------------------------ holders

/// Why an object is alive.
typedef struct nd_holders {
    uint32_t size;
    uint32_t version;
    uint64_t count;       ///< strong count
    uint64_t edges;       ///< of them: held by other objects, as far as their `traverse` says
    uint64_t handles;     ///< the rest: variables, scopes, and what no `traverse` reports
    uint64_t held_edges;  ///< of the edges: from what the program reaches without this object
    uint64_t cycle_edges; ///< of the edges: from what only a cycle keeps alive
} nd_holders;
#define ND_HOLDERS_INIT \
    { .size = sizeof(nd_holders), .version = 1 }

/// Writes who holds x to `stream`: its count, split into handles of the program and edges; for each
/// edge (at most 16) the shortest path to it from something the program holds, or the cycle that it
/// closes; creation sites where known. Looks at all objects of the process. x is borrowed and must be
/// held by the caller. Not seen: objects that are in no manager's list because they are being
/// destroyed, and references that a type keeps but does not report; both count as handles. Errors: x
/// or stream NULL, ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO, and ND_ERROR_STATE when x is being destroyed
/// or another thread moves it to another manager meanwhile (try again).
ND_API nd_status nd_debug_holders(const void *object, FILE *stream);
/// The same as numbers, with the text when `stream` is not NULL. `ret_holders` may be NULL; set its
/// size and version with ND_HOLDERS_INIT.
ND_API nd_status nd_debug_get_holders(const void *object, FILE *stream, nd_holders *ret_holders);

// ---------------------------------------------------------------------------------------- snapshots

/// What was alive below a manager at one moment. Keeps no object alive.
typedef struct nd_snapshot nd_snapshot;

/// Snapshot of everything below m (NULL: the root). Not counted; ends with nd_snapshot_free. NULL
/// with ND_ERROR_OUT_OF_MEMORY.
ND_API nd_snapshot *nd_snapshot_new(const nd_manager *manager);
/// NULL is fine.
ND_API void nd_snapshot_free(nd_snapshot *snapshot);

/// What came and what went from one snapshot to another. An object that died and left its address
/// to another of the same type and creation site counts as one that stayed: `came - went` is exact,
/// each of them at least what is said.
typedef struct nd_difference {
    uint32_t size;
    uint32_t version;
    uint64_t came_objects, came_bytes;
    uint64_t went_objects, went_bytes;
} nd_difference;
#define ND_DIFFERENCE_INIT \
    { .size = sizeof(nd_difference), .version = 1 }

/// Compares two snapshots. Writes to `stream` (may be NULL) one row per type and creation site that
/// changed, the largest growth first, at most `limit` rows (0: all). `ret_difference` may be NULL;
/// set its size and version with ND_DIFFERENCE_INIT. Errors: a snapshot is NULL,
/// ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO; then nothing is returned.
ND_API nd_status nd_snapshot_difference(const nd_snapshot *before, const nd_snapshot *after,
                                        FILE *stream, uint64_t limit,
                                        nd_difference *ret_difference);

/// A piece of code that must leave nothing behind.
typedef struct nd_balance nd_balance;

/// Begins to watch what is alive below m (NULL: the root), which it holds meanwhile. `file` has
/// static storage. Not counted; ends with nd_balance_end. NULL with ND_ERROR_OUT_OF_MEMORY.
ND_API nd_balance *nd_balance_begin(const nd_manager *manager, const char *file, int line);

/// Compares and ends it, whatever the answer (but for a `ret_difference` of another version). ND_OK
/// when no type and creation site has more objects or bytes alive than at the beginning; else
/// ND_ERROR_STATE with a sentence that says how much more and names the largest, and a listing to
/// `stream` (may be NULL). What other threads make below m meanwhile counts too.
ND_API nd_status nd_balance_end(nd_balance *balance, FILE *stream, nd_difference *ret_difference);

/// nd_expect_balanced(m) { ... }: what the block leaves behind below m is listed on stderr and sets
/// the thread's error. `break` and `return` leave the block correctly.
#define nd_expect_balanced(m)                                                           \
    for (nd_balance_block nd_balance_ __attribute__((cleanup(nd__balance_block_end))) = \
             nd__balance_block_begin(m, __FILE__, __LINE__);                            \
         nd_balance_.once; nd_balance_.once = false)
typedef struct nd_balance_block {
    bool once;
    nd_balance *balance;
} nd_balance_block;
ND_API nd_balance_block nd__balance_block_begin(const nd_manager *manager, const char *file,
                                                int line);
ND_API void nd__balance_block_end(nd_balance_block *block);

// -------------------------------------------------------------------------------------------- trace

/// Begins to write every birth and death of an object, every collection and every close of a
/// manager to a file in the JSON format of chrome://tracing and ui.perfetto.dev, with a curve of live
/// bytes per device kind. One trace at a time. A normal end of the program ends it; ND_TRACE=file in
/// the environment begins one when the library is loaded. Errors: ND_ERROR_STATE while one is being
/// written, ND_ERROR_IO. A child of fork() does not go on with its parent's trace.
ND_API nd_status nd_trace_begin(const char *path);
/// Ends it and closes the file. Errors: ND_ERROR_STATE when there is none, ND_ERROR_IO when the file
/// is not whole.
ND_API nd_status nd_trace_end(void);

// ------------------------------------------------------------------------------------------ history

/// The retains and releases of one object. Keeps it not alive, and outlives it.
typedef struct nd_watch nd_watch;

/// Begins to keep the history of x: each retain, release and weak upgrade with time, thread, the
/// count it led to and the calls that led there; the latest 256. Other objects pay nothing, a
/// watched one some microseconds each time. It ends by itself when x dies; nd_watch_end frees the
/// history. x is borrowed. NULL with an error: x NULL or watched already, ND_ERROR_OUT_OF_MEMORY.
ND_API nd_watch *nd_debug_watch(const void *object);
/// Writes the history so far, oldest first. Functions are named as far as the program exports them
/// (-rdynamic), else by module and offset, which addr2line understands. Errors: NULL arguments,
/// ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO.
ND_API nd_status nd_watch_write(const nd_watch *watch, FILE *stream);
/// Ends the watch and frees the history; not beside nd_watch_write of the same one. NULL is fine.
ND_API void nd_watch_end(nd_watch *watch);

// ------------------------------------------------------------------------------------ creation sites

/// Creation sites. They are recorded by calls in translation units compiled with ND_TRACK_SITES
/// (Bazel: --//bazel:track_sites=on for everything), while this switch is on (it is by default).
ND_API void nd_debug_track_sites(bool on);
/// Creation site of x as "file:line", copied into `buffer`; empty when unknown. Returns `buffer`.
ND_API const char *nd_debug_site(const void *object, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
