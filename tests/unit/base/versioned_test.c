// Structs that say how long they are: programs older and newer than the library.
#include "tests/testing.h"

#include "lib/base/versioned.h"
#include <string.h>

// What the library knows, what a program of an earlier version knew, and one of a later version.
typedef struct known {
    uint32_t size, version;
    double rate;
    int64_t count;
} known;
typedef struct earlier {
    uint32_t size, version;
    double rate;
} earlier;
typedef struct later {
    uint32_t size, version;
    double rate;
    int64_t count;
    uint64_t unknown;
} later;

#define KNOWN_INIT \
    { sizeof(known), 1, 0.5, 7 }

static nd_status read(const void *given, known *ret_options) {
    *ret_options = (known)KNOWN_INIT;
    return nd__versioned_read("read", "KNOWN_INIT", given, ret_options, sizeof *ret_options);
}

static void test_options_of_every_length_are_read(void **state) {
    (void)state;
    known options;
    assert_ok(read(NULL, &options));
    assert_true(options.rate == 0.5 && options.count == 7);
    assert_ok(read(&(known){sizeof(known), 1, 2, 3}, &options));
    assert_true(options.rate == 2 && options.count == 3);
    assert_ok(read(&(earlier){sizeof(earlier), 1, 2}, &options)); // the rest stays as it began
    assert_true(options.rate == 2 && options.count == 7);
    assert_int_equal(options.size, sizeof(known));
    assert_ok(read(&(later){sizeof(later), 1, 2, 3, 0}, &options));
    assert_true(options.rate == 2 && options.count == 3);
}

static void test_what_cannot_be_read_changes_nothing(void **state) {
    (void)state;
    known options;
    assert_int_equal(read(&(later){sizeof(later), 1, 2, 3, 4}, &options), ND_ERROR_UNSUPPORTED);
    assert_true(options.rate == 0.5 && options.count == 7);
    assert_int_equal(read(&(known){0}, &options), ND_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(nd_error_get_message(), "KNOWN_INIT"));
    assert_int_equal(read(&(known){7, 1, 2, 3}, &options), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(read(&(known){sizeof(known), 2, 2, 3}, &options), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(read(&(known){UINT32_MAX, 1, 2, 3}, &options), ND_ERROR_INVALID_ARGUMENT);
    assert_true(options.rate == 0.5 && options.count == 7);
    nd_error_clear();
}

static void test_what_is_kept_must_be_whole(void **state) {
    (void)state;
    known whole = KNOWN_INIT;
    earlier shorter = {sizeof shorter, 1, 2};
    later longer = {sizeof longer, 1, 2, 3, 0}, unknown = {sizeof unknown, 1, 2, 3, 4};
    assert_ok(nd__versioned_check_kept("keep", "KNOWN_INIT", &whole, sizeof whole));
    assert_ok(nd__versioned_check_kept("keep", "KNOWN_INIT", &longer, sizeof whole));
    assert_int_equal(nd__versioned_check_kept("keep", "KNOWN_INIT", &shorter, sizeof whole),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd__versioned_check_kept("keep", "KNOWN_INIT", &unknown, sizeof whole),
                     ND_ERROR_UNSUPPORTED);
    assert_int_equal(nd__versioned_check_kept("keep", "KNOWN_INIT", NULL, sizeof whole),
                     ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
}

static void test_reports_are_written_as_far_as_they_are_known(void **state) {
    (void)state;
    const known report = {sizeof report, 1, 2, 3};
    struct {
        earlier asked;
        uint64_t beyond;
    } shorter = {{sizeof(earlier), 1, 0}, 99};
    assert_ok(nd__versioned_check("report", "KNOWN_INIT", &shorter));
    nd__versioned_write(&shorter, &report, sizeof report);
    assert_true(shorter.asked.rate == 2 && shorter.beyond == 99);
    assert_int_equal(shorter.asked.size, sizeof(earlier));
    later longer = {sizeof longer, 1, 0, 0, 5};
    nd__versioned_write(&longer, &report, sizeof report);
    assert_true(longer.rate == 2 && longer.count == 3 && longer.unknown == 5);
    assert_int_equal(longer.size, sizeof report); // says how much was written
    assert_int_equal(nd__versioned_check("report", "KNOWN_INIT", NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
}

static void test_a_program_of_an_earlier_version_gets_its_part(void **state) {
    (void)state;
    struct {
        uint32_t size, version;
        uint64_t live_objects;
        uint64_t beyond;
    } stats = {16, 1, 99, 99};
    assert_ok(nd_manager_get_stats(NULL, (nd_manager_stats *)(void *)&stats));
    assert_int_equal(stats.live_objects, 0);
    assert_int_equal(stats.beyond, 99);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_options_of_every_length_are_read),
        ND_TEST(test_what_cannot_be_read_changes_nothing),
        ND_TEST(test_what_is_kept_must_be_whole),
        ND_TEST(test_reports_are_written_as_far_as_they_are_known),
        ND_TEST(test_a_program_of_an_earlier_version_gets_its_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
