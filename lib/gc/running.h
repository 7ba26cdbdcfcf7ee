// Collections that run now, on whatever thread. What one has found dead is nobody else's to find, and
// its memory is in use until that one has freed it: who is short of memory waits for it.
#ifndef ND_LIB_GC_RUNNING_H
#define ND_LIB_GC_RUNNING_H
#include <stdbool.h>
#include <stdint.h>

/// Around a collection on this thread; they do not nest.
void nd__running_begin(void);
void nd__running_end(void);

/// How many collections have ended on other threads than this one: a number to compare.
uint32_t nd__running_ended_elsewhere(void);
/// Waits until another thread's collection has ended, but not beyond the time `until` (of
/// nd__clock_now_ns): it may run a finalizer that waits for this thread. False: none runs, time is
/// up, or this thread runs one itself or destroys something. Holds nothing; no lock may be held.
bool nd__running_await_end(uint64_t until);
#endif
