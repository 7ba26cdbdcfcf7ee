// Weak references around a collection: G26 to G28.
//
// What is promised: weak references to garbage are cleared first, then their callbacks run, with
// all edges of all members still in place; none answers while its object dies, and none answers
// after that.
#include "tests/behaviour/finalized.h"
#include <pthread.h>
#include <stdlib.h>

static nd_object *watched[4];
static nd_weak *watchers[4];
static uint32_t callbacks_run;

static void look_at_the_members(void *data) {
    (void)data;
    callbacks_run++;
    for (int i = 0; i < 3; i++) {
        assert_null(nd_weak_get(watchers[i]));
        const cell *member = cell_of(watched[i]);
        assert_non_null(member);
        assert_ptr_equal(member->edges[0], watched[(i + 1) % 3]);
        assert_ptr_equal(member->edges[1], watched[3]);
    }
    assert_int_equal(cell_total_deaths(), 0);
}

static void test_G26_callbacks_never_see_a_half_cleared_object(void **state) {
    (void)state;
    begin(4);
    callbacks_run = 0;
    finalized_ring(watched, 3, 2);
    watched[3] = cell_new(3, 0);
    for (int i = 0; i < 3; i++)
        cell_link(watched[i], 1, watched[3]);
    for (int i = 0; i < 4; i++) {
        watchers[i] = nd_weak_new(watched[i]);
        assert_ok(nd_weak_set_callback(watchers[i], look_at_the_members, NULL));
    }
    release_all(watched, 4);
    nd_release(watchers[3]); // a released reference is not called
    assert_int_equal(collect(NULL).collected_objects, 4);
    assert_int_equal(callbacks_run, 3);
    for (int i = 0; i < 3; i++) {
        nd_release(watchers[i]);
        assert_int_equal(finalized[i], 1);
    }
}

static void test_G27_weak_reference_inside_a_cycle(void **state) {
    (void)state;
    begin(2);
    nd_object *ring[2] = {cell_new(0, 2), cell_new(1, 2)};
    cell_ring(ring, 2);
    nd_weak *inside = nd_weak_new(ring[1]);
    nd_weak *outside = nd_weak_new(ring[0]);
    cell_link(ring[0], 1, inside);
    nd_release(inside);
    nd_object *got = nd_weak_get(outside);
    assert_ptr_equal(got, ring[0]);
    nd_release(got);
    release_all(ring, 2);
    // A weak reference holds nothing: the ring is still garbage.
    assert_int_equal(collect(NULL).collected_objects, 3);
    assert_null(nd_weak_get(outside));
    nd_release(outside);
    assert_int_equal(cell_total_deaths(), 2);
}

static void test_G27_weak_reference_to_a_member_revives_before_the_collection(void **state) {
    (void)state;
    begin(2);
    nd_object *ring[2] = {cell_new(0, 1), cell_new(1, 1)};
    cell_ring(ring, 2);
    nd_weak *weak = nd_weak_new(ring[1]);
    release_all(ring, 2);
    nd_object *held = nd_weak_get(weak); // garbage, but nobody has collected it
    assert_ptr_equal(held, ring[1]);
    assert_int_equal(collect(NULL).collected_objects, 0);
    nd_release(held);
    assert_int_equal(collect(NULL).collected_objects, 2);
    assert_null(nd_weak_get(weak));
    nd_release(weak);
}

// Every piece of user code that a collection runs asks every weak reference there is.
static nd_weak *asked[3];
static uint32_t answers_while_dying, asked_count;

static void ask(void) {
    for (int i = 0; i < 3; i++) {
        nd_object *answer = nd_weak_get(asked[i]);
        asked_count++;
        answers_while_dying += answer != NULL;
        nd_release(answer);
    }
}

static void ask_from_object(nd_object *self) {
    (void)self;
    ask();
}

static void ask_from_callback(void *data) {
    (void)data;
    ask();
}

static void test_G28_weak_get_at_every_point_of_a_collection(void **state) {
    (void)state;
    begin(3);
    asked_count = answers_while_dying = 0;
    cell_on_finalize = ask_from_object;
    cell_on_destroy = ask_from_object;
    nd_object *ring[3];
    finalized_ring(ring, 3, 1);
    for (int i = 0; i < 3; i++) {
        asked[i] = nd_weak_new(ring[i]);
        assert_ok(nd_weak_set_callback(asked[i], ask_from_callback, NULL));
    }
    release_all(ring, 3);
    assert_int_equal(collect(NULL).collected_objects, 3);
    assert_int_equal(asked_count, 3 * 9);
    assert_int_equal(answers_while_dying, 0);
    for (int i = 0; i < 3; i++)
        nd_release(asked[i]);
}

typedef struct asker {
    nd_weak *weak;
    atomic_bool stop;
    uint64_t got, not_got;
} asker;

static void *ask_without_pause(void *data) {
    asker *a = data;
    while (!atomic_load(&a->stop)) {
        nd_object *got = nd_weak_get(a->weak);
        if (got && cell_of(got)->number != 0)
            abort();
        a->got += got != NULL;
        a->not_got += got == NULL;
        nd_release(got);
    }
    return NULL;
}

static void test_G28_weak_get_from_another_thread_during_collections(void **state) {
    (void)state;
    begin(2);
    for (int round = 0; round < 200; round++) {
        nd_object *ring[2] = {cell_new(0, 1), cell_new(1, 1)};
        cell_ring(ring, 2);
        asker a = {.weak = nd_weak_new(ring[0])};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, ask_without_pause, &a), 0);
        release_all(ring, 2);
        uint64_t before = cell_total_deaths(), died = 0;
        for (int tries = 0; tries < 1000 && died == 0; tries++) {
            collect(NULL);
            died = cell_total_deaths() - before;
        }
        atomic_store(&a.stop, true);
        pthread_join(thread, NULL);
        if (died == 0) // the other thread held it every time
            died = collect(NULL).collected_objects;
        assert_int_equal(died, 2);
        assert_null(nd_weak_get(a.weak));
        nd_release(a.weak);
    }
}

static nd_weak *made_in_finalizer;

static void make_weak(nd_object *self) {
    count_finalized(self);
    if (cell_of(self)->number == 0)
        made_in_finalizer = nd_weak_new(self);
}

static void test_G26_weak_reference_that_a_finalizer_makes_is_empty_afterwards(void **state) {
    (void)state;
    for (int ring = 0; ring < 2; ring++) {
        begin(2);
        cell_on_finalize = make_weak;
        nd_object *cells[2];
        if (ring) {
            finalized_ring(cells, 2, 1);
            nd_release(cells[0]);
            nd_release(cells[1]);
            assert_int_equal(collect(NULL).collected_objects, 2);
        } else {
            nd_release(cell_new_of(&cell_finalized_type, 0, 0));
        }
        assert_int_equal(finalized[0], 1);
        assert_handle(made_in_finalizer);
        assert_null(nd_weak_get(made_in_finalizer));
        assert_int_equal(nd_weak_set_callback(made_in_finalizer, NULL, NULL), ND_ERROR_STATE);
        nd_error_clear();
        nd_release(made_in_finalizer);
    }
}

static void count_call(void *data) {
    ++*(uint32_t *)data;
}

static void test_weak_reference_to_a_dead_object_is_empty_for_good(void **state) {
    (void)state;
    begin(1);
    uint32_t called = 0;
    nd_object *x = cell_new(0, 0);
    nd_weak *weak = nd_weak_new(x), *second = nd_weak_new(x);
    assert_ok(nd_weak_set_callback(second, count_call, &called));
    assert_null(nd_weak_get_tensor(weak)); // alive, but no tensor
    assert_int_equal(nd_get_count(x), 1);
    nd_release(x);
    assert_int_equal(called, 1);
    assert_null(nd_weak_get(weak));
    assert_int_equal(nd_weak_set_callback(weak, count_call, &called), ND_ERROR_STATE);
    nd_release(weak);
    nd_release(second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G26_callbacks_never_see_a_half_cleared_object),
        ND_TEST(test_G27_weak_reference_inside_a_cycle),
        ND_TEST(test_G27_weak_reference_to_a_member_revives_before_the_collection),
        ND_TEST(test_G28_weak_get_at_every_point_of_a_collection),
        ND_TEST(test_G28_weak_get_from_another_thread_during_collections),
        ND_TEST(test_G26_weak_reference_that_a_finalizer_makes_is_empty_afterwards),
        ND_TEST(test_weak_reference_to_a_dead_object_is_empty_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
