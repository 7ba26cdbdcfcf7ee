// Memory that a call asks for, counted where every allocation of the library asks first.
#ifndef ND_TESTS_UNIT_IO_MEMORY_H
#define ND_TESTS_UNIT_IO_MEMORY_H
#include "lib/base/alloc.h"

static uint64_t memory_bytes; ///< asked for, given back or not
static bool count_memory(size_t bytes) {
    memory_bytes += bytes;
    return false;
}

/// Begins to count.
static inline void reset_memory(void) {
    memory_bytes = 0;
    nd__alloc_should_fail = count_memory;
}
/// Bytes since then.
static inline uint64_t stop_memory(void) {
    nd__alloc_should_fail = NULL;
    return memory_bytes;
}
/// What an input of `bytes` may cost before its header is borne out by data.
#define MEMORY_MAX(bytes) (64 * (uint64_t)(bytes) + ((uint64_t)1 << 20))
#endif
