// The gate: a word that says closed, a flag per thread that says writing.
//
// Writer: set own flag, then look at the word. Collector: set the word, then look at all flags.
// Each side must see the other's store (store-load order); the writer pays nothing for that because
// the collector issues a process-wide barrier (membarrier) between its two steps. Where the kernel
// lacks it, writers use a full fence.
#include "lib/core/atomics.h"
#include "lib/core/gate_internal.h"
#include "lib/core/life.h"
#include "lib/core/thread.h"
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic uint32_t gate_closed;
static bool writers_fence;
static _Atomic(nd_object *) parked;

__attribute__((constructor)) static void register_membarrier(void) {
    writers_fence = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
}

bool nd__gate_try_enter(void) {
    nd_thread *thread = nd__thread();
    if (thread->gate_depth > 0 || thread->owns_gate) {
        thread->gate_depth++;
        return true;
    }
    atomic_store_explicit(&thread->writing, 1, memory_order_relaxed);
    if (__builtin_expect(writers_fence, 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&gate_closed, memory_order_acquire) == 0, 1)) {
        thread->gate_depth = 1;
        return true;
    }
    atomic_store_explicit(&thread->writing, 0, memory_order_release);
    return false;
}

void nd__gate_enter(void) {
    while (!nd__gate_try_enter())
        nd__futex_wait(&gate_closed, 1);
}

void nd__gate_leave(void) {
    nd_thread *thread = nd__thread();
    if (--thread->gate_depth == 0 && !thread->owns_gate)
        atomic_store_explicit(&thread->writing, 0, memory_order_release);
}

static void wait_for_writer(nd_thread *thread, void *self) {
    if (thread == self)
        return;
    for (int spin = 0; atomic_load_explicit(&thread->writing, memory_order_acquire) != 0; spin++) {
        if (spin < 100)
            nd__cpu_relax();
        else
            sched_yield();
    }
}

void nd__gate_close(void) {
    nd_thread *self = nd__thread();
    atomic_store_explicit(&gate_closed, 1, memory_order_seq_cst);
    if (!writers_fence && !nd__single_threaded())
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    else
        atomic_thread_fence(memory_order_seq_cst);
    nd__thread_each(wait_for_writer, self);
    self->owns_gate = true;
}

void nd__gate_open(void) {
    nd__thread()->owns_gate = false;
    // Sequentially consistent with nd__park: either it sees the gate open, or nd__bury_parked sees
    // its object.
    atomic_store_explicit(&gate_closed, 0, memory_order_seq_cst);
    if (!nd__single_threaded())
        nd__futex_wake_all(&gate_closed);
}

void nd__park(nd_object *object) {
    nd_object *head = atomic_load_explicit(&parked, memory_order_relaxed);
    do
        object->next = head;
    while (!atomic_compare_exchange_weak_explicit(&parked, &head, object, memory_order_seq_cst,
                                                  memory_order_relaxed));
    if (atomic_load_explicit(&gate_closed, memory_order_seq_cst) == 0)
        nd__bury_parked();
}

void nd__bury_parked(void) {
    if (atomic_load_explicit(&parked, memory_order_seq_cst) == NULL)
        return;
    nd__bury_list(atomic_exchange_explicit(&parked, NULL, memory_order_seq_cst));
}
