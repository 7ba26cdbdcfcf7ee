// softmax and the losses against plain loops.
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"

static void check_softmax(const nd_tensor *x, int axis) {
    nd_auto nd_tensor *y = nd_softmax(x, axis);
    nd_auto nd_tensor *l = nd_log_softmax(x, axis);
    assert_handle(y);
    assert_handle(l);
    int ndim = nd_get_ndim(x);
    double tolerance = nd_get_dtype(y) == ND_F64    ? 1e-13
                       : nd_get_dtype(y) == ND_F16  ? 0x1p-10
                       : nd_get_dtype(y) == ND_BF16 ? 0x1p-8
                                                    : 1e-6;
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        int64_t index[ND_MAX_DIMS], size = nd_get_shape(x)[axis];
        coordinates_of(ndim, nd_get_shape(x), flat, index);
        if (index[axis] != 0)
            continue;
        double largest = -INFINITY, sum = 0;
        for (index[axis] = 0; index[axis] < size; index[axis]++)
            largest = fmax(largest, at(x, ndim, index));
        for (index[axis] = 0; index[axis] < size; index[axis]++)
            sum += exp(at(x, ndim, index) - largest);
        for (index[axis] = 0; index[axis] < size; index[axis]++) {
            double expected = at(x, ndim, index) - largest - log(sum);
            assert_close("softmax", at(y, ndim, index), exp(expected), tolerance, tolerance / 10);
            assert_close("log_softmax", at(l, ndim, index), expected, tolerance, tolerance);
        }
    }
}

static const struct {
    int ndim;
    int64_t shape[3];
} softmax_shapes[] = {{1, {1}}, {1, {5000}}, {2, {33, 10}}, {3, {5, 70, 3}}, {2, {600, 100}}};

static void every_softmax(void) {
    for (size_t s = 0; s < COUNT_OF(softmax_shapes); s++)
        for (int dtype = ND_I32; dtype < ND_DTYPE_COUNT; dtype++)
            for (int how = dtype < ND_I8 || is_float((nd_dtype)dtype) ? 0 : LAYOUTS; how < LAYOUTS;
                 how++) {
                nd_auto nd_tensor *x =
                    random_tensor((layout)how, softmax_shapes[s].ndim, softmax_shapes[s].shape,
                                  (nd_dtype)dtype, -40, 40);
                for (int axis = 0; axis < softmax_shapes[s].ndim; axis++)
                    check_softmax(x, axis);
            }
}

static void test_softmax(void **state) {
    (void)state;
    on_every_isa(every_softmax);
}

/// What a program does next with a long double: the x87 stack must be as empty as it was.
static void check_long_doubles(void) {
    volatile long double one = 1, two = 2;
    assert_true(one + one == two);
}

static void long_doubles_after_rows(void) {
    for (int64_t columns = 1; columns < 100; columns++) {
        nd_auto nd_tensor *x =
            random_tensor(DENSE, 2, (const int64_t[]){17, columns}, ND_F32, -4, 4);
        nd_auto nd_tensor *indices = nd_zeros(ND_SHAPE(17), ND_I64);
        const int last = 1;
        nd_auto nd_tensor *smallest = nd_min(x, 1, &last, false);
        check_long_doubles();
        nd_auto nd_tensor *largest = nd_max(x, 1, &last, false);
        check_long_doubles();
        nd_auto nd_tensor *y = nd_softmax(x, 1);
        check_long_doubles();
        nd_auto nd_tensor *logarithm = nd_log_softmax(x, 1);
        check_long_doubles();
        nd_auto nd_tensor *loss = nd_cross_entropy(x, indices);
        check_long_doubles();
        assert_true(smallest && largest && y && logarithm && loss);
    }
}

static void test_long_doubles_of_the_caller_stay_right(void **state) {
    (void)state;
    on_every_isa(long_doubles_after_rows);
}

static void test_F27_softmax_of_special_values(void **state) {
    (void)state;
    const float rows[] = {1,         NAN,       2,        3,      -INFINITY, 0,         1,
                          2,         1,         INFINITY, 2,      3,         -INFINITY, -INFINITY,
                          -INFINITY, -INFINITY, 3e38f,    -3e38f, 3e38f,     0};
    nd_auto nd_tensor *x = nd_from_data(rows, ND_SHAPE(5, 4), ND_F32);
    nd_auto nd_tensor *y = nd_softmax(x, 1);
    for (int64_t i = 0; i < 4; i++) {
        assert_true(isnan(at_flat(y, i)));
        assert_true(isnan(at_flat(y, 8 + i)));
        assert_true(isnan(at_flat(y, 12 + i)));
        assert_close("huge", at_flat(y, 16 + i), i % 2 ? 0.0 : 0.5, 1e-6, 0);
    }
    assert_true(at_flat(y, 4) == 0.0);
    assert_close("rest", at_flat(y, 7), 1 / (1 + exp(-1) + exp(-2)), 1e-6, 0);
    nd_auto nd_tensor *scalar = nd_scalar(1, ND_F32);
    nd_auto nd_tensor *empty = nd_zeros(ND_SHAPE(3, 0), ND_F32);
    nd_auto nd_tensor *nothing = nd_softmax(empty, 1);
    assert_handle(nothing);
    assert_refused(nd_softmax(scalar, 0), ND_ERROR_INVALID_ARGUMENT, "softmax: axis 0");
}

/// Against sums over what the mask keeps; the mask lies and broadcasts as `how` and `full` say.
static void check_masked_softmax(const nd_tensor *x, const nd_tensor *mask, int axis) {
    nd_auto nd_tensor *y = nd_masked_softmax(x, mask, axis);
    nd_auto nd_tensor *seen = nd_expand(mask, nd_get_ndim(x), nd_get_shape(x));
    assert_handle(y);
    assert_handle(seen);
    assert_int_equal(nd_get_dtype(y), nd_get_dtype(x));
    const int ndim = nd_get_ndim(x);
    const nd_dtype dtype = nd_get_dtype(x);
    const double tolerance = dtype == ND_F64    ? 1e-13
                             : dtype == ND_F16  ? 0x1p-10
                             : dtype == ND_BF16 ? 0x1p-8
                                                : 1e-6;
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        int64_t index[ND_MAX_DIMS], size = nd_get_shape(x)[axis];
        coordinates_of(ndim, nd_get_shape(x), flat, index);
        if (index[axis] != 0)
            continue;
        double largest = -INFINITY, sum = 0;
        for (index[axis] = 0; index[axis] < size; index[axis]++)
            if (at(seen, ndim, index) != 0)
                largest = fmax(largest, at(x, ndim, index));
        for (index[axis] = 0; index[axis] < size; index[axis]++)
            if (at(seen, ndim, index) != 0)
                sum += exp(at(x, ndim, index) - largest);
        for (index[axis] = 0; index[axis] < size; index[axis]++) {
            const double found = at(y, ndim, index);
            if (at(seen, ndim, index) == 0)
                assert_true(found == 0);
            else
                assert_close("masked_softmax", found, exp(at(x, ndim, index) - largest) / sum,
                             tolerance, tolerance / 10);
        }
    }
}

static void every_masked_softmax(void) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    for (size_t s = 0; s < COUNT_OF(softmax_shapes); s++)
        for (int how = 0; how < LAYOUTS * (int)COUNT_OF(dtypes); how++) {
            const int ndim = softmax_shapes[s].ndim;
            const int64_t *shape = softmax_shapes[s].shape;
            nd_auto nd_tensor *x =
                random_tensor((layout)(how % LAYOUTS), ndim, shape, dtypes[how / LAYOUTS], -40, 40);
            for (int from = 0; from < ndim; from++)
                for (int axis = 0; axis < ndim; axis++) {
                    nd_auto nd_tensor *numbers = random_tensor((layout)(how % LAYOUTS), ndim - from,
                                                               shape + from, ND_F32, -2, 1);
                    nd_auto nd_tensor *zero = nd_zeros_like(numbers);
                    nd_auto nd_tensor *mask = nd_greater(numbers, zero);
                    check_masked_softmax(x, mask, axis);
                }
        }
}

static void test_masked_softmax(void **state) {
    (void)state;
    on_every_isa(every_masked_softmax);
}

static void test_masked_softmax_of_special_values(void **state) {
    (void)state;
    const float rows[] = {1,         NAN,       2,         3,  // what is not looked at may be NaN
                          NAN,       INFINITY,  -INFINITY, 0,  // nothing is kept
                          -INFINITY, -INFINITY, 1,         2,  // -infinity alone is kept
                          1,         NAN,       5,         6}; // NaN is kept
    const uint8_t kept[] = {1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1};
    nd_auto nd_tensor *x = nd_from_data(rows, ND_SHAPE(4, 4), ND_F32);
    nd_auto nd_tensor *mask = nd_from_data(kept, ND_SHAPE(4, 4), ND_BOOL);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *y = nd_masked_softmax(x, mask, 1);
    assert_close("kept", at_flat(y, 2), 1 / (1 + exp(-1)), 1e-6, 0);
    for (int64_t i = 0; i < 16; i++)
        if (!kept[i])
            assert_true(at_flat(y, i) == 0);
        else if (i >= 8)
            assert_true(isnan(at_flat(y, i)));
    nd_auto nd_tensor *half = nd_slice(y, 0, 2, 1, 0);
    nd_auto nd_tensor *square = nd_square(half);
    nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    for (int64_t i = 0; i < 8; i++)
        assert_true(kept[i] ? at_flat(nd_get_grad(x), i) != 0 : at_flat(nd_get_grad(x), i) == 0);
}

static void test_masked_softmax_refuses(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(3, 4), ND_F32);
    nd_auto nd_tensor *wide = nd_ones(ND_SHAPE(2, 3, 4), ND_BOOL);
    nd_auto nd_tensor *other = nd_ones(ND_SHAPE(3), ND_BOOL);
    nd_auto nd_tensor *mask = nd_ones(ND_SHAPE(4), ND_BOOL);
    assert_refused(nd_masked_softmax(x, x, 1), ND_ERROR_DTYPE,
                   "masked_softmax: the mask is float32 and must be bool");
    assert_refused(nd_masked_softmax(x, wide, 1), ND_ERROR_SHAPE,
                   "masked_softmax: a mask of shape [2, 3, 4] does not broadcast to x's [3, 4]");
    assert_refused(nd_masked_softmax(x, other, 1), ND_ERROR_SHAPE, "masked_softmax: a mask of");
    assert_refused(nd_masked_softmax(x, mask, 2), ND_ERROR_INVALID_ARGUMENT,
                   "masked_softmax: axis 2");
    assert_refused(nd_masked_softmax(x, NULL, 1), ND_ERROR_INVALID_ARGUMENT, "masked_softmax:");
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(3, 0), ND_F32);
    nd_auto nd_tensor *no_mask = nd_zeros(ND_SHAPE(3, 0), ND_BOOL);
    nd_auto nd_tensor *nothing = nd_masked_softmax(none, no_mask, 1);
    assert_handle(nothing);
}

/// Rows of every short length, many at once: each has the bits that it has alone, whatever its
/// neighbours hold, and they are right.
static void every_short_row(void) {
    enum { ROWS = 37, LONGEST = 261 };
    static const float special[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0};
    static float numbers[ROWS * LONGEST];
    for (int64_t n = 1; n <= LONGEST; n += n < 50 ? 1 : 5) {
        const int seldom = n < 50 ? 64 : 512;
        for (int64_t i = 0; i < ROWS * n; i++)
            numbers[i] = rand() % seldom ? (float)(rand() % 20000 - 10000) / 500
                                         : special[(size_t)rand() % COUNT_OF(special)];
        for (int64_t i = 0; i < n; i++) // rows of one number
            numbers[i] = -INFINITY, numbers[ROWS / 2 * n + i] = 7;
        nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(ROWS, n), ND_F32);
        nd_auto nd_tensor *wide = nd_cast(x, ND_F64);
        for (int of_log = 0; of_log < 2; of_log++) {
            nd_auto nd_tensor *y = of_log ? nd_log_softmax(x, 1) : nd_softmax(x, 1);
            nd_auto nd_tensor *right = of_log ? nd_log_softmax(wide, 1) : nd_softmax(wide, 1);
            assert_handle(y);
            assert_handle(right);
            const float *found = nd_get_data(y);
            for (int64_t row = 0; row < ROWS; row++) {
                nd_auto nd_tensor *alone = nd_slice(x, row, row + 1, 1, 0);
                nd_auto nd_tensor *y_alone =
                    of_log ? nd_log_softmax(alone, 1) : nd_softmax(alone, 1);
                assert_handle(y_alone);
                const float *found_alone = nd_get_data(y_alone);
                for (int64_t i = 0; i < n; i++) {
                    const float value = found[row * n + i];
                    const double expected = at_flat(right, row * n + i);
                    if (isnan(value) || isnan(found_alone[i]))
                        assert_true(isnan(value) && isnan(found_alone[i]) && isnan(expected));
                    else if (fabs(expected) < 1e38) { // else f32 has no such number
                        assert_memory_equal(&value, &found_alone[i], sizeof value);
                        assert_close("a short row", (double)value, expected, 5e-6,
                                     of_log ? 2e-6 : 1e-37);
                    }
                }
            }
        }
    }
}

static void test_short_rows_do_not_see_their_neighbours(void **state) {
    (void)state;
    on_every_isa(every_short_row);
}

static void check_cross_entropy(int64_t n, int64_t classes, nd_dtype dtype, layout how) {
    static const nd_dtype integers[] = {ND_I64, ND_I32, ND_I16, ND_I8,
                                        ND_U64, ND_U32, ND_U16, ND_U8};
    nd_dtype integer = integers[rand() % (int)COUNT_OF(integers)];
    nd_auto nd_tensor *logits = random_tensor(how, ND_SHAPE(n, classes), dtype, -20, 20);
    nd_auto nd_tensor *targets = nd_empty(ND_SHAPE(n), integer);
    for (int64_t i = 0; i < n; i++)
        set_element(nd_get_data(targets), integer, i, (double)(rand() % classes));
    nd_auto nd_tensor *loss = nd_cross_entropy(logits, targets);
    assert_handle(loss);
    double expected = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++)
            sum += exp(at_flat(logits, i * classes + c));
        expected += log(sum) - at_flat(logits, i * classes + (int64_t)at_flat(targets, i));
    }
    double tolerance = dtype == ND_F16 ? 0x1p-11 : dtype == ND_BF16 ? 0x1p-8 : 1e-6;
    assert_int_equal(nd_get_dtype(loss), dtype);
    assert_close("cross_entropy", at_flat(loss, 0), expected / (double)n, tolerance, 1e-6);
}

static void test_cross_entropy(void **state) {
    (void)state;
    for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            check_cross_entropy(1, 1, (nd_dtype)dtype, (layout)how);
            check_cross_entropy(77, 10, (nd_dtype)dtype, (layout)how);
            check_cross_entropy(5000, 13, (nd_dtype)dtype, (layout)how);
        }
    check_cross_entropy(77, 10, ND_F16, TRANSPOSED);
    check_cross_entropy(77, 10, ND_BF16, DENSE);
    nd_auto nd_tensor *logits = nd_ones(ND_SHAPE(3, 4), ND_F32);
    const int64_t bad[] = {0, 4, 1}, negative[] = {0, -1, 1};
    nd_auto nd_tensor *above = nd_from_data(bad, ND_SHAPE(3), ND_I64);
    nd_auto nd_tensor *below = nd_from_data(negative, ND_SHAPE(3), ND_I64);
    nd_auto nd_tensor *few = nd_zeros(ND_SHAPE(2), ND_I64);
    assert_refused(nd_cross_entropy(logits, above), ND_ERROR_INVALID_ARGUMENT,
                   "cross_entropy: a target is outside 0 ... 3");
    assert_refused(nd_cross_entropy(logits, below), ND_ERROR_INVALID_ARGUMENT, "cross_entropy");
    assert_refused(nd_cross_entropy(logits, few), ND_ERROR_SHAPE,
                   "cross_entropy: logits have shape");
    assert_refused(nd_cross_entropy(logits, logits), ND_ERROR_DTYPE, "cross_entropy: logits are");
    if (nd_test_device().kind == ND_CPU)
        assert_refused(nd_cross_entropy(logits, above), ND_ERROR_INVALID_ARGUMENT,
                       "cross_entropy: a target is outside 0 ... 3: 4 at [1]");
}

/// NaN, as of nd_cross_entropy_with() and nd_mse_loss(), with a gradient of nothing; without classes
/// there is nothing that a target could be.
static void test_cross_entropy_of_no_rows(void **state) {
    (void)state;
    const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    nd_auto nd_tensor *targets = nd_zeros(ND_SHAPE(0), ND_I32);
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        nd_auto nd_tensor *logits = nd_zeros(ND_SHAPE(0, 3), dtypes[i]);
        assert_ok(nd_set_requires_grad(logits, true));
        nd_auto nd_tensor *loss = nd_cross_entropy(logits, targets);
        nd_auto nd_tensor *other = nd_cross_entropy_with(logits, targets, NULL, NULL);
        assert_int_equal(nd_get_ndim(loss), 0);
        assert_int_equal(nd_get_dtype(loss), nd_get_dtype(other));
        assert_true(isnan(nd_get_item(loss)) && isnan(nd_get_item(other)));
        assert_ok(nd_backward(loss, NULL));
        assert_shape(nd_get_grad(logits), ND_SHAPE(0, 3));
        nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 0), dtypes[i]);
        assert_refused(nd_cross_entropy(none, targets), ND_ERROR_SHAPE,
                       "cross_entropy: logits of shape [0, 0] have no classes");
    }
}

static void test_mse_loss(void **state) {
    (void)state;
    nd_auto nd_tensor *a = random_tensor(DENSE, ND_SHAPE(7, 9), ND_F32, -2, 2);
    nd_auto nd_tensor *b = random_tensor(TRANSPOSED, ND_SHAPE(7, 9), ND_F32, -2, 2);
    nd_auto nd_tensor *loss = nd_mse_loss(a, b);
    double expected = 0;
    for (int64_t i = 0; i < 63; i++)
        expected += pow(at_flat(a, i) - at_flat(b, i), 2) / 63;
    assert_close("mse_loss", nd_get_item(loss), expected, 1e-6, 0);
    assert_refused(nd_mse_loss(a, NULL), ND_ERROR_INVALID_ARGUMENT, "mse_loss: b is NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_softmax),
        ND_TEST(test_long_doubles_of_the_caller_stay_right),
        ND_TEST(test_F27_softmax_of_special_values),
        ND_TEST(test_masked_softmax),
        ND_TEST(test_masked_softmax_of_special_values),
        ND_TEST(test_masked_softmax_refuses),
        ND_TEST(test_short_rows_do_not_see_their_neighbours),
        ND_TEST(test_cross_entropy),
        ND_TEST(test_cross_entropy_of_no_rows),
        ND_TEST(test_mse_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
