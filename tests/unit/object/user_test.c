// Writing types: objects that are filled before anybody sees them, and `traverse` and `clear` made
// from a list of fields.
#include "lib/base/error.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct part {
    nd_list *list;
    nd_object *next;
    int number;
    size_t count;
    nd_object **children; ///< `count` of them, made once
    nd_object *pair[2];
} part;

#define PART_EDGES(ONE, MANY) \
    ONE(list)                 \
    ONE(next)                 \
    MANY(children, self->count) MANY(pair, 2)
ND_TYPE_EDGES(part, PART_EDGES)

static int destroyed, finalized;

static void part_destroy(nd_object *self) {
    part *p = nd_object_get_data(self);
    assert_null(p->list);
    assert_null(p->next);
    for (size_t i = 0; p->children && i < p->count; i++)
        assert_null(p->children[i]);
    free(p->children);
    p->children = NULL;
    destroyed++;
}

static void part_finalize(nd_object *self) {
    (void)self;
    finalized++;
}

static const nd_type part_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "part",
    .traverse = part_traverse,
    .clear = part_clear,
    .finalize = part_finalize,
    .destroy = part_destroy,
};

/// What part_init is told, and what it does beyond.
typedef struct plan {
    nd_object *next;
    size_t children;
    nd_status answer;
    bool collects, sets_error, keeps;
    nd_object *kept;
} plan;

static nd_status part_init(nd_object *self, void *data) {
    plan *plan = data;
    part *p = nd_object_get_data(self);
    assert_null(nd_get_manager(self));
    assert_int_equal(nd_get_count(self), 1);
    p->list = nd_list_new();
    p->next = nd_retain(plan->next); // private: plain writes are fine
    p->pair[0] = nd_retain(plan->next);
    if (plan->collects)
        nd_gc_collect(NULL, NULL);
    p->children = calloc(plan->children + 1, sizeof *p->children);
    assert_non_null(p->children);
    p->count = plan->children;
    for (size_t i = 0; i < plan->children; i++)
        p->children[i] = nd_retain(plan->next);
    if (plan->keeps)
        plan->kept = nd_retain(self);
    if (plan->sets_error)
        nd__error(plan->answer, "init: no such part");
    return plan->answer;
}

static nd_object *part_new(plan *plan) {
    destroyed = finalized = 0;
    return nd_object_new_with(&part_type, sizeof(part), part_init, plan);
}

static void test_object_is_filled_before_anybody_sees_it(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *next = cell_new(0, 0);
    plan plan = {.next = next, .children = 3, .collects = true};
    nd_object *object = part_new(&plan);
    assert_handle(object);
    assert_ptr_equal(nd_get_manager(object), nd_manager_get_root());
    assert_int_equal(nd_get_count(next), 6);
    nd_release(object);
    assert_int_equal(destroyed, 1);
    assert_int_equal(finalized, 1);
    assert_int_equal(nd_get_count(next), 1);
    nd_release(next);
    cell_end();
}

static void test_init_that_fails_leaves_nothing(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *next = cell_new(0, 0);
    plan plan = {.next = next, .children = 2, .answer = ND_ERROR_IO};
    assert_null(part_new(&plan));
    assert_int_equal(nd_error_get_status(), ND_ERROR_IO);
    assert_string_equal(nd_error_get_message(),
                        "object_new_with: the init of a part answered ND_ERROR_IO");
    assert_int_equal(destroyed, 1);
    assert_int_equal(finalized, 0);
    plan.sets_error = true;
    nd_error_clear();
    assert_null(part_new(&plan));
    assert_string_equal(nd_error_get_message(), "init: no such part");
    assert_int_equal(destroyed, 1);
    assert_int_equal(nd_get_count(next), 1);
    nd_error_clear();
    // Who has got hold of it has a closed object.
    plan.keeps = true;
    assert_null(part_new(&plan));
    assert_int_equal(destroyed, 1);
    assert_true(nd_is_closed(plan.kept));
    assert_int_equal(nd_get_count(plan.kept), 1);
    nd_release(plan.kept);
    assert_int_equal(destroyed, 1);
    nd_error_clear();
    nd_release(next);
    cell_end();
}

static void test_manager_that_refuses_a_filled_object_leaves_nothing(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *next = cell_new(0, 0);
    nd_manager *m = nd_manager_new(NULL, "m");
    assert_ok(nd_manager_set_cap(m, 1));
    plan plan = {.next = next};
    nd_with_manager(m) {
        assert_null(part_new(&plan)); // its list is the one that there is room for
    }
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    assert_int_equal(destroyed, 1);
    assert_int_equal(finalized, 0);
    assert_int_equal(nd_get_count(next), 1);
    nd_error_clear();
    assert_null(nd_object_new_with(&part_type, sizeof(part), NULL, NULL));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_null(nd_object_new_with(NULL, 1, part_init, &plan));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    nd_release(m);
    nd_release(next);
    cell_end();
}

static void test_edges_from_a_list_of_fields_are_traversed_and_cleared(void **state) {
    (void)state;
    plan nothing = {0};
    nd_object *end = part_new(&nothing);
    plan plan = {.next = end, .children = 2};
    nd_object *object = part_new(&plan);
    part *p = nd_object_get_data(object), *last = nd_object_get_data(end);
    nd_edge_set(&last->pair[1], object); // a cycle through every field
    assert_ok(nd_list_append(p->list, object));
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    assert_ok(nd_debug_holders(end, stream));
    fclose(stream);
    static const char *const paths[] = {"part -next-> part", "part -children-> part",
                                        "part -pair-> part"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!strstr(text, paths[i]))
            fail_msg("no \"%s\" in:\n%s", paths[i], text);
    assert_non_null(strstr(text, "count 5 = 1 handle of the program + 4 edges"));
    free(text);
    nd_release(object);
    nd_release(end);
    destroyed = 0;
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(NULL, &report));
    assert_int_equal(destroyed, 2);
    assert_int_equal(report.broken_objects, 0);
}

static _Atomic bool stop;

static void *collect(void *data) {
    while (!stop)
        nd_gc_collect(NULL, NULL);
    return data;
}

/// A constructor that needs what it fills at once, beside a collector that never pauses: with
/// nd_object_new it would be traversed while `children` is not there yet.
static void test_objects_are_made_beside_collections(void **state) {
    (void)state;
    pthread_t thread;
    stop = false;
    assert_int_equal(pthread_create(&thread, NULL, collect, NULL), 0);
    nd_object *chain = NULL;
    for (int i = 0; i < 2000 / ND_TEST_SCALE; i++) {
        plan plan = {.next = chain, .children = 4};
        nd_object *object = part_new(&plan);
        assert_handle(object);
        nd_release(chain);
        chain = object;
    }
    stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    nd_release(chain);
}

static void test_a_type_with_unknown_flags_is_refused(void **state) {
    (void)state;
    static const nd_type odd = {
        .size = sizeof(nd_type), .version = 1, .name = "odd", .flags = ND_TYPE_GREEN | 1u << 20};
    assert_null(nd_object_new(&odd, 8));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(nd_error_get_message(), "nothing is known by 0x100000"));
    nd_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_object_is_filled_before_anybody_sees_it),
        ND_TEST(test_init_that_fails_leaves_nothing),
        ND_TEST(test_manager_that_refuses_a_filled_object_leaves_nothing),
        ND_TEST(test_edges_from_a_list_of_fields_are_traversed_and_cleared),
        ND_TEST(test_objects_are_made_beside_collections),
        ND_TEST(test_a_type_with_unknown_flags_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
