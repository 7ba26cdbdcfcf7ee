// That the harnesses of readers notice a reader which takes memory for what its input only says.
#include "lib/base/alloc.h"
#include "tests/fuzz/reader.h"
#include "tests/testing.h"
#include <sys/wait.h>
#include <unistd.h>

enum { INPUT = 10, BOUND = 64 * INPUT + (1 << 20) };
static size_t scratch; ///< what the reader takes before it looks at its input, and gives back

static void *read_nothing(const char *path) {
    nd__alloc_free(nd__alloc(scratch));
    return nd_load_npy(path, NULL);
}

static bool equal(const void *a, const void *b) {
    return fuzz_tensors_equal(a, b);
}

/// How a process ends that loads ten bytes.
static int load_in_child(size_t bytes) {
    scratch = bytes;
    pid_t id = fork();
    if (id == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        nd_release(fuzz_load((const uint8_t[INPUT]){0}, INPUT, read_nothing, equal));
        _exit(0);
    }
    int status = -1;
    assert_true(id > 0 && waitpid(id, &status, 0) == id);
    return status;
}

static void test_a_reader_that_takes_too_much_is_noticed(void **state) {
    (void)state;
    assert_int_equal(load_in_child(1000), 0);
    int status = load_in_child(BOUND);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

static void test_what_is_borne_out_may_take_twice_as_much(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1 << 20), ND_U8);
    for (int more = 0; more < 2; more++) {
        pid_t id = fork();
        if (id == 0) {
            (void)!freopen("/dev/null", "w", stderr);
            fuzz_bound_begin();
            nd__alloc_free(nd__alloc(BOUND + 2 * nd_get_storage_bytes(x) + (size_t)more));
            fuzz_bound_end(INPUT, nd_get_storage_bytes(x));
            _exit(0);
        }
        int status = -1;
        assert_true(id > 0 && waitpid(id, &status, 0) == id);
        assert_int_equal(status != 0, more);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_reader_that_takes_too_much_is_noticed),
        ND_TEST(test_what_is_borne_out_may_take_twice_as_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
