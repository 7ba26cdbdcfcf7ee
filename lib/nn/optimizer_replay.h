// Steps of optimizers in captured graphs.
#ifndef ND_LIB_NN_OPTIMIZER_REPLAY_H
#define ND_LIB_NN_OPTIMIZER_REPLAY_H
#include "lib/device/capture.h"
#include "lib/nn/optimizer_update.h"

/// Whether a parameter's update can be captured: its state is there, and it is a chain.
nd_status nd__optimizer_replay_check(const nd_optimizer *optimizer,
                                     const nd_parameter_state *state);

/// Captures a step, all of which can be: parameters and their counts of steps stay as they are.
/// Launches of the graph count, and go by the options as they are then. `chains` is empty.
nd_status nd__optimizer_replay_capture(nd_optimizer *optimizer, nd_optimizer_chains *chains);
#endif
