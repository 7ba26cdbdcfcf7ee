// Captures and graphs.
//
// While a stream is captured, what is queued on it becomes a node of a graph, behind the nodes that
// were last on it. What cannot become one is an error, and invalidates the capture: from then on
// only its end is accepted, which answers an error too. Stricter than CUDA: memory nodes, graphs in
// graphs, several devices and copies of pageable memory are refused, and all that asks or waits
// counts as unsafe.
//
// A launch queues the nodes on one stream in an order drawn anew each time from those that their
// edges permit, behind the launch before.
#include "tests/cudart/control.h"
#include "tests/cudart/runtime.h"
#include <limits.h>
#include <stdlib.h>

/// A set of nodes.
static void nodes_add(cudart_nodes *nodes, unsigned node) {
    for (unsigned i = 0; i < nodes->count; i++)
        if (nodes->at[i] == node)
            return;
    unsigned *grown = realloc(nodes->at, (nodes->count + 1) * sizeof *grown);
    if (!grown)
        cudart_abort(NULL, "the host has no memory");
    nodes->at = grown;
    nodes->at[nodes->count++] = node;
}

static void nodes_join(cudart_nodes *nodes, const cudart_nodes *others) {
    for (unsigned i = 0; i < others->count; i++)
        nodes_add(nodes, others->at[i]);
}

void cudart_nodes_clear(cudart_nodes *nodes) {
    free(nodes->at);
    *nodes = (cudart_nodes){0};
}

typedef struct cudart_node {
    cudart_step *step;    ///< owned
    cudart_nodes before;  ///< must be done first
    bool has_successor;   ///< some node is behind it
    unsigned outstanding; ///< for one launch: of `before`, those not queued yet
} cudart_node;

/// Its nodes, shared with what was instantiated and launched.
struct CUgraph_st {
    bool alive;
    unsigned uses; ///< by handles and by steps that are queued
    cudart_device *device;
    unsigned count;
    cudart_node *node;
    cudart_graph *older;
};

struct CUgraphExec_st {
    bool alive;
    cudart_graph_exec *older;
    cudart_graph *graph;
    cudart_point launched; ///< the end of its last launch
    cudart_clock *clock;   ///< owned: what is done before that; NULL: it was never launched
};

struct cudart_capture {
    uint64_t number;
    bool invalid;
    enum cudaStreamCaptureMode mode;
    pthread_t thread; ///< that began it
    cudart_stream *origin;
    cudart_graph *graph;
    cudart_capture *next;
};
static cudart_capture *captures;

// All handles that were given out.
static cudart_graph *graphs;
static cudart_graph_exec *executables;
static uint64_t captures_begun, live;
static uint64_t newest_nodes, newest_depth;

void cudart_count_graphs(cudart_statistics *ret_statistics) {
    for (const cudart_capture *each = captures; each; each = each->next)
        ret_statistics->captures++;
    ret_statistics->live_graphs = live;
    ret_statistics->graph_nodes = newest_nodes;
    ret_statistics->graph_depth = newest_depth;
}

/// A node comes behind all before it in the order of calls.
static void measure(const cudart_graph *graph) {
    unsigned *depth = cudart_allocate(graph->count * sizeof *depth);
    newest_nodes = graph->count;
    newest_depth = 0;
    for (unsigned i = 0; i < graph->count; i++) {
        const cudart_nodes *before = &graph->node[i].before;
        for (unsigned j = 0; j < before->count; j++)
            if (depth[before->at[j]] > depth[i])
                depth[i] = depth[before->at[j]];
        depth[i]++;
        if (depth[i] > newest_depth)
            newest_depth = depth[i];
    }
    free(depth);
}

void cudart_graph_drop(cudart_graph *graph) {
    if (!graph || --graph->uses > 0)
        return;
    for (unsigned i = 0; i < graph->count; i++) {
        cudart_step_free(graph->node[i].step);
        cudart_nodes_clear(&graph->node[i].before);
    }
    free(graph->node);
    graph->node = NULL;
    graph->count = 0;
}

// ------------------------------------------------------------------------------------------------
// what a capture does to other calls

static cudart_capture *capture_of_number(uint64_t number) {
    cudart_capture *each = captures;
    while (each && each->number != number)
        each = each->next;
    return each;
}

static cudaError_t invalidate(cudart_capture *capture, cudaError_t error) {
    capture->invalid = true;
    return error;
}

/// What this thread is kept from while captures run, its own or others'.
static _Thread_local enum cudaStreamCaptureMode kept_from = cudaStreamCaptureModeGlobal;

cudaError_t cudart_capture_unsafe(void) {
    cudaError_t error = cudaSuccess;
    for (cudart_capture *each = captures; each; each = each->next) {
        const bool mine = pthread_equal(each->thread, pthread_self()) != 0;
        const bool harmed = mine ? each->mode != cudaStreamCaptureModeRelaxed &&
                                       kept_from != cudaStreamCaptureModeRelaxed
                                 : each->mode == cudaStreamCaptureModeGlobal &&
                                       kept_from == cudaStreamCaptureModeGlobal;
        if (harmed)
            error = invalidate(each, cudaErrorStreamCaptureUnsupported);
    }
    return error;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    cudaError_t error = cudart_begin("cudaThreadExchangeStreamCaptureMode", true);
    if (error == cudaSuccess && (unsigned)*mode > cudaStreamCaptureModeRelaxed)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        const enum cudaStreamCaptureMode before = kept_from;
        kept_from = *mode;
        *mode = before;
    }
    return cudart_end(error);
}

cudaError_t cudart_capture_refuse(const cudart_stream *stream) {
    return stream->capture ? invalidate(stream->capture, cudaErrorStreamCaptureUnsupported)
                           : cudaSuccess;
}

/// Work on the stream NULL would have to wait for blocking streams, captured ones too.
static cudaError_t implicit(const cudart_stream *stream, bool harm) {
    cudaError_t error = cudaSuccess;
    for (cudart_capture *each = captures; each; each = each->next)
        for (int i = 0; i < cudart.streams && stream == stream->device->null_stream; i++) {
            const cudart_stream *other = cudart.stream[i];
            if (other->capture != each || !other->blocking || other->device != stream->device)
                continue;
            each->invalid |= harm;
            error = cudaErrorStreamCaptureImplicit;
        }
    return error;
}

cudaError_t cudart_capture_check(const cudart_stream *stream) {
    if (stream->capture && stream->capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    return implicit(stream, true);
}

void cudart_capture_add(cudart_step *step) {
    cudart_stream *stream = step->point.stream;
    cudart_graph *graph = stream->capture->graph;
    cudart_node *grown = realloc(graph->node, (graph->count + 1) * sizeof *grown);
    if (!grown)
        cudart_abort(NULL, "the host has no memory");
    graph->node = grown;
    cudart_node *node = &graph->node[graph->count];
    *node = (cudart_node){.step = step, .before = stream->tail};
    stream->tail = (cudart_nodes){0};
    nodes_add(&stream->tail, graph->count++);
    for (unsigned i = 0; i < node->before.count; i++)
        graph->node[node->before.at[i]].has_successor = true;
}

void cudart_capture_record(const cudart_stream *stream, cudart_event *event) {
    cudart_nodes_clear(&event->nodes);
    event->captured = 0;
    if (stream->capture) {
        event->captured = stream->capture->number;
        nodes_join(&event->nodes, &stream->tail);
    }
}

/// What waits joins the capture in which the event was recorded.
static cudaError_t join(cudart_stream *stream, const cudart_event *event) {
    cudart_capture *capture = capture_of_number(event->captured);
    if (!capture)
        return cudaErrorInvalidValue;
    if (capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (stream->capture && stream->capture != capture) {
        stream->capture->invalid = true;
        return invalidate(capture, cudaErrorStreamCaptureMerge);
    }
    if (stream->device != capture->origin->device)
        return invalidate(capture, cudaErrorStreamCaptureUnsupported);
    if (stream == stream->device->null_stream)
        return invalidate(capture, cudaErrorStreamCaptureImplicit);
    stream->capture = capture;
    nodes_join(&stream->tail, &event->nodes);
    return cudaSuccess;
}

cudaError_t cudart_capture_wait(cudart_stream *stream, const cudart_event *event, bool *ret_done) {
    *ret_done = event->captured || stream->capture;
    if (event->captured)
        return join(stream, event);
    return stream->capture && event->recorded
               ? invalidate(stream->capture, cudaErrorStreamCaptureIsolation)
               : cudaSuccess;
}

cudaError_t cudart_capture_asked(const cudart_event *event) {
    if (!event->captured)
        return cudart_capture_unsafe();
    cudart_capture *capture = capture_of_number(event->captured);
    return capture ? invalidate(capture, cudaErrorCapturedEvent) : cudaErrorCapturedEvent;
}

/// All its streams leave it. The graph stays with who asks.
static cudart_graph *end(cudart_capture *capture) {
    for (int i = 0; i < cudart.streams; i++)
        if (cudart.stream[i]->capture == capture) {
            cudart.stream[i]->capture = NULL;
            cudart_nodes_clear(&cudart.stream[i]->tail);
        }
    cudart_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    cudart_graph *graph = capture->graph;
    free(capture);
    return graph;
}

static void forget(cudart_graph *graph) {
    cudart_graph_drop(graph);
    free(graph);
}

void cudart_capture_stream_gone(const cudart_stream *stream) {
    cudart_capture *capture = stream->capture;
    if (!capture)
        return;
    capture->invalid = true;
    if (capture->origin == stream)
        forget(end(capture));
}

// ------------------------------------------------------------------------------------------------
// captures

static cudaError_t begin_capture(cudart_stream *stream, enum cudaStreamCaptureMode mode) {
    if ((unsigned)mode > cudaStreamCaptureModeRelaxed)
        return cudaErrorInvalidValue;
    if (stream == stream->device->null_stream)
        return cudaErrorStreamCaptureUnsupported;
    if (stream->capture)
        return cudaErrorIllegalState;
    cudart_capture *capture = cudart_allocate(sizeof *capture);
    *capture = (cudart_capture){
        .number = ++captures_begun,
        .mode = mode,
        .thread = pthread_self(),
        .origin = stream,
        .graph = cudart_allocate(sizeof(cudart_graph)),
        .next = captures,
    };
    capture->graph->uses = 1;
    capture->graph->device = stream->device;
    captures = capture;
    stream->capture = capture;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    cudaError_t error = cudart_begin("cudaStreamBeginCapture", true);
    if (error == cudaSuccess)
        error = begin_capture(cudart_stream_behind(handle), mode);
    return cudart_end(error);
}

/// Whether what other streams did was joined.
static bool is_joined(const cudart_capture *capture) {
    const cudart_nodes *last = &capture->origin->tail;
    for (unsigned i = 0; i < capture->graph->count; i++) {
        bool found = capture->graph->node[i].has_successor;
        for (unsigned j = 0; j < last->count && !found; j++)
            found = last->at[j] == i;
        if (!found)
            return false;
    }
    return true;
}

static cudaError_t end_capture(cudart_stream *stream, cudaGraph_t *ret_graph) {
    cudart_capture *capture = stream->capture;
    if (!capture)
        return cudaErrorIllegalState;
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        !pthread_equal(capture->thread, pthread_self()))
        return invalidate(capture, cudaErrorStreamCaptureWrongThread);
    if (capture->origin != stream)
        return invalidate(capture, cudaErrorStreamCaptureUnmatched);
    const cudaError_t error = capture->invalid      ? cudaErrorStreamCaptureInvalidated
                              : !is_joined(capture) ? cudaErrorStreamCaptureUnjoined
                                                    : cudaSuccess;
    cudart_graph *graph = end(capture);
    if (error != cudaSuccess) {
        forget(graph);
        return error;
    }
    measure(graph);
    graph->alive = true;
    graph->older = graphs;
    graphs = graph;
    live++;
    *ret_graph = graph;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *ret_graph) {
    cudaError_t error = cudart_begin("cudaStreamEndCapture", true);
    *ret_graph = NULL;
    if (error == cudaSuccess)
        error = end_capture(cudart_stream_behind(handle), ret_graph);
    return cudart_end(error);
}

/// Harms no capture.
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *ret_status) {
    cudaError_t error = cudart_begin("cudaStreamIsCapturing", true);
    if (error == cudaSuccess) {
        const cudart_stream *stream = cudart_stream_behind(handle);
        error = implicit(stream, false);
        *ret_status = !stream->capture           ? cudaStreamCaptureStatusNone
                      : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                                 : cudaStreamCaptureStatusActive;
    }
    return cudart_end(error);
}

// ------------------------------------------------------------------------------------------------
// graphs. A handle stays readable for ever, as those of streams do.

static void check_graph(cudaGraph_t graph) {
    if (!graph || !graph->alive)
        cudart_abort(NULL, "a graph is used that was destroyed, or never made");
}

static void check_executable(cudaGraphExec_t executable) {
    if (!executable || !executable->alive)
        cudart_abort(NULL, "an executable graph is used that was destroyed, or never made");
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret_executable, cudaGraph_t graph,
                                 unsigned long long flags) {
    cudaError_t error = cudart_begin("cudaGraphInstantiate", true);
    if (error == cudaSuccess && flags != 0)
        error = cudaErrorNotSupported;
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess) {
        check_graph(graph);
        cudart_graph_exec *made = cudart_allocate(sizeof *made);
        *made = (cudart_graph_exec){.alive = true, .older = executables, .graph = graph};
        executables = made;
        graph->uses++;
        live++;
        *ret_executable = made;
    }
    return cudart_end(error);
}

/// What the nodes say is done again, by a step of its own.
static cudart_step *step_of(cudart_graph *graph, const cudart_step *node, cudart_stream *stream) {
    if (node->kind == CUDART_COPY)
        (void)cudart_check_range(node->name, node->source, node->bytes);
    if (node->kind == CUDART_COPY || node->kind == CUDART_SET)
        (void)cudart_check_range(node->name, node->destination, node->bytes);
    cudart_step *step = cudart_allocate(sizeof *step);
    *step = *node;
    step->next = NULL;
    step->clock = NULL;
    step->point = (cudart_point){.stream = stream};
    step->order = cudart_draw(UINT64_MAX);
    step->graph = graph;
    graph->uses++;
    return step;
}

/// One of those whose predecessors are queued, drawn.
static unsigned ready_node(const cudart_graph *graph) {
    unsigned chosen = 0;
    uint64_t found = 0;
    for (unsigned i = 0; i < graph->count; i++)
        if (graph->node[i].outstanding == 0 && cudart_draw(++found) == 0)
            chosen = i;
    return chosen;
}

static void launch(cudart_graph_exec *executable, cudart_stream *stream) {
    cudart_graph *graph = executable->graph;
    for (unsigned i = 0; i < graph->count; i++)
        graph->node[i].outstanding = graph->node[i].before.count;
    for (unsigned queued = 0; queued < graph->count; queued++) {
        const unsigned next = ready_node(graph);
        cudart_step *step = step_of(graph, graph->node[next].step, stream);
        if (queued == 0 && executable->clock) {
            cudart_clock_join(&stream->clock, executable->clock);
            cudart_step_wait(step, executable->launched);
        }
        cudart_issue(step);
        graph->node[next].outstanding = UINT_MAX;
        for (unsigned i = next + 1; i < graph->count; i++)
            for (unsigned j = 0; j < graph->node[i].before.count; j++)
                graph->node[i].outstanding -= graph->node[i].before.at[j] == next;
    }
    executable->launched = (cudart_point){stream, stream->queued};
    cudart_clock_drop(executable->clock);
    executable->clock = cudart_clock_share(stream->clock);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaGraphLaunch", true);
    cudart_stream *stream;
    if (error == cudaSuccess)
        error = cudart_stream_of(handle, &stream);
    if (error == cudaSuccess)
        error = cudart_capture_refuse(stream);
    if (error == cudaSuccess) {
        check_executable(executable);
        if (executable->graph->device != stream->device)
            error = cudaErrorNotSupported;
        else
            launch(executable, stream);
    }
    return cudart_end(error);
}

/// Launches that are queued are still done.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    cudaError_t error = cudart_begin("cudaGraphExecDestroy", true);
    if (error == cudaSuccess) {
        check_executable(executable);
        executable->alive = false;
        live--;
        cudart_graph_drop(executable->graph);
        cudart_clock_drop(executable->clock);
        executable->clock = NULL;
    }
    return cudart_end(error);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    cudaError_t error = cudart_begin("cudaGraphDestroy", true);
    if (error == cudaSuccess) {
        check_graph(graph);
        graph->alive = false;
        live--;
        cudart_graph_drop(graph);
    }
    return cudart_end(error);
}
