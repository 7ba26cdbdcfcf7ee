// Ways to wait for a moment.
#ifndef ND_LIB_BASE_PAUSE_H
#define ND_LIB_BASE_PAUSE_H
#include "lib/base/atomics.h"

/// Lets another thread run.
void nd__pause_yield(void);

/// Sleeps for so many nanoseconds, or about.
void nd__pause_nap(uint64_t nanoseconds);

/// Tells the core that this is a spin.
static inline void nd__pause_relax(void) {
#if defined(ND_MODEL)
    nd__pause_yield();
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
#endif
