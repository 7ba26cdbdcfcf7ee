// nd_debug_check() in the middle of what it checks: in code that a destruction calls, where a manager
// may be ending, and those above it still answer for its bytes.
#include "tests/testing.h"

enum { BYTES = 1000 };

static int checks;
static nd_weak *watched[2];
static nd_list *kept[2]; ///< what is no ring

static void check(void *data) {
    (void)data;
    checks++;
    assert_ok(nd_debug_check());
}

static void give_nothing_back(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
    check(NULL);
}

/// A list that holds a resource of so many bytes and, as garbage, itself; else the test holds it.
static void fill(nd_manager *manager, int i, bool ring) {
    nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = give_nothing_back};
    nd_with_manager(manager) {
        nd_auto nd_list *list = nd_list_new();
        nd_auto nd_resource *resource = nd_resource_new("resource", &checks, BYTES, &callbacks);
        assert_handle(list);
        assert_handle(resource);
        assert_ok(nd_list_append(list, resource));
        if (ring)
            assert_ok(nd_list_append(list, list));
        kept[i] = ring ? NULL : nd_retain(list);
        nd_with_manager(nd_manager_get_root()) // or a disposal closes it
            watched[i] = nd_weak_new(list);
        assert_ok(nd_weak_set_callback(watched[i], check, NULL));
    }
}

typedef enum end { CLOSED, DISPOSED, RELEASED } end;

/// One manager below another one, both full; what ends is the upper one.
static void test_accounts_are_right_while_managers_end(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++)
        for (end how = CLOSED; how <= RELEASED; how++)
            for (int rings = 0; rings < 4; rings++) {
                nd_gc_set_mode(mode ? ND_GC_ON : ND_GC_OFF);
                checks = 0;
                nd_manager *upper = nd_manager_new(NULL, "upper");
                nd_manager *lower = nd_manager_new(upper, "lower");
                fill(upper, 0, rings & 1);
                fill(lower, 1, rings & 2);
                nd_release(lower);
                if (how != RELEASED)
                    assert_ok((how == CLOSED ? nd_manager_close : nd_manager_dispose)(upper, NULL));
                nd_release(upper);
                assert_ok(nd_debug_check());
                for (int i = 0; i < 2; i++)
                    nd_release(kept[i]);
                assert_ok(nd_gc_collect(NULL, NULL));
                assert_int_equal(checks, 4);
                for (int i = 0; i < 2; i++)
                    nd_release(watched[i]);
            }
}

// ------------------------------------------------------------------- managers that close each other

typedef struct loop {
    nd_object *self;
} loop;
#define LOOP_EDGES(ONE, MANY) ONE(self)
ND_TYPE_EDGES(loop, LOOP_EDGES)

static nd_manager *upper, *middle, *lower[2];
static nd_resource *survivor;
static bool release_upper;

static nd_resource *resource_in(nd_manager *manager) {
    nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1};
    nd_resource *resource = NULL;
    nd_with_manager(manager) {
        resource = nd_resource_new("resource", &checks, BYTES, &callbacks);
    }
    assert_handle(resource);
    return resource;
}

static void drop_loop_in(nd_manager *manager, const nd_type *type) {
    nd_with_manager(manager) {
        nd_auto nd_object *object = nd_object_new(type, sizeof(loop));
        assert_handle(object);
        nd_edge_set(&((loop *)nd_object_get_data(object))->self, object);
    }
}

/// The survivor is seen wherever it is looked for.
static void assert_seen(void) {
    check(NULL);
    assert_int_equal(nd_manager_get_total_bytes(NULL), BYTES);
    assert_true(nd_debug_report_leaks(NULL, NULL, 0) >= 1);
    nd_holders holders = ND_HOLDERS_INIT;
    assert_ok(nd_debug_get_holders(survivor, NULL, &holders));
    assert_int_equal(holders.handles, 1);
}

static void close_upper(nd_object *self) {
    (void)self;
    assert_seen();
    if (release_upper) {
        nd_release(upper);
        upper = NULL;
    } else {
        assert_ok(nd_manager_close(upper, NULL));
    }
    assert_seen();
}

/// The manager above a closing one is closed by a destructor that the close runs.
static void test_what_a_closing_manager_holds_is_seen_when_those_above_it_are_closed(void **state) {
    (void)state;
    static const nd_type type = {.size = sizeof type,
                                 .version = 1,
                                 .name = "loop",
                                 .traverse = loop_traverse,
                                 .clear = loop_clear,
                                 .destroy = close_upper};
    for (int i = 0; i < 4; i++) {
        release_upper = i & 1;
        nd_gc_set_mode(ND_GC_ON);
        upper = nd_manager_new(NULL, "upper");
        middle = nd_manager_new(upper, "middle");
        lower[0] = nd_manager_new(middle, "lower");
        survivor = resource_in(lower[0]);
        drop_loop_in(lower[0], &type);
        checks = 0;
        assert_ok(nd_manager_close(i & 2 ? middle : lower[0], NULL));
        assert_int_equal(checks, 2);
        assert_seen();
        assert_true(nd_get_manager(survivor) == nd_manager_get_root() || release_upper);
        nd_release(lower[0]);
        nd_release(middle);
        nd_release(upper);
        assert_true(nd_get_manager(survivor) == nd_manager_get_root());
        nd_release(survivor);
        nd_manager_stats stats = ND_MANAGER_STATS_INIT;
        assert_ok(nd_manager_get_stats(NULL, &stats));
        assert_int_equal(stats.subtree_bytes[ND_CPU], 0);
    }
}

static void see(nd_object *self) {
    (void)self;
    assert_seen();
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(nd_get_manager(survivor), &stats));
    assert_int_equal(stats.subtree_bytes[ND_CPU], BYTES);
    for (const nd_manager *m = middle; m != nd_get_manager(survivor);
         m = nd_manager_get_parent(m)) {
        assert_ok(nd_manager_get_stats(m, &stats));
        assert_int_equal(stats.subtree_bytes[ND_CPU], 0);
    }
}

/// Where what survived has gone past managers that are not finished yet.
static void test_accounts_are_right_while_survivors_go_up(void **state) {
    (void)state;
    static const nd_type type = {.size = sizeof type,
                                 .version = 1,
                                 .name = "loop",
                                 .traverse = loop_traverse,
                                 .clear = loop_clear,
                                 .finalize = see};
    nd_gc_set_mode(ND_GC_ON);
    upper = nd_manager_new(NULL, "upper");
    assert_ok(nd_manager_set_gc_mode(upper, ND_GC_OFF));
    nd_auto nd_manager *between = nd_manager_new(upper, "between");
    middle = nd_manager_new(between, "middle");
    for (int i = 0; i < 2; i++)
        lower[i] = nd_manager_new(middle, "lower");
    assert_ok(nd_manager_set_gc_mode(lower[0], ND_GC_ON));
    survivor = resource_in(lower[1]); // which is closed before the other one
    drop_loop_in(lower[0], &type);
    checks = 0;
    assert_ok(nd_manager_close(upper, NULL));
    assert_int_equal(checks, 1);
    assert_seen();
    nd_release(survivor);
    for (int i = 0; i < 2; i++)
        nd_release(lower[i]);
    nd_release(middle);
    nd_release(upper);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_accounts_are_right_while_managers_end),
        ND_TEST(test_what_a_closing_manager_holds_is_seen_when_those_above_it_are_closed),
        ND_TEST(test_accounts_are_right_while_survivors_go_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
