// The random keys of modules that several ranks train.
//
// Invariant: rank 0 has the keys that its program gave, and so a file has; every other rank has these
// with its number folded in, and has drawn as many. So ranks drop other elements of their samples,
// and a file fits any number of ranks.
#ifndef ND_LIB_DISTRIBUTED_KEYS_H
#define ND_LIB_DISTRIBUTED_KEYS_H
#include "lib/distributed/communicator.h"

/// A collective call: makes that so for a module and all modules in it.
nd_status nd__keys_share(const nd_module *module, const nd_communicator *comm);
#endif
