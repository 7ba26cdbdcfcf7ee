// Memory that ends after so many allocations, until the callback for memory under pressure was
// asked.
#ifndef ND_TESTS_UNIT_IO_EXHAUSTED_H
#define ND_TESTS_UNIT_IO_EXHAUSTED_H
#include "lib/base/alloc.h"
#include <nd/memory.h>

static int allocations_left;
static bool asked; ///< the callback was, and has given up enough

/// For nd__alloc_should_fail.
static inline bool allocations_fail(size_t bytes) {
    (void)bytes;
    return !asked && allocations_left-- <= 0;
}

/// For nd_memory_callback.give_up.
static inline bool give_up(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    (void)data;
    asked = true;
    return true;
}
#endif
