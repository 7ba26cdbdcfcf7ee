// Optimizers: SGD, Adam, AdamW.
//
// Invariant: a step looks at every parameter, gradient and state, and takes all memory it needs,
// before it changes the first parameter; after that only a failing device can stop it, and then the
// parameters before the failing one are updated and the others not. Updates are kernel calls in
// place, so nothing is recorded. State lives at its parameter's manager. Must not hold on to
// gradients.
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/device/registry.h"
#include "lib/manager/place.h"
#include "lib/nn/module.h"
#include "lib/nn/parameters.h"
#include "lib/object/callback.h"
#include "lib/object/edge.h"
#include "lib/object/object.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>

#include <math.h>
#include <string.h>

typedef enum nd_optimizer_kind { SGD, ADAM, ADAMW } nd_optimizer_kind;

// What an optimizer keeps for one parameter.
typedef struct nd_parameter_state {
    nd_tensor *parameter; ///< edge
    nd_tensor *first;  ///< edge: momentum, or first moment; NULL until the first step that needs it
    nd_tensor *second; ///< edge: second moment
    uint64_t steps;
} nd_parameter_state;

// What the constructors set.
typedef struct nd_optimizer_numbers {
    nd_optimizer_kind kind;
    double rate;
    double momentum;
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
} nd_optimizer_numbers;

struct nd_optimizer {
    nd_object header;
    nd_optimizer_numbers numbers;
    size_t count;
    nd_parameter_state states[]; ///< each parameter once
};

/// Devices that the parameters of one optimizer may be spread over.
#define DEVICES_MAX 16

// Memory that a step needs for a while: one tensor per device, as large as the largest parameter
// there.
typedef struct nd_scratch {
    nd_tensor *tensors[DEVICES_MAX]; ///< owned
    size_t count;
} nd_scratch;

static void traverse(const nd_object *self, nd_visitor *visitor);
static void clear(nd_object *self);
static const nd_type optimizer_type = {.size = sizeof(nd_type),
                                       .version = 1,
                                       .name = "optimizer",
                                       .traverse = traverse,
                                       .clear = clear};

static const char step_operation[] = "optimizer_step";

static nd_status check_number(const char *operation, const char *name, double value, double limit);
static nd_optimizer *new_optimizer(const char *operation, const nd_module *module,
                                   const nd_optimizer_numbers *numbers);
static nd_optimizer *new_adam(const char *operation, nd_optimizer_kind kind,
                              const nd_module *module, const nd_adam_options *options);
static nd_status check_optimizer(const char *operation, const nd_optimizer *optimizer);
static nd_status prepare(nd_optimizer *optimizer, nd_scratch *scratch);
static nd_status check_gradient(const nd_tensor *parameter);
static nd_status prepare_state(nd_optimizer *optimizer, nd_tensor **slot,
                               const nd_tensor *parameter);
static nd_status reserve_scratch(const nd_optimizer *optimizer, nd_scratch *scratch,
                                 nd_device device);
static nd_status update_sgd(const nd_optimizer_numbers *numbers, const nd_parameter_state *state);
static nd_status update_adam(const nd_optimizer_numbers *numbers, const nd_parameter_state *state,
                             const nd_scratch *scratch);
static nd_status apply(const nd_tensor *like, nd_op op, nd_operand out, nd_operand a,
                       const nd_operand *b, double value);

nd_optimizer *nd_sgd(const nd_module *module, const nd_sgd_options *options) {
    nd_sgd_options chosen = ND_SGD_OPTIONS_INIT;
    if (nd__versioned_read("sgd", "ND_SGD_OPTIONS_INIT", options, &chosen, sizeof chosen) != ND_OK)
        return NULL;
    nd_optimizer_numbers numbers = {.kind = SGD,
                                    .rate = chosen.rate,
                                    .momentum = chosen.momentum,
                                    .weight_decay = chosen.weight_decay};
    if (check_number("sgd", "momentum", chosen.momentum, INFINITY) != ND_OK)
        return NULL;
    return new_optimizer("sgd", module, &numbers);
}

nd_optimizer *nd_adam(const nd_module *module, const nd_adam_options *options) {
    nd_adam_options chosen = ND_ADAM_OPTIONS_INIT;
    if (nd__versioned_read("adam", "ND_ADAM_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
        ND_OK)
        return NULL;
    return new_adam("adam", ADAM, module, &chosen);
}

nd_optimizer *nd_adamw(const nd_module *module, const nd_adam_options *options) {
    nd_adam_options chosen = ND_ADAMW_OPTIONS_INIT;
    if (nd__versioned_read("adamw", "ND_ADAMW_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
        ND_OK)
        return NULL;
    return new_adam("adamw", ADAMW, module, &chosen);
}

nd_status nd_optimizer_step(nd_optimizer *optimizer) {
    nd_status status = check_optimizer(step_operation, optimizer);
    if (status == ND_OK)
        status = nd__callback_check(step_operation);
    if (status != ND_OK)
        return status;
    nd_scratch scratch = {.count = 0};
    status = prepare(optimizer, &scratch);
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++) {
        nd_parameter_state *state = &optimizer->states[i];
        if (!state->parameter->grad)
            continue;
        state->steps++;
        status = optimizer->numbers.kind == SGD ? update_sgd(&optimizer->numbers, state)
                                                : update_adam(&optimizer->numbers, state, &scratch);
        nd__tensor_bump_version(state->parameter);
    }
    for (size_t i = 0; i < scratch.count; i++)
        nd_release(scratch.tensors[i]);
    return status;
}

nd_status nd_optimizer_zero_grad(nd_optimizer *optimizer) {
    nd_status status = check_optimizer("optimizer_zero_grad", optimizer);
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++)
        status = nd_zero_grad(optimizer->states[i].parameter);
    return status;
}

nd_status nd_optimizer_set_rate(nd_optimizer *optimizer, double rate) {
    static const char operation[] = "optimizer_set_rate";
    nd_status status = check_optimizer(operation, optimizer);
    if (status == ND_OK)
        status = check_number(operation, "rate", rate, INFINITY);
    if (status == ND_OK)
        optimizer->numbers.rate = rate;
    return status;
}

static void traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_optimizer *optimizer = (const nd_optimizer *)self;
    const bool adam = optimizer->numbers.kind != SGD;
    for (size_t i = 0; i < optimizer->count; i++) {
        nd_visit(visitor, optimizer->states[i].parameter, "parameter");
        nd_visit(visitor, optimizer->states[i].first, adam ? "first_moment" : "momentum");
        nd_visit(visitor, optimizer->states[i].second, "second_moment");
    }
}

static void clear(nd_object *self) {
    nd_optimizer *optimizer = (nd_optimizer *)self;
    for (size_t i = 0; i < optimizer->count; i++) {
        nd_edge_clear(&optimizer->states[i].parameter);
        nd_edge_clear(&optimizer->states[i].first);
        nd_edge_clear(&optimizer->states[i].second);
    }
}

/// A finite number, at least zero and below `limit`.
static nd_status check_number(const char *operation, const char *name, double value, double limit) {
    if (value >= 0 && value < limit)
        return ND_OK;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is %g; it must be at least 0 and %s %g",
                     operation, name, value, isinf(limit) ? "finite, below" : "below", limit);
}

/// Optimizer with these numbers over the parameters of a module, in the current manager.
static nd_optimizer *new_optimizer(const char *operation, const nd_module *module,
                                   const nd_optimizer_numbers *numbers) {
    if (check_number(operation, "rate", numbers->rate, INFINITY) != ND_OK ||
        check_number(operation, "weight_decay", numbers->weight_decay, INFINITY) != ND_OK)
        return NULL;
    size_t count = 0;
    nd_tensor **parameters =
        nd__parameters_collect(operation, module, ND__MEMBER_PARAMETER, &count);
    if (!parameters)
        return NULL;
    nd_optimizer *optimizer = NULL;
    for (size_t i = 0; i < count; i++)
        if (parameters[i]->dtype != ND_F32) {
            nd__error(ND_ERROR_DTYPE, "%s: a parameter is %s; optimizers take float32", operation,
                      nd_dtype_get_name(parameters[i]->dtype));
            nd__alloc_free(parameters);
            return NULL;
        }
    if (count == 0)
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the module has no parameters", operation);
    else
        optimizer = (nd_optimizer *)nd__object_new(
            &optimizer_type, sizeof(*optimizer) + count * sizeof(*optimizer->states));
    if (optimizer) {
        optimizer->numbers = *numbers;
        optimizer->count = count;
        for (size_t i = 0; i < count; i++)
            optimizer->states[i].parameter = nd_retain(parameters[i]);
        optimizer = nd__place_publish_or_release(nd__place_begin(NULL, 0), &optimizer->header);
    }
    nd__alloc_free(parameters);
    return optimizer;
}

static nd_optimizer *new_adam(const char *operation, nd_optimizer_kind kind,
                              const nd_module *module, const nd_adam_options *options) {
    if (check_number(operation, "beta1", options->beta1, 1) != ND_OK ||
        check_number(operation, "beta2", options->beta2, 1) != ND_OK ||
        check_number(operation, "eps", options->eps, INFINITY) != ND_OK)
        return NULL;
    nd_optimizer_numbers numbers = {.kind = kind,
                                    .rate = options->rate,
                                    .beta1 = options->beta1,
                                    .beta2 = options->beta2,
                                    .eps = options->eps,
                                    .weight_decay = options->weight_decay};
    return new_optimizer(operation, module, &numbers);
}

static nd_status check_optimizer(const char *operation, const nd_optimizer *optimizer) {
    if (!optimizer)
        return nd__error_null(operation, "optimizer");
    if (nd__object_is_closed(optimizer))
        return nd__error(ND_ERROR_CLOSED, "%s: the optimizer was closed", operation);
    return ND_OK;
}

/// Everything that can be refused: closed tensors, gradients that do not fit, memory. A state that
/// was made stays when a later one cannot be: zeros, as if it had not been made.
static nd_status prepare(nd_optimizer *optimizer, nd_scratch *scratch) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++) {
        nd_parameter_state *state = &optimizer->states[i];
        const nd_tensor *parameter = state->parameter;
        status = check_optimizer(step_operation, optimizer); // a callback for memory may close it
        if (status == ND_OK)
            status = nd__tensor_check_operand(step_operation, "a parameter", parameter);
        if (status != ND_OK || !parameter->grad)
            continue;
        status = check_gradient(parameter);
        if (status == ND_OK && (optimizer->numbers.kind != SGD || optimizer->numbers.momentum > 0))
            status = prepare_state(optimizer, &state->first, parameter);
        if (status == ND_OK && optimizer->numbers.kind != SGD)
            status = prepare_state(optimizer, &state->second, parameter);
        if (status == ND_OK && optimizer->numbers.kind != SGD)
            status = reserve_scratch(optimizer, scratch, parameter->device);
    }
    return status;
}

static nd_status check_gradient(const nd_tensor *parameter) {
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
        "%s: a gradient of shape %s, %s, does not fit its parameter of shape %s, %s, "
        "on %s",
        step_operation, nd__shape_text(a, grad->ndim, grad->shape), nd_dtype_get_name(grad->dtype),
        nd__shape_text(b, parameter->ndim, parameter->shape), nd_dtype_get_name(parameter->dtype),
        nd__registry_device_text(parameter->device));
}

/// Makes missing state, at the parameter's manager, and lets state follow a parameter to another
/// device.
static nd_status prepare_state(nd_optimizer *optimizer, nd_tensor **slot,
                               const nd_tensor *parameter) {
    nd_tensor *state = *slot;
    if (state &&
        nd__tensor_check_operand(step_operation, "the state of a parameter", state) != ND_OK)
        return nd_error_get_status();
    if (state && nd__module_same_device(state->device, parameter->device))
        return ND_OK;
    nd_tensor *made = state ? nd__parameters_copy_to(step_operation, state, parameter,
                                                     parameter->device, state->dtype)
                            : nd_zeros_like(parameter);
    if (!made)
        return nd_error_get_status();
    nd__edge_set_in(&optimizer->header, slot, made);
    nd_release(made);
    return check_optimizer(step_operation, optimizer);
}

static nd_tensor *scratch_on(const nd_scratch *scratch, nd_device device) {
    for (size_t i = 0; i < scratch->count; i++)
        if (nd__module_same_device(scratch->tensors[i]->device, device))
            return scratch->tensors[i];
    return NULL;
}

/// Scratch on a device, as large as the largest parameter there.
static nd_status reserve_scratch(const nd_optimizer *optimizer, nd_scratch *scratch,
                                 nd_device device) {
    if (scratch_on(scratch, device))
        return ND_OK;
    if (scratch->count == DEVICES_MAX)
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: the parameters are spread over more than %d devices", step_operation,
                         DEVICES_MAX);
    const nd_tensor *largest = NULL;
    for (size_t i = 0; i < optimizer->count; i++) {
        const nd_tensor *parameter = optimizer->states[i].parameter;
        if (nd__module_same_device(parameter->device, device) &&
            (!largest || parameter->numel > largest->numel))
            largest = parameter;
    }
    nd_place place = nd__place_of(&largest->header);
    nd_tensor *made =
        nd__tensor_new(step_operation, place.manager, device, ND_F32, 1, &largest->numel);
    nd__place_end(place);
    if (!made)
        return nd_error_get_status();
    scratch->tensors[scratch->count++] = made;
    return ND_OK;
}

static nd_operand operand(const nd_tensor *x) {
    return nd__shape_broadcast_operand(x, x->ndim, x->shape);
}

/// v = momentum v + (g + weight_decay p); p -= rate v. Without momentum, where v is not kept: p =
/// (1 - rate weight_decay) p - rate g.
static nd_status update_sgd(const nd_optimizer_numbers *numbers, const nd_parameter_state *state) {
    const nd_tensor *parameter = state->parameter;
    const nd_operand p = operand(parameter);
    const nd_operand g = operand(parameter->grad);
    const double decay = numbers->weight_decay;
    nd_status status = ND_OK;
    if (numbers->momentum > 0) {
        const nd_operand v = operand(state->first);
        status = apply(parameter, ND_OP_mul_scalar, v, v, NULL, numbers->momentum);
        if (status == ND_OK)
            status = apply(parameter, ND_OP_add_scaled, v, v, &g, 1);
        if (status == ND_OK && decay > 0)
            status = apply(parameter, ND_OP_add_scaled, v, v, &p, decay);
        if (status == ND_OK)
            status = apply(parameter, ND_OP_add_scaled, p, p, &v, -numbers->rate);
        return status;
    }
    if (decay > 0)
        status = apply(parameter, ND_OP_mul_scalar, p, p, NULL, 1 - numbers->rate * decay);
    if (status == ND_OK)
        status = apply(parameter, ND_OP_add_scaled, p, p, &g, -numbers->rate);
    return status;
}

/// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// p -= rate / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps). Adam's decay adds to g, AdamW's
/// shrinks p.
static nd_status update_adam(const nd_optimizer_numbers *numbers, const nd_parameter_state *state,
                             const nd_scratch *scratch) {
    const nd_tensor *parameter = state->parameter;
    const nd_operand p = operand(parameter);
    const nd_operand m = operand(state->first);
    const nd_operand v = operand(state->second);
    nd_operand g = operand(parameter->grad);
    nd_operand s = p; // scratch, laid out as the parameter
    s.data = scratch_on(scratch, parameter->device)->data;
    const double decay = numbers->weight_decay;
    const double steps = (double)state->steps;
    const double correction1 = 1 - pow(numbers->beta1, steps);
    // Multiplying numerator and denominator by it spares a pass over the second moment.
    const double root_correction2 = sqrt(1 - pow(numbers->beta2, steps));
    nd_status status = ND_OK;
    if (decay > 0 && numbers->kind == ADAMW)
        status = apply(parameter, ND_OP_mul_scalar, p, p, NULL, 1 - numbers->rate * decay);
    if (status == ND_OK && decay > 0 && numbers->kind == ADAM) {
        status = apply(parameter, ND_OP_add_scaled, s, g, &p, decay);
        g = s;
    }
    const struct {
        nd_op op;
        nd_operand out, a;
        const nd_operand *b;
        double value;
    } sequence[] = {
        {ND_OP_mul_scalar, m, m, NULL, numbers->beta1},
        {ND_OP_add_scaled, m, m, &g, 1 - numbers->beta1},
        {ND_OP_square, s, g, NULL, 0},
        {ND_OP_mul_scalar, v, v, NULL, numbers->beta2},
        {ND_OP_add_scaled, v, v, &s, 1 - numbers->beta2},
        {ND_OP_sqrt, s, v, NULL, 0},
        {ND_OP_add_scalar, s, s, NULL, numbers->eps * root_correction2},
        {ND_OP_div, s, m, &s, 0},
        {ND_OP_add_scaled, p, p, &s, -numbers->rate * root_correction2 / correction1},
    };
    for (size_t i = 0; status == ND_OK && i < sizeof(sequence) / sizeof(*sequence); i++)
        status = apply(parameter, sequence[i].op, sequence[i].out, sequence[i].a, sequence[i].b,
                       sequence[i].value);
    return status;
}

/// out = op(a[, b]) elementwise over the shape of `like`; `value` is the op's number.
static nd_status apply(const nd_tensor *like, nd_op op, nd_operand out, nd_operand a,
                       const nd_operand *b, double value) {
    if (like->numel == 0)
        return ND_OK;
    nd_kernel_call call = {.op = op, .noperands = b ? 3 : 2, .ndim = like->ndim};
    memcpy(call.shape, like->shape, (size_t)like->ndim * sizeof *call.shape);
    call.operand[0] = out;
    call.operand[1] = a;
    if (b)
        call.operand[2] = *b;
    call.attrs.f[0] = value;
    nd__shape_collapse(&call);
    return nd__launch(step_operation, like->device, &call);
}
