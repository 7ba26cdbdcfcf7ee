// Managers around fork().
#ifndef ND_LIB_MANAGER_MANAGER_FORK_H
#define ND_LIB_MANAGER_MANAGER_FORK_H
#include "lib/manager/manager.h"

/// Locks every shard there is; unlocks them, in the child with what is to be settled there
/// (manager_fork.c).
void nd__manager_fork_before(void);
void nd__manager_fork_after(bool child);
#endif
