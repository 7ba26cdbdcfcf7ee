// A device's streams: which of CUDA's are made, which one a thread works on, and events.
//
// A user's stream stands for one of a device's pooled ones, the one that the fewest stand for. None
// of CUDA's is ever destroyed, so points (order.h) may name one whose users are all gone: its work
// goes on, and who gets it next comes behind that.
#include "lib/device/cuda/cuda_stream.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/order.h"
#include <limits.h>

static nd_cuda_device *numbered[ND__CUDA_DEVICES];

void nd__cuda_stream_number(nd_cuda_device *device, int index) {
    numbered[index] = device;
    device->index = index;
    for (int place = 0; place < ND__CUDA_STREAMS; place++) {
        device->streams[place].device = device;
        device->streams[place].number = (unsigned)(index * ND__CUDA_STREAMS + place);
        device->capturing[place].device = device;
        device->capturing[place].number = device->streams[place].number;
    }
    device->streams[ND__CUDA_DEFAULT].queued = 1; // all until points are noted
}

nd_status nd__cuda_stream_make(nd_cuda_stream *stream) {
    nd_status status = ND_OK;
    if (!stream->handle)
        status = nd__cuda_status(cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking));
    if (status == ND_OK && !stream->passed)
        status = nd__cuda_status(cudaEventCreateWithFlags(&stream->passed, cudaEventDisableTiming));
    if (status == ND_OK)
        atomic_store_explicit(&stream->made, true, memory_order_release);
    return status;
}

bool nd__cuda_stream_is_done(nd_cuda_stream *stream) {
    // Not being done is no failure, and is not left behind for the next call to find.
    return nd__cuda_status(cudaStreamQuery(stream->handle)) == ND_OK;
}

/// Place of the stream that this thread has chosen, of each device.
static _Thread_local uint8_t chosen[ND__CUDA_DEVICES];

nd_cuda_stream *nd__cuda_stream_now(nd_cuda_device *device) {
    if (nd__capture_is_of(ND_CUDA, device->index)) {
        // A stream that another thread has made since the capture began has none.
        nd_cuda_stream *stream = &device->capturing[chosen[device->index]];
        return stream->captured ? stream : &device->capturing[ND__CUDA_DEFAULT];
    }
    return &device->streams[chosen[device->index]];
}

nd_status nd__cuda_stream_several(nd_cuda_device *device) {
    if (nd__cuda_stream_is_made(&device->streams[ND__CUDA_RETIRING])) {
        nd__order_activate();
        return ND_OK;
    }
    pthread_mutex_lock(&device->lock);
    nd_status status = nd__cuda_stream_make(&device->streams[ND__CUDA_RETIRING]);
    pthread_mutex_unlock(&device->lock);
    if (status == ND_OK)
        nd__order_activate();
    return status;
}

// ------------------------------------------------------------------------------------------------
// streams

/// The pooled stream that the fewest users have; one that is not made yet comes before one that has
/// users.
static nd_cuda_stream *least_used(nd_cuda_device *device) {
    nd_cuda_stream *found = NULL;
    unsigned least = UINT_MAX;
    for (int place = ND__CUDA_POOLED; place < ND__CUDA_STREAMS; place++) {
        nd_cuda_stream *stream = &device->streams[place];
        const unsigned users = atomic_load_explicit(&stream->users, memory_order_relaxed);
        if (users < least) {
            least = users;
            found = stream;
        }
    }
    return found;
}

static nd_status stream_make(int index, void **ret_stream) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    if (status == ND_OK)
        status = nd__cuda_stream_several(device);
    if (status != ND_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    nd_cuda_stream *stream = least_used(device);
    status = nd__cuda_stream_make(stream);
    if (status == ND_OK) {
        atomic_fetch_add_explicit(&stream->users, 1, memory_order_relaxed);
        *ret_stream = stream;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

/// Makes no CUDA call and takes no lock, so that it is as right in a forked child and at exit.
static void stream_release(int index, void *stream) {
    (void)index;
    nd_cuda_stream *released = stream;
    atomic_fetch_sub_explicit(&released->users, 1, memory_order_relaxed);
}

/// Makes no CUDA call.
static void *stream_use(int index, void *stream) {
    const nd_cuda_stream *used = stream;
    const uint8_t before = chosen[index];
    chosen[index] = used ? (uint8_t)(used - used->device->streams) : (uint8_t)ND__CUDA_DEFAULT;
    return before == ND__CUDA_DEFAULT ? NULL : &numbered[index]->streams[before];
}

static nd_cuda_stream *stream_of(nd_cuda_device *device, void *stream) {
    return stream ? stream : &device->streams[ND__CUDA_DEFAULT];
}

static nd_status stream_lend(int index, size_t count, const nd_device_use *uses,
                             nd_status (*function)(void *stream, void *data), void *data) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    if (status != ND_OK)
        return status;
    nd_cuda_stream *stream = nd__cuda_stream_now(device);
    nd_cuda_access accesses[ND_DEVICE_USES];
    for (size_t i = 0; i < count; i++)
        accesses[i] = (nd_cuda_access){uses[i].data, uses[i].write};
    status = nd__order_before(stream, count, accesses);
    if (status != ND_OK)
        return status;
    status = function(stream->handle, data);
    nd__order_after(stream, count, accesses);
    return status;
}

static nd_status stream_synchronize(int index, void *stream) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    return status == ND_OK ? nd__cuda_wait_for(stream_of(device, stream)) : status;
}

/// ND_OK for what is done and for what is not.
static nd_status answer(cudaError_t error, bool *ret_done) {
    nd_status status = nd__cuda_status(error);
    if (status != ND_OK && error != cudaErrorNotReady)
        return status;
    *ret_done = status == ND_OK;
    return ND_OK;
}

static nd_status stream_query(int index, void *stream, bool *ret_done) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    return status == ND_OK ? answer(cudaStreamQuery(stream_of(device, stream)->handle), ret_done)
                           : status;
}

// ------------------------------------------------------------------------------------------------
// events

static nd_status event_make(int index, bool timed, void **ret_event) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    cudaEvent_t event = NULL;
    if (status == ND_OK)
        status = nd__cuda_status(
            cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
    if (status == ND_OK)
        *ret_event = event;
    return status;
}

/// One that was not reached yet goes when it is.
static void event_release(int index, void *event) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    if (nd__cuda_enter(index, &device, &caller) == ND_OK)
        (void)nd__cuda_status(cudaEventDestroy(event));
}

static nd_status event_record(int index, void *event, void *stream) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    return status == ND_OK
               ? nd__cuda_status(cudaEventRecord(event, stream_of(device, stream)->handle))
               : status;
}

static nd_status event_wait(int index, void *stream, void *event) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    return status == ND_OK
               ? nd__cuda_status(cudaStreamWaitEvent(stream_of(device, stream)->handle, event, 0))
               : status;
}

static nd_status event_synchronize(int index, void *event) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    return status == ND_OK ? nd__cuda_status(cudaEventSynchronize(event)) : status;
}

static nd_status event_query(int index, void *event, bool *ret_done) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    return status == ND_OK ? answer(cudaEventQuery(event), ret_done) : status;
}

static nd_status event_elapsed(int index, void *start, void *end, double *ret_milliseconds) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    float milliseconds = 0;
    if (status == ND_OK)
        status = nd__cuda_status(cudaEventElapsedTime(&milliseconds, start, end));
    if (status == ND_OK)
        *ret_milliseconds = (double)milliseconds;
    return status;
}

const nd_stream_functions nd__cuda_stream_functions = {
    .make = stream_make,
    .release = stream_release,
    .use = stream_use,
    .lend = stream_lend,
    .synchronize = stream_synchronize,
    .query = stream_query,
    .event_make = event_make,
    .event_release = event_release,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_synchronize = event_synchronize,
    .event_query = event_query,
    .event_elapsed = event_elapsed,
};
