// Losses against PyTorch and against differences; extreme numbers; what is refused.
#include "tests/unit/ops/torch_case.h"

TORCH_FUNCTION(l1_loss) {
    (void)count, (void)data;
    return nd_l1_loss(x[0], x[1], ND_REDUCTION_MEAN);
}
TORCH_FUNCTION(smooth_l1_loss) {
    (void)count, (void)data;
    return nd_smooth_l1_loss(x[0], x[1], 0.7, ND_REDUCTION_SUM);
}
TORCH_FUNCTION(smooth_l1_loss_sharp) {
    (void)count, (void)data;
    return nd_smooth_l1_loss(x[0], x[1], 0, ND_REDUCTION_NONE);
}
TORCH_FUNCTION(huber_loss) {
    (void)count, (void)data;
    return nd_huber_loss(x[0], x[1], 0.7, ND_REDUCTION_NONE);
}
TORCH_FUNCTION(kl_div) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = nd_log_softmax(x[0], 1);
    nd_auto nd_tensor *b = nd_softmax(x[1], 1);
    return nd_kl_div(a, b, false, ND_REDUCTION_BATCH_MEAN);
}
TORCH_FUNCTION(kl_div_of_logarithms) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = nd_log_softmax(x[0], 1);
    nd_auto nd_tensor *b = nd_log_softmax(x[1], 1);
    return nd_kl_div(a, b, true, ND_REDUCTION_NONE);
}
TORCH_FUNCTION(kl_div_of_zeros) {
    (void)count, (void)data;
    nd_auto nd_tensor *square = nd_eye(4, ND_F64);
    nd_auto nd_tensor *targets = nd_slice(square, 0, 3, 1, 0);
    return nd_kl_div(x[0], targets, false, ND_REDUCTION_MEAN);
}
TORCH_FUNCTION(bce_with_logits) {
    (void)count, (void)data;
    nd_auto nd_tensor *logits = nd_mul_scalar(x[0], 5);
    nd_auto nd_tensor *weight = wave(2, ND_SHAPE(4));
    nd_auto nd_tensor *positive = wave(3, ND_SHAPE(4));
    return nd_bce_with_logits(logits, x[1], weight, positive, ND_REDUCTION_MEAN);
}
TORCH_FUNCTION(bce_with_logits_extreme) {
    (void)count, (void)data;
    const double numbers[] = {0, 300, -300, 1000, -1000, 0}, chances[] = {0.25, 0, 1, 1, 0, 1};
    nd_auto nd_tensor *big = nd_from_data(numbers, ND_SHAPE(2, 3), ND_F64);
    nd_auto nd_tensor *targets = nd_from_data(chances, ND_SHAPE(2, 3), ND_F64);
    nd_auto nd_tensor *nothing = nd_mul_scalar(x[0], 0);
    nd_auto nd_tensor *logits = nd_add(big, nothing);
    return nd_bce_with_logits(logits, targets, NULL, NULL, ND_REDUCTION_NONE);
}
TORCH_FUNCTION(nll_loss) {
    (void)count, (void)data;
    const int64_t classes[] = {2, -100, 0, 2};
    nd_auto nd_tensor *targets = nd_from_data(classes, ND_SHAPE(4), ND_I64);
    nd_auto nd_tensor *constant = nd_detach(x[1]);
    nd_auto nd_tensor *weight = nd_add_scalar(constant, 2);
    return nd_nll_loss(x[0], targets, weight, -100, ND_REDUCTION_MEAN);
}
TORCH_FUNCTION(nll_loss_of_places) {
    (void)count, (void)data;
    const int32_t classes[] = {0, 2, 1, 1};
    nd_auto nd_tensor *targets = nd_from_data(classes, ND_SHAPE(2, 2), ND_I32);
    return nd_nll_loss(x[0], targets, NULL, 2, ND_REDUCTION_NONE);
}
TORCH_FUNCTION(nll_loss_of_one) {
    (void)count, (void)data;
    nd_auto nd_tensor *target = nd_scalar(1, ND_I64);
    return nd_nll_loss(x[0], target, NULL, -100, ND_REDUCTION_SUM);
}
TORCH_FUNCTION(cosine_similarity) {
    (void)count, (void)data;
    return nd_cosine_similarity(x[0], x[1], 1e-8, 1);
}
TORCH_FUNCTION(cosine_embedding_loss) {
    (void)count, (void)data;
    const int32_t signs[] = {1, -1, -1, 1};
    nd_auto nd_tensor *targets = nd_from_data(signs, ND_SHAPE(4), ND_I32);
    return nd_cosine_embedding_loss(x[0], x[1], targets, 0.1, ND_REDUCTION_NONE);
}

static void test_losses_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(l1_loss, 2, {2, {3, 4}}, {2, {3, 4}}),
        TORCH_CASE(smooth_l1_loss, 2, {2, {3, 4}}, {1, {4}}),
        TORCH_CASE(smooth_l1_loss_sharp, 2, {2, {3, 4}}, {2, {3, 4}}),
        TORCH_CASE(huber_loss, 2, {2, {3, 4}}, {2, {3, 4}}),
        TORCH_CASE(kl_div, 2, {2, {3, 4}}, {2, {3, 4}}),
        TORCH_CASE(kl_div_of_logarithms, 2, {2, {3, 4}}, {2, {3, 4}}),
        TORCH_CASE(kl_div_of_zeros, 1, {2, {3, 4}}),
        TORCH_CASE(bce_with_logits, 2, {2, {3, 4}}, {2, {3, 4}}),
        TORCH_CASE(nll_loss_of_places, 1, {3, {2, 3, 2}}),
        TORCH_CASE(nll_loss_of_one, 1, {1, {3}}),
        TORCH_CASE(cosine_similarity, 2, {3, {2, 3, 4}}, {2, {3, 1}}),
        TORCH_CASE(cosine_embedding_loss, 2, {2, {4, 3}}, {2, {4, 3}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
    const torch_case values[] = {
        TORCH_CASE(bce_with_logits_extreme, 1, {2, {2, 3}}),
        TORCH_CASE(nll_loss, 2, {2, {4, 3}}, {1, {3}}),
    };
    for (size_t i = 0; i < COUNT_OF(values); i++)
        check_torch_case(&values[i], true);
}

/// The gradient of bce_with_logits is sigmoid(x) - t, at 0 and far away too.
static void test_bce_gradient_where_it_bends(void **state) {
    (void)state;
    const double numbers[] = {0, 800, -800, 0.5}, slopes[] = {-0.5, 0, -1, NAN};
    nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(4), ND_F64);
    nd_auto nd_tensor *t = nd_ones(ND_SHAPE(4), ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *loss = nd_bce_with_logits(x, t, NULL, NULL, ND_REDUCTION_SUM);
    assert_ok(nd_backward(loss, NULL));
    for (int64_t i = 0; i < 3; i++)
        assert_close("slope", at_flat(nd_get_grad(x), i), slopes[i], 1e-15, 0);
    assert_close("slope", at_flat(nd_get_grad(x), 3), 1 / (1 + exp(-0.5)) - 1, 1e-14, 0);
}

/// Slopes of smooth_l1 and huber where the parabola meets the line, at 0, far away and of NaN: those
/// of the definition, whether they are recorded or not.
static void check_bent_slopes(bool smooth, nd_dtype dtype, bool recorded) {
    const double numbers[] = {0, 0.25, -0.25, 0.5, -0.5, 3, -1e30, INFINITY, -INFINITY, NAN};
    enum { N = COUNT_OF(numbers) };
    nd_auto nd_tensor *wide = nd_from_data(numbers, ND_SHAPE(N), ND_F64);
    nd_auto nd_tensor *x = nd_cast(wide, dtype);
    nd_auto nd_tensor *zero = nd_zeros(ND_SHAPE(1), dtype);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *losses = smooth ? nd_smooth_l1_loss(x, zero, 0.5, ND_REDUCTION_NONE)
                                       : nd_huber_loss(x, zero, 0.5, ND_REDUCTION_NONE);
    nd_auto nd_tensor *sum = nd_sum(losses, 0, NULL, false);
    nd_tensor *slopes = NULL;
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = recorded;
    const nd_tensor *inputs[] = {x};
    assert_ok(nd_grad(sum, 1, inputs, &options, &slopes));
    for (int64_t i = 0; i < N; i++) {
        double d = numbers[i], size = fabs(d);
        double loss = size < 0.5 ? d * d / 2 : 0.5 * (size - 0.25);
        double slope = isnan(d) ? d : fmin(fmax(d, -0.5), 0.5);
        double scale = smooth ? 2 : 1;
        assert_close("loss", at_flat(losses, i), loss * scale, 1e-6, 0);
        assert_close("slope", at_flat(slopes, i), slope * scale, 1e-6, 0);
    }
    nd_release(slopes);
}

static void test_slopes_of_bent_losses(void **state) {
    (void)state;
    for (int how = 0; how < 8; how++)
        check_bent_slopes(how & 1, how & 2 ? ND_F32 : ND_F64, how & 4);
    // A limit that the dtype cannot hold is none.
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(3), -2, ND_F32);
    nd_auto nd_tensor *zero = nd_zeros(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *loss = nd_smooth_l1_loss(x, zero, 1e-60, ND_REDUCTION_MEAN);
    nd_auto nd_tensor *none = nd_smooth_l1_loss(zero, zero, 1e-60, ND_REDUCTION_SUM);
    nd_auto nd_tensor *flat = nd_huber_loss(x, zero, 1e-60, ND_REDUCTION_SUM);
    assert_true(nd_get_item(loss) == 2 && nd_get_item(none) == 0 && nd_get_item(flat) == 0);
}

/// What is ignored may be infinite, and nothing at all has no mean.
static void test_nll_ignores(void **state) {
    (void)state;
    const float numbers[] = {-1, -INFINITY, -2, -3};
    const int64_t classes[] = {1, 0};
    nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(2, 2), ND_F32);
    nd_auto nd_tensor *targets = nd_from_data(classes, ND_SHAPE(2), ND_I64);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *loss = nd_nll_loss(x, targets, NULL, 1, ND_REDUCTION_MEAN);
    assert_ok(nd_backward(loss, NULL));
    assert_true(nd_get_item(loss) == 2);
    const double slopes[] = {0, 0, -1, 0};
    for (int64_t i = 0; i < 4; i++)
        assert_true(at_flat(nd_get_grad(x), i) == slopes[i]);
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(2), ND_I64);
    nd_auto nd_tensor *all = nd_nll_loss(x, ones, NULL, 1, ND_REDUCTION_MEAN);
    assert_true(isnan(nd_get_item(all)));
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 2), ND_F32);
    nd_auto nd_tensor *nothing = nd_zeros(ND_SHAPE(0), ND_I64);
    nd_auto nd_tensor *sum = nd_nll_loss(none, nothing, NULL, -100, ND_REDUCTION_SUM);
    nd_auto nd_tensor *mean = nd_nll_loss(none, nothing, NULL, -100, ND_REDUCTION_MEAN);
    assert_true(nd_get_item(sum) == 0 && isnan(nd_get_item(mean)));
}

static void test_losses_refuse(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(2, 3), ND_I32);
    nd_auto nd_tensor *targets = nd_full(ND_SHAPE(2), 3, ND_I64);
    nd_auto nd_tensor *negative = nd_full(ND_SHAPE(2), -1, ND_I64);
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(2), ND_F32);
    const nd_reduction mean = ND_REDUCTION_MEAN;
    assert_refused(nd_l1_loss(x, NULL, mean), ND_ERROR_INVALID_ARGUMENT, "l1_loss: b is NULL");
    assert_refused(nd_l1_loss(x, whole, mean), ND_ERROR_DTYPE,
                   "l1_loss: b is int32 and must be of floats");
    assert_refused(nd_l1_loss(x, x, (nd_reduction)7), ND_ERROR_INVALID_ARGUMENT,
                   "l1_loss: there is no reduction 7");
    assert_refused(nd_huber_loss(x, x, 1, ND_REDUCTION_BATCH_MEAN), ND_ERROR_INVALID_ARGUMENT,
                   "huber_loss: there is no reduction 3");
    assert_refused(nd_huber_loss(x, x, 0, mean), ND_ERROR_INVALID_ARGUMENT,
                   "huber_loss: delta is 0");
    assert_refused(nd_smooth_l1_loss(x, x, -1, mean), ND_ERROR_INVALID_ARGUMENT,
                   "smooth_l1_loss: beta is -1");
    nd_auto nd_tensor *number = nd_scalar(0, ND_F32);
    assert_refused(nd_kl_div(number, number, false, ND_REDUCTION_BATCH_MEAN), ND_ERROR_SHAPE,
                   "kl_div: without axes");
    assert_refused(nd_bce_with_logits(x, x, whole, NULL, mean), ND_ERROR_DTYPE,
                   "bce_with_logits: weight is int32");
    assert_refused(nd_nll_loss(x, targets, NULL, -100, mean), ND_ERROR_INVALID_ARGUMENT,
                   "nll_loss: a target is outside 0 ... 2");
    assert_refused(nd_nll_loss(x, negative, NULL, -100, mean), ND_ERROR_INVALID_ARGUMENT,
                   "nll_loss: a target is outside 0 ... 2");
    assert_refused(nd_nll_loss(x, x, NULL, -100, mean), ND_ERROR_DTYPE,
                   "nll_loss: targets are float32");
    assert_refused(nd_nll_loss(weight, targets, NULL, -100, mean), ND_ERROR_SHAPE,
                   "nll_loss: log_probabilities have shape [2] and targets [2]");
    assert_refused(nd_nll_loss(x, targets, weight, -100, mean), ND_ERROR_SHAPE,
                   "nll_loss: weight has shape [2] and must have [3]");
    assert_refused(nd_cosine_similarity(x, x, 1e-8, 2), ND_ERROR_INVALID_ARGUMENT,
                   "cosine_similarity: axis 2");
    assert_refused(nd_cosine_similarity(x, x, NAN, 1), ND_ERROR_INVALID_ARGUMENT,
                   "cosine_similarity: epsilon");
    assert_refused(nd_cosine_embedding_loss(x, x, x, 0, mean), ND_ERROR_SHAPE,
                   "cosine_embedding_loss: a has shape [2, 3], b [2, 3] and targets [2, 3]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_losses_as_in_pytorch),
        ND_TEST(test_slopes_of_bent_losses),
        ND_TEST(test_bce_gradient_where_it_bends),
        ND_TEST(test_nll_ignores),
        ND_TEST(test_losses_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
