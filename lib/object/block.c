// Blocks of objects: slabs and runs, the depot, and the slow paths of the threads' caches
// (block.h).
//
// Invariant: a free block is in one place: a cache, a batch of the depot, or nowhere because its
// run is blank (given back to the system, to be cut anew). `slab.runs` says of which class each run
// is; that never changes. Blocks of a run that is not blank are cut from its beginning, in order,
// by one thread.
//
// One lock guards the depot. It is held for a few instructions; whoever sweeps takes the batches
// out first and looks at them without it.
#include "lib/object/block.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/clock.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/object/checked.h"
#include "lib/object/name.h"
#include "lib/object/object.h"
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#define RUN_BYTES ((size_t)16 << 10)
#define SLAB_BYTES ((size_t)256 << 10)
/// What is mapped at once when there are SLABS_ALONE slabs: a huge page.
#define CHUNK_BYTES ((size_t)2 << 20)
/// What the depot keeps for longer than a moment.
#define DEPOT_LIMIT ((uint64_t)64 << 20)
#define MOMENT_NS UINT64_C(1000000000)
enum { RUNS = SLAB_BYTES / RUN_BYTES, SLAB_HEAD = 1024, PAGE = 4096, LARGE_CLASSES = 64 };
enum { SLABS_ALONE = 16 };

typedef struct run {
    struct run *next; ///< while it is blank, or found to be empty
    uint32_t free;    ///< blocks of it that the sweep has seen
    uint32_t class;
} run;

typedef struct slab slab;
struct slab {
    slab *next;     ///< while it is unused
    uint32_t taken; ///< runs that have a class
    run runs[RUNS];
};
_Static_assert(sizeof(slab) <= SLAB_HEAD, "the first run begins behind it");

#if ND_SHARED
/// Those of threads that have none of their own: nobody writes here, and nothing is in them.
static nd__block_cache no_caches[ND__BLOCK_CACHED_CLASSES];
_Thread_local nd__block_cache *nd__block_caches = no_caches;
#else
_Thread_local nd__block_cache nd__block_caches[ND__BLOCK_CACHED_CLASSES];
#endif

static struct {
    nd_lock lock;
    slab *filling; ///< the newest in use; older ones have no run left
    slab *unused;
    size_t slabs; ///< that were mapped
    struct {
        nd_object *batches; ///< first blocks, linked by `previous`; gc_index is how many blocks
        run *blank;
    } classes[ND__BLOCK_CACHED_CLASSES];
    nd_object *large[LARGE_CLASSES]; ///< by the logarithm of their size, linked by `next`
    _Atomic uint64_t free_bytes;     ///< in batches, and in `large` with their pages
    uint64_t limit;                  ///< of free_bytes, exactly; UINT64_MAX: DEPOT_LIMIT, for long
    uint64_t stuck;                  ///< of free_bytes, what the last sweep could not give back
    uint64_t full_since_ns;          ///< 0: free_bytes is within the limit
    bool sweeping;                   ///< a thread has taken the batches out
} depot = {.limit = UINT64_MAX};

// ------------------------------------------------------------------------------------------- sizes

size_t nd__block_bytes(uint32_t class) {
    if (class < ND__BLOCK_CACHED_CLASSES - 1)
        return (size_t)(class + 1) * ND__BLOCK_UNIT;
    return (size_t)(2 * ND__BLOCK_FINE) << (class - (ND__BLOCK_CACHED_CLASSES - 1));
}

size_t nd__block_size(const nd_object *object) {
    return nd__block_bytes(nd__object_flags(object) >> ND__CLASS_SHIFT);
}

uint32_t nd__block_class_of(size_t bytes) {
    if (bytes <= ND__BLOCK_FINE)
        return nd__block_class(bytes);
    uint32_t class = ND__BLOCK_CACHED_CLASSES - 1;
    while (nd__block_bytes(class) < bytes)
        class ++;
    return class;
}

static uint32_t blocks_in_batch(uint32_t class) {
    return (uint32_t)(RUN_BYTES / nd__block_bytes(class));
}

static slab *slab_of(const void *block) {
    return (slab *)((uintptr_t)block & ~(uintptr_t)(SLAB_BYTES - 1));
}

static run *run_of(const void *block) {
    slab *of = slab_of(block);
    return &of->runs[(size_t)((const char *)block - (const char *)of) / RUN_BYTES];
}

static char *run_begin(run *of) {
    slab *in = slab_of(of);
    ptrdiff_t index = of - in->runs;
    return (char *)in + (index ? (size_t)index * RUN_BYTES : SLAB_HEAD);
}

static char *run_end(run *of) {
    slab *in = slab_of(of);
    return (char *)in + (size_t)(of - in->runs + 1) * RUN_BYTES;
}

static uint32_t blocks_in_run(run *of) {
    return (uint32_t)((size_t)(run_end(of) - run_begin(of)) / nd__block_bytes(of->class));
}

// ------------------------------------------------------------------------------------ the system's

static void *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/// Memory at a multiple of its size, a power of two. The system puts one mapping beside the other,
/// so most are there at once.
static char *map_aligned(size_t bytes) {
    char *memory = map(bytes);
    size_t off = (uintptr_t)memory & (bytes - 1);
    if (!off)
        return memory;
    munmap(memory, bytes);
    memory = map(2 * bytes);
    if (!memory)
        return NULL;
    size_t before = -(uintptr_t)memory & (bytes - 1);
    if (before)
        munmap(memory, before);
    munmap(memory + before + bytes, bytes - before);
    return memory + before;
}

/// Has the system put one huge page there now, and never again: what is given back of it must not
/// come back when the system finds the rest to be in use.
static void make_huge(char *chunk) {
    if (madvise(chunk, CHUNK_BYTES, MADV_HUGEPAGE) != 0)
        return;
    *(volatile char *)chunk = 0;
    madvise(chunk, CHUNK_BYTES, MADV_NOHUGEPAGE);
}

/// New slabs, one or, where there are many already, a chunk. Returns how many, 0 without memory.
static size_t map_slabs(bool many, char **ret_memory) {
    char *memory = many ? map_aligned(CHUNK_BYTES) : NULL;
    if (memory) {
        make_huge(memory);
        *ret_memory = memory;
        return CHUNK_BYTES / SLAB_BYTES;
    }
    *ret_memory = map_aligned(SLAB_BYTES);
    return *ret_memory != NULL;
}

// ------------------------------------------------------------------------------------------- depot

/// A batch, or NULL.
static nd_object *depot_take(uint32_t class) {
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

static void depot_give(uint32_t class, nd_object *batch, uint32_t count) {
    nd__lock_acquire(&depot.lock);
    depot_put(class, batch, count);
    bool stale = depot_is_stale();
    nd__lock_release(&depot.lock);
    if (__builtin_expect(stale, 0))
        nd__block_trim();
}

/// A run that is nobody's, with the depot locked; NULL when there is none.
static run *take_mapped_run(uint32_t class) {
    run *taken = depot.classes[class].blank;
    if (taken) {
        depot.classes[class].blank = taken->next;
        return taken;
    }
    if (!depot.filling || depot.filling->taken == RUNS) {
        if (!depot.unused)
            return NULL;
        depot.filling = depot.unused;
        depot.unused = depot.unused->next;
    }
    taken = &depot.filling->runs[depot.filling->taken++];
    taken->class = class;
    return taken;
}

/// A run for a thread to cut, or NULL. Memory is mapped without the lock: a huge page takes the
/// system a while.
static run *take_run(uint32_t class) {
    nd__lock_acquire(&depot.lock);
    run *taken = take_mapped_run(class);
    bool many = depot.slabs >= SLABS_ALONE;
    nd__lock_release(&depot.lock);
    if (taken)
        return taken;
    char *memory;
    size_t slabs = map_slabs(many, &memory);
    nd__lock_acquire(&depot.lock);
    depot.slabs += slabs;
    while (slabs-- > 0) {
        slab *mapped = (slab *)(void *)(memory + slabs * SLAB_BYTES);
        mapped->next = depot.unused;
        depot.unused = mapped;
    }
    taken = take_mapped_run(class);
    nd__lock_release(&depot.lock);
    return taken;
}

// ------------------------------------------------------------------------------------------ caches

/// The next block of the thread's run, or NULL.
static nd_object *cut(nd__block_cache *cache, uint32_t class) {
    size_t bytes = nd__block_bytes(class);
    if ((size_t)(cache->cut_end - cache->cut) < bytes)
        return NULL;
    nd_object *block = (nd_object *)(void *)cache->cut;
    cache->cut += bytes;
    return block;
}

/// A block when the cache has no free one; NULL when there is no memory.
static nd_object *refill(nd__block_cache *cache, uint32_t class) {
    nd_object *batch = cache->spare;
    uint32_t count = blocks_in_batch(class);
    cache->spare = NULL;
    if (!batch) {
        nd_object *block = cut(cache, class);
        if (block)
            return block;
        batch = depot_take(class);
        count = batch ? batch->gc_index : 0;
    }
    if (batch) {
        cache->free = batch->next;
        cache->room = blocks_in_batch(class) - (count - 1);
        return batch;
    }
    run *taken = take_run(class);
    if (!taken)
        return NULL;
    cache->cut = run_begin(taken);
    cache->cut_end = run_end(taken);
    return cut(cache, class);
}

/// The thread's cache of a class, begun.
static nd__block_cache *cache_of(uint32_t class) {
#if ND_SHARED
    if (nd__block_caches == no_caches) {
        nd__block_cache *own = calloc(ND__BLOCK_CACHED_CLASSES, sizeof *own);
        if (!own)
            return NULL;
        nd__block_caches = own;
    }
#endif
    nd__block_cache *cache = &nd__block_caches[class];
    if (!cache->begun) {
        cache->begun = true;
        cache->room = blocks_in_batch(class);
    }
    return cache;
}

void nd__block_look(void) {
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

static void *new_large(size_t bytes);

void *nd__block_new_slowly(size_t bytes) {
    if (!nd__alloc_allowed(bytes))
        return NULL;
    if (nd__checked_is_on())
        return nd__checked_new(bytes);
    nd__block_look(); // before anything of this thread's caches is in hand
    if (bytes > 2 * ND__BLOCK_FINE)
        return new_large(bytes);
    uint32_t class = nd__block_class_of(bytes);
    nd__block_cache *cache = cache_of(class);
    if (!cache)
        return NULL;
    nd_object *block = cache->free;
    if (block) {
        cache->free = block->next;
        cache->room++;
    } else {
        block = refill(cache, class);
        if (!block)
            return NULL;
    }
    nd__block_begin(block, class);
    return block;
}

void nd__block_begin(nd_object *block, uint32_t class) {
    if (nd__object_flags(block) & ND__NAMED)
        nd__name_remove(block);
    nd__atomic_store(&block->flags, class << ND__CLASS_SHIFT, relaxed);
}

static void free_large(nd_object *object, uint32_t class);

void nd__block_free_slowly(nd_object *object) {
    if (nd__checked_is_on()) {
        nd__checked_free(object);
        return;
    }
    uint32_t class = nd__object_flags(object) >> ND__CLASS_SHIFT;
    if (class >= ND__BLOCK_CACHED_CLASSES) {
        free_large(object, class);
        return;
    }
    nd__block_cache *cache = cache_of(class);
    if (!cache) { // no memory for one: a batch of its own
        object->next = NULL;
        depot_give(class, object, 1);
        return;
    }
    nd_object *surplus = NULL;
    if (cache->room == 0) {
        surplus = cache->spare;
        cache->spare = cache->free;
        cache->free = NULL;
        cache->room = blocks_in_batch(class);
    }
    cache->room--;
    object->next = cache->free;
    cache->free = object;
    if (surplus) // last: the depot may be swept, and the cache with it
        depot_give(class, surplus, blocks_in_batch(class));
}

void nd__block_free_all(nd_object *const *objects, size_t count) {
    for (size_t i = 0; i < count;) {
        uint32_t class = nd__object_flags(objects[i]) >> ND__CLASS_SHIFT;
        nd__block_cache *cache = class < ND__BLOCK_CACHED_CLASSES ? &nd__block_caches[class] : NULL;
        if (!cache || cache->room == 0) {
            nd__block_free_slowly(objects[i++]);
            continue;
        }
        nd_object *first = cache->free;
        size_t end = count - i < cache->room ? count : i + cache->room, begin = i;
        for (; i < end && nd__object_flags(objects[i]) >> ND__CLASS_SHIFT == class; i++) {
            objects[i]->next = first;
            first = objects[i];
        }
        cache->free = first;
        cache->room -= (uint32_t)(i - begin);
    }
}

static void give_cache(nd__block_cache *cache, uint32_t class) {
    uint32_t batch = blocks_in_batch(class);
    nd__block_cache given = *cache;
    *cache = (nd__block_cache){0};
    if (given.spare)
        depot_give(class, given.spare, batch);
    if (given.free)
        depot_give(class, given.free, batch - given.room);
    nd_object *rest = NULL;
    uint32_t count = 0;
    for (nd_object *block; (block = cut(&given, class)) != NULL; count++) {
        block->next = rest;
        rest = block;
    }
    if (rest)
        depot_give(class, rest, count);
}

void nd__block_thread_end(void) {
    for (uint32_t class = 0; class < ND__BLOCK_CACHED_CLASSES; class ++)
        if (nd__block_caches[class].begun)
            give_cache(&nd__block_caches[class], class);
#if ND_SHARED
    if (nd__block_caches != no_caches)
        free(nd__block_caches);
    nd__block_caches = no_caches;
#endif
}

// ------------------------------------------------------------------------------------ large blocks

/// Each a mapping of its own. Its `gc_index` is 1 while only the page of the header is resident.
static void *new_large(size_t bytes) {
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
        block = map(whole);
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

static void free_large(nd_object *object, uint32_t class) {
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
static run *find_empty(nd_object *batches) {
    run *empty = NULL;
    for (nd_object *batch = batches; batch; batch = batch->previous)
        for (nd_object *block = batch; block; block = block->next) {
            run *of = run_of(block);
            if (++of->free == blocks_in_run(of)) {
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
            run *of = run_of(block);
            if (of->free == blocks_in_run(of)) {
                if (nd__object_flags(block) & ND__NAMED)
                    nd__name_remove(block);
                continue;
            }
            of->free = 0;
            block->next = kept;
            kept = block;
            if (++count == blocks_in_batch(class)) {
                depot_give(class, kept, count);
                kept = NULL;
                count = 0;
            }
        }
    }
    if (kept)
        depot_give(class, kept, count);
}

/// Gives empty runs back to the system. Returns their bytes.
static uint64_t blank(run *empty, uint32_t class) {
    uint64_t bytes = 0;
    for (run *of = empty, *next; of; of = next) {
        next = of->next;
        char *begin = run_begin(of), *end = run_end(of);
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
    run *empty = find_empty(batches);
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

uint64_t nd__block_trim(void) {
    nd__lock_acquire(&depot.lock);
    bool busy = depot.sweeping;
    depot.sweeping = true;
    nd__lock_release(&depot.lock);
    if (busy)
        return 0;
    nd__block_thread_end();
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

void nd__block_set_limit(uint64_t bytes) {
    nd__lock_acquire(&depot.lock);
    depot.limit = bytes;
    depot.stuck = 0;
    bool stale = depot_is_stale();
    nd__lock_release(&depot.lock);
    if (stale)
        nd__block_trim();
}

uint64_t nd__block_cached_bytes(void) {
    return nd__atomic_load_relaxed(&depot.free_bytes) + nd__checked_bytes();
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
