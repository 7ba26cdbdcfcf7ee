// sequence: a small transformer learns a sequence in which each number follows from the two before it,
// and goes on with it. Attention is causal: a place sees itself and those before it.
#include <nd/scoped.h>
#include <stdio.h>

enum { NUMBERS = 5, WIDTH = 32, HEADS = 2, LENGTH = 12, BATCH = 32, STEPS = 200 };

/// The parts of the model: its children, in this order.
enum { WORDS, PLACES, NORM, PROJECT, MIX, WIDEN, NARROW, PARTS };

static const nd_tensor *apply(const nd_module *self, size_t part, const nd_tensor *x) {
    return nd_module_forward(nd_module_get_child(self, part), x);
}

/// [n, t, WIDTH] -> [n, HEADS, t, WIDTH / HEADS].
static const nd_tensor *split_heads(const nd_tensor *x) {
    const int64_t *shape = nd_get_shape(x);
    return nd_transpose(nd_reshape(x, ND_SHAPE(shape[0], shape[1], HEADS, WIDTH / HEADS)), 1, 2);
}

/// What each place takes from those that it sees: [n, t, WIDTH] -> the same.
static const nd_tensor *attend(const nd_module *self, const nd_tensor *x) {
    nd_tensor *three[3];
    const int64_t sizes[] = {WIDTH, WIDTH, WIDTH};
    if (nd_split(apply(self, PROJECT, x), 3, sizes, -1, three) != ND_OK)
        return NULL;
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.causal = true;
    const nd_tensor *mixed =
        nd_attention(split_heads(nd_tmp(three[0])), split_heads(nd_tmp(three[1])),
                     split_heads(nd_tmp(three[2])), NULL, &options);
    return apply(self, MIX, nd_reshape(nd_transpose(mixed, 1, 2), 3, nd_get_shape(x)));
}

/// Numbers [n, t] -> logits of the next ones [n, t, NUMBERS].
static nd_tensor *model_forward(const nd_module *self, const nd_tensor *numbers) {
    nd_auto_scope;
    const nd_tensor *places = nd_arange(0, nd_get_size(numbers, 1), 1, ND_I64);
    const nd_tensor *x = nd_add(apply(self, WORDS, numbers), apply(self, PLACES, places));
    x = nd_add(x, attend(self, apply(self, NORM, x)));
    return nd_retain(apply(self, NARROW, nd_gelu(apply(self, WIDEN, x))));
}

static const nd_module_type model_type = {
    .size = sizeof model_type, .version = 1, .name = "model", .forward = model_forward};

/// Owned; NULL on error.
static nd_module *make_model(nd_key key) {
    nd_auto nd_module *model = nd_module_new(&model_type, NULL, 0);
    static const char *const names[PARTS] = {"words", "places", "norm",  "project",
                                             "mix",   "widen",  "narrow"};
    nd_module *parts[PARTS] = {
        nd_embedding_module(nd_key_fold(key, 0), NUMBERS, WIDTH, ND_NO_PADDING),
        nd_embedding_module(nd_key_fold(key, 1), LENGTH, WIDTH, ND_NO_PADDING),
        nd_layer_norm_module(1e-5, ND_SHAPE(WIDTH)),
        nd_linear_module(nd_key_fold(key, 2), WIDTH, 3 * WIDTH, true),
        nd_linear_module(nd_key_fold(key, 3), WIDTH, WIDTH, true),
        nd_linear_module(nd_key_fold(key, 4), WIDTH, 4 * WIDTH, true),
        nd_linear_module(nd_key_fold(key, 5), 4 * WIDTH, NUMBERS, true)};
    nd_status status = ND_OK;
    for (int i = 0; i < PARTS; i++) {
        if (status == ND_OK)
            status = nd_module_add_child(model, names[i], parts[i]); // which retains it
        nd_release(parts[i]);
    }
    return status == ND_OK ? nd_steal(&model) : NULL;
}

/// BATCH sequences [BATCH, LENGTH + 1] from random beginnings: x, y, x + y, x + 2 y, ... modulo NUMBERS.
static const nd_tensor *draw(nd_key key) {
    const nd_tensor *begin = nd_randint(key, 0, NUMBERS, ND_SHAPE(BATCH, 2), ND_I64);
    const int64_t *two = nd_get_data(begin);
    int64_t all[BATCH][LENGTH + 1];
    for (int i = 0; i < BATCH; i++)
        for (int t = 0; t <= LENGTH; t++)
            all[i][t] = t < 2 ? two[2 * i + t] : (all[i][t - 1] + all[i][t - 2]) % NUMBERS;
    return nd_from_data(all, ND_SHAPE(BATCH, LENGTH + 1), ND_I64);
}

static nd_status train(const nd_module *model) {
    nd_adam_options options = ND_ADAM_OPTIONS_INIT;
    options.rate = 3e-3;
    nd_auto nd_optimizer *optimizer = nd_adam(model, &options);
    nd_status status = ND_OK;
    for (uint64_t i = 0; status == ND_OK && i < STEPS; i++) {
        nd_auto_scope;
        const nd_tensor *all = draw(nd_key_fold(nd_key_new(2), i));
        const nd_tensor *logits = nd_module_forward(model, nd_slice(all, 0, LENGTH, 1, 1));
        // Behind the second number each one is certain.
        const nd_tensor *certain = nd_slice(logits, 1, LENGTH, 1, 1);
        const nd_tensor *next = nd_flatten(nd_slice(all, 2, LENGTH + 1, 1, 1), 0);
        const nd_tensor *flat = nd_reshape(certain, ND_SHAPE(nd_get_numel(next), NUMBERS));
        status = nd_backward(nd_cross_entropy(flat, next), NULL);
        if (status == ND_OK)
            status = nd_optimizer_step(optimizer);
        nd_optimizer_zero_grad(optimizer);
    }
    return status;
}

/// Says how the model goes on behind two numbers.
static void go_on(const nd_module *model, int64_t first, int64_t second) {
    int64_t said[LENGTH] = {first, second};
    for (int64_t count = 2; count < LENGTH; count++) {
        nd_auto_scope;
        const nd_tensor *logits = NULL;
        nd_no_grad logits =
            nd_module_forward(model, nd_from_data(said, ND_SHAPE(1, count), ND_I64));
        const nd_tensor *last = nd_select(nd_select(logits, 0, 0), count - 1, 0);
        if (nd_get_item_i64(nd_argmax(last, 0, false), &said[count]) != ND_OK)
            return;
    }
    for (int i = 0; i < LENGTH; i++)
        printf("%d%s", (int)said[i], i + 1 < LENGTH ? " " : "\n");
}

int main(void) {
    nd_module *model = make_model(nd_key_new(1));
    if (train(model) == ND_OK) {
        go_on(model, 1, 1);
        go_on(model, 3, 0);
    }
    nd_release(model);
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
