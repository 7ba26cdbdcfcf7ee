// What outlives its manager.
#ifndef ND_LIB_MANAGER_ESCAPE_H
#define ND_LIB_MANAGER_ESCAPE_H
#include "lib/manager/manager.h"

/// Moves all objects of a closing manager, of which there are `live`, to an ancestor of it, under both locks, and their bytes
/// off the accounts on the way. Returns how many; adds their bytes to those of each kind. `past`:
/// to the closing `target`, off the account of the manager alone; else to `target` or the nearest
/// open ancestor of it, `remembered`: as the latest of its shard for what escaped. With a report
/// they count as escaped, with their sites.
uint64_t nd__escape_all(nd_manager *from, uint64_t live, nd_manager *target, bool past,
                        bool remembered, uint64_t *bytes, nd_close_report *report);
#endif
