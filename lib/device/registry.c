// Which backend serves which kind of device, and the public functions about devices.
//
// A kind that is not built in is served by a table that has no device and refuses everything, so
// that nobody above has to ask whether a backend exists. Inside a callback that a device runs,
// where no device may be called, every kind but the CPU is.
#include "lib/device/registry.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/kind.h"
#include "lib/device/backends.h"
#include "lib/device/capture.h"
#include "lib/device/queued.h"
#include "lib/object/callback.h"
#include <stdio.h>

static nd_status refusal(void) {
    return nd__callback_running() ? ND_ERROR_STATE : ND_ERROR_DEVICE;
}
static int absent_count(void) {
    return 0;
}
static nd_status absent_allocate(int index, size_t bytes, void **ret_pointer) {
    (void)index, (void)bytes, (void)ret_pointer;
    return refusal();
}
static void absent_release(int index, void *pointer, size_t bytes) {
    (void)index, (void)pointer, (void)bytes;
}
static nd_status absent_copy(int index, void *destination, const void *source, size_t bytes) {
    (void)index, (void)destination, (void)source, (void)bytes;
    return refusal();
}
static nd_status absent_synchronize(int index) {
    (void)index;
    return refusal();
}
static nd_status absent_launch(int index, const nd_kernel_call *call) {
    (void)index, (void)call;
    return refusal();
}
static nd_status absent_call(int index, void (*function)(void *data), void *data) {
    (void)index, (void)function, (void)data;
    return refusal();
}

static const nd_backend absent_backend = {
    .name = "absent",
    .host_accessible = false,
    .device_count = absent_count,
    .allocate = absent_allocate,
    .release = absent_release,
    .copy_from_host = absent_copy,
    .copy_to_host = absent_copy,
    .synchronize = absent_synchronize,
    .launch = absent_launch,
    .call = absent_call,
};

static const nd_backend *extra_backend; // or NULL; written before main only

void nd__registry_add(const nd_backend *backend) {
    extra_backend = backend;
    nd__kind_extra = backend->name;
}

static const nd_backend *backend_of(nd_device_kind kind) {
    if (kind == ND_CUDA && &nd__cuda_backend != NULL)
        return &nd__cuda_backend;
    if (kind == ND_DEVICE_KIND_COUNT && extra_backend)
        return extra_backend;
    return &absent_backend;
}

const nd_backend *nd__registry_backend(nd_device_kind kind) {
    if (__builtin_expect(kind == ND_CPU, 1))
        return &nd__cpu_backend;
    return nd__callback_running() ? &absent_backend : backend_of(kind);
}

const char *nd__registry_device_text(nd_device device) {
    // Two may stand in one sentence.
    static _Thread_local char texts[2][24];
    static _Thread_local unsigned next;
    if (device.kind == ND_CPU && device.index == 0)
        return "cpu:0";
    char *text = texts[next++ % 2];
    const char *name = nd__kind_name(device.kind);
    if (name)
        snprintf(text, sizeof texts[0], "%s:%d", name, (int)device.index);
    else
        snprintf(text, sizeof texts[0], "kind %d:%d", (int)device.kind, (int)device.index);
    return text;
}

const char *nd__registry_answer_text(nd_status status) {
    return status == ND_ERROR_INVALID_ARGUMENT
               ? "ND_ERROR_INVALID_ARGUMENT: an index was out of range"
               : nd_status_get_name(status);
}

nd_status nd__registry_device_check(const char *operation, nd_device device) {
    if (!nd__kind_exists(device.kind))
        return nd__error(ND_ERROR_DEVICE, "%s: there is no device kind %d", operation,
                         (int)device.kind);
    if (nd__callback_running())
        return nd__callback_error(operation);
    const nd_backend *backend = nd__registry_backend(device.kind);
    int count = backend->device_count();
    if (nd__fork_generation && device.index >= 0 && backend->lost && backend->lost(device.index))
        return nd__error(
            ND_ERROR_DEVICE,
            "%s: %s stayed in the parent process when that forked; a child cannot use it",
            operation, nd__registry_device_text(device));
    if (device.index >= 0 && device.index < count)
        return ND_OK;
    const char *name = device.kind == ND_CUDA ? "CUDA" : nd__kind_name(device.kind);
    if (count == 0)
        return nd__error(ND_ERROR_DEVICE, "%s: %s: no %s device", operation,
                         nd__registry_device_text(device), name);
    return nd__error(ND_ERROR_DEVICE, "%s: %s: there %s %d %s device%s", operation,
                     nd__registry_device_text(device), count == 1 ? "is" : "are", count, name,
                     count == 1 ? "" : "s");
}

int nd_get_device_count(nd_device_kind kind) {
    return kind == ND_CPU ? nd__cpu_backend.device_count() : backend_of(kind)->device_count();
}

static _Thread_local nd_device default_device = {ND_CPU, 0};

nd_status nd_set_default_device(nd_device device) {
    nd_status status = nd__registry_device_check("set_default_device", device);
    if (status == ND_OK)
        default_device = device;
    return status;
}

nd_device nd_get_default_device(void) {
    return default_device;
}

nd_status nd__registry_synchronize(const char *operation, nd_device device) {
    ND__UNCANCELLED;
    nd_status status = nd__registry_device_check(operation, device);
    if (status != ND_OK)
        return status;
    status = nd__capture_check(operation, device);
    if (status != ND_OK)
        return status;
    status = nd__registry_backend(device.kind)->synchronize(device.index);
    if (status != ND_OK)
        nd__queued_give_up(device);
    nd__callback_destroy_deferred();
    if (status != ND_OK)
        return nd__error(status, "%s: work queued earlier on %s failed with %s", operation,
                         nd__registry_device_text(device), nd__registry_answer_text(status));
    return ND_OK;
}

nd_status nd_synchronize(nd_device device) {
    return nd__registry_synchronize("synchronize", device);
}
