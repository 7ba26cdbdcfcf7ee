// Small copies to a device without waiting: a ring of pinned slots, which the device empties in its
// own time. The caller waits only when the ring has gone round faster than the device.
#include "lib/device/cuda/cuda_device.h"
#include <string.h>

/// The ring, at the first copy; without it copies wait, which is slower and nothing worse.
static bool ring_ready(nd_cuda_staging *staging) {
    if (staging->tried)
        return staging->memory != NULL;
    staging->tried = true;
    for (int slot = 0; slot < ND__CUDA_STAGING_SLOTS; slot++)
        if (nd__cuda_status(
                cudaEventCreateWithFlags(&staging->copied[slot], cudaEventDisableTiming)) != ND_OK)
            return false;
    void *memory = NULL;
    if (nd__cuda_status(cudaHostAlloc(&memory, ND__CUDA_STAGING_SLOTS * ND__CUDA_STAGING_BYTES,
                                      cudaHostAllocDefault)) != ND_OK)
        return false;
    staging->memory = memory;
    return true;
}

nd_status nd__staging_take(nd_cuda_stream *stream, void *destination, const void *source,
                           size_t bytes) {
    nd_cuda_staging *staging = &stream->device->staging;
    nd_status status = ND_ERROR_UNSUPPORTED;
    pthread_mutex_lock(&staging->lock);
    if (ring_ready(staging)) {
        unsigned slot = staging->next++ % ND__CUDA_STAGING_SLOTS;
        char *memory = staging->memory + slot * ND__CUDA_STAGING_BYTES;
        // An event that was never recorded counts as passed.
        status = nd__cuda_status(cudaEventSynchronize(staging->copied[slot]));
        if (status == ND_OK) {
            memcpy(memory, source, bytes);
            status = nd__cuda_status(cudaMemcpyAsync(destination, memory, bytes,
                                                     cudaMemcpyHostToDevice, stream->handle));
        }
        if (status == ND_OK)
            status = nd__cuda_status(cudaEventRecord(staging->copied[slot], stream->handle));
    }
    pthread_mutex_unlock(&staging->lock);
    return status;
}
