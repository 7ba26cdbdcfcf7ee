// What lies below a manager that is disposed of.
#ifndef ND_LIB_MANAGER_GATHER_H
#define ND_LIB_MANAGER_GATHER_H
#include "lib/manager/manager.h"

/// Moves what is in the managers of a subtree, as nd__manager_subtree lists them, to the first of
/// them, while that is open; guests stay, with what is in their shard. False: no memory, and
/// nothing was done. (gather.c)
bool nd__gather_objects(const nd__manager_array *managers);
#endif
