// Weights of 8 and 4 bits against their definition, computed in doubles from the bytes: what
// quantizing loses is within the bound that the header states, and products within the bound of a
// sum of rounded products, k + groups + 4 units for each of the sizes that are added.
#include "kernels/cpu/cpu.h"
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#include <nd/quantization.h>

static const nd_dtype scale_dtypes[] = {ND_F32, ND_F16, ND_BF16};

/// A quantized weight: [rows, k].
typedef struct quantized {
    nd_tensor *values, *scales, *zeros; ///< owned; zeros may be NULL
    int64_t rows, k, group;
} quantized;

static void release_quantized(quantized *w) {
    nd_release(w->values);
    nd_release(w->scales);
    nd_release(w->zeros);
}

/// The integer of an element, from its byte.
static int integer_of(const nd_tensor *values, int64_t row, int64_t column) {
    if (nd_get_dtype(values) == ND_I8)
        return (int)at(values, 2, (const int64_t[]){row, column});
    int byte = (int)at(values, 2, (const int64_t[]){row, column / 2});
    return column % 2 ? byte / 16 : byte % 16;
}

static double zero_of(const quantized *w, const int64_t *place) {
    return w->zeros ? at(w->zeros, 2, place) : nd_get_dtype(w->values) == ND_U8 ? 8 : 0;
}

/// The element that is meant; exact in a double.
static double meant(const quantized *w, int64_t row, int64_t column) {
    const int64_t place[] = {row, column / w->group};
    return at(w->scales, 2, place) * (integer_of(w->values, row, column) - zero_of(w, place));
}

static quantized quantize(const nd_tensor *weight, int bits, int64_t group, nd_dtype dtype,
                          bool with_zeros) {
    quantized w = {.rows = nd_get_shape(weight)[0], .k = nd_get_shape(weight)[1]};
    w.group = group ? group : w.k;
    assert_ok(nd_quantize(weight, bits, group, dtype, &w.values, &w.scales,
                          with_zeros ? &w.zeros : NULL));
    assert_int_equal(nd_get_dtype(w.values), bits == 8 ? ND_I8 : ND_U8);
    assert_int_equal(nd_get_dtype(w.scales), dtype);
    assert_shape(w.values, 2, (const int64_t[]){w.rows, bits == 8 ? w.k : w.k / 2});
    assert_shape(w.scales, 2, (const int64_t[]){w.rows, w.k / w.group});
    if (with_zeros) {
        assert_int_equal(nd_get_dtype(w.zeros), dtype);
        assert_shape(w.zeros, 2, (const int64_t[]){w.rows, w.k / w.group});
    }
    return w;
}

// -------------------------------------------------------------------------------------------------
// quantizing

static void check_nearness(const nd_tensor *weight, const quantized *w) {
    bool packed = nd_get_dtype(w->values) == ND_U8;
    for (int64_t row = 0; row < w->rows; row++)
        for (int64_t column = 0; column < w->k; column++) {
            const int64_t place[] = {row, column / w->group};
            double scale = at(w->scales, 2, place), zero = zero_of(w, place);
            double element = at(weight, 2, (const int64_t[]){row, column});
            double away = fabs(meant(w, row, column) - element);
            if (!(scale > 0) || !(away <= scale * (0.5 + 0x1p-15)))
                fail_msg("%g is %g away, with a scale of %g", element, away, scale);
            int integer = integer_of(w->values, row, column);
            if (w->zeros)
                assert_true(zero == floor(zero) && zero >= (packed ? 0 : -128) &&
                            zero <= (packed ? 15 : 127));
            else
                assert_true(abs(integer - (packed ? 8 : 0)) <= (packed ? 7 : 127));
        }
}

/// nd_dequantize gives what is meant, rounded once.
static void check_dequantized(const quantized *w) {
    static const nd_dtype dtypes[] = {ND_F64, ND_F32, ND_F16, ND_BF16};
    static const double units[] = {0, 0x1p-24, 0x1p-11 + 0x1p-23, 0x1p-8 + 0x1p-23};
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        nd_auto nd_tensor *weight = nd_dequantize(w->values, w->scales, w->zeros, dtypes[d]);
        assert_handle(weight);
        assert_int_equal(nd_get_dtype(weight), dtypes[d]);
        assert_shape(weight, 2, (const int64_t[]){w->rows, w->k});
        double least = dtypes[d] == ND_F16 ? 0x1p-24 : 0;
        for (int64_t row = 0; row < w->rows; row++)
            for (int64_t column = 0; column < w->k; column++)
                assert_close("dequantize", at(weight, 2, (const int64_t[]){row, column}),
                             meant(w, row, column), units[d], least);
    }
}

static void test_elements_are_near_what_stands_for_them(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    static const int64_t groups[] = {0, 2, 6, 30};
    for (int way = 0; way < 4 * 4 * 12; way++) {
        int bits = way % 2 ? 8 : 4;
        nd_auto nd_tensor *weight =
            random_tensor((layout)(way % LAYOUTS), 2, (const int64_t[]){5, 60},
                          dtypes[way / 16 % 4], way % 3 ? -3 : 1, 4);
        quantized w =
            quantize(weight, bits, groups[way / 4 % 4], scale_dtypes[way % 3], way / 2 % 2);
        check_nearness(weight, &w);
        check_dequantized(&w);
        release_quantized(&w);
    }
}

/// Groups of zeros, of one number, of the smallest and of the largest that a scale takes.
static void test_special_groups(void **state) {
    (void)state;
    static const double sizes[] = {0, 1, 0x1p-140, 3e-8, 1e-5, 300, 3e6, 3.4e38};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (int way = 0; way < 12; way++) {
            nd_dtype dtype = scale_dtypes[way % 3];
            if (dtype == ND_F16 && sizes[i] > 4e5)
                continue;
            nd_auto nd_tensor *weight = nd_empty(ND_SHAPE(3, 4), ND_F64);
            const double signs[] = {1, 1, 1, 1, -1, -1, -1, -1, 1, -1, 0.25, 0};
            for (int k = 0; k < 12; k++)
                set_element(nd_get_data(weight), ND_F64, k, sizes[i] * signs[k]);
            quantized w = quantize(weight, way / 3 % 2 ? 8 : 4, 4, dtype, way >= 6);
            check_nearness(weight, &w);
            release_quantized(&w);
        }
}

static void test_what_no_scale_takes_is_refused(void **state) {
    (void)state;
    static const struct {
        double number;
        nd_dtype dtype;
    } refused[] = {{INFINITY, ND_F32}, {-INFINITY, ND_BF16}, {(double)NAN, ND_F32},
                   {1e300, ND_F32},    {1e8, ND_F16},        {(double)NAN, ND_F16}};
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        for (int way = 0; way < 4; way++) {
            nd_auto nd_tensor *weight = nd_zeros(ND_SHAPE(2, 6), ND_F64);
            set_element(nd_get_data(weight), ND_F64, 9, refused[i].number);
            nd_tensor *values = NULL, *scales = NULL, *zeros = NULL;
            assert_status(nd_quantize(weight, way % 2 ? 8 : 4, 2, refused[i].dtype, &values,
                                      &scales, way >= 2 ? &zeros : NULL),
                          ND_ERROR_INVALID_ARGUMENT);
            assert_true(!values && !scales && !zeros);
        }
}

/// More axes, none, and no elements.
static void test_shapes_of_weights(void **state) {
    (void)state;
    static const struct {
        int ndim;
        int64_t shape[ND_MAX_DIMS];
    } shapes[] = {{1, {8}}, {3, {2, 3, 8}}, {2, {0, 8}}, {8, {1, 2, 1, 1, 2, 1, 1, 8}}};
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (int bits = 4; bits <= 8; bits += 4) {
            nd_auto nd_tensor *weight =
                random_tensor(DENSE, shapes[i].ndim, shapes[i].shape, ND_F32, -1, 1);
            nd_tensor *parts[3] = {NULL};
            assert_ok(nd_quantize(weight, bits, 4, ND_F32, &parts[0], &parts[1], &parts[2]));
            nd_auto nd_tensor *back = nd_dequantize(parts[0], parts[1], parts[2], ND_F32);
            assert_handle(back);
            assert_shape(back, shapes[i].ndim, shapes[i].shape);
            for (int64_t k = 0; k < nd_get_numel(weight); k++)
                assert_close("dequantize", at_flat(back, k), at_flat(weight, k), 0,
                             bits == 4 ? 0.07 : 0.004);
            for (int k = 0; k < 3; k++)
                nd_release(parts[k]);
        }
}

// -------------------------------------------------------------------------------------------------
// two int4 to a byte

static void test_pairs_are_packed(void **state) {
    (void)state;
    for (int how = DENSE; how < LAYOUTS; how++)
        for (int dtype = 0; dtype < 2; dtype++) {
            nd_auto nd_tensor *x = random_tensor((layout)how, 3, (const int64_t[]){3, 4, 6},
                                                 dtype ? ND_I8 : ND_U8, 0, 0);
            nd_auto nd_tensor *packed = nd_pack_int4(x);
            nd_auto nd_tensor *back = nd_unpack_int4(packed);
            assert_handle(back);
            assert_shape(packed, 3, (const int64_t[]){3, 4, 3});
            assert_shape(back, 3, (const int64_t[]){3, 4, 6});
            for (int64_t i = 0; i < nd_get_numel(x); i++) {
                int lower = (int)at_flat(x, i) & 15, byte = (int)at_flat(packed, i / 2);
                assert_int_equal(i % 2 ? byte >> 4 : byte & 15, lower);
                assert_int_equal((int)at_flat(back, i), lower);
            }
        }
    nd_auto nd_tensor *nothing = nd_zeros(ND_SHAPE(3, 0), ND_U8);
    nd_auto nd_tensor *packed = nd_pack_int4(nothing);
    nd_auto nd_tensor *back = nd_unpack_int4(packed);
    assert_handle(back);
    assert_shape(back, 2, (const int64_t[]){3, 0});
}

static void test_what_cannot_be_packed(void **state) {
    (void)state;
    nd_auto nd_tensor *odd = nd_zeros(ND_SHAPE(4, 3), ND_U8);
    nd_auto nd_tensor *wide = nd_zeros(ND_SHAPE(4), ND_I32);
    nd_auto nd_tensor *bytes = nd_zeros(ND_SHAPE(4), ND_I8);
    nd_auto nd_tensor *number = nd_scalar(1, ND_U8);
    assert_refused(nd_pack_int4(odd), ND_ERROR_SHAPE, "pack_int4");
    assert_refused(nd_pack_int4(wide), ND_ERROR_DTYPE, "pack_int4");
    assert_refused(nd_pack_int4(number), ND_ERROR_SHAPE, "pack_int4");
    assert_refused(nd_pack_int4(NULL), ND_ERROR_INVALID_ARGUMENT, "pack_int4");
    assert_refused(nd_unpack_int4(bytes), ND_ERROR_DTYPE, "unpack_int4");
    assert_refused(nd_unpack_int4(number), ND_ERROR_SHAPE, "unpack_int4");
    assert_refused(nd_unpack_int4(NULL), ND_ERROR_INVALID_ARGUMENT, "unpack_int4");
}

// -------------------------------------------------------------------------------------------------
// the product

/// Unit of rounding of what is computed in, and of the result.
static double unit_of(nd_dtype dtype) {
    return dtype == ND_F64 ? 0x1p-53 : 0x1p-24;
}
static double result_unit_of(nd_dtype dtype) {
    return dtype == ND_F16 ? 0x1p-11 : dtype == ND_BF16 ? 0x1p-8 : 0;
}

static void check_product(const nd_tensor *y, const nd_tensor *x, const quantized *w,
                          const nd_tensor *bias) {
    nd_dtype dtype = nd_get_dtype(x);
    assert_int_equal(nd_get_dtype(y), dtype);
    double units = (double)(w->k + w->k / w->group + 4) * unit_of(dtype);
    for (int64_t i = 0; i < nd_get_numel(y); i++) {
        int64_t row = i / w->rows, column = i % w->rows;
        long double sum = 0, size = 0;
        for (int64_t k = 0; k < w->k; k++) {
            long double term = (long double)at_flat(x, row * w->k + k) * meant(w, column, k);
            sum += term;
            size += fabsl(term);
        }
        if (bias) {
            sum += at(bias, 1, &column);
            size += fabs(at(bias, 1, &column));
        }
        double bound = (double)size * units;
        bound += result_unit_of(dtype) * (fabs((double)sum) + bound);
        if (!(fabs(at_flat(y, i) - (double)sum) <= bound))
            fail_msg(
                "%s, n %d, k %d, group %d, %s, %s, element %d: got %.9g, expected %.9g within %g",
                nd_dtype_get_name(dtype), (int)w->rows, (int)w->k, (int)w->group,
                nd_dtype_get_name(nd_get_dtype(w->values)),
                nd_dtype_get_name(nd_get_dtype(w->scales)), (int)i, at_flat(y, i), (double)sum,
                bound);
    }
}

static const struct {
    int64_t m, n, k, group;
} product_sizes[] = {{1, 7, 64, 32}, {1, 9, 60, 2},   {4, 5, 96, 96},    {1, 300, 512, 128},
                     {3, 2, 6, 6},   {2, 33, 70, 14}, {20, 70, 140, 28}, {40, 3, 1024, 64}};

static void every_product(void) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F16, ND_BF16, ND_F64};
    for (size_t s = 0; s < COUNT_OF(product_sizes); s++)
        for (int way = 0; way < 24; way++) {
            nd_dtype dtype = dtypes[way % 4];
            const int64_t n = product_sizes[s].n, k = product_sizes[s].k;
            nd_auto nd_tensor *weight = random_dense(2, (const int64_t[]){n, k}, ND_F32, -1, 2);
            quantized w = quantize(weight, way / 4 % 2 ? 8 : 4, product_sizes[s].group,
                                   scale_dtypes[way % 3], way >= 12);
            nd_auto nd_tensor *x =
                random_tensor((layout)(way % LAYOUTS), 3,
                              (const int64_t[]){1, product_sizes[s].m, k}, dtype, -2, 2);
            nd_auto nd_tensor *bias =
                way % 5 ? random_dense(1, &n, way % 2 ? dtype : ND_F32, -3, 3) : NULL;
            if (dtype == ND_F64 && bias && nd_get_dtype(bias) == ND_F32) {
                assert_refused(nd_quantized_linear(x, w.values, w.scales, w.zeros, bias),
                               ND_ERROR_DTYPE, "quantized_linear");
            } else {
                nd_auto nd_tensor *y = nd_quantized_linear(x, w.values, w.scales, w.zeros, bias);
                assert_handle(y);
                assert_shape(y, 3, (const int64_t[]){1, product_sizes[s].m, n});
                check_product(y, x, &w, bias);
            }
            release_quantized(&w);
        }
}

static void test_products_are_within_their_bound(void **state) {
    (void)state;
    on_every_isa(every_product);
}

/// Operands that lie in every way are read as what they show.
static void test_operands_that_lie_apart(void **state) {
    (void)state;
    for (int how = DENSE; how < LAYOUTS; how++)
        for (int bits = 4; bits <= 8; bits += 4) {
            const int64_t n = 6, k = 12;
            quantized w = {.rows = n, .k = k, .group = 4};
            w.values = random_tensor((layout)how, 2, (const int64_t[]){n, bits == 8 ? k : k / 2},
                                     bits == 8 ? ND_I8 : ND_U8, 0, 0);
            w.scales = random_tensor((layout)how, 2, (const int64_t[]){n, 3}, ND_BF16, 0.1, 2);
            w.zeros = random_tensor((layout)how, 2, (const int64_t[]){n, 3}, ND_BF16, -4, 4);
            nd_auto nd_tensor *bias = random_tensor((layout)how, 1, &n, ND_F32, -1, 1);
            nd_auto nd_tensor *x =
                random_tensor((layout)how, 2, (const int64_t[]){3, k}, ND_F32, -1, 1);
            nd_auto nd_tensor *y = nd_quantized_linear(x, w.values, w.scales, w.zeros, bias);
            assert_handle(y);
            check_product(y, x, &w, bias);
            check_dequantized(&w);
            release_quantized(&w);
        }
}

static void test_products_of_no_rows(void **state) {
    (void)state;
    nd_auto nd_tensor *values = nd_zeros(ND_SHAPE(3, 4), ND_I8);
    nd_auto nd_tensor *scales = nd_ones(ND_SHAPE(3, 1), ND_F32);
    nd_auto nd_tensor *no_rows = nd_zeros(ND_SHAPE(2, 0, 4), ND_F32);
    nd_auto nd_tensor *y = nd_quantized_linear(no_rows, values, scales, NULL, NULL);
    assert_handle(y);
    assert_shape(y, 3, (const int64_t[]){2, 0, 3});
    nd_auto nd_tensor *no_values = nd_zeros(ND_SHAPE(0, 4), ND_I8);
    nd_auto nd_tensor *no_scales = nd_ones(ND_SHAPE(0, 1), ND_F32);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *z = nd_quantized_linear(x, no_values, no_scales, NULL, NULL);
    assert_handle(z);
    assert_shape(z, 1, (const int64_t[]){0});
}

/// y = x w^T; the gradients of sum(y r) for x (by the rule) and for the scales and zeros.
static void test_gradients(void **state) {
    (void)state;
    for (int of_scales = 0; of_scales < 2; of_scales++) {
        const int64_t m = 3, n = 4, k = 8;
        nd_auto nd_tensor *weight = random_dense(2, (const int64_t[]){n, k}, ND_F32, -1, 1);
        quantized w = quantize(weight, 4, 4, ND_F32, true);
        nd_auto nd_tensor *x = random_dense(2, (const int64_t[]){m, k}, ND_F32, -1, 1);
        nd_auto nd_tensor *r = random_dense(2, (const int64_t[]){m, n}, ND_F32, -1, 1);
        assert_ok(nd_set_requires_grad(x, true));
        if (of_scales) {
            assert_ok(nd_set_requires_grad(w.scales, true));
            assert_ok(nd_set_requires_grad(w.zeros, true));
        }
        nd_auto nd_tensor *y = nd_quantized_linear(x, w.values, w.scales, w.zeros, NULL);
        nd_auto nd_tensor *product = nd_mul(y, r);
        nd_auto nd_tensor *loss = nd_sum(product, 0, NULL, false);
        assert_handle(loss);
        assert_ok(nd_backward(loss, NULL));
        for (int64_t i = 0; i < m * k; i++) {
            double expected = 0;
            for (int64_t j = 0; j < n; j++)
                expected += at_flat(r, i / k * n + j) * meant(&w, j, i % k);
            assert_close("x", at_flat(nd_get_grad(x), i), expected, 1e-5, 1e-5);
        }
        for (int64_t i = 0; i < n * 2 && of_scales; i++) {
            double scale = 0, zero = 0;
            const int64_t place[] = {i / 2, i % 2};
            for (int64_t j = 0; j < m * 4; j++) {
                int64_t column = i % 2 * 4 + j % 4;
                double factor = at_flat(r, j / 4 * n + i / 2) * at_flat(x, j / 4 * k + column);
                scale += factor * (integer_of(w.values, i / 2, column) - zero_of(&w, place));
                zero -= factor * at(w.scales, 2, place);
            }
            assert_close("scales", at_flat(nd_get_grad(w.scales), i), scale, 1e-5, 1e-4);
            assert_close("zeros", at_flat(nd_get_grad(w.zeros), i), zero, 1e-5, 1e-5);
        }
        release_quantized(&w);
    }
}

// -------------------------------------------------------------------------------------------------
// what is refused

static void test_weights_that_cannot_be_quantized(void **state) {
    (void)state;
    nd_tensor *a = NULL, *b = NULL;
    nd_auto nd_tensor *weight = nd_zeros(ND_SHAPE(2, 12), ND_F32);
    nd_auto nd_tensor *integers = nd_zeros(ND_SHAPE(2, 12), ND_I32);
    nd_auto nd_tensor *empty = nd_zeros(ND_SHAPE(2, 0), ND_F32);
    nd_auto nd_tensor *number = nd_scalar(1, ND_F32);
    assert_status(nd_quantize(NULL, 8, 0, ND_F32, &a, &b, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_quantize(weight, 8, 0, ND_F32, NULL, &b, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_quantize(weight, 8, 0, ND_F32, &a, NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_quantize(integers, 8, 0, ND_F32, &a, &b, NULL), ND_ERROR_DTYPE);
    assert_status(nd_quantize(empty, 8, 0, ND_F32, &a, &b, NULL), ND_ERROR_SHAPE);
    assert_status(nd_quantize(number, 8, 0, ND_F32, &a, &b, NULL), ND_ERROR_SHAPE);
    assert_status(nd_quantize(weight, 5, 0, ND_F32, &a, &b, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_quantize(weight, 8, 5, ND_F32, &a, &b, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_quantize(weight, 8, -4, ND_F32, &a, &b, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_quantize(weight, 8, 24, ND_F32, &a, &b, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_quantize(weight, 4, 3, ND_F32, &a, &b, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_quantize(weight, 8, 0, ND_F64, &a, &b, NULL), ND_ERROR_DTYPE);
    assert_status(nd_quantize(weight, 8, 0, ND_DTYPE_COUNT, &a, &b, NULL), ND_ERROR_DTYPE);
    assert_true(!a && !b);
}

static void test_operands_that_do_not_fit(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(2, 12), ND_F32);
    nd_auto nd_tensor *values = nd_zeros(ND_SHAPE(3, 12), ND_I8);
    nd_auto nd_tensor *pairs = nd_zeros(ND_SHAPE(3, 6), ND_U8);
    nd_auto nd_tensor *scales = nd_zeros(ND_SHAPE(3, 4), ND_F32);
    nd_auto nd_tensor *halves = nd_zeros(ND_SHAPE(3, 4), ND_F16);
    nd_auto nd_tensor *doubles = nd_zeros(ND_SHAPE(3, 4), ND_F64);
    nd_auto nd_tensor *other = nd_zeros(ND_SHAPE(3, 5), ND_F32);
    nd_auto nd_tensor *fewer = nd_zeros(ND_SHAPE(2, 4), ND_F32);
    nd_auto nd_tensor *bias = nd_zeros(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *number = nd_scalar(1, ND_F32);
    const char *name = "quantized_linear";
#define REFUSED(status, ...) assert_refused(nd_quantized_linear(__VA_ARGS__), status, name)
    REFUSED(ND_ERROR_INVALID_ARGUMENT, NULL, values, scales, NULL, NULL);
    REFUSED(ND_ERROR_INVALID_ARGUMENT, x, NULL, scales, NULL, NULL);
    REFUSED(ND_ERROR_INVALID_ARGUMENT, x, values, NULL, NULL, NULL);
    REFUSED(ND_ERROR_DTYPE, values, values, scales, NULL, NULL);
    REFUSED(ND_ERROR_DTYPE, x, x, scales, NULL, NULL);
    REFUSED(ND_ERROR_DTYPE, x, values, doubles, NULL, NULL);
    REFUSED(ND_ERROR_DTYPE, x, values, values, NULL, NULL);
    REFUSED(ND_ERROR_DTYPE, x, values, scales, halves, NULL);
    REFUSED(ND_ERROR_SHAPE, number, values, scales, NULL, NULL);
    REFUSED(ND_ERROR_SHAPE, bias, values, scales, NULL, NULL);
    REFUSED(ND_ERROR_SHAPE, x, values, other, NULL, NULL);
    REFUSED(ND_ERROR_SHAPE, x, values, fewer, NULL, NULL);
    REFUSED(ND_ERROR_SHAPE, x, values, number, NULL, NULL);
    REFUSED(ND_ERROR_SHAPE, x, pairs, scales, NULL, NULL); // groups of three
    REFUSED(ND_ERROR_SHAPE, x, values, scales, other, NULL);
    REFUSED(ND_ERROR_SHAPE, x, values, scales, NULL, bias);
    REFUSED(ND_ERROR_DTYPE, x, values, scales, NULL, values);
#undef REFUSED
    assert_refused(nd_dequantize(values, scales, NULL, ND_I32), ND_ERROR_DTYPE, "dequantize");
    assert_refused(nd_dequantize(values, other, NULL, ND_F32), ND_ERROR_SHAPE, "dequantize");
    assert_refused(nd_dequantize(values, scales, NULL, ND_DTYPE_COUNT), ND_ERROR_DTYPE,
                   "dequantize");
}

/// As the reader of GGUF gives it.
static void test_rows_without_elements(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_I8, ND_U8};
    for (int d = 0; d < 2; d++) {
        nd_auto nd_tensor *values = nd_zeros(ND_SHAPE(5, 0), dtypes[d]);
        nd_auto nd_tensor *scales = nd_zeros(ND_SHAPE(5, 0), ND_F16);
        nd_auto nd_tensor *weight = nd_dequantize(values, scales, NULL, ND_F32);
        assert_handle(weight);
        assert_int_equal(nd_get_shape(weight)[0], 5);
        assert_int_equal(nd_get_shape(weight)[1], 0);
        nd_auto nd_tensor *one = nd_zeros(ND_SHAPE(5, 1), ND_F16);
        assert_null(nd_dequantize(values, one, NULL, ND_F32));
        nd_error_clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_elements_are_near_what_stands_for_them),
        ND_TEST(test_special_groups),
        ND_TEST(test_what_no_scale_takes_is_refused),
        ND_TEST(test_shapes_of_weights),
        ND_TEST(test_pairs_are_packed),
        ND_TEST(test_what_cannot_be_packed),
        ND_TEST(test_products_are_within_their_bound),
        ND_TEST(test_operands_that_lie_apart),
        ND_TEST(test_products_of_no_rows),
        ND_TEST(test_gradients),
        ND_TEST(test_weights_that_cannot_be_quantized),
        ND_TEST(test_operands_that_do_not_fit),
        ND_TEST(test_rows_without_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
