// Every elementwise row in every dtype, against the loops of other dtypes that elementwise_test.c
// holds against long doubles. Integers of any width have the low bits of what int64 gives, so they
// wrap; 16-bit floats have what float32 gives, rounded once.
#include "kernels/cpu/cpu.h"
#include "tests/elementwise.h"
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>

static const char *const isas[] = {"baseline", "x86_64_v3", "x86_64_v4"};

static bool is_half(nd_dtype dtype) {
    return dtype == ND_F16 || dtype == ND_BF16;
}
static bool is_integer(nd_dtype dtype) {
    return dtype != ND_BOOL && !is_float(dtype);
}

/// Dense, with random bits: every value of the dtype; of u64 the small ones, whose int64 is the
/// same number, and of int64 itself nothing is asked.
static nd_tensor *random_bits(int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_tensor *x = nd_empty(ndim, shape, dtype);
    assert_handle(x);
    size_t bytes = nd_dtype_get_size(dtype);
    for (int64_t i = 0; i < nd_get_numel(x); i++) {
        uint64_t bits = (uint64_t)rand() << 20 ^ (uint64_t)rand();
        if (dtype == ND_BOOL)
            bits &= 1;
        if (dtype == ND_U64 || dtype == ND_I64)
            bits &= 0xFFFF;
        if (is_float(dtype)) // of any exponent that a product of two has room for
            set_element(nd_get_data(x), dtype, i, ldexp(random_unit() - 0.5, rand() % 14 - 7));
        else
            memcpy((char *)nd_get_data(x) + (size_t)i * bytes, &bits, bytes);
    }
    return x;
}

/// The same as a view of the layout, of what was drawn with more rows and columns.
static nd_tensor *random_view(int layout, const int64_t *shape, nd_dtype dtype) {
    int64_t wide[2] = {shape[0], 2 * shape[1]}, turned[2] = {shape[1], shape[0]};
    int64_t row[2] = {1, shape[1]}, column[2] = {shape[0], 1};
    nd_auto nd_tensor *base = random_bits(2,
                                          layout == 1   ? turned
                                          : layout == 2 ? wide
                                          : layout == 3 ? row
                                          : layout == 4 ? column
                                                        : shape,
                                          dtype);
    return layout == 0   ? nd_retain(base)
           : layout == 1 ? nd_transpose(base, 0, 1)
           : layout == 2 ? nd_slice(base, 1, INT64_MAX, 2, 1)
                         : nd_expand(base, 2, shape);
}
enum { VIEWS = 5 };

static void assert_same_bits(const char *what, const nd_tensor *x, const nd_tensor *y) {
    assert_handle(x);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(x), nd_get_dtype(y));
    assert_int_equal(nd_get_numel(x), nd_get_numel(y));
    size_t bytes = nd_dtype_get_size(nd_get_dtype(x));
    for (int64_t i = 0; i < nd_get_numel(x); i++) {
        const char *x_at = (const char *)nd_get_data(x) + (size_t)i * bytes;
        const char *y_at = (const char *)nd_get_data(y) + (size_t)i * bytes;
        double x_is = at_flat(x, i), y_is = at_flat(y, i);
        if (memcmp(x_at, y_at, bytes) && !(isnan(x_is) && isnan(y_is)))
            fail_msg("%s: %s of %s: element %d is %.17g, not %.17g", nd__cpu_isa(), what,
                     nd_dtype_get_name(nd_get_dtype(x)), (int)i, x_is, y_is);
    }
}

/// The dtype in which a row is computed for the reference.
static nd_dtype wide_of(const elementwise_row *row, nd_dtype dtype) {
    return is_half(dtype) || row->types == TAKES_FLOAT ? ND_F32 : ND_I64;
}

static void check_row(const elementwise_row *row, nd_dtype dtype, int layout_a, int layout_b,
                      const int64_t *shape) {
    const nd_number p = ND_NUMBER(2), q = ND_NUMBER(7);
    nd_auto nd_tensor *a = random_view(layout_a, shape, dtype);
    nd_auto nd_tensor *b = random_view(layout_b, shape, dtype);
    nd_auto nd_tensor *result = row->run(a, b, p, q);
    if (!result)
        fail_msg("%s of %s: %s", row->name, nd_dtype_get_name(dtype), nd_error_get_message());
    nd_auto nd_tensor *a_wide = nd_cast(a, wide_of(row, dtype));
    nd_auto nd_tensor *b_wide = nd_cast(b, wide_of(row, dtype));
    nd_auto nd_tensor *wide = row->run(a_wide, b_wide, p, q);
    assert_handle(wide);
    nd_auto nd_tensor *expected = nd_cast(wide, nd_get_dtype(result));
    assert_int_equal(nd_get_dtype(result), elementwise_result(row, dtype));
    assert_same_bits(row->name, result, expected);
}

/// nextafter steps to the neighbour in its own dtype, which f32 does not know.
static bool is_of_its_dtype(const elementwise_row *row) {
    return strcmp(row->name, "nextafter") == 0;
}

static void test_every_row_in_every_dtype(void **state) {
    (void)state;
    srand(5);
    // Longer than a block of 16-bit floats; odd; short.
    static const int64_t shapes[][2] = {{2, 1111}, {7, 13}, {3, 1}};
    for (size_t isa = 0; isa < COUNT_OF(isas); isa++) {
        if (!nd__cpu_use_isa(isas[isa]))
            continue;
        for (int r = 0; r < ELEMENTWISE_ROWS; r++)
            for (nd_dtype dtype = (nd_dtype)0; dtype < ND_DTYPE_COUNT;
                 dtype = (nd_dtype)(dtype + 1)) {
                const elementwise_row *row = &elementwise_rows[r];
                if (!elementwise_takes(row, dtype) || dtype == ND_BOOL || dtype == ND_F32 ||
                    dtype == ND_F64 || is_of_its_dtype(row))
                    continue;
                for (size_t s = 0; s < COUNT_OF(shapes); s++)
                    check_row(row, dtype, rand() % VIEWS, rand() % VIEWS, shapes[s]);
            }
    }
    nd__cpu_use_isa(NULL);
}

static void test_the_next_16_bit_float(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        nd_dtype dtype = kind ? ND_BF16 : ND_F16;
        uint16_t infinity = kind ? 0x7F80 : 0x7C00;
        // From the least to infinity, through both zeros, each is next to the one before.
        nd_auto nd_tensor *x = nd_empty(ND_SHAPE(2 * infinity + 1), dtype);
        uint16_t *bits = nd_get_data(x);
        for (int i = 0; i <= infinity; i++) {
            bits[i] = (uint16_t)(0x8000 | (infinity - i));
            bits[infinity + i] = (uint16_t)i;
        }
        int64_t last = nd_get_numel(x) - 1;
        nd_auto nd_tensor *lower = nd_slice(x, 0, last, 1, 0);
        nd_auto nd_tensor *upper = nd_slice(x, 1, last + 1, 1, 0);
        nd_auto nd_tensor *above = nd_full(ND_SHAPE(1), INFINITY, dtype);
        nd_auto nd_tensor *below = nd_full(ND_SHAPE(1), -INFINITY, dtype);
        nd_auto nd_tensor *raised = nd_nextafter(lower, above);
        nd_auto nd_tensor *sunk = nd_nextafter(upper, below);
        nd_auto nd_tensor *same = nd_nextafter(x, x);
        for (int64_t i = 0; i < last; i++) {
            assert_true(at_flat(raised, i) == at_flat(upper, i));
            assert_true(at_flat(sunk, i) == at_flat(lower, i));
            assert_true(at_flat(same, i) == at_flat(x, i));
        }
        nd_auto nd_tensor *nan = nd_full(ND_SHAPE(1), NAN, dtype);
        nd_auto nd_tensor *none = nd_nextafter(nan, above);
        assert_true(isnan(nd_get_item(none)));
    }
}

/// From each of these to each, as the C library does: the same bits, whatever the machine has, whether
/// operands lie behind each other or are repeated.
static void test_the_next_float(void **state) {
    (void)state;
    static const double from[] = {0,
                                  0x1p-149,
                                  0x1p-126,
                                  0x1p-127,
                                  0x1.fffffcp-127,
                                  0x1p-1074,
                                  0x1p-1022,
                                  0x1p-1023,
                                  0x1.fffffffffffffp-1023,
                                  1,
                                  0x1.fffffep0,
                                  0x1.fffffffffffffp0,
                                  2,
                                  3.3,
                                  0x1.fffffep127,
                                  0x1.fffffffffffffp1023,
                                  INFINITY,
                                  NAN};
    enum { HALF = COUNT_OF(from), ALL = 2 * HALF };
    double both[ALL];
    for (int i = 0; i < ALL; i++)
        both[i] = i < HALF ? from[i] : -from[i - HALF];
    nd_auto nd_tensor *numbers = nd_from_data(both, ND_SHAPE(ALL), ND_F64);
    for (size_t isa = 0; isa < COUNT_OF(isas); isa++) {
        if (!nd__cpu_use_isa(isas[isa]))
            continue;
        for (int narrow = 0; narrow < 2; narrow++) {
            nd_auto nd_tensor *x = nd_cast(numbers, narrow ? ND_F32 : ND_F64);
            nd_auto nd_tensor *across = nd_unsqueeze(x, 1);
            nd_auto nd_tensor *next = nd_nextafter(x, across);
            for (int64_t i = 0; i < ALL * ALL; i++) {
                const double a = at_flat(x, i % ALL), b = at_flat(x, i / ALL);
                const double want =
                    narrow ? (double)nextafterf((float)a, (float)b) : nextafter(a, b);
                const double got = at_flat(next, i);
                assert_true(isnan(want) ? isnan(got) : memcmp(&want, &got, sizeof want) == 0);
            }
        }
    }
    nd__cpu_use_isa(NULL);
}

static void test_unsigned_numbers_beyond_int64(void **state) {
    (void)state;
    const uint64_t a[] = {UINT64_MAX, (uint64_t)1 << 63, 5, UINT64_MAX - 1};
    const uint64_t b[] = {1, UINT64_MAX, 7, UINT64_MAX};
    nd_auto nd_tensor *x = nd_from_data(a, ND_SHAPE(4), ND_U64);
    nd_auto nd_tensor *y = nd_from_data(b, ND_SHAPE(4), ND_U64);
    nd_auto nd_tensor *sum = nd_add(x, y);
    nd_auto nd_tensor *product = nd_mul(x, y);
    nd_auto nd_tensor *most = nd_maximum(x, y);
    nd_auto nd_tensor *less = nd_less(x, y);
    nd_auto nd_tensor *sign = nd_sign(x);
    nd_auto nd_tensor *magnitude = nd_abs(x);
    nd_auto nd_tensor *cut = nd_clip(x, 6, UINT64_MAX - 1);
    nd_auto nd_tensor *more = nd_add_scalar(x, UINT64_MAX);
    for (int i = 0; i < 4; i++) {
        assert_true(((uint64_t *)nd_get_data(sum))[i] == a[i] + b[i]);
        assert_true(((uint64_t *)nd_get_data(product))[i] == a[i] * b[i]);
        assert_true(((uint64_t *)nd_get_data(most))[i] == (a[i] > b[i] ? a[i] : b[i]));
        assert_true(((uint8_t *)nd_get_data(less))[i] == (a[i] < b[i]));
        assert_true(((uint64_t *)nd_get_data(sign))[i] == 1);
        assert_true(((uint64_t *)nd_get_data(magnitude))[i] == a[i]);
        uint64_t low = a[i] < 6 ? 6 : a[i];
        assert_true(((uint64_t *)nd_get_data(cut))[i] ==
                    (low > UINT64_MAX - 1 ? UINT64_MAX - 1 : low));
        assert_true(((uint64_t *)nd_get_data(more))[i] == a[i] + UINT64_MAX);
    }
    nd_auto nd_tensor *has_sign = nd_ones(ND_SHAPE(4), ND_I8);
    assert_refused(nd_add(x, has_sign), ND_ERROR_DTYPE, "add: no dtype holds");
}

static void test_where_and_masked_fill_in_every_dtype(void **state) {
    (void)state;
    static const int64_t shape[2] = {3, 700};
    for (nd_dtype dtype = (nd_dtype)0; dtype < ND_DTYPE_COUNT; dtype = (nd_dtype)(dtype + 1)) {
        nd_auto nd_tensor *mask = random_view(rand() % VIEWS, shape, ND_BOOL);
        nd_auto nd_tensor *a = random_view(rand() % VIEWS, shape, dtype);
        nd_auto nd_tensor *b = random_view(rand() % VIEWS, shape, dtype);
        nd_auto nd_tensor *chosen = nd_where(mask, a, b);
        nd_auto nd_tensor *filled = nd_masked_fill(a, mask, 1);
        nd_auto nd_tensor *written = nd_clone(a);
        assert_handle(filled);
        assert_ok(nd_masked_fill_(written, mask, 1));
        for (int64_t i = 0; i < nd_get_numel(chosen); i++) {
            bool hit = at_flat(mask, i) != 0;
            assert_true(at_flat(chosen, i) == (hit ? at_flat(a, i) : at_flat(b, i)));
            assert_true(at_flat(filled, i) == (hit ? 1 : at_flat(a, i)));
            assert_true(at_flat(written, i) == at_flat(filled, i));
        }
    }
}

/// Rows shorter and longer than a vector, and a number for one operand or for both.
static void test_where_with_numbers_in_every_dtype(void **state) {
    (void)state;
    for (nd_dtype dtype = (nd_dtype)0; dtype < ND_DTYPE_COUNT; dtype = (nd_dtype)(dtype + 1))
        for (int64_t n = 1; n < 140; n += 23) {
            nd_auto nd_tensor *mask = random_dense(ND_SHAPE(n), ND_BOOL, 0, 1);
            nd_auto nd_tensor *a = random_dense(ND_SHAPE(n), dtype, 0, 1);
            nd_auto nd_tensor *b = random_dense(ND_SHAPE(n), dtype, 0, 1);
            nd_auto nd_tensor *one = nd_scalar(1, dtype);
            nd_auto nd_tensor *zero = nd_scalar(0, dtype);
            nd_auto nd_tensor *or_zero = nd_where(mask, a, zero);
            nd_auto nd_tensor *one_or = nd_where(mask, one, b);
            nd_auto nd_tensor *numbers = nd_where(mask, one, zero);
            for (int64_t i = 0; i < n; i++) {
                bool hit = at_flat(mask, i) != 0;
                assert_true(at_flat(or_zero, i) == (hit ? at_flat(a, i) : 0));
                assert_true(at_flat(one_or, i) == (hit ? 1 : at_flat(b, i)));
                assert_true(at_flat(numbers, i) == (hit ? 1 : 0));
            }
        }
}

static void test_in_place_in_every_dtype(void **state) {
    (void)state;
    static const int64_t shape[2] = {3, 1100};
    for (nd_dtype dtype = (nd_dtype)0; dtype < ND_DTYPE_COUNT; dtype = (nd_dtype)(dtype + 1)) {
        if (!is_integer(dtype) && !is_float(dtype))
            continue;
        nd_auto nd_tensor *x = random_view(rand() % 2, shape, dtype);
        nd_auto nd_tensor *y = random_view(rand() % VIEWS, shape, dtype);
        nd_auto nd_tensor *sum = nd_add(x, y);
        nd_auto nd_tensor *doubled = nd_mul(sum, sum);
        nd_auto nd_tensor *scaled = nd_mul_scalar(doubled, 3);
        assert_ok(nd_add_(x, y));
        assert_ok(nd_mul_(x, x));
        assert_ok(nd_mul_scalar_(x, 3));
        nd_auto nd_tensor *dense = nd_contiguous(x);
        assert_same_bits("in place", dense, scaled);
    }
}

static void test_large_results_are_written_past_the_caches(void **state) {
    (void)state;
    const int64_t n = ((int64_t)32 << 20) / 2 + 77; // bytes from which it does (families.h)
    nd_auto nd_tensor *base = nd_rand(nd_key_new(4), ND_SHAPE(n), ND_BF16);
    nd_auto nd_tensor *x = nd_slice(base, 3, INT64_MAX, 1, 0);
    nd_auto nd_tensor *result = nd_add(x, x);
    assert_handle(result);
    const uint16_t *from = nd_get_data(x), *to = nd_get_data(result);
    for (int64_t i = 0; i < n - 3; i++) // doubling is one more in the exponent
        if (to[i] != (from[i] ? from[i] + 0x80 : 0))
            fail_msg("element %lld", (long long)i);
}

static void test_mixed_floats_and_integers(void **state) {
    (void)state;
    static const struct {
        nd_dtype a, b, result;
    } cases[] = {{ND_F16, ND_F16, ND_F16}, {ND_BF16, ND_I64, ND_BF16}, {ND_F16, ND_BF16, ND_F32},
                 {ND_F16, ND_F64, ND_F64}, {ND_U8, ND_I8, ND_I16},     {ND_U32, ND_I32, ND_I64},
                 {ND_BF16, ND_F32, ND_F32}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        nd_auto nd_tensor *a = nd_full(ND_SHAPE(5), 3, cases[i].a);
        nd_auto nd_tensor *b = nd_full(ND_SHAPE(5), 2, cases[i].b);
        nd_auto nd_tensor *sum = nd_add(a, b);
        nd_auto nd_tensor *quotient = nd_div(a, b);
        assert_handle(sum);
        assert_handle(quotient);
        assert_int_equal(nd_get_dtype(sum), cases[i].result);
        assert_int_equal(nd_get_dtype(quotient),
                         is_float(cases[i].result) ? cases[i].result : ND_F32);
        assert_true(at_flat(sum, 4) == 5 && at_flat(quotient, 4) == 1.5);
    }
    nd_auto nd_tensor *small = nd_full(ND_SHAPE(2), 3, ND_I8);
    nd_auto nd_tensor *root = nd_sqrt(small);
    assert_int_equal(nd_get_dtype(root), ND_F32);
    nd_auto nd_tensor *half = nd_add_scalar(small, 0.5);
    assert_int_equal(nd_get_dtype(half), ND_F32);
    assert_refused(nd_add_scalar(small, 200), ND_ERROR_INVALID_ARGUMENT, "add_scalar: ");
}

static void test_gradients_have_the_dtype_of_their_input(void **state) {
    (void)state;
    static const nd_dtype halves[] = {ND_F16, ND_BF16};
    for (size_t i = 0; i < COUNT_OF(halves); i++) {
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(3), 1.5, halves[i]);
        nd_auto nd_tensor *w = nd_full(ND_SHAPE(3), 2.0, ND_F32);
        assert_ok(nd_set_requires_grad(x, true));
        assert_ok(nd_set_requires_grad(w, true));
        nd_auto nd_tensor *square = nd_mul(x, x);       // 16 bits
        nd_auto nd_tensor *product = nd_mul(square, w); // through a cast to f32
        nd_auto nd_tensor *total = nd_sum(product, 0, NULL, false);
        assert_int_equal(nd_get_dtype(square), halves[i]);
        assert_int_equal(nd_get_dtype(product), ND_F32);
        assert_ok(nd_backward(total, NULL));
        assert_int_equal(nd_get_dtype(nd_get_grad(x)), halves[i]);
        assert_int_equal(nd_get_dtype(nd_get_grad(w)), ND_F32);
        assert_true(at_flat(nd_get_grad(x), 2) == 6 && at_flat(nd_get_grad(w), 2) == 2.25);
        // A second backward pass adds, in the dtype of the gradient.
        nd_auto nd_tensor *again = nd_cast(x, ND_F64);
        nd_auto nd_tensor *more = nd_sum(again, 0, NULL, false);
        assert_ok(nd_backward(more, NULL));
        assert_int_equal(nd_get_dtype(nd_get_grad(x)), halves[i]);
        assert_true(at_flat(nd_get_grad(x), 0) == 7);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_row_in_every_dtype),
        ND_TEST(test_the_next_16_bit_float),
        ND_TEST(test_the_next_float),
        ND_TEST(test_unsigned_numbers_beyond_int64),
        ND_TEST(test_where_and_masked_fill_in_every_dtype),
        ND_TEST(test_where_with_numbers_in_every_dtype),
        ND_TEST(test_in_place_in_every_dtype),
        ND_TEST(test_large_results_are_written_past_the_caches),
        ND_TEST(test_mixed_floats_and_integers),
        ND_TEST(test_gradients_have_the_dtype_of_their_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
