// Libraries that are opened when they are first wanted, by the children of a fork too.
#include "lib/base/optional.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define USUAL "libm.so.6"

static void test_a_file_that_is_not_there_is_no_shortage(void **state) {
    (void)state;
    bool shortage = false;
    assert_null(nd__optional_open_file("libnowhere.so.7", &shortage));
    assert_false(shortage);
    assert_non_null(nd__optional_open_file(USUAL, &shortage));
    assert_false(shortage);
}

/// A variable of the environment may name a pipe, which nobody writes to.
static void test_what_is_no_file_is_not_waited_for(void **state) {
    (void)state;
    const char *folder = getenv("TEST_TMPDIR");
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/pipe_XXXXXX", folder ? folder : "/tmp");
    assert_true(length > 0 && (size_t)length < sizeof path);
    int file = mkstemp(path); // a name that is free
    assert_true(file >= 0);
    close(file);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    bool shortage = false;
    assert_null(nd__optional_open_file(path, &shortage));
    alarm(0);
    assert_int_equal(unlink(path), 0);
    assert_null(nd__optional_open_file("/", &shortage));
    assert_false(shortage);
}

/// ThreadSanitizer too looks at what the child does with the locks of its parent.
static void open_in_children(int depth) {
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        bool shortage = false;
        for (int i = 0; i < 3; i++)
            if (!nd__optional_open_file(USUAL, &shortage) || shortage)
                _exit(1);
        if (depth > 0)
            open_in_children(depth - 1);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_F31_a_child_and_its_children_open_libraries(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++)
        open_in_children(2);
}

#ifndef __SANITIZE_THREAD__ // for which a child leaks the threads of its parent that have ended
static void *open_often(void *data) {
    bool shortage = false;
    for (int i = 0; i < 500; i++)
        nd__optional_open_file(i % 2 ? USUAL : "libnowhere.so.7", &shortage);
    return data;
}

static void test_F31_threads_that_fork_and_open_wait_for_each_other_and_end(void **state) {
    (void)state;
    alarm(300);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_often, NULL), 0);
    for (int i = 0; i < 20; i++)
        open_in_children(0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    alarm(0);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_file_that_is_not_there_is_no_shortage),
        ND_TEST(test_what_is_no_file_is_not_waited_for),
        ND_TEST(test_F31_a_child_and_its_children_open_libraries),
#ifndef __SANITIZE_THREAD__
        ND_TEST(test_F31_threads_that_fork_and_open_wait_for_each_other_and_end),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
