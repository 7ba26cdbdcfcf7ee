// A direction of a recurrent net by recorded operations.
#ifndef ND_LIB_OPS_RECURRENT_STEPS_H
#define ND_LIB_OPS_RECURRENT_STEPS_H
#include "lib/ops/recurrent_direction.h"

/// What nd__recurrent_walk() gives, some ten nodes for each step: of this the gradient of its node is
/// the gradient where it is itself recorded.
nd_status nd__recurrent_steps(const nd__recurrent_direction *direction,
                              nd__recurrent_result *ret_result);
#endif
