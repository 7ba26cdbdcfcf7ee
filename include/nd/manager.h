/// @file
/// Managers group, account for and bound objects without owning them.
///
/// The tree: one root per process; nd_manager_new() adds children. Parent -> child and manager ->
/// object are weak, child -> parent is strong. A manager therefore never keeps an object alive, and
/// closing one frees exactly what nobody holds.
///
/// Where an argument must not be NULL and is, the error is that of <nd/error.h>: the one the thread
/// has already, else ND_ERROR_INVALID_ARGUMENT. The documentation below does not repeat it.
#ifndef ND_MANAGER_H
#define ND_MANAGER_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

// -------------------------------------------------------------------------------------------- tree

/// The root manager, to which every other one leads. It never closes.
///
/// @return borrowed, valid always
/// @errors none
/// @threads any
ND_API const nd_manager *nd_manager_get_root(void);

/// New open manager.
///
/// @param parent the manager it goes below, and keeps alive; NULL: the current one of this thread
/// @param name for reports and errors; copied, cut behind the last character that fits into 63 bytes.
///             NULL: ""
/// @return owned; releasing the last handle of an open manager closes it. NULL on error
/// @errors ND_ERROR_CLOSED (the parent is), ND_ERROR_OUT_OF_MEMORY
/// @threads any
ND_API nd_manager *nd_manager_new(const nd_manager *parent, const char *name) ND_OWNED;

/// Manager where new objects of this thread go: that of the innermost nd_with_manager() block, else
/// the root.
///
/// @return borrowed: valid until the block is left
/// @errors none
/// @threads any; each has its own
ND_API const nd_manager *nd_manager_get_current(void);

/// Manager an object is attached to.
///
/// @param object any object; NULL is fine
/// @return borrowed: valid until that manager closes, which only a program that closes it itself
///         can know; else ask nd_get_manager_retained(). NULL for NULL and for a manager
/// @errors none
/// @threads any; another thread may move the object before this returns
ND_API const nd_manager *nd_get_manager(const void *object);

/// The same as a handle of one's own, which stays valid whoever closes or releases that manager.
///
/// @param object any object; NULL is fine
/// @return owned. A manager of which all other handles are gone is about to close: then the one
///         above, where the object goes. NULL for NULL and for a manager
/// @errors none
/// @threads any; another thread may move the object, or close the manager, before this returns
ND_API nd_manager *nd_get_manager_retained(const void *object) ND_OWNED;

/// The manager above.
///
/// @param manager the manager; NULL is fine
/// @return borrowed: valid while `manager` is. NULL for the root and for NULL
/// @errors none
/// @threads any
ND_API const nd_manager *nd_manager_get_parent(const nd_manager *manager);

/// The name a manager was given.
///
/// @param manager the manager; NULL is fine
/// @return borrowed: valid while `manager` is. "" for NULL
/// @errors none
/// @threads any
ND_API const char *nd_manager_get_name(const nd_manager *manager);

/// Whether a manager still takes objects.
///
/// @param manager the manager; NULL is fine
/// @return false once it is closing, and for NULL
/// @errors none
/// @threads any; another thread may close it before this returns
ND_API bool nd_manager_is_open(const nd_manager *manager);

/// nd_with_manager(m) { ... }: new objects made in the block, results of operations included, go to
/// m, which the block holds. `break` and `return` leave the block correctly.
///
/// @param m the manager. NULL or closed: placement stays as it was, and the error is set
/// @errors ND_ERROR_CLOSED; the block runs nevertheless
/// @threads any; it is the placement of this thread that changes
#define nd_with_manager(m) \
    ND__FOR_BLOCK(nd_manager_block, nd__manager_block_begin(m), nd__manager_block_end)

/// What nd_with_manager() keeps. Not for users to touch.
typedef struct nd_manager_block {
    bool once;                  ///< whether the block is still to run
    bool pushed;                ///< whether it changed the placement
    const nd_manager *previous; ///< placement outside
} nd_manager_block;
ND_API nd_manager_block nd__manager_block_begin(const nd_manager *manager);
ND_API void nd__manager_block_end(nd_manager_block *block);

// --------------------------------------------------------------------------------------- placement

/// Moves an object to another manager, and with a tensor its storage when that lives where the
/// tensor does. Transactional: on error all is where it was.
///
/// @param manager where to
/// @param object any object but a manager; stays the caller's
/// @return ND_OK, or the error
/// @errors ND_ERROR_CLOSED (the manager is), ND_ERROR_QUOTA (its cap, or a byte quota on its path),
///         ND_ERROR_INVALID_ARGUMENT (a manager), ND_ERROR_STATE (the object is being destroyed)
/// @threads any
ND_API nd_status nd_manager_attach(const nd_manager *manager, const void *object);

/// Moves an object to another manager for as long as that is open, and with a tensor its storage,
/// as nd_manager_attach() does.
///
/// When it closes, the object returns to the nearest still-open manager in its chain of origins,
/// else to the nearest open ancestor of its first origin. Neither cap nor quota refuses it, here or
/// on the way back. Lent to a manager of that chain, it goes back there: the chain ends before that
/// manager, and lent to the first one the object is at home again. So it does not matter how often
/// an object goes to and fro.
///
/// @param manager where to
/// @param object any object but a manager; stays the caller's
/// @return ND_OK, or the error; then all is where it was
/// @errors ND_ERROR_CLOSED (the manager is), ND_ERROR_OUT_OF_MEMORY, ND_ERROR_INVALID_ARGUMENT (a
///         manager), ND_ERROR_STATE (the object is being destroyed)
/// @threads any
ND_API nd_status nd_manager_lend(const nd_manager *manager, const void *object);

// ------------------------------------------------------------------------------------------- close

/// What closing a manager did. Bytes are those of storages, resources and small tensors (see
/// nd_manager_stats), all device kinds together. Begin with ND_CLOSE_REPORT_INIT.
typedef struct nd_close_report {
    uint32_t size;              ///< sizeof(nd_close_report)
    uint32_t version;           ///< 1
    uint64_t freed_objects;     ///< freed by counts during the manager's life
    uint64_t freed_bytes;       ///< bytes of those
    uint64_t collected_objects; ///< freed by the collector at this close
    uint64_t collected_bytes;   ///< bytes of those
    uint64_t escaped_objects;   ///< held by somebody: moved to the nearest open ancestor
    uint64_t escaped_bytes;     ///< bytes of those
    uint64_t returned_objects;  ///< lent objects that went back; a tensor with its storage: one
    uint64_t gate_closed_ns;    ///< how long the collector's gate was closed
    /// With tracking on: the most frequent creation sites of what escaped, "file:line (count)"; of a
    /// file that is too long the end, behind "...".
    char escaped_sites[4][96];
    /// Objects that the collector could not decide on (nd_gc_report.postponed_objects): they
    /// escaped, and are examined again later.
    uint64_t postponed_objects;
} nd_close_report;

/// Closes a manager: no new attachments, then its children, then the collector where it is on, then
/// what somebody still holds moves to the nearest open ancestor.
///
/// Any order of closing is fine. A second close does nothing and reports zeros; so does one beside
/// a close that another thread has begun, without waiting for it. While the thread captures a graph
/// (<nd/graph.h>) the collector's part is left to the end of that, so that dead cycles move up
/// first, as escaped ones.
///
/// @param manager the manager; its handle must still be released
/// @param ret_report what happened, begun with ND_CLOSE_REPORT_INIT; NULL: not asked
/// @return ND_OK, or the error; then it is still open
/// @errors ND_ERROR_INVALID_ARGUMENT (the root, a report without size or version)
/// @threads any; finalizers, destructors and weak callbacks of what dies run here
ND_API nd_status nd_manager_close(nd_manager *manager, nd_close_report *ret_report);

/// What an nd_close_report must begin as.
#define ND_CLOSE_REPORT_INIT ND__SIZED(nd_close_report)

/// Closes by force: every object attached to the manager and those below it (nd_close()), then the
/// manager. Handles that somebody holds stay valid memory. Objects of managers below move to this
/// manager before they are closed, past its cap; where a guest is, they are closed in their place.
///
/// @param manager the manager; its handle must still be released
/// @param ret_report as for nd_manager_close()
/// @return ND_OK, or the error; then it is still open, and some of its objects may be closed, or
///         have moved to it from below
/// @errors ND_ERROR_INVALID_ARGUMENT (the root, a report without size or version),
///         ND_ERROR_OUT_OF_MEMORY
/// @threads any, but not at the same time as operations on its objects
ND_API nd_status nd_manager_dispose(nd_manager *manager, nd_close_report *ret_report);

// ------------------------------------------------------------------------------------------ bounds

/// Bounds the number of objects attached to a manager itself, those below it not counted.
/// Objects lent to it (nd_manager_lend) and those that come back are exempt; a tensor counts once,
/// its storage not at all.
///
/// @param manager the manager
/// @param objects at most as many; 0: no cap. Fewer than are there now: no further ones
/// @return ND_OK, or the error
/// @errors none but those of a NULL
/// @threads any
ND_API nd_status nd_manager_set_cap(nd_manager *manager, uint64_t objects);

/// Bounds the bytes of one device kind below a manager, its children included. A request over it
/// collects first, where the collector is on, then fails with ND_ERROR_QUOTA and changes nothing.
///
/// @param manager the manager
/// @param kind CPU or CUDA
/// @param bytes at most as many; 0: no quota. Fewer than are there now: no further ones
/// @return ND_OK, or the error
/// @errors ND_ERROR_INVALID_ARGUMENT (no such kind)
/// @threads any
ND_API nd_status nd_manager_set_quota(nd_manager *manager, nd_device_kind kind, uint64_t bytes);

// -------------------------------------------------------------------------------------- statistics

/// Statistics of one manager. Begin with ND_MANAGER_STATS_INIT.
/// Objects are tensors and their storages, among others: a tensor is two, but for a small one on
/// the host (256 bytes of data or less), which carries its data and is one object until the first
/// view of it makes its storage.
/// Invariant: created + arrived = freed + collected + departed + live.
typedef struct nd_manager_stats {
    uint32_t size;              ///< sizeof(nd_manager_stats)
    uint32_t version;           ///< 1
    uint64_t live_objects;      ///< attached here now, not counting children
    uint64_t tracked_objects;   ///< of those: what the collector examines
    uint64_t created_objects;   ///< first attached here
    uint64_t arrived_objects;   ///< moved here from another manager
    uint64_t departed_objects;  ///< moved away: attached elsewhere, returned, escaped
    uint64_t freed_objects;     ///< died by count
    uint64_t collected_objects; ///< died by the collector
    uint64_t escaped_objects;   ///< of departed: those that outlived a close of this manager
    uint64_t live_bytes[ND_MAX_DEVICE_KINDS];    ///< own bytes, each storage once
    uint64_t subtree_bytes[ND_MAX_DEVICE_KINDS]; ///< with children
    /// Largest subtree_bytes so far. Where several threads charge at once, up to 32 KiB of what
    /// each has charged last may have gone unnoticed; never less than subtree_bytes.
    uint64_t peak_bytes[ND_MAX_DEVICE_KINDS];
    uint64_t quota_bytes[ND_MAX_DEVICE_KINDS]; ///< bound of subtree_bytes; 0: none
    uint64_t cap_objects;                      ///< bound of live_objects; 0: none
} nd_manager_stats;

/// What an nd_manager_stats must begin as.
#define ND_MANAGER_STATS_INIT ND__SIZED(nd_manager_stats)

/// Reads the statistics of one manager, whatever it holds: nothing is walked.
///
/// @param manager the manager; NULL: the root
/// @param ret_stats begun with ND_MANAGER_STATS_INIT
/// @return ND_OK, or the error; then nothing is written
/// @errors ND_ERROR_INVALID_ARGUMENT (NULL, or without size or version)
/// @threads any
ND_API nd_status nd_manager_get_stats(const nd_manager *manager, nd_manager_stats *ret_stats);

/// Live objects of a manager and everything below it, summed over the managers, not over the
/// objects.
///
/// @param manager the manager; NULL: the root
/// @return the number; UINT64_MAX on error
/// @errors ND_ERROR_OUT_OF_MEMORY (to list the managers)
/// @threads any; beside others that create and release, the sum is not of one moment
ND_API uint64_t nd_manager_get_total_objects(const nd_manager *manager);

/// Live bytes of a manager and everything below it, all device kinds together.
///
/// @param manager the manager; NULL: the root
/// @return bytes of storages, resources and what small tensors carry, each once
/// @errors none
/// @threads any
ND_API uint64_t nd_manager_get_total_bytes(const nd_manager *manager);

#ifdef __cplusplus
}
#endif
#endif
