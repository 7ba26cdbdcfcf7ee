// The rungs of lib/memory/ladder.h and the sentence at their end.
#include "lib/memory/ladder.h"
#include "lib/core/error.h"
#include <stdio.h>

static nd_status give_up(const nd_memory_request *request, nd_status status);

nd_status nd__memory_obtain(const nd_memory_request *request, void **ret_pointer) {
    nd_status status = nd__manager_charge(request->manager, request->kind, request->charge);
    if (status != ND_OK)
        return status;
    status = request->allocate(request->index, request->bytes, ret_pointer);
    if (__builtin_expect(status == ND_OK, 1))
        return ND_OK;
    if (status == ND_ERROR_OUT_OF_MEMORY) {
        request->trim(request->index);
        status = request->allocate(request->index, request->bytes, ret_pointer);
    }
    if (status == ND_ERROR_OUT_OF_MEMORY && nd__manager_relieve(request->manager)) {
        request->trim(request->index);
        status = request->allocate(request->index, request->bytes, ret_pointer);
    }
    if (status == ND_OK)
        return ND_OK;
    nd__manager_discharge(request->manager, request->kind, request->charge);
    return give_up(request, status);
}

static nd_status give_up(const nd_memory_request *request, nd_status status) {
    if (status != ND_ERROR_OUT_OF_MEMORY)
        return nd__error(status, "%s: %s:%d could not allocate %zu bytes: the device failed",
                         request->operation, request->device, request->index, request->bytes);
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    nd_manager_get_stats(request->manager, &stats);
    char limit[48] = "without a quota";
    if (stats.quota_bytes[request->kind])
        snprintf(limit, sizeof limit, "of a quota of %llu",
                 (unsigned long long)stats.quota_bytes[request->kind]);
    return nd__error(status,
                     "%s: no memory on %s:%d for %zu bytes; manager \"%s\" and those below it hold "
                     "%llu bytes there, %s",
                     request->operation, request->device, request->index, request->bytes,
                     nd_manager_name(request->manager),
                     (unsigned long long)stats.subtree_bytes[request->kind], limit);
}
