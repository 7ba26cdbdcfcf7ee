// Embedding and dropout: against PyTorch, differences, and what probability says.
#include "tests/unit/ops/torch_case.h"

TORCH_FUNCTION(embedding) {
    (void)count, (void)data;
    const int32_t rows[] = {0, 2, -2, 1, -4, 2};
    nd_auto nd_tensor *indices = nd_from_data(rows, ND_SHAPE(2, 3), ND_I32);
    return nd_embedding(x[0], indices, ND_NO_PADDING);
}
TORCH_FUNCTION(embedding_padding) {
    (void)count, (void)data;
    const int64_t rows[] = {3, 0, -1, 1};
    nd_auto nd_tensor *indices = nd_from_data(rows, ND_SHAPE(4), ND_I64);
    return nd_embedding(x[0], indices, -1);
}

static void test_embedding_as_in_pytorch(void **state) {
    (void)state;
    const torch_case plain = TORCH_CASE(embedding, 1, {2, {4, 3}});
    const torch_case padding = TORCH_CASE(embedding_padding, 1, {2, {4, 3}});
    check_torch_case(&plain, false);
    // The missing gradient is no slope that a difference could show.
    check_torch_case(&padding, true);
}

static void test_embedding_of_any_dtype(void **state) {
    (void)state;
    nd_auto nd_tensor *counted = nd_arange(0, 6, 1, ND_I64);
    nd_auto nd_tensor *table = nd_reshape(counted, ND_SHAPE(3, 2));
    nd_auto nd_tensor *index = nd_scalar(2, ND_I64);
    nd_auto nd_tensor *row = nd_embedding(table, index, 0);
    assert_handle(row);
    assert_shape(row, ND_SHAPE(2));
    assert_true(at_flat(row, 0) == 4 && at_flat(row, 1) == 5);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0), ND_I64);
    nd_auto nd_tensor *nothing = nd_embedding(table, none, ND_NO_PADDING);
    assert_shape(nothing, ND_SHAPE(0, 2));
    nd_auto nd_tensor *far = nd_scalar(3, ND_I64);
    assert_refused(nd_embedding(table, far, ND_NO_PADDING), ND_ERROR_INVALID_ARGUMENT,
                   "embedding: an index is outside -3 ... 2");
    assert_refused(nd_embedding(table, index, 3), ND_ERROR_INVALID_ARGUMENT,
                   "embedding: padding is 3, outside -3 ... 2");
    assert_refused(nd_embedding(counted, index, 0), ND_ERROR_SHAPE,
                   "embedding: weight has shape [6] and must be [rows, size]");
    nd_auto nd_tensor *fraction = nd_scalar(1, ND_F32);
    assert_refused(nd_embedding(table, fraction, 0), ND_ERROR_DTYPE,
                   "embedding: the indices are float32");
    assert_refused(nd_embedding(table, NULL, 0), ND_ERROR_INVALID_ARGUMENT,
                   "embedding: indices is NULL");
}

/// Each element is dropped or scaled exactly, about as many as p says, and the same ones again.
static void check_dropout(nd_dtype dtype, double p) {
    enum { COUNT = 20000 };
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(100, COUNT / 100), dtype);
    assert_ok(nd_set_requires_grad(x, true));
    nd_key key = nd_key_new(7);
    nd_auto nd_tensor *y = nd_dropout(x, key, p, true);
    nd_auto nd_tensor *again = nd_dropout(x, key, p, true);
    nd_auto nd_tensor *other = nd_dropout(x, nd_key_fold(key, 1), p, true);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), dtype);
    nd_auto nd_tensor *sum = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    double scale = dtype == ND_F32 ? (double)(float)(1.0 / (1.0 - p)) : 1.0 / (1.0 - p);
    int dropped = 0, different = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        double value = at_flat(y, i);
        assert_true(value == 0.0 || value == scale);
        assert_true(at_flat(again, i) == value);
        assert_true(at_flat(nd_get_grad(x), i) == value);
        dropped += value == 0.0;
        different += at_flat(other, i) != value;
    }
    double deviation = sqrt(COUNT * p * (1 - p));
    assert_close("dropped", dropped, COUNT * p, 0, 5 * deviation);
    assert_close("different", different, COUNT * 2 * p * (1 - p), 0, 8 * deviation);
}

static void test_dropout(void **state) {
    (void)state;
    const double rates[] = {0.1, 0.5, 0.9};
    for (size_t i = 0; i < COUNT_OF(rates); i++) {
        check_dropout(ND_F32, rates[i]);
        check_dropout(ND_F64, rates[i]);
    }
}

static void test_dropout_that_does_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *x = wave(0, ND_SHAPE(3, 4));
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(2), ND_I32);
    nd_key key = nd_key_new(1);
    nd_auto nd_tensor *off = nd_dropout(x, key, 0.5, false);
    nd_auto nd_tensor *none = nd_dropout(x, key, 0, true);
    nd_auto nd_tensor *all = nd_dropout(x, key, 1, true);
    assert_ptr_equal(off, x);
    assert_ptr_equal(none, x);
    for (int64_t i = 0; i < 12; i++)
        assert_true(at_flat(all, i) == 0);
    // Of a view the same places are dropped as of its copy.
    nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
    nd_auto nd_tensor *dense = nd_clone(turned);
    nd_auto nd_tensor *of_view = nd_dropout(turned, key, 0.5, true);
    nd_auto nd_tensor *of_copy = nd_dropout(dense, key, 0.5, true);
    for (int64_t i = 0; i < 12; i++)
        assert_true(at_flat(of_view, i) == at_flat(of_copy, i));
    nd_auto nd_tensor *empty = nd_zeros(ND_SHAPE(0, 3), ND_F32);
    nd_auto nd_tensor *nothing = nd_dropout(empty, key, 0.5, true);
    assert_shape(nothing, ND_SHAPE(0, 3));
    assert_refused(nd_dropout(x, key, 1.5, true), ND_ERROR_INVALID_ARGUMENT,
                   "dropout: a probability of 1.5 is outside 0 ... 1");
    assert_refused(nd_dropout(x, key, NAN, false), ND_ERROR_INVALID_ARGUMENT,
                   "dropout: a probability of");
    assert_refused(nd_dropout(whole, key, 0.5, true), ND_ERROR_DTYPE, "dropout: x is int32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_embedding_as_in_pytorch),
        ND_TEST(test_embedding_of_any_dtype),
        ND_TEST(test_dropout),
        ND_TEST(test_dropout_that_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
