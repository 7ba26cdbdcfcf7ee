// The collector interrupted at every moment: G28 to G30, G32 and G33, without luck in scheduling.
//
// A watched cell's `traverse` is the moment between two looks of the collector, so what another
// thread would do there is done there, at every such moment in turn. (A type must not do that; the
// collector cannot tell it from another thread.) Where no traverse runs, a timer's signal
// interrupts.
#include "lib/gc/collection.h"
#include "lib/object/object.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static void start(pthread_t *thread, void *(*function)(void *), void *data) {
    assert_int_equal(pthread_create(thread, NULL, function, data), 0);
}

enum { HOPS = 6 };
static nd_object *hop_ring[2];
static uint32_t moment, hop_at[HOPS], hops_done;

/// The n-th step of a thread that always holds A or B: retain the other one, release this one.
static void hop(uint32_t n) {
    static const struct {
        bool retain;
        int which;
    } steps[4] = {{true, 0}, {false, 1}, {true, 1}, {false, 0}};
    nd_object *object = hop_ring[steps[n % 4].which];
    if (steps[n % 4].retain)
        assert_ptr_equal(nd_retain(object), object);
    else
        nd_release(object);
}

static void hop_when_it_is_time(const nd_object *self) {
    (void)self;
    for (; hops_done < HOPS && hop_at[hops_done] <= moment; hops_done++)
        hop(hops_done);
    moment++;
}

/// One collection with the hops at the given moments; the ring must live through it.
static uint32_t check_hops(void) {
    cell_begin(2);
    hop_ring[0] = cell_new_of(&cell_watched_type, 0, 1);
    hop_ring[1] = cell_new_of(&cell_watched_type, 1, 1);
    cell_ring(hop_ring, 2);
    nd_release(hop_ring[0]);
    moment = hops_done = 0;
    cell_on_traverse = hop_when_it_is_time;
    assert_int_equal(collect(NULL).collected_objects, 0);
    assert_int_equal(cell_total_deaths(), 0);
    uint32_t moments = moment;
    cell_on_traverse = NULL;
    for (; hops_done < HOPS; hops_done++)
        hop(hops_done);
    assert_int_equal(nd_get_count(hop_ring[0]) + nd_get_count(hop_ring[1]), 3);
    nd_release(hop_ring[nd_get_count(hop_ring[0]) == 2 ? 0 : 1]);
    assert_int_equal(collect(NULL).collected_objects, 2);
    assert_int_equal(cell_total_deaths(), 2);
    return moments;
}

static void test_G29_hopping_thread_at_every_interleaving(void **state) {
    (void)state;
    for (int i = 0; i < HOPS; i++)
        hop_at[i] = UINT32_MAX;
    uint32_t moments = check_hops();
    assert_in_range(moments, 2, 16);
    // Every non-decreasing assignment of the hops to the moments.
    uint64_t checked = 0;
    for (int i = 0; i < HOPS; i++)
        hop_at[i] = 0;
    for (;;) {
        check_hops();
        checked++;
        int i = HOPS - 1;
        while (i >= 0 && hop_at[i] == moments)
            i--;
        if (i < 0)
            break;
        uint32_t next = hop_at[i] + 1;
        for (; i < HOPS; i++)
            hop_at[i] = next;
    }
    assert_true(checked >= 28);
}

// The same without luck in scheduling: a timer's signal interrupts the collector between any two of
// its instructions, and the handler is the hopping thread. It hops many times between two reads of
// the same pass.
enum { SIGNAL_RING = 50000 / ND_TEST_SCALE, SMALL_SIGNAL_RING = 4000 / ND_TEST_SCALE };
static nd_object *signal_pair[2];
static volatile sig_atomic_t signal_holds;
static volatile sig_atomic_t signal_hops;

static void hop_on_signal(int number) {
    (void)number;
    nd_object *next = nd_retain(signal_pair[!signal_holds]);
    nd_release(signal_pair[signal_holds]);
    signal_holds = next == signal_pair[1];
    signal_hops = signal_hops + 1;
}

static void set_timer(long microseconds) {
    const struct itimerval interval = {{0, microseconds}, {0, microseconds}};
    assert_int_equal(setitimer(ITIMER_REAL, &interval, NULL), 0);
}

/// A hundred collections of a ring of so many, beside the handler, which has hopped so often at
/// least by then.
static void check_hops_on_signal(uint32_t size, uint32_t hops) {
    cell_begin(size);
    nd_object *first = cell_new(0, 1), *last = nd_retain(first);
    for (uint32_t i = 1; i < size; i++) {
        nd_object *next = cell_new(i, 1);
        cell_link(last, 0, next);
        if (i == size / 2)
            signal_pair[1] = nd_retain(next);
        nd_release(last);
        last = next;
    }
    cell_link(last, 0, first);
    nd_release(last);
    signal_pair[0] = first;
    nd_release(signal_pair[0]);
    signal_holds = 1;
    signal_hops = 0;
    struct sigaction hop_action = {.sa_handler = hop_on_signal, .sa_flags = SA_RESTART}, before;
    assert_int_equal(sigaction(SIGALRM, &hop_action, &before), 0);
    set_timer(20);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(collect(NULL).collected_objects, 0);
        assert_int_equal(cell_total_deaths(), 0);
    }
    set_timer(0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_true(signal_hops > (sig_atomic_t)hops);
    nd_release(signal_pair[signal_holds]);
    assert_int_equal(collect(NULL).collected_objects, size);
    assert_int_equal(cell_total_deaths(), size);
}

static void test_G29_hops_between_any_two_reads(void **state) {
    (void)state;
    size_t still_from = nd__collection_still_from;
    nd__collection_still_from = SIZE_MAX;
    check_hops_on_signal(SIGNAL_RING, SIGNAL_RING / 500);
    // So few are marked as their words are looked at again.
    check_hops_on_signal(SMALL_SIGNAL_RING, SMALL_SIGNAL_RING / 500);
    nd__collection_still_from = still_from;
}

static void test_G29_signals_wait_for_a_look_and_come_behind_it(void **state) {
    (void)state;
    size_t still_from = nd__collection_still_from;
    nd__collection_still_from = 1;
    check_hops_on_signal(SIGNAL_RING, 50);
    check_hops_on_signal(SMALL_SIGNAL_RING, 50);
    nd__collection_still_from = still_from;
    sigset_t blocked;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &blocked), 0);
    assert_false(sigismember(&blocked, SIGALRM));
}

// A handle of a member taken out of an edge by reading it, as a thread does that holds the owner,
// at each moment.
static nd_object *taken_from, *taken;
static uint32_t take_at;

static void take_when_it_is_time(const nd_object *self) {
    (void)self;
    if (moment++ != take_at)
        return;
    // The thread owns `taken_from`; it keeps what the edge points to and lets the owner go.
    taken = nd_retain(cell_of(taken_from)->edges[0]);
    nd_release(taken_from);
}

static void test_G30_edge_taken_between_the_reads(void **state) {
    (void)state;
    for (take_at = 0; take_at < 8; take_at++) {
        for (uint32_t owner = 0; owner < 3; owner++) {
            cell_begin(3);
            nd_object *ring[3];
            for (uint32_t i = 0; i < 3; i++)
                ring[i] = cell_new_of(&cell_watched_type, i, 1);
            cell_ring(ring, 3);
            for (uint32_t i = 0; i < 3; i++)
                if (i != owner)
                    nd_release(ring[i]);
            taken_from = ring[owner];
            taken = NULL;
            moment = 0;
            cell_on_traverse = take_when_it_is_time;
            assert_int_equal(collect(NULL).collected_objects, 0);
            cell_on_traverse = NULL;
            nd_release(taken ? taken : taken_from);
            assert_int_equal(collect(NULL).collected_objects, 3);
            assert_int_equal(cell_total_deaths(), 3);
        }
    }
}

static nd_object *late;
static uint32_t release_at;

static void *release_late(void *data) {
    nd_release(late);
    atomic_store((atomic_bool *)data, true);
    return NULL;
}

/// Another thread gives up the last handle of `late`; that must not wait for the collector.
static void release_when_it_is_time(const nd_object *self) {
    (void)self;
    if (moment++ != release_at)
        return;
    static atomic_bool done;
    atomic_store(&done, false);
    pthread_t thread;
    start(&thread, release_late, &done);
    for (int waited = 0; !atomic_load(&done); waited++) {
        if (waited > 10000) {
            fputs("a release waits for the collector\n", stderr);
            abort();
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    pthread_join(thread, NULL);
}

static void test_G32_last_release_while_the_gate_is_closed_loses_nothing(void **state) {
    (void)state;
    for (int dead_ring = 0; dead_ring < 2; dead_ring++) {
        for (release_at = 0; release_at < 6; release_at++) {
            // 2 points into the ring 0 <-> 1 and to 3; its last handle goes while the collector
            // looks.
            cell_begin(4);
            nd_object *ring[2] = {cell_new_of(&cell_watched_type, 0, 1),
                                  cell_new_of(&cell_watched_type, 1, 1)};
            cell_ring(ring, 2);
            late = cell_new_of(&cell_watched_type, 2, 2);
            nd_object *last = cell_new(3, 0);
            cell_link(late, 0, ring[0]);
            cell_link(late, 1, last);
            nd_release(last);
            nd_release(ring[1]);
            if (dead_ring)
                nd_release(ring[0]);
            moment = 0;
            cell_on_traverse = release_when_it_is_time;
            collect(NULL);
            cell_on_traverse = NULL;
            if (moment <= release_at)
                nd_release(late);
            assert_int_equal(cell_deaths(2), 1);
            assert_int_equal(cell_deaths(3), 1);
            if (!dead_ring) {
                assert_int_equal(cell_deaths(0) + cell_deaths(1), 0);
                assert_int_equal(nd_get_count(ring[0]), 2);
                nd_release(ring[0]);
            }
            collect(NULL);
            assert_int_equal(cell_total_deaths(), 4);
        }
    }
}

/// The destructor of `late`, which runs on the thread that collects.
static void look_around(nd_object *self) {
    if (cell_of(self)->number != 2)
        return;
    nd_snapshot *snapshot = nd_snapshot_new(NULL);
    if (!snapshot)
        abort();
    nd_snapshot_free(snapshot);
}

static void test_G32_destructor_of_what_died_meanwhile_may_close_the_gate(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    // In steps it would be garbage, which the collection alone holds.
    nd_gc_policy at_once = ND_GC_POLICY_INIT;
    at_once.pause_ns = 0;
    assert_ok(nd_manager_set_gc_policy(NULL, &at_once));
    cell_begin(3);
    nd_object *ring[2] = {cell_new_of(&cell_watched_type, 0, 1),
                          cell_new_of(&cell_watched_type, 1, 1)};
    cell_ring(ring, 2);
    late = cell_new(2, 0);
    nd_release(ring[0]);
    nd_release(ring[1]);
    moment = release_at = 0;
    cell_on_traverse = release_when_it_is_time;
    cell_on_destroy = look_around;
    alarm(300); // else it would wait for itself
    assert_int_equal(collect(NULL).collected_objects, 2);
    alarm(0);
    assert_int_equal(cell_total_deaths(), 3);
}

/// How far the two threads of the next tests are: one collects, and then destroys what the other
/// let go of meanwhile, whose manager that one closes.
enum { BEGUN, LOOKING, RELEASED, DESTROYING, CLOSED };
static atomic_int reached;
static bool waits_for_close;

static void await(int stage) {
    while (atomic_load(&reached) < stage)
        nanosleep(&(struct timespec){0, 100000}, NULL);
}

static void let_other_release(const nd_object *self) {
    (void)self;
    if (atomic_load(&reached) != BEGUN)
        return;
    atomic_store(&reached, LOOKING);
    await(RELEASED);
}

/// The destructor of number 2, before that of number 3.
static void be_slow(nd_object *self) {
    if (cell_of(self)->number != 2)
        return;
    atomic_store(&reached, DESTROYING);
    if (waits_for_close)
        await(CLOSED);
    else
        nanosleep(&(struct timespec){0, 50000000}, NULL);
}

static void *collect_beside(void *data) {
    collect(data);
    return NULL;
}

/// Closes a manager with a dead ring, to which an object leads that died while another thread had
/// the gate closed, and which that thread is about to destroy.
static nd_close_report close_beside_destruction(const nd_manager *parent) {
    nd_test_collects_by_policy();
    nd_gc_policy at_once = ND_GC_POLICY_INIT;
    at_once.pause_ns = 0;
    assert_ok(nd_manager_set_gc_policy(NULL, &at_once));
    cell_begin(5);
    atomic_store(&reached, BEGUN);
    nd_manager *mine = manager_new(parent, "mine"), *theirs = manager_new(NULL, "theirs");
    assert_ok(nd_manager_set_gc_mode(mine, ND_GC_ON));
    nd_object *ring[2] = {cell_in(mine, 0, 1), cell_in(mine, 1, 1)};
    cell_ring(ring, 2);
    nd_object *slow = cell_in(mine, 2, 0), *dead = cell_in(mine, 3, 1), *watched = NULL;
    cell_link(dead, 0, ring[0]);
    nd_release(ring[0]);
    nd_release(ring[1]);
    nd_with_manager(theirs) watched = cell_new_of(&cell_watched_type, 4, 0);
    cell_on_traverse = let_other_release;
    cell_on_destroy = be_slow;
    pthread_t thread;
    start(&thread, collect_beside, theirs);
    await(LOOKING);
    nd_release(slow);
    nd_release(dead);
    atomic_store(&reached, RELEASED);
    await(DESTROYING);
    nd_close_report report = close_and_release(mine);
    atomic_store(&reached, CLOSED);
    pthread_join(thread, NULL);
    nd_release(watched);
    nd_release(theirs);
    return report;
}

static void test_G32_close_collects_what_another_thread_lets_go_of(void **state) {
    (void)state;
    waits_for_close = false;
    nd_close_report report = close_beside_destruction(NULL);
    assert_int_equal(report.collected_objects, 2);
    assert_int_equal(report.escaped_objects, 0);
    assert_int_equal(report.postponed_objects, 0);
    assert_int_equal(cell_total_deaths(), 5);
}

static void test_G32_close_says_what_it_did_not_wait_for(void **state) {
    (void)state;
    waits_for_close = true;
    nd_manager *parent = manager_new(NULL, "parent");
    alarm(300); // else each would wait for the other
    nd_close_report report = close_beside_destruction(parent);
    alarm(0);
    assert_int_equal(report.collected_objects, 0);
    assert_int_equal(report.escaped_objects, 2);
    assert_int_equal(report.postponed_objects, 2);
    assert_int_equal(cell_deaths(3), 1);
    assert_int_equal(collect(parent).collected_objects, 2);
    assert_int_equal(cell_total_deaths(), 5);
    nd_release(parent);
}

static nd_weak *asked;
static atomic_bool answered;
static nd_object *answer;
static bool answered_too_early;
static pthread_t asker;

static void *ask(void *data) {
    (void)data;
    answer = nd_weak_get(asked);
    atomic_store(&answered, true);
    return NULL;
}

/// Another thread asks for a member that the collector is looking at: it must not get an answer
/// before the verdict.
static void ask_when_it_is_time(const nd_object *self) {
    (void)self;
    if (moment++ != release_at)
        return;
    start(&asker, ask, NULL);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    answered_too_early = atomic_load(&answered);
}

static void test_G28_weak_get_waits_while_the_collector_decides(void **state) {
    (void)state;
    // Between steps it would get its answer, and rightly.
    nd_gc_policy at_once = ND_GC_POLICY_INIT;
    at_once.pause_ns = 0;
    assert_ok(nd_manager_set_gc_policy(NULL, &at_once));
    for (int dead = 0; dead < 2; dead++) {
        for (release_at = 0; release_at < 2; release_at++) {
            cell_begin(2);
            nd_object *ring[2] = {cell_new_of(&cell_watched_type, 0, 1),
                                  cell_new_of(&cell_watched_type, 1, 1)};
            cell_ring(ring, 2);
            asked = nd_weak_new(ring[0]);
            nd_release(ring[0]);
            if (dead)
                nd_release(ring[1]);
            atomic_store(&answered, false);
            moment = 0;
            cell_on_traverse = ask_when_it_is_time;
            assert_int_equal(collect(NULL).collected_objects, dead ? 2 : 0);
            cell_on_traverse = NULL;
            pthread_join(asker, NULL);
            assert_false(answered_too_early);
            assert_int_equal(answer != NULL, !dead);
            nd_release(answer);
            if (!dead)
                nd_release(ring[1]);
            collect(NULL);
            assert_int_equal(cell_total_deaths(), 2);
            nd_release(asked);
        }
    }
}

static void test_G33_version_wraps_around(void **state) {
    (void)state;
    cell_begin(2);
    nd_object *ring[2] = {cell_new(0, 1), cell_new(1, 1)};
    for (int i = 0; i < 2; i++) {
        uint64_t count = atomic_load(&ring[i]->word) & UINT32_MAX;
        atomic_store(&ring[i]->word, (UINT64_C(0xFFFFFFFF) << 32) | count);
    }
    cell_ring(ring, 2); // the retains wrap the version
    assert_int_equal(nd_get_count(ring[0]), 2);
    assert_int_equal(nd_get_count(ring[1]), 2);
    assert_int_equal(atomic_load(&ring[0]->word) >> 32, 0);
    assert_int_equal(collect(NULL).collected_objects, 0);
    nd_release(ring[0]);
    nd_release(ring[1]);
    assert_int_equal(collect(NULL).collected_objects, 2);
    assert_int_equal(cell_total_deaths(), 2);
}

int main(void) {
    // Who hops on this thread stands for another one: nothing stands still.
    nd__collection_still_from = SIZE_MAX;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G29_hopping_thread_at_every_interleaving),
        ND_TEST(test_G29_hops_between_any_two_reads),
        ND_TEST(test_G29_signals_wait_for_a_look_and_come_behind_it),
        ND_TEST(test_G30_edge_taken_between_the_reads),
        ND_TEST(test_G32_last_release_while_the_gate_is_closed_loses_nothing),
        ND_TEST(test_G32_destructor_of_what_died_meanwhile_may_close_the_gate),
        ND_TEST(test_G32_close_collects_what_another_thread_lets_go_of),
        ND_TEST(test_G32_close_says_what_it_did_not_wait_for),
        ND_TEST(test_G28_weak_get_waits_while_the_collector_decides),
        ND_TEST(test_G33_version_wraps_around),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
