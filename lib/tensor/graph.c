// Graphs: the public object over what a backend has captured (lib/device/device.h).
//
// Invariant: a graph has its handle from the begin of its capture until it is closed or dies, and
// its edges, the replays, are all there when it is published. Its arena (arena.h) has the bytes.
#include "lib/tensor/graph.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/manager/publish.h"

struct nd_graph {
    nd_object header;
    nd_device device;
    nd_arena *arena; ///< counted, green, and no edge; NULL: closed
    uint64_t bytes;  ///< of it
    void *handle;    ///< the backend's; NULL: none yet, or closed
    size_t replays;
    nd_replay **replay; ///< edges
};

static void graph_traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_graph *graph = (const nd_graph *)self;
    for (size_t i = 0; i < graph->replays; i++)
        nd_visit(visitor, graph->replay[i], "replay");
}

static void graph_clear(nd_object *self) {
    nd_graph *graph = (nd_graph *)self;
    for (size_t i = 0; i < graph->replays; i++)
        nd_edge_clear(&graph->replay[i]);
}

static void graph_destroy(nd_object *self) {
    ND__UNCANCELLED;
    nd_graph *graph = (nd_graph *)self;
    const nd_device device = graph->device;
    if (graph->handle)
        nd__registry_backend(device.kind)->graphs->release(device.index, graph->handle);
    graph->handle = NULL;
    if (graph->arena)
        nd__arena_end(graph->arena);
    graph->arena = NULL;
    graph->replays = 0;
    nd__alloc_free(graph->replay);
    graph->replay = NULL;
}

static const nd_type graph_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "graph",
    .traverse = graph_traverse,
    .clear = graph_clear,
    .destroy = graph_destroy,
};

nd_graph *nd__graph_new(nd_manager *manager, nd_device device) {
    nd_graph *graph = (nd_graph *)nd__object_new(&graph_type, sizeof *graph);
    if (!graph)
        return NULL;
    graph->device = device;
    graph->arena = nd__arena_new(manager, device);
    if (graph->arena)
        return graph;
    nd_object_release(graph);
    return NULL;
}

nd_arena *nd__graph_arena(nd_graph *graph) {
    return graph->arena;
}

void nd__graph_set_handle(nd_graph *graph, void *handle) {
    graph->handle = handle;
}

nd_status nd__graph_add_replay(nd_graph *graph, nd_replay *replay) {
    nd_replay **grown =
        nd__alloc_resize(graph->replay, (graph->replays + 1) * sizeof *graph->replay);
    if (!grown) {
        nd_object_release(replay);
        return ND_ERROR_OUT_OF_MEMORY;
    }
    graph->replay = grown;
    graph->replay[graph->replays++] = replay;
    return ND_OK;
}

nd_replay *nd__graph_get_replay(const nd_graph *graph, size_t i) {
    return i < graph->replays ? graph->replay[i] : NULL;
}

nd_graph *nd__graph_publish(nd_graph *graph, nd_manager *manager, uint64_t bytes) {
    graph->header.site = nd__object_sites_enabled ? nd__site : NULL;
    graph->bytes = bytes;
    if (nd__publish(&graph->header, manager) == ND_OK)
        return graph;
    nd_object_release(graph);
    return NULL;
}

nd_device nd_graph_get_device(const nd_graph *graph) {
    return graph ? graph->device : (nd_device){ND_CPU, 0};
}

uint64_t nd_graph_get_bytes(const nd_graph *graph) {
    return graph && !nd__object_is_closed(graph) ? graph->bytes : 0;
}

static nd_status check_launch(const nd_graph *graph) {
    static const char operation[] = "graph_launch";
    if (!graph)
        return nd__error_null(operation, "graph");
    if (nd__object_is_closed(graph))
        return nd__error(ND_ERROR_CLOSED, "%s: the graph was closed", operation);
    const nd_device device = nd_graph_get_device(graph);
    nd_status status = nd__registry_device_check(operation, device);
    return status == ND_OK ? nd__capture_check(operation, device) : status;
}

nd_status nd_graph_launch(nd_graph *graph) {
    ND__UNCANCELLED;
    nd_status status = check_launch(graph);
    for (size_t i = 0; status == ND_OK && i < graph->replays; i++)
        status = graph->replay[i]->prepare(graph->replay[i]);
    if (status != ND_OK)
        return status;
    const nd_device device = nd_graph_get_device(graph);
    status = nd__registry_backend(device.kind)->graphs->launch(device.index, graph->handle);
    if (status != ND_OK)
        return nd__error(status, "graph_launch: %s failed with %s",
                         nd__registry_device_text(device), nd_status_get_name(status));
    for (size_t i = 0; i < graph->replays; i++)
        graph->replay[i]->commit(graph->replay[i]);
    return ND_OK;
}
