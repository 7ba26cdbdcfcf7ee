// Fibers: the stacks of the simulated threads. One runs at a time, and says itself when another
// may.
#ifndef ND_TESTS_MODEL_FIBER_H
#define ND_TESTS_MODEL_FIBER_H
#include <stddef.h>

typedef struct fiber fiber;
enum { FIBER_STACK = 256 << 10 };

/// A fiber without a function: the caller's own stack when `own` is true.
fiber *fiber_new(int own);
/// The next switch to it calls function(data), which must never return.
void fiber_prepare(fiber *target, void (*function)(void *data), void *data);
void fiber_switch(fiber *from, fiber *to);
/// The same, never to come back unless it is prepared anew.
void fiber_leave(fiber *from, fiber *to);
#endif
