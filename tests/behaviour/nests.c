// Managers one below the other that are closed one by one, from the innermost outwards, with
// survivors in each (B29). What escaped below is handed up with the shard that it is in: what that
// costs is counted by looking which objects have been told another shard.
#include "lib/manager/manager.h"
#include "tests/behaviour/helpers.h"
#include <stdlib.h>
#include <time.h>

enum { FEW = 32 }; // escape.c: MANY

/// Objects whose shards are watched.
typedef struct survivors {
    nd_object **objects;
    nd_shard **shards;
    size_t count, capacity;
    uint64_t moves;
} survivors;

static survivors survivors_of(size_t capacity) {
    survivors s = {.objects = calloc(capacity, sizeof(nd_object *)),
                   .shards = calloc(capacity, sizeof(nd_shard *)),
                   .capacity = capacity};
    assert_true(s.objects && s.shards);
    return s;
}

static void watch(survivors *s, void *object) {
    assert_true(s->count < s->capacity);
    s->objects[s->count] = object;
    s->shards[s->count++] = nd__object_shard(object);
}

/// All of them are in this manager now. Adds up who was told another shard since the last time.
static void look(survivors *s, const nd_manager *manager) {
    for (size_t i = 0; i < s->count; i++) {
        nd_shard *shard = nd__object_shard(s->objects[i]);
        s->moves += shard != s->shards[i];
        s->shards[i] = shard;
        if (nd_get_manager(s->objects[i]) != manager)
            fail_msg("survivor %zu is in manager %s, not %s", i,
                     nd_manager_get_name(nd_get_manager(s->objects[i])),
                     nd_manager_get_name(manager));
    }
}

static void let_go(survivors *s) {
    for (size_t i = 0; i < s->count; i++)
        nd_release(s->objects[i]);
    free(s->objects);
    free(s->shards);
}

/// A survivor of a manager: tracked, green, or with ten bytes.
static void *survivor_in(const nd_manager *manager, size_t number) {
    return number % 3 == 2 ? (void *)bytes_in(manager, 10)
                           : (void *)cell_in(manager, 0, number % 3 == 0);
}

/// Closes a nest of so many managers with a survivor each; returns how often one was moved.
static uint64_t moves_of_a_nest(size_t depth) {
    nd_manager **nest = calloc(depth, sizeof(nd_manager *));
    survivors s = survivors_of(depth);
    assert_non_null(nest);
    for (size_t i = 0; i < depth; i++)
        nest[i] = manager_new(i ? nest[i - 1] : NULL, "nested");
    uint64_t bytes = 0;
    for (size_t i = depth; i-- > 0;) {
        bytes += i % 3 == 2 ? 10 : 0;
        watch(&s, survivor_in(nest[i], i));
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        assert_ok(nd_manager_close(nest[i], &report));
        assert_int_equal(report.escaped_objects, s.count);
        assert_int_equal(report.escaped_bytes, bytes);
        look(&s, i ? nest[i - 1] : nd_manager_get_root());
        assert_balanced(nest[i]);
        assert_int_equal(stats_of(nest[i]).live_objects, 0);
        assert_int_equal(stats_of(nest[i]).escaped_objects, s.count);
        assert_int_equal(nd_manager_get_total_bytes(nest[i]), 0);
        if (i)
            assert_int_equal(nd_manager_get_total_bytes(nest[i - 1]), bytes);
        if (i % 64 == 0)
            assert_ok(nd_debug_check());
    }
    for (size_t i = 0; i < depth; i++)
        nd_release(nest[i]);
    free(nest);
    let_go(&s);
    return s.moves;
}

static void test_B29_closing_from_the_innermost_outwards_is_linear(void **state) {
    (void)state;
    enum { DEPTH = 300, TIMES = 8 };
    nd_test_collects_by_policy();
    for (int mode = ND_GC_OFF; mode <= ND_GC_ON; mode++) {
        nd_gc_set_mode((nd_gc_mode)mode);
        cell_begin(1);
        // Before they are more than a few each close moves all of them, then one or two.
        uint64_t moves = moves_of_a_nest(DEPTH), more = moves_of_a_nest(TIMES * DEPTH);
        assert_in_range(moves, DEPTH, FEW * FEW + 2 * DEPTH);
        assert_in_range(more, TIMES * DEPTH, FEW * FEW + 2 * TIMES * DEPTH);
    }
}

/// Closes a full binary tree of managers from the leaves up, each with survivors; returns how often
/// one was moved.
static uint64_t moves_of_a_tree(size_t levels, size_t each) {
    size_t count = ((size_t)1 << levels) - 1;
    nd_manager **tree = calloc(count, sizeof(nd_manager *));
    survivors s = survivors_of(count * each);
    assert_non_null(tree);
    for (size_t i = 0; i < count; i++)
        tree[i] = manager_new(i ? tree[(i - 1) / 2] : NULL, "in a tree");
    for (size_t i = count; i-- > 0;) {
        for (size_t k = 0; k < each; k++)
            watch(&s, survivor_in(tree[i], k));
        size_t below = s.count;
        assert_ok(nd_manager_close(tree[i], NULL));
        for (size_t k = 0; k < below; k++) {
            nd_shard *shard = nd__object_shard(s.objects[k]);
            s.moves += shard != s.shards[k];
            s.shards[k] = shard;
        }
        assert_balanced(tree[i]);
        nd_release(tree[i]);
    }
    look(&s, nd_manager_get_root());
    assert_ok(nd_debug_check());
    free(tree);
    let_go(&s);
    return s.moves;
}

static void test_B29_of_two_shards_the_smaller_one_moves(void **state) {
    (void)state;
    enum { LEVELS = 7, EACH = 40 };
    nd_test_collects_by_policy();
    cell_begin(1);
    uint64_t objects = ((UINT64_C(1) << LEVELS) - 1) * EACH;
    assert_in_range(moves_of_a_tree(LEVELS, EACH), objects, objects * LEVELS);
}

static void test_B29_a_manager_with_a_cap_takes_what_is_handed_up(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(1);
    nd_manager *outer = manager_new(NULL, "outer"), *capped = manager_new(outer, "capped"),
               *inner = manager_new(capped, "inner"), *innermost = manager_new(inner, "innermost");
    survivors s = survivors_of(4 * FEW);
    for (size_t i = 0; i < 2 * FEW; i++)
        watch(&s, survivor_in(innermost, i));
    close_and_release(innermost);
    assert_ok(nd_manager_set_cap(capped, 1));
    for (size_t i = 0; i < 2 * FEW; i++)
        watch(&s, survivor_in(inner, i));
    assert_int_equal(close_and_release(inner).escaped_objects, 4 * FEW);
    look(&s, capped);
    nd_object *refused = NULL;
    nd_with_manager(capped) refused = cell_new(0, 0);
    assert_null(refused);
    nd_error_clear();
    assert_ok(nd_debug_check());
    assert_int_equal(close_and_release(capped).escaped_objects, 4 * FEW);
    look(&s, outer);
    assert_ok(nd_debug_check());
    close_and_release(outer);
    let_go(&s);
}

/// A manager below `parent` to which many objects were handed up.
static nd_manager *manager_with(const nd_manager *parent, survivors *s, size_t count) {
    nd_manager *manager = manager_new(parent, "middle"), *child = manager_new(manager, "child"),
               *grandchild = manager_new(child, "grandchild");
    for (size_t i = 0; i < count; i++)
        watch(s, survivor_in(grandchild, i));
    close_and_release(grandchild);
    close_and_release(child);
    look(s, manager);
    return manager;
}

static void test_B29_what_was_handed_up_moves_on_and_comes_back(void **state) {
    (void)state;
    enum { COUNT = 4 * FEW };
    cell_begin(1);
    nd_manager *outer = manager_new(NULL, "outer"), *other = manager_new(outer, "other");
    survivors s = survivors_of(COUNT);
    nd_manager *middle = manager_with(outer, &s, COUNT);
    for (size_t i = 0; i < COUNT; i += 2)
        assert_ok(i % 4 ? nd_manager_attach(other, s.objects[i])
                        : nd_manager_lend(other, s.objects[i]));
    assert_int_equal(stats_of(other).live_objects, COUNT / 2);
    assert_ok(nd_debug_check());
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(other, &report));
    assert_int_equal(report.returned_objects, COUNT / 4);
    assert_int_equal(report.escaped_objects, COUNT / 4);
    nd_release(other);
    assert_int_equal(stats_of(middle).live_objects, COUNT * 3 / 4);
    assert_ok(nd_debug_check());
    assert_ok(nd_manager_dispose(middle, NULL));
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(nd_is_closed(s.objects[i]), i % 4 != 2);
    look(&s, outer);
    nd_release(middle);
    close_and_release(outer);
    let_go(&s);
}

static void test_B31_garbage_that_was_handed_up_is_found_a_step_later(void **state) {
    (void)state;
    enum { RING = 3 * FEW };
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(RING);
    nd_manager *outer = manager_new(NULL, "outer"), *middle = manager_new(outer, "middle"),
               *step = manager_new(middle, "step");
    nd_object *ring[RING];
    nd_with_manager(step) for (uint32_t i = 0; i < RING; i++) ring[i] = cell_new(i, 1);
    cell_ring(ring, RING);
    for (uint32_t i = 1; i < RING; i++)
        nd_release(ring[i]);
    assert_int_equal(close_and_release(step).escaped_objects, RING);
    nd_close_report report = close_and_release(middle);
    assert_int_equal(report.escaped_objects, RING);
    assert_ptr_equal(nd_get_manager(ring[1]), outer);
    nd_release(ring[0]);
    assert_int_equal(cell_total_deaths(), 0);
    assert_int_equal(close_and_release(manager_new(outer, "next")).collected_objects, RING);
    close_and_release(outer);
}

static nd_close_report report_of_inner_close;
static nd_manager *to_close;

static void close_it(void *data) {
    (void)data;
    report_of_inner_close = (nd_close_report)ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(to_close, &report_of_inner_close));
}

static void test_B29_what_is_dying_does_not_escape(void **state) {
    (void)state;
    enum { COUNT = 2 * FEW };
    nd_test_collects_by_policy();
    cell_begin(1);
    survivors s = survivors_of(COUNT);
    nd_manager *middle = manager_with(NULL, &s, COUNT);
    to_close = middle;
    // Its callback runs while the object, whose count is zero, is still in its manager.
    nd_weak *weak = nd_weak_new(s.objects[0]);
    assert_ok(nd_weak_set_callback(weak, close_it, NULL));
    nd_release(s.objects[0]);
    s.objects[0] = NULL;
    assert_int_equal(report_of_inner_close.escaped_objects, COUNT - 1);
    nd_release(weak);
    nd_release(middle);
    let_go(&s);
}

static double processor_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/// Processor time of closing so many managers, each below the one before, with a survivor in each;
/// every hundredth has bytes.
static double seconds_to_close_nested(int count) {
    nd_manager **nest = calloc((size_t)count, sizeof(nd_manager *));
    void **held = calloc((size_t)count, sizeof(void *));
    assert_true(nest && held);
    for (int i = 0; i < count; i++) {
        nest[i] = manager_new(i ? nest[i - 1] : NULL, "nested");
        held[i] = i % 100 ? (void *)cell_in(nest[i], 0, 1) : (void *)bytes_in(nest[i], 10);
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    double begun = processor_seconds();
    assert_ok(nd_manager_close(nest[0], &report));
    double seconds = processor_seconds() - begun;
    assert_int_equal(report.escaped_objects, count);
    assert_int_equal(report.escaped_bytes, 10 * ((count + 99) / 100));
    for (int i = 0; i < count; i++) {
        assert_int_equal(nd_manager_get_total_bytes(nest[i]), 0);
        assert_ptr_equal(nd_get_manager(held[i]), nd_manager_get_root());
        nd_release(held[i]);
        nd_release(nest[i]);
    }
    free(held);
    free(nest);
    return seconds;
}

static double least_of_three(int count) {
    double least = seconds_to_close_nested(count);
    for (int i = 0; i < 2; i++) {
        double seconds = seconds_to_close_nested(count);
        least = seconds < least ? seconds : least;
    }
    return least;
}

static void test_B29_closing_nested_managers_is_linear(void **state) {
    (void)state;
    enum { SMALL = 2000, TIMES = 10 };
    nd_test_collects_by_policy();
    for (int mode = ND_GC_OFF; mode <= ND_GC_ON; mode++) {
        nd_gc_set_mode((nd_gc_mode)mode);
        cell_begin(1);
        double few = least_of_three(SMALL), many = least_of_three(TIMES * SMALL);
        // Linear: 10 times as long, or 20 as less is in the caches. A walk up from each: 100 times.
        if (many > 50 * few && many > 0.5)
            fail_msg("%d managers take %.3f s, %d take %.3f s", SMALL, few, TIMES * SMALL, many);
    }
}

static void test_B29_survivors_pass_managers_that_do_not_collect(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(5);
    // Off but for the second, which has to see what survives in the two below it.
    nd_manager *nest[5];
    nd_object *ring[2];
    for (int i = 0; i < 5; i++)
        nest[i] = manager_new(i ? nest[i - 1] : NULL, "nested");
    assert_ok(nd_manager_set_gc_mode(nest[1], ND_GC_ON));
    assert_ok(nd_manager_set_gc_mode(nest[2], ND_GC_OFF));
    ring[0] = cell_in(nest[1], 0, 1);
    ring[1] = cell_in(nest[3], 1, 1);
    cell_ring(ring, 2);
    nd_object *held = cell_in(nest[4], 2, 0);
    nd_resource *bytes[2] = {bytes_in(nest[4], 100), bytes_in(nest[2], 10)};
    nd_release(ring[0]);
    nd_release(ring[1]);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(nest[0], &report));
    assert_int_equal(report.collected_objects, 2);
    assert_int_equal(report.escaped_objects, 3);
    assert_int_equal(report.escaped_bytes, 110);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(nd_manager_get_total_bytes(nest[i]), 0);
        nd_release(nest[i]);
    }
    nd_release(held);
    nd_release(bytes[0]);
    nd_release(bytes[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B29_closing_from_the_innermost_outwards_is_linear),
        ND_TEST(test_B29_of_two_shards_the_smaller_one_moves),
        ND_TEST(test_B29_a_manager_with_a_cap_takes_what_is_handed_up),
        ND_TEST(test_B29_what_was_handed_up_moves_on_and_comes_back),
        ND_TEST(test_B31_garbage_that_was_handed_up_is_found_a_step_later),
        ND_TEST(test_B29_what_is_dying_does_not_escape),
        ND_TEST(test_B29_closing_nested_managers_is_linear),
        ND_TEST(test_B29_survivors_pass_managers_that_do_not_collect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
