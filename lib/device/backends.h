// The backends that lib/device/registry.c knows.
//
// cpu is always there. cuda is weak: lib/device/cuda defines it where the build has the toolkit,
// and its library must be linked whole (alwayslink), because a weak reference alone pulls nothing
// out of an archive. One more may be added (registry.h).
#ifndef ND_LIB_DEVICE_BACKENDS_H
#define ND_LIB_DEVICE_BACKENDS_H
#include "lib/device/device.h"

extern const nd_backend nd__cpu_backend;
extern const nd_backend nd__cuda_backend __attribute__((weak));
#endif
