// bench/workloads/gpt.c: reading on from a cache is reading all again, checkpointed gradients are
// the plain ones, nobody sees the future, and it learns.
#include "bench/workloads/gpt.h"
#include "tests/testing.h"

#include <math.h>

enum { N = 2, T = 12, VOCABULARY = 50 };
static const gpt_sizes small = {VOCABULARY, 32, 24, 3, 4};

static nd_tensor *random_ids(uint64_t seed) {
    return nd_randint(nd_key_new(seed), 0, VOCABULARY, ND_SHAPE(N, T), ND_I64);
}

static double largest_difference(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *difference = nd_sub(a, b);
    nd_auto nd_tensor *size = nd_abs(difference);
    nd_auto nd_tensor *largest = nd_max(size, 0, NULL, false);
    assert_handle(largest);
    return nd_get_item(largest);
}

static void test_cached_logits_are_those_of_reading_all(void **state) {
    (void)state;
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
    nd_auto nd_tensor *ids = random_ids(2);
    nd_auto nd_tensor *all = NULL;
    nd_no_grad all = gpt_logits(model, ids, false);
    gpt_cache cache;
    assert_ok(gpt_cache_open(&cache, model, N));
    for (int64_t end = 5; end <= T; end++) { // 5 tokens at once, then one by one
        nd_auto nd_tensor *more = nd_slice(ids, cache.length, end, 1, 1);
        nd_auto nd_tensor *logits = gpt_read(model, &cache, more);
        nd_auto nd_tensor *expected = nd_select(all, end - 1, 1);
        assert_handle(logits);
        assert_int_equal(cache.length, end);
        assert_true(largest_difference(logits, expected) < 1e-6);
    }
    gpt_cache_close(&cache);
}

static void test_written_tokens_are_the_likeliest_of_reading_all(void **state) {
    (void)state;
    enum { PROMPT = 4, MORE = 20 };
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(3));
    int64_t ids[PROMPT + MORE] = {7, 1, 49, 0};
    assert_ok(gpt_write(model, ids, PROMPT, MORE, 0, nd_key_new(0), ids + PROMPT));
    for (int64_t i = PROMPT; i < PROMPT + MORE; i++) {
        nd_auto nd_tensor *before = nd_from_data(ids, ND_SHAPE(1, i), ND_I64);
        nd_auto nd_tensor *logits = NULL;
        nd_no_grad logits = gpt_logits(model, before, false);
        nd_auto nd_tensor *last = nd_select(logits, -1, 1);
        nd_auto nd_tensor *likeliest = nd_argmax(last, 1, false);
        int64_t id = -1;
        assert_ok(nd_get_item_i64(likeliest, &id));
        assert_int_equal(ids[i], id);
    }
    int64_t drawn[MORE], again[MORE];
    assert_ok(gpt_write(model, ids, PROMPT, MORE, 0.9, nd_key_new(5), drawn));
    assert_ok(gpt_write(model, ids, PROMPT, MORE, 0.9, nd_key_new(5), again));
    assert_memory_equal(drawn, again, sizeof drawn);
}

static void test_more_than_the_context_is_an_error(void **state) {
    (void)state;
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(3));
    int64_t ids[40] = {0};
    assert_int_not_equal(gpt_write(model, ids, 1, 40, 0, nd_key_new(0), ids + 1), ND_OK);
    nd_error_clear();
}

static void test_no_token_sees_the_future(void **state) {
    (void)state;
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
    nd_auto nd_tensor *ids = random_ids(2);
    nd_auto nd_tensor *other = nd_clone(ids);
    nd_auto nd_tensor *end = nd_slice(other, T / 2, T, 1, 1);
    assert_ok(nd_fill_(end, 3));
    nd_no_grad {
        nd_auto nd_tensor *a = gpt_logits(model, ids, false);
        nd_auto nd_tensor *b = gpt_logits(model, other, false);
        nd_auto nd_tensor *a_start = nd_slice(a, 0, T / 2, 1, 1);
        nd_auto nd_tensor *b_start = nd_slice(b, 0, T / 2, 1, 1);
        assert_true(largest_difference(a_start, b_start) < 1e-7);
        assert_true(largest_difference(a, b) > 1e-3);
    }
}

/// Gradients of all parameters, and the most bytes that a step took above what was there.
static uint64_t backward(const nd_module *model, const nd_tensor *ids, bool checkpointed) {
    nd_manager *step = nd_manager_new(NULL, "step");
    nd_with_manager(step) {
        nd_auto nd_tensor *loss = gpt_loss(model, ids, ids, checkpointed);
        assert_handle(loss);
        assert_ok(nd_backward(loss, NULL));
    }
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(step, &stats));
    nd_release(step);
    return stats.peak_bytes[ND_CPU];
}

static void test_checkpointed_gradients_are_the_same_bits(void **state) {
    (void)state;
    nd_auto nd_module *plain = gpt_new(&small, nd_key_new(1));
    nd_auto nd_module *checkpointed = gpt_new(&small, nd_key_new(1));
    nd_auto nd_tensor *ids = random_ids(2);
    backward(plain, ids, false);
    backward(checkpointed, ids, true);
    for (size_t i = 0; i < nd_module_get_parameter_count(plain); i++) {
        const nd_tensor *a = nd_get_grad(nd_module_get_parameter_at(plain, i, NULL));
        const nd_tensor *b = nd_get_grad(nd_module_get_parameter_at(checkpointed, i, NULL));
        assert_handle(a);
        assert_handle(b);
        assert_memory_equal(nd_get_data(a), nd_get_data(b),
                            (size_t)nd_get_numel(a) * sizeof(float));
    }
}

static void test_checkpoints_take_half_the_memory(void **state) {
    (void)state;
    const gpt_sizes deep = {VOCABULARY, 32, 32, 12, 4};
    nd_auto nd_module *model = gpt_new(&deep, nd_key_new(1));
    nd_auto nd_tensor *ids = nd_randint(nd_key_new(4), 0, VOCABULARY, ND_SHAPE(16, 32), ND_I64);
    backward(model, ids, false); // gradients are there from now on
    uint64_t plain = backward(model, ids, false);
    uint64_t checkpointed = backward(model, ids, true);
    print_message("%llu and %llu bytes\n", (unsigned long long)plain,
                  (unsigned long long)checkpointed);
    assert_true(2 * checkpointed <= plain);
}

static void test_it_learns_a_text_by_heart(void **state) {
    (void)state;
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
    nd_adam_options options = ND_ADAMW_OPTIONS_INIT;
    options.rate = 1e-2;
    nd_auto nd_optimizer *optimizer = nd_adamw(model, &options);
    nd_auto nd_tensor *text = random_ids(9);
    nd_auto nd_tensor *ids = nd_slice(text, 0, T - 1, 1, 1);
    nd_auto nd_tensor *targets = nd_slice(text, 1, T, 1, 1);
    double first = 0, last = 0;
    for (int i = 0; i < 60; i++) {
        nd_auto nd_tensor *loss = gpt_loss(model, ids, targets, i % 2 == 1);
        assert_ok(nd_backward(loss, NULL));
        assert_ok(nd_optimizer_step(optimizer));
        assert_ok(nd_optimizer_zero_grad(optimizer));
        last = nd_get_item(loss);
        first = i == 0 ? last : first;
    }
    assert_true(fabs(first - log(VOCABULARY)) < 0.1);
    assert_true(last < 0.1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_cached_logits_are_those_of_reading_all),
        ND_TEST(test_written_tokens_are_the_likeliest_of_reading_all),
        ND_TEST(test_more_than_the_context_is_an_error),
        ND_TEST(test_no_token_sees_the_future),
        ND_TEST(test_checkpointed_gradients_are_the_same_bits),
        ND_TEST(test_checkpoints_take_half_the_memory),
        ND_TEST(test_it_learns_a_text_by_heart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
