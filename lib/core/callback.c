// What dies in a callback that a device runs, from there to where it is destroyed (callback.h).
#include "lib/core/callback.h"
#include "lib/core/cancel.h"
#include "lib/core/fork.h"
#include "lib/core/life.h"
#include "lib/core/manager_internal.h"
#include "lib/core/thread.h"

_Atomic(nd_object *) nd__left;

void nd__callback_run(void (*callback)(void *data), void *data, nd_object *kept) {
    ND__UNCANCELLED;
    nd_thread *thread = nd__thread();
    bool outermost = nd__burying_begin(thread);
    thread->in_callback = true;
    nd_error_state own, *error;
    nd__error_begin(&own, &error);
    if (callback)
        callback(data);
    nd_object_release(kept);
    nd__error_end(error);
    thread->in_callback = false;
    thread->burying = !outermost;
}

bool nd__in_callback(void) {
    return nd__thread()->in_callback;
}

nd_status nd__callback_check(const char *operation) {
    return nd__in_callback() ? nd__callback_error(operation) : ND_OK;
}

nd_status nd__callback_error(const char *operation) {
    return nd__error(ND_ERROR_STATE,
                     "%s: inside a callback that a device runs (nd_queue_callback) objects may be "
                     "retained and released, and nothing is made, closed, collected or computed",
                     operation);
}

void nd__leave(nd_object *object) {
    nd__object_unlink(object); // its links are in use while it is in a manager's list
    nd_object *head = nd__atomic_load(&nd__left, relaxed);
    do
        object->next = head;
    while (!nd__atomic_cas(&nd__left, &head, object, release, relaxed));
}

nd_object *nd__take_left(void) {
    return nd__atomic_exchange(&nd__left, NULL, acquire);
}

/// Pushed without a lock: what comes meanwhile the child may see a part of.
static nd_object *left_before;

static void take_for_fork(void) {
    left_before = nd__take_left();
}

static void put_back_after_fork(bool child) {
    if (!nd__thread_record.forking)
        return;
    nd_object *list = left_before;
    left_before = NULL;
    if (child)
        nd__atomic_store(&nd__left, NULL, relaxed);
    while (list) {
        nd_object *next = list->next;
        nd__leave(list);
        list = next;
    }
}
// Before the gate opens and hands over what is parked.
ND__FORK_PART(fork_left, ND__FORK_COLLECTION, NULL, 0, 0, take_for_fork, put_back_after_fork, NULL);

bool nd__bury_left(void) {
    if (!nd__any_left())
        return false;
    const nd_thread *thread = nd__thread();
    if (thread->in_callback || thread->cutting)
        return false;
    nd_object *list = nd__take_left();
    nd_error_state own, *error;
    nd__error_begin(&own, &error);
    nd__bury_list(list);
    nd__error_end(error);
    return list != NULL;
}
