// A CUDA device without a GPU, for operations_test.c: host memory, and the CUDA kernels as loops.
//
// Defines the table that lib/device/cuda defines; a program links one or the other.
#include "kernels/cuda/cuda.h"
#include "lib/base/alloc.h"
#include "lib/device/backends.h"
#include <stdlib.h>
#include <string.h>

/// Largest block; a host would promise more than it has.
#define MEMORY_BYTES ((size_t)1 << 32)

static int32_t out_of_range;

static int device_count(void) {
    return 1;
}

static nd_status allocate(int index, size_t bytes, void **ret_pointer) {
    (void)index;
    if (bytes > MEMORY_BYTES || !nd__alloc_allowed(bytes))
        return ND_ERROR_OUT_OF_MEMORY;
    void *pointer;
    if (posix_memalign(&pointer, 256, bytes ? bytes : 1) != 0)
        return ND_ERROR_OUT_OF_MEMORY;
    memset(pointer, 0xCB, bytes);
    *ret_pointer = pointer;
    return ND_OK;
}

static void release(int index, void *pointer, size_t bytes) {
    (void)index, (void)bytes;
    free(pointer);
}

static nd_status copy(int index, void *destination, const void *source, size_t bytes) {
    (void)index;
    if (bytes > 0)
        memcpy(destination, source, bytes);
    return ND_OK;
}

static nd_status synchronize(int index) {
    (void)index;
    return __atomic_exchange_n(&out_of_range, 0, __ATOMIC_ACQ_REL) ? ND_ERROR_INVALID_ARGUMENT
                                                                   : ND_OK;
}

static nd_status copy_to_host(int index, void *destination, const void *source, size_t bytes) {
    copy(index, destination, source, bytes);
    return synchronize(index);
}

static nd_status scratch_allocate(void *context, size_t bytes, void **ret_pointer) {
    (void)context;
    return allocate(0, bytes, ret_pointer);
}

static void scratch_release(void *context, void *pointer) {
    (void)context;
    free(pointer);
}

static nd_status copy_on_device(void *context, void *destination, const void *source,
                                size_t bytes) {
    (void)context;
    return copy(0, destination, source, bytes);
}

static nd_status launch(int index, const nd_kernel_call *call) {
    (void)index;
    nd_cuda_queue queue = {
        .multiprocessors = 4,
        .shared_bytes = 163 << 10,
        .out_of_range = &out_of_range,
        .allocate = scratch_allocate,
        .release = scratch_release,
        .copy = copy_on_device,
    };
    return nd__cuda_launch(&queue, call);
}

static nd_status call_host(int index, void (*function)(void *data), void *data) {
    (void)index;
    function(data);
    return ND_OK;
}

const nd_backend nd__cuda_backend = {
    .name = "cuda",
    .host_accessible = false,
    .fuses = true,
    .device_count = device_count,
    .allocate = allocate,
    .release = release,
    .copy_from_host = copy,
    .copy_to_host = copy_to_host,
    .synchronize = synchronize,
    .launch = launch,
    .call = call_host,
};
