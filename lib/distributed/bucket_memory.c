// The memory of buckets, of the host or of a device.
#include "lib/distributed/bucket_memory.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/memory/host.h"
#include "lib/memory/ladder.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"
#include <nd/manager.h>

#include <string.h>

void *nd__bucket_memory_take(const char *operation, nd_device device, size_t bytes) {
    void *memory = NULL;
    if (device.kind == ND_CPU) {
        memory = nd__ladder_alloc_host(bytes);
        if (!memory)
            nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a bucket of %zu bytes", operation,
                      bytes);
        return memory;
    }
    const nd_backend *backend = nd__registry_backend(device.kind);
    const nd_memory_request request = {
        .operation = operation,
        .manager = (nd_manager *)(uintptr_t)nd_manager_get_current(),
        .kind = device.kind,
        .index = device.index,
        .bytes = bytes, // charged to nobody, as on the host
        .allocate = backend->allocate,
        .release = backend->release,
        .functions = backend->memory,
    };
    return nd__ladder_alloc(&request, &memory) == ND_OK ? memory : NULL;
}

void nd__bucket_memory_give_back(nd_device device, void *memory, size_t bytes) {
    if (device.kind == ND_CPU)
        nd__host_free(memory, bytes);
    else if (memory)
        nd__registry_backend(device.kind)->release(device.index, memory, bytes);
}

/// x must be where the memory is.
static nd_status check_device(const char *operation, nd_device device, const nd_tensor *x) {
    return x->device.kind == device.kind && x->device.index == device.index
               ? ND_OK
               : nd__error(ND_ERROR_DEVICE,
                           "%s: a parameter is on %s, and its communicator is one of %s", operation,
                           nd__registry_device_text(x->device), nd__registry_device_text(device));
}

nd_status nd__bucket_memory_write(const char *operation, nd_device device, void *memory,
                                  const nd_tensor *x) {
    if (device.kind == ND_CPU)
        return nd__copy_to_host(operation, x, memory);
    nd_status status = check_device(operation, device, x);
    if (status != ND_OK)
        return status;
    nd_operand target = {.data = memory, .dtype = x->dtype};
    nd__tensor_contiguous_strides(x->ndim, x->shape, target.strides);
    return nd__copy_to_operand(operation, &target, x);
}

nd_status nd__bucket_memory_clear(const char *operation, nd_device device, void *memory,
                                  nd_dtype dtype, int64_t numel) {
    if (device.kind == ND_CPU) {
        memset(memory, 0, (size_t)numel * nd__dtype_bytes[dtype]);
        return ND_OK;
    }
    if (numel == 0)
        return ND_OK;
    nd_kernel_call call = {.op = ND_OP_fill,
                           .noperands = 1,
                           .ndim = 1,
                           .shape = {numel},
                           .operand = {{.data = memory, .strides = {1}, .dtype = dtype}}};
    return nd__launch(operation, device, &call);
}

/// On one device.
static nd_status read_there(const char *operation, nd_device device, const void *memory,
                            nd_tensor *x) {
    nd_status status = check_device(operation, device, x);
    if (status != ND_OK)
        return status;
    nd_kernel_call call = {.op = ND_OP_clone, .noperands = 2, .ndim = x->ndim};
    nd__shape_copy(call.shape, x->shape, x->ndim);
    call.operand[0] = nd__shape_broadcast_operand(x, x->ndim, x->shape);
    call.operand[1] = (nd_operand){.data = (void *)(uintptr_t)memory, .dtype = x->dtype};
    nd__tensor_contiguous_strides(x->ndim, x->shape, call.operand[1].strides);
    nd__shape_collapse(&call);
    return nd__launch(operation, device, &call);
}

nd_status nd__bucket_memory_read(const char *operation, nd_device device, const void *memory,
                                 nd_tensor *x) {
    if (x->numel == 0)
        return ND_OK;
    if (device.kind != ND_CPU)
        return read_there(operation, device, memory, x);
    nd_status status = nd__registry_backend(x->device.kind)
                           ->copy_from_host(x->device.index, x->data, memory,
                                            (size_t)x->numel * nd__dtype_bytes[x->dtype]);
    return status == ND_OK ? ND_OK
                           : nd__error(status, "%s: nothing can be copied to %s", operation,
                                       nd__registry_device_text(x->device));
}
