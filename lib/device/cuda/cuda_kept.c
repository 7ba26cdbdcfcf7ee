// See cuda_kept.h. Sizes have a place each in a stream's table; a size that comes to an occupied place
// sends what is kept there back.
#include "lib/device/cuda/cuda_kept.h"
#include "lib/base/alloc.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 128, BLOCKS = 30 };

typedef struct place {
    size_t bytes; ///< of each block
    size_t count;
    void *block[BLOCKS];
} place;

struct nd_cuda_kept {
    pthread_mutex_t lock;
    uint64_t bytes;
    place places[PLACES];
};

void nd__cuda_kept_prepare(nd_cuda_device *device) {
    const char *chosen = getenv("ND_CUDA_KEEP");
    size_t unused, total = 0;
    if ((chosen && strcmp(chosen, "0") == 0) ||
        nd__cuda_status(cudaMemGetInfo(&unused, &total)) != ND_OK)
        return;
    device->keeps = total / 64;
}

static place *place_for(nd_cuda_kept *kept, size_t bytes) {
    return &kept->places[(uint64_t)bytes * UINT64_C(0x9E3779B97F4A7C15) >> 57];
}
_Static_assert(PLACES == 1 << (64 - 57), "the hash has as many values as there are places");

/// The stream's table, made at its first block. NULL: there is no memory.
static nd_cuda_kept *table_of(nd_cuda_stream *stream) {
    nd_cuda_kept *kept = atomic_load_explicit(&stream->kept, memory_order_acquire);
    if (kept)
        return kept;
    nd_cuda_kept *made = nd__alloc_zeroed(sizeof *made);
    if (!made)
        return NULL;
    pthread_mutex_init(&made->lock, NULL);
    if (atomic_compare_exchange_strong(&stream->kept, &kept, made))
        return made;
    nd__alloc_free(made);
    return kept;
}

static void change_kept(nd_cuda_stream *stream, nd_cuda_kept *kept, int64_t bytes) {
    kept->bytes += (uint64_t)bytes;
    atomic_fetch_add_explicit(&stream->device->kept, (uint64_t)bytes, memory_order_relaxed);
}

/// With the table's lock held.
static void empty(nd_cuda_stream *stream, nd_cuda_kept *kept, place *at) {
    change_kept(stream, kept, -(int64_t)(at->count * at->bytes));
    while (at->count > 0)
        (void)nd__cuda_status(cudaFreeAsync(at->block[--at->count], stream->handle));
}

void *nd__cuda_kept_take(nd_cuda_stream *stream, size_t bytes) {
    nd_cuda_kept *kept = atomic_load_explicit(&stream->kept, memory_order_acquire);
    if (!kept)
        return NULL;
    void *found = NULL;
    pthread_mutex_lock(&kept->lock);
    place *at = place_for(kept, bytes);
    if (at->bytes == bytes && at->count > 0) {
        found = at->block[--at->count];
        change_kept(stream, kept, -(int64_t)bytes);
    }
    pthread_mutex_unlock(&kept->lock);
    return found;
}

static bool may_keep(nd_cuda_device *device) {
    return device->keeps > 0 && atomic_load_explicit(&device->limit, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&device->bound, memory_order_relaxed) == 0;
}

bool nd__cuda_kept_put(nd_cuda_stream *stream, void *data, size_t bytes) {
    if (!may_keep(stream->device))
        return false;
    nd_cuda_kept *kept = table_of(stream);
    if (!kept)
        return false;
    pthread_mutex_lock(&kept->lock);
    place *at = place_for(kept, bytes);
    if (at->bytes != bytes)
        empty(stream, kept, at);
    at->bytes = bytes;
    // A limit that was set meanwhile may have been flushed before.
    const bool fits = at->count < BLOCKS && kept->bytes + bytes <= stream->device->keeps &&
                      may_keep(stream->device);
    if (fits) {
        at->block[at->count++] = data;
        change_kept(stream, kept, (int64_t)bytes);
    }
    pthread_mutex_unlock(&kept->lock);
    return fits;
}

uint64_t nd__cuda_kept_flush(nd_cuda_device *device) {
    uint64_t flushed = 0;
    for (int number = 0; number < ND__CUDA_STREAMS; number++) {
        nd_cuda_stream *stream = &device->streams[number];
        nd_cuda_kept *kept = atomic_load_explicit(&stream->kept, memory_order_acquire);
        if (!kept)
            continue;
        pthread_mutex_lock(&kept->lock);
        flushed += kept->bytes;
        for (int i = 0; i < PLACES; i++)
            empty(stream, kept, &kept->places[i]);
        pthread_mutex_unlock(&kept->lock);
    }
    return flushed;
}

uint64_t nd__cuda_kept_bytes(const nd_cuda_device *device) {
    return atomic_load_explicit(&device->kept, memory_order_relaxed);
}
