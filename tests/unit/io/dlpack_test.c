// DLPack: memory lent and taken in, whose it is when, and descriptions that lie.
#include "lib/base/alloc.h"
#include "tests/elements.h"
#include "tests/unit/io/files.h"
#include "third_party/dlpack/dlpack.h"

#include <pthread.h>
#include <stdlib.h>

static void give_back(DLManagedTensorVersioned *managed) {
    managed->deleter(managed);
}

// -------------------------------------------------------------------------------------------------
// a library that hands descriptions out

typedef struct foreign {
    DLManagedTensorVersioned managed;
    int64_t shape[9], strides[9];
    double data[64];
    int deleted;
} foreign;

static void count_deletion(DLManagedTensorVersioned *managed) {
    ((foreign *)managed->manager_ctx)->deleted++;
}

/// Two rows of three f64, row-major.
static void foreign_begin(foreign *f) {
    *f = (foreign){.shape = {2, 3}, .strides = {3, 1}};
    for (int i = 0; i < 64; i++)
        f->data[i] = i;
    f->managed.version = (DLPackVersion){DLPACK_MAJOR_VERSION, 0};
    f->managed.manager_ctx = f;
    f->managed.deleter = count_deletion;
    f->managed.dl_tensor = (DLTensor){
        .data = f->data,
        .device = {kDLCPU, 0},
        .ndim = 2,
        .dtype = {kDLFloat, 64, 1},
        .shape = f->shape,
        .strides = f->strides,
    };
}

/// Refused, and still the caller's.
static void refuse(foreign *f, nd_status status, const char *fragment) {
    nd_tensor *x = nd_from_dlpack(&f->managed);
    if (x)
        fail_msg("accepted instead of: %s", fragment);
    assert_failed(status, fragment);
    assert_int_equal(f->deleted, 0);
}

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
    give_back(managed);
    managed = nd_to_dlpack(column);
    assert_int_equal(managed->dl_tensor.strides[0], 6);
    assert_int_equal(managed->dl_tensor.strides[1], 1);
    give_back(managed);
    managed = nd_to_dlpack(none);
    assert_int_equal(managed->dl_tensor.strides[0], 1);
    assert_int_equal(managed->dl_tensor.strides[1], 1);
    assert_null(managed->dl_tensor.data);
    give_back(managed);
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
        give_back(released);
        assert_true(((double *)closed->dl_tensor.data)[elements - 1] == 7.0);
        give_back(closed);
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
    give_back(managed);
    assert_int_equal(nd_manager_get_total_bytes(NULL), bytes);
}

static void *delete_elsewhere(void *managed) {
    give_back(managed);
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
    give_back(nd_to_dlpack(plain));
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
    nd_with_manager(manager) refuse(&f, ND_ERROR_QUOTA, "from_dlpack");
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
}

static void test_F26_other_versions(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.managed.version.major = 2;
    refuse(&f, ND_ERROR_UNSUPPORTED, "version 2.0");
    f.managed.version.major = 0;
    refuse(&f, ND_ERROR_UNSUPPORTED, "version 0.0");
    f.managed.version = (DLPackVersion){1, 99};
    nd_auto nd_tensor *x = nd_from_dlpack(&f.managed);
    assert_handle(x);
}

static void test_F26_dtypes_that_are_none_of_ours(void **state) {
    (void)state;
    static const DLDataType others[] = {
        {kDLComplex, 64, 1},    {kDLFloat, 128, 1}, {kDLFloat, 32, 4},
        {kDLInt, 4, 1},         {kDLBool, 1, 1},    {kDLFloat, 64, 0},
        {kDLFloat8_e5m2, 8, 1}, {99, 64, 1},        {kDLOpaqueHandle, 64, 1}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        foreign f;
        foreign_begin(&f);
        f.managed.dl_tensor.dtype = others[i];
        refuse(&f, ND_ERROR_UNSUPPORTED, "type code");
    }
}

static void test_F26_bytes_that_are_no_bools(void **state) {
    (void)state;
    static const uint8_t bytes[] = {0, 1, 2, 255};
    assert_null(nd_from_data(bytes, ND_SHAPE(4), ND_BOOL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "from_data: element 2 is 2");
    assert_null(nd_wrap((void *)(uintptr_t)bytes, ND_SHAPE(4), ND_BOOL, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "wrap: element 2 is 2");
    foreign f;
    foreign_begin(&f);
    uint8_t *at = (uint8_t *)f.data;
    for (int i = 0; i < 64; i++)
        at[i] = i % 4 == 3 ? 255 : 1;
    f.managed.dl_tensor.dtype = (DLDataType){kDLBool, 8, 1};
    refuse(&f, ND_ERROR_INVALID_ARGUMENT, "neither 0 nor 1");
    f.strides[0] = 4; // none of the columns that have one
    nd_tensor *x = nd_from_dlpack(&f.managed);
    assert_handle(x);
    nd_release(x);
    assert_int_equal(f.deleted, 1);
    f.deleted = 0;
    f.strides[0] = 0;
    f.strides[1] = -1;
    f.managed.dl_tensor.byte_offset = 5;
    refuse(&f, ND_ERROR_INVALID_ARGUMENT, "neither 0 nor 1");
}

static void test_F26_devices(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.managed.dl_tensor.device = (DLDevice){kDLMetal, 0};
    refuse(&f, ND_ERROR_UNSUPPORTED, "type 8");
    f.managed.dl_tensor.device = (DLDevice){kDLCPU, 3};
    nd_tensor *x = nd_from_dlpack(&f.managed); // the CPU is one, whatever number it is given
    assert_handle(x);
    nd_release(x);
    assert_int_equal(f.deleted, 1);
    f.deleted = 0;
    f.managed.dl_tensor.device = (DLDevice){kDLCUDA, 1000};
    refuse(&f, ND_ERROR_DEVICE, "from_dlpack");
    f.managed.dl_tensor.device = (DLDevice){kDLCUDA, -1};
    refuse(&f, ND_ERROR_DEVICE, "from_dlpack");
    f.managed.dl_tensor.device = (DLDevice){kDLCUDAHost, 5};
    nd_auto nd_tensor *locked = nd_from_dlpack(&f.managed);
    assert_handle(locked);
    assert_int_equal(nd_get_device(locked).kind, ND_CPU);
}

static void test_F26_sizes_that_lie(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.managed.dl_tensor.shape = NULL;
    refuse(&f, ND_ERROR_INVALID_ARGUMENT, "the shape is NULL");
    foreign_begin(&f);
    f.managed.dl_tensor.data = NULL;
    refuse(&f, ND_ERROR_INVALID_ARGUMENT, "the data are NULL");
    foreign_begin(&f);
    f.managed.dl_tensor.ndim = 9;
    refuse(&f, ND_ERROR_UNSUPPORTED, "9 dimensions");
    f.managed.dl_tensor.ndim = -1;
    refuse(&f, ND_ERROR_SHAPE, "-1 dimensions");
    foreign_begin(&f);
    f.shape[1] = -3;
    refuse(&f, ND_ERROR_SHAPE, "from_dlpack");
    f.shape[0] = f.shape[1] = INT64_C(1) << 32;
    refuse(&f, ND_ERROR_SHAPE, "from_dlpack");
    foreign_begin(&f);
    f.managed.dl_tensor.byte_offset = 3;
    refuse(&f, ND_ERROR_INVALID_ARGUMENT, "not aligned");
}

static void test_F26_extents_beyond_the_address_space(void **state) {
    (void)state;
    static const int64_t far[] = {INT64_MAX,     INT64_MIN,     INT64_MAX / 2, INT64_MIN / 2,
                                  INT64_MAX / 8, INT64_MIN / 8, INT64_MAX / 4, -(INT64_MAX / 4)};
    foreign f;
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        for (size_t j = 0; j < sizeof far / sizeof *far; j++) {
            foreign_begin(&f);
            f.strides[0] = far[i];
            f.strides[1] = far[j];
            refuse(&f, ND_ERROR_INVALID_ARGUMENT, "address space");
        }
    foreign_begin(&f);
    f.managed.dl_tensor.byte_offset = UINT64_MAX - 7;
    refuse(&f, ND_ERROR_INVALID_ARGUMENT, "address space");
    foreign_begin(&f);
    f.strides[0] = -((int64_t)((uintptr_t)f.data / sizeof(double)) + 1);
    refuse(&f, ND_ERROR_INVALID_ARGUMENT, "address space");
}

/// All that writes in place refuses x, whose bytes stay.
static void refuse_writes(nd_tensor *x) {
    nd_auto nd_tensor *one = nd_ones_like(x);
    nd_auto nd_tensor *mask = nd_equal(one, one);
    nd_status statuses[] = {nd_fill_(x, 1),
                            nd_add_(x, one),
                            nd_mul_scalar_(x, 2),
                            nd_copy_(x, one),
                            nd_masked_fill_(x, mask, 5),
                            nd_add_scaled_(x, one, 3),
                            nd_add_out(one, one, x)};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        assert_int_equal(statuses[i], ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "read-only");
}

static void test_F26_read_only_memory_is_not_written(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    nd_auto nd_tensor *x = nd_from_dlpack(&f.managed);
    assert_handle(x);
    refuse_writes(x);
    nd_auto nd_tensor *row = nd_select(x, 1, 0);
    refuse_writes(row);
    nd_no_grad {
        refuse_writes(row);
    }
    for (int i = 0; i < 6; i++)
        assert_true(f.data[i] == i);
    // Reading and what is made of it are as ever.
    nd_auto nd_tensor *copy = nd_clone(x);
    assert_ok(nd_fill_(copy, 1));
    // The flag goes on with the memory, and the form without flags does not lose it.
    DLManagedTensorVersioned *again = nd_to_dlpack(row);
    assert_true(again->flags & DLPACK_FLAG_BITMASK_READ_ONLY);
    give_back(again);
    assert_null(nd_to_dlpack_unversioned(row));
    assert_failed(ND_ERROR_STATE, "read-only");
}

static void test_F26_running_statistics_are_written_both_or_none(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    f.managed.dl_tensor.ndim = 1;
    f.strides[0] = 1;
    nd_auto nd_tensor *variance = nd_from_dlpack(&f.managed);
    nd_auto nd_tensor *mean = nd_zeros(ND_SHAPE(2), ND_F64);
    nd_auto nd_tensor *numbers = nd_arange(0, 8, 1, ND_F64);
    nd_auto nd_tensor *x = nd_reshape(numbers, ND_SHAPE(4, 2));
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    options.training = true;
    assert_null(nd_batch_norm(x, NULL, NULL, mean, variance, &options));
    assert_failed(ND_ERROR_STATE, "batch_norm: the memory of running_var is read-only");
    assert_true(((double *)nd_get_data(mean))[1] == 0.0);
    nd_auto nd_tensor *one = nd_ones(ND_SHAPE(1), ND_F64);
    nd_auto nd_tensor *shared = nd_expand(one, ND_SHAPE(2));
    assert_null(nd_batch_norm(x, NULL, NULL, mean, shared, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "running_var");
    assert_true(((double *)nd_get_data(mean))[1] == 0.0);
    options.training = false;
    nd_auto nd_tensor *y = nd_batch_norm(x, NULL, NULL, mean, variance, &options);
    assert_handle(y);
}

static nd_tensor *keep_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_clone(x);
}

static const nd_module_type keep_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "keep", .forward = keep_forward};

static void test_F26_training_does_not_write_read_only_memory(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    nd_auto nd_tensor *x = nd_from_dlpack(&f.managed);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *loss = nd_sum(x, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
    nd_auto nd_module *module = nd_module_new(&keep_type, NULL, 0);
    assert_ok(nd_module_add_parameter(module, "x", x));
    nd_auto nd_optimizer *optimizer = nd_sgd(module, NULL);
    assert_handle(optimizer);
    assert_int_equal(nd_optimizer_step(optimizer), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "read-only");
    assert_true(f.data[5] == 5.0);
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
            give_back(managed);
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
        ND_TEST(test_F26_other_versions),
        ND_TEST(test_F26_dtypes_that_are_none_of_ours),
        ND_TEST(test_F26_bytes_that_are_no_bools),
        ND_TEST(test_F26_devices),
        ND_TEST(test_F26_sizes_that_lie),
        ND_TEST(test_F26_extents_beyond_the_address_space),
        ND_TEST(test_F26_read_only_memory_is_not_written),
        ND_TEST(test_F26_running_statistics_are_written_both_or_none),
        ND_TEST(test_F26_training_does_not_write_read_only_memory),
        ND_TEST(test_F01_every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
