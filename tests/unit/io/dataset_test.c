// Data sets: what batches hold, how they are shuffled, where they live, and how the thread behind
// them ends.
#include "lib/device/fake/fake.h"
#include "tests/training.h"
#include "tests/unit/io/exhausted.h"
#include "tests/unit/io/files.h"

#include <pthread.h>

/// [n, 2] u8 images whose pixels are the sample's number and 255 minus it, and labels that are the
/// number.
static void make_samples(int64_t n, nd_tensor **ret_images, nd_tensor **ret_labels) {
    *ret_images = nd_zeros(ND_SHAPE(n, 2), ND_U8);
    *ret_labels = nd_zeros(ND_SHAPE(n), ND_U8);
    assert_handle(*ret_images);
    assert_handle(*ret_labels);
    unsigned char *pixels = nd_get_data(*ret_images);
    unsigned char *labels = nd_get_data(*ret_labels);
    for (int64_t i = 0; i < n; i++) {
        pixels[2 * i] = (unsigned char)i;
        pixels[2 * i + 1] = (unsigned char)(255 - i);
        labels[i] = (unsigned char)i;
    }
}

static nd_dataset_options batches_of(int64_t batch, bool prefetch) {
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = batch;
    options.prefetch = prefetch;
    return options;
}

static nd_dataset *make_dataset(int64_t n, nd_dataset_options options) {
    nd_tensor *images;
    nd_tensor *labels;
    make_samples(n, &images, &labels);
    nd_dataset *dataset = nd_dataset_new(images, labels, &options);
    nd_release(images);
    nd_release(labels);
    assert_handle(dataset);
    return dataset;
}

/// Runs an epoch, checks every batch, writes the labels in the order in which they came; returns
/// their number.
static int64_t run_epoch(nd_dataset *dataset, uint64_t epoch, int64_t *ret_order) {
    int64_t total = 0;
    int64_t batches = 0;
    nd_tensor *images;
    nd_tensor *labels;
    assert_ok(nd_dataset_start(dataset, epoch));
    while (next_batch(dataset, &images, &labels)) {
        int64_t count = nd_get_size(images, 0);
        assert_int_equal(nd_get_dtype(images), ND_F32);
        assert_int_equal(nd_get_dtype(labels), ND_I64);
        assert_int_equal(nd_get_ndim(images), 2);
        assert_int_equal(nd_get_numel(labels), count);
        const float *pixels = nd_get_data(images);
        const int64_t *numbers = nd_get_data(labels);
        for (int64_t i = 0; i < count; i++) {
            assert_true(pixels[2 * i] == (float)numbers[i] / 255.0f);
            assert_true(pixels[2 * i + 1] == (float)(255 - numbers[i]) / 255.0f);
            ret_order[total++] = numbers[i];
        }
        batches++;
        nd_release(images);
        nd_release(labels);
    }
    assert_int_equal(nd_error_get_status(), ND_OK);
    assert_int_equal(batches, nd_dataset_get_batches(dataset));
    return total;
}

static void test_batches_in_order(void **state) {
    (void)state;
    for (int prefetch = 0; prefetch < 2; prefetch++) {
        nd_auto nd_dataset *dataset = make_dataset(10, batches_of(4, prefetch));
        assert_int_equal(nd_dataset_get_size(dataset), 10);
        assert_int_equal(nd_dataset_get_batches(dataset), 3);
        int64_t order[10];
        assert_int_equal(run_epoch(dataset, 0, order), 10);
        for (int64_t i = 0; i < 10; i++)
            assert_int_equal(order[i], i);
    }
}

static void test_every_pixel_value_is_divided_by_255(void **state) {
    (void)state;
    nd_auto nd_dataset *dataset = make_dataset(256, batches_of(100, false));
    int64_t order[256];
    assert_int_equal(run_epoch(dataset, 0, order), 256);
    // More than one block of the vectorised loop, and a rest.
    nd_auto nd_tensor *images = nd_full(ND_SHAPE(3, 37), 51, ND_U8);
    nd_auto nd_tensor *labels = nd_zeros(ND_SHAPE(3), ND_U8);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 3;
    nd_auto nd_dataset *wide = nd_dataset_new(images, labels, &options);
    assert_ok(nd_dataset_start(wide, 0));
    nd_auto nd_tensor *x = NULL;
    nd_auto nd_tensor *y = NULL;
    assert_true(next_batch(wide, &x, &y));
    for (int i = 0; i < 3 * 37; i++)
        assert_true(((float *)nd_get_data(x))[i] == 51.0f / 255.0f);
}

static void test_short_last_batch_can_be_dropped(void **state) {
    (void)state;
    for (int prefetch = 0; prefetch < 2; prefetch++) {
        nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
        options.batch = 4;
        options.drop_last = true;
        options.prefetch = prefetch;
        nd_auto nd_dataset *dataset = make_dataset(10, options);
        int64_t order[10];
        assert_int_equal(run_epoch(dataset, 0, order), 8);
        // A batch larger than the set: one short batch, or none.
        options.batch = 11;
        nd_auto nd_dataset *none = make_dataset(10, options);
        assert_int_equal(run_epoch(none, 0, order), 0);
        options.drop_last = false;
        nd_auto nd_dataset *one = make_dataset(10, options);
        assert_int_equal(nd_dataset_get_batches(one), 1);
        assert_int_equal(run_epoch(one, 0, order), 10);
    }
}

static void test_shuffle_is_a_function_of_key_and_epoch(void **state) {
    (void)state;
    enum { COUNT = 100 };
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 7;
    options.shuffle = true;
    options.key = nd_key_new(1);
    nd_auto nd_dataset *plain = make_dataset(COUNT, options);
    options.prefetch = true;
    nd_auto nd_dataset *prefetching = make_dataset(COUNT, options);
    options.key = nd_key_new(2);
    nd_auto nd_dataset *other_key = make_dataset(COUNT, options);
    int64_t first[COUNT], again[COUNT], second[COUNT], other[COUNT];
    assert_int_equal(run_epoch(plain, 1, first), COUNT);
    run_epoch(plain, 2, second);
    run_epoch(prefetching, 1, again);
    run_epoch(other_key, 1, other);
    assert_memory_equal(first, again, sizeof(first));
    assert_memory_not_equal(first, second, sizeof(first));
    assert_memory_not_equal(first, other, sizeof(first));
    bool seen[COUNT] = {false};
    for (int i = 0; i < COUNT; i++)
        seen[first[i]] = true;
    for (int i = 0; i < COUNT; i++)
        assert_true(seen[i]);
}

static void test_float_images_and_integer_labels_keep_their_values(void **state) {
    (void)state;
    static const nd_dtype label_dtypes[] = {ND_BOOL, ND_U8, ND_I32, ND_I64};
    nd_auto nd_tensor *numbers = nd_arange(0, 8, 1, ND_F64);
    nd_auto nd_tensor *images = nd_reshape(numbers, ND_SHAPE(2, 2, 2));
    for (size_t i = 0; i < sizeof(label_dtypes) / sizeof(*label_dtypes); i++) {
        nd_auto nd_tensor *zero_one = nd_arange(0, 2, 1, ND_F64);
        nd_auto nd_tensor *labels = nd_cast(zero_one, label_dtypes[i]);
        nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
        options.batch = 2;
        nd_auto nd_dataset *dataset = nd_dataset_new(images, labels, &options);
        assert_handle(dataset);
        assert_ok(nd_dataset_start(dataset, 0));
        nd_tensor *x;
        nd_tensor *y;
        assert_true(next_batch(dataset, &x, &y));
        assert_int_equal(nd_get_dtype(x), ND_F64);
        assert_int_equal(nd_get_ndim(x), 3);
        assert_memory_equal(nd_get_data(x), nd_get_data(images), 8 * sizeof(double));
        assert_int_equal(((int64_t *)nd_get_data(y))[0], 0);
        assert_int_equal(((int64_t *)nd_get_data(y))[1], 1);
        nd_release(x);
        nd_release(y);
    }
}

static void test_views_are_put_in_order(void **state) {
    (void)state;
    nd_auto nd_tensor *numbers = nd_arange(0, 6, 1, ND_F32);
    nd_auto nd_tensor *matrix = nd_reshape(numbers, ND_SHAPE(2, 3));
    nd_auto nd_tensor *images = nd_transpose(matrix, 0, 1);
    nd_auto nd_tensor *labels = nd_zeros(ND_SHAPE(3), ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 3;
    nd_auto nd_dataset *dataset = nd_dataset_new(images, labels, &options);
    assert_handle(dataset);
    assert_ok(nd_dataset_start(dataset, 0));
    nd_tensor *x;
    nd_tensor *y;
    assert_true(next_batch(dataset, &x, &y));
    static const float expected[] = {0, 3, 1, 4, 2, 5};
    assert_memory_equal(nd_get_data(x), expected, sizeof(expected));
    nd_release(x);
    nd_release(y);
}

static void test_batches_live_in_the_callers_manager(void **state) {
    (void)state;
    nd_auto nd_dataset *dataset = make_dataset(20, batches_of(5, true));
    assert_ok(nd_dataset_start(dataset, 0));
    for (int step = 0; step < 4; step++) {
        nd_manager *manager = nd_manager_new(NULL, "step");
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        nd_with_manager(manager) {
            nd_auto nd_tensor *images = NULL;
            nd_auto nd_tensor *labels = NULL;
            assert_true(next_batch(dataset, &images, &labels));
            assert_ptr_equal(nd_get_manager(images), manager);
            assert_ptr_equal(nd_get_manager(labels), manager);
            assert_int_equal(nd_manager_get_total_bytes(manager), 5 * 2 * 4 + 5 * 8);
        }
        assert_ok(nd_manager_close(manager, &report));
        assert_int_equal(report.escaped_objects, 0);
        nd_release(manager);
    }
}

static void test_batches_on_another_device(void **state) {
    (void)state;
    const nd_device fake = {ND_FAKE, 0};
    for (int prefetch = 0; prefetch < 2; prefetch++) {
        nd_dataset_options options = batches_of(4, prefetch);
        options.device = fake;
        nd_auto nd_dataset *dataset = make_dataset(10, options);
        int64_t total = 0;
        nd_tensor *images;
        nd_tensor *labels;
        assert_ok(nd_dataset_start(dataset, 0));
        while (next_batch(dataset, &images, &labels)) {
            assert_int_equal(nd_get_device(images).kind, ND_FAKE);
            assert_int_equal(nd_get_device(labels).kind, ND_FAKE);
            float pixels[8];
            int64_t numbers[4];
            int64_t count = nd_get_numel(labels);
            assert_ok(nd_copy_to_host(images, pixels, (size_t)count * 2 * sizeof(*pixels)));
            assert_ok(nd_copy_to_host(labels, numbers, (size_t)count * sizeof(*numbers)));
            for (int64_t i = 0; i < count; i++) {
                assert_int_equal(numbers[i], total + i);
                assert_true(pixels[2 * i] == (float)(total + i) / 255.0f);
            }
            total += count;
            nd_release(images);
            nd_release(labels);
        }
        assert_int_equal(nd_error_get_status(), ND_OK);
        assert_int_equal(total, 10);
    }
}

static void test_a_batch_that_was_refused_comes_again(void **state) {
    (void)state;
    for (int prefetch = 0; prefetch < 2; prefetch++) {
        nd_auto nd_dataset *dataset = make_dataset(8, batches_of(4, prefetch));
        assert_ok(nd_dataset_start(dataset, 0));
        nd_manager *manager = nd_manager_new(NULL, "tight");
        assert_ok(nd_manager_set_quota(manager, ND_CPU, 40)); // the images fit, the labels do not
        nd_tensor *images = NULL;
        nd_tensor *labels = NULL;
        nd_with_manager(manager) {
            assert_false(next_batch(dataset, &images, &labels));
        }
        assert_null(images);
        assert_null(labels);
        assert_failed(ND_ERROR_QUOTA, "tight");
        assert_int_equal(nd_manager_get_total_objects(manager), 0);
        nd_release(manager);
        assert_true(next_batch(dataset, &images, &labels));
        assert_int_equal(*(int64_t *)nd_get_data(labels), 0);
        nd_release(images);
        nd_release(labels);
    }
}

static void test_restart_and_destruction_in_mid_epoch(void **state) {
    (void)state;
    for (int consumed = 0; consumed < 12; consumed++) {
        nd_dataset_options options = batches_of(3, true);
        options.shuffle = true;
        nd_auto nd_dataset *dataset = make_dataset(200, options);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            assert_ok(nd_dataset_start(dataset, epoch));
            for (int i = 0; i < consumed; i++) {
                nd_auto nd_tensor *images = NULL;
                nd_auto nd_tensor *labels = NULL;
                assert_true(next_batch(dataset, &images, &labels));
            }
        }
    }
}

static void test_the_end_of_an_epoch_is_no_error_and_stays(void **state) {
    (void)state;
    nd_auto nd_dataset *dataset = make_dataset(4, batches_of(4, true));
    int64_t order[4];
    run_epoch(dataset, 0, order);
    nd_tensor *images = NULL;
    nd_tensor *labels = NULL;
    for (int i = 0; i < 3; i++)
        assert_false(next_batch(dataset, &images, &labels));
    assert_int_equal(nd_error_get_status(), ND_OK);
    assert_null(images);
    assert_int_equal(run_epoch(dataset, 1, order), 4);
}

static void test_an_empty_set_has_no_batches(void **state) {
    (void)state;
    nd_dataset_options options = batches_of(4, true);
    options.shuffle = true;
    nd_auto nd_dataset *dataset = make_dataset(0, options);
    assert_int_equal(nd_dataset_get_batches(dataset), 0);
    int64_t order[1];
    assert_int_equal(run_epoch(dataset, 0, order), 0);
}

static void test_F15_closed_while_the_thread_reads(void **state) {
    (void)state;
    nd_tensor *images;
    nd_tensor *labels;
    make_samples(250, &images, &labels);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 2;
    options.prefetch = true;
    nd_dataset *dataset = nd_dataset_new(images, labels, &options);
    assert_handle(dataset);
    assert_ok(nd_dataset_start(dataset, 0));
    assert_ok(nd_close(images));
    nd_tensor *x = NULL;
    nd_tensor *y = NULL;
    assert_false(next_batch(dataset, &x, &y));
    assert_failed(ND_ERROR_CLOSED, "closed");
    assert_ok(nd_close(dataset));
    assert_false(next_batch(dataset, &x, &y));
    assert_failed(ND_ERROR_CLOSED, "data set was closed");
    assert_int_equal(nd_dataset_start(dataset, 0), ND_ERROR_CLOSED);
    nd_error_clear();
    nd_release(dataset);
    nd_release(images);
    nd_release(labels);
}

static void test_disposed_with_its_manager_in_mid_epoch(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "epoch");
    nd_tensor *images;
    nd_tensor *labels;
    nd_dataset *dataset = NULL;
    nd_with_manager(manager) {
        make_samples(250, &images, &labels);
        nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
        options.batch = 2;
        options.prefetch = true;
        dataset = nd_dataset_new(images, labels, &options);
    }
    assert_handle(dataset);
    assert_ok(nd_dataset_start(dataset, 0));
    assert_ok(nd_manager_dispose(manager, NULL));
    assert_true(nd_is_closed(dataset));
    nd_release(dataset);
    nd_release(images);
    nd_release(labels);
    nd_release(manager);
}

static void test_F01_every_allocation_fails_once(void **state) {
    (void)state;
    nd_tensor *images;
    nd_tensor *labels;
    make_samples(50, &images, &labels);
    bool done = false;
    for (int n = 0; !done; n++) {
        assert_true(n < 1000);
        nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
        options.batch = 20;
        options.shuffle = true;
        options.prefetch = true;
        allocations_left = n;
        asked = false;
        nd__alloc_should_fail = allocations_fail;
        nd_auto nd_dataset *dataset = nd_dataset_new(images, labels, &options);
        nd_auto nd_tensor *x = NULL;
        nd_auto nd_tensor *y = NULL;
        done = dataset && nd_dataset_start(dataset, 0) == ND_OK && next_batch(dataset, &x, &y);
        nd__alloc_should_fail = NULL;
        assert_int_equal(nd_error_get_status(), done ? ND_OK : ND_ERROR_OUT_OF_MEMORY);
        nd_error_clear();
    }
    nd_release(images);
    nd_release(labels);
}

static void test_F03_every_request_asks_before_it_fails(void **state) {
    (void)state;
    nd_tensor *images;
    nd_tensor *labels;
    make_samples(50, &images, &labels);
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up;
    assert_ok(nd_memory_set_callback(NULL, &callback));
    asked = true;
    for (int n = 0; asked; n++) {
        nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
        options.batch = 20;
        options.shuffle = true;
        options.prefetch = true;
        allocations_left = n;
        asked = false;
        nd__alloc_should_fail = allocations_fail;
        nd_auto nd_dataset *dataset = nd_dataset_new(images, labels, &options);
        nd_auto nd_tensor *x = NULL;
        nd_auto nd_tensor *y = NULL;
        assert_handle(dataset);
        assert_ok(nd_dataset_start(dataset, 0));
        assert_true(next_batch(dataset, &x, &y));
        nd__alloc_should_fail = NULL;
    }
    assert_ok(nd_memory_set_callback(NULL, NULL));
    nd_release(images);
    nd_release(labels);
}

static void test_F30_bad_arguments(void **state) {
    (void)state;
    nd_tensor *images;
    nd_tensor *labels;
    make_samples(4, &images, &labels);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 2;
    assert_null(nd_dataset_new(NULL, labels, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "images is NULL");
    assert_null(nd_dataset_new(images, NULL, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "labels is NULL");
    assert_null(nd_dataset_new(images, labels, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "options is NULL");
    nd_dataset_options unset = {.batch = 2};
    assert_null(nd_dataset_new(images, labels, &unset));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ND_DATASET_OPTIONS_INIT");
    nd_dataset_options no_batch = ND_DATASET_OPTIONS_INIT;
    assert_null(nd_dataset_new(images, labels, &no_batch));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "batch of 0");
    nd_dataset_options nowhere = ND_DATASET_OPTIONS_INIT;
    nowhere.batch = 2;
    nowhere.device = (nd_device){ND_CPU, 99};
    assert_null(nd_dataset_new(images, labels, &nowhere));
    assert_failed(ND_ERROR_DEVICE, "dataset");
    nd_auto nd_tensor *fewer = nd_slice(labels, 0, 3, 1, 0);
    assert_null(nd_dataset_new(images, fewer, &options));
    assert_failed(ND_ERROR_SHAPE, "[3]");
    nd_auto nd_tensor *fractions = nd_cast(labels, ND_F32);
    assert_null(nd_dataset_new(images, fractions, &options));
    assert_failed(ND_ERROR_DTYPE, "float32");
    nd_auto nd_dataset *dataset = nd_dataset_new(images, labels, &options);
    nd_tensor *x = NULL;
    nd_tensor *y = NULL;
    assert_false(next_batch(dataset, &x, &y));
    assert_failed(ND_ERROR_STATE, "no epoch");
    assert_ok(nd_dataset_start(dataset, 0));
    assert_false(next_batch(dataset, NULL, &y));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ret_images is NULL");
    assert_false(next_batch(dataset, &x, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ret_labels is NULL");
    assert_false(next_batch(NULL, &x, &y));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "dataset is NULL");
    assert_int_not_equal(nd_dataset_start(NULL, 0), ND_OK);
    nd_error_clear();
    assert_int_equal(nd_dataset_get_size(NULL), 0);
    assert_int_equal(nd_dataset_get_batches(NULL), 0);
    assert_null(nd_dataset_open_idx(NULL, "t10k", &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "directory is NULL");
    assert_null(nd_dataset_open_idx("data/mnist", NULL, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "prefix is NULL");
    assert_null(nd_dataset_open_idx("data/mnist", "none", &options));
    assert_failed(ND_ERROR_IO, "none-images-idx3-ubyte.gz");
    nd_release(images);
    nd_release(labels);
}

#if ND_HAVE_ZLIB
static void test_the_digits_of_the_repository(void **state) {
    (void)state;
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 128;
    options.shuffle = true;
    options.prefetch = true;
    options.key = nd_key_new(3);
    nd_auto nd_dataset *dataset = nd_dataset_open_idx("data/mnist", "t10k", &options);
    assert_handle(dataset);
    assert_int_equal(nd_dataset_get_size(dataset), 10000);
    assert_int_equal(nd_dataset_get_batches(dataset), 79);
    int64_t of_digit[10] = {0};
    float darkest = 0;
    nd_tensor *images;
    nd_tensor *labels;
    assert_ok(nd_dataset_start(dataset, 0));
    while (next_batch(dataset, &images, &labels)) {
        const int64_t *digit = nd_get_data(labels);
        const float *pixel = nd_get_data(images);
        for (int64_t i = 0; i < nd_get_numel(labels); i++)
            of_digit[digit[i]]++;
        for (int64_t i = 0; i < nd_get_numel(images); i++)
            darkest = pixel[i] > darkest ? pixel[i] : darkest;
        nd_release(images);
        nd_release(labels);
    }
    assert_int_equal(nd_error_get_status(), ND_OK);
    static const int64_t expected[10] = {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009};
    assert_memory_equal(of_digit, expected, sizeof(expected));
    assert_true(darkest == 1.0f);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_batches_in_order),
        ND_TEST(test_every_pixel_value_is_divided_by_255),
        ND_TEST(test_short_last_batch_can_be_dropped),
        ND_TEST(test_shuffle_is_a_function_of_key_and_epoch),
        ND_TEST(test_float_images_and_integer_labels_keep_their_values),
        ND_TEST(test_views_are_put_in_order),
        ND_TEST(test_batches_live_in_the_callers_manager),
        ND_TEST(test_batches_on_another_device),
        ND_TEST(test_a_batch_that_was_refused_comes_again),
        ND_TEST(test_restart_and_destruction_in_mid_epoch),
        ND_TEST(test_the_end_of_an_epoch_is_no_error_and_stays),
        ND_TEST(test_an_empty_set_has_no_batches),
        ND_TEST(test_F15_closed_while_the_thread_reads),
        ND_TEST(test_disposed_with_its_manager_in_mid_epoch),
        ND_TEST(test_F01_every_allocation_fails_once),
        ND_TEST(test_F03_every_request_asks_before_it_fails),
        ND_TEST(test_F30_bad_arguments),
#if ND_HAVE_ZLIB
        ND_TEST(test_the_digits_of_the_repository),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
