// Texts of tensors.
#include "tests/comma.h"
#include "tests/unit/tensor/values.h"
#include <math.h>
#include <stdlib.h>

/// Asserts the text of x, and releases x.
static void text_is(nd_tensor *x, const char *expected) {
    char text[2000];
    assert_handle(x);
    int64_t length = nd_format(x, text, sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(length, strlen(expected));
    nd_release(x);
}

static nd_tensor *floats(size_t count, const double *values, nd_dtype dtype) {
    nd_tensor *x = nd_from_data(values, ND_SHAPE((int64_t)count), ND_F64), *y = nd_cast(x, dtype);
    nd_release(x);
    return y;
}
#define FLOATS(dtype, ...) \
    floats(sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__}, dtype)

static void test_texts(void **state) {
    (void)state;
    text_is(nd_scalar(2.5, ND_F32), "tensor(2.5, shape=[], dtype=float32)");
    text_is(counted(on_cpu, ND_I32, ND_SHAPE(2, 6)),
            "tensor([[ 0,  1,  2,  3,  4,  5],\n"
            "        [ 6,  7,  8,  9, 10, 11]], shape=[2, 6], dtype=int32)");
    text_is(counted(on_cpu, ND_U8, ND_SHAPE(2, 1, 2)),
            "tensor([[[0, 1]],\n\n        [[2, 3]]], shape=[2, 1, 2], dtype=uint8)");
    text_is(nd_zeros(ND_SHAPE(0, 3), ND_F64), "tensor([], shape=[0, 3], dtype=float64)");
    text_is(nd_ones(ND_SHAPE(2), ND_BOOL), "tensor([true, true], shape=[2], dtype=bool)");
    text_is(counted(on_fake, ND_I64, ND_SHAPE(2)),
            "tensor([0, 1], shape=[2], dtype=int64, device=fake:1)");
    text_is(nd_full(ND_SHAPE(1), -0x1p63, ND_I64),
            "tensor([-9223372036854775808], shape=[1], dtype=int64)");
}

static void test_numbers(void **state) {
    (void)state;
    text_is(FLOATS(ND_F32, 1, -2, 3), "tensor([ 1., -2.,  3.], shape=[3], dtype=float32)");
    text_is(FLOATS(ND_F32, 0.1, 20), "tensor([ 0.1, 20.0], shape=[2], dtype=float32)");
    text_is(FLOATS(ND_F64, 1.0 / 3, 0.25), "tensor([0.3333, 0.2500], shape=[2], dtype=float64)");
    text_is(FLOATS(ND_F64, 1e9, 1), "tensor([1.0000e+09, 1.0000e+00], shape=[2], dtype=float64)");
    text_is(FLOATS(ND_F64, 1e-7), "tensor([1.0000e-07], shape=[1], dtype=float64)");
    text_is(FLOATS(ND_F32, NAN, INFINITY, -INFINITY, 0),
            "tensor([ nan,  inf, -inf,   0.], shape=[4], dtype=float32)");
    text_is(FLOATS(ND_F64, 1.7976931348623157e308),
            "tensor([1.7977e+308], shape=[1], dtype=float64)");
}

static void test_long_axes_are_cut(void **state) {
    (void)state;
    text_is(counted(on_cpu, ND_I32, ND_SHAPE(1001)),
            "tensor([   0,    1,    2, ...,  998,  999, 1000], shape=[1001], dtype=int32)");
    text_is(counted(on_cpu, ND_I32, ND_SHAPE(501, 2)),
            "tensor([[   0,    1],\n        [   2,    3],\n        [   4,    5],\n        ...,\n"
            "        [ 996,  997],\n        [ 998,  999],\n        [1000, 1001]], shape=[501, 2], "
            "dtype=int32)");
}

static void test_a_short_buffer_is_cut_and_terminated(void **state) {
    (void)state;
    nd_tensor *x = counted(on_cpu, ND_I32, ND_SHAPE(3));
    const char *whole = "tensor([0, 1, 2], shape=[3], dtype=int32)";
    int64_t length = (int64_t)strlen(whole);
    for (size_t size = 0; size <= strlen(whole) + 1; size++) {
        char *text = malloc(size + 1);
        text[size] = 'x';
        assert_int_equal(nd_format(x, text, size), length);
        if (size > 0) {
            assert_int_equal(strlen(text), size - 1);
            assert_memory_equal(text, whole, size - 1);
        }
        assert_int_equal(text[size], 'x');
        free(text);
    }
    assert_int_equal(nd_format(x, NULL, 0), length);
    assert_int_equal(nd_format(x, NULL, 5), -1);
    nd_error_clear();
    assert_int_equal(nd_format(NULL, NULL, 0), -1);
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_close(x));
    char text[8] = "before";
    assert_int_equal(nd_format(x, text, sizeof text), -1);
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    nd_release(x);
}

static void test_print_writes_a_line(void **state) {
    (void)state;
    nd_tensor *x = nd_ones(ND_SHAPE(2), ND_F32);
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_ok(nd_print(x, stream));
    fclose(stream);
    assert_string_equal(text, "tensor([1., 1.], shape=[2], dtype=float32)\n");
    free(text);
    assert_int_equal(nd_print(x, NULL), ND_ERROR_INVALID_ARGUMENT);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        assert_int_equal(nd_print(x, full), ND_ERROR_IO);
        fclose(full);
    }
    nd_release(x);
}

static void test_texts_are_the_same_in_every_locale(void **state) {
    (void)state;
    if (!nd_test_comma_begin())
        return;
    nd_auto nd_tensor *x = nd_linspace(0, 1, 5, ND_F32);
    char text[200];
    assert_true(nd_format(x, text, sizeof text) > 0);
    assert_null(nd_full(ND_SHAPE(2), 1.5e30, ND_I32));
    nd_test_comma_end();
    assert_string_equal(text, "tensor([0.00, 0.25, 0.50, 0.75, 1.00], shape=[5], dtype=float32)");
    assert_non_null(strstr(nd_error_get_message(), "1.5e+30"));
    nd_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_texts),
        ND_TEST(test_numbers),
        ND_TEST(test_long_axes_are_cut),
        ND_TEST(test_a_short_buffer_is_cut_and_terminated),
        ND_TEST(test_print_writes_a_line),
        ND_TEST(test_texts_are_the_same_in_every_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
