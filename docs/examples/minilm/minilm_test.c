// A small random model of MiniLM's shape: tokens as PyPI's `tokenizers` numbers them, embeddings as
// NumPy computes them in doubles (tiny.py). minilm_test FOLDER: where the model is.
#define _POSIX_C_SOURCE 200809L // mkdtemp, under -std=c17 too
#include "docs/examples/minilm/minilm.h"
#include "docs/examples/minilm/normalize.h"
#include "docs/examples/minilm/wordpiece.h"
#include "tests/testing.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "docs/examples/minilm/tiny_values.h"

enum { CASES = sizeof tiny_values / sizeof *tiny_values };

static const char *folder;

static nd_object *open_tiny(void) {
    nd_object *model = minilm_open(folder);
    if (!model)
        fail_msg("%s", minilm_get_problem());
    return model;
}

static wordpiece *open_pieces(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    wordpiece *pieces = wordpiece_open(path);
    assert_non_null(pieces);
    return pieces;
}

static void test_tokens_are_those_of_tokenizers(void **state) {
    (void)state;
    wordpiece *pieces = open_pieces();
    for (size_t i = 0; i < CASES; i++) {
        int32_t ids[TINY_PLACES];
        size_t count =
            wordpiece_encode(pieces, tiny_values[i].text, tiny_values[i].bytes, TINY_PLACES, ids);
        assert_int_equal(count, tiny_values[i].count);
        for (size_t j = 0; j < count; j++)
            assert_int_equal(ids[j], tiny_values[i].ids[j]);
    }
    wordpiece_close(pieces);
}

static void test_a_shorter_limit_cuts(void **state) {
    (void)state;
    wordpiece *pieces = open_pieces();
    const char text[] = "unaffable cat"; // un ##aff ##able cat
    int32_t all[8], cut[8];
    assert_int_equal(wordpiece_encode(pieces, text, strlen(text), 8, all), 6);
    for (size_t limit = 2; limit < 6; limit++) {
        memset(cut, -1, sizeof cut);
        assert_int_equal(wordpiece_encode(pieces, text, strlen(text), limit, cut), limit);
        assert_memory_equal(cut, all, (limit - 1) * sizeof *cut);
        assert_int_equal(cut[limit - 1], all[5]);
        assert_int_equal(cut[limit], -1);
    }
    wordpiece_close(pieces);
}

static void test_malformed_utf8_is_dropped(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
    } malformed[] = {
        {"c\x80"
         "at",
         4},
        {"ca\xC3t", 4},
        {"cat\xF0\x9F\x98", 6},
        {"\xC0\xA0"
         "cat",
         5},
        {"ca\xED\xA0\x80t", 6},
        {"\xF4\x90\x80\x80"
         "cat",
         7},
        {"cat\xFF\xFE", 5},
        {"\xE0\x80\xAF"
         "cat",
         6},
    };
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        uint32_t characters[8];
        assert_int_equal(normalize_text(malformed[i].text, malformed[i].bytes, characters), 3);
        assert_int_equal(characters[0], 'c');
        assert_int_equal(characters[1], 'a');
        assert_int_equal(characters[2], 't');
    }
}

static void test_what_is_written_fits(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char bytes[4], again[4];
        uint32_t characters[4];
        if (c >= 0xD800 && c < 0xE000)
            continue;
        size_t length = normalize_write(c, bytes);
        size_t count = normalize_text(bytes, length, characters);
        assert_true(count <= length);
        for (size_t i = 0; i < count; i++)
            assert_true(normalize_write(characters[i], again) <= 4);
    }
}

static void check_rows(const nd_tensor *embeddings, size_t count, const size_t *cases) {
    assert_handle(embeddings);
    assert_int_equal(nd_get_size(embeddings, 0), count);
    assert_int_equal(nd_get_size(embeddings, 1), TINY_WIDTH);
    const float *rows = nd_get_data(embeddings);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < TINY_WIDTH; j++)
            assert_true(
                fabs((double)rows[i * TINY_WIDTH + j] - tiny_values[cases[i]].embedding[j]) < 2e-6);
}

static void test_each_text_alone(void **state) {
    (void)state;
    nd_auto nd_object *model = open_tiny();
    for (size_t i = 0; i < CASES; i++) {
        if (strlen(tiny_values[i].text) != tiny_values[i].bytes)
            continue; // has a 0 in it
        nd_auto nd_tensor *embedding = minilm_embed(model, 1, &tiny_values[i].text);
        check_rows(embedding, 1, &i);
    }
}

static void test_texts_of_all_lengths_together(void **state) {
    (void)state;
    enum { COUNT = 100 };
    const char *texts[COUNT];
    size_t cases[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        cases[i] = i * 7 % CASES;
        if (strlen(tiny_values[cases[i]].text) != tiny_values[cases[i]].bytes)
            cases[i] = 0;
        texts[i] = tiny_values[cases[i]].text;
    }
    nd_auto nd_object *model = open_tiny();
    nd_auto nd_tensor *embeddings = minilm_embed(model, COUNT, texts);
    check_rows(embeddings, COUNT, cases);
    nd_auto nd_tensor *none = minilm_embed(model, 0, texts);
    check_rows(none, 0, cases);
}

static void test_one_and_two_threads_agree(void **state) {
    (void)state;
    const int threads = nd_get_num_threads();
    nd_auto nd_object *model = open_tiny();
    const char *texts[] = {tiny_values[0].text, tiny_values[5].text, tiny_values[17].text};
    nd_set_num_threads(1);
    nd_auto nd_tensor *one = minilm_embed(model, 3, texts);
    nd_set_num_threads(2);
    nd_auto nd_tensor *two = minilm_embed(model, 3, texts);
    nd_set_num_threads(threads);
    assert_handle(one);
    assert_handle(two);
    assert_memory_equal(nd_get_data(one), nd_get_data(two), 3 * TINY_WIDTH * sizeof(float));
}

// ------------------------------------------------------------------------------------------ errors

static void write_text(const char *path, const char *text, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static void copy_file(const char *name, const char *to) {
    char path[4096], text[1 << 17];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    assert_true(bytes < sizeof text);
    write_text(to, text, bytes);
}

static void expect_problem(const char *where, const char *words) {
    assert_null(minilm_open(where));
    if (!strstr(minilm_get_problem(), words))
        fail_msg("\"%s\" does not say \"%s\"", minilm_get_problem(), words);
    nd_error_clear();
}

/// What another encoder would need, and what is no number of anything, in place of what is there.
static void expect_problem_of_configs(const char *where, const char *path) {
    static const struct {
        const char *layers, *more, *words;
    } wrong[] = {
        {"2.5", "", "no proper \"num_hidden_layers\""},
        {"1e9", "", "no proper \"num_hidden_layers\""},
        {"\"2\"", "", "no proper \"num_hidden_layers\""},
        {"", "", "no proper \"num_hidden_layers\""},
        {"2", ", \"hidden_act\": \"relu\"", "\"hidden_act\" is not \"gelu\""},
        {"2", ", \"hidden_act\":\"gelu_new\"", "\"hidden_act\" is not \"gelu\""},
        {"2", ", \"layer_norm_eps\": 1e-5", "\"layer_norm_eps\" is not 1e-12"},
        {"2", ", \"position_embedding_type\": \"relative_key\"", "is not \"absolute\""},
    };
    static const char form[] =
        "{\"vocab_size\": 122, \"hidden_size\": 16, \"num_hidden_layers\": %s,"
        "\"num_attention_heads\": 2, \"intermediate_size\": 32, \"max_position_embeddings\": 40%s}";
    char text[512];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, form, wrong[i].layers, wrong[i].more);
        write_text(path, text, strlen(text));
        expect_problem(where, wrong[i].words);
    }
    snprintf(text, sizeof text, form, "2",
             ", \"layer_norm_eps\": 1e-12, \"hidden_act\" : \"gelu\"");
    write_text(path, text, strlen(text));
    nd_object *model = minilm_open(where);
    assert_handle(model);
    nd_release(model);
}

static void test_what_is_wrong_with_a_folder_is_said(void **state) {
    (void)state;
    char where[] = "/tmp/minilm_test.XXXXXX", config[64], vocabulary[64], weights[64];
    assert_non_null(mkdtemp(where));
    snprintf(config, sizeof config, "%s/config.json", where);
    snprintf(vocabulary, sizeof vocabulary, "%s/vocab.txt", where);
    snprintf(weights, sizeof weights, "%s/model.safetensors", where);

    expect_problem(where, "tools/get_minilm");
    write_text(config, "{\"vocab_size\": 5}", 17);
    expect_problem(where, "hidden_size");
    copy_file("config.json", config);
    expect_problem(where, "vocab.txt: No such file");
    write_text(vocabulary, "[PAD]\n[UNK]\n[CLS]\n", 18);
    expect_problem(where, "special token");
    copy_file("vocab.txt", vocabulary);
    expect_problem(where, "model.safetensors");
    write_text(weights, "\2\0\0\0\0\0\0\0{}", 10);
    expect_problem(where, "has no embeddings.position_embeddings.weight");
    copy_file("model.safetensors", weights);
    nd_object *model = minilm_open(where);
    assert_string_equal(minilm_get_folder(model), where);
    nd_release(model);
    assert_null(minilm_get_folder(NULL));
    static const char other[] =
        "{\"vocab_size\": 140, \"hidden_size\": 16, \"num_hidden_layers\": 2,"
        "\"num_attention_heads\": 2, \"intermediate_size\": 33,"
        "\"max_position_embeddings\": 40}";
    write_text(config, other, strlen(other));
    expect_problem(where, "another shape");
    expect_problem_of_configs(where, config);

    unlink(config);
    unlink(vocabulary);
    unlink(weights);
    rmdir(where);
}

static void test_a_quota_is_an_error_and_nothing_is_left(void **state) {
    (void)state;
    nd_auto nd_object *model = open_tiny();
    nd_manager *request = nd_manager_new(NULL, "request");
    nd_manager_set_quota(request, ND_CPU, 2000);
    nd_tensor *embeddings = NULL;
    nd_with_manager(request) {
        embeddings = minilm_embed(model, 1, &tiny_values[17].text);
    }
    assert_null(embeddings);
    assert_non_null(strstr(minilm_get_problem(), "request"));
    nd_error_clear();
    nd_release(request);
}

int main(int argc, char **argv) {
    folder = argc > 1 ? argv[1] : "docs/examples/minilm/tiny";
    const struct CMUnitTest tests[] = {
        ND_TEST(test_tokens_are_those_of_tokenizers),
        ND_TEST(test_a_shorter_limit_cuts),
        ND_TEST(test_malformed_utf8_is_dropped),
        ND_TEST(test_what_is_written_fits),
        ND_TEST(test_each_text_alone),
        ND_TEST(test_texts_of_all_lengths_together),
        ND_TEST(test_one_and_two_threads_agree),
        ND_TEST(test_what_is_wrong_with_a_folder_is_said),
        ND_TEST(test_a_quota_is_an_error_and_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
