// Allocate, charge, and the walk between a failure and its error.
//
// Invariant: only what there is is charged. So a request that finds no memory is in no account and no peak, nor in
// the way of another one's quota. Before, the quotas are looked at: what does not fit is not allocated.
#include "lib/memory/ladder.h"
#include "lib/manager/charge.h"
#include "lib/memory/host.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_error.h"

typedef struct allocation {
    nd_pressure pressure;
    const nd_memory_request *request;
    void **ret_pointer;
} allocation;

static nd_status allocate_again(nd_pressure *pressure) {
    const allocation *again = (const allocation *)pressure;
    const nd_memory_request *request = again->request;
    if (!nd__charge_fits(request->manager, request->kind, request->charge, &pressure->refused))
        return ND_ERROR_QUOTA;
    return request->allocate(request->index, request->bytes, again->ret_pointer);
}

__attribute__((cold, noinline)) static nd_status
walk_for_memory(const nd_memory_request *request, nd_status status, void **ret_pointer) {
    allocation again = {
        .pressure =
            {
                .operation = request->operation,
                .manager = request->manager,
                .kind = request->kind,
                .index = request->index,
                .bytes = request->bytes,
                .functions = request->functions,
                .attempt = allocate_again,
            },
        .request = request,
        .ret_pointer = ret_pointer,
    };
    status = nd__pressure_walk(&again.pressure, status);
    return status == ND_OK ? ND_OK : nd__pressure_error(&again.pressure, status);
}

nd_status nd__ladder_alloc(const nd_memory_request *request, void **ret_pointer) {
    for (;;) {
        nd_status status =
            nd__charge_expect(request->operation, request->manager, request->kind, request->charge);
        if (status != ND_OK)
            return status;
        void *pointer;
        status = request->allocate(request->index, request->bytes, &pointer);
        if (__builtin_expect(status != ND_OK, 0))
            status = walk_for_memory(request, status, &pointer);
        if (status != ND_OK)
            return status;
        nd_manager *refused;
        if (__builtin_expect(
                nd__charge_path(request->manager, NULL, request->kind, request->charge, &refused),
                1)) {
            *ret_pointer = pointer;
            return ND_OK;
        }
        // Another thread has taken what was left of a quota: what it says now is asked above.
        request->release(request->index, pointer, request->bytes);
    }
}

typedef struct host_allocation {
    nd_pressure pressure;
    void *pointer;
} host_allocation;

static nd_status allocate_on_host(nd_pressure *pressure) {
    host_allocation *allocation = (host_allocation *)pressure;
    allocation->pointer = nd__host_alloc((size_t)pressure->bytes);
    return allocation->pointer ? ND_OK : ND_ERROR_OUT_OF_MEMORY;
}

void *nd__ladder_alloc_host(size_t bytes) {
    void *pointer = nd__host_alloc(bytes);
    if (pointer)
        return pointer;
    host_allocation again = {
        .pressure =
            {
                .manager = (nd_manager *)(uintptr_t)nd_manager_get_current(),
                .kind = ND_CPU,
                .bytes = bytes,
                .functions = &nd__ladder_functions,
                .attempt = allocate_on_host,
            },
    };
    nd__pressure_walk(&again.pressure, ND_ERROR_OUT_OF_MEMORY);
    return again.pointer;
}
