// Copies between devices.
//
// A copy is work of the destination's device, which waits for the source's. Where the source's fails
// it goes on all the same, with whatever lies there. So a device notes which ones it has data from,
// and who waits for it is told what became of them: what is read on the host is right or an error.
#include "lib/device/cuda/cuda_peer.h"
#include "lib/base/cancel.h"
#include "lib/device/cuda/cuda_stream.h"
#include "lib/device/cuda/order.h"
#include <stdatomic.h>

/// Of `sources`: a bit for each device, and above them how many copies there were.
#define DEVICES UINT64_C(0xFFFFFFFF)
#define COPY (DEVICES + 1)

static void note_source(nd_cuda_device *device, const nd_cuda_device *from) {
    const uint64_t of_both = (atomic_load(&from->sources) & DEVICES) | UINT64_C(1) << from->index;
    uint64_t before = atomic_load(&device->sources);
    while (!atomic_compare_exchange_weak(&device->sources, &before, (before | of_both) + COPY)) {
    }
}

/// By a stream of the destination's device. The driver goes through the host where one device
/// cannot reach the other.
nd_status nd__cuda_peer_copy(int index, void *destination, int source_index, const void *source,
                             size_t bytes) {
    ND__UNCANCELLED;
    nd_cuda_device *device, *from;
    ND__CUDA_CALLER caller = {.ordinal = -1}, between = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    if (status == ND_OK)
        status = nd__cuda_stream_several(device);
    if (status == ND_OK)
        status = nd__cuda_enter(source_index, &from, &between);
    if (status == ND_OK)
        status = nd__cuda_stream_several(from);
    nd__cuda_leave(&between);
    if (status != ND_OK)
        return status;
    nd_cuda_stream *stream = nd__cuda_stream_now(device);
    const nd_cuda_access accesses[] = {{destination, true}, {source, false}};
    status = nd__order_before(stream, 2, accesses);
    if (status != ND_OK)
        return status;
    note_source(device, from);
    status = nd__cuda_status(cudaMemcpyPeerAsync(destination, device->ordinal, source,
                                                 from->ordinal, bytes, stream->handle));
    nd__order_after(stream, 2, accesses);
    return status;
}

static nd_status status_of_source(int index) {
    nd_cuda_device *source;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter(index, &source, &caller);
    if (status != ND_OK)
        return status;
    const cudaError_t error = cudaStreamQuery(source->streams[ND__CUDA_DEFAULT].handle);
    status = nd__cuda_status(error);
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return nd__cuda_data_status(source);
    if (nd__cuda_is_final(error))
        atomic_store(&source->failed, true);
    return status;
}

nd_status nd__cuda_peer_status(nd_cuda_device *device) {
    const uint64_t sources = atomic_load(&device->sources) & DEVICES;
    if (sources == 0)
        return ND_OK;
    nd_status status = ND_OK;
    for (int index = 0; index < ND__CUDA_DEVICES; index++)
        if ((sources >> index & 1) && index != device->index) {
            const nd_status of_source = status_of_source(index);
            status = status == ND_OK ? of_source : status;
        }
    return status;
}

uint64_t nd__cuda_peer_sources(nd_cuda_device *device) {
    return atomic_load(&device->sources);
}

void nd__cuda_peer_forget(nd_cuda_device *device, uint64_t sources) {
    atomic_compare_exchange_strong(&device->sources, &sources, sources & ~DEVICES);
}
