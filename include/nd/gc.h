// The cycle collector: trial deletion over the tracked objects of a manager, on the calling thread,
// at boundaries.
//
// Off by default. ND_GC=on|off|warn in the environment, or nd_gc_set_mode(). docs/collector.md
// carries the argument why it is right beside running threads.
#ifndef ND_GC_H
#define ND_GC_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum nd_gc_mode {
    ND_GC_INHERIT = -1, ///< for nd_manager_set_gc_mode: as the parent
    ND_GC_OFF = 0,
    ND_GC_ON = 1,
    ND_GC_WARN = 2, ///< finds and reports cycles, frees nothing
} nd_gc_mode;

/// Mode of the root, which every manager inherits. Any time, any thread.
ND_API nd_status nd_gc_set_mode(nd_gc_mode mode);
ND_API nd_gc_mode nd_gc_get_mode(void);
/// Mode of one manager and those below it that inherit.
ND_API nd_status nd_manager_set_gc_mode(nd_manager *manager, nd_gc_mode mode);

/// What one collection did.
typedef struct nd_gc_report {
    uint32_t size;
    uint32_t version;
    uint64_t examined_objects;
    uint64_t collected_objects; ///< mode warn: would have been collected
    uint64_t collected_bytes;
    uint64_t revived_objects;
    uint64_t cycles;         ///< groups of objects that kept each other alive
    uint64_t broken_objects; ///< their traverse reports more edges than there are; kept alive
    uint64_t gate_closed_ns; ///< longest time the gate stayed closed
    uint64_t steps;          ///< of a collection with a pause budget that was done in steps; else 0
} nd_gc_report;
#define ND_GC_REPORT_INIT \
    { .size = sizeof(nd_gc_report), .version = 1 }

/// Collects the garbage cycles of m and of the managers below it now, whatever the mode (warn:
/// reports only). ret_report may be NULL. ND_ERROR_OUT_OF_MEMORY: no memory for the passes, nothing
/// happened.
ND_API nd_status nd_gc_collect(const nd_manager *manager, nd_gc_report *ret_report);

/// Values of a policy's fields beside plain numbers.
#define ND_GC_INHERITED UINT64_MAX ///< as the parent's; at the root: the default
#define ND_GC_ADAPTIVE \
    (UINT64_MAX - 1) ///< a threshold that follows what is live and what was found

/// When the collector looks at a manager and all that is below it, and how long it may hold others
/// up. Applies where the mode is on or warn. Start from ND_GC_POLICY_INIT, where every field is
/// ND_GC_INHERITED, and set what is to differ.
///
/// The first three are triggers. The manager whose own policy has one counts for it what happens
/// below it, since it last made the collector look there; when it is due, the next operation that
/// places an object below it has that look first. 0 turns a trigger off, also for the managers
/// above as far as they count what happens below this one.
typedef struct nd_gc_policy {
    uint32_t size;
    uint32_t version;
    /// Bytes of each device kind allocated since the last look. Default: ND_GC_ADAPTIVE, which is
    /// half of to four times what was live after the last look (less where looks find much, more
    /// where they find nothing), and at least 64 MiB.
    uint64_t allocated_bytes[ND_DEVICE_KIND_COUNT];
    /// Objects that can be part of a cycle, made since the last look. Default: ND_GC_ADAPTIVE, the
    /// same with at least 65,536 objects.
    uint64_t tracked_objects;
    /// Nanoseconds since the last look, as read (to a few milliseconds) when objects are placed.
    /// Default: 0.
    uint64_t interval_ns;
    /// How long a collection may keep the gate closed at a time, in nanoseconds, while the process
    /// has several threads. A larger set of objects is then looked at in steps, between which edges
    /// may change; what changed meanwhile counts as live. One object's edges and the closing itself
    /// (some microseconds) are the least. 0, the default: one step, however long.
    uint64_t pause_ns;
    /// 1: a closing manager's survivors are looked at (default). 0: not.
    uint64_t boundary;
    /// 1: an allocation below, when it fails or meets a quota, collects (default). 0: not.
    uint64_t pressure;
} nd_gc_policy;
#define ND_GC_POLICY_INIT                                                                      \
    {                                                                                          \
        .size = sizeof(nd_gc_policy), .version = 1,                                            \
        .allocated_bytes = {ND_GC_INHERITED, ND_GC_INHERITED, ND_GC_INHERITED},                \
        .tracked_objects = ND_GC_INHERITED, .interval_ns = ND_GC_INHERITED,                    \
        .pause_ns = ND_GC_INHERITED, .boundary = ND_GC_INHERITED, .pressure = ND_GC_INHERITED, \
    }

/// Replaces m's own policy (NULL: the root's); what its triggers have counted starts anew. Any
/// thread. ND_ERROR_INVALID_ARGUMENT: NULL policy, no size or version, ND_GC_ADAPTIVE where no
/// trigger of that kind is, a flag that is neither 0 nor 1. ND_ERROR_OUT_OF_MEMORY; then the policy
/// is as it was.
ND_API nd_status nd_manager_set_gc_policy(nd_manager *manager, const nd_gc_policy *policy);

/// The policy in effect at m (NULL: the root): own fields, else the nearest ancestor's, else the
/// default; never ND_GC_INHERITED. Set size and version first.
ND_API nd_status nd_manager_get_gc_policy(const nd_manager *manager, nd_gc_policy *ret_policy);

/// The root's policy with one field changed: allocated_bytes of a device kind.
ND_API nd_status nd_gc_set_threshold(nd_device_kind kind, uint64_t bytes);

/// Called for each cycle found, with its path, such as
/// `tensor(w1) -grad-> tensor -node-> mul_backward -saved-> tensor(w1)  12.0 MiB  train.c:88`.
/// Called outside the gate, before anything is freed. NULL: none; then warn mode writes the path to
/// stderr.
typedef void (*nd_gc_cycle_callback)(const char *path, uint64_t objects, uint64_t bytes,
                                     void *data);
ND_API void nd_gc_set_cycle_callback(nd_gc_cycle_callback callback, void *data);

/// Totals since the program started. Set size and version with ND_GC_STATS_INIT.
typedef struct nd_gc_stats {
    uint32_t size;
    uint32_t version;
    uint64_t collections;
    uint64_t examined_objects;
    uint64_t collected_objects;
    uint64_t collected_bytes;
    uint64_t cycles;
    uint64_t revived_objects;
    uint64_t gate_closed_ns_max;
    uint64_t gate_closed_ns_total;
} nd_gc_stats;
#define ND_GC_STATS_INIT \
    { .size = sizeof(nd_gc_stats), .version = 1 }
ND_API nd_status nd_gc_get_stats(nd_gc_stats *ret_stats);
/// Starts gate_closed_ns_max anew, so that it can be read per epoch.
ND_API void nd_gc_reset_peak(void);

#ifdef __cplusplus
}
#endif
#endif
