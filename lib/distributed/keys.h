// The random keys of modules that several ranks train.
//
// Invariant: rank 0 has the keys that its program gave, and so a file has; every other rank has these
// with its number folded in, and has drawn as many. So ranks drop other elements of their samples,
// and a file fits any number of ranks.
#ifndef ND_LIB_DISTRIBUTED_KEYS_H
#define ND_LIB_DISTRIBUTED_KEYS_H
#include "lib/distributed/communicator.h"

/// A collective call: owned numbers of rank 0's keys, of a module and all modules in it. NULL with
/// an error on all ranks where one of them has no memory.
nd_tensor *nd__keys_ask(const char *operation, const nd_module *module,
                        const nd_communicator *comm);
/// Makes that so by these numbers, of the same module.
void nd__keys_take(const nd_module *module, const nd_communicator *comm, const nd_tensor *numbers);
#endif
