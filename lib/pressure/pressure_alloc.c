// Memory for the library's own structures, with the ladder behind it.
//
// These requests are small and made in the middle of everything, so they name no manager: whoever
// is current asks. The first try costs nothing beyond the allocation.
#include "lib/pressure/pressure_alloc.h"
#include "lib/base/alloc.h"
#include "lib/object/block.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_error.h"
#include <stdio.h>

typedef struct host_request {
    nd_pressure pressure;
    bool zeroed, object;
    void *before; ///< block to grow
    void *memory; ///< what was obtained
} host_request;

static nd_status allocate(nd_pressure *pressure) {
    host_request *request = (host_request *)pressure;
    size_t bytes = (size_t)pressure->bytes;
    request->memory = request->object   ? nd__block_new(bytes)
                      : request->zeroed ? nd__alloc_zeroed(bytes)
                                        : nd__alloc_resize(request->before, bytes);
    return request->memory ? ND_OK : ND_ERROR_OUT_OF_MEMORY;
}

__attribute__((cold, noinline)) static nd_status walk(host_request *request, size_t bytes,
                                                      const char *operation) {
    request->pressure = (nd_pressure){
        .operation = operation,
        .manager = (nd_manager *)(uintptr_t)nd_manager_get_current(),
        .kind = ND_CPU,
        .bytes = bytes,
        .functions = &nd__ladder_functions,
        .attempt = allocate,
    };
    return nd__pressure_walk(&request->pressure, ND_ERROR_OUT_OF_MEMORY);
}

void *nd__pressure_alloc(size_t bytes) {
    return nd__pressure_alloc_resize(NULL, bytes);
}

void *nd__pressure_alloc_zeroed(size_t bytes) {
    void *memory = nd__alloc_zeroed(bytes);
    if (__builtin_expect(memory != NULL, 1))
        return memory;
    host_request request = {.zeroed = true};
    walk(&request, bytes, NULL);
    return request.memory;
}

void *nd__pressure_alloc_resize(void *pointer, size_t bytes) {
    void *memory = nd__alloc_resize(pointer, bytes);
    if (__builtin_expect(memory != NULL, 1))
        return memory;
    host_request request = {.before = pointer};
    walk(&request, bytes, NULL);
    return request.memory;
}

void *nd__pressure_alloc_object(const nd_type *type, size_t bytes) {
    char operation[64];
    snprintf(operation, sizeof operation, "new %s", type->name);
    host_request request = {.object = true};
    nd_status status = walk(&request, bytes, operation);
    if (status != ND_OK)
        nd__pressure_error(&request.pressure, status);
    return request.memory;
}
