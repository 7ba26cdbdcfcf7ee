// The strict JSON scanner: what it takes, what it decodes to, what it refuses.
#include "lib/io/json.h"
#include "tests/testing.h"

#include <stdlib.h>

/// Scanner over a copy of exactly `size` bytes, so that a sanitizer sees a step beyond them.
static nd_json scanner(const char *text, size_t size) {
    nd_json json = {.text = malloc(size ? size : 1), .size = size};
    assert_non_null(json.text);
    memcpy(json.text, text, size);
    return json;
}

static void check_string(const char *text, size_t size, const char *expected) {
    nd_json json = scanner(text, size);
    const char *string = NULL;
    bool fine = nd__json_string(&json, &string);
    if (expected) {
        if (!fine)
            fail_msg("%s: %s", text, json.problem);
        assert_string_equal(string, expected);
        assert_true(nd__json_at_end(&json));
    } else if (fine || !json.problem) {
        fail_msg("%s was taken as a string", text);
    }
    free(json.text);
}

static void test_strings_are_decoded(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"\"\"", ""},
        {" \"weight\" ", "weight"},
        {"\"a\\\"b\\\\c\\/d\"", "a\"b\\c/d"},
        {"\"\\b\\f\\n\\r\\t\"", "\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20ac\"", "A\xc3\xa9\xe2\x82\xac"},
        {"\"\\ud83d\\uDE00\"", "\xf0\x9f\x98\x80"},
        {"\"\xc3\xa9\xed\x9f\xbf\xf4\x8f\xbf\xbf\"", "\xc3\xa9\xed\x9f\xbf\xf4\x8f\xbf\xbf"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
        check_string(pairs[i][0], strlen(pairs[i][0]), pairs[i][1]);
}

static void test_F25_malformed_strings_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "x",
        "\"",
        "\"abc",
        "\"abc\\",
        "\"abc\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u",
        "\"\\ud83d\"",
        "\"\\ud83dx\"",
        "\"\\ud83d\\u0041\"",
        "\"\\ude00\"",
        "\"\\u0000\"",
        "\"line\nbreak\"",
        "\"\xff\"",             // never a byte of UTF-8
        "\"\xc0\xaf\"",         // overlong /
        "\"\xe0\x80\xaf\"",     // overlong /
        "\"\xed\xa0\x80\"",     // surrogate
        "\"\xf4\x90\x80\x80\"", // above U+10FFFF
        "\"\xf0\x80\x80\xaf\"", // overlong /
        "\"\x80\"",             // continuation without a lead
        "\"\xe2\x82",           // cut off
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        check_string(texts[i], strlen(texts[i]), NULL);
    check_string("\"a\0b\"", 5, NULL);
}

static void test_F25_integers_are_strict(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t value; ///< -1: refused
    } cases[] = {
        {"0", 0},
        {" 17 ", 17},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", -1},
        {"99999999999999999999999999", -1},
        {"-1", -1},
        {"+1", -1},
        {"01", -1},
        {"1.0", -1},
        {"1e3", -1},
        {"", -1},
        {"x", -1},
        {"\"1\"", -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        nd_json json = scanner(cases[i].text, strlen(cases[i].text));
        int64_t value = -1;
        bool fine = nd__json_integer(&json, &value);
        if (fine != (cases[i].value >= 0) || value != cases[i].value)
            fail_msg("'%s' gave %d, %lld", cases[i].text, fine, (long long)value);
        free(json.text);
    }
}

static void test_the_first_problem_stays(void **state) {
    (void)state;
    nd_json json = scanner("[1", 2);
    int64_t value;
    const char *string;
    assert_false(nd__json_expect(&json, '{', "an object was expected"));
    assert_false(nd__json_take(&json, '['));
    assert_false(nd__json_integer(&json, &value));
    assert_false(nd__json_string(&json, &string));
    assert_string_equal(json.problem, "an object was expected");
    free(json.text);
}

static void test_values_are_left_out(void **state) {
    (void)state;
    static const char *const values[] = {
        "1",
        "-0.5e+10",
        "0",
        "12.25E3",
        "true",
        "null",
        "{}",
        "[]",
        "[{}, [1, \"]\"], false]",
        "{\"a\" : {\"b\":[]} , \"c\":-1}",
        " [ 1 , 2 ] ",
        "\"x\"",
        "[[[[]]],{}]",
    };
    static const char *const bad[] = {
        "",           "-",   "01",        "1.",    "1e", ".5",  "+1",      "tru",
        "[",          "[1",  "[1,]",      "[1 2]", "{",  "{1}", "{\"a\"}", "{\"a\":}",
        "{\"a\":1,}", "[1}", "{\"a\":1]", "[,1]",  "}",  "nan", "'x'",
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        nd_json json = scanner(values[i], strlen(values[i]));
        if (!nd__json_skip(&json) || !nd__json_at_end(&json))
            fail_msg("refused: %s", values[i]);
        free(json.text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nd_json json = scanner(bad[i], strlen(bad[i]));
        if (nd__json_skip(&json) && nd__json_at_end(&json))
            fail_msg("accepted: %s", bad[i]);
        free(json.text);
    }
}

static void test_F25_values_are_64_deep_at_most(void **state) {
    (void)state;
    char text[132];
    for (int depth = 63; depth <= 65; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        nd_json json = scanner(text, 2 * (size_t)depth);
        assert_int_equal(nd__json_skip(&json), depth <= 64);
        free(json.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_strings_are_decoded),     ND_TEST(test_F25_malformed_strings_are_refused),
        ND_TEST(test_F25_integers_are_strict), ND_TEST(test_the_first_problem_stays),
        ND_TEST(test_values_are_left_out),     ND_TEST(test_F25_values_are_64_deep_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
