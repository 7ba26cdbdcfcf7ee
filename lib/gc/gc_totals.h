// What all collections together did (nd_gc_stats).
#ifndef ND_LIB_GC_GC_TOTALS_H
#define ND_LIB_GC_GC_TOTALS_H
#include <nd/gc.h>

/// Adds what a collection did.
void nd__gc_totals_add(const nd_gc_report *report, nd_gc_mode mode);
/// The gate was closed once, for so long.
void nd__gc_totals_gate(uint64_t nanoseconds);
#endif
