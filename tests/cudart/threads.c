// The threads of a block, one at a time on one thread of the host, and the guard around a step.
//
// Each thread has a stack of its own, and gives way only at a barrier or a shuffle, behind which the
// order is another: a kernel that forgets a barrier reads what is not written yet. A barrier waits
// for the block, a shuffle for the lanes of its warp that the mask names. Now all warps go from shuffle
// to shuffle together, now each goes on to its next barrier before another one begins: then what it
// writes meets those that have not read yet.
#include "tests/cudart/runtime.h"
#include "tests/model/fiber.h"
#include <stdlib.h>

enum { MOST_THREADS = 1024, WARP = 32 };

dim3 threadIdx;

static fiber *host;  ///< the worker's own stack
static fiber *guard; ///< what runs a step
static fiber *stacks[MOST_THREADS];
static bool left, inside_block;

static struct {
    void (*function)(void *data);
    void *data;
} guarded;

typedef enum place { READY, AT_BARRIER, IN_WARP, ENDED } place;

static struct {
    unsigned count, current;
    bool waited; ///< some thread did, for another
    place place[MOST_THREADS];
    unsigned mask[MOST_THREADS]; ///< IN_WARP: the lanes that it waits for
    uint32_t word[MOST_THREADS]; ///< what it offers there
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
    block.place[i] = ENDED;
    fiber_leave(stacks[i], guard);
}

static void wait_at(place where) {
    if (!inside_block)
        cudart_abort(NULL, "a kernel met a barrier in some blocks only");
    block.waited = true;
    block.place[block.current] = where;
    fiber_switch(stacks[block.current], guard);
}

void cudart_barrier(void) {
    wait_at(AT_BARRIER);
}

uint32_t cudart_exchange(unsigned mask, uint32_t word, unsigned source) {
    unsigned thread = block.current, lane = thread % WARP;
    if (inside_block && !(mask >> lane & 1))
        cudart_abort(NULL, "a thread shuffles with a mask that leaves it out");
    block.mask[thread] = mask;
    block.word[thread] = word;
    wait_at(IN_WARP);
    if (source >= WARP || !(mask >> source & 1))
        cudart_abort(NULL, "a shuffle reads a lane that takes no part in it");
    uint32_t result = block.word[thread - lane + source];
    wait_at(IN_WARP); // until all have read
    return result;
}

/// All lanes that thread i waits for wait for the same lanes.
static bool warp_is_complete(unsigned i) {
    unsigned first = i - i % WARP, mask = block.mask[i];
    for (unsigned lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1 &&
            (first + lane >= block.count || block.place[first + lane] != IN_WARP ||
             block.mask[first + lane] != mask))
            return false;
    return true;
}

static unsigned lanes_of(unsigned first) {
    return block.count - first < WARP ? block.count - first : WARP;
}

/// Lets the lanes of a warp go on that have what they wait for there; false: none has.
static bool release_warp(unsigned first) {
    bool complete[WARP], any = false;
    for (unsigned lane = 0; lane < lanes_of(first); lane++) {
        complete[lane] = block.place[first + lane] == IN_WARP && warp_is_complete(first + lane);
        any |= complete[lane];
    }
    for (unsigned lane = 0; lane < lanes_of(first); lane++)
        if (complete[lane])
            block.place[first + lane] = READY;
    return any;
}

/// Lets those go on who have what they wait for; false: nobody.
static bool release_waiting(void) {
    unsigned at_barrier = 0;
    bool any = false;
    for (unsigned first = 0; first < block.count; first += WARP)
        any |= release_warp(first);
    for (unsigned i = 0; i < block.count; i++)
        at_barrier += block.place[i] == AT_BARRIER;
    for (unsigned i = 0; at_barrier == block.count && i < block.count; i++)
        block.place[i] = READY;
    return any || at_barrier == block.count;
}

/// Runs those of some threads that are ready until each waits or has ended.
static void run_threads(unsigned first, unsigned count, uint64_t order) {
    inside_block = true;
    for (unsigned i = 0; i < count; i++) {
        unsigned thread = block.current = first + cudart_shuffled(i, count, order);
        threadIdx.x = thread;
        if (block.place[thread] == READY)
            fiber_switch(guard, stacks[thread]);
    }
    inside_block = false;
}

/// Runs whoever is ready until all wait or have ended; how many have not ended.
static unsigned run_ready(uint64_t order) {
    const unsigned warps = (block.count + WARP - 1) / WARP;
    if (order >> 63)
        for (unsigned i = 0; i < warps; i++) {
            const unsigned first = WARP * cudart_shuffled(i, warps, order);
            do
                run_threads(first, lanes_of(first), order);
            while (release_warp(first));
        }
    else
        run_threads(0, block.count, order);
    unsigned left_over = 0;
    for (unsigned i = 0; i < block.count; i++)
        left_over += block.place[i] != ENDED;
    return left_over;
}

bool cudart_run_block(unsigned count, void (*function)(void *data, unsigned i), void *data,
                      uint64_t order) {
    block.count = count;
    block.waited = false;
    block.function = function;
    block.data = data;
    for (unsigned i = 0; i < count; i++) {
        if (!stacks[i])
            stacks[i] = fiber_new(0);
        block.place[i] = READY;
        fiber_prepare(stacks[i], run_thread, (void *)(uintptr_t)i);
    }
    while (run_ready(order) > 0) {
        if (!release_waiting())
            cudart_abort(NULL, "threads of a block end, or wait elsewhere, while others wait for "
                               "them at a barrier or in a shuffle");
        order = order * 6364136223846793005u + 1442695040888963407u;
    }
    return block.waited;
}
