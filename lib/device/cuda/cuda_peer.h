// Copies between devices.
#ifndef ND_LIB_DEVICE_CUDA_CUDA_PEER_H
#define ND_LIB_DEVICE_CUDA_CUDA_PEER_H
#include "lib/device/cuda/cuda_device.h"

/// As nd_backend.copy_peer.
nd_status nd__cuda_peer_copy(int index, void *destination, int source_index, const void *source,
                             size_t bytes);
/// Behind a wait for work of a device: what became of the devices that it has data from, and they of
/// others. Told once of what is wrong with data, and each time of a device that has failed.
nd_status nd__cuda_peer_status(nd_cuda_device *device);
#endif
