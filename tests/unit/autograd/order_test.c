// The order in which a backward pass visits nodes: by level, and in the order they came among
// equals, also when the list has moved to the heap.
#include "lib/autograd/pending.h"
#include "tests/testing.h"

enum { NODES = 300, LEVELS = 7 };

static void test_equal_levels_come_in_the_order_they_were_pushed(void **state) {
    (void)state;
    static nd_node nodes[NODES];
    nd_order order;
    nd__pending_order_init(&order);
    uint64_t random = 12345;
    for (int i = 0; i < NODES; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        nodes[i].level = (uint32_t)(random >> 33) % LEVELS;
        assert_true(nd__pending_order_push(&order, &nodes[i]));
    }
    const nd_node *before = NULL;
    for (int i = 0; i < NODES; i++) {
        const nd_node *node = nd__pending_order_pop(&order);
        assert_non_null(node);
        if (before &&
            (node->level > before->level || (node->level == before->level && node <= before)))
            fail_msg("node %d of level %u comes behind node %d of level %u", (int)(node - nodes),
                     (unsigned)node->level, (int)(before - nodes), (unsigned)before->level);
        before = node;
    }
    assert_null(nd__pending_order_pop(&order));
    nd__pending_order_free(&order);
}

static void test_what_comes_later_stands_behind_what_waits(void **state) {
    (void)state;
    static nd_node nodes[6];
    nd_order order;
    nd__pending_order_init(&order);
    const uint32_t levels[] = {3, 1, 3, 1, 3, 1};
    for (int i = 0; i < 6; i++)
        nodes[i].level = levels[i];
    // A pass pushes while it pops: the fourth and the sixth come when the first is already taken.
    for (int i = 0; i < 3; i++)
        assert_true(nd__pending_order_push(&order, &nodes[i]));
    assert_ptr_equal(nd__pending_order_pop(&order), &nodes[0]);
    for (int i = 3; i < 6; i++)
        assert_true(nd__pending_order_push(&order, &nodes[i]));
    const int expected[] = {2, 4, 1, 3, 5};
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(nd__pending_order_pop(&order), &nodes[expected[i]]);
    assert_null(nd__pending_order_pop(&order));
    nd__pending_order_free(&order);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_equal_levels_come_in_the_order_they_were_pushed),
        ND_TEST(test_what_comes_later_stands_behind_what_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
