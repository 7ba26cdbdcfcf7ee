// What a manager is charged for a graph's arena, for as long as something keeps memory of it.
//
// The graph has one, and so has every storage that lies in the arena: results outlive their graph,
// and their bytes stay with the manager that the graph was made in.
#ifndef ND_LIB_TENSOR_ARENA_H
#define ND_LIB_TENSOR_ARENA_H
#include "lib/manager/manager.h"

typedef struct nd_arena nd_arena;

/// Of nothing yet, in a manager; owned. NULL with an error.
nd_arena *nd__arena_new(nd_manager *manager, nd_device device);
/// The arena has grown by bytes that were charged to a manager.
void nd__arena_grow(nd_arena *arena, nd_manager *manager, uint64_t bytes);
/// Some of its bytes are a storage's from now on. The arena, retained.
nd_arena *nd__arena_join(nd_arena *arena, uint64_t bytes);
/// They are not any more. Gives up the storage's count.
void nd__arena_leave(nd_arena *arena, uint64_t bytes);
/// The graph is gone: what no storage has is uncharged. Gives up the graph's count.
void nd__arena_end(nd_arena *arena);
#endif
