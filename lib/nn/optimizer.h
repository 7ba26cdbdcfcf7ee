// Inside of optimizers: what one keeps for its parameters and groups.
//
// Invariant: every parameter stands in `states` once and belongs to one group. State tensors are
// edges, made at the first step that needs them: contiguous, of the parameter's shape and device,
// at its manager; f64 for a parameter of f64, else f32. A parameter of a half has a master: the
// same numbers in f32, which steps update, and of which the parameter is the rounded copy.
#ifndef ND_LIB_NN_OPTIMIZER_H
#define ND_LIB_NN_OPTIMIZER_H
#include "lib/nn/module.h"

typedef enum nd_optimizer_kind {
    ND__SGD,
    ND__ADAM,
    ND__ADAMW,
    ND__RMSPROP,
    ND__ADAGRAD,
    ND__LION,
    ND__OPTIMIZER_KINDS
} nd_optimizer_kind;

/// What a parameter's state tensors are. A kind uses some of them.
typedef enum nd_slot {
    ND__SLOT_MASTER, ///< the parameter in f32, when it is a half
    ND__SLOT_FIRST,  ///< momentum, or Adam's first moment
    ND__SLOT_SECOND, ///< mean or sum of squared gradients
    ND__SLOT_THIRD,  ///< mean of gradients (RMSprop, centered)
    ND__SLOTS
} nd_slot;

// What an optimizer keeps for one parameter.
typedef struct nd_parameter_state {
    nd_tensor *parameter;       ///< edge
    nd_tensor *slot[ND__SLOTS]; ///< edges; NULL until a step needs them
    uint64_t steps;             ///< updates of this parameter
    uint64_t version;           ///< of a half when its master was last equal to it
    size_t group;
} nd_parameter_state;

// The options of a group, by nd_optimizer_option.
typedef struct nd_optimizer_group {
    double option[ND_OPTIMIZER_OPTION_COUNT];
} nd_optimizer_group;

struct nd_optimizer {
    nd_object header;
    nd_optimizer_kind kind;
    nd_optimizer_group *groups;
    size_t group_count;
    char **names; ///< full names of the parameters in the module that it was made for
    bool
        is_finite; ///< whether all gradients were that a loss scaler has divided (ND__GRAD_DIVIDED)
    size_t count;
    nd_parameter_state states[]; ///< each parameter once
};

/// Owned optimizer in the current manager, with one group of these options. NULL with an error.
nd_optimizer *nd__optimizer_new(nd_optimizer_kind kind, const nd_module *module,
                                const nd_optimizer_group *group);
/// "OPERATION: the optimizer is NULL / was closed"; ND_OK when usable.
nd_status nd__optimizer_check(const char *operation, const nd_optimizer *optimizer);
/// What others say to a step that this optimizer is ready for, or not (`status`, with the thread's
/// error): ND_OK when it is to be made.
typedef nd_status (*nd_step_agreement)(void *data, nd_status status);
/// nd_optimizer_step(), which calls `agree` (NULL: nobody is asked) once, whatever has failed, and
/// before anything has changed: behind it only a failing device, or another thread that closed what
/// is stepped, can stop the step.
nd_status nd__optimizer_step(nd_optimizer *optimizer, nd_step_agreement agree, void *data);

/// The options of a parameter's group.
static inline const double *nd__optimizer_options(const nd_optimizer *optimizer,
                                                  const nd_parameter_state *state) {
    return optimizer->groups[state->group].option;
}
/// The dtype of a parameter's state.
static inline nd_dtype nd__optimizer_state_dtype(const nd_tensor *parameter) {
    return parameter->dtype == ND_F64 ? ND_F64 : ND_F32;
}
#endif
