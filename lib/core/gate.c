// The gate: a word that says closed, a flag per thread that says writing.
//
// Writer: set own flag, then look at the word. Collector: set the word, then look at all flags.
// Each side must see the other's store (store-load order); the writer pays nothing for that because
// the collector issues a process-wide barrier (membarrier) between its two steps. Where the kernel
// lacks it, writers use a full fence.
#include "lib/core/atomics.h"
#include "lib/core/clock.h"
#include "lib/core/gate_internal.h"
#include "lib/core/life.h"
#include "lib/core/thread.h"

static _Atomic uint32_t gate_closed;
static bool writers_fence;
static _Atomic(nd_object *) parked;

__attribute__((constructor)) static void prepare_barrier(void) {
    writers_fence = !nd__process_barrier_prepare();
}

bool nd__gate_try_enter(void) {
    nd_thread *thread = nd__thread();
    if (thread->gate_depth > 0 || thread->owns_gate) {
        thread->gate_depth++;
        return true;
    }
    nd__atomic_store(&thread->writing, 1, relaxed);
    if (__builtin_expect(writers_fence, 0))
        nd__full_fence();
    else
        nd__compiler_fence();
    if (__builtin_expect(nd__atomic_load(&gate_closed, acquire) == 0, 1)) {
        thread->gate_depth = 1;
        return true;
    }
    nd__atomic_store(&thread->writing, 0, release);
    return false;
}

void nd__gate_enter(void) {
    while (!nd__gate_try_enter())
        nd__futex_wait(&gate_closed, 1);
}

void nd__gate_leave(void) {
    nd_thread *thread = nd__thread();
    if (--thread->gate_depth == 0 && !thread->owns_gate)
        nd__atomic_store(&thread->writing, 0, release);
}

static void wait_for_writer(nd_thread *thread, void *self) {
    if (thread == self)
        return;
    for (int spin = 0; nd__atomic_load(&thread->writing, acquire) != 0; spin++) {
        if (spin < 100)
            nd__cpu_relax();
        else
            nd__yield();
    }
}

/// Whoever was woken when the gate opened gets this long to come in before it closes again. Without
/// it a thread that collects again and again keeps writers out for good: they find it closed each
/// time they have woken up.
#define LET_IN_NS UINT64_C(100000)
static uint64_t woken_at_ns; // 0: nobody was (collection lock)

void nd__gate_let_in(void) {
    if (!woken_at_ns)
        return;
    uint64_t passed = nd__now_ns() - woken_at_ns;
    woken_at_ns = 0;
    if (passed < LET_IN_NS)
        nd__nap(LET_IN_NS - passed);
}

void nd__gate_close(void) {
    nd_thread *self = nd__thread();
    nd__atomic_store(&gate_closed, 1, seq_cst);
    if (!writers_fence && !nd__single_threaded())
        nd__process_barrier();
    else
        nd__full_fence();
    nd__thread_each(wait_for_writer, self);
    self->owns_gate = true;
}

void nd__gate_open(void) {
    nd__thread()->owns_gate = false;
    // Sequentially consistent with nd__park: either it sees the gate open, or nd__bury_parked sees
    // its object.
    nd__atomic_store(&gate_closed, 0, seq_cst);
    if (!nd__single_threaded() && nd__futex_wake_all(&gate_closed))
        woken_at_ns = nd__now_ns();
}

void nd__park(nd_object *object) {
    nd_object *head = nd__atomic_load(&parked, relaxed);
    do
        object->next = head;
    while (!nd__atomic_cas(&parked, &head, object, seq_cst, relaxed));
    if (nd__atomic_load(&gate_closed, seq_cst) == 0)
        nd__bury_parked();
}

void nd__bury_parked(void) {
    if (nd__atomic_load(&parked, seq_cst) == NULL)
        return;
    nd__bury_list(nd__atomic_exchange(&parked, NULL, seq_cst));
}
