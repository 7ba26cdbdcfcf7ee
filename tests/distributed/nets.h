// Nets that ranks train, and what one process that has the data of all ranks makes of them: the mean
// of the ranks' gradients, and the whole batch in one pass.
#ifndef ND_TESTS_DISTRIBUTED_NETS_H
#define ND_TESTS_DISTRIBUTED_NETS_H
#include "tests/distributed/ranks.h"

#include <math.h>

enum { PER_RANK = 6, FEATURES = 8, CLASSES = 5, IMAGE = 8 };

/// A net and what it takes.
typedef struct kind {
    const char *name;
    nd_module *(*make)(uint64_t seed);
    nd_tensor *(*input)(uint64_t seed, int rank);
} kind;

static inline nd_module *make_mlp(uint64_t seed) {
    nd_key key = nd_key_new(seed);
    return ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), FEATURES, 32, true),
                         nd_tanh_module(), nd_linear_module(nd_key_fold(key, 1), 32, 32, true),
                         nd_gelu_module(),
                         nd_linear_module(nd_key_fold(key, 2), 32, CLASSES, true));
}

static inline nd_tensor *rows(uint64_t seed, int rank) {
    return nd_randn(nd_key_fold(nd_key_new(seed), (uint64_t)rank), ND_SHAPE(PER_RANK, FEATURES),
                    ND_F32);
}

static inline nd_module *make_cnn(uint64_t seed) {
    nd_key key = nd_key_new(seed);
    nd_conv2d_options conv = ND_CONV2D_OPTIONS_INIT;
    return ND_SEQUENTIAL(
        nd_conv2d_module(nd_key_fold(key, 0), 1, 4, 3, 3, true, &conv), nd_relu_module(),
        nd_flatten_module(),
        nd_linear_module(nd_key_fold(key, 1), 4 * (IMAGE - 2) * (IMAGE - 2), CLASSES, true));
}

static inline nd_tensor *images(uint64_t seed, int rank) {
    return nd_randn(nd_key_fold(nd_key_new(seed), (uint64_t)rank),
                    ND_SHAPE(PER_RANK, 1, IMAGE, IMAGE), ND_F32);
}

/// Attention between the rows of a batch of sequences, with a norm and a feed-forward part.
static inline nd_tensor *transformer_forward(const nd_module *self, const nd_tensor *x) {
    nd_auto nd_tensor *q = nd_module_forward(nd_module_get_child(self, 0), x);
    nd_auto nd_tensor *k = nd_module_forward(nd_module_get_child(self, 1), x);
    nd_auto nd_tensor *turned = nd_transpose(k, -2, -1);
    nd_auto nd_tensor *scores = nd_matmul(q, turned);
    nd_auto nd_tensor *weights = nd_softmax(scores, -1);
    nd_auto nd_tensor *mixed = nd_matmul(weights, x);
    nd_auto nd_tensor *sum = nd_add(mixed, x);
    nd_auto nd_tensor *normal = nd_module_forward(nd_module_get_child(self, 2), sum);
    nd_auto nd_tensor *flat = nd_mean(normal, 1, (const int[]){1}, false);
    return nd_module_forward(nd_module_get_child(self, 3), flat);
}

static const nd_module_type transformer_type = {
    .size = sizeof(nd_module_type),
    .version = 1,
    .name = "transformer",
    .forward = transformer_forward,
};

static inline nd_module *make_transformer(uint64_t seed) {
    nd_key key = nd_key_new(seed);
    nd_module *whole = nd_module_new(&transformer_type, NULL, 0);
    nd_module *parts[] = {
        nd_linear_module(nd_key_fold(key, 0), FEATURES, FEATURES, true),
        nd_linear_module(nd_key_fold(key, 1), FEATURES, FEATURES, true),
        nd_layer_norm_module(1e-5, ND_SHAPE(FEATURES)),
        nd_linear_module(nd_key_fold(key, 2), FEATURES, CLASSES, true),
    };
    static const char *const names[] = {"query", "key", "norm", "head"};
    for (int i = 0; i < 4; i++) {
        assert_ok(nd_module_add_child(whole, names[i], parts[i]));
        nd_release(parts[i]);
    }
    return whole;
}

static inline nd_tensor *sequences(uint64_t seed, int rank) {
    return nd_randn(nd_key_fold(nd_key_new(seed), (uint64_t)rank), ND_SHAPE(PER_RANK, 7, FEATURES),
                    ND_F32);
}

static const kind kinds[] = {
    {"MLP", make_mlp, rows},
    {"CNN", make_cnn, images},
    {"transformer", make_transformer, sequences},
};

static inline nd_tensor *labels(uint64_t seed, int rank) {
    return nd_randint(nd_key_fold(nd_key_new(seed + 1), (uint64_t)rank), 0, CLASSES,
                      ND_SHAPE(PER_RANK), ND_I64);
}

/// The loss of a rank's share.
static inline nd_tensor *loss_of(const kind *k, const nd_module *module, uint64_t seed, int rank) {
    nd_auto nd_tensor *x = k->input(seed, rank);
    nd_auto nd_tensor *y = labels(seed, rank);
    nd_auto nd_tensor *logits = nd_module_forward(module, x);
    nd_tensor *loss = nd_cross_entropy(logits, y);
    assert_handle(loss);
    return loss;
}

static inline nd_tensor *whole_loss(const kind *k, const nd_module *module, uint64_t seed,
                                    int ranks) {
    nd_tensor *xs[8], *ys[8];
    for (int r = 0; r < ranks; r++) {
        xs[r] = k->input(seed, r);
        ys[r] = labels(seed, r);
    }
    nd_auto nd_tensor *x = nd_concat((size_t)ranks, (const nd_tensor *const *)xs, 0);
    nd_auto nd_tensor *y = nd_concat((size_t)ranks, (const nd_tensor *const *)ys, 0);
    for (int r = 0; r < ranks; r++) {
        nd_release(xs[r]);
        nd_release(ys[r]);
    }
    nd_auto nd_tensor *logits = nd_module_forward(module, x);
    return nd_cross_entropy(logits, y);
}

/// The mean of all ranks' gradients, in one process, in the order of ranks; bitwise what two ranks
/// compute.
static inline void mean_of_shares(const kind *k, const nd_module *module, uint64_t seed,
                                  int ranks) {
    for (int r = 0; r < ranks; r++) {
        nd_auto nd_tensor *loss = loss_of(k, module, seed, r);
        assert_ok(nd_backward(loss, NULL));
    }
    for (size_t i = 0; i < nd_module_get_parameter_count(module); i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(module, i, NULL);
        nd_auto nd_tensor *mean = nd_div_scalar(nd_get_grad(parameter), ranks);
        assert_ok(nd_set_grad((nd_tensor *)(uintptr_t)parameter, mean));
    }
}

static inline void assert_same_gradients(const char *what, const nd_module *a, const nd_module *b,
                                         double tolerance) {
    for (size_t i = 0; i < nd_module_get_parameter_count(a); i++) {
        const char *name;
        const nd_tensor *x = nd_get_grad(nd_module_get_parameter_at(a, i, &name));
        const nd_tensor *y = nd_get_grad(nd_module_get_parameter_at(b, i, NULL));
        assert_handle(x);
        assert_handle(y);
        for (int64_t n = 0; n < nd_get_numel(x); n++) {
            double difference = fabs(element_at(x, n) - element_at(y, n));
            if (!(difference <= tolerance * (1 + fabs(element_at(y, n)))))
                fail_msg("%s: %s[%lld]: %.9g and %.9g", what, name, (long long)n, element_at(x, n),
                         element_at(y, n));
        }
    }
}

static inline void assert_same_parameters(const nd_module *a, const nd_module *b,
                                          double tolerance) {
    for (size_t i = 0; i < nd_module_get_parameter_count(a); i++) {
        const char *name;
        const nd_tensor *x = nd_module_get_parameter_at(a, i, &name);
        const nd_tensor *y = nd_module_get_parameter_at(b, i, NULL);
        for (int64_t n = 0; n < nd_get_numel(x); n++)
            if (!(fabs(element_at(x, n) - element_at(y, n)) <= tolerance))
                fail_msg("%s[%lld]: %.9g and %.9g", name, (long long)n, element_at(x, n),
                         element_at(y, n));
    }
}
#endif
