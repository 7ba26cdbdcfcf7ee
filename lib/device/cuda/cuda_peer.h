// Copies between devices.
#ifndef ND_LIB_DEVICE_CUDA_CUDA_PEER_H
#define ND_LIB_DEVICE_CUDA_CUDA_PEER_H
#include "lib/device/cuda/cuda_device.h"

/// As nd_backend.copy_peer.
nd_status nd__cuda_peer_copy(int index, void *destination, int source_index, const void *source,
                             size_t bytes);
/// Behind a wait for work of a device: what became of the devices that it has data from, and they of
/// others. What is wrong with data is told once.
nd_status nd__cuda_peer_status(nd_cuda_device *device);
/// Which ones these are, and that they are asked no more: behind a wait for everything, so that a
/// device goes on when one that has failed was told of. What was copied since then stays noted.
uint64_t nd__cuda_peer_sources(nd_cuda_device *device);
void nd__cuda_peer_forget(nd_cuda_device *device, uint64_t sources);
#endif
