// A signal handler retains and releases what the program keeps alive meanwhile, while the program
// does the same and changes edges (F35).
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

enum { SIGNALS = 5000 / ND_TEST_SCALE, HELD = 1 << 16 };
static nd_object *shared;
static volatile uint32_t handled;
static nd_object *held[HELD];
static volatile uint32_t held_count;

static void handle(int number) {
    (void)number;
    if (held_count < HELD && handled % 3)
        held[held_count++] = nd_retain(shared);
    else if (held_count)
        nd_release(held[--held_count]);
    handled++;
}

static void begin_signals(void) {
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = handle, .sa_flags = SA_RESTART}, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 20}, {0, 20}}, NULL);
}

static void end_signals(void) {
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    signal(SIGALRM, SIG_IGN);
}

static void count_beside_signals(void) {
    cell_begin(2);
    handled = held_count = 0;
    shared = cell_new(0, 0);
    nd_object *owner = cell_new(1, 1);
    begin_signals();
    while (handled < SIGNALS) {
        for (int i = 0; i < 1000; i++) {
            nd_object *more = nd_retain(shared);
            nd_release(more);
        }
        cell_link(owner, 0, shared);
        nd_release(nd_edge_take(&cell_of(owner)->edges[0])); // moves the version as well
    }
    end_signals();
    assert_int_equal(nd_get_count(shared), held_count + 1);
    while (held_count)
        nd_release(held[--held_count]);
    nd_release(owner);
    nd_release(shared);
    assert_int_equal(cell_total_deaths(), 2);
}

static void test_F35_counts_in_a_signal_handler_of_one_thread(void **state) {
    (void)state;
    count_beside_signals();
}

static void *do_nothing(void *data) {
    return data;
}

static void test_F35_counts_in_a_signal_handler_of_several_threads(void **state) {
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, do_nothing, NULL), 0);
    pthread_join(thread, NULL);
    count_beside_signals();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F35_counts_in_a_signal_handler_of_one_thread),
        ND_TEST(test_F35_counts_in_a_signal_handler_of_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
