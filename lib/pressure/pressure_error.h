// The sentence at the end of a walk.
#ifndef ND_LIB_PRESSURE_PRESSURE_ERROR_H
#define ND_LIB_PRESSURE_PRESSURE_ERROR_H
#include "lib/manager/request.h"

/// Sets the error of a walk that ended with `status`, and returns it. Needs no memory.
nd_status nd__pressure_error(const nd_pressure *pressure, nd_status status);
#endif
