// The threads of a block, one at a time on one thread of the host, and the guard around a step.
//
// Each thread has a stack of its own, and gives way only at a barrier, behind which the order is
// another: a kernel that forgets a barrier reads what is not written yet.
#include "tests/cudart/runtime.h"
#include "tests/model/fiber.h"
#include <stdlib.h>

enum { MOST_THREADS = 1024 };

dim3 threadIdx;

static fiber *host;  ///< the worker's own stack
static fiber *guard; ///< what runs a step
static fiber *stacks[MOST_THREADS];
static bool left, inside_block;

static struct {
    void (*function)(void *data);
    void *data;
} guarded;

static struct {
    unsigned current, running;
    bool met_barrier;
    bool done[MOST_THREADS];
    void (*function)(void *data, unsigned i);
    void *data;
} block;

static void run_guarded(void *unused) {
    (void)unused;
    guarded.function(guarded.data);
    fiber_leave(guard, host);
}

bool cudart_guarded(void (*function)(void *data), void *data) {
    if (!host) {
        host = fiber_new(1);
        guard = fiber_new(0);
    }
    guarded.function = function;
    guarded.data = data;
    left = inside_block = false;
    cudart_watch_faults();
    fiber_prepare(guard, run_guarded, NULL);
    fiber_switch(host, guard);
    return !left;
}

void cudart_leave(void) {
    left = true;
    fiber_leave(inside_block ? stacks[block.current] : guard, host);
    abort();
}

unsigned cudart_shuffled(unsigned i, unsigned count, uint64_t order) {
    switch (order % 4) {
    case 0:
        return i;
    case 1:
        return count - 1 - i;
    default: // by an odd step, which reaches all when their number is a power of two
        if (count & (count - 1))
            return (unsigned)((i + order / 4) % count);
        return (unsigned)((i * (order | 1) + order / 4) % count);
    }
}

static void run_thread(void *number) {
    unsigned i = (unsigned)(uintptr_t)number;
    block.function(block.data, i);
    block.done[i] = true;
    block.running--;
    fiber_leave(stacks[i], guard);
}

void cudart_barrier(void) {
    if (!inside_block)
        cudart_abort(NULL, "a kernel met a barrier in some blocks only");
    block.met_barrier = true;
    fiber_switch(stacks[block.current], guard);
}

bool cudart_run_block(unsigned count, void (*function)(void *data, unsigned i), void *data,
                      uint64_t order) {
    block.running = count;
    block.met_barrier = false;
    block.function = function;
    block.data = data;
    for (unsigned i = 0; i < count; i++) {
        if (!stacks[i])
            stacks[i] = fiber_new(0);
        block.done[i] = false;
        fiber_prepare(stacks[i], run_thread, (void *)(uintptr_t)i);
    }
    while (block.running > 0) {
        if (block.running < count)
            cudart_abort(NULL, "threads of a block end while others wait for them at a barrier");
        inside_block = true;
        for (unsigned i = 0; i < count; i++) {
            block.current = cudart_shuffled(i, count, order);
            threadIdx.x = block.current;
            fiber_switch(guard, stacks[block.current]);
        }
        inside_block = false;
        order = order * 6364136223846793005u + 1442695040888963407u;
    }
    return block.met_barrier;
}
