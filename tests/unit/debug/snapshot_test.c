// Snapshots and their difference, and blocks that must leave nothing behind.
#include "lib/base/alloc.h"
#include "tests/behaviour/cell.h"
#include "tests/unit/debug/written.h"
#include <unistd.h>

static void free_nothing(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
}

static char memory[4096];

static nd_resource *buffer_of(size_t bytes) {
    const nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = free_nothing};
    return nd_resource_new("buffer", memory, bytes, &callbacks);
}

static void test_what_came_and_went(void **state) {
    (void)state;
    cell_begin(8);
    nd_object *old[3] = {cell_new(0, 0), cell_new(1, 0), cell_new(2, 0)};
    nd_snapshot *before = nd_snapshot_new(NULL);
    assert_handle(before);
    nd_list *list = nd_list_new(); // before anything goes, so that it gets no address anew
    nd_resource *small = buffer_of(100), *large = buffer_of(1000);
    nd_release(old[0]);
    nd_release(old[1]);
    nd_snapshot *after = nd_snapshot_new(NULL);
    nd_difference difference = ND_DIFFERENCE_INIT;
    written out = {0};
    assert_ok(nd_snapshot_difference(before, after, written_stream(&out), 0, &difference));
    assert_int_equal(difference.came_objects, 3);
    assert_int_equal(difference.came_bytes, 1100);
    assert_int_equal(difference.went_objects, 2);
    assert_int_equal(difference.went_bytes, 0);
    const char *text = written_text(&out);
    assert_contains(text, "below manager root: +3 objects, +1100 bytes; -2 objects, -0 bytes\n"
                          "  +2 -0 x buffer, +1100 -0 bytes\n"
                          "  +1 -0 x list, +0 -0 bytes\n"
                          "  +0 -2 x cell, +0 -0 bytes\n");
    written_free(&out);

    // Backwards what came is what went.
    assert_ok(nd_snapshot_difference(after, before, NULL, 0, &difference));
    assert_int_equal(difference.went_bytes, 1100);
    assert_int_equal(difference.came_objects, 2);
    assert_ok(nd_snapshot_difference(after, after, NULL, 0, &difference));
    assert_int_equal(difference.came_objects + difference.went_objects, 0);
    nd_snapshot_free(before);
    nd_snapshot_free(after);
    nd_snapshot_free(NULL);
    nd_release(old[2]);
    nd_release(small);
    nd_release(large);
    nd_release(list);
    cell_end();
}

static void test_rows_are_limited(void **state) {
    (void)state;
    nd_snapshot *before = nd_snapshot_new(NULL);
    nd_list *list = nd_list_new();
    nd_resource *buffer = buffer_of(64);
    nd_snapshot *after = nd_snapshot_new(NULL);
    written out = {0};
    assert_ok(nd_snapshot_difference(before, after, written_stream(&out), 1, NULL));
    assert_contains(written_text(&out), "x buffer");
    assert_lacks(written_text(&out), "x list");
    assert_contains(written_text(&out), "... 1 more rows");
    written_free(&out);
    nd_snapshot_free(before);
    nd_snapshot_free(after);
    nd_release(list);
    nd_release(buffer);
}

static void test_only_below_the_manager(void **state) {
    (void)state;
    nd_manager *m = nd_manager_new(NULL, "step");
    nd_snapshot *before = nd_snapshot_new(m);
    nd_list *elsewhere = nd_list_new(), *here = NULL;
    nd_with_manager(m) here = nd_list_new();
    nd_snapshot *after = nd_snapshot_new(m);
    nd_difference difference = ND_DIFFERENCE_INIT;
    assert_ok(nd_snapshot_difference(before, after, NULL, 0, &difference));
    assert_int_equal(difference.came_objects, 1);
    nd_snapshot_free(before);
    nd_snapshot_free(after);
    nd_release(elsewhere);
    nd_release(here);
    nd_release(m);
}

static void test_names_make_no_lines(void **state) {
    (void)state;
    nd_manager *m = nd_manager_new(NULL, "a\033[31m\nb");
    nd_snapshot *before = nd_snapshot_new(m);
    nd_list *list = NULL;
    nd_with_manager(m) list = nd_list_new();
    nd_snapshot *after = nd_snapshot_new(m);
    written out = {0};
    assert_ok(nd_snapshot_difference(before, after, written_stream(&out), 0, NULL));
    assert_contains(written_text(&out), "below manager a\\x1b[31m\\x0ab: +1");
    written_free(&out);
    assert_ok(nd_debug_holders(list, written_stream(&out)));
    assert_contains(written_text(&out), "; manager a\\x1b[31m\\x0ab");
    written_free(&out);
    nd_snapshot_free(before);
    nd_snapshot_free(after);
    nd_release(list);
    nd_release(m);
}

static void test_a_snapshot_keeps_nothing_alive(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    nd_snapshot *before = nd_snapshot_new(NULL);
    assert_int_equal(nd_get_count(x), 1);
    nd_release(x);
    assert_int_equal(cell_deaths(0), 1);
    nd_snapshot_free(before);
    cell_end();
}

static void test_closing_gives_back_bytes(void **state) {
    (void)state;
    nd_resource *buffer = buffer_of(512);
    nd_snapshot *before = nd_snapshot_new(NULL);
    assert_ok(nd_close(buffer));
    nd_snapshot *after = nd_snapshot_new(NULL);
    nd_difference difference = ND_DIFFERENCE_INIT;
    assert_ok(nd_snapshot_difference(before, after, NULL, 0, &difference));
    assert_int_equal(difference.went_bytes, 512);
    assert_int_equal(difference.went_objects, 0);
    nd_snapshot_free(before);
    nd_snapshot_free(after);
    nd_release(buffer);
}

// ----------------------------------------------------------------------------------------- balance

static void test_balance_finds_what_is_left(void **state) {
    (void)state;
    nd_manager *m = nd_manager_new(NULL, "step");
    nd_balance *balance = nd_balance_begin(m, "step.c", 12);
    assert_handle(balance);
    nd_resource *left = NULL;
    nd_with_manager(m) left = buffer_of(256);
    nd_difference difference = ND_DIFFERENCE_INIT;
    written out = {0};
    assert_int_equal(nd_balance_end(balance, written_stream(&out), &difference), ND_ERROR_STATE);
    assert_string_equal(
        nd_error_get_message(),
        "expect_balanced: the block at step.c:12 left 1 object and 256 bytes behind "
        "below manager step, such as a buffer");
    assert_contains(written_text(&out),
                    "ndarc: the block at step.c:12 left something behind: below "
                    "manager step: +1 objects, +256 bytes");
    assert_int_equal(difference.came_bytes, 256);
    written_free(&out);
    nd_release(left);
    nd_release(m);
}

static void test_balance_is_content_with_what_went(void **state) {
    (void)state;
    nd_resource *before = buffer_of(256);
    nd_balance *balance = nd_balance_begin(NULL, __FILE__, __LINE__);
    nd_release(before);
    nd_list *list = nd_list_new();
    nd_release(list);
    assert_ok(nd_balance_end(balance, NULL, NULL));
}

static void test_one_kind_does_not_make_up_for_another(void **state) {
    (void)state;
    nd_list *before = nd_list_new();
    nd_balance *balance = nd_balance_begin(NULL, __FILE__, __LINE__);
    cell_begin(1);
    nd_object *left = cell_new(0, 0);
    nd_release(before);
    assert_int_equal(nd_balance_end(balance, NULL, NULL), ND_ERROR_STATE);
    assert_contains(nd_error_get_message(), "left 1 object and 0 bytes behind");
    assert_contains(nd_error_get_message(), "such as a cell");
    nd_release(left);
    cell_end();
}

/// Runs with stderr going to a file, and returns what was written there.
static char *errors_of(void (*run)(void)) {
    static char text[1024];
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    run();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static nd_list *left_behind;

static void leave_one_behind(void) {
    nd_expect_balanced(NULL) {
        left_behind = nd_list_new();
    }
}

static void leave_early(void) {
    nd_expect_balanced(NULL) {
        left_behind = nd_list_new();
        return;
    }
}

static void leave_nothing(void) {
    nd_expect_balanced(NULL) {
        nd_auto nd_list *list = nd_list_new();
        assert_handle(list);
    }
}

static void test_block_reports_at_its_end(void **state) {
    (void)state;
    void (*const runs[])(void) = {leave_one_behind, leave_early};
    for (int i = 0; i < 2; i++) {
        nd_error_clear();
        const char *errors = errors_of(runs[i]);
        assert_contains(errors, "snapshot_test.c:");
        assert_contains(errors, "left something behind");
        assert_contains(errors, "+1 -0 x list");
        assert_int_equal(nd_error_get_status(), ND_ERROR_STATE);
        nd_release(left_behind);
    }
    nd_error_clear();
    assert_string_equal(errors_of(leave_nothing), "");
    assert_int_equal(nd_error_get_status(), ND_OK);
}

static int fail_after;
static bool should_fail(size_t bytes) {
    (void)bytes;
    return fail_after-- <= 0;
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    nd_list *list = nd_list_new();
    int failures = 0;
    for (int allowed = 0; allowed < 40; allowed++) {
        fail_after = allowed;
        nd__alloc_should_fail = should_fail;
        nd_balance *balance = nd_balance_begin(NULL, __FILE__, __LINE__);
        nd_status status = balance ? nd_balance_end(balance, NULL, NULL) : ND_ERROR_OUT_OF_MEMORY;
        nd__alloc_should_fail = NULL;
        if (status == ND_OK)
            break;
        assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
        failures++;
    }
    assert_in_range(failures, 10, 39);
    nd_release(list);
}

static void test_bad_arguments(void **state) {
    (void)state;
    nd_snapshot *snapshot = nd_snapshot_new(NULL);
    nd_difference unversioned = {0};
    assert_int_equal(nd_snapshot_difference(snapshot, NULL, NULL, 0, NULL),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_snapshot_difference(snapshot, snapshot, NULL, 0, &unversioned),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_balance_end(NULL, NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_balance *balance = nd_balance_begin(NULL, NULL, 0);
    assert_int_equal(nd_balance_end(balance, NULL, &unversioned), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_balance_end(balance, NULL, NULL));
    nd_snapshot_free(snapshot);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_what_came_and_went),
        ND_TEST(test_rows_are_limited),
        ND_TEST(test_only_below_the_manager),
        ND_TEST(test_names_make_no_lines),
        ND_TEST(test_a_snapshot_keeps_nothing_alive),
        ND_TEST(test_closing_gives_back_bytes),
        ND_TEST(test_balance_finds_what_is_left),
        ND_TEST(test_balance_is_content_with_what_went),
        ND_TEST(test_one_kind_does_not_make_up_for_another),
        ND_TEST(test_block_reports_at_its_end),
        ND_TEST(test_every_allocation_may_fail),
        ND_TEST(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
