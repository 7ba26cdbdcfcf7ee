// What neural.h computes of f16 and bf16 is what it computes of the same numbers in f32, rounded
// once; gradients are those of f32 but for a rounding in each operation that gives a part of them.
// Recurrent nets may round their products.
#include "tests/unit/ops/torch_case.h"

typedef nd_tensor *function(const nd_tensor *x, const nd_tensor *weight);

static nd_tensor *of_layer_norm(const nd_tensor *x, const nd_tensor *weight) {
    return nd_layer_norm(x, weight, weight, 1e-5, 1);
}
static nd_tensor *of_rms_norm(const nd_tensor *x, const nd_tensor *weight) {
    return nd_rms_norm(x, weight, 1e-5, 1);
}
static nd_tensor *of_group_norm(const nd_tensor *x, const nd_tensor *weight) {
    return nd_group_norm(x, weight, NULL, 2, 1e-5);
}
static nd_tensor *of_batch_norm(const nd_tensor *x, const nd_tensor *weight) {
    return nd_batch_norm(x, weight, weight, NULL, NULL, NULL);
}
static nd_tensor *of_dropout(const nd_tensor *x, const nd_tensor *weight) {
    (void)weight;
    return nd_dropout(x, nd_key_new(1), 0.3, true);
}
static nd_tensor *of_attention(const nd_tensor *x, const nd_tensor *weight) {
    return nd_attention(x, x, x, weight, NULL);
}
static nd_tensor *of_huber_loss(const nd_tensor *x, const nd_tensor *weight) {
    return nd_huber_loss(x, weight, 0.7, ND_REDUCTION_NONE);
}
static nd_tensor *of_bce(const nd_tensor *x, const nd_tensor *weight) {
    return nd_bce_with_logits(x, weight, weight, NULL, ND_REDUCTION_MEAN);
}
static nd_tensor *of_cosine(const nd_tensor *x, const nd_tensor *weight) {
    return nd_cosine_similarity(x, weight, 1e-8, 1);
}
static nd_tensor *of_rnn(const nd_tensor *x, const nd_tensor *weight) {
    nd_auto nd_tensor *square = nd_unsqueeze(weight, 0);
    nd_auto nd_tensor *wide = nd_expand(square, ND_SHAPE(4, 4));
    const nd_tensor *weights[] = {wide, wide};
    nd_tensor *y = NULL;
    assert_ok(nd_rnn(x, NULL, 2, weights, NULL, &y, NULL));
    return y;
}

static nd_tensor *of_lstm(const nd_tensor *x, const nd_tensor *weight) {
    nd_auto nd_tensor *square = nd_unsqueeze(weight, 0);
    nd_auto nd_tensor *wide = nd_expand(square, ND_SHAPE(16, 4));
    const nd_tensor *weights[] = {wide, wide};
    nd_tensor *y = NULL;
    assert_ok(nd_lstm(x, NULL, NULL, 2, weights, NULL, &y, NULL, NULL));
    return y;
}
static nd_tensor *of_gru(const nd_tensor *x, const nd_tensor *weight) {
    nd_auto nd_tensor *square = nd_unsqueeze(weight, 0);
    nd_auto nd_tensor *wide = nd_expand(square, ND_SHAPE(12, 4));
    const nd_tensor *weights[] = {wide, wide};
    nd_tensor *y = NULL;
    assert_ok(nd_gru(x, NULL, 2, weights, NULL, &y, NULL));
    return y;
}
static nd_tensor *of_instance_norm(const nd_tensor *x, const nd_tensor *weight) {
    nd_auto nd_tensor *batch = nd_unsqueeze(x, 0);
    return nd_instance_norm(batch, weight, weight, NULL, NULL, NULL);
}
static nd_tensor *of_l1_loss(const nd_tensor *x, const nd_tensor *weight) {
    return nd_l1_loss(x, weight, ND_REDUCTION_SUM);
}
static nd_tensor *of_smooth_l1_loss(const nd_tensor *x, const nd_tensor *weight) {
    return nd_smooth_l1_loss(x, weight, 0.5, ND_REDUCTION_MEAN);
}
static nd_tensor *of_kl_div(const nd_tensor *x, const nd_tensor *weight) {
    return nd_kl_div(x, weight, true, ND_REDUCTION_BATCH_MEAN);
}
static nd_tensor *of_nll_loss(const nd_tensor *x, const nd_tensor *weight) {
    nd_auto nd_tensor *labels = nd_arange(0, 4, 1, ND_I64);
    return nd_nll_loss(x, labels, weight, -100, ND_REDUCTION_MEAN);
}
static nd_tensor *of_cross_entropy(const nd_tensor *x, const nd_tensor *weight) {
    nd_auto nd_tensor *labels = nd_arange(0, 4, 1, ND_I64);
    nd_cross_entropy_options options = ND_CROSS_ENTROPY_OPTIONS_INIT;
    options.label_smoothing = 0.1;
    return nd_cross_entropy_with(x, labels, weight, &options);
}
static nd_tensor *of_cosine_embedding(const nd_tensor *x, const nd_tensor *weight) {
    nd_auto nd_tensor *targets = nd_sign(weight);
    nd_auto nd_tensor *other = nd_expand(weight, ND_SHAPE(4, 4));
    return nd_cosine_embedding_loss(x, other, targets, 0.1, ND_REDUCTION_NONE);
}

/// The largest of a tensor's absolute values.
static double largest(const nd_tensor *x) {
    double most = 0;
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        most = fmax(most, fabs(at_flat(x, i)));
    return most;
}

/// Roundings of the largest element by which a gradient of halves may be off: one for each of the
/// few nodes between an input and the result, and parts of a gradient are added in halves.
#define GRADIENT_ROUNDINGS 8

static void check_gradient(const char *name, const nd_tensor *half, const nd_tensor *wide) {
    nd_dtype dtype = nd_get_dtype(half);
    const nd_tensor *got = nd_get_grad(half), *expected = nd_get_grad(wide);
    assert_non_null(got);
    assert_non_null(expected);
    assert_int_equal(nd_get_dtype(got), dtype);
    double bound = GRADIENT_ROUNDINGS * largest(expected) * (dtype == ND_F16 ? 0x1p-11 : 0x1p-8);
    for (int64_t i = 0; i < nd_get_numel(wide); i++)
        if (!(fabs(at_flat(got, i) - at_flat(expected, i)) <= bound))
            fail_msg("gradient of %s of %s, element %lld: %g and not %g", name,
                     nd_dtype_get_name(dtype), (long long)i, at_flat(got, i), at_flat(expected, i));
}

static void run_backward(const nd_tensor *y) {
    nd_auto nd_tensor *wide = nd_cast(y, ND_F32);
    // Slopes that differ: of equal ones a norm makes 0.
    nd_auto nd_tensor *sine = nd_sin(wide);
    nd_auto nd_tensor *sum = nd_sum(sine, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
}

/// Roundings of the largest element by which results of recurrent nets may be off: the products', and
/// the result's.
#define RECURRENT_ROUNDINGS 3

/// The same function of halves and of their numbers in f32, and both gradients. The results may be off
/// by so many roundings of the largest.
static void check_halves(const char *name, function *f, nd_dtype dtype, int roundings) {
    nd_auto nd_tensor *x = wave(0, ND_SHAPE(4, 4));
    nd_auto nd_tensor *weight = wave(1, ND_SHAPE(4));
    nd_auto nd_tensor *half_x = nd_cast(x, dtype);
    nd_auto nd_tensor *half_weight = nd_cast(weight, dtype);
    nd_auto nd_tensor *wide_x = nd_cast(half_x, ND_F32);
    nd_auto nd_tensor *wide_weight = nd_cast(half_weight, ND_F32);
    assert_ok(nd_set_requires_grad(half_x, true));
    assert_ok(nd_set_requires_grad(wide_x, true));
    nd_auto nd_tensor *y = f(half_x, half_weight);
    nd_auto nd_tensor *wide_y = f(wide_x, wide_weight);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), dtype);
    nd_auto nd_tensor *rounded = nd_cast(wide_y, dtype);
    nd_auto nd_tensor *got = nd_cast(y, ND_F64);
    nd_auto nd_tensor *expected = nd_cast(rounded, ND_F64);
    double bound = roundings * largest(expected) * (dtype == ND_F16 ? 0x1p-11 : 0x1p-8);
    for (int64_t i = 0; i < nd_get_numel(got); i++)
        if (!(fabs(at_flat(got, i) - at_flat(expected, i)) <= bound))
            fail_msg("%s of %s, element %lld: %g and not %g", name, nd_dtype_get_name(dtype),
                     (long long)i, at_flat(got, i), at_flat(expected, i));
    run_backward(y);
    run_backward(wide_y);
    check_gradient(name, half_x, wide_x);
}

static void test_halves_are_computed_in_f32(void **state) {
    (void)state;
    static const struct {
        const char *name;
        function *f;
        int roundings;
    } functions[] = {
        {"layer_norm", of_layer_norm, 0},
        {"rms_norm", of_rms_norm, 0},
        {"group_norm", of_group_norm, 0},
        {"batch_norm", of_batch_norm, 0},
        {"dropout", of_dropout, 0},
        {"attention", of_attention, 0},
        {"huber_loss", of_huber_loss, 0},
        {"bce_with_logits", of_bce, 0},
        {"cosine", of_cosine, 0},
        {"rnn", of_rnn, RECURRENT_ROUNDINGS},
        {"lstm", of_lstm, RECURRENT_ROUNDINGS},
        {"gru", of_gru, RECURRENT_ROUNDINGS},
        {"instance_norm", of_instance_norm, 0},
        {"l1_loss", of_l1_loss, 0},
        {"smooth_l1_loss", of_smooth_l1_loss, 0},
        {"kl_div", of_kl_div, 0},
        {"nll_loss", of_nll_loss, 0},
        {"cross_entropy_with", of_cross_entropy, 0},
        {"cosine_embedding_loss", of_cosine_embedding, 0},
    };
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        check_halves(functions[i].name, functions[i].f, ND_F16, functions[i].roundings);
        check_halves(functions[i].name, functions[i].f, ND_BF16, functions[i].roundings);
    }
}

/// Weights of f32 go with them, as mixed precision has it, and running statistics of f32.
static void test_halves_beside_f32(void **state) {
    (void)state;
    nd_auto nd_tensor *x = wave(0, ND_SHAPE(4, 4));
    nd_auto nd_tensor *half = nd_cast(x, ND_BF16);
    nd_auto nd_tensor *weight = nd_full(ND_SHAPE(4), 1.001, ND_F32);
    nd_auto nd_tensor *mean = nd_zeros(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *variance = nd_ones(ND_SHAPE(4), ND_F32);
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    options.training = true;
    nd_auto nd_tensor *y = nd_batch_norm(half, weight, NULL, mean, variance, &options);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), ND_BF16);
    nd_auto nd_tensor *wide = nd_cast(half, ND_F64);
    nd_auto nd_tensor *means = nd_mean(wide, 1, (const int[]){0}, false);
    for (int64_t i = 0; i < 4; i++)
        assert_close("mean", at_flat(mean, i), 0.1 * at_flat(means, i), 1e-6, 1e-7);
    nd_auto nd_tensor *double_weight = nd_cast(weight, ND_F64);
    assert_refused(nd_layer_norm(half, double_weight, NULL, 0, 1), ND_ERROR_DTYPE,
                   "layer_norm: weight is float64 and x bfloat16");
}

/// A function of every f16 and bf16 there is, of a row and of every second element of one.
static void test_every_half_as_f32_rounded(void **state) {
    (void)state;
    enum { ALL = 65536 };
    static uint16_t bits[2 * ALL];
    for (int i = 0; i < 2 * ALL; i++)
        bits[i] = (uint16_t)(i / 2);
    nd_tensor *(*const functions[])(const nd_tensor *) = {(nd_gelu), (nd_erf), (nd_tanh)};
    for (int d = 0; d < 2; d++) {
        nd_dtype dtype = d == 0 ? ND_BF16 : ND_F16;
        nd_auto nd_tensor *twice = nd_from_data(bits, 1, (const int64_t[]){2 * ALL}, dtype);
        nd_auto nd_tensor *apart = nd_slice(twice, 0, 2 * ALL, 2, 0);
        nd_auto nd_tensor *dense = nd_contiguous(apart), *wide = nd_cast(dense, ND_F32);
        for (int f = 0; f < 3; f++) {
            nd_auto nd_tensor *of_wide = functions[f](wide), *expected = nd_cast(of_wide, dtype);
            nd_auto nd_tensor *of_dense = functions[f](dense), *of_apart = functions[f](apart);
            const uint16_t *e = nd_get_data(expected), *a = nd_get_data(of_dense);
            const uint16_t *b = nd_get_data(of_apart);
            for (int i = 0; i < ALL; i++)
                if (a[i] != e[i] || b[i] != e[i])
                    fail_msg("function %d of %s %#x is %#x and %#x, not %#x", f,
                             nd_dtype_get_name(dtype), i, a[i], b[i], e[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_halves_are_computed_in_f32),
        ND_TEST(test_halves_beside_f32),
        ND_TEST(test_every_half_as_f32_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
