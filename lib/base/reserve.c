// The reserve: a stack of blocks in memory that is the process's from its start.
//
// Beside it, one large block that was given up and is kept (`kept`).
//
// Invariant: blocks lie one after the other from the beginning, each behind a header that knows
// where it begins; what lies behind the last block that is in use is free. A block that is given up
// below another is only marked, and goes with the last one above it. Untouched, the reserve costs
// address space and no memory.
#include "lib/base/reserve.h"
#include "lib/base/alloc.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include <stddef.h>
#include <string.h>

typedef struct block {
    _Alignas(max_align_t) size_t before; ///< where the block below begins
    bool in_use;
} block;

static _Alignas(max_align_t) char memory[ND__RESERVE_BYTES];
static size_t used, last; ///< end of the last block, and its beginning (when used > 0)
static nd_lock lock;
ND__FORK_LOCKS(reserve_lock, ND__FORK_SINGLE, &lock, 1, sizeof lock);

static bool is_reserve(const void *pointer) {
    return (uintptr_t)pointer - (uintptr_t)memory < sizeof memory;
}

static void *take(size_t bytes) {
    const size_t mask = _Alignof(max_align_t) - 1;
    void *pointer = NULL;
    nd__lock_acquire(&lock);
    if (bytes <= sizeof memory - sizeof(block) - mask &&
        used <= sizeof memory - sizeof(block) - ((bytes + mask) & ~mask)) {
        block *taken = (block *)(void *)(memory + used);
        *taken = (block){.before = last, .in_use = true};
        last = used;
        used += sizeof *taken + ((bytes + mask) & ~mask);
        pointer = taken + 1;
    }
    nd__lock_release(&lock);
    return pointer;
}

static void give_back(void *pointer) {
    nd__lock_acquire(&lock);
    ((block *)pointer - 1)->in_use = false;
    while (used > 0) {
        const block *top = (const block *)(const void *)(memory + last);
        if (top->in_use)
            break;
        used = last;
        last = top->before;
    }
    nd__lock_release(&lock);
}

void *nd__reserve_malloc(size_t bytes) {
    void *pointer = nd__alloc(bytes);
    return pointer || nd__alloc_should_fail ? pointer : take(bytes);
}

void *nd__reserve_realloc(void *pointer, size_t before, size_t bytes) {
    void *larger = nd__reserve_malloc(bytes);
    if (!larger)
        return NULL;
    if (before)
        memcpy(larger, pointer, before < bytes ? before : bytes);
    nd__reserve_free(pointer);
    return larger;
}

void nd__reserve_free(void *pointer) {
    if (pointer && is_reserve(pointer))
        give_back(pointer);
    else
        nd__alloc_free(pointer);
}

// Smaller ones come back quickly from any allocator; larger ones are not for keeping.
#define KEPT_MIN ((size_t)1 << 20)
#define KEPT_MAX ((size_t)256 << 20)

static struct {
    nd_lock lock;
    void *block;
    size_t bytes;
} kept;
ND__FORK_LOCKS(kept_lock, ND__FORK_SINGLE, &kept.lock, 1, sizeof kept.lock);

void *nd__reserve_take_large(size_t *bytes) {
    void *block = NULL;
    if (*bytes >= KEPT_MIN && !nd__alloc_should_fail) {
        nd__lock_acquire(&kept.lock);
        if (kept.bytes >= *bytes) {
            block = kept.block;
            *bytes = kept.bytes;
            kept.block = NULL;
            kept.bytes = 0;
        }
        nd__lock_release(&kept.lock);
    }
    return block ? block : nd__reserve_malloc(*bytes);
}

void nd__reserve_keep_large(void *pointer, size_t bytes) {
    void *surplus = pointer;
    if (bytes >= KEPT_MIN && bytes <= KEPT_MAX && !is_reserve(pointer)) {
        nd__lock_acquire(&kept.lock);
        if (bytes > kept.bytes) {
            surplus = kept.block;
            kept.block = pointer;
            kept.bytes = bytes;
        }
        nd__lock_release(&kept.lock);
    }
    nd__reserve_free(surplus);
}

size_t nd__reserve_trim(void) {
    nd__lock_acquire(&kept.lock);
    void *block = kept.block;
    size_t bytes = kept.bytes;
    kept.block = NULL;
    kept.bytes = 0;
    nd__lock_release(&kept.lock);
    nd__alloc_free(block);
    return bytes;
}
