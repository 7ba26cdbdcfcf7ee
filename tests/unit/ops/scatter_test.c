// nd_scatter against PyTorch, and against plain loops over every dtype, layout, axis and reduction;
// NaN, gradients where elements are equal or 0, what is out of range, and what is refused.
#include "tests/unit/ops/torch_case.h"
#include <nd/indexing.h>

enum { REDUCTIONS = ND_SCATTER_MEAN + 1 };

static nd_tensor *scattered(const nd_tensor *const *x, nd_scatter_reduction reduction, bool self) {
    const int64_t places[] = {0, 2, 2, 1, 0, 2, 0, 0, 2, 3, 0, 2, 1, 2, -2};
    nd_auto nd_tensor *index = nd_from_data(places, ND_SHAPE(5, 3), ND_I64);
    return nd_scatter(x[0], index, x[1], 0, reduction, self);
}

#define SCATTER(name, reduction)                            \
    TORCH_FUNCTION(scatter_##name) {                        \
        (void)count, (void)data;                            \
        return scattered(x, ND_SCATTER_##reduction, true);  \
    }                                                       \
    TORCH_FUNCTION(scatter_##name##_alone) {                \
        (void)count, (void)data;                            \
        return scattered(x, ND_SCATTER_##reduction, false); \
    }
SCATTER(sum, SUM)
SCATTER(prod, PROD)
SCATTER(amin, AMIN)
SCATTER(amax, AMAX)
SCATTER(mean, MEAN)

static void test_scatter_as_in_pytorch(void **state) {
    (void)state;
#define BOTH(name)                                           \
    TORCH_CASE(scatter_##name, 2, {2, {4, 3}}, {2, {5, 3}}), \
        TORCH_CASE(scatter_##name##_alone, 2, {2, {4, 3}}, {2, {5, 3}})
    const torch_case cases[] = {BOTH(sum), BOTH(prod), BOTH(amin), BOTH(amax), BOTH(mean)};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

/// What one place becomes of its own value and `count` that came.
static double reduced(nd_scatter_reduction reduction, double own, bool include_self, int count,
                      const double *came, bool whole) {
    if (count == 0)
        return own;
    double value = include_self ? own : came[0];
    for (int i = include_self ? 0 : 1; i < count; i++) {
        if (reduction == ND_SCATTER_PROD)
            value *= came[i];
        else if (reduction == ND_SCATTER_AMIN)
            value = came[i] < value ? came[i] : value;
        else if (reduction == ND_SCATTER_AMAX)
            value = came[i] > value ? came[i] : value;
        else
            value += came[i];
    }
    if (reduction != ND_SCATTER_MEAN)
        return value;
    value /= count + include_self;
    return whole ? floor(value) : value;
}

static void check_scatter(const nd_tensor *x, const nd_tensor *index, const nd_tensor *source,
                          int axis, nd_scatter_reduction reduction, bool include_self) {
    nd_auto nd_tensor *y = nd_scatter(x, index, source, axis, reduction, include_self);
    assert_handle(y);
    nd_dtype dtype = nd_get_dtype(x);
    assert_int_equal(nd_get_dtype(y), dtype);
    bool whole = !is_float(dtype), half = dtype == ND_F16 || dtype == ND_BF16;
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        int64_t place[3], from[3];
        double came[8];
        int count = 0;
        coordinates_of(3, nd_get_shape(y), flat, place);
        for (int64_t k = 0; k < nd_get_numel(index); k++) {
            coordinates_of(3, nd_get_shape(index), k, from);
            int64_t to = (int64_t)at(index, 3, from);
            to += to < 0 ? nd_get_shape(x)[axis] : 0;
            bool comes = true;
            for (int i = 0; i < 3; i++)
                comes = comes && (i == axis ? to : from[i]) == place[i];
            if (comes)
                came[count++] = at(source, 3, from);
        }
        double value = reduced(reduction, at(x, 3, place), include_self, count, came, whole);
        if (whole) { // products wrap
            uint64_t mask = UINT64_MAX >> (64 - 8 * nd_dtype_get_size(dtype));
            assert_int_equal((uint64_t)(int64_t)at_flat(y, flat) & mask,
                             (uint64_t)(int64_t)value & mask);
        } else {
            assert_close("scatter", at_flat(y, flat), value, half ? 1e-2 : 1e-5, 1e-5);
        }
    }
}

static void test_scatter_of_every_dtype_and_layout(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS && dtype != ND_BOOL; how++)
            for (int axis = 0; axis < 3; axis++) {
                nd_dtype type = (nd_dtype)dtype;
                int64_t shape[] = {3, 2, 4};
                nd_auto nd_tensor *x = random_tensor((layout)how, 3, shape, type, -3, 3);
                int64_t size = shape[axis];
                shape[axis == 2 ? 0 : 2]--; // fewer than x's elsewhere
                shape[axis] = 7;
                nd_auto nd_tensor *source = random_tensor((layout)how, 3, shape, type, -3, 3);
                nd_auto nd_tensor *index =
                    nd_randint((nd_key){(uint64_t)how, (uint64_t)axis}, -size, size, 3, shape,
                               how % 2 ? ND_I32 : ND_I64);
                for (int reduction = 0; reduction < REDUCTIONS; reduction++)
                    for (int self = 0; self < 2; self++)
                        check_scatter(x, index, source, axis, (nd_scatter_reduction)reduction,
                                      self);
            }
}

/// y and the gradients of the sum of y * (1, 10, 100, 1000), which PyTorch gives.
static void assert_gradients(nd_scatter_reduction reduction, bool include_self, const double *y,
                             const double *of_x, const double *of_source) {
    const int64_t places[] = {0, 1, 2, 2, 2, 3};
    nd_auto nd_tensor *index = nd_from_data(places, ND_SHAPE(6), ND_I64);
    nd_auto nd_tensor *x = nd_from_data((const double[]){1, 2, 3, 0}, ND_SHAPE(4), ND_F64);
    nd_auto nd_tensor *source =
        nd_from_data((const double[]){1, NAN, 5, 5, 3, 0}, ND_SHAPE(6), ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    assert_ok(nd_set_requires_grad(source, true));
    nd_auto nd_tensor *result = nd_scatter(x, index, source, 0, reduction, include_self);
    nd_auto nd_tensor *weight =
        nd_from_data((const double[]){1, 10, 100, 1000}, ND_SHAPE(4), ND_F64);
    nd_auto nd_tensor *weighted = nd_mul(result, weight);
    nd_auto nd_tensor *sum = nd_sum(weighted, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    for (int64_t i = 0; i < 4; i++) {
        assert_close("y", at_flat(result, i), y[i], 0, 0);
        assert_close("x", at_flat(nd_get_grad(x), i), of_x[i], 1e-12, 0);
    }
    for (int64_t i = 0; i < 6; i++)
        assert_close("source", at_flat(nd_get_grad(source), i), of_source[i], 1e-12, 0);
}

#define NUMBERS(...) ((const double[]){__VA_ARGS__})

static void test_scatter_of_equal_elements_zeros_and_nan(void **state) {
    (void)state;
    assert_gradients(ND_SCATTER_AMAX, true, NUMBERS(1, NAN, 5, 0), NUMBERS(0.5, NAN, 0, 500),
                     NUMBERS(0.5, NAN, 50, 50, 0, 500));
    assert_gradients(ND_SCATTER_AMIN, true, NUMBERS(1, NAN, 3, 0), NUMBERS(0.5, NAN, 50, 500),
                     NUMBERS(0.5, NAN, 0, 0, 50, 500));
    assert_gradients(ND_SCATTER_PROD, true, NUMBERS(1, NAN, 225, 0), NUMBERS(1, NAN, 7500, 0),
                     NUMBERS(1, NAN, 4500, 4500, 7500, 0));
    assert_gradients(ND_SCATTER_PROD, false, NUMBERS(1, NAN, 75, 0), NUMBERS(0, 0, 0, 0),
                     NUMBERS(1, NAN, 1500, 1500, 2500, 1000));
}

static void test_scatter_rounds_16_bit_floats_once(void **state) {
    (void)state;
    const float many[] = {1.0f / 3, 3, 1.0f / 7, 7};
    nd_auto nd_tensor *wide = nd_from_data(many, ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *source = nd_cast(wide, ND_BF16);
    nd_auto nd_tensor *index = nd_zeros(ND_SHAPE(4), ND_I64);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_BF16);
    nd_auto nd_tensor *y = nd_scatter(x, index, source, 0, ND_SCATTER_PROD, true);
    float product = 1;
    for (int64_t i = 0; i < 4; i++)
        product *= (float)at_flat(source, i);
    nd_auto nd_tensor *exact = nd_from_data(&product, ND_SHAPE(1), ND_F32);
    nd_auto nd_tensor *rounded = nd_cast(exact, ND_BF16);
    assert_true(at_flat(y, 0) == at_flat(rounded, 0));
}

static void test_scatter_of_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(3), 5, ND_I32);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0), ND_I64);
    nd_auto nd_tensor *source = nd_zeros(ND_SHAPE(0), ND_I32);
    for (int reduction = 0; reduction < REDUCTIONS; reduction++)
        for (int self = 0; self < 2; self++) {
            nd_auto nd_tensor *y =
                nd_scatter(x, none, source, 0, (nd_scatter_reduction)reduction, self);
            assert_shape(y, ND_SHAPE(3));
            assert_true(at_flat(y, 2) == 5);
        }
}

/// The sum of i64 wraps, as PyTorch's does; that of narrower integers has 64 bits.
static void test_scatter_mean_of_large_integers(void **state) {
    (void)state;
    nd_auto nd_tensor *index = nd_zeros(ND_SHAPE(3), ND_I64);
    for (int self = 0; self < 2; self++) {
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(1), ND_I64);
        nd_auto nd_tensor *source = nd_full(ND_SHAPE(3), INT64_C(1) << 62, ND_I64);
        nd_auto nd_tensor *mean = nd_scatter(x, index, source, 0, ND_SCATTER_MEAN, self);
        int64_t value;
        assert_ok(nd_get_item_i64(mean, &value));
        assert_true(value == (self ? -1152921504606846976 : -1537228672809129302)); // PyTorch 2.15
        nd_auto nd_tensor *bytes = nd_full(ND_SHAPE(3), 100, ND_I8);
        nd_auto nd_tensor *zero = nd_zeros(ND_SHAPE(1), ND_I8);
        nd_auto nd_tensor *narrow = nd_scatter(zero, index, bytes, 0, ND_SCATTER_MEAN, self);
        assert_true(at_flat(narrow, 0) == (self ? 75 : 100));
    }
}

static void test_scatter_refuses(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *mask = nd_ones(ND_SHAPE(2), ND_BOOL);
    nd_auto nd_tensor *source = nd_ones(ND_SHAPE(2), ND_F32);
    nd_auto nd_tensor *index = nd_full(ND_SHAPE(2), 3, ND_I64);
    for (int reduction = 0; reduction < REDUCTIONS; reduction++)
        assert_refused(nd_scatter(x, index, source, 0, (nd_scatter_reduction)reduction, true),
                       ND_ERROR_INVALID_ARGUMENT, "scatter: an index is outside -3 ... 2");
    assert_refused(nd_scatter(x, index, source, 0, (nd_scatter_reduction)99, true),
                   ND_ERROR_INVALID_ARGUMENT, "scatter: there is no reduction 99");
    assert_refused(nd_scatter(x, index, mask, 0, ND_SCATTER_PROD, true), ND_ERROR_DTYPE,
                   "scatter: x is float32 and source bool");
    assert_refused(nd_scatter(x, index, x, 0, ND_SCATTER_PROD, true), ND_ERROR_SHAPE,
                   "scatter: index has shape [2] and source [3]");
    assert_refused(nd_scatter(x, source, source, 0, ND_SCATTER_PROD, true), ND_ERROR_DTYPE,
                   "scatter: the indices are float32");
    assert_refused(nd_scatter(x, index, source, 1, ND_SCATTER_PROD, true),
                   ND_ERROR_INVALID_ARGUMENT, "scatter: axis 1");
    assert_refused(nd_scatter(NULL, index, source, 0, ND_SCATTER_PROD, true),
                   ND_ERROR_INVALID_ARGUMENT, "scatter: ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_scatter_as_in_pytorch),
        ND_TEST(test_scatter_of_every_dtype_and_layout),
        ND_TEST(test_scatter_of_equal_elements_zeros_and_nan),
        ND_TEST(test_scatter_rounds_16_bit_floats_once),
        ND_TEST(test_scatter_of_nothing),
        ND_TEST(test_scatter_mean_of_large_integers),
        ND_TEST(test_scatter_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
