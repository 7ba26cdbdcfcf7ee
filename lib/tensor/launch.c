// The dispatch: a kernel call goes to the backend of its device; what fails there becomes a
// sentence.
#include "lib/tensor/launch.h"
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/object/callback.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_error.h"

/// Of a wait for what is queued.
#define WAIT_LIMIT_NS UINT64_C(1000000000)

typedef struct repeated_launch {
    nd_pressure pressure;
    const nd_kernel_call *call;
} repeated_launch;

static nd_status launch_again(nd_pressure *pressure) {
    const nd_kernel_call *call = ((const repeated_launch *)pressure)->call;
    return nd__registry_backend(pressure->kind)->launch(pressure->index, call);
}

/// A kernel that found no working memory, once more behind each stage of the ladder, and then in a way
/// that takes less, where the backend has one. Not one that changes an operand in place, which it may
/// have begun to do. *ret_told: the error is set, with what was tried.
static nd_status launch_under_pressure(const char *operation, nd_device device,
                                       const nd_kernel_call *call, bool *ret_told) {
    *ret_told = false;
    for (int i = 1; i < call->noperands; i++)
        if (call->operand[0].data && call->operand[i].data == call->operand[0].data)
            return ND_ERROR_OUT_OF_MEMORY;
    repeated_launch again = {
        .pressure =
            {
                .operation = operation,
                .manager = (nd_manager *)(uintptr_t)nd_manager_get_current(),
                .kind = device.kind,
                .index = device.index,
                .functions = nd__registry_backend(device.kind)->memory,
                .attempt = launch_again,
            },
        .call = call,
    };
    nd_status status = nd__pressure_walk(&again.pressure, ND_ERROR_OUT_OF_MEMORY);
    const nd_backend *backend = nd__registry_backend(device.kind);
    if (status == ND_ERROR_OUT_OF_MEMORY && backend->launch_sparing)
        status = backend->launch_sparing(device.index, call);
    *ret_told = status == ND_ERROR_OUT_OF_MEMORY;
    return *ret_told ? nd__pressure_error(&again.pressure, status) : status;
}

/// The sentence for a kernel that has failed for good.
static nd_status refused(const char *operation, nd_device device, nd_dtype of, nd_status status) {
    const char *where = nd__registry_device_text(device);
    const char *dtype = nd_dtype_get_name(of);
    switch (status) {
    case ND_ERROR_STATE:
        return nd__capture_running() ? nd__capture_refused(operation, device)
                                     : nd__callback_error(operation);
    case ND_ERROR_UNSUPPORTED:
        return nd__error(status, "%s: %s has no kernel for %s", operation, where, dtype);
    case ND_ERROR_INVALID_ARGUMENT:
        return nd__error(status, "%s: an index is out of range (found on %s)", operation, where);
    case ND_ERROR_OUT_OF_MEMORY:
        return nd__error(status, "%s: no memory to run the kernel for %s on %s", operation, dtype,
                         where);
    default:
        return nd__error(status, "%s: the kernel for %s on %s failed with %s", operation, dtype,
                         where, nd_status_get_name(status));
    }
}

nd_status nd__launch_where_supported(const char *operation, nd_device device,
                                     const nd_kernel_call *call) {
    nd_status status = nd__registry_backend(device.kind)->launch(device.index, call);
    if (__builtin_expect(status == ND_OK, 1))
        return ND_OK;
    bool told = false;
    if (status == ND_ERROR_OUT_OF_MEMORY)
        status = launch_under_pressure(operation, device, call, &told);
    if (status == ND_OK || status == ND_ERROR_UNSUPPORTED || told)
        return status;
    return refused(operation, device, call->operand[call->noperands > 1 ? 1 : 0].dtype, status);
}

nd_status nd__launch(const char *operation, nd_device device, const nd_kernel_call *call) {
    nd_status status = nd__launch_where_supported(operation, device, call);
    if (__builtin_expect(status != ND_ERROR_UNSUPPORTED, 1))
        return status;
    return refused(operation, device, call->operand[call->noperands > 1 ? 1 : 0].dtype, status);
}

bool nd__launch_fuses(nd_device device) {
    return nd__registry_backend(device.kind)->fuses;
}

bool nd__launch_convolves(nd_device device, nd_dtype dtype) {
    const nd_backend *backend = nd__registry_backend(device.kind);
    return backend->fuses || (backend->convolves_bf16 && dtype == ND_BF16);
}

bool nd__launch_multiplies(nd_device device, nd_dtype dtype) {
    const nd_backend *backend = nd__registry_backend(device.kind);
    return backend->multiplies && backend->multiplies(dtype);
}

bool nd__launch_selects_ranks(nd_device device) {
    return nd__registry_backend(device.kind)->selects_ranks;
}

bool nd__launch_has_chains(nd_device device) {
    return nd__registry_backend(device.kind)->launch_chains != NULL;
}

/// Chains that found no working memory once more, when the device has done what is queued and given
/// back what it keeps. Nothing of the program's runs in between, which could change what they work on.
static nd_status launch_chains_again(nd_device device, size_t count, const nd_chain *chains) {
    const nd_backend *backend = nd__registry_backend(device.kind);
    const nd_memory_functions *memory = backend->memory;
    if (!memory || nd__capture_running())
        return ND_ERROR_OUT_OF_MEMORY;
    if (memory->wait)
        (void)memory->wait(device.index, WAIT_LIMIT_NS);
    if (memory->retire)
        (void)memory->retire(device.index);
    if (memory->trim)
        (void)memory->trim(device.index);
    return backend->launch_chains(device.index, count, chains);
}

nd_status nd__launch_chains(const char *operation, nd_device device, size_t count,
                            const nd_chain *chains) {
    nd_status status =
        nd__registry_backend(device.kind)->launch_chains(device.index, count, chains);
    if (status == ND_ERROR_OUT_OF_MEMORY)
        status = launch_chains_again(device, count, chains);
    return status == ND_OK ? ND_OK : refused(operation, device, chains[0].dtype[0], status);
}
