// Which backend serves which kind of device, and the public functions about devices.
//
// A kind that is not built in is served by a table that has no device and refuses everything, so
// that nobody above has to ask whether a backend exists.
#include "lib/core/error.h"
#include "lib/device/backends.h"
#include <stdio.h>

static const char *const kind_names[ND_DEVICE_KIND_COUNT] = {
    [ND_CPU] = "cpu",
    [ND_CUDA] = "cuda",
    [ND_FAKE] = "fake",
};

static int absent_count(void) {
    return 0;
}
static nd_status absent_allocate(int index, size_t bytes, void **ret_pointer) {
    (void)index, (void)bytes, (void)ret_pointer;
    return ND_ERROR_DEVICE;
}
static void absent_release(int index, void *pointer, size_t bytes) {
    (void)index, (void)pointer, (void)bytes;
}
static nd_status absent_copy(int index, void *destination, const void *source, size_t bytes) {
    (void)index, (void)destination, (void)source, (void)bytes;
    return ND_ERROR_DEVICE;
}
static nd_status absent_synchronize(int index) {
    (void)index;
    return ND_ERROR_DEVICE;
}
static nd_status absent_launch(int index, const nd_kernel_call *call) {
    (void)index, (void)call;
    return ND_ERROR_DEVICE;
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
};

const nd_backend *nd__backend(nd_device_kind kind) {
    if (__builtin_expect(kind == ND_CPU, 1))
        return &nd__cpu_backend;
    if (kind == ND_FAKE)
        return &nd__fake_backend;
    if (kind == ND_CUDA && &nd__cuda_backend != NULL)
        return &nd__cuda_backend;
    return &absent_backend;
}

const char *nd__device_text(nd_device device) {
    // Several may stand in one sentence.
    static _Thread_local char texts[4][24];
    static _Thread_local unsigned next;
    if (device.kind == ND_CPU && device.index == 0)
        return "cpu:0";
    char *text = texts[next++ % 4];
    if ((unsigned)device.kind < ND_DEVICE_KIND_COUNT)
        snprintf(text, sizeof texts[0], "%s:%d", kind_names[device.kind], (int)device.index);
    else
        snprintf(text, sizeof texts[0], "kind %d:%d", (int)device.kind, (int)device.index);
    return text;
}

nd_status nd__device_check(const char *operation, nd_device device) {
    if ((unsigned)device.kind >= ND_DEVICE_KIND_COUNT)
        return nd__error(ND_ERROR_DEVICE, "%s: there is no device kind %d", operation,
                         (int)device.kind);
    int count = nd__backend(device.kind)->device_count();
    if (device.index >= 0 && device.index < count)
        return ND_OK;
    const char *name = device.kind == ND_CUDA ? "CUDA" : kind_names[device.kind];
    if (count == 0)
        return nd__error(ND_ERROR_DEVICE, "%s: %s: no %s device", operation,
                         nd__device_text(device), name);
    return nd__error(ND_ERROR_DEVICE, "%s: %s: there %s %d %s device%s", operation,
                     nd__device_text(device), count == 1 ? "is" : "are", count, name,
                     count == 1 ? "" : "s");
}

int nd_device_count(nd_device_kind kind) {
    return nd__backend(kind)->device_count();
}

static _Thread_local nd_device default_device = {ND_CPU, 0};

nd_status nd_set_default_device(nd_device device) {
    nd_status status = nd__device_check("set_default_device", device);
    if (status == ND_OK)
        default_device = device;
    return status;
}

nd_device nd_get_default_device(void) {
    return default_device;
}

nd_status nd_synchronize(nd_device device) {
    nd_status status = nd__device_check("synchronize", device);
    if (status != ND_OK)
        return status;
    status = nd__backend(device.kind)->synchronize(device.index);
    if (status != ND_OK)
        return nd__error(status, "synchronize: work queued earlier on %s failed with %s",
                         nd__device_text(device), nd_status_name(status));
    return ND_OK;
}
