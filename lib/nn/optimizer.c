// Optimizers: parameters, their groups and options, and the step.
//
// Invariant: a step looks at every parameter, gradient and state, and takes all memory it needs,
// before it changes the first parameter; after that only a failing device can stop it, and then the
// parameters before the failing one are updated and the others not. State lives at its parameter's
// manager. Must not hold on to gradients.
#include "lib/nn/optimizer.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/manager/place.h"
#include "lib/nn/optimizer_kinds.h"
#include "lib/nn/optimizer_replay.h"
#include "lib/nn/optimizer_slots.h"
#include "lib/nn/optimizer_update.h"
#include "lib/nn/parameters.h"
#include "lib/object/callback.h"
#include "lib/object/edge.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/create.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/ops.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static void traverse(const nd_object *self, nd_visitor *visitor);
static void clear(nd_object *self);
static void destroy(nd_object *self);
static const nd_type optimizer_type = {.size = sizeof(nd_type),
                                       .version = 1,
                                       .name = "optimizer",
                                       .traverse = traverse,
                                       .clear = clear,
                                       .destroy = destroy};

static const char step_operation[] = "optimizer_step";

static nd_status prepare(nd_optimizer *optimizer, nd_scratch *scratch, nd_made_slots *made);
static nd_status check_again(const nd_optimizer *optimizer);
static nd_status prepare_parameter(const nd_optimizer *optimizer, const nd_parameter_state *state,
                                   nd_scratch *scratch, nd_made_slots *made);
static nd_status check_gradient(const nd_optimizer *optimizer, const nd_parameter_state *state);
static nd_status check_group(const char *operation, const nd_optimizer *optimizer, size_t group,
                             nd_optimizer_option option);

nd_status nd_optimizer_step(nd_optimizer *optimizer) {
    return nd__optimizer_step(optimizer, NULL, NULL);
}

nd_status nd__optimizer_step(nd_optimizer *optimizer, nd_step_agreement agree, void *data) {
    nd_scratch scratch = {.count = 0};
    nd_made_slots made = {.list = NULL};
    nd_optimizer_chains chains;
    chains.count = chains.begun = chains.failed = 0;
    chains.numbers = NULL;
    nd_status status = nd__optimizer_check(step_operation, optimizer);
    if (status == ND_OK)
        status = nd__callback_check(step_operation);
    if (status == ND_OK)
        status = prepare(optimizer, &scratch, &made);
    if (agree)
        status = agree(data, status);
    if (agree && status == ND_OK)
        status = check_again(optimizer);
    if (status == ND_OK)
        status = nd__optimizer_slots_take(step_operation, optimizer, &made);
    nd__optimizer_slots_release(&made);
    if (status == ND_OK && nd__capture_running())
        return nd__optimizer_replay_capture(optimizer, &chains); // which needs no scratch
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++) {
        nd_parameter_state *state = &optimizer->states[i];
        if (!state->parameter->grad)
            continue;
        state->steps++;
        status = nd__optimizer_update(optimizer, state, &scratch, &chains);
        if (status != ND_OK)
            state->steps--;
        nd__tensor_bump_version(state->parameter);
        state->version = nd__tensor_version(state->parameter);
    }
    if (status == ND_OK)
        status = nd__optimizer_update_finish(&chains);
    for (size_t i = 0; i < chains.failed; i++)
        optimizer->states[chains.states[i] - optimizer->states].steps--;
    nd__optimizer_update_release(&scratch);
    if (status == ND_ERROR_OUT_OF_MEMORY && chains.begun > 0) {
        char of_kernel[256]; // the error that there is
        snprintf(of_kernel, sizeof of_kernel, "%s", nd_error_get_message());
        status = nd__error(ND_ERROR_DEVICE, "%s, when %zu of the parameters were changed",
                           of_kernel, chains.begun);
    }
    return status;
}

nd_status nd_optimizer_zero_grad(nd_optimizer *optimizer) {
    static const char operation[] = "optimizer_zero_grad";
    nd_status status = nd__optimizer_check(operation, optimizer);
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++)
        status = nd__tensor_check_operand(operation, "a parameter", optimizer->states[i].parameter);
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++)
        status = nd_zero_grad(optimizer->states[i].parameter);
    return status;
}

// -------------------------------------------------------------------------------------------------
// groups and options

nd_status nd_optimizer_add_group(nd_optimizer *optimizer, size_t count,
                                 const nd_tensor *const *parameters, size_t *ret_group) {
    static const char operation[] = "optimizer_add_group";
    nd_status status = nd__optimizer_check(operation, optimizer);
    if (status == ND_OK && count > 0 && !parameters)
        status = nd__error_null(operation, "parameters");
    for (size_t k = 0; status == ND_OK && k < count; k++) {
        size_t i = 0;
        while (i < optimizer->count && optimizer->states[i].parameter != parameters[k])
            i++;
        if (!parameters[k])
            status = nd__error_null(operation, "a parameter");
        else if (i == optimizer->count)
            status = nd__error(ND_ERROR_INVALID_ARGUMENT,
                               "%s: parameters[%zu] is none of the optimizer's", operation, k);
    }
    if (status != ND_OK)
        return status;
    const size_t group = optimizer->group_count;
    nd_optimizer_group *groups = nd__pressure_alloc((group + 1) * sizeof *groups);
    if (!groups)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu groups", operation,
                         group + 1);
    status = nd__optimizer_check(operation, optimizer); // a callback for memory may have closed it
    if (status == ND_OK && group != optimizer->group_count)
        status = nd__error(ND_ERROR_STATE, "%s: a callback for memory added a group", operation);
    if (status != ND_OK) {
        nd__alloc_free(groups);
        return status;
    }
    memcpy(groups, optimizer->groups, group * sizeof *groups);
    groups[group] = groups[0];
    nd__alloc_free(optimizer->groups);
    optimizer->groups = groups;
    optimizer->group_count++;
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < optimizer->count; i++)
            if (optimizer->states[i].parameter == parameters[k])
                optimizer->states[i].group = group;
    if (ret_group)
        *ret_group = group;
    return ND_OK;
}

size_t nd_optimizer_get_group_count(const nd_optimizer *optimizer) {
    return optimizer ? optimizer->group_count : 0;
}

nd_status nd_optimizer_set_option(nd_optimizer *optimizer, size_t group, nd_optimizer_option option,
                                  double value) {
    static const char operation[] = "optimizer_set_option";
    nd_status status = check_group(operation, optimizer, group, option);
    if (status == ND_OK)
        status = nd__optimizer_kinds_check(operation, option, value);
    if (status != ND_OK)
        return status;
    nd_optimizer_group changed = optimizer->groups[group];
    changed.option[option] = value;
    status = nd__optimizer_kinds_check_group(operation, &changed);
    if (status == ND_OK)
        optimizer->groups[group] = changed;
    return status;
}

double nd_optimizer_get_option(const nd_optimizer *optimizer, size_t group,
                               nd_optimizer_option option) {
    if (check_group("optimizer_get_option", optimizer, group, option) != ND_OK)
        return NAN;
    return optimizer->groups[group].option[option];
}

nd_status nd_optimizer_set_rate(nd_optimizer *optimizer, double rate) {
    static const char operation[] = "optimizer_set_rate";
    nd_status status = nd__optimizer_check(operation, optimizer);
    if (status == ND_OK)
        status = nd__optimizer_kinds_check(operation, ND_OPTIMIZER_RATE, rate);
    for (size_t i = 0; status == ND_OK && i < optimizer->group_count; i++)
        optimizer->groups[i].option[ND_OPTIMIZER_RATE] = rate;
    return status;
}

static nd_status check_group(const char *operation, const nd_optimizer *optimizer, size_t group,
                             nd_optimizer_option option) {
    nd_status status = nd__optimizer_check(operation, optimizer);
    if (status == ND_OK && group >= optimizer->group_count)
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: group %zu of an optimizer that has %zu",
                           operation, group, optimizer->group_count);
    if (status != ND_OK)
        return status;
    const nd_optimizer_info *info = &nd__optimizer_infos[optimizer->kind];
    if ((unsigned)option >= ND_OPTIMIZER_OPTION_COUNT)
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: there is no option number %d", operation,
                           (int)option);
    else if (!(info->options & (1u << option)))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s has no option %s", operation,
                           info->name, nd__optimizer_kinds_option(option));
    return status;
}

// -------------------------------------------------------------------------------------------------
// the object

nd_status nd__optimizer_check(const char *operation, const nd_optimizer *optimizer) {
    if (!optimizer)
        return nd__error_null(operation, "optimizer");
    if (nd__object_is_closed(optimizer))
        return nd__error(ND_ERROR_CLOSED, "%s: the optimizer was closed", operation);
    return ND_OK;
}

nd_optimizer *nd__optimizer_new(nd_optimizer_kind kind, const nd_module *module,
                                const nd_optimizer_group *group) {
    const char *operation = nd__optimizer_infos[kind].name;
    for (int option = 0; option < ND_OPTIMIZER_OPTION_COUNT; option++)
        if ((nd__optimizer_infos[kind].options & (1u << option)) &&
            nd__optimizer_kinds_check(operation, (nd_optimizer_option)option,
                                      group->option[option]) != ND_OK)
            return NULL;
    size_t count = 0;
    nd_tensor **parameters =
        nd__parameters_collect(operation, module, ND__MEMBER_PARAMETER, &count);
    if (!parameters)
        return NULL;
    nd_optimizer *optimizer = NULL;
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < count; i++)
        status = nd__tensor_check_operand(operation, "a parameter", parameters[i]);
    if (status == ND_OK && count == 0)
        status =
            nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the module has no parameters", operation);
    if (status == ND_OK)
        optimizer = (nd_optimizer *)nd__object_new(
            &optimizer_type, sizeof(*optimizer) + count * sizeof(*optimizer->states));
    if (optimizer) {
        optimizer->kind = kind;
        optimizer->count = count;
        for (size_t i = 0; i < count; i++)
            optimizer->states[i].parameter = nd_retain(parameters[i]);
        optimizer->group_count = 1;
        optimizer->groups = nd__pressure_alloc(sizeof *group);
        if (optimizer->groups)
            optimizer->groups[0] = *group;
        else
            nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a group of options", operation);
        optimizer->names =
            nd__parameters_names(operation, module, ND__MEMBER_PARAMETER, parameters, count);
        if (!optimizer->groups || !optimizer->names) {
            nd_release(optimizer);
            optimizer = NULL;
        }
    }
    nd__alloc_free(parameters);
    return optimizer ? nd__place_publish_or_release(nd__place_begin(NULL, 0), &optimizer->header)
                     : NULL;
}

static void traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_optimizer *optimizer = (const nd_optimizer *)self;
    const nd_optimizer_info *info = &nd__optimizer_infos[optimizer->kind];
    for (size_t i = 0; i < optimizer->count; i++) {
        nd_visit(visitor, optimizer->states[i].parameter, "parameter");
        for (int slot = 0; slot < ND__SLOTS; slot++)
            nd_visit(visitor, optimizer->states[i].slot[slot],
                     info->slots[slot] ? info->slots[slot] : "state");
    }
}

static void clear(nd_object *self) {
    nd_optimizer *optimizer = (nd_optimizer *)self;
    for (size_t i = 0; i < optimizer->count; i++) {
        nd_edge_clear(&optimizer->states[i].parameter);
        for (int slot = 0; slot < ND__SLOTS; slot++)
            nd_edge_clear(&optimizer->states[i].slot[slot]);
    }
}

static void destroy(nd_object *self) {
    nd_optimizer *optimizer = (nd_optimizer *)self;
    nd__alloc_free(optimizer->names);
    optimizer->names = NULL;
    nd__alloc_free(optimizer->groups);
    optimizer->groups = NULL;
    optimizer->group_count = 0;
}

// -------------------------------------------------------------------------------------------------
// before a step

/// Everything that can be refused: closed tensors, gradients that do not fit, memory.
static nd_status prepare(nd_optimizer *optimizer, nd_scratch *scratch, nd_made_slots *made) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++) {
        nd_parameter_state *state = &optimizer->states[i];
        status = nd__optimizer_check(step_operation, optimizer); // a callback may have closed it
        if (status == ND_OK)
            status = nd__tensor_check_operand(step_operation, "a parameter", state->parameter);
        if (status == ND_OK)
            status = nd__tensor_check_writable(step_operation, "a parameter", state->parameter);
        if (status == ND_OK && state->parameter->grad)
            status = prepare_parameter(optimizer, state, scratch, made);
    }
    return status == ND_OK ? nd__optimizer_check(step_operation, optimizer) : status;
}

/// Behind a wait for others, in which another thread may have closed what was looked at.
static nd_status check_again(const nd_optimizer *optimizer) {
    nd_status status = nd__optimizer_check(step_operation, optimizer);
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++) {
        const nd_parameter_state *state = &optimizer->states[i];
        status = nd__tensor_check_operand(step_operation, "a parameter", state->parameter);
        if (status != ND_OK || !state->parameter->grad)
            continue;
        status = check_gradient(optimizer, state);
        for (int slot = 0; status == ND_OK && slot < ND__SLOTS; slot++)
            if (state->slot[slot])
                status = nd__tensor_check_operand(step_operation, "the state of a parameter",
                                                  state->slot[slot]);
    }
    return status;
}

static nd_status prepare_parameter(const nd_optimizer *optimizer, const nd_parameter_state *state,
                                   nd_scratch *scratch, nd_made_slots *made) {
    nd_status status = check_gradient(optimizer, state);
    if (status == ND_OK && nd__capture_running())
        return nd__optimizer_replay_check(optimizer, state);
    if (status == ND_OK)
        status = nd__optimizer_slots_make(step_operation, optimizer, state,
                                          nd__optimizer_update_slots(optimizer, state), made);
    return status != ND_OK || nd__optimizer_update_is_chain(state)
               ? status
               : nd__optimizer_update_reserve(optimizer, scratch, state->parameter->device);
}

static nd_status check_gradient(const nd_optimizer *optimizer, const nd_parameter_state *state) {
    const nd_tensor *parameter = state->parameter;
    const nd_tensor *grad = parameter->grad;
    nd_status status = nd__tensor_check_operand(step_operation, "a gradient", grad);
    if (status != ND_OK)
        return status;
    bool same_shape = grad->ndim == parameter->ndim;
    for (int axis = 0; same_shape && axis < grad->ndim; axis++)
        same_shape = grad->shape[axis] == parameter->shape[axis];
    if (same_shape && grad->dtype == parameter->dtype &&
        nd__module_same_device(grad->device, parameter->device))
        return ND_OK;
    char a[ND__SHAPE_TEXT];
    char b[ND__SHAPE_TEXT];
    return nd__error(
        ND_ERROR_STATE,
        "%s: a gradient of shape %s, %s, does not fit its parameter '%.100s' of shape %s, %s, "
        "on %s",
        step_operation, nd__shape_text(a, grad->ndim, grad->shape), nd_dtype_get_name(grad->dtype),
        optimizer->names[state - optimizer->states],
        nd__shape_text(b, parameter->ndim, parameter->shape), nd_dtype_get_name(parameter->dtype),
        nd__registry_device_text(parameter->device));
}
