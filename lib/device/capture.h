// What a thread captures into a graph: its work on one device (include/nd/graph.h).
//
// While it does, the device is asked nothing and nothing is waited for: what would is refused here,
// before the backend is called. Invariant: a thread's `capture` is set between the backend's `begin`
// and its `end`, and only lib/tensor/graph.c sets it.
#ifndef ND_LIB_DEVICE_CAPTURE_H
#define ND_LIB_DEVICE_CAPTURE_H
#include "lib/base/thread.h"
#include "lib/manager/manager.h"
#include <nd/graph.h>

/// Memory of others that died in a capture.
typedef struct nd_put_off {
    struct nd_put_off *next;
    void (*free)(void *pointer, size_t bytes);
    void *pointer;
    size_t bytes;
    nd_device device;
} nd_put_off;

typedef struct nd_capture {
    nd_device device;
    void *handle;           ///< the backend's
    nd_graph *graph;        ///< owned, private
    nd_manager *manager;    ///< owned: pays for the arena
    struct nd_arena *arena; ///< the graph's
    uint64_t charged;       ///< of it, to the manager
    bool fresh;             ///< no memory that captured work has used: it is filled before launches
    bool broken;            ///< captured work failed: there will be no graph
    nd_put_off *put_off;    ///< owned: waits for the end
} nd_capture;

static inline bool nd__capture_running(void) {
    return __builtin_expect(nd__thread_record.capture != NULL, 0);
}

/// Whether this thread captures its work on a device.
static inline bool nd__capture_is_of(nd_device_kind kind, int index) {
    const nd_capture *capture = nd__thread_record.capture;
    return __builtin_expect(capture != NULL, 0) && capture->device.kind == kind &&
           capture->device.index == index;
}

/// For what no graph can hold: ND_ERROR_STATE with a sentence while this thread captures, else
/// ND_OK. What is asked of the CPU is done at once, and always may be.
nd_status nd__capture_check(const char *operation, nd_device device);
/// The error of that.
nd_status nd__capture_error(const char *operation);
/// As nd__capture_check() for an operation whose result's size the data decide.
nd_status nd__capture_check_size(const char *operation, nd_device device);
/// That of work which the backend has not taken.
nd_status nd__capture_refused(const char *operation, nd_device device);
#endif
