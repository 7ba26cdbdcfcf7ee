// Numbers of C arrive as they are: every type, every integer of 64 bits, exact through every
// operation that takes one. What is expected is computed here with 128 bits, or stands here.
#include "tests/unit/ops/values.h"
#include <limits.h>
#include <nd/autograd.h>
#include <nd/ops.h>

__extension__ typedef __int128 wide;

static const int64_t edges[] = {
    0,
    1,
    -1,
    ((int64_t)1 << 53) + 1,
    -((int64_t)1 << 53) - 1,
    ((int64_t)1 << 62) + 3,
    -((int64_t)1 << 62) - 3,
    INT64_MAX,
    INT64_MAX - 1,
    INT64_MIN,
    INT64_MIN + 1,
};

/// An edge, or any int64.
static int64_t random_integer(void) {
    if (rand() % 2)
        return edges[(size_t)rand() % COUNT_OF(edges)];
    uint64_t bits = 0;
    for (int i = 0; i < 5; i++)
        bits = bits << 15 ^ (uint64_t)rand();
    return (int64_t)bits >> rand() % 64;
}

static int64_t item(const nd_tensor *x) {
    int64_t value = 0;
    assert_ok(nd_get_item_i64(x, &value));
    return value;
}

static const int64_t *integers(const nd_tensor *x) {
    assert_handle(x);
    assert_int_equal(nd_get_dtype(x), ND_I64);
    return (const int64_t *)nd_get_data(x);
}

static void test_every_int64_is_created_filled_and_read_exactly(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(edges); i++) {
        const int64_t value = edges[i];
        nd_auto nd_tensor *one = nd_scalar(value, ND_I64);
        assert_true(item(one) == value);
        nd_auto nd_tensor *all = nd_full(ND_SHAPE(2, 3), value, ND_I64);
        nd_auto nd_tensor *filled = nd_zeros(ND_SHAPE(6), ND_I64);
        assert_ok(nd_fill_(filled, value));
        nd_auto nd_tensor *before = nd_zeros(ND_SHAPE(6), ND_I64);
        nd_auto nd_tensor *numbers = nd_arange(0, 6, 1, ND_I64);
        nd_auto nd_tensor *three = nd_scalar(3, ND_I64);
        nd_auto nd_tensor *mask = nd_less(numbers, three);
        nd_auto nd_tensor *masked = nd_masked_fill(before, mask, value);
        assert_ok(nd_masked_fill_(before, mask, value));
        for (int k = 0; k < 6; k++) {
            assert_true(integers(all)[k] == value && integers(filled)[k] == value);
            assert_true(integers(masked)[k] == (k < 3 ? value : 0));
            assert_true(integers(before)[k] == integers(masked)[k]);
        }
    }
    nd_auto nd_tensor *unsigned_one = nd_scalar((uint64_t)INT64_MAX, ND_I64);
    assert_true(item(unsigned_one) == INT64_MAX);
}

static int64_t wrap(wide value) {
    return (int64_t)(uint64_t)value;
}

static int64_t power(int64_t base, unsigned exponent) {
    int64_t result = 1;
    while (exponent--)
        result = wrap((wide)result * base);
    return result;
}

enum { LENGTH = 37 };

/// x with the same random elements in one of two layouts: dense, or every second of a longer
/// tensor.
static nd_tensor *random_integers(bool stepped) {
    int64_t data[2 * LENGTH];
    for (int k = 0; k < 2 * LENGTH; k++)
        data[k] = random_integer();
    nd_auto nd_tensor *all = nd_from_data(data, ND_SHAPE(2 * LENGTH), ND_I64);
    return stepped ? nd_slice(all, 0, 2 * LENGTH, 2, 0) : nd_slice(all, 0, LENGTH, 1, 0);
}

static void test_arithmetic_with_an_integer_is_exact(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        nd_auto nd_tensor *x = random_integers(round & 1);
        const int64_t a = random_integer(), b = random_integer();
        const unsigned exponent = (unsigned)rand() % 20;
        nd_auto nd_tensor *plain = nd_contiguous(x);
        nd_auto nd_tensor *sum = nd_add_scalar(x, a);
        nd_auto nd_tensor *product = nd_mul_scalar(x, a);
        nd_auto nd_tensor *raised = nd_pow_scalar(x, exponent);
        nd_auto nd_tensor *inside = nd_clip(x, a, b);
        nd_auto nd_tensor *in_place = nd_clone(x), *scaled = nd_clone(x);
        assert_ok(nd_mul_scalar_(in_place, a));
        assert_ok(nd_add_scaled_(scaled, plain, a));
        for (int k = 0; k < LENGTH; k++) {
            const int64_t value = integers(plain)[k];
            assert_true(integers(sum)[k] == wrap((wide)value + a));
            assert_true(integers(product)[k] == wrap((wide)value * a));
            assert_true(integers(in_place)[k] == integers(product)[k]);
            assert_true(integers(scaled)[k] == wrap((wide)a * value + value));
            assert_true(integers(raised)[k] == power(value, exponent));
            int64_t low = value < a ? a : value;
            assert_true(integers(inside)[k] == (low > b ? b : low));
        }
    }
}

static void test_limits_beyond_the_integers_cut_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_from_data(edges, ND_SHAPE(COUNT_OF(edges)), ND_I64);
    nd_auto nd_tensor *whole = nd_clip(x, -INFINITY, UINT64_MAX);
    nd_auto nd_tensor *above = nd_clip(x, INT64_MAX - 1, INFINITY);
    nd_auto nd_tensor *top = nd_clip(x, UINT64_MAX, UINT64_MAX);
    for (size_t k = 0; k < COUNT_OF(edges); k++) {
        assert_true(integers(whole)[k] == edges[k]);
        assert_true(integers(above)[k] == (edges[k] == INT64_MAX ? INT64_MAX : INT64_MAX - 1));
        assert_true(integers(top)[k] == INT64_MAX);
    }
}

static void test_a_range_of_integers_is_exact(void **state) {
    (void)state;
    for (int round = 0; round < 500; round++) {
        const int64_t start = random_integer(), step = random_integer();
        const wide stop = (wide)start + (wide)step * (rand() % 9 - 1) + rand() % 3 - 1;
        if (step == 0 || stop > INT64_MAX || stop < INT64_MIN)
            continue;
        nd_auto nd_tensor *x = nd_arange(start, (int64_t)stop, step, ND_I64);
        const int64_t *values = integers(x);
        int64_t count = 0;
        for (wide value = start; step > 0 ? value < stop : value > stop; value += step, count++)
            assert_true(count < nd_get_numel(x) && values[count] == (int64_t)value);
        assert_true(count == nd_get_numel(x));
    }
    nd_auto nd_tensor *ends = nd_arange(INT64_MIN, INT64_MAX, INT64_MAX, ND_I64);
    assert_true(nd_get_numel(ends) == 3 && integers(ends)[1] == -1);
    assert_refused(nd_arange(INT64_MIN, INT64_MAX, 1, ND_I64), ND_ERROR_INVALID_ARGUMENT,
                   "arange: from -9223372036854775808 to 9223372036854775807 by 1 is no range");
    assert_refused(nd_arange(0, 1, 0, ND_I64), ND_ERROR_INVALID_ARGUMENT,
                   "arange: from 0 to 1 by 0 is no range");
    assert_refused(nd_arange(0, 300, 1, ND_U8), ND_ERROR_INVALID_ARGUMENT,
                   "arange: from 0 to 300 leaves the range of uint8");
    assert_refused(nd_arange(-1, 3, 1, ND_U8), ND_ERROR_INVALID_ARGUMENT,
                   "arange: from -1 to 3 leaves the range");
    nd_auto nd_tensor *cut = nd_arange(0, 3, 0.5, ND_I64);
    assert_true(nd_get_numel(cut) == 6 && integers(cut)[5] == 2);
}

/// An integer between two floats: what becomes a double and then a float goes to the wrong one.
static void test_floats_take_the_nearest(void **state) {
    (void)state;
    const int64_t value = ((int64_t)1 << 54) + ((int64_t)1 << 30) + 1;
    const double nearest = 0x1p54 + 0x1p31;
    nd_auto nd_tensor *one = nd_scalar(value, ND_F32);
    nd_auto nd_tensor *negative = nd_full(ND_SHAPE(1), -value, ND_F32);
    nd_auto nd_tensor *zero = nd_zeros(ND_SHAPE(1), ND_F32);
    nd_auto nd_tensor *sum = nd_add_scalar(zero, (uint64_t)value);
    assert_true(nd_get_item(one) == nearest && nd_get_item(negative) == -nearest &&
                nd_get_item(sum) == nearest);
    nd_auto nd_tensor *most = nd_scalar(UINT64_MAX, ND_F64);
    nd_auto nd_tensor *exact = nd_scalar((int64_t)1 << 53, ND_F64);
    assert_true(nd_get_item(most) == 0x1p64 && nd_get_item(exact) == 0x1p53);
    nd_auto nd_tensor *minus_zero = nd_full(ND_SHAPE(1), -0.0, ND_F64);
    assert_true(signbit(nd_get_item(minus_zero)));
}

static void test_what_a_dtype_cannot_hold_is_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *bytes = nd_ones(ND_SHAPE(2), ND_U8),
                      *wide_one = nd_ones(ND_SHAPE(2), ND_I64);
    nd_auto nd_tensor *flags = nd_ones(ND_SHAPE(2), ND_BOOL), *words = nd_ones(ND_SHAPE(2), ND_I32);
    assert_refused(nd_full(ND_SHAPE(2), 300, ND_U8), ND_ERROR_INVALID_ARGUMENT,
                   "full: 300 is no uint8");
    assert_refused(nd_scalar(-1, ND_U8), ND_ERROR_INVALID_ARGUMENT, "scalar: -1 is no uint8");
    assert_refused(nd_scalar((int64_t)INT32_MAX + 1, ND_I32), ND_ERROR_INVALID_ARGUMENT,
                   "scalar: 2147483648 is no int32");
    assert_refused(nd_scalar(UINT64_MAX, ND_I64), ND_ERROR_INVALID_ARGUMENT,
                   "scalar: 18446744073709551615 is no int64");
    assert_refused(nd_scalar(NAN, ND_I64), ND_ERROR_INVALID_ARGUMENT, "scalar: nan is no int64");
    assert_refused(nd_scalar(0x1p63, ND_I64), ND_ERROR_INVALID_ARGUMENT,
                   "scalar: 9.22337e+18 is no int64");
    assert_refused(nd_add_scalar(bytes, 256), ND_ERROR_INVALID_ARGUMENT,
                   "add_scalar: uint8 cannot hold the number 256");
    assert_refused(nd_mul_scalar(words, INT64_MIN), ND_ERROR_INVALID_ARGUMENT,
                   "mul_scalar: int32 cannot hold the number -9223372036854775808");
    assert_refused(nd_pow_scalar(wide_one, (uint64_t)1 << 63), ND_ERROR_INVALID_ARGUMENT,
                   "pow_scalar: int64 cannot hold the number 9223372036854775808");
    assert_refused(nd_masked_fill(bytes, flags, -1), ND_ERROR_INVALID_ARGUMENT,
                   "masked_fill: uint8 cannot hold the number -1");
    assert_status(nd_masked_fill_(bytes, flags, 256u), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_fill_(wide_one, 1.5), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_fill_(wide_one, UINT64_MAX), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_fill_(flags, 2), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_mul_scalar_(bytes, -2), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_add_scaled_(bytes, bytes, 1000LL), ND_ERROR_INVALID_ARGUMENT);
    for (int k = 0; k < 2; k++)
        assert_true(at_flat(bytes, k) == 1 && at_flat(wide_one, k) == 1 && at_flat(flags, k) == 1);
    // What nd_full says of fractions and of bool.
    nd_auto nd_tensor *cut = nd_scalar(-1.5, ND_I64), *truth = nd_scalar(INT64_MIN, ND_BOOL);
    assert_true(item(cut) == -1 && item(truth) == 1);
}

static void test_a_struct_that_is_no_number_is_refused(void **state) {
    (void)state;
    nd_number none = ND_NUMBER(1);
    none.kind = (nd_number_kind)7;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2), ND_F32), *integer = nd_ones(ND_SHAPE(2), ND_I64);
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        assert_refused(nd_scalar(none, (nd_dtype)dtype), ND_ERROR_INVALID_ARGUMENT,
                       "scalar: kind 7");
    assert_refused(nd_add_scalar(x, none), ND_ERROR_INVALID_ARGUMENT,
                   "add_scalar: float32 cannot hold the number kind 7");
    assert_refused(nd_add_scalar(integer, none), ND_ERROR_INVALID_ARGUMENT,
                   "add_scalar: float32 cannot hold the number kind 7");
    assert_refused(nd_clip(x, none, 1), ND_ERROR_INVALID_ARGUMENT,
                   "clip: the limits are kind 7 and 1");
    assert_refused(nd_arange(0, none, 1, ND_F32), ND_ERROR_INVALID_ARGUMENT,
                   "arange: from 0 to kind 7 by 1 is no range");
    assert_status(nd_fill_(x, none), ND_ERROR_INVALID_ARGUMENT);
}

#define assert_number(given, kind_is, field)      \
    do {                                          \
        nd_number number = ND_NUMBER(given);      \
        assert_int_equal(number.kind, kind_is);   \
        assert_true(number.value.field == given); \
    } while (0)

static void test_every_type_of_C_is_a_number(void **state) {
    (void)state;
    assert_number((float)1.5F, ND_NUMBER_F64, f64);
    assert_number(-0x1p-1074, ND_NUMBER_F64, f64);
    assert_number((long double)2.5L, ND_NUMBER_F64, f64);
    assert_number((signed char)-7, ND_NUMBER_I64, i64);
    assert_number((char)'x', ND_NUMBER_I64, i64);
    assert_number((short)SHRT_MIN, ND_NUMBER_I64, i64);
    assert_number(INT_MIN, ND_NUMBER_I64, i64);
    assert_number(LONG_MIN, ND_NUMBER_I64, i64);
    assert_number(LLONG_MIN, ND_NUMBER_I64, i64);
    assert_number((bool)true, ND_NUMBER_U64, u64);
    assert_number((unsigned char)255, ND_NUMBER_U64, u64);
    assert_number((unsigned short)USHRT_MAX, ND_NUMBER_U64, u64);
    assert_number(UINT_MAX, ND_NUMBER_U64, u64);
    assert_number(ULONG_MAX, ND_NUMBER_U64, u64);
    assert_number(ULLONG_MAX, ND_NUMBER_U64, u64);
    const volatile int64_t qualified = INT64_MAX;
    assert_number(qualified, ND_NUMBER_I64, i64);
    assert_number(ND_ERROR_SHAPE, ND_NUMBER_I64, i64);
    struct {
        unsigned few : 3;
    } bits = {5};
    nd_auto nd_tensor *of_bits = nd_scalar(bits.few, ND_I64);
    assert_true(item(of_bits) == 5);
    nd_number again = ND_NUMBER(ND_NUMBER(INT64_MIN));
    assert_true(again.kind == ND_NUMBER_I64 && again.value.i64 == INT64_MIN);
    static const nd_number nothing;
    assert_true(nothing.kind == ND_NUMBER_F64 && nothing.value.f64 == 0.0);
}

/// A macro of the function's name: arguments once, commas of a shape, and the address of the
/// function.
static void test_calls_are_calls(void **state) {
    (void)state;
    int64_t times = 4;
    nd_auto nd_tensor *x = nd_full(3, (const int64_t[]){1, 2, 3}, ++times, ND_I64);
    assert_true(times == 5 && nd_get_numel(x) == 6 && integers(x)[5] == 5);
    nd_auto nd_tensor *most = nd_full(ND_SHAPE(1, 1, 1, 1, 1, 1, 1, 2), INT64_MAX, ND_I64),
                      *none = NULL;
    assert_true(nd_get_ndim(most) == 8 && integers(most)[1] == INT64_MAX);
    none = nd_full(ND_SHAPE(0), 1, ND_U8);
    assert_true(nd_get_numel(none) == 0);
    nd_tensor *(*const functions[])(const nd_tensor *, nd_number) = {nd_add_scalar, &nd_mul_scalar};
    nd_auto nd_tensor *sum = functions[0](x, ND_NUMBER(times--));
    nd_auto nd_tensor *product = functions[1](sum, ND_NUMBER(INT64_MAX));
    assert_true(times == 4 && integers(sum)[0] == 10);
    assert_true(integers(product)[0] == wrap((wide)10 * INT64_MAX));
}

static void test_gradients_with_integers(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(3), 2, ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *scaled = nd_mul_scalar(x, 3), *cube = nd_pow_scalar(scaled, 3u);
    nd_auto nd_tensor *shifted = nd_add_scalar(cube, 7), *inside = nd_clip(shifted, 0, 1000);
    nd_auto nd_tensor *sum = nd_sum(inside, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    // (3x)^3 has the derivative 81 x^2.
    for (int k = 0; k < 3; k++)
        assert_true(at_flat(nd_get_grad(x), k) == 324.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_int64_is_created_filled_and_read_exactly),
        ND_TEST(test_arithmetic_with_an_integer_is_exact),
        ND_TEST(test_limits_beyond_the_integers_cut_nothing),
        ND_TEST(test_a_range_of_integers_is_exact),
        ND_TEST(test_floats_take_the_nearest),
        ND_TEST(test_what_a_dtype_cannot_hold_is_refused),
        ND_TEST(test_a_struct_that_is_no_number_is_refused),
        ND_TEST(test_every_type_of_C_is_a_number),
        ND_TEST(test_calls_are_calls),
        ND_TEST(test_gradients_with_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
