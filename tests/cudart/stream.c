// Streams and events.
//
// A handle stays readable for ever, so that a use after its end is told instead of being luck.
#include "tests/cudart/control.h"
#include "tests/cudart/runtime.h"
#include <stdlib.h>
#include <string.h>

cudart_stream *cudart_stream_new(cudart_device *device, bool blocking) {
    if (cudart.streams == CUDART_STREAMS)
        return NULL;
    cudart_stream *stream = cudart_allocate(sizeof *stream);
    stream->alive = true;
    stream->blocking = blocking;
    stream->number = cudart.streams;
    stream->device = device;
    stream->last = &stream->first;
    stream->clock = cudart_clock_share(cudart.host);
    cudart.stream[cudart.streams++] = stream;
    return stream;
}

cudart_stream *cudart_stream_behind(cudaStream_t handle) {
    if (!handle)
        return cudart_device_now()->null_stream;
    if (!handle->alive)
        cudart_abort(NULL, "a stream is used that was destroyed");
    return handle;
}

cudaError_t cudart_stream_of(cudaStream_t handle, cudart_stream **ret_stream) {
    cudart_stream *stream = cudart_stream_behind(handle);
    *ret_stream = stream;
    return stream->device == cudart_device_now() ? cudart_capture_check(stream)
                                                 : cudaErrorInvalidResourceHandle;
}

static void check_event(cudaEvent_t event) {
    if (!event || !event->alive)
        cudart_abort(NULL, "an event is used that was destroyed, or never made");
}

// ------------------------------------------------------------------------------------------------
// streams

static cudaError_t create(const char *name, cudaStream_t *ret_stream, unsigned flags) {
    cudaError_t error = cudart_begin(name, true);
    if (error == cudaSuccess && flags > cudaStreamNonBlocking)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        cudart_stream *stream =
            cudart_stream_new(cudart_device_now(), flags != cudaStreamNonBlocking);
        if (stream)
            *ret_stream = stream;
        else
            error = cudaErrorMemoryAllocation;
    }
    return cudart_end(error);
}

cudaError_t cudaStreamCreate(cudaStream_t *ret_stream) {
    return create("cudaStreamCreate", ret_stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags) {
    return create("cudaStreamCreateWithFlags", ret_stream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *ret_stream, unsigned flags, int priority) {
    (void)priority;
    return create("cudaStreamCreateWithPriority", ret_stream, flags);
}

/// What is queued is still done.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaStreamDestroy", true);
    if (error == cudaSuccess && !handle)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess) {
        cudart_capture_stream_gone(cudart_stream_behind(handle));
        handle->alive = false;
    }
    return cudart_end(error);
}

/// Whether a stream may be waited for, or asked.
static cudaError_t waiting(const cudart_stream *stream) {
    cudaError_t error = cudart_capture_check(stream);
    if (error == cudaSuccess)
        error = cudart_capture_refuse(stream);
    return error == cudaSuccess ? cudart_capture_unsafe() : error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaStreamSynchronize", true);
    if (error == cudaSuccess) {
        cudart_stream *stream = cudart_stream_behind(handle);
        error = waiting(stream);
        if (error == cudaSuccess)
            error = cudart_wait_for((cudart_point){stream, stream->queued}, stream->clock);
        if (error == cudaSuccess)
            cudart_pools_synchronized(stream->device);
    }
    return cudart_end(error);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaStreamQuery", true);
    if (error == cudaSuccess) {
        cudart_stream *stream = cudart_stream_behind(handle);
        error = waiting(stream);
        if (error == cudaSuccess)
            error = cudart_ask((cudart_point){stream, stream->queued}, stream->clock);
    }
    return cudart_end(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
    cudaError_t error = cudart_begin("cudaStreamWaitEvent", true);
    if (error == cudaSuccess && flags != 0)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        cudart_stream *stream = cudart_stream_behind(handle);
        check_event(event);
        bool captured;
        error = cudart_capture_check(stream);
        if (error == cudaSuccess)
            error = cudart_capture_wait(stream, event, &captured);
        if (error == cudaSuccess && !captured && event->recorded) {
            cudart_step *step = cudart_step_new(stream, CUDART_WAIT, "cudaStreamWaitEvent");
            cudart_clock_join(&stream->clock, event->clock);
            cudart_step_wait(step, event->point);
            cudart_issue(step);
        }
    }
    return cudart_end(error);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data) {
    cudaError_t error = cudart_begin("cudaLaunchHostFunc", true);
    if (error == cudaSuccess && !function)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = cudart_capture_check(cudart_stream_behind(handle));
    if (error == cudaSuccess) {
        cudart_step *step = cudart_step_new(cudart_stream_behind(handle), CUDART_HOST_FUNCTION,
                                            "cudaLaunchHostFunc");
        step->function = function;
        step->data = data;
        cudart_issue(step);
    }
    return cudart_end(error);
}

cudaError_t cudart_queue_library(cudaStream_t handle, const char *name,
                                 void (*function)(void *data), const void *data, size_t bytes) {
    cudaError_t error = cudart_begin(name, true);
    if (error == cudaSuccess)
        error = cudart_capture_check(cudart_stream_behind(handle));
    if (error == cudaSuccess) {
        cudart_step *step = cudart_step_new(cudart_stream_behind(handle), CUDART_LIBRARY, name);
        step->function = function;
        step->data = cudart_allocate(bytes);
        memcpy(step->data, data, bytes);
        cudart_issue(step);
    }
    return cudart_end(error);
}

cudaError_t cudart_queue_meeting(cudaStream_t handle, const char *name,
                                 bool (*ready)(const void *data), void (*function)(void *data),
                                 const void *data, size_t bytes) {
    cudaError_t error = cudart_begin(name, true);
    cudart_stream *stream = NULL;
    if (error == cudaSuccess)
        error = cudart_stream_of(handle, &stream);
    if (error == cudaSuccess)
        error = cudart_capture_refuse(stream);
    if (error == cudaSuccess) {
        cudart_step *step = cudart_step_new(stream, CUDART_LIBRARY, name);
        step->ready = ready;
        step->function = function;
        step->data = cudart_allocate(bytes);
        memcpy(step->data, data, bytes);
        cudart_issue(step);
    }
    return cudart_end(error);
}

int cudart_get_ordinal(void) {
    int ordinal = -1;
    (void)cudaGetDevice(&ordinal);
    return ordinal;
}

// ------------------------------------------------------------------------------------------------
// events

static cudart_event *all_events;

static cudaError_t create_event(const char *name, cudaEvent_t *ret_event, unsigned flags) {
    cudaError_t error = cudart_begin(name, true);
    if (error == cudaSuccess &&
        (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        cudart_event *event = cudart_allocate(sizeof *event);
        event->alive = true;
        event->timing = !(flags & cudaEventDisableTiming);
        event->device = cudart_device_now();
        event->next = all_events;
        all_events = event;
        *ret_event = event;
    }
    return cudart_end(error);
}

cudaError_t cudaEventCreate(cudaEvent_t *ret_event) {
    return create_event("cudaEventCreate", ret_event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags) {
    return create_event("cudaEventCreateWithFlags", ret_event, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaEventRecord", true);
    if (error != cudaSuccess)
        return cudart_end(error);
    cudart_stream *stream = cudart_stream_behind(handle);
    check_event(event);
    if (event->device != stream->device)
        return cudart_end(cudaErrorInvalidResourceHandle);
    error = cudart_capture_check(stream);
    if (error != cudaSuccess)
        return cudart_end(error);
    cudart_capture_record(stream, event);
    if (stream->capture) {
        event->recorded = false; // no work does it
        return cudart_end(cudaSuccess);
    }
    cudart_step *step = cudart_step_new(stream, CUDART_RECORD, "cudaEventRecord");
    step->event = event;
    cudart_issue(step);
    event->recorded = true;
    event->point = (cudart_point){stream, stream->queued};
    cudart_clock_drop(event->clock);
    event->clock = cudart_clock_share(stream->clock);
    return cudart_end(cudaSuccess);
}

/// One that was never recorded counts as passed.
cudaError_t cudaEventQuery(cudaEvent_t event) {
    cudaError_t error = cudart_begin("cudaEventQuery", true);
    if (error == cudaSuccess) {
        check_event(event);
        error = cudart_capture_asked(event);
        if (error == cudaSuccess && event->recorded)
            error = cudart_ask(event->point, event->clock);
    }
    return cudart_end(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudaError_t error = cudart_begin("cudaEventSynchronize", true);
    if (error == cudaSuccess) {
        check_event(event);
        error = cudart_capture_asked(event);
        if (error == cudaSuccess && event->recorded)
            error = cudart_wait_for(event->point, event->clock);
    }
    return cudart_end(error);
}

cudaError_t cudaEventElapsedTime(float *ret_milliseconds, cudaEvent_t start, cudaEvent_t end) {
    cudaError_t error = cudart_begin("cudaEventElapsedTime", true);
    if (error == cudaSuccess) {
        check_event(start);
        check_event(end);
        if (!start->timing || !end->timing || !start->recorded || !end->recorded)
            error = cudaErrorInvalidResourceHandle;
        else if (!cudart_passed(start->point) || !cudart_passed(end->point))
            error = cudaErrorNotReady;
        else
            *ret_milliseconds = (float)(end->time - start->time);
    }
    return cudart_end(error);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t error = cudart_begin("cudaEventDestroy", true);
    if (error == cudaSuccess) {
        check_event(event);
        event->alive = false;
        cudart_clock_drop(event->clock);
        event->clock = NULL;
        cudart_nodes_clear(&event->nodes);
    }
    return cudart_end(error);
}
