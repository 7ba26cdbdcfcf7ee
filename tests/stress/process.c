// Threads that are cancelled, threads that end, processes that fork and exit, all in the middle of
// everything (G46).
//
// Workers make, link, attach, close and collect, on records that come and go; some are cancelled,
// some end with scopes open and with a destructor that goes on. Beside them the process forks: a
// child uses everything and exits, at once, with its own threads busy. Nothing hangs, and what no
// cancelled thread held is freed.
#include "tests/behaviour/cell.h"
#include "tests/stress/times.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 3, ROUNDS = 200 };
static nd_manager *shared;
static pthread_key_t at_end;
static atomic_bool stop;

static void work_once(void) {
    nd_manager *m = nd_manager_new(shared, "m");
    nd_object *a = NULL;
    nd_with_manager(m) {
        cell_drop_ring(0, 3);
        a = cell_new(0, 2);
    }
    cell_link(a, 0, a);
    nd_manager_attach(shared, a);
    nd_weak *weak = nd_weak_new(a);
    nd_manager_close(m, NULL);
    nd_release(m);
    nd_release(a);
    nd_release(nd_weak_get(weak));
    nd_release(weak);
    nd_release(nd_ones(ND_SHAPE(16), ND_F32));
    nd_gc_collect(shared, NULL);
}

/// Between calls of the library, where it holds nothing, a cancelled worker ends: in nd_gc_collect
/// or here.
static void *work(void *data) {
    (void)nd_test_use_device(); // in a child there is none
    pthread_setspecific(at_end, &at_end);
    nd_scope_begin();
    nd_tmp(cell_new(0, 0));
    while (!stop) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); // the program's own handles
        work_once();
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        nd_gc_collect(NULL, NULL);
    }
    return data; // the scope is open
}

static void go_on_at_the_end(void *data) {
    (void)data;
    work_once();
}

static void be_a_child(bool busy) {
    alarm(120);
    pthread_t thread;
    if (busy && pthread_create(&thread, NULL, work, NULL) != 0)
        _exit(3);
    for (int i = 0; i < 5; i++)
        work_once();
    if (!busy && (nd_gc_collect(NULL, NULL) != ND_OK || nd_debug_check() != ND_OK))
        _exit(4);
    exit(0); // beside its worker
}

static void fork_child(bool busy) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        be_a_child(busy);
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

static void *fork_again_and_again(void *data) {
    while (!stop) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        fork_child(false);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        pthread_testcancel();
    }
    return data;
}

static void test_G46_cancelled_exiting_and_forked_threads_in_the_middle(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(1);
    shared = nd_manager_new(NULL, "shared");
    assert_int_equal(pthread_key_create(&at_end, go_on_at_the_end), 0);
    pthread_t workers[WORKERS], forker;
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i], NULL, work, NULL), 0);
    assert_int_equal(pthread_create(&forker, NULL, fork_again_and_again, NULL), 0);
    for (int i = 0; i < ROUNDS * stress_times(); i++) {
        pthread_cancel(workers[i % WORKERS]);
        pthread_join(workers[i % WORKERS], NULL);
        assert_int_equal(pthread_create(&workers[i % WORKERS], NULL, work, NULL), 0);
        fork_child(i % 2);
        assert_ok(nd_gc_collect(NULL, NULL));
    }
    pthread_cancel(forker);
    stop = true;
    pthread_join(forker, NULL);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    pthread_key_delete(at_end);
    nd_manager_close(shared, NULL);
    nd_release(shared);
    assert_ok(nd_gc_collect(NULL, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G46_cancelled_exiting_and_forked_threads_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
