// A test that needs a process of its own: the program starts itself again with the name of a role.
#ifndef ND_TESTS_CUDART_ROLES_H
#define ND_TESTS_CUDART_ROLES_H
#include "tests/testing.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct role {
    const char *name;
    int (*run)(void);
} role;

/// Runs the role that the arguments name, if they do; its status is ret_exit.
static inline bool role_asked(const role *roles, int argc, char **argv, int *ret_exit) {
    for (; argc > 1 && roles->name; roles++)
        if (strcmp(argv[1], roles->name) == 0) {
            *ret_exit = roles->run();
            return true;
        }
    return false;
}

/// Starts this program again and waits for it; what it printed on stderr goes to `said`.
static inline int run_role(const char *name, char *said, size_t bytes) {
    char program[4096], path[256];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    const char *folder = getenv("TEST_TMPDIR");
    snprintf(path, sizeof path, "%s/role_XXXXXX", folder ? folder : "/tmp");
    int file = mkstemp(path);
    assert_true(file >= 0);
    unlink(path);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, file, STDERR_FILENO);
    char *arguments[] = {program, (char *)name, NULL};
    pid_t child;
    int status;
    assert_int_equal(posix_spawn(&child, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(waitpid(child, &status, 0), child);
    ssize_t read = pread(file, said, bytes - 1, 0);
    said[read > 0 ? read : 0] = '\0';
    close(file);
    return status;
}

/// Asserts that a role succeeds.
static inline void assert_succeeds(const char *name) {
    char said[4096];
    int status = run_role(name, said, sizeof said);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s ended with status %d:\n%s", name, status, said);
}

/// Asserts that a role succeeds with a variable of the environment set to `value`, which it was not before
/// and is not behind.
static inline void assert_succeeds_with(const char *name, const char *variable, const char *value) {
    const char *now = getenv(variable);
    char before[4096] = "", said[4096];
    if (now)
        snprintf(before, sizeof before, "%s", now);
    setenv(variable, value, 1);
    int status = run_role(name, said, sizeof said);
    if (now)
        setenv(variable, before, 1);
    else
        unsetenv(variable);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s with %s=%s ended with status %d:\n%s", name, variable, value, status, said);
}

/// Asserts that a role is ended by the runtime, which says `why`.
static inline void assert_ends(const char *name, const char *why) {
    char said[16384];
    int status = run_role(name, said, sizeof said);
    if (!WIFSIGNALED(status) && (!WIFEXITED(status) || WEXITSTATUS(status) == 0))
        fail_msg("%s ended with status %d: nothing was noticed", name, status);
    if (!strstr(said, why))
        fail_msg("%s must be told \"%s\", and said:\n%s", name, why, said);
}
#endif
