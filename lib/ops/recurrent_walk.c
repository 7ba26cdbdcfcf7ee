// A direction of a recurrent net as one node: two kernels for each step, a product and the cell, and
// as many for its gradient.
//
// Invariant: what the node holds is its inputs, the output, and what the cells keep of each step. A
// backward pass walks from the last step to the first; weight and bias get their gradients behind it,
// in one product over all steps. A pass that is itself recorded runs the steps again as recorded
// operations and takes the gradient of these.
#include "lib/ops/recurrent_walk.h"
#include "lib/base/error.h"
#include "lib/ops/matmul.h"
#include "lib/ops/operands.h"
#include "lib/ops/recurrent_steps.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include <nd/autograd.h>
#include <nd/manager.h>
#include <nd/neural.h>

enum { INPUT, WEIGHT, BIAS, HIDDEN, MEMORY, INPUTS };
enum { OUTPUT, LAST_HIDDEN, LAST_MEMORY, OUTPUTS };

/// What a backward pass needs; all but the inputs is dense, and without history.
typedef struct recurrent_walk {
    nd_tensor *inputs[INPUTS]; ///< as given; NULL where there is none
    nd_tensor *dense;          ///< the input
    nd_tensor *hidden;         ///< before the first step
    nd_tensor *memory;         ///< likewise, of an LSTM
    nd_tensor *output;         ///< the state after each step: [t, n, size]
    nd_tensor
        *memories;   ///< the c after each step, of an LSTM; unrecorded only the last: [1, n, size]
    nd_tensor *kept; ///< by the cells, of GRU and LSTM: [t, n, 4 size]; recorded only
    uint64_t versions[INPUTS]; ///< of the inputs, when they were saved
    uint64_t output_version;
    const char *name;
    nd_cell cell;
    bool reverse;
} recurrent_walk;

#define WALK_EDGES(ONE, MANY) \
    MANY(inputs, INPUTS) ONE(dense) ONE(hidden) ONE(memory) ONE(output) ONE(memories) ONE(kept)
ND_TYPE_EDGES(recurrent_walk, WALK_EDGES)

static const nd_type walk_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "recurrent",
    .traverse = recurrent_walk_traverse,
    .clear = recurrent_walk_clear,
};

static nd__recurrent_direction direction_of(const recurrent_walk *w, nd_tensor *const *inputs) {
    return (nd__recurrent_direction){w->name,        w->cell,      w->reverse,     inputs[INPUT],
                                     inputs[WEIGHT], inputs[BIAS], inputs[HIDDEN], inputs[MEMORY]};
}

static int64_t step_count(const recurrent_walk *w) {
    return w->inputs[INPUT]->shape[0];
}
/// Rows of a step.
static int64_t row_count(const recurrent_walk *w) {
    return w->inputs[INPUT]->shape[1];
}
static int64_t state_size(const recurrent_walk *w) {
    return w->inputs[WEIGHT]->shape[1];
}

/// Which place of the sequence step number `i` is at.
static int64_t time_of(const recurrent_walk *w, int64_t i) {
    return w->reverse ? step_count(w) - 1 - i : i;
}

/// Place `t` of a dense tensor of three axes, as an operand; NULL lacks data.
static nd_operand operand_at(const nd_tensor *x, int64_t t) {
    if (!x)
        return (nd_operand){.data = NULL};
    int64_t bytes = x->shape[1] * x->shape[2] * (int64_t)nd_dtype_get_size(x->dtype);
    return (nd_operand){.data = (char *)x->data + t * bytes, .dtype = x->dtype};
}
/// All of a dense tensor.
static nd_operand whole_operand(const nd_tensor *x) {
    return x ? (nd_operand){.data = x->data, .dtype = x->dtype} : (nd_operand){.data = NULL};
}

/// Places first ... first + count - 1 of a dense tensor of three axes as rows of a matrix.
static nd_tensor *rows_at(const nd_tensor *x, int64_t first, int64_t count) {
    const int64_t shape[] = {count * x->shape[1], x->shape[2]};
    const int64_t strides[] = {x->shape[2], 1};
    return nd__tensor_view(x, 2, shape, strides,
                           nd__tensor_offset(x) + first * x->shape[1] * x->shape[2]);
}

/// Fresh memory beside the input.
static nd_tensor *room(const recurrent_walk *w, int64_t steps, int64_t width) {
    const nd_tensor *input = w->inputs[INPUT];
    const int64_t shape[] = {steps, row_count(w), width};
    return nd__tensor_result(w->name, &input, 1, input->device, input->dtype, 3, shape);
}

static nd_status launch(const recurrent_walk *w, nd_kernel_call *call) {
    const nd_tensor *input = w->inputs[INPUT];
    call->attrs = (nd_op_attrs){.i = {w->cell, row_count(w), state_size(w)}};
    for (int i = 0; i < call->noperands; i++)
        call->operand[i].dtype = input->dtype;
    return nd__launch(w->name, input->device, call);
}

// -------------------------------------------------------------------------------------------------
// forward

/// Which of the memories is that of step `i`: without history there is one, which each step replaces.
static int64_t memory_place(const recurrent_walk *w, int64_t i) {
    return w->memories->shape[0] == 1 ? 0 : time_of(w, i);
}

static nd_status step_forward(const recurrent_walk *w, const nd__recurrent_direction *d,
                              int64_t i) {
    nd_auto nd_tensor *before =
        i == 0 ? nd_retain(w->hidden) : rows_at(w->output, time_of(w, i - 1), 1);
    nd_auto nd_tensor *product = nd__recurrent_direction_product(d, before);
    nd_auto nd_tensor *from_h = nd_contiguous(product);
    if (!from_h)
        return nd_error_get_status();
    int64_t t = time_of(w, i);
    nd_kernel_call call = {
        .op = ND_OP_recurrent_cell,
        .noperands = 6,
        .operand = {operand_at(w->output, t),
                    {.data = NULL},
                    operand_at(w->kept, t),
                    operand_at(w->dense, t),
                    whole_operand(from_h),
                    whole_operand(before)},
    };
    if (w->cell == ND_CELL_LSTM) {
        call.operand[1] = operand_at(w->memories, memory_place(w, i));
        call.operand[5] =
            i == 0 ? whole_operand(w->memory) : operand_at(w->memories, memory_place(w, i - 1));
    }
    return launch(w, &call);
}

/// The states before the first step, and room for what comes.
static nd_status prepare(recurrent_walk *w, const nd__recurrent_direction *d, bool recorded) {
    const int64_t size = state_size(w);
    bool lstm = w->cell == ND_CELL_LSTM, gated = lstm || w->cell == ND_CELL_GRU;
    nd_auto nd_tensor *hidden = nd__recurrent_direction_state(d, d->hidden);
    nd_auto nd_tensor *memory = lstm ? nd__recurrent_direction_state(d, d->memory) : NULL;
    if (!hidden || (lstm && !memory))
        return nd_error_get_status();
    w->dense = nd_contiguous(d->input);
    w->hidden = nd_contiguous(hidden);
    w->memory = lstm ? nd_contiguous(memory) : NULL;
    w->output = room(w, step_count(w), size);
    w->memories = lstm ? room(w, recorded ? step_count(w) : 1, size) : NULL;
    w->kept = gated && recorded ? room(w, step_count(w), 4 * size) : NULL;
    bool complete = w->dense && w->hidden && w->output && (!lstm || (w->memory && w->memories)) &&
                    (!gated || !recorded || w->kept);
    return complete ? ND_OK : nd_error_get_status();
}

/// What the steps leave behind: the output, and the last states.
static nd_status give_results(const recurrent_walk *w, nd__recurrent_result *result) {
    int64_t last = step_count(w) - 1;
    bool lstm = w->cell == ND_CELL_LSTM;
    result->output = nd_retain(w->output);
    result->hidden = rows_at(w->output, time_of(w, last), 1);
    result->memory = lstm ? rows_at(w->memories, memory_place(w, last), 1) : NULL;
    return result->hidden && (!lstm || result->memory) ? ND_OK : nd_error_get_status();
}

/// All steps, unrecorded.
static nd_status walk_forward(recurrent_walk *w, bool recorded, nd__recurrent_result *result) {
    nd__recurrent_direction d = direction_of(w, w->inputs);
    nd_status status = prepare(w, &d, recorded);
    for (int64_t i = 0; i < step_count(w) && status == ND_OK; i++)
        status = step_forward(w, &d, i);
    return status == ND_OK ? give_results(w, result) : status;
}

// -------------------------------------------------------------------------------------------------
// backward

static nd_status check_all_saved(const recurrent_walk *w) {
    nd_status status = nd__record_check_saved(w->name, w->output, w->output_version);
    for (int i = 0; i < INPUTS && status == ND_OK; i++)
        if (w->inputs[i])
            status = nd__record_check_saved(w->name, w->inputs[i], w->versions[i]);
    return status;
}

/// A backward pass on its way from the last step to the first.
typedef struct pass {
    const recurrent_walk *w;
    const bool *wanted;
    nd_tensor *of_output; ///< gradient, dense, or NULL
    nd_tensor *of_input;  ///< to be written, [t, n, gates size]
    nd_tensor *of_state;  ///< of what the state gave to the gates; the same but of a GRU
    nd_tensor *through;   ///< what the step behind gives through its gates, or NULL
    nd_tensor *carried;   ///< and past them, or NULL
} pass;

static void release_pass(pass *p) {
    nd_release(p->of_output);
    nd_release(p->of_input);
    nd_release(p->of_state);
    nd_release(p->through);
    nd_release(p->carried);
}

/// A gradient dense and in the dtype of computing; NULL without an error where there is none.
static nd_status take_gradient(const recurrent_walk *w, const nd_tensor *gradient,
                               nd_tensor **ret_dense) {
    if (!gradient)
        return ND_OK;
    *ret_dense = nd__operands_dense(w->name, gradient, w->output->dtype);
    return *ret_dense ? ND_OK : nd_error_get_status();
}

static nd_status begin_pass(pass *p, const nd_tensor *const *gradients) {
    const recurrent_walk *w = p->w;
    nd_status status = take_gradient(w, gradients[OUTPUT], &p->of_output);
    if (status == ND_OK)
        status = take_gradient(w, gradients[LAST_HIDDEN], &p->through);
    if (status == ND_OK && w->cell == ND_CELL_LSTM)
        status = take_gradient(w, gradients[LAST_MEMORY], &p->carried);
    int64_t width = w->inputs[INPUT]->shape[2];
    if (status == ND_OK && !(p->of_input = room(w, step_count(w), width)))
        status = nd_error_get_status();
    if (status != ND_OK)
        return status;
    p->of_state = w->cell == ND_CELL_GRU ? room(w, step_count(w), width) : nd_retain(p->of_input);
    return p->of_state ? ND_OK : nd_error_get_status();
}

/// What a step's gates hand to the state before them.
static nd_status pass_through(pass *p, int64_t t) {
    const nd_tensor *weight = p->w->inputs[WEIGHT];
    nd_auto nd_tensor *gates = rows_at(p->of_state, t, 1);
    nd_auto nd_tensor *factor = gates ? nd__operands_as_dtype(gates, weight->dtype) : NULL;
    nd_auto nd_tensor *product = nd_matmul(factor, weight);
    nd_release(p->through);
    p->through = product ? nd__operands_dense(p->w->name, product, gates->dtype) : NULL;
    return p->through ? ND_OK : nd_error_get_status();
}

static nd_status step_backward(pass *p, int64_t i) {
    const recurrent_walk *w = p->w;
    bool lstm = w->cell == ND_CELL_LSTM, gru = w->cell == ND_CELL_GRU;
    int64_t t = time_of(w, i);
    nd_auto nd_tensor *carried = NULL;
    if ((lstm || gru) && !(carried = room(w, 1, state_size(w))))
        return nd_error_get_status();
    const nd_tensor *states = lstm ? w->memories : w->output;
    const nd_tensor *first = lstm ? w->memory : w->hidden;
    nd_kernel_call call = {
        .op = ND_OP_recurrent_cell_grad,
        .noperands = 9,
        .operand = {operand_at(p->of_input, t), operand_at(gru ? p->of_state : NULL, t),
                    whole_operand(carried), operand_at(p->of_output, t), whole_operand(p->through),
                    whole_operand(p->carried), operand_at(w->kept, t),
                    i == 0 ? whole_operand(first) : operand_at(states, time_of(w, i - 1)),
                    operand_at(states, t)},
    };
    nd_status status = launch(w, &call);
    nd_release(p->carried);
    p->carried = nd_steal(&carried);
    if (status == ND_OK && (i > 0 || p->wanted[HIDDEN]))
        status = pass_through(p, t);
    return status;
}

/// Adds what the first step's gates have with the state before them; zeros are no less than another: NaN
/// goes through.
static nd_status add_first_step(const pass *p, nd_tensor *sums) {
    const recurrent_walk *w = p->w;
    nd_auto nd_tensor *gates = rows_at(p->of_state, time_of(w, 0), 1);
    nd_auto nd_tensor *factor = gates ? nd__operands_as_dtype(gates, sums->dtype) : NULL;
    nd_auto nd_tensor *turned = nd_transpose(factor, 0, 1);
    nd_auto nd_tensor *hidden = nd__operands_as_dtype(w->hidden, sums->dtype);
    return nd__matmul_add_to(sums, turned, hidden);
}

/// The sum over all steps of the gates' gradients times the states before them.
static nd_tensor *weight_gradient(const pass *p) {
    const recurrent_walk *w = p->w;
    const nd_tensor *weight = w->inputs[WEIGHT];
    int64_t behind = step_count(w) - 1; // steps behind the first
    nd_auto nd_tensor *gates = rows_at(p->of_state, w->reverse ? 0 : 1, behind);
    nd_auto nd_tensor *states = rows_at(w->output, w->reverse ? 1 : 0, behind);
    if (!gates || !states)
        return NULL;
    nd_auto nd_tensor *factor = nd__operands_as_dtype(gates, weight->dtype);
    nd_auto nd_tensor *turned = nd_transpose(factor, 0, 1);
    nd_auto nd_tensor *seen = nd__operands_as_dtype(states, weight->dtype);
    nd_auto nd_tensor *product = nd_matmul(turned, seen);
    nd_auto nd_tensor *sums = nd_contiguous(product);
    return sums && add_first_step(p, sums) == ND_OK ? nd_steal(&sums) : NULL;
}

static nd_tensor *bias_gradient(const pass *p) {
    nd_auto nd_tensor *sums = nd_sum(p->of_state, 2, (const int[]){0, 1}, false);
    return sums ? nd__operands_as_dtype(sums, p->w->inputs[BIAS]->dtype) : NULL;
}

/// Of the state before the first step.
static nd_tensor *hidden_gradient(const pass *p) {
    if (p->w->cell != ND_CELL_GRU)
        return nd_retain(p->through);
    nd_auto nd_tensor *past = rows_at(p->carried, 0, 1);
    return nd_add(p->through, past);
}

static nd_status end_pass(const pass *p, nd_tensor **grads) {
    const bool *wanted = p->wanted;
    if (wanted[INPUT])
        grads[INPUT] = nd_retain(p->of_input);
    if (wanted[WEIGHT])
        grads[WEIGHT] = weight_gradient(p);
    if (wanted[BIAS])
        grads[BIAS] = bias_gradient(p);
    if (wanted[HIDDEN])
        grads[HIDDEN] = hidden_gradient(p);
    if (wanted[MEMORY])
        grads[MEMORY] = rows_at(p->carried, 0, 1);
    for (int i = 0; i < INPUTS; i++)
        if (wanted[i] && !grads[i])
            return nd_error_get_status();
    return ND_OK;
}

static nd_status backward_unrecorded(const recurrent_walk *w, const nd_tensor *const *gradients,
                                     const bool *wanted, nd_tensor **grads) {
    __attribute__((cleanup(release_pass))) pass p = {.w = w, .wanted = wanted};
    nd_status status = begin_pass(&p, gradients);
    for (int64_t i = step_count(w) - 1; i >= 0 && status == ND_OK; i--)
        status = step_backward(&p, i);
    return status == ND_OK ? end_pass(&p, grads) : status;
}

/// The sum of a result times its gradient, added to *total.
static nd_status add_share(const nd_tensor *result, const nd_tensor *gradient, nd_tensor **total) {
    if (!gradient)
        return ND_OK;
    nd_auto nd_tensor *product = nd_mul(result, gradient);
    nd_auto nd_tensor *share = nd_sum(product, 0, NULL, false);
    nd_tensor *sum = *total ? nd_add(*total, share) : nd_retain(share);
    nd_release(*total);
    *total = sum;
    return sum ? ND_OK : nd_error_get_status();
}

/// The gradients, recorded, of the steps as recorded operations of other handles of the inputs, which
/// keep apart two inputs of which one is made of the other.
static nd_status differentiate_steps(const recurrent_walk *w, nd_tensor *const *aliases,
                                     const nd_tensor *const *gradients, const bool *wanted,
                                     nd_tensor **grads) {
    __attribute__((cleanup(nd__recurrent_direction_release))) nd__recurrent_result result = {0};
    nd__recurrent_direction d = direction_of(w, aliases);
    nd_auto nd_tensor *total = NULL;
    nd_status status = nd__recurrent_steps(&d, &result);
    if (status == ND_OK)
        status = add_share(result.output, gradients[OUTPUT], &total);
    if (status == ND_OK)
        status = add_share(result.hidden, gradients[LAST_HIDDEN], &total);
    if (status == ND_OK && w->cell == ND_CELL_LSTM)
        status = add_share(result.memory, gradients[LAST_MEMORY], &total);
    if (status != ND_OK || !total)
        return status;
    const nd_tensor *targets[INPUTS];
    nd_tensor *found[INPUTS] = {0};
    size_t count = 0;
    for (int i = 0; i < INPUTS; i++)
        if (wanted[i])
            targets[count++] = aliases[i];
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    options.allow_unused = true;
    status = nd_grad(total, count, targets, &options, found);
    count = 0;
    for (int i = 0; i < INPUTS && status == ND_OK; i++)
        if (wanted[i])
            grads[i] = found[count++];
    return status;
}

static nd_status backward_recorded(const recurrent_walk *w, const nd_tensor *const *gradients,
                                   const bool *wanted, nd_tensor **grads) {
    nd_tensor *aliases[INPUTS] = {0};
    nd_status status = ND_OK;
    for (int i = 0; i < INPUTS && status == ND_OK; i++) {
        const nd_tensor *x = w->inputs[i];
        if (x && !(aliases[i] = nd_reshape(x, x->ndim, x->shape)))
            status = nd_error_get_status();
    }
    if (status == ND_OK)
        status = differentiate_steps(w, aliases, gradients, wanted, grads);
    for (int i = 0; i < INPUTS; i++)
        nd_release(aliases[i]);
    return status;
}

static nd_status backward(const nd_object *context, size_t noutputs,
                          const nd_tensor *const *grad_outputs, size_t ninputs,
                          nd_tensor **ret_grad_inputs) {
    const recurrent_walk *w = nd_object_get_data(context);
    nd_status status = w ? check_all_saved(w) : nd_error_get_status();
    if (status != ND_OK)
        return status;
    const nd_tensor *gradients[OUTPUTS] = {0};
    for (size_t i = 0; i < noutputs; i++)
        gradients[i] = grad_outputs[i];
    bool wanted[INPUTS] = {false};
    for (size_t i = 0; i < ninputs; i++)
        wanted[i] = w->inputs[i] && nd_requires_grad(w->inputs[i]);
    nd_tensor *grads[INPUTS] = {0};
    status = nd_is_grad_enabled() ? backward_recorded(w, gradients, wanted, grads)
                                  : backward_unrecorded(w, gradients, wanted, grads);
    for (size_t i = 0; i < INPUTS; i++) {
        if (status == ND_OK && i < ninputs)
            ret_grad_inputs[i] = grads[i];
        else
            nd_release(grads[i]);
    }
    return status;
}

// -------------------------------------------------------------------------------------------------
// the node

// Forward is run by nd__recurrent_walk itself, which records the node when the results are made.
static const nd_function functions[ND_CELLS] = {
    [ND_CELL_TANH] = {sizeof(nd_function), 1, "rnn", NULL, backward},
    [ND_CELL_RELU] = {sizeof(nd_function), 1, "rnn", NULL, backward},
    [ND_CELL_LSTM] = {sizeof(nd_function), 1, "lstm", NULL, backward},
    [ND_CELL_GRU] = {sizeof(nd_function), 1, "gru", NULL, backward},
};

/// Takes over what a backward pass needs.
static nd_status keep(nd_object *self, void *data) {
    recurrent_walk *from = data, *kept = nd_object_get_data(self);
    *kept = *from;
    for (int i = 0; i < INPUTS; i++) {
        kept->inputs[i] = nd_retain(from->inputs[i]);
        kept->versions[i] = from->inputs[i] ? nd__tensor_version(from->inputs[i]) : 0;
    }
    kept->output_version = nd__tensor_version(from->output);
    from->dense = from->hidden = from->memory = from->output = from->memories = from->kept = NULL;
    return ND_OK;
}

/// Gives the results their node, with a context that lives where the output does.
static nd_status record(recurrent_walk *w, const nd__recurrent_result *result) {
    nd_auto nd_manager *manager = nd_get_manager_retained(result->output);
    nd_tensor *alias = nd_detach(result->output);
    if (!manager || !alias) {
        nd_release(alias);
        return nd_error_get_status();
    }
    nd_release(w->output);
    w->output = alias; // without the history that the output gets
    nd_cell cell = w->cell;
    nd_auto nd_object *context = NULL;
    nd_with_manager(manager) {
        context = nd_object_new_with(&walk_type, sizeof *w, keep, w);
    }
    nd_tensor *const results[OUTPUTS] = {result->output, result->hidden, result->memory};
    return context ? nd__record_function(&functions[cell], context, results,
                                         cell == ND_CELL_LSTM ? OUTPUTS : OUTPUTS - 1,
                                         (const nd_tensor *const *)w->inputs, INPUTS)
                   : nd_error_get_status();
}

static void release_walk(recurrent_walk *w) {
    nd_release(w->dense);
    nd_release(w->hidden);
    nd_release(w->memory);
    nd_release(w->output);
    nd_release(w->memories);
    nd_release(w->kept);
}

nd_status nd__recurrent_walk(const nd__recurrent_direction *direction,
                             nd__recurrent_result *ret_result) {
    const nd__recurrent_direction *d = direction;
    __attribute__((cleanup(release_walk))) recurrent_walk w = {
        .inputs = {(nd_tensor *)(uintptr_t)d->input, (nd_tensor *)(uintptr_t)d->weight,
                   (nd_tensor *)(uintptr_t)d->bias, (nd_tensor *)(uintptr_t)d->hidden,
                   (nd_tensor *)(uintptr_t)d->memory},
        .name = d->name,
        .cell = d->cell,
        .reverse = d->reverse,
    };
    bool recorded = nd__record_wants_history((const nd_tensor *const *)w.inputs, INPUTS);
    nd__recurrent_result result = {0};
    nd_status status = ND_OK;
    nd_no_grad {
        status = walk_forward(&w, recorded, &result);
    }
    if (status == ND_OK && recorded)
        status = record(&w, &result);
    if (status == ND_OK)
        *ret_result = result;
    else
        nd__recurrent_direction_release(&result);
    return status;
}
