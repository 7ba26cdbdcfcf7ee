// <nd/scoped.h> at run time: results belong to the scope, what is retained outlives it, and sites
// still work.
#ifndef ND_TRACK_SITES
#define ND_TRACK_SITES
#endif
#include "tests/testing.h"
#include "tests/training.h"
// After <nd/nd.h> on purpose: the order must not matter.
#include <nd/scoped.h>

static void test_scoped_results_die_with_the_scope(void **state) {
    (void)state;
    uint64_t before = nd_manager_get_total_objects(NULL);
    nd_tensor *kept = NULL;
    ND_SCOPE {
        const nd_tensor *a = nd_full(ND_SHAPE(2, 2), 3, ND_F32);
        const nd_tensor *b = nd_add(nd_mul(a, a), nd_neg(a));
        assert_int_equal(nd_scope_get_size(nd_scope_get_current()), 4);
        assert_int_equal(nd_get_count(b), 1);
        kept = nd_retain(nd_sum(b, 0, NULL, false));
        ND_SCOPE {
            assert_true(nd_get_item(nd_mul(kept, kept)) == 576.0);
        }
        assert_int_equal(nd_scope_get_size(nd_scope_get_current()), 5);
    }
    assert_int_equal(nd_manager_get_total_objects(NULL) - before, nd_test_objects_of(kept));
    assert_true(nd_get_item(kept) == 24.0);
    nd_release(kept);
}

static void test_scoped_result_without_a_scope_is_an_error(void **state) {
    (void)state;
    nd_error_clear();
    assert_null(nd_zeros(ND_SHAPE(3), ND_F32));
    assert_int_equal(nd_error_get_status(), ND_ERROR_STATE);
}

static void test_scoped_leaves_what_is_no_tensor_owned(void **state) {
    (void)state;
    nd_module *module =
        ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 3, 2, true), nd_relu_module());
    nd_optimizer *optimizer = sgd_of(module, 0.1, 0, 0);
    nd_list *list = nd_list_new();
    ND_SCOPE {
        const nd_tensor *y = nd_module_forward(module, nd_ones(ND_SHAPE(4, 3), ND_F32));
        assert_handle(y);
        assert_ok(nd_list_append(list, y));
        assert_ok(nd_backward(nd_sum(y, 0, NULL, false), NULL));
        assert_ok(nd_optimizer_step(optimizer));
        nd_auto nd_tensor *written = nd_retain(nd_zeros(ND_SHAPE(2), ND_F32));
        assert_ok(nd_fill_(written, 1));
        assert_ok(nd_add_scalar_out(nd_neg(written), 3, written));
        assert_true(nd_get_item(nd_sum(written, 0, NULL, false)) == 4);
        nd_auto nd_weak *weak = nd_weak_new(written);
        nd_auto nd_tensor *again = nd_weak_get_tensor(weak);
        assert_ptr_equal(again, written);
    }
    assert_int_equal(nd_get_count(nd_list_get(list, 0)), 1);
    nd_release(list);
    nd_release(optimizer);
    nd_release(module);
}

static void assert_made_at(const void *object, int line) {
    char site[128], expected[32];
    snprintf(expected, sizeof expected, "scoped.c:%d", line);
    nd_debug_get_site(object, site, sizeof site);
    if (!strstr(site, expected))
        fail_msg("made at '%s', should be %s", site, expected);
}

static void test_scoped_sites_name_the_line_of_the_call(void **state) {
    (void)state;
    ND_SCOPE {
        // What an operation makes on its way, such as a gradient, belongs to the line that asked
        // for it.
        nd_auto nd_tensor *leaf = nd_retain(nd_ones(ND_SHAPE(2), ND_F32));
        assert_ok(nd_set_requires_grad(leaf, true));
        const nd_tensor *sum = nd_sum(nd_mul(leaf, leaf), 0, NULL, false);
        assert_made_at(sum, __LINE__ - 1);
        assert_ok(nd_backward(sum, NULL));
        assert_made_at(nd_get_grad(leaf), __LINE__ - 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_scoped_results_die_with_the_scope),
        ND_TEST(test_scoped_result_without_a_scope_is_an_error),
        ND_TEST(test_scoped_leaves_what_is_no_tensor_owned),
        ND_TEST(test_scoped_sites_name_the_line_of_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
