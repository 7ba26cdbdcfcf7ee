// A device's streams: which of CUDA's are made, which one a thread works on, and events.
#ifndef ND_LIB_DEVICE_CUDA_CUDA_STREAM_H
#define ND_LIB_DEVICE_CUDA_CUDA_STREAM_H
#include "lib/device/cuda/cuda_device.h"

/// Gives a device and its streams their numbers, when it is found.
void nd__cuda_stream_number(nd_cuda_device *device, int index);

/// Makes CUDA's stream and its event, where they are not there. What a failure leaves is taken up
/// again by the next try. Caller holds the device's lock, and the device is current.
nd_status nd__cuda_stream_make(nd_cuda_stream *stream);

static inline bool nd__cuda_stream_is_made(nd_cuda_stream *stream) {
    return atomic_load_explicit(&stream->made, memory_order_acquire);
}

/// Where this thread's work on a device goes.
nd_cuda_stream *nd__cuda_stream_now(nd_cuda_device *device);

/// Before a second stream touches what a device holds: from now on points are noted (order.h). The
/// device is current.
nd_status nd__cuda_stream_several(nd_cuda_device *device);

bool nd__cuda_stream_is_done(nd_cuda_stream *stream);

extern const nd_stream_functions nd__cuda_stream_functions;
#endif
