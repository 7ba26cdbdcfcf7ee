// Cross entropy with options against plain loops: weights, an ignored class, smoothed labels, every
// reduction, further axes, 16-bit floats; and its gradients.
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>
#include <nd/neural.h>

typedef struct loss_case {
    int64_t n, classes, rest;
    bool weighted, ignoring;
    double smoothing;
    nd_dtype dtype;
} loss_case;

static double weight_of(const nd_tensor *weight, int64_t class) {
    return weight ? at_flat(weight, class) : 1.0;
}

/// The loss of one target, and what it weighs; 0 and 0 where it is ignored.
static double expected_of(const loss_case *c, const nd_tensor *logits, const nd_tensor *weight,
                          int64_t place, int64_t target, double *ret_weight) {
    int64_t row = place / c->rest, column = place % c->rest;
    double sum = 0, spread = 0;
    *ret_weight = 0;
    if (target == 3 && c->ignoring)
        return 0;
#define LOGIT(k) at_flat(logits, (row * c->classes + (k)) * c->rest + column)
    for (int64_t k = 0; k < c->classes; k++)
        sum += exp(LOGIT(k));
    for (int64_t k = 0; k < c->classes; k++)
        spread += weight_of(weight, k) * (log(sum) - LOGIT(k));
    *ret_weight = weight_of(weight, target);
    return (1 - c->smoothing) * *ret_weight * (log(sum) - LOGIT(target)) +
           c->smoothing / (double)c->classes * spread;
#undef LOGIT
}

static void check(const loss_case *c) {
    nd_auto nd_tensor *logits = random_dense(ND_SHAPE(c->n, c->classes, c->rest), c->dtype, -3, 3);
    nd_auto nd_tensor *targets = nd_empty(ND_SHAPE(c->n, c->rest), ND_I16);
    nd_auto nd_tensor *weight =
        c->weighted ? random_dense(ND_SHAPE(c->classes), c->dtype, 0.5, 2) : NULL;
    int64_t count = c->n * c->rest;
    for (int64_t i = 0; i < count; i++)
        set_element(nd_get_data(targets), ND_I16, i, (double)(rand() % (int)c->classes));
    nd_cross_entropy_options options = ND_CROSS_ENTROPY_OPTIONS_INIT;
    options.label_smoothing = c->smoothing;
    options.ignored = c->ignoring ? 3 : -100;
    nd_auto nd_tensor *mean = nd_cross_entropy_with(logits, targets, weight, &options);
    options.reduction = ND_REDUCTION_SUM;
    nd_auto nd_tensor *sum = nd_cross_entropy_with(logits, targets, weight, &options);
    options.reduction = ND_REDUCTION_NONE;
    nd_auto nd_tensor *none = nd_cross_entropy_with(logits, targets, weight, &options);
    assert_handle(mean);
    assert_handle(sum);
    assert_handle(none);
    assert_shape(none, ND_SHAPE(c->n, c->rest));
    assert_int_equal(nd_get_dtype(mean), c->dtype);
    double relative = c->dtype == ND_F64 ? 1e-12 : c->dtype == ND_BF16 ? 0x1p-8 : 2e-6;
    double total = 0, weights = 0, own;
    for (int64_t i = 0; i < count; i++) {
        int64_t target = (int64_t)at_flat(targets, i);
        double expected = expected_of(c, logits, weight, i, target, &own);
        assert_close("none", at_flat(none, i), expected, relative, 1e-6);
        total += expected;
        weights += own;
    }
    assert_close("sum", at_flat(sum, 0), total, 2 * relative, 1e-6);
    assert_close("mean", at_flat(mean, 0), total / weights, 2 * relative, 1e-6);
}

static void test_every_option_of_cross_entropy(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F64, ND_F32, ND_BF16};
    for (size_t d = 0; d < COUNT_OF(dtypes); d++)
        for (int how = 0; how < 8; how++) {
            loss_case c = {.n = 7,
                           .classes = 5,
                           .rest = how % 3 + 1,
                           .weighted = how & 1,
                           .ignoring = how & 2,
                           .smoothing = how & 4 ? 0.1 : 0,
                           .dtype = dtypes[d]};
            check(&c);
        }
}

static nd_tensor *loss_of(size_t count, const nd_tensor *const *x, void *data) {
    (void)count;
    static const int32_t numbers[] = {0, 3, 1, 2};
    static const double weights[] = {0.5, 1, 2, 1.5};
    nd_auto nd_tensor *targets = nd_from_data(numbers, ND_SHAPE(4), ND_I32);
    nd_auto nd_tensor *weight = nd_from_data(weights, ND_SHAPE(4), ND_F64);
    return nd_cross_entropy_with(x[0], targets, weight, data);
}

static void test_gradients_of_cross_entropy(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(4, 4), ND_F64, -1, 1);
    assert_ok(nd_set_requires_grad(x, true));
    const nd_tensor *inputs[] = {x};
    nd_cross_entropy_options options = ND_CROSS_ENTROPY_OPTIONS_INIT;
    options.ignored = 2;
    for (int smooth = 0; smooth < 2; smooth++)
        for (int order = 1; order <= 2; order++) {
            options.label_smoothing = smooth * 0.2;
            assert_ok(nd_gradcheck(loss_of, &options, 1, inputs, order, 1e-6, 1e-4));
        }
}

/// Gradients of first order are `expected`. Those of second order, where `twice`, are 0 in the second
/// row, whose target is ignored.
static void check_gradients(const nd_tensor *x, const nd_tensor *loss, bool recorded, bool twice,
                            const double *expected) {
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = recorded;
    nd_tensor *first = NULL, *second = NULL;
    assert_ok(nd_grad(loss, 1, &x, &options, &first));
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        assert_close(recorded ? "recorded" : "not recorded", at_flat(first, i), expected[i], 1e-6,
                     1e-6);
    if (twice) {
        nd_auto nd_tensor *square = nd_square(first);
        nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
        assert_ok(nd_grad(sum, 1, &x, NULL, &second));
        for (int64_t i = 3; i < nd_get_numel(x); i++)
            assert_close("second order", at_flat(second, i), 0, 0, 0);
    }
    nd_release(first);
    nd_release(second);
}

/// As PyTorch 2.15 has it: the mean over nothing is NaN, what is ignored has a gradient of 0, and what
/// is divided by weights of 0 one of NaN. Recorded and not recorded.
static void test_gradients_where_all_is_ignored(void **state) {
    (void)state;
    static const float logits[] = {1, 2, 3, 0, 1, 0}, zeros[] = {0, 0, 0};
    static const double none[6] = {0};
    static const double lost[] = {NAN, NAN, NAN, 0, 0, 0};
    nd_auto nd_tensor *x = nd_from_data(logits, ND_SHAPE(2, 3), ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *ignored = nd_full(ND_SHAPE(2), -100, ND_I64);
    nd_auto nd_tensor *one_counts = nd_from_data((int64_t[]){0, -100}, ND_SHAPE(2), ND_I64);
    nd_auto nd_tensor *weightless = nd_from_data(zeros, ND_SHAPE(3), ND_F32);
    nd_cross_entropy_options options = ND_CROSS_ENTROPY_OPTIONS_INIT;
    static const double smoothings[] = {0, 0.1, 1};
    for (size_t s = 0; s < COUNT_OF(smoothings); s++)
        for (int weighted = 0; weighted < 2; weighted++)
            for (int recorded = 0; recorded < 2; recorded++) {
                options.label_smoothing = smoothings[s];
                const nd_tensor *weight = weighted ? weightless : NULL;
                nd_auto nd_tensor *loss = nd_cross_entropy_with(x, ignored, weight, &options);
                assert_close("loss", at_flat(loss, 0), NAN, 0, 0);
                check_gradients(x, loss, recorded, recorded, none);
                if (!weighted)
                    continue;
                nd_auto nd_tensor *divided = nd_cross_entropy_with(x, one_counts, weight, &options);
                assert_close("loss", at_flat(divided, 0), NAN, 0, 0);
                check_gradients(x, divided, recorded, recorded, lost);
            }
}

/// Gradients of the losses of each target that are not finite reach their own target's class alone.
static void test_infinite_gradients_of_each_loss(void **state) {
    (void)state;
    static const double numbers[6] = {-1, -2, -3, -1, -2, -3};
    static const double expected[] = {0, -INFINITY, 0, 0, 0, 0};
    nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(2, 3), ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *targets = nd_from_data((int64_t[]){1, -100}, ND_SHAPE(2), ND_I64);
    nd_auto nd_tensor *each = nd_nll_loss(x, targets, NULL, -100, ND_REDUCTION_NONE);
    nd_auto nd_tensor *infinite = nd_full(ND_SHAPE(2), (double)INFINITY, ND_F64);
    nd_auto nd_tensor *scaled = nd_mul(each, infinite);
    nd_auto nd_tensor *sum = nd_sum(scaled, 0, NULL, false);
    for (int recorded = 0; recorded < 2; recorded++)
        check_gradients(x, sum, recorded, false, expected);
}

static void test_bad_cross_entropies_are_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_F32);
    const int64_t bad[] = {0, 3};
    nd_auto nd_tensor *above = nd_from_data(bad, ND_SHAPE(2), ND_I64);
    nd_cross_entropy_options options = ND_CROSS_ENTROPY_OPTIONS_INIT;
    assert_refused(nd_cross_entropy_with(x, x, NULL, NULL), ND_ERROR_DTYPE,
                   "cross_entropy_with: targets are float32");
    assert_refused(nd_cross_entropy_with(x, above, NULL, NULL), ND_ERROR_INVALID_ARGUMENT,
                   "cross_entropy_with: a target is outside 0 ... 2");
    nd_auto nd_tensor *of_none = nd_ones(ND_SHAPE(2, 0), ND_F32);
    assert_refused(nd_nll_loss(of_none, above, NULL, -100, ND_REDUCTION_MEAN),
                   ND_ERROR_INVALID_ARGUMENT, "nll_loss: there are targets and no classes");
    options.label_smoothing = 1.5;
    assert_refused(nd_cross_entropy_with(x, above, NULL, &options), ND_ERROR_INVALID_ARGUMENT,
                   "cross_entropy_with: label_smoothing is 1.5");
    options.label_smoothing = 0.5;
    options.reduction = ND_REDUCTION_BATCH_MEAN;
    assert_refused(nd_cross_entropy_with(x, above, NULL, &options), ND_ERROR_INVALID_ARGUMENT,
                   "cross_entropy_with: there is no reduction 3");
}

/// 2^64 - 100 has the bits of -100 in 64 of them, and is not the class that is ignored.
static void test_targets_of_u64_beyond_all_classes(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(2, 3), ND_F32);
    static const int64_t ignored[] = {-100, INT64_MIN, INT64_MAX, 2};
    for (size_t i = 0; i < COUNT_OF(ignored); i++) {
        const uint64_t numbers[] = {(uint64_t)ignored[i] | UINT64_C(1) << 63, 0};
        nd_auto nd_tensor *targets = nd_from_data(numbers, ND_SHAPE(2), ND_U64);
        nd_cross_entropy_options options = ND_CROSS_ENTROPY_OPTIONS_INIT;
        options.ignored = ignored[i];
        assert_refused(nd_cross_entropy_with(x, targets, NULL, &options), ND_ERROR_INVALID_ARGUMENT,
                       "");
        assert_refused(nd_nll_loss(x, targets, NULL, ignored[i], ND_REDUCTION_MEAN),
                       ND_ERROR_INVALID_ARGUMENT, "nll_loss: a target is outside 0 ... 2");
    }
    nd_auto nd_tensor *fit = nd_from_data((const uint64_t[]){2, 0}, ND_SHAPE(2), ND_U64);
    nd_auto nd_tensor *loss = nd_nll_loss(x, fit, NULL, 2, ND_REDUCTION_MEAN);
    assert_non_null(loss);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_option_of_cross_entropy),
        ND_TEST(test_gradients_of_cross_entropy),
        ND_TEST(test_gradients_where_all_is_ignored),
        ND_TEST(test_infinite_gradients_of_each_loss),
        ND_TEST(test_bad_cross_entropies_are_refused),
        ND_TEST(test_targets_of_u64_beyond_all_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
