// What the library keeps for reuse, by kind of device: how much it is, how much it may be, and giving
// it back. Who keeps it: lib/object/block.h, lib/memory/host.h and kept.h, kernels/cpu/scratch.h, and
// the backends of devices.
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/kind.h"
#include "lib/base/versioned.h"
#include "lib/device/registry.h"
#include "lib/manager/request.h"
#include "lib/memory/host.h"
#include "lib/object/block.h"
#include "lib/object/callback.h"
#include <nd/memory.h>

static _Atomic uint64_t limits[ND_MAX_DEVICE_KINDS]; ///< bytes + 1; 0: none was set

static uint64_t known(uint64_t bytes) {
    return bytes == ND__UNKNOWN_BYTES ? 0 : bytes;
}

/// Of all devices of a kind.
static uint64_t cached_of(nd_device_kind kind) {
    uint64_t bytes = 0;
    const nd_memory_functions *rows = nd__registry_backend(kind)->memory;
    for (int index = 0; rows && rows->usage && index < nd_get_device_count(kind); index++) {
        nd_memory_usage usage = {ND__UNKNOWN_BYTES, ND__UNKNOWN_BYTES};
        rows->usage(index, &usage);
        bytes += known(usage.cached);
    }
    return bytes;
}

uint64_t nd_memory_trim(nd_device_kind kind) {
    if (!nd__kind_exists(kind) || nd__callback_running())
        return 0;
    // Apart, because the allocator behind the CPU's may not know what it gives back.
    uint64_t bytes = kind == ND_CPU ? nd__block_trim() : 0;
    const nd_memory_functions *rows = nd__registry_backend(kind)->memory;
    for (int index = 0; rows && rows->trim && index < nd_get_device_count(kind); index++)
        bytes += known(rows->trim(index));
    return bytes;
}

/// The parts of host memory, each as far as it is known.
static void read_host(nd_memory_cache_stats *stats) {
    stats->objects = nd__block_cached_bytes();
    stats->data = known(nd__host_cached_bytes());
    stats->workspaces = nd__host_keeper_bytes();
}

uint64_t nd_memory_get_cached(nd_device_kind kind) {
    if (!nd__kind_exists(kind))
        return 0;
    if (kind != ND_CPU)
        return cached_of(kind);
    nd_memory_cache_stats stats = {0};
    read_host(&stats);
    return stats.objects + stats.data + stats.workspaces;
}

static nd_status check_kind(const char *operation, nd_device_kind kind) {
    if (nd__kind_exists(kind))
        return ND_OK;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: there is no device kind %d", operation,
                     (int)kind);
}

nd_status nd_memory_get_cache_stats(nd_device_kind kind, nd_memory_cache_stats *ret_stats) {
    nd_status status =
        nd__versioned_check("memory_get_cache_stats", "ND_MEMORY_CACHE_STATS_INIT", ret_stats);
    if (status == ND_OK)
        status = check_kind("memory_get_cache_stats", kind);
    if (status != ND_OK)
        return status;
    nd_memory_cache_stats stats = ND_MEMORY_CACHE_STATS_INIT;
    if (kind == ND_CPU)
        read_host(&stats);
    else
        stats.data = cached_of(kind);
    stats.limit = nd__atomic_load_relaxed(&limits[kind]) - 1;
    nd__versioned_write(ret_stats, &stats, sizeof stats);
    return ND_OK;
}

nd_status nd_memory_set_cache_limit(nd_device_kind kind, uint64_t bytes) {
    nd_status status = check_kind("memory_set_cache_limit", kind);
    if (status == ND_OK)
        status = nd__callback_check("memory_set_cache_limit");
    if (status != ND_OK)
        return status;
    nd__atomic_store(&limits[kind], bytes + 1, relaxed);
    const nd_memory_functions *rows = nd__registry_backend(kind)->memory;
    for (int index = 0; rows && rows->limit && index < nd_get_device_count(kind); index++)
        rows->limit(index, bytes);
    return ND_OK;
}
