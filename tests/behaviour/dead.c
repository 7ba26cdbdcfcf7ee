// What happens when a dead object is used: the program stops and says which one it was. Against the
// public interface alone, so that it holds for the static library and for libnd.so.
//
// Each misuse runs in a child, which starts this program anew: the checked mode is decided when a
// process starts, and a child that goes on as it is has no devices.
#define ND_TRACK_SITES
#include "tests/testing.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static nd_object *dead_object(void) {
    static const nd_type type = {
        .size = sizeof type, .version = 1, .name = "gadget", .flags = ND_TYPE_GREEN};
    nd_object *x = nd_object_new(&type, 24);
    nd_set_name(x, "left");
    nd_release(x);
    return x;
}

static nd_tensor *dead_tensor(void) {
    nd_tensor *x = nd_ones(ND_SHAPE(16), ND_F32);
    nd_set_name(x, "weight");
    nd_release(x);
    return x;
}

static nd_list *dead_list(void) {
    nd_list *list = nd_list_new();
    nd_tensor *x = dead_tensor();
    (void)x;
    nd_release(list);
    return list;
}

/// Makes and releases enough of everything for any block to be used again, but for those of `kept`.
static void make_and_release_others(int count) {
    for (int i = 0; i < count; i++) {
        nd_tensor *x = nd_zeros(ND_SHAPE(16), ND_F32);
        nd_list *list = nd_list_new();
        nd_release(x);
        nd_release(list);
    }
}

#pragma GCC diagnostic push
#ifndef __clang__ // which does not see it
#pragma GCC diagnostic ignored "-Wuse-after-free"
#endif
static void release_object_twice(void) {
    nd_object *x = dead_object();
    nd_release(x);
}

static void retain_dead_object(void) {
    nd_object *again = nd_retain(dead_object());
    (void)again;
}

static void release_tensor_twice(void) {
    nd_tensor *x = dead_tensor();
    nd_release(x);
}

static void retain_dead_tensor(void) {
    nd_tensor *again = nd_retain(dead_tensor());
    (void)again;
}

static void release_list_twice(void) {
    nd_list *list = dead_list();
    nd_release(list);
}

/// The last handle of a large object: its payload has gone back to the system, its header has not.
static void release_large_twice(void) {
    static const nd_type type = {.size = sizeof type, .version = 1, .name = "barn"};
    nd_object *x = nd_object_new(&type, (size_t)8 << 20);
    memset(nd_object_get_data(x), 1, (size_t)8 << 20);
    nd_release(x);
    nd_release(x);
}

static void release_manager_twice(void) {
    nd_manager *manager = nd_manager_new(NULL, "epoch");
    nd_release(manager);
    nd_release(manager);
}

/// Nobody owns it.
static void release_root(void) {
    nd_manager *root = (nd_manager *)(uintptr_t)nd_manager_get_root();
    nd_object_release(root);
}

static void release_member_of_garbage(void) {
    nd_list *list = nd_list_new();
    nd_list_append(list, list);
    nd_set_name(list, "ring");
    nd_release(list);
    nd_gc_collect(NULL, NULL);
    nd_release(list);
}

/// One of two objects that hold each other.
typedef struct partner {
    nd_object *other;
    nd_object *again; ///< what `destroy` releases, though it is not its own
} partner;

static void partner_traverse(const nd_object *self, nd_visitor *visitor) {
    nd_visit(visitor, ((const partner *)nd_object_get_data(self))->other, "other");
}

static void partner_clear(nd_object *self) {
    nd_edge_clear(&((partner *)nd_object_get_data(self))->other);
}

static void partner_destroy(nd_object *self) {
    nd_object_release(((partner *)nd_object_get_data(self))->again);
}

/// By the destructor of garbage, of garbage that was destroyed before it.
static void release_partner_in_garbage(void) {
    static const nd_type type = {.size = sizeof type,
                                 .version = 1,
                                 .name = "partner",
                                 .traverse = partner_traverse,
                                 .clear = partner_clear,
                                 .destroy = partner_destroy};
    nd_object *pair[2] = {nd_object_new(&type, sizeof(partner)), NULL};
    pair[1] = nd_object_new(&type, sizeof(partner));
    for (int i = 0; i < 2; i++)
        nd_edge_set(&((partner *)nd_object_get_data(pair[i]))->other, pair[1 - i]);
    ((partner *)nd_object_get_data(pair[1]))->again = pair[0];
    for (int i = 0; i < 2; i++)
        nd_release(pair[i]);
    nd_gc_collect(NULL, NULL);
}

static void release_after_many_others(void) {
    nd_tensor *x = dead_tensor();
    make_and_release_others(20000);
    nd_release(x);
}

static void retain_after_many_others(void) {
    nd_list *list = dead_list();
    make_and_release_others(20000);
    nd_list *again = nd_retain(list);
    (void)again;
}

static void release_manager_after_many_others(void) {
    nd_manager *manager = nd_manager_new(NULL, "epoch");
    nd_release(manager);
    for (int i = 0; i < 2000; i++)
        nd_release(nd_manager_new(NULL, "another"));
    nd_release(manager);
}

/// Its name would be another line of its own, in red.
static void release_what_is_named_like_a_line(void) {
    nd_object *x = dead_object();
    nd_set_name(x, "a\nndarc: \x1b[31mb");
    nd_release(x);
}
#pragma GCC diagnostic pop

static void *wait_for_ever(void *data) {
    for (;;)
        pause();
    return data;
}

static void release_current_manager_beside_a_thread(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_ever, NULL) == 0)
        nd_object_release((void *)(uintptr_t)nd_manager_get_current());
}

typedef struct crime {
    void (*commit)(void);
    const char *words[4];
} crime;

static const crime crimes[] = {
    {release_object_twice, {"release of a dead gadget(left)", "dead.c:"}},
    {retain_dead_object, {"retain of a dead gadget(left)", "dead.c:"}},
    {release_tensor_twice, {"release of a dead tensor(weight)", "dead.c:"}},
    {retain_dead_tensor, {"retain of a dead tensor(weight)", "dead.c:"}},
    {release_list_twice, {"release of a dead list", "dead.c:"}},
    {release_large_twice, {"release of a dead barn", "dead.c:"}},
    {release_member_of_garbage, {"release of a dead list(ring)", "dead.c:"}},
    {release_partner_in_garbage, {"release of a dead partner", "dead.c:"}},
    {release_manager_twice, {"release of a dead manager(epoch)", "dead.c:"}},
    {release_what_is_named_like_a_line,
     {"release of a dead gadget(a\\x0andarc: \\x1b[31mb)", "dead.c:"}},
    {release_root, {"release of manager root, which nobody owns"}},
    {release_current_manager_beside_a_thread, {"release of manager root, which nobody owns"}},
    // What only the quarantine tells for sure.
    {release_after_many_others, {"release of a dead tensor(weight)", "dead.c:"}},
    {retain_after_many_others, {"retain of a dead list", "dead.c:"}},
    {release_manager_after_many_others, {"release of a dead manager(epoch)", "dead.c:"}},
};
enum { CRIMES = sizeof crimes / sizeof crimes[0], ALWAYS_TOLD = CRIMES - 3 };

static char confession[8192];

/// Runs crime number `index` in a child. True when the child was stopped by
/// SIGABRT; its last words are in `confession`.
static bool stops_the_program(size_t index, bool checked) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        char number[16];
        snprintf(number, sizeof number, "%zu", index);
        if (checked)
            setenv("ND_CHECK", "1", 1);
        execl("/proc/self/exe", "dead", number, (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t n;
    while (length < sizeof confession - 1 &&
           (n = read(ends[0], confession + length, sizeof confession - 1 - length)) > 0)
        length += (size_t)n;
    confession[length] = '\0';
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void assert_said(const char *words) {
    if (words && !strstr(confession, words))
        fail_msg("\"%s\" is not in: %s", words, confession);
}

static void test_F37_use_of_the_dead_stops_the_program_and_says_of_what(void **state) {
    (void)state;
    for (size_t i = 0; i < ALWAYS_TOLD; i++) {
        if (!stops_the_program(i, false))
            fail_msg("number %zu goes on: %s", i, confession);
        for (int k = 0; k < 4; k++)
            assert_said(crimes[i].words[k]);
    }
}

static void test_F37_checked_mode_always_tells_with_both_places(void **state) {
    (void)state;
    for (size_t i = 0; i < CRIMES; i++) {
        if (!stops_the_program(i, true))
            fail_msg("number %zu goes on: %s", i, confession);
        for (int k = 0; k < 4; k++)
            assert_said(crimes[i].words[k]);
        if (strstr(confession, "nobody owns")) // and nobody has made
            continue;
        assert_said("made by");
        assert_said("released for the last time by");
    }
}

int main(int argc, char **argv) {
    if (argc > 1) {
        if (nd_test_use_device() != ND_OK)
            return 1;
        crimes[strtoul(argv[1], NULL, 10)].commit();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F37_use_of_the_dead_stops_the_program_and_says_of_what),
        ND_TEST(test_F37_checked_mode_always_tells_with_both_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
