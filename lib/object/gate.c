// The gate, the write barrier: a word that says closed, a flag per thread that says writing.
//
// Writer: set own flag, then look at the word. Collector: set the word, then look at all flags.
// Each side must see the other's store (store-load order); the writer pays nothing for that because
// the collector issues a process-wide barrier (membarrier) between its two steps. Where the kernel
// lacks it, writers use a full fence.
//
// A sandbox that begins while the program runs may forbid the barrier from then on. Then writers
// are told to fence, once and for all. A thread that was not seen to do so yet (`fences`) may have
// looked before it was told; while there is one, the collector uses the slow barrier, which needs
// no permission (barrier.c).
//
// A thread whose record is in no registry (thread.h) is counted in while it writes: with locked
// instructions, which order its store and its look as the barrier does for others.
#include "lib/object/gate.h"
#include "lib/base/atomics.h"
#include "lib/base/barrier.h"
#include "lib/base/clock.h"
#include "lib/base/fork.h"
#include "lib/base/futex.h"
#include "lib/base/pause.h"
#include "lib/base/seam.h"
#include "lib/base/thread.h"
#include "lib/object/callback.h"
#include "lib/object/dead.h"

_Atomic uint32_t nd__gate_closed;
_Atomic bool nd__gate_writers_fence;      ///< never becomes false again
static _Atomic uint32_t unlisted_writers; ///< inside the gate, of those that are in no registry
static _Atomic(nd_object *) parked;

__attribute__((constructor)) static void prepare_barrier(void) {
    nd__atomic_store(&nd__gate_writers_fence, !nd__barrier_prepare(), relaxed);
}

__attribute__((cold, noinline)) static bool try_enter_unlisted(nd_thread *thread) {
    (void)nd__atomic_fetch_add(&unlisted_writers, 1, seq_cst);
    if (nd__atomic_load(&nd__gate_closed, seq_cst) == 0) {
        thread->gate_depth = 1;
        return true;
    }
    (void)nd__atomic_fetch_sub(&unlisted_writers, 1, release);
    return false;
}

/// Between a writer's store and its look, where there is no process-wide barrier.
__attribute__((cold, noinline)) static void fence_of_writer(nd_thread *thread) {
    nd__atomic_store(&thread->fences, 1, release);
    nd__atomic_full_fence();
}

bool nd__gate_try_enter_slowly(nd_thread *thread) {
    if (thread->gate_depth > 0 || thread->owns_gate) {
        thread->gate_depth++;
        return true;
    }
    if (!thread->registered)
        return try_enter_unlisted(thread);
    nd__atomic_store(&thread->writing, 1, relaxed);
    fence_of_writer(thread);
    if (nd__atomic_load(&nd__gate_closed, acquire) == 0) {
        thread->gate_depth = 1;
        return true;
    }
    nd__atomic_store(&thread->writing, 0, release);
    return false;
}

bool nd__gate_try_enter(void) {
    return nd__gate_try_enter_as(nd__thread());
}

#if defined(ND_MODEL) || ND_COLLECT_EVERYWHERE
bool nd__gate_ages; // else always: collections are what is to be seen there
#else
enum { nd__gate_ages = true };
#endif

// Twice how often this was asked for behind an edge, plus one when edges were written since then.
// It only ever rises, so who has been told an age, and writes an edge or is told of one, finds
// another number from then on. Read by everybody, and written only when that changes it.
static struct { _Alignas(128) _Atomic uint64_t age; } edges;

/// To the next number, unless another thread is faster.
static uint64_t raise_age(uint64_t seen) {
    if (nd__atomic_single_threaded()) {
        nd__atomic_store(&edges.age, seen + 1, relaxed);
        return seen + 1;
    }
    return nd__atomic_cas(&edges.age, &seen, seen + 1, relaxed, relaxed) ? seen + 1 : seen;
}

void nd__gate_note_edge(void) {
    if (!nd__gate_ages)
        return;
    uint64_t seen = nd__atomic_load(&edges.age, relaxed);
    while (__builtin_expect(!(seen & 1), 0))
        seen = raise_age(seen);
}

uint64_t nd__gate_edge_age(void) {
    uint64_t seen = nd__gate_ages ? nd__atomic_load(&edges.age, relaxed) : 0;
    while (seen & 1)
        seen = raise_age(seen);
    return seen;
}

bool nd__gate_edges_since(uint64_t age) {
    return !nd__gate_ages || nd__atomic_load(&edges.age, relaxed) != age;
}

void nd__gate_enter(void) {
    nd__gate_note_edge();
    nd__gate_enter_to_clear();
}

void nd__gate_enter_to_clear(void) {
    while (!nd__gate_try_enter())
        nd__futex_wait(&nd__gate_closed, 1);
}

void nd__gate_leave_unlisted(void) {
    (void)nd__atomic_fetch_sub(&unlisted_writers, 1, release);
}

void nd__gate_leave(void) {
    nd__gate_leave_as(nd__thread());
}

static void wait_until_zero(_Atomic uint32_t *word) {
    for (int spin = 0; nd__atomic_load(word, acquire) != 0; spin++) {
        if (spin < 100)
            nd__pause_relax();
        else
            nd__pause_yield();
    }
}

static void wait_for_writer(nd_thread *thread, void *self) {
    if (thread != self)
        wait_until_zero(&thread->writing);
}

typedef struct unfenced {
    const nd_thread *self;
    bool found;
} unfenced;

static void find_unfenced(nd_thread *thread, void *data) {
    unfenced *search = data;
    search->found |= thread != search->self && !nd__atomic_load(&thread->fences, acquire);
}

/// After nd__gate_closed was set: who does not see it now has set its flag, which this thread will
/// see.
static void order_writers(const nd_thread *self) {
    if (!nd__atomic_load(&nd__gate_writers_fence, relaxed) && !nd__atomic_single_threaded()) {
        if (nd__barrier_run())
            return;
        nd__atomic_store(&nd__gate_writers_fence, true, relaxed);
    }
    nd__atomic_full_fence();
    unfenced search = {.self = self};
    if (nd__atomic_load(&nd__gate_writers_fence, relaxed))
        nd__thread_each(find_unfenced, &search);
    if (search.found)
        nd__barrier_run_slow();
}

/// Whoever was woken when the gate opened gets this long to come in before it closes again. Without
/// it a thread that collects again and again keeps writers out for good: they find it closed each
/// time they have woken up.
#define ADMIT_NS UINT64_C(100000)
static uint64_t woken_at_ns; // 0: nobody was (collection lock)

void nd__gate_admit_writers(void) {
    if (!woken_at_ns)
        return;
    uint64_t passed = nd__clock_now_ns() - woken_at_ns;
    woken_at_ns = 0;
    if (passed < ADMIT_NS)
        nd__pause_nap(ADMIT_NS - passed);
}

void nd__gate_close(void) {
    nd_thread *self = nd__thread();
    nd__atomic_store(&nd__gate_closed, 1, seq_cst);
    order_writers(self);
    nd__thread_each(wait_for_writer, self);
    if (nd__atomic_load(&unlisted_writers, seq_cst) != 0)
        wait_until_zero(&unlisted_writers);
    self->owns_gate = true;
}

void nd__gate_open(void) {
    nd__thread()->owns_gate = false;
    // Sequentially consistent with nd__gate_park: either it sees the gate open, or
    // nd__gate_destroy_parked sees its object.
    nd__atomic_store(&nd__gate_closed, 0, seq_cst);
    if (!nd__atomic_single_threaded() && nd__futex_wake_all(&nd__gate_closed))
        woken_at_ns = nd__clock_now_ns();
}

/// Objects that die meanwhile are parked, without a lock: the child may see a part of that. What
/// was parked before goes to both as what device callbacks leave does, since this is no place to
/// run user code.
static nd_object *parked_before;

static void hand_over(nd_object *list, bool child) {
    if (!child)
        nd__dead_forget(list);
    while (list) {
        nd_object *next = list->next;
        nd__callback_defer(list);
        list = next;
    }
}

static void close_for_fork(void) {
    nd__gate_admit_writers();
    nd__gate_close();
    parked_before = nd__atomic_exchange(&parked, NULL, seq_cst);
}

static void open_after_fork(bool child) {
    if (!nd__thread_record.forking)
        return;
    nd_object *before = parked_before;
    parked_before = NULL;
    if (child) {
        nd__thread_record.owns_gate = false;
        nd__atomic_store(&unlisted_writers, 0, relaxed);
        nd__atomic_store(&parked, NULL, relaxed);
        nd__atomic_store(&nd__gate_closed, 0, relaxed);
        if (!nd__atomic_load(&nd__gate_writers_fence, relaxed))
            prepare_barrier();
    } else {
        nd__gate_open();
        hand_over(nd__atomic_exchange(&parked, NULL, seq_cst), false);
    }
    hand_over(before, child);
}
ND__FORK_PART(fork_gate, ND__FORK_GATE, NULL, 0, 0, close_for_fork, open_after_fork, NULL);

void nd__gate_park(nd_object *object) {
    nd__dead_add();
    nd_object *head = nd__atomic_load(&parked, relaxed);
    do
        object->next = head;
    while (!nd__atomic_cas(&parked, &head, object, seq_cst, relaxed));
    if (nd__atomic_load(&nd__gate_closed, seq_cst) == 0)
        nd__gate_destroy_parked();
}

void nd__gate_destroy_parked(void) {
    if (nd__atomic_load(&parked, seq_cst) == NULL)
        return;
    nd_object *list = nd__atomic_exchange(&parked, NULL, seq_cst);
    nd__dead_take(nd__thread(), list);
    nd__seam_destroy_list(list);
}
