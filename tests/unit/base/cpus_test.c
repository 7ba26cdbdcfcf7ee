// How many threads the library takes for itself: affinity, quota, environment.
#include "lib/base/cgroup.h"
#include "lib/base/cpus.h"
#include "lib/base/pool.h"
#include "tests/testing.h"
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *own_path;

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_first_number_of_a_list(void **state) {
    (void)state;
    assert_int_equal(nd__cpus_parse("4", 1024), 4);
    assert_int_equal(nd__cpus_parse("4,2", 1024), 4);
    assert_int_equal(nd__cpus_parse("1024", 1024), 1024);
    static const char *const bad[] = {"",   "0",  "-1",  "1025", "four",
                                      "4x", "4 ", "2.5", ",",    "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(nd__cpus_parse(bad[i], 1024), 0);
    assert_int_equal(nd__cpus_parse(NULL, 1024), 0);
}

static void test_memory_of_a_control_group(void **state) {
    (void)state;
    char folder[] = "/tmp/nd_cgroup_XXXXXX", groups[256], inner[256], below[300], above[300];
    assert_non_null(mkdtemp(folder));
    snprintf(groups, sizeof groups, "%s/groups", folder);
    snprintf(inner, sizeof inner, "%s/a", folder);
    snprintf(below, sizeof below, "%s/memory.max", inner);
    snprintf(above, sizeof above, "%s/memory.max", folder);
    mkdir(inner, 0700);
    write_file(groups, "0::/a\n");
    assert_int_equal(nd__cgroup_memory(folder, groups), 0);
    write_file(below, "max\n");
    assert_int_equal(nd__cgroup_memory(folder, groups), 0);
    write_file(above, "1073741824\n");
    assert_int_equal(nd__cgroup_memory(folder, groups), 1 << 30);
    write_file(below, "536870912\n");
    assert_int_equal(nd__cgroup_memory(folder, groups), 1 << 29);
    unlink(above);
    unlink(below);
    rmdir(inner);
    // Version 1, whose word for no limit is a number.
    write_file(groups, "3:memory:/\n");
    snprintf(inner, sizeof inner, "%s/memory", folder);
    snprintf(below, sizeof below, "%s/memory.limit_in_bytes", inner);
    mkdir(inner, 0700);
    write_file(below, "9223372036854771712\n");
    assert_int_equal(nd__cgroup_memory(folder, groups), 0);
    write_file(below, "1048576\n");
    assert_int_equal(nd__cgroup_memory(folder, groups), 1 << 20);
    unlink(below);
    unlink(groups);
    rmdir(inner);
    rmdir(folder);
}

static void test_quota_of_a_control_group(void **state) {
    (void)state;
    char folder[] = "/tmp/nd_cpus_XXXXXX", path[256], groups[256];
    assert_non_null(mkdtemp(folder));
    snprintf(groups, sizeof groups, "%s/groups", folder);
    assert_int_equal(nd__cpus_of_quota(folder, groups), 0); // nothing there
    // Version 2: the least on the way up, rounded up.
    write_file(groups, "1:name=systemd:/other\n0::/a/b\n");
    snprintf(path, sizeof path, "%s/a", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/a/b", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/a/b/cpu.max", folder);
    write_file(path, "max 100000\n");
    assert_int_equal(nd__cpus_of_quota(folder, groups), 0);
    write_file(path, "450000 100000\n");
    assert_int_equal(nd__cpus_of_quota(folder, groups), 5);
    char above[256];
    snprintf(above, sizeof above, "%s/a/cpu.max", folder);
    write_file(above, "150000 100000\n");
    assert_int_equal(nd__cpus_of_quota(folder, groups), 2);
    write_file(above, "garbage");
    assert_int_equal(nd__cpus_of_quota(folder, groups), 5);
    unlink(above);
    unlink(path);
    // Version 1.
    write_file(groups, "3:cpu:/a\n");
    snprintf(path, sizeof path, "%s/cpu", folder);
    mkdir(path, 0700);
    char quota[256], period[256];
    snprintf(quota, sizeof quota, "%s/cpu/cpu.cfs_quota_us", folder);
    snprintf(period, sizeof period, "%s/cpu/cpu.cfs_period_us", folder);
    write_file(quota, "300000\n");
    write_file(period, "100000\n");
    assert_int_equal(nd__cpus_of_quota(folder, groups), 3);
    write_file(quota, "-1\n");
    assert_int_equal(nd__cpus_of_quota(folder, groups), 0);
    unlink(quota);
    unlink(period);
    unlink(groups);
    rmdir(path);
    snprintf(path, sizeof path, "%s/a/b", folder);
    rmdir(path);
    snprintf(path, sizeof path, "%s/a", folder);
    rmdir(path);
    assert_int_equal(rmdir(folder), 0);
}

/// The limit that a new process of this program finds, with those two variables (NULL: not set), on
/// one CPU or on all.
static int limit_of_process(const char *ours, const char *openmp, bool one_cpu) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (one_cpu) {
            cpu_set_t all, one;
            sched_getaffinity(0, sizeof all, &all);
            CPU_ZERO(&one);
            for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
                if (CPU_ISSET(cpu, &all))
                    CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
        unsetenv("ND_NUM_THREADS");
        unsetenv("OMP_NUM_THREADS");
        if (ours)
            setenv("ND_NUM_THREADS", ours, 1);
        if (openmp)
            setenv("OMP_NUM_THREADS", openmp, 1);
        dup2(ends[1], STDOUT_FILENO);
        execl(own_path, own_path, "limit", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *answer = fdopen(ends[0], "r");
    int limit = -1, status;
    assert_int_equal(fscanf(answer, "%d", &limit), 1);
    fclose(answer);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return limit;
}

static void test_threads_of_a_new_process(void **state) {
    (void)state;
#if ND_HAVE_THREADS
    int cpus = nd__cpus_of_process();
    assert_true(cpus >= 1);
    assert_int_equal(limit_of_process(NULL, NULL, false), cpus);
    assert_int_equal(limit_of_process(NULL, NULL, true), 1);
    assert_int_equal(limit_of_process("7", NULL, true), 7);
    assert_int_equal(limit_of_process("7", "5", false), 7);
    assert_int_equal(limit_of_process(NULL, "5,2", false), 5);
    assert_int_equal(limit_of_process("0", "5", false), 5);
    assert_int_equal(limit_of_process("many", "none", false), cpus);
#else
    assert_int_equal(limit_of_process("7", NULL, false), 1);
#endif
}

int main(int argc, char **argv) {
    own_path = "/proc/self/exe";
    if (argc > 1 && strcmp(argv[1], "limit") == 0)
        return printf("%d\n", nd__pool_limit()) < 0;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_first_number_of_a_list),
        ND_TEST(test_memory_of_a_control_group),
        ND_TEST(test_quota_of_a_control_group),
        ND_TEST(test_threads_of_a_new_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
