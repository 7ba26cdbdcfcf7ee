// Managers group, account for and bound objects without owning them.
//
// The tree: one root per process; nd_manager_new() adds children. Parent -> child and manager ->
// object are weak, child -> parent is strong. A manager therefore never keeps an object alive, and
// closing one frees exactly what nobody holds.
#ifndef ND_MANAGER_H
#define ND_MANAGER_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

/// The root manager. Immortal; borrowed. Closing it answers an error.
ND_API const nd_manager *nd_manager_root(void);

/// New open manager under `parent` (NULL: the current manager of this thread). `name` is copied.
/// Owned; releasing the last handle of an open manager closes it. Error: parent closed.
ND_API nd_manager *nd_manager_new(const nd_manager *parent, const char *name) ND_OWNED;

/// Manager where new objects of this thread go: innermost nd_with_manager block, else the root.
/// Borrowed.
ND_API const nd_manager *nd_manager_current(void);

/// Manager of x; NULL for NULL. Borrowed: valid until it is closed.
ND_API const nd_manager *nd_manager_of(const void *object);

ND_API const nd_manager *nd_manager_parent(const nd_manager *manager);
ND_API const char *nd_manager_name(const nd_manager *manager);
ND_API bool nd_manager_is_open(const nd_manager *manager);

/// nd_with_manager(m) { ... }: new objects made in the block, results of operations included, go to
/// m. `break` and `return` leave the block correctly. A NULL or closed m leaves placement as it was
/// and sets the error.
#define nd_with_manager(m)                                                             \
    for (nd_manager_block nd_block_                                                    \
         __attribute__((cleanup(nd__manager_block_end))) = nd__manager_block_begin(m); \
         nd_block_.once; nd_block_.once = false)
typedef struct nd_manager_block {
    bool once;
    bool pushed;
    const nd_manager *previous;
} nd_manager_block;
ND_API nd_manager_block nd__manager_block_begin(const nd_manager *manager);
ND_API void nd__manager_block_end(nd_manager_block *block);

/// Moves x (and, for a tensor, its storage when that lives in the same manager) to m.
/// Transactional: on error x stays where it was. Errors: m closed, cap or quota reached.
ND_API nd_status nd_attach(const nd_manager *manager, const void *object);

/// As nd_attach, but remembers where x came from: when m closes, x returns to the nearest
/// still-open manager in its chain of origins, else to the nearest open ancestor of its first
/// origin. Exempt from m's cap.
ND_API nd_status nd_temp_attach(const nd_manager *manager, const void *object);

/// What closing a manager did. Objects and bytes (of storages and resources), all device kinds
/// together.
typedef struct nd_close_report {
    uint32_t size;
    uint32_t version;
    uint64_t freed_objects; ///< freed by counts during the manager's life
    uint64_t freed_bytes;
    uint64_t collected_objects; ///< freed by the collector at this close
    uint64_t collected_bytes;
    uint64_t escaped_objects; ///< still held by somebody: moved to the nearest open ancestor
    uint64_t escaped_bytes;
    uint64_t returned_objects; ///< temp-attached objects that went back
    uint64_t gate_closed_ns;   ///< how long the collector's gate was closed
    char escaped_sites[4][96]; ///< with tracking on: the most frequent creation sites, "file:line
                               ///< (count)"
} nd_close_report;

/// Closes m: no new attachments, children first, collector when on for m, survivors move to the
/// nearest open ancestor. Idempotent (a second close reports zeros); any order; any thread.
/// `ret_report` may be NULL; set its size and version with ND_CLOSE_REPORT_INIT. The handle must
/// still be released.
ND_API nd_status nd_manager_close(nd_manager *manager, nd_close_report *ret_report);
#define ND_CLOSE_REPORT_INIT \
    { .size = sizeof(nd_close_report), .version = 1 }

/// Closes every object attached to m and its children by force (nd_close), then m. Held handles
/// stay valid memory.
ND_API nd_status nd_manager_dispose(nd_manager *manager, nd_close_report *ret_report);

/// At most `objects` attached objects; 0: no cap. Temp-attach and returns are exempt.
ND_API nd_status nd_manager_set_cap(nd_manager *manager, uint64_t objects);

/// Hard limit on the bytes of one device kind under m and its children; 0: none. A request over it
/// collects first, then fails with ND_ERROR_QUOTA and changes nothing.
ND_API nd_status nd_manager_set_quota(nd_manager *manager, nd_device_kind kind, uint64_t bytes);

/// Statistics of one manager; set size and version with ND_MANAGER_STATS_INIT. O(1).
/// Invariant: created + arrived = freed + collected + departed + live.
typedef struct nd_manager_stats {
    uint32_t size;
    uint32_t version;
    uint64_t live_objects; ///< attached here now, not counting children
    uint64_t tracked_objects;
    uint64_t created_objects;   ///< first attached here
    uint64_t arrived_objects;   ///< moved here from another manager
    uint64_t departed_objects;  ///< moved away: attached elsewhere, returned, escaped
    uint64_t freed_objects;     ///< died by count
    uint64_t collected_objects; ///< died by the collector
    uint64_t escaped_objects;   ///< of departed: those that outlived a close of this manager
    uint64_t live_bytes[ND_DEVICE_KIND_COUNT];    ///< own bytes, each storage once
    uint64_t subtree_bytes[ND_DEVICE_KIND_COUNT]; ///< with children
    uint64_t peak_bytes[ND_DEVICE_KIND_COUNT];    ///< largest subtree_bytes so far
    uint64_t quota_bytes[ND_DEVICE_KIND_COUNT];
    uint64_t cap_objects;
} nd_manager_stats;
#define ND_MANAGER_STATS_INIT \
    { .size = sizeof(nd_manager_stats), .version = 1 }
ND_API nd_status nd_manager_get_stats(const nd_manager *manager, nd_manager_stats *ret_stats);

/// Live objects and bytes of m (NULL: the root) and everything below it, summed over the managers,
/// not over the objects. Without memory to list the managers: UINT64_MAX and ND_ERROR_OUT_OF_MEMORY.
ND_API uint64_t nd_manager_total_objects(const nd_manager *manager);
ND_API uint64_t nd_manager_total_bytes(const nd_manager *manager);

#ifdef __cplusplus
}
#endif
#endif
