// Lifetimes of tensors, wherever they are: B3, B4, B9, B11, B12, B18, B19, B23, B24 and F15 where a
// tensor is more than an object with bytes. What they cost their managers is in tensor_accounts.c,
// cycles made of tensors in autograd_cycles.c, other devices in fake_device.c.
#ifndef ND_TRACK_SITES
#define ND_TRACK_SITES
#endif
#include "tests/behaviour/helpers.h"
#include <math.h>
#include <pthread.h>

static void test_B03_like_tensor_is_placed_with_its_model(void **state) {
    (void)state;
    nd_manager *levels[4];
    nd_tensor *models[4];
    for (int i = 0; i < 4; i++) {
        levels[i] = manager_new(i ? levels[i - 1] : NULL, "level");
        models[i] = ones_in(levels[i], 16);
    }
    nd_tensor *likes[3] = {NULL};
    nd_with_manager(levels[3]) {
        likes[0] = nd_zeros_like(models[1]);
        likes[1] = nd_ones_like(models[1]);
        likes[2] = nd_empty_like(models[1]);
    }
    for (int i = 0; i < 3; i++) {
        assert_handle(likes[i]);
        assert_ptr_equal(nd_get_manager(likes[i]), levels[1]);
    }
    assert_int_equal(own_bytes(levels[1]), 4 * 16 * sizeof(float));
    // Its neighbours go with the inner levels, it with its model's.
    const uint64_t each = nd_test_objects_of(models[0]);
    assert_int_equal(close_and_release(levels[3]).escaped_objects, each);
    assert_int_equal(close_and_release(levels[2]).escaped_objects, 2 * each);
    for (int i = 0; i < 3; i++)
        nd_release(likes[i]);
    for (int i = 0; i < 4; i++)
        nd_release(models[i]);
    assert_int_equal(close_and_release(levels[1]).escaped_objects, 0);
    close_and_release(levels[0]);
}

static void test_B04_list_of_results_survives_a_move_out(void **state) {
    (void)state;
    uint64_t before = nd_manager_get_total_bytes(NULL);
    ND_SCOPE {
        const nd_list *kept = NULL;
        ND_SCOPE {
            nd_list *list = nd_list_new();
            const nd_tensor *a = nd_tmp(nd_ones(ND_SHAPE(1000), ND_F32));
            for (int i = 0; i < 3; i++)
                assert_ok(nd_list_append(list, nd_tmp(nd_add_scalar(a, i))));
            kept = nd_tmp(list);
            assert_ok(nd_scope_move_out(kept));
        }
        assert_int_equal(nd_manager_get_total_bytes(NULL) - before, 3 * 4000);
        const nd_tensor *last = (const nd_tensor *)nd_list_get(kept, 2);
        const nd_tensor *first = nd_tmp(nd_select(last, 0, 0));
        assert_true(nd_get_item(first) == 3.0);
    }
    assert_int_equal(nd_manager_get_total_bytes(NULL), before);
}

static void test_B09_escaped_result_is_reported_with_the_line_of_its_operation(void **state) {
    (void)state;
    nd_manager *step = manager_new(NULL, "step");
    nd_tensor *loss = NULL;
    char site[64];
    nd_with_manager(step) {
        nd_auto nd_tensor *a = nd_ones(ND_SHAPE(256), ND_F32);
        loss = nd_mul(a, a);
        snprintf(site, sizeof site, "tensors.c:%d (2)", __LINE__ - 1); // tensor and storage
    }
    nd_close_report report = close_and_release(step);
    assert_int_equal(report.escaped_objects, 2);
    assert_int_equal(report.escaped_bytes, 256 * sizeof(float));
    assert_non_null(strstr(report.escaped_sites[0], site));
    assert_ptr_equal(nd_get_manager(loss), nd_manager_get_root());
    nd_release(loss);
}

static void assert_closed(const void *result) {
    assert_null(result);
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    assert_true(strlen(nd_error_get_message()) > 10);
    nd_error_clear();
}

static void test_B11_disposed_tensor_answers_closed_to_every_use(void **state) {
    (void)state;
    nd_manager *m = manager_new(NULL, "m");
    nd_tensor *x = ones_in(m, 100), *good = nd_ones(ND_SHAPE(100), ND_F32);
    assert_ok(nd_manager_dispose(m, NULL));
    assert_int_equal(nd_manager_get_total_bytes(NULL), 100 * sizeof(float)); // good's
    assert_true(nd_is_closed(x));
    nd_error_clear();
    assert_closed(nd_add(x, good));
    assert_closed(nd_add(good, x));
    assert_closed(nd_exp(x));
    assert_closed(nd_sum(x, 0, NULL, false));
    assert_closed(nd_reshape(x, ND_SHAPE(10, 10)));
    assert_closed(nd_slice(x, 0, 1, 1, 0));
    assert_closed(nd_clone(x));
    assert_closed(nd_detach(x));
    assert_closed(nd_cast(x, ND_F64));
    assert_closed(nd_concat(2, (const nd_tensor *const[]){good, x}, 0));
    assert_closed(nd_get_data(x));
    assert_true(isnan(nd_get_item(x)));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    float copy[100];
    assert_int_equal(nd_copy_to_host(x, copy, sizeof copy), ND_ERROR_CLOSED);
    assert_int_equal(nd_add_(x, good), ND_ERROR_CLOSED);
    assert_int_equal(nd_add_(good, x), ND_ERROR_CLOSED);
    assert_int_equal(nd_fill_(x, 1), ND_ERROR_CLOSED);
    assert_int_equal(nd_backward(x, NULL), ND_ERROR_CLOSED);
    assert_ok(nd_close(x));
    nd_release(x);
    nd_release(good);
    nd_release(m);
}

static void test_F15_view_keeps_the_storage_of_a_closed_tensor(void **state) {
    (void)state;
    nd_tensor *x = nd_arange(0, 100, 1, ND_F32);
    nd_tensor *view = nd_slice(x, 90, 100, 1, 0);
    uint64_t before = nd_manager_get_total_bytes(NULL);
    assert_ok(nd_close(x));
    assert_int_equal(nd_manager_get_total_bytes(NULL), before);
    nd_auto nd_tensor *sum = nd_sum(view, 0, NULL, false);
    assert_true(nd_get_item(sum) == 945.0);
    nd_release(view);
    assert_int_equal(before - nd_manager_get_total_bytes(NULL),
                     400 - sizeof(float)); // the sum is left
    nd_release(x);
}

// --------------------------------------------------------------------------------------------- B12

enum { TREE = 7 }; // three levels

static void test_B12_sum_is_placed_the_same_either_way(void **state) {
    (void)state;
    nd_manager *tree[TREE];
    nd_tensor *tensors[TREE];
    for (int i = 0; i < TREE; i++) {
        tree[i] = manager_new(i ? tree[(i - 1) / 2] : NULL, "node");
        tensors[i] = ones_in(tree[i], 4);
    }
    for (int a = 0; a < TREE; a++) {
        for (int b = 0; b < TREE; b++) {
            nd_auto nd_tensor *ab = nd_add(tensors[a], tensors[b]);
            nd_auto nd_tensor *ba = nd_add(tensors[b], tensors[a]);
            assert_handle(ab);
            assert_ptr_equal(nd_get_manager(ab), nd_get_manager(ba));
            int common = a, other = b;
            while (common != other) {
                if (common > other)
                    common = (common - 1) / 2;
                else
                    other = (other - 1) / 2;
            }
            int expected = common == a ? b : common == b ? a : common;
            assert_ptr_equal(nd_get_manager(ab), tree[expected]);
        }
    }
    // A result goes with its operands, whatever was made last; a block says otherwise.
    nd_with_manager(tree[5]) {
        nd_auto nd_tensor *here = nd_add(tensors[1], tensors[2]);
        assert_ptr_equal(nd_get_manager(here), tree[5]);
    }
    for (int i = 0; i < TREE; i++)
        nd_release(tensors[i]);
    for (int i = TREE; i-- > 0;)
        assert_int_equal(close_and_release(tree[i]).escaped_objects, 0);
}

static void test_F12_overlapping_in_place_writes_are_refused(void **state) {
    (void)state;
    nd_tensor *x = nd_arange(0, 10, 1, ND_F32);
    nd_tensor *low = nd_slice(x, 0, 9, 1, 0), *high = nd_slice(x, 1, 10, 1, 0);
    nd_tensor *row = nd_slice(x, 0, 1, 1, 0), *repeated = nd_expand(row, ND_SHAPE(4));
    nd_error_clear();
    assert_int_equal(nd_add_(low, high), ND_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(nd_error_get_message(), "share part of their memory"));
    assert_int_equal(nd_copy_(high, low), ND_ERROR_INVALID_ARGUMENT);
    assert_int_not_equal(nd_fill_(repeated, 7), ND_OK);
    for (int i = 0; i < 10; i++)
        assert_true(element_of(x, i) == i);
    assert_int_equal(nd_get_version(x), 0);
    assert_ok(nd_add_(low, low)); // wholly the same elements
    assert_true(element_of(x, 8) == 16);
    nd_release(repeated);
    nd_release(row);
    nd_release(high);
    nd_release(low);
    nd_release(x);
}

static void test_F13_dtypes_an_operation_does_not_take_are_refused(void **state) {
    (void)state;
    nd_tensor *floats = nd_ones(ND_SHAPE(4), ND_F32), *bools = nd_ones(ND_SHAPE(4), ND_BOOL);
    nd_tensor *integers = nd_ones(ND_SHAPE(4), ND_I64);
    uint64_t objects = nd_manager_get_total_objects(NULL);
    nd_error_clear();
    assert_null(nd_take(floats, floats, 0));
    assert_int_equal(nd_error_get_status(), ND_ERROR_DTYPE);
    assert_non_null(strstr(nd_error_get_message(), "float32"));
    assert_null(nd_where(floats, floats, floats));
    assert_null(nd_masked_select(floats, integers));
    assert_null(nd_add(bools, bools));
    assert_int_equal(nd_set_requires_grad(integers, true), ND_ERROR_DTYPE);
    assert_null(nd_full(ND_SHAPE(2), 1, (nd_dtype)77));
    assert_int_equal(nd_manager_get_total_objects(NULL), objects);
    nd_release(floats);
    nd_release(bools);
    nd_release(integers);
}

// ------------------------------------------------------------------------------------- B18 and B19

/// Objects and bytes that one fresh tensor of this many floats is.
static void assert_only_new_object_is(const nd_tensor *result, uint64_t objects, uint64_t bytes) {
    assert_handle(result);
    assert_int_equal(nd_manager_get_total_objects(NULL) - objects, nd_test_objects_of(result));
    assert_int_equal(nd_manager_get_total_bytes(NULL) - bytes, nd_get_storage_bytes(result));
}

static void test_B18_indexing_leaves_no_temporaries(void **state) {
    (void)state;
    nd_tensor *x = nd_rand(nd_key_new(1), ND_SHAPE(8, 9), ND_F32);
    nd_tensor *half = nd_full(ND_SHAPE(1), 0.5, ND_F32);
    nd_tensor *mask = nd_greater(x, half);
    nd_tensor *rows = nd_arange(0, 4, 1, ND_I64);
    nd_tensor *index = nd_zeros(ND_SHAPE(8, 9), ND_I64);
    uint64_t objects = nd_manager_get_total_objects(NULL), bytes = nd_manager_get_total_bytes(NULL);
    for (int which = 0; which < 7; which++) {
        nd_tensor *result = NULL;
        switch (which) {
        case 0:
            result = nd_masked_select(x, mask);
            break;
        case 1:
            result = nd_masked_fill(x, mask, 0);
            break;
        case 2:
            result = nd_take(x, rows, 0);
            break;
        case 3:
            result = nd_gather(x, index, 0);
            break;
        case 4:
            result = nd_scatter_add(x, index, x, 0);
            break;
        case 5:
            result = nd_one_hot(rows, 5, ND_F32);
            break;
        default:
            result = nd_where(mask, x, half);
        }
        assert_only_new_object_is(result, objects, bytes);
        nd_release(result);
        assert_int_equal(nd_manager_get_total_objects(NULL), objects);
        assert_int_equal(nd_manager_get_total_bytes(NULL), bytes);
    }
    assert_ok(nd_masked_fill_(x, mask, 0));
    assert_int_equal(nd_manager_get_total_objects(NULL), objects);
    nd_tensor *view = nd_slice(x, 1, -1, 2, 1);
    assert_int_equal(nd_manager_get_total_objects(NULL), objects + 1); // a view brings no storage
    assert_ok(nd_fill_(view, 3));
    nd_release(view);
    nd_tensor *row = nd_select(x, -1, 0);
    assert_ok(nd_copy_(row, half));
    nd_release(row);
    assert_int_equal(nd_manager_get_total_objects(NULL), objects);
    assert_int_equal(nd_manager_get_total_bytes(NULL), bytes);
    nd_release(x);
    nd_release(half);
    nd_release(mask);
    nd_release(rows);
    nd_release(index);
}

static void test_B18_failed_indexing_leaves_nothing(void **state) {
    (void)state;
    nd_tensor *x = nd_ones(ND_SHAPE(4, 4), ND_F32);
    nd_tensor *outside = nd_full(ND_SHAPE(2), 4, ND_I64), *wrong = nd_ones(ND_SHAPE(3), ND_BOOL);
    uint64_t objects = nd_manager_get_total_objects(NULL), bytes = nd_manager_get_total_bytes(NULL);
    nd_tensor *taken = nd_take(x, outside, 0);
    if (nd_test_device().kind == ND_CPU) {
        assert_null(taken);
    } else { // which tells late
        nd_release(taken);
        assert_int_equal(nd_synchronize(nd_test_device()), ND_ERROR_INVALID_ARGUMENT);
    }
    assert_null(nd_select(x, 4, 0));
    assert_null(nd_masked_select(x, wrong));
    assert_null(nd_masked_fill(x, wrong, 1));
    assert_null(nd_gather(x, wrong, 0));
    assert_int_not_equal(nd_masked_fill_(x, wrong, 1), ND_OK);
    assert_int_equal(nd_manager_get_total_objects(NULL), objects);
    assert_int_equal(nd_manager_get_total_bytes(NULL), bytes);
    nd_release(x);
    nd_release(outside);
    nd_release(wrong);
}

static void test_B19_growing_by_concat_keeps_only_the_last(void **state) {
    (void)state;
    enum { TIMES = 1000 };
    uint64_t before = nd_manager_get_total_bytes(NULL),
             objects = nd_manager_get_total_objects(NULL);
    nd_tensor *x = nd_zeros(ND_SHAPE(1), ND_F32), *d = nd_ones(ND_SHAPE(3), ND_F32);
    for (int i = 1; i <= TIMES; i++) {
        nd_tensor *longer = nd_concat(2, (const nd_tensor *const[]){x, d}, 0);
        assert_handle(longer);
        nd_release(x);
        x = longer;
        assert_int_equal(nd_manager_get_total_bytes(NULL) - before,
                         (uint64_t)(nd_get_numel(x) + 3) * sizeof(float));
        assert_int_equal(nd_manager_get_total_objects(NULL) - objects,
                         nd_test_objects_of(d) + nd_test_objects_of(x));
    }
    assert_int_equal(nd_get_numel(x), 3 * TIMES + 1);
    nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false);
    assert_true(nd_get_item(sum) == 3.0 * TIMES);
    nd_release(x);
    nd_release(d);
}

// ------------------------------------------------------------------------------------- B23 and B24

static void test_B23_view_keeps_its_storage_which_counts_once(void **state) {
    (void)state;
    enum { MEGABYTE = 1 << 20 };
    nd_manager *m = manager_new(NULL, "m");
    nd_tensor *x = NULL;
    nd_with_manager(m) {
        x = nd_ones(ND_SHAPE(MEGABYTE / 4), ND_F32);
    }
    nd_tensor *view = nd_slice(x, 10, 12, 1, 0), *second = nd_reshape(x, ND_SHAPE(-1, 2));
    assert_ptr_equal(nd_get_manager(view), m);
    assert_true(nd_is_view_of(view, x) && nd_is_view_of(second, view));
    assert_int_equal(own_bytes(m), MEGABYTE);
    nd_release(x);
    nd_release(second);
    assert_int_equal(own_bytes(m), MEGABYTE);
    // What pins it can be asked: two elements, a megabyte.
    assert_int_equal(nd_get_numel(view), 2);
    assert_int_equal(nd_get_storage_bytes(view), MEGABYTE);
    assert_true(element_of(view, 1) == 1);
    nd_tensor *copy = nd_clone(view);
    assert_false(nd_is_view_of(copy, view));
    nd_release(view);
    assert_int_equal(own_bytes(m), nd_get_storage_bytes(copy));
    nd_release(copy);
    assert_int_equal(own_bytes(m), 0);
    assert_int_equal(close_and_release(m).escaped_objects, 0);
}

static void *produce(void *data) {
    assert_ok(nd_test_use_device());
    *(nd_tensor **)data = nd_arange(0, 1000, 1, ND_F64);
    return NULL;
}

static void test_B24_tensor_outlives_the_thread_that_made_it(void **state) {
    (void)state;
    nd_tensor *made = NULL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, produce, &made), 0);
    pthread_join(thread, NULL);
    assert_handle(made);
    nd_tensor *sum = nd_sum(made, 0, NULL, false);
    nd_release(made);
    assert_true(nd_get_item(sum) == 499500.0);
    nd_release(sum);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B03_like_tensor_is_placed_with_its_model),
        ND_TEST(test_B04_list_of_results_survives_a_move_out),
        ND_TEST(test_B09_escaped_result_is_reported_with_the_line_of_its_operation),
        ND_TEST(test_B11_disposed_tensor_answers_closed_to_every_use),
        ND_TEST(test_F15_view_keeps_the_storage_of_a_closed_tensor),
        ND_TEST(test_B12_sum_is_placed_the_same_either_way),
        ND_TEST(test_F12_overlapping_in_place_writes_are_refused),
        ND_TEST(test_F13_dtypes_an_operation_does_not_take_are_refused),
        ND_TEST(test_B18_indexing_leaves_no_temporaries),
        ND_TEST(test_B18_failed_indexing_leaves_nothing),
        ND_TEST(test_B19_growing_by_concat_keeps_only_the_last),
        ND_TEST(test_B23_view_keeps_its_storage_which_counts_once),
        ND_TEST(test_B24_tensor_outlives_the_thread_that_made_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
