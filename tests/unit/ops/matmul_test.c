// Matrix products against plain loops: shapes, batches, transposes, dtypes, with oneDNN and
// without.
#include "kernels/cpu/cpu.h"
#include "lib/ops/matmul.h"
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

/// x as [batch..., rows, columns] at coordinates; 1-d operands are a row (a) or a column (b).
static double operand_at(const nd_tensor *x, int batch, const int64_t *index, int64_t row,
                         int64_t column, bool as_column) {
    int64_t full[ND_MAX_DIMS + 2];
    if (nd_get_ndim(x) == 1)
        return at_flat(x, as_column ? row : column);
    for (int i = 0; i < batch; i++)
        full[i] = index[i];
    full[batch] = row;
    full[batch + 1] = column;
    return at(x, batch + 2, full);
}

static void check_matmul(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *y = nd_matmul(a, b);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), nd_promote_dtypes(nd_get_dtype(a), nd_get_dtype(b)));
    bool row = nd_get_ndim(a) == 1, column = nd_get_ndim(b) == 1;
    int batch = nd_get_ndim(y) - !row - !column;
    int64_t depth = nd_get_size(a, -1);
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        int64_t index[ND_MAX_DIMS], i = 0, j = 0;
        coordinates_of(nd_get_ndim(y), nd_get_shape(y), flat, index);
        int next = batch;
        if (!row)
            i = index[next++];
        if (!column)
            j = index[next];
        double sum = 0, size = 0;
        for (int64_t k = 0; k < depth; k++) {
            double term =
                operand_at(a, batch, index, i, k, false) * operand_at(b, batch, index, k, j, true);
            sum += term;
            size += fabs(term);
        }
        assert_close("matmul", at_flat(y, flat), sum, 0,
                     size * (nd_get_dtype(y) == ND_F64 ? 1e-14 : 2e-6) + 1e-12);
    }
}

static const struct {
    int andim;
    int64_t a[4];
    int bndim;
    int64_t b[4];
} cases[] = {
    {2, {1, 1}, 2, {1, 1}},
    {2, {3, 5}, 2, {5, 4}},
    {2, {37, 65}, 2, {65, 41}},
    {2, {130, 300}, 2, {300, 70}},
    {1, {6}, 1, {6}},
    {1, {6}, 2, {6, 5}},
    {2, {5, 6}, 1, {6}},
    {3, {4, 5, 6}, 1, {6}},
    {1, {6}, 3, {4, 6, 5}},
    {3, {4, 5, 6}, 2, {6, 7}},
    {3, {4, 5, 6}, 3, {4, 6, 7}},
    {4, {2, 1, 5, 6}, 3, {3, 6, 7}},
    {2, {5, 6}, 3, {4, 6, 7}},
    {3, {1, 40, 30}, 3, {9, 30, 20}},
    {2, {1, 33}, 2, {33, 50}},
    {2, {50, 33}, 2, {33, 1}},
    {2, {200, 1}, 2, {1, 90}},
    {2, {9, 2}, 1, {2}},
    {2, {17, 9}, 2, {9, 20}},
    {2, {40, 300}, 1, {300}},
    {1, {300}, 2, {300, 130}},
    {2, {3, 150}, 1, {150}},
    {1, {140000}, 1, {140000}},
    {2, {2100, 5}, 1, {5}},
    {3, {5, 1, 70}, 3, {5, 70, 40}},
    {3, {70, 3, 4}, 3, {70, 4, 3}},
    {2, {0, 4}, 2, {4, 3}},
    {2, {3, 0}, 2, {0, 4}},
    {3, {0, 2, 3}, 2, {3, 2}},
};

static void every_product(void) {
    for (size_t c = 0; c < COUNT_OF(cases); c++)
        for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
            // Every pair of layouts, for the large product a few.
            for (int how = 0; how<LAYOUTS * LAYOUTS; how += cases[c].a[0]> 100 ? 5 : 1) {
                layout a_how = (layout)(how % LAYOUTS), b_how = (layout)(how / LAYOUTS);
                nd_auto nd_tensor *a =
                    random_tensor(a_how, cases[c].andim, cases[c].a, (nd_dtype)dtype, -1, 1);
                nd_auto nd_tensor *b =
                    random_tensor(b_how, cases[c].bndim, cases[c].b, (nd_dtype)dtype, -1, 1);
                check_matmul(a, b);
            }
}

/// A product that takes several tiles, blocks of rows and steps: results here and there, and the last.
static void check_large_product(nd_dtype dtype, int64_t m, int64_t k, int64_t n) {
    nd_auto nd_tensor *a = random_tensor(DENSE, ND_SHAPE(m, k), dtype, -9, 9);
    nd_auto nd_tensor *b = random_tensor(DENSE, ND_SHAPE(k, n), dtype, -9, 9);
    nd_auto nd_tensor *y = nd_matmul(a, b);
    assert_handle(y);
    const double rounding = dtype == ND_F64 ? 1e-14 : dtype == ND_F16 ? 1e-3 : 0;
    for (int64_t flat = m * n - 1; flat >= 0; flat -= 1 + rand() % 997) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < k; i++) {
            double term = at_flat(a, flat / n * k + i) * at_flat(b, i * n + flat % n);
            sum += term;
            size += fabs(term);
        }
        assert_close("large product", at_flat(y, flat), sum, 0, size * rounding);
    }
}

static void every_large_product(void) {
    static const nd_dtype dtypes[] = {ND_F64, ND_F16, ND_I32};
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        check_large_product(dtypes[i], 205, 390, 521);
        check_large_product(dtypes[i], 4103, 3, 130);
    }
}

static void test_products_of_several_tiles(void **state) {
    (void)state;
    on_every_isa(every_large_product);
}

static void test_every_product_portable(void **state) {
    (void)state;
    nd__cpu_use_onednn(false);
    on_every_isa(every_product);
    nd__cpu_use_onednn(true);
}

static void test_every_product_by_the_library(void **state) {
    (void)state;
    every_product();
}

static void test_transposed_batches(void **state) {
    (void)state;
    nd_auto nd_tensor *a = random_tensor(DENSE, ND_SHAPE(3, 20, 30), ND_F32, -1, 1);
    nd_auto nd_tensor *b = random_tensor(DENSE, ND_SHAPE(3, 25, 30), ND_F32, -1, 1);
    nd_auto nd_tensor *b_turned = nd_transpose(b, 1, 2);
    check_matmul(a, b_turned);
    nd_auto nd_tensor *tokens = random_tensor(DENSE, ND_SHAPE(20, 3, 30), ND_F32, -1, 1);
    nd_auto nd_tensor *heads = nd_permute(tokens, 3, (int[]){1, 0, 2}); // rows lie apart
    check_matmul(heads, b_turned);
    nd_auto nd_tensor *slice = nd_slice(a, 2, 19, 3, 1);
    check_matmul(slice, b_turned);
}

static void check_linear(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias) {
    nd_auto nd_tensor *y = nd_linear(x, weight, bias);
    assert_handle(y);
    int ndim = nd_get_ndim(x);
    assert_int_equal(nd_get_ndim(y), ndim);
    int64_t depth = nd_get_size(x, -1), out = nd_get_size(weight, 0);
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        double sum = bias ? at_flat(bias, flat % out) : 0, size = 1;
        for (int64_t k = 0; k < depth; k++) {
            double term =
                at_flat(x, flat / out * depth + k) * at_flat(weight, flat % out * depth + k);
            sum += term;
            size += fabs(term);
        }
        assert_close("linear", at_flat(y, flat), sum, 0,
                     size * (nd_get_dtype(y) == ND_F64 ? 1e-14 : 2e-6));
    }
}

static const struct {
    int ndim;
    int64_t x[4];
    int64_t in, out;
} linears[] = {{1, {7}, 7, 5},          {2, {32, 64}, 64, 10}, {3, {2, 5, 7}, 7, 9},
               {4, {2, 3, 4, 5}, 5, 6}, {2, {1, 1}, 1, 1},     {2, {3, 0}, 0, 4},
               {2, {0, 3}, 3, 4}};

static void every_linear(void) {
    for (size_t c = 0; c < COUNT_OF(linears); c++)
        for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
            for (int how = 0; how < LAYOUTS; how++) {
                nd_auto nd_tensor *x = random_tensor((layout)how, linears[c].ndim, linears[c].x,
                                                     (nd_dtype)dtype, -1, 1);
                nd_auto nd_tensor *weight = random_tensor(
                    (layout)how, ND_SHAPE(linears[c].out, linears[c].in), (nd_dtype)dtype, -1, 1);
                nd_auto nd_tensor *bias =
                    random_tensor((layout)how, ND_SHAPE(linears[c].out), (nd_dtype)dtype, -1, 1);
                check_linear(x, weight, bias);
                check_linear(x, weight, NULL);
            }
}

static void test_linear(void **state) {
    (void)state;
    every_linear();
    nd__cpu_use_onednn(false);
    every_linear();
    nd__cpu_use_onednn(true);
}

/// A layer of f32 with a bias and without, on several numbers of threads, also into a result that is cut
/// out of another, against f64.
static void check_linear_on_threads(const nd_tensor *x, const nd_tensor *weight) {
    const int64_t rows = nd_get_size(x, 0), out = nd_get_size(weight, 0), in = nd_get_size(x, 1);
    const int threads = nd_get_num_threads();
    nd_auto nd_tensor *bias = random_dense(ND_SHAPE(out), ND_F32, -1, 1);
    nd_auto nd_tensor *wide = nd_cast(x, ND_F64);
    nd_auto nd_tensor *wide_of_weight = nd_cast(weight, ND_F64);
    nd_auto nd_tensor *wide_bias = nd_cast(bias, ND_F64);
    for (int biased = 0; biased < 2; biased++) {
        nd_auto nd_tensor *expected = nd_linear(wide, wide_of_weight, biased ? wide_bias : NULL);
        for (int count = 1; count <= 3; count++) {
            assert_int_equal(nd_set_num_threads(count), ND_OK);
            nd_auto nd_tensor *y = nd_linear(x, weight, biased ? bias : NULL);
            nd_auto nd_tensor *larger = nd_zeros(ND_SHAPE(rows, out + 7), ND_F32);
            nd_auto nd_tensor *part = nd_slice(larger, 3, out + 3, 1, 1);
            assert_int_equal(nd_linear_out(x, weight, biased ? bias : NULL, part), ND_OK);
            for (int64_t flat = 0; flat < rows * out; flat++) {
                assert_close("linear", at_flat(y, flat), at_flat(expected, flat), 0,
                             2e-6 * (double)in);
                assert_true(at_flat(part, flat) == at_flat(y, flat));
            }
            nd_auto nd_tensor *sum = nd_sum(larger, 0, NULL, false);
            nd_auto nd_tensor *part_sum = nd_sum(part, 0, NULL, false);
            assert_close("beside the result", nd_get_item(sum), nd_get_item(part_sum), 1e-4, 1e-2);
        }
    }
    nd_set_num_threads(threads);
}

/// A layer whose operands are cut out of others: rows, columns, depth, and how far the columns of the
/// weight are apart.
static void check_cut_linear(const int64_t shape[4]) {
    const int64_t rows = shape[0], out = shape[1], in = shape[2], apart = shape[3];
    nd_auto nd_tensor *wide_x = random_dense(ND_SHAPE(rows, in + 3), ND_F32, -1, 1);
    nd_auto nd_tensor *wide_weight = random_dense(ND_SHAPE(out, apart), ND_F32, -1, 1);
    nd_auto nd_tensor *x = nd_slice(wide_x, 1, in + 1, 1, 1);
    nd_auto nd_tensor *weight = nd_slice(wide_weight, apart - in, apart, 1, 1);
    check_linear_on_threads(x, weight);
}

/// Of few rows beside a large weight the transposed product is computed: whatever the numbers of rows,
/// columns and threads leave over.
static void test_linear_of_few_rows(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {
        {16, 512, 512, 512},    {17, 531, 507, 512},  {31, 1700, 150, 512}, {33, 140, 2040, 2048},
        {128, 515, 1000, 1024}, {32, 1600, 170, 177}, {32, 128, 784, 784},  {48, 101, 600, 603}};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        check_cut_linear(shapes[s]);
}

/// Of few columns the weight is copied with its rows dense, once or for each thread.
static void test_linear_of_few_columns(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {
        {16, 10, 256, 256}, {100, 2, 300, 301},   {17, 40, 1000, 1024}, {64, 100, 784, 784},
        {49, 48, 99, 99},   {130, 104, 900, 906}, {1024, 33, 250, 256}, {1000, 47, 2000, 2048},
        {257, 50, 64, 512}, {600, 105, 70, 70},   {512, 31, 3000, 3072}};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        check_cut_linear(shapes[s]);
}

/// Of a weight whose rows lie a multiple of 2 KiB apart, seen as [out, in], the halves are multiplied
/// one after the other where it has 257 to 384 of them: on both sides of these, and of 1024 rows.
static void test_linear_of_crowded_rows(void **state) {
    (void)state;
    // Rows, columns, depth, and how far the rows of the weight are apart.
    static const int64_t shapes[][4] = {
        {40, 512, 257, 512}, {70, 509, 256, 512}, {33, 530, 384, 1024},  {130, 512, 300, 1536},
        {50, 512, 385, 512}, {40, 512, 330, 528}, {1023, 140, 271, 512}, {1024, 140, 271, 512}};
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        const int64_t rows = shapes[s][0], out = shapes[s][1], in = shapes[s][2];
        const int64_t apart = shapes[s][3];
        nd_auto nd_tensor *steps = random_dense(ND_SHAPE(in, rows), ND_F32, -1, 1);
        nd_auto nd_tensor *x =
            s % 2 ? nd_transpose(steps, 0, 1) : random_dense(ND_SHAPE(rows, in), ND_F32, -1, 1);
        nd_auto nd_tensor *wide_weight = random_dense(ND_SHAPE(in, apart), ND_F32, -1, 1);
        nd_auto nd_tensor *part = nd_slice(wide_weight, apart - out, apart, 1, 1);
        nd_auto nd_tensor *weight = nd_transpose(part, 0, 1);
        check_linear_on_threads(x, weight);
    }
}

/// Where x's columns lie dense, too, the transposed product is that of both as they lie.
static void test_linear_of_dense_columns(void **state) {
    (void)state;
    // Rows, columns, depth, and how far the columns of x are apart.
    static const int64_t shapes[][4] = {
        {40, 40, 1000, 40}, {64, 64, 1024, 67}, {100, 103, 99, 128}, {257, 130, 300, 257},
        {16, 16, 48, 16},   {17, 300, 47, 20},  {700, 61, 49, 1024}, {129, 2000, 260, 129}};
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        const int64_t rows = shapes[s][0], out = shapes[s][1], in = shapes[s][2];
        const int64_t apart = shapes[s][3];
        nd_auto nd_tensor *steps = random_dense(ND_SHAPE(in, apart), ND_F32, -1, 1);
        nd_auto nd_tensor *part = nd_slice(steps, apart - rows, apart, 1, 1);
        nd_auto nd_tensor *x = nd_transpose(part, 0, 1);
        nd_auto nd_tensor *weight = random_dense(ND_SHAPE(out, in), ND_F32, -1, 1);
        check_linear_on_threads(x, weight);
        nd_auto nd_tensor *sums = random_dense(ND_SHAPE(rows, out), ND_F32, -1, 1);
        nd_auto nd_tensor *columns = nd_transpose(weight, 0, 1);
        nd_auto nd_tensor *product = nd_matmul(x, columns);
        nd_auto nd_tensor *expected = nd_add(sums, product);
        assert_ok(nd__matmul_add_to(sums, x, columns));
        for (int64_t flat = 0; flat < rows * out; flat++)
            assert_close("sums", at_flat(sums, flat), at_flat(expected, flat), 0,
                         1e-6 * (double)in);
    }
}

/// What is not a number, infinite or huge comes out of every way to multiply as of a plain loop.
static void check_special(nd_dtype dtype, int64_t m, int64_t n, int64_t k) {
    nd_auto nd_tensor *a = random_dense(ND_SHAPE(m, k), ND_F32, 0.5, 1);
    nd_auto nd_tensor *b = random_dense(ND_SHAPE(k, n), ND_F32, 0.5, 1);
    float *elements = nd_get_data(a);
    elements[(m - 1) * k + k / 2] = NAN;
    elements[k - 1] = INFINITY;
    if (m > 2)
        elements[k] = -INFINITY, elements[2 * k - 1] = INFINITY;
    nd_auto nd_tensor *a_cast = nd_cast(a, dtype);
    nd_auto nd_tensor *b_cast = nd_cast(b, dtype);
    nd_auto nd_tensor *y = nd_matmul(a_cast, b_cast);
    assert_handle(y);
    for (int64_t flat = 0; flat < m * n; flat++) {
        int64_t row = flat / n;
        double got = at_flat(y, flat);
        bool nan = row == m - 1 || (m > 2 && row == 1);
        assert_true(nan ? isnan(got) : row == 0 ? isinf(got) && got > 0 : isfinite(got));
    }
}

static void test_infinities_and_nan(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F32, ND_F64};
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        check_special(dtypes[i], 3, 2, 5);
        check_special(dtypes[i], 9, 17, 20);
        check_special(dtypes[i], 50, 60, 70);
        check_special(dtypes[i], 33, 1, 70);
        check_special(dtypes[i], 1, 40, 70);
        check_special(dtypes[i], 1, 1, 70000);
    }
}

/// Where an odd number of elements is added up in pairs the last one's other half multiplies nothing.
static void test_an_infinity_is_the_last_of_an_odd_number(void **state) {
    (void)state;
    static const int64_t depths[] = {41, 394, 999};
    for (size_t i = 0; i < COUNT_OF(depths); i++)
        for (int turned = 0; turned < 2; turned++) {
            const int64_t k = depths[i];
            nd_auto nd_tensor *a = nd_ones(ND_SHAPE(80, k), ND_BF16);
            nd_auto nd_tensor *last = nd_slice(a, k - 1, k, 1, 1);
            assert_ok(nd_fill_(last, INFINITY));
            nd_auto nd_tensor *b = turned ? nd_ones(ND_SHAPE(74, k), ND_BF16) : NULL;
            nd_auto nd_tensor *w =
                turned ? nd_transpose(b, 0, 1) : nd_ones(ND_SHAPE(k, 74), ND_BF16);
            nd_auto nd_tensor *y = nd_matmul(a, w);
            nd_auto nd_tensor *wide = nd_cast(y, ND_F32);
            const float *results = nd_get_data(wide);
            for (int64_t at = 0; at < nd_get_numel(wide); at++)
                assert_true(results[at] == INFINITY); // NaN is not
        }
}

/// A token of each sequence, cut from queries, keys and values that were computed together; and one
/// of all of them, seen by every sequence.
static void test_linear_of_rows_below_an_axis_of_size_one(void **state) {
    (void)state;
    nd_auto nd_tensor *fused = random_tensor(DENSE, ND_SHAPE(4, 1, 3 * 48), ND_F32, -1, 1);
    nd_auto nd_tensor *keys = nd_slice(fused, 48, 96, 1, 2);
    nd_auto nd_tensor *weight = random_tensor(DENSE, ND_SHAPE(40, 48), ND_F32, -1, 1);
    check_linear(keys, weight, NULL);
    nd_auto nd_tensor *first = nd_slice(keys, 0, 1, 1, 0);
    nd_auto nd_tensor *repeated = nd_expand(first, ND_SHAPE(5000, 1, 48));
    check_linear(repeated, weight, NULL);
    nd_auto nd_tensor *weight_turned = nd_transpose(weight, 0, 1);
    check_matmul(keys, weight_turned);
}

/// Products of 16-bit floats are rounded once, from an f32; those of integers wrap.
static void check_narrow(nd_dtype dtype, int64_t m, int64_t n, int64_t k, layout how) {
    nd_auto nd_tensor *a = random_tensor(how, ND_SHAPE(m, k), dtype, -1, 1);
    nd_auto nd_tensor *b = random_tensor(TRANSPOSED, ND_SHAPE(k, n), dtype, -1, 1);
    nd_auto nd_tensor *y = nd_matmul(a, b);
    nd_auto nd_tensor *weight = nd_transpose(b, 0, 1);
    nd_auto nd_tensor *bias = random_dense(ND_SHAPE(n), dtype, -1, 1);
    nd_auto nd_tensor *z = nd_linear(a, weight, bias);
    assert_handle(y);
    assert_handle(z);
    assert_int_equal(nd_get_dtype(y), dtype);
    double relative = dtype == ND_F16 ? 0x1p-11 : dtype == ND_BF16 ? 0x1p-8 : 0;
    uint64_t bits = 8 * nd_dtype_get_size(dtype);
    for (int64_t flat = 0; flat < m * n; flat++) {
        double sum = 0, size = 0;
        uint64_t wrapped = 0;
        for (int64_t i = 0; i < k; i++) {
            double x = at_flat(a, flat / n * k + i), w = at_flat(b, i * n + flat % n);
            sum += x * w;
            size += fabs(x * w);
            if (!is_float(dtype))
                wrapped += (uint64_t)(int64_t)x * (uint64_t)(int64_t)w;
        }
        double plus = at_flat(bias, flat % n);
        if (is_float(dtype)) {
            assert_close("matmul", at_flat(y, flat), sum, 1.01 * relative, 1e-6 * size);
            assert_close("linear", at_flat(z, flat), sum + plus, 1.01 * relative, 1e-6 * size);
            continue;
        }
        uint64_t mask = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
        uint64_t got = (uint64_t)(int64_t)at_flat(y, flat);
        uint64_t with_bias = (uint64_t)(int64_t)at_flat(z, flat);
        assert_int_equal(got & mask, wrapped & mask);
        assert_int_equal(with_bias & mask, (wrapped + (uint64_t)(int64_t)plus) & mask);
    }
}

/// A batch of products of any dtype, each by plain sums; a is one for all along the first axis.
static void check_batch(nd_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k,
                        layout how) {
    nd_auto nd_tensor *a = random_tensor(how, ND_SHAPE(1, batch, m, k), dtype, -1, 1);
    nd_auto nd_tensor *b =
        random_tensor((layout)((how + 2) % LAYOUTS), ND_SHAPE(3, batch, k, n), dtype, -1, 1);
    nd_auto nd_tensor *y = nd_matmul(a, b);
    assert_shape(y, ND_SHAPE(3, batch, m, n));
    double relative = dtype == ND_F16 ? 0x1p-11 : dtype == ND_BF16 ? 0x1p-8 : 0;
    double absolute = dtype == ND_F64 ? 1e-14 : 1e-6;
    double least = dtype == ND_F16 ? 0x1.01p-25 : 0; // half of what subnormal numbers are apart
    uint64_t bits = 8 * nd_dtype_get_size(dtype);
    uint64_t mask = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        int64_t entry = flat / (m * n), row = flat / n % m, column = flat % n;
        double sum = 0, size = 0;
        for (int64_t i = 0; i < k; i++) {
            double x = at_flat(a, (entry % batch * m + row) * k + i);
            double w = at_flat(b, (entry * k + i) * n + column);
            sum += x * w;
            size += fabs(x * w);
        }
        if (is_float(dtype))
            assert_close("batch", at_flat(y, flat), sum, 1.01 * relative, absolute * size + least);
        else
            assert_int_equal((uint64_t)(int64_t)at_flat(y, flat) & mask,
                             (uint64_t)(int64_t)sum & mask);
    }
}

static void small_batches(void) {
    static const int64_t sizes[][3] = {{1, 1, 1},  {1, 1, 2},  {1, 1, 17}, {1, 1, 64}, {4, 1, 1},
                                       {1, 5, 1},  {3, 4, 1},  {2, 2, 2},  {3, 3, 3},  {3, 3, 7},
                                       {3, 2, 46}, {46, 2, 3}, {65, 1, 2}, {5, 1, 9},  {1, 3, 20}};
    for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            for (int how = (int)i % 2; how < LAYOUTS; how += 2)
                for (int64_t batch = 1; batch <= 5; batch += 4)
                    check_batch((nd_dtype)dtype, batch, sizes[i][0], sizes[i][1], sizes[i][2],
                                (layout)how);
    check_batch(ND_F32, 9000, 1, 1, 3, DENSE); // on several threads
    check_batch(ND_F64, 3000, 3, 2, 5, TRANSPOSED);
}

static void test_batches_of_small_products(void **state) {
    (void)state;
    on_every_isa(small_batches);
}

static void narrow_products(void) {
    for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++) {
        if (dtype == ND_F32 || dtype == ND_F64)
            continue;
        check_narrow((nd_dtype)dtype, 1, 5, 3, DENSE);
        check_narrow((nd_dtype)dtype, 3, 40, 270, STEPPED);
        check_narrow((nd_dtype)dtype, 40, 33, 300, TRANSPOSED);
    }
}

/// Products of 16-bit floats that have vectors among their operands, and such that a library does.
static void narrow_floats(void) {
    for (int how = 0; how < LAYOUTS; how++) {
        check_narrow(ND_BF16, 90, 70, 130, (layout)how);
        check_narrow(ND_F16, 90, 70, 130, (layout)how);
        check_narrow(ND_BF16, 1, 70, 300, (layout)how);
        check_narrow(ND_F16, 1, 70, 300, (layout)how);
        check_narrow(ND_BF16, 50, 1, 37, (layout)how);
        check_narrow(ND_F16, 50, 1, 37, (layout)how);
        check_narrow(ND_BF16, 1, 1, 70000, (layout)how);
    }
}

static void test_products_of_every_dtype(void **state) {
    (void)state;
    on_every_isa(narrow_products);
    on_every_isa(narrow_floats);
    nd__cpu_use_onednn(false);
    narrow_floats();
    nd__cpu_use_onednn(true);
    nd_auto nd_tensor *half = random_dense(ND_SHAPE(3, 4), ND_BF16, -1, 1);
    nd_auto nd_tensor *single = random_dense(ND_SHAPE(4, 2), ND_F32, -1, 1);
    assert_ok(nd_set_requires_grad(half, true));
    assert_ok(nd_set_requires_grad(single, true));
    check_matmul(half, single);
    nd_auto nd_tensor *y = nd_matmul(half, single);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(nd_get_dtype(y), ND_F32);
    assert_int_equal(nd_get_dtype(nd_get_grad(half)), ND_BF16);
    assert_int_equal(nd_get_dtype(nd_get_grad(single)), ND_F32);
}

static void test_products_that_do_not_fit_are_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *a = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *b = nd_ones(ND_SHAPE(4, 5), ND_F32);
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(3, 3), ND_I32);
    nd_auto nd_tensor *truth = nd_ones(ND_SHAPE(2, 2), ND_BOOL);
    nd_auto nd_tensor *scalar = nd_scalar(1, ND_F32);
    nd_auto nd_tensor *batch = nd_ones(ND_SHAPE(2, 2, 3), ND_F32);
    nd_auto nd_tensor *other = nd_ones(ND_SHAPE(3, 3, 2), ND_F32);
    nd_auto nd_tensor *bias = nd_ones(ND_SHAPE(2), ND_F32);
    nd_auto nd_tensor *mixed = nd_matmul(a, whole);
    assert_int_equal(nd_get_dtype(mixed), ND_F32);
    assert_refused(nd_matmul(a, b), ND_ERROR_SHAPE, "matmul: shapes [2, 3] and [4, 5] do not fit");
    assert_refused(nd_matmul(truth, truth), ND_ERROR_DTYPE, "matmul: does not take bool");
    assert_refused(nd_linear(truth, truth, NULL), ND_ERROR_DTYPE,
                   "linear: does not take x of bool");
    assert_refused(nd_matmul(a, scalar), ND_ERROR_SHAPE, "matmul: an operand has no dimensions");
    assert_refused(nd_matmul(batch, other), ND_ERROR_SHAPE, "matmul: shapes [2] and [3]");
    assert_refused(nd_linear(a, b, NULL), ND_ERROR_SHAPE, "linear: shapes");
    assert_refused(nd_linear(a, a, a), ND_ERROR_SHAPE, "linear: bias has shape [2, 3]");
    assert_refused(nd_linear(scalar, a, NULL), ND_ERROR_SHAPE, "linear: x has 0 dimensions");
    nd_auto nd_tensor *fine = nd_linear(a, a, bias);
    assert_handle(fine);
}

static char *stack_begin, *stack_end;
static volatile sig_atomic_t signals, off_the_stack;

static void note_stack(int signal) {
    (void)signal;
    // Not the address of a variable: the address sanitizer keeps those elsewhere.
    const char *here = __builtin_frame_address(0);
    signals++;
    off_the_stack += here < stack_begin || here >= stack_end;
}

/// Generated code may use the stack pointer for other things; no handler may see that.
static void test_signals_arrive_on_the_stack_of_the_thread(void **state) {
    (void)state;
    pthread_attr_t attributes;
    void *lowest;
    size_t bytes;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attributes), 0);
    pthread_attr_getstack(&attributes, &lowest, &bytes);
    pthread_attr_destroy(&attributes);
    stack_begin = lowest;
    stack_end = stack_begin + bytes;
    struct sigaction noting = {.sa_handler = note_stack, .sa_flags = SA_RESTART}, before;
    sigaction(SIGALRM, &noting, &before);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    nd_tensor *x = nd_ones(ND_SHAPE(200, 200), ND_F32);
    for (int i = 0; i < 20000 && signals < 200 && !off_the_stack; i++)
        nd_release(nd_matmul(x, x));
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    nd_release(x);
    assert_true(signals > 0);
    assert_int_equal(off_the_stack, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_product_portable),
        ND_TEST(test_every_product_by_the_library),
        ND_TEST(test_products_of_several_tiles),
        ND_TEST(test_transposed_batches),
        ND_TEST(test_linear),
        ND_TEST(test_linear_of_few_rows),
        ND_TEST(test_linear_of_few_columns),
        ND_TEST(test_linear_of_crowded_rows),
        ND_TEST(test_linear_of_dense_columns),
        ND_TEST(test_linear_of_rows_below_an_axis_of_size_one),
        ND_TEST(test_products_of_every_dtype),
        ND_TEST(test_batches_of_small_products),
        ND_TEST(test_infinities_and_nan),
        ND_TEST(test_an_infinity_is_the_last_of_an_odd_number),
        ND_TEST(test_products_that_do_not_fit_are_refused),
        ND_TEST(test_signals_arrive_on_the_stack_of_the_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
