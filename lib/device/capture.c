// What is refused while a thread captures (capture.h).
#include "lib/device/capture.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"

nd_status nd__capture_error(const char *operation) {
    return nd__error(ND_ERROR_STATE,
                     "%s: this thread captures a graph of %s, and until the end of that it cannot "
                     "wait for a device, ask it, or copy from or to the host",
                     operation, nd__registry_device_text(nd__thread_record.capture->device));
}

nd_status nd__capture_check(const char *operation, nd_device device) {
    return nd__capture_running() && device.kind != ND_CPU ? nd__capture_error(operation) : ND_OK;
}

nd_status nd__capture_check_size(const char *operation, nd_device device) {
    if (!nd__capture_running() || device.kind == ND_CPU)
        return ND_OK;
    return nd__error(
        ND_ERROR_STATE,
        "%s: this thread captures a graph of %s, and the size of the result depends on "
        "data, which no graph can look at",
        operation, nd__registry_device_text(nd__thread_record.capture->device));
}

nd_status nd__capture_refused(const char *operation, nd_device device) {
    const nd_device captured = nd__thread_record.capture->device;
    if (!nd__capture_is_of(device.kind, device.index))
        return nd__error(ND_ERROR_STATE,
                         "%s: this thread captures a graph of %s, and until the end of that it "
                         "cannot use %s",
                         operation, nd__registry_device_text(captured),
                         nd__registry_device_text(device));
    return nd__error(ND_ERROR_STATE,
                     "%s: this thread captures a graph of %s, which cannot hold memory that ndarc "
                     "does not own: clone the tensor before",
                     operation, nd__registry_device_text(captured));
}
