// Recurrent nets over whole sequences: RNN, LSTM, GRU, of several layers, in one or both
// directions.
//
// What the inputs bring to the gates is one product for the whole sequence; only the part of the
// state is computed step by step. Gates and weights lie as PyTorch has them: LSTM i, f, g, o; GRU
// r, z, n.
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/dropout.h"
#include "lib/ops/operands.h"
#include "lib/ops/precision.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/create.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/neural.h>

typedef enum cell_kind { RNN, LSTM, GRU } cell_kind;
static const struct {
    const char *name;
    int64_t gates;
} cells[] = {[RNN] = {"rnn", 1}, [LSTM] = {"lstm", 4}, [GRU] = {"gru", 3}};

/// A call, checked.
typedef struct recurrent {
    cell_kind kind;
    const char *name;
    nd_recurrent_options options;
    const nd_tensor *x, *hidden, *cell; ///< as handed in
    const nd_tensor *const *weights;
    int64_t per_layer;          ///< weights of one direction of a layer: 2, or 4 with biases
    int64_t directions;         ///< 1 or 2
    int64_t steps, batch, size; ///< of the sequence, the batch, the state
    nd_dtype dtype;             ///< computed in
    bool batched;               ///< x has an axis of the batch
} recurrent;

// -------------------------------------------------------------------------------------------------
// checks

static nd_status check_options(recurrent *r, const nd_recurrent_options *given) {
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    nd_status status =
        nd__versioned_read(r->name, "ND_RECURRENT_OPTIONS_INIT", given, &options, sizeof options);
    if (status == ND_OK && (options.layers < 1 || options.layers > INT32_MAX))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: layers is %lld and must be at least 1",
                           r->name, (long long)options.layers);
    if (status == ND_OK)
        status = nd__dropout_check(r->name, options.dropout);
    r->options = options;
    r->directions = options.bidirectional ? 2 : 1;
    return status;
}

static nd_status check_sequence(recurrent *r) {
    const nd_tensor *x = r->x;
    nd_status status = nd__precision_check(r->name, "x", x, &r->dtype);
    if (status != ND_OK)
        return status;
    char text[ND__SHAPE_TEXT];
    if (x->ndim != 2 && x->ndim != 3)
        return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must be %s or [t, in]", r->name,
                         nd__shape_text(text, x->ndim, x->shape),
                         r->options.batch_first ? "[n, t, in]" : "[t, n, in]");
    r->batched = x->ndim == 3;
    bool first = r->batched && r->options.batch_first;
    r->steps = x->shape[first ? 1 : 0];
    r->batch = r->batched ? x->shape[first ? 0 : 1] : 1;
    if (r->steps == 0)
        return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s, a sequence without steps", r->name,
                         nd__shape_text(text, x->ndim, x->shape));
    return ND_OK;
}

/// What a weight is for, by its place among those of one direction of a layer.
static const char *const roles[] = {"input weight", "state weight", "input bias", "state bias"};

static nd_status check_weight(const recurrent *r, size_t at) {
    const nd_tensor *w = r->weights[at];
    size_t role = at % (size_t)r->per_layer, layer = at / (size_t)(r->per_layer * r->directions);
    nd_status status = nd__operands_check_pair(r->name, "x", r->x, "a weight", w);
    if (status == ND_OK)
        status = nd__precision_check_beside(r->name, "a weight", w, r->x);
    if (status != ND_OK)
        return status;
    int64_t rows = cells[r->kind].gates * r->size;
    int64_t columns = role == 1    ? r->size
                      : layer == 0 ? r->x->shape[r->x->ndim - 1]
                                   : r->directions * r->size;
    int ndim = role < 2 ? 2 : 1;
    const int64_t shape[] = {rows, columns};
    if (w->ndim == ndim && w->shape[0] == rows && (ndim == 1 || w->shape[1] == columns))
        return ND_OK;
    char got[ND__SHAPE_TEXT], wanted[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE,
                     "%s: weights[%zu], the %s of layer %zu, has shape %s and must "
                     "have %s",
                     r->name, at, roles[role], layer, nd__shape_text(got, w->ndim, w->shape),
                     nd__shape_text(wanted, ndim, shape));
}

static nd_status check_weights(recurrent *r, size_t count, const nd_tensor *const *weights) {
    if (!weights)
        return nd__error_null(r->name, "weights");
    size_t places = (size_t)(r->options.layers * r->directions);
    if (count != 2 * places && count != 4 * places)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: %zu weights; %zu, or %zu with biases, are those of %lld layers in "
                         "%lld directions",
                         r->name, count, 2 * places, 4 * places, (long long)r->options.layers,
                         (long long)r->directions);
    r->per_layer = (int64_t)(count / places);
    r->weights = weights;
    nd_status status = nd__tensor_check_operand(r->name, "weights[1]", weights[1]);
    if (status == ND_OK && weights[1]->ndim != 2)
        return check_weight(r, 1);
    if (status == ND_OK)
        r->size = weights[1]->shape[1];
    for (size_t i = 0; i < count && status == ND_OK; i++)
        status = check_weight(r, i);
    return status;
}

static nd_status check_state(const recurrent *r, const char *argument, const nd_tensor *state) {
    if (!state)
        return ND_OK;
    nd_status status = nd__operands_check_pair(r->name, "x", r->x, argument, state);
    if (status == ND_OK)
        status = nd__precision_check_beside(r->name, argument, state, r->x);
    if (status != ND_OK)
        return status;
    const int64_t batched[] = {r->options.layers * r->directions, r->batch, r->size};
    const int64_t single[] = {batched[0], r->size};
    const int64_t *shape = r->batched ? batched : single;
    int ndim = r->batched ? 3 : 2;
    bool fits = state->ndim == ndim;
    for (int i = 0; i < ndim && fits; i++)
        fits = state->shape[i] == shape[i];
    if (fits)
        return ND_OK;
    char got[ND__SHAPE_TEXT], wanted[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE, "%s: %s has shape %s and must have %s", r->name, argument,
                     nd__shape_text(got, state->ndim, state->shape),
                     nd__shape_text(wanted, ndim, shape));
}

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

/// Tensors of a sequence, one for each step.
typedef struct steps {
    nd_tensor **at;
    size_t count;
} steps;

static void release_steps(steps *s) {
    for (size_t i = 0; s->at && i < s->count; i++)
        nd_release(s->at[i]);
    nd__alloc_free(s->at);
}

static nd_status make_steps(const char *name, int64_t count, steps *ret_steps) {
    ret_steps->count = (size_t)count;
    ret_steps->at = nd__pressure_alloc_zeroed((size_t)count * sizeof *ret_steps->at);
    return ret_steps->at ? ND_OK
                         : nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %lld steps", name,
                                     (long long)count);
}

/// Views of x along its first axis.
static nd_status take_apart(const recurrent *r, const nd_tensor *x, steps *ret_steps) {
    nd_status status = x ? make_steps(r->name, x->shape[0], ret_steps) : nd_error_get_status();
    if (status != ND_OK)
        return status;
    nd_no_grad {
        for (size_t i = 0; i < ret_steps->count && status == ND_OK; i++)
            if (!(ret_steps->at[i] = nd_select(x, (int64_t)i, 0)))
                status = nd_error_get_status();
    }
    return status == ND_OK
               ? nd__record_function(&steps_function, NULL, ret_steps->at, ret_steps->count, &x, 1)
               : status;
}

// -------------------------------------------------------------------------------------------------
// one step

/// Gate number `gate`: [n, size].
static nd_tensor *gate_of(const recurrent *r, const nd_tensor *gates, int64_t gate) {
    return nd_slice(gates, gate * r->size, (gate + 1) * r->size, 1, 1);
}

/// Puts a new state into the place of the old one.
static nd_status replace(nd_tensor **state, nd_tensor *next) {
    nd_release(*state);
    *state = next;
    return next ? ND_OK : nd_error_get_status();
}

static nd_status step_rnn(const recurrent *r, const nd_tensor *from_x, const nd_tensor *from_h,
                          nd_tensor **hidden) {
    nd_auto nd_tensor *sum = nd_add(from_x, from_h);
    return replace(hidden, r->options.relu ? nd_relu(sum) : nd_tanh(sum));
}

/// c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c)
static nd_status step_lstm(const recurrent *r, const nd_tensor *from_x, const nd_tensor *from_h,
                           nd_tensor **hidden, nd_tensor **cell) {
    nd_auto nd_tensor *gates = nd_add(from_x, from_h);
    nd_auto nd_tensor *i = gate_of(r, gates, 0);
    nd_auto nd_tensor *f = gate_of(r, gates, 1);
    nd_auto nd_tensor *g = gate_of(r, gates, 2);
    nd_auto nd_tensor *o = gate_of(r, gates, 3);
    nd_auto nd_tensor *input = nd_sigmoid(i);
    nd_auto nd_tensor *forget = nd_sigmoid(f);
    nd_auto nd_tensor *content = nd_tanh(g);
    nd_auto nd_tensor *output = nd_sigmoid(o);
    nd_auto nd_tensor *kept = nd_mul(forget, *cell);
    nd_auto nd_tensor *added = nd_mul(input, content);
    nd_status status = replace(cell, nd_add(kept, added));
    nd_auto nd_tensor *shown = nd_tanh(*cell);
    return status == ND_OK ? replace(hidden, nd_mul(output, shown)) : status;
}

/// n' = tanh(n_x + sigmoid(r) n_h), h = n' + sigmoid(z) (h - n')
static nd_status step_gru(const recurrent *r, const nd_tensor *from_x, const nd_tensor *from_h,
                          nd_tensor **hidden) {
    nd_auto nd_tensor *both_x = nd_slice(from_x, 0, 2 * r->size, 1, 1);
    nd_auto nd_tensor *both_h = nd_slice(from_h, 0, 2 * r->size, 1, 1);
    nd_auto nd_tensor *sum = nd_add(both_x, both_h);
    nd_auto nd_tensor *gates = nd_sigmoid(sum);
    nd_auto nd_tensor *reset = gate_of(r, gates, 0);
    nd_auto nd_tensor *update = gate_of(r, gates, 1);
    nd_auto nd_tensor *n_x = gate_of(r, from_x, 2);
    nd_auto nd_tensor *n_h = gate_of(r, from_h, 2);
    nd_auto nd_tensor *allowed = nd_mul(reset, n_h);
    nd_auto nd_tensor *before = nd_add(n_x, allowed);
    nd_auto nd_tensor *content = nd_tanh(before);
    nd_auto nd_tensor *change = nd_sub(*hidden, content);
    nd_auto nd_tensor *kept = nd_mul(update, change);
    return replace(hidden, nd_add(content, kept));
}

// -------------------------------------------------------------------------------------------------
// one direction of one layer

/// A weight in the dtype of computing; NULL, without an error, for a bias that there is not.
static nd_status weight_of(const recurrent *r, int64_t place, int64_t role, nd_tensor **ret) {
    if (role >= r->per_layer)
        return ND_OK;
    *ret = nd__operands_as_dtype(r->weights[place * r->per_layer + role], r->dtype);
    return *ret ? ND_OK : nd_error_get_status();
}

/// The first state: [n, size].
static nd_tensor *first_state(const recurrent *r, const nd_tensor *states, int64_t place) {
    const int64_t shape[] = {r->batch, r->size};
    if (!states)
        return nd__create_filled(
            r->name, nd__tensor_result(r->name, &r->x, 1, r->x->device, r->dtype, 2, shape),
            ND_NUMBER(0));
    nd_auto nd_tensor *state = nd_select(states, place, 0);
    nd_auto nd_tensor *shaped = nd_reshape(state, 2, shape);
    return shaped ? nd__operands_as_dtype(shaped, r->dtype) : NULL;
}

/// What a direction of a layer leaves behind.
typedef struct direction {
    nd_tensor *output;        ///< [t, n, size]
    nd_tensor *hidden, *cell; ///< [n, size], after the last step
} direction;

static void release_direction(direction *d) {
    nd_release(d->output);
    nd_release(d->hidden);
    nd_release(d->cell);
}

/// All steps from the first to the last, or back, into `outputs`.
static nd_status walk(const recurrent *r, int64_t place, const steps *inputs, steps *outputs,
                      direction *d) {
    nd_auto nd_tensor *weight = NULL;
    nd_auto nd_tensor *bias = NULL;
    nd_status status = weight_of(r, place, 1, &weight);
    if (status == ND_OK)
        status = weight_of(r, place, 3, &bias);
    bool reverse = r->directions == 2 && place % 2 == 1;
    for (size_t i = 0; i < inputs->count && status == ND_OK; i++) {
        size_t t = reverse ? inputs->count - 1 - i : i;
        nd_auto nd_tensor *from_h = nd_linear(d->hidden, weight, bias);
        const nd_tensor *from_x = inputs->at[t];
        if (!from_h)
            status = nd_error_get_status();
        else if (r->kind == LSTM)
            status = step_lstm(r, from_x, from_h, &d->hidden, &d->cell);
        else if (r->kind == GRU)
            status = step_gru(r, from_x, from_h, &d->hidden);
        else
            status = step_rnn(r, from_x, from_h, &d->hidden);
        outputs->at[t] = nd_retain(d->hidden);
    }
    return status;
}

/// x: [t, n, in].
static nd_status run_direction(const recurrent *r, const nd_tensor *x, int64_t place,
                               direction *d) {
    __attribute__((cleanup(release_steps))) steps inputs = {0};
    __attribute__((cleanup(release_steps))) steps outputs = {0};
    nd_auto nd_tensor *weight = NULL;
    nd_auto nd_tensor *bias = NULL;
    nd_status status = weight_of(r, place, 0, &weight);
    if (status == ND_OK)
        status = weight_of(r, place, 2, &bias);
    if (status == ND_OK && !(d->hidden = first_state(r, r->hidden, place)))
        status = nd_error_get_status();
    if (status == ND_OK && r->kind == LSTM && !(d->cell = first_state(r, r->cell, place)))
        status = nd_error_get_status();
    if (status != ND_OK)
        return status;
    nd_auto nd_tensor *from_x = nd_linear(x, weight, bias);
    status = take_apart(r, from_x, &inputs);
    if (status == ND_OK)
        status = make_steps(r->name, r->steps, &outputs);
    if (status == ND_OK)
        status = walk(r, place, &inputs, &outputs, d);
    if (status == ND_OK)
        d->output = nd_stack(outputs.count, (const nd_tensor *const *)outputs.at, 0);
    return status == ND_OK && !d->output ? nd_error_get_status() : status;
}

// -------------------------------------------------------------------------------------------------
// all layers

/// One layer: replaces *x, [t, n, in], by its output, [t, n, directions size], and hands its states
/// over.
static nd_status run_layer(const recurrent *r, int64_t layer, nd_tensor **x, steps *hidden,
                           steps *cell) {
    nd_auto nd_tensor *result = NULL;
    for (int64_t way = 0; way < r->directions; way++) {
        __attribute__((cleanup(release_direction))) direction d = {0};
        int64_t place = layer * r->directions + way;
        nd_status status = run_direction(r, *x, place, &d);
        if (status != ND_OK)
            return status;
        hidden->at[place] = nd_steal(&d.hidden);
        cell->at[place] = nd_steal(&d.cell);
        const nd_tensor *both[] = {result, d.output};
        nd_tensor *wider = result ? nd_concat(2, both, 2) : nd_retain(d.output);
        nd_release(result);
        result = wider;
    }
    if (result && layer + 1 < r->options.layers && r->options.training) {
        nd_tensor *dropped = nd_dropout(result, nd_key_fold(r->options.key, (uint64_t)layer),
                                        r->options.dropout, true);
        nd_release(result);
        result = dropped;
    }
    return replace(x, nd_steal(&result));
}

/// x as [t, n, in], in the dtype of computing.
static nd_tensor *by_steps(const recurrent *r) {
    nd_auto nd_tensor *wide = nd__operands_as_dtype(r->x, r->dtype);
    if (!r->batched)
        return nd_unsqueeze(wide, 1);
    return r->options.batch_first ? nd_transpose(wide, 0, 1) : nd_steal(&wide);
}

/// The output as x lies.
static nd_tensor *as_given(const recurrent *r, const nd_tensor *output) {
    nd_auto nd_tensor *narrow = nd_cast(output, r->x->dtype);
    if (!r->batched)
        return nd_squeeze(narrow, 1);
    return r->options.batch_first ? nd_transpose(narrow, 0, 1) : nd_steal(&narrow);
}

/// The last states of all layers and directions: [layers directions, n, size], or without the n.
static nd_tensor *states_of(const recurrent *r, const steps *states) {
    nd_auto nd_tensor *all = nd_stack(states->count, (const nd_tensor *const *)states->at, 0);
    nd_auto nd_tensor *narrow = nd_cast(all, r->x->dtype);
    return r->batched ? nd_steal(&narrow) : nd_squeeze(narrow, 1);
}

static nd_status run(const recurrent *r, nd_tensor **ret_output, nd_tensor **ret_hidden,
                     nd_tensor **ret_cell) {
    __attribute__((cleanup(release_steps))) steps hidden = {0};
    __attribute__((cleanup(release_steps))) steps cell = {0};
    int64_t places = r->options.layers * r->directions;
    nd_status status = make_steps(r->name, places, &hidden);
    if (status == ND_OK)
        status = make_steps(r->name, places, &cell);
    nd_auto nd_tensor *x = status == ND_OK ? by_steps(r) : NULL;
    if (!x)
        return nd_error_get_status();
    for (int64_t layer = 0; layer < r->options.layers && status == ND_OK; layer++)
        status = run_layer(r, layer, &x, &hidden, &cell);
    if (status != ND_OK)
        return status;
    nd_auto nd_tensor *output = as_given(r, x);
    nd_auto nd_tensor *last_hidden = states_of(r, &hidden);
    nd_auto nd_tensor *last_cell = r->kind == LSTM ? states_of(r, &cell) : NULL;
    if (!output || !last_hidden || (r->kind == LSTM && !last_cell))
        return nd_error_get_status();
    *ret_output = nd_steal(&output);
    if (ret_hidden)
        *ret_hidden = nd_steal(&last_hidden);
    if (ret_cell)
        *ret_cell = nd_steal(&last_cell);
    return ND_OK;
}

static nd_status check_and_run(recurrent *r, size_t count, const nd_tensor *const *weights,
                               const nd_recurrent_options *options, nd_tensor **ret_output,
                               nd_tensor **ret_hidden, nd_tensor **ret_cell) {
    r->name = cells[r->kind].name;
    if (!ret_output)
        return nd__error_null(r->name, "ret_output");
    nd_status status = check_options(r, options);
    if (status == ND_OK)
        status = check_sequence(r);
    if (status == ND_OK)
        status = check_weights(r, count, weights);
    if (status == ND_OK)
        status = check_state(r, "hidden", r->hidden);
    if (status == ND_OK)
        status = check_state(r, "cell", r->cell);
    return status == ND_OK ? run(r, ret_output, ret_hidden, ret_cell) : status;
}

nd_status nd_rnn(const nd_tensor *x, const nd_tensor *hidden, size_t count,
                 const nd_tensor *const *weights, const nd_recurrent_options *options,
                 nd_tensor **ret_output, nd_tensor **ret_hidden) {
    recurrent r = {.kind = RNN, .x = x, .hidden = hidden};
    return check_and_run(&r, count, weights, options, ret_output, ret_hidden, NULL);
}

nd_status nd_lstm(const nd_tensor *x, const nd_tensor *hidden, const nd_tensor *cell, size_t count,
                  const nd_tensor *const *weights, const nd_recurrent_options *options,
                  nd_tensor **ret_output, nd_tensor **ret_hidden, nd_tensor **ret_cell) {
    recurrent r = {.kind = LSTM, .x = x, .hidden = hidden, .cell = cell};
    return check_and_run(&r, count, weights, options, ret_output, ret_hidden, ret_cell);
}

nd_status nd_gru(const nd_tensor *x, const nd_tensor *hidden, size_t count,
                 const nd_tensor *const *weights, const nd_recurrent_options *options,
                 nd_tensor **ret_output, nd_tensor **ret_hidden) {
    recurrent r = {.kind = GRU, .x = x, .hidden = hidden};
    return check_and_run(&r, count, weights, options, ret_output, ret_hidden, NULL);
}
