// Groups of garbage, and the paths that explain them.
#ifndef ND_LIB_GC_CYCLES_H
#define ND_LIB_GC_CYCLES_H
#include "lib/gc/collection.h"

// Outside the gate, over garbage marked ND__DYING (which nobody else can reach), in
// `objects[0 ... count)`, where gc_index is each one's place.

/// Everything is a group of its own. Returns the forest of the groups (cut.h).
uint32_t *nd__cycles_begin(nd_collection *collection);
/// Number of groups of garbage that are connected by the edges that have joined them so far.
size_t nd__cycles_count(const nd_collection *collection);
/// Hands each group's path, size and bytes to the callback.
void nd__cycles_explain(nd_collection *collection, nd_gc_cycle_callback callback, void *data);
#endif
