// How many objects have died and wait to be destroyed (dead.h).
//
// Invariant: who puts one where others find it has counted it before, and who takes it counts it
// off when it is destroyed, with all that it held alone. So a thread that sees none sees edges
// without theirs.
#include "lib/object/dead.h"
#include "lib/base/atomics.h"
#include "lib/base/clock.h"
#include "lib/base/pause.h"
#include "lib/base/thread.h"
#include "lib/object/callback.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/object/user_code.h"

/// In the lower half; the upper half rises when there is more to find, so that one word says to who
/// waits that it is worth another look.
static _Atomic uint64_t waiting;

void nd__dead_add(void) {
    (void)nd__atomic_fetch_add(&waiting, 1, relaxed);
}

void nd__dead_tell(void) {
    (void)nd__atomic_fetch_add(&waiting, UINT64_C(1) << 32, release);
}

static uint32_t length_of(const nd_object *list) {
    uint32_t count = 0;
    for (; list; list = list->next)
        count++;
    return count;
}

void nd__dead_take(nd_thread *thread, const nd_object *list) {
    thread->dead_taken += length_of(list);
}

void nd__dead_settle(nd_thread *thread) {
    (void)nd__atomic_fetch_sub(&waiting, thread->dead_taken, release);
    thread->dead_taken = 0;
}

void nd__dead_forget(const nd_object *list) {
    (void)nd__atomic_fetch_sub(&waiting, length_of(list), relaxed);
}

void nd__dead_begin_child(const nd_thread *thread) {
    nd__atomic_store(&waiting, thread->dead_taken, relaxed);
}

bool nd__dead_elsewhere(const nd_thread *thread) {
    return !nd__user_code_in_destruction(thread) &&
           (uint32_t)nd__atomic_load(&waiting, acquire) > 0;
}

bool nd__dead_await(uint64_t until) {
    enum { NAP_NS = 50000 };
    for (;;) {
        uint64_t seen = nd__atomic_load(&waiting, acquire);
        if ((uint32_t)seen == 0)
            return true;
        // While the gate is closed it would be parked again, and who closed it goes on with it.
        if (nd__atomic_load(&nd__gate_closed, relaxed) == 0)
            nd__gate_destroy_parked();
        nd__callback_destroy_deferred();
        if (nd__clock_now_ns() >= until)
            return false;
        if (nd__atomic_load(&waiting, acquire) != seen)
            continue;
        nd__pause_yield();
        nd__pause_nap(NAP_NS);
    }
}
