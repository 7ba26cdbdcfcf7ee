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

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_accounts_are_right_while_managers_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
