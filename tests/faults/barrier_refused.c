// A sandbox begins while the program runs and forbids the process-wide barrier of the gate (F38):
// no edge changes under a collector that looks at it, and nothing is lost.
#include "lib/base/atomics.h"
#include "lib/base/barrier.h"
#include "lib/base/thread.h"
#include "lib/manager/manager.h"
#include "lib/object/gate.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static bool forbid_barrier(void) {
    struct sock_filter filter[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_membarrier},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { WRITERS = 2, LOOKS = 20000 / ND_TEST_SCALE };
static atomic_bool stop;
static atomic_int begun, changed;
static bool forbidden;
static nd_object *volatile slots[WRITERS]; ///< what the writers change inside the gate

static void *write_slot(void *data) {
    nd_object *volatile *slot = data;
    begun++;
    for (uintptr_t i = 0; !stop; i++) {
        nd__gate_enter();
        *slot = (nd_object *)i;
        nd__gate_leave();
    }
    return NULL;
}

static void *idle(void *data) {
    nd_release(cell_new(0, 0)); // is known, and never at the gate again
    begun++;
    while (!stop)
        sched_yield();
    return data;
}

static void look(void) {
    nd__gate_close();
    nd_object *seen[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        seen[i] = slots[i];
    for (volatile int spin = 0; spin < 50; spin++)
        ;
    for (int i = 0; i < WRITERS; i++)
        changed += seen[i] != slots[i];
    nd__gate_open();
}

static void test_F38_barrier_refused_while_threads_write(void **state) {
    (void)state;
    cell_begin(4);
    pthread_t threads[WRITERS + 1];
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, write_slot, (void *)(uintptr_t)&slots[i]), 0);
    assert_int_equal(pthread_create(&threads[WRITERS], NULL, idle, NULL), 0);
    while (begun < WRITERS + 1)
        sched_yield();
    for (int i = 0; i < LOOKS; i++)
        look();
    forbidden = forbid_barrier();
    if (!forbidden)
        print_message("SKIPPED: no filter for system calls\n");
    for (int i = 0; i < LOOKS / 100; i++) // slow ones, because of the idle thread
        look();
    stop = true;
    for (int i = 0; i < WRITERS + 1; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(changed, 0);
}

/// All threads know by now.
static void test_F38_barrier_refused_since(void **state) {
    (void)state;
    cell_begin(4);
    stop = false;
    begun = 0;
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, write_slot, (void *)(uintptr_t)&slots[i]), 0);
    while (begun < WRITERS)
        sched_yield();
    for (int i = 0; i < LOOKS; i++)
        look();
    for (int i = 0; i < 20; i++) {
        cell_drop_ring(0, 4);
        assert_ok(nd_gc_collect(NULL, NULL));
    }
    stop = true;
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(changed, 0);
    assert_int_equal(cell_total_deaths(), 80);
}

static void *pass_the_gate(void *data) {
    nd__gate_enter();
    nd__gate_leave();
    *(uint32_t *)data = nd__atomic_load(&nd__thread()->fences, relaxed);
    return NULL;
}

static void test_F38_writers_fence_since(void **state) {
    (void)state;
    if (!forbidden)
        skip();
    uint32_t here = 0, there = 0;
    pass_the_gate(&here);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, pass_the_gate, &there), 0);
    pthread_join(thread, NULL);
    assert_int_equal(here, 1);
    assert_int_equal(there, 1);
}

/// Made before it was forbidden, so biased to the main thread (lib/base/biased_lock.h).
static nd_manager *biased;
enum { BIRTHS = 20000 / ND_TEST_SCALE };

static void *make_there(void *data) {
    begun++;
    nd_with_manager(biased) for (int i = 0; i < BIRTHS; i++) nd_release(cell_new(0, 0));
    return data;
}

static void test_F38_a_bias_is_taken_away_since(void **state) {
    (void)state;
    cell_begin(1);
    begun = 0;
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_there, NULL), 0);
    while (begun == 0)
        ;
    make_there(NULL);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(cell_total_deaths(), (WRITERS + 1) * BIRTHS);
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(biased, &stats));
    assert_int_equal(stats.live_objects, 0);
    assert_int_equal(stats.created_objects, (WRITERS + 1) * BIRTHS);
    assert_int_equal(stats.freed_objects, (WRITERS + 1) * BIRTHS);
    assert_ok(nd_manager_close(biased, NULL));
    nd_release(biased);
}

int main(void) {
    biased = nd_manager_new(NULL, "biased");
    if (nd__barrier_prepare() && nd__atomic_load(&biased->first.lock.owner, relaxed) == 0)
        return 1;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F38_barrier_refused_while_threads_write),
        ND_TEST(test_F38_barrier_refused_since),
        ND_TEST(test_F38_writers_fence_since),
        ND_TEST(test_F38_a_bias_is_taken_away_since),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
