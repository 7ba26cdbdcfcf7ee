// Where threads wake that are kept off a CPU: the kernel says.
#include "lib/base/affinity.h"
#include "tests/testing.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct sleeper {
    nd__affinity affinity;
    sem_t ready, go;
    cpu_set_t at_first, when_woken, at_last;
    int cpu; ///< when woken
    int rounds;
} sleeper;

static cpu_set_t mask(void) {
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

static void *sleep_and_wake(void *argument) {
    sleeper *s = (sleeper *)argument;
    nd__affinity_begin(&s->affinity);
    s->at_first = mask();
    sem_post(&s->ready); // awake
    sem_wait(&s->go);
    for (int i = 0; i < s->rounds; i++) {
        nd__affinity_sleeps(&s->affinity);
        sem_post(&s->ready);
        sem_wait(&s->go);
        s->when_woken = mask();
        s->cpu = sched_getcpu();
        nd__affinity_wakes(&s->affinity);
    }
    s->at_last = mask();
    return NULL;
}

static void begin(sleeper *s, int rounds, pthread_t *ret_thread) {
    *s = (sleeper){.rounds = rounds};
    sem_init(&s->ready, 0, 0);
    sem_init(&s->go, 0, 0);
    assert_int_equal(pthread_create(ret_thread, NULL, sleep_and_wake, s), 0);
    sem_wait(&s->ready);
}

static void end(sleeper *s, pthread_t thread) {
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(CPU_EQUAL(&s->at_first, &s->at_last));
    sem_destroy(&s->ready);
    sem_destroy(&s->go);
}

static void test_a_sleeper_wakes_elsewhere_and_may_run_anywhere(void **state) {
    (void)state;
    cpu_set_t all = mask();
    for (int cpu = 0; cpu < CPU_SETSIZE && cpu < 16; cpu++) {
        sleeper s;
        pthread_t thread;
        begin(&s, 1, &thread);
        nd__affinity_keep_off(&s.affinity, cpu); // not asleep yet: nothing
        sem_post(&s.go);
        sem_wait(&s.ready);
        nd__affinity_keep_off(&s.affinity, cpu);
        sem_post(&s.go);
        end(&s, thread);
        cpu_set_t others = all;
        CPU_CLR((size_t)cpu, &others);
        if (CPU_COUNT(&others) == 0) {
            assert_true(CPU_EQUAL(&s.when_woken, &all)); // there is no other one
            continue;
        }
        assert_true(CPU_EQUAL(&s.when_woken, &others));
        assert_int_not_equal(s.cpu, cpu);
    }
}

static void test_a_sleeper_is_kept_off_one_cpu(void **state) {
    (void)state;
    cpu_set_t all = mask();
    sleeper s;
    pthread_t thread;
    begin(&s, 1, &thread);
    sem_post(&s.go);
    sem_wait(&s.ready);
    nd__affinity_keep_off(&s.affinity, -1); // the system did not say: nothing
    int first = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &all)) {
            nd__affinity_keep_off(&s.affinity, cpu);
            first = first < 0 ? cpu : first;
        }
    sem_post(&s.go);
    end(&s, thread);
    if (CPU_COUNT(&all) > 1)
        CPU_CLR((size_t)first, &all);
    assert_true(CPU_EQUAL(&s.when_woken, &all));
}

static atomic_bool enough;

static void *keep_off(void *argument) {
    sleeper *s = (sleeper *)argument;
    for (int cpu = 0; !atomic_load(&enough); cpu = (cpu + 1) % 4)
        nd__affinity_keep_off(&s->affinity, cpu);
    return NULL;
}

static void test_many_wake_one(void **state) {
    (void)state;
    sleeper s;
    pthread_t thread, callers[3];
    begin(&s, 2000, &thread);
    atomic_store(&enough, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, keep_off, &s), 0);
    for (int i = 0; i < 2000; i++) {
        sem_post(&s.go);
        sem_wait(&s.ready);
    }
    sem_post(&s.go);
    end(&s, thread);
    atomic_store(&enough, true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(callers[i], NULL), 0);
}

static void test_leaving_changes_nothing_for_good(void **state) {
    (void)state;
    cpu_set_t before = mask();
    for (int cpu = -1; cpu < 16; cpu++)
        nd__affinity_leave(cpu);
    cpu_set_t after = mask();
    assert_true(CPU_EQUAL(&before, &after));
    int elsewhere = 0;
    for (int i = 0; i < 100; i++) {
        int cpu = sched_getcpu();
        nd__affinity_leave(cpu);
        elsewhere += sched_getcpu() != cpu;
    }
    if (CPU_COUNT(&before) > 1)
        assert_true(elsewhere > 50); // it may be moved back at once
    else
        assert_int_equal(elsewhere, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_sleeper_wakes_elsewhere_and_may_run_anywhere),
        ND_TEST(test_a_sleeper_is_kept_off_one_cpu),
        ND_TEST(test_many_wake_one),
        ND_TEST(test_leaving_changes_nothing_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
