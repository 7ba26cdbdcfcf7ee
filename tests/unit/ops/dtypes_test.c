// Every dtype through everything that makes, reads, moves and picks elements. Expected values are
// small integers, which all dtypes but bool hold exactly, and the ends of each dtype's range.
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>
#include <nd/ops.h>

static double low_of(nd_dtype dtype) {
    return is_unsigned(dtype) || dtype == ND_BOOL ? 0 : -5;
}

/// 0 1 2 ... or, where there are no such numbers, 0 1 0 1 ...
static nd_tensor *counted(int64_t n, nd_dtype dtype) {
    nd_auto nd_tensor *numbers = nd_arange(0, n, 1, ND_I64);
    if (dtype != ND_BOOL)
        return nd_cast(numbers, dtype);
    nd_tensor *x = nd_empty(ND_SHAPE(n), ND_BOOL);
    for (int64_t i = 0; i < n; i++)
        set_element(nd_get_data(x), ND_BOOL, i, (double)(i % 2));
    return x;
}
static double count_at(nd_dtype dtype, int64_t i) {
    return dtype == ND_BOOL ? (double)(i % 2) : (double)i;
}

#define EACH_DTYPE(dtype) \
    for (nd_dtype dtype = (nd_dtype)0; dtype < ND_DTYPE_COUNT; dtype = (nd_dtype)(dtype + 1))

static void test_creation(void **state) {
    (void)state;
    EACH_DTYPE(dtype) {
        nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(3), dtype);
        nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(2, 700), dtype);
        nd_auto nd_tensor *full = nd_full(ND_SHAPE(5), low_of(dtype), dtype);
        nd_auto nd_tensor *eye = nd_eye(3, dtype);
        for (int i = 0; i < 3; i++)
            assert_true(at_flat(zeros, i) == 0);
        for (int i = 0; i < 1400; i++)
            assert_true(at_flat(ones, i) == 1);
        for (int i = 0; i < 5; i++)
            assert_true(at_flat(full, i) == low_of(dtype));
        for (int i = 0; i < 9; i++)
            assert_true(at_flat(eye, i) == (i % 4 == 0));
        if (dtype == ND_BOOL)
            continue;
        nd_auto nd_tensor *range = nd_arange(3, 100, 7, dtype);
        nd_auto nd_tensor *back = nd_arange(9, 0, -2, dtype);
        nd_auto nd_tensor *spaced = nd_linspace(1, 9, 5, dtype);
        assert_int_equal(nd_get_numel(range), 14);
        for (int i = 0; i < 14; i++)
            assert_true(at_flat(range, i) == 3 + 7 * i);
        for (int i = 0; i < 5; i++)
            assert_true(at_flat(back, i) == 9 - 2 * i && at_flat(spaced, i) == 1 + 2 * i);
        nd_auto nd_tensor *filled = nd_clone(range);
        assert_ok(nd_fill_(filled, 7));
        for (int i = 0; i < 14; i++)
            assert_true(at_flat(filled, i) == 7);
    }
}

static void test_numbers_at_the_ends_of_a_range(void **state) {
    (void)state;
    static const struct {
        nd_dtype dtype;
        int64_t low;
        uint64_t high;
    } ranges[] = {{ND_BOOL, 0, 1},
                  {ND_U8, 0, UINT8_MAX},
                  {ND_U16, 0, UINT16_MAX},
                  {ND_U32, 0, UINT32_MAX},
                  {ND_U64, 0, UINT64_MAX},
                  {ND_I8, INT8_MIN, INT8_MAX},
                  {ND_I16, INT16_MIN, INT16_MAX},
                  {ND_I32, INT32_MIN, INT32_MAX},
                  {ND_I64, INT64_MIN, INT64_MAX}};
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        nd_dtype dtype = ranges[i].dtype;
        size_t bytes = nd_dtype_get_size(dtype);
        nd_auto nd_tensor *low = nd_scalar(ranges[i].low, dtype);
        nd_auto nd_tensor *high = nd_scalar(ranges[i].high, dtype);
        assert_memory_equal(nd_get_data(low), &ranges[i].low, bytes);
        assert_memory_equal(nd_get_data(high), &ranges[i].high, bytes);
        int64_t value = 0;
        assert_ok(nd_get_item_i64(low, &value));
        assert_true(value == ranges[i].low);
        if (dtype != ND_U64) {
            assert_ok(nd_get_item_i64(high, &value));
            assert_true((uint64_t)value == ranges[i].high);
        }
        if (dtype == ND_BOOL)
            continue;
        if (ranges[i].low > INT64_MIN)
            assert_refused(nd_scalar(ranges[i].low - 1, dtype), ND_ERROR_INVALID_ARGUMENT,
                           "scalar: ");
        if (ranges[i].high < UINT64_MAX)
            assert_refused(nd_scalar(ranges[i].high + 1, dtype), ND_ERROR_INVALID_ARGUMENT,
                           "scalar: ");
        assert_refused(nd_scalar(0x1p64, dtype), ND_ERROR_INVALID_ARGUMENT, "scalar: ");
        // The last three numbers of the range, as integers.
        nd_auto nd_tensor *range = nd_arange(ranges[i].high - 2, ranges[i].high, 1, dtype);
        assert_int_equal(nd_get_numel(range), 2);
        uint64_t last = ranges[i].high - 1;
        assert_memory_equal((char *)nd_get_data(range) + bytes, &last, bytes);
        nd_auto nd_tensor *random =
            nd_randint(nd_key_new(i), ranges[i].low, INT8_MAX, ND_SHAPE(500), dtype);
        for (int k = 0; k < 500; k++)
            assert_true(at_flat(random, k) >= (double)ranges[i].low &&
                        at_flat(random, k) < INT8_MAX);
    }
}

static void test_a_uint64_beyond_int64(void **state) {
    (void)state;
    const uint64_t most = UINT64_MAX, half = (uint64_t)1 << 63;
    nd_auto nd_tensor *x = nd_scalar(most, ND_U64);
    int64_t value = 42;
    assert_status(nd_get_item_i64(x, &value), ND_ERROR_DTYPE);
    assert_int_equal(nd_get_item_i64(x, &value), ND_ERROR_DTYPE);
    assert_string_equal(nd_error_get_message(),
                        "get_item_i64: 18446744073709551615, a uint64, is no int64");
    nd_error_clear();
    assert_int_equal(value, 42);
    assert_true(nd_get_item(x) == 0x1p64);
    char text[128];
    assert_true(nd_format(x, text, sizeof text) > 0);
    assert_non_null(strstr(text, "18446744073709551615"));
    nd_auto nd_tensor *range = nd_arange(half - 2, half + 3, 2, ND_U64);
    const uint64_t expected[] = {half - 2, half, half + 2};
    assert_memory_equal(nd_get_data(range), expected, sizeof expected);
    nd_auto nd_tensor *down = nd_arange(most, most - 3, -2, ND_U64);
    const uint64_t falling[] = {most, most - 2};
    assert_int_equal(nd_get_numel(down), 2);
    assert_memory_equal(nd_get_data(down), falling, sizeof falling);
    nd_auto nd_tensor *filled = nd_zeros(ND_SHAPE(3), ND_U64);
    assert_ok(nd_fill_(filled, most - 1));
    assert_true(((uint64_t *)nd_get_data(filled))[2] == most - 1);
    nd_auto nd_tensor *beyond = nd_full(ND_SHAPE(1), 0x1.8p63, ND_U64);
    assert_true(*(uint64_t *)nd_get_data(beyond) == half + half / 2);
}

static void test_numbers_of_16_bit_floats_are_rounded_once(void **state) {
    (void)state;
    // One above the tie between two bfloat16, which no double holds.
    const int64_t above = ((int64_t)1 << 62) + ((int64_t)1 << 54) + 1;
    nd_auto nd_tensor *x = nd_scalar(above, ND_BF16);
    assert_true(nd_get_item(x) == 0x1.02p62);
    nd_auto nd_tensor *y = nd_scalar(-above, ND_BF16);
    assert_true(nd_get_item(y) == -0x1.02p62);
    nd_auto nd_tensor *z = nd_scalar((uint64_t)above * 2, ND_BF16);
    assert_true(nd_get_item(z) == 0x1.02p63);
    nd_auto nd_tensor *tie = nd_scalar(above - 1, ND_BF16);
    assert_true(nd_get_item(tie) == 0x1p62);
    // A double beside a tie of f16, which f32 takes for the tie.
    nd_auto nd_tensor *f16 = nd_scalar(1 + 0x1p-11 + 0x1p-40, ND_F16);
    assert_true(nd_get_item(f16) == 1 + 0x1p-10);
    nd_auto nd_tensor *large = nd_scalar(65520, ND_F16);
    assert_true(isinf(nd_get_item(large)));
    nd_auto nd_tensor *largest = nd_scalar(65519, ND_F16);
    assert_true(nd_get_item(largest) == 65504);
}

static void test_random_floats(void **state) {
    (void)state;
    enum { N = 4001 };
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F32, ND_F64};
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        nd_auto nd_tensor *uniform = nd_rand(nd_key_new(7), ND_SHAPE(N), dtypes[i]);
        nd_auto nd_tensor *normal = nd_randn(nd_key_new(7), ND_SHAPE(N), dtypes[i]);
        double sum = 0, squares = 0;
        for (int k = 0; k < N; k++) {
            assert_true(at_flat(uniform, k) >= 0 && at_flat(uniform, k) < 1);
            sum += at_flat(uniform, k);
            squares += at_flat(normal, k) * at_flat(normal, k);
        }
        assert_close("mean", sum / N, 0.5, 0.05, 0);
        assert_close("variance", squares / N, 1.0, 0.1, 0);
        nd_auto nd_tensor *whole = nd_randint(nd_key_new(1), -5, 6, ND_SHAPE(N), dtypes[i]);
        for (int k = 0; k < N; k++)
            assert_true(fabs(at_flat(whole, k)) <= 5 &&
                        at_flat(whole, k) == trunc(at_flat(whole, k)));
    }
    // The normals of 16 bits are those of f32.
    nd_auto nd_tensor *wide = nd_randn(nd_key_new(3), ND_SHAPE(N), ND_F32);
    nd_auto nd_tensor *rounded = nd_cast(wide, ND_BF16);
    nd_auto nd_tensor *narrow = nd_randn(nd_key_new(3), ND_SHAPE(N), ND_BF16);
    assert_memory_equal(nd_get_data(rounded), nd_get_data(narrow), 2 * N);
    assert_refused(nd_randint(nd_key_new(0), 0, 2050, ND_SHAPE(1), ND_F16),
                   ND_ERROR_INVALID_ARGUMENT, "randint: ");
    // One of those that it has with gaps between them.
    static const struct {
        nd_dtype dtype;
        int64_t value;
        bool is_there;
    } alone[] = {{ND_F16, 2050, true},      {ND_F16, 2051, false},
                 {ND_F16, -60000, true},    {ND_F16, 65536, false},
                 {ND_BF16, 258, true},      {ND_BF16, 257, false},
                 {ND_F32, 16777218, true},  {ND_F64, ((int64_t)1 << 53) + 2, true},
                 {ND_F64, INT64_MIN, true}, {ND_U8, 256, false}};
    for (size_t i = 0; i < COUNT_OF(alone); i++) {
        nd_auto nd_tensor *x = nd_randint(nd_key_new(0), alone[i].value, alone[i].value + 1,
                                          ND_SHAPE(3), alone[i].dtype);
        assert_int_equal(x != NULL, alone[i].is_there);
        nd_error_clear();
        for (int k = 0; x && k < 3; k++)
            assert_true(at_flat(x, k) == (double)alone[i].value);
    }
    assert_refused(nd_rand(nd_key_new(0), ND_SHAPE(1), ND_I16), ND_ERROR_DTYPE, "rand: ");
}

static void test_items_and_text(void **state) {
    (void)state;
    static const char *const texts[ND_DTYPE_COUNT] = {
        [ND_BOOL] = "false,  true", [ND_U8] = "0, 1, 2",         [ND_U16] = "0, 1, 2",
        [ND_U32] = "0, 1, 2",       [ND_U64] = "0, 1, 2",        [ND_I8] = "-1,  0,  1",
        [ND_I16] = "-1,  0,  1",    [ND_I32] = "-1,  0,  1",     [ND_I64] = "-1,  0,  1",
        [ND_F16] = "-1.,  0.,  1.", [ND_BF16] = "-1.,  0.,  1.", [ND_F32] = "-1.,  0.,  1.",
        [ND_F64] = "-1.,  0.,  1."};
    EACH_DTYPE(dtype) {
        nd_auto nd_tensor *one = nd_ones(ND_SHAPE(1, 1), dtype);
        int64_t value = 0;
        assert_true(nd_get_item(one) == 1);
        assert_ok(nd_get_item_i64(one, &value));
        assert_int_equal(value, 1);
        nd_auto nd_tensor *wide = is_unsigned(dtype) || dtype == ND_BOOL
                                      ? nd_arange(0, 3, 1, ND_I64)
                                      : nd_arange(-1, 2, 1, ND_I64);
        nd_auto nd_tensor *x = nd_cast(wide, dtype);
        char text[256];
        assert_true(nd_format(x, text, sizeof text) > 0);
        if (!strstr(text, texts[dtype]) || !strstr(text, nd_dtype_get_name(dtype)))
            fail_msg("%s is no '%s'", text, texts[dtype]);
    }
    nd_auto nd_tensor *quarter = nd_scalar(0.25, ND_F16);
    char text[256];
    assert_true(nd_format(quarter, text, sizeof text) > 0);
    assert_string_equal(text, "tensor(0.25, shape=[], dtype=float16)");
}

static void test_copies_views_and_joins(void **state) {
    (void)state;
    EACH_DTYPE(dtype) {
        nd_auto nd_tensor *flat = counted(12, dtype);
        nd_auto nd_tensor *x = nd_reshape(flat, ND_SHAPE(3, 4));
        nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
        nd_auto nd_tensor *dense = nd_contiguous(turned);
        nd_auto nd_tensor *wide = nd_cast(turned, ND_F64);
        const nd_tensor *both[] = {x, x};
        nd_auto nd_tensor *joined = nd_concat(2, both, 1);
        nd_auto nd_tensor *stacked = nd_stack(2, both, 0);
        uint64_t host[12] = {0};
        assert_ok(nd_copy_to_host(turned, host, 12 * nd_dtype_get_size(dtype)));
        nd_auto nd_tensor *again = nd_from_data(host, ND_SHAPE(12), dtype);
        for (int64_t i = 0; i < 12; i++) {
            double expected = count_at(dtype, i % 3 * 4 + i / 3);
            assert_true(at_flat(dense, i) == expected && at_flat(wide, i) == expected);
            assert_true(at_flat(again, i) == expected);
        }
        for (int64_t i = 0; i < 24; i++) {
            assert_true(at_flat(joined, i) == count_at(dtype, i / 8 * 4 + i % 4));
            assert_true(at_flat(stacked, i) == count_at(dtype, i % 12));
        }
    }
}

static void test_indexing(void **state) {
    (void)state;
    const int64_t picked[] = {2, 0, 2, 1};
    nd_auto nd_tensor *indices = nd_from_data(picked, ND_SHAPE(4), ND_I64);
    EACH_DTYPE(dtype) {
        nd_auto nd_tensor *flat = counted(12, dtype);
        nd_auto nd_tensor *x = nd_reshape(flat, ND_SHAPE(3, 4));
        nd_auto nd_tensor *rows = nd_take(x, indices, 0);
        nd_auto nd_tensor *row = nd_reshape(indices, ND_SHAPE(1, 4));
        nd_auto nd_tensor *gathered = nd_gather(x, row, 0);
        nd_auto nd_tensor *hot = nd_one_hot(indices, 3, dtype);
        for (int64_t i = 0; i < 16; i++)
            assert_true(at_flat(rows, i) == count_at(dtype, picked[i / 4] * 4 + i % 4));
        for (int64_t i = 0; i < 4; i++)
            assert_true(at_flat(gathered, i) == count_at(dtype, picked[i] * 4 + i));
        for (int64_t i = 0; i < 12; i++)
            assert_true(at_flat(hot, i) == (picked[i / 3] == i % 3));
        nd_auto nd_tensor *mask = counted(12, ND_BOOL);
        nd_auto nd_tensor *odd = nd_masked_select(flat, mask);
        assert_int_equal(nd_get_numel(odd), 6);
        for (int64_t i = 0; i < 6; i++)
            assert_true(at_flat(odd, i) == count_at(dtype, 2 * i + 1));
        nd_auto nd_tensor *target = nd_ones(ND_SHAPE(3), dtype);
        nd_auto nd_tensor *source = counted(4, dtype);
        if (dtype == ND_BOOL) {
            assert_refused(nd_scatter_add(target, indices, source, 0), ND_ERROR_DTYPE,
                           "scatter_add: ");
            continue;
        }
        nd_auto nd_tensor *sums = nd_scatter_add(target, indices, source, 0);
        const double expected[] = {2, 4, 3};
        for (int64_t i = 0; i < 3; i++)
            assert_true(at_flat(sums, i) == expected[i]);
    }
}

static void test_scatter_add_rounds_16_bit_floats_once(void **state) {
    (void)state;
    enum { N = 4096 }; // 1 added to 256 rounds to 256 in bfloat16
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16};
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        nd_auto nd_tensor *target = nd_zeros(ND_SHAPE(2), dtypes[i]);
        nd_auto nd_tensor *index = nd_zeros(ND_SHAPE(N), ND_I64);
        nd_auto nd_tensor *source = nd_ones(ND_SHAPE(N), dtypes[i]);
        assert_ok(nd_set_requires_grad(source, true));
        nd_auto nd_tensor *sums = nd_scatter_add(target, index, source, 0);
        assert_true(at_flat(sums, 0) == N && at_flat(sums, 1) == 0);
        nd_auto nd_tensor *first = nd_take(sums, index, 0);
        nd_auto nd_tensor *wide = nd_cast(first, ND_F32);
        nd_auto nd_tensor *total = nd_mean(wide, 0, NULL, false);
        assert_ok(nd_backward(total, NULL));
        assert_int_equal(nd_get_dtype(nd_get_grad(source)), dtypes[i]);
        assert_true(at_flat(nd_get_grad(source), N - 1) == 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_creation),
        ND_TEST(test_numbers_at_the_ends_of_a_range),
        ND_TEST(test_a_uint64_beyond_int64),
        ND_TEST(test_numbers_of_16_bit_floats_are_rounded_once),
        ND_TEST(test_random_floats),
        ND_TEST(test_items_and_text),
        ND_TEST(test_copies_views_and_joins),
        ND_TEST(test_indexing),
        ND_TEST(test_scatter_add_rounds_16_bit_floats_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
