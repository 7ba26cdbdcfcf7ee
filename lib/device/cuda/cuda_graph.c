// Graphs: captures on streams of their own, arenas, and launches.
//
// A thread captures on streams of the device that nothing else uses, one for each that it may choose,
// so that other threads go on, and in CUDA's mode that forbids unsafe calls to this thread alone. What
// it does on several of them becomes branches (order.h). While it captures, the only calls that are
// made are the captured ones, the events between their streams, and allocations on the default stream,
// which nobody captures, and for which the thread is let out of that mode: nothing is asked, waited
// for or, but for a block that could not be noted, freed.
//
// Invariant: every block that captured work uses is held from then until the graph is gone
// (order.h), those of its arena too, so a launch never meets memory that is somebody else's. A
// launch is ordered like any other work: it waits for what others did with these blocks, and is
// noted on them.
#include "lib/device/cuda/cuda_graph.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/cuda_memory.h"
#include "lib/device/cuda/cuda_stream.h"
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/order.h"

typedef struct arena_block {
    void *data;
    size_t bytes;
} arena_block;

/// Of a library's, which captured work uses.
typedef struct graph_keep {
    struct graph_keep *next;
    void *data;
    void (*let_go)(void *data);
} graph_keep;

typedef struct nd_cuda_graph {
    nd_cuda_device *device;
    cudaGraphExec_t executable; ///< NULL: not there yet
    nd_cuda_uses uses;          ///< holds; the arena's blocks are among them
    size_t blocks, capacity;
    arena_block *arena; ///< owned
    uint64_t arena_bytes;
    graph_keep *keeps; ///< owned
    nd_cuda_put_off put_off;
    struct nd_cuda_graph *dead; ///< graphs that died while this one was captured
} nd_cuda_graph;

static nd_cuda_graph *captured_now(void) {
    const nd_capture *capture = nd__thread_record.capture;
    return capture && capture->device.kind == ND_CUDA ? capture->handle : NULL;
}

nd_status nd__cuda_graph_keep(void *data, void (*let_go)(void *data)) {
    nd_cuda_graph *graph = captured_now();
    graph_keep *keep = nd__alloc(sizeof *keep);
    if (!keep)
        return ND_ERROR_OUT_OF_MEMORY;
    *keep = (graph_keep){graph->keeps, data, let_go};
    graph->keeps = keep;
    return ND_OK;
}

static void let_go_of_all(nd_cuda_graph *graph, bool reachable) {
    while (graph->keeps) {
        graph_keep *keep = graph->keeps;
        graph->keeps = keep->next;
        if (reachable)
            keep->let_go(keep->data);
        nd__alloc_free(keep);
    }
}

void nd__cuda_graph_note(const nd_cuda_stream *stream, nd_status status) {
    if (stream->captured && status != ND_OK && status != ND_ERROR_UNSUPPORTED)
        nd__thread_record.capture->broken = true;
}

// ------------------------------------------------------------------------------------------------
// the arena

/// The smallest released block of the arena that is large enough, and not far too large, and whose
/// users the stream's work comes behind anyway, so that no branch waits for another. NULL: there is
/// none, or it must be one that captured work has not used.
static const arena_block *fitting(const nd_cuda_graph *graph, const nd_cuda_stream *stream,
                                  size_t bytes) {
    enum { SMALL = 4096 };
    const size_t most = bytes < SMALL / 2 ? SMALL : 2 * bytes;
    const arena_block *found = NULL;
    if (nd__thread_record.capture->fresh)
        return NULL;
    for (size_t i = 0; i < graph->blocks; i++) {
        const arena_block *block = &graph->arena[i];
        if (block->bytes >= bytes && block->bytes <= most &&
            (!found || block->bytes < found->bytes) && nd__order_is_released(block->data) &&
            nd__order_is_behind(stream, block->data))
            found = block;
    }
    return found;
}

static uint64_t graph_growth(int index, void *handle, size_t bytes) {
    (void)index;
    const nd_cuda_graph *graph = handle;
    const nd_cuda_stream *stream = nd__cuda_stream_now(graph->device);
    return fitting(graph, stream, bytes ? bytes : 1) ? 0 : bytes;
}

static uint64_t graph_bytes(int index, void *handle) {
    (void)index;
    return ((const nd_cuda_graph *)handle)->arena_bytes;
}

static bool make_room(nd_cuda_graph *graph) {
    if (graph->blocks < graph->capacity)
        return true;
    const size_t capacity = 2 * graph->capacity + 16;
    arena_block *grown = nd__alloc_resize(graph->arena, capacity * sizeof *grown);
    if (!grown)
        return false;
    graph->arena = grown;
    graph->capacity = capacity;
    return true;
}

/// CUDA counts allocations and frees in the order of a stream among the calls that a capture forbids
/// its thread, whichever stream it is. `mode` becomes the one that was; false: nothing was exchanged.
static bool exchange_mode(enum cudaStreamCaptureMode *mode) {
    for (int again = 0; again < 3; again++)
        if (nd__cuda_status(cudaThreadExchangeStreamCaptureMode(mode)) == ND_OK)
            return true;
    return false;
}

/// By a new block, from the default stream: a launch waits for what allocates it as for any work.
static nd_status grow(nd_cuda_graph *graph, size_t bytes, void **ret_pointer) {
    if (!make_room(graph))
        return ND_ERROR_OUT_OF_MEMORY;
    void *pointer = NULL;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (!exchange_mode(&mode))
        return ND_ERROR_DEVICE;
    nd_status status = nd__cuda_take(&graph->device->streams[ND__CUDA_DEFAULT], bytes, &pointer);
    (void)exchange_mode(&mode);
    if (status != ND_OK)
        return status;
    const nd_cuda_access written = {pointer, true};
    status = nd__order_list(&graph->uses, 1, &written);
    if (status != ND_OK) {
        nd__order_put_off(&graph->put_off, pointer);
        return status;
    }
    graph->arena[graph->blocks++] = (arena_block){pointer, bytes};
    graph->arena_bytes += bytes;
    *ret_pointer = pointer;
    return ND_OK;
}

nd_status nd__cuda_graph_allocate(const nd_cuda_stream *stream, size_t bytes, void **ret_pointer) {
    nd_cuda_graph *graph = captured_now();
    const arena_block *block = fitting(graph, stream, bytes);
    if (!block)
        return grow(graph, bytes, ret_pointer);
    nd__order_use_again(block->data);
    *ret_pointer = block->data;
    return ND_OK;
}

void nd__cuda_graph_put_off(void *pointer) {
    nd_cuda_graph *graph = captured_now();
    if (graph)
        nd__order_put_off(&graph->put_off, pointer);
}

// ------------------------------------------------------------------------------------------------
// the end of a graph

/// Gives up what a graph holds. A launch that is queued is still done, and the blocks go back behind
/// it. `reachable`: the device is current and may be called.
static void dismantle(nd_cuda_graph *graph, bool reachable) {
    if (reachable && graph->executable)
        (void)nd__cuda_status(cudaGraphExecDestroy(graph->executable));
    for (size_t i = 0; reachable && i < graph->uses.count; i++) {
        const nd_cuda_retired retired =
            nd__order_let_go((void *)(uintptr_t)graph->uses.access[i].data);
        nd__cuda_give_back(&retired);
    }
    let_go_of_all(graph, reachable);
    nd__alloc_free(graph->uses.access);
    nd__alloc_free(graph->uses.points);
    nd__alloc_free(graph->arena);
    nd__alloc_free(graph);
}

/// What must not be left undone because of an error that passes.
static nd_status enter_surely(int index, nd_cuda_caller *ret_caller) {
    nd_cuda_device *device;
    nd_status status = nd__cuda_enter(index, &device, ret_caller);
    for (int again = 0; status != ND_OK && again < 2; again++)
        status = nd__cuda_enter(index, &device, ret_caller);
    return status;
}

static void destroy(nd_cuda_graph *graph) {
    ND__CUDA_CALLER caller = {.ordinal = -1};
    dismantle(graph, enter_surely(graph->device->index, &caller) == ND_OK);
}

/// What other objects have released meanwhile, of any device.
static void settle(nd_cuda_graph *graph) {
    nd_cuda_retired retired;
    while (nd__order_next_put_off(&graph->put_off, &retired)) {
        ND__CUDA_CALLER caller = {.ordinal = -1};
        if (enter_surely(retired.device->index, &caller) == ND_OK)
            nd__cuda_give_back(&retired);
    }
    while (graph->dead) {
        nd_cuda_graph *dead = graph->dead;
        graph->dead = dead->dead;
        destroy(dead);
    }
}

// ------------------------------------------------------------------------------------------------
// captures

/// A stream for each that the thread may choose, and the event that they come behind.
static nd_status make_streams(nd_cuda_device *device) {
    nd_status status = nd__cuda_stream_make(&device->capturing[ND__CUDA_DEFAULT]);
    for (int place = ND__CUDA_POOLED; place < ND__CUDA_STREAMS && status == ND_OK; place++)
        if (nd__cuda_stream_is_made(&device->streams[place]))
            status = nd__cuda_stream_make(&device->capturing[place]);
    if (status == ND_OK && !device->capture_began)
        status = nd__cuda_status(
            cudaEventCreateWithFlags(&device->capture_began, cudaEventDisableTiming));
    return status;
}

/// The device's capture is this graph's; ND_ERROR_STATE: somebody else's.
static nd_status reserve(nd_cuda_device *device, nd_cuda_graph *graph) {
    pthread_mutex_lock(&device->lock);
    nd_status status = device->capture ? ND_ERROR_STATE : make_streams(device);
    if (status == ND_OK) {
        device->capture = graph;
        nd__order_begin_capture(device, &graph->uses);
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

static void unreserve(nd_cuda_device *device) {
    pthread_mutex_lock(&device->lock);
    nd__order_end_capture(device);
    device->capture = NULL;
    pthread_mutex_unlock(&device->lock);
}

/// Unless the answer is that it does not, a stream may.
static bool may_capture(cudaStream_t stream) {
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    return nd__cuda_status(cudaStreamIsCapturing(stream, &state)) != ND_OK ||
           state != cudaStreamCaptureStatusNone;
}

/// CUDA still takes this thread for one that captures, on a device that was lost, and would keep it
/// from calls on every other.
static _Thread_local bool kept_in_capture;

void nd__cuda_graph_free_thread(void) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (__builtin_expect(kept_in_capture, 0))
        kept_in_capture = !exchange_mode(&mode);
}

/// Ends CUDA's capture, whatever it answers. Streams that cannot be got out of it are given up, and
/// the next capture makes others.
static nd_status stop(nd_cuda_device *device, cudaGraph_t *ret_graph) {
    cudaStream_t *handle = &device->capturing[ND__CUDA_DEFAULT].handle;
    nd_status status = nd__cuda_status(cudaStreamEndCapture(*handle, ret_graph));
    if (status == ND_OK)
        return ND_OK;
    *ret_graph = NULL;
    for (int again = 0; again < 2 && may_capture(*handle); again++) {
        cudaGraph_t unwanted = NULL;
        (void)nd__cuda_status(cudaStreamEndCapture(*handle, &unwanted));
        if (unwanted)
            (void)nd__cuda_status(cudaGraphDestroy(unwanted));
    }
    kept_in_capture = may_capture(*handle);
    for (int place = 0; place < ND__CUDA_STREAMS; place++) {
        nd_cuda_stream *stream = &device->capturing[place];
        if (stream->handle && stream->joined && may_capture(stream->handle)) {
            (void)nd__cuda_status(cudaStreamDestroy(stream->handle));
            stream->handle = NULL;
        }
    }
    return status;
}

/// Everything that may wait or allocate comes before. The pool gives back what it keeps where it has
/// a bound, since the capture will not ask how much that is.
static nd_status begin(nd_cuda_device *device) {
    cudaStream_t handle = device->capturing[ND__CUDA_DEFAULT].handle;
    nd__library_prepare(device);
    if (atomic_load_explicit(&device->bound, memory_order_relaxed) != 0)
        (void)nd__cuda_status(cudaMemPoolTrimTo(device->pool, 0));
    nd_status status =
        nd__cuda_status(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal));
    if (status != ND_OK)
        return status;
    status = nd__cuda_status(cudaEventRecord(device->capture_began, handle));
    cudaGraph_t unwanted = NULL;
    if (status != ND_OK)
        (void)stop(device, &unwanted);
    if (unwanted)
        (void)nd__cuda_status(cudaGraphDestroy(unwanted));
    return status;
}

static nd_status graph_begin(int index, void **ret_graph) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    if (status == ND_OK)
        status = nd__cuda_stream_several(device);
    if (status != ND_OK)
        return status;
    nd_cuda_graph *graph = nd__alloc_zeroed(sizeof *graph);
    if (!graph)
        return ND_ERROR_OUT_OF_MEMORY;
    graph->device = device;
    status = reserve(device, graph);
    if (status == ND_OK) {
        status = begin(device);
        if (status != ND_OK)
            unreserve(device);
    }
    if (status == ND_OK)
        *ret_graph = graph;
    else
        nd__alloc_free(graph);
    return status;
}

/// From the captured work to what can be launched.
static nd_status finish(nd_cuda_graph *graph) {
    cudaGraph_t captured = NULL;
    nd_status joined = nd__order_join_captured(graph->device);
    nd_status status = stop(graph->device, &captured);
    if (status == ND_OK)
        status = joined;
    if (status == ND_OK)
        status = nd__cuda_status(cudaGraphInstantiate(&graph->executable, captured, 0));
    if (captured)
        (void)nd__cuda_status(cudaGraphDestroy(captured));
    return status;
}

/// Of a device that is lost, perhaps with a lock that is somebody's in the parent process.
static void forget(nd_cuda_graph *graph) {
    nd__order_end_capture(graph->device);
    graph->device->capture = NULL;
    while (graph->dead) {
        nd_cuda_graph *dead = graph->dead;
        graph->dead = dead->dead;
        dismantle(dead, false);
    }
    dismantle(graph, false);
}

/// The end of a capture. Without the graph where that is not wanted, and on an error.
static nd_status leave(nd_cuda_graph *graph, bool wanted) {
    nd_cuda_device *device = graph->device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = enter_surely(device->index, &caller);
    if (status != ND_OK) {
        forget(graph);
        return status;
    }
    status = finish(graph);
    unreserve(device);
    settle(graph);
    if (status == ND_OK && !nd__cuda_is_within_bound(device))
        status = ND_ERROR_OUT_OF_MEMORY;
    if (status != ND_OK || !wanted)
        dismantle(graph, true);
    return status;
}

static nd_status graph_end(int index, void *handle) {
    ND__UNCANCELLED;
    (void)index;
    return leave(handle, true);
}

// ------------------------------------------------------------------------------------------------
// graphs

static nd_status graph_launch(int index, void *handle) {
    ND__UNCANCELLED;
    const nd_cuda_graph *graph = handle;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    if (status != ND_OK)
        return status;
    nd_cuda_stream *stream = nd__cuda_stream_now(device);
    status = nd__order_before(stream, graph->uses.count, graph->uses.access);
    if (status != ND_OK)
        return status;
    status = nd__cuda_status(cudaGraphLaunch(graph->executable, stream->handle));
    nd__order_after(stream, graph->uses.count, graph->uses.access);
    return status;
}

static void graph_release(int index, void *handle) {
    ND__UNCANCELLED;
    (void)index;
    nd_cuda_graph *graph = handle, *capturing = captured_now();
    if (graph->device->capture == graph) {
        (void)leave(graph, false);
    } else if (capturing) {
        graph->dead = capturing->dead;
        capturing->dead = graph;
    } else {
        destroy(graph);
    }
}

const nd_graph_functions nd__cuda_graph_functions = {
    .begin = graph_begin,
    .end = graph_end,
    .growth = graph_growth,
    .bytes = graph_bytes,
    .launch = graph_launch,
    .release = graph_release,
};
