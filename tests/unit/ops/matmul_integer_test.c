// nd_matmul_integer against sums of 64 bits, element by element: equal modulo 2^32, whatever the
// shapes, layouts, signs and zero points, under each set of instructions, by the library and without.
#include "kernels/cpu/cpu.h"
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>
#include <nd/out.h>
#include <nd/quantization.h>

static const nd_dtype dtypes[] = {ND_I8, ND_U8};

/// How the bytes of an operand are chosen.
typedef enum filling { ANY, ENDS, HIGHEST, LOWEST, FILLINGS } filling;

static uint8_t byte_of(filling how, nd_dtype dtype) {
    const uint8_t ends[] = {dtype == ND_I8 ? 0x80 : 0, dtype == ND_I8 ? 0x7F : 0xFF};
    if (how == ANY)
        return (uint8_t)(rand() >> 7);
    return ends[how == ENDS ? rand() >> 7 & 1 : how == HIGHEST];
}

/// A tensor of the dtype that lies as asked, its bytes filled. Expanded axes are filled again.
static nd_tensor *filled(layout lies, int ndim, const int64_t *shape, nd_dtype dtype, filling how) {
    nd_tensor *x = random_tensor(lies, ndim, shape, dtype, 0, 1);
    uint8_t *data = nd_get_data(x);
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        int64_t index[ND_MAX_DIMS], offset = 0;
        coordinates_of(ndim, shape, flat, index);
        for (int i = 0; i < ndim; i++)
            offset += shape[i] == 1 ? 0 : index[i] * nd_get_strides(x)[i];
        data[offset] = byte_of(how, dtype);
    }
    return x;
}

static int64_t byte_at(const nd_tensor *x, int64_t offset) {
    const uint8_t *data = nd_get_data(x);
    return nd_get_dtype(x) == ND_I8 ? (int8_t)data[offset] : data[offset];
}

/// Offset of the batch of x, whose last two axes are no batch.
static int64_t batch_offset(const nd_tensor *x, int batch, const int64_t *index) {
    int64_t offset = 0;
    int own = nd_get_ndim(x) - 2;
    for (int i = 0; i < own; i++)
        if (nd_get_shape(x)[i] != 1)
            offset += index[batch - own + i] * nd_get_strides(x)[i];
    return offset;
}

/// What a zero point is for a line: a row of a, whose axis is 2 counted from the end, or a column of
/// b, 1. NULL: 0.
static int64_t zero_at(const nd_tensor *zero, int batch, const int64_t *index, int64_t line,
                       int axis) {
    if (!zero)
        return 0;
    if (nd_get_numel(zero) == 1)
        return byte_at(zero, 0);
    int ndim = nd_get_ndim(zero), at = ndim == 1 ? 0 : ndim - axis;
    return byte_at(zero, batch_offset(zero, batch, index) +
                             (nd_get_shape(zero)[at] == 1 ? 0 : line * nd_get_strides(zero)[at]));
}

static void check_result(const nd_tensor *y, const nd_tensor *a, const nd_tensor *b,
                         const nd_tensor *a_zero, const nd_tensor *b_zero) {
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), ND_I32);
    const bool row = nd_get_ndim(a) == 1, column = nd_get_ndim(b) == 1;
    const int batch = nd_get_ndim(y) - !row - !column;
    const int64_t depth = nd_get_size(a, -1);
    const int64_t a_row = row ? 0 : nd_get_strides(a)[nd_get_ndim(a) - 2];
    const int64_t a_k = nd_get_strides(a)[nd_get_ndim(a) - 1];
    const int64_t b_k = nd_get_strides(b)[column ? 0 : nd_get_ndim(b) - 2];
    const int64_t b_column = column ? 0 : nd_get_strides(b)[nd_get_ndim(b) - 1];
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        int64_t index[ND_MAX_DIMS], sum = 0;
        coordinates_of(nd_get_ndim(y), nd_get_shape(y), flat, index);
        const int64_t i = row ? 0 : index[batch], j = column ? 0 : index[batch + !row];
        const int64_t a_at = batch_offset(a, batch, index) + i * a_row;
        const int64_t b_at = batch_offset(b, batch, index) + j * b_column;
        const int64_t less_a = zero_at(a_zero, batch, index, i, 2);
        const int64_t less_b = zero_at(b_zero, batch, index, j, 1);
        for (int64_t k = 0; k < depth; k++)
            sum += (byte_at(a, a_at + k * a_k) - less_a) * (byte_at(b, b_at + k * b_k) - less_b);
        const int32_t got = (int32_t)at_flat(y, flat);
        if ((uint32_t)got != (uint32_t)sum)
            fail_msg("[%lld, %lld] of %s %s, %s, k %lld: got %d, expected %lld", (long long)i,
                     (long long)j, nd_dtype_get_name(nd_get_dtype(a)),
                     nd_dtype_get_name(nd_get_dtype(b)), nd__cpu_isa(), (long long)depth, got,
                     (long long)sum);
    }
}

static void check(const nd_tensor *a, const nd_tensor *b, const nd_tensor *a_zero,
                  const nd_tensor *b_zero) {
    nd_auto nd_tensor *y = nd_matmul_integer(a, b, a_zero, b_zero);
    check_result(y, a, b, a_zero, b_zero);
}

// ---------------------------------------------------------------------------------------- every shape

static const struct {
    int andim;
    int64_t a[4];
    int bndim;
    int64_t b[4];
} cases[] = {
    {2, {1, 1}, 2, {1, 1}},
    {2, {3, 5}, 2, {5, 4}},
    {2, {37, 65}, 2, {65, 41}},
    {2, {130, 301}, 2, {301, 70}},
    {1, {6}, 1, {6}},
    {1, {301}, 1, {301}},
    {1, {70}, 2, {70, 45}},
    {2, {45, 70}, 1, {70}},
    {3, {4, 5, 6}, 1, {6}},
    {1, {6}, 3, {4, 6, 5}},
    {3, {4, 5, 6}, 2, {6, 7}},
    {3, {4, 5, 6}, 3, {4, 6, 7}},
    {4, {2, 1, 5, 6}, 3, {3, 6, 7}},
    {2, {5, 6}, 3, {4, 6, 7}},
    {3, {1, 40, 30}, 3, {9, 30, 20}},
    {2, {1, 33}, 2, {33, 150}},
    {2, {150, 33}, 2, {33, 1}},
    {2, {200, 1}, 2, {1, 90}},
    {2, {2, 129}, 2, {129, 66}},
    {2, {3, 70}, 2, {70, 17}},
    {2, {7, 131}, 2, {131, 100}},
    {2, {100, 131}, 2, {131, 5}},
    {2, {60, 37}, 2, {37, 8}},
    {2, {4, 300}, 2, {300, 6}},
    {2, {9, 520}, 2, {520, 33}},
    {3, {5, 1, 70}, 3, {5, 70, 40}},
    {3, {70, 3, 4}, 3, {70, 4, 3}},
    {2, {0, 4}, 2, {4, 3}},
    {2, {3, 0}, 2, {0, 4}},
    {3, {0, 2, 3}, 2, {3, 2}},
    {1, {0}, 1, {0}},
};

/// A zero point of one of the shapes that are allowed beside x; NULL sometimes. `axis`, counted from
/// the end, has its own.
static nd_tensor *zero_point(const nd_tensor *x, int axis) {
    int ndim = nd_get_ndim(x);
    int64_t shape[ND_MAX_DIMS];
    filling how = (filling)(rand() % FILLINGS);
    nd_dtype dtype = nd_get_dtype(x);
    switch (rand() % 5) {
    case 0:
        return NULL;
    case 1:
        return filled(DENSE, 0, NULL, dtype, how);
    case 2:
        return filled((layout)(rand() % LAYOUTS), ND_SHAPE(1), dtype, how);
    case 3:
        if (ndim > 1)
            return filled((layout)(rand() % LAYOUTS), ND_SHAPE(nd_get_size(x, -axis)), dtype, how);
        return NULL;
    default:
        if (ndim < 2)
            return filled(DENSE, 0, NULL, dtype, how);
        for (int i = 0; i < ndim; i++)
            shape[i] = rand() % 3 ? nd_get_shape(x)[i] : 1;
        shape[ndim - (3 - axis)] = 1;
        int missing = rand() % 2 ? rand() % (ndim - 1) : 0;
        return filled((layout)(rand() % LAYOUTS), ndim - missing, shape + missing, dtype, how);
    }
}

static void every_product(void) {
    for (size_t c = 0; c < COUNT_OF(cases); c++)
        for (int way = 0; way<4 * LAYOUTS * LAYOUTS; way += cases[c].a[0]> 99 ? 7 : 1) {
            nd_auto nd_tensor *a = filled((layout)(way / 4 % LAYOUTS), cases[c].andim, cases[c].a,
                                          dtypes[way % 2], (filling)(rand() % FILLINGS));
            nd_auto nd_tensor *b = filled((layout)(way / 4 / LAYOUTS), cases[c].bndim, cases[c].b,
                                          dtypes[way / 2 % 2], (filling)(rand() % FILLINGS));
            nd_auto nd_tensor *a_zero = zero_point(a, 2);
            nd_auto nd_tensor *b_zero = zero_point(b, 1);
            check(a, b, a_zero, b_zero);
        }
}

static void random_products(void) {
    for (int round = 0; round < 60; round++) {
        int64_t m = 1 + rand() % (rand() % 2 ? 12 : 70), n = 1 + rand() % (rand() % 2 ? 12 : 150);
        int64_t k = 1 + rand() % (rand() % 2 ? 20 : 600);
        nd_auto nd_tensor *a = filled((layout)(rand() % LAYOUTS), ND_SHAPE(m, k),
                                      dtypes[rand() % 2], (filling)(rand() % FILLINGS));
        nd_auto nd_tensor *b = filled((layout)(rand() % LAYOUTS), ND_SHAPE(k, n),
                                      dtypes[rand() % 2], (filling)(rand() % FILLINGS));
        nd_auto nd_tensor *a_zero = zero_point(a, 2);
        nd_auto nd_tensor *b_zero = zero_point(b, 1);
        check(a, b, a_zero, b_zero);
    }
}

static void test_every_product_by_the_loops(void **state) {
    (void)state;
    nd__cpu_use_onednn(false);
    on_every_isa(every_product);
    on_every_isa(random_products);
    nd__cpu_use_onednn(true);
}

static void test_every_product(void **state) {
    (void)state;
    every_product();
    random_products();
}

// --------------------------------------------------------------------------------------- long sums

/// One value times another so often that sums pass 2^31, and 2^32.
static void check_long(int64_t m, int64_t n, int64_t k, nd_dtype a_dtype, nd_dtype b_dtype,
                       filling a_how, filling b_how) {
    nd_auto nd_tensor *a = filled(DENSE, ND_SHAPE(m, k), a_dtype, a_how);
    nd_auto nd_tensor *b = filled(DENSE, ND_SHAPE(k, n), b_dtype, b_how);
    nd_auto nd_tensor *turned = nd_transpose(b, 0, 1);
    nd_auto nd_tensor *lines = nd_contiguous(turned);
    nd_auto nd_tensor *along = nd_transpose(lines, 0, 1);
    nd_auto nd_tensor *zero = nd_full(0, NULL, a_dtype == ND_I8 ? 127 : 255, a_dtype);
    const int64_t x = (int64_t)at_flat(a, 0), y = (int64_t)at_flat(b, 0);
    const nd_tensor *const factors[] = {b, along};
    for (int way = 0; way < 4; way++) {
        const int64_t less = way / 2 ? (int64_t)at_flat(zero, 0) : 0;
        nd_auto nd_tensor *z = nd_matmul_integer(a, factors[way % 2], way / 2 ? zero : NULL, NULL);
        assert_handle(z);
        const int32_t *data = nd_get_data(z);
        for (int64_t i = 0; i < m * n; i++)
            assert_int_equal((uint32_t)data[i], (uint32_t)(k * (x - less) * y));
    }
}

static void long_sums(void) {
    static const int64_t sizes[][3] = {
        {1, 1, 70001}, {1, 40, 70001}, {3, 64, 70001}, {16, 33, 70001}, {40, 2, 70001}};
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int way = 0; way < 16; way++)
            check_long(sizes[s][0], sizes[s][1], sizes[s][2], dtypes[way % 2], dtypes[way / 2 % 2],
                       way & 4 ? LOWEST : HIGHEST, way & 8 ? LOWEST : HIGHEST);
}

static void test_long_sums_wrap(void **state) {
    (void)state;
    long_sums();
    nd__cpu_use_onednn(false);
    on_every_isa(long_sums);
    nd__cpu_use_onednn(true);
}

// -------------------------------------------------------------------------- large ones, and threads

/// What the threads share gives what one computes: all bytes, for sizes that leave something over.
static void test_threads_agree(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {
        {500, 391, 300}, {2, 3001, 700}, {3001, 3, 700}, {1, 1030, 2000}, {64, 1000, 513}};
    const int threads = nd_get_num_threads();
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int way = 0; way < 8; way++) {
            const int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
            nd_auto nd_tensor *a =
                filled(way & 4 ? TRANSPOSED : DENSE, ND_SHAPE(m, k), dtypes[way % 2], ENDS);
            nd_auto nd_tensor *b =
                filled(way & 4 ? TRANSPOSED : DENSE, ND_SHAPE(k, n), dtypes[way / 2 % 2], ANY);
            nd_auto nd_tensor *a_zero = filled(DENSE, ND_SHAPE(m), dtypes[way % 2], ANY);
            nd_auto nd_tensor *b_zero = filled(DENSE, ND_SHAPE(1), dtypes[way / 2 % 2], ANY);
            const nd_tensor *zeros[] = {way & 1 ? a_zero : NULL, b_zero};
            nd__cpu_use_onednn(false);
            nd_set_num_threads(1);
            nd_auto nd_tensor *expected = nd_matmul_integer(a, b, zeros[0], zeros[1]);
            for (int by = 0; by < 6; by++) {
                nd_set_num_threads(1 + by % 3);
                nd__cpu_use_onednn(by >= 3);
                nd_auto nd_tensor *y = nd_matmul_integer(a, b, zeros[0], zeros[1]);
                assert_handle(y);
                assert_memory_equal(nd_get_data(y), nd_get_data(expected), (size_t)(4 * m * n));
            }
        }
    nd_set_num_threads(threads);
}

// ---------------------------------------------------------------------------------- what surrounds it

static void test_results_in_tensors_that_are_given(void **state) {
    (void)state;
    nd_auto nd_tensor *a = filled(DENSE, ND_SHAPE(5, 40), ND_U8, ANY);
    nd_auto nd_tensor *b = filled(DENSE, ND_SHAPE(40, 30), ND_I8, ANY);
    nd_auto nd_tensor *zero = filled(DENSE, ND_SHAPE(30), ND_I8, ANY);
    for (int how = 0; how < LAYOUTS; how++) {
        if (how == EXPANDED)
            continue;
        nd_auto nd_tensor *out = random_tensor((layout)how, ND_SHAPE(5, 30), ND_I32, 0, 1);
        assert_ok(nd_matmul_integer_out(a, b, NULL, zero, out));
        check_result(out, a, b, NULL, zero);
    }
    nd_auto nd_tensor *other = nd_zeros(ND_SHAPE(5, 30), ND_I64);
    nd_auto nd_tensor *smaller = nd_zeros(ND_SHAPE(5, 29), ND_I32);
    assert_status(nd_matmul_integer_out(a, b, NULL, zero, other), ND_ERROR_DTYPE);
    assert_status(nd_matmul_integer_out(a, b, NULL, zero, smaller), ND_ERROR_SHAPE);
    assert_status(nd_matmul_integer_out(a, b, NULL, zero, NULL), ND_ERROR_INVALID_ARGUMENT);
}

static void test_operands_that_do_not_fit(void **state) {
    (void)state;
    nd_auto nd_tensor *a = nd_zeros(ND_SHAPE(2, 3, 4), ND_U8);
    nd_auto nd_tensor *b = nd_zeros(ND_SHAPE(4, 5), ND_I8);
    nd_auto nd_tensor *wide = nd_zeros(ND_SHAPE(4, 5), ND_I16);
    nd_auto nd_tensor *truths = nd_zeros(ND_SHAPE(4, 5), ND_BOOL);
    nd_auto nd_tensor *other = nd_zeros(ND_SHAPE(5, 5), ND_I8);
    nd_auto nd_tensor *batches = nd_zeros(ND_SHAPE(3, 4, 5), ND_I8);
    nd_auto nd_tensor *number = nd_scalar(1, ND_U8);
    nd_auto nd_tensor *signed_number = nd_scalar(1, ND_I8);
    nd_auto nd_tensor *four = nd_zeros(ND_SHAPE(4), ND_U8);
    nd_auto nd_tensor *five = nd_zeros(ND_SHAPE(5), ND_I8);
    nd_auto nd_tensor *along = nd_zeros(ND_SHAPE(2, 1, 4), ND_U8);
    nd_auto nd_tensor *down = nd_zeros(ND_SHAPE(4, 1), ND_I8);
    nd_auto nd_tensor *more = nd_zeros(ND_SHAPE(1, 1, 5), ND_I8);
    const char *name = "matmul_integer";
#define REFUSED(status, ...) assert_refused(nd_matmul_integer(__VA_ARGS__), status, name)
    REFUSED(ND_ERROR_INVALID_ARGUMENT, NULL, b, NULL, NULL);
    REFUSED(ND_ERROR_INVALID_ARGUMENT, a, NULL, NULL, NULL);
    REFUSED(ND_ERROR_DTYPE, a, wide, NULL, NULL);
    REFUSED(ND_ERROR_DTYPE, wide, b, NULL, NULL);
    REFUSED(ND_ERROR_DTYPE, a, truths, NULL, NULL);
    REFUSED(ND_ERROR_SHAPE, a, other, NULL, NULL);
    REFUSED(ND_ERROR_SHAPE, a, batches, NULL, NULL);
    REFUSED(ND_ERROR_SHAPE, a, signed_number, NULL, NULL);
    REFUSED(ND_ERROR_SHAPE, number, b, NULL, NULL);
    REFUSED(ND_ERROR_DTYPE, a, b, signed_number, NULL);
    REFUSED(ND_ERROR_DTYPE, a, b, number, number);
    REFUSED(ND_ERROR_SHAPE, a, b, four, NULL);
    REFUSED(ND_ERROR_SHAPE, a, b, along, NULL);
    REFUSED(ND_ERROR_SHAPE, a, b, NULL, down);
    REFUSED(ND_ERROR_SHAPE, a, b, NULL, more);
#undef REFUSED
    nd_auto nd_tensor *y = nd_matmul_integer(a, b, number, five);
    assert_shape(y, ND_SHAPE(2, 3, 5));
    assert_false(nd_requires_grad(y));
    // Leading axes may be missing, but the line's own are where they are.
    nd_auto nd_tensor *column = nd_zeros(ND_SHAPE(3, 1), ND_U8);
    nd_auto nd_tensor *row = nd_zeros(ND_SHAPE(1, 3), ND_U8);
    nd_auto nd_tensor *three = nd_zeros(ND_SHAPE(3, 3, 1), ND_U8);
    nd_auto nd_tensor *z = nd_matmul_integer(a, b, column, NULL);
    assert_shape(z, ND_SHAPE(2, 3, 5));
    assert_refused(nd_matmul_integer(a, b, row, NULL), ND_ERROR_SHAPE, name);
    assert_refused(nd_matmul_integer(a, b, three, NULL), ND_ERROR_SHAPE, name);
}

/// A manager that may not hold the result refuses it.
static void test_a_quota_refuses_the_result(void **state) {
    (void)state;
    nd_manager *small = nd_manager_new(NULL, "small");
    nd_with_manager(small) {
        nd_auto nd_tensor *a = filled(DENSE, ND_SHAPE(64, 64), ND_U8, ANY);
        assert_ok(nd_manager_set_quota(small, ND_CPU, 16384));
        assert_refused(nd_matmul_integer(a, a, NULL, NULL), ND_ERROR_QUOTA, "matmul_integer");
    }
    assert_ok(nd_manager_close(small, NULL));
    nd_release(small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_product_by_the_loops),
        ND_TEST(test_every_product),
        ND_TEST(test_long_sums_wrap),
        ND_TEST(test_threads_agree),
        ND_TEST(test_results_in_tensors_that_are_given),
        ND_TEST(test_operands_that_do_not_fit),
        ND_TEST(test_a_quota_refuses_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
