// Storages: the memory under tensors, and the only thing that managers count the bytes of.
//
// A storage is made with its data in place and its bytes charged, and published together with its
// first tensor; from then on the object's death gives both back. Small host data lies in the storage's own block, which saves an
// allocation; it goes with the object and not with a backend.
#include "lib/core/block.h"
#include "lib/core/callback.h"
#include "lib/core/cancel.h"
#include "lib/memory/host.h"
#include "lib/memory/ladder.h"
#include "lib/tensor/tensor.h"
#include <string.h>

#define EMBEDDED_LIMIT 256
// Where embedded data begins: blocks are aligned as data is.
#define EMBEDDED_OFFSET \
    ((sizeof(nd_storage) + ND__HOST_ALIGNMENT - 1) & ~(size_t)(ND__HOST_ALIGNMENT - 1))
_Static_assert(ND__BLOCK_UNIT % ND__HOST_ALIGNMENT == 0, "the data of small tensors is aligned");

static void storage_destroy(nd_object *self);

const nd_type nd__storage_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "storage",
    .flags = ND_TYPE_GREEN | ND__TYPE_ACCOUNTED | ND__TYPE_UNCAPPED,
    .destroy = storage_destroy,
};

static nd_storage *begin(void *memory);
static nd_status allocate_embedded(int index, size_t bytes, void **ret_pointer);

static nd_memory_request request_for(const char *operation, nd_manager *manager, nd_device device,
                                     size_t bytes) {
    const nd_backend *backend = nd__backend(device.kind);
    return (nd_memory_request){
        .operation = operation,
        .manager = manager,
        .kind = device.kind,
        .index = device.index,
        .charge = bytes,
        .bytes = bytes,
        .allocate = backend->allocate,
        .rows = backend->memory,
    };
}

/// A storage whose data lies behind it. Tried directly first: the ladder's bookkeeping is a tenth of
/// what a small tensor costs.
static nd_storage *new_embedded(const char *operation, nd_manager *manager, nd_device device,
                                size_t bytes) {
    if (nd__manager_charge(operation, manager, device.kind, bytes) != ND_OK)
        return NULL;
    size_t size = EMBEDDED_OFFSET + bytes;
    void *block = nd__block_new(size);
    if (__builtin_expect(!block, 0)) {
        nd__manager_discharge(manager, device.kind, bytes);
        nd_memory_request request = request_for(operation, manager, device, bytes);
        request.allocate = allocate_embedded;
        request.bytes = size;
        if (nd__memory_obtain(&request, &block) != ND_OK)
            return NULL;
    }
    nd_storage *storage = begin(block);
    storage->data = (char *)block + EMBEDDED_OFFSET;
    storage->embedded = true;
    return storage;
}

static nd_storage *new_separate(const char *operation, nd_manager *manager, nd_device device,
                                size_t bytes) {
    if (nd__callback_check(operation) != ND_OK)
        return NULL;
    nd_memory_request request = request_for(operation, manager, device, bytes);
    void *data;
    if (nd__memory_obtain(&request, &data) != ND_OK)
        return NULL;
    nd_storage *storage = (nd_storage *)nd__object_new(&nd__storage_type, sizeof *storage);
    if (!storage) {
        nd__backend(device.kind)->release(device.index, data, bytes);
        nd__manager_discharge(manager, device.kind, bytes);
        return NULL;
    }
    storage->data = data;
    return storage;
}

nd_storage *nd__storage_new(const char *operation, nd_manager *manager, nd_device device,
                            size_t bytes) {
    bool embedded = bytes <= EMBEDDED_LIMIT && nd__backend(device.kind)->host_accessible;
    nd_storage *storage = embedded ? new_embedded(operation, manager, device, bytes)
                                   : new_separate(operation, manager, device, bytes);
    if (!storage)
        return NULL;
    storage->accounted.bytes = bytes;
    storage->accounted.kind = device.kind;
    storage->device_index = device.index;
    storage->bytes = bytes;
    return storage;
}

nd_storage *nd__storage_wrap(const char *operation, nd_manager *manager, void *data, size_t bytes) {
    if (nd__manager_charge(operation, manager, ND_CPU, bytes) != ND_OK)
        return NULL;
    nd_storage *storage = (nd_storage *)nd__object_new(&nd__storage_type, sizeof *storage);
    if (!storage) {
        nd__manager_discharge(manager, ND_CPU, bytes);
        return NULL;
    }
    storage->accounted.bytes = bytes;
    storage->accounted.kind = ND_CPU;
    storage->bytes = bytes;
    storage->data = data;
    storage->borrowed = true;
    return storage;
}

void nd__storage_discard(nd_storage *storage, nd_manager *manager) {
    nd__manager_discharge(manager, storage->accounted.kind, storage->accounted.bytes);
    nd_object_release(storage);
}

/// An allocation function for the ladder: the object and its data in one block.
static nd_status allocate_embedded(int index, size_t bytes, void **ret_pointer) {
    (void)index;
    void *memory = nd__block_new(bytes);
    if (!memory)
        return ND_ERROR_OUT_OF_MEMORY;
    *ret_pointer = memory;
    return ND_OK;
}

/// Header, and everything but the data zero.
static nd_storage *begin(void *memory) {
    nd_object *object = nd__object_begin(&nd__storage_type, memory);
    memset(object + 1, 0, sizeof(nd_storage) - sizeof *object);
    return memory;
}

static void storage_destroy(nd_object *self) {
    nd_storage *storage = (nd_storage *)self;
    void *data = storage->data;
    storage->data = NULL;
    if (storage->embedded || storage->borrowed || !data)
        return;
    if (storage->free) {
        ND__UNCANCELLED;
        nd_error_state own, *error;
        nd__error_begin(&own, &error);
        storage->free(data, storage->bytes);
        nd__error_end(error);
        return;
    }
    nd__backend(storage->accounted.kind)->release(storage->device_index, data, storage->bytes);
}
