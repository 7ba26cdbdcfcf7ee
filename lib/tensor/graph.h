// Graphs: captured work, and what the host does for each launch of it.
#ifndef ND_LIB_TENSOR_GRAPH_H
#define ND_LIB_TENSOR_GRAPH_H
#include "lib/device/capture.h"
#include "lib/object/object.h"
#include "lib/tensor/arena.h"

/// What begins an object that the host asks for each launch. It holds by edges what it needs.
typedef struct nd_replay {
    nd_object header;
    /// At the end of the capture: whether launches can do what was captured.
    nd_status (*end)(struct nd_replay *replay);
    /// Before the launch is queued, on the same stream; the last thing that may be refused.
    nd_status (*prepare)(struct nd_replay *replay);
    /// When it was queued.
    void (*commit)(struct nd_replay *replay);
} nd_replay;

/// A private graph of nothing yet, whose arena a manager pays for; NULL with an error.
nd_graph *nd__graph_new(nd_manager *manager, nd_device device);
/// A private graph's arena, its own.
nd_arena *nd__graph_arena(nd_graph *graph);
/// What the backend captures into; the graph then owns it.
void nd__graph_set_handle(nd_graph *graph, void *handle);
/// A private graph owns its replays. ND_ERROR_OUT_OF_MEMORY: the replay is released, no error is set.
nd_status nd__graph_add_replay(nd_graph *graph, nd_replay *replay);
/// The i-th replay of a graph; NULL behind the last.
nd_replay *nd__graph_get_replay(const nd_graph *graph, size_t i);
/// The last step: the graph, with so many bytes in its arena, goes to a manager. The graph, or NULL
/// with an error, and then it is gone.
nd_graph *nd__graph_publish(nd_graph *graph, nd_manager *manager, uint64_t bytes);
#endif
