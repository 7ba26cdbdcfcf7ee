// Programs' callbacks for memory.
#ifndef ND_LIB_PRESSURE_PRESSURE_CALLBACK_H
#define ND_LIB_PRESSURE_PRESSURE_CALLBACK_H
#include "lib/manager/request.h"

/// Asks the callbacks. `status`: of the last attempt; returns that of the new last one.
nd_status nd__pressure_ask(nd_pressure *pressure, nd_status status);

/// A manager that closes gives up its callback.
void nd__pressure_forget(nd_manager *manager);
#endif
