// Slabs: the memory that blocks come from, in the order in which it is cut.
//
// Invariant: a slab lies at a multiple of its size, so that a block finds the run it is of. Of which
// class a run is never changes once it has one.
#ifndef ND_LIB_OBJECT_SLAB_H
#define ND_LIB_OBJECT_SLAB_H
#include "lib/object/block.h"
#include <stddef.h>
#include <stdint.h>

#define ND__SLAB_RUN_BYTES ((size_t)16 << 10)
#define ND__SLAB_BYTES ((size_t)256 << 10)
enum { ND__SLAB_RUNS = ND__SLAB_BYTES / ND__SLAB_RUN_BYTES, ND__SLAB_HEAD = 1024 };

typedef struct nd__run {
    struct nd__run *next; ///< while it is blank, or found to be empty
    uint32_t free;        ///< blocks of it that the sweep has seen
    uint32_t class;
} nd__run;

typedef struct nd__slab {
    struct nd__slab *next; ///< while it is unused
    uint32_t taken;        ///< runs that have a class
    nd__run runs[ND__SLAB_RUNS];
} nd__slab;
_Static_assert(sizeof(nd__slab) <= ND__SLAB_HEAD, "the first run begins behind it");

static inline nd__slab *nd__slab_of(const void *block) {
    return (nd__slab *)((uintptr_t)block & ~(uintptr_t)(ND__SLAB_BYTES - 1));
}

static inline nd__run *nd__slab_run_of(const void *block) {
    nd__slab *of = nd__slab_of(block);
    return &of->runs[(size_t)((const char *)block - (const char *)of) / ND__SLAB_RUN_BYTES];
}

static inline char *nd__slab_run_begin(nd__run *of) {
    nd__slab *in = nd__slab_of(of);
    ptrdiff_t index = of - in->runs;
    return (char *)in + (index ? (size_t)index * ND__SLAB_RUN_BYTES : ND__SLAB_HEAD);
}

static inline char *nd__slab_run_end(nd__run *of) {
    nd__slab *in = nd__slab_of(of);
    return (char *)in + (size_t)(of - in->runs + 1) * ND__SLAB_RUN_BYTES;
}

/// Blocks of its class that it is cut into.
static inline uint32_t nd__slab_run_blocks(nd__run *of) {
    return (uint32_t)((size_t)(nd__slab_run_end(of) - nd__slab_run_begin(of)) /
                      nd__block_bytes(of->class));
}

/// Memory of so many bytes from the system, which reads as zeros; NULL when it has none.
void *nd__slab_map(size_t bytes);

/// New slabs, one behind the other: one or, where there are `many` already, a huge page of them.
/// Returns how many, 0 without memory.
size_t nd__slab_map_some(bool many, char **ret_memory);
#endif
