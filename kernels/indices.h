// Indices, as operations and kernels look at them.
#ifndef ND_KERNELS_INDICES_H
#define ND_KERNELS_INDICES_H
#include <stdbool.h>
#include <stdint.h>

/// Whether all are from 0 to size - 1: by their signs and those of what is left to that, which
/// vectors without a comparison can tell, too.
static inline bool nd__indices_are_inside(const int64_t *indices, int64_t count, int64_t size) {
    uint64_t signs = 0;
    for (int64_t i = 0; i < count; i++)
        signs |= (uint64_t)indices[i] | ((uint64_t)size - 1 - (uint64_t)indices[i]);
    return signs >> 63 == 0;
}
#endif
