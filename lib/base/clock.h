// Time for budgets and reports; nothing in the core decides by it what is garbage.
#ifndef ND_LIB_BASE_CLOCK_H
#define ND_LIB_BASE_CLOCK_H
#include "lib/base/atomics.h"
#include <time.h>

static inline uint64_t nd__clock_ns(clockid_t clock) {
    struct timespec time;
    (void)clock; // where time stands still (tests/model)
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/// Nanoseconds since some moment in the past.
static inline uint64_t nd__clock_now_ns(void) {
    return nd__clock_ns(CLOCK_MONOTONIC);
}

/// The same, true to a few milliseconds, for a fraction of the price.
static inline uint64_t nd__clock_coarse_ns(void) {
    return nd__clock_ns(CLOCK_MONOTONIC_COARSE);
}
#endif
