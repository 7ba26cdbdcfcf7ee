// Where lib/device/cuda looks for a library, with a file that is one under other names.
#include "lib/device/cuda/library.h"
#include "tests/cudart/roles.h"
#include <dlfcn.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char folder[PATH_MAX], original[PATH_MAX];

static void *create;
static const nd_library_function functions[] = {{"cublasCreate_v2", &create}, {0}};

static const nd_library probe = {
    .variable = "ND_PROBE",
    .stem = "libnd_probe",
    .versions = {7, 6},
    .folders = {"probe", "cu1[23]"},
    .functions = functions,
    .lock = ND_LIBRARY_LOCK,
};
static const nd_library beside = {
    .variable = "ND_PROBE",
    .given = "libnd_probe",
    .stem = "libnd_probeLt",
    .versions = {7},
    .folders = {"probe"},
    .functions = functions,
    .lock = ND_LIBRARY_LOCK,
};

/// A folder under the test's own, with all above it; its path, for one use.
static const char *make_folder(const char *below) {
    static char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, below);
    assert_true(length > 0 && (size_t)length < sizeof path);
    for (char *slash = path + strlen(folder) + 1; *slash; slash++)
        if (*slash == '/') {
            *slash = '\0';
            mkdir(path, 0700);
            *slash = '/';
        }
    mkdir(path, 0700);
    return path;
}

static void link_as(const char *below, const char *name) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", make_folder(below), name);
    assert_true(length > 0 && (size_t)length < sizeof path);
    assert_int_equal(symlink(original, path), 0);
}

static void unlink_in(const char *below, const char *name) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s/%s", folder, below, name);
    assert_true(length > 0 && (size_t)length < sizeof path);
    assert_int_equal(unlink(path), 0);
}

/// As if it had not been looked for yet.
static bool is_found(const nd_library *of) {
    nd_library library = *of;
    create = NULL;
    void *opened = nd__library_open(&library);
    assert_true(library.settled);
    assert_ptr_equal(nd__library_open(&library), opened);
    assert_int_equal(create != NULL, opened != NULL);
    if (opened)
        dlclose(opened);
    return opened != NULL;
}

static void test_F21_a_python_environment(void **state) {
    (void)state;
    assert_false(is_found(&probe));
    setenv("VIRTUAL_ENV", folder, 1);
    assert_false(is_found(&probe));
    const char *const places[] = {"lib/python3.11/site-packages/nvidia/probe/lib",
                                  "lib/python3.13/site-packages/nvidia/cu13/lib"};
    for (int i = 0; i < 2; i++)
        for (int version = 6; version < 9; version++) {
            char name[64];
            snprintf(name, sizeof name, "libnd_probe.so.%d", version);
            link_as(places[i], name);
            assert_int_equal(is_found(&probe), version < 8); // of no other version
            unlink_in(places[i], name);
        }
    unsetenv("VIRTUAL_ENV");
}

static void test_F21_a_file_that_is_named(void **state) {
    (void)state;
    char path[PATH_MAX];
    link_as("given", "libnd_probe.so");
    int length = snprintf(path, sizeof path, "%s/given/libnd_probe.so", folder);
    assert_true(length > 0 && (size_t)length < sizeof path);
    setenv("ND_PROBE", path, 1);
    assert_true(is_found(&probe));
    assert_false(is_found(&beside));
    link_as("given", "libnd_probeLt.so");
    assert_true(is_found(&beside));
    // No other place is tried, and what is named otherwise has nothing beside it.
    setenv("VIRTUAL_ENV", folder, 1);
    link_as("lib/python3.11/site-packages/nvidia/probe/lib", "libnd_probe.so.7");
    assert_true(is_found(&probe));
    setenv("ND_PROBE", "/nonexistent/libnd_probe.so", 1);
    assert_false(is_found(&probe));
    setenv("ND_PROBE", original, 1);
    assert_true(is_found(&probe));
    assert_false(is_found(&beside));
    unsetenv("ND_PROBE");
    assert_true(is_found(&probe));
    unsetenv("VIRTUAL_ENV");
}

static void test_F21_a_library_without_one_of_the_functions(void **state) {
    (void)state;
    void *first = NULL, *none = NULL;
    const nd_library_function wanted[] = {
        {"nd_probe_has_none", &none}, {"cublasCreate_v2", &first}, {0}};
    nd_library library = probe;
    library.functions = wanted;
    setenv("ND_PROBE", original, 1);
    assert_null(nd__library_open(&library));
    assert_true(library.settled);
    unsetenv("ND_PROBE");
}

/// For want of a file descriptor nothing is known: it is tried again.
static void test_F21_no_room_to_open_one(void **state) {
    (void)state;
    nd_library library = probe;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    setenv("ND_PROBE", original, 1);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    void *opened = nd__library_open(&library);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_null(opened);
    assert_false(library.settled);
    assert_non_null(nd__library_open(&library));
    assert_true(library.settled);
    dlclose(library.opened);
    unsetenv("ND_PROBE");
}

int main(void) {
    const char *given = getenv("ND_CUBLAS"), *temporary = getenv("TEST_TMPDIR");
    snprintf(folder, sizeof folder, "%s/library_XXXXXX", temporary ? temporary : "/tmp");
    if (!given || !realpath(given, original) || !mkdtemp(folder))
        return 1;
    unsetenv("ND_PROBE");
    unsetenv("VIRTUAL_ENV");
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F21_a_python_environment),
        ND_TEST(test_F21_a_file_that_is_named),
        ND_TEST(test_F21_a_library_without_one_of_the_functions),
        ND_TEST(test_F21_no_room_to_open_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
