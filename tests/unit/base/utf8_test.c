// UTF-8: the edges of what is a character (Unicode 15, table 3-7), and what is shown as it is.
#include "tests/testing.h"

#include "lib/base/utf8.h"
#include <string.h>

static size_t length_of(const char *text) {
    return nd__utf8_length(text, strlen(text));
}

static void test_characters_have_one_to_four_bytes(void **state) {
    (void)state;
    assert_int_equal(length_of(""), 0);
    assert_int_equal(length_of("a"), 1);
    assert_int_equal(length_of("\xc2\x80"), 2); // U+0080
    assert_int_equal(length_of("\xdf\xbf"), 2); // U+07FF
    assert_int_equal(length_of("\xe0\xa0\x80"), 3);
    assert_int_equal(length_of("\xed\x9f\xbf"), 3); // the last before the surrogates
    assert_int_equal(length_of("\xef\xbf\xbf"), 3);
    assert_int_equal(length_of("\xf0\x90\x80\x80"), 4);
    assert_int_equal(length_of("\xf4\x8f\xbf\xbf"), 4); // U+10FFFF
    assert_true(nd__utf8_is_valid("a\xc3\xa4\xe2\x82\xac"));
}

static void test_what_is_none(void **state) {
    (void)state;
    static const char *const none[] = {
        "\x80",             // the middle of one
        "\xc1\xbf",         // overlong
        "\xe0\x9f\xbf",     // likewise
        "\xf0\x8f\xbf\xbf", // likewise
        "\xed\xa0\x80",     // a surrogate
        "\xf4\x90\x80\x80", // above U+10FFFF
        "\xf5\x80\x80\x80", // likewise
        "\xe2\x82",         // cut off
        "\xe2\x82\x7f",     // a third byte below the range
        "\xe2\x82\xc0",     // and above it
        "\xf0\x9f\x98\xc0", // a fourth one
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(length_of(none[i]), 0);
        assert_false(nd__utf8_is_valid(none[i]));
    }
}

static void assert_shown(const char *text, const char *shown) {
    char buffer[64];
    nd__utf8_print(buffer, sizeof buffer, text, strlen(text));
    assert_string_equal(buffer, shown);
    nd__utf8_print(buffer, sizeof buffer, shown, strlen(shown)); // stays as it is
    assert_string_equal(buffer, shown);
}

static void test_what_is_shown_otherwise(void **state) {
    (void)state;
    assert_shown("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_shown("a\n\x7f", "a\\x0a\\x7f");
    assert_shown("\xc2\x80\xc2\x9f\xc2\xa0", "\\xc2\\x80\\xc2\\x9f\xc2\xa0"); // C1 controls
    assert_shown("\xff\xe2\x82", "\\xff\\xe2\\x82");
    // Each of the ranges that change how others are shown, and its neighbours.
    assert_shown("\xe2\x80\x8a\xe2\x80\x8b\xe2\x80\x8f\xe2\x80\x90",
                 "\xe2\x80\x8a\\xe2\\x80\\x8b\\xe2\\x80\\x8f\xe2\x80\x90");
    assert_shown("\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xae\xe2\x80\xaf",
                 "\xe2\x80\xa7\\xe2\\x80\\xa8\\xe2\\x80\\xae\xe2\x80\xaf");
    assert_shown("\xe2\x81\x9f\xe2\x81\xa0\xe2\x81\xaf\xe2\x81\xb0",
                 "\xe2\x81\x9f\\xe2\\x81\\xa0\\xe2\\x81\\xaf\xe2\x81\xb0");
    assert_shown("\xef\xbb\xbf\xef\xbb\xbe", "\\xef\\xbb\\xbf\xef\xbb\xbe");
}

static void test_what_finds_no_room_is_left_out_whole(void **state) {
    (void)state;
    char buffer[5];
    nd__utf8_print(buffer, sizeof buffer, "ab\xe2\x82\xac", 5);
    assert_string_equal(buffer, "ab");
    nd__utf8_print(buffer, sizeof buffer, "a\n", 2);
    assert_string_equal(buffer, "a");
    nd__utf8_print(buffer, 1, "a", 1);
    assert_string_equal(buffer, "");
}

static void test_a_copy_ends_behind_a_character(void **state) {
    (void)state;
    static const struct {
        const char *text, *copied; ///< into five bytes
    } cases[] = {
        {"", ""},
        {"abcd", "abcd"},
        {"abcde", "abcd"},
        {"ab\xc3\xa4", "ab\xc3\xa4"},
        {"abc\xc3\xa4", "abc"},
        {"ab\xe2\x82\xac", "ab"},
        {"a\xe2\x82\xac"
         "b",
         "a\xe2\x82\xac"},
        {"\xf0\x9f\x98\x80"
         "a",
         "\xf0\x9f\x98\x80"},
        {"a\xf0\x9f\x98\x80", "a"},
        {"\x80\x80\x80\x80\x80\x80", "\x80\x80\x80\x80"}, // no UTF-8
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buffer[5] = "xxxx";
        nd__utf8_copy(buffer, sizeof buffer, cases[i].text);
        assert_string_equal(buffer, cases[i].copied);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_characters_have_one_to_four_bytes),
        ND_TEST(test_what_is_none),
        ND_TEST(test_what_is_shown_otherwise),
        ND_TEST(test_what_finds_no_room_is_left_out_whole),
        ND_TEST(test_a_copy_ends_behind_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
