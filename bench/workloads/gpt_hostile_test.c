// bench/workloads/gpt.c as a program uses it that does not care: odd prompts, odd sizes, reading on
// in pieces, errors in the middle, quotas, threads, files, other dtypes. What is refused changes
// nothing, and what is answered is what reading all again answers.
#include "bench/workloads/gpt.h"
#include "tests/testing.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, CONTEXT = 16, VOCABULARY = 50, PROMPT = 3, MORE = 10 };
static const gpt_sizes small = {VOCABULARY, CONTEXT, 24, 3, 4};
static const int64_t prompt[PROMPT] = {7, 1, 49};

static nd_tensor *random_ids(uint64_t seed, int64_t n, int64_t t) {
    return nd_randint(nd_key_new(seed), 0, VOCABULARY, ND_SHAPE(n, t), ND_I64);
}

/// The last token's logits, of reading all.
static nd_tensor *last_of_all(const nd_module *model, const nd_tensor *ids) {
    nd_auto nd_tensor *all = NULL;
    nd_no_grad all = gpt_logits(model, ids, false);
    return nd_select(all, -1, 1);
}

static double difference(const nd_tensor *a, const nd_tensor *b) {
    assert_handle(a);
    assert_handle(b);
    assert_int_equal(nd_get_numel(a), nd_get_numel(b));
    nd_auto nd_tensor *apart = nd_sub(a, b);
    nd_auto nd_tensor *size = nd_abs(apart);
    nd_auto nd_tensor *largest = nd_max(size, 0, NULL, false);
    assert_handle(largest);
    return nd_get_item(largest);
}

/// That it was refused, with a sentence that has these words; the error is gone then.
static void assert_refused(nd_status status, const char *words) {
    print_message("refused: %s\n", nd_error_get_message());
    assert_int_not_equal(status, ND_OK);
    assert_int_equal(status, nd_error_get_status());
    assert_non_null(strstr(nd_error_get_message(), words));
    nd_error_clear();
}

static void assert_not_read(const nd_module *model, gpt_cache *cache, const nd_tensor *ids,
                            const char *words) {
    const int64_t before = cache->length;
    nd_auto nd_tensor *logits = gpt_read(model, cache, ids);
    assert_null(logits);
    assert_int_equal(cache->length, before);
    assert_refused(nd_error_get_status(), words);
}

// ------------------------------------------------------------------------------------------ pieces

static void test_any_pieces_are_reading_all(void **state) {
    (void)state;
    static const int64_t pieces[][6] = {{16}, {1, 15}, {5, 4, 7}, {3, 1, 8, 1, 2, 1}, {15, 1}};
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
    nd_auto nd_tensor *ids = random_ids(2, N, CONTEXT);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        gpt_cache cache;
        assert_ok(gpt_cache_open(&cache, model, N));
        for (int k = 0; k < 6 && pieces[i][k]; k++) {
            const int64_t end = cache.length + pieces[i][k];
            nd_auto nd_tensor *more = nd_slice(ids, cache.length, end, 1, 1);
            nd_auto nd_tensor *before = nd_slice(ids, 0, end, 1, 1);
            nd_auto nd_tensor *logits = gpt_read(model, &cache, more);
            nd_auto nd_tensor *expected = last_of_all(model, before);
            assert_true(difference(logits, expected) < 1e-6);
        }
        assert_int_equal(cache.length, CONTEXT);
        gpt_cache_close(&cache);
    }
}

static void test_one_prompt_may_be_read_for_all_sequences(void **state) {
    (void)state;
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
    nd_auto nd_tensor *shared = random_ids(2, 1, 5);
    nd_auto nd_tensor *own = random_ids(3, N, 1);
    nd_auto nd_tensor *wide = nd_expand(shared, ND_SHAPE(N, 5));
    nd_auto nd_tensor *all = nd_concat(2, (const nd_tensor *const[]){wide, own}, 1);
    gpt_cache cache;
    assert_ok(gpt_cache_open(&cache, model, N));
    nd_auto nd_tensor *first = gpt_read(model, &cache, shared);
    assert_handle(first);
    assert_int_equal(nd_get_size(first, 0), N);
    nd_auto nd_tensor *second = gpt_read(model, &cache, own);
    nd_auto nd_tensor *expected = last_of_all(model, all);
    assert_true(difference(second, expected) < 1e-6);
    gpt_cache_close(&cache);
}

// ----------------------------------------------------------------------------------------- refusals

static void test_refused_reads_leave_the_cache_as_it_was(void **state) {
    (void)state;
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
    nd_auto nd_tensor *ids = random_ids(2, N, CONTEXT);
    nd_auto nd_tensor *start = nd_slice(ids, 0, 5, 1, 1);
    nd_auto nd_tensor *next = nd_slice(ids, 5, 6, 1, 1);
    nd_auto nd_tensor *until = nd_slice(ids, 0, 6, 1, 1);
    nd_auto nd_tensor *expected = last_of_all(model, until);
    nd_auto nd_tensor *nothing = random_ids(2, N, 0);
    nd_auto nd_tensor *others = random_ids(2, N + 1, 1);
    nd_auto nd_tensor *floats = nd_zeros(ND_SHAPE(N, 1), ND_F32);
    nd_auto nd_tensor *unknown = nd_full(ND_SHAPE(N, 1), VOCABULARY, ND_I64);
    nd_auto nd_tensor *flat = nd_flatten(next, 0);
    gpt_cache cache;
    assert_ok(gpt_cache_open(&cache, model, N));
    assert_not_read(model, &cache, nothing, "");
    nd_auto nd_tensor *first = gpt_read(model, &cache, start);
    assert_handle(first);
    assert_not_read(model, &cache, ids, "16"); // 5 and 16 are more than 16
    assert_not_read(model, &cache, nothing, "");
    assert_not_read(model, &cache, others, "3");
    assert_not_read(model, &cache, floats, "float32");
    assert_not_read(model, &cache, unknown, "50");
    assert_not_read(model, &cache, flat, "");
    assert_not_read(model, &cache, NULL, "NULL");
    nd_auto nd_tensor *logits = gpt_read(model, &cache, next);
    assert_true(difference(logits, expected) < 1e-6);
    gpt_cache_close(&cache);
}

static void test_refused_prompts_write_nothing(void **state) {
    (void)state;
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(3));
    const nd_key key = nd_key_new(0);
    int64_t ids[CONTEXT + 2], before[CONTEXT + 2], bad[] = {1, VOCABULARY, 2};
    memset(ids, 0x5a, sizeof ids);
    memcpy(before, ids, sizeof ids);
    assert_refused(gpt_write(model, prompt, 0, 1, 0, key, ids), "");
    assert_refused(gpt_write(model, prompt, -1, 1, 0, key, ids), "");
    assert_refused(gpt_write(model, bad, 3, 1, 0, key, ids), "50");
    assert_refused(gpt_write(model, prompt, PROMPT, CONTEXT, 0, key, ids), "16");
    int64_t long_prompt[CONTEXT + 1] = {0};
    assert_refused(gpt_write(model, long_prompt, CONTEXT + 1, 1, 0, key, ids), "16");
    assert_memory_equal(ids, before, sizeof ids);
    assert_ok(gpt_write(model, prompt, PROMPT, 0, 0, key, ids)); // no token wanted, none written
    assert_memory_equal(ids, before, sizeof ids);
    assert_ok(gpt_write(model, long_prompt, CONTEXT, 1, 0, key, ids)); // the last one is not read
    assert_true(ids[0] >= 0 && ids[0] < VOCABULARY);
    assert_memory_equal(ids + 1, before + 1, sizeof ids - sizeof *ids);
}

static void test_longer_texts_than_the_context_are_refused(void **state) {
    (void)state;
    static const gpt_sizes one_place = {VOCABULARY, 1, 24, 1, 4};
    nd_auto nd_module *model = gpt_new(&one_place, nd_key_new(1));
    nd_auto nd_tensor *ids = random_ids(2, N, 2); // two places, where one would broadcast
    for (int checkpointed = 0; checkpointed < 2; checkpointed++) {
        assert_null(gpt_logits(model, ids, checkpointed));
        assert_refused(nd_error_get_status(), "1");
        assert_null(gpt_loss(model, ids, ids, checkpointed));
        assert_refused(nd_error_get_status(), "1");
    }
}

static void test_odd_sizes_work_or_are_refused(void **state) {
    (void)state;
    static const struct {
        gpt_sizes sizes;
        bool good;
    } cases[] = {
        {{VOCABULARY, 8, 24, 60, 4}, true},
        {{VOCABULARY, 8, 24, 0, 4}, true},
        {{1, 1, 1, 1, 1}, true},
        {{VOCABULARY, 8, 24, 1, 24}, true},
        {{VOCABULARY, 8, 24, 1, 5}, false},
        {{VOCABULARY, 8, 24, 1, 0}, false},
        {{VOCABULARY, 8, 24, 1, -4}, false},
        {{VOCABULARY, 8, -24, 1, 4}, false},
        {{-1, 8, 24, 1, 4}, false},
        {{VOCABULARY, -8, 24, 1, 4}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nd_auto nd_module *model = gpt_new(&cases[i].sizes, nd_key_new(1));
        if (!cases[i].good) {
            assert_null(model);
            assert_refused(nd_error_get_status(), "");
            continue;
        }
        assert_handle(model);
        const int64_t first = 0;
        int64_t id = -1;
        assert_ok(gpt_write(model, &first, 1, 1, 0.5, nd_key_new(2), &id));
        assert_true(id >= 0 && id < cases[i].sizes.vocabulary);
    }
}

// ------------------------------------------------------------------------------------------- quotas

static nd_status write_within(const nd_module *model, uint64_t quota, int64_t *ret_ids,
                              uint64_t *ret_peak) {
    nd_auto nd_manager *request = nd_manager_new(NULL, "request");
    assert_ok(nd_manager_set_quota(request, ND_CPU, quota));
    nd_status status = ND_OK;
    nd_with_manager(request) status =
        gpt_write(model, prompt, PROMPT, MORE, 0.9, nd_key_new(5), ret_ids);
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(request, &stats));
    assert_int_equal(nd_manager_get_total_objects(request), 0);
    *ret_peak = stats.peak_bytes[ND_CPU];
    return status;
}

/// Each smaller quota ends the generation at another place.
static void test_a_quota_that_overruns_leaves_nothing(void **state) {
    (void)state;
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
    int64_t expected[MORE], ids[MORE], before[MORE];
    uint64_t need = 0, peak = 0;
    assert_ok(write_within(model, UINT64_C(1) << 30, expected, &need));
    memset(ids, 0x5a, sizeof ids);
    memcpy(before, ids, sizeof ids);
    int refused = 0;
    for (uint64_t quota = 64; quota < need; quota += need / 40 + 1, refused++) {
        nd_status status = write_within(model, quota, ids, &peak);
        assert_int_equal(status, ND_ERROR_QUOTA);
        assert_true(peak <= quota);
        nd_error_clear();
        assert_memory_equal(ids, before, sizeof ids);
    }
    assert_true(refused > 30);
    assert_ok(write_within(model, need, ids, &peak));
    assert_memory_equal(ids, expected, sizeof ids);
}

static void test_a_cache_goes_on_after_a_read_that_overran(void **state) {
    (void)state;
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
    nd_auto nd_tensor *ids = random_ids(2, N, 9);
    nd_auto nd_tensor *start = nd_slice(ids, 0, 4, 1, 1);
    nd_auto nd_tensor *more = nd_slice(ids, 4, 9, 1, 1);
    nd_auto nd_tensor *expected = last_of_all(model, ids);
    gpt_cache cache;
    assert_ok(gpt_cache_open(&cache, model, N));
    nd_auto nd_tensor *first = gpt_read(model, &cache, start);
    assert_handle(first);
    int refused = 0;
    for (uint64_t quota = 64;; quota += 512, refused++) {
        nd_auto nd_manager *request = nd_manager_new(NULL, "request");
        assert_ok(nd_manager_set_quota(request, ND_CPU, quota));
        nd_auto nd_tensor *logits = NULL;
        nd_with_manager(request) logits = gpt_read(model, &cache, more);
        if (logits) {
            assert_true(difference(logits, expected) < 1e-6);
            break;
        }
        assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
        nd_error_clear();
        assert_int_equal(cache.length, 4);
    }
    assert_true(refused > 10);
    gpt_cache_close(&cache);
}

// ------------------------------------------------------------------------------------------ threads

typedef struct writer {
    const nd_module *model;
    uint64_t seed;
    int64_t ids[MORE];
    nd_status status;
} writer;

static void *write_often(void *data) {
    writer *writer = data;
    for (int i = 0; i < 30 && writer->status == ND_OK; i++) {
        int64_t again[MORE];
        nd_auto nd_manager *request = nd_manager_new(NULL, "request");
        nd_with_manager(request) writer->status =
            gpt_write(writer->model, prompt, PROMPT, MORE, 0.9, nd_key_new(writer->seed), again);
        if (memcmp(again, writer->ids, sizeof again) != 0)
            writer->status = ND_ERROR_STATE;
    }
    return NULL;
}

static void test_threads_write_with_one_model(void **state) {
    (void)state;
    enum { THREADS = 4 };
    nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
    writer writers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        writers[i] = (writer){.model = model, .seed = (uint64_t)i};
        assert_ok(
            gpt_write(model, prompt, PROMPT, MORE, 0.9, nd_key_new((uint64_t)i), writers[i].ids));
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_often, &writers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(writers[i].status, ND_OK);
    }
    assert_memory_not_equal(writers[0].ids, writers[1].ids, sizeof writers[0].ids);
}

// -------------------------------------------------------------------------------- files and dtypes

static void test_a_model_from_a_file_writes_the_same(void **state) {
    (void)state;
    char path[256];
    const char *folder = getenv("TEST_TMPDIR");
    snprintf(path, sizeof path, "%s/gpt.safetensors", folder ? folder : "/tmp");
    nd_auto nd_module *saved = gpt_new(&small, nd_key_new(1));
    nd_auto nd_module *loaded = gpt_new(&small, nd_key_new(2));
    int64_t expected[MORE], ids[MORE];
    assert_ok(gpt_write(saved, prompt, PROMPT, MORE, 0, nd_key_new(0), expected));
    assert_ok(gpt_write(loaded, prompt, PROMPT, MORE, 0, nd_key_new(0), ids));
    assert_memory_not_equal(ids, expected, sizeof ids);
    nd_auto nd_tensor *text = random_ids(2, 1, 9);
    nd_auto nd_tensor *start = nd_slice(text, 0, 8, 1, 1);
    nd_auto nd_tensor *end = nd_slice(text, 8, 9, 1, 1);
    nd_auto nd_tensor *whole = last_of_all(saved, text);
    gpt_cache cache;
    assert_ok(gpt_cache_open(&cache, saved, 1));
    nd_auto nd_tensor *first = gpt_read(saved, &cache, start);
    assert_handle(first);
    assert_ok(nd_save_parameters(saved, path));
    assert_ok(nd_load_parameters(saved, path)); // in the middle of a text
    assert_ok(nd_load_parameters(loaded, path));
    nd_auto nd_tensor *logits = gpt_read(loaded, &cache, end); // of the same weights
    assert_true(difference(logits, whole) < 1e-6);
    gpt_cache_close(&cache);
    assert_ok(gpt_write(loaded, prompt, PROMPT, MORE, 0, nd_key_new(0), ids));
    assert_memory_equal(ids, expected, sizeof ids);
    remove(path);
}

static void test_other_dtypes_read_on_as_they_read_all(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F64, ND_BF16, ND_F16};
    static const double allowed[] = {1e-14, 0.05, 0.01};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        nd_auto nd_module *model = gpt_new(&small, nd_key_new(1));
        assert_ok(nd_module_cast(model, dtypes[i]));
        nd_auto nd_tensor *ids = random_ids(2, N, 9);
        nd_auto nd_tensor *start = nd_slice(ids, 0, 8, 1, 1);
        nd_auto nd_tensor *end = nd_slice(ids, 8, 9, 1, 1);
        gpt_cache cache;
        assert_ok(gpt_cache_open(&cache, model, N));
        nd_auto nd_tensor *first = gpt_read(model, &cache, start);
        nd_auto nd_tensor *second = gpt_read(model, &cache, end);
        nd_auto nd_tensor *expected = last_of_all(model, ids);
        assert_handle(first);
        assert_int_equal(nd_get_dtype(second), dtypes[i]);
        print_message("%s: %g\n", nd_dtype_get_name(dtypes[i]), difference(second, expected));
        assert_true(difference(second, expected) < allowed[i]);
        gpt_cache_close(&cache);
        int64_t written[MORE];
        assert_ok(gpt_write(model, prompt, PROMPT, MORE, 0.9, nd_key_new(5), written));
    }
}

// ------------------------------------------------------------------------- checkpoints, accumulation

/// Gradients of a batch, in as many parts of it as there are rows, or at once.
static void backward(const nd_module *model, const nd_tensor *ids, bool apart, bool checkpointed) {
    const int64_t rows = nd_get_size(ids, 0), parts = apart ? rows : 1;
    for (int64_t i = 0; i < parts; i++) {
        nd_auto nd_tensor *part = nd_slice(ids, i * rows / parts, (i + 1) * rows / parts, 1, 0);
        nd_auto nd_tensor *loss = gpt_loss(model, part, part, checkpointed);
        nd_auto nd_tensor *share = nd_div_scalar(loss, (double)parts);
        assert_handle(share);
        assert_ok(nd_backward(share, NULL));
    }
}

static void test_checkpoints_of_any_depth_accumulate_as_one_batch(void **state) {
    (void)state;
    static const int64_t depths[] = {0, 1, 2, 5, 7};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        const gpt_sizes sizes = {VOCABULARY, CONTEXT, 24, depths[i], 4};
        nd_auto nd_tensor *ids = random_ids(4, N, CONTEXT);
        nd_auto nd_module *whole = gpt_new(&sizes, nd_key_new(1));
        nd_auto nd_module *plain = gpt_new(&sizes, nd_key_new(1));
        nd_auto nd_module *checkpointed = gpt_new(&sizes, nd_key_new(1));
        backward(whole, ids, false, false);
        backward(plain, ids, true, false);
        backward(checkpointed, ids, true, true);
        for (size_t k = 0; k < nd_module_get_parameter_count(plain); k++) {
            const nd_tensor *a = nd_get_grad(nd_module_get_parameter_at(plain, k, NULL));
            const nd_tensor *b = nd_get_grad(nd_module_get_parameter_at(checkpointed, k, NULL));
            const nd_tensor *all = nd_get_grad(nd_module_get_parameter_at(whole, k, NULL));
            assert_handle(a);
            assert_handle(b);
            assert_memory_equal(nd_get_data(a), nd_get_data(b),
                                (size_t)nd_get_numel(a) * sizeof(float));
            assert_true(difference(a, all) < 1e-6);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_any_pieces_are_reading_all),
        ND_TEST(test_one_prompt_may_be_read_for_all_sequences),
        ND_TEST(test_refused_reads_leave_the_cache_as_it_was),
        ND_TEST(test_refused_prompts_write_nothing),
        ND_TEST(test_longer_texts_than_the_context_are_refused),
        ND_TEST(test_odd_sizes_work_or_are_refused),
        ND_TEST(test_a_quota_that_overruns_leaves_nothing),
        ND_TEST(test_a_cache_goes_on_after_a_read_that_overran),
        ND_TEST(test_threads_write_with_one_model),
        ND_TEST(test_a_model_from_a_file_writes_the_same),
        ND_TEST(test_other_dtypes_read_on_as_they_read_all),
        ND_TEST(test_checkpoints_of_any_depth_accumulate_as_one_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
