// nd_backward and what becomes of gradients: accumulation, memory of their own, placement, and that
// an error changes nothing.
#include "lib/device/fake/fake.h"
#include "tests/unit/autograd/support.h"

#include <pthread.h>

static void test_backward_adds_to_leaves(void **state) {
    (void)state;
    nd_auto nd_tensor *p = make_leaf(VALUES(1, 2, 3));
    nd_auto nd_tensor *y = make_vector(VALUES(4, 5, 6));
    nd_auto nd_tensor *product = nd_mul(p, y);
    nd_auto nd_tensor *loss = total(product);
    assert_null(nd_get_grad(p));
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(p), VALUES(4, 5, 6));
    assert_null(nd_get_grad(y));
    assert_null(nd_get_grad(product));
    // The graph stays usable, and gradients add up.
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(p), VALUES(8, 10, 12));
    assert_false(nd_requires_grad(nd_get_grad(p)));
    assert_ok(nd_zero_grad(p));
    assert_null(nd_get_grad(p));
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(p), VALUES(4, 5, 6));
}

static void test_every_path_counts(void **state) {
    (void)state;
    // y = x^2 + x * (x + x): the leaf and an inner node are reached by several paths.
    nd_auto nd_tensor *x = make_leaf(VALUES(3, -1));
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *twice = nd_add(x, x);
    nd_auto nd_tensor *product = nd_mul(x, twice);
    nd_auto nd_tensor *y = nd_add(square, product);
    nd_auto nd_tensor *both = nd_add(y, y);
    nd_auto nd_tensor *loss = total(both);
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(x), VALUES(36, -12));
}

static void test_gradients_share_memory_with_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *b = make_leaf(VALUES(3, 4));
    nd_auto nd_tensor *c = make_leaf(VALUES(0, 0));
    nd_auto nd_tensor *sum = nd_add(a, b);
    nd_auto nd_tensor *shaped = nd_reshape(c, ND_SHAPE(2));
    nd_auto nd_tensor *y = nd_add(sum, shaped);
    nd_auto nd_tensor *seed = make_vector(VALUES(1, 1));
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.grad = seed;
    assert_ok(nd_backward(y, &options));
    const nd_tensor *leaves[] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        const nd_tensor *grad = nd_get_grad(leaves[i]);
        assert_values(grad, VALUES(1, 1));
        assert_true(nd_is_contiguous(grad));
        assert_false(nd_is_view_of(grad, seed));
        for (int k = 0; k < i; k++)
            assert_false(nd_is_view_of(grad, nd_get_grad(leaves[k])));
    }
    // An expanded gradient (of a sum) becomes memory of its own as well.
    nd_auto nd_tensor *d = make_leaf(VALUES(1, 2, 3));
    nd_auto nd_tensor *loss = total(d);
    assert_ok(nd_backward(loss, NULL));
    assert_true(nd_is_contiguous(nd_get_grad(d)));
    assert_values(nd_get_grad(d), VALUES(1, 1, 1));
}

static void test_a_retained_gradient_is_not_written(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(2, 5));
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *loss = total(square);
    assert_ok(nd_backward(loss, NULL));
    nd_auto nd_tensor *kept = nd_retain(nd_get_grad(x));
    assert_ok(nd_backward(loss, NULL));
    assert_values(kept, VALUES(4, 10));
    assert_values(nd_get_grad(x), VALUES(8, 20));
}

static void test_output_that_is_a_leaf(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(7));
    assert_ok(nd_backward(x, NULL));
    assert_ok(nd_backward(x, NULL));
    assert_values(nd_get_grad(x), VALUES(2));
}

static void test_gradient_has_the_dtype_of_its_leaf(void **state) {
    (void)state;
    nd_auto nd_tensor *wide = make_leaf(VALUES(1.5, 2.5));
    nd_auto nd_tensor *narrow = nd_cast(wide, ND_F32);
    nd_auto nd_tensor *leaf = nd_detach(narrow);
    assert_ok(nd_set_requires_grad(leaf, true));
    nd_auto nd_tensor *product = nd_mul(leaf, wide);
    nd_auto nd_tensor *loss = total(product);
    assert_int_equal(nd_get_dtype(loss), ND_F64);
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(nd_get_dtype(nd_get_grad(leaf)), ND_F32);
    assert_values(nd_get_grad(leaf), VALUES(1.5, 2.5));
    assert_int_equal(nd_get_dtype(nd_get_grad(wide)), ND_F64);
}

static void test_leaf_that_stopped_wanting(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *b = make_leaf(VALUES(3, 4));
    nd_auto nd_tensor *product = nd_mul(a, b);
    nd_auto nd_tensor *loss = total(product);
    assert_ok(nd_set_requires_grad(a, false));
    assert_ok(nd_backward(loss, NULL));
    assert_null(nd_get_grad(a));
    assert_values(nd_get_grad(b), VALUES(1, 2));
}

static void test_set_grad(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *start = make_vector(VALUES(10, 20));
    assert_ok(nd_set_grad(x, start));
    assert_ptr_equal(nd_get_grad(x), start);
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *loss = total(square);
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(x), VALUES(12, 24));
    assert_values(start, VALUES(10, 20));

    nd_auto nd_tensor *longer = make_vector(VALUES(1, 2, 3));
    nd_auto nd_tensor *narrow = nd_cast(start, ND_F32);
    assert_int_equal(nd_set_grad(x, longer), ND_ERROR_SHAPE);
    assert_error(ND_ERROR_SHAPE, "[3]");
    assert_int_equal(nd_set_grad(x, narrow), ND_ERROR_DTYPE);
    assert_error(ND_ERROR_DTYPE, "float32");
    assert_int_equal(nd_set_grad(square, start), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "square");
    assert_int_equal(nd_set_grad(x, x), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_set_grad(NULL, x), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_values(nd_get_grad(x), VALUES(12, 24));
    assert_ok(nd_set_grad(x, NULL));
    assert_null(nd_get_grad(x));
}

static void test_errors_are_sentences(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *y = nd_square(x);
    assert_int_equal(nd_backward(NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_error(ND_ERROR_INVALID_ARGUMENT, "output");
    assert_int_equal(nd_backward(y, NULL), ND_ERROR_SHAPE);
    assert_error(ND_ERROR_SHAPE, "[2]");

    nd_auto nd_tensor *plain = make_vector(VALUES(1));
    assert_int_equal(nd_backward(plain, NULL), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "no history");

    nd_auto nd_tensor *short_seed = make_vector(VALUES(1));
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.grad = short_seed;
    assert_int_equal(nd_backward(y, &options), ND_ERROR_SHAPE);
    assert_error(ND_ERROR_SHAPE, "options.grad");
    nd_auto nd_tensor *narrow = nd_ones(ND_SHAPE(2), ND_F32);
    options.grad = narrow;
    assert_int_equal(nd_backward(y, &options), ND_ERROR_DTYPE);
    assert_error(ND_ERROR_DTYPE, "float32");
    nd_auto nd_tensor *far = nd_to(x, (nd_device){ND_FAKE, 0});
    options.grad = far;
    assert_int_equal(nd_backward(y, &options), ND_ERROR_DEVICE);
    assert_error(ND_ERROR_DEVICE, "fake");

    nd_backward_options unknown = {.size = 4, .version = 1};
    assert_int_equal(nd_backward(y, &unknown), ND_ERROR_INVALID_ARGUMENT);
    assert_error(ND_ERROR_INVALID_ARGUMENT, "ND_BACKWARD_OPTIONS_INIT");
    assert_null(nd_get_grad(x));

    nd_auto nd_tensor *loss = total(y);
    assert_ok(nd_close(loss));
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_CLOSED);
    nd_error_clear();
}

static void test_closed_parts_of_the_graph(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *b = make_leaf(VALUES(3, 4));
    nd_auto nd_tensor *sum = nd_add(a, b);
    nd_auto nd_tensor *loss = total(sum);
    assert_ok(nd_close(a));
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_CLOSED);
    assert_error(ND_ERROR_CLOSED, "leaf");
    assert_null(nd_get_grad(b));

    nd_auto nd_tensor *c = make_leaf(VALUES(5, 6));
    nd_auto nd_tensor *square = nd_square(c);
    nd_auto nd_tensor *other = total(square);
    assert_ok(nd_close((void *)(uintptr_t)nd_get_node(square)));
    assert_int_equal(nd_backward(other, NULL), ND_ERROR_CLOSED);
    assert_error(ND_ERROR_CLOSED, "square");
    assert_null(nd_get_grad(c));
}

static void test_saved_tensor_changed_in_place(void **state) {
    (void)state;
    // The first leaf's gradient is complete before the rule of mul finds its saved tensor changed.
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *b = make_leaf(VALUES(3, 4));
    nd_auto nd_tensor *factor = make_vector(VALUES(5, 6));
    nd_auto nd_tensor *product = nd_mul(b, factor);
    nd_auto nd_tensor *sum = nd_add(a, product);
    nd_auto nd_tensor *loss = total(sum);
    assert_ok(nd_backward(loss, NULL));
    nd_auto nd_tensor *before = nd_retain(nd_get_grad(a));
    assert_ok(nd_mul_scalar_(factor, 2.0));
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "in place");
    assert_ptr_equal(nd_get_grad(a), before);
    assert_values(nd_get_grad(a), VALUES(1, 1));
    assert_values(nd_get_grad(b), VALUES(5, 6));
}

static void test_in_place_keeps_history_right(void **state) {
    (void)state;
    // y = (2 x)^2 written in place: add after the value was saved is an error, before it is not.
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *y = nd_mul_scalar(x, 2.0);
    nd_auto nd_tensor *three = make_vector(VALUES(3, 3));
    assert_ok(nd_add_(y, three));
    nd_auto nd_tensor *square = nd_square(y);
    nd_auto nd_tensor *loss = total(square);
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(x), VALUES(20, 28));
    assert_ok(nd_add_(y, three));
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "square");
    // A leaf that requires a gradient is written inside nd_no_grad only.
    assert_int_equal(nd_add_(x, three), ND_ERROR_STATE);
    nd_error_clear();
    nd_no_grad assert_ok(nd_add_(x, three));
    assert_true(nd_is_leaf(x));
}

static void test_operation_without_a_gradient(void **state) {
    (void)state;
    // A window onto a leaf that has gaps itself: it may show what is not the leaf's.
    nd_auto nd_tensor *all = nd_from_data((double[]){1, 2, 3}, ND_SHAPE(3), ND_F64);
    nd_auto nd_tensor *x = nd_slice(all, 0, 3, 2, 0);
    assert_ok(nd_set_requires_grad(x, true));
    const int64_t stride = 1;
    nd_auto nd_tensor *window = nd_as_strided(x, ND_SHAPE(2), &stride, 0);
    nd_auto nd_tensor *loss = total(window);
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_NOT_DIFFERENTIABLE);
    assert_error(ND_ERROR_NOT_DIFFERENTIABLE, "as_strided");
    assert_null(nd_get_grad(x));
}

static void test_no_grad_and_detach(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_tensor *unrecorded = NULL;
    nd_tensor *recorded = NULL;
    nd_no_grad {
        assert_false(nd_is_grad_enabled());
        unrecorded = nd_square(x);
        nd_enable_grad recorded = nd_square(x);
        assert_false(nd_is_grad_enabled());
    }
    assert_true(nd_is_grad_enabled());
    assert_false(nd_requires_grad(unrecorded));
    assert_true(nd_requires_grad(recorded));
    nd_auto nd_tensor *detached = nd_detach(recorded);
    assert_false(nd_requires_grad(detached));
    assert_true(nd_is_view_of(detached, recorded));
    // Backward inside nd_no_grad works, and recording is as it was afterwards.
    nd_auto nd_tensor *loss = total(recorded);
    nd_no_grad {
        assert_ok(nd_backward(loss, NULL));
        assert_false(nd_is_grad_enabled());
    }
    assert_values(nd_get_grad(x), VALUES(2, 4));
    nd_release(unrecorded);
    nd_release(recorded);
}

static void test_B22_gradients_live_at_their_parameter(void **state) {
    (void)state;
    nd_auto nd_manager *model = nd_manager_new(NULL, "model");
    nd_auto nd_manager *step = nd_manager_new(model, "step");
    nd_tensor *p = NULL;
    nd_with_manager(model) p = make_leaf(VALUES(1, 2));
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_with_manager(step) {
        nd_auto nd_tensor *square = nd_square(p);
        nd_auto nd_tensor *loss = total(square);
        assert_ptr_equal(nd_get_manager(loss), step);
        assert_ok(nd_backward(loss, NULL));
        assert_ok(nd_backward(loss, NULL));
    }
    assert_ptr_equal(nd_get_manager(nd_get_grad(p)), model);
    assert_ok(nd_manager_close(step, &report));
    assert_int_equal(report.escaped_objects, 0);
    assert_values(nd_get_grad(p), VALUES(4, 8));
    // Two tensors, two storages; with the parameter the gradient goes.
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(model, &stats));
    assert_int_equal(stats.live_bytes[ND_CPU], 4 * sizeof(double));
    nd_release(p);
    assert_ok(nd_manager_get_stats(model, &stats));
    assert_int_equal(stats.live_objects, 0);
    assert_int_equal(stats.live_bytes[ND_CPU], 0);
}

static void test_B15_capped_manager_refuses_the_gradient(void **state) {
    (void)state;
    nd_auto nd_manager *model = nd_manager_new(NULL, "model");
    nd_tensor *p = NULL;
    nd_with_manager(model) p = make_leaf(VALUES(1, 2));
    nd_auto nd_manager *outside = nd_manager_new(NULL, "outside");
    nd_with_manager(outside) {
        nd_auto nd_tensor *square = nd_square(p);
        nd_auto nd_tensor *loss = total(square);
        assert_ok(nd_manager_set_cap(model, 1));
        assert_int_equal(nd_backward(loss, NULL), ND_ERROR_QUOTA);
        nd_error_clear();
        assert_null(nd_get_grad(p));
        assert_ok(nd_manager_set_cap(model, 0));
        assert_ok(nd_backward(loss, NULL));
        assert_values(nd_get_grad(p), VALUES(2, 4));
    }
    nd_release(p);
}

static void test_closed_gradient(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *loss = total(square);
    assert_ok(nd_backward(loss, NULL));
    assert_ok(nd_close((void *)(uintptr_t)nd_get_grad(x)));
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_CLOSED);
    assert_error(ND_ERROR_CLOSED, "gradient");
    assert_ok(nd_zero_grad(x));
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(x), VALUES(2, 4));
}

static void test_on_another_device(void **state) {
    (void)state;
    const nd_device fake = {ND_FAKE, 0};
    nd_auto nd_tensor *host = make_vector(VALUES(1, 2, 3));
    nd_auto nd_tensor *x = nd_to(host, fake);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *power = nd_pow_scalar(x, 3.0);
    nd_auto nd_tensor *part = nd_slice(power, 0, 2, 1, 0);
    nd_auto nd_tensor *loss = nd_mean(part, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    assert_ok(nd_backward(loss, &options));
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(nd_get_device(nd_get_grad(x)).kind, ND_FAKE);
    assert_values(nd_get_grad(x), VALUES(4.5, 18, 0));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CHAIN = 100000 };
#else
enum { CHAIN = 1000000 };
#endif

static void test_deep_chain(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1));
    nd_tensor *y = nd_mul_scalar(x, 1.0);
    for (int i = 0; i < CHAIN; i++) {
        nd_tensor *next = nd_add_scalar(y, 1.0);
        nd_release(y);
        y = next;
    }
    assert_handle(y);
    assert_ok(nd_backward(y, NULL));
    assert_values(nd_get_grad(x), VALUES(1));
    const nd_tensor *input = x;
    nd_tensor *grad = NULL;
    assert_ok(nd_grad(y, 1, &input, NULL, &grad));
    assert_values(grad, VALUES(1));
    nd_release(grad);
    nd_release(y);
}

static void test_wide_graph(void **state) {
    (void)state;
    // More leaves, inputs and pending nodes than fit on the stack.
    enum { WIDTH = 300 };
    nd_tensor *leaves[WIDTH];
    nd_tensor *squares[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        leaves[i] = make_leaf(VALUES((double)i));
        squares[i] = nd_square(leaves[i]);
    }
    nd_auto nd_tensor *all = nd_concat(WIDTH, (const nd_tensor *const *)squares, 0);
    nd_auto nd_tensor *loss = total(all);
    nd_tensor *grads[WIDTH];
    assert_ok(nd_grad(loss, WIDTH, (const nd_tensor *const *)leaves, NULL, grads));
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    assert_ok(nd_backward(loss, NULL));
    assert_ok(nd_backward(loss, &options));
    for (int i = 0; i < WIDTH; i++) {
        assert_values(grads[i], VALUES(2.0 * i));
        assert_values(nd_get_grad(leaves[i]), VALUES(4.0 * i));
        assert_ok(nd_zero_grad(leaves[i]));
        nd_release(grads[i]);
        nd_release(squares[i]);
        nd_release(leaves[i]);
    }
}

static void test_sums_are_reproducible(void **state) {
    (void)state;
    // Many summands of different size meet in one leaf: the order of addition shows in the bits.
    float first = 0.0f;
    for (int round = 0; round < 5; round++) {
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(1), 0.1, ND_F32);
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *sum = nd_mul_scalar(x, 0.3);
        nd_tensor *parts[40];
        for (int i = 0; i < 40; i++) {
            parts[i] = nd_mul_scalar(x, 1.0 / (3.0 + i));
            nd_tensor *next = nd_add(sum, parts[39 - (39 - i)]);
            nd_release(sum);
            sum = next;
        }
        assert_ok(nd_backward(sum, NULL));
        float found = *(const float *)nd_get_data(nd_get_grad(x));
        if (round == 0)
            first = found;
        assert_memory_equal(&first, &found, sizeof first);
        for (int i = 0; i < 40; i++)
            nd_release(parts[i]);
    }
}

enum { THREADS = 4, PASSES = 200 };

static void *backward_often(void *argument) {
    const nd_tensor *leaf = argument;
    for (int i = 0; i < PASSES; i++) {
        nd_auto nd_tensor *product = nd_mul_scalar(leaf, 3.0);
        nd_auto nd_tensor *loss = nd_sum(product, 0, NULL, false);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = i % 2 == 1;
        if (nd_backward(loss, &options) != ND_OK)
            return argument;
    }
    return NULL;
}

static void test_threads_add_to_one_leaf(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, backward_often, x), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_values(nd_get_grad(x), VALUES(3.0 * THREADS * PASSES, 3.0 * THREADS * PASSES));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_backward_adds_to_leaves),
        ND_TEST(test_every_path_counts),
        ND_TEST(test_gradients_share_memory_with_nothing),
        ND_TEST(test_a_retained_gradient_is_not_written),
        ND_TEST(test_output_that_is_a_leaf),
        ND_TEST(test_gradient_has_the_dtype_of_its_leaf),
        ND_TEST(test_leaf_that_stopped_wanting),
        ND_TEST(test_set_grad),
        ND_TEST(test_errors_are_sentences),
        ND_TEST(test_closed_parts_of_the_graph),
        ND_TEST(test_saved_tensor_changed_in_place),
        ND_TEST(test_in_place_keeps_history_right),
        ND_TEST(test_operation_without_a_gradient),
        ND_TEST(test_no_grad_and_detach),
        ND_TEST(test_B22_gradients_live_at_their_parameter),
        ND_TEST(test_B15_capped_manager_refuses_the_gradient),
        ND_TEST(test_closed_gradient),
        ND_TEST(test_on_another_device),
        ND_TEST(test_deep_chain),
        ND_TEST(test_wide_graph),
        ND_TEST(test_sums_are_reproducible),
        ND_TEST(test_threads_add_to_one_leaf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
