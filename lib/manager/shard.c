// Shards of managers: how a manager comes to have more than one, their locks, and sums over them.
//
// A manager begins with one shard, and that is all there is to it while its threads do not meet.
// When one has to wait for the shard's lock, or finds that another one charged last, so and so
// often, it gives the manager one shard for each few threads, once it holds no lock. They stay
// until the manager ends, and their memory for whatever manager is recycled from it.
#include "lib/manager/shard.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/biased_lock.h"
#include "lib/base/thread.h"
#include "lib/manager/manager.h"
#include <string.h>
#include <unistd.h>

enum { CROWDED_WAITS = 16 };

// ------------------------------------------------------------------------------------------- locks

void nd__shard_wait(nd_shard *shard) {
    nd__biased_lock_wait(&shard->lock);
    if (++shard->waits % CROWDED_WAITS == 0)
        nd__thread_record.crowded = shard->manager; // registers nobody below a lock
}

void nd__shard_lock_pair(nd_shard *a, nd_shard *b) {
    if (a == b) {
        nd__shard_lock(a);
        return;
    }
    nd__shard_lock(a < b ? a : b);
    nd__shard_lock(a < b ? b : a);
}

void nd__shard_unlock_pair(nd_shard *a, nd_shard *b) {
    nd__shard_unlock(a);
    if (a != b)
        nd__shard_unlock(b);
}

void nd__shard_lock_all(nd_shard **shards, size_t count) {
    for (size_t i = 0; i < count; i++) {
        nd_shard *shard = shards[i];
        size_t at = i;
        for (; at > 0 && shards[at - 1] > shard; at--)
            shards[at] = shards[at - 1];
        shards[at] = shard;
    }
    for (size_t i = 0; i < count; i++)
        if (i == 0 || shards[i] != shards[i - 1])
            nd__shard_lock(shards[i]);
}

nd_shard *nd__shard_lock_in(nd_shard *shard, nd_manager *manager) {
    for (;;) {
        nd__biased_lock_acquire(&shard->lock);
        if (__builtin_expect(shard->manager == manager, 1))
            return shard;
        nd__shard_unlock(shard);
        shard = nd__atomic_load(&manager->escaped, acquire);
    }
}

nd_shard *nd__shard_own(nd_manager *manager) {
    uint32_t place = nd__thread()->number % nd__shard_count(manager);
    return place ? &manager->more[place - 1] : &manager->first;
}

nd_shard *nd__shard_lock_own(nd_manager *manager) {
    nd_shard *shard = nd__shard_own(manager);
    nd__shard_lock(shard);
    if (__builtin_expect(shard->retired, 0)) {
        nd__shard_unlock(shard);
        shard = &manager->first;
        nd__shard_lock(shard);
    }
    return shard;
}

// ------------------------------------------------------------------------------------ more and one

uint32_t nd__shard_limit(void) {
#ifdef ND_MODEL
    return 3;
#else
    static _Atomic uint32_t limit;
    uint32_t known = nd__atomic_load(&limit, relaxed);
    if (known)
        return known;
    long cores = sysconf(_SC_NPROCESSORS_CONF);
    known = cores < 2 ? 8 : cores > 16 ? 64 : 4 * (uint32_t)cores;
    nd__atomic_store(&limit, known, relaxed);
    return known;
#endif
}

void nd__shard_keep_block(void *block) {
#ifndef ND_MODEL
    static _Atomic(nd__kept_block *) kept;
    nd__kept_block *link = block, *head = nd__atomic_load(&kept, relaxed);
    do
        link->next = head;
    while (!nd__atomic_cas(&kept, &head, link, release, relaxed));
#else
    (void)block;
#endif
}

void nd__shard_begin(nd_shard *shard, nd_manager *manager) {
    if (!shard->manager)
        shard->manager = manager;
    memset((char *)shard + offsetof(nd_shard, lists), 0, sizeof *shard - offsetof(nd_shard, lists));
}

static bool may_spread(const nd_manager *manager) {
    return nd__manager_open(manager) && !nd__atomic_load(&manager->single, relaxed) &&
           nd__shard_count(manager) == 1;
}

void nd__shard_spread(nd_manager *manager) {
    uint32_t limit = nd__shard_limit();
    nd__biased_lock_acquire(&manager->first.lock);
    bool wanted = may_spread(manager), lacking = wanted && !manager->more;
    nd__shard_unlock(&manager->first);
    if (!wanted)
        return;
    void *block = lacking ? nd__alloc_zeroed(ND__LINE_BLOCK((limit - 1) * sizeof(nd_shard))) : NULL;
    if (lacking && !block)
        return;
    nd__biased_lock_acquire(&manager->first.lock);
    if (may_spread(manager)) {
        if (!manager->more) {
            manager->more = nd__shard_line_in(block);
            nd__shard_keep_block(block);
            block = NULL;
        }
        for (uint32_t i = 0; i + 1 < limit; i++)
            nd__shard_begin(&manager->more[i], manager);
        nd__atomic_store(&manager->shard_count, limit, release);
    }
    nd__shard_unlock(&manager->first);
    nd__alloc_free(block); // another thread was faster
}

void nd__shard_spread_crowded(nd_thread *thread) {
    nd_manager *manager = thread->crowded;
    thread->crowded = NULL;
    nd__shard_spread(manager);
}

/// Puts one list behind another one.
static void append(nd_object **first, nd_object **last, nd_object *next_first,
                   nd_object *next_last) {
    if (!next_first)
        return;
    if (*last)
        (*last)->next = next_first;
    else
        *first = next_first;
    next_first->previous = *last;
    *last = next_last;
}

void nd__shard_move_counts(nd__counters *lost, nd__counters *won) {
    won->live += lost->live;
    won->tracked += lost->tracked;
    won->uncapped += lost->uncapped;
    won->temporary += lost->temporary;
    lost->live = lost->tracked = lost->uncapped = lost->temporary = 0;
    for (int kind = 0; kind < ND__KIND_PLACES; kind++) {
        won->own_bytes[kind] += lost->own_bytes[kind];
        lost->own_bytes[kind] = 0;
    }
}

void nd__shard_move(nd_shard *from, nd_shard *target, bool as_newest) {
    for (int list = 0; list < 2; list++) {
        nd_object *first = from->lists[list].first, *last = from->lists[list].last;
        for (nd_object *object = first; object; object = object->next) {
            nd__atomic_store(&object->shard, target, release);
            target->sited |= object->site != NULL;
        }
        nd_object *there = target->lists[list].first, *there_last = target->lists[list].last;
        if (as_newest) {
            append(&first, &last, there, there_last);
            target->lists[list].first = first;
            target->lists[list].last = last;
        } else {
            append(&target->lists[list].first, &target->lists[list].last, first, last);
        }
        from->lists[list].first = from->lists[list].last = NULL;
    }
    nd__shard_move_counts(&from->count, &target->count);
}

void nd__shard_unite(nd_manager *manager) {
    nd_shard *first = nd__shard_first(manager);
    nd__biased_lock_acquire(&first->lock);
    nd__atomic_store(&manager->single, true, relaxed);
    nd__shard_unlock(first);
    for (nd_shard *shard = nd__shard_next(first); shard; shard = nd__shard_next(shard)) {
        nd__shard_lock_pair(first, shard);
        while (shard->manager != manager) { // it was handed up meanwhile
            nd__shard_unlock_pair(first, shard);
            shard = nd__atomic_load(&manager->escaped, acquire);
            nd__shard_lock_pair(first, shard);
        }
        shard->retired = true;
        nd__shard_move(shard, first, true);
        // What they did goes with them, so that the counts of each shard add up.
        nd__counters *lost = &shard->count, *won = &first->count;
        won->created += lost->created;
        won->arrived += lost->arrived;
        won->departed += lost->departed;
        won->freed += lost->freed;
        won->collected += lost->collected;
        won->escaped += lost->escaped;
        won->freed_bytes += lost->freed_bytes;
        *lost = (nd__counters){0};
        nd__shard_unlock_pair(first, shard);
    }
}

// ----------------------------------------------------------------------------------- what escaped

void nd__shard_begin_escapes(nd_manager *manager) {
    if (nd__atomic_load(&manager->escapes, relaxed))
        return;
    nd__shard_begin(nd__atomic_load(&manager->escaped, relaxed), manager);
    nd__atomic_store(&manager->escapes, 1, release);
}

nd_shard *nd__shard_for_escapes(nd_manager *manager, bool closing) {
    if (nd__atomic_load(&manager->escapes, acquire))
        return nd__atomic_load(&manager->escaped, acquire);
    for (;;) {
        nd_shard *escaped = nd__atomic_load(&manager->escaped, acquire);
        nd__shard_lock_pair(&manager->first, escaped);
        bool still = nd__atomic_load(&manager->escaped, relaxed) == escaped;
        bool may =
            (closing || nd__manager_open(manager)) && !nd__atomic_load(&manager->single, relaxed);
        if (still && may)
            nd__shard_begin_escapes(manager);
        nd__shard_unlock_pair(&manager->first, escaped);
        if (still)
            return may ? escaped : &manager->first;
    }
}

enum { RECENT_LIMIT = 16384 };

void nd__shard_escaped_note(nd_manager *manager, uint64_t tracked) {
    uint32_t last = nd__atomic_load(&manager->recent[0], relaxed);
    if (tracked == 0 && last == 0 && nd__atomic_load(&manager->recent[1], relaxed) == 0)
        return;
    nd__atomic_store(&manager->recent[1], last, relaxed);
    nd__atomic_store(&manager->recent[0], tracked < RECENT_LIMIT ? (uint32_t)tracked : RECENT_LIMIT,
                     relaxed);
}

size_t nd__shard_escaped_recently(nd_manager *manager) {
    size_t recent = (size_t)nd__atomic_load(&manager->recent[0], relaxed) +
                    nd__atomic_load(&manager->recent[1], relaxed);
    if (__builtin_expect(recent == 0, 1))
        return 0;
    nd_shard *shard = nd__shard_of_escaped(manager);
    if (!shard)
        return 0;
    shard = nd__shard_lock_in(shard, manager);
    size_t there = shard->count.tracked;
    nd__shard_unlock(shard);
    recent = recent < RECENT_LIMIT ? recent : RECENT_LIMIT;
    return recent < there ? recent : there;
}

// ------------------------------------------------------------------------------------------ counts

static nd__counters count_of(nd_shard *shard, nd_manager *manager) {
    shard = nd__shard_lock_in(shard, manager);
    nd__counters count = shard->count;
    nd__shard_unlock(shard);
    return count;
}

nd__counters nd__shard_total(nd_manager *manager) {
    enum { MEMBERS = sizeof(nd__counters) / sizeof(uint64_t) };
    nd_shard *shard = nd__shard_first(manager);
    nd__counters total = count_of(shard, manager);
    while (__builtin_expect((shard = nd__shard_next(shard)) != NULL, 0)) {
        nd__counters one = count_of(shard, manager);
        for (int i = 0; i < MEMBERS; i++)
            ((uint64_t *)&total)[i] += ((const uint64_t *)&one)[i];
    }
    return total;
}
