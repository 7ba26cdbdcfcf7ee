// The formulas of the optimizers, as chains or kernel calls in place: nothing is recorded.
//
// Updates are collected and run together, an element going through a whole formula at once, and
// many parameters in one go. What is no chain is launched operation by operation, in its turn; the
// results are the same.
//
// Invariant: an update reads the gradient and writes the parameter, its slots and scratch alone.
// Everything is computed in the dtype of the state, f64 or f32; a half is written once, rounded
// from its master.
#include "lib/nn/optimizer_update.h"
#include "lib/base/error.h"
#include "lib/manager/place.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const char operation[] = "optimizer_step";

// What a formula computes with, by its place among the operands of a chain.
enum {
    P,      ///< the parameter, or its master
    GIVEN,  ///< the gradient
    ROOM,   ///< scratch for a gradient
    S,      ///< scratch
    FIRST,  ///< slots
    SECOND, ///<
    THIRD,  ///<
    HALF,   ///< the parameter whose master is P
    PLACES,
    NOTHING = -1,
};
_Static_assert((int)PLACES <= ND_CHAIN_OPERANDS, "a chain holds what a formula computes with");

// One update. The first failure stays: what follows does nothing.
typedef struct nd_update {
    const nd_tensor *like; ///< the parameter: shape and device
    const double *option;  ///< of its group
    uint64_t steps;
    int8_t g;                   ///< where the gradient is: GIVEN, or ROOM
    nd_operand operand[PLACES]; ///< of calls, when there is no chain
    nd_chain *chain;            ///< NULL: each operation is launched by itself
    bool begun;                 ///< one of them was
    nd_status status;
} nd_update;

static bool overlap(const nd_tensor *a, const nd_tensor *b);
static nd_status make_room(nd_optimizer_chains *chains, const nd_parameter_state *state);
static nd_status begin_calls(nd_update *update, const nd_parameter_state *state,
                             const nd_scratch *scratch);
static void begin_chain(nd_update *update, const nd_parameter_state *state, nd_chain *chain);
static void apply(nd_update *update, nd_op op, int out, int a, int b, double value);
static void decay_gradient(nd_update *update, int room);
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

/// Of a half around its casts.
static void run_formula(nd_update *update, nd_optimizer_kind kind) {
    const bool half = nd__dtype_is_half(update->like->dtype);
    if (half) {
        apply(update, ND_OP_cast, ROOM, GIVEN, NOTHING, 0);
        update->g = ROOM;
    }
    switch (kind) {
    case ND__SGD:
        update_sgd(update);
        break;
    case ND__RMSPROP:
        update_rmsprop(update);
        break;
    case ND__ADAGRAD:
        update_adagrad(update);
        break;
    case ND__LION:
        update_lion(update);
        break;
    default:
        update_adam(update, kind == ND__ADAMW);
    }
    if (half)
        apply(update, ND_OP_cast, HALF, P, NOTHING, 0);
}

nd_status nd__optimizer_update(const nd_optimizer *optimizer, const nd_parameter_state *state,
                               const nd_scratch *scratch, nd_optimizer_chains *chains) {
    if (state->parameter->numel == 0)
        return ND_OK;
    nd_update update = {.like = state->parameter,
                        .option = nd__optimizer_options(optimizer, state),
                        .steps = state->steps};
    if (nd__optimizer_update_is_chain(state)) {
        update.status = make_room(chains, state);
        if (update.status == ND_OK)
            begin_chain(&update, state, &chains->chains[chains->count]);
    } else {
        update.status = nd__optimizer_update_finish(chains);
        if (update.status == ND_OK)
            update.status = begin_calls(&update, state, scratch);
    }
    if (update.status != ND_OK)
        return update.status;
    if (update.chain && chains->numbers)
        update.chain->numbers =
            chains->numbers + (size_t)(state - optimizer->states) * ND__OPTIMIZER_NUMBERS;
    run_formula(&update, optimizer->kind);
    if (update.chain)
        chains->states[chains->count++] = state;
    else if (update.begun)
        chains->begun++;
    return update.status;
}

nd_chain nd__optimizer_update_describe(const nd_optimizer *optimizer,
                                       const nd_parameter_state *state, uint64_t steps) {
    nd_chain chain = {.count = state->parameter->numel};
    nd_update update = {.like = state->parameter,
                        .option = nd__optimizer_options(optimizer, state),
                        .steps = steps,
                        .g = GIVEN,
                        .chain = &chain};
    run_formula(&update, optimizer->kind);
    return chain;
}

// -------------------------------------------------------------------------------------------------
// chains

bool nd__optimizer_update_is_chain(const nd_parameter_state *state) {
    const nd_tensor *parameter = state->parameter, *grad = parameter->grad;
    return nd__tensor_is_contiguous(parameter) && nd__tensor_is_contiguous(grad) &&
           nd__launch_has_chains(parameter->device) &&
           (grad->data == parameter->data || !overlap(grad, parameter));
}

/// Whether two tensors that are dense have a byte in common.
static bool overlap(const nd_tensor *a, const nd_tensor *b) {
    const char *first = a->data, *second = b->data;
    return first < second + (size_t)b->numel * nd__dtype_bytes[b->dtype] &&
           second < first + (size_t)a->numel * nd__dtype_bytes[a->dtype];
}

nd_status nd__optimizer_update_finish(nd_optimizer_chains *chains) {
    const size_t count = chains->count;
    chains->count = 0;
    nd_status status =
        count > 0 ? nd__launch_chains(operation, chains->device, count, chains->chains) : ND_OK;
    if (status == ND_OK)
        chains->begun += count;
    else
        chains->failed = count;
    return status;
}

/// Room for one more chain that may run beside the others: on their device, and none writes what
/// the other reads.
static nd_status make_room(nd_optimizer_chains *chains, const nd_parameter_state *state) {
    const nd_tensor *p = state->parameter;
    bool fits = chains->count < ND__LAUNCH_CHAINS_MAX &&
                (chains->count == 0 || nd__module_same_device(chains->device, p->device));
    for (size_t i = 0; fits && i < chains->count; i++) {
        const nd_tensor *other = chains->states[i]->parameter;
        fits = !overlap(p, other) && !overlap(p, other->grad) && !overlap(p->grad, other);
    }
    nd_status status = fits ? ND_OK : nd__optimizer_update_finish(chains);
    chains->device = p->device;
    return status;
}

static void place(nd_chain *chain, int at, const nd_tensor *x) {
    chain->data[at] = x->data;
    chain->dtype[at] = x->dtype;
}

static void begin_chain(nd_update *update, const nd_parameter_state *state, nd_chain *chain) {
    const nd_tensor *parameter = state->parameter, *master = state->slot[ND__SLOT_MASTER];
    const bool half = nd__dtype_is_half(parameter->dtype);
    update->chain = chain;
    *chain = (nd_chain){.count = parameter->numel};
    for (int i = 0; i < PLACES; i++) // scratch is of the state's dtype
        chain->dtype[i] = nd__optimizer_state_dtype(parameter);
    place(chain, P, half ? master : parameter);
    place(chain, GIVEN, parameter->grad);
    for (int i = 0; i < ND__SLOTS - ND__SLOT_FIRST; i++)
        if (state->slot[ND__SLOT_FIRST + i])
            place(chain, FIRST + i, state->slot[ND__SLOT_FIRST + i]);
    if (half)
        place(chain, HALF, parameter);
    update->g = GIVEN;
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
// operations

static nd_operand operand(const nd_tensor *x) {
    return nd__shape_broadcast_operand(x, x->ndim, x->shape);
}

static nd_status begin_calls(nd_update *update, const nd_parameter_state *state,
                             const nd_scratch *scratch) {
    const nd_tensor *parameter = state->parameter, *master = state->slot[ND__SLOT_MASTER];
    const bool half = nd__dtype_is_half(parameter->dtype);
    const size_t place = find_scratch(scratch, parameter->device);
    if (place == scratch->count)
        return nd__error(ND_ERROR_STATE, "%s: a callback for memory replaced a gradient",
                         operation);
    nd_operand *to = update->operand;
    to[P] = operand(half ? master : parameter);
    to[GIVEN] = operand(parameter->grad);
    to[ROOM] = to[S] = to[P]; // laid out as the parameter
    const nd_tensor *gradient = scratch->on[place].gradient;
    const nd_tensor *number = scratch->on[place].number;
    to[ROOM].data = gradient ? gradient->data : NULL;
    to[S].data = number ? number->data : NULL;
    for (int i = 0; i < ND__SLOTS - ND__SLOT_FIRST; i++)
        if (state->slot[ND__SLOT_FIRST + i])
            to[FIRST + i] = operand(state->slot[ND__SLOT_FIRST + i]);
    to[HALF] = operand(parameter);
    update->g = GIVEN;
    return ND_OK;
}

/// out = op(a[, b]) elementwise over the parameter's shape; `value` is the op's number.
static void apply(nd_update *update, nd_op op, int out, int a, int b, double value) {
    const nd_tensor *like = update->like;
    if (update->status != ND_OK)
        return;
    if (update->chain) {
        assert(update->chain->steps < ND_CHAIN_STEPS);
        update->chain->step[update->chain->steps++] =
            (nd_chain_step){op, (int8_t)out, (int8_t)a, (int8_t)b, value};
        return;
    }
    nd_kernel_call call = {.op = op, .noperands = b == NOTHING ? 2 : 3, .ndim = like->ndim};
    memcpy(call.shape, like->shape, (size_t)like->ndim * sizeof *call.shape);
    call.operand[0] = update->operand[out];
    call.operand[1] = update->operand[a];
    if (b != NOTHING)
        call.operand[2] = update->operand[b];
    call.attrs.f[0] = value;
    nd__shape_collapse(&call);
    update->status = nd__launch(operation, like->device, &call);
    update->begun = update->begun || update->status == ND_OK;
}

/// x = factor x + weight y.
static void blend(nd_update *update, int x, double factor, int y, double weight) {
    apply(update, ND_OP_mul_scalar, x, x, NOTHING, factor);
    apply(update, ND_OP_add_scaled, x, x, y, weight);
}

/// g = g + weight_decay p, in `room` unless the gradient lies in scratch already.
static void decay_gradient(nd_update *update, int room) {
    const double decay = update->option[ND_OPTIMIZER_WEIGHT_DECAY];
    if (decay == 0)
        return;
    if (update->g == ROOM)
        room = ROOM;
    apply(update, ND_OP_add_scaled, room, update->g, P, decay);
    update->g = (int8_t)room;
}

/// p = (1 - rate weight_decay) p.
static void decay_parameter(nd_update *update) {
    const double decay = update->option[ND_OPTIMIZER_WEIGHT_DECAY];
    if (decay > 0)
        apply(update, ND_OP_mul_scalar, P, P, NOTHING,
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
    if (momentum == 0) {
        decay_parameter(update);
        apply(update, ND_OP_add_scaled, P, P, update->g, -rate);
        return;
    }
    blend(update, FIRST, momentum, update->g, 1);
    if (decay > 0)
        apply(update, ND_OP_add_scaled, FIRST, FIRST, P, decay);
    if (update->option[ND_OPTIMIZER_NESTEROV] == 0) {
        apply(update, ND_OP_add_scaled, P, P, FIRST, -rate);
        return;
    }
    apply(update, ND_OP_add_scaled, S, update->g, FIRST, momentum);
    if (decay > 0)
        apply(update, ND_OP_add_scaled, S, S, P, decay);
    apply(update, ND_OP_add_scaled, P, P, S, -rate);
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
    if (decoupled)
        decay_parameter(update);
    else
        decay_gradient(update, S); // which is free until the square
    blend(update, FIRST, beta1, update->g, 1 - beta1);
    apply(update, ND_OP_square, S, update->g, NOTHING, 0);
    blend(update, SECOND, beta2, S, 1 - beta2);
    apply(update, ND_OP_sqrt, S, SECOND, NOTHING, 0);
    apply(update, ND_OP_add_scalar, S, S, NOTHING, option[ND_OPTIMIZER_EPS] * root_correction2);
    apply(update, ND_OP_div, S, FIRST, S, 0);
    apply(update, ND_OP_add_scaled, P, P, S,
          -option[ND_OPTIMIZER_RATE] * root_correction2 / correction1);
}

/// v = alpha v + (1 - alpha) g^2; d = g / (sqrt(v) + eps), where centered takes the square of the
/// mean gradient from v; with momentum b = momentum b + d; p -= rate b, else p -= rate d.
static void update_rmsprop(nd_update *update) {
    const double *option = update->option;
    const double alpha = option[ND_OPTIMIZER_ALPHA], rate = option[ND_OPTIMIZER_RATE];
    decay_gradient(update, ROOM);
    apply(update, ND_OP_square, S, update->g, NOTHING, 0);
    blend(update, SECOND, alpha, S, 1 - alpha);
    if (option[ND_OPTIMIZER_CENTERED] > 0) {
        blend(update, THIRD, alpha, update->g, 1 - alpha);
        apply(update, ND_OP_square, S, THIRD, NOTHING, 0);
        apply(update, ND_OP_sub, S, SECOND, S, 0);
        apply(update, ND_OP_sqrt, S, S, NOTHING, 0);
    } else {
        apply(update, ND_OP_sqrt, S, SECOND, NOTHING, 0);
    }
    apply(update, ND_OP_add_scalar, S, S, NOTHING, option[ND_OPTIMIZER_EPS]);
    apply(update, ND_OP_div, S, update->g, S, 0);
    if (option[ND_OPTIMIZER_MOMENTUM] > 0) {
        blend(update, FIRST, option[ND_OPTIMIZER_MOMENTUM], S, 1);
        apply(update, ND_OP_add_scaled, P, P, FIRST, -rate);
    } else {
        apply(update, ND_OP_add_scaled, P, P, S, -rate);
    }
}

/// v += g^2; p -= rate / (1 + (t - 1) rate_decay) g / (sqrt(v) + eps).
static void update_adagrad(nd_update *update) {
    const double *option = update->option;
    const double rate = option[ND_OPTIMIZER_RATE] /
                        (1 + (double)(update->steps - 1) * option[ND_OPTIMIZER_RATE_DECAY]);
    decay_gradient(update, ROOM);
    apply(update, ND_OP_square, S, update->g, NOTHING, 0);
    apply(update, ND_OP_add_scaled, SECOND, SECOND, S, 1);
    apply(update, ND_OP_sqrt, S, SECOND, NOTHING, 0);
    apply(update, ND_OP_add_scalar, S, S, NOTHING, option[ND_OPTIMIZER_EPS]);
    apply(update, ND_OP_div, S, update->g, S, 0);
    apply(update, ND_OP_add_scaled, P, P, S, -rate);
}

/// p = (1 - rate weight_decay) p - rate sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g.
static void update_lion(nd_update *update) {
    const double *option = update->option;
    const double beta1 = option[ND_OPTIMIZER_BETA1], beta2 = option[ND_OPTIMIZER_BETA2];
    decay_parameter(update);
    apply(update, ND_OP_mul_scalar, S, FIRST, NOTHING, beta1);
    apply(update, ND_OP_add_scaled, S, S, update->g, 1 - beta1);
    apply(update, ND_OP_sign, S, S, NOTHING, 0);
    apply(update, ND_OP_add_scaled, P, P, S, -option[ND_OPTIMIZER_RATE]);
    blend(update, FIRST, beta2, update->g, 1 - beta2);
}
