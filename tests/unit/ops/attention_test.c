// Attention against PyTorch, against differences, and against the formula where there are many
// tiles; what it keeps, and what is refused.
#include "tests/unit/ops/torch_case.h"

TORCH_FUNCTION(attention) {
    (void)count, (void)data;
    return nd_attention(x[0], x[1], x[2], NULL, NULL);
}

/// Which of 4 keys each of 3 queries sees; the second none.
static nd_tensor *seen(void) {
    const uint8_t bits[] = {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 1};
    return nd_from_data(bits, ND_SHAPE(3, 4), ND_BOOL);
}

TORCH_FUNCTION(attention_seen) {
    (void)count, (void)data;
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.scale = 0.5;
    nd_auto nd_tensor *mask = seen();
    return nd_attention(x[0], x[1], x[2], mask, &options);
}
TORCH_FUNCTION(attention_added) {
    (void)count, (void)data;
    return nd_attention(x[0], x[1], x[2], x[3], NULL);
}
#define attention_grouped attention_added
TORCH_FUNCTION(attention_causal) {
    (void)count, (void)data;
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.causal = true;
    return nd_attention(x[0], x[1], x[2], NULL, &options);
}

static void test_attention_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(attention, 3, {3, {2, 3, 2}}, {3, {2, 4, 2}}, {3, {2, 4, 3}}),
        TORCH_CASE(attention_seen, 3, {2, {3, 2}}, {2, {4, 2}}, {2, {4, 2}}),
        TORCH_CASE(attention_added, 4, {4, {1, 2, 3, 2}}, {4, {1, 2, 4, 2}}, {4, {1, 2, 4, 2}},
                   {3, {2, 1, 4}}),
        TORCH_CASE(attention_causal, 3, {3, {2, 4, 2}}, {3, {2, 3, 2}}, {3, {2, 3, 2}}),
        TORCH_CASE(attention_grouped, 4, {4, {1, 4, 3, 2}}, {4, {1, 2, 3, 2}}, {4, {1, 2, 3, 2}},
                   {3, {4, 3, 3}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

// ------------------------------------------------------------------------------------- many tiles

enum { HEADS = 4, KEY_HEADS = 2, QUERIES = 300, KEYS = 530, SIZE = 3 };

typedef struct tiled_case {
    bool causal, bool_mask, float_mask;
    double dropout;
} tiled_case;

typedef struct operands {
    nd_tensor *q, *k, *v, *mask;
} operands;

static operands random_operands(const tiled_case *c) {
    operands in = {
        .q = random_tensor(STEPPED, ND_SHAPE(1, HEADS, QUERIES, SIZE), ND_F64, -3, 3),
        .k = random_tensor(DENSE, ND_SHAPE(1, KEY_HEADS, KEYS, SIZE), ND_F64, -3, 3),
        .v = random_tensor(TRANSPOSED, ND_SHAPE(1, KEY_HEADS, KEYS, SIZE), ND_F64, -3, 3),
    };
    if (c->float_mask)
        in.mask = random_tensor(DENSE, ND_SHAPE(QUERIES, KEYS), ND_F64, -2, 2);
    if (c->bool_mask)
        in.mask = random_tensor(DENSE, ND_SHAPE(1, HEADS, 1, KEYS), ND_BOOL, 0, 1);
    nd_tensor *leaves[] = {in.q, in.k, in.v, c->float_mask ? in.mask : NULL};
    for (int i = 0; i < 4; i++)
        if (leaves[i])
            assert_ok(nd_set_requires_grad(leaves[i], true));
    return in;
}

static void release_operands(operands *in) {
    nd_release(in->q);
    nd_release(in->k);
    nd_release(in->v);
    nd_release(in->mask);
}

static nd_tensor *repeat_heads(const nd_tensor *x) {
    nd_auto nd_tensor *wide = nd_unsqueeze(x, 2);
    nd_auto nd_tensor *spread =
        nd_expand(wide, ND_SHAPE(1, KEY_HEADS, HEADS / KEY_HEADS, KEYS, SIZE));
    return nd_reshape(spread, ND_SHAPE(1, HEADS, KEYS, SIZE));
}

/// The formula, with recorded operations and the scores whole.
static nd_tensor *formula(const operands *in, const tiled_case *c) {
    nd_auto nd_tensor *k = repeat_heads(in->k);
    nd_auto nd_tensor *v = repeat_heads(in->v);
    nd_auto nd_tensor *turned = nd_transpose(k, -2, -1);
    nd_auto nd_tensor *product = nd_matmul(in->q, turned);
    nd_auto nd_tensor *scores = nd_mul_scalar(product, 1 / sqrt(SIZE));
    if (c->float_mask) {
        nd_tensor *sum = nd_add(scores, in->mask);
        nd_release(scores);
        scores = sum;
    }
    nd_auto nd_tensor *hidden = c->bool_mask ? nd_logical_not(in->mask) : NULL;
    if (c->causal) {
        nd_auto nd_tensor *columns = nd_arange(0, KEYS, 1, ND_I64);
        nd_auto nd_tensor *counted = nd_arange(0, QUERIES, 1, ND_I64);
        nd_auto nd_tensor *rows = nd_unsqueeze(counted, 1);
        hidden = nd_greater(columns, rows);
    }
    if (hidden) {
        nd_tensor *filled = nd_masked_fill(scores, hidden, -INFINITY);
        nd_release(scores);
        scores = filled;
    }
    nd_auto nd_tensor *weights = nd_softmax(scores, -1);
    return nd_matmul(weights, v);
}

static nd_tensor *attend(const operands *in, const tiled_case *c) {
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.causal = c->causal;
    options.dropout = c->dropout;
    options.key = nd_key_new(5);
    return nd_attention(in->q, in->k, in->v, in->mask, &options);
}

static void assert_same_values(const char *what, const nd_tensor *got, const nd_tensor *expected) {
    nd_auto nd_tensor *difference = nd_sub(got, expected);
    nd_auto nd_tensor *size = nd_abs(difference);
    nd_auto nd_tensor *largest = nd_max(size, 0, NULL, false);
    if (!(nd_get_item(largest) < 1e-12))
        fail_msg("%s differs by %g: %s", what, nd_get_item(largest), nd_error_get_message());
}

/// Gradients of the weighted sum, for q, k, v and a float mask.
static void gradients_of(const nd_tensor *y, const operands *in, const tiled_case *c,
                         bool create_graph, nd_tensor **ret_grads) {
    nd_auto nd_tensor *weights = wave(1, nd_get_ndim(y), nd_get_shape(y));
    nd_auto nd_tensor *product = nd_mul(y, weights);
    nd_auto nd_tensor *sum = nd_sum(product, 0, NULL, false);
    const nd_tensor *leaves[] = {in->q, in->k, in->v, in->mask};
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = create_graph;
    assert_ok(nd_grad(sum, c->float_mask ? 4 : 3, leaves, &options, ret_grads));
}

static void check_tiles(const tiled_case *c) {
    operands in = random_operands(c);
    nd_auto nd_tensor *y = attend(&in, c);
    assert_handle(y);
    nd_auto nd_tensor *expected = c->dropout == 0 ? formula(&in, c) : NULL;
    if (expected)
        assert_same_values("the result", y, expected);
    nd_tensor *got[4] = {0}, *wanted[4] = {0};
    gradients_of(y, &in, c, false, got);
    // With dropout a recorded backward pass, which is another code, must drop the same weights.
    gradients_of(expected ? expected : y, &in, c, !expected, wanted);
    for (int i = 0; i < (c->float_mask ? 4 : 3); i++)
        assert_same_values("a gradient", got[i], wanted[i]);
    for (int i = 0; i < 4; i++) {
        nd_release(got[i]);
        nd_release(wanted[i]);
    }
    release_operands(&in);
}

static void test_attention_of_many_tiles(void **state) {
    (void)state;
    const tiled_case cases[] = {{0}, {.causal = true}, {.bool_mask = true}, {.float_mask = true}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_tiles(&cases[i]);
}

static void test_attention_drops_the_same_backward(void **state) {
    (void)state;
    const tiled_case cases[] = {{.dropout = 0.3}, {.dropout = 0.5, .causal = true}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_tiles(&cases[i]);
}

TORCH_FUNCTION(dropped) {
    (void)count, (void)data;
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.dropout = 0.4;
    options.key = nd_key_new(11);
    nd_auto nd_tensor *mask = seen();
    return nd_attention(x[0], x[1], x[2], mask, &options);
}

static void test_attention_dropout(void **state) {
    (void)state;
    nd_auto nd_tensor *q = wave(0, ND_SHAPE(2, 3, 2));
    nd_auto nd_tensor *k = wave(1, ND_SHAPE(2, 4, 2));
    nd_auto nd_tensor *v = wave(2, ND_SHAPE(2, 4, 2));
    nd_tensor *const leaves[] = {q, k, v};
    for (int i = 0; i < 3; i++)
        assert_ok(nd_set_requires_grad(leaves[i], true));
    for (int order = 1; order <= 2; order++)
        assert_ok(
            nd_gradcheck(dropped, NULL, 3, (const nd_tensor *const *)leaves, order, 1e-6, 1e-4));
    // Of equal values and weights the mean stays: dropping changes it by chance alone.
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(400, 4), ND_F64);
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(400, 4), ND_F64);
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.dropout = 0.25;
    nd_auto nd_tensor *y = nd_attention(zeros, zeros, ones, NULL, &options);
    nd_auto nd_tensor *mean = nd_mean(y, 0, NULL, false);
    assert_close("mean", nd_get_item(mean), 1, 0, 0.02);
    options.dropout = 1;
    nd_auto nd_tensor *nothing = nd_attention(zeros, zeros, ones, NULL, &options);
    assert_true(at_flat(nothing, 7) == 0);
}

// -------------------------------------------------------------------------------------------------

/// Neither pass has room for the scores of all queries and keys.
static void test_attention_memory(void **state) {
    (void)state;
    enum { LENGTH = 3000 };
    const uint64_t limit = (uint64_t)LENGTH * LENGTH * sizeof(float) / 4;
    nd_auto nd_manager *manager = nd_manager_new(NULL, "attention");
    assert_ok(nd_manager_set_quota(manager, ND_CPU, limit));
    nd_with_manager(manager) {
        nd_auto nd_tensor *q = nd_randn(nd_key_new(1), ND_SHAPE(LENGTH, 8), ND_F32);
        nd_auto nd_tensor *k = nd_randn(nd_key_new(2), ND_SHAPE(LENGTH, 8), ND_F32);
        assert_ok(nd_set_requires_grad(q, true));
        assert_ok(nd_set_requires_grad(k, true));
        nd_auto nd_tensor *y = nd_attention(q, k, k, NULL, NULL);
        nd_auto nd_tensor *sum = nd_sum(y, 0, NULL, false);
        assert_ok(nd_backward(sum, NULL));
        assert_handle(nd_get_grad(q));
        nd_auto nd_tensor *scores = nd_empty(ND_SHAPE(LENGTH, LENGTH), ND_F32);
        assert_null(scores);
        assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
        nd_error_clear();
    }
    assert_ok(nd_manager_close(manager, NULL));
}

static void test_attention_of_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *q = nd_ones(ND_SHAPE(2, 4, 3, 2), ND_F32);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(2, 2, 0, 2), ND_F32);
    nd_auto nd_tensor *batch = nd_zeros(ND_SHAPE(0, 4, 3, 2), ND_F32);
    assert_ok(nd_set_requires_grad(q, true));
    assert_ok(nd_set_requires_grad(none, true));
    nd_auto nd_tensor *y = nd_attention(q, none, none, NULL, NULL);
    assert_handle(y);
    assert_shape(y, ND_SHAPE(2, 4, 3, 2));
    for (int64_t i = 0; i < 48; i++)
        assert_true(at_flat(y, i) == 0);
    nd_auto nd_tensor *sum = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    assert_true(at_flat(nd_get_grad(q), 5) == 0);
    assert_shape(nd_get_grad(none), ND_SHAPE(2, 2, 0, 2));
    nd_auto nd_tensor *empty = nd_attention(batch, batch, batch, NULL, NULL);
    assert_shape(empty, ND_SHAPE(0, 4, 3, 2));
}

/// What a backward pass needs may not have changed since; a result belongs where its operands do.
static void test_attention_keeps_its_operands(void **state) {
    (void)state;
    nd_auto nd_tensor *q = wave(0, ND_SHAPE(3, 2));
    nd_auto nd_tensor *k = wave(1, ND_SHAPE(3, 2));
    nd_auto nd_tensor *v = wave(2, ND_SHAPE(3, 2));
    assert_ok(nd_set_requires_grad(q, true));
    nd_auto nd_tensor *y = NULL;
    nd_auto nd_manager *manager = nd_manager_new(NULL, "short");
    nd_with_manager(manager) y = nd_attention(q, k, v, NULL, NULL);
    assert_ok(nd_manager_close(manager, NULL));
    nd_auto nd_tensor *sum = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    assert_ok(nd_mul_scalar_(k, 2));
    assert_status(nd_backward(sum, NULL), ND_ERROR_STATE);
}

/// A scale of 1 makes no copy of the queries; a quarter of them and one of a quarter are the same
/// bits, and so are the gradients, but for that quarter.
static void test_attention_of_scaled_queries(void **state) {
    (void)state;
    const int64_t shape[] = {2, 5, 3, 8};
    nd_auto nd_tensor *whole = nd_randn(nd_key_new(1), 4, shape, ND_F32);
    nd_auto nd_tensor *other = nd_randn(nd_key_new(2), 4, shape, ND_F32);
    nd_auto nd_tensor *keys = nd_transpose(other, 1, 2);
    nd_auto nd_tensor *q = nd_transpose(whole, 1, 2);
    nd_auto nd_tensor *quarter = nd_mul_scalar(q, 0.25);
    assert_ok(nd_set_requires_grad(whole, true));
    assert_ok(nd_set_requires_grad(quarter, true));
    nd_auto nd_tensor *tracked = nd_transpose(whole, 1, 2);
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.scale = 0.25;
    nd_auto nd_tensor *expected = nd_attention(tracked, keys, keys, NULL, &options);
    options.scale = 1.0;
    nd_auto nd_tensor *found = nd_attention(quarter, keys, keys, NULL, &options);
    assert_handle(expected);
    assert_handle(found);
    const size_t bytes = (size_t)nd_get_numel(found) * sizeof(float);
    assert_memory_equal(nd_get_data(expected), nd_get_data(found), bytes);
    nd_auto nd_tensor *sum_expected = nd_sum(expected, 0, NULL, false);
    nd_auto nd_tensor *sum_found = nd_sum(found, 0, NULL, false);
    assert_ok(nd_backward(sum_expected, NULL));
    assert_ok(nd_backward(sum_found, NULL));
    nd_auto nd_tensor *scaled = nd_mul_scalar(nd_get_grad(quarter), 0.25);
    nd_auto nd_tensor *turned = nd_transpose(nd_get_grad(whole), 1, 2);
    nd_auto nd_tensor *dense = nd_contiguous(turned);
    nd_auto nd_tensor *scaled_dense = nd_contiguous(scaled);
    assert_memory_equal(nd_get_data(dense), nd_get_data(scaled_dense), bytes);
}

static void test_attention_refuses(void **state) {
    (void)state;
    nd_auto nd_tensor *q = nd_ones(ND_SHAPE(2, 3, 4), ND_F32);
    nd_auto nd_tensor *wide = nd_ones(ND_SHAPE(2, 3, 4), ND_F64);
    nd_auto nd_tensor *three = nd_ones(ND_SHAPE(3, 3, 4), ND_F32);
    nd_auto nd_tensor *row = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(3, 3), ND_I64);
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    assert_refused(nd_attention(q, NULL, q, NULL, NULL), ND_ERROR_INVALID_ARGUMENT,
                   "attention: key is NULL");
    assert_refused(nd_attention(q, q, wide, NULL, NULL), ND_ERROR_DTYPE,
                   "attention: query is float32, key float32 and value float64");
    assert_refused(nd_attention(whole, whole, whole, NULL, NULL), ND_ERROR_DTYPE,
                   "attention: query is int64 and must be of floats");
    assert_refused(nd_attention(q, three, three, NULL, NULL), ND_ERROR_SHAPE,
                   "attention: query has shape [2, 3, 4], key [3, 3, 4] and value [3, 3, 4]");
    assert_refused(nd_attention(row, row, row, NULL, NULL), ND_ERROR_SHAPE,
                   "attention: query has shape [4]");
    assert_refused(nd_attention(q, q, q, whole, NULL), ND_ERROR_DTYPE,
                   "attention: mask is int64 and must be bool or of floats");
    assert_refused(nd_attention(q, q, q, row, NULL), ND_ERROR_SHAPE,
                   "attention: mask has shape [4], which does not broadcast to [2, 3, 3]");
    options.dropout = 2;
    assert_refused(nd_attention(q, q, q, NULL, &options), ND_ERROR_INVALID_ARGUMENT,
                   "attention: a probability of 2");
    options.dropout = 0;
    options.scale = NAN;
    assert_refused(nd_attention(q, q, q, NULL, &options), ND_ERROR_INVALID_ARGUMENT,
                   "attention: scale is");
    options.size = 0;
    assert_refused(nd_attention(q, q, q, NULL, &options), ND_ERROR_INVALID_ARGUMENT,
                   "attention: a struct of size 0");
}

static void test_a_mask_of_nothing_keeps_its_history(void **state) {
    (void)state;
    nd_auto nd_tensor *q = nd_ones(ND_SHAPE(0, 3, 4), ND_F32),
                      *mask = nd_ones(ND_SHAPE(3, 3), ND_F32);
    assert_ok(nd_set_requires_grad(mask, true));
    nd_auto nd_tensor *y = nd_attention(q, q, q, mask, NULL);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
    assert_true(((const float *)nd_get_data(nd_get_grad(mask)))[8] == 0);
}

/// Without features all scores are 0, so that the mask alone weighs the values.
static void test_attention_without_features(void **state) {
    (void)state;
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.scale = 0.5;
    const double values[] = {1, 2, 9}, added[] = {0, 1, -1, 2, 0, -INFINITY};
    nd_auto nd_tensor *q = nd_zeros(ND_SHAPE(2, 0), ND_F64), *k = nd_zeros(ND_SHAPE(3, 0), ND_F64),
                      *v = nd_from_data(values, ND_SHAPE(3, 1), ND_F64),
                      *mask = nd_from_data(added, ND_SHAPE(2, 3), ND_F64);
    nd_auto nd_tensor *mean = nd_attention(q, k, v, NULL, NULL);
    assert_true(close_to(at_flat(mean, 0), 4, 1e-12, 1e-12));
    assert_true(close_to(at_flat(mean, 1), 4, 1e-12, 1e-12));
    options.causal = true;
    nd_auto nd_tensor *causal = nd_attention(q, k, v, NULL, &options);
    assert_true(close_to(at_flat(causal, 0), 1, 1e-12, 1e-12));
    assert_true(close_to(at_flat(causal, 1), 1.5, 1e-12, 1e-12));
    options.causal = false;
    nd_tensor *const leaves[] = {q, k, v, mask};
    for (size_t i = 0; i < COUNT_OF(leaves); i++)
        assert_ok(nd_set_requires_grad(leaves[i], true));
    nd_auto nd_tensor *y = nd_attention(q, k, v, mask, &options);
    nd_auto nd_tensor *weights = nd_softmax(mask, -1), *expected = nd_matmul(weights, v);
    assert_true(close_to(at_flat(y, 0), at_flat(expected, 0), 1e-12, 1e-12));
    assert_true(close_to(at_flat(y, 1), at_flat(expected, 1), 1e-12, 1e-12));
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
    assert_shape(nd_get_grad(q), ND_SHAPE(2, 0));
    assert_shape(nd_get_grad(k), ND_SHAPE(3, 0));
    const double e = exp(1), total = 1 + e + 1 / e, p = 1 / total, first = at_flat(y, 0);
    assert_true(close_to(at_flat(nd_get_grad(mask), 0), p * (1 - first), 1e-12, 1e-12));
    assert_true(close_to(at_flat(nd_get_grad(v), 2), 1 / e / total, 1e-12, 1e-12));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_attention_as_in_pytorch),
        ND_TEST(test_attention_without_features),
        ND_TEST(test_attention_of_many_tiles),
        ND_TEST(test_attention_drops_the_same_backward),
        ND_TEST(test_attention_dropout),
        ND_TEST(test_attention_memory),
        ND_TEST(test_attention_of_nothing),
        ND_TEST(test_attention_keeps_its_operands),
        ND_TEST(test_attention_of_scaled_queries),
        ND_TEST(test_attention_refuses),
        ND_TEST(test_a_mask_of_nothing_keeps_its_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
