/// @file
/// Questions to a running program: what is alive, where, since when, made at which line, who holds
/// it.
///
/// Everything here is off until it is called, and costs nothing then; a trace costs one branch
/// where objects are made and die while it is off. All functions may be called from any thread,
/// beside running ones, but not from `traverse`, `clear` or `describe` of a type. Those that look
/// at edges (holders, JSON, DOT, snapshots) close the collector's gate for as long as copying every
/// object takes, about 0.1 us each: retain and release of other threads go on meanwhile, writers of
/// edges wait. Counts therefore may change while edges are read; on an idle program they are exact.
///
/// Where an argument must not be NULL and is, the error is that of <nd/error.h>: the one the thread
/// has already, else ND_ERROR_INVALID_ARGUMENT. The documentation below does not repeat it.
#ifndef ND_DEBUG_H
#define ND_DEBUG_H
#include <nd/base.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// -------------------------------------------------------------------------------------------- dump

/// Writes a tree of managers: name, counts and bytes of each, and with type, name, count, bytes and
/// creation site its five oldest objects that have edges, and the five oldest others. What is not
/// printable in names becomes its number in hexadecimal.
///
/// @param manager the top; NULL: the root
/// @param stream written to in one piece
/// @return ND_OK, or the error
/// @errors ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO
/// @threads any, not from `traverse`, `clear` or `describe`; other threads go on, and what they
///          change meanwhile may be half in the text
ND_API nd_status nd_debug_dump(const nd_manager *manager, FILE *stream);

/// Writes objects, their edges and their managers as one JSON object.
///
/// `format`, `version`, `objects_alive`; `managers`: [{id, name, parent, bytes}]; `objects`: [{id,
/// type, name, manager, count, handles, tracked, closed, bytes, file, line}]; `edges`: [{from, to,
/// label}]. What an object has not (name, bytes, file and line), and the top's parent, is left out.
/// `handles` is the count minus the edges found; below a manager other than the root, edges from
/// elsewhere are among the handles.
///
/// @param manager the top; NULL: the root
/// @param stream written to in one piece
/// @param limit at most as many objects (0: all) and the edges between those: manager by manager,
///        what has edges (tracked) first, then the others, each the oldest first
/// @return ND_OK, or the error
/// @errors ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO
/// @threads any, not from `traverse`, `clear` or `describe`; closes the gate
ND_API nd_status nd_debug_dump_json(const nd_manager *manager, FILE *stream, uint64_t limit);

/// Writes the same as a graph for graphviz (`dot -Tsvg`): managers are clusters; filled: held by
/// the program; grey: cannot be part of a cycle; double frame: closed.
///
/// @param manager the top; NULL: the root
/// @param stream written to in one piece
/// @param limit as for nd_debug_dump_json()
/// @return ND_OK, or the error
/// @errors ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO
/// @threads any, not from `traverse`, `clear` or `describe`; closes the gate
ND_API nd_status nd_debug_dump_dot(const nd_manager *manager, FILE *stream, uint64_t limit);

/// Writes which managers nobody has closed, by name and creation site, and what is alive, grouped
/// by type and creation site, the most bytes first. With ND_LEAK_CHECK=1 in the environment it runs
/// at exit, for the root, to stderr.
///
/// @param manager the top, which is not among the managers; NULL: the root
/// @param stream written to when anything is open or alive; NULL: only the number
/// @param limit at most as many groups of each; 0: all
/// @return how many objects are alive, managers not counted; UINT64_MAX without memory to list them
/// @errors ND_ERROR_OUT_OF_MEMORY with UINT64_MAX
/// @threads any, not from `traverse`, `clear` or `describe`
ND_API uint64_t nd_debug_report_leaks(const nd_manager *manager, FILE *stream, uint64_t limit);

/// Walks every invariant that can be checked: links of lists, counters, accounts.
///
/// @return ND_OK, or the error, whose message says what broke
/// @errors ND_ERROR_STATE, ND_ERROR_OUT_OF_MEMORY
/// @threads any; exact only while no other thread creates, moves or releases
ND_API nd_status nd_debug_check(void);

// ----------------------------------------------------------------------------------------- holders

/// Why an object is alive. Begin with ND_HOLDERS_INIT.
typedef struct nd_holders {
    uint32_t size;        ///< sizeof(nd_holders)
    uint32_t version;     ///< 1
    uint64_t count;       ///< strong count
    uint64_t edges;       ///< of them: held by other objects, as far as their `traverse` says
    uint64_t handles;     ///< the rest: variables, scopes, and what no `traverse` reports
    uint64_t held_edges;  ///< of the edges: from what the program reaches without this object
    uint64_t cycle_edges; ///< of the edges: from what only a cycle keeps alive
} nd_holders;
/// What an nd_holders must begin as.
#define ND_HOLDERS_INIT ND__SIZED(nd_holders)

/// Writes who holds an object: its count, split into handles of the program and edges; for each
/// edge (at most 16) the shortest path to it from something the program holds, or the cycle that it
/// closes; creation sites where known.
///
/// Looks at all objects of the process. Not seen: objects that are in no manager's list because
/// they are being destroyed, garbage that a collection has found, and references that a type keeps
/// but does not report; all count as handles.
///
/// @param object borrowed, and held by the caller meanwhile
/// @param stream written to in one piece
/// @return ND_OK, or the error
/// @errors ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO, ND_ERROR_STATE (the object is being destroyed, or
///         another thread is moving it to another manager: try again)
/// @threads any, not from `traverse`, `clear` or `describe`; closes the gate
ND_API nd_status nd_debug_holders(const void *object, FILE *stream);

/// nd_debug_holders() as numbers, with or without the text.
///
/// @param object borrowed, and held by the caller meanwhile
/// @param stream written to in one piece; NULL: no text
/// @param ret_holders begun with ND_HOLDERS_INIT; NULL: not asked
/// @return ND_OK, or the error; then nothing is returned
/// @errors those of nd_debug_holders(), ND_ERROR_INVALID_ARGUMENT (a result without size or
///         version)
/// @threads any, not from `traverse`, `clear` or `describe`; closes the gate
ND_API nd_status nd_debug_get_holders(const void *object, FILE *stream, nd_holders *ret_holders);

// --------------------------------------------------------------------------------------- snapshots

/// What was alive below a manager at one moment. Keeps no object alive.
typedef struct nd_snapshot nd_snapshot;

/// Takes a snapshot of everything below a manager.
///
/// @param manager the top; NULL: the root
/// @return not counted: it ends with nd_snapshot_free(). NULL on error
/// @errors ND_ERROR_OUT_OF_MEMORY
/// @threads any, not from `traverse`, `clear` or `describe`; closes the gate
ND_API nd_snapshot *nd_snapshot_new(const nd_manager *manager);

/// Frees a snapshot.
///
/// @param snapshot the snapshot; NULL is fine
/// @errors none
/// @threads any, not beside a use of the same one
ND_API void nd_snapshot_free(nd_snapshot *snapshot);

/// What came and what went from one snapshot to another. An object that died and left its address
/// to another of the same type and creation site counts as one that stayed: `came - went` is exact,
/// each of them at least what is said. Begin with ND_DIFFERENCE_INIT.
typedef struct nd_difference {
    uint32_t size;         ///< sizeof(nd_difference)
    uint32_t version;      ///< 1
    uint64_t came_objects; ///< alive in the second only
    uint64_t came_bytes;   ///< bytes of those
    uint64_t went_objects; ///< alive in the first only
    uint64_t went_bytes;   ///< bytes of those
} nd_difference;

/// What an nd_difference must begin as.
#define ND_DIFFERENCE_INIT ND__SIZED(nd_difference)

/// Compares two snapshots.
///
/// @param before the earlier one
/// @param after the later one
/// @param stream gets one row per type and creation site that changed, the largest growth first;
///        NULL: no text
/// @param limit at most as many rows; 0: all
/// @param ret_difference begun with ND_DIFFERENCE_INIT; NULL: not asked
/// @return ND_OK, or the error; then nothing is returned
/// @errors ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO, ND_ERROR_INVALID_ARGUMENT (a result without size or
///         version)
/// @threads any
ND_API nd_status nd_snapshot_difference(const nd_snapshot *before, const nd_snapshot *after,
                                        FILE *stream, uint64_t limit,
                                        nd_difference *ret_difference);

/// A piece of code that must leave nothing behind.
typedef struct nd_balance nd_balance;

/// Begins to watch what is alive below a manager. Use nd_expect_balanced(), which ends it, too.
///
/// @param manager the top, held meanwhile; NULL: the root
/// @param file of the code that is watched, for the report; static storage
/// @param line of it
/// @return not counted: it ends with nd_balance_end(). NULL on error
/// @errors ND_ERROR_OUT_OF_MEMORY
/// @threads any, not from `traverse`, `clear` or `describe`; closes the gate
ND_API nd_balance *nd_balance_begin(const nd_manager *manager, const char *file, int line);

/// Compares with what was alive at the beginning.
///
/// @param balance is gone afterwards, whatever the answer, but for a `ret_difference` without size
///        or version
/// @param stream gets a listing when something was left; NULL: no text
/// @param ret_difference begun with ND_DIFFERENCE_INIT; NULL: not asked
/// @return ND_OK when no type and creation site has more objects or bytes alive than before
/// @errors ND_ERROR_STATE (something was left: how much more, and the largest),
///         ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO, ND_ERROR_INVALID_ARGUMENT (a result without size or
///         version)
/// @threads any, not from `traverse`, `clear` or `describe`; closes the gate. What other threads
///          make below the manager meanwhile counts too
ND_API nd_status nd_balance_end(nd_balance *balance, FILE *stream, nd_difference *ret_difference);

/// nd_expect_balanced(m) { ... }: what the block leaves behind below m is listed on stderr and sets
/// the thread's error. `break` and `return` leave the block correctly. The storage that a small
/// tensor of before gets with its first view in the block counts.
///
/// @param m the top; NULL: the root
/// @errors those of nd_balance_begin() and nd_balance_end(); the block runs in any case
/// @threads any, not from `traverse`, `clear` or `describe`; closes the gate
#define nd_expect_balanced(m)                                                       \
    ND__FOR_BLOCK(nd_balance_block, nd__balance_block_begin(m, __FILE__, __LINE__), \
                  nd__balance_block_end)

/// What nd_expect_balanced() keeps. Not for users to touch.
typedef struct nd_balance_block {
    bool once;           ///< whether the block is still to run
    nd_balance *balance; ///< NULL when there was no memory for it
} nd_balance_block;
ND_API nd_balance_block nd__balance_block_begin(const nd_manager *manager, const char *file,
                                                int line);
ND_API void nd__balance_block_end(nd_balance_block *block);

// ------------------------------------------------------------------------------------------- trace

/// Begins to write every birth and death of an object, every collection and every close of a
/// manager to a file in the JSON format of chrome://tracing and ui.perfetto.dev, with a curve of
/// live bytes per device kind.
///
/// One trace at a time. A normal end of the program ends it; ND_TRACE=file in the environment
/// begins one when the library is loaded (not in a setuid program, where no variable of the
/// environment is read). A child of fork() does not go on with its parent's trace.
///
/// @param path the file, which is written anew; neither a symbolic link nor a file with several
///        names. A terminal or a named pipe that is being read is written as it is, /dev/stdout,
///        /dev/stderr and /dev/fd/N from where they stand
/// @return ND_OK, or the error
/// @errors ND_ERROR_STATE (one is being written), ND_ERROR_IO
/// @threads any; what all threads do is written
ND_API nd_status nd_trace_begin(const char *path);

/// Ends the trace and closes its file.
///
/// @return ND_OK, or the error
/// @errors ND_ERROR_STATE (there is none), ND_ERROR_IO (the file is not whole)
/// @threads any
ND_API nd_status nd_trace_end(void);

// ----------------------------------------------------------------------------------------- history

/// The retains and releases of one object. Keeps it not alive, and outlives it.
typedef struct nd_watch nd_watch;

/// Begins to keep the history of an object: each retain, release and weak upgrade with time,
/// thread, the count it led to and the calls that led there; the latest 256.
///
/// Other objects pay nothing, a watched one some microseconds each time. It ends by itself when the
/// object dies; the history stays until nd_watch_end().
///
/// @param object borrowed, not held
/// @return not counted: it is freed by nd_watch_end(). NULL on error
/// @errors ND_ERROR_STATE (it is being watched already), ND_ERROR_OUT_OF_MEMORY
/// @threads any
ND_API nd_watch *nd_debug_watch(const void *object);

/// Writes the history so far, oldest first. Functions are named as far as the program exports them
/// (-rdynamic), else by module and offset, which addr2line understands.
///
/// @param watch the watch
/// @param stream written to in one piece
/// @return ND_OK, or the error
/// @errors ND_ERROR_OUT_OF_MEMORY, ND_ERROR_IO
/// @threads any, beside retains and releases of the object
ND_API nd_status nd_watch_write(const nd_watch *watch, FILE *stream);

/// Ends a watch and frees its history.
///
/// @param watch the watch; NULL is fine
/// @errors none
/// @threads any, not beside nd_watch_write() of the same one
ND_API void nd_watch_end(nd_watch *watch);

// ---------------------------------------------------------------------------------- creation sites

/// Switches the recording of creation sites. They are recorded by calls in translation units
/// compiled with ND_TRACK_SITES (Bazel: --//bazel:track_sites=on for everything), while this switch
/// is on, as it is at first.
///
/// @param on whether objects made from now on remember their site; others keep what they have
/// @errors none
/// @threads any, for all threads at once; not while others make objects
ND_API void nd_debug_track_sites(bool on);

/// Creation site of an object as "file:line".
///
/// @param object any object; NULL is fine
/// @param buffer written and terminated; the text is cut to fit
/// @param size bytes of `buffer`
/// @return `buffer`, empty when the site is unknown; "" when there is no buffer
/// @errors none
/// @threads any
ND_API const char *nd_debug_get_site(const void *object, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
