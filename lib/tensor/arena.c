// The account of a graph's arena (arena.h).
//
// Invariant: until the graph is gone the account is what the arena has grown to; from then on it is
// what storages have of it. It is closed by nobody: where its manager ends it moves up.
#include "lib/tensor/arena.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/manager/member.h"
#include "lib/manager/publish.h"

struct nd_arena {
    nd_accounted accounted; ///< header, bytes charged, device
    uint64_t grown;         ///< bytes in all
    uint64_t joined;        ///< those of storages
    bool ended;             ///< the graph is gone
};

static nd_lock lock; // of the numbers of all arenas
ND__FORK_LOCK(ND__FORK_SINGLE, lock);

static const nd_type arena_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "arena",
    .flags = ND_TYPE_GREEN | ND__TYPE_ACCOUNTED | ND__TYPE_UNCAPPED,
};

nd_arena *nd__arena_new(nd_manager *manager, nd_device device) {
    nd_arena *arena = (nd_arena *)nd__object_new(&arena_type, sizeof *arena);
    if (!arena)
        return NULL;
    arena->accounted.header.site = nd__object_sites_enabled ? nd__site : NULL;
    arena->accounted.kind = device.kind;
    arena->accounted.device_index = device.index;
    if (nd__publish(&arena->accounted.header, manager) == ND_OK)
        return arena;
    nd_object_release(arena);
    return NULL;
}

void nd__arena_grow(nd_arena *arena, nd_manager *manager, uint64_t bytes) {
    nd__lock_acquire(&lock);
    arena->grown += bytes;
    nd__lock_release(&lock);
    nd__member_grow_account(&arena->accounted.header, manager, bytes);
}

nd_arena *nd__arena_join(nd_arena *arena, uint64_t bytes) {
    nd__lock_acquire(&lock);
    arena->joined += bytes;
    nd__lock_release(&lock);
    return nd_object_retain(arena);
}

void nd__arena_leave(nd_arena *arena, uint64_t bytes) {
    nd__lock_acquire(&lock);
    arena->joined -= bytes;
    const bool ended = arena->ended;
    nd__lock_release(&lock);
    if (ended)
        nd__member_shrink_account(&arena->accounted.header, bytes);
    nd_object_release(arena);
}

void nd__arena_end(nd_arena *arena) {
    nd__lock_acquire(&lock);
    arena->ended = true;
    // What a kernel took was perhaps never charged, and a storage came to lie there.
    const uint64_t left = arena->grown > arena->joined ? arena->grown - arena->joined : 0;
    nd__lock_release(&lock);
    nd__member_shrink_account(&arena->accounted.header, left);
    nd_object_release(arena);
}
