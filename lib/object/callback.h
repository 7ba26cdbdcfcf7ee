// Callbacks that a device runs between its work (nd_queue_callback): what dies in one is left for
// another thread.
//
// Such a callback runs on a thread of the device's driver, which must not call the device and must
// not wait for anybody who might be calling it; to destroy an object is to run user code and to do
// both. So inside a callback an object whose count reaches zero leaves its manager and is pushed
// onto one lock-free list, and that is all: no destructor, no finalizer, no weak callback, no
// device, and of the locks only those that nobody holds while calling a device or user code (a
// shard's, the origins', the weak references', the watch's). Other threads take the list where they
// destroy objects anyway or wait for a device: see the callers of nd__callback_destroy_deferred.
#ifndef ND_LIB_OBJECT_CALLBACK_H
#define ND_LIB_OBJECT_CALLBACK_H
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/object/object.h"

/// Calls `callback` (unless NULL) with `data`, then releases `kept` (or NULL), both as inside a
/// callback of a device.
void nd__callback_run(void (*callback)(void *data), void *data, nd_object *kept);

/// Inside the core, look at the thread's `in_callback`.
bool nd__callback_running(void);
/// For what must not happen inside a callback: ND_ERROR_STATE with a sentence there, else ND_OK.
nd_status nd__callback_check(const char *operation);
/// The error of that.
nd_status nd__callback_error(const char *operation);

/// Leaves an object whose count is zero to other threads. Waits for nothing but short locks.
void nd__callback_defer(nd_object *object);

/// What was left, newest first, linked by `next`.
extern _Atomic(nd_object *) nd__callback_deferred;
static inline bool nd__callback_any_deferred(void) {
    return __builtin_expect(nd__atomic_load(&nd__callback_deferred, relaxed) != NULL, 0);
}
/// Takes all of it.
nd_object *nd__callback_take_deferred(void);
/// Destroys what was left, in the order in which it died; true when there was something. Runs user
/// code, so no lock may be held, but leaves the thread's error as it was. Does nothing inside a
/// callback, nor while this thread frees what a collection found (which counts what dies then).
bool nd__callback_destroy_deferred(void);
#endif
