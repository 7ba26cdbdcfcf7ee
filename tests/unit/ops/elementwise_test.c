// Every elementwise row of kernels/ops.inc against long doubles: all dtypes it takes, operands that
// lie in every way, broadcasting, empty tensors, special values, and every instruction set this
// machine has.
#include "kernels/cpu/cpu.h"
#include "tests/elementwise.h"
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/references.h"
#include "tests/unit/ops/values.h"

typedef union reference {
    long double (*one)(long double x);
    long double (*two)(long double a, long double b);
} reference;

#define REFERENCE_NONE(name)
#define REFERENCE_X(name) {.one = reference_##name},
#define REFERENCE_XP(name) {.one = reference_##name},
#define REFERENCE_XPQ(name) {.one = reference_##name},
#define REFERENCE_AB(name) {.two = reference_##name},

/// In the order of elementwise_rows.
static const reference references[ELEMENTWISE_ROWS] = {
#define ND_UNARY(name, types, expression, cost, differentiable, saves, form, ...) \
    REFERENCE_##form(name)
#define ND_BINARY ND_UNARY
#define ND_COMPARE ND_UNARY
#define ND_LOGICAL ND_UNARY
#define ND_PREDICATE ND_UNARY
#include "kernels/ops.inc"
};

/// Of operands of a dtype, which is a result's where there is one.
static long double reference_of(const elementwise_row *row, nd_dtype dtype, double a, double b) {
    if (row->op == ND_OP_nextafter)
        return dtype == ND_F32 ? (double)nextafterf((float)a, (float)b) : nextafter(a, b);
    if (row->op == ND_OP_bitwise_invert && dtype == ND_BOOL)
        return a == 0;
    const reference *reference = &references[row - elementwise_rows];
    return row->operands == 1 ? reference->one(a) : reference->two(a, b);
}

static const elementwise_row *row_of(nd_op op) {
    for (int i = 0; i < ELEMENTWISE_ROWS; i++)
        if (elementwise_rows[i].op == op)
            return &elementwise_rows[i];
    fail_msg("no row");
    return NULL;
}

/// A result as an integer dtype keeps it: without a fraction, its low bits; 0 for what is no
/// number.
static double wrapped(long double value, nd_dtype dtype) {
    int64_t whole = isfinite(value) ? (int64_t)truncl(value) : 0;
    return dtype == ND_U8 ? (uint8_t)whole : dtype == ND_I32 ? (int32_t)whole : (double)whole;
}

static double tolerance_of(nd_dtype dtype) {
    return dtype == ND_F64 ? 1e-13 : 1e-6;
}

static const nd_dtype dtypes[] = {ND_BOOL, ND_U8, ND_I32, ND_I64, ND_F32, ND_F64};

static const struct {
    int andim;
    int64_t ashape[4];
    int bndim;
    int64_t bshape[4];
} pairs[] = {
    {1, {65}, 1, {65}},      {2, {4, 35}, 2, {4, 35}},  {2, {4, 35}, 1, {35}},
    {2, {4, 1}, 2, {1, 35}}, {3, {2, 3, 4}, 2, {3, 1}}, {1, {35}, 0, {0}},
    {0, {0}, 2, {3, 5}},     {2, {0, 3}, 1, {3}},       {4, {2, 1, 3, 9}, 4, {2, 5, 1, 9}},
    {0, {0}, 0, {0}},        {1, {1}, 1, {1}},          {4, {1, 3, 1, 17}, 3, {1, 1, 17}},
};

/// Runs a row and looks at every element of the result. `b` is not looked at by rows of one
/// operand.
static void check_row(const elementwise_row *row, const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *y = row->run(a, b, ND_NUMBER(P), ND_NUMBER(Q));
    assert_handle(y);
    nd_dtype dtype = nd_get_dtype(a);
    if (row->operands == 2)
        dtype = nd_promote_dtypes(dtype, nd_get_dtype(b));
    nd_dtype result = elementwise_result(row, dtype);
    assert_int_equal(nd_get_dtype(y), result);
    if (row->operands == 1)
        assert_shape(y, nd_get_ndim(a), nd_get_shape(a));
    int ndim = nd_get_ndim(y);
    for (int64_t i = 0; i < nd_get_numel(y); i++) {
        int64_t index[ND_MAX_DIMS];
        coordinates_of(ndim, nd_get_shape(y), i, index);
        double b_value = row->operands == 2 ? at(b, ndim, index) : 0;
        long double exact = reference_of(row, result, at(a, ndim, index), b_value);
        double expected = elementwise_is_float(result) ? (double)exact : wrapped(exact, result);
        double tolerance = elementwise_is_float(result) ? tolerance_of(result) : 0;
        assert_close(row->name, at_flat(y, i), expected, tolerance, tolerance / 2);
    }
}

static void every_row(void) {
    for (int r = 0; r < ELEMENTWISE_ROWS; r++)
        for (size_t d = 0; d < COUNT_OF(dtypes); d++)
            for (size_t s = 0; s < COUNT_OF(pairs); s++)
                for (int how = 0; how < LAYOUTS; how++) {
                    const elementwise_row *row = &elementwise_rows[r];
                    if (!elementwise_takes(row, dtypes[d]))
                        continue;
                    nd_auto nd_tensor *a = random_tensor((layout)how, pairs[s].andim,
                                                         pairs[s].ashape, dtypes[d], -3.0, 3.0);
                    nd_auto nd_tensor *b =
                        random_tensor((layout)(LAYOUTS - 1 - how), pairs[s].bndim, pairs[s].bshape,
                                      dtypes[d], -3.0, 3.0);
                    check_row(row, a, b);
                    nd_auto nd_tensor *same = nd_clone(a);
                    check_row(row, a, same);
                }
}

// --------------------------------------------------------------------------------------- the tests

static void test_every_row(void **state) {
    (void)state;
    on_every_isa(every_row);
}

static void test_what_a_row_does_not_take_is_refused(void **state) {
    (void)state;
    for (int r = 0; r < ELEMENTWISE_ROWS; r++)
        for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
            const elementwise_row *row = &elementwise_rows[r];
            if (elementwise_takes(row, dtypes[d]))
                continue;
            nd_auto nd_tensor *x = random_dense(ND_SHAPE(3), dtypes[d], -3, 3);
            assert_refused(row->run(x, x, ND_NUMBER(P), ND_NUMBER(Q)), ND_ERROR_DTYPE, row->name);
        }
}

static const double specials[] = {
    0.5,   1.5,    2.5,   -0.5,  -2.5,  3.0,   -3.0,  6.0,   0.0,      -0.0,     1.0,    -1.0,
    1e-40, -1e-40, 1e-20, 30.0,  -30.0, 88.0,  -88.0, 300.0, 1e30,     -1e30,    3.4e38, -3.4e38,
    0.93,  -0.55,  NAN,   100.0, -105., -100., 9.0,   -9.0,  INFINITY, -INFINITY};

/// All pairs of special values, or all of them for rows of one operand.
static void special_row(const elementwise_row *row, nd_dtype dtype) {
    int64_t n = (int64_t)COUNT_OF(specials);
    nd_auto nd_tensor *x = nd_empty(ND_SHAPE(n), dtype);
    for (int64_t i = 0; i < n; i++)
        set_element(nd_get_data(x), dtype, i, specials[i]);
    nd_auto nd_tensor *across = nd_reshape(x, ND_SHAPE(1, n));
    nd_auto nd_tensor *down = nd_reshape(x, ND_SHAPE(n, 1));
    nd_auto nd_tensor *y = row->run(across, down, ND_NUMBER(P), ND_NUMBER(Q));
    assert_handle(y);
    for (int64_t i = 0; i < nd_get_numel(y); i++) {
        double a = at_flat(x, i % n), b = at_flat(x, i / n);
        double expected = (double)reference_of(row, dtype, a, b);
        if (dtype == ND_F32 && !row->gives_bool) // in its range, subnormals included
            expected = (double)(float)expected;
        double absolute = 3e-44;
        // Of a large negative number exact to the operand's precision only.
        if (row->op == ND_OP_gelu || row->op == ND_OP_gelu_tanh)
            absolute = 1e-7 * fabs(a);
        // Products of the operand and a factor without all of its digits.
        if (row->op == ND_OP_silu || row->op == ND_OP_mish)
            absolute = 3e-44 * fmax(1, fabs(a));
        assert_close(row->name, at_flat(y, i), expected, 2 * tolerance_of(dtype),
                     dtype == ND_F32 ? absolute : 0);
    }
}

static void special_values(void) {
    for (int r = 0; r < ELEMENTWISE_ROWS; r++)
        for (size_t d = 0; d < COUNT_OF(dtypes); d++)
            if (elementwise_is_float(dtypes[d]) &&
                elementwise_takes(&elementwise_rows[r], dtypes[d]))
                special_row(&elementwise_rows[r], dtypes[d]);
}

static void test_F27_special_values_through_every_row(void **state) {
    (void)state;
    on_every_isa(special_values);
}

static void check_where(nd_dtype dtype, layout how) {
    nd_auto nd_tensor *condition = random_tensor(how, ND_SHAPE(5, 1, 7), ND_BOOL, 0, 1);
    nd_auto nd_tensor *a = random_tensor(how, ND_SHAPE(4, 7), dtype, -3, 3);
    nd_auto nd_tensor *b = random_tensor(DENSE, ND_SHAPE(5, 4, 7), dtype, -3, 3);
    nd_auto nd_tensor *y = nd_where(condition, a, b);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), dtype);
    assert_shape(y, ND_SHAPE(5, 4, 7));
    for (int64_t i = 0; i < nd_get_numel(y); i++) {
        int64_t index[ND_MAX_DIMS];
        coordinates_of(3, nd_get_shape(y), i, index);
        assert_true(at_flat(y, i) ==
                    (at(condition, 3, index) != 0 ? at(a, 3, index) : at(b, 3, index)));
    }
}

static void test_where_and_masked_fill(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT_OF(dtypes); d++)
        for (int how = 0; how < LAYOUTS; how++)
            check_where(dtypes[d], (layout)how);
    nd_auto nd_tensor *x = random_tensor(TRANSPOSED, ND_SHAPE(4, 5), ND_F32, -1, 1);
    nd_auto nd_tensor *mask = random_tensor(DENSE, ND_SHAPE(5), ND_BOOL, 0, 1);
    nd_auto nd_tensor *filled = nd_masked_fill(x, mask, 7.5);
    assert_handle(filled);
    for (int64_t i = 0; i < 20; i++)
        assert_true(at_flat(filled, i) == (at_flat(mask, i % 5) != 0 ? 7.5 : at_flat(x, i)));
    nd_auto nd_tensor *wide = random_tensor(DENSE, ND_SHAPE(3, 4, 5), ND_BOOL, 0, 1);
    assert_refused(nd_masked_fill(x, wide, 1.0), ND_ERROR_SHAPE,
                   "masked_fill: a mask of shape [3, 4, 5]");
    assert_refused(nd_masked_fill(x, x, 1.0), ND_ERROR_DTYPE, "masked_fill: the mask is float32");
}

static void test_mixed_dtypes_promote(void **state) {
    (void)state;
    for (int r = 0; r < ELEMENTWISE_ROWS; r++)
        for (size_t i = 0; i < COUNT_OF(dtypes); i++)
            for (size_t j = 0; j < COUNT_OF(dtypes); j++) {
                const elementwise_row *row = &elementwise_rows[r];
                bool taken = elementwise_takes(row, dtypes[i]) && elementwise_takes(row, dtypes[j]);
                if (row->operands == 1 || !taken)
                    continue;
                nd_auto nd_tensor *a = random_dense(ND_SHAPE(3, 4), dtypes[i], -3, 3);
                nd_auto nd_tensor *b = random_dense(ND_SHAPE(4), dtypes[j], -3, 3);
                if (row->types == TAKES_BITS && (dtypes[i] == ND_BOOL) != (dtypes[j] == ND_BOOL)) {
                    assert_refused(row->run(a, b, ND_NUMBER(P), ND_NUMBER(Q)), ND_ERROR_DTYPE,
                                   row->name);
                    continue;
                }
                check_row(row, a, b);
            }
}

static void test_numbers_keep_or_change_the_dtype(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(5), ND_I32, 0, 0);
    nd_auto nd_tensor *whole = nd_add_scalar(x, 3.0);
    nd_auto nd_tensor *fraction = nd_mul_scalar(x, 0.5);
    nd_auto nd_tensor *clipped = nd_clip(x, -INFINITY, 4.0);
    assert_int_equal(nd_get_dtype(whole), ND_I32);
    assert_int_equal(nd_get_dtype(fraction), ND_F32);
    assert_int_equal(nd_get_dtype(clipped), ND_I32);
    nd_auto nd_tensor *between = nd_clip(x, 0.5, 4);
    assert_int_equal(nd_get_dtype(between), ND_F32);
    for (int64_t i = 0; i < 5; i++) {
        assert_true(at_flat(fraction, i) == at_flat(x, i) * 0.5);
        assert_true(at_flat(clipped, i) == fmin(at_flat(x, i), 4.0));
    }
    nd_auto nd_tensor *bytes = nd_ones(ND_SHAPE(2), ND_U8);
    assert_refused(nd_add_scalar(bytes, 300.0), ND_ERROR_INVALID_ARGUMENT,
                   "add_scalar: uint8 cannot hold the number 300");
    assert_refused(nd_clip(x, NAN, 1.0), ND_ERROR_INVALID_ARGUMENT, "clip");
}

static void test_F29_integers_wrap_and_never_trap(void **state) {
    (void)state;
    const int32_t values[] = {INT32_MIN, INT32_MAX, -1, 0};
    nd_auto nd_tensor *x = nd_from_data(values, ND_SHAPE(4), ND_I32);
    nd_auto nd_tensor *negative = nd_neg(x);
    nd_auto nd_tensor *magnitude = nd_abs(x);
    nd_auto nd_tensor *sum = nd_add(x, x);
    nd_auto nd_tensor *square = nd_square(x);
    assert_true(at_flat(negative, 0) == INT32_MIN && at_flat(negative, 1) == -INT32_MAX);
    assert_true(at_flat(magnitude, 0) == INT32_MIN && at_flat(magnitude, 2) == 1);
    assert_true(at_flat(sum, 0) == 0 && at_flat(sum, 1) == -2);
    assert_true(at_flat(square, 0) == 0 && at_flat(square, 1) == 1);
    nd_auto nd_tensor *zero = nd_zeros(ND_SHAPE(4), ND_I32);
    nd_auto nd_tensor *quotient = nd_div(x, zero);
    assert_int_equal(nd_get_dtype(quotient), ND_F32);
    assert_true(at_flat(quotient, 0) == -INFINITY && at_flat(quotient, 1) == INFINITY &&
                isnan(at_flat(quotient, 3)));
    // Integer powers: 0, 1 and -1 to negative exponents.
    const int64_t bases[] = {0, 1, -1, -1, 2, 3}, exponents[] = {-1, -5, -3, -4, -1, 40};
    nd_auto nd_tensor *base = nd_from_data(bases, ND_SHAPE(6), ND_I64);
    nd_auto nd_tensor *exponent = nd_from_data(exponents, ND_SHAPE(6), ND_I64);
    nd_auto nd_tensor *power = nd_pow(base, exponent);
    const double expected[] = {0, 1, -1, 1, 0, 12157665459056928801.0 - 0x1p64};
    for (int i = 0; i < 6; i++)
        assert_true(at_flat(power, i) == expected[i]);
}

static void test_operands_that_do_not_fit_are_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *a = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *b = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *flags = nd_ones(ND_SHAPE(2, 3), ND_BOOL);
    assert_refused(nd_add(a, b), ND_ERROR_SHAPE, "add: shapes [2, 3] and [4] do not broadcast");
    assert_refused(nd_less(a, b), ND_ERROR_SHAPE, "less: shapes");
    assert_refused(nd_mul(a, flags), ND_ERROR_DTYPE, "mul: does not take bool");
    assert_refused(nd_exp(flags), ND_ERROR_DTYPE, "exp: does not take bool");
    assert_refused(nd_logical_and(a, flags), ND_ERROR_DTYPE, "logical_and: takes bool");
    assert_refused(nd_where(a, a, a), ND_ERROR_DTYPE, "where: the condition is float32");
    // The first error stays: a chain needs one check.
    nd_error_clear();
    nd_auto nd_tensor *sum = nd_add(a, b);
    nd_auto nd_tensor *chain = nd_exp(sum);
    assert_null(chain);
    assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
    nd_error_clear();
    assert_refused(nd_add(NULL, a), ND_ERROR_INVALID_ARGUMENT, "add: a is NULL");
    nd_close(b);
    assert_refused(nd_add(a, b), ND_ERROR_CLOSED, "add: b");
}

/// e^x is its own sigmoid down to the smallest number, where e^-x is infinite long before.
static void test_sigmoid_of_f64_reaches_the_smallest_numbers(void **state) {
    (void)state;
    static const double numbers[] = {-1, -36, -700, -709, -710, -744, -746, 36, 800};
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        nd_auto nd_tensor *x = nd_scalar(numbers[i], ND_F64);
        nd_auto nd_tensor *y = nd_sigmoid(x);
        double e = exp(-fabs(numbers[i]));
        double expected = numbers[i] < 0 ? e / (1 + e) : 1 / (1 + e);
        assert_close("sigmoid", nd_get_item(y), expected, 1e-15, 0);
    }
}

static void test_long_rows_on_several_threads(void **state) {
    (void)state;
    nd_auto nd_tensor *a = random_tensor(DENSE, ND_SHAPE(300001), ND_F32, -3, 3);
    nd_auto nd_tensor *b = random_tensor(STEPPED, ND_SHAPE(300001), ND_F32, -3, 3);
    check_row(row_of(ND_OP_add), a, b);
    check_row(row_of(ND_OP_exp), a, NULL);
    nd_auto nd_tensor *wide = random_tensor(TRANSPOSED, ND_SHAPE(301, 997), ND_F32, -3, 3);
    nd_auto nd_tensor *row = random_tensor(DENSE, ND_SHAPE(997), ND_F32, -3, 3);
    check_row(row_of(ND_OP_mul), wide, row);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_row),
        ND_TEST(test_what_a_row_does_not_take_is_refused),
        ND_TEST(test_F27_special_values_through_every_row),
        ND_TEST(test_where_and_masked_fill),
        ND_TEST(test_mixed_dtypes_promote),
        ND_TEST(test_numbers_keep_or_change_the_dtype),
        ND_TEST(test_F29_integers_wrap_and_never_trap),
        ND_TEST(test_operands_that_do_not_fit_are_refused),
        ND_TEST(test_sigmoid_of_f64_reaches_the_smallest_numbers),
        ND_TEST(test_long_rows_on_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
