// Kept blocks: a stack for each size, and all of them by age (kept.h).
#include "lib/memory/kept.h"
#include "lib/base/cgroup.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include <unistd.h>

#define LEAST_LOG 15 // of ND__KEPT_LEAST
#define PARTS_LOG 3  // eight sizes from one power of two to the next
#define SIZES ((64 - LEAST_LOG) << PARTS_LOG)
_Static_assert(ND__KEPT_LEAST == (size_t)1 << LEAST_LOG, "the smallest size");

static struct {
    nd_lock lock;
    nd_kept *sizes[SIZES];    ///< the newest of each
    nd_kept *oldest, *newest; ///< of all
    uint64_t most;            ///< UINT64_MAX: as much as the machine suggests
    size_t suggested;         ///< 0: nobody has asked the system
    _Atomic uint64_t bytes;   ///< written below the lock
} kept = {.most = UINT64_MAX};
ND__FORK_LOCKS(kept_lock, ND__FORK_SINGLE, &kept.lock, 1, sizeof kept.lock);

/// The place of the highest bit.
static unsigned log_of(size_t bytes) {
    return 63 - (unsigned)__builtin_clzl(bytes);
}

size_t nd__kept_size(size_t bytes) {
    const size_t mask = ((size_t)1 << (log_of(bytes) - PARTS_LOG)) - 1;
    return (bytes + mask) & ~mask;
}

static nd_kept **place_of(size_t size) {
    const unsigned log = log_of(size);
    const size_t part = (size >> (log - PARTS_LOG)) & ((1u << PARTS_LOG) - 1);
    return &kept.sizes[((size_t)(log - LEAST_LOG) << PARTS_LOG) + part];
}

static uint64_t most(void) {
    if (kept.most != UINT64_MAX)
        return kept.most;
    if (kept.suggested == 0) {
        const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
        const int64_t group = nd__cgroup_memory(ND__CGROUP_ROOT, ND__CGROUP_OWN);
        size_t eighth = pages > 0 && page > 0 ? (size_t)pages / 8 * (size_t)page : 0;
        if (group > 0 && (eighth == 0 || (size_t)group / 8 < eighth))
            eighth = (size_t)group / 8;
        kept.suggested = eighth > 0 && eighth < ND__KEPT_MOST ? eighth : ND__KEPT_MOST;
    }
    return kept.suggested;
}

static void add_bytes(uint64_t bytes) {
    nd__atomic_store(&kept.bytes, nd__atomic_load_relaxed(&kept.bytes) + bytes, relaxed);
}

static void insert(nd_kept *block) {
    nd_kept **place = place_of(block->bytes);
    block->before = NULL;
    block->next = *place;
    if (*place)
        (*place)->before = block;
    *place = block;
    block->newer = NULL;
    block->older = kept.newest;
    *(kept.newest ? &kept.newest->newer : &kept.oldest) = block;
    kept.newest = block;
    add_bytes(block->bytes);
}

static void remove_block(nd_kept *block) {
    *(block->before ? &block->before->next : place_of(block->bytes)) = block->next;
    if (block->next)
        block->next->before = block->before;
    *(block->older ? &block->older->newer : &kept.oldest) = block->newer;
    *(block->newer ? &block->newer->older : &kept.newest) = block->older;
    add_bytes(-(uint64_t)block->bytes);
}

void *nd__kept_take(size_t size) {
    nd__lock_acquire(&kept.lock);
    nd_kept *block = *place_of(size);
    if (block)
        remove_block(block);
    nd__lock_release(&kept.lock);
    return block;
}

/// Takes out what is more than the limit, and what is too old.
static nd_kept *surplus(uint64_t now_ns) {
    nd_kept *found = NULL;
    while (kept.oldest &&
           (nd__kept_bytes() > most() ||
            (now_ns > ND__KEPT_NS && kept.oldest->since_ns < now_ns - ND__KEPT_NS))) {
        nd_kept *oldest = kept.oldest;
        remove_block(oldest);
        oldest->next = found;
        found = oldest;
    }
    return found;
}

nd_kept *nd__kept_put(void *pointer, size_t size, uint64_t now_ns) {
    nd_kept *block = pointer;
    block->bytes = size;
    block->since_ns = now_ns;
    nd__lock_acquire(&kept.lock);
    insert(block);
    nd_kept *found = surplus(now_ns);
    nd__lock_release(&kept.lock);
    return found;
}

nd_kept *nd__kept_set_most(uint64_t bytes) {
    nd__lock_acquire(&kept.lock);
    kept.most = bytes;
    nd_kept *found = surplus(0);
    nd__lock_release(&kept.lock);
    return found;
}

nd_kept *nd__kept_empty(void) {
    nd_kept *all = NULL;
    nd__lock_acquire(&kept.lock);
    while (kept.oldest) {
        nd_kept *oldest = kept.oldest;
        remove_block(oldest);
        oldest->next = all;
        all = oldest;
    }
    nd__lock_release(&kept.lock);
    return all;
}

uint64_t nd__kept_bytes(void) {
    return nd__atomic_load_relaxed(&kept.bytes);
}
