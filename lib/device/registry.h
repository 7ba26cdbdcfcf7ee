// Which backend serves which kind of device, and the public functions about devices.
#ifndef ND_LIB_DEVICE_REGISTRY_H
#define ND_LIB_DEVICE_REGISTRY_H
#include "lib/device/device.h"

/// Backend of a kind; never NULL: a kind that is not built in has a table whose device_count
/// answers 0 and whose other functions answer ND_ERROR_DEVICE. Inside a callback that a device runs
/// (lib/object/callback.h) every kind but the CPU has a table that answers ND_ERROR_STATE.
const nd_backend *nd__registry_backend(nd_device_kind kind);

/// ND_OK when the device exists, else ND_ERROR_DEVICE with a sentence ("no CUDA device", "cpu:3:
/// there is 1 cpu device"). ND_ERROR_STATE inside a callback that a device runs.
nd_status nd__registry_device_check(const char *operation, nd_device device);

/// "cpu:0"; the text is static or thread-local.
const char *nd__registry_device_text(nd_device device);
/// What a device answered, for the end of an error's sentence. Of queued work it says
/// ND_ERROR_INVALID_ARGUMENT for one reason alone, which is named.
const char *nd__registry_answer_text(nd_status status);

/// nd_synchronize(), in whose errors another function is named: that which the user called.
nd_status nd__registry_synchronize(const char *operation, nd_device device);

/// The backend of the kind behind the public ones (lib/base/kind.h), which is called as it says.
/// For programs that bring one, before main; the library adds none.
void nd__registry_add(const nd_backend *backend);
#endif
