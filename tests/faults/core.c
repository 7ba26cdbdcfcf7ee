// The core without memory, after a fork, during exit, and with NULL everywhere: F1, F3, F22, F23
// and F30 as far as they concern it. After every failure nothing is left behind and the next try
// works.
#include "lib/base/alloc.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t fail_at; // the n-th allocation from now fails; negative: every one from the n-th on
static int64_t allocations;

static bool fail_the_nth(size_t bytes) {
    (void)bytes;
    allocations++;
    return fail_at > 0 ? allocations == fail_at : allocations >= -fail_at;
}

static char nowhere[1];
static const nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1};

/// Goes on only while everything works; what a step made is released whether or not the next one
/// fails.
#define STEP(condition)   \
    do {                  \
        if (!(condition)) \
            goto done;    \
        steps++;          \
    } while (0)

/// A bit of everything the core does. Returns how many steps worked; the last is number 20.
static int exercise(void) {
    int steps = 0;
    nd_manager *m = NULL, *child = NULL;
    nd_object *a = NULL, *b = NULL;
    nd_list *list = NULL;
    nd_weak *weak = NULL;
    nd_resource *resource = NULL;
    nd_scope *scope = NULL;
    nd_gc_report report = ND_GC_REPORT_INIT;
    STEP(m = nd_manager_new(NULL, "m"));
    STEP(child = nd_manager_new(m, "child"));
    nd_with_manager(child) {
        a = cell_new(0, 2);
        b = cell_new(0, 2);
        list = nd_list_new();
        resource = nd_resource_new("buffer", nowhere, 100, &callbacks);
    }
    STEP(a);
    STEP(b);
    STEP(list);
    STEP(resource);
    cell_link(a, 0, b);
    cell_link(b, 0, a);
    for (int i = 0; i < 20; i++)
        if (nd_list_append(list, i % 2 ? a : b) != ND_OK)
            goto done;
    cell_link(a, 1, list);
    STEP(nd_set_name(a, "a") == ND_OK);
    STEP(weak = nd_weak_new(b));
    STEP(nd_weak_set_callback(weak, NULL, NULL) == ND_OK);
    STEP(nd_manager_attach(m, a) == ND_OK);
    STEP(nd_manager_lend(child, a) == ND_OK);
    STEP(nd_manager_lend(m, a) == ND_OK);
    STEP(scope = nd_scope_begin());
    for (int i = 0; i < 40; i++)
        if (!nd_tmp(nd_retain(a)))
            goto done;
    STEP(nd_scope_move_out(a) != ND_OK); // there is no outer scope
    STEP(nd_scope_end(scope) == ND_OK);
    scope = NULL;
    nd_release(a);
    nd_release(b);
    a = b = NULL;
    nd_release(list);
    list = NULL;
    STEP(nd_gc_collect(m, &report) == ND_OK);
    STEP(report.collected_objects == 3);
    STEP(nd_manager_get_total_objects(m) == 1);
    STEP(nd_manager_dispose(m, NULL) == ND_OK);
    STEP(nd_is_closed(resource));
done:
    nd_scope_end(scope);
    nd_release(a);
    nd_release(b);
    nd_release(list);
    nd_release(weak);
    nd_release(resource);
    if (m)
        nd_manager_close(m, NULL);
    nd_release(child);
    nd_release(m);
    return steps;
}

/// What the first exercise leaves out. The last step is number 7.
static int exercise_rest(void) {
    enum { CHILDREN = 20 }; // more than a list of managers begins with
    int steps = 0;
    nd_manager *m = NULL, *children[CHILDREN] = {NULL};
    nd_object *a = NULL;
    nd_map *map = NULL;
    nd_scope *outer = NULL, *inner = NULL;
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.interval_ns = 1000000;
    STEP(m = nd_manager_new(NULL, NULL));
    for (int i = 0; i < CHILDREN; i++)
        if (!(children[i] = nd_manager_new(m, NULL)))
            goto done;
    STEP(nd_gc_collect(m, NULL) == ND_OK);
    STEP(nd_manager_set_gc_policy(m, &policy) == ND_OK);
    nd_with_manager(m) {
        a = cell_new(0, 1);
        map = nd_map_new();
    }
    STEP(a && map);
    for (int i = 0; i < 20; i++)
        if (nd_map_set(map, (char[]){(char)('a' + i), '\0'}, a) != ND_OK)
            goto done;
    STEP(outer = nd_scope_begin());
    STEP(inner = nd_scope_begin());
    for (int i = 0; i < 40; i++)
        if (!nd_tmp(nd_retain(a)) || nd_scope_move_out(a) != ND_OK)
            goto done;
    STEP(nd_scope_get_size(outer) == 40);
done:
    nd_scope_end(inner);
    nd_scope_end(outer);
    nd_release(map);
    nd_release(a);
    for (int i = 0; i < CHILDREN; i++)
        nd_release(children[i]);
    nd_release(m);
    return steps;
}

/// Runs an exercise of so many steps with failing allocations; afterwards the world must be as it
/// was.
static int run_with(int64_t at, int (*run)(void), int all) {
    uint64_t objects = nd_manager_get_total_objects(NULL), bytes = nd_manager_get_total_bytes(NULL);
    nd_error_clear();
    allocations = 0;
    fail_at = at;
    nd__alloc_should_fail = fail_the_nth;
    int steps = run();
    nd__alloc_should_fail = NULL;
    if (steps < all) {
        if (nd_error_get_status() != ND_ERROR_OUT_OF_MEMORY)
            fail_msg("after %d steps: %s", steps, nd_error_get_message());
        assert_true(strlen(nd_error_get_message()) > 10);
    }
    assert_null(nd_scope_get_current());
    // A cycle that the failed collection left is what the next one takes.
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(nd_manager_get_total_objects(NULL), objects);
    assert_int_equal(nd_manager_get_total_bytes(NULL), bytes);
    assert_ok(nd_debug_check());
    return steps;
}

static int exercise_with(int64_t at) {
    return run_with(at, exercise, 20);
}

static void test_F01_every_nth_allocation_fails(void **state) {
    (void)state;
    cell_begin(0);
    assert_int_equal(exercise(), 20);
    int failed = 0;
    int64_t n = 1;
    for (;; n++) {
        failed += exercise_with(n) < 20;
        if (allocations < n)
            break;
    }
    assert_int_equal(exercise_with(n), 20);
    assert_true(failed >= 8);
}

static void test_F01_every_nth_allocation_of_the_rest_fails(void **state) {
    (void)state;
    cell_begin(0);
    assert_int_equal(exercise_rest(), 7);
    int failed = 0;
    int64_t n = 1;
    for (; run_with(n, exercise_rest, 7) < 7 || allocations >= n; n++)
        failed++;
    assert_true(failed >= 6);
}

static void test_F03_memory_stays_exhausted(void **state) {
    (void)state;
    cell_begin(0);
    for (int64_t n = 1; n < 40; n++) {
        int steps = exercise_with(-n);
        if (n == 1) // managers alone can do without: their memory is used again
            assert_in_range(steps, 0, 2);
    }
}

static void test_F03_releasing_and_closing_need_no_memory(void **state) {
    (void)state;
    cell_begin(64);
    nd_manager *m = nd_manager_new(NULL, "m");
    nd_object *held[64];
    nd_with_manager(m) {
        for (uint32_t i = 0; i < 64; i++) {
            held[i] = cell_new(i, 1);
            assert_ok(nd_set_name(held[i], "named"));
        }
    }
    fail_at = -1;
    allocations = 0;
    nd__alloc_should_fail = fail_the_nth;
    for (uint32_t i = 0; i < 32; i++)
        nd_release(held[i]);
    nd_status status = nd_manager_close(m, NULL);
    for (uint32_t i = 32; i < 64; i++)
        nd_release(held[i]);
    nd_release(m);
    nd__alloc_should_fail = NULL;
    assert_ok(status);
    assert_int_equal(cell_total_deaths(), 64);
}

/// How often it was asked for memory, of which there is enough afterwards.
static bool find_memory(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    ++*(int *)data;
    nd__alloc_should_fail = NULL;
    return true;
}

static void test_F03_a_disposal_asks_for_memory(void **state) {
    (void)state;
    int asked = 0;
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = find_memory;
    callback.data = &asked;
    assert_ok(nd_memory_set_callback(nd_manager_get_root(), &callback));
    bool reached = true;
    int disposals = 0;
    // The first is the list of managers, for which the process has a reserve (lib/base/reserve.h).
    for (int64_t n = 2; reached; n++, disposals++) {
        cell_begin(4);
        nd_manager *m = nd_manager_new(NULL, "m"), *child = nd_manager_new(m, "child");
        assert_handle(child);
        nd_object *held[4];
        for (uint32_t i = 0; i < 4; i++)
            nd_with_manager(i % 2 ? m : child) {
                held[i] = cell_new(i, 1);
            }
        fail_at = -n; // from there on
        allocations = 0;
        asked = 0;
        nd__alloc_should_fail = fail_the_nth;
        nd_status status = nd_manager_dispose(m, NULL);
        nd__alloc_should_fail = NULL;
        reached = allocations >= n;
        assert_ok(status);
#if ND_COLLECT_EVERYWHERE // the collections before it take their memory without asking
        assert_in_range(asked, 0, reached);
#else
        assert_int_equal(asked, reached ? 1 : 0);
#endif
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(nd_is_closed(held[i]));
            nd_release(held[i]);
        }
        assert_int_equal(cell_total_deaths(), 4);
        nd_release(child);
        nd_release(m);
    }
    assert_ok(nd_memory_set_callback(nd_manager_get_root(), NULL));
    assert_in_range(disposals, 3, 100); // for the objects of two managers, for what goes up
}

// ------------------------------------------------------------------------------------- fork, exit

static int exit_status_of(void (*function)(void)) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(300); // a child that waits for a lock of a thread that is not there
        function();
        exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static nd_object *made_before_the_fork;

static void use_after_fork(void) {
    nd_gc_set_mode(ND_GC_ON);
    if (exercise() != 20)
        _exit(3);
    nd_release(made_before_the_fork);
    if (cell_deaths(7) != 1)
        _exit(4);
}

static void test_F22_fork_then_use(void **state) {
    (void)state;
    cell_begin(8);
    made_before_the_fork = cell_new(7, 0);
    assert_int_equal(exit_status_of(use_after_fork), 0);
    assert_int_equal(cell_deaths(7), 0); // the child's world is its own
    nd_release(made_before_the_fork);
}

static nd_object *released_at_exit;
static nd_manager *closed_at_exit;

static void release_at_exit(void) {
    nd_release(released_at_exit);
    nd_manager_close(closed_at_exit, NULL);
    nd_release(closed_at_exit);
    if (cell_total_deaths() != 4)
        _exit(5);
}

static void leave_work_for_the_exit(void) {
    atexit(release_at_exit);
    nd_gc_set_mode(ND_GC_ON);
    released_at_exit = cell_new(0, 0);
    closed_at_exit = nd_manager_new(NULL, "m");
    nd_with_manager(closed_at_exit) {
        cell_drop_ring(1, 3);
    }
}

static void test_F23_release_during_exit(void **state) {
    (void)state;
    cell_begin(8);
    assert_int_equal(exit_status_of(leave_work_for_the_exit), 0);
}

// ------------------------------------------------------------------------------------------- NULL

#define assert_refused(status)                                   \
    do {                                                         \
        nd_error_clear();                                        \
        nd_status nd_status_ = (status);                         \
        assert_int_equal(nd_status_, ND_ERROR_INVALID_ARGUMENT); \
        assert_int_equal(nd_error_get_status(), nd_status_);     \
        assert_non_null(strstr(nd_error_get_message(), "NULL")); \
    } while (0)

static void test_F30_null_to_every_function_of_the_core(void **state) {
    (void)state;
    nd_object *nothing = NULL;
    char buffer[8];
    nd_release(nothing);
    assert_null(nd_retain(nothing));
    assert_int_equal(nd_get_count(NULL), 0);
    assert_string_equal(nd_get_type_name(NULL), "NULL");
    assert_refused(nd_set_name(NULL, "x"));
    assert_string_equal(nd_get_name(NULL, buffer, sizeof buffer), "");
    assert_non_null(nd_get_name(NULL, NULL, 0));
    assert_refused(nd_close(NULL));
    assert_false(nd_is_closed(NULL));
    assert_null(nd_object_new(NULL, 1));
    assert_null(nd_object_get_data(NULL));
    assert_null(nd_object_get_type(NULL));
    assert_null(nd_weak_new(NULL));
    assert_null(nd_weak_get(NULL));
    assert_null(nd_weak_get_tensor(NULL));
    assert_refused(nd_weak_set_callback(NULL, NULL, NULL));
    assert_refused(nd_list_append(NULL, NULL));
    assert_null(nd_list_get(NULL, 0));
    assert_int_equal(nd_list_get_size(NULL), 0);
    assert_refused(nd_list_clear(NULL));
    assert_null(nd_resource_new(NULL, NULL, 0, NULL));
    assert_null(nd_resource_get(NULL));

    assert_null(nd_object_tmp(NULL));
    assert_ok(nd_scope_end(NULL));
    assert_refused(nd_scope_adopt(NULL, NULL));
    assert_refused(nd_scope_move_out(NULL));
    assert_int_equal(nd_scope_get_size(NULL), 0);
    assert_refused(nd_scope_leave(NULL));
    assert_refused(nd_scope_enter(NULL));

    assert_null(nd_get_manager(NULL));
    assert_null(nd_manager_get_parent(NULL));
    assert_non_null(nd_manager_get_name(NULL));
    assert_false(nd_manager_is_open(NULL));
    assert_refused(nd_manager_attach(NULL, NULL));
    assert_refused(nd_manager_attach(nd_manager_get_root(), NULL));
    assert_refused(nd_manager_lend(NULL, NULL));
    assert_refused(nd_manager_close(NULL, NULL));
    assert_refused(nd_manager_dispose(NULL, NULL));
    assert_refused(nd_manager_set_cap(NULL, 1));
    assert_refused(nd_manager_set_quota(NULL, ND_CPU, 1));
    assert_refused(nd_manager_set_gc_mode(NULL, ND_GC_ON));
    assert_int_not_equal(nd_manager_get_stats(NULL, NULL), ND_OK);
    nd_manager *unnamed = nd_manager_new(NULL, NULL);
    assert_handle(unnamed);
    assert_string_equal(nd_manager_get_name(unnamed), "");
    nd_release(unnamed);

    assert_int_not_equal(nd_gc_get_stats(NULL), ND_OK);
    nd_gc_set_cycle_callback(NULL, NULL);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_string_equal(nd_debug_get_site(NULL, buffer, sizeof buffer), "");
    assert_refused(nd_debug_dump(NULL, NULL));
}

static void traverse_nothing(const void *self, nd_visitor *visitor) {
    (void)self;
    (void)visitor;
}

static void test_F30_what_is_no_argument_is_refused(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *m = nd_manager_new(NULL, "m"), *child = nd_manager_new(m, "child");
    nd_object *cell = NULL;
    nd_with_manager(m) cell = cell_new(0, 1);
    assert_int_equal(nd_manager_attach(m, child), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_manager_lend(m, child), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_manager_set_gc_mode(m, (nd_gc_mode)-2), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_manager_set_gc_mode(m, (nd_gc_mode)7), ND_ERROR_INVALID_ARGUMENT);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.boundary = 2;
    assert_int_equal(nd_manager_set_gc_policy(m, &policy), ND_ERROR_INVALID_ARGUMENT);
    policy.boundary = ND_GC_ADAPTIVE;
    assert_int_equal(nd_manager_set_gc_policy(m, &policy), ND_ERROR_INVALID_ARGUMENT);
    assert_false(nd_is_closed(m));
    assert_ok(nd_set_name(child, "a name beside its own"));
    assert_string_equal(nd_manager_get_name(child), "child");
    assert_ok(nd_close(child));
    assert_true(nd_is_closed(child));
    nd_resource_callbacks half = callbacks; // edges that nobody cuts
    half.traverse = traverse_nothing;
    assert_null(nd_resource_new("half", nowhere, 1, &half));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    assert_null(nd_resource_new("none", nowhere, 1, NULL));
    assert_null(nd_resource_new("nowhere", NULL, 1, &callbacks));
    char buffer[1] = {'x'};
    assert_string_equal(nd_get_name(cell, buffer, 0), "");
    assert_int_equal(buffer[0], 'x');
    assert_refused(nd_scope_adopt(NULL, nd_retain(cell))); // which takes it all the same
    assert_int_equal(nd_get_count(cell), 1);

    nd_scope *scope = nd_scope_begin();
    assert_ok(nd_scope_leave(scope));
    assert_int_equal(nd_scope_end(scope), ND_ERROR_STATE);
    assert_ok(nd_scope_enter(scope));
    assert_ok(nd_scope_end(scope));

    nd_map *map = NULL;
    nd_with_manager(m) map = nd_map_new();
    assert_ok(nd_map_clear(map));
    assert_ok(nd_map_set(map, "cell", cell));
    size_t at = 0;
    assert_false(nd_map_next(map, NULL, NULL, NULL));
    assert_true(nd_map_next(map, &at, NULL, NULL));
    assert_false(nd_map_next(map, &at, NULL, NULL));
    nd_release(cell);
    assert_ok(nd_manager_set_cap(m, 1));
    assert_ok(nd_manager_set_cap(m, 1));
    nd_with_manager(m) assert_null(nd_map_new());
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    nd_release(map);
    nd_release(child);
    nd_release(m);
}

static void test_F30_options_without_size_or_version_are_refused(void **state) {
    (void)state;
    nd_manager *m = nd_manager_new(NULL, "m");
    nd_close_report close_report = {0};
    nd_manager_stats stats = {0};
    nd_gc_report gc_report = {0};
    nd_gc_stats gc_stats = {0};
    assert_int_equal(nd_manager_close(m, &close_report), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_manager_dispose(m, &close_report), ND_ERROR_INVALID_ARGUMENT);
    assert_true(nd_manager_is_open(m));
    assert_int_equal(nd_manager_get_stats(m, &stats), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_gc_collect(m, &gc_report), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_gc_get_stats(&gc_stats), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_gc_set_mode(ND_GC_INHERIT), ND_ERROR_INVALID_ARGUMENT);
    nd_manager *root = (nd_manager *)(uintptr_t)nd_manager_get_root();
    assert_int_equal(nd_manager_set_gc_mode(root, ND_GC_INHERIT), ND_ERROR_INVALID_ARGUMENT);
    assert_true(nd_gc_get_mode() != ND_GC_INHERIT);
    assert_int_equal(nd_gc_set_mode((nd_gc_mode)7), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_manager_set_quota(m, (nd_device_kind)-1, 1), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_manager_set_quota(m, ND_DEVICE_KIND_COUNT, 1), ND_ERROR_INVALID_ARGUMENT);
    nd_release(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F01_every_nth_allocation_fails),
        ND_TEST(test_F01_every_nth_allocation_of_the_rest_fails),
        ND_TEST(test_F03_memory_stays_exhausted),
        ND_TEST(test_F03_releasing_and_closing_need_no_memory),
        ND_TEST(test_F03_a_disposal_asks_for_memory),
        ND_TEST(test_F22_fork_then_use),
        ND_TEST(test_F23_release_during_exit),
        ND_TEST(test_F30_null_to_every_function_of_the_core),
        ND_TEST(test_F30_what_is_no_argument_is_refused),
        ND_TEST(test_F30_options_without_size_or_version_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
