// The memory of a CUDA device: a pool of ndarc's own, up to a limit where one is set, what it keeps
// for reuse, and what the ladder asks of it.
//
// Invariant: memory comes and goes in the order of a stream, so nothing here waits but cuda_wait.
#include "lib/device/cuda/cuda_memory.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/cuda_kept.h"
#include "lib/device/cuda/cuda_stream.h"
#include <stdatomic.h>
#include <time.h>

static uint64_t pool_attribute(nd_cuda_device *device, enum cudaMemPoolAttr name) {
    uint64_t value = 0;
    return nd__cuda_status(cudaMemPoolGetAttribute(device->pool, name, &value)) == ND_OK ? value
                                                                                         : 0;
}

bool nd__cuda_is_within_bound(nd_cuda_device *device) {
    const uint64_t bound = atomic_load_explicit(&device->bound, memory_order_relaxed) - 1;
    if (bound == UINT64_MAX || pool_attribute(device, cudaMemPoolAttrReservedMemCurrent) <= bound)
        return true;
    (void)nd__cuda_status(cudaMemPoolTrimTo(device->pool, bound));
    return pool_attribute(device, cudaMemPoolAttrReservedMemCurrent) <= bound;
}

/// A pool has no bound that can be changed, and whether it grows for a request is known when it has
/// grown: what it may not have is given back behind what is queued. A request that fits beside no
/// live data is not tried. A pool is not asked while the thread captures: the end of that does.
static nd_status take(nd_cuda_stream *stream, size_t bytes, void **ret_pointer) {
    const uint64_t bound = atomic_load_explicit(&stream->device->bound, memory_order_relaxed) - 1;
    const uint64_t live = atomic_load_explicit(&stream->device->live, memory_order_relaxed);
    if (live > bound || bytes > bound - live)
        return ND_ERROR_OUT_OF_MEMORY;
    void *pointer = NULL;
    nd_status status = nd__cuda_status(
        cudaMallocFromPoolAsync(&pointer, bytes ? bytes : 1, stream->device->pool, stream->handle));
    if (status != ND_OK)
        return status;
    if (!nd__capture_running() && !nd__cuda_is_within_bound(stream->device)) {
        (void)nd__cuda_status(cudaFreeAsync(pointer, stream->handle));
        return ND_ERROR_OUT_OF_MEMORY;
    }
    *ret_pointer = pointer;
    return ND_OK;
}

/// What streams keep makes room.
static nd_status take_or_make_room(nd_cuda_stream *stream, size_t bytes, void **ret_pointer) {
    nd_status status = take(stream, bytes, ret_pointer);
    if (status == ND_ERROR_OUT_OF_MEMORY && !nd__capture_running() &&
        nd__order_give_up_kept(stream->device) > 0)
        status = take(stream, bytes, ret_pointer);
    return status;
}

nd_status nd__cuda_take_new(nd_cuda_stream *stream, size_t bytes, void **ret_pointer) {
    return nd__alloc_allowed(bytes) ? take_or_make_room(stream, bytes, ret_pointer)
                                    : ND_ERROR_OUT_OF_MEMORY;
}

nd_status nd__cuda_take(nd_cuda_stream *stream, size_t bytes, void **ret_pointer) {
    if (!nd__alloc_allowed(bytes))
        return ND_ERROR_OUT_OF_MEMORY;
    void *pointer = nd__order_take_kept(stream, bytes);
    if (!pointer) {
        nd_status status = take_or_make_room(stream, bytes, &pointer);
        if (status != ND_OK)
            return status;
        status = nd__order_add(stream, pointer, bytes);
        if (status != ND_OK) {
            (void)nd__cuda_status(cudaFreeAsync(pointer, stream->handle));
            return status;
        }
    }
    atomic_fetch_add_explicit(&stream->device->live, bytes, memory_order_relaxed);
    *ret_pointer = pointer;
    return ND_OK;
}

/// Gives back what the pool has too much. What the stream has not passed yet stays.
static void keep_within(nd_cuda_device *device, uint64_t limit) {
    const uint64_t reserved = pool_attribute(device, cudaMemPoolAttrReservedMemCurrent);
    const uint64_t used = pool_attribute(device, cudaMemPoolAttrUsedMemCurrent);
    if (reserved > used && reserved - used > limit)
        (void)nd__cuda_status(cudaMemPoolTrimTo(device->pool, used + limit));
}

void nd__cuda_give_back(const nd_cuda_retired *retired) {
    nd_cuda_device *device = retired->device;
    if (!retired->stream)
        return;
    if (!retired->kept)
        (void)nd__cuda_status(cudaFreeAsync(retired->data, retired->stream->handle));
    atomic_fetch_sub_explicit(&device->live, retired->bytes, memory_order_relaxed);
    const uint64_t limit = atomic_load_explicit(&device->limit, memory_order_relaxed) - 1;
    const uint64_t bytes = retired->bytes;
    if (limit != UINT64_MAX && atomic_fetch_add(&device->released, bytes) + bytes >= limit / 8 &&
        !nd__capture_running()) {
        atomic_store(&device->released, 0);
        keep_within(device, limit);
    }
}

/// What was released becomes free for good when its stream has passed it; asking the streams how far
/// they are lets the driver notice. A stream that has nothing else to do is waited for: it has passed
/// the frees at once.
static void give_back_kept(nd_cuda_device *device) {
    bool idle[ND__CUDA_STREAMS];
    for (int place = 0; place < ND__CUDA_STREAMS; place++)
        idle[place] = nd__cuda_stream_is_made(&device->streams[place]) &&
                      nd__cuda_stream_is_done(&device->streams[place]);
    const bool freed = nd__order_give_up_kept(device) > 0;
    for (int place = 0; place < ND__CUDA_STREAMS && freed; place++)
        if (idle[place])
            (void)nd__cuda_status(cudaStreamSynchronize(device->streams[place].handle));
}

static void cuda_limit(int index, uint64_t bytes) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    if (nd__cuda_enter_uncaptured(index, &device, &caller) != ND_OK)
        return;
    atomic_store(&device->limit, bytes + 1);
    give_back_kept(device);
    if (bytes != UINT64_MAX)
        keep_within(device, bytes);
}

static nd_status cuda_bound(int index, uint64_t bytes) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    nd_status status = nd__cuda_enter_uncaptured(index, &device, &caller);
    if (status != ND_OK)
        return status;
    atomic_store(&device->bound, bytes + 1);
    give_back_kept(device);
    (void)nd__cuda_is_within_bound(device);
    return ND_OK;
}

/// The pool says nothing of how much that was.
static uint64_t cuda_retire(int index) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    if (nd__cuda_enter_uncaptured(index, &device, &caller) != ND_OK)
        return 0;
    give_back_kept(device);
    const uint64_t limit = atomic_load_explicit(&device->limit, memory_order_relaxed) - 1;
    if (limit != UINT64_MAX)
        keep_within(device, limit);
    (void)nd__cuda_is_within_bound(device);
    return ND__UNKNOWN_BYTES;
}

static uint64_t cuda_trim(int index) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    if (nd__cuda_enter_uncaptured(index, &device, &caller) != ND_OK)
        return 0;
    uint64_t before = pool_attribute(device, cudaMemPoolAttrReservedMemCurrent);
    give_back_kept(device);
    (void)nd__cuda_status(cudaMemPoolTrimTo(device->pool, 0));
    uint64_t after = pool_attribute(device, cudaMemPoolAttrReservedMemCurrent);
    return before > after ? before - after : 0;
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/// Waits until an event is reached or it is so late. CUDA can wait for ever or not at all, so this
/// looks again every so often.
static bool wait_until(cudaEvent_t event, nd_cuda_stream *stream, uint64_t until) {
    const struct timespec pause = {.tv_nsec = 50000};
    cudaError_t reached = cudaEventRecord(event, stream->handle);
    while (reached == cudaSuccess && (reached = cudaEventQuery(event)) == cudaErrorNotReady &&
           now_ns() < until) {
        nanosleep(&pause, NULL);
        reached = cudaSuccess;
    }
    return nd__cuda_status(reached) == ND_OK;
}

/// For what is queued so far on every stream, that of releases last: it waits for the others.
static bool cuda_wait(int index, uint64_t nanoseconds) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    cudaEvent_t here;
    if (nd__cuda_enter_uncaptured(index, &device, &caller) != ND_OK ||
        nd__cuda_status(cudaEventCreateWithFlags(&here, cudaEventDisableTiming)) != ND_OK)
        return false;
    const uint64_t until = now_ns() + nanoseconds;
    bool done = true;
    for (int place = ND__CUDA_STREAMS - 1; done && place >= 0; place--)
        if (nd__cuda_stream_is_made(&device->streams[place]))
            done = wait_until(here, &device->streams[place], until);
    (void)nd__cuda_status(cudaEventDestroy(here)); // one that was not reached yet goes later
    return done;
}

static void cuda_usage(int index, nd_memory_usage *ret_usage) {
    ND__UNCANCELLED;
    nd_cuda_device *device;
    ND__CUDA_CALLER caller = {.ordinal = -1};
    size_t unused, total;
    if (nd__cuda_enter_uncaptured(index, &device, &caller) != ND_OK)
        return;
    uint64_t reserved = pool_attribute(device, cudaMemPoolAttrReservedMemCurrent);
    uint64_t used = pool_attribute(device, cudaMemPoolAttrUsedMemCurrent);
    if (used > reserved) // the two were read one after the other
        used = reserved;
    const uint64_t bound = atomic_load_explicit(&device->bound, memory_order_relaxed) - 1;
    uint64_t kept = nd__cuda_kept_bytes(device);
    if (kept > used)
        kept = used;
    used -= kept;
    ret_usage->cached = reserved - used;
    ret_usage->live = atomic_load_explicit(&device->live, memory_order_relaxed);
    ret_usage->pending = used > ret_usage->live ? used - ret_usage->live : 0;
    ret_usage->peak = pool_attribute(device, cudaMemPoolAttrReservedMemHigh);
    if (nd__cuda_status(cudaMemGetInfo(&unused, &total)) != ND_OK)
        return;
    const uint64_t left = bound > reserved ? bound - reserved : 0;
    ret_usage->total = total;
    ret_usage->limit = bound < total ? bound : total;
    ret_usage->available =
        bound < reserved ? 0 : ret_usage->cached + (left < unused ? left : unused);
}

const nd_memory_functions nd__cuda_memory_functions = {
    .retire = cuda_retire,
    .trim = cuda_trim,
    .limit = cuda_limit,
    .bound = cuda_bound,
    .wait = cuda_wait,
    .usage = cuda_usage,
};
