// A backward pass that somebody watches.
#ifndef ND_LIB_AUTOGRAD_BACKWARD_H
#define ND_LIB_AUTOGRAD_BACKWARD_H
#include "lib/autograd/leaves.h"

/// As nd_backward(), for a watch (leaves.h): the gradients that it takes are not added to their
/// leaves. Recorded passes are refused. `watch->finish` is called once, whatever else fails.
nd_status nd__backward_watched(const char *operation, const nd_tensor *output,
                               const nd_backward_options *options, const nd_leaf_watch *watch);
#endif
