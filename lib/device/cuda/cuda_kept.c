// See cuda_kept.h. Sizes have a place each in a stream's table, or share one: then what came last has
// it.
#include "lib/device/cuda/cuda_kept.h"
#include "lib/base/alloc.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 128, BLOCKS = 30 };

typedef struct place {
    size_t bytes; ///< of each block
    size_t count;
    struct nd_cuda_block *block[BLOCKS];
} place;

struct nd_cuda_kept {
    uint64_t bytes;
    place places[PLACES];
};

void nd__cuda_kept_prepare(nd_cuda_device *device) {
    const char *chosen = secure_getenv("ND_CUDA_KEEP");
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

/// Only a thread with the lock changes the sum, which others read.
static void change_kept(nd_cuda_stream *stream, uint64_t bytes) {
    nd_cuda_device *device = stream->device;
    stream->kept->bytes += bytes;
    const uint64_t sum = atomic_load_explicit(&device->kept, memory_order_relaxed);
    atomic_store_explicit(&device->kept, sum + bytes, memory_order_relaxed);
}

/// From a place that is not empty.
static struct nd_cuda_block *take_from(nd_cuda_stream *stream, place *at) {
    change_kept(stream, -(uint64_t)at->bytes);
    return at->block[--at->count];
}

struct nd_cuda_block *nd__cuda_kept_take(nd_cuda_stream *stream, size_t bytes) {
    if (!stream->kept)
        return NULL;
    place *at = place_for(stream->kept, bytes);
    return at->bytes == bytes && at->count > 0 ? take_from(stream, at) : NULL;
}

struct nd_cuda_block *nd__cuda_kept_take_other(nd_cuda_stream *stream, size_t bytes) {
    if (!stream->kept)
        return NULL;
    place *at = place_for(stream->kept, bytes);
    return at->bytes != bytes && at->count > 0 ? take_from(stream, at) : NULL;
}

struct nd_cuda_block *nd__cuda_kept_take_any(nd_cuda_stream *stream) {
    if (!stream->kept || stream->kept->bytes == 0)
        return NULL;
    place *at = stream->kept->places;
    while (at->count == 0)
        at++;
    return take_from(stream, at);
}

static bool may_keep(nd_cuda_device *device) {
    return device->keeps > 0 && atomic_load_explicit(&device->limit, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&device->bound, memory_order_relaxed) == 0;
}

bool nd__cuda_kept_put(nd_cuda_stream *stream, struct nd_cuda_block *block, size_t bytes) {
    if (!may_keep(stream->device))
        return false;
    if (!stream->kept && !(stream->kept = nd__alloc_zeroed(sizeof *stream->kept)))
        return false;
    place *at = place_for(stream->kept, bytes);
    if (at->count == BLOCKS || stream->kept->bytes + bytes > stream->device->keeps)
        return false;
    at->bytes = bytes;
    at->block[at->count++] = block;
    change_kept(stream, bytes);
    return true;
}

uint64_t nd__cuda_kept_bytes(const nd_cuda_device *device) {
    return atomic_load_explicit(&device->kept, memory_order_relaxed);
}
