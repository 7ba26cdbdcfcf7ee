// Types that lie, counts that break, uses after close: G40 to G42, F4 and F14 to F16. Nothing that
// is alive may be freed; what cannot be answered stops the program with a sentence that names the
// object.
#include "lib/base/alloc.h"
#include "lib/gc/collection.h"
#include "lib/object/object.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static nd_status collect_into(nd_gc_report *report) {
    *report = (nd_gc_report)ND_GC_REPORT_INIT;
    return nd_gc_collect(NULL, report);
}

static uint64_t collect(void) {
    nd_gc_report report;
    assert_ok(collect_into(&report));
    return report.collected_objects;
}

// ------------------------------------------------------------------------------------------ liars

// Reports its first edge `reported` times, and the others truly.
static int reported = 1;

static void liar_traverse(const nd_object *self, nd_visitor *visitor) {
    const cell *c = cell_of(self);
    for (uint32_t i = 0; i < atomic_load(&c->count); i++)
        for (int times = 0; times < (i == 0 ? reported : 1); times++)
            nd_visit(visitor, c->edges[i], "edge");
}

static nd_type liar_type;

static nd_object *liar_new(uint32_t number, uint32_t edges) {
    liar_type = cell_type;
    liar_type.name = "liar";
    liar_type.traverse = liar_traverse;
    return cell_new_of(&liar_type, number, edges);
}

static void test_G40_too_many_edges_are_detected_and_named(void **state) {
    (void)state;
    cell_begin(4);
    nd_object *ring[2] = {liar_new(0, 1), cell_new(1, 1)};
    cell_ring(ring, 2);
    cell_drop_ring(2, 2); // honest garbage beside it
    nd_release(ring[0]);
    nd_release(ring[1]);
    reported = 2;
    nd_gc_report report;
    assert_int_equal(collect_into(&report), ND_ERROR_STATE);
    // What has fewer counts than reports is the victim; a cell here.
    assert_non_null(strstr(nd_error_get_message(), "cell"));
    assert_int_equal(report.broken_objects, 1);
    assert_int_equal(report.collected_objects, 2);
    assert_int_equal(cell_deaths(0) + cell_deaths(1), 0);
    reported = 1;
    assert_int_equal(collect(), 2);
    assert_int_equal(cell_total_deaths(), 4);
}

static void test_G40_the_first_of_several_broken_types_is_named(void **state) {
    (void)state;
    cell_begin(4);
    nd_object *rings[2][2];
    for (uint32_t i = 0; i < 2; i++) {
        rings[i][0] = liar_new(2 * i, 1);
        rings[i][1] = cell_new(2 * i + 1, 1);
        cell_ring(rings[i], 2);
    }
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            nd_release(rings[i][k]);
    reported = 2;
    nd_gc_report report;
    assert_int_equal(collect_into(&report), ND_ERROR_STATE);
    reported = 1;
    assert_non_null(strstr(nd_error_get_message(), "reported to a cell"));
    assert_int_equal(report.broken_objects, 2);
    assert_int_equal(report.collected_objects, 0);
    assert_int_equal(collect(), 4);
}

static void test_G40_too_many_edges_never_free_what_is_held(void **state) {
    (void)state;
    // The lie adds up: the victim's count is 2, an edge and a handle, and the liar reports the edge
    // twice.
    cell_begin(3);
    nd_object *ring[2] = {liar_new(0, 1), cell_new(1, 2)};
    nd_object *behind = cell_new(2, 0);
    cell_ring(ring, 2);
    cell_link(ring[1], 1, behind);
    nd_release(ring[0]);
    reported = 2;
    nd_gc_report report;
    collect_into(&report);
    reported = 1;
    assert_int_equal(cell_deaths(2), 0);
    assert_true(nd_get_count(behind) >= 1);
    assert_true(nd_get_count(ring[1]) >= 1);
    assert_true(report.broken_objects >= 1);
    nd_release(behind);
    nd_release(ring[1]);
    assert_int_equal(collect_into(&report), ND_OK);
    assert_int_equal(cell_total_deaths(), 3);
}

// Reports an object that it does not hold.
typedef struct pointer {
    nd_object *target;
} pointer;

static void pointer_traverse(const nd_object *self, nd_visitor *visitor) {
    nd_visit(visitor, ((const pointer *)nd_object_get_data(self))->target, "target");
}

static const nd_type pointer_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "pointer",
    .traverse = pointer_traverse,
};

static void check_edge_to_what_was_settled(size_t still_from) {
    size_t batch = nd__collection_batch, still_from_before = nd__collection_still_from;
    nd__collection_batch = 1;
    nd__collection_still_from = still_from;
    cell_begin(2);
    nd_object *ring[2] = {cell_new(0, 1), cell_new(1, 1)};
    cell_ring(ring, 2);
    nd_object *later = nd_object_new(&pointer_type, sizeof(pointer));
    pointer *data = nd_object_get_data(later);
    data->target = ring[1];
    nd_release(ring[0]);
    nd_release(ring[1]);
    nd_gc_report report;
    assert_int_equal(collect_into(&report), ND_ERROR_STATE);
    assert_non_null(strstr(nd_error_get_message(), "cell"));
    assert_int_equal(report.broken_objects, 1);
    assert_int_equal(cell_total_deaths(), 0);
    data->target = NULL;
    assert_int_equal(collect(), 2);
    nd_release(later);
    nd__collection_batch = batch;
    nd__collection_still_from = still_from_before;
}

static void test_G40_edge_that_is_not_held_to_what_was_settled_before(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    check_edge_to_what_was_settled(SIZE_MAX);
    check_edge_to_what_was_settled(1);
}

static void test_G41_forgotten_edge_leaks_only_that(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(7);
    nd_object *ring[2] = {liar_new(0, 2), cell_new(1, 1)};
    nd_object *alive = cell_new(2, 0), *beside = cell_new(3, 0);
    cell_ring(ring, 2);
    cell_link(ring[0], 1, beside);
    cell_drop_ring(4, 2);
    nd_object *holder = liar_new(6, 1);
    cell_link(holder, 0, alive);
    nd_release(beside);
    nd_release(ring[0]);
    nd_release(ring[1]);
    reported = 0;
    // The forgotten edge looks like a handle from outside: its target stays, and what that reaches.
    assert_int_equal(collect(), 2);
    for (uint32_t number = 0; number < 4; number++)
        assert_int_equal(cell_deaths(number), 0);
    assert_int_equal(nd_get_count(alive), 2);
    nd_release(alive);
    assert_int_equal(collect(), 0);
    assert_int_equal(cell_deaths(2), 0);
    nd_release(holder);
    assert_int_equal(cell_deaths(2), 1);
    reported = 1;
    assert_int_equal(collect(), 3);
    for (uint32_t number = 0; number < 7; number++)
        assert_int_equal(cell_deaths(number), 1);
}

// ----------------------------------------------------------------------------------------- memory

static int64_t allocations_left;
static uint64_t refused;

static bool fail_after_some(size_t bytes) {
    (void)bytes;
    if (allocations_left-- > 0)
        return false;
    refused++;
    return true;
}

static void test_G42_no_memory_for_the_passes(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    bool done = false;
    for (int64_t n = 0; !done; n++) {
        cell_begin(3);
        cell_drop_ring(0, 3);
        uint64_t objects = nd_manager_get_total_objects(NULL);
        allocations_left = n;
        refused = 0;
        nd__alloc_should_fail = fail_after_some;
        nd_gc_report report;
        nd_status status = collect_into(&report);
        nd__alloc_should_fail = NULL;
        done = refused == 0;
        if (n == 0)
            assert_false(done);
        if (status != ND_OK) {
            assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
            assert_int_equal(report.collected_objects, 0);
            assert_int_equal(cell_total_deaths(), 0);
            assert_int_equal(nd_manager_get_total_objects(NULL), objects);
            assert_int_equal(collect(), 3);
        }
        assert_int_equal(cell_total_deaths(), 3);
        assert_in_range(n, 0, 100);
    }
}

static void test_G42_boundary_without_memory_closes_all_the_same(void **state) {
    (void)state;
    cell_begin(3);
    nd_gc_set_mode(ND_GC_ON);
    nd_manager *m = nd_manager_new(NULL, "m");
    nd_with_manager(m) {
        cell_drop_ring(0, 3);
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    allocations_left = 0;
    nd__alloc_should_fail = fail_after_some;
    nd_status status = nd_manager_close(m, &report);
    nd__alloc_should_fail = NULL;
    assert_ok(status);
    assert_false(nd_manager_is_open(m));
    assert_int_equal(report.collected_objects, 0);
    assert_int_equal(report.escaped_objects, 3);
    nd_release(m);
    assert_int_equal(collect(), 3);
}

static uint64_t cycles_told;

static void note_cycle(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)bytes;
    (void)data;
    assert_true(strlen(path) > 0 && objects > 0);
    cycles_told++;
}

static void collect_from_finalizer(nd_object *self) {
    (void)self;
    nd_gc_collect(NULL, NULL);
}

static void test_F04_every_allocation_inside_a_collection_fails_once(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    nd_gc_set_cycle_callback(note_cycle, NULL);
    bool done = false;
    for (int64_t n = 0; !done; n++) {
        // Paths to be explained, a weak reference with a callback, a finalizer that asks for
        // another collection.
        cell_begin(6);
        cell_on_finalize = collect_from_finalizer;
        cell_drop_ring(0, 3);
        nd_object *ring[3];
        for (uint32_t i = 0; i < 3; i++)
            ring[i] = cell_new_of(&cell_finalized_type, 3 + i, 1);
        cell_ring(ring, 3);
        nd_weak *weak = nd_weak_new(ring[0]);
        for (uint32_t i = 0; i < 3; i++)
            nd_release(ring[i]);
        allocations_left = n;
        refused = 0;
        cycles_told = 0;
        nd__alloc_should_fail = fail_after_some;
        nd_gc_report report;
        nd_status status = collect_into(&report);
        nd__alloc_should_fail = NULL;
        done = refused == 0;
        if (done) {
            assert_ok(status);
            assert_int_equal(cycles_told, 2);
        }
        assert_in_range(n, 0, 200);
        if (status != ND_OK)
            assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
        collect();
        for (uint32_t number = 0; number < 6; number++)
            assert_int_equal(cell_deaths(number), 1);
        assert_null(nd_weak_get(weak));
        nd_release(weak);
    }
    nd_gc_set_cycle_callback(NULL, NULL);
}

// ------------------------------------------------------------------------------------------- fatal

typedef void (*crime)(void);

static char confession[512];

/// Runs the crime in a child. True when the child was stopped by SIGABRT; its last words are in
/// `confession`.
static bool stops_the_program(crime commit) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        commit();
        _exit(0);
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

static void set_count(nd_object *object, uint32_t count) {
    uint64_t word = atomic_load(&object->word);
    atomic_store(&object->word, (word & ~(uint64_t)UINT32_MAX) | count);
}

static void retain_once_too_often(void) {
    nd_object *x = cell_new(0, 0);
    set_count(x, INT32_MAX);
    nd_object *again = nd_retain(x);
    (void)again;
}

static void retain_in_destructor(nd_object *self) {
    nd_object *again = nd_retain(self);
    (void)again;
}

static void revive_the_dead(void) {
    cell_on_destroy = retain_in_destructor;
    nd_release(cell_new(0, 0));
}

static void release_in_destructor(nd_object *self) {
    nd_object_release(self);
}

static void release_the_dead(void) {
    cell_on_destroy = release_in_destructor;
    nd_release(cell_new(0, 0));
}

static void commit_nothing(void) {
    nd_release(cell_new(0, 0));
}

static void test_F14_count_overflow_and_use_of_the_dead_stop_the_program(void **state) {
    (void)state;
    cell_begin(1);
    assert_false(stops_the_program(commit_nothing));
    assert_string_equal(confession, "");
    static const struct {
        crime commit;
        const char *word;
    } crimes[] = {
        {retain_once_too_often, "overflow"},
        {revive_the_dead, "retain of a dead"},
        {release_the_dead, "release of a dead"},
    };
    for (size_t i = 0; i < sizeof crimes / sizeof crimes[0]; i++) {
        assert_true(stops_the_program(crimes[i].commit));
        assert_non_null(strstr(confession, crimes[i].word));
        assert_non_null(strstr(confession, "cell"));
    }
}

static void test_F14_largest_count_is_usable(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    set_count(x, INT32_MAX - 1);
    nd_object *again = nd_retain(x);
    assert_int_equal(nd_get_count(x), INT32_MAX);
    nd_release(again);
    set_count(x, 1);
    nd_release(x);
    assert_int_equal(cell_deaths(0), 1);
}

// --------------------------------------------------------------------------------- use after close

static void test_F15_closed_object(void **state) {
    (void)state;
    cell_begin(3);
    nd_object *x = cell_new(0, 1), *target = cell_new(1, 0);
    cell_link(x, 0, target);
    nd_weak *weak = nd_weak_new(x);
    assert_ok(nd_close(x));
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(nd_get_count(target), 1); // its edge is gone
    nd_error_clear();
    assert_null(nd_object_get_data(x));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    assert_non_null(strstr(nd_error_get_message(), "cell"));
    assert_ptr_equal(nd_object_get_type(x), &cell_type);
    assert_string_equal(nd_get_type_name(x), "cell");
    // A closed object is still an object: counted, managed, weakly referenced.
    nd_object *again = nd_weak_get(weak);
    assert_ptr_equal(again, x);
    nd_release(again);
    nd_manager *m = nd_manager_new(NULL, "m");
    assert_ok(nd_manager_attach(m, x));
    assert_int_equal(collect(), 0);
    assert_ok(nd_close(x));
    nd_release(x);
    assert_null(nd_weak_get(weak));
    assert_int_equal(cell_deaths(0), 1);
    nd_release(weak);
    nd_release(target);
    assert_ok(nd_manager_close(m, NULL));
    nd_release(m);
}

static void test_F15_closed_list_resource_and_weak_reference(void **state) {
    (void)state;
    static char nowhere[1];
    static const nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1};
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    nd_list *list = nd_list_new();
    nd_resource *resource = nd_resource_new("buffer", nowhere, 77, &callbacks);
    nd_weak *weak = nd_weak_new(x);
    assert_ok(nd_list_append(list, x));
    assert_int_equal(nd_get_count(x), 2);
    assert_ok(nd_close(list));
    assert_ok(nd_close(resource));
    assert_ok(nd_close(weak));
    assert_int_equal(nd_get_count(x), 1);
    nd_error_clear();
    assert_int_equal(nd_list_append(list, x), ND_ERROR_CLOSED);
    assert_int_equal(nd_list_clear(list), ND_ERROR_CLOSED);
    nd_error_clear();
    assert_null(nd_list_get(list, 0));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    nd_error_clear();
    assert_null(nd_resource_get(resource));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    nd_error_clear();
    assert_null(nd_weak_get(weak));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    assert_int_equal(nd_weak_set_callback(weak, NULL, NULL), ND_ERROR_CLOSED);
    nd_release(list);
    nd_release(resource);
    nd_release(weak);
    nd_release(x);
}

static void test_F15_closed_member_of_a_cycle(void **state) {
    (void)state;
    cell_begin(3);
    nd_object *ring[3] = {cell_new(0, 1), cell_new(1, 1), cell_new(2, 1)};
    cell_ring(ring, 3);
    nd_release(ring[1]);
    nd_release(ring[2]);
    assert_ok(nd_close(ring[0])); // cuts the ring: 1 dies, and 2 with it
    assert_int_equal(cell_total_deaths(), 3);
    assert_int_equal(collect(), 0);
    nd_release(ring[0]);
}

static uint32_t finalized;

static void count_finalizers(nd_object *self) {
    (void)self;
    finalized++;
}

static void test_F15_finalizer_never_sees_a_closed_object(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(4);
    cell_on_finalize = count_finalizers;
    finalized = 0;
    nd_object *alone = cell_new_of(&cell_finalized_type, 0, 0);
    assert_ok(nd_close(alone));
    nd_release(alone);
    nd_object *ring[2] = {cell_new(1, 1), cell_new(2, 2)};
    nd_object *behind = cell_new_of(&cell_finalized_type, 3, 0);
    cell_ring(ring, 2);
    cell_link(ring[1], 1, behind);
    assert_ok(nd_close(behind));
    nd_release(behind);
    nd_release(ring[0]);
    nd_release(ring[1]);
    assert_int_equal(collect(), 3);
    assert_int_equal(finalized, 0);
    assert_int_equal(cell_total_deaths(), 4);
}

// ------------------------------------------------------------------------------------------- F16

typedef struct last_release {
    nd_object *object;
    nd_weak *weak;
    pthread_barrier_t barrier;
    int rounds;
    uint64_t got;
} last_release;

static void *upgrade_at_the_last_moment(void *data) {
    last_release *r = data;
    for (int i = 0; i < r->rounds; i++) {
        pthread_barrier_wait(&r->barrier);
        nd_object *got = nd_weak_get(r->weak);
        if (got) {
            if (nd_get_count(got) == 0 || cell_of(got)->number != (uint32_t)i)
                abort();
            r->got++;
            nd_release(got);
        }
        pthread_barrier_wait(&r->barrier);
    }
    return NULL;
}

static void test_F16_weak_upgrade_racing_the_last_release(void **state) {
    (void)state;
    enum { ROUNDS = 10000 / ND_TEST_SCALE };
    cell_begin(ROUNDS);
    last_release r = {.rounds = ROUNDS};
    pthread_barrier_init(&r.barrier, NULL, 2);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, upgrade_at_the_last_moment, &r), 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        r.object = cell_new(i, 0);
        r.weak = nd_weak_new(r.object);
        pthread_barrier_wait(&r.barrier);
        for (volatile uint32_t spin = i % 64; spin > 0; spin--)
            ;
        nd_release(r.object);
        pthread_barrier_wait(&r.barrier);
        assert_int_equal(cell_deaths(i), 1);
        nd_release(r.weak);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&r.barrier);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G40_too_many_edges_are_detected_and_named),
        ND_TEST(test_G40_the_first_of_several_broken_types_is_named),
        ND_TEST(test_G40_too_many_edges_never_free_what_is_held),
        ND_TEST(test_G40_edge_that_is_not_held_to_what_was_settled_before),
        ND_TEST(test_G41_forgotten_edge_leaks_only_that),
        ND_TEST(test_G42_no_memory_for_the_passes),
        ND_TEST(test_G42_boundary_without_memory_closes_all_the_same),
        ND_TEST(test_F04_every_allocation_inside_a_collection_fails_once),
        ND_TEST(test_F14_count_overflow_and_use_of_the_dead_stop_the_program),
        ND_TEST(test_F14_largest_count_is_usable),
        ND_TEST(test_F15_closed_object),
        ND_TEST(test_F15_closed_list_resource_and_weak_reference),
        ND_TEST(test_F15_closed_member_of_a_cycle),
        ND_TEST(test_F15_finalizer_never_sees_a_closed_object),
        ND_TEST(test_F16_weak_upgrade_racing_the_last_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
