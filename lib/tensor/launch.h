// From an operation to its kernel: the dispatch over the table of devices.
#ifndef ND_LIB_TENSOR_LAUNCH_H
#define ND_LIB_TENSOR_LAUNCH_H
#include "lib/device/device.h"

/// Hands a call to the backend of `device`; turns a failing status into an error that starts with
/// `operation`.
nd_status nd__launch(const char *operation, nd_device device, const nd_kernel_call *call);
#endif
