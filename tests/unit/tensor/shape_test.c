// Dtypes, shapes, strides, broadcasting, collapsing.
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"
#include "tests/unit/tensor/values.h"
#include <float.h>
#include <math.h>

static void test_dtypes(void **state) {
    (void)state;
    static const size_t sizes[ND_DTYPE_COUNT] = {1, 1, 4, 8, 4, 8, 1, 2, 2, 4, 8, 2, 2};
    for (int i = 0; i < ND_DTYPE_COUNT; i++)
        assert_int_equal(nd_dtype_get_size((nd_dtype)i), sizes[i]);
    assert_string_equal(nd_dtype_get_name(ND_BOOL), "bool");
    assert_string_equal(nd_dtype_get_name(ND_F32), "float32");
    assert_string_equal(nd_dtype_get_name(ND_DTYPE_COUNT), "invalid");
    assert_int_equal(nd_dtype_get_size((nd_dtype)-1), 0);
    assert_int_equal(nd_promote_dtypes(ND_BOOL, ND_U8), ND_U8);
    assert_int_equal(nd_promote_dtypes(ND_F32, ND_I64), ND_F32);
    assert_int_equal(nd_promote_dtypes(ND_F64, ND_F32), ND_F64);
}

/// Beside what C says of its own types, and what conversions find at the edges.
static void test_limits_of_dtypes(void **state) {
    (void)state;
    const int64_t of_signed[][2] = {{INT8_MIN, INT8_MAX},
                                    {INT16_MIN, INT16_MAX},
                                    {INT32_MIN, INT32_MAX},
                                    {INT64_MIN, INT64_MAX}};
    const nd_dtype has_sign[] = {ND_I8, ND_I16, ND_I32, ND_I64};
    const nd_dtype has_none[] = {ND_U8, ND_U16, ND_U32, ND_U64};
    const uint64_t of_unsigned[] = {UINT8_MAX, UINT16_MAX, UINT32_MAX, UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        assert_true(nd_dtype_get_min(has_sign[i]).value.i64 == of_signed[i][0]);
        assert_true(nd_dtype_get_max(has_sign[i]).value.i64 == of_signed[i][1]);
        assert_true(nd_dtype_get_max(has_none[i]).value.u64 == of_unsigned[i]);
        assert_int_equal(nd_dtype_get_kind(has_sign[i]), ND_KIND_SIGNED);
        assert_int_equal(nd_dtype_get_kind(has_none[i]), ND_KIND_UNSIGNED);
    }
    assert_true(nd_dtype_get_max(ND_F32).value.f64 == (double)FLT_MAX);
    assert_true(nd_dtype_get_epsilon(ND_F64) == DBL_EPSILON && nd_dtype_get_epsilon(ND_I8) == 0);
    assert_int_equal(nd_dtype_get_kind(ND_DTYPE_COUNT), ND_KIND_COUNT);
    assert_true(nd_dtype_get_epsilon(ND_DTYPE_COUNT) == 0);
    for (int i = 0; i < ND_DTYPE_COUNT; i++) {
        nd_dtype dtype = (nd_dtype)i;
        nd_auto nd_tensor *min = nd_scalar(nd_dtype_get_min(dtype), dtype);
        nd_auto nd_tensor *max = nd_scalar(nd_dtype_get_max(dtype), dtype);
        assert_handle(min);
        assert_handle(max);
        if (nd_dtype_get_kind(dtype) != ND_KIND_FLOAT)
            continue;
        // The next number is infinite, half an epsilon is lost beside 1, a whole one is not, and
        // half of the smallest normal number is still one of this dtype.
        double epsilon = nd_dtype_get_epsilon(dtype), normal = nd_dtype_get_smallest_normal(dtype);
        double greatest = nd_dtype_get_max(dtype).value.f64;
        const double given[] = {1 + epsilon,
                                1 + epsilon / 2,
                                normal,
                                normal * (1 + epsilon),
                                normal / 2 * (1 + epsilon),
                                greatest,
                                dtype == ND_F64 ? INFINITY : greatest * (1 + epsilon)};
        nd_auto nd_tensor *doubles = nd_from_data(given, ND_SHAPE(7), ND_F64);
        nd_auto nd_tensor *there = nd_cast(doubles, dtype);
        nd_auto nd_tensor *back = nd_cast(there, ND_F64);
        const double *kept = nd_get_data(back);
        assert_true(kept[0] == given[0] && kept[1] == 1 && kept[2] == given[2] &&
                    kept[3] == given[3] && (kept[4] != given[4] || dtype == ND_F64) &&
                    kept[5] == greatest && isinf(kept[6]));
    }
    assert_true(nd_can_cast(ND_I8, ND_I16) && nd_can_cast(ND_U8, ND_I16) &&
                nd_can_cast(ND_I64, ND_F16) && nd_can_cast(ND_BOOL, ND_U64));
    assert_false(nd_can_cast(ND_F16, ND_BF16) || nd_can_cast(ND_I16, ND_I8) ||
                 nd_can_cast(ND_I8, ND_U64) || nd_can_cast(ND_F32, ND_I64) ||
                 nd_can_cast(ND_F32, ND_DTYPE_COUNT) || nd_can_cast(ND_DTYPE_COUNT, ND_F32));
}

static nd_status check(int ndim, const int64_t *shape, nd_dtype dtype) {
    int64_t numel = -7;
    nd_status status = nd__shape_check("empty", ndim, shape, dtype, &numel);
    if (status != ND_OK)
        assert_int_equal(numel, -7);
    return status;
}

static void test_F08_elements_overflow(void **state) {
    (void)state;
    assert_int_equal(check(ND_SHAPE(INT64_MAX, 2), ND_U8), ND_ERROR_SHAPE);
    assert_int_equal(check(ND_SHAPE((int64_t)1 << 32, (int64_t)1 << 32), ND_U8), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(),
                        "empty: shape [4294967296, 4294967296] of uint8 has "
                        "too many elements or bytes");
    // Strides would overflow, although there are no elements.
    assert_int_equal(check(ND_SHAPE(0, INT64_MAX, INT64_MAX), ND_U8), ND_ERROR_SHAPE);
}

static void test_F09_bytes_overflow(void **state) {
    (void)state;
    assert_ok(check(ND_SHAPE((int64_t)1 << 62), ND_U8));
    assert_int_equal(check(ND_SHAPE((int64_t)1 << 62), ND_F64), ND_ERROR_SHAPE);
    assert_int_equal(check(ND_SHAPE(INT64_MAX / 8 + 1), ND_I64), ND_ERROR_SHAPE);
}

static void test_F10_negative_zero_and_too_many(void **state) {
    (void)state;
    int64_t numel;
    assert_int_equal(check(ND_SHAPE(2, -1), ND_F32), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(), "empty: shape [2, -1] has a negative size");
    assert_ok(nd__shape_check("empty", ND_SHAPE(3, 0, 5), ND_F32, &numel));
    assert_int_equal(numel, 0);
    assert_int_equal(check(ND_SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1), ND_F32), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(),
                        "empty: 9 dimensions were asked for; 0 to 8 are possible");
    assert_int_equal(check(-1, NULL, ND_F32), ND_ERROR_SHAPE);
    assert_int_equal(check(1, NULL, ND_F32), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(check(0, NULL, ND_F32));
    assert_int_equal(check(ND_SHAPE(1), ND_DTYPE_COUNT), ND_ERROR_DTYPE);
}

static void test_axes(void **state) {
    (void)state;
    assert_int_equal(nd__shape_resolve_axis("sum", -1, 3), 2);
    assert_int_equal(nd__shape_resolve_axis("sum", 0, 3), 0);
    assert_int_equal(nd__shape_resolve_axis("sum", 3, 3), -1);
    assert_string_equal(nd_error_get_message(), "sum: axis 3 is out of range for 3 dimensions");
    assert_int_equal(nd__shape_resolve_axis("sum", 0, 0), -1);
    assert_int_equal(nd__shape_resolve_axis("sum", INT32_MIN, 8), -1);
}

static void test_broadcasting(void **state) {
    (void)state;
    int64_t shape[ND_MAX_DIMS];
    assert_int_equal(nd__shape_broadcast("add", ND_SHAPE(4, 1, 3), ND_SHAPE(5, 1), shape), 3);
    assert_true(shape[0] == 4 && shape[1] == 5 && shape[2] == 3);
    assert_int_equal(nd__shape_broadcast("add", ND_SHAPE(0, 1), ND_SHAPE(1, 7), shape), 2);
    assert_true(shape[0] == 0 && shape[1] == 7);
    assert_int_equal(nd__shape_broadcast("add", 0, NULL, ND_SHAPE(2), shape), 1);
    assert_int_equal(nd__shape_broadcast("add", ND_SHAPE(2, 3), ND_SHAPE(4), shape), -1);
    assert_string_equal(nd_error_get_message(), "add: shapes [2, 3] and [4] do not broadcast");
}

static void test_shape_text_of_the_longest_shape_fits(void **state) {
    (void)state;
    char text[ND__SHAPE_TEXT];
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < ND_MAX_DIMS; i++)
        shape[i] = INT64_MIN;
    assert_int_equal(strlen(nd__shape_text(text, ND_MAX_DIMS, shape)), 8 * 20 + 7 * 2 + 2);
    assert_string_equal(nd__shape_text(text, 0, NULL), "[]");
}

static void test_collapse_merges_what_is_contiguous(void **state) {
    (void)state;
    nd_kernel_call call = {
        .noperands = 2,
        .ndim = 4,
        .shape = {2, 1, 3, 4},
        .operand = {{.strides = {12, 99, 4, 1}}, {.strides = {12, 0, 4, 1}}},
    };
    nd__shape_collapse(&call);
    assert_int_equal(call.ndim, 1);
    assert_int_equal(call.shape[0], 24);
    assert_int_equal(call.operand[0].strides[0], 1);
}

static void test_collapse_keeps_what_one_operand_breaks(void **state) {
    (void)state;
    nd_kernel_call call = {
        .noperands = 2,
        .ndim = 3,
        .shape = {2, 3, 4},
        .operand = {{.strides = {12, 4, 1}}, {.strides = {0, 4, 1}}}, // repeats along the first
    };
    nd__shape_collapse(&call);
    assert_int_equal(call.ndim, 2);
    assert_true(call.shape[0] == 2 && call.shape[1] == 12);
    assert_true(call.operand[1].strides[0] == 0 && call.operand[1].strides[1] == 1);
    nd_kernel_call scalar = {.noperands = 1, .ndim = 2, .shape = {1, 1}};
    nd__shape_collapse(&scalar);
    assert_int_equal(scalar.ndim, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_dtypes),
        ND_TEST(test_limits_of_dtypes),
        ND_TEST(test_F08_elements_overflow),
        ND_TEST(test_F09_bytes_overflow),
        ND_TEST(test_F10_negative_zero_and_too_many),
        ND_TEST(test_axes),
        ND_TEST(test_broadcasting),
        ND_TEST(test_shape_text_of_the_longest_shape_fits),
        ND_TEST(test_collapse_merges_what_is_contiguous),
        ND_TEST(test_collapse_keeps_what_one_operand_breaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
