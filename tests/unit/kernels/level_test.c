// ND_CPU_ISA: which instruction set the first call chooses. Each case is a process of its own, because
// the choice is made once.
#include "kernels/cpu/cpu.h"
#include "tests/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct outcome {
    char isa[32];
    char said[256];
} outcome;

/// What a process with the variable chooses, and what it says on its standard error.
static outcome with_variable(const char *level) {
    int isa[2], said[2];
    assert_true(pipe(isa) == 0 && pipe(said) == 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (level)
            setenv("ND_CPU_ISA", level, 1);
        else
            unsetenv("ND_CPU_ISA");
        dup2(said[1], STDERR_FILENO);
        const char *name = nd__cpu_isa();
        _exit(write(isa[1], name, strlen(name)) == (ssize_t)strlen(name) ? 0 : 1);
    }
    close(isa[1]);
    close(said[1]);
    outcome result = {0};
    assert_true(read(isa[0], result.isa, sizeof result.isa - 1) > 0);
    assert_true(read(said[0], result.said, sizeof result.said - 1) >= 0);
    int status;
    assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                WEXITSTATUS(status) == 0);
    close(isa[0]);
    close(said[0]);
    return result;
}

/// Asked in a process of its own, too: the question is a choice.
static bool machine_has(const char *name) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(nd__cpu_use_isa(name) ? 0 : 1);
    int status;
    assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
}

static void test_without_it_the_best_is_chosen(void **state) {
    (void)state;
    outcome unset = with_variable(NULL), empty = with_variable("");
    assert_string_equal(unset.said, "");
    assert_string_equal(empty.said, "");
    assert_string_equal(unset.isa, empty.isa);
    static const char *const best_first[] = {"x86_64_v4_halves", "x86_64_v4", "x86_64_v3",
                                             "baseline"};
    size_t best = 0;
    while (!machine_has(best_first[best]))
        best++;
    assert_string_equal(unset.isa, best_first[best]);
}

static void test_it_names_a_level(void **state) {
    (void)state;
    static const char *const levels[] = {"baseline", "x86-64-v3", "x86_64_v3", "x86-64-v4"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s", levels[i]);
        for (char *c = name; (c = strchr(c, '-'));)
            *c = '_';
        outcome result = with_variable(levels[i]);
        if (machine_has(name)) {
            assert_string_equal(result.said, "");
            assert_int_equal(strncmp(result.isa, name, strlen(name)), 0);
        } else {
            assert_non_null(strstr(result.said, levels[i]));
        }
    }
}

static void test_one_that_is_not_there_is_said(void **state) {
    (void)state;
    static const char *const levels[] = {"x86-64-v5", "x86-64-v", "avx2", "baseline2", "Baseline"};
    outcome best = with_variable(NULL);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        outcome result = with_variable(levels[i]);
        assert_non_null(strstr(result.said, levels[i]));
        assert_non_null(strstr(result.said, "known are baseline"));
        assert_string_equal(result.isa, best.isa);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_without_it_the_best_is_chosen),
        ND_TEST(test_it_names_a_level),
        ND_TEST(test_one_that_is_not_there_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
