// Totals of all collections. Each counter is exact; beside collections, they may belong to slightly
// different moments.
#include "lib/gc/gc_totals.h"
#include "lib/base/atomics.h"
#include "lib/base/versioned.h"
#include <string.h>

static struct {
    _Atomic uint64_t collections, examined, collected, collected_bytes, cycles, revived, gate_max,
        gate_total, postponed;
} totals;

void nd__gc_totals_add(const nd_gc_report *report, nd_gc_mode mode) {
    nd__atomic_add_relaxed(&totals.collections, 1);
    nd__atomic_add_relaxed(&totals.examined, report->examined_objects);
    nd__atomic_add_relaxed(&totals.cycles, report->cycles);
    nd__atomic_add_relaxed(&totals.revived, report->revived_objects);
    nd__atomic_add_relaxed(&totals.postponed, report->postponed_objects);
    if (mode != ND_GC_WARN) {
        nd__atomic_add_relaxed(&totals.collected, report->collected_objects);
        nd__atomic_add_relaxed(&totals.collected_bytes, report->collected_bytes);
    }
}

void nd__gc_totals_gate(uint64_t nanoseconds) {
    nd__atomic_add_relaxed(&totals.gate_total, nanoseconds);
    nd__atomic_raise(&totals.gate_max, nanoseconds);
}

nd_status nd_gc_get_stats(nd_gc_stats *ret_stats) {
    nd_status status = nd__versioned_check("gc_get_stats", "ND_GC_STATS_INIT", ret_stats);
    if (status != ND_OK)
        return status;
    const nd_gc_stats stats = {
        .size = sizeof stats,
        .version = 1,
        .collections = nd__atomic_load_relaxed(&totals.collections),
        .examined_objects = nd__atomic_load_relaxed(&totals.examined),
        .collected_objects = nd__atomic_load_relaxed(&totals.collected),
        .collected_bytes = nd__atomic_load_relaxed(&totals.collected_bytes),
        .cycles = nd__atomic_load_relaxed(&totals.cycles),
        .revived_objects = nd__atomic_load_relaxed(&totals.revived),
        .gate_closed_ns_max = nd__atomic_load_relaxed(&totals.gate_max),
        .gate_closed_ns_total = nd__atomic_load_relaxed(&totals.gate_total),
        .postponed_objects = nd__atomic_load_relaxed(&totals.postponed),
    };
    nd__versioned_write(ret_stats, &stats, sizeof stats);
    return ND_OK;
}

void nd_gc_reset_peak(void) {
    nd__atomic_store(&totals.gate_max, 0, relaxed);
}
