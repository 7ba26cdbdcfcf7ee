// Creation: values, placement, accounts, and everything that is refused.
#include "lib/tensor/tensor.h"
#include "tests/unit/tensor/values.h"
#include <math.h>
#include <stdlib.h>

static void create_everything(nd_device device) {
    assert_ok(nd_set_default_device(device));
    nd_tensor *x = nd_zeros(ND_SHAPE(2, 2), ND_I32);
    assert_values(x, 0, 0, 0, 0);
    assert_shape(x, 2, 2);
    assert_int_equal(nd_get_device(x).kind, device.kind);
    nd_release(x);
    x = nd_ones(ND_SHAPE(3), ND_BOOL);
    assert_values(x, 1, 1, 1);
    nd_release(x);
    x = nd_full(ND_SHAPE(2), -3, ND_I64);
    assert_values(x, -3, -3);
    nd_release(x);
    x = nd_full(ND_SHAPE(2), 0.5, ND_BOOL);
    assert_values(x, 1, 1);
    nd_release(x);
    x = nd_scalar(2.5, ND_F64);
    assert_int_equal(nd_get_ndim(x), 0);
    assert_true(nd_get_item(x) == 2.5);
    nd_release(x);
    x = nd_arange(1, 2, 0.25, ND_F32);
    assert_values(x, 1, 1.25, 1.5, 1.75);
    nd_release(x);
    x = nd_arange(3, 0, -1, ND_I64);
    assert_values(x, 3, 2, 1);
    nd_release(x);
    x = nd_arange(0, 0, 1, ND_I64);
    assert_shape(x, 0);
    nd_release(x);
    x = nd_linspace(0, 1, 5, ND_F32);
    assert_values(x, 0, 0.25, 0.5, 0.75, 1);
    nd_release(x);
    x = nd_linspace(7, 9, 1, ND_F64);
    assert_values(x, 7);
    nd_release(x);
    x = nd_linspace(-5, 5, 4, ND_I32); // rounded down, as NumPy's
    const int32_t whole[] = {-5, -2, 1, 5};
    int32_t found[4];
    assert_ok(nd_copy_to_host(x, found, sizeof found));
    assert_memory_equal(found, whole, sizeof whole);
    nd_release(x);
    assert_refused(nd_linspace(-128.5, 5, 4, ND_I8), ND_ERROR_INVALID_ARGUMENT);
    x = nd_linspace(-0x1.8p1023, 0x1.8p1023, 5, ND_F64); // no f64 holds the difference
    assert_values(x, -0x1.8p1023, -0x1.8p1022, 0, 0x1.8p1022, 0x1.8p1023);
    nd_release(x);
    x = nd_linspace(0x1.8p1023, -0x1.8p1023, 2, ND_F64);
    assert_values(x, 0x1.8p1023, -0x1.8p1023);
    nd_release(x);
    x = nd_eye(3, ND_F32);
    assert_values(x, 1, 0, 0, 0, 1, 0, 0, 0, 1);
    nd_tensor *like = nd_ones_like(x);
    assert_values(like, 1, 1, 1, 1, 1, 1, 1, 1, 1);
    assert_int_equal(nd_get_device(like).index, device.index);
    nd_release(like);
    like = nd_full_like(x, -2.5);
    assert_values(like, -2.5, -2.5, -2.5, -2.5, -2.5, -2.5, -2.5, -2.5, -2.5);
    assert_int_equal(nd_get_device(like).index, device.index);
    nd_release(like);
    nd_release(x);
    int32_t data[] = {5, 6, 7, 8};
    x = nd_from_data(data, ND_SHAPE(2, 2), ND_I32);
    data[0] = 0;
    assert_values(x, 5, 6, 7, 8);
    nd_release(x);
    assert_ok(nd_set_default_device(on_cpu));
}

static void test_values_on_the_cpu(void **state) {
    (void)state;
    create_everything(on_cpu);
}

static void test_values_on_the_fake_device(void **state) {
    (void)state;
    create_everything(on_fake);
}

static void test_storage_is_aligned_and_counted(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_with_manager(manager) {
        for (int64_t size = 0; size < 300; size += 7) {
            nd_tensor *x = nd_empty(ND_SHAPE(size), ND_F32);
            assert_handle(x);
            // In the tensor's own block to half a cache line, elsewhere to a line.
            assert_int_equal((uintptr_t)nd_get_data(x) % (size * 4 <= 256 ? 32 : 64), 0);
            memset(nd_get_data(x), 1, (size_t)size * 4);
            assert_int_equal(nd_get_storage_bytes(x), size * 4);
            nd_manager_stats stats = ND_MANAGER_STATS_INIT;
            assert_ok(nd_manager_get_stats(manager, &stats));
            assert_int_equal(stats.live_bytes[ND_CPU], size * 4);
            nd_release(x);
        }
        assert_int_equal(nd_manager_get_total_bytes(manager), 0);
    }
    nd_release(manager);
}

static void test_like_goes_where_the_other_is(void **state) {
    (void)state;
    nd_manager *home = nd_manager_new(NULL, "home"), *other = nd_manager_new(NULL, "other");
    nd_tensor *x = NULL;
    nd_with_manager(home) x = nd_zeros(ND_SHAPE(2), ND_F32);
    nd_with_manager(other) {
        nd_tensor *like = nd_empty_like(x);
        assert_ptr_equal(nd_get_manager(like), home);
        nd_release(like);
        nd_tensor *elsewhere = nd_zeros(ND_SHAPE(2), ND_F32);
        assert_ptr_equal(nd_get_manager(elsewhere), other);
        nd_release(elsewhere);
    }
    nd_tensor *view = nd_slice(x, 0, 1, 1, 0);
    assert_ptr_equal(nd_get_manager(view), home);
    nd_release(view);
    nd_release(x);
    nd_release(home);
    nd_release(other);
}

static int freed_blocks;
static size_t freed_bytes;
static void count_free(void *pointer, size_t bytes) {
    freed_blocks++;
    freed_bytes = bytes;
    free(pointer);
}

static void test_wrap_uses_the_memory_itself(void **state) {
    (void)state;
    double local[4] = {1, 2, 3, 4};
    nd_tensor *x = nd_wrap(local, ND_SHAPE(2, 2), ND_F64, NULL);
    assert_ptr_equal(nd_get_data(x), local);
    local[3] = 9;
    assert_values(x, 1, 2, 3, 9);
    nd_release(x);
    freed_blocks = 0;
    x = nd_wrap(calloc(3, 4), ND_SHAPE(3), ND_F32, count_free);
    nd_tensor *view = nd_slice(x, 1, 2, 1, 0);
    nd_release(x);
    assert_int_equal(freed_blocks, 0);
    nd_release(view);
    assert_int_equal(freed_blocks, 1);
    assert_int_equal(freed_bytes, 12);
}

static void wrap_another(void *pointer, size_t bytes) {
    (void)bytes;
    freed_blocks = 0;
    nd_release(nd_wrap(calloc(3, 4), ND_SHAPE(3), ND_F32, count_free));
    *(int *)pointer = freed_blocks;
}

static void test_what_the_function_of_a_wrapped_tensor_releases_is_freed_there(void **state) {
    (void)state;
    int freed = 0;
    nd_release(nd_wrap(&freed, ND_SHAPE(1), ND_I32, wrap_another));
    assert_int_equal(freed, 1);
}

static void test_wrap_that_fails_leaves_the_memory_with_the_caller(void **state) {
    (void)state;
    char bytes[16];
    freed_blocks = 0;
    assert_refused(nd_wrap(bytes + 1, ND_SHAPE(1), ND_F32, count_free), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_wrap(NULL, ND_SHAPE(1), ND_U8, count_free), ND_ERROR_INVALID_ARGUMENT);
    nd_manager *manager = nd_manager_new(NULL, "m");
    assert_ok(nd_manager_set_quota(manager, ND_CPU, 8));
    nd_with_manager(manager)
        assert_refused(nd_wrap(bytes, ND_SHAPE(16), ND_U8, count_free), ND_ERROR_QUOTA);
    assert_ok(nd_manager_set_cap(manager, 1));
    nd_with_manager(manager) {
        nd_tensor *x = nd_zeros(ND_SHAPE(1), ND_U8);
        assert_refused(nd_wrap(bytes, ND_SHAPE(1), ND_U8, count_free), ND_ERROR_QUOTA);
        assert_int_equal(nd_manager_get_total_bytes(manager), 1);
        nd_release(x);
    }
    nd_release(manager);
    assert_int_equal(freed_blocks, 0);
}

static void test_F07_quota_refuses_and_nothing_stays(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "narrow");
    assert_ok(nd_manager_set_quota(manager, ND_CPU, 1000));
    nd_with_manager(manager) {
        nd_tensor *x = nd_zeros(ND_SHAPE(200), ND_F32);
        assert_handle(x);
        assert_refused(nd_zeros(ND_SHAPE(51), ND_F32), ND_ERROR_QUOTA);
        assert_non_null(strstr(nd_error_get_message(), "narrow"));
        nd_tensor *y = nd_zeros(ND_SHAPE(50), ND_F32);
        assert_handle(y);
        nd_release(x);
        nd_release(y);
        assert_int_equal(nd_manager_get_total_objects(manager), 0);
    }
    nd_release(manager);
}

static void test_bad_input_is_refused(void **state) {
    (void)state;
    double nan_value = NAN;
    assert_refused(nd_zeros(ND_SHAPE(-1), ND_F32), ND_ERROR_SHAPE);
    assert_refused(nd_zeros(9, NULL, ND_F32), ND_ERROR_SHAPE);
    assert_refused(nd_empty(ND_SHAPE((int64_t)1 << 40, (int64_t)1 << 40), ND_F32), ND_ERROR_SHAPE);
    assert_refused(nd_ones(ND_SHAPE(1), (nd_dtype)42), ND_ERROR_DTYPE);
    assert_refused(nd_full(ND_SHAPE(1), 256, ND_U8), ND_ERROR_INVALID_ARGUMENT);
    assert_string_equal(nd_error_get_message(), "full: 256 is no uint8");
    assert_refused(nd_scalar(nan_value, ND_I64), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_scalar(0x1p63, ND_I64), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_arange(0, 1, 0, ND_F32), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_arange(0, INFINITY, 1, ND_F32), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_arange(0, 300, 1, ND_U8), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_arange(0, 2, 1, ND_BOOL), ND_ERROR_DTYPE);
    assert_refused(nd_linspace(0, 1, -1, ND_F32), ND_ERROR_SHAPE);
    assert_refused(nd_linspace(nan_value, 1, 2, ND_F32), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_eye(-1, ND_F32), ND_ERROR_SHAPE);
    assert_refused(nd_from_data(NULL, ND_SHAPE(1), ND_F32), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_zeros_like(NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_string_equal(nd_error_get_message(), "zeros_like: x is NULL");
}

static void test_memory_the_machine_has_not(void **state) {
    (void)state;
    assert_refused(nd_empty(ND_SHAPE((int64_t)1 << 62), ND_U8), ND_ERROR_OUT_OF_MEMORY);
    assert_non_null(
        strstr(nd_error_get_message(), "no memory on cpu:0 for 4611686018427387904 bytes"));
}

static void test_random_keys(void **state) {
    (void)state;
    nd_key key = nd_key_new(7);
    nd_key first = nd_key_fold(key, 1), second = nd_key_fold(key, 2);
    assert_true(first.seed != second.seed && first.stream != second.stream);
    nd_key again = nd_key_fold(key, 1);
    assert_true(first.seed == again.seed && first.stream == again.stream);
    nd_tensor *x = nd_rand(first, ND_SHAPE(8), ND_F32), *y = nd_rand(again, ND_SHAPE(8), ND_F32);
    assert_ok(nd_set_default_device(on_fake));
    nd_tensor *z = nd_rand(first, ND_SHAPE(8), ND_F32);
    assert_ok(nd_set_default_device(on_cpu));
    float xs[8], ys[8], zs[8];
    assert_ok(nd_copy_to_host(x, xs, sizeof xs));
    assert_ok(nd_copy_to_host(y, ys, sizeof ys));
    assert_ok(nd_copy_to_host(z, zs, sizeof zs));
    assert_memory_equal(xs, ys, sizeof xs);
    assert_memory_equal(xs, zs, sizeof xs);
    for (int i = 0; i < 8; i++)
        assert_true(xs[i] >= 0 && xs[i] < 1 && (i == 0 || xs[i] != xs[0]));
    nd_release(x);
    nd_release(y);
    nd_release(z);
    assert_refused(nd_rand(key, ND_SHAPE(2), ND_I32), ND_ERROR_DTYPE);
    assert_refused(nd_randn(key, ND_SHAPE(2), ND_BOOL), ND_ERROR_DTYPE);
}

static void test_random_integers_stay_in_range(void **state) {
    (void)state;
    nd_key key = nd_key_new(1);
    int64_t values[64];
    nd_tensor *x = nd_randint(key, -3, 4, ND_SHAPE(64), ND_I64);
    assert_ok(nd_copy_to_host(x, values, sizeof values));
    for (int i = 0; i < 64; i++)
        assert_in_range(values[i] + 3, 0, 6);
    nd_release(x);
    assert_refused(nd_randint(key, 5, 5, ND_SHAPE(1), ND_I64), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_randint(key, 0, 257, ND_SHAPE(1), ND_U8), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_randint(key, -1, 2, ND_SHAPE(1), ND_U8), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_randint(key, 0, 1, ND_SHAPE(1), (nd_dtype)99), ND_ERROR_DTYPE);
}

static void test_permutations_hold_every_number_once(void **state) {
    (void)state;
    enum { N = 1000 };
    nd_tensor *x = nd_randperm(nd_key_new(3), N), *y = nd_randperm(nd_key_new(4), N);
    const int64_t *values = nd_get_data(x);
    bool seen[N] = {false};
    int fixed = 0;
    for (int i = 0; i < N; i++) {
        assert_in_range(values[i], 0, N - 1);
        assert_false(seen[values[i]]);
        seen[values[i]] = true;
        fixed += values[i] == i;
    }
    assert_true(fixed < 10);
    assert_memory_not_equal(values, nd_get_data(y), N * sizeof(int64_t));
    nd_release(x);
    nd_release(y);
    x = nd_randperm(nd_key_new(3), 0);
    assert_shape(x, 0);
    nd_release(x);
    assert_refused(nd_randperm(nd_key_new(3), -1), ND_ERROR_SHAPE);
}

static void test_dispose_leaves_shared_storage_with_its_view(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_tensor *x = NULL, *view = NULL;
    nd_with_manager(manager) x = counted(on_cpu, ND_F32, ND_SHAPE(100));
    nd_with_manager(nd_manager_get_root()) view = nd_slice(x, 10, 12, 1, 0);
    assert_ok(nd_manager_dispose(manager, NULL));
    assert_true(nd_is_closed(x));
    assert_null(nd_get_data(x));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    nd_error_clear();
    assert_values(view, 10, 11);
    nd_release(view);
    nd_release(x);
    nd_release(manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_values_on_the_cpu),
        ND_TEST(test_values_on_the_fake_device),
        ND_TEST(test_storage_is_aligned_and_counted),
        ND_TEST(test_like_goes_where_the_other_is),
        ND_TEST(test_wrap_uses_the_memory_itself),
        ND_TEST(test_what_the_function_of_a_wrapped_tensor_releases_is_freed_there),
        ND_TEST(test_wrap_that_fails_leaves_the_memory_with_the_caller),
        ND_TEST(test_F07_quota_refuses_and_nothing_stays),
        ND_TEST(test_bad_input_is_refused),
        ND_TEST(test_memory_the_machine_has_not),
        ND_TEST(test_random_keys),
        ND_TEST(test_random_integers_stay_in_range),
        ND_TEST(test_permutations_hold_every_number_once),
        ND_TEST(test_dispose_leaves_shared_storage_with_its_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
