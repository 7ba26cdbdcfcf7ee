// Code of the program's that a destruction calls: what it makes and releases is freed there, as
// anywhere else, and however such code nests, no chain of it uses up the stack.
#include "tests/behaviour/cell.h"
#include "tests/testing.h"

#include <pthread.h>

enum { BYTES = 4000, QUOTA = 2 * BYTES + 192, TIMES = 20 };

static int called, given_back;

static void give_back(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
    given_back++;
}

static nd_resource *resource_new(void (*give)(void *pointer, size_t bytes)) {
    nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1, .free = give};
    return nd_resource_new("resource", &called, BYTES, &callbacks);
}

/// More in sum than the quota of its manager has room for, one after the other.
static void work(void) {
    called++;
    nd_auto nd_manager *inside = nd_manager_new(NULL, "inside");
    assert_ok(nd_manager_set_quota(inside, ND_CPU, QUOTA));
    nd_with_manager(inside) for (int i = 0; i < TIMES; i++) {
        nd_resource *x = resource_new(give_back);
        assert_handle(x);
        nd_auto nd_weak *weak = nd_weak_new(x);
        given_back = 0;
        nd_release(x);
        assert_int_equal(given_back, 1);
        assert_null(nd_weak_get(weak));
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(inside, &report));
    assert_int_equal(report.escaped_objects, 0);
}

static void work_with_object(nd_object *self) {
    (void)self;
    work();
}

static void work_with_memory(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
    work();
}

static bool gives_nothing_up(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    (void)data;
    return false;
}

static void work_with_data(void *data) {
    (void)data;
    work();
}

typedef struct knot {
    nd_object *next;
} knot;

#define KNOT_EDGES(ONE, MANY) ONE(next)
ND_TYPE_EDGES(knot, KNOT_EDGES)

static const nd_type destroyed = {.size = sizeof(nd_type),
                                  .version = 1,
                                  .name = "destroyed",
                                  .traverse = knot_traverse,
                                  .clear = knot_clear,
                                  .destroy = work_with_object};
static const nd_type finalized = {.size = sizeof(nd_type),
                                  .version = 1,
                                  .name = "finalized",
                                  .traverse = knot_traverse,
                                  .clear = knot_clear,
                                  .finalize = work_with_object};
static const nd_type plain = {
    .size = sizeof(nd_type), .version = 1, .name = "plain", .flags = ND_TYPE_GREEN};

static nd_object *knot_new(const nd_type *type) {
    nd_object *made = nd_object_new(type, sizeof(knot));
    assert_handle(made);
    return made;
}

/// A cycle that nothing holds.
static void leave_cycle(const nd_type *type) {
    nd_auto nd_object *a = knot_new(type);
    nd_auto nd_object *b = knot_new(type);
    nd_edge_set(&((knot *)nd_object_get_data(a))->next, b);
    nd_edge_set(&((knot *)nd_object_get_data(b))->next, a);
}

static void expect_calls(int count) {
    assert_int_equal(called, count);
    called = 0;
}

static void test_what_dies_in_code_of_the_program_is_freed_there(void **state) {
    (void)state;
    called = 0;
    nd_release(knot_new(&destroyed));
    expect_calls(1);
    nd_release(knot_new(&finalized));
    expect_calls(1);

    nd_object *closed = knot_new(&destroyed);
    assert_ok(nd_close(closed));
    expect_calls(1);
    nd_release(closed);

    nd_release(resource_new(work_with_memory));
    expect_calls(1);

    nd_manager *manager = nd_manager_new(NULL, "with a callback");
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = gives_nothing_up;
    callback.free = work_with_data;
    assert_ok(nd_memory_set_callback(manager, &callback));
    nd_release(manager);
    expect_calls(1);

    nd_object *target = nd_object_new(&plain, 8);
    nd_auto nd_weak *weak = nd_weak_new(target);
    assert_ok(nd_weak_set_callback(weak, work_with_data, NULL));
    nd_release(target);
    expect_calls(1);

    nd_gc_set_mode(ND_GC_ON);
    leave_cycle(&destroyed);
    nd_gc_collect(NULL, NULL);
    expect_calls(2);
    leave_cycle(&finalized);
    nd_gc_collect(NULL, NULL);
    expect_calls(2);
    nd_gc_set_mode(ND_GC_OFF);
}

// ------------------------------------------------------------------------------------------ nesting

/// Holds the next one as a plain handle, which its `destroy` releases.
typedef struct link {
    nd_object *next;
} link;

static int died, deepest, depth;

static void link_destroy(nd_object *self) {
    link *own = nd_object_get_data(self);
    depth++;
    deepest = depth > deepest ? depth : deepest;
    died++;
    nd_release(own->next);
    depth--;
}

static const nd_type link_type = {.size = sizeof(nd_type),
                                  .version = 1,
                                  .name = "link",
                                  .flags = ND_TYPE_GREEN,
                                  .destroy = link_destroy};

static void *release_chain(void *data) {
    nd_object *chain = NULL;
    for (int i = 0; i < *(const int *)data; i++) {
        nd_object *made = nd_object_new(&link_type, sizeof(link));
        ((link *)nd_object_get_data(made))->next = chain;
        chain = made;
    }
    nd_release(chain);
    return NULL;
}

static void test_destructors_that_release_each_other_nest_a_few_times(void **state) {
    (void)state;
    int length = 200000;
    died = deepest = depth = 0;
    pthread_attr_t attributes;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(
        pthread_attr_setstacksize(&attributes, ND_TEST_SCALE == 1 ? 128 << 10 : 1 << 20), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, &attributes, release_chain, &length), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    assert_int_equal(died, length);
    assert_in_range(deepest, 2, 20);
}

// ------------------------------------------------------------------------- deeper than code nests

enum { NESTED = 8, DEEP = 20, EACH = 3 };

static int told, prompt, alive, most_alive;
static nd_weak *watching[DEEP * DEEP];

static void tell(void *data) {
    ++*(int *)data;
    told++;
}

static void no_longer_alive(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
    alive--;
}

/// What is told of a target that waits comes while its weak reference is there, and never behind that:
/// the program may have let go of what the callback uses.
static void watch_what_dies(void) {
    int heard = 0;
    nd_object *target = nd_object_new(&plain, 8);
    nd_weak *weak = nd_weak_new(target);
    assert_ok(nd_weak_set_callback(weak, tell, &heard));
    nd_release(target);
    assert_null(nd_weak_get(weak));
    nd_release(weak);
    assert_in_range(heard, 0, 1);
    prompt += heard;
}

static void keep_watching(int i) {
    static int heard;
    nd_object *target = nd_object_new(&plain, 8);
    watching[i] = nd_weak_new(target);
    assert_ok(nd_weak_set_callback(watching[i], tell, &heard));
    nd_release(target);
}

/// Holds the next one, which it releases at last.
static void busy_destroy(nd_object *self) {
    for (int i = 0; i < EACH; i++) {
        nd_resource *made = resource_new(no_longer_alive);
        alive++;
        most_alive = alive > most_alive ? alive : most_alive;
        nd_release(made);
    }
    watch_what_dies();
    if (died < DEEP * DEEP)
        keep_watching(died);
    link_destroy(self);
}

static const nd_type busy_type = {.size = sizeof(nd_type),
                                  .version = 1,
                                  .name = "busy",
                                  .flags = ND_TYPE_GREEN,
                                  .destroy = busy_destroy};

static void test_what_waits_is_freed_in_the_order_of_releases(void **state) {
    (void)state;
    int length = 2000;
    told = prompt = alive = most_alive = died = depth = 0;
    nd_object *chain = NULL;
    for (int i = 0; i < length; i++) {
        nd_object *made = nd_object_new(&busy_type, sizeof(link));
        ((link *)nd_object_get_data(made))->next = chain;
        chain = made;
    }
    nd_release(chain);
    assert_int_equal(died, length);
    assert_in_range(prompt, 1, NESTED);
    assert_int_equal(told, DEEP * DEEP + prompt);
    for (int i = 0; i < DEEP * DEEP; i++)
        nd_release(watching[i]);
    assert_int_equal(alive, 0);
    assert_in_range(most_alive, 1, DEEP * EACH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_what_dies_in_code_of_the_program_is_freed_there),
        ND_TEST(test_destructors_that_release_each_other_nest_a_few_times),
        ND_TEST(test_what_waits_is_freed_in_the_order_of_releases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
