// rnn_lstm, rnn_gru, rnn_attached: nets that read the repository's pages byte by byte and learn to
// guess the next one, by truncated backpropagation. The state that a window ends with is what the
// next one begins with; detached, so that the graph of a window ends with its step.
//
// rnn_attached is the classic mistake, here of a program that only reads: the state is carried over
// as it is, and nothing says nd_no_grad. It holds the graph of its window, which holds the state
// before it, and so on: each step keeps all that were before. Nothing of that is garbage. The report
// of the step's manager says what escapes, and the line here that made it. (A program that trains
// does not get that far: its second backward pass finds weights that the first step has changed, and
// fails.)
#include <nd/scoped.h>

#include "bench/support/corpus.h"
#include "bench/workloads/hand_over.h"
#include "bench/workloads/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRACKS = 16 / WORKLOAD_SHRINK,
    WINDOW = 64 / WORKLOAD_SHRINK,
    BYTES = 256,
    EMBEDDED = 32,
    HIDDEN = 128,
    SAMPLE = 160
};
static const double rate = 5e-3, largest_norm = 1;

typedef struct rnn {
    nd_device device;
    bool lstm;
    bool attached;       ///< the mistake
    nd_manager *manager; ///< that of the run: where the state lives, which outlives its step
    nd_tensor *tracks;   ///< [TRACKS, length] of i64: the text, cut into pieces read side by side
    int64_t position;    ///< of the next window
    nd_module *model;
    nd_optimizer *optimizer;
    nd_schedule *schedule;
    nd_tensor *hidden; ///< [1, TRACKS, HIDDEN]; NULL at the beginning of the text
    nd_tensor *cell;   ///< the same, of an LSTM
    nd_key key;
} rnn;

// ------------------------------------------------------------------------------------------- model

/// Its children.
enum { EMBEDDING, NET, HEAD };

/// Bytes [t, n] -> logits [t n, 256]; the states are read and written.
static const nd_tensor *read_window(const nd_module *model, bool lstm, const nd_tensor *bytes,
                                    const nd_tensor *hidden, const nd_tensor *cell,
                                    nd_tensor **ret_hidden, nd_tensor **ret_cell) {
    const nd_tensor *x = nd_module_forward(nd_module_get_child(model, EMBEDDING), bytes);
    nd_tensor *output = NULL;
    nd_status status =
        nd_recurrent_module_run(nd_module_get_child(model, NET), x, hidden, lstm ? cell : NULL,
                                &output, ret_hidden, lstm ? ret_cell : NULL);
    if (status != ND_OK)
        return NULL;
    const nd_tensor *flat =
        nd_reshape(nd_tmp(output), ND_SHAPE(nd_get_numel(output) / HIDDEN, HIDDEN));
    return nd_module_forward(nd_module_get_child(model, HEAD), flat);
}

/// The net as a function of bytes alone: from a state of zeros.
static nd_tensor *rnn_forward(const nd_module *self, const nd_tensor *bytes) {
    nd_auto_scope;
    nd_auto nd_tensor *hidden = NULL;
    nd_auto nd_tensor *cell = NULL;
    const bool *lstm = nd_module_get_data(self);
    return nd_retain(read_window(self, *lstm, bytes, NULL, NULL, &hidden, &cell));
}

static const nd_module_type rnn_type = {
    .size = sizeof rnn_type, .version = 1, .name = "rnn", .forward = rnn_forward};

static nd_module *make_model(nd_key key, bool lstm) {
    nd_module *model = nd_module_new(&rnn_type, &lstm, sizeof lstm);
    nd_auto_scope;
    const nd_key net_key = nd_key_fold(key, NET);
    const nd_module *embedding =
        nd_tmp(nd_embedding_module(nd_key_fold(key, EMBEDDING), BYTES, EMBEDDED, ND_NO_PADDING));
    const nd_module *net = nd_tmp(lstm ? nd_lstm_module(net_key, EMBEDDED, HIDDEN, true, NULL)
                                       : nd_gru_module(net_key, EMBEDDED, HIDDEN, true, NULL));
    const nd_module *head = nd_tmp(nd_linear_module(nd_key_fold(key, HEAD), HIDDEN, BYTES, true));
    nd_status status = nd_module_add_child(model, "embedding", embedding);
    if (status == ND_OK)
        status = nd_module_add_child(model, "net", net);
    if (status == ND_OK)
        status = nd_module_add_child(model, "head", head);
    if (status == ND_OK)
        return model;
    nd_release(model);
    return NULL;
}

// ---------------------------------------------------------------------------------------- training

static nd_status rnn_open(const workload_options *options, rnn *self) {
    self->device = options->device;
    self->key = nd_key_new(options->seed);
    self->manager = nd_retain(nd_manager_get_current());
    nd_auto nd_tensor *text = corpus_load();
    if (!text) {
        fprintf(stderr, "rnn: the pages in docs/ could not be read\n");
        return ND_ERROR_IO;
    }
    nd_auto_scope;
    int64_t length = nd_get_size(text, 0) / TRACKS;
    const nd_tensor *whole = nd_slice(text, 0, TRACKS * length, 1, 0);
    const nd_tensor *tracks = nd_reshape(whole, ND_SHAPE(TRACKS, length));
    self->tracks = nd_retain(nd_to(nd_cast(tracks, ND_I64), options->device));
    self->model = make_model(nd_key_fold(self->key, 0), self->lstm);
    nd_status status =
        self->tracks ? nd_module_to(self->model, options->device) : nd_error_get_status();
    if (status != ND_OK)
        return status;
    nd_adam_options adam = ND_ADAM_OPTIONS_INIT;
    adam.rate = rate;
    self->optimizer = nd_adam(self->model, &adam);
    self->schedule = nd_cosine_schedule(0.1, options->steps);
    return nd_schedule_start(self->schedule, self->optimizer);
}

static nd_status open_net(const workload_options *options, void **ret_state, bool lstm,
                          bool attached) {
    rnn *self = *ret_state = calloc(1, sizeof *self);
    if (!self)
        return ND_ERROR_OUT_OF_MEMORY;
    self->lstm = lstm;
    self->attached = attached;
    return rnn_open(options, self);
}

static nd_status lstm_open(const workload_options *options, void **ret_state) {
    return open_net(options, ret_state, true, false);
}

static nd_status gru_open(const workload_options *options, void **ret_state) {
    return open_net(options, ret_state, false, false);
}

static nd_status attached_open(const workload_options *options, void **ret_state) {
    return open_net(options, ret_state, true, true);
}

/// Puts a state in the place of the one before it.
static nd_status carry(const rnn *self, nd_tensor **state, const nd_tensor *next) {
    nd_release(*state);
    *state = nd_retain(self->attached ? next : nd_detach(next));
    return *state ? nd_manager_attach(self->manager, *state) : nd_error_get_status();
}

static void forget(rnn *self) {
    nd_release(self->hidden);
    nd_release(self->cell);
    self->hidden = self->cell = NULL;
}

/// Where the next window begins: behind the one before, or at the end of the text at its beginning,
/// with a state of zeros.
static int64_t next_window(rnn *self) {
    if (self->position + WINDOW >= nd_get_size(self->tracks, 1)) {
        self->position = 0;
        forget(self);
    }
    int64_t begin = self->position;
    self->position += WINDOW;
    return begin;
}

/// Loss of the next window, whose last states are carried over.
static const nd_tensor *window_loss(rnn *self) {
    int64_t begin = next_window(self);
    const nd_tensor *bytes = nd_slice(self->tracks, begin, begin + WINDOW, 1, 1);
    const nd_tensor *next = nd_slice(self->tracks, begin + 1, begin + WINDOW + 1, 1, 1);
    nd_tensor *hidden = NULL;
    nd_tensor *cell = NULL;
    const nd_tensor *logits = read_window(self->model, self->lstm, nd_transpose(bytes, 0, 1),
                                          self->hidden, self->cell, &hidden, &cell);
    if (!logits)
        return NULL;
    if (carry(self, &self->hidden, nd_tmp(hidden)) != ND_OK ||
        (self->lstm && carry(self, &self->cell, nd_tmp(cell)) != ND_OK))
        return NULL;
    return nd_cross_entropy(logits, nd_flatten(nd_transpose(next, 0, 1), 0));
}

static nd_status read_step(void *state, int64_t step, double *ret_value) {
    (void)step;
    rnn *self = state;
    nd_auto_scope;
    const nd_tensor *loss = window_loss(self);
    *ret_value = nd_get_item(loss);
    return loss ? ND_OK : nd_error_get_status();
}

static nd_status train_step(void *state, int64_t step, double *ret_value) {
    (void)step;
    rnn *self = state;
    nd_auto_scope;
    const nd_tensor *loss = window_loss(self);
    nd_status status = nd_backward(loss, NULL);
    if (status == ND_OK)
        status = nd_clip_grad_norm(self->model, largest_norm, NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(self->optimizer);
    if (status == ND_OK)
        status = nd_schedule_step(self->schedule);
    if (status == ND_OK)
        status = nd_optimizer_zero_grad(self->optimizer);
    *ret_value = nd_get_item(loss);
    return status;
}

/// Windows are read in order: only the first parameters are drawn.
static nd_status rnn_hand_over(void *state, const char *folder) {
    const rnn *self = state;
    return hand_over_module(folder, "model", self->model);
}

// ---------------------------------------------------------------------------------- end and sample

/// Draws a byte by the logits [1, 256] at a temperature of 0.7, and of `chance` from 0 to 1.
static int64_t draw(const nd_tensor *logits, double chance) {
    float odds[BYTES];
    const nd_tensor *softmax = nd_softmax(nd_div_scalar(logits, 0.7), 1);
    if (nd_copy_to_host(softmax, odds, sizeof odds) != ND_OK)
        return -1;
    int64_t byte = 0;
    for (double sum = odds[0]; sum < chance && byte + 1 < BYTES; sum += odds[byte])
        byte++;
    return byte;
}

/// Lets the net write on from a title's "# "; of what it writes, ASCII is kept.
static nd_status write_sample(const rnn *self, char *text, size_t size) {
    nd_auto nd_tensor *hidden = NULL;
    nd_auto nd_tensor *cell = NULL;
    int64_t byte = '#';
    size_t length = 0;
    for (uint64_t i = 0; i < SAMPLE && length + 1 < size; i++) {
        nd_auto_scope;
        nd_tensor *next_hidden = NULL;
        nd_tensor *next_cell = NULL;
        const nd_tensor *one = nd_to(nd_from_data(&byte, ND_SHAPE(1, 1), ND_I64), self->device);
        const nd_tensor *logits =
            read_window(self->model, self->lstm, one, hidden, cell, &next_hidden, &next_cell);
        if (!logits)
            return nd_error_get_status();
        nd_release(hidden);
        nd_release(cell);
        hidden = next_hidden;
        cell = next_cell;
        const nd_tensor *chance = nd_rand(nd_key_fold(self->key, 1000 + i), ND_SHAPE(1), ND_F64);
        byte = i == 0 ? ' ' : draw(logits, nd_get_item(chance));
        if (byte < 0)
            return nd_error_get_status();
        if ((byte >= ' ' && byte <= '~') || byte == '\n')
            text[length++] = (char)byte;
    }
    text[length] = '\0';
    return ND_OK;
}

static nd_status rnn_finish(void *state, workload_outcome *ret_outcome) {
    const rnn *self = state;
    nd_status status = ND_OK;
    nd_no_grad status = write_sample(self, ret_outcome->text, sizeof ret_outcome->text);
    return status;
}

static void rnn_close(void *state) {
    rnn *self = state;
    if (!self)
        return;
    forget(self);
    nd_release(self->schedule);
    nd_release(self->optimizer);
    nd_release(self->model);
    nd_release(self->tracks);
    nd_release(self->manager);
    free(self);
}

const workload workload_rnn_lstm = {
    .name = "rnn_lstm",
    .summary = "an LSTM guesses the next byte of the docs; its state is carried over, detached",
    .steps = 1000,
    .value = "nats per byte",
    .tolerance = 0.02,
    .first_tolerance = 1e-5,
    .has_peer = true,
    .open = lstm_open,
    .step = train_step,
    .hand_over = rnn_hand_over,
    .finish = rnn_finish,
    .close = rnn_close,
};

const workload workload_rnn_gru = {
    .name = "rnn_gru",
    .summary = "the same with a GRU",
    .steps = 1000,
    .value = "nats per byte",
    .tolerance = 0.02,
    .first_tolerance = 1e-5,
    .has_peer = true,
    .open = gru_open,
    .step = train_step,
    .hand_over = rnn_hand_over,
    .finish = rnn_finish,
    .close = rnn_close,
};

const workload workload_rnn_attached = {
    .name = "rnn_attached",
    .summary = "the classic mistake: the state is carried over with all its history",
    .steps = 60,
    .value = "nats per byte",
    .keeps_history = true,
    .open = attached_open,
    .step = read_step,
    .close = rnn_close,
};
