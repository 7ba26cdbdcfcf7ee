// Storages: the memory under tensors, and what managers count the bytes of.
//
// A storage is made with its data in place and its bytes charged, and published together with its
// first tensor; from then on the object's death gives both back. One that is made while a graph is
// captured lies in the graph's arena and has no bytes of its own (arena.h). One whose data lie in a
// tensor's block is made when that has been there for a while (tensor.h): it takes over the bytes,
// and keeps the block.
#include "lib/tensor/storage.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/manager/adopt.h"
#include "lib/manager/charge.h"
#include "lib/manager/publish.h"
#include "lib/memory/host.h"
#include "lib/memory/ladder.h"
#include "lib/object/block.h"
#include "lib/object/callback.h"
#include "lib/object/object.h"
#include "lib/object/user_code.h"
#include "lib/tensor/arena.h"
#include "lib/tensor/tensor.h"
#include <string.h>

static void storage_destroy(nd_object *self);

const nd_type nd__storage_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "storage",
    .flags = ND_TYPE_GREEN | ND__TYPE_ACCOUNTED | ND__TYPE_UNCAPPED,
    .destroy = storage_destroy,
};

static nd_memory_request request_for(const char *operation, nd_manager *manager, nd_device device,
                                     size_t bytes) {
    const nd_backend *backend = nd__registry_backend(device.kind);
    return (nd_memory_request){
        .operation = operation,
        .manager = manager,
        .kind = device.kind,
        .index = device.index,
        .charge = bytes,
        .bytes = bytes,
        .allocate = backend->allocate,
        .release = backend->release,
        .functions = backend->memory,
    };
}

/// An allocation function for the ladder: a tensor and its data in one block.
static nd_status allocate_block(int index, size_t bytes, void **ret_pointer) {
    (void)index;
    void *memory = nd__block_new(bytes);
    if (!memory)
        return ND_ERROR_OUT_OF_MEMORY;
    *ret_pointer = memory;
    return ND_OK;
}

static void release_block(int index, void *memory, size_t bytes) {
    (void)index, (void)bytes;
    nd__object_discard(nd__object_begin(&nd__tensor_type, memory));
}

/// Tried directly first: the ladder's bookkeeping is a tenth of what a small tensor costs.
void *nd__storage_block(const char *operation, nd_manager *manager, nd_device device, size_t size,
                        size_t data) {
    if (nd__charge(operation, manager, device.kind, data) != ND_OK)
        return NULL;
    void *block = nd__block_new(size);
    if (__builtin_expect(block != NULL, 1))
        return block;
    nd__charge_return(manager, device.kind, data);
    nd_memory_request request = request_for(operation, manager, device, data);
    request.allocate = allocate_block;
    request.release = release_block;
    request.bytes = size;
    return nd__ladder_alloc(&request, &block) == ND_OK ? block : NULL;
}

/// A private storage that says what it is of, and has no data yet.
static nd_storage *new_storage(nd_device device, size_t bytes) {
    nd_storage *storage = (nd_storage *)nd__object_new(&nd__storage_type, sizeof *storage);
    if (!storage)
        return NULL;
    storage->accounted.bytes = bytes;
    storage->accounted.kind = device.kind;
    storage->accounted.device_index = device.index;
    storage->bytes = bytes;
    return storage;
}

/// Of the arena of the graph that this thread captures: the graph has the bytes, and pays where the
/// arena grows.
static nd_storage *new_in_arena(const char *operation, nd_capture *capture, size_t bytes) {
    const nd_device device = capture->device;
    const nd_graph_functions *graphs = nd__registry_backend(device.kind)->graphs;
    nd_memory_request request = request_for(operation, capture->manager, device, bytes);
    request.charge = graphs->growth(device.index, capture->handle, bytes);
    void *data;
    if (nd__ladder_alloc(&request, &data) != ND_OK)
        return NULL;
    capture->charged += request.charge;
    nd__arena_grow(capture->arena, capture->manager, request.charge);
    nd_storage *storage = new_storage(device, 0);
    if (!storage) {
        nd__registry_backend(device.kind)->release(device.index, data, bytes);
        return NULL;
    }
    storage->bytes = bytes;
    storage->data = data;
    storage->arena = nd__arena_join(capture->arena, bytes);
    return storage;
}

nd_storage *nd__storage_new(const char *operation, nd_manager *manager, nd_device device,
                            size_t bytes) {
    if (nd__callback_check(operation) != ND_OK)
        return NULL;
    if (nd__capture_is_of(device.kind, device.index))
        return new_in_arena(operation, nd__thread_record.capture, bytes);
    if (nd__capture_running() && device.kind != ND_CPU) {
        nd__capture_refused(operation, device);
        return NULL;
    }
    nd_memory_request request = request_for(operation, manager, device, bytes);
    void *data;
    nd_status status = nd__ladder_alloc(&request, &data);
    if (status == ND_ERROR_DEVICE) // which may have a reason that the ladder does not know
        (void)nd__registry_device_check(operation, device);
    if (status != ND_OK)
        return NULL;
    nd_storage *storage = new_storage(device, bytes);
    if (!storage) {
        nd__registry_backend(device.kind)->release(device.index, data, bytes);
        nd__charge_return(manager, device.kind, bytes);
        return NULL;
    }
    storage->data = data;
    return storage;
}

nd_storage *nd__storage_wrap(const char *operation, nd_manager *manager, nd_device device,
                             void *data, size_t bytes) {
    if (nd__publish_expect(&nd__tensor_type, manager) != ND_OK ||
        nd__charge(operation, manager, device.kind, bytes) != ND_OK)
        return NULL;
    nd_storage *storage = new_storage(device, bytes);
    if (!storage) {
        nd__charge_return(manager, device.kind, bytes);
        return NULL;
    }
    storage->data = data;
    storage->borrowed = true;
    return storage;
}

void nd__storage_discard(nd_storage *storage, nd_manager *manager) {
    nd__charge_return(manager, storage->accounted.kind, storage->accounted.bytes);
    nd_object_release(storage);
}

nd_storage *nd__storage_make(nd_tensor *x) {
    static const char operation[] = "storage";
    if (nd__callback_check(operation) != ND_OK)
        return NULL;
    nd_storage *storage = new_storage(x->device, 0);
    if (!storage)
        return NULL;
    storage->accounted.header.site = x->header.site; // where the data were made
    storage->bytes = (size_t)x->numel * nd__dtype_bytes[x->dtype];
    storage->data = x->data;
    storage->base = x;
    bool first;
    nd_status status = nd__adopt_storage(operation, &x->header, &storage->accounted, &first);
    if (status == ND_OK && first)
        return storage;
    nd__object_discard(storage);
    return status == ND_OK ? nd__tensor_storage_now(x) : NULL;
}

/// In a capture nothing can be waited for. Without memory to remember it nobody gets it back, since
/// work may use it.
static void put_off(const nd_storage *storage, void *memory) {
    nd_capture *capture = nd__thread_record.capture;
    nd_put_off *remembered = nd__alloc(sizeof *remembered);
    if (!remembered)
        return;
    *remembered = (nd_put_off){
        .next = capture->put_off,
        .free = storage->free,
        .pointer = memory,
        .bytes = storage->bytes,
        .device = {storage->accounted.kind, storage->accounted.device_index},
    };
    capture->put_off = remembered;
}

/// Memory of others goes back to them. Of a device's: when nothing queued here reads it any more,
/// which our own memory need not wait for, since its release is queued, too.
static void give_back(const nd_storage *storage, void *memory) {
    ND__UNCANCELLED;
    const nd_backend *backend = nd__registry_backend(storage->accounted.kind);
    if (!backend->host_accessible && nd__capture_running()) {
        put_off(storage, memory);
        return;
    }
    nd_user_code code;
    nd__user_code_begin(&code);
    if (!backend->host_accessible)
        (void)backend->synchronize(storage->accounted.device_index);
    storage->free(memory, storage->bytes);
    nd__user_code_end(&code);
}

static void storage_destroy(nd_object *self) {
    nd_storage *storage = (nd_storage *)self;
    void *data = storage->data;
    storage->data = NULL;
    if (storage->base) {
        nd__adopt_end(&storage->base->header);
        return;
    }
    if (storage->borrowed || (!data && !storage->owner))
        return;
    if (storage->free) {
        give_back(storage, storage->owner ? storage->owner : data);
        return;
    }
    nd__registry_backend(storage->accounted.kind)
        ->release(storage->accounted.device_index, data, storage->bytes);
    if (storage->arena)
        nd__arena_leave(storage->arena, storage->bytes);
    storage->arena = NULL;
}
