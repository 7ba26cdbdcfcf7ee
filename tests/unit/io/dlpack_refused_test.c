// DLPack: descriptions that lie or that nobody here understands, and memory that may not be written.
#include "tests/elements.h"
#include "tests/unit/io/dlpack_foreign.h"

static void test_F26_other_versions(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.managed.version.major = 2;
    foreign_refuse(&f, ND_ERROR_UNSUPPORTED, "version 2.0");
    f.managed.version.major = 0;
    foreign_refuse(&f, ND_ERROR_UNSUPPORTED, "version 0.0");
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
        foreign_refuse(&f, ND_ERROR_UNSUPPORTED, "type code");
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
    foreign_refuse(&f, ND_ERROR_INVALID_ARGUMENT, "neither 0 nor 1");
    f.strides[0] = 4; // none of the columns that have one
    nd_tensor *x = nd_from_dlpack(&f.managed);
    assert_handle(x);
    nd_release(x);
    assert_int_equal(f.deleted, 1);
    f.deleted = 0;
    f.strides[0] = 0;
    f.strides[1] = -1;
    f.managed.dl_tensor.byte_offset = 5;
    foreign_refuse(&f, ND_ERROR_INVALID_ARGUMENT, "neither 0 nor 1");
}

/// Elements that lie on each other, more of them than could be looked at one by one.
static void test_F26_bools_that_overlap(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    enum { AXES = 8, SIZE = 20 };
    uint8_t bytes[2 * AXES * (SIZE - 1) + 1];
    int64_t shape[AXES], strides[AXES];
    for (int i = 0; i < AXES; i++) {
        shape[i] = SIZE;
        strides[i] = i % 2 ? 2 : -2;
    }
    f.managed.dl_tensor.dtype = (DLDataType){kDLBool, 8, 1};
    f.managed.dl_tensor.ndim = AXES;
    f.managed.dl_tensor.shape = shape;
    f.managed.dl_tensor.strides = strides;
    f.managed.dl_tensor.data = bytes;
    f.managed.dl_tensor.byte_offset = sizeof bytes / 2;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = i % 2 ? 255 : 1; // no element lies on the odd ones
    nd_tensor *x = nd_from_dlpack(&f.managed);
    assert_handle(x);
    nd_release(x);
    assert_int_equal(f.deleted, 1);
    f.deleted = 0;
    for (size_t i = 0; i < sizeof bytes; i += 2) {
        bytes[i] = 2;
        foreign_refuse(&f, ND_ERROR_INVALID_ARGUMENT, "neither 0 nor 1");
        bytes[i] = 1;
    }
}

static void test_F26_devices(void **state) {
    (void)state;
    foreign f;
    foreign_begin(&f);
    f.managed.dl_tensor.device = (DLDevice){kDLMetal, 0};
    foreign_refuse(&f, ND_ERROR_UNSUPPORTED, "type 8");
    f.managed.dl_tensor.device = (DLDevice){kDLCPU, 3};
    nd_tensor *x = nd_from_dlpack(&f.managed); // the CPU is one, whatever number it is given
    assert_handle(x);
    nd_release(x);
    assert_int_equal(f.deleted, 1);
    f.deleted = 0;
    f.managed.dl_tensor.device = (DLDevice){kDLCUDA, 1000};
    foreign_refuse(&f, ND_ERROR_DEVICE, "from_dlpack");
    f.managed.dl_tensor.device = (DLDevice){kDLCUDA, -1};
    foreign_refuse(&f, ND_ERROR_DEVICE, "from_dlpack");
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
    foreign_refuse(&f, ND_ERROR_INVALID_ARGUMENT, "the shape is NULL");
    foreign_begin(&f);
    f.managed.dl_tensor.data = NULL;
    foreign_refuse(&f, ND_ERROR_INVALID_ARGUMENT, "the data are NULL");
    foreign_begin(&f);
    f.managed.dl_tensor.ndim = 9;
    foreign_refuse(&f, ND_ERROR_UNSUPPORTED, "9 dimensions");
    f.managed.dl_tensor.ndim = -1;
    foreign_refuse(&f, ND_ERROR_SHAPE, "-1 dimensions");
    foreign_begin(&f);
    f.shape[1] = -3;
    foreign_refuse(&f, ND_ERROR_SHAPE, "from_dlpack");
    f.shape[0] = f.shape[1] = INT64_C(1) << 32;
    foreign_refuse(&f, ND_ERROR_SHAPE, "from_dlpack");
    foreign_begin(&f);
    f.managed.dl_tensor.byte_offset = 3;
    foreign_refuse(&f, ND_ERROR_INVALID_ARGUMENT, "not aligned");
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
            foreign_refuse(&f, ND_ERROR_INVALID_ARGUMENT, "address space");
        }
    foreign_begin(&f);
    f.managed.dl_tensor.byte_offset = UINT64_MAX - 7;
    foreign_refuse(&f, ND_ERROR_INVALID_ARGUMENT, "address space");
    foreign_begin(&f);
    f.strides[0] = -((int64_t)((uintptr_t)f.data / sizeof(double)) + 1);
    foreign_refuse(&f, ND_ERROR_INVALID_ARGUMENT, "address space");
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
    foreign_give_back(again);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F26_other_versions),
        ND_TEST(test_F26_dtypes_that_are_none_of_ours),
        ND_TEST(test_F26_bytes_that_are_no_bools),
        ND_TEST(test_F26_bools_that_overlap),
        ND_TEST(test_F26_devices),
        ND_TEST(test_F26_sizes_that_lie),
        ND_TEST(test_F26_extents_beyond_the_address_space),
        ND_TEST(test_F26_read_only_memory_is_not_written),
        ND_TEST(test_F26_running_statistics_are_written_both_or_none),
        ND_TEST(test_F26_training_does_not_write_read_only_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
