// nd_backward_release(): what nobody else holds is freed node by node, what somebody holds stays
// usable, and an error leaves every gradient as it was. And gradients that are added to in place.
#include "tests/unit/autograd/support.h"

#include "lib/base/alloc.h"

enum { STEPS = 32, WIDTH = 4096 };

/// exp(x / STEPS) STEPS times over: each step saves what it computes.
static nd_tensor *chain(const nd_tensor *x) {
    nd_tensor *y = nd_retain(x);
    for (int i = 0; i < STEPS; i++) {
        nd_auto nd_tensor *smaller = nd_mul_scalar(y, 1.0 / STEPS);
        nd_release(y);
        y = nd_exp(smaller);
    }
    nd_tensor *sum = total(y);
    nd_release(y);
    return sum;
}

static uint64_t peak_of(const nd_tensor *x, bool release) {
    nd_auto nd_manager *step = nd_manager_new(NULL, "step");
    nd_with_manager(step) {
        nd_tensor *loss = chain(x);
        if (release) {
            assert_ok(nd_backward_release(loss, NULL));
        } else {
            nd_auto nd_tensor *kept = loss;
            nd_auto nd_tensor *longer = nd_add_scalar(kept, 1); // the graph is held to the end
            assert_ok(nd_backward(longer, NULL));
        }
    }
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(step, &stats));
    return stats.peak_bytes[ND_CPU];
}

static void test_memory_of_a_step_serves_the_next(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_rand(nd_key_new(5), ND_SHAPE(WIDTH), ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    const uint64_t bytes = WIDTH * sizeof(double);
    uint64_t kept = peak_of(x, false);
    nd_auto nd_tensor *expected = nd_retain(nd_get_grad(x));
    assert_ok(nd_zero_grad(x));
    uint64_t released = peak_of(x, true);
    // The forward pass has STEPS results; the backward pass of the second adds no more than what a
    // rule has in its hands.
    assert_true(kept >= (STEPS + 1) * bytes);
    assert_true(released <= (STEPS + 2) * bytes);
    nd_auto nd_tensor *same = nd_equal(expected, nd_get_grad(x));
    nd_auto nd_tensor *all = nd_all(same, 0, NULL, false);
    bool equal = false;
    assert_ok(nd_copy_to_host(all, &equal, sizeof equal));
    assert_true(equal);
}

static void test_a_part_that_is_held_stays_usable(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2, 3));
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *cube = nd_mul(square, x);
    nd_tensor *loss = total(cube);
    assert_ok(nd_backward_release(loss, NULL));
    assert_values(nd_get_grad(x), VALUES(3, 12, 27));
    assert_ok(nd_zero_grad(x));
    nd_auto nd_tensor *again = total(cube);
    assert_ok(nd_backward(again, NULL));
    assert_values(nd_get_grad(x), VALUES(3, 12, 27));
    assert_values(square, VALUES(1, 4, 9));
}

static void test_output_that_somebody_holds(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(2, 5));
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *loss = total(square);
    assert_ok(nd_backward_release(nd_retain(loss), NULL));
    assert_ok(nd_backward_release(nd_retain(loss), NULL));
    assert_values(nd_get_grad(x), VALUES(8, 20));
}

static void test_output_that_is_a_leaf(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(7));
    assert_ok(nd_backward_release(nd_retain(x), NULL));
    assert_values(nd_get_grad(x), VALUES(1));
    // A leaf that nobody else holds: its gradient goes with it.
    assert_ok(nd_backward_release(make_leaf(VALUES(7)), NULL));
}

static void test_recorded_pass(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2, 3));
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *cube = nd_mul(square, x);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    assert_ok(nd_backward_release(total(cube), &options));
    nd_auto nd_tensor *slope = nd_retain(nd_get_grad(x));
    nd_tensor *steepness = total(slope);
    assert_ok(nd_zero_grad(x));
    assert_ok(nd_backward_release(steepness, NULL));
    assert_values(nd_get_grad(x), VALUES(6, 12, 18));
    nd_release(nd_steal(&slope));
    assert_ok(nd_zero_grad(x));
}

static void test_errors_release_too(void **state) {
    (void)state;
    assert_int_equal(nd_backward_release(NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_error(ND_ERROR_INVALID_ARGUMENT, "output");
    assert_int_equal(nd_backward_release(make_vector(VALUES(1)), NULL), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "backward_release");
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    assert_int_equal(nd_backward_release(nd_square(x), NULL), ND_ERROR_SHAPE);
    nd_error_clear();
    nd_backward_options wrong = ND_BACKWARD_OPTIONS_INIT;
    wrong.size = 1;
    nd_auto nd_tensor *square = nd_square(x);
    assert_int_equal(nd_backward_release(total(square), &wrong), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_null(nd_get_grad(x));
}

static uint64_t allocations_left;

static bool fail_at_zero(size_t bytes) {
    (void)bytes;
    if (allocations_left == 0)
        return true;
    allocations_left--;
    return false;
}

static void test_F05_backward_release(void **state) {
    (void)state;
    nd_auto nd_tensor *table = nd_rand(nd_key_new(6), ND_SHAPE(5, 3), ND_F64);
    assert_ok(nd_set_requires_grad(table, true));
    nd_auto nd_tensor *ids = nd_from_data((const int64_t[]){4, 0, 4}, ND_SHAPE(3), ND_I64);
    for (uint64_t allowed = 0;; allowed++) {
        assert_true(allowed < 10000);
        nd_auto nd_tensor *rows = nd_embedding(table, ids, ND_NO_PADDING);
        nd_auto nd_tensor *back = nd_linear(rows, table, NULL);
        nd_tensor *loss = total(back);
        nd_release(nd_steal(&rows));
        nd_release(nd_steal(&back));
        allocations_left = allowed;
        nd__alloc_should_fail = fail_at_zero;
        nd_status status = nd_backward_release(loss, NULL);
        nd__alloc_should_fail = NULL;
        if (status == ND_OK) {
            assert_true(allowed > 0);
            assert_non_null(nd_get_grad(table));
            return;
        }
        assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
        nd_error_clear();
        assert_null(nd_get_grad(table));
    }
}

// -------------------------------------------------------------------------------------------------
// gradients that wait

/// A table that is read by rows, twice, and multiplied with, three times: all of them add to one
/// gradient.
static nd_tensor *uses_of(const nd_tensor *table, const nd_tensor *ids, const nd_tensor *x) {
    nd_auto nd_tensor *read = nd_embedding(table, ids, 1);
    nd_auto nd_tensor *once = nd_linear(read, table, NULL);
    nd_auto nd_tensor *turned = nd_matmul(once, table);
    nd_auto nd_tensor *wide = nd_tanh(turned);
    nd_auto nd_tensor *twice = nd_linear(wide, table, NULL);
    nd_auto nd_tensor *third = nd_linear(x, table, NULL);
    nd_auto nd_tensor *taken = nd_take(table, ids, 0);
    nd_auto nd_tensor *of_taken = total(taken);
    nd_auto nd_tensor *square = nd_square(twice);
    nd_auto nd_tensor *of_products = total(square);
    nd_auto nd_tensor *of_third = total(third);
    nd_auto nd_tensor *sum = nd_add(of_products, of_third);
    return nd_add(sum, of_taken);
}

/// The largest difference of two tensors of one shape.
static double distance(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *difference = nd_sub(a, b);
    nd_auto nd_tensor *size = nd_abs(difference);
    nd_auto nd_tensor *most = nd_max(size, 0, NULL, false);
    nd_auto nd_tensor *plain = nd_detach(most);
    double result = INFINITY;
    assert_ok(nd_copy_to_host(plain, &result, sizeof result));
    return result;
}

/// A recorded pass gives every use a gradient of its own and adds those up.
static void test_gradients_added_in_place(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const int64_t rows = 3 + (int64_t)seed % 5, width = 1 + (int64_t)seed % 7;
        nd_auto nd_tensor *table = nd_randn(nd_key_new(seed), ND_SHAPE(rows, width), ND_F64);
        assert_ok(nd_set_requires_grad(table, true));
        nd_auto nd_tensor *ids = nd_randint(nd_key_new(seed), -rows, rows, ND_SHAPE(2, 3), ND_I64);
        nd_auto nd_tensor *x = nd_randn(nd_key_new(seed + 1), ND_SHAPE(4, width), ND_F64);
        nd_auto nd_tensor *loss = uses_of(table, ids, x);
        nd_backward_options recorded = ND_BACKWARD_OPTIONS_INIT;
        recorded.create_graph = true;
        nd_tensor *apart = NULL, *together = NULL;
        assert_ok(nd_grad(loss, 1, (const nd_tensor *[]){table}, &recorded, &apart));
        assert_ok(nd_grad(loss, 1, (const nd_tensor *[]){table}, NULL, &together));
        assert_true(distance(apart, together) <= 1e-9);
        assert_ok(nd_backward(loss, NULL));
        assert_true(distance(apart, nd_get_grad(table)) <= 1e-9);
        nd_release(apart);
        nd_release(together);
    }
}

/// The gradient that waits for the table when the product adds to it is that of another leaf, too.
static void test_gradient_that_two_leaves_share(void **state) {
    (void)state;
    nd_auto nd_tensor *table = nd_randn(nd_key_new(11), ND_SHAPE(3, 3), ND_F64);
    nd_auto nd_tensor *other = nd_randn(nd_key_new(12), ND_SHAPE(3, 3), ND_F64);
    nd_auto nd_tensor *x = nd_randn(nd_key_new(13), ND_SHAPE(3, 3), ND_F64);
    assert_ok(nd_set_requires_grad(table, true));
    assert_ok(nd_set_requires_grad(other, true));
    nd_auto nd_tensor *product = nd_linear(x, table, NULL);
    nd_auto nd_tensor *bent = nd_tanh(product);
    nd_auto nd_tensor *both = nd_add(table, bent);
    nd_auto nd_tensor *all = nd_add(both, other);
    nd_auto nd_tensor *weighted = nd_mul(all, x);
    nd_auto nd_tensor *loss = total(weighted);
    assert_ok(nd_backward(loss, NULL));
    assert_true(distance(nd_get_grad(other), x) == 0);
    assert_true(distance(nd_get_grad(table), x) > 0.01);
}

/// The hook is given the sum of all uses, once.
static nd_tensor *halve(const nd_tensor *grad, const nd_object *context) {
    (void)context;
    nd_auto nd_tensor *half = nd_mul_scalar(grad, 0.5);
    return nd_steal(&half);
}

static void test_hook_of_a_table_of_several_uses(void **state) {
    (void)state;
    nd_auto nd_tensor *table = nd_randn(nd_key_new(9), ND_SHAPE(4, 3), ND_F64);
    assert_ok(nd_set_requires_grad(table, true));
    nd_auto nd_tensor *ids = nd_from_data((const int64_t[]){3, 0, 3}, ND_SHAPE(3), ND_I64);
    nd_auto nd_tensor *x = nd_randn(nd_key_new(10), ND_SHAPE(2, 3), ND_F64);
    nd_auto nd_tensor *loss = uses_of(table, ids, x);
    nd_tensor *whole = NULL;
    assert_ok(nd_grad(loss, 1, (const nd_tensor *[]){table}, NULL, &whole));
    assert_ok(nd_register_hook(table, halve, NULL));
    assert_ok(nd_backward(loss, NULL));
    nd_auto nd_tensor *doubled = nd_mul_scalar(nd_get_grad(table), 2);
    assert_true(distance(doubled, whole) <= 1e-9);
    nd_release(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_memory_of_a_step_serves_the_next),
        ND_TEST(test_a_part_that_is_held_stays_usable),
        ND_TEST(test_output_that_somebody_holds),
        ND_TEST(test_output_that_is_a_leaf),
        ND_TEST(test_recorded_pass),
        ND_TEST(test_errors_release_too),
        ND_TEST(test_F05_backward_release),
        ND_TEST(test_gradients_added_in_place),
        ND_TEST(test_gradient_that_two_leaves_share),
        ND_TEST(test_hook_of_a_table_of_several_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
