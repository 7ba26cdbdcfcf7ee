/// @file
/// The cycle collector: trial deletion over the tracked objects of a manager, on the calling
/// thread, at boundaries.
///
/// Off by default. ND_GC=on|off|warn in the environment, or nd_gc_set_mode(). docs/collector.md
/// carries the argument why it is right beside running threads.
///
/// Where an argument must not be NULL and is, the error is that of <nd/error.h>: the one the thread
/// has already, else ND_ERROR_INVALID_ARGUMENT. The documentation below does not repeat it.
#ifndef ND_GC_H
#define ND_GC_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------- modes

/// What the collector does with garbage cycles.
typedef enum nd_gc_mode {
    ND_GC_INHERIT = -1, ///< for nd_manager_set_gc_mode(): as the parent
    ND_GC_OFF = 0,      ///< collects only when asked
    ND_GC_ON = 1,       ///< finds and frees them
    ND_GC_WARN = 2,     ///< finds and reports them, frees nothing
} nd_gc_mode;

/// Sets the mode of the root, which every manager inherits that has none of its own.
///
/// @param mode any but ND_GC_INHERIT
/// @return ND_OK, or the error
/// @errors ND_ERROR_INVALID_ARGUMENT (no such mode, or to inherit)
/// @threads any, at any time
ND_API nd_status nd_gc_set_mode(nd_gc_mode mode);

/// Mode of the root.
///
/// @return ND_GC_OFF at first, or what ND_GC says in the environment
/// @errors none
/// @threads any
ND_API nd_gc_mode nd_gc_get_mode(void);

/// Sets the mode of one manager and of those below it that inherit.
///
/// @param manager the manager
/// @param mode ND_GC_INHERIT, as at first: the parent's
/// @return ND_OK, or the error
/// @errors ND_ERROR_INVALID_ARGUMENT (no such mode, or the root's to inherit)
/// @threads any, at any time
ND_API nd_status nd_manager_set_gc_mode(nd_manager *manager, nd_gc_mode mode);

// ------------------------------------------------------------------------------------- collections

/// What one collection did. Begin with ND_GC_REPORT_INIT.
typedef struct nd_gc_report {
    uint32_t size;              ///< sizeof(nd_gc_report)
    uint32_t version;           ///< 1
    uint64_t examined_objects;  ///< tracked objects that it examined
    uint64_t collected_objects; ///< mode warn: would have been collected
    uint64_t collected_bytes;   ///< bytes of those
    uint64_t revived_objects;   ///< that a finalizer kept
    uint64_t cycles;            ///< groups of objects that kept each other alive
    uint64_t broken_objects;    ///< their traverse reports more edges than there are; kept alive
    uint64_t gate_closed_ns;    ///< longest time the gate stayed closed
    uint64_t steps;             ///< of a collection that was done in steps; else 0
    /// Objects that were examined and could not be decided on, which the status says as well: it
    /// took longer than eight seconds beside other threads, three times, or another thread had not
    /// destroyed, within a second, what may be all that held them. They are kept, and examined
    /// again by the next trigger of tracked objects, which is due at once.
    uint64_t postponed_objects;
} nd_gc_report;

/// What an nd_gc_report must begin as.
#define ND_GC_REPORT_INIT ND__SIZED(nd_gc_report)

/// Collects the garbage cycles of a manager and of those below it now, also where the mode is off;
/// where it is warn they are reported only. Asked for inside a finalizer, a destructor or a
/// callback of a collection, it begins when that one is done, and while the thread captures a graph
/// (<nd/graph.h>), at the end of that; the report then has zeros.
///
/// @param manager the manager; NULL: the root
/// @param ret_report begun with ND_GC_REPORT_INIT; NULL: not asked
/// @return ND_OK, or the error; the report has what was collected all the same
/// @errors ND_ERROR_OUT_OF_MEMORY (for the passes over all objects; a part of them was looked at
///         after the other as long as that freed some), ND_ERROR_INVALID_ARGUMENT (a report without
///         size or version), ND_ERROR_STATE (a type's edges do not add up, and those objects were
///         kept; or some were postponed)
/// @threads any; finalizers, destructors and weak callbacks of what dies run here
ND_API nd_status nd_gc_collect(const nd_manager *manager, nd_gc_report *ret_report);

// ---------------------------------------------------------------------------------------- policies

/// Value of a policy's field: as the parent's; at the root the default.
#define ND_GC_INHERITED UINT64_MAX

/// Value of a policy's field: a threshold that follows what is live and what was found.
#define ND_GC_ADAPTIVE (UINT64_MAX - 1)

/// When the collector examines a manager and all that is below it, and how long it may hold others
/// up. Applies where the mode is on or warn. Start from ND_GC_POLICY_INIT, where every field is
/// ND_GC_INHERITED, and set what is to differ.
///
/// The first three are triggers. The manager whose own policy has one counts for it what happens
/// below it, since its last collection; when it is due, the next operation that places an object
/// below it collects first. 0 turns a trigger off, also for the managers above as far as they count
/// what happens below this one.
typedef struct nd_gc_policy {
    uint32_t size;    ///< sizeof(nd_gc_policy)
    uint32_t version; ///< 1
    /// Bytes of each device kind allocated since the last collection. Default: ND_GC_ADAPTIVE,
    /// which is half of to four times what was live after the last collection (less where
    /// collections find much, more where they find nothing), and at least 64 MiB.
    uint64_t allocated_bytes[ND_MAX_DEVICE_KINDS];
    /// Objects that can be part of a cycle, made since the last collection. Default:
    /// ND_GC_ADAPTIVE, the same with at least 65,536 objects.
    uint64_t tracked_objects;
    /// Nanoseconds since the last collection, as read (to a few milliseconds) when objects are
    /// placed. Default: 0.
    uint64_t interval_ns;
    /// How long a collection may keep the gate closed at a time, in nanoseconds, while the process
    /// has several threads. A larger set of objects is then examined in steps, between which edges
    /// may change; what changed meanwhile counts as live. One object's edges and the closing itself
    /// (some microseconds) are the least. 0: one step, however long. Default: ND_GC_ADAPTIVE, which
    /// is 1 ms for boundaries, requests and triggers, and one step under pressure.
    uint64_t pause_ns;
    /// 1: a closing manager's survivors are examined (default). 0: not.
    uint64_t boundary;
    /// 1: an allocation below, when it fails or meets a quota, collects (default). 0: not.
    uint64_t pressure;
} nd_gc_policy;

/// What an nd_gc_policy must begin as: everything inherited.
#define ND_GC_POLICY_INIT                                                                       \
    {                                                                                           \
        sizeof(nd_gc_policy), 1,                                                                \
            {ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED,                \
             ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED},               \
            ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED \
    }

/// Replaces a manager's own policy; what its triggers have counted starts anew.
///
/// @param manager the manager; NULL: the root
/// @param policy begun with ND_GC_POLICY_INIT; copied
/// @return ND_OK, or the error; then the policy is as it was
/// @errors ND_ERROR_INVALID_ARGUMENT (NULL, no size or version, ND_GC_ADAPTIVE where no trigger of
///         that kind is, a flag that is neither 0 nor 1), ND_ERROR_UNSUPPORTED (bytes of a device
///         kind that does not exist), ND_ERROR_OUT_OF_MEMORY
/// @threads any
ND_API nd_status nd_manager_set_gc_policy(nd_manager *manager, const nd_gc_policy *policy);

/// The policy in effect at a manager: its own fields, else the nearest ancestor's, else the
/// default; never ND_GC_INHERITED.
///
/// @param manager the manager; NULL: the root
/// @param ret_policy begun with ND_GC_POLICY_INIT
/// @return ND_OK, or the error; then nothing is written
/// @errors ND_ERROR_INVALID_ARGUMENT (NULL, no size or version)
/// @threads any
ND_API nd_status nd_manager_get_gc_policy(const nd_manager *manager, nd_gc_policy *ret_policy);

// ----------------------------------------------------------------------------------------- reports

/// Called for each cycle found, with its path, such as `tensor(w1) -grad-> tensor -node->
/// mul -saved-> tensor(w1)  12.0 MiB  train.c:88`, valid during the call. It runs on the
/// collecting thread, outside the gate, before anything is freed.
typedef void (*nd_gc_cycle_callback)(const char *path, uint64_t objects, uint64_t bytes,
                                     void *data);

/// Sets what is called for each cycle found, in modes on and warn.
///
/// @param callback replaces an earlier one; NULL: none, then warn mode writes the path to stderr
/// @param data handed to `callback`
/// @errors none
/// @threads any; a collection that is running may still call the earlier one
ND_API void nd_gc_set_cycle_callback(nd_gc_cycle_callback callback, void *data);

/// Totals since the program started. Begin with ND_GC_STATS_INIT.
typedef struct nd_gc_stats {
    uint32_t size;                 ///< sizeof(nd_gc_stats)
    uint32_t version;              ///< 1
    uint64_t collections;          ///< how many there were
    uint64_t examined_objects;     ///< tracked objects that were examined, each as often
    uint64_t collected_objects;    ///< freed as garbage
    uint64_t collected_bytes;      ///< bytes of those
    uint64_t cycles;               ///< groups of objects that kept each other alive
    uint64_t revived_objects;      ///< that a finalizer kept
    uint64_t gate_closed_ns_max;   ///< longest time the gate stayed closed
    uint64_t gate_closed_ns_total; ///< sum of those times
    uint64_t postponed_objects;    ///< that could not be decided on, each as often
} nd_gc_stats;

/// What an nd_gc_stats must begin as.
#define ND_GC_STATS_INIT ND__SIZED(nd_gc_stats)

/// Reads the totals.
///
/// @param ret_stats begun with ND_GC_STATS_INIT
/// @return ND_OK, or the error; then nothing is written
/// @errors ND_ERROR_INVALID_ARGUMENT (NULL, or without size or version)
/// @threads any; beside collections, the figures may belong to slightly different moments
ND_API nd_status nd_gc_get_stats(nd_gc_stats *ret_stats);

/// Starts gate_closed_ns_max anew, so that it can be read per epoch.
///
/// @errors none
/// @threads any
ND_API void nd_gc_reset_peak(void);

#ifdef __cplusplus
}
#endif
#endif
