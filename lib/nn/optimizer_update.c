// The formulas of the optimizers, as kernel calls in place: nothing is recorded.
//
// Invariant: an update reads the gradient and writes the parameter, its slots and scratch alone.
// Everything is computed in the dtype of the state, f64 or f32; a half is written once, rounded
// from its master.
#include "lib/nn/optimizer_update.h"
#include "lib/base/error.h"
#include "lib/manager/place.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"

#include <math.h>
#include <string.h>

static const char operation[] = "optimizer_step";

// The operands of one update. The first failure stays: what follows does nothing.
typedef struct nd_update {
    const nd_tensor *like; ///< the parameter: shape and device
    const double *option;  ///< of its group
    uint64_t steps;
    nd_operand p;    ///< the parameter, or its master
    nd_operand g;    ///< the gradient
    nd_operand room; ///< scratch for a gradient
    nd_operand s;    ///< scratch
    nd_operand slot[ND__SLOTS];
    nd_status status;
} nd_update;

static void begin(nd_update *update, const nd_optimizer *optimizer, const nd_parameter_state *state,
                  const nd_scratch *scratch);
static void apply(nd_update *update, nd_op op, nd_operand out, nd_operand a, const nd_operand *b,
                  double value);
static void decay_gradient(nd_update *update, nd_operand room);
static void decay_parameter(nd_update *update);
static void update_sgd(nd_update *update);
static void update_adam(nd_update *update, bool decoupled);
static void update_rmsprop(nd_update *update);
static void update_adagrad(nd_update *update);
static void update_lion(nd_update *update);

unsigned nd__optimizer_update_slots(const nd_optimizer *optimizer,
                                    const nd_parameter_state *state) {
    const double *option = nd__optimizer_options(optimizer, state);
    unsigned slots = nd__dtype_is_half(state->parameter->dtype) ? 1u << ND__SLOT_MASTER : 0;
    const bool momentum = option[ND_OPTIMIZER_MOMENTUM] > 0;
    switch (optimizer->kind) {
    case ND__SGD:
        return slots | (momentum ? 1u << ND__SLOT_FIRST : 0);
    case ND__RMSPROP:
        return slots | 1u << ND__SLOT_SECOND | (momentum ? 1u << ND__SLOT_FIRST : 0) |
               (option[ND_OPTIMIZER_CENTERED] > 0 ? 1u << ND__SLOT_THIRD : 0);
    case ND__ADAGRAD:
        return slots | 1u << ND__SLOT_SECOND;
    case ND__LION:
        return slots | 1u << ND__SLOT_FIRST;
    default:
        return slots | 1u << ND__SLOT_FIRST | 1u << ND__SLOT_SECOND;
    }
}

nd_status nd__optimizer_update(const nd_optimizer *optimizer, const nd_parameter_state *state,
                               const nd_scratch *scratch) {
    nd_update update;
    begin(&update, optimizer, state, scratch);
    switch (optimizer->kind) {
    case ND__SGD:
        update_sgd(&update);
        break;
    case ND__RMSPROP:
        update_rmsprop(&update);
        break;
    case ND__ADAGRAD:
        update_adagrad(&update);
        break;
    case ND__LION:
        update_lion(&update);
        break;
    default:
        update_adam(&update, optimizer->kind == ND__ADAMW);
    }
    if (update.status == ND_OK && state->slot[ND__SLOT_MASTER] && update.like->numel > 0)
        update.status = nd__copy_into(operation, state->parameter, state->slot[ND__SLOT_MASTER]);
    return update.status;
}

// -------------------------------------------------------------------------------------------------
// scratch

static size_t find_scratch(const nd_scratch *scratch, nd_device device) {
    size_t i = 0;
    while (i < scratch->count && !nd__module_same_device(scratch->on[i].device, device))
        i++;
    return i;
}

/// Whether the update of a parameter wants its gradient in scratch, or scratch for numbers.
static void wants(const nd_optimizer *optimizer, const nd_parameter_state *state,
                  bool *ret_gradient, bool *ret_number) {
    const double *option = nd__optimizer_options(optimizer, state);
    const bool decays = option[ND_OPTIMIZER_WEIGHT_DECAY] > 0;
    *ret_gradient = nd__dtype_is_half(state->parameter->dtype) ||
                    (decays && (optimizer->kind == ND__RMSPROP || optimizer->kind == ND__ADAGRAD));
    *ret_number = optimizer->kind != ND__SGD || option[ND_OPTIMIZER_NESTEROV] > 0;
}

nd_status nd__optimizer_update_reserve(const nd_optimizer *optimizer, nd_scratch *scratch,
                                       nd_device device) {
    if (find_scratch(scratch, device) < scratch->count)
        return ND_OK;
    if (scratch->count == ND__OPTIMIZER_DEVICES_MAX)
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: the parameters are spread over more than %d devices", operation,
                         ND__OPTIMIZER_DEVICES_MAX);
    const nd_tensor *largest = NULL;
    nd_dtype dtype = ND_F32;
    bool gradient = false, number = false;
    for (size_t i = 0; i < optimizer->count; i++) {
        const nd_tensor *parameter = optimizer->states[i].parameter;
        if (!parameter || !nd__module_same_device(parameter->device, device))
            continue;
        if (!largest || parameter->numel > largest->numel)
            largest = parameter;
        if (parameter->dtype == ND_F64)
            dtype = ND_F64;
        bool one, other;
        wants(optimizer, &optimizer->states[i], &one, &other);
        gradient |= one;
        number |= other;
    }
    nd_place place = nd__place_of(&largest->header);
    const int64_t size = largest->numel;
    nd_tensor *made[2] = {NULL, NULL};
    if (gradient)
        made[0] = nd__tensor_new(operation, place.manager, device, dtype, 1, &size);
    if (number)
        made[1] = nd__tensor_new(operation, place.manager, device, dtype, 1, &size);
    nd__place_end(place);
    scratch->on[scratch->count].device = device;
    scratch->on[scratch->count].gradient = made[0];
    scratch->on[scratch->count++].number = made[1];
    if ((gradient && !made[0]) || (number && !made[1]))
        return nd_error_get_status();
    return ND_OK;
}

void nd__optimizer_update_release(nd_scratch *scratch) {
    for (size_t i = 0; i < scratch->count; i++) {
        nd_release(scratch->on[i].gradient);
        nd_release(scratch->on[i].number);
    }
    scratch->count = 0;
}

// -------------------------------------------------------------------------------------------------
// operands

static nd_operand operand(const nd_tensor *x) {
    return nd__shape_broadcast_operand(x, x->ndim, x->shape);
}

static void begin(nd_update *update, const nd_optimizer *optimizer, const nd_parameter_state *state,
                  const nd_scratch *scratch) {
    const nd_tensor *parameter = state->parameter;
    const size_t place = find_scratch(scratch, parameter->device);
    update->like = parameter;
    update->option = nd__optimizer_options(optimizer, state);
    update->steps = state->steps;
    update->status = ND_OK;
    const nd_tensor *master = state->slot[ND__SLOT_MASTER];
    update->p = operand(nd__dtype_is_half(parameter->dtype) ? master : parameter);
    update->g = operand(parameter->grad);
    update->room = update->s = update->p; // laid out as the parameter
    const nd_tensor *gradient = scratch->on[place].gradient;
    const nd_tensor *number = scratch->on[place].number;
    update->room.data = gradient ? gradient->data : NULL;
    update->s.data = number ? number->data : NULL;
    for (int i = 0; i < ND__SLOTS; i++)
        if (state->slot[i])
            update->slot[i] = operand(state->slot[i]);
    if (update->g.dtype != update->p.dtype && parameter->numel > 0) {
        update->status = nd__copy_to_operand(operation, &update->room, parameter->grad);
        update->g = update->room;
    }
}

/// out = op(a[, b]) elementwise over the parameter's shape; `value` is the op's number.
static void apply(nd_update *update, nd_op op, nd_operand out, nd_operand a, const nd_operand *b,
                  double value) {
    const nd_tensor *like = update->like;
    if (like->numel == 0 || update->status != ND_OK)
        return;
    nd_kernel_call call = {.op = op, .noperands = b ? 3 : 2, .ndim = like->ndim};
    memcpy(call.shape, like->shape, (size_t)like->ndim * sizeof *call.shape);
    call.operand[0] = out;
    call.operand[1] = a;
    if (b)
        call.operand[2] = *b;
    call.attrs.f[0] = value;
    nd__shape_collapse(&call);
    update->status = nd__launch(operation, like->device, &call);
}

/// x = factor x + weight y.
static void blend(nd_update *update, nd_operand x, double factor, const nd_operand *y,
                  double weight) {
    apply(update, ND_OP_mul_scalar, x, x, NULL, factor);
    apply(update, ND_OP_add_scaled, x, x, y, weight);
}

/// g = g + weight_decay p, in `room` unless the gradient lies in scratch already.
static void decay_gradient(nd_update *update, nd_operand room) {
    const double decay = update->option[ND_OPTIMIZER_WEIGHT_DECAY];
    if (decay == 0)
        return;
    if (update->g.data == update->room.data)
        room = update->room;
    apply(update, ND_OP_add_scaled, room, update->g, &update->p, decay);
    update->g = room;
}

/// p = (1 - rate weight_decay) p.
static void decay_parameter(nd_update *update) {
    const double decay = update->option[ND_OPTIMIZER_WEIGHT_DECAY];
    if (decay > 0)
        apply(update, ND_OP_mul_scalar, update->p, update->p, NULL,
              1 - update->option[ND_OPTIMIZER_RATE] * decay);
}

// -------------------------------------------------------------------------------------------------
// formulas

/// v = momentum v + (g + weight_decay p); p -= rate v, or with Nesterov
/// p -= rate (g + weight_decay p + momentum v).
static void update_sgd(nd_update *update) {
    const double rate = update->option[ND_OPTIMIZER_RATE];
    const double momentum = update->option[ND_OPTIMIZER_MOMENTUM];
    const double decay = update->option[ND_OPTIMIZER_WEIGHT_DECAY];
    const nd_operand p = update->p, s = update->s, v = update->slot[ND__SLOT_FIRST];
    if (momentum == 0) {
        decay_parameter(update);
        apply(update, ND_OP_add_scaled, p, p, &update->g, -rate);
        return;
    }
    blend(update, v, momentum, &update->g, 1);
    if (decay > 0)
        apply(update, ND_OP_add_scaled, v, v, &p, decay);
    if (update->option[ND_OPTIMIZER_NESTEROV] == 0) {
        apply(update, ND_OP_add_scaled, p, p, &v, -rate);
        return;
    }
    apply(update, ND_OP_add_scaled, s, update->g, &v, momentum);
    if (decay > 0)
        apply(update, ND_OP_add_scaled, s, s, &p, decay);
    apply(update, ND_OP_add_scaled, p, p, &s, -rate);
}

/// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// p -= rate / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps). Adam's decay adds to g, AdamW's
/// shrinks p.
static void update_adam(nd_update *update, bool decoupled) {
    const double *option = update->option;
    const double beta1 = option[ND_OPTIMIZER_BETA1], beta2 = option[ND_OPTIMIZER_BETA2];
    const double steps = (double)update->steps;
    const double correction1 = 1 - pow(beta1, steps);
    // Multiplying numerator and denominator by it spares a pass over the second moment.
    const double root_correction2 = sqrt(1 - pow(beta2, steps));
    const nd_operand p = update->p, s = update->s;
    const nd_operand m = update->slot[ND__SLOT_FIRST], v = update->slot[ND__SLOT_SECOND];
    if (decoupled)
        decay_parameter(update);
    else
        decay_gradient(update, s); // which is free until the square
    blend(update, m, beta1, &update->g, 1 - beta1);
    apply(update, ND_OP_square, s, update->g, NULL, 0);
    blend(update, v, beta2, &s, 1 - beta2);
    apply(update, ND_OP_sqrt, s, v, NULL, 0);
    apply(update, ND_OP_add_scalar, s, s, NULL, option[ND_OPTIMIZER_EPS] * root_correction2);
    apply(update, ND_OP_div, s, m, &s, 0);
    apply(update, ND_OP_add_scaled, p, p, &s,
          -option[ND_OPTIMIZER_RATE] * root_correction2 / correction1);
}

/// v = alpha v + (1 - alpha) g^2; d = g / (sqrt(v) + eps), where centered takes the square of the
/// mean gradient from v; with momentum b = momentum b + d; p -= rate b, else p -= rate d.
static void update_rmsprop(nd_update *update) {
    const double *option = update->option;
    const double alpha = option[ND_OPTIMIZER_ALPHA], rate = option[ND_OPTIMIZER_RATE];
    const nd_operand p = update->p, s = update->s;
    const nd_operand b = update->slot[ND__SLOT_FIRST], v = update->slot[ND__SLOT_SECOND];
    decay_gradient(update, update->room);
    apply(update, ND_OP_square, s, update->g, NULL, 0);
    blend(update, v, alpha, &s, 1 - alpha);
    if (option[ND_OPTIMIZER_CENTERED] > 0) {
        const nd_operand mean = update->slot[ND__SLOT_THIRD];
        blend(update, mean, alpha, &update->g, 1 - alpha);
        apply(update, ND_OP_square, s, mean, NULL, 0);
        apply(update, ND_OP_sub, s, v, &s, 0);
        apply(update, ND_OP_sqrt, s, s, NULL, 0);
    } else {
        apply(update, ND_OP_sqrt, s, v, NULL, 0);
    }
    apply(update, ND_OP_add_scalar, s, s, NULL, option[ND_OPTIMIZER_EPS]);
    apply(update, ND_OP_div, s, update->g, &s, 0);
    if (option[ND_OPTIMIZER_MOMENTUM] > 0) {
        blend(update, b, option[ND_OPTIMIZER_MOMENTUM], &s, 1);
        apply(update, ND_OP_add_scaled, p, p, &b, -rate);
    } else {
        apply(update, ND_OP_add_scaled, p, p, &s, -rate);
    }
}

/// v += g^2; p -= rate / (1 + (t - 1) rate_decay) g / (sqrt(v) + eps).
static void update_adagrad(nd_update *update) {
    const double *option = update->option;
    const nd_operand p = update->p, s = update->s, v = update->slot[ND__SLOT_SECOND];
    const double rate = option[ND_OPTIMIZER_RATE] /
                        (1 + (double)(update->steps - 1) * option[ND_OPTIMIZER_RATE_DECAY]);
    decay_gradient(update, update->room);
    apply(update, ND_OP_square, s, update->g, NULL, 0);
    apply(update, ND_OP_add_scaled, v, v, &s, 1);
    apply(update, ND_OP_sqrt, s, v, NULL, 0);
    apply(update, ND_OP_add_scalar, s, s, NULL, option[ND_OPTIMIZER_EPS]);
    apply(update, ND_OP_div, s, update->g, &s, 0);
    apply(update, ND_OP_add_scaled, p, p, &s, -rate);
}

/// p = (1 - rate weight_decay) p - rate sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g.
static void update_lion(nd_update *update) {
    const double *option = update->option;
    const double beta1 = option[ND_OPTIMIZER_BETA1], beta2 = option[ND_OPTIMIZER_BETA2];
    const nd_operand p = update->p, s = update->s, m = update->slot[ND__SLOT_FIRST];
    decay_parameter(update);
    apply(update, ND_OP_mul_scalar, s, m, NULL, beta1);
    apply(update, ND_OP_add_scaled, s, s, &update->g, 1 - beta1);
    apply(update, ND_OP_sign, s, s, NULL, 0);
    apply(update, ND_OP_add_scaled, p, p, &s, -option[ND_OPTIMIZER_RATE]);
    blend(update, m, beta2, &update->g, 1 - beta2);
}
