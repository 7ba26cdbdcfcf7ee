// The depot (depot.h): batches, runs that nobody cuts, large blocks, and the sweep that gives memory back.
//
// Invariant: a free block is in one place: a cache, a batch of the depot, or nowhere because its
// run is blank (given back to the system, to be cut anew). Blocks of a run that is not blank are cut
// from its beginning, in order, by one thread.
//
// One lock guards the depot. It is held for a few instructions; whoever sweeps takes the batches
// out first and looks at them without it.
#include "lib/object/depot.h"
#include "lib/base/atomics.h"
#include "lib/base/clock.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/object/block.h"
#include "lib/object/checked.h"
#include "lib/object/name.h"
#include "lib/object/object.h"
#include "lib/object/slab.h"
#include <sys/mman.h>

/// What the depot keeps for longer than a moment.
#define DEPOT_LIMIT ((uint64_t)64 << 20)
#define MOMENT_NS UINT64_C(1000000000)
enum { PAGE = 4096, LARGE_CLASSES = 64 };
/// Slabs that come one by one; after so many, in huge pages.
enum { SLABS_ALONE = 16 };

static struct {
    nd_lock lock;
    nd__slab *filling; ///< the newest in use; older ones have no run left
    nd__slab *unused;
    size_t slabs; ///< that were mapped
    struct {
        nd_object *batches; ///< first blocks, linked by `previous`; gc_index is how many blocks
        nd__run *blank;
    } classes[ND__BLOCK_CACHED_CLASSES];
    nd_object *large[LARGE_CLASSES]; ///< by the logarithm of their size, linked by `next`
    _Atomic uint64_t free_bytes;     ///< in batches, and in `large` with their pages
    uint64_t limit;                  ///< of free_bytes, exactly; UINT64_MAX: DEPOT_LIMIT, for long
    uint64_t stuck;                  ///< of free_bytes, what the last sweep could not give back
    uint64_t full_since_ns;          ///< 0: free_bytes is within the limit
    bool sweeping;                   ///< a thread has taken the batches out
} depot = {.limit = UINT64_MAX};

// -------------------------------------------------------------------------------- batches and runs

nd_object *nd__depot_take(uint32_t class) {
    nd__lock_acquire(&depot.lock);
    nd_object *batch = depot.classes[class].batches;
    if (batch) {
        depot.classes[class].batches = batch->previous;
        uint64_t bytes = batch->gc_index * nd__block_bytes(class);
        uint64_t left = nd__atomic_load_relaxed(&depot.free_bytes) - bytes;
        nd__atomic_store(&depot.free_bytes, left, relaxed);
        if (left <= DEPOT_LIMIT)
            depot.full_since_ns = 0;
        if (left < depot.stuck)
            depot.stuck = left;
    }
    nd__lock_release(&depot.lock);
    return batch;
}

/// True when the depot has held more than DEPOT_LIMIT for a while, or holds more than the limit that
/// was set: then a quarter more than a sweep could not give back, so that sweeps stay linear. The
/// depot is locked.
static bool depot_is_stale(void) {
    const uint64_t bytes = nd__atomic_load_relaxed(&depot.free_bytes);
    if (depot.limit != UINT64_MAX)
        return bytes > depot.limit && bytes - depot.stuck > depot.stuck / 4 && !depot.sweeping;
    if (bytes <= DEPOT_LIMIT || depot.sweeping)
        return false;
    uint64_t now = nd__clock_now_ns();
    if (!depot.full_since_ns)
        depot.full_since_ns = now;
    return now - depot.full_since_ns > MOMENT_NS;
}

static void depot_put(uint32_t class, nd_object *batch, uint32_t count) {
    batch->gc_index = count;
    batch->previous = depot.classes[class].batches;
    depot.classes[class].batches = batch;
    nd__atomic_add_relaxed(&depot.free_bytes, count * nd__block_bytes(class));
}

void nd__depot_give(uint32_t class, nd_object *batch, uint32_t count) {
    nd__lock_acquire(&depot.lock);
    depot_put(class, batch, count);
    bool stale = depot_is_stale();
    nd__lock_release(&depot.lock);
    if (__builtin_expect(stale, 0))
        nd__block_trim();
}

/// A run that is nobody's, with the depot locked; NULL when there is none.
static nd__run *take_mapped_run(uint32_t class) {
    nd__run *taken = depot.classes[class].blank;
    if (taken) {
        depot.classes[class].blank = taken->next;
        return taken;
    }
    if (!depot.filling || depot.filling->taken == ND__SLAB_RUNS) {
        if (!depot.unused)
            return NULL;
        depot.filling = depot.unused;
        depot.unused = depot.unused->next;
    }
    taken = &depot.filling->runs[depot.filling->taken++];
    taken->class = class;
    return taken;
}

/// Memory is mapped without the lock: a huge page takes the system a while.
nd__run *nd__depot_take_run(uint32_t class) {
    nd__lock_acquire(&depot.lock);
    nd__run *taken = take_mapped_run(class);
    bool many = depot.slabs >= SLABS_ALONE;
    nd__lock_release(&depot.lock);
    if (taken)
        return taken;
    char *memory;
    size_t slabs = nd__slab_map_some(many, &memory);
    nd__lock_acquire(&depot.lock);
    depot.slabs += slabs;
    while (slabs-- > 0) {
        nd__slab *mapped = (nd__slab *)(void *)(memory + slabs * ND__SLAB_BYTES);
        mapped->next = depot.unused;
        depot.unused = mapped;
    }
    taken = take_mapped_run(class);
    nd__lock_release(&depot.lock);
    return taken;
}

void nd__depot_look(void) {
#ifndef ND_MODEL // where no time passes
    if (__builtin_expect(nd__atomic_load_relaxed(&depot.free_bytes) <= DEPOT_LIMIT, 1))
        return;
    nd__lock_acquire(&depot.lock);
    const uint64_t bytes = nd__atomic_load_relaxed(&depot.free_bytes);
    const bool stale = bytes > depot.stuck + depot.stuck / 4 && depot_is_stale();
    nd__lock_release(&depot.lock);
    if (stale)
        nd__block_trim();
#endif
}

// ------------------------------------------------------------------------------------ large blocks

/// Each a mapping of its own. Its `gc_index` is 1 while only the page of the header is resident.
void *nd__depot_new_large(size_t bytes) {
    uint32_t class = nd__block_class_of(bytes);
    size_t whole = nd__block_bytes(class);
    nd_object **list = &depot.large[class - ND__BLOCK_CACHED_CLASSES];
    nd__lock_acquire(&depot.lock);
    nd_object *block = *list;
    if (block) {
        *list = block->next;
        if (!block->gc_index)
            nd__atomic_add_relaxed(&depot.free_bytes, -(uint64_t)whole);
    }
    nd__lock_release(&depot.lock);
    if (!block)
        block = nd__slab_map(whole);
    if (block)
        nd__block_begin(block, class);
    return block;
}

/// All but the header's page back to the system. Returns the bytes.
static uint64_t empty_large(nd_object *block, uint32_t class) {
    size_t whole = nd__block_bytes(class);
    if (block->gc_index || whole <= PAGE ||
        madvise((char *)block + PAGE, whole - PAGE, MADV_DONTNEED) != 0)
        return 0;
    block->gc_index = 1;
    return whole - PAGE;
}

void nd__depot_free_large(nd_object *object, uint32_t class) {
    enum { KEPT = 1 << 20 };
    size_t whole = nd__block_bytes(class);
    object->gc_index = 0;
    if (whole > KEPT)
        empty_large(object, class);
    nd_object **list = &depot.large[class - ND__BLOCK_CACHED_CLASSES];
    nd__lock_acquire(&depot.lock);
    object->next = *list;
    *list = object;
    if (!object->gc_index)
        nd__atomic_add_relaxed(&depot.free_bytes, whole);
    bool stale = depot.limit != UINT64_MAX && depot_is_stale();
    nd__lock_release(&depot.lock);
    if (stale)
        nd__block_trim();
}

// ------------------------------------------------------------------------------------------- sweep

/// Counts the blocks of each run. Returns the runs that are nothing else.
static nd__run *find_empty(nd_object *batches) {
    nd__run *empty = NULL;
    for (nd_object *batch = batches; batch; batch = batch->previous)
        for (nd_object *block = batch; block; block = block->next) {
            nd__run *of = nd__slab_run_of(block);
            if (++of->free == nd__slab_run_blocks(of)) {
                of->next = empty;
                empty = of;
            }
        }
    return empty;
}

/// Makes batches anew of the blocks whose run is not empty, and puts them back.
static void put_back(nd_object *batches, uint32_t class) {
    nd_object *kept = NULL;
    uint32_t count = 0;
    for (nd_object *batch = batches, *next_batch; batch; batch = next_batch) {
        next_batch = batch->previous;
        for (nd_object *block = batch, *next; block; block = next) {
            next = block->next;
            nd__run *of = nd__slab_run_of(block);
            if (of->free == nd__slab_run_blocks(of)) {
                if (nd__object_flags(block) & ND__NAMED)
                    nd__name_remove(block);
                continue;
            }
            of->free = 0;
            block->next = kept;
            kept = block;
            if (++count == nd__depot_batch(class)) {
                nd__depot_give(class, kept, count);
                kept = NULL;
                count = 0;
            }
        }
    }
    if (kept)
        nd__depot_give(class, kept, count);
}

/// Gives empty runs back to the system. Returns their bytes.
static uint64_t blank(nd__run *empty, uint32_t class) {
    uint64_t bytes = 0;
    for (nd__run *of = empty, *next; of; of = next) {
        next = of->next;
        char *begin = nd__slab_run_begin(of), *end = nd__slab_run_end(of);
        // The head of the slab shares its page with the first blocks.
        size_t head = (uintptr_t)begin & (PAGE - 1);
        if (head) {
            __builtin_memset(begin, 0, PAGE - head);
            begin += PAGE - head;
        }
        if (madvise(begin, (size_t)(end - begin), MADV_DONTNEED) == 0)
            bytes += (uint64_t)(end - begin);
        else
            __builtin_memset(begin, 0, (size_t)(end - begin));
        of->free = 0;
        nd__lock_acquire(&depot.lock);
        of->next = depot.classes[class].blank;
        depot.classes[class].blank = of;
        nd__lock_release(&depot.lock);
    }
    return bytes;
}

static uint64_t sweep_class(uint32_t class) {
    nd__lock_acquire(&depot.lock);
    nd_object *batches = depot.classes[class].batches;
    depot.classes[class].batches = NULL;
    uint64_t bytes = 0;
    for (nd_object *batch = batches; batch; batch = batch->previous)
        bytes += batch->gc_index * nd__block_bytes(class);
    nd__atomic_add_relaxed(&depot.free_bytes, -bytes);
    nd__lock_release(&depot.lock);
    nd__run *empty = find_empty(batches);
    put_back(batches, class);
    return blank(empty, class);
}

static uint64_t sweep_large(void) {
    uint64_t bytes = 0;
    nd__lock_acquire(&depot.lock);
    for (uint32_t i = 0; i < LARGE_CLASSES; i++)
        for (nd_object *block = depot.large[i]; block; block = block->next) {
            uint32_t class = i + ND__BLOCK_CACHED_CLASSES;
            uint64_t given = empty_large(block, class);
            bytes += given;
            if (given)
                nd__atomic_add_relaxed(&depot.free_bytes, -(uint64_t)nd__block_bytes(class));
        }
    nd__lock_release(&depot.lock);
    return bytes;
}

bool nd__depot_begin_sweep(void) {
    nd__lock_acquire(&depot.lock);
    bool busy = depot.sweeping;
    depot.sweeping = true;
    nd__lock_release(&depot.lock);
    return !busy;
}

uint64_t nd__depot_sweep(void) {
    uint64_t bytes = sweep_large();
    for (uint32_t class = 0; class < ND__BLOCK_CACHED_CLASSES; class ++)
        bytes += sweep_class(class);
    nd__lock_acquire(&depot.lock);
    depot.sweeping = false;
    depot.full_since_ns = 0;
    depot.stuck = nd__atomic_load_relaxed(&depot.free_bytes);
    nd__lock_release(&depot.lock);
    return bytes;
}

void nd__depot_set_limit(uint64_t bytes) {
    nd__lock_acquire(&depot.lock);
    depot.limit = bytes;
    depot.stuck = 0;
    bool stale = depot_is_stale();
    nd__lock_release(&depot.lock);
    if (stale)
        nd__block_trim();
}

uint64_t nd__depot_bytes(void) {
    return nd__atomic_load_relaxed(&depot.free_bytes);
}

// -------------------------------------------------------------------------------------------- fork

// A child has only the thread that forked: the depot must be nobody's then. What other threads had
// cached, or were sweeping, is not used again in the child.

static void before_fork(void) {
    nd__checked_before_fork();
    nd__lock_acquire(&depot.lock);
}

static void after_fork(bool child) {
    if (child) {
        depot.sweeping = false;
        nd__lock_begin(&depot.lock);
    } else {
        nd__lock_release(&depot.lock);
    }
    nd__checked_after_fork(child);
}
ND__FORK_PART(fork_blocks, ND__FORK_SINGLE, NULL, 0, 0, before_fork, after_fork, NULL);
