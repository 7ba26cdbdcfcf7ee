// Blocks of device memory, and who may touch them when.
//
// Invariant: a block's pages have access rights only while a step that touched them is running. Its
// bytes are poison when it comes to be; when it is gone its pages are empty and closed, until
// another block gets them, which may be at once when the stream is the same. The bytes around a
// block are poison all its life.
#include "tests/cudart/runtime.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 256, MOST_REGIONS = 2000 };

static cudart_region **regions; ///< by address
static size_t region_count, region_room;
static cudart_region *opened;

// ------------------------------------------------------------------------------------------------
// regions

/// The first region that ends behind an address.
static size_t region_index(const char *address) {
    size_t low = 0, high = region_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (regions[middle]->base + regions[middle]->mapped + (size_t)getpagesize() <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

cudart_region *cudart_region_at(const void *pointer) {
    size_t index = region_index(pointer);
    return index < region_count && regions[index]->base <= (const char *)pointer ? regions[index]
                                                                                 : NULL;
}

static void protect(cudart_region *region, int rights) {
    if (mprotect(region->base, region->mapped, rights) != 0)
        cudart_abort(region->block, "the rights of a block's pages cannot be changed");
}

static void forget_region(size_t index) {
    cudart_region *region = regions[index];
    munmap(region->base, region->mapped + (size_t)getpagesize());
    while (region->block) {
        cudart_block *older = region->block->older;
        free(region->block);
        region->block = older;
    }
    free(region);
    memmove(&regions[index], &regions[index + 1], (--region_count - index) * sizeof *regions);
}

static bool is_gone(const cudart_region *region) {
    for (const cudart_block *block = region->block; block; block = block->older)
        if (block->state != CUDART_DEAD)
            return false;
    return true;
}

/// Not counted any more. Its addresses stay taken for a while.
void cudart_region_release(cudart_region *region) {
    region->released = true;
    region->device->reserved -= region->mapped;
    if (region->pool)
        region->pool->reserved -= region->mapped;
}

static cudart_region *region_new(cudart_device *device, cudart_pool *pool, size_t mapped) {
    if (region_count >= MOST_REGIONS)
        for (size_t i = region_count; i-- > 0;)
            if (regions[i]->released && is_gone(regions[i]))
                forget_region(i);
    size_t page = (size_t)getpagesize();
    char *base =
        mmap(NULL, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    if (region_count == region_room) {
        region_room = region_room ? 2 * region_room : 64;
        regions = realloc(regions, region_room * sizeof *regions);
        if (!regions)
            cudart_abort(NULL, "the host has no memory");
    }
    cudart_region *region = cudart_allocate(sizeof *region);
    *region = (cudart_region){.base = base, .mapped = mapped, .device = device, .pool = pool};
    size_t index = region_index(base);
    memmove(&regions[index + 1], &regions[index], (region_count++ - index) * sizeof *regions);
    regions[index] = region;
    device->reserved += mapped;
    if (pool) {
        pool->reserved += mapped;
        if (pool->reserved > pool->reserved_high)
            pool->reserved_high = pool->reserved;
    }
    return region;
}

/// A region of the pool that nobody has, or will have when the stream gets there.
static cudart_region *cached(cudart_pool *pool, size_t mapped, size_t most, cudart_stream *stream) {
    for (size_t i = 0; pool && i < region_count; i++) {
        cudart_region *region = regions[i];
        if (region->pool == pool && !region->released && region->mapped >= mapped &&
            region->mapped <= most && region->block->given_back &&
            (region->block->state == CUDART_DEAD || region->block->freed.stream == stream))
            return region;
    }
    return NULL;
}

void cudart_pool_release(cudart_pool *pool, uint64_t down_to) {
    for (size_t i = 0; i < region_count && pool->reserved > down_to; i++)
        if (regions[i]->pool == pool && !regions[i]->released && is_gone(regions[i]))
            cudart_region_release(regions[i]);
}

void cudart_pools_synchronized(cudart_device *device) {
    for (size_t i = 0; i < region_count; i++) {
        cudart_pool *pool = regions[i]->pool;
        if (pool && pool->device == device && !regions[i]->released &&
            pool->reserved > pool->threshold && is_gone(regions[i]))
            cudart_region_release(regions[i]);
    }
}

// ------------------------------------------------------------------------------------------------
// blocks

static cudart_region *find_room(cudart_device *device, cudart_pool *pool, size_t mapped,
                                cudart_stream *stream) {
    cudart_region *region = NULL;
    if (mapped > device->memory)
        return NULL;
    if (cudart_draw(2) == 0 && (region = cached(pool, mapped, 2 * mapped, stream)))
        return region;
    if (pool && device->reserved + mapped > device->memory) {
        uint64_t excess = device->reserved + mapped - device->memory;
        if ((region = cached(pool, mapped, 2 * mapped, stream)))
            return region;
        cudart_pool_release(pool, pool->reserved > excess ? pool->reserved - excess : 0);
    }
    if (device->reserved + mapped <= device->memory)
        return region_new(device, pool, mapped);
    return cached(pool, mapped, SIZE_MAX, stream);
}

cudart_block *cudart_block_new(cudart_device *device, cudart_pool *pool, size_t bytes,
                               cudart_stream *stream) {
    size_t page = (size_t)getpagesize();
    if (bytes > device->memory)
        return NULL;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t mapped = (rounded + page - 1) / page * page;
    cudart_region *region = find_room(device, pool, mapped, stream);
    if (!region)
        return NULL;
    cudart_block *block = cudart_allocate(sizeof *block);
    block->older = region->block;
    block->region = region;
    block->bytes = bytes;
    // What runs over its end meets pages that nobody may touch.
    block->pointer = region->base + region->mapped - rounded;
    cudart_take_stack(&block->made_at);
    region->block = block;
    if (pool) {
        pool->used += region->mapped;
        if (pool->used > pool->used_high)
            pool->used_high = pool->used;
    }
    return block;
}

void cudart_block_born(cudart_block *block) {
    protect(block->region, PROT_READ | PROT_WRITE);
    memset(block->region->base, cudart.poison, block->region->mapped);
    protect(block->region, PROT_NONE);
    block->state = CUDART_ALIVE;
}

static bool is_before(cudart_point point, const cudart_step *step) {
    return !point.stream || point.stream == step->point.stream ||
           step->clock->at[point.stream->number] >= point.at;
}

static void check_surroundings(cudart_block *block) {
    const cudart_region *region = block->region;
    const char *end = region->base + region->mapped;
    for (const char *at = region->base; at < end; at++) {
        if (at == block->pointer)
            at += block->bytes;
        if (at < end && (unsigned char)*at != cudart.poison)
            cudart_abort(block, "bytes beside a block were written, at %p", (const void *)at);
    }
}

/// Those of a region that nobody needs to be told about.
static void forget_blocks(cudart_region *region) {
    cudart_block **link = &region->block->older;
    if (*link)
        link = &(*link)->older;
    while (*link) {
        cudart_block *block = *link;
        if (block->state == CUDART_DEAD) {
            *link = block->older;
            free(block);
        } else {
            link = &block->older;
        }
    }
}

void cudart_block_died(cudart_block *block, const cudart_step *step) {
    cudart_region *region = block->region;
    for (unsigned i = 0; step && i < region->touches; i++)
        if (!is_before(region->touched[i].point, step)) {
            cudart_print_stack("touched by what was queued at", &region->touched[i].issued_at);
            cudart_abort(block,
                         "a block is freed on a stream that does not wait for another one, which "
                         "touches it");
        }
    region->touches = 0;
    protect(region, PROT_READ);
    check_surroundings(block);
    protect(region, PROT_NONE);
    madvise(region->base, region->mapped, MADV_DONTNEED);
    block->state = CUDART_DEAD;
    if (region->pool)
        region->pool->used -= region->mapped;
    forget_blocks(region);
}

cudart_block *cudart_give_back(void *pointer) {
    cudart_region *region = cudart_region_at(pointer);
    cudart_block *block = region ? region->block : NULL;
    if (!block || block->pointer != pointer)
        cudart_abort(block, "%p is freed and is the address of no block", pointer);
    if (block->given_back)
        cudart_abort(block, "a block is freed twice");
    block->given_back = true;
    cudart_take_stack(&block->freed_at);
    return block;
}

cudart_block *cudart_check_range(const char *name, const void *pointer, size_t bytes) {
    cudart_region *region = cudart_region_at(pointer);
    if (!region)
        return NULL;
    cudart_block *block = region->block;
    if (block->given_back)
        cudart_abort(block, "%s is called with the address of a block that was freed", name);
    const char *begin = pointer;
    if (begin < block->pointer || bytes > (size_t)(block->pointer + block->bytes - begin))
        cudart_abort(block, "%s is called with %zu bytes that are not all in one block", name,
                     bytes);
    return block;
}

void cudart_count_live(uint64_t *ret_blocks, uint64_t *ret_bytes) {
    *ret_blocks = *ret_bytes = 0;
    for (size_t i = 0; i < region_count; i++)
        if (!regions[i]->block->given_back) {
            *ret_blocks += 1;
            *ret_bytes += regions[i]->block->bytes;
        }
}

// ------------------------------------------------------------------------------------------------
// touching

static cudart_block *alive_in(const cudart_region *region) {
    cudart_block *block = region->block;
    while (block && block->state != CUDART_ALIVE)
        block = block->older;
    return block;
}

/// Ends the program: there is nothing at an address that was a block's or will be one's.
static void report_absent(const cudart_region *region) {
    cudart_block *block = region->block;
    while (block->older && block->state == CUDART_UNBORN)
        block = block->older;
    cudart_abort(block, block->state == CUDART_DEAD
                            ? "a block is used after its stream-ordered free"
                            : "a block is used before its stream-ordered allocation");
}

static void note_touch(cudart_region *region, const cudart_step *step, bool write) {
    cudart_touch *mine = NULL;
    for (unsigned i = 0; i < region->touches; i++) {
        cudart_touch *other = &region->touched[i];
        if (other->point.stream == step->point.stream && other->write == write)
            mine = other;
        if (cudart.races && (write || other->write) && !is_before(other->point, step) &&
            region->device->failed == cudaSuccess) {
            cudart_print_stack("touched before by what was queued at", &other->issued_at);
            cudart_abort(region->block,
                         "two streams touch a block, one of them writes, and no event is "
                         "between them");
        }
    }
    // In the handler of a fault nothing may be allocated.
    if (!mine && region->touches < CUDART_TOUCHES)
        region->touches++;
    if (!mine)
        mine = &region->touched[region->touches - 1];
    *mine = (cudart_touch){step->point, write, step->issued_at};
}

/// Whether the running step may touch a region that it faulted at; ends the program when it must
/// not.
static bool open_region(cudart_region *region, const char *address, bool write) {
    const cudart_step *step = cudart.running;
    // What a device that has failed was to allocate and free is not done, nor does work of others wait
    // for it.
    const bool lost = region->device->failed != cudaSuccess;
    cudart_block *block = alive_in(region);
    if (!block && !lost)
        report_absent(region);
    block = block ? block : region->block;
    if (address >= region->base + region->mapped)
        cudart_abort(block, "work ran over the end of a block");
    cudart_device *device = step->point.stream->device;
    if (step->kind != CUDART_COPY && region->device != device &&
        !device->peers[region->device->ordinal])
        return false;
    if (!lost && !is_before(block->made, step))
        cudart_abort(block,
                     "a block is used on another stream than its allocation's, and no event is "
                     "between them");
    // A fault at pages that may be read is a write.
    int rights = write || region->opened == 1 ? 2 : 1;
    if (region->opened == 0) {
        region->next_opened = opened;
        opened = region;
    }
    region->opened = rights;
    note_touch(region, step, rights == 2);
    protect(region, rights == 2 ? PROT_READ | PROT_WRITE : PROT_READ);
    return true;
}

bool cudart_open_touched(void *address, bool write) {
    pthread_mutex_lock(&cudart.lock);
    cudart_region *region = cudart_region_at(address);
    bool open = region && region->block && open_region(region, address, write);
    pthread_mutex_unlock(&cudart.lock);
    return open;
}

void cudart_close_touched(void) {
    for (; opened; opened = opened->next_opened) {
        protect(opened, PROT_NONE);
        opened->opened = 0;
    }
}
