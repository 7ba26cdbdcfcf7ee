// A direction of a recurrent net as one node.
#ifndef ND_LIB_OPS_RECURRENT_WALK_H
#define ND_LIB_OPS_RECURRENT_WALK_H
#include "lib/ops/recurrent_direction.h"

/// Step after step by kernels of a whole step, unrecorded but for one node, whose gradients are of any
/// order. The input has elements.
nd_status nd__recurrent_walk(const nd__recurrent_direction *direction,
                             nd__recurrent_result *ret_result);
#endif
