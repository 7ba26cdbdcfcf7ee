// State tensors of parameters. What a step makes waits in a list until nothing can refuse the step.
#include "lib/nn/optimizer_slots.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/manager/place.h"
#include "lib/nn/parameters.h"
#include "lib/object/edge.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/create.h"
#include <nd/autograd.h>
#include <nd/ops.h>

/// A tensor for a parameter to have.
typedef struct nd_made_slot {
    size_t at; ///< the parameter's number
    nd_slot slot;
    nd_tensor *before; ///< what is there; borrowed, for comparison alone
    nd_tensor *tensor; ///< owned
    bool is_value;     ///< its numbers are for the one that is there
    uint64_t version;  ///< of the parameter, whose master this is
} nd_made_slot;

/// State as it is before the first step: the parameter's values for a master, the initial value of
/// Adagrad's sums, else zeros.
static nd_tensor *initial_slot(const char *operation, const nd_optimizer *optimizer,
                               const nd_parameter_state *state, nd_slot slot) {
    const nd_tensor *parameter = state->parameter;
    const nd_dtype dtype = nd__optimizer_state_dtype(parameter);
    if (slot == ND__SLOT_MASTER)
        return nd__parameters_copy_to(operation, parameter, parameter, parameter->device, dtype);
    double value = 0;
    if (slot == ND__SLOT_SECOND && optimizer->kind == ND__ADAGRAD)
        value = nd__optimizer_options(optimizer, state)[ND_OPTIMIZER_INITIAL];
    nd_place place = nd__place_of(&parameter->header);
    nd_tensor *made = nd__tensor_new(operation, place.manager, parameter->device, dtype,
                                     parameter->ndim, parameter->shape);
    nd__place_end(place);
    return nd__create_filled(operation, made, ND_NUMBER(value));
}

nd_status nd__optimizer_slots_make_one(const char *operation, const nd_optimizer *optimizer,
                                       const nd_parameter_state *state, nd_slot slot,
                                       nd_tensor **ret_made) {
    *ret_made = NULL;
    const nd_tensor *parameter = state->parameter;
    const nd_tensor *there = state->slot[slot];
    if (there && nd__tensor_check_operand(operation, "the state of a parameter", there) != ND_OK)
        return nd_error_get_status();
    const nd_dtype dtype = nd__optimizer_state_dtype(parameter);
    if (there && nd__module_same_device(there->device, parameter->device) && there->dtype == dtype)
        return ND_OK;
    nd_tensor *made =
        there ? nd__parameters_copy_to(operation, there, parameter, parameter->device, dtype)
              : initial_slot(operation, optimizer, state, slot);
    *ret_made = made;
    return made ? ND_OK : nd_error_get_status();
}

nd_status nd__optimizer_slots_prepare_one(const char *operation, nd_optimizer *optimizer,
                                          nd_parameter_state *state, nd_slot slot) {
    nd_tensor *made;
    nd_status status = nd__optimizer_slots_make_one(operation, optimizer, state, slot, &made);
    if (status != ND_OK || !made)
        return status;
    nd__edge_set_in(&optimizer->header, &state->slot[slot], made);
    nd_release(made);
    return nd__optimizer_check(operation, optimizer);
}

/// The numbers of a master whose half somebody has written since the last step (its file was loaded,
/// say): where the half is no longer the rounded master, its own.
static nd_tensor *merge(const nd_tensor *master, const nd_tensor *parameter) {
    nd_grad_block block = nd__grad_block_begin(false);
    nd_auto nd_tensor *rounded = nd_cast(master, parameter->dtype);
    nd_auto nd_tensor *wide_rounded = nd_cast(rounded, ND_F32);
    nd_auto nd_tensor *wide = nd_cast(parameter, ND_F32);
    nd_auto nd_tensor *same = nd_equal(wide_rounded, wide);
    nd_tensor *merged = nd_where(same, master, wide);
    nd__grad_block_end(&block);
    return merged;
}

/// Consumes `tensor`, which may be NULL: nothing was made.
static nd_status keep(const char *operation, const nd_optimizer *optimizer,
                      const nd_parameter_state *state, nd_slot slot, nd_tensor *tensor,
                      bool is_value, nd_made_slots *made) {
    if (!tensor)
        return ND_OK;
    if (made->count == made->room) {
        const size_t room = 2 * made->room + 16;
        nd_made_slot *grown = nd__pressure_alloc_resize(made->list, room * sizeof *grown);
        if (!grown) {
            nd_release(tensor);
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu tensors",
                             operation, room);
        }
        made->list = grown;
        made->room = room;
    }
    made->list[made->count++] = (nd_made_slot){
        (size_t)(state - optimizer->states), slot, state->slot[slot], tensor, is_value,
        nd__tensor_version(state->parameter)};
    return nd__optimizer_check(operation, optimizer); // a callback for memory may have closed it
}

nd_status nd__optimizer_slots_make(const char *operation, const nd_optimizer *optimizer,
                                   const nd_parameter_state *state, unsigned slots,
                                   nd_made_slots *made) {
    nd_status status = ND_OK;
    for (int slot = 0; status == ND_OK && slot < ND__SLOTS; slot++) {
        if (!(slots & (1u << slot)))
            continue;
        nd_auto nd_tensor *tensor = NULL;
        bool is_value = false;
        status = nd__optimizer_slots_make_one(operation, optimizer, state, (nd_slot)slot, &tensor);
        const nd_tensor *there = state->slot[slot];
        if (status == ND_OK && slot == ND__SLOT_MASTER && there &&
            nd__tensor_version(state->parameter) != state->version) {
            is_value = !tensor;
            nd_tensor *merged = merge(tensor ? tensor : there, state->parameter);
            nd_release(tensor);
            tensor = merged;
            status = merged ? ND_OK : nd_error_get_status();
        }
        if (status == ND_OK)
            status =
                keep(operation, optimizer, state, (nd_slot)slot, nd_steal(&tensor), is_value, made);
    }
    return status;
}

nd_status nd__optimizer_slots_take(const char *operation, nd_optimizer *optimizer,
                                   const nd_made_slots *made) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < made->count; i++) {
        const nd_made_slot *one = &made->list[i];
        nd_parameter_state *state = &optimizer->states[one->at];
        if (state->slot[one->slot] != one->before)
            continue; // a callback for memory has made a step, or loaded a state
        if (one->is_value)
            status = nd__copy_into(operation, state->slot[one->slot], one->tensor);
        else if (!nd__edge_set_in(&optimizer->header, &state->slot[one->slot], one->tensor))
            status = nd__optimizer_check(operation, optimizer);
        if (status == ND_OK && one->slot == ND__SLOT_MASTER)
            state->version = one->version;
    }
    return status;
}

void nd__optimizer_slots_release(nd_made_slots *made) {
    for (size_t i = 0; i < made->count; i++)
        nd_release(made->list[i].tensor);
    nd__alloc_free(made->list);
    *made = (nd_made_slots){.list = NULL};
}
