// bench/support/memory_group.c: which folder it chooses in trees of both versions, what it says
// where it can do nothing, and, where this machine lets it, a real group that bounds a process.
#include "bench/support/memory_group.h"
#include "tests/testing.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/// A folder that looks like one of control groups, and the file that names the own group.
typedef struct tree {
    char root[64];
    char own[96];
} tree;

static void write_file(const tree *tree, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tree->root, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_folder(const tree *tree, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tree->root, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static bool exists(const tree *tree, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tree->root, name);
    return access(path, F_OK) == 0;
}

static tree make_tree(const char *groups) {
    tree tree = {.root = "/tmp/nd_group_XXXXXX"};
    assert_non_null(mkdtemp(tree.root));
    snprintf(tree.own, sizeof tree.own, "%s/own", tree.root);
    write_file(&tree, "own", groups);
    return tree;
}

static void remove_tree(const tree *tree) {
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", tree->root);
    assert_int_equal(system(command), 0);
}

/// The folder that is found, from the tree's root on; "none" where there is none.
static const char *found_in(const tree *tree, memory_group *parent) {
    char reason[GROUP_REASON] = "";
    if (!memory_group_find_parent(tree->root, tree->own, parent, reason)) {
        assert_non_null(strstr(reason, tree->root));
        assert_int_equal(parent->version, 0);
        return "none";
    }
    assert_memory_equal(parent->folder, tree->root, strlen(tree->root));
    return parent->folder + strlen(tree->root);
}

static void test_version_1_makes_groups_in_its_own(void **state) {
    (void)state;
    tree tree = make_tree("12:cpu,cpuacct:/x\n4:hugetlb,memory:/a/b\n1:memory_too:/c\n0::/\n");
    memory_group parent;
    assert_string_equal(found_in(&tree, &parent), "none"); // nothing is mounted
    make_folder(&tree, "memory");
    write_file(&tree, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_string_equal(found_in(&tree, &parent), "/memory"); // a container's mount
    make_folder(&tree, "memory/a");
    make_folder(&tree, "memory/a/b");
    write_file(&tree, "memory/a/b/memory.limit_in_bytes", "1000000\n");
    assert_string_equal(found_in(&tree, &parent), "/memory/a/b");
    assert_int_equal(parent.version, 1);
    remove_tree(&tree);
}

static void test_version_2_makes_groups_where_limits_are_handed_on(void **state) {
    (void)state;
    tree tree = make_tree("0::/a/b\n");
    memory_group parent;
    make_folder(&tree, "a");
    make_folder(&tree, "a/b");
    write_file(&tree, "cgroup.subtree_control", "cpu memory pids\n");
    write_file(&tree, "a/cgroup.subtree_control", "cpu pids\n");
    write_file(&tree, "a/b/cgroup.subtree_control", "\n");
    assert_string_equal(found_in(&tree, &parent), "none"); // the root's is too far up
    write_file(&tree, "a/cgroup.subtree_control", "cpu memory_of pids\n");
    assert_string_equal(found_in(&tree, &parent), "none");
    write_file(&tree, "a/cgroup.subtree_control", "cpu memory\n");
    assert_string_equal(found_in(&tree, &parent), "/a"); // beside its own, which has processes
    assert_int_equal(parent.version, 2);
    write_file(&tree, "a/b/cgroup.subtree_control", "memory\n");
    assert_string_equal(found_in(&tree, &parent), "/a/b");
    write_file(&tree, "own", "0::/\n");
    assert_string_equal(found_in(&tree, &parent), "");
    write_file(&tree, "own", "");
    assert_string_equal(found_in(&tree, &parent), "none");
    remove_tree(&tree);
}

static void test_where_nothing_can_be_limited_nothing_is_left(void **state) {
    (void)state;
    tree tree = make_tree("0::/\n");
    memory_group parent, group;
    char reason[GROUP_REASON] = "", name[64];
    write_file(&tree, "cgroup.subtree_control", "memory\n");
    assert_string_equal(found_in(&tree, &parent), "");
    // A plain folder has no file to write a limit to.
    snprintf(name, sizeof name, "ndarc.limit.%ld", (long)getpid());
    assert_false(memory_group_make(&parent, 1 << 20, &group, reason));
    assert_non_null(strstr(reason, "no limit can be set in "));
    assert_non_null(strstr(reason, name));
    assert_false(exists(&tree, name));
    assert_int_equal(group.version, 0);
    assert_true(memory_group_remove(&group)); // none: nothing to do
    // Nor is there a group without its folder.
    parent.folder[0] = 'x';
    assert_false(memory_group_make(&parent, 1 << 20, &group, reason));
    assert_non_null(strstr(reason, "no group can be made in "));
    assert_false(memory_group_find_parent(tree.root, "/nowhere/own", &parent, reason));
    assert_string_equal(reason, "/nowhere/own cannot be read");
    remove_tree(&tree);
}

static void test_groups_of_the_dead_are_removed(void **state) {
    (void)state;
    tree tree = make_tree("0::/\n");
    memory_group parent, group;
    char reason[GROUP_REASON], dead[64], living[64];
    pid_t process = fork();
    if (process == 0)
        _exit(0);
    assert_int_equal(waitpid(process, NULL, 0), process);
    snprintf(dead, sizeof dead, "ndarc.limit.%ld", (long)process);
    snprintf(living, sizeof living, "ndarc.limit.%ld", (long)getppid());
    make_folder(&tree, dead);
    make_folder(&tree, living);
    make_folder(&tree, "ndarc.limit.x");
    write_file(&tree, "cgroup.subtree_control", "memory\n");
    assert_string_equal(found_in(&tree, &parent), "");
    assert_false(memory_group_make(&parent, 1 << 20, &group, reason));
    assert_false(exists(&tree, dead));
    assert_true(exists(&tree, living));
    assert_true(exists(&tree, "ndarc.limit.x"));
    remove_tree(&tree);
}

static void test_what_the_kernel_says(void **state) {
    (void)state;
    tree tree = make_tree("");
    memory_group group = {.version = 1};
    snprintf(group.folder, sizeof group.folder, "%s", tree.root);
    assert_int_equal(memory_group_get_kills(&group), 0);
    assert_int_equal(memory_group_get_peak(&group), 0);
    write_file(&tree, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    write_file(&tree, "memory.max_usage_in_bytes", "12345\n");
    write_file(&tree, "memory.events", "low 0\noom 9\noom_kill 7\noom_group_kill 1\n");
    write_file(&tree, "memory.peak", "54321\n");
    assert_int_equal(memory_group_get_kills(&group), 3);
    assert_int_equal(memory_group_get_peak(&group), 12345);
    group.version = 2;
    assert_int_equal(memory_group_get_kills(&group), 7);
    assert_int_equal(memory_group_get_peak(&group), 54321);
    remove_tree(&tree);
}

/// A process of the group that touches so many bytes. Returns how it ended.
static int touch(const memory_group *group, size_t bytes) {
    pid_t process = fork();
    if (process == 0) {
        raise(SIGSTOP); // until it is in the group
        volatile char *memory = malloc(bytes);
        for (size_t i = 0; memory && i < bytes; i += 4096)
            memory[i] = 1;
        _exit(memory ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(process, &status, WUNTRACED), process);
    assert_true(memory_group_add(group, process));
    kill(process, SIGCONT);
    assert_int_equal(waitpid(process, &status, 0), process);
    return status;
}

static void test_a_group_bounds_its_processes(void **state) {
    (void)state;
    enum { LIMIT = 32 << 20 };
    memory_group parent, group;
    char reason[GROUP_REASON], folder[GROUP_PATH];
    if (!memory_group_find_parent(GROUP_ROOT, GROUP_OWN, &parent, reason) ||
        !memory_group_make(&parent, LIMIT, &group, reason)) {
        print_message("SKIPPED: %s\n", reason);
        skip();
    }
    memcpy(folder, group.folder, sizeof folder);
    int within = touch(&group, LIMIT / 4);
    assert_true(WIFEXITED(within) && WEXITSTATUS(within) == 0);
    assert_int_equal(memory_group_get_kills(&group), 0);
    int beyond = touch(&group, 4 * LIMIT);
    assert_true(WIFSIGNALED(beyond) && WTERMSIG(beyond) == SIGKILL);
    assert_int_equal(memory_group_get_kills(&group), 1);
    uint64_t peak = memory_group_get_peak(&group);
    assert_true(peak == 0 || (peak > LIMIT / 2 && peak <= LIMIT));
    assert_true(memory_group_remove(&group));
    assert_true(access(folder, F_OK) != 0 && errno == ENOENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_version_1_makes_groups_in_its_own),
        ND_TEST(test_version_2_makes_groups_where_limits_are_handed_on),
        ND_TEST(test_where_nothing_can_be_limited_nothing_is_left),
        ND_TEST(test_groups_of_the_dead_are_removed),
        ND_TEST(test_what_the_kernel_says),
        ND_TEST(test_a_group_bounds_its_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
