// Callbacks that run where the program does not expect them have an error of their own: whatever
// they do with it, the program's stays as it was.
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "tests/testing.h"

static int runs; ///< of callbacks, each of which began without an error

/// What every callback here does: fails, and clears what it finds, in turns.
static void meddle(void) {
    if (nd_error_get_status() == ND_OK)
        runs++;
    nd_list *none = NULL;
    nd_list_append(none, none); // sets an error
    if (nd_error_get_status() != ND_ERROR_INVALID_ARGUMENT)
        runs = -1000;
    if (runs % 2)
        nd_error_clear();
}

typedef struct meddler {
    nd_object *edge;
} meddler;

static void traverse(const nd_object *self, nd_visitor *visitor) {
    const meddler *m = nd_object_get_data(self);
    nd_visit(visitor, m->edge, "edge");
}

static void clear(nd_object *self) {
    meddler *m = nd_object_get_data(self);
    nd_edge_clear(&m->edge);
}

static void meddle_with(nd_object *self) {
    (void)self;
    meddle();
}

static const nd_type meddler_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "meddler",
    .traverse = traverse,
    .clear = clear,
    .finalize = meddle_with,
    .destroy = meddle_with,
};

static nd_object *meddler_new(void) {
    nd_object *self = nd_object_new(&meddler_type, sizeof(meddler));
    assert_handle(self);
    return self;
}

static void meddle_with_data(void *data) {
    (void)data;
    meddle();
}

static void meddle_with_memory(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
    meddle();
}

static void meddle_with_cycle(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)path;
    (void)objects;
    (void)bytes;
    (void)data;
    meddle();
}

static bool meddle_and_give_up(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    (void)data;
    meddle();
    return true;
}

/// Finalizer, weak callback and destructor.
static void release(void) {
    nd_object *object = meddler_new();
    nd_weak *weak = nd_weak_new(object);
    assert_ok(nd_weak_set_callback(weak, meddle_with_data, NULL));
    nd_release(object);
    nd_release(weak);
    assert_int_equal(runs, 3);
}

static void close_object(void) {
    nd_object *object = meddler_new();
    assert_ok(nd_close(object));
    nd_release(object);
    assert_int_equal(runs, 1);
}

/// The callback of its cycle, that of a weak reference, finalizer and destructor.
static void collect(void) {
    nd_gc_set_cycle_callback(meddle_with_cycle, NULL);
    nd_object *object = meddler_new();
    nd_edge_set(&((meddler *)nd_object_get_data(object))->edge, object);
    nd_weak *weak = nd_weak_new(object);
    assert_ok(nd_weak_set_callback(weak, meddle_with_data, NULL));
    nd_release(object);
    assert_ok(nd_gc_collect(NULL, NULL));
    nd_release(weak);
    nd_gc_set_cycle_callback(NULL, NULL);
    assert_int_equal(runs, 4);
}

static void free_resource(void) {
    static char memory[8];
    const nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = meddle_with_memory};
    nd_resource *resource = nd_resource_new("memory", memory, sizeof memory, &callbacks);
    assert_handle(resource);
    nd_release(resource);
    assert_int_equal(runs, 1);
}

static int refusals;

static bool refuse(size_t bytes) {
    (void)bytes;
    return refusals > 0 && refusals-- > 0;
}

/// The callback for memory, and what frees its data.
static void run_short_of_memory(void) {
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = meddle_and_give_up;
    callback.free = meddle_with_data;
    assert_ok(nd_memory_set_callback(NULL, &callback));
    refusals = 1;
    nd__alloc_should_fail = refuse;
    nd_list *list = nd_list_new();
    nd__alloc_should_fail = NULL;
    assert_ok(nd_memory_set_callback(NULL, NULL));
    assert_handle(list);
    nd_release(list);
    assert_int_equal(runs, 2);
}

static void test_callbacks_leave_the_error_of_the_program_alone(void **state) {
    (void)state;
    static void (*const ways[])(void) = {release, close_object, collect, free_resource,
                                         run_short_of_memory};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        runs = 0;
        nd_error_clear();
        ways[i]();
        assert_int_equal(nd_error_get_status(), ND_OK);
        runs = 0;
        nd__error(ND_ERROR_SHAPE, "the program's own");
        const char *message = nd_error_get_message();
        ways[i]();
        assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
        assert_string_equal(nd_error_get_message(), "the program's own");
        assert_ptr_equal(nd_error_get_message(), message);
    }
    nd_error_clear();
}

static void error_in_destroy(nd_object *self) {
    nd_object *inner = *(nd_object **)nd_object_get_data(self);
    nd__error(ND_ERROR_IO, "of the outer one");
    if (inner) {
        nd_close(inner);
        nd_object_release(inner);
    }
    runs += nd_error_get_status() == ND_ERROR_IO;
    assert_string_equal(nd_error_get_message(), "of the outer one");
}

static void test_callbacks_inside_callbacks_have_their_own(void **state) {
    (void)state;
    static const nd_type type = {.size = sizeof(nd_type),
                                 .version = 1,
                                 .name = "outer",
                                 .flags = ND_TYPE_GREEN,
                                 .destroy = error_in_destroy};
    runs = 0;
    nd_object *above = NULL;
    for (int depth = 0; depth < 3; depth++) {
        nd_object *object = nd_object_new(&type, sizeof(nd_object *));
        assert_handle(object);
        *(nd_object **)nd_object_get_data(object) =
            above; // given away: destroy closes and releases it
        above = object;
    }
    nd_release(above);
    assert_int_equal(runs, 3);
    assert_int_equal(nd_error_get_status(), ND_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_callbacks_leave_the_error_of_the_program_alone),
        ND_TEST(test_callbacks_inside_callbacks_have_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
