// Edges of what is being closed or destroyed: whoever would set one is refused, because nobody
// clears it any more.
#include "lib/base/alloc.h"
#include "tests/testing.h"

typedef struct box {
    nd_object *edge;
    nd_object *other;  ///< borrowed: what `destroy` puts into an edge of `into`, or of its own
    nd_object *into;   ///< borrowed
    nd_object *closed; ///< borrowed: what `destroy` closes
} box;

static nd_status status_in_destroy;

static void box_traverse(const nd_object *self, nd_visitor *visitor) {
    const box *b = nd_object_get_data(self);
    nd_visit(visitor, b->edge, "edge");
}

static void box_clear(nd_object *self) {
    box *b = nd_object_get_data(self);
    nd_edge_clear(&b->edge);
}

static void box_destroy(nd_object *self) {
    box *b = nd_object_get_data(self);
    box *into = b->into ? nd_object_get_data(b->into) : b;
    if (b->closed)
        nd_close(b->closed);
    if (!b->other)
        return;
    nd_error_clear();
    nd_edge_set(&into->edge, b->other);
    status_in_destroy = nd_error_get_status();
    nd_error_clear();
}

static const nd_type box_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "box",
    .traverse = box_traverse,
    .clear = box_clear,
    .destroy = box_destroy,
};

static nd_object *box_new(nd_object *other, nd_object *into) {
    nd_object *self = nd_object_new(&box_type, sizeof(box));
    assert_handle(self);
    box *b = nd_object_get_data(self);
    b->other = other;
    b->into = into;
    status_in_destroy = ND_OK;
    return self;
}

static void test_edge_of_its_own_is_refused_to_a_closing_object(void **state) {
    (void)state;
    nd_object *object = box_new(NULL, NULL);
    ((box *)nd_object_get_data(object))->other = object;
    assert_ok(nd_close(object));
    assert_int_equal(status_in_destroy, ND_ERROR_CLOSED);
    assert_int_equal(nd_get_count(object), 1);
    nd_release(object);
}

static void test_edge_of_its_own_is_refused_to_a_dying_object(void **state) {
    (void)state;
    nd_object *other = box_new(NULL, NULL), *object = box_new(other, NULL);
    nd_release(object);
    assert_int_equal(status_in_destroy, ND_ERROR_CLOSED);
    assert_int_equal(nd_get_count(other), 1);
    object = box_new(NULL, NULL);
    ((box *)nd_object_get_data(object))->other =
        object; // dead already: not even a count may be taken
    nd_release(object);
    assert_int_equal(status_in_destroy, ND_ERROR_CLOSED);
    nd_release(other);
}

static void test_edges_of_others_may_be_set_in_destroy(void **state) {
    (void)state;
    nd_object *other = box_new(NULL, NULL), *into = box_new(NULL, NULL);
    nd_object *object = box_new(other, into);
    nd_release(object);
    assert_int_equal(status_in_destroy, ND_OK);
    assert_int_equal(nd_get_count(other), 2);
    nd_release(into);
    nd_release(other);
}

/// The one closes the other, which sets an edge in the one, whose edges are cut.
static void test_edge_of_an_object_further_up_is_refused(void **state) {
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        nd_object *other = box_new(NULL, NULL), *outer = box_new(NULL, NULL);
        nd_object *inner = box_new(other, outer);
        ((box *)nd_object_get_data(outer))->closed = inner;
        if (!dies)
            assert_ok(nd_close(outer));
        nd_release(outer);
        assert_int_equal(status_in_destroy, ND_ERROR_CLOSED);
        assert_int_equal(nd_get_count(other), 1);
        nd_release(inner);
        nd_release(other);
    }
}

static void test_edge_set_by_garbage_in_destroy_is_refused(void **state) {
    (void)state;
    nd_object *other = box_new(NULL, NULL), *object = box_new(other, NULL);
    nd_edge_set(&((box *)nd_object_get_data(object))->edge, object);
    nd_release(object);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(status_in_destroy, ND_ERROR_CLOSED);
    assert_int_equal(nd_get_count(other), 1);
    nd_release(other);
}

// ----------------------------------------------------------------- closed by a callback for memory

static void *victim;
static int refusals;

static bool refuse(size_t bytes) {
    (void)bytes;
    return refusals > 0 && refusals-- > 0;
}

static bool close_victim(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    (void)data;
    nd_close(victim);
    return true;
}

/// From here on the next allocation first closes the object.
static void close_when_memory_is_short(void *object) {
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = close_victim;
    assert_ok(nd_memory_set_callback(NULL, &callback));
    victim = object;
    refusals = 1;
    nd__alloc_should_fail = refuse;
}

static void end_shortage(void) {
    assert_int_equal(refusals, 0);
    nd__alloc_should_fail = NULL;
    assert_ok(nd_memory_set_callback(NULL, NULL));
    nd_error_clear();
}

static void test_list_that_is_closed_while_it_grows_takes_nothing(void **state) {
    (void)state;
    nd_object *item = box_new(NULL, NULL);
    for (int function = 0; function < 2; function++) {
        nd_list *list = nd_list_new();
        assert_handle(list);
        close_when_memory_is_short(list);
        nd_status status = function ? nd_list_append(list, item) : nd_list_insert(list, 0, item);
        end_shortage();
        assert_int_equal(status, ND_ERROR_CLOSED);
        assert_int_equal(nd_get_count(item), 1);
        assert_int_equal(nd_list_get_size(list), 0);
        nd_release(list);
    }
    nd_release(item);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_edge_of_its_own_is_refused_to_a_closing_object),
        ND_TEST(test_edge_of_its_own_is_refused_to_a_dying_object),
        ND_TEST(test_edges_of_others_may_be_set_in_destroy),
        ND_TEST(test_edge_of_an_object_further_up_is_refused),
        ND_TEST(test_edge_set_by_garbage_in_destroy_is_refused),
        ND_TEST(test_list_that_is_closed_while_it_grows_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
