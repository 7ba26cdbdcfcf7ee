// Managers around fork(): every shard there is locked meanwhile, and in the child what threads that
// are not there had begun is settled (fork.h).
//
// Memory of managers is never given back, so a list of all of it finds every shard: of managers in
// the tree, closed ones, and those that wait to be recycled.
#include "lib/manager/manager_fork.h"
#include "lib/base/atomics.h"
#include "lib/base/biased_lock.h"
#include "lib/base/thread.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"

static nd__shard_range *merge_ranges(nd__shard_range *a, nd__shard_range *b) {
    nd__shard_range *merged = NULL, **end = &merged;
    while (a && b) {
        nd__shard_range **lower = a->first < b->first ? &a : &b;
        *end = *lower;
        end = &(*end)->next;
        *lower = *end;
    }
    *end = a ? a : b;
    return merged;
}

/// In the order of addresses. Merges runs of 2^i ranges, of which `runs` holds one or none each.
static nd__shard_range *sorted_ranges(nd_manager *newest) {
    nd__shard_range *runs[64] = {NULL}, *all = NULL;
    for (nd_manager *at = newest; at; at = at->older)
        for (int r = 0; r < 3; r++) {
            nd__shard_range *run = &at->ranges[r];
            run->next = NULL;
            int i = 0;
            for (; run->count && runs[i]; runs[i++] = NULL)
                run = merge_ranges(runs[i], run);
            if (run->count)
                runs[i] = run;
        }
    for (int i = 0; i < 64; i++)
        all = merge_ranges(runs[i], all);
    return all;
}

static void find_ranges(nd_manager *newest) {
    for (nd_manager *at = newest; at; at = at->older) {
        nd__biased_lock_acquire(&at->first.lock);
        nd_shard *more = at->more;
        nd__shard_unlock(&at->first);
        at->ranges[0] = (nd__shard_range){.first = &at->first, .count = 1};
        at->ranges[1] = (nd__shard_range){.first = more, .count = more ? nd__shard_limit() - 1 : 0};
        at->ranges[2] = (nd__shard_range){.first = &at->pocket, .count = 1};
    }
}

static bool all_found(const nd_manager *newest) {
    if (nd__atomic_load(&nd__manager_newest, acquire) != newest)
        return false;
    for (const nd_manager *at = newest; at; at = at->older)
        if (at->more != at->ranges[1].first)
            return false;
    return true;
}

static nd__shard_range *locked_ranges;  ///< by a thread that forks
static nd_manager *newest_while_locked; ///< what is newer was not finished, and is not the child's

static void unlock_all_shards(void) {
    for (nd__shard_range *range = locked_ranges; range; range = range->next)
        for (size_t i = 0; i < range->count; i++)
            nd__shard_unlock(&range->first[i]);
    locked_ranges = NULL;
}

/// In the order of addresses, as all who take more than one.
void nd__manager_fork_before(void) {
    for (;;) {
        newest_while_locked = nd__atomic_load(&nd__manager_newest, acquire);
        find_ranges(newest_while_locked);
        locked_ranges = sorted_ranges(newest_while_locked);
        for (nd__shard_range *range = locked_ranges; range; range = range->next)
            for (size_t i = 0; i < range->count; i++)
                nd__biased_lock_acquire(&range->first[i].lock);
        // A manager that is made now is locked out of the tree.
        if (all_found(newest_while_locked))
            return;
        unlock_all_shards();
    }
}

/// A manager that a thread was closing which is not there is open again, held by nobody who will
/// let go of it: its parent's close closes it. If it has left the tree already it is closed.
static void settle_close(nd_manager *manager) {
    if (nd__atomic_load(&manager->state, relaxed) != ND__MANAGER_CLOSING ||
        nd__atomic_load(&manager->closer, relaxed) == &nd__thread_record)
        return;
    const nd_shard *siblings = manager->siblings;
    bool linked = siblings && (manager->previous_sibling || siblings->children == manager);
    nd__atomic_store(&manager->state, linked ? ND__MANAGER_OPEN : ND__MANAGER_CLOSED, relaxed);
    uint64_t word = nd__atomic_load_relaxed(&manager->header.word);
    if (linked && (uint32_t)word == 0) // it was dying
        nd__atomic_store(&manager->header.word, word + ND__VERSION_STEP + 1, relaxed);
}

/// What was charged without a lock, by threads that are not there: the accounts become what is in
/// the lists. This thread may itself have charged what is in no list yet, on its way through a
/// callback for memory; then they stay.
static void settle_accounts(nd_manager *newest) {
    if (nd__thread_record.walks)
        return;
    for (nd_manager *at = newest; at; at = at->older)
        for (nd_shard *shard = &at->first; shard; shard = nd__shard_next(shard))
            for (int kind = 0; kind < ND__KIND_PLACES; kind++) {
                nd__atomic_store(&shard->bytes[kind], 0, relaxed);
                nd__atomic_store(&shard->owned[kind], 0, relaxed);
            }
    for (nd_manager *at = newest; at; at = at->older)
        for (nd_shard *shard = &at->first; shard; shard = nd__shard_next(shard))
            for (int kind = 0; kind < ND__KIND_PLACES; kind++)
                for (nd_manager *up = at; up && shard->count.own_bytes[kind]; up = up->parent)
                    nd__atomic_add_relaxed(&up->first.bytes[kind], shard->count.own_bytes[kind]);
}

void nd__manager_fork_after(bool child) {
    if (!child || !locked_ranges) {
        unlock_all_shards();
        return;
    }
    nd__atomic_store(&nd__manager_newest, newest_while_locked, relaxed);
    for (nd__shard_range *range = locked_ranges; range; range = range->next)
        for (size_t i = 0; i < range->count; i++)
            nd__biased_lock_begin(&range->first[i].lock);
    locked_ranges = NULL;
    for (nd_manager *at = newest_while_locked; at; at = at->older)
        settle_close(at);
    settle_accounts(newest_while_locked);
}
