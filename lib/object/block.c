// Blocks of objects: classes of sizes, and the slow paths of the threads' caches (block.h).
//
// Invariant: what a thread has cut of its run and freed is in its cache, in at most two batches, or has
// gone to the depot (depot.h) as one.
#include "lib/object/block.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/object/block_order.h"
#include "lib/object/checked.h"
#include "lib/object/depot.h"
#include "lib/object/name.h"
#include "lib/object/object.h"
#include "lib/object/slab.h"
#include <stdlib.h>

#if ND_SHARED
/// Those of threads that have none of their own: nobody writes here, and nothing is in them.
static nd__block_cache no_caches[ND__BLOCK_CACHED_CLASSES];
_Thread_local nd__block_cache *nd__block_caches = no_caches;
#else
_Thread_local nd__block_cache nd__block_caches[ND__BLOCK_CACHED_CLASSES];
#endif

// ------------------------------------------------------------------------------------------- sizes

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
    uint32_t count = nd__depot_batch(class);
    cache->spare = NULL;
    if (!batch) {
        nd_object *block = cut(cache, class);
        if (block)
            return block;
        batch = nd__depot_take(class);
        count = batch ? batch->gc_index : 0;
    }
    if (batch) {
        cache->free = batch->next;
        cache->room = nd__depot_batch(class) - (count - 1);
        return batch;
    }
    nd__run *taken = nd__depot_take_run(class);
    if (!taken)
        return NULL;
    cache->cut = nd__slab_run_begin(taken);
    cache->cut_end = nd__slab_run_end(taken);
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
        cache->room = nd__depot_batch(class);
    }
    return cache;
}

void *nd__block_new_slowly(size_t bytes) {
    if (!nd__alloc_allowed(bytes))
        return NULL;
    if (nd__checked_is_on())
        return nd__checked_new(bytes);
    nd__depot_look(); // before anything of this thread's caches is in hand
    if (bytes > 2 * ND__BLOCK_FINE)
        return nd__depot_new_large(bytes);
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

void nd__block_free_slowly(nd_object *object) {
    if (nd__checked_is_on()) {
        nd__checked_free(object);
        return;
    }
    uint32_t class = nd__object_flags(object) >> ND__CLASS_SHIFT;
    if (class >= ND__BLOCK_CACHED_CLASSES) {
        nd__depot_free_large(object, class);
        return;
    }
    nd__block_cache *cache = cache_of(class);
    if (!cache) { // no memory for one: a batch of its own
        object->next = NULL;
        nd__depot_give(class, object, 1);
        return;
    }
    nd_object *surplus = NULL;
    if (cache->room == 0) {
        surplus = cache->spare;
        cache->spare = cache->free;
        cache->free = NULL;
        cache->room = nd__depot_batch(class);
    }
    cache->room--;
    object->next = cache->free;
    cache->free = object;
    if (surplus) // last: the depot may be swept, and the cache with it
        nd__depot_give(class, surplus, nd__depot_batch(class));
}

/// What is in order as far as it can be brought into one.
static void free_ordered(nd_object *const *objects, size_t count) {
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

void nd__block_free_all(nd_object *const *objects, size_t count) {
    while (count > 0) {
        nd_object *ordered[ND__BLOCK_ORDER_MOST];
        size_t some = count < ND__BLOCK_ORDER_MOST ? count : ND__BLOCK_ORDER_MOST;
        free_ordered(nd__block_order_by_address(objects, some, ordered) ? ordered : objects, some);
        objects += some;
        count -= some;
    }
}

static void give_cache(nd__block_cache *cache, uint32_t class) {
    uint32_t batch = nd__depot_batch(class);
    nd__block_cache given = *cache;
    *cache = (nd__block_cache){0};
    if (given.spare)
        nd__depot_give(class, given.spare, batch);
    if (given.free)
        nd__depot_give(class, given.free, batch - given.room);
    nd_object *rest = NULL;
    uint32_t count = 0;
    for (nd_object *block; (block = cut(&given, class)) != NULL; count++) {
        nd__block_begin(block, class); // who takes it from a cache relies on that
        block->next = rest;
        rest = block;
    }
    if (rest)
        nd__depot_give(class, rest, count);
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

// ------------------------------------------------------------------------------------------- bounds

void nd__block_look(void) {
    nd__depot_look();
}

uint64_t nd__block_trim(void) {
    if (!nd__depot_begin_sweep())
        return 0;
    nd__block_thread_end();
    return nd__depot_sweep();
}

void nd__block_set_limit(uint64_t bytes) {
    nd__depot_set_limit(bytes);
}

uint64_t nd__block_cached_bytes(void) {
    return nd__depot_bytes() + nd__checked_bytes();
}
