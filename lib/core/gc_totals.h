// What all collections together did (nd_gc_stats), and how reports reach callers of any version.
#ifndef ND_LIB_CORE_GC_TOTALS_H
#define ND_LIB_CORE_GC_TOTALS_H
#include <nd/gc.h>
#include <stddef.h>

/// Adds what a collection did.
void nd__gc_totals_add(const nd_gc_report *report, nd_gc_mode mode);
/// The gate was closed once, for so long.
void nd__gc_totals_gate(uint64_t nanoseconds);

/// Copies as much of a report or of statistics, which begin with their size, as the caller's has room
/// for.
void nd__gc_hand_out(const void *from, size_t size, void *ret);
#endif
