// A direction of a recurrent net by recorded operations, some ten of them for each step.
#include "lib/ops/recurrent_steps.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/record.h"
#include <nd/autograd.h>
#include <nd/neural.h>

// -------------------------------------------------------------------------------------------------
// steps of a sequence: one node for all of them, since each alone would fill the rest with zeros

static nd_status join_steps(const nd_object *context, size_t noutputs,
                            const nd_tensor *const *grad_outputs, size_t ninputs,
                            nd_tensor **ret_grad_inputs) {
    (void)context, (void)ninputs;
    const nd_tensor *any = NULL;
    for (size_t i = 0; i < noutputs && !any; i++)
        any = grad_outputs[i];
    nd_auto nd_tensor *zeros = nd_zeros_like(any);
    const nd_tensor **parts = nd__pressure_alloc_zeroed(noutputs * sizeof *parts);
    if (!parts)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "steps: no memory for %zu parts", noutputs);
    for (size_t i = 0; i < noutputs; i++)
        parts[i] = grad_outputs[i] ? grad_outputs[i] : zeros;
    nd_tensor *joined = zeros ? nd_stack(noutputs, parts, 0) : NULL;
    nd__alloc_free(parts);
    *ret_grad_inputs = joined;
    return joined ? ND_OK : nd_error_get_status();
}

static const nd_function steps_function = {sizeof(nd_function), 1, "steps", NULL, join_steps};

/// Views of the input along its first axis.
static nd_status take_apart(const nd__recurrent_direction *d, nd__recurrent_list *ret_steps) {
    nd_status status = nd__recurrent_direction_make_list(d->name, d->input->shape[0], ret_steps);
    if (status != ND_OK)
        return status;
    nd_no_grad {
        for (size_t i = 0; i < ret_steps->count && status == ND_OK; i++)
            if (!(ret_steps->at[i] = nd_select(d->input, (int64_t)i, 0)))
                status = nd_error_get_status();
    }
    return status == ND_OK ? nd__record_function(&steps_function, NULL, ret_steps->at,
                                                 ret_steps->count, &d->input, 1)
                           : status;
}

// -------------------------------------------------------------------------------------------------
// one step

/// Gate number `gate`: [n, size].
static nd_tensor *gate_of(const nd__recurrent_direction *d, const nd_tensor *gates, int64_t gate) {
    const int64_t size = d->input->shape[2] / nd_cell_gates(d->cell);
    return nd_slice(gates, gate * size, (gate + 1) * size, 1, 1);
}

/// Puts a new state into the place of the old one.
static nd_status replace(nd_tensor **state, nd_tensor *next) {
    nd_release(*state);
    *state = next;
    return next ? ND_OK : nd_error_get_status();
}

static nd_status step_simple(const nd__recurrent_direction *d, const nd_tensor *from_x,
                             const nd_tensor *from_h, nd_tensor **hidden) {
    nd_auto nd_tensor *sum = nd_add(from_x, from_h);
    return replace(hidden, d->cell == ND_CELL_RELU ? nd_relu(sum) : nd_tanh(sum));
}

/// c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c)
static nd_status step_lstm(const nd__recurrent_direction *d, const nd_tensor *from_x,
                           const nd_tensor *from_h, nd_tensor **hidden, nd_tensor **memory) {
    nd_auto nd_tensor *gates = nd_add(from_x, from_h);
    nd_auto nd_tensor *i = gate_of(d, gates, 0);
    nd_auto nd_tensor *f = gate_of(d, gates, 1);
    nd_auto nd_tensor *g = gate_of(d, gates, 2);
    nd_auto nd_tensor *o = gate_of(d, gates, 3);
    nd_auto nd_tensor *input = nd_sigmoid(i);
    nd_auto nd_tensor *forget = nd_sigmoid(f);
    nd_auto nd_tensor *content = nd_tanh(g);
    nd_auto nd_tensor *output = nd_sigmoid(o);
    nd_auto nd_tensor *kept = nd_mul(forget, *memory);
    nd_auto nd_tensor *added = nd_mul(input, content);
    nd_status status = replace(memory, nd_add(kept, added));
    nd_auto nd_tensor *shown = nd_tanh(*memory);
    return status == ND_OK ? replace(hidden, nd_mul(output, shown)) : status;
}

/// n' = tanh(n_x + sigmoid(r) n_h), h = n' + sigmoid(z) (h - n')
static nd_status step_gru(const nd__recurrent_direction *d, const nd_tensor *from_x,
                          const nd_tensor *from_h, nd_tensor **hidden) {
    const int64_t size = d->input->shape[2] / 3;
    nd_auto nd_tensor *both_x = nd_slice(from_x, 0, 2 * size, 1, 1);
    nd_auto nd_tensor *both_h = nd_slice(from_h, 0, 2 * size, 1, 1);
    nd_auto nd_tensor *sum = nd_add(both_x, both_h);
    nd_auto nd_tensor *gates = nd_sigmoid(sum);
    nd_auto nd_tensor *reset = gate_of(d, gates, 0);
    nd_auto nd_tensor *update = gate_of(d, gates, 1);
    nd_auto nd_tensor *n_x = gate_of(d, from_x, 2);
    nd_auto nd_tensor *n_h = gate_of(d, from_h, 2);
    nd_auto nd_tensor *allowed = nd_mul(reset, n_h);
    nd_auto nd_tensor *before = nd_add(n_x, allowed);
    nd_auto nd_tensor *content = nd_tanh(before);
    nd_auto nd_tensor *change = nd_sub(*hidden, content);
    nd_auto nd_tensor *kept = nd_mul(update, change);
    return replace(hidden, nd_add(content, kept));
}

// -------------------------------------------------------------------------------------------------

/// All steps from the first to the last, or back, into `outputs`.
static nd_status walk(const nd__recurrent_direction *d, const nd__recurrent_list *inputs,
                      nd__recurrent_list *outputs, nd__recurrent_result *result) {
    nd_status status = ND_OK;
    for (size_t i = 0; i < inputs->count && status == ND_OK; i++) {
        size_t t = d->reverse ? inputs->count - 1 - i : i;
        nd_auto nd_tensor *from_h = nd__recurrent_direction_product(d, result->hidden);
        const nd_tensor *from_x = inputs->at[t];
        if (!from_h)
            status = nd_error_get_status();
        else if (d->cell == ND_CELL_LSTM)
            status = step_lstm(d, from_x, from_h, &result->hidden, &result->memory);
        else if (d->cell == ND_CELL_GRU)
            status = step_gru(d, from_x, from_h, &result->hidden);
        else
            status = step_simple(d, from_x, from_h, &result->hidden);
        outputs->at[t] = nd_retain(result->hidden);
    }
    return status;
}

static nd_status run(const nd__recurrent_direction *d, nd__recurrent_result *result) {
    __attribute__((cleanup(nd__recurrent_direction_release_list))) nd__recurrent_list inputs = {0};
    __attribute__((cleanup(nd__recurrent_direction_release_list))) nd__recurrent_list outputs = {0};
    nd_status status = take_apart(d, &inputs);
    if (status == ND_OK)
        status = nd__recurrent_direction_make_list(d->name, d->input->shape[0], &outputs);
    if (status == ND_OK && !(result->hidden = nd__recurrent_direction_state(d, d->hidden)))
        status = nd_error_get_status();
    if (status == ND_OK && d->cell == ND_CELL_LSTM &&
        !(result->memory = nd__recurrent_direction_state(d, d->memory)))
        status = nd_error_get_status();
    if (status == ND_OK)
        status = walk(d, &inputs, &outputs, result);
    if (status == ND_OK)
        result->output = nd_stack(outputs.count, (const nd_tensor *const *)outputs.at, 0);
    return status == ND_OK && !result->output ? nd_error_get_status() : status;
}

nd_status nd__recurrent_steps(const nd__recurrent_direction *direction,
                              nd__recurrent_result *ret_result) {
    nd__recurrent_result result = {0};
    nd_status status = run(direction, &result);
    if (status == ND_OK)
        *ret_result = result;
    else
        nd__recurrent_direction_release(&result);
    return status;
}
