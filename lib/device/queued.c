// nd_queue_callback(): from there to where the device calls.
//
// Invariant: what is queued and has not begun is in the list, so that it can be given up when its
// device fails. CUDA does not say what it has dropped then, so a record that was given up stays in
// the list, with nothing to call and nothing kept, for a device that calls it after all. There are
// no more of them than there were callbacks in the queue of a device that failed.
#include "lib/device/queued.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/object/callback.h"
#include "lib/pressure/pressure_alloc.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct queued_callback {
    struct queued_callback *next, **link; ///< under the lock; `link` points at what points here
    nd_device device;
    bool given_up; ///< under the lock
    void (*callback)(void *data);
    void *data;
    nd_object *kept; ///< owned, or NULL
} queued_callback;

static nd_lock lock; ///< held for nothing but the list
ND__FORK_LOCK(ND__FORK_SINGLE, lock);
static queued_callback *first;

static void enter(queued_callback *queued) {
    nd__lock_acquire(&lock);
    queued->next = first;
    queued->link = &first;
    if (first)
        first->link = &queued->next;
    first = queued;
    nd__lock_release(&lock);
}

/// False: it was given up, and stays.
static bool leave(queued_callback *queued) {
    nd__lock_acquire(&lock);
    const bool left = !queued->given_up;
    if (left) {
        *queued->link = queued->next;
        if (queued->next)
            queued->next->link = queued->link;
    }
    nd__lock_release(&lock);
    return left;
}

/// What the device calls.
static void run(void *data) {
    if (!leave(data))
        return;
    queued_callback queued = *(queued_callback *)data;
    nd__alloc_free(data);
    nd__callback_run(queued.callback, queued.data, queued.kept);
}

// ------------------------------------------------------------------------------ devices that failed

static bool has_failed(nd_device device) {
    const nd_backend *backend = nd__registry_backend(device.kind);
    return backend->failed && backend->failed(device.index);
}

/// Gives up one callback of the device. False: there is none.
static bool take(nd_device device, nd_object **ret_kept) {
    nd__lock_acquire(&lock);
    queued_callback *queued = first;
    while (queued && (queued->given_up || queued->device.kind != device.kind ||
                      queued->device.index != device.index))
        queued = queued->next;
    if (queued) {
        queued->given_up = true;
        *ret_kept = queued->kept;
    }
    nd__lock_release(&lock);
    return queued != NULL;
}

void nd__queued_give_up(nd_device device) {
    if (!has_failed(device))
        return;
    nd_error_state own, *error;
    nd__error_begin(&own, &error);
    nd_object *kept;
    while (take(device, &kept))
        nd_object_release(kept);
    nd__error_end(error);
}

// ---------------------------------------------------------------------------------- the public function

static void destroy_at_exit(void) {
    nd__callback_destroy_deferred();
}

static void register_exit(void) {
    atexit(destroy_at_exit);
}

nd_status nd_queue_callback(nd_device device, void (*callback)(void *data), void *data,
                            const void *kept) {
    ND__UNCANCELLED;
    if (!callback && !kept)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "queue_callback: neither a callback nor an object to keep, both are NULL");
    nd_status status = nd__registry_device_check("queue_callback", device);
    if (status == ND_OK)
        status = nd__capture_check("queue_callback", device);
    if (status != ND_OK)
        return status;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_exit);
    nd__callback_destroy_deferred(); // of callbacks before: a program that only queues leaves no more than one round
    queued_callback *queued = nd__pressure_alloc(sizeof *queued);
    status = ND_ERROR_OUT_OF_MEMORY;
    if (queued) {
        *queued = (queued_callback){
            .device = device, .callback = callback, .data = data, .kept = nd_object_retain(kept)};
        enter(queued);
        status = nd__registry_backend(device.kind)->call(device.index, run, queued);
    }
    if (status != ND_OK) {
        if (queued && leave(queued)) {
            nd_object_release(queued->kept);
            nd__alloc_free(queued);
        }
        nd__queued_give_up(device);
        return nd__error(status, "queue_callback: nothing was queued on %s: %s",
                         nd__registry_device_text(device), nd_status_get_name(status));
    }
    nd__callback_destroy_deferred(); // the CPU has called it already
    return ND_OK;
}
