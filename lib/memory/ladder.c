// Charge, allocate, and the walk between a failure and its error.
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

/// What is charged: settled, or given back.
static nd_status allocate(const nd_memory_request *request, void **ret_pointer) {
    const nd_status status = request->allocate(request->index, request->bytes, ret_pointer);
    if (__builtin_expect(status == ND_OK, 1))
        nd__charge_settle(request->manager, request->kind, request->charge);
    else
        nd__charge_return(request->manager, request->kind, request->charge);
    return status;
}

/// While the ladder is walked nothing is charged: callbacks see what there is, and a request that fits is
/// not refused because of this one.
static nd_status allocate_again(nd_pressure *pressure) {
    const allocation *again = (const allocation *)pressure;
    const nd_memory_request *request = again->request;
    if (!nd__charge_try_ahead(request->manager, request->kind, request->charge, &pressure->refused))
        return ND_ERROR_QUOTA;
    return allocate(request, again->ret_pointer);
}

nd_status nd__ladder_alloc(const nd_memory_request *request, void **ret_pointer) {
    nd_status status =
        nd__charge_ahead(request->operation, request->manager, request->kind, request->charge);
    if (status != ND_OK)
        return status;
    status = allocate(request, ret_pointer);
    if (__builtin_expect(status == ND_OK, 1))
        return ND_OK;
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
