// The part of cmocka's interface that the tests of the GPU kit use, in one header, for machines that
// have no cmocka.
//
// A test that fails jumps back to the loop that runs them. ND_TEST_ONLY in the environment, a list
// of names with spaces, runs these alone.
#ifndef ND_TESTS_GPU_KIT_CMOCKA_H
#define ND_TESTS_GPU_KIT_CMOCKA_H
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*CMFixtureFunction)(void **state);
typedef void (*CMUnitTestFunction)(void **state);
struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func;
    CMFixtureFunction teardown_func;
    void *initial_state;
};
#define cmocka_unit_test(function) \
    { #function, function, NULL, NULL, NULL }
#define cmocka_unit_test_setup_teardown(function, setup, teardown) \
    { #function, function, setup, teardown, NULL }

static jmp_buf cm_loop;
static bool cm_skipped;
static bool cm_inside; ///< a test runs, so there is a loop to jump to

static inline void cm_leave(void) {
    if (!cm_inside)
        exit(255);
    longjmp(cm_loop, 1);
}

__attribute__((format(printf, 3, 4))) static inline void cm_fail(const char *file, int line,
                                                                 const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "[  ERROR   ] --- ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n%s:%d: error: Failure!\n", file, line);
    va_end(arguments);
    cm_leave();
}
#define fail_msg(...) cm_fail(__FILE__, __LINE__, __VA_ARGS__)
#define fail() cm_fail(__FILE__, __LINE__, "fail()")
#define skip() (cm_skipped = true, cm_leave())
#define print_message(...) printf(__VA_ARGS__)

static inline void cm_check(bool holds, const char *text, const char *file, int line) {
    if (!holds)
        cm_fail(file, line, "%s", text);
}
#define CM_CHECK(holds, text) cm_check(holds, text, __FILE__, __LINE__)

static inline void cm_compare(uintmax_t a, uintmax_t b, bool equal, const char *file, int line) {
    if ((a == b) != equal)
        cm_fail(file, line, "%#jx %s %#jx", a, equal ? "!=" : "==", b);
}
static inline void cm_compare_strings(const char *a, const char *b, const char *file, int line) {
    if (strcmp(a, b) != 0)
        cm_fail(file, line, "\"%s\" != \"%s\"", a, b);
}

#define assert_true(x) CM_CHECK((x) ? true : false, "not true: " #x)
#define assert_false(x) CM_CHECK((x) ? false : true, "not false: " #x)
#define assert_null(x) CM_CHECK((x) == NULL, "not NULL: " #x)
#define assert_non_null(x) CM_CHECK((x) != NULL, "NULL: " #x)
#define assert_ptr_equal(a, b) CM_CHECK((const void *)(a) == (const void *)(b), #a " is not " #b)
#define assert_ptr_not_equal(a, b) CM_CHECK((const void *)(a) != (const void *)(b), #a " is " #b)
#define assert_int_equal(a, b) cm_compare((uintmax_t)(a), (uintmax_t)(b), true, __FILE__, __LINE__)
#define assert_int_not_equal(a, b) \
    cm_compare((uintmax_t)(a), (uintmax_t)(b), false, __FILE__, __LINE__)
#define assert_string_equal(a, b) cm_compare_strings(a, b, __FILE__, __LINE__)
#define assert_memory_equal(a, b, size) \
    CM_CHECK(memcmp(a, b, size) == 0, "bytes of " #a " and " #b " differ")
#define assert_float_equal(a, b, epsilon) \
    CM_CHECK(fabs((double)(a) - (double)(b)) <= (double)(epsilon), #a " is not near " #b)
#define assert_double_equal(a, b, epsilon) assert_float_equal(a, b, epsilon)
#define assert_in_range(x, least, most)                                                   \
    CM_CHECK((uintmax_t)(x) >= (uintmax_t)(least) && (uintmax_t)(x) <= (uintmax_t)(most), \
             #x " is out of range")

/// Runs one of the three functions of a test. False when it failed; then it has said why.
static inline bool cm_run(const struct CMUnitTest *test, CMFixtureFunction fixture, void **state) {
    cm_inside = true;
    bool right = false;
    if (setjmp(cm_loop) == 0) {
        if (fixture)
            right = fixture(state) == 0;
        else
            test->test_func(state), right = true;
    }
    cm_inside = false;
    return right;
}

static inline bool cm_chosen(const char *name) {
    const char *only = getenv("ND_TEST_ONLY");
    if (!only || !*only)
        return true;
    const size_t length = strlen(name);
    for (const char *at = only; (at = strstr(at, name)); at += length)
        if ((at == only || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static inline int cm_run_group(const char *group, const struct CMUnitTest *tests, size_t count,
                               CMFixtureFunction setup, CMFixtureFunction teardown) {
    void *state = NULL;
    int failed = 0;
    size_t passed = 0;
    if (setup && setup(&state) != 0)
        return -1;
    printf("[==========] %s: %zu test(s).\n", group, count);
    for (size_t i = 0; i < count; i++) {
        if (!cm_chosen(tests[i].name))
            continue;
        printf("[ RUN      ] %s\n", tests[i].name);
        fflush(stdout);
        void *own = tests[i].initial_state ? tests[i].initial_state : state;
        cm_skipped = false;
        volatile bool right = !tests[i].setup_func || cm_run(&tests[i], tests[i].setup_func, &own);
        right = right && cm_run(&tests[i], NULL, &own);
        if (tests[i].teardown_func && !cm_run(&tests[i], tests[i].teardown_func, &own))
            right = false;
        right = right || cm_skipped;
        printf("%s %s\n",
               cm_skipped ? "[  SKIPPED ]"
               : right    ? "[       OK ]"
                          : "[  FAILED  ]",
               tests[i].name);
        fflush(stdout);
        passed += right;
        failed += !right;
    }
    printf("[  PASSED  ] %zu test(s).\n", passed);
    return teardown && teardown(&state) != 0 ? -1 : failed;
}
#define cmocka_run_group_tests(tests, setup, teardown) \
    cm_run_group(#tests, tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
    cm_run_group(name, tests, sizeof(tests) / sizeof *(tests), setup, teardown)

#endif
