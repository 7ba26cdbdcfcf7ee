// What dies in a callback that a device runs, from there to where it is destroyed (callback.h).
#include "lib/object/callback.h"
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/seam.h"
#include "lib/base/thread.h"
#include "lib/object/dead.h"

_Atomic(nd_object *) nd__callback_deferred;

void nd__callback_run(void (*callback)(void *data), void *data, nd_object *kept) {
    ND__UNCANCELLED;
    nd_thread *thread = nd__thread();
    bool outermost = !thread->is_destroying;
    thread->is_destroying = true;
    thread->in_callback = true;
    nd_error_state own, *error;
    nd__error_begin(&own, &error);
    if (callback)
        callback(data);
    nd_object_release(kept);
    nd__error_end(error);
    thread->in_callback = false;
    thread->is_destroying = !outermost;
}

bool nd__callback_running(void) {
    return nd__thread()->in_callback;
}

nd_status nd__callback_check(const char *operation) {
    return nd__callback_running() ? nd__callback_error(operation) : ND_OK;
}

nd_status nd__callback_error(const char *operation) {
    return nd__error(ND_ERROR_STATE,
                     "%s: inside a callback that a device runs (nd_queue_callback) objects may be "
                     "retained and released, and nothing is made, closed, collected or computed",
                     operation);
}

static void push(nd_object *object) {
    nd_object *head = nd__atomic_load(&nd__callback_deferred, relaxed);
    do
        object->next = head;
    while (!nd__atomic_cas(&nd__callback_deferred, &head, object, release, relaxed));
}

void nd__callback_defer(nd_object *object) {
    nd__seam_unlink(object); // its links are in use while it is in a manager's list
    nd__dead_add();
    push(object);
    nd__dead_tell();
}

static nd_object *take_all(void) {
    return nd__atomic_exchange(&nd__callback_deferred, NULL, acquire);
}

nd_object *nd__callback_take_deferred(void) {
    nd_object *list = take_all();
    nd__dead_take(nd__thread(), list);
    return list;
}

/// Pushed without a lock: what comes meanwhile the child may see a part of.
static nd_object *deferred_before;

static void take_for_fork(void) {
    deferred_before = take_all();
}

static void put_back_after_fork(bool child) {
    if (!nd__thread_record.forking)
        return;
    nd_object *list = deferred_before;
    deferred_before = NULL;
    if (child) {
        nd__atomic_store(&nd__callback_deferred, NULL, relaxed);
        nd__dead_begin_child(&nd__thread_record);
    }
    while (list) {
        nd_object *next = list->next;
        if (child)
            nd__dead_add();
        push(list);
        list = next;
    }
}
// Before the gate opens and hands over what is parked.
ND__FORK_PART(fork_left, ND__FORK_COLLECTION, NULL, 0, 0, take_for_fork, put_back_after_fork, NULL);

bool nd__callback_destroy_deferred(void) {
    if (!nd__callback_any_deferred())
        return false;
    const nd_thread *thread = nd__thread();
    if (thread->in_callback || thread->cutting)
        return false;
    nd_object *list = nd__callback_take_deferred();
    nd_error_state own, *error;
    nd__error_begin(&own, &error);
    nd__seam_destroy_list(list);
    nd__error_end(error);
    return list != NULL;
}
