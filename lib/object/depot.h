// The depot: free blocks that no thread has, by batches, and what is not cut yet. For block.c.
#ifndef ND_LIB_OBJECT_DEPOT_H
#define ND_LIB_OBJECT_DEPOT_H
#include "lib/object/block.h"
#include "lib/object/object.h"
#include "lib/object/slab.h"

/// Blocks of a batch: a run's worth.
static inline uint32_t nd__depot_batch(uint32_t class) {
    return (uint32_t)(ND__SLAB_RUN_BYTES / nd__block_bytes(class));
}

/// A batch, linked by `next`, whose first block's gc_index is how many there are, or NULL.
nd_object *nd__depot_take(uint32_t class);
/// Takes in so many blocks, linked by `next`. May sweep, so the caller's cache is in order.
void nd__depot_give(uint32_t class, nd_object *batch, uint32_t count);
/// A run for a thread to cut, or NULL.
nd__run *nd__depot_take_run(uint32_t class);
/// Sweeps where more than the limit has lain here for longer than a moment. Mostly a load.
void nd__depot_look(void);

/// Blocks beyond the cached classes, each a mapping of its own; NULL without memory.
void *nd__depot_new_large(size_t bytes);
void nd__depot_free_large(nd_object *object, uint32_t class);

/// False: somebody else is sweeping.
bool nd__depot_begin_sweep(void);
/// By who has begun it: gives back to the system what is free in whole runs, and the pages of large
/// blocks. Returns the bytes.
uint64_t nd__depot_sweep(void);
/// nd__block_set_limit.
void nd__depot_set_limit(uint64_t bytes);
/// Bytes that are free here.
uint64_t nd__depot_bytes(void);
#endif
