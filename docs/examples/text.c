// text: a recurrent net reads a text letter by letter and learns to guess the next one, window by window.
// The state that a window ends with is carried over to the next one, detached: else it would hold the
// record of its window, that one the state before it, and so on, and nothing of it would be garbage.
#include <nd/scoped.h>
#include <stdio.h>
#include <string.h>

enum { LETTERS = 128, EMBEDDED = 8, HIDDEN = 32, WINDOW = 16, STEPS = 150 };
static const char text[] = "the cat sat on the mat and the dog sat on the log. ";

typedef struct reader {
    nd_module *embedding, *net, *head;
    nd_tensor *state;          ///< [1, 1, HIDDEN]; NULL: zeros
    const nd_manager *manager; ///< where the state lives, which outlives its step
} reader;

/// The window of the text from a place on: [WINDOW, 1] of i64.
static const nd_tensor *get_window(int64_t at) {
    int64_t letters[WINDOW];
    for (int64_t i = 0; i < WINDOW; i++)
        letters[i] = text[(at + i) % (int64_t)strlen(text)];
    return nd_from_data(letters, ND_SHAPE(WINDOW, 1), ND_I64);
}

/// Letters [t, 1] -> logits [t, LETTERS]; the state goes on. `attached`: the mistake.
static const nd_tensor *read_window(reader *self, const nd_tensor *letters, bool attached) {
    nd_tensor *output = NULL, *state = NULL;
    const nd_tensor *x = nd_module_forward(self->embedding, letters);
    if (nd_recurrent_module_run(self->net, x, self->state, NULL, &output, &state, NULL) != ND_OK)
        return NULL;
    nd_release(self->state);
    self->state = attached ? nd_retain(state) : nd_retain(nd_detach(state));
    nd_manager_attach(self->manager, self->state);
    nd_tmp(state);
    const nd_tensor *flat = nd_reshape(nd_tmp(output), ND_SHAPE(nd_get_size(letters, 0), HIDDEN));
    return nd_module_forward(self->head, flat);
}

/// One window; without an optimizer it is only read. The step's manager says what outlives it.
static nd_status step(reader *self, int64_t number, nd_optimizer *optimizer, bool attached) {
    nd_auto nd_manager *manager = nd_manager_new(NULL, "step");
    nd_status status = ND_OK;
    nd_with_manager(manager) {
        nd_auto_scope;
        const nd_tensor *letters = get_window(number * WINDOW);
        const nd_tensor *next = nd_flatten(get_window(number * WINDOW + 1), 0);
        const nd_tensor *loss = nd_cross_entropy(read_window(self, letters, attached), next);
        status = loss ? ND_OK : nd_error_get_status();
        if (optimizer && status == ND_OK)
            status = nd_backward(loss, NULL);
        if (optimizer && status == ND_OK)
            status = nd_optimizer_step(optimizer);
        if (optimizer)
            nd_optimizer_zero_grad(optimizer);
        if (number == STEPS - 1)
            printf("%s\n", nd_get_item(loss) < 0.35 ? "less than half a bit is missing per letter"
                                                    : "it has not learnt the text");
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_manager_close(manager, &report);
    if (!optimizer)
        printf("%s: %s\n", attached ? "carried over as it is" : "carried over detached",
               report.escaped_objects ? "the window's record escapes its step" : "nothing escapes");
    return status;
}

static nd_status show(reader *self) {
    self->manager = nd_manager_get_root();
    self->embedding = nd_embedding_module(nd_key_new(1), LETTERS, EMBEDDED, ND_NO_PADDING);
    self->net = nd_gru_module(nd_key_new(2), EMBEDDED, HIDDEN, true, NULL);
    self->head = nd_linear_module(nd_key_new(3), HIDDEN, LETTERS, true);
    nd_auto nd_module *all =
        nd_sequential(3, (nd_module *[]){nd_retain(self->embedding), nd_retain(self->net),
                                         nd_retain(self->head)});
    nd_adam_options options = ND_ADAM_OPTIONS_INIT;
    options.rate = 0.01;
    nd_auto nd_optimizer *optimizer = nd_adam(all, &options);
    nd_status status = ND_OK;
    for (int64_t i = 0; status == ND_OK && i < STEPS; i++)
        status = step(self, i, optimizer, false);
    for (int64_t i = 0; status == ND_OK && i < 2; i++)
        status = step(self, i, NULL, i == 1); // which only read, and do not say nd_no_grad
    return status;
}

int main(void) {
    reader all = {0};
    show(&all);
    nd_release(all.state);
    nd_release(all.embedding);
    nd_release(all.net);
    nd_release(all.head);
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
