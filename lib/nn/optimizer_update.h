// The formulas of the optimizers.
#ifndef ND_LIB_NN_OPTIMIZER_UPDATE_H
#define ND_LIB_NN_OPTIMIZER_UPDATE_H
#include "lib/nn/optimizer.h"
#include "lib/tensor/launch.h"

/// Devices that the parameters of one optimizer may be spread over.
#define ND__OPTIMIZER_DEVICES_MAX 16

// Memory that a step needs for a while: up to two tensors per device, each as large as the largest
// parameter there; NULL: no formula wants it.
typedef struct nd_scratch {
    struct {
        nd_device device;
        nd_tensor *gradient; ///< owned: a gradient in the dtype of the state, or with its decay
        nd_tensor *number;   ///< owned: what a formula has in between
    } on[ND__OPTIMIZER_DEVICES_MAX];
    size_t count;
} nd_scratch;

// Updates that have been asked for and not run: of parameters on one device, none of which lies in
// the memory of another or of its gradient.
typedef struct nd_optimizer_chains {
    nd_device device;
    size_t count;
    size_t begun;  ///< updates of the step that have run, or have begun to
    size_t failed; ///< of `states`, whose updates were to run together and have not
    /// Memory of the device with the numbers of each parameter's update, in the order of the
    /// optimizer's, ND__OPTIMIZER_NUMBERS bytes each; NULL: updates have their own.
    const char *numbers;
    nd_chain chains[ND__LAUNCH_CHAINS_MAX];
    const nd_parameter_state *states[ND__LAUNCH_CHAINS_MAX];
} nd_optimizer_chains;

/// Bytes of the numbers of an update.
#define ND__OPTIMIZER_NUMBERS (ND_CHAIN_STEPS * sizeof(double))
/// The operations and numbers of a parameter's update, as if so many updates were counted, without
/// its memory.
nd_chain nd__optimizer_update_describe(const nd_optimizer *optimizer,
                                       const nd_parameter_state *state, uint64_t steps);

/// Whether the update of a parameter is a chain: its gradient is dense, and its device takes chains.
/// Then it needs no scratch.
bool nd__optimizer_update_is_chain(const nd_parameter_state *state);

/// Scratch on the device of a parameter, for every parameter of the optimizer there.
nd_status nd__optimizer_update_reserve(const nd_optimizer *optimizer, nd_scratch *scratch,
                                       nd_device device);
void nd__optimizer_update_release(nd_scratch *scratch);

/// The slots that an update of this parameter uses: bits 1 << nd_slot.
unsigned nd__optimizer_update_slots(const nd_optimizer *optimizer, const nd_parameter_state *state);

/// One update of a parameter that has a gradient: slots and scratch are there, steps is counted. It
/// has run when nd__optimizer_update_finish() has.
nd_status nd__optimizer_update(const nd_optimizer *optimizer, const nd_parameter_state *state,
                               const nd_scratch *scratch, nd_optimizer_chains *chains);
/// Runs what was collected, all of it or, on an error, nothing but where the device fails.
nd_status nd__optimizer_update_finish(nd_optimizer_chains *chains);
#endif
