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
} nd_gc_report;
#define ND_GC_REPORT_INIT \
    { .size = sizeof(nd_gc_report), .version = 1 }

/// Collects the garbage cycles of m and of the managers below it now, whatever the mode (warn:
/// reports only). ret_report may be NULL. ND_ERROR_OUT_OF_MEMORY: no memory for the passes, nothing
/// happened.
ND_API nd_status nd_gc_collect(const nd_manager *manager, nd_gc_report *ret_report);

/// Bytes of one device kind allocated under a manager since its last collection that make an
/// allocation there collect first (modes on and warn). 0 turns the trigger off. Default: adapts, at
/// least 64 MiB and as much as is live.
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
