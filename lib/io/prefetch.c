// The prefetching thread.
//
// Invariant: 0 <= used <= prepared <= used + depth, and slot n % depth is written only while n ==
// prepared. The caller wakes the thread when half of the ring is empty rather than at every piece:
// a wake-up costs more than a small batch.
#include "lib/io/prefetch.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/spawn.h"
#include <string.h>

static void *run(void *argument);

nd_status nd__prefetch_start(nd_prefetch *prefetch, const char *operation, nd_prefetch_fill fill,
                             const void *context, void *slots, size_t slot_bytes, int64_t depth,
                             int64_t first, int64_t pieces) {
    memset(prefetch, 0, sizeof(*prefetch));
    prefetch->fill = fill;
    prefetch->context = context;
    prefetch->slots = slots;
    prefetch->slot_bytes = slot_bytes;
    prefetch->depth = depth;
    prefetch->first = prefetch->prepared = prefetch->used = first;
    prefetch->pieces = pieces;
    // With default attributes these three cannot fail on Linux, and they hold no memory of their
    // own.
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->filled, NULL);
    pthread_cond_init(&prefetch->emptied, NULL);
    int answer = nd__spawn(&prefetch->thread, NULL, 0, run, prefetch);
    if (answer != 0) {
        pthread_cond_destroy(&prefetch->emptied);
        pthread_cond_destroy(&prefetch->filled);
        pthread_mutex_destroy(&prefetch->lock);
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: the prefetching thread cannot be started: %s",
                         operation, nd__error_reason(answer));
    }
    prefetch->running = true;
    prefetch->generation = nd__fork_generation;
    return ND_OK;
}

/// Then it has left its lock as it was, perhaps taken.
static bool is_lost(const nd_prefetch *prefetch) {
    return prefetch->running && prefetch->generation != nd__fork_generation;
}

void *nd__prefetch_wait(nd_prefetch *prefetch) {
    if (is_lost(prefetch)) {
        nd__error(
            ND_ERROR_STATE,
            "dataset_next_batch: the thread that prepares batches stayed in the parent process "
            "when that forked; start the epoch anew");
        return NULL;
    }
    pthread_mutex_lock(&prefetch->lock);
    int64_t piece = prefetch->used;
    while (prefetch->prepared <= piece)
        pthread_cond_wait(&prefetch->filled, &prefetch->lock);
    pthread_mutex_unlock(&prefetch->lock);
    return prefetch->slots + (size_t)(piece % prefetch->depth) * prefetch->slot_bytes;
}

void nd__prefetch_done(nd_prefetch *prefetch) {
    pthread_mutex_lock(&prefetch->lock);
    prefetch->used++;
    bool wake = prefetch->prepared - prefetch->used <= prefetch->depth / 2;
    pthread_mutex_unlock(&prefetch->lock);
    if (wake)
        pthread_cond_signal(&prefetch->emptied);
}

void nd__prefetch_stop(nd_prefetch *prefetch) {
    ND__UNCANCELLED;
    if (is_lost(prefetch))
        prefetch->running = false;
    if (!prefetch->running)
        return;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->stop = true;
    pthread_mutex_unlock(&prefetch->lock);
    pthread_cond_signal(&prefetch->emptied);
    pthread_join(prefetch->thread, NULL);
    pthread_cond_destroy(&prefetch->emptied);
    pthread_cond_destroy(&prefetch->filled);
    pthread_mutex_destroy(&prefetch->lock);
    prefetch->running = false;
}

static void *run(void *argument) {
    nd_prefetch *prefetch = argument;
    for (int64_t piece = prefetch->first; piece < prefetch->pieces; piece++) {
        pthread_mutex_lock(&prefetch->lock);
        while (!prefetch->stop && piece - prefetch->used >= prefetch->depth)
            pthread_cond_wait(&prefetch->emptied, &prefetch->lock);
        bool stop = prefetch->stop;
        pthread_mutex_unlock(&prefetch->lock);
        if (stop)
            break;
        void *slot = prefetch->slots + (size_t)(piece % prefetch->depth) * prefetch->slot_bytes;
        prefetch->fill(prefetch->context, piece, slot);
        pthread_mutex_lock(&prefetch->lock);
        prefetch->prepared++;
        bool wanted = prefetch->used == piece; // the caller may be waiting for just this one
        pthread_mutex_unlock(&prefetch->lock);
        if (wanted)
            pthread_cond_signal(&prefetch->filled);
    }
    return NULL;
}
