// Reports beside threads that destroy what is reported.
//
// Some threads make and drop, close, or leave to the collector objects whose labels, names, sites
// and descriptions are memory of their own; others write every kind of report meanwhile. What this
// is for shows under the sanitizers: a report that looks at a text after its owner is gone. Beyond
// that, every report must come out whole, and nothing may be left.
#include "tests/stress/times.h"
#include "tests/testing.h"
#include <nd/detail/calls.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { MAKERS = 2, REPORTERS = 2, SECONDS = 2 };

static atomic_bool stop;
static nd_object *held; ///< what is asked after

/// An object that owns the texts that reports show of it.
typedef struct teller {
    char *text, *label;
    nd_object *edge;
} teller;

static void teller_traverse(const nd_object *self, nd_visitor *visitor) {
    const teller *t = nd_object_get_data(self);
    nd_visit(visitor, t->edge, t->label);
}

static void teller_clear(nd_object *self) {
    teller *t = nd_object_get_data(self);
    nd_edge_clear(&t->edge);
}

static void teller_destroy(nd_object *self) {
    teller *t = nd_object_get_data(self);
    free(t->text);
    free(t->label);
}

static const char *teller_describe(const nd_object *self) {
    const teller *t = nd_object_get_data(self);
    return t->text ? t->text : "teller";
}

static const nd_type teller_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "teller",
    .traverse = teller_traverse,
    .clear = teller_clear,
    .destroy = teller_destroy,
    .describe = teller_describe,
};

static char *make_text(unsigned number) {
    char *text = malloc(32);
    if (!text)
        abort();
    snprintf(text, 32, "text number %u", number % 97);
    return text;
}

static nd_status teller_init(nd_object *self, void *data) {
    const unsigned *number = data;
    teller *t = nd_object_get_data(self);
    t->text = make_text(*number);
    t->label = make_text(*number + 1);
    t->edge = nd_retain(held);
    return ND_OK;
}

static nd_object *make_teller(unsigned number) {
    static const nd_site sites[] = {{"one/file.c", 1}, {"one/file.c", 2}, {"another/file.c", 1}};
    const nd_site *usual = nd__site_enter(&sites[number % 3]);
    nd_object *self = (nd_object_new_with)(&teller_type, sizeof(teller), teller_init, &number);
    nd__site_leave(&usual);
    if (!self)
        abort();
    if (number % 3 == 0)
        nd_set_name(self, "named");
    return self;
}

/// sequential -0-> linear, -1-> relu: labels are the modules' own.
static nd_module *make_module(void) {
    nd_module *parts[2] = {nd_linear_module(nd_key_new(1), 2, 2, true), nd_relu_module()};
    return nd_sequential(2, parts);
}

/// Names that are set and removed all the time: labels of the map's own.
static void change(nd_map *map, unsigned number) {
    char name[32];
    snprintf(name, sizeof name, "name %u", number % 40);
    nd_map_set(map, name, held);
    snprintf(name, sizeof name, "name %u", number * 7 % 40);
    if (nd_map_contains(map, name))
        nd_release(nd_map_remove(map, name));
}

static void must(nd_status status) {
    if (status == ND_OK)
        return;
    fprintf(stderr, "%s\n", nd_error_get_message());
    abort();
}

static void *make(void *data) {
    enum { FEW = 16 };
    must(nd_test_use_device());
    nd_map *map = nd_map_new();
    unsigned number = (unsigned)(uintptr_t)data;
    nd_object *tellers[FEW];
    nd_module *modules[FEW];
    while (!stop) {
        nd_manager *manager = nd_manager_new(NULL, "of a thread");
        nd_with_manager(manager) {
            for (int i = 0; i < FEW; i++) {
                tellers[i] = make_teller(number++);
                modules[i] = make_module();
            }
        }
        for (int i = 0; i < FEW; i++) {
            if (i % 4 == 1)
                nd_close(tellers[i]);
            if (i % 4 == 2) { // a ring, for the collector
                teller *t = nd_object_get_data(tellers[i]);
                nd_edge_set(&t->edge, tellers[i]);
            }
            nd_release(tellers[i]);
            nd_release(modules[i]);
        }
        nd_manager_close(manager, NULL);
        nd_release(manager);
        for (unsigned i = 0; i < 100; i++)
            change(map, number + i);
    }
    nd_release(map);
    return NULL;
}

static void *report(void *data) {
    uint64_t *rounds = data;
    FILE *stream = fopen("/dev/null", "w");
    if (!stream)
        abort();
    for (; !stop; ++*rounds) {
        must(nd_debug_dump(NULL, stream));
        must(nd_debug_dump_dot(NULL, stream, 0));
        must(nd_debug_dump_json(NULL, stream, 0));
        must(nd_debug_holders(held, stream));
        nd_debug_report_leaks(NULL, stream, 0);
        nd_snapshot *before = nd_snapshot_new(NULL), *after = nd_snapshot_new(NULL);
        must(nd_snapshot_difference(before, after, stream, 0, NULL));
        nd_snapshot_free(before);
        nd_snapshot_free(after);
    }
    fclose(stream);
    return NULL;
}

static void count_path(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)bytes;
    atomic_fetch_add((atomic_uint_fast64_t *)data, objects + (path[0] == '\0'));
}

static void test_G45_reports_beside_threads_that_destroy_what_is_reported(void **state) {
    (void)state;
    pthread_t threads[MAKERS + REPORTERS];
    uint64_t rounds[REPORTERS] = {0};
    atomic_uint_fast64_t explained = 0;
    nd_gc_set_mode(ND_GC_ON);
    nd_gc_set_cycle_callback(count_path, &explained);
    held = nd_object_new(&teller_type, sizeof(teller));
    assert_handle(held);
    stop = false;
    for (uintptr_t i = 0; i < MAKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make, (void *)(1000 * i)), 0);
    for (int i = 0; i < REPORTERS; i++)
        assert_int_equal(pthread_create(&threads[MAKERS + i], NULL, report, &rounds[i]), 0);
    struct timespec pause = {.tv_sec = SECONDS * stress_times()};
    nanosleep(&pause, NULL);
    stop = true;
    for (int i = 0; i < MAKERS + REPORTERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    nd_release(held);
    assert_ok(nd_gc_collect(NULL, NULL));
    nd_gc_set_cycle_callback(NULL, NULL);
    print_message("%llu rounds of reports, %llu objects explained\n",
                  (unsigned long long)(rounds[0] + rounds[1]), (unsigned long long)explained);
    assert_true(explained > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G45_reports_beside_threads_that_destroy_what_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
