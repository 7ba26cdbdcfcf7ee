// A machine without a usable GPU: a normal answer, in silence, and sentences that say what is
// missing.
//
// Runs everywhere. The program starts itself again in surroundings in which CUDA finds no device,
// with all that it prints going to a file, which must stay empty.
#include "tests/testing.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define STUB "/usr/local/cuda/lib64/stubs/libcuda.so"

extern char **environ;

/// 0 when there is no device and everything says so; else the number of what does not.
static int absent(void) {
    const nd_device cuda = {ND_CUDA, 0};
    if (nd_get_device_count(ND_CUDA) != 0)
        return 1;
    nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    if (nd_to(x, cuda) != NULL || nd_error_get_status() != ND_ERROR_DEVICE)
        return 2;
    if (strstr(nd_error_get_message(), "no CUDA device") == NULL)
        return 3;
    if (nd_set_default_device(cuda) != ND_ERROR_DEVICE || nd_synchronize(cuda) != ND_ERROR_DEVICE)
        return 4;
    pid_t child = fork();
    if (child == 0)
        _exit(nd_get_device_count(ND_CUDA) == 0 ? 0 : 1);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 5;
    nd_release(x);
    return nd_manager_get_total_bytes(NULL) == 0 ? 0 : 6;
}

static void make_temporary(char path[static 256]) {
    const char *folder = getenv("TEST_TMPDIR");
    snprintf(path, 256, "%s/absence_XXXXXX", folder ? folder : "/tmp");
}

/// Starts this program again in the present environment; asserts that it ends with 0 in silence.
static void run_absent(void) {
    char program[4096], output[256], printed[256] = "";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    make_temporary(output);
    int file = mkstemp(output);
    assert_true(file >= 0);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, file, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, file, STDERR_FILENO);
    char *arguments[] = {program, "absent", NULL};
    pid_t child;
    int status;
    assert_int_equal(posix_spawn(&child, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(pread(file, printed, sizeof printed - 1, 0) >= 0);
    close(file);
    unlink(output);
    assert_string_equal(printed, "");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_F20_no_visible_device(void **state) {
    (void)state;
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
    run_absent();
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void test_F20_the_stub_library_in_the_drivers_place(void **state) {
    (void)state;
    char folder[256], link[300];
    if (access(STUB, R_OK) != 0) {
        printf("no toolkit: nothing to put there\n");
        return;
    }
    make_temporary(folder);
    assert_non_null(mkdtemp(folder));
    snprintf(link, sizeof link, "%s/libcuda.so.1", folder);
    assert_int_equal(symlink(STUB, link), 0);
    const char *path = getenv("LD_LIBRARY_PATH");
    char *before = path ? strdup(path) : NULL, extended[4096];
    snprintf(extended, sizeof extended, "%s:%s", folder, before ? before : "");
    setenv("LD_LIBRARY_PATH", extended, 1);
    run_absent();
    if (before)
        setenv("LD_LIBRARY_PATH", before, 1);
    else
        unsetenv("LD_LIBRARY_PATH");
    free(before);
    unlink(link);
    rmdir(folder);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "absent") == 0)
        return absent();
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F20_no_visible_device),
        ND_TEST(test_F20_the_stub_library_in_the_drivers_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
