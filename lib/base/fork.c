// The handlers of fork(): every part's, in the order of the ranks (fork.h).
#include "lib/base/fork.h"
#include "lib/base/atomics.h"
#include "lib/base/lock.h"
#include "lib/base/thread.h"
#include <pthread.h>

uint32_t nd__fork_generation;

static nd__fork_part *parts;

void nd__fork_add(nd__fork_part *part) {
    nd__fork_part **place = &parts;
    while (*place && (*place)->rank <= part->rank)
        place = &(*place)->next;
    part->next = *place;
    *place = part;
}

#ifndef ND_MODEL // which has one process
static nd_lock one_at_a_time;

static nd_lock *lock_at(const nd__fork_part *part, size_t index) {
    return (nd_lock *)(void *)((char *)part->locks + index * part->stride);
}

/// With one thread everything is whole as it is. Inside `traverse` or `clear` this thread passes
/// the gate, for which others may be waiting with locks held: the child may then do no more than
/// exec.
static void prepare(void) {
    nd_thread *thread = &nd__thread_record;
    thread->forking =
        !nd__atomic_single_threaded() && thread->gate_depth == 0 && !thread->owns_gate;
    if (!thread->forking)
        return;
    nd__lock_acquire(&one_at_a_time);
    for (const nd__fork_part *part = parts; part; part = part->next) {
        for (size_t i = 0; i < part->count; i++)
            nd__lock_acquire(lock_at(part, i));
        if (part->prepare)
            part->prepare();
    }
}

static void in_parent(void) {
    nd_thread *thread = &nd__thread_record;
    if (!thread->forking)
        return;
    for (const nd__fork_part *part = parts; part; part = part->next) {
        if (part->finish)
            part->finish(false);
        for (size_t i = 0; i < part->count; i++)
            nd__lock_release(lock_at(part, i));
    }
    thread->forking = false;
    nd__lock_release(&one_at_a_time);
}

/// Who waits for a lock is not there, so it is not unlocked but free.
static void in_child(void) {
    nd__fork_generation++;
    for (const nd__fork_part *part = parts; part; part = part->next) {
        if (part->finish)
            part->finish(true);
        for (size_t i = 0; i < part->count; i++)
            nd__lock_begin(lock_at(part, i));
    }
    nd__thread_record.forking = false;
    nd__lock_begin(&one_at_a_time);
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(prepare, in_parent, in_child);
}
#endif
