// Small tensors carry their data; what outlives them gets a storage that is made for it.
//
// One that is viewed is a tensor, its storage and the view, and the bytes are the storage's;
// before, it is one object, and the bytes are its own. Nobody may see a difference in between.
#define ND_TEST_COLLECTS_BY_POLICY
#include "lib/base/alloc.h"
#include "lib/object/block.h"
#include "lib/object/checked.h"
#include "lib/tensor/tensor.h"
#include "tests/unit/tensor/values.h"

enum { FLOATS = 16, BYTES = FLOATS * sizeof(float) };

static bool always_fails(size_t bytes) {
    (void)bytes;
    return true;
}

static uint64_t objects_in(const nd_manager *manager) {
    return nd_manager_get_total_objects(manager);
}
static uint64_t bytes_in(const nd_manager *manager) {
    return nd_manager_get_total_bytes(manager);
}

/// In a manager of its own, which is returned by `ret_manager`.
static nd_tensor *counted_in(nd_manager **ret_manager) {
    *ret_manager = nd_manager_new(NULL, "m");
    assert_non_null(*ret_manager);
    nd_tensor *x = NULL;
    nd_with_manager(*ret_manager) x = nd_arange(0, FLOATS, 1, ND_F32);
    assert_non_null(x);
    return x;
}

static nd_status add_one(nd_tensor *x) {
    nd_auto nd_tensor *one = nd_scalar(1, ND_F32);
    return nd_add_(x, one);
}

static void must_count_up(const nd_tensor *x) {
    const float *data = nd_get_data(x);
    for (int i = 0; i < FLOATS; i++)
        assert_true(data[i] == (float)i);
}

static void test_small_tensor_is_one_object_until_it_is_viewed(void **state) {
    (void)state;
    nd_manager *manager;
    nd_tensor *x = counted_in(&manager);
    assert_int_equal(objects_in(manager), 1);
    assert_int_equal(bytes_in(manager), BYTES);
    assert_int_equal(nd_get_storage_bytes(x), BYTES);
    assert_true(nd_is_view_of(x, x));
    nd_tensor *view = nd_reshape(x, ND_SHAPE(4, 4)), *again = nd_detach(x);
    assert_int_equal(objects_in(manager), 4); // the storage, too
    assert_int_equal(bytes_in(manager), BYTES);
    assert_true(nd_is_view_of(x, view) && nd_is_view_of(again, view));
    assert_ptr_equal(nd_get_data(view), nd_get_data(x));
    assert_int_equal(nd_get_storage_bytes(view), BYTES);
    nd_release(again);
    nd_release(view);
    assert_int_equal(objects_in(manager), 2);
    nd_release(x);
    assert_int_equal(objects_in(manager), 0);
    assert_int_equal(bytes_in(manager), 0);
    assert_ok(nd_debug_check());
    nd_release(manager);
}

static void test_view_keeps_the_data_of_a_dead_tensor(void **state) {
    (void)state;
    nd_manager *manager;
    nd_tensor *x = counted_in(&manager), *view = NULL;
    nd_no_grad view = nd_slice(x, 0, FLOATS, 1, 0); // a recorded one would keep x as well
    nd_release(x);
    assert_int_equal(objects_in(manager), 2);
    assert_int_equal(bytes_in(manager), BYTES);
    nd_tensor *others[64]; // none gets the block that the view looks at
    for (int i = 0; i < 64; i++)
        others[i] = nd_full(ND_SHAPE(FLOATS), -1, ND_F32);
    must_count_up(view);
    nd_tensor *further = nd_flatten(view, 0);
    nd_release(view);
    must_count_up(further);
    for (int i = 0; i < 64; i++)
        nd_release(others[i]);
    nd_release(further);
    assert_int_equal(bytes_in(manager), 0);
    nd_release(manager);
}

static void test_close_leaves_the_data_to_views(void **state) {
    (void)state;
    for (int order = 0; order < 3; order++) {
        nd_manager *manager;
        nd_tensor *x = counted_in(&manager), *view = order ? nd_detach(x) : NULL;
        assert_ok(nd_close(x));
        assert_int_equal(bytes_in(manager), view ? BYTES : 0);
        assert_null(nd_detach(x));
        assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
        nd_error_clear();
        assert_int_equal(nd_get_version(x), 0);
        assert_int_equal(nd_get_storage_bytes(x), 0);
        assert_false(nd_is_view_of(x, x));
        if (order == 1)
            nd_release(x);
        if (view)
            must_count_up(view);
        nd_release(view);
        assert_int_equal(bytes_in(manager), 0);
        if (order != 1)
            nd_release(x);
        assert_int_equal(objects_in(manager), 0);
        nd_release(manager);
    }
}

static void test_version_is_one_for_tensor_and_views(void **state) {
    (void)state;
    nd_tensor *x = nd_ones(ND_SHAPE(FLOATS), ND_F32);
    assert_ok(add_one(x));
    assert_int_equal(nd_get_version(x), 1);
    nd_tensor *view = nd_detach(x);
    assert_int_equal(nd_get_version(view), 1);
    assert_ok(add_one(x));
    assert_int_equal(nd_get_version(view), 2);
    assert_ok(add_one(view));
    assert_int_equal(nd_get_version(x), 3);
    nd_release(x);
    assert_int_equal(nd_get_version(view), 3);
    nd_release(view);
}

static void test_saved_tensor_notices_a_write_through_a_later_view(void **state) {
    (void)state;
    nd_tensor *x = nd_ones(ND_SHAPE(FLOATS), ND_F32), *p = nd_ones(ND_SHAPE(FLOATS), ND_F32);
    assert_ok(nd_set_requires_grad(p, true));
    nd_tensor *product = nd_mul(x, p); // saves x, which has no storage
    assert_null(nd__tensor_storage_now(x));
    nd_tensor *view = nd_detach(x), *loss = nd_sum(product, 0, NULL, false);
    assert_ok(add_one(view));
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_STATE);
    nd_error_clear();
    nd_tensor *all[] = {x, p, product, view, loss};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        nd_release(all[i]);
}

static void test_view_without_memory_changes_nothing(void **state) {
    (void)state;
    nd_manager *manager;
    nd_tensor *x = counted_in(&manager);
    nd__alloc_should_fail = always_fails;
    nd_tensor *view = nd_detach(x);
    nd__alloc_should_fail = NULL;
    assert_null(view);
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    nd_error_clear();
    assert_null(nd__tensor_storage_now(x));
    assert_int_equal(objects_in(manager), 1);
    assert_int_equal(bytes_in(manager), BYTES);
    must_count_up(x);
    assert_ok(nd_debug_check());
    nd_release(x);
    nd_release(manager);
}

static void test_view_asks_neither_quota_nor_trigger(void **state) {
    (void)state;
    nd_manager *manager;
    nd_tensor *x = counted_in(&manager);
    assert_ok(nd_manager_set_quota(manager, ND_CPU, BYTES));
    nd_tensor *view = nd_detach(x);
    assert_non_null(view);
    assert_int_equal(bytes_in(manager), BYTES);
    assert_ok(nd_debug_check());
    nd_release(view);
    nd_release(x);
    nd_release(manager);
}

static void test_capped_manager_counts_tensor_and_view(void **state) {
    (void)state;
    nd_manager *manager;
    nd_tensor *x = counted_in(&manager);
    assert_ok(nd_manager_set_cap(manager, 2));
    nd_tensor *view = nd_detach(x);
    assert_non_null(view);
    assert_null(nd_detach(x));
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    nd_error_clear();
    nd_release(view);
    nd_release(x);
    nd_release(manager);
}

static void test_storage_of_a_lent_tensor_goes_home_with_it(void **state) {
    (void)state;
    nd_manager *home;
    nd_tensor *x = counted_in(&home);
    nd_manager *first = nd_manager_new(NULL, "first"), *second = nd_manager_new(NULL, "second");
    assert_ok(nd_manager_lend(first, x));
    assert_ok(nd_manager_lend(second, x));
    nd_tensor *view = NULL;
    nd_with_manager(nd_manager_get_root()) view = nd_detach(x);
    assert_non_null(view);
    assert_int_equal(bytes_in(second), BYTES);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(second, &report));
    assert_int_equal(report.returned_objects, 1);
    assert_int_equal(report.escaped_objects, 0);
    assert_int_equal(bytes_in(first), BYTES);
    assert_ok(nd_manager_close(first, NULL));
    assert_int_equal(bytes_in(home), BYTES);
    assert_int_equal(objects_in(home), 2);
    assert_ok(nd_debug_check());
    nd_release(x);
    assert_int_equal(bytes_in(home), BYTES);
    nd_release(view);
    assert_int_equal(bytes_in(home), 0);
    nd_release(first);
    nd_release(second);
    nd_release(home);
}

static void test_attach_takes_bytes_along_before_and_after_a_view(void **state) {
    (void)state;
    nd_manager *from, *to = nd_manager_new(NULL, "to");
    nd_tensor *x = counted_in(&from);
    assert_ok(nd_manager_attach(to, x));
    assert_int_equal(bytes_in(from), 0);
    assert_int_equal(bytes_in(to), BYTES);
    nd_tensor *view = NULL;
    nd_with_manager(nd_manager_get_root()) view = nd_detach(x);
    assert_ok(nd_manager_attach(from, x));
    assert_int_equal(bytes_in(to), 0);
    assert_int_equal(bytes_in(from), BYTES);
    assert_ok(nd_manager_set_quota(to, ND_CPU, BYTES - 1));
    assert_int_equal(nd_manager_attach(to, x), ND_ERROR_QUOTA);
    nd_error_clear();
    assert_ok(nd_debug_check());
    nd_release(view);
    nd_release(x);
    nd_release(to);
    nd_release(from);
}

static void test_dispose_of_the_tensors_manager_leaves_the_view(void **state) {
    (void)state;
    nd_manager *manager;
    nd_tensor *x = counted_in(&manager), *view = NULL;
    nd_with_manager(nd_manager_get_root()) view = nd_detach(x);
    assert_ok(nd_manager_dispose(manager, NULL));
    assert_true(nd_is_closed(x));
    must_count_up(view);
    nd_release(x);
    must_count_up(view);
    nd_release(view);
    nd_release(manager);
}

static void test_fields_take_as_much_as_the_dimensions_need(void **state) {
    (void)state;
    assert_true(sizeof(nd_tensor) + 2 * 3 * sizeof(int64_t) <= 192);
    nd_auto nd_tensor *sixteen = nd_ones(ND_SHAPE(16), ND_F32);
    nd_auto nd_tensor *square = nd_ones(ND_SHAPE(4, 4), ND_F32);
    if (!nd__checked_is_on()) {
        assert_int_equal(nd__block_size(&sixteen->header), 224);
        assert_int_equal(nd__block_size(&square->header), 256);
    }
    for (int ndim = 0; ndim <= ND_MAX_DIMS; ndim++) {
        int64_t shape[ND_MAX_DIMS] = {2, 1, 3, 1, 2, 1, 1, 2};
        nd_tensor *x = nd_ones(ndim, shape, ND_F32), *turned;
        int axes[ND_MAX_DIMS];
        for (int i = 0; i < ndim; i++)
            axes[i] = ndim - 1 - i;
        turned = nd_permute(x, ndim, axes);
        assert_int_equal((uintptr_t)nd_get_data(x) % 32, 0);
        for (int i = 0; i < ndim; i++) {
            assert_int_equal(nd_get_shape(x)[i], shape[i]);
            assert_int_equal(nd_get_shape(turned)[i], shape[ndim - 1 - i]);
            assert_int_equal(nd_get_strides(turned)[i], nd_get_strides(x)[ndim - 1 - i]);
        }
        nd_tensor *sum = nd_sum(turned, 0, NULL, false);
        assert_true(nd_get_item(sum) == (double)nd_get_numel(x));
        nd_release(sum);
        nd_release(turned);
        nd_release(x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_small_tensor_is_one_object_until_it_is_viewed),
        ND_TEST(test_view_keeps_the_data_of_a_dead_tensor),
        ND_TEST(test_close_leaves_the_data_to_views),
        ND_TEST(test_version_is_one_for_tensor_and_views),
        ND_TEST(test_saved_tensor_notices_a_write_through_a_later_view),
        ND_TEST(test_view_without_memory_changes_nothing),
        ND_TEST(test_view_asks_neither_quota_nor_trigger),
        ND_TEST(test_capped_manager_counts_tensor_and_view),
        ND_TEST(test_storage_of_a_lent_tensor_goes_home_with_it),
        ND_TEST(test_attach_takes_bytes_along_before_and_after_a_view),
        ND_TEST(test_dispose_of_the_tensors_manager_leaves_the_view),
        ND_TEST(test_fields_take_as_much_as_the_dimensions_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
