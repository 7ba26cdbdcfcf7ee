// The CPU as a device: host memory, and kernels that have run when launch returns.
//
// Nothing is queued, so release is ordered after all work by itself, and there is nothing to wait
// for or to take back later.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/bytes.h"
#include "lib/device/backends.h"
#include "lib/memory/host.h"
#include "lib/pressure/pressure.h"

static int cpu_device_count(void) {
    return 1;
}

static nd_status cpu_allocate(int index, size_t bytes, void **ret_pointer) {
    (void)index;
    void *pointer = nd__host_alloc(bytes);
    if (!pointer)
        return ND_ERROR_OUT_OF_MEMORY;
    *ret_pointer = pointer;
    return ND_OK;
}

static void cpu_release(int index, void *pointer, size_t bytes) {
    (void)index;
    nd__host_free(pointer, bytes);
}

static nd_status cpu_copy(int index, void *destination, const void *source, size_t bytes) {
    (void)index;
    if (bytes > 0)
        nd__bytes_copy(destination, source, bytes);
    return ND_OK;
}

static nd_status cpu_synchronize(int index) {
    (void)index;
    return ND_OK;
}

static nd_status cpu_launch(int index, const nd_kernel_call *call) {
    (void)index;
    return nd__cpu_launch(call);
}

static nd_status cpu_launch_sparing(int index, const nd_kernel_call *call) {
    (void)index;
    return nd__cpu_launch_sparing(call);
}

static nd_status cpu_launch_chains(int index, size_t count, const nd_chain *chains) {
    (void)index;
    return nd__cpu_chains(count, chains);
}

static nd_status cpu_call(int index, void (*function)(void *data), void *data) {
    (void)index;
    function(data);
    return ND_OK;
}

static nd_host_keeper kernels = {nd__cpu_trim, nd__cpu_workspace_bytes, nd__cpu_trim_plans, NULL};

__attribute__((constructor)) static void add_keeper(void) {
    nd__host_add_keeper(&kernels);
}

const nd_backend nd__cpu_backend = {
    .name = "cpu",
    .host_accessible = true,
    .convolves_bf16 = true,
    .multiplies = nd__cpu_multiplies,
    .selects_ranks = true,
    .device_count = cpu_device_count,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .copy_from_host = cpu_copy,
    .copy_to_host = cpu_copy,
    .synchronize = cpu_synchronize,
    .launch = cpu_launch,
    .launch_sparing = cpu_launch_sparing,
    .launch_chains = cpu_launch_chains,
    .call = cpu_call,
    .memory = &nd__ladder_functions,
};
