// A program whose address space is bounded (RLIMIT_AS), far below what it allocates in all.
//
// Every step of its training differentiates twice and leaves a cycle: parameter -> gradient ->
// graph -> parameter. Nothing ever closes a manager, and the byte threshold is off, so that only
// the ladder can call the collector. With the collector on it completes; with the collector off it
// gets an error that it can go on from. It runs in a child of its own, since a limit cannot be
// raised again, and not under sanitizers, which take more address space than there is memory.
#define ND_TEST_COLLECTS_BY_POLICY
#include "tests/faults/address_space.h"
#include "tests/testing.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FEATURES = 256,
    CLASSES = 64,
    BATCH = 64,
    STEPS = 1500,
};
#define ROOM ((uint64_t)96 << 20)

/// A step as a function of new parameters, so that each leaves a cycle of its own. Loss, a penalty
/// on its gradient, and the gradient of both.
static nd_status train_a_step(uint64_t number, double *ret_loss) {
    nd_auto nd_tensor *w = nd_rand(nd_key_new(number), ND_SHAPE(FEATURES, CLASSES), ND_F32);
    nd_auto nd_tensor *x = nd_rand(nd_key_new(number + 1), ND_SHAPE(BATCH, FEATURES), ND_F32);
    if (!w || !x || nd_set_requires_grad(w, true) != ND_OK)
        return nd_error_get_status();
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    nd_auto nd_tensor *y = nd_matmul(x, w);
    nd_auto nd_tensor *activated = nd_tanh(y);
    nd_auto nd_tensor *loss = nd_sum(activated, 0, NULL, false);
    if (!loss || nd_backward(loss, &options) != ND_OK)
        return nd_error_get_status();
    nd_auto nd_tensor *squares = nd_square(nd_get_grad(w));
    nd_auto nd_tensor *penalty = nd_sum(squares, 0, NULL, false);
    nd_auto nd_tensor *both = nd_add(loss, penalty);
    if (!both || nd_backward(both, &options) != ND_OK)
        return nd_error_get_status();
    *ret_loss = nd_get_item(both);
    return ND_OK;
}

/// Trains until all is done or something fails, under a limit that leaves ROOM beyond what is in
/// use.
static nd_status train_bounded(uint64_t *ret_steps) {
    double loss = 0, before;
    // Threads are started and their working memory taken before the limit comes.
    nd_status status = train_a_step(1, &loss);
    uint64_t bytes = address_space() + ROOM;
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    if (status == ND_OK && setrlimit(RLIMIT_AS, &limit) != 0)
        return ND_ERROR_STATE;
    for (*ret_steps = 0; *ret_steps < STEPS && status == ND_OK; ++*ret_steps) {
        before = loss;
        status = train_a_step(1, &loss);
        if (status == ND_OK && loss != before)
            return ND_ERROR_STATE;
    }
    return status;
}

static nd_memory_stats stats_now(void) {
    nd_memory_stats stats = ND_MEMORY_STATS_INIT;
    nd_memory_get_stats(&stats);
    return stats;
}

/// What is wrong, or NULL.
static const char *complete(void) {
    uint64_t steps;
    nd_gc_set_mode(ND_GC_ON);
    if (train_bounded(&steps) != ND_OK)
        return nd_error_get_message();
    nd_memory_stats stats = stats_now();
    if (stats.stages[ND_MEMORY_STAGE_COLLECT].enough == 0 || stats.failures > 0)
        return "it did not need the ladder, or the ladder failed";
    if (stats.stages[ND_MEMORY_STAGE_COLLECT].bytes < 4 * ROOM)
        return "the limit was not far below what was allocated";
    return NULL;
}

/// The same program without the collector: an error, after which it cleans up and goes on.
static const char *fail_and_go_on(void) {
    uint64_t steps;
    double loss;
    nd_gc_set_mode(ND_GC_OFF);
    nd_status status = train_bounded(&steps);
    if (status != ND_ERROR_OUT_OF_MEMORY || nd_error_get_status() != status || steps < 10)
        return "it did not run out of memory";
    if (!strstr(nd_error_get_message(), "tried: caches trimmed"))
        return nd_error_get_message();
    if (nd_gc_collect(NULL, NULL) != ND_OK || train_a_step(1, &loss) != ND_OK)
        return nd_error_get_message();
    return stats_now().failures == 1 ? NULL : "the ladder failed again";
}

/// A ring in few bytes: a list that holds itself, and that `holder` may hold, too.
static bool make_ring(nd_list *holder) {
    nd_auto nd_list *ring = nd_list_new();
    return ring && nd_list_append(ring, ring) == ND_OK &&
           (!holder || nd_list_append(holder, ring) == ND_OK);
}

/// More garbage than the reserve has room to look at, until no memory is left for anything.
static const char *fill_with_small_garbage(void) {
    enum { HELD = 10000 };
    nd_gc_set_mode(ND_GC_OFF);
    nd_list *holder = nd_list_new();
    for (int i = 0; i < HELD; i++)
        if (!make_ring(holder))
            return nd_error_get_message();
    const uint64_t before = nd_manager_get_total_objects(NULL);
    const uint64_t bytes = address_space() + 3 * ROOM;
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return "no limit";
    while (make_ring(NULL))
        ;
    const uint64_t garbage = nd_manager_get_total_objects(NULL) - before;
    void *rest = NULL; // the last pieces
    for (size_t piece = 1 << 20; piece >= sizeof rest; piece /= 2)
        for (void *next; (next = malloc(piece)) != NULL; rest = next)
            *(void **)next = rest;
    nd_status status = nd_gc_collect(NULL, NULL);
    while (rest) {
        void *next = *(void **)rest;
        free(rest);
        rest = next;
    }
    if (garbage < 500000)
        return "there was too little of it";
    if (status != ND_OK)
        return nd_error_get_message();
    if (nd_manager_get_total_objects(NULL) != before)
        return "some was left, or what is held was taken";
    nd_release(holder);
    if (nd_gc_collect(NULL, NULL) != ND_OK)
        return nd_error_get_message();
    return nd_manager_get_total_objects(NULL) == before - HELD - 1 ? NULL : "rings were left";
}

/// The child may be stopped by anything: it must end by itself, and with nothing to complain of.
static void run_in_child(const char *(*program)(void)) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(600);
        nd_test_set_threshold(ND_CPU, 0);
        const char *wrong = program();
        if (wrong)
            fprintf(stderr, "%s\n", wrong);
        _exit(wrong ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_F03_a_bounded_program_completes_with_the_collector(void **state) {
    (void)state;
    run_in_child(complete);
}

static void test_F03_a_bounded_program_gets_an_error_without_the_collector(void **state) {
    (void)state;
    run_in_child(fail_and_go_on);
}

static void test_F03_garbage_is_collected_in_parts_where_memory_is_short(void **state) {
    (void)state;
    run_in_child(fill_with_small_garbage);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F03_a_bounded_program_completes_with_the_collector),
        ND_TEST(test_F03_a_bounded_program_gets_an_error_without_the_collector),
        ND_TEST(test_F03_garbage_is_collected_in_parts_where_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
