// Every row of kernels/expressions.inc against plain loops: all dtypes, dense and strided operands,
// broadcasting, empty tensors, special values, and every instruction set this machine has.
#include "kernels/cpu/cpu.h"
#include "tests/unit/ops/values.h"

// Numbers that every dtype holds.
#define P 2.0
#define Q 5.0

// -------------------------------------------------------------------------- reference: one operand

static double reference_neg(double x) {
    return -x;
}
static double reference_abs(double x) {
    return fabs(x);
}
static double reference_sign(double x) {
    return isnan(x) ? x : (x > 0) - (x < 0);
}
static double reference_square(double x) {
    return x * x;
}
static double reference_sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}
static double reference_relu(double x) {
    return x < 0 ? 0 : x;
}
static double reference_gelu(double x) {
    return x == -INFINITY ? 0.0 : x / 2 * erfc(-x / sqrt(2.0));
}
static double reference_reciprocal(double x) {
    return 1.0 / x;
}
static double reference_add_scalar(double x) {
    return x + P;
}
static double reference_mul_scalar(double x) {
    return x * P;
}
static double reference_pow_scalar(double x) {
    return pow(x, P);
}
static double reference_clip(double x) {
    return isnan(x) ? x : fmin(fmax(x, P), Q);
}
#define reference_exp exp
#define reference_log log
#define reference_sqrt sqrt
#define reference_sin sin
#define reference_cos cos
#define reference_tanh tanh
#define reference_erf erf

static nd_tensor *call_add_scalar(const nd_tensor *x) {
    return nd_add_scalar(x, P);
}
static nd_tensor *call_mul_scalar(const nd_tensor *x) {
    return nd_mul_scalar(x, P);
}
static nd_tensor *call_pow_scalar(const nd_tensor *x) {
    return nd_pow_scalar(x, P);
}
static nd_tensor *call_clip(const nd_tensor *x) {
    return nd_clip(x, P, Q);
}
#define call_neg nd_neg
#define call_abs nd_abs
#define call_sign nd_sign
#define call_square nd_square
#define call_exp nd_exp
#define call_log nd_log
#define call_sqrt nd_sqrt
#define call_sin nd_sin
#define call_cos nd_cos
#define call_tanh nd_tanh
#define call_sigmoid nd_sigmoid
#define call_relu nd_relu
#define call_gelu nd_gelu
#define call_erf nd_erf
#define call_reciprocal nd_reciprocal

typedef struct unary_row {
    const char *name;
    bool floats_only;
    nd_tensor *(*call)(const nd_tensor *x);
    double (*reference)(double x);
} unary_row;

#define IS_FLOAT_ROW_ANY false
#define IS_FLOAT_ROW_NUMBER false
#define IS_FLOAT_ROW_FLOAT true
static const unary_row unary_rows[] = {
#define ND_UNARY(name, types, expression) \
    {#name, IS_FLOAT_ROW_##types, call_##name, reference_##name},
#include "kernels/expressions.inc"
};

/// An integer result as the dtype keeps it: its low bits.
static double wrapped(double value, nd_dtype dtype) {
    return dtype == ND_U8 ? (double)(uint8_t)(int64_t)value : value;
}

static double tolerance_of(nd_dtype dtype) {
    return dtype == ND_F64 ? 1e-13 : 1e-6;
}

static const nd_dtype numbers[] = {ND_U8, ND_I32, ND_I64, ND_F32, ND_F64};

static const struct {
    int ndim;
    int64_t shape[4];
} shapes[] = {{0, {0}}, {1, {1}}, {1, {67}}, {2, {5, 33}}, {3, {3, 4, 17}}, {2, {0, 4}}};

static void check_unary(const unary_row *row, const nd_tensor *x) {
    nd_auto nd_tensor *y = row->call(x);
    assert_handle(y);
    nd_dtype dtype = nd_get_dtype(x);
    bool is_float = dtype == ND_F32 || dtype == ND_F64;
    assert_int_equal(nd_get_dtype(y), row->floats_only && !is_float ? ND_F32 : dtype);
    assert_shape(y, nd_get_ndim(x), nd_get_shape(x));
    for (int64_t i = 0; i < nd_get_numel(x); i++) {
        double expected = row->reference(at_flat(x, i));
        if (nd_get_dtype(y) == dtype && !is_float)
            expected = wrapped(expected, dtype);
        double tolerance = tolerance_of(nd_get_dtype(y));
        assert_close(row->name, at_flat(y, i), expected, tolerance, tolerance / 2);
    }
}

static void every_unary(void) {
    for (size_t r = 0; r < COUNT_OF(unary_rows); r++)
        for (size_t d = 0; d < COUNT_OF(numbers); d++)
            for (size_t s = 0; s < COUNT_OF(shapes); s++)
                for (int how = 0; how < LAYOUTS; how++) {
                    nd_auto nd_tensor *x = random_tensor((layout)how, shapes[s].ndim,
                                                         shapes[s].shape, numbers[d], -3.0, 3.0);
                    check_unary(&unary_rows[r], x);
                }
}

// ------------------------------------------------------------------------- reference: two operands

static double reference_add(double a, double b) {
    return a + b;
}
static double reference_sub(double a, double b) {
    return a - b;
}
static double reference_mul(double a, double b) {
    return a * b;
}
static double reference_div(double a, double b) {
    return a / b;
}
static double reference_pow(double a, double b) {
    return pow(a, b);
}
static double reference_maximum(double a, double b) {
    return isnan(a) || isnan(b) ? (double)NAN : fmax(a, b);
}
static double reference_minimum(double a, double b) {
    return isnan(a) || isnan(b) ? (double)NAN : fmin(a, b);
}
static double reference_equal(double a, double b) {
    return a == b;
}
static double reference_not_equal(double a, double b) {
    return a != b;
}
static double reference_less(double a, double b) {
    return a < b;
}
static double reference_less_equal(double a, double b) {
    return a <= b;
}
static double reference_greater(double a, double b) {
    return a > b;
}
static double reference_greater_equal(double a, double b) {
    return a >= b;
}

typedef struct binary_row {
    const char *name;
    bool floats_only, compares;
    nd_tensor *(*call)(const nd_tensor *a, const nd_tensor *b);
    double (*reference)(double a, double b);
} binary_row;

static const binary_row binary_rows[] = {
#define ROW(name, floats, compares) \
    { #name, floats, compares, nd_##name, reference_##name }
    ROW(add, false, false),          ROW(sub, false, false),       ROW(mul, false, false),
    ROW(div, true, false),           ROW(pow, false, false),       ROW(maximum, false, false),
    ROW(minimum, false, false),      ROW(equal, false, true),      ROW(not_equal, false, true),
    ROW(less, false, true),          ROW(less_equal, false, true), ROW(greater, false, true),
    ROW(greater_equal, false, true),
};

static const struct {
    int andim;
    int64_t ashape[4];
    int bndim;
    int64_t bshape[4];
} pairs[] = {
    {1, {65}, 1, {65}},      {2, {4, 35}, 2, {4, 35}},  {2, {4, 35}, 1, {35}},
    {2, {4, 1}, 2, {1, 35}}, {3, {2, 3, 4}, 2, {3, 1}}, {1, {35}, 0, {0}},
    {0, {0}, 2, {3, 5}},     {2, {0, 3}, 1, {3}},       {4, {2, 1, 3, 9}, 4, {2, 5, 1, 9}},
};

static void check_binary(const binary_row *row, const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *y = row->call(a, b);
    assert_handle(y);
    nd_dtype dtype = nd_promote_dtypes(nd_get_dtype(a), nd_get_dtype(b));
    bool is_float = dtype == ND_F32 || dtype == ND_F64;
    nd_dtype expected_dtype = row->compares                   ? ND_BOOL
                              : row->floats_only && !is_float ? ND_F32
                                                              : dtype;
    assert_int_equal(nd_get_dtype(y), expected_dtype);
    int ndim = nd_get_ndim(y);
    for (int64_t i = 0; i < nd_get_numel(y); i++) {
        int64_t index[ND_MAX_DIMS];
        coordinates_of(ndim, nd_get_shape(y), i, index);
        double expected = row->reference(at(a, ndim, index), at(b, ndim, index));
        if (!row->compares && expected_dtype == dtype && !is_float)
            expected = wrapped(trunc(expected), dtype);
        double tolerance = tolerance_of(expected_dtype);
        assert_close(row->name, at_flat(y, i), expected, tolerance, tolerance / 4);
    }
}

static void every_binary(void) {
    for (size_t r = 0; r < COUNT_OF(binary_rows); r++)
        for (size_t d = 0; d < COUNT_OF(numbers); d++)
            for (size_t s = 0; s < COUNT_OF(pairs); s++)
                for (int how = 0; how < LAYOUTS; how++) {
                    // Powers of small positive numbers stay in every dtype's range.
                    bool is_pow = binary_rows[r].call == nd_pow;
                    nd_dtype dtype = is_pow && numbers[d] < ND_F32 ? ND_F32 : numbers[d];
                    double low = is_pow ? 0.1 : -3.0;
                    nd_auto nd_tensor *a = random_tensor((layout)how, pairs[s].andim,
                                                         pairs[s].ashape, dtype, low, 3.0);
                    nd_auto nd_tensor *b =
                        random_tensor((layout)(LAYOUTS - 1 - how), pairs[s].bndim, pairs[s].bshape,
                                      dtype, -3.0, 3.0);
                    check_binary(&binary_rows[r], a, b);
                    nd_auto nd_tensor *same = nd_clone(a);
                    check_binary(&binary_rows[r], a, same);
                }
}

// --------------------------------------------------------------------------------------- the tests

static void on_every_isa(void (*test)(void)) {
    static const char *const names[] = {"baseline", "x86_64_v3", "x86_64_v4"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (nd__cpu_use_isa(names[i]))
            test();
    nd__cpu_use_isa(NULL);
}

static void test_every_unary_row(void **state) {
    (void)state;
    on_every_isa(every_unary);
}

static void test_every_binary_row(void **state) {
    (void)state;
    on_every_isa(every_binary);
}

static const double specials[] = {0.0,    -0.0,    1.0,  -1.0,     1e-40,    -1e-40, 1e-20,
                                  30.0,   -30.0,   88.0, -88.0,    300.0,    1e30,   -1e30,
                                  3.4e38, -3.4e38, 0.93, -0.55,    NAN,      100.0,  -105.,
                                  -100.,  9.0,     -9.0, INFINITY, -INFINITY};

static void special_unary(void) {
    for (size_t r = 0; r < COUNT_OF(unary_rows); r++)
        for (int dtype = ND_F32; dtype <= ND_F64; dtype++) {
            int64_t n = (int64_t)COUNT_OF(specials);
            nd_auto nd_tensor *x = nd_empty(ND_SHAPE(n), (nd_dtype)dtype);
            for (int64_t i = 0; i < n; i++)
                set_element(nd_get_data(x), (nd_dtype)dtype, i, specials[i]);
            nd_auto nd_tensor *y = unary_rows[r].call(x);
            assert_handle(y);
            for (int64_t i = 0; i < n; i++) {
                double expected = unary_rows[r].reference(at_flat(x, i));
                if (dtype == ND_F32) // in its range, subnormals included
                    expected = (double)(float)expected;
                // gelu of a large negative number is exact to the operand's precision only.
                double absolute = unary_rows[r].call == nd_gelu ? 1e-7 * fabs(specials[i]) : 3e-44;
                assert_close(unary_rows[r].name, at_flat(y, i), expected,
                             2 * tolerance_of((nd_dtype)dtype), dtype == ND_F32 ? absolute : 0);
            }
        }
}

static void special_binary(void) {
    for (size_t r = 0; r < COUNT_OF(binary_rows); r++)
        for (int dtype = ND_F32; dtype <= ND_F64; dtype++) {
            int64_t n = (int64_t)COUNT_OF(specials);
            nd_auto nd_tensor *x = nd_empty(ND_SHAPE(n), (nd_dtype)dtype);
            for (int64_t i = 0; i < n; i++)
                set_element(nd_get_data(x), (nd_dtype)dtype, i, specials[i]);
            nd_auto nd_tensor *row = nd_reshape(x, ND_SHAPE(1, n));
            nd_auto nd_tensor *column = nd_reshape(x, ND_SHAPE(n, 1));
            nd_auto nd_tensor *y = binary_rows[r].call(row, column);
            assert_handle(y);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++) {
                    double expected = binary_rows[r].reference(at_flat(x, j), at_flat(x, i));
                    if (dtype == ND_F32 && !binary_rows[r].compares)
                        expected = (double)(float)expected;
                    assert_close(binary_rows[r].name, at_flat(y, i * n + j), expected, 1e-6,
                                 dtype == ND_F32 ? 3e-44 : 0);
                }
        }
}

static void test_F27_special_values_through_every_unary(void **state) {
    (void)state;
    on_every_isa(special_unary);
}

static void test_F27_special_values_through_every_binary_and_comparison(void **state) {
    (void)state;
    on_every_isa(special_binary);
}

static void check_logic(nd_tensor *(*call)(const nd_tensor *, const nd_tensor *),
                        int (*reference)(int, int), const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *y = call(a, b);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), ND_BOOL);
    for (int64_t i = 0; i < nd_get_numel(y); i++) {
        int64_t index[ND_MAX_DIMS];
        coordinates_of(nd_get_ndim(y), nd_get_shape(y), i, index);
        int ndim = nd_get_ndim(y);
        assert_int_equal((int)at_flat(y, i),
                         reference((int)at(a, ndim, index), (int)at(b, ndim, index)));
    }
}
static int reference_and(int a, int b) {
    return a && b;
}
static int reference_or(int a, int b) {
    return a || b;
}

static void test_logic(void **state) {
    (void)state;
    for (int how = 0; how < LAYOUTS; how++) {
        nd_auto nd_tensor *a = random_tensor((layout)how, ND_SHAPE(6, 19), ND_BOOL, 0, 1);
        nd_auto nd_tensor *b = random_tensor(DENSE, ND_SHAPE(19), ND_BOOL, 0, 1);
        check_logic(nd_logical_and, reference_and, a, b);
        check_logic(nd_logical_or, reference_or, b, a);
        nd_auto nd_tensor *not_a = nd_logical_not(a);
        assert_handle(not_a);
        for (int64_t i = 0; i < nd_get_numel(a); i++)
            assert_int_equal((int)at_flat(not_a, i), !(int)at_flat(a, i));
    }
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
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            check_where((nd_dtype)dtype, (layout)how);
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
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        for (size_t j = 0; j < COUNT_OF(numbers); j++) {
            nd_auto nd_tensor *a = random_dense(ND_SHAPE(3, 4), numbers[i], -3, 3);
            nd_auto nd_tensor *b = random_dense(ND_SHAPE(4), numbers[j], -3, 3);
            check_binary(&binary_rows[0], a, b);
            check_binary(&binary_rows[3], a, b);
            check_binary(&binary_rows[9], a, b);
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

static void test_long_rows_on_several_threads(void **state) {
    (void)state;
    nd_auto nd_tensor *a = random_tensor(DENSE, ND_SHAPE(300001), ND_F32, -3, 3);
    nd_auto nd_tensor *b = random_tensor(STEPPED, ND_SHAPE(300001), ND_F32, -3, 3);
    check_binary(&binary_rows[0], a, b);
    check_unary(&unary_rows[4], a);
    nd_auto nd_tensor *wide = random_tensor(TRANSPOSED, ND_SHAPE(301, 997), ND_F32, -3, 3);
    nd_auto nd_tensor *row = random_tensor(DENSE, ND_SHAPE(997), ND_F32, -3, 3);
    check_binary(&binary_rows[2], wide, row);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_unary_row),
        ND_TEST(test_every_binary_row),
        ND_TEST(test_F27_special_values_through_every_unary),
        ND_TEST(test_F27_special_values_through_every_binary_and_comparison),
        ND_TEST(test_logic),
        ND_TEST(test_where_and_masked_fill),
        ND_TEST(test_mixed_dtypes_promote),
        ND_TEST(test_numbers_keep_or_change_the_dtype),
        ND_TEST(test_F29_integers_wrap_and_never_trap),
        ND_TEST(test_operands_that_do_not_fit_are_refused),
        ND_TEST(test_long_rows_on_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
