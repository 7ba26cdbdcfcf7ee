// What the library keeps for reuse, by kind of device: how much it is, how much it may be, and giving
// it back. Who keeps it: lib/object/block.h, lib/memory/host.h and kept.h, kernels/cpu/scratch.h, and
// the backends of devices. And what it may take of a device at all.
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/kind.h"
#include "lib/base/versioned.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/manager/account.h"
#include "lib/manager/request.h"
#include "lib/memory/host.h"
#include "lib/object/block.h"
#include "lib/object/callback.h"
#include <nd/memory.h>

static _Atomic uint64_t limits[ND_MAX_DEVICE_KINDS]; ///< bytes + 1; 0: none was set

/// Of nd_memory_set_limit, by kind and index, likewise.
enum { BOUNDED_DEVICES = 16 };
static _Atomic uint64_t bounds[ND_MAX_DEVICE_KINDS][BOUNDED_DEVICES];

static uint64_t known(uint64_t bytes) {
    return bytes == ND__UNKNOWN_BYTES ? 0 : bytes;
}

/// Of all devices of a kind.
static uint64_t cached_of(nd_device_kind kind) {
    uint64_t bytes = 0;
    const nd_memory_functions *rows = nd__registry_backend(kind)->memory;
    for (int index = 0; rows && rows->usage && index < nd_get_device_count(kind); index++) {
        nd_memory_usage usage = ND__USAGE_UNKNOWN;
        rows->usage(index, &usage);
        bytes += known(usage.cached);
    }
    return bytes;
}

uint64_t nd_memory_trim(nd_device_kind kind) {
    if (!nd__kind_exists(kind) || nd__callback_running() ||
        (kind != ND_CPU && nd__capture_running()))
        return 0;
    // Apart, because the allocator behind the CPU's may not know what it gives back.
    uint64_t bytes = kind == ND_CPU ? nd__block_trim() : 0;
    if (kind == ND_CPU)
        nd__host_trim_plans();
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
    if (!nd__kind_exists(kind) || (kind != ND_CPU && nd__capture_running()))
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
    if (status == ND_OK)
        status = nd__capture_check("memory_get_cache_stats", (nd_device){kind, 0});
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
    if (status == ND_OK)
        status = nd__capture_check("memory_set_cache_limit", (nd_device){kind, 0});
    if (status != ND_OK)
        return status;
    nd__atomic_store(&limits[kind], bytes + 1, relaxed);
    const nd_memory_functions *rows = nd__registry_backend(kind)->memory;
    for (int index = 0; rows && rows->limit && index < nd_get_device_count(kind); index++)
        rows->limit(index, bytes);
    return ND_OK;
}

// ------------------------------------------------------------------------------------------------
// one device

nd_status nd_memory_set_limit(nd_device device, uint64_t bytes) {
    static const char operation[] = "memory_set_limit";
    nd_status status = nd__registry_device_check(operation, device);
    if (status == ND_OK)
        status = nd__callback_check(operation);
    if (status == ND_OK)
        status = nd__capture_check(operation, device);
    if (status != ND_OK)
        return status;
    const nd_memory_functions *rows = nd__registry_backend(device.kind)->memory;
    if (!rows || !rows->bound || device.index >= BOUNDED_DEVICES)
        return nd__error(
            ND_ERROR_UNSUPPORTED,
            "%s: the memory of %s has no limit of its own: a manager's quota bounds it", operation,
            nd__registry_device_text(device));
    status = rows->bound(device.index, bytes);
    if (status != ND_OK)
        return nd__error(status, "%s: %s failed with %s", operation,
                         nd__registry_device_text(device), nd_status_get_name(status));
    nd__atomic_store(&bounds[device.kind][device.index], bytes + 1, relaxed);
    return ND_OK;
}

nd_status nd_memory_get_device_stats(nd_device device, nd_memory_device_stats *ret_stats) {
    static const char operation[] = "memory_get_device_stats";
    nd_status status = nd__versioned_check(operation, "ND_MEMORY_DEVICE_STATS_INIT", ret_stats);
    if (status == ND_OK)
        status = nd__registry_device_check(operation, device);
    if (status == ND_OK)
        status = nd__callback_check(operation);
    if (status == ND_OK)
        status = nd__capture_check(operation, device);
    if (status != ND_OK)
        return status;
    nd_memory_usage usage = ND__USAGE_UNKNOWN;
    const nd_memory_functions *rows = nd__registry_backend(device.kind)->memory;
    if (device.kind == ND_CPU)
        usage = (nd_memory_usage){.cached = nd_memory_get_cached(ND_CPU),
                                  .total = ND__UNKNOWN_BYTES,
                                  .live = nd__account_bytes(&nd__manager_root, ND_CPU),
                                  .peak = ND__UNKNOWN_BYTES,
                                  .available = ND__UNKNOWN_BYTES};
    else if (rows && rows->usage)
        rows->usage(device.index, &usage);
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    stats.total = usage.total;
    stats.limit = device.index < BOUNDED_DEVICES
                      ? nd__atomic_load_relaxed(&bounds[device.kind][device.index]) - 1
                      : UINT64_MAX;
    stats.live = usage.live;
    stats.pending = usage.pending;
    stats.cached = usage.cached;
    stats.peak = usage.peak;
    stats.available = usage.available;
    nd__versioned_write(ret_stats, &stats, sizeof stats);
    return ND_OK;
}
