// The gate by itself: who enters, who waits, and what becomes of an object that dies while it is
// closed.
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <time.h>

static void test_gate_open_is_entered_and_nests(void **state) {
    (void)state;
    nd__gate_enter();
    assert_true(nd__gate_try_enter());
    nd__gate_enter();
    nd__gate_leave();
    nd__gate_leave();
    nd__gate_leave();
    assert_true(nd__gate_try_enter());
    nd__gate_leave();
}

typedef struct writer {
    atomic_int stage; ///< 1: try failed, 2: entered, 3: left
    bool tried;
} writer;

static void *enter_there(void *data) {
    writer *w = data;
    w->tried = nd__gate_try_enter();
    atomic_store(&w->stage, 1);
    nd__gate_enter();
    atomic_store(&w->stage, 2);
    nd__gate_leave();
    atomic_store(&w->stage, 3);
    return NULL;
}

static void pause_for(long milliseconds) {
    nanosleep(&(struct timespec){0, milliseconds * 1000000}, NULL);
}

static void test_gate_closed_holds_writers_until_it_opens(void **state) {
    (void)state;
    writer w = {0};
    pthread_t thread;
    nd__gate_close();
    assert_true(nd__gate_try_enter()); // its owner passes
    nd__gate_leave();
    assert_int_equal(pthread_create(&thread, NULL, enter_there, &w), 0);
    for (int waited = 0; atomic_load(&w.stage) == 0 && waited < 5000; waited++)
        pause_for(1);
    pause_for(20);
    assert_int_equal(atomic_load(&w.stage), 1);
    assert_false(w.tried);
    nd__gate_open();
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&w.stage), 3);
}

static atomic_bool writer_is_inside, writer_may_leave;

static void *stay_inside(void *data) {
    (void)data;
    nd__gate_enter();
    atomic_store(&writer_is_inside, true);
    while (!atomic_load(&writer_may_leave))
        pause_for(1);
    nd__gate_leave();
    return NULL;
}

static void *close_there(void *data) {
    nd__gate_close();
    atomic_store((atomic_bool *)data, true);
    nd__gate_open();
    return NULL;
}

static void test_gate_closes_only_when_writers_have_left(void **state) {
    (void)state;
    atomic_store(&writer_is_inside, false);
    atomic_store(&writer_may_leave, false);
    atomic_bool closed = false;
    pthread_t inside, closer;
    assert_int_equal(pthread_create(&inside, NULL, stay_inside, NULL), 0);
    while (!atomic_load(&writer_is_inside))
        pause_for(1);
    assert_int_equal(pthread_create(&closer, NULL, close_there, &closed), 0);
    pause_for(20);
    assert_false(atomic_load(&closed));
    atomic_store(&writer_may_leave, true);
    pthread_join(closer, NULL);
    pthread_join(inside, NULL);
    assert_true(atomic_load(&closed));
}

/// A dead object in no manager, as nd__gate_park gets it.
static nd_object *dead_object(uint32_t number) {
    nd_object *object = nd__object_new(&cell_type, ND__PAYLOAD + sizeof(cell));
    assert_handle(object);
    atomic_fetch_or(&object->flags, ND__USER);
    cell_of(object)->number = number;
    atomic_store(&object->word, UINT64_C(1) << 32);
    return object;
}

static void test_parked_object_is_buried_after_the_gate_opens(void **state) {
    (void)state;
    cell_begin(2);
    nd__gate_close();
    nd__gate_park(dead_object(0));
    nd__gate_park(dead_object(1));
    assert_int_equal(cell_total_deaths(), 0);
    nd__gate_open();
    nd__gate_destroy_parked();
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(cell_deaths(1), 1);
}

static void test_object_parked_after_the_gate_has_opened_is_buried_at_once(void **state) {
    (void)state;
    // Found the gate closed, and parks when the collector has already buried what there was.
    cell_begin(1);
    nd__gate_park(dead_object(0));
    assert_int_equal(cell_deaths(0), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_gate_open_is_entered_and_nests),
        ND_TEST(test_gate_closed_holds_writers_until_it_opens),
        ND_TEST(test_gate_closes_only_when_writers_have_left),
        ND_TEST(test_parked_object_is_buried_after_the_gate_opens),
        ND_TEST(test_object_parked_after_the_gate_has_opened_is_buried_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
