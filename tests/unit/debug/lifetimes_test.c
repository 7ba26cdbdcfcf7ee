// What reports show of objects that die while a report is being made: a copy, taken while they were
// there.
//
// Nothing here waits for luck. Texts belong to objects, which overwrite them when they are
// destroyed; and objects die where the report is between looking and writing: with the collector's
// gate closed (then they are destroyed as soon as it opens), or in the stream that it writes to.
#include "tests/unit/debug/written.h"
#include <nd/detail/calls.h>
#include <pthread.h>

enum { SIZE = 40 };

/// An object whose name in reports and whose edge's label are memory of its own.
typedef struct teller {
    char *text, *label;
    nd_object *edge;
    void (*on_traverse)(void);
} teller;

static char *copy_text(const char *text) {
    char *copy = malloc(SIZE);
    assert_non_null(copy);
    snprintf(copy, SIZE, "%s", text);
    return copy;
}

static void spoil(char *text) {
    memset(text, '#', SIZE - 1);
    free(text);
}

static void teller_traverse(const nd_object *self, nd_visitor *visitor) {
    const teller *t = nd_object_get_data(self);
    if (t->on_traverse)
        t->on_traverse();
    nd_visit(visitor, t->edge, t->label);
}

static void teller_clear(nd_object *self) {
    teller *t = nd_object_get_data(self);
    nd_edge_clear(&t->edge);
}

static void teller_destroy(nd_object *self) {
    teller *t = nd_object_get_data(self);
    spoil(t->text);
    spoil(t->label);
    t->text = t->label = NULL;
}

static const char *teller_describe(const nd_object *self) {
    const teller *t = nd_object_get_data(self);
    return t->text;
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

static nd_object *teller_new(const char *text, const char *label, nd_object *edge) {
    nd_object *self = nd_object_new(&teller_type, sizeof(teller));
    assert_handle(self);
    teller *t = nd_object_get_data(self);
    t->text = copy_text(text);
    t->label = copy_text(label);
    nd_edge_set(&t->edge, edge);
    return self;
}

// ------------------------------------------------------------------ dying while the gate is closed

static nd_object *victim; ///< owned

static void *release_victim(void *data) {
    (void)data;
    nd_release(victim);
    return NULL;
}

/// Runs inside the closed gate; the victim is in another manager, whose lock nobody holds.
static void kill_victim(void) {
    if (!victim)
        return;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_victim, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    victim = NULL;
}

typedef struct scene {
    nd_object *target, *killer;
    nd_manager *later;
} scene;

/// victim -own label-> target at the root; the killer in a manager that is looked at after it.
static scene begin_scene(void) {
    scene s = {.target = teller_new("the target", "unused", NULL)};
    victim = teller_new("the victim", "a label of its own", s.target);
    s.later = nd_manager_new(NULL, "later");
    assert_handle(s.later);
    nd_with_manager(s.later) {
        s.killer = teller_new("the killer", "unused", NULL);
    }
    teller *t = nd_object_get_data(s.killer);
    t->on_traverse = kill_victim;
    return s;
}

static void end_scene(scene *s) {
    assert_null(victim);
    nd_release(s->killer);
    nd_release(s->target);
    nd_release(s->later);
}

typedef nd_status (*dump)(const nd_manager *manager, FILE *stream, uint64_t limit);

static void check_dump(dump write) {
    scene s = begin_scene();
    written out = {0};
    assert_ok(write(NULL, written_stream(&out), 0));
    const char *text = written_text(&out);
    assert_contains(text, "the victim");
    assert_contains(text, "a label of its own");
    assert_lacks(text, "#####");
    written_free(&out);
    end_scene(&s);
}

static void test_dumps_copy_the_texts_of_objects_that_die_meanwhile(void **state) {
    (void)state;
    check_dump(nd_debug_dump_json);
    check_dump(nd_debug_dump_dot);
}

static void test_holders_copy_the_texts_of_objects_that_die_meanwhile(void **state) {
    (void)state;
    scene s = begin_scene();
    written out = {0};
    assert_ok(nd_debug_holders(s.target, written_stream(&out)));
    const char *text = written_text(&out);
    assert_contains(text, "the victim -a label of its own-> the target");
    written_free(&out);
    end_scene(&s);
}

// ----------------------------------------------------------------------- dying while it is written

static ssize_t release_and_write(void *cookie, const char *bytes, size_t size) {
    nd_release(victim);
    victim = NULL;
    return (ssize_t)fwrite(bytes, 1, size, cookie);
}

static void test_leak_report_copies_the_texts_of_objects_that_die_meanwhile(void **state) {
    (void)state;
    victim = teller_new("the victim", "unused", NULL);
    written out = {0};
    FILE *stream =
        fopencookie(written_stream(&out), "w", (cookie_io_functions_t){.write = release_and_write});
    assert_non_null(stream);
    setvbuf(stream, NULL, _IONBF, 0);
    assert_int_equal(nd_debug_report_leaks(NULL, stream, 0), 1);
    fclose(stream);
    assert_contains(written_text(&out), "1 x the victim, 0 bytes");
    written_free(&out);
}

static void test_leak_report_of_more_groups_than_it_first_has_room_for(void **state) {
    (void)state;
    enum { GROUPS = 5000 };
    nd_object **all = calloc(GROUPS, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < GROUPS; i++) {
        char text[SIZE];
        snprintf(text, sizeof text, "kind %d of a text that is long", i);
        all[i] = teller_new(text, "unused", NULL);
    }
    written out = {0};
    assert_int_equal(nd_debug_report_leaks(NULL, written_stream(&out), 0), GROUPS);
    assert_int_equal(occurrences(written_text(&out), "1 x kind "), GROUPS);
    written_free(&out);
    for (int i = 0; i < GROUPS; i++)
        nd_release(all[i]);
    free(all);
}

// ----------------------------------------------------------------------------------- sites, closed

static void test_snapshots_outlive_the_sites_of_what_they_saw(void **state) {
    (void)state;
    nd_snapshot *before = nd_snapshot_new(NULL);
    nd_site *site = malloc(sizeof *site); // as in a library that is unloaded
    char *file = copy_text("plugin.c");
    assert_non_null(site);
    *site = (nd_site){file, 7};
    const nd_site *usual = nd__site_enter(site);
    nd_object *object = (nd_object_new)(&teller_type, sizeof(teller));
    nd__site_leave(&usual);
    assert_handle(object);
    teller *t = nd_object_get_data(object);
    t->text = copy_text("made by a plugin");
    t->label = copy_text("unused");
    nd_snapshot *with = nd_snapshot_new(NULL);
    nd_release(object);
    nd_snapshot *after = nd_snapshot_new(NULL);
    spoil(file);
    memset(site, 0, sizeof *site);
    free(site);
    assert_true(before && with && after);
    written came = {0}, went = {0};
    assert_ok(nd_snapshot_difference(before, with, written_stream(&came), 0, NULL));
    assert_contains(written_text(&came),
                    "+1 -0 x made by a plugin, +0 -0 bytes, made at plugin.c:7");
    assert_ok(nd_snapshot_difference(with, after, written_stream(&went), 0, NULL));
    assert_contains(written_text(&went),
                    "+0 -1 x made by a plugin, +0 -0 bytes, made at plugin.c:7");
    written_free(&came);
    written_free(&went);
    nd_snapshot_free(before);
    nd_snapshot_free(with);
    nd_snapshot_free(after);
}

static void test_closed_objects_are_not_asked_what_they_are(void **state) {
    (void)state;
    nd_object *object = teller_new("open", "unused", NULL);
    assert_ok(nd_close(object));
    written out = {0};
    FILE *stream = written_stream(&out);
    assert_ok(nd_debug_dump(NULL, stream));
    assert_ok(nd_debug_dump_json(NULL, stream, 0));
    assert_int_equal(nd_debug_report_leaks(NULL, stream, 0), 1);
    nd_watch *watch = nd_debug_watch(object);
    assert_ok(nd_watch_write(watch, stream));
    nd_watch_end(watch);
    assert_int_equal(nd_error_get_status(), ND_OK);
    assert_contains(written_text(&out), "history of teller");
    assert_lacks(written_text(&out), "open");
    written_free(&out);
    nd_release(object);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_dumps_copy_the_texts_of_objects_that_die_meanwhile),
        ND_TEST(test_holders_copy_the_texts_of_objects_that_die_meanwhile),
        ND_TEST(test_leak_report_copies_the_texts_of_objects_that_die_meanwhile),
        ND_TEST(test_leak_report_of_more_groups_than_it_first_has_room_for),
        ND_TEST(test_snapshots_outlive_the_sites_of_what_they_saw),
        ND_TEST(test_closed_objects_are_not_asked_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
