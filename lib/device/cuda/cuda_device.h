// One CUDA device as the backend holds it: streams, a pool, a ring of pinned memory, cuBLAS.
//
// Invariant: what a block of memory is used for on several streams is ordered (order.h), so memory
// may be given back to the pool while kernels that use it are still queued. Nothing here is ever
// destroyed: at exit and after a fork the driver's state must not be touched, and until then the
// device may be needed again.
#ifndef ND_LIB_DEVICE_CUDA_CUDA_DEVICE_H
#define ND_LIB_DEVICE_CUDA_CUDA_DEVICE_H
#include "lib/device/device.h"
#include <cuda_runtime_api.h>
#include <pthread.h>

/// Copies up to this size go through the ring, so that the caller does not wait for them.
#define ND__CUDA_STAGING_BYTES ((size_t)256 << 10)
#define ND__CUDA_STAGING_SLOTS 8

#define ND__CUDA_DEVICES 16

/// Streams of a device by their places.
enum {
    ND__CUDA_DEFAULT,  ///< where a thread works that has chosen none
    ND__CUDA_RETIRING, ///< gives back memory that several streams have used
    ND__CUDA_POOLED,   ///< the first of those that users' streams stand for
    ND__CUDA_STREAMS = 18,
};

typedef struct nd_cuda_kept nd_cuda_kept;

/// A stream of CUDA's, made at its first use. What order.c guards says so.
typedef struct nd_cuda_stream {
    struct nd_cuda_device *device;
    unsigned number; ///< among those of all devices
    /// Users' streams that it stands for. More under the device's lock; fewer at any time.
    _Atomic unsigned users;
    _Atomic bool made;
    cudaStream_t handle;
    cudaEvent_t passed;            ///< behind its work up to number `recorded`
    uint64_t queued;               ///< order.c: pieces of its work, numbered from 1
    uint64_t recorded;             ///< order.c
    uint64_t done;                 ///< order.c: the host has waited for so many
    struct nd_cuda_uses *captured; ///< order.h: of a graph that is captured; NULL: its work is done
    bool joined;                   ///< order.c: a captured one is in the capture
    nd_cuda_kept *kept;            ///< cuda_kept.c; NULL: nothing was kept yet
    uint64_t known[ND__CUDA_DEVICES *
                   ND__CUDA_STREAMS]; ///< order.c: of each stream, how much this one has waited for
} nd_cuda_stream;

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
    bool overlaps;        ///< see nd_cuda_queue
    int shared_bytes;     ///< of shared memory that a block may ask for
    bool has_warpgroups;  ///< see nd_cuda_queue
    int index;            ///< ndarc's number
    pthread_mutex_t lock; ///< of the first use, and of which streams are taken
    _Atomic bool ready;
    _Atomic bool failed;      ///< for good: who waited for it was told
    _Atomic uint64_t sources; ///< cuda_peer.c: devices that it has data from
    nd_cuda_stream streams[ND__CUDA_STREAMS];
    nd_cuda_stream capturing
        [ND__CUDA_STREAMS];    ///< on which a thread captures what it does on those of `streams`;
                               ///< no work of them is ever done. The first one's the capture is
    cudaEvent_t capture_began; ///< captured; the others come behind it
    struct nd_cuda_graph
        *_Atomic capture; ///< into which; NULL: nobody captures; set under the lock
    cudaMemPool_t pool;
    _Atomic uint64_t
        limit; ///< of what the pool keeps beyond what is in use; 0: none, else one more
    _Atomic uint64_t bound;    ///< of all that the pool has; 0: none, else one more
    _Atomic uint64_t live;     ///< bytes of the program's data
    _Atomic uint64_t released; ///< bytes since somebody looked how much it keeps
    uint64_t keeps;            ///< cuda_kept.c: bytes at most of each stream
    _Atomic uint64_t kept;     ///< cuda_kept.c: bytes of all streams
    int32_t *out_of_range;     ///< pinned; see nd_cuda_queue
    nd_cuda_staging staging;
    pthread_mutex_t blas_lock; ///< of the libraries' handles
    void *blas;        ///< cuBLAS handle; NULL until the first product, or when there is no cuBLAS
    void *blas_stream; ///< that it was told last
    void *blas_lt;     ///< cuBLASLt handle, likewise
    void *dnn;         ///< cuDNN handle, likewise
    void *solver, *solver_params; ///< cuSOLVER handle and parameters, likewise
    bool blas_tried, blas_lt_tried, dnn_tried;
    int solver_tries; ///< that failed
} nd_cuda_device;

/// What a CUDA error means for the caller; also forgets it, so that the next call does not find it.
nd_status nd__cuda_status(cudaError_t error);

/// Which device of CUDA's was current when a function of the backend began, where that is to be set
/// back; else -1. And whether the function has entered, so that the end of the process waits for it.
typedef struct nd_cuda_caller {
    int ordinal;
    bool entered;
} nd_cuda_caller;

/// ND__CUDA_CALLER caller = {.ordinal = -1}; for nd__cuda_enter(): set back at the end of the block.
#define ND__CUDA_CALLER __attribute__((cleanup(nd__cuda_leave))) nd_cuda_caller

/// Makes a device current in this thread, prepared.
nd_status nd__cuda_enter(int index, nd_cuda_device **ret_device, nd_cuda_caller *ret_caller);
/// The same for what no capture can hold: ND_ERROR_STATE, without a call, while this thread captures.
nd_status nd__cuda_enter_uncaptured(int index, nd_cuda_device **ret_device,
                                    nd_cuda_caller *ret_caller);
void nd__cuda_leave(nd_cuda_caller *caller);

/// Whether an error of work that was queued stays with the device.
bool nd__cuda_is_final(cudaError_t error);
/// What the work that was waited for made of its data: told once.
nd_status nd__cuda_data_status(nd_cuda_device *device);
/// Waits for a stream and says what its work made of its data.
nd_status nd__cuda_wait_for(nd_cuda_stream *stream);

/// Copies to the device through the ring. ND_ERROR_UNSUPPORTED: there is no pinned memory.
nd_status nd__staging_take(nd_cuda_stream *stream, void *destination, const void *source,
                           size_t bytes);
#endif
