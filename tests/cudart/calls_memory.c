// The calls that allocate, free and copy memory.
//
// Copies read and write host memory when the stream gets there, pinned or not.
#include "tests/cudart/runtime.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// ------------------------------------------------------------------------------------------------
// memory of the host and of a device, without a stream

cudaError_t cudaMalloc(void **ret_pointer, size_t bytes) {
    cudaError_t error = cudart_begin("cudaMalloc", true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess) {
        cudart_block *block = cudart_block_new(cudart_device_now(), NULL, bytes ? bytes : 1, NULL);
        if (block) {
            cudart_block_born(block);
            *ret_pointer = block->pointer;
        } else {
            error = cudaErrorMemoryAllocation;
        }
    }
    return cudart_end(error);
}

/// Waits for the device first.
cudaError_t cudaFree(void *pointer) {
    cudaError_t error = cudart_begin("cudaFree", true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess && pointer) {
        cudart_block *block = cudart_give_back(pointer);
        cudart_wait_for_device(block->region->device);
        error = block->region->device->failed;
        if (error == cudaSuccess) {
            cudart_block_died(block, NULL);
            if (!block->region->pool)
                cudart_region_release(block->region);
        }
    }
    return cudart_end(error);
}

typedef struct pinned {
    char *base;
    size_t mapped;
    struct pinned *next;
} pinned;
static pinned *all_pinned;

bool cudart_is_pinned(const void *pointer, size_t bytes) {
    const char *from = pointer;
    for (const pinned *each = all_pinned; each; each = each->next)
        if (from >= each->base && from + bytes <= each->base + each->mapped)
            return true;
    return false;
}

static cudaError_t pin(const char *name, void **ret_pointer, size_t bytes) {
    cudaError_t error = cudart_begin(name, true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error != cudaSuccess)
        return cudart_end(error);
    size_t page = (size_t)getpagesize();
    size_t mapped = (bytes + page - 1) / page * page + page;
    char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return cudart_end(cudaErrorMemoryAllocation);
    memset(base, cudart.poison, mapped - page);
    mprotect(base + mapped - page, page, PROT_NONE);
    pinned *made = cudart_allocate(sizeof *made);
    *made = (pinned){base, mapped, all_pinned};
    all_pinned = made;
    *ret_pointer = base;
    return cudart_end(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **ret_pointer, size_t bytes, unsigned flags) {
    (void)flags;
    return pin("cudaHostAlloc", ret_pointer, bytes);
}

cudaError_t cudaMallocHost(void **ret_pointer, size_t bytes) {
    return pin("cudaMallocHost", ret_pointer, bytes);
}

/// Does not wait: work that is queued finds the memory gone.
cudaError_t cudaFreeHost(void *pointer) {
    cudaError_t error = cudart_begin("cudaFreeHost", true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error != cudaSuccess || !pointer)
        return cudart_end(error);
    pinned **link = &all_pinned;
    while (*link && (*link)->base != pointer)
        link = &(*link)->next;
    if (!*link)
        cudart_abort(NULL, "%p is freed and is no pinned memory", pointer);
    pinned *gone = *link;
    *link = gone->next;
    mprotect(gone->base, gone->mapped, PROT_NONE);
    madvise(gone->base, gone->mapped, MADV_DONTNEED);
    free(gone);
    return cudart_end(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total) {
    cudaError_t error = cudart_begin("cudaMemGetInfo", true);
    if (error == cudaSuccess) {
        cudart_device *device = cudart_device_now();
        *ret_free = device->memory - device->reserved;
        *ret_total = device->memory;
    }
    return cudart_end(error);
}

// ------------------------------------------------------------------------------------------------
// copies

/// Whether the two addresses are what the kind of copy says.
static bool is_kind(enum cudaMemcpyKind kind, bool to_device, bool from_device) {
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    default:
        return true;
    }
}

static cudaError_t queue_copy(const char *name, void *destination, const void *source, size_t bytes,
                              enum cudaMemcpyKind kind, cudart_stream *stream) {
    if (bytes == 0)
        return cudaSuccess;
    bool to_device = cudart_check_range(name, destination, bytes) != NULL;
    bool from_device = cudart_check_range(name, source, bytes) != NULL;
    if (!is_kind(kind, to_device, from_device))
        cudart_abort(NULL, "%s: these addresses are not what a copy of kind %d has", name,
                     (int)kind);
    const bool pinned_memory = (to_device || cudart_is_pinned(destination, bytes)) &&
                               (from_device || cudart_is_pinned(source, bytes));
    const cudaError_t error = pinned_memory ? cudaSuccess : cudart_capture_refuse(stream);
    if (error != cudaSuccess)
        return error;
    cudart_step *step = cudart_step_new(stream, CUDART_COPY, name);
    step->destination = destination;
    step->source = source;
    step->bytes = bytes;
    cudart_issue(step);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaMemcpyAsync", true);
    cudart_stream *stream;
    if (error == cudaSuccess)
        error = cudart_stream_of(handle, &stream);
    if (error == cudaSuccess)
        error = queue_copy("cudaMemcpyAsync", destination, source, bytes, kind, stream);
    return cudart_end(error);
}

cudaError_t cudaMemcpyPeerAsync(void *destination, int destination_device, const void *source,
                                int source_device, size_t bytes, cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaMemcpyPeerAsync", true);
    cudart_stream *stream;
    if (error == cudaSuccess &&
        (!cudart_device_of(destination_device) || !cudart_device_of(source_device)))
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess)
        error = cudart_stream_of(handle, &stream);
    if (error == cudaSuccess)
        error = queue_copy("cudaMemcpyPeerAsync", destination, source, bytes,
                           cudaMemcpyDeviceToDevice, stream);
    return cudart_end(error);
}

static cudaError_t wait_for_null_stream(void) {
    cudart_stream *stream = cudart_device_now()->null_stream;
    return cudart_wait_for((cudart_point){stream, stream->queued}, stream->clock);
}

cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes,
                       enum cudaMemcpyKind kind) {
    cudaError_t error = cudart_begin("cudaMemcpy", true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess)
        error = queue_copy("cudaMemcpy", destination, source, bytes, kind,
                           cudart_device_now()->null_stream);
    if (error == cudaSuccess)
        error = wait_for_null_stream();
    return cudart_end(error);
}

static cudaError_t queue_set(const char *name, void *pointer, int value, size_t bytes,
                             cudart_stream *stream) {
    if (bytes == 0)
        return cudaSuccess;
    if (!cudart_check_range(name, pointer, bytes))
        return cudaErrorInvalidValue;
    cudart_step *step = cudart_step_new(stream, CUDART_SET, name);
    step->destination = pointer;
    step->value = value;
    step->bytes = bytes;
    cudart_issue(step);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaMemsetAsync", true);
    cudart_stream *stream;
    if (error == cudaSuccess)
        error = cudart_stream_of(handle, &stream);
    if (error == cudaSuccess)
        error = queue_set("cudaMemsetAsync", pointer, value, bytes, stream);
    return cudart_end(error);
}

/// Does not wait.
cudaError_t cudaMemset(void *pointer, int value, size_t bytes) {
    cudaError_t error = cudart_begin("cudaMemset", true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess)
        error = queue_set("cudaMemset", pointer, value, bytes, cudart_device_now()->null_stream);
    return cudart_end(error);
}

// ------------------------------------------------------------------------------------------------
// pools

static void check_pool(cudaMemPool_t pool) {
    if (!pool || !pool->alive)
        cudart_abort(NULL, "a pool is used that was destroyed, or never made");
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *ret_pool, int ordinal) {
    cudaError_t error = cudart_begin("cudaDeviceGetDefaultMemPool", true);
    cudart_device *device = cudart_device_of(ordinal);
    if (error == cudaSuccess && !(device && device->default_pool))
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess)
        *ret_pool = device->default_pool;
    return cudart_end(error);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *ret_pool, const struct cudaMemPoolProps *properties) {
    cudaError_t error = cudart_begin("cudaMemPoolCreate", true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess && (properties->allocType != cudaMemAllocationTypePinned ||
                                 properties->location.type != cudaMemLocationTypeDevice ||
                                 !cudart_device_of(properties->location.id)))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        cudart_pool *pool = cudart_allocate(sizeof *pool);
        *pool = (cudart_pool){.alive = true, .device = cudart_device_of(properties->location.id)};
        *ret_pool = pool;
    }
    return cudart_end(error);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    cudaError_t error = cudart_begin("cudaMemPoolDestroy", true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess) {
        check_pool(pool);
        pool->alive = false;
        cudart_pool_release(pool, 0);
    }
    return cudart_end(error);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr name, void *value) {
    cudaError_t error = cudart_begin("cudaMemPoolSetAttribute", true);
    if (error == cudaSuccess) {
        check_pool(pool);
        if (name == cudaMemPoolAttrReleaseThreshold)
            memcpy(&pool->threshold, value, sizeof pool->threshold);
        else
            error = cudaErrorNotSupported;
    }
    return cudart_end(error);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr name,
                                    void *ret_value) {
    cudaError_t error = cudart_begin("cudaMemPoolGetAttribute", true);
    if (error != cudaSuccess)
        return cudart_end(error);
    check_pool(pool);
    const uint64_t *value = NULL;
    switch (name) {
    case cudaMemPoolAttrReleaseThreshold:
        value = &pool->threshold;
        break;
    case cudaMemPoolAttrReservedMemCurrent:
        value = &pool->reserved;
        break;
    case cudaMemPoolAttrReservedMemHigh:
        value = &pool->reserved_high;
        break;
    case cudaMemPoolAttrUsedMemCurrent:
        value = &pool->used;
        break;
    case cudaMemPoolAttrUsedMemHigh:
        value = &pool->used_high;
        break;
    }
    if (!value)
        return cudart_end(cudaErrorInvalidValue);
    memcpy(ret_value, value, sizeof *value);
    return cudart_end(cudaSuccess);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
    cudaError_t error = cudart_begin("cudaMemPoolTrimTo", true);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess) {
        check_pool(pool);
        cudart_pool_release(pool, bytes);
    }
    return cudart_end(error);
}

static cudaError_t allocate(const char *name, void **ret_pointer, size_t bytes, cudart_pool *pool,
                            cudaStream_t handle) {
    cudart_stream *stream;
    cudaError_t error = cudart_stream_of(handle, &stream);
    if (error == cudaSuccess)
        error = cudart_capture_refuse(stream);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error != cudaSuccess)
        return error;
    if (bytes == 0)
        return cudaErrorInvalidValue;
    cudart_block *block = cudart_block_new(pool->device, pool, bytes, stream);
    if (!block)
        return cudaErrorMemoryAllocation;
    cudart_step *step = cudart_step_new(stream, CUDART_ALLOCATE, name);
    step->block = block;
    cudart_issue(step);
    block->made = (cudart_point){stream, stream->queued};
    *ret_pointer = block->pointer;
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **ret_pointer, size_t bytes, cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaMallocAsync", true);
    if (error == cudaSuccess)
        error = allocate("cudaMallocAsync", ret_pointer, bytes, cudart_device_now()->default_pool,
                         handle);
    return cudart_end(error);
}

cudaError_t cudaMallocFromPoolAsync(void **ret_pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaMallocFromPoolAsync", true);
    if (error == cudaSuccess) {
        check_pool(pool);
        error = allocate("cudaMallocFromPoolAsync", ret_pointer, bytes, pool, handle);
    }
    return cudart_end(error);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t handle) {
    cudaError_t error = cudart_begin("cudaFreeAsync", true);
    cudart_stream *stream;
    if (error == cudaSuccess)
        error = cudart_stream_of(handle, &stream);
    if (error == cudaSuccess)
        error = cudart_capture_refuse(stream);
    if (error == cudaSuccess)
        error = cudart_capture_unsafe();
    if (error == cudaSuccess && !pointer)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        cudart_step *step = cudart_step_new(stream, CUDART_FREE, "cudaFreeAsync");
        cudart_block *block = cudart_give_back(pointer);
        step->block = block;
        cudart_issue(step);
        block->freed = (cudart_point){stream, stream->queued};
    }
    return cudart_end(error);
}
