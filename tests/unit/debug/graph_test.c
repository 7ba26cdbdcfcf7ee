// Dumps of the graph: JSON that parses back to what is alive, DOT with clusters, limits, quoting.
#include "lib/base/alloc.h"
#include "tests/behaviour/cell.h"
#include "tests/unit/debug/written.h"

static void free_nothing(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
}

static char memory[3000];

/// A module-like graph in two managers: list -item-> cell -first-> cell, and 3000 bytes.
typedef struct graph {
    nd_manager *epoch, *step;
    nd_list *list;
    nd_object *a, *b;
    nd_resource *buffer;
} graph;

static graph make_graph(void) {
    graph g = {0};
    cell_begin(2);
    g.epoch = nd_manager_new(NULL, "epoch \"1\"");
    g.step = nd_manager_new(g.epoch, "step");
    nd_with_manager(g.epoch) {
        g.list = nd_list_new();
        g.a = cell_new(0, 1);
    }
    nd_with_manager(g.step) {
        g.b = cell_new(1, 1);
        const nd_resource_callbacks callbacks = {
            .size = sizeof callbacks, .version = 1, .free = free_nothing};
        g.buffer = nd_resource_new("buffer", memory, sizeof memory, &callbacks);
    }
    assert_ok(nd_set_name(g.a, "back\\slash"));
    assert_ok(nd_list_append(g.list, g.a));
    cell_link(g.a, 0, g.b);
    nd_release(g.a);
    return g;
}

static void drop_graph(graph *g) {
    nd_release(g->list);
    nd_release(g->b);
    nd_release(g->buffer);
    nd_release(g->step);
    nd_release(g->epoch);
    cell_end();
}

/// True when the text is one JSON value with nothing behind it, by a reader that knows brackets,
/// strings and escapes.
static bool is_balanced_json(const char *text) {
    char stack[64];
    int depth = 0;
    bool in_string = false;
    for (; *text; text++) {
        if (in_string) {
            if ((unsigned char)*text < 0x20)
                return false;
            if (*text == '\\')
                text++;
            else if (*text == '"')
                in_string = false;
        } else if (*text == '"') {
            in_string = true;
        } else if (*text == '{' || *text == '[') {
            stack[depth++] = *text == '{' ? '}' : ']';
        } else if (*text == '}' || *text == ']') {
            if (depth == 0 || stack[--depth] != *text)
                return false;
        }
    }
    return depth == 0 && !in_string;
}

static void test_json_tells_objects_edges_and_managers(void **state) {
    (void)state;
    graph g = make_graph();
    written out = {0};
    assert_ok(nd_debug_dump_json(g.epoch, written_stream(&out), 0));
    const char *text = written_text(&out);
    assert_true(is_balanced_json(text));
    assert_contains(text, "\"objects_alive\": 4");
    assert_contains(text, "{\"id\": 0, \"name\": \"epoch \\\"1\\\"\", \"bytes\": 0}");
    assert_contains(text, "{\"id\": 1, \"name\": \"step\", \"parent\": 0, \"bytes\": 3000}");
    assert_contains(text, "\"type\": \"list\", \"manager\": 0, \"count\": 1, \"handles\": 1, "
                          "\"tracked\": true, \"closed\": false}");
    assert_contains(text, "\"name\": \"back\\\\slash\", \"manager\": 0, \"count\": 1, "
                          "\"handles\": 0");
    assert_contains(text, "\"type\": \"buffer\", \"manager\": 1, \"count\": 1, \"handles\": 1, "
                          "\"tracked\": false, \"closed\": false, \"bytes\": 3000");
    assert_int_equal(occurrences(text, "\"from\":"), 2);
    assert_contains(text, "\"label\": \"item\"");
    assert_contains(text, "\"label\": \"first\"");
    written_free(&out);
    drop_graph(&g);
}

static void test_limit_leaves_out_objects_and_their_edges(void **state) {
    (void)state;
    graph g = make_graph();
    written json = {0}, dot = {0};
    assert_ok(nd_debug_dump_json(g.epoch, written_stream(&json), 2));
    assert_contains(written_text(&json), "\"objects_alive\": 4");
    assert_int_equal(occurrences(written_text(&json), "\"type\":"), 2);
    assert_int_equal(occurrences(written_text(&json), "\"from\":"), 1);
    assert_ok(nd_debug_dump_dot(g.epoch, written_stream(&dot), 2));
    assert_contains(written_text(&dot), "2 more objects");
    assert_int_equal(occurrences(written_text(&dot), " -> "), 1);
    written_free(&json);
    written_free(&dot);
    drop_graph(&g);
}

static void test_dot_nests_managers(void **state) {
    (void)state;
    graph g = make_graph();
    nd_manager *other = nd_manager_new(g.epoch, "other"), *deep = nd_manager_new(g.step, "deep");
    written out = {0};
    assert_ok(nd_debug_dump_dot(g.epoch, written_stream(&out), 0));
    const char *text = written_text(&out);
    assert_int_equal(occurrences(text, "subgraph cluster_"), 4);
    assert_int_equal(occurrences(text, "{"), occurrences(text, "}"));
    assert_contains(text, "label=\"manager epoch \\\"1\\\"  0 B\"");
    assert_contains(text, "label=\"manager step  2.9 KiB\"");
    assert_contains(text, "cell\\nback\\\\slash");
    assert_contains(text, "buffer\\n2.9 KiB\\n1 handle");
    assert_contains(text, "[label=\"first\"]");
    // deep is written before step's cluster is closed.
    const char *step = strstr(text, "manager step"), *inner = strstr(text, "manager deep");
    assert_true(step && inner && inner > step);
    for (const char *at = step; at < inner; at++)
        assert_false(at[0] == '\n' && at[1] == '}');
    written_free(&out);
    nd_release(deep);
    nd_release(other);
    drop_graph(&g);
}

static void test_text_that_is_no_utf8(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    assert_ok(nd_set_name(x, "caf\xC3\xA9 \xFF\xED\xA0\x80\n"));
    written out = {0};
    assert_ok(nd_debug_dump_json(NULL, written_stream(&out), 0));
    assert_contains(written_text(&out), "\"caf\xC3\xA9 \\ufffd\\ufffd\\ufffd\\ufffd\\u000a\"");
    assert_true(is_balanced_json(written_text(&out)));
    written_free(&out);
    nd_release(x);
    cell_end();
}

/// A name is a piece of a line, whatever is in it.
static void test_names_in_texts_for_people(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    assert_ok(nd_set_name(x, "\xFF caf\xC3\xA9\nndarc: no leaks"));
    nd_manager *m = nd_manager_new(NULL, "m\n\x80");
    written dot = {0}, dump = {0}, holders = {0}, leaks = {0};
    assert_ok(nd_debug_dump_dot(NULL, written_stream(&dot), 0));
    assert_contains(written_text(&dot), "\xEF\xBF\xBD caf\xC3\xA9 ndarc: no leaks\\n");
    assert_contains(written_text(&dot), "manager m \xEF\xBF\xBD  ");
    assert_ok(nd_debug_dump(NULL, written_stream(&dump)));
    assert_contains(written_text(&dump), "(\\xff caf\xC3\xA9\\x0andarc: no leaks)");
    assert_contains(written_text(&dump), "manager m\\x0a\\x80: ");
    assert_ok(nd_debug_holders(x, written_stream(&holders)));
    assert_contains(written_text(&holders), "(\\xff caf\xC3\xA9\\x0andarc: no leaks)");
    nd_debug_report_leaks(NULL, written_stream(&leaks), 0);
    assert_contains(written_text(&leaks), "1 x manager m\\x0a\\x80");
    written_free(&dot);
    written_free(&dump);
    written_free(&holders);
    written_free(&leaks);
    assert_ok(nd_manager_close(m, NULL));
    nd_release(m);
    nd_release(x);
    cell_end();
}

/// Of a manager's objects those with edges first, each kind in the order of its making.
static void test_a_limit_shows_what_has_edges_first(void **state) {
    (void)state;
    enum { PAIRS = 8 };
    nd_list *lists[PAIRS];
    nd_weak *weaks[PAIRS];
    char name[8];
    for (int i = 0; i < PAIRS; i++) {
        lists[i] = nd_list_new();
        weaks[i] = nd_weak_new(lists[i]);
        snprintf(name, sizeof name, "t%d", i);
        assert_ok(nd_set_name(lists[i], name));
        snprintf(name, sizeof name, "g%d", i);
        assert_ok(nd_set_name(weaks[i], name));
    }
    written json = {0};
    assert_ok(nd_debug_dump_json(NULL, written_stream(&json), PAIRS + 2));
    const char *at = written_text(&json);
    for (int i = 0; i < PAIRS + 2; i++) {
        snprintf(name, sizeof name, "\"%c%d\"", i < PAIRS ? 't' : 'g', i % PAIRS);
        assert_contains(at, name);
        at = strstr(at, name);
    }
    assert_lacks(at, "\"g2\"");
    written_free(&json);
    for (int i = 0; i < PAIRS; i++) {
        nd_release(weaks[i]);
        nd_release(lists[i]);
    }
}

static void test_closed_objects_have_no_edges(void **state) {
    (void)state;
    graph g = make_graph();
    assert_ok(nd_close(g.list));
    written out = {0};
    assert_ok(nd_debug_dump_json(g.epoch, written_stream(&out), 0));
    assert_contains(written_text(&out), "\"type\": \"list\", \"manager\": 0, \"count\": 1, "
                                        "\"handles\": 1, \"tracked\": true, \"closed\": true");
    assert_int_equal(occurrences(written_text(&out), "\"from\":"), 0);
    written_free(&out);
    drop_graph(&g);
}

static void test_a_stream_that_fails_is_an_error(void **state) {
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    setvbuf(full, NULL, _IONBF, 0);
    assert_int_equal(nd_debug_dump_json(NULL, full, 0), ND_ERROR_IO);
    assert_contains(nd_error_get_message(), "debug_dump_json: ");
    assert_int_equal(nd_debug_dump(NULL, full), ND_ERROR_IO);
    fclose(full);
    nd_error_clear();
    assert_int_equal(nd_debug_dump_dot(NULL, NULL, 0), ND_ERROR_INVALID_ARGUMENT);
}

static int fail_after;
static bool should_fail(size_t bytes) {
    (void)bytes;
    return fail_after-- <= 0;
}

static void test_no_memory_writes_nothing(void **state) {
    (void)state;
    graph g = make_graph();
    int failures = 0;
    for (int allowed = 0; allowed < 20; allowed++) {
        written out = {0};
        FILE *stream = written_stream(&out);
        fail_after = allowed;
        nd__alloc_should_fail = should_fail;
        nd_status status = nd_debug_dump_dot(g.epoch, stream, 0);
        nd__alloc_should_fail = NULL;
        bool wrote = written_text(&out)[0] != '\0';
        written_free(&out);
        assert_int_equal(wrote, status == ND_OK);
        if (status == ND_OK)
            break;
        failures++;
    }
    assert_in_range(failures, 4, 19);
    drop_graph(&g);
}

static void test_many_objects_and_names_need_more_room(void **state) {
    (void)state;
    enum { MANY = 3000 / ND_TEST_SCALE };
    cell_begin(MANY);
    nd_list *list = nd_list_new();
    for (uint32_t i = 0; i < MANY; i++) {
        nd_object *x = cell_new(i, 8);
        char name[64];
        snprintf(name, sizeof name, "cell number %u with a name that takes room", i);
        assert_ok(nd_set_name(x, name));
        for (uint32_t k = 0; k < 8; k++)
            cell_link(x, k, list);
        assert_ok(nd_list_append(list, x));
        nd_release(x);
    }
    written out = {0};
    assert_ok(nd_debug_dump_json(NULL, written_stream(&out), 0));
    assert_int_equal(occurrences(written_text(&out), "\"label\":"), 9 * MANY);
    assert_int_equal(occurrences(written_text(&out), "cell number "), MANY);
    char list_line[96];
    snprintf(list_line, sizeof list_line,
             "\"type\": \"list\", \"manager\": 0, \"count\": %d, \"handles\": 1", 8 * MANY + 1);
    assert_contains(written_text(&out), list_line);
    written_free(&out);
    assert_ok(nd_list_clear(list));
    nd_release(list);
    cell_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_json_tells_objects_edges_and_managers),
        ND_TEST(test_limit_leaves_out_objects_and_their_edges),
        ND_TEST(test_dot_nests_managers),
        ND_TEST(test_text_that_is_no_utf8),
        ND_TEST(test_names_in_texts_for_people),
        ND_TEST(test_a_limit_shows_what_has_edges_first),
        ND_TEST(test_closed_objects_have_no_edges),
        ND_TEST(test_a_stream_that_fails_is_an_error),
        ND_TEST(test_no_memory_writes_nothing),
        ND_TEST(test_many_objects_and_names_need_more_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
