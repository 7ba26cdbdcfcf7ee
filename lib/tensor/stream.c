// Streams and events: the public objects over what a backend has (lib/device/device.h).
//
// Where a backend has one stream only every stream object stands for that. What an object stands for
// the backend keeps, so that nothing needs to hold a stream that it has used.
#include "lib/base/cancel.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/object/object.h"
#include <nd/stream.h>

struct nd_stream {
    nd_object header;
    nd_device device;
    void *handle; ///< the backend's; NULL: it has one stream only
};

struct nd_event {
    nd_object header;
    nd_device device;
    bool timed;
    void *handle;              ///< the backend's; NULL: it has one stream only
    _Atomic uint64_t recorded; ///< when, in nanoseconds; 0: never
};

/// Current streams of this thread, borrowed, each of another device; NULL: none.
static _Thread_local const nd_stream *current[8];

static const nd_backend *backend_of(nd_device device) {
    return nd__registry_backend(device.kind);
}

static bool is_same_device(nd_device a, nd_device b) {
    return a.kind == b.kind && a.index == b.index;
}

static nd_status failed(const char *operation, nd_status status, nd_device device) {
    if (status == ND_OK)
        return ND_OK;
    return nd__error(status, "%s: work queued earlier on %s, or the call itself, failed with %s",
                     operation, nd__registry_device_text(device), nd__registry_answer_text(status));
}

/// A device with one stream: whether that is done, which the ladder's wait of no time says.
static bool is_idle(nd_device device) {
    const nd_backend *backend = backend_of(device);
    return backend->host_accessible || !backend->memory || !backend->memory->wait ||
           backend->memory->wait(device.index, 0);
}

// ------------------------------------------------------------------------------------------------
// streams

/// Makes a stream, or for NULL the default one, current; `place` is the device's.
static void choose(nd_device device, const nd_stream **place, const nd_stream *stream) {
    *place = stream;
    const nd_backend *backend = backend_of(device);
    if (backend->streams)
        backend->streams->use(device.index, stream ? stream->handle : NULL);
}

static void stream_destroy(nd_object *self) {
    nd_stream *stream = (nd_stream *)self;
    for (size_t i = 0; i < sizeof current / sizeof *current; i++)
        if (current[i] == stream)
            choose(stream->device, &current[i], NULL);
    if (stream->handle)
        backend_of(stream->device)->streams->release(stream->device.index, stream->handle);
    stream->handle = NULL;
}

static const nd_type stream_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "stream",
    .flags = ND_TYPE_GREEN,
    .destroy = stream_destroy,
};

nd_stream *nd_stream_new(nd_device device) {
    ND__UNCANCELLED;
    static const char operation[] = "stream_new";
    if (nd__registry_device_check(operation, device) != ND_OK ||
        nd__capture_check(operation, device) != ND_OK)
        return NULL;
    nd_stream *stream = (nd_stream *)nd__object_new(&stream_type, sizeof *stream);
    if (!stream)
        return NULL;
    stream->device = device;
    const nd_backend *backend = backend_of(device);
    nd_status status =
        backend->streams ? backend->streams->make(device.index, &stream->handle) : ND_OK;
    if (status != ND_OK) {
        nd__object_discard(stream);
        failed(operation, status, device);
        return NULL;
    }
    void *handle = stream->handle;
    stream = nd__object_publish_or_discard(operation, stream);
    if (!stream && handle)
        backend->streams->release(device.index, handle);
    return stream;
}

nd_device nd_stream_get_device(const nd_stream *stream) {
    return stream ? stream->device : (nd_device){ND_CPU, 0};
}

static nd_status check_stream(const char *operation, const nd_stream *stream) {
    if (!stream)
        return nd__error_null(operation, "stream");
    if (nd__object_is_closed(stream))
        return nd__error(ND_ERROR_CLOSED, "%s: the stream was closed", operation);
    return nd__registry_device_check(operation, stream->device);
}

/// The place of a device's current stream; NULL: it has none and there is no room for one.
static const nd_stream **place_of(nd_device device) {
    const nd_stream **free = NULL;
    for (size_t i = 0; i < sizeof current / sizeof *current; i++) {
        if (current[i] && is_same_device(current[i]->device, device))
            return &current[i];
        if (!current[i] && !free)
            free = &current[i];
    }
    return free;
}

const nd_stream *nd_stream_get_current(nd_device device) {
    const nd_stream **place = place_of(device);
    return place ? *place : NULL;
}

static nd_status set_current(const char *operation, nd_device device, const nd_stream *stream) {
    nd_status status =
        stream ? check_stream(operation, stream) : nd__registry_device_check(operation, device);
    if (status != ND_OK)
        return status;
    if (stream && !is_same_device(stream->device, device))
        return nd__error(ND_ERROR_DEVICE, "%s: the stream is one of %s, not of %s", operation,
                         nd__registry_device_text(stream->device),
                         nd__registry_device_text(device));
    const nd_stream **place = place_of(device);
    if (!place && stream)
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: this thread has current streams of eight devices", operation);
    if (place)
        choose(device, place, stream);
    return ND_OK;
}

nd_status nd_stream_set_current(nd_device device, const nd_stream *stream) {
    return set_current("stream_set_current", device, stream);
}

nd_stream_block nd__stream_block_begin(const nd_stream *stream) {
    nd_stream_block block = {.once = true};
    const nd_stream *previous = stream ? nd_stream_get_current(stream->device) : NULL;
    if (!stream)
        nd__error_null("with_stream", "stream");
    else if (set_current("with_stream", stream->device, stream) == ND_OK) {
        block.held = nd_object_retain(stream);
        block.previous = previous;
    }
    return block;
}

void nd__stream_block_end(nd_stream_block *block) {
    if (!block->held)
        return;
    const nd_stream **place = place_of(block->held->device);
    if (place)
        choose(block->held->device, place, block->previous);
    nd_object_release(block->held);
    block->held = NULL;
}

nd_status nd_stream_synchronize(const nd_stream *stream) {
    ND__UNCANCELLED;
    static const char operation[] = "stream_synchronize";
    nd_status status = check_stream(operation, stream);
    if (status == ND_OK)
        status = nd__capture_check(operation, stream->device);
    if (status != ND_OK)
        return status;
    const nd_backend *backend = backend_of(stream->device);
    return failed(operation,
                  backend->streams
                      ? backend->streams->synchronize(stream->device.index, stream->handle)
                      : backend->synchronize(stream->device.index),
                  stream->device);
}

nd_status nd_stream_query(const nd_stream *stream, bool *ret_done) {
    ND__UNCANCELLED;
    static const char operation[] = "stream_query";
    nd_status status = check_stream(operation, stream);
    if (status == ND_OK)
        status = nd__capture_check(operation, stream->device);
    if (status != ND_OK)
        return status;
    if (!ret_done)
        return nd__error_null(operation, "ret_done");
    const nd_backend *backend = backend_of(stream->device);
    if (backend->streams)
        return failed(operation,
                      backend->streams->query(stream->device.index, stream->handle, ret_done),
                      stream->device);
    *ret_done = is_idle(stream->device);
    return ND_OK;
}

// ------------------------------------------------------------------------------------------------
// events

static void event_destroy(nd_object *self) {
    nd_event *event = (nd_event *)self;
    if (event->handle)
        backend_of(event->device)->streams->event_release(event->device.index, event->handle);
    event->handle = NULL;
}

static const nd_type event_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "event",
    .flags = ND_TYPE_GREEN,
    .destroy = event_destroy,
};

nd_event *nd_event_new(nd_device device, bool timed) {
    ND__UNCANCELLED;
    static const char operation[] = "event_new";
    if (nd__registry_device_check(operation, device) != ND_OK ||
        nd__capture_check(operation, device) != ND_OK)
        return NULL;
    const nd_backend *backend = backend_of(device);
    if (timed && !backend->streams && !backend->host_accessible) {
        nd__error(ND_ERROR_UNSUPPORTED, "%s: %s does not note the time", operation,
                  nd__registry_device_text(device));
        return NULL;
    }
    nd_event *event = (nd_event *)nd__object_new(&event_type, sizeof *event);
    if (!event)
        return NULL;
    event->device = device;
    event->timed = timed;
    nd_status status = backend->streams
                           ? backend->streams->event_make(device.index, timed, &event->handle)
                           : ND_OK;
    if (status != ND_OK) {
        nd__object_discard(event);
        failed(operation, status, device);
        return NULL;
    }
    void *handle = event->handle;
    event = nd__object_publish_or_discard(operation, event);
    if (!event && handle)
        backend->streams->event_release(device.index, handle);
    return event;
}

nd_device nd_event_get_device(const nd_event *event) {
    return event ? event->device : (nd_device){ND_CPU, 0};
}

static nd_status check_event(const char *operation, const char *name, const nd_event *event) {
    if (!event)
        return nd__error_null(operation, name);
    if (nd__object_is_closed(event))
        return nd__error(ND_ERROR_CLOSED, "%s: the event was closed", operation);
    nd_status status = nd__registry_device_check(operation, event->device);
    return status == ND_OK ? nd__capture_check(operation, event->device) : status;
}

/// The backend's stream for an argument that may be NULL.
static void *handle_of(const nd_stream *stream, nd_device device) {
    if (!stream)
        stream = nd_stream_get_current(device);
    return stream ? stream->handle : NULL;
}

nd_status nd_event_record(nd_event *event, const nd_stream *stream) {
    ND__UNCANCELLED;
    static const char operation[] = "event_record";
    nd_status status = check_event(operation, "event", event);
    if (status == ND_OK && stream)
        status = check_stream(operation, stream);
    if (status != ND_OK)
        return status;
    if (stream && !is_same_device(stream->device, event->device))
        return nd__error(ND_ERROR_DEVICE, "%s: the event is one of %s and the stream of %s",
                         operation, nd__registry_device_text(event->device),
                         nd__registry_device_text(stream->device));
    const nd_backend *backend = backend_of(event->device);
    if (backend->streams)
        status = backend->streams->event_record(event->device.index, event->handle,
                                                handle_of(stream, event->device));
    if (status == ND_OK)
        event->recorded = nd__clock_now_ns() | 1;
    return failed(operation, status, event->device);
}

static nd_status synchronize(const nd_event *event) {
    const nd_backend *backend = backend_of(event->device);
    if (!event->recorded)
        return ND_OK;
    return backend->streams
               ? backend->streams->event_synchronize(event->device.index, event->handle)
               : backend->synchronize(event->device.index);
}

nd_status nd_event_synchronize(const nd_event *event) {
    ND__UNCANCELLED;
    static const char operation[] = "event_synchronize";
    nd_status status = check_event(operation, "event", event);
    return status == ND_OK ? failed(operation, synchronize(event), event->device) : status;
}

nd_status nd_event_query(const nd_event *event, bool *ret_done) {
    ND__UNCANCELLED;
    static const char operation[] = "event_query";
    nd_status status = check_event(operation, "event", event);
    if (status != ND_OK)
        return status;
    if (!ret_done)
        return nd__error_null(operation, "ret_done");
    const nd_backend *backend = backend_of(event->device);
    if (backend->streams && event->recorded)
        return failed(operation,
                      backend->streams->event_query(event->device.index, event->handle, ret_done),
                      event->device);
    *ret_done = !event->recorded || is_idle(event->device);
    return ND_OK;
}

nd_status nd_stream_wait(const nd_stream *stream, const nd_event *event) {
    ND__UNCANCELLED;
    static const char operation[] = "stream_wait";
    nd_status status = check_event(operation, "event", event);
    if (status == ND_OK && stream)
        status = check_stream(operation, stream);
    if (status == ND_OK && stream)
        status = nd__capture_check(operation, stream->device);
    if (status != ND_OK || !event->recorded)
        return status;
    const nd_device device = stream ? stream->device : event->device;
    const nd_backend *backend = backend_of(device);
    if (device.kind != event->device.kind || (!backend->streams && backend->host_accessible))
        status = synchronize(event);
    else if (backend->streams)
        status =
            backend->streams->event_wait(device.index, handle_of(stream, device), event->handle);
    else if (device.index != event->device.index)
        status = synchronize(event);
    return failed(operation, status, device);
}

nd_status nd_event_get_elapsed(const nd_event *start, const nd_event *end,
                               double *ret_milliseconds) {
    ND__UNCANCELLED;
    static const char operation[] = "event_get_elapsed";
    nd_status status = check_event(operation, "start", start);
    if (status == ND_OK)
        status = check_event(operation, "end", end);
    if (status != ND_OK)
        return status;
    if (!ret_milliseconds)
        return nd__error_null(operation, "ret_milliseconds");
    if (!is_same_device(start->device, end->device))
        return nd__error(ND_ERROR_DEVICE, "%s: the events are of %s and %s", operation,
                         nd__registry_device_text(start->device),
                         nd__registry_device_text(end->device));
    if (!start->timed || !end->timed || !start->recorded || !end->recorded)
        return nd__error(ND_ERROR_STATE, "%s: %s", operation,
                         start->timed && end->timed ? "an event was never recorded"
                                                    : "an event was not made to be timed");
    const nd_backend *backend = backend_of(start->device);
    if (!backend->streams) {
        *ret_milliseconds = (double)(int64_t)(end->recorded - start->recorded) * 1e-6;
        return ND_OK;
    }
    status = synchronize(start);
    if (status == ND_OK)
        status = synchronize(end);
    if (status == ND_OK)
        status = backend->streams->event_elapsed(start->device.index, start->handle, end->handle,
                                                 ret_milliseconds);
    return failed(operation, status, start->device);
}
