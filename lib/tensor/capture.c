// Captures: from where a thread's work on a device begins to go into a graph to where that is done.
//
// Invariant: whatever happens, the backend's capture ends on the thread that began it, and what was
// put off for it (memory of others, collections) is done behind that.
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/gc/collect.h"
#include "lib/gc/policy.h"
#include "lib/manager/charge.h"
#include "lib/manager/place.h"
#include "lib/object/callback.h"
#include "lib/tensor/graph.h"
#include <pthread.h>

static const nd_graph_functions *functions_of(nd_device device) {
    return nd__registry_backend(device.kind)->graphs;
}

// ------------------------------------------------------------------------------------------- begin

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool key_exists;

static void thread_ends(void *data) {
    (void)data;
    nd_capture_abandon();
}

static void make_key(void) {
    key_exists = pthread_key_create(&key, thread_ends) == 0;
}

/// Has a capture that the thread leaves open given up when it ends. Without a key it stays open.
static void await_end(nd_capture *capture) {
    pthread_once(&key_once, make_key);
    if (key_exists)
        (void)pthread_setspecific(key, capture);
}

static nd_status check_begin(const char *operation, nd_device device) {
    nd_status status = nd__registry_device_check(operation, device);
    if (status != ND_OK)
        return status;
    if (nd__capture_running())
        return nd__error(ND_ERROR_STATE, "%s: this thread captures a graph of %s already",
                         operation, nd__registry_device_text(nd__thread_record.capture->device));
    if (!functions_of(device))
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: %s has no graphs: its work is done at once",
                         operation, nd__registry_device_text(device));
    return ND_OK;
}

/// Gives back what a capture holds. The thread is not in it any more.
static void capture_free(nd_capture *capture) {
    nd_object_release(capture->graph);
    nd_object_release(capture->manager);
    nd__alloc_free(capture);
}

static nd_status begin(const char *operation, nd_capture *capture) {
    const nd_device device = capture->device;
    nd_place place = nd__place_begin(NULL, 0);
    capture->manager = nd_object_retain(place.manager);
    nd__place_end(place);
    capture->graph = nd__graph_new(capture->manager, device);
    if (!capture->graph)
        return nd_error_get_status();
    capture->arena = nd__graph_arena(capture->graph);
    nd_status status = functions_of(device)->begin(device.index, &capture->handle);
    if (status == ND_ERROR_STATE)
        return nd__error(status, "%s: another thread captures a graph of %s", operation,
                         nd__registry_device_text(device));
    if (status != ND_OK)
        return nd__error(status, "%s: %s failed with %s", operation,
                         nd__registry_device_text(device), nd_status_get_name(status));
    nd__graph_set_handle(capture->graph, capture->handle);
    return ND_OK;
}

nd_status nd_capture_begin(nd_device device) {
    ND__UNCANCELLED;
    static const char operation[] = "capture_begin";
    nd_status status = check_begin(operation, device);
    if (status != ND_OK)
        return status;
    nd_capture *capture = nd__alloc_zeroed(sizeof *capture);
    if (!capture)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a capture", operation);
    capture->device = device;
    status = begin(operation, capture);
    if (status != ND_OK) {
        capture_free(capture);
        return status;
    }
    nd__thread()->capture = capture;
    await_end(capture);
    return ND_OK;
}

bool nd_is_capturing(void) {
    return nd__capture_running();
}

// --------------------------------------------------------------------------------------------- end

/// Memory of others goes back to them, when nothing queued before reads it any more.
static void give_back(nd_put_off *put_off) {
    while (put_off) {
        nd_put_off *next = put_off->next;
        (void)nd__registry_backend(put_off->device.kind)->synchronize(put_off->device.index);
        put_off->free(put_off->pointer, put_off->bytes);
        nd__alloc_free(put_off);
        put_off = next;
    }
}

/// What the capture has put off. Leaves the thread's error as it was.
static void catch_up(nd_capture *capture) {
    nd_error_state own, *error;
    nd__error_begin(&own, &error);
    give_back(capture->put_off);
    capture->put_off = NULL;
    nd__callback_destroy_deferred();
    if (!nd__thread()->collecting) // in a finalizer, say, whose collection does it later
        nd__collect_deferred();
    for (int kind = 0; kind < ND__MADE_COUNT; kind++)
        nd__policy_tell(capture->manager, kind);
    nd__error_end(error);
}

/// The thread's capture, which it is not in any more; NULL: it was in none.
static nd_capture *leave(void) {
    nd_capture *capture = nd__thread()->capture;
    if (!capture)
        return NULL;
    nd__thread_record.capture = NULL;
    if (key_exists)
        (void)pthread_setspecific(key, NULL);
    return capture;
}

/// Charges what kernels alone have taken, so that the arena is charged whole.
static nd_status charge(const char *operation, nd_capture *capture, uint64_t bytes) {
    if (bytes <= capture->charged)
        return ND_OK;
    const uint64_t more = bytes - capture->charged;
    nd_status status = nd__charge(operation, capture->manager, capture->device.kind, more);
    if (status == ND_OK)
        nd__arena_grow(capture->arena, capture->manager, more);
    return status;
}

/// What replays have to say against the graph.
static nd_status end_replays(const nd_capture *capture) {
    nd_status status = ND_OK;
    nd_replay *replay;
    for (size_t i = 0; status == ND_OK && (replay = nd__graph_get_replay(capture->graph, i)); i++)
        status = replay->end(replay);
    return status;
}

/// The end of the backend's capture. On an error the graph has no handle.
static nd_status end_handle(const char *operation, nd_capture *capture) {
    const nd_device device = capture->device;
    nd_status status = ND_ERROR_STATE;
    if (capture->broken) {
        functions_of(device)->release(device.index, capture->handle);
        nd__error(status, "%s: an operation failed while it was captured", operation);
    } else if (end_replays(capture) != ND_OK) {
        status = nd_error_get_status();
        functions_of(device)->release(device.index, capture->handle);
    } else {
        status = functions_of(device)->end(device.index, capture->handle);
        if (status == ND_OK)
            return ND_OK;
        nd__error(status, "%s: %s gave no graph: %s", operation, nd__registry_device_text(device),
                  nd_status_get_name(status));
    }
    nd__graph_set_handle(capture->graph, NULL);
    return status;
}

static nd_graph *end(const char *operation, nd_capture *capture) {
    if (end_handle(operation, capture) != ND_OK)
        return NULL;
    const nd_device device = capture->device;
    const uint64_t bytes = functions_of(device)->bytes(device.index, capture->handle);
    if (charge(operation, capture, bytes) != ND_OK)
        return NULL;
    nd_graph *graph = capture->graph;
    capture->graph = NULL;
    return nd__graph_publish(graph, capture->manager, bytes);
}

nd_graph *nd_capture_end(void) {
    ND__UNCANCELLED;
    static const char operation[] = "capture_end";
    if (nd__callback_check(operation) != ND_OK)
        return NULL;
    nd_capture *capture = leave();
    if (!capture) {
        nd__error(ND_ERROR_STATE, "%s: this thread captures nothing", operation);
        return NULL;
    }
    nd_graph *graph = end(operation, capture);
    catch_up(capture);
    capture_free(capture);
    return graph;
}

void nd_capture_abandon(void) {
    ND__UNCANCELLED;
    if (nd__callback_running())
        return;
    nd_capture *capture = leave();
    if (!capture)
        return;
    nd_object_release(capture->graph);
    capture->graph = NULL;
    catch_up(capture);
    capture_free(capture);
}

// ------------------------------------------------------------------------------------------- block

nd_capture_block nd__capture_block_begin(nd_device device, nd_graph **ret_graph) {
    nd_capture_block block = {.ret_graph = ret_graph};
    if (!ret_graph) {
        nd__error_null("with_capture", "ret_graph");
        return block;
    }
    nd_object_release(*ret_graph);
    *ret_graph = NULL;
    block.begun = block.once = nd_capture_begin(device) == ND_OK;
    return block;
}

void nd__capture_block_end(nd_capture_block *block) {
    if (block->begun && block->once)
        nd_capture_abandon();
    else if (block->begun)
        *block->ret_graph = nd_capture_end();
    block->begun = false;
}
