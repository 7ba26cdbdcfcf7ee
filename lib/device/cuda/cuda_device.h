// One CUDA device as the backend holds it: a stream, a pool, a ring of pinned memory, cuBLAS.
//
// Invariant: everything on a device happens on its one stream, so memory may be given back to the
// pool while kernels that use it are still queued. Nothing here is ever destroyed: at exit and
// after a fork the driver's state must not be touched, and until then the device may be needed
// again.
#ifndef ND_LIB_DEVICE_CUDA_CUDA_DEVICE_H
#define ND_LIB_DEVICE_CUDA_CUDA_DEVICE_H
#include "lib/device/device.h"
#include <cuda_runtime_api.h>
#include <pthread.h>

/// Copies up to this size go through the ring, so that the caller does not wait for them.
#define ND__CUDA_STAGING_BYTES ((size_t)256 << 10)
#define ND__CUDA_STAGING_SLOTS 8

typedef struct nd_cuda_staging {
    pthread_mutex_t lock;
    char *memory; ///< pinned; NULL until the first copy, or when there is none to be had
    bool tried;
    unsigned next;
    cudaEvent_t copied[ND__CUDA_STAGING_SLOTS]; ///< the slot's last copy has left it
} nd_cuda_staging;

typedef struct nd_cuda_device {
    int ordinal; ///< CUDA's number, which may differ: devices too old for the kernels are left out
    int multiprocessors;
    pthread_mutex_t lock; ///< of the first use
    _Atomic bool ready;
    cudaStream_t stream;
    cudaMemPool_t pool;
    _Atomic uint64_t
        limit; ///< of what the pool keeps beyond what is in use; 0: none, else one more
    _Atomic uint64_t released; ///< bytes since somebody looked how much it keeps
    int32_t *out_of_range;     ///< pinned; see nd_cuda_queue
    nd_cuda_staging staging;
    pthread_mutex_t blas_lock; ///< of the libraries' handles
    void *blas;        ///< cuBLAS handle; NULL until the first product, or when there is no cuBLAS
    void *blas_stream; ///< that it was told last
    void *blas_lt;     ///< cuBLASLt handle, likewise
    void *dnn;         ///< cuDNN handle, likewise
    bool blas_tried, blas_lt_tried, dnn_tried;
} nd_cuda_device;

/// What a CUDA error means for the caller; also forgets it, so that the next call does not find it.
nd_status nd__cuda_status(cudaError_t error);

/// Copies to the device through the ring. ND_ERROR_UNSUPPORTED: there is no pinned memory.
nd_status nd__staging_take(nd_cuda_device *device, void *destination, const void *source,
                           size_t bytes);
#endif
