// Recurrent nets over whole sequences: RNN, LSTM, GRU, of several layers, in one or both
// directions.
//
// What the inputs bring to the gates is one product for the whole sequence; only the part of the
// state is computed step by step (recurrent_direction.h). Gates and weights lie as PyTorch has them:
// LSTM i, f, g, o; GRU r, z, n.
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/autocast.h"
#include "lib/ops/dropout.h"
#include "lib/ops/operands.h"
#include "lib/ops/precision.h"
#include "lib/ops/recurrent_steps.h"
#include "lib/ops/recurrent_walk.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/neural.h>

typedef enum cell_kind { RNN, LSTM, GRU } cell_kind;
static const struct {
    const char *name;
    nd_cell cell; ///< of nd_rnn() the options say more
} cells[] = {
    [RNN] = {"rnn", ND_CELL_TANH}, [LSTM] = {"lstm", ND_CELL_LSTM}, [GRU] = {"gru", ND_CELL_GRU}};

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
        status =
            nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: layers is %lld and must be 1 ... 2147483647",
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
    int64_t rows = nd_cell_gates(cells[r->kind].cell) * r->size;
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
// one direction of one layer

/// A weight in the dtype that its products are computed in; NULL, without an error, for a bias that
/// there is not. One that fits x as it is stays so where the device multiplies that: its products are
/// rounded once, and what becomes of them is not.
static nd_status weight_of(const recurrent *r, int64_t place, int64_t role, nd_tensor **ret) {
    if (role >= r->per_layer)
        return ND_OK;
    const nd_tensor *given = r->weights[place * r->per_layer + role];
    const bool fits = given->dtype == r->x->dtype && nd__dtype_is_half(given->dtype) &&
                      nd_get_autocast_dtype() == ND_F32;
    if (fits && nd__launch_multiplies(given->device, given->dtype)) {
        *ret = nd_retain(given);
        return ND_OK;
    }
    nd_auto nd_tensor *wide = nd__operands_as_dtype(given, r->dtype);
    *ret = wide ? nd__autocast_lower(wide) : NULL;
    return *ret ? ND_OK : nd_error_get_status();
}

/// The first state, [n, size]; NULL, without an error, where none was given.
static nd_status first_state(const recurrent *r, const nd_tensor *states, int64_t place,
                             nd_tensor **ret) {
    if (!states)
        return ND_OK;
    const int64_t shape[] = {r->batch, r->size};
    nd_auto nd_tensor *state = nd_select(states, place, 0);
    nd_auto nd_tensor *shaped = nd_reshape(state, 2, shape);
    *ret = shaped ? nd__operands_as_dtype(shaped, r->dtype) : NULL;
    return *ret ? ND_OK : nd_error_get_status();
}

/// What x, [t, n, in], gives to the gates: [t, n, gates size].
static nd_tensor *from_input(const recurrent *r, const nd_tensor *x, int64_t place) {
    nd_auto nd_tensor *weight = NULL;
    nd_auto nd_tensor *bias = NULL;
    if (weight_of(r, place, 0, &weight) != ND_OK || weight_of(r, place, 2, &bias) != ND_OK)
        return NULL;
    nd_auto nd_tensor *factor = nd__operands_as_dtype(x, weight->dtype);
    nd_auto nd_tensor *product = factor ? nd_linear(factor, weight, bias) : NULL;
    return product ? nd__operands_as_dtype(product, r->dtype) : NULL;
}

/// x: [t, n, in].
static nd_status run_direction(const recurrent *r, const nd_tensor *x, int64_t place,
                               nd__recurrent_result *ret_result) {
    nd_auto nd_tensor *input = from_input(r, x, place);
    nd_auto nd_tensor *weight = NULL;
    nd_auto nd_tensor *bias = NULL;
    nd_auto nd_tensor *hidden = NULL;
    nd_auto nd_tensor *memory = NULL;
    nd_status status = input ? weight_of(r, place, 1, &weight) : nd_error_get_status();
    if (status == ND_OK)
        status = weight_of(r, place, 3, &bias);
    if (status == ND_OK)
        status = first_state(r, r->hidden, place, &hidden);
    if (status == ND_OK)
        status = first_state(r, r->cell, place, &memory);
    if (status != ND_OK)
        return status;
    nd_cell cell = r->kind != RNN    ? cells[r->kind].cell
                   : r->options.relu ? ND_CELL_RELU
                                     : ND_CELL_TANH;
    nd__recurrent_direction d = {
        r->name, cell, r->directions == 2 && place % 2 == 1, input, weight, bias, hidden, memory};
    // What was to be cast is.
    nd_autocast_block block = nd__autocast_block_begin(ND_F32);
    status = nd_get_numel(input) > 0 ? nd__recurrent_walk(&d, ret_result)
                                     : nd__recurrent_steps(&d, ret_result);
    nd__autocast_block_end(&block);
    return status;
}

// -------------------------------------------------------------------------------------------------
// all layers

/// One layer: replaces *x, [t, n, in], by its output, [t, n, directions size], and hands its states
/// over.
static nd_status run_layer(const recurrent *r, int64_t layer, nd_tensor **x,
                           nd__recurrent_list *hidden, nd__recurrent_list *cell) {
    nd_auto nd_tensor *result = NULL;
    for (int64_t way = 0; way < r->directions; way++) {
        __attribute__((cleanup(nd__recurrent_direction_release))) nd__recurrent_result d = {0};
        int64_t place = layer * r->directions + way;
        nd_status status = run_direction(r, *x, place, &d);
        if (status != ND_OK)
            return status;
        hidden->at[place] = nd_steal(&d.hidden);
        cell->at[place] = nd_steal(&d.memory);
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
    nd_release(*x);
    *x = nd_steal(&result);
    return *x ? ND_OK : nd_error_get_status();
}

/// x as [t, n, in].
static nd_tensor *by_steps(const recurrent *r) {
    if (!r->batched)
        return nd_unsqueeze(r->x, 1);
    return r->options.batch_first ? nd_transpose(r->x, 0, 1) : nd_retain(r->x);
}

/// The output as x lies.
static nd_tensor *as_given(const recurrent *r, const nd_tensor *output) {
    nd_auto nd_tensor *narrow = nd_cast(output, r->x->dtype);
    if (!r->batched)
        return nd_squeeze(narrow, 1);
    return r->options.batch_first ? nd_transpose(narrow, 0, 1) : nd_steal(&narrow);
}

/// The last states of all layers and directions: [layers directions, n, size], or without the n.
static nd_tensor *states_of(const recurrent *r, const nd__recurrent_list *states) {
    nd_auto nd_tensor *all = nd_stack(states->count, (const nd_tensor *const *)states->at, 0);
    nd_auto nd_tensor *narrow = nd_cast(all, r->x->dtype);
    return r->batched ? nd_steal(&narrow) : nd_squeeze(narrow, 1);
}

static nd_status run(const recurrent *r, nd_tensor **ret_output, nd_tensor **ret_hidden,
                     nd_tensor **ret_cell) {
    __attribute__((cleanup(nd__recurrent_direction_release_list))) nd__recurrent_list hidden = {0};
    __attribute__((cleanup(nd__recurrent_direction_release_list))) nd__recurrent_list cell = {0};
    int64_t places = r->options.layers * r->directions;
    nd_status status = nd__recurrent_direction_make_list(r->name, places, &hidden);
    if (status == ND_OK)
        status = nd__recurrent_direction_make_list(r->name, places, &cell);
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
    ND__ERROR_NAMED(r->name);
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
