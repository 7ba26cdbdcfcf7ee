// Memory of the fake device: host memory with a guard behind each block, filled with ND__FAKE_FRESH
// when it is allocated and with ND__FAKE_RELEASED when its release is reached.
//
// Tests can give a device little of it, and let it keep released blocks as a GPU's pool does: a
// release that was reached leaves its block among the finished ones, which `retire` moves to a
// cache that allocations are served from and that `trim` empties. Both together are what a limit of
// what is kept bounds.
#include "lib/device/fake/fake_memory.h"
#include <string.h>

#define GUARD_BYTES 64

#define FAKE_DEVICE                                                          \
    {                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, \
        .done = PTHREAD_COND_INITIALIZER,                                    \
    }
nd_fake_device nd__fake_memory_devices[ND__FAKE_DEVICES] = {FAKE_DEVICE, FAKE_DEVICE};

static nd_fake_block *next_block(const nd_fake_block *of) {
    return (nd_fake_block *)of->release.next;
}

static void push_block(nd_fake_block **list, nd_fake_block *pushed) {
    pushed->release.next = *list ? &(*list)->release : NULL;
    *list = pushed;
}

/// How many bytes it may have; UINT64_MAX: as many as the host. With the lock held.
static uint64_t memory_of(const nd_fake_device *device) {
    const uint64_t memory = device->memory ? device->memory : UINT64_MAX;
    const uint64_t bound = device->bound - 1;
    return memory < bound ? memory : bound;
}

/// A cached block that is large enough and not too large, or room for a new one. With the lock
/// held. False: neither.
static bool reserve(nd_fake_device *device, size_t bytes, nd_fake_block **ret_cached) {
    const uint64_t memory = memory_of(device);
    *ret_cached = NULL;
    if (device->used > memory)
        return false;
    nd_fake_block *found = device->cached, *before = NULL;
    for (; found && (found->capacity < bytes || found->capacity / 2 > bytes);
         found = next_block(found))
        before = found;
    *ret_cached = found;
    if (found && before)
        before->release.next = found->release.next;
    else if (found)
        device->cached = next_block(found);
    if (found)
        return true;
    if (bytes > memory - device->used)
        return false;
    device->used += bytes;
    if (device->used > device->peak)
        device->peak = device->used;
    return true;
}

/// Frees a list of blocks, and returns how many bytes it held. With the lock held.
static uint64_t free_blocks(nd_fake_device *device, nd_fake_block **list) {
    uint64_t bytes = 0;
    while (*list) {
        nd_fake_block *freed = *list;
        *list = next_block(freed);
        bytes += freed->capacity;
        nd__host_free(freed, sizeof *freed + freed->capacity + GUARD_BYTES);
    }
    device->used -= bytes;
    return bytes;
}

nd_status nd__fake_memory_allocate(int index, size_t bytes, void **ret_pointer) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    if (bytes == 0)
        bytes = 1;
    if (bytes > PTRDIFF_MAX / 4)
        return ND_ERROR_OUT_OF_MEMORY;
    nd_fake_block *header;
    pthread_mutex_lock(&device->lock);
    bool room = reserve(device, bytes, &header);
    device->blocks += room;
    pthread_mutex_unlock(&device->lock);
    if (!room)
        return ND_ERROR_OUT_OF_MEMORY;
    size_t capacity = header ? header->capacity : bytes;
    if (!header && !(header = nd__host_alloc(sizeof *header + bytes + GUARD_BYTES))) {
        pthread_mutex_lock(&device->lock);
        device->blocks--;
        device->used -= bytes;
        pthread_mutex_unlock(&device->lock);
        return ND_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&device->lock);
    device->live += capacity;
    pthread_mutex_unlock(&device->lock);
    *header = (nd_fake_block){
        .release.kind = ND_FAKE_COMMAND_RELEASE, .bytes = bytes, .capacity = capacity};
    memset(header + 1, ND__FAKE_FRESH, bytes + GUARD_BYTES);
    *ret_pointer = header + 1;
    return ND_OK;
}

void nd__fake_memory_leave(int index, nd_fake_block *released) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    pthread_mutex_lock(&device->lock);
    device->live -= released->capacity;
    pthread_mutex_unlock(&device->lock);
}

nd_status nd__fake_memory_poison(nd_fake_block *released) {
    const unsigned char *guard = (const unsigned char *)(released + 1) + released->bytes;
    nd_status status = ND_OK;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != ND__FAKE_FRESH)
            status = ND_ERROR_DEVICE; // somebody wrote past the end
    memset(released + 1, ND__FAKE_RELEASED, released->bytes + GUARD_BYTES);
    return status;
}

static uint64_t sum_of(const nd_fake_block *list) {
    uint64_t bytes = 0;
    for (; list; list = next_block(list))
        bytes += list->capacity;
    return bytes;
}

/// Finished blocks count from their release on. With the lock held.
static void keep_within_limit(nd_fake_device *device) {
    if (device->limit && sum_of(device->cached) + sum_of(device->finished) > device->limit - 1)
        free_blocks(device, &device->cached);
    if (device->limit && sum_of(device->finished) > device->limit - 1)
        free_blocks(device, &device->finished);
}

void nd__fake_memory_take_back(nd_fake_device *device, nd_fake_block *released) {
    device->blocks--;
    released->release.next = NULL;
    if (device->keeps)
        push_block(&device->finished, released);
    else
        free_blocks(device, &released);
    keep_within_limit(device);
}

void nd__fake_memory_limit(int index, uint64_t bytes) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    pthread_mutex_lock(&device->lock);
    device->limit = bytes + 1;
    if (device->state != ND_FAKE_WORKER_LOST)
        keep_within_limit(device);
    pthread_mutex_unlock(&device->lock);
}

nd_status nd__fake_memory_bound(int index, uint64_t bytes) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    pthread_mutex_lock(&device->lock);
    const bool lost = device->state == ND_FAKE_WORKER_LOST;
    if (!lost)
        device->bound = bytes + 1;
    if (!lost && device->used > memory_of(device))
        free_blocks(device, &device->cached);
    pthread_mutex_unlock(&device->lock);
    return lost ? ND_ERROR_DEVICE : ND_OK;
}

uint64_t nd__fake_memory_retire(int index) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    uint64_t bytes = 0;
    pthread_mutex_lock(&device->lock);
    while (device->finished && device->state != ND_FAKE_WORKER_LOST) {
        nd_fake_block *retired = device->finished;
        device->finished = next_block(retired);
        bytes += retired->capacity;
        push_block(&device->cached, retired);
    }
    keep_within_limit(device);
    pthread_mutex_unlock(&device->lock);
    return bytes;
}

uint64_t nd__fake_memory_trim(int index) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    pthread_mutex_lock(&device->lock);
    uint64_t bytes =
        device->state == ND_FAKE_WORKER_LOST ? 0 : free_blocks(device, &device->cached);
    pthread_mutex_unlock(&device->lock);
    nd__host_trim(); // this device's memory is the host's
    return bytes;
}

void nd__fake_memory_usage(int index, nd_memory_usage *ret_usage) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    pthread_mutex_lock(&device->lock);
    ret_usage->cached = sum_of(device->finished) + sum_of(device->cached);
    const uint64_t memory = memory_of(device);
    ret_usage->limit = memory;
    ret_usage->total = device->memory ? device->memory : ND__UNKNOWN_BYTES;
    ret_usage->live = device->live;
    ret_usage->peak = device->peak;
    const uint64_t idle = device->live + ret_usage->cached;
    ret_usage->pending = device->used > idle ? device->used - idle : 0;
    ret_usage->available = memory == UINT64_MAX    ? ND__UNKNOWN_BYTES
                           : memory > device->used ? memory - device->used + ret_usage->cached
                                                   : ret_usage->cached;
    pthread_mutex_unlock(&device->lock);
}

void nd__fake_memory_set(int index, uint64_t bytes, bool keeps) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    pthread_mutex_lock(&device->lock);
    device->memory = bytes;
    device->keeps = keeps;
    free_blocks(device, &device->finished);
    free_blocks(device, &device->cached);
    pthread_mutex_unlock(&device->lock);
}
