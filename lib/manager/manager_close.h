// How a manager closes, as the end of its last handle sees it.
#ifndef ND_LIB_MANAGER_MANAGER_CLOSE_H
#define ND_LIB_MANAGER_MANAGER_CLOSE_H
#include "lib/manager/manager.h"

/// Closes a manager that nobody holds any more; nothing happens when it was closed before. Runs
/// user code.
void nd__manager_close_unheld(nd_manager *manager);
#endif
