// Affinity masks, changed around a sleep. A mask is changed by one thread at a time: by who holds it as
// CHANGING, or by the thread itself when it is awake.
#include "lib/base/affinity.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { AWAKE, ASLEEP, CHANGING, CHANGED };

void nd__affinity_begin(nd__affinity *affinity) {
    affinity->thread = (pid_t)syscall(SYS_gettid);
    atomic_store(&affinity->state, AWAKE);
}

void nd__affinity_sleeps(nd__affinity *affinity) {
    atomic_store_explicit(&affinity->state, ASLEEP, memory_order_release);
}

void nd__affinity_wakes(nd__affinity *affinity) {
    for (;;) {
        uint32_t state = atomic_load_explicit(&affinity->state, memory_order_relaxed);
        if (state == CHANGING) {
            sched_yield(); // somebody else has woken it meanwhile; system calls away from the end
        } else if (atomic_compare_exchange_weak_explicit(&affinity->state, &state, AWAKE,
                                                         memory_order_acquire,
                                                         memory_order_relaxed)) {
            if (state == CHANGED)
                sched_setaffinity(0, sizeof affinity->allowed, &affinity->allowed);
            return;
        }
    }
}

/// Whether the thread may run on others of the CPUs allowed, and does so from now on.
static bool move(pid_t thread, const cpu_set_t *allowed, int cpu) {
    cpu_set_t others = *allowed;
    CPU_CLR((size_t)cpu, &others);
    return sched_setaffinity(thread, sizeof others, &others) == 0; // never where there is none
}

void nd__affinity_keep_off(nd__affinity *affinity, int cpu) {
    // One that is kept off a CPU already stays off that one: it could not wake while others changed that.
    uint32_t asleep = ASLEEP;
    if (cpu < 0 ||
        !atomic_compare_exchange_strong_explicit(&affinity->state, &asleep, CHANGING,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    // Fails where there are more CPUs than a set has.
    bool moved =
        sched_getaffinity(affinity->thread, sizeof affinity->allowed, &affinity->allowed) == 0 &&
        move(affinity->thread, &affinity->allowed, cpu);
    atomic_store_explicit(&affinity->state, moved ? CHANGED : ASLEEP, memory_order_release);
}

void nd__affinity_leave(int cpu) {
    cpu_set_t allowed;
    if (cpu >= 0 && sched_getaffinity(0, sizeof allowed, &allowed) == 0 && move(0, &allowed, cpu))
        sched_setaffinity(0, sizeof allowed, &allowed);
}
