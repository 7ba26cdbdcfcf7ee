// ND_LEAK_CHECK=1: what is said when a program ends; and what is said of values of variables that mean
// nothing. Each program is this one, started anew with the variable set.
#define ND_TRACK_SITES
#include "tests/testing.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void keep_nothing(void) {
    nd_manager *manager = nd_manager_new(NULL, "closed");
    nd_with_manager(manager) nd_release(nd_list_new());
    nd_manager_close(manager, NULL);
    nd_release(manager);
}

static nd_manager *kept[3];
static nd_list *kept_list;

static void keep_managers(void) {
    kept[0] = nd_manager_new(NULL, "training");
    for (int i = 1; i < 3; i++)
        kept[i] = nd_manager_new(kept[0], "epoch");
    nd_manager_close(kept[2], NULL); // its handle is kept: closed all the same
}

static void keep_an_object_in_a_manager(void) {
    kept[0] = nd_manager_new(NULL, "training");
    nd_with_manager(kept[0]) kept_list = nd_list_new();
}

typedef struct program {
    void (*run)(void);
    const char *said[3], *unsaid;
} program;

static const program programs[] = {
    {keep_nothing, {"ndarc: no leaks\n"}, "closed"},
    {keep_managers,
     {"ndarc: nobody has closed 2 managers below manager root\n",
      "  1 x manager training, made at ", "  1 x manager epoch, made at "},
     "no leaks"},
    {keep_an_object_in_a_manager,
     {"ndarc: nobody has closed 1 manager below manager root\n", "manager training, made at tests/",
      "ndarc: 1 objects, 0 bytes are alive below manager root\n"},
     "no leaks"},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static char said[8192];

/// Runs a program to its end with a variable set; what it has said is in `said`.
static void run_program(int number, const char *variable, const char *value) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char text[16];
        snprintf(text, sizeof text, "%d", number);
        dup2(ends[1], STDERR_FILENO);
        setenv(variable, value, 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1); // they are meant
        execl("/proc/self/exe", "exit_test", text, (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t n;
    while (length < sizeof said - 1 &&
           (n = read(ends[0], said + length, sizeof said - 1 - length)) > 0)
        length += (size_t)n;
    said[length] = '\0';
    close(ends[0]);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_managers_that_nobody_closed_are_named_at_exit(void **state) {
    (void)state;
    for (int i = 0; i < PROGRAMS; i++) {
        run_program(i, "ND_LEAK_CHECK", "1");
        for (int k = 0; k < 3 && programs[i].said[k]; k++)
            if (!strstr(said, programs[i].said[k]))
                fail_msg("\"%s\" is not in: %s", programs[i].said[k], said);
        if (strstr(said, programs[i].unsaid))
            fail_msg("\"%s\" is in: %s", programs[i].unsaid, said);
    }
}

/// A value that is taken for none is told of: a collector that is off because of it looks as if it found
/// nothing.
static void test_values_that_mean_nothing_are_said(void **state) {
    (void)state;
    static const struct {
        const char *variable, *value, *expected; ///< "": nothing is said
    } cases[] = {
        {"ND_GC", "ON", "ndarc: ND_GC: \"ON\" is neither on, warn nor off\n"},
        {"ND_GC", "o\n\x1b[31m", "ndarc: ND_GC: \"o\\x0a\\x1b[31m\" is neither on, warn nor off\n"},
        {"ND_GC", "on", ""},
        {"ND_GC", "off", ""},
        {"ND_GC", "", ""},
        {"ND_LEAK_CHECK", "yes", "ndarc: ND_LEAK_CHECK: \"yes\" is neither 1 nor 0\n"},
        {"ND_LEAK_CHECK", "0", ""},
        {"ND_CHECK", "x", "ndarc: ND_CHECK: \"x\" is neither 1, a number of MiB, nor 0\n"},
        {"ND_CHECK", "10M", "ndarc: ND_CHECK: \"10M\" is neither 1, a number of MiB, nor 0\n"},
        {"ND_CHECK", "16", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_program(0, cases[i].variable, cases[i].value);
        assert_string_equal(said, cases[i].expected);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) {
        programs[strtoul(argv[1], NULL, 10)].run();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        ND_TEST(test_managers_that_nobody_closed_are_named_at_exit),
        ND_TEST(test_values_that_mean_nothing_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
