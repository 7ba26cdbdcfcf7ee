// DLPack: memory lent and taken in, and whose it is when. What is refused: dlpack_refused_test.c.
#include "lib/base/alloc.h"
#include "tests/elements.h"
#include "tests/unit/io/dlpack_foreign.h"

#include <pthread.h>
#include <stdlib.h>

// -------------------------------------------------------------------------------------------------
// lending

static void test_every_dtype_is_described_and_comes_back(void **state) {
    (void)state;
    static const int codes[ND_DTYPE_COUNT] = {
        [ND_BOOL] = kDLBool,  [ND_U8] = kDLUInt,   [ND_U16] = kDLUInt,  [ND_U32] = kDLUInt,
        [ND_U64] = kDLUInt,   [ND_I8] = kDLInt,    [ND_I16] = kDLInt,   [ND_I32] = kDLInt,
        [ND_I64] = kDLInt,    [ND_F16] = kDLFloat, [ND_F32] = kDLFloat, [ND_F64] = kDLFloat,
        [ND_BF16] = kDLBfloat};
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        nd_auto nd_tensor *numbers = nd_arange(0, 2, 1, ND_F64);
        nd_auto nd_tensor *x = nd_cast(numbers, (nd_dtype)dtype);
        DLManagedTensorVersioned *managed = nd_to_dlpack(x);
        assert_handle(managed);
        assert_int_equal(managed->version.major, 1);
        assert_int_equal(managed->flags, 0);
        const DLTensor *t = &managed->dl_tensor;
        assert_int_equal(t->dtype.code, codes[dtype]);
        assert_int_equal(t->dtype.bits, 8 * nd_dtype_get_size((nd_dtype)dtype));
        assert_int_equal(t->dtype.lanes, 1);
        assert_int_equal(t->device.device_type, kDLCPU);
        assert_int_equal(t->ndim, 1);
        assert_int_equal(t->shape[0], 2);
        assert_int_equal(t->strides[0], 1);
        assert_ptr_equal((char *)t->data + t->byte_offset, nd_get_data(x));
        nd_auto nd_tensor *back = nd_from_dlpack(managed);
        assert_handle(back);
        assert_int_equal(nd_get_dtype(back), dtype);
        assert_ptr_equal(nd_get_data(back), nd_get_data(x));
        assert_true(element_as_double(nd_get_data(back), (nd_dtype)dtype, 1) == 1.0);
    }
}

/// An element of what a description shows, by its own strides.
static double described(const DLTensor *t, const int64_t *index) {
    int64_t at = 0;
    for (int i = 0; i < t->ndim; i++)
        at += index[i] * t->strides[i];
    return ((const double *)((const char *)t->data + t->byte_offset))[at];
}

/// Lends x [a, b, c], reads it by the description, and takes it in again.
static void lend_and_compare(const nd_tensor *x) {
    assert_handle(x);
    nd_auto nd_tensor *dense = nd_clone(x);
    const double *expected = nd_get_data(dense);
    DLManagedTensorVersioned *managed = nd_to_dlpack(x);
    assert_handle(managed);
    const DLTensor *t = &managed->dl_tensor;
    const int64_t *shape = nd_get_shape(x);
    int64_t at = 0;
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++)
            for (int64_t k = 0; k < shape[2]; k++)
                assert_true(described(t, (int64_t[]){i, j, k}) == expected[at++]);
    if (at == 0)
        assert_null(t->data);
    nd_auto nd_tensor *back = nd_from_dlpack(managed);
    assert_handle(back);
    nd_auto nd_tensor *same = nd_equal(back, dense);
    nd_auto nd_tensor *all = nd_all(same, 0, NULL, false);
    assert_true(nd_get_item(all) == 1.0);
    if (at > 0 && nd_is_contiguous(x))
        assert_true(nd_is_contiguous(back));
}

static void test_every_layout_is_described_and_comes_back(void **state) {
    (void)state;
    nd_auto nd_tensor *numbers = nd_arange(0, 60, 1, ND_F64);
    nd_auto nd_tensor *x = nd_reshape(numbers, ND_SHAPE(3, 4, 5));
    lend_and_compare(x);
    nd_auto nd_tensor *turned = nd_permute(x, 3, (int[]){2, 0, 1});
    lend_and_compare(turned);
    nd_auto nd_tensor *cut = nd_slice(x, 1, 4, 2, 1);
    lend_and_compare(cut);
    nd_auto nd_tensor *single = nd_slice(turned, 2, 3, 1, 0); // an axis of size 1, odd strides
    lend_and_compare(single);
    nd_auto nd_tensor *empty = nd_slice(turned, 2, 2, 1, 1);
    lend_and_compare(empty);
    nd_auto nd_tensor *expanded = nd_expand(single, ND_SHAPE(7, 3, 4));
    lend_and_compare(expanded);
    nd_auto nd_tensor *small = nd_ones(ND_SHAPE(1, 1, 2), ND_F64); // in the tensor's own block
    lend_and_compare(small);
}

static void test_strides_that_address_nothing_are_compact(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4, 6), ND_F64);
    nd_auto nd_tensor *row = nd_slice(x, 2, 3, 1, 0);
    nd_auto nd_tensor *column = nd_slice(x, 2, 3, 1, 1);
    nd_auto nd_tensor *none = nd_slice(x, 0, 0, 1, 1);
    DLManagedTensorVersioned *managed = nd_to_dlpack(row);
    assert_int_equal(managed->dl_tensor.strides[0], 6);
    assert_int_equal(managed->dl_tensor.strides[1], 1);
    foreign_give_back(managed);
    managed = nd_to_dlpack(column);
    assert_int_equal(managed->dl_tensor.strides[0], 6);
    assert_int_equal(managed->dl_tensor.strides[1], 1);
    foreign_give_back(managed);
    managed = nd_to_dlpack(none);
    assert_int_equal(managed->dl_tensor.strides[0], 1);
    assert_int_equal(managed->dl_tensor.strides[1], 1);
    assert_null(managed->dl_tensor.data);
    foreign_give_back(managed);
}

static void test_a_scalar_has_no_sizes(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_scalar(2.5, ND_F64);
    DLManagedTensorVersioned *managed = nd_to_dlpack(x);
    assert_int_equal(managed->dl_tensor.ndim, 0);
    assert_true(*(double *)managed->dl_tensor.data == 2.5);
    managed->dl_tensor.shape = managed->dl_tensor.strides = NULL; // as others give them
    nd_auto nd_tensor *back = nd_from_dlpack(managed);
    assert_handle(back);
    assert_true(nd_get_item(back) == 2.5);
}

static void test_the_form_before_version_1(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_arange(0, 6, 1, ND_F32);
    DLManagedTensor *managed = nd_to_dlpack_unversioned(x);
    assert_handle(managed);
    assert_ptr_equal(managed->dl_tensor.data, nd_get_data(x));
    nd_auto nd_tensor *back = nd_from_dlpack_unversioned(managed);
    assert_handle(back);
    assert_ptr_equal(nd_get_data(back), nd_get_data(x));
    managed = nd_to_dlpack_unversioned(x);
    managed->deleter(managed);
}

static void test_what_is_lent_outlives_its_tensor(void **state) {
    (void)state;
    for (int elements = 4; elements <= 4096; elements *= 32) { // in its own block, and not
        nd_tensor *x = nd_full(ND_SHAPE(elements), 7.0, ND_F64);
        DLManagedTensorVersioned *released = nd_to_dlpack(x), *closed = nd_to_dlpack(x);
        assert_ok(nd_close(x));
        nd_release(x);
        assert_true(((double *)released->dl_tensor.data)[elements - 1] == 7.0);
        foreign_give_back(released);
        assert_true(((double *)closed->dl_tensor.data)[elements - 1] == 7.0);
        foreign_give_back(closed);
    }
}

static void test_what_is_lent_outlives_its_manager(void **state) {
    (void)state;
    uint64_t bytes = nd_manager_get_total_bytes(NULL);
    nd_manager *manager = nd_manager_new(NULL, "lender");
    DLManagedTensorVersioned *managed = NULL;
    nd_with_manager(manager) {
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(100), 7.0, ND_F64);
        managed = nd_to_dlpack(x);
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(manager, &report));
    nd_release(manager);
    assert_int_equal(report.escaped_objects, 1);
    assert_int_equal(nd_manager_get_total_bytes(NULL), bytes + 800);
    assert_true(((double *)managed->dl_tensor.data)[99] == 7.0);
    foreign_give_back(managed);
    assert_int_equal(nd_manager_get_total_bytes(NULL), bytes);
}

static void *delete_elsewhere(void *managed) {
    foreign_give_back(managed);
    return NULL;
}

static void test_a_deleter_runs_on_any_thread(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        nd_tensor *x = nd_full(ND_SHAPE(round + 1), 7.0, ND_F32);
        DLManagedTensorVersioned *managed = nd_to_dlpack(x);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, delete_elsewhere, managed), 0);
        nd_release(x);
        pthread_join(thread, NULL);
    }
}

static void test_what_cannot_be_lent(void **state) {
    (void)state;
    assert_null(nd_to_dlpack(NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "to_dlpack");
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    assert_null(nd_to_dlpack(x));
    assert_failed(ND_ERROR_STATE, "nd_detach");
    nd_auto nd_tensor *y = nd_mul_scalar(x, 2.0);
    assert_null(nd_to_dlpack_unversioned(y));
    assert_failed(ND_ERROR_STATE, "nd_detach");
    nd_auto nd_tensor *plain = nd_detach(y);
    foreign_give_back(nd_to_dlpack(plain));
    assert_ok(nd_close(plain));
    assert_null(nd_to_dlpack(plain));
    assert_failed(ND_ERROR_CLOSED, "to_dlpack");
}

// -------------------------------------------------------------------------------------------------
// taking in

static void test_the_deleter_runs_once_with_the_last_tensor(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    uint64_t bytes = nd_manager_get_total_bytes(NULL);
    nd_tensor *x = nd_from_dlpack(&f.managed);
    assert_handle(x);
    assert_int_equal(nd_manager_get_total_bytes(NULL), bytes + 6 * sizeof(double));
    assert_ptr_equal(nd_get_data(x), f.data);
    assert_ok(nd_fill_(x, 9));
    assert_true(f.data[5] == 9.0 && f.data[6] == 6.0);
    nd_tensor *row = nd_select(x, 1, 0);
    nd_release(x);
    assert_int_equal(f.deleted, 0);
    assert_true(((double *)nd_get_data(row))[2] == 9.0);
    nd_release(row);
    assert_int_equal(f.deleted, 1);
}

static void test_F26_no_deleter_and_no_strides(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.managed.deleter = NULL;
    f.managed.dl_tensor.strides = NULL;
    f.managed.dl_tensor.byte_offset = 16;
    nd_auto nd_tensor *x = nd_from_dlpack(&f.managed);
    assert_handle(x);
    assert_true(nd_is_contiguous(x));
    assert_ptr_equal(nd_get_data(x), f.data + 2);
}

static void test_strides_of_every_sign(void **state) {
    (void)state;
    static const int64_t strides[][2] = {{3, 1}, {1, 2},  {-3, 1}, {3, -1}, {-1, -2},
                                         {0, 0}, {0, -1}, {5, 0},  {-7, 3}, {2, 2}};
    for (size_t n = 0; n < sizeof strides / sizeof *strides; n++) {
        foreign f;
        foreign_begin(&f);
        f.managed.dl_tensor.data = f.data + 20;
        f.strides[0] = strides[n][0];
        f.strides[1] = strides[n][1];
        nd_auto nd_tensor *x = nd_from_dlpack(&f.managed);
        assert_handle(x);
        nd_auto nd_tensor *dense = nd_clone(x);
        const double *values = nd_get_data(dense);
        for (int64_t i = 0; i < 2; i++)
            for (int64_t j = 0; j < 3; j++)
                assert_true(values[3 * i + j] ==
                            (double)(20 + i * f.strides[0] + j * f.strides[1]));
        assert_int_equal(nd_is_contiguous(x), n == 0);
        nd_release(nd_steal(&x));
        assert_int_equal(f.deleted, 1);
    }
}

static void test_an_empty_tensor_needs_no_data(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.shape[0] = 0;
    f.strides[1] = INT64_MAX; // of axes that address nothing, strides are not looked at
    f.managed.dl_tensor.data = NULL;
    nd_tensor *x = nd_from_dlpack(&f.managed);
    assert_handle(x);
    assert_int_equal(nd_get_size(x, 1), 3);
    nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false);
    assert_true(nd_get_item(sum) == 0.0);
    nd_release(x);
    assert_int_equal(f.deleted, 1);
}

static void test_a_cycle_gives_memory_back_too(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    nd_manager *manager = nd_manager_new(NULL, "cycle");
    nd_gc_set_mode(ND_GC_ON);
    nd_with_manager(manager) {
        nd_list *list = nd_list_new();
        nd_tensor *x = nd_from_dlpack(&f.managed);
        assert_ok(nd_list_append(list, x));
        assert_ok(nd_list_append(list, list));
        nd_release(x);
        nd_release(list);
    }
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(f.deleted, 1);
    nd_gc_set_mode(ND_GC_OFF);
}

static void test_a_quota_counts_memory_of_others(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    nd_manager *manager = nd_manager_new(NULL, "small");
    assert_ok(nd_manager_set_quota(manager, ND_CPU, 40));
    nd_with_manager(manager) foreign_refuse(&f, ND_ERROR_QUOTA, "from_dlpack");
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
}

// -------------------------------------------------------------------------------------------------
// faults

static int allocations_left;
static bool allocations_fail(size_t bytes) {
    (void)bytes;
    return --allocations_left < 0;
}

static void test_F01_every_allocation_fails_once(void **state) {
    (void)state;
    bool failed = true;
    for (int n = 0; failed; n++) {
        assert_true(n < 1000);
        foreign f;
        foreign_begin(&f);
        f.strides[0] = -3; // a view of what is taken in
        f.managed.dl_tensor.data = f.data + 20;
        nd_auto nd_tensor *small = nd_ones(ND_SHAPE(3), ND_F32);
        allocations_left = n;
        nd__alloc_should_fail = allocations_fail;
        nd_tensor *x = nd_from_dlpack(&f.managed);
        DLManagedTensorVersioned *managed = nd_to_dlpack(small);
        failed = allocations_left < 0;
        nd__alloc_should_fail = NULL;
        assert_true(failed || (x && managed));
        assert_true(!failed || !x || !managed);
        if (managed)
            foreign_give_back(managed);
        assert_int_equal(f.deleted, 0);
        nd_release(x);
        assert_int_equal(f.deleted, x ? 1 : 0);
        nd_error_clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_dtype_is_described_and_comes_back),
        ND_TEST(test_every_layout_is_described_and_comes_back),
        ND_TEST(test_strides_that_address_nothing_are_compact),
        ND_TEST(test_a_scalar_has_no_sizes),
        ND_TEST(test_the_form_before_version_1),
        ND_TEST(test_what_is_lent_outlives_its_tensor),
        ND_TEST(test_what_is_lent_outlives_its_manager),
        ND_TEST(test_a_deleter_runs_on_any_thread),
        ND_TEST(test_what_cannot_be_lent),
        ND_TEST(test_the_deleter_runs_once_with_the_last_tensor),
        ND_TEST(test_F26_no_deleter_and_no_strides),
        ND_TEST(test_strides_of_every_sign),
        ND_TEST(test_an_empty_tensor_needs_no_data),
        ND_TEST(test_a_cycle_gives_memory_back_too),
        ND_TEST(test_a_quota_counts_memory_of_others),
        ND_TEST(test_F01_every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
