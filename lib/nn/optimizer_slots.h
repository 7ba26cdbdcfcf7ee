// State tensors of an optimizer's parameters: how they begin, and how they follow a parameter that was
// cast or moved.
#ifndef ND_LIB_NN_OPTIMIZER_SLOTS_H
#define ND_LIB_NN_OPTIMIZER_SLOTS_H
#include "lib/nn/optimizer.h"

/// What a step has made for its parameters and they have not got yet: a step that is refused changes
/// nothing.
typedef struct nd_made_slots {
    struct nd_made_slot *list; ///< NULL: none yet
    size_t count, room;
} nd_made_slots;

/// Makes, of those state tensors of a parameter that `slots` names (bits), each that is missing or does
/// not fit the parameter any more; and the numbers of a master where somebody has written the half since
/// the last step. Changes nothing of the optimizer.
nd_status nd__optimizer_slots_make(const char *operation, const nd_optimizer *optimizer,
                                   const nd_parameter_state *state, unsigned slots,
                                   nd_made_slots *made);
/// Hands over what was made. Only a failing device, or who closed the optimizer, can stop it.
nd_status nd__optimizer_slots_take(const char *operation, nd_optimizer *optimizer,
                                   const nd_made_slots *made);
void nd__optimizer_slots_release(nd_made_slots *made);

/// One state tensor of a parameter, owned, for it to take: new when it is missing, a copy when the
/// parameter is on another device now, NULL when the one it has fits. Changes nothing.
nd_status nd__optimizer_slots_make_one(const char *operation, const nd_optimizer *optimizer,
                                       const nd_parameter_state *state, nd_slot slot,
                                       nd_tensor **ret_made);
/// The same for the parameter to have at once.
nd_status nd__optimizer_slots_prepare_one(const char *operation, nd_optimizer *optimizer,
                                          nd_parameter_state *state, nd_slot slot);
#endif
