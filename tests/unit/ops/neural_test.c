// softmax, the losses, convolution and pooling against plain loops; convolution through oneDNN and
// without it.
#include "kernels/cpu/cpu.h"
#include "lib/ops/conv_options.h"
#include "tests/unit/ops/values.h"
#include "tests/windows.h"

static void check_softmax(const nd_tensor *x, int axis) {
    nd_auto nd_tensor *y = nd_softmax(x, axis);
    nd_auto nd_tensor *l = nd_log_softmax(x, axis);
    assert_handle(y);
    assert_handle(l);
    int ndim = nd_get_ndim(x);
    double tolerance = nd_get_dtype(y) == ND_F64    ? 1e-13
                       : nd_get_dtype(y) == ND_F16  ? 0x1p-10
                       : nd_get_dtype(y) == ND_BF16 ? 0x1p-8
                                                    : 1e-6;
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        int64_t index[ND_MAX_DIMS], size = nd_get_shape(x)[axis];
        coordinates_of(ndim, nd_get_shape(x), flat, index);
        if (index[axis] != 0)
            continue;
        double largest = -INFINITY, sum = 0;
        for (index[axis] = 0; index[axis] < size; index[axis]++)
            largest = fmax(largest, at(x, ndim, index));
        for (index[axis] = 0; index[axis] < size; index[axis]++)
            sum += exp(at(x, ndim, index) - largest);
        for (index[axis] = 0; index[axis] < size; index[axis]++) {
            double expected = at(x, ndim, index) - largest - log(sum);
            assert_close("softmax", at(y, ndim, index), exp(expected), tolerance, tolerance / 10);
            assert_close("log_softmax", at(l, ndim, index), expected, tolerance, tolerance);
        }
    }
}

static const struct {
    int ndim;
    int64_t shape[3];
} softmax_shapes[] = {{1, {1}}, {1, {5000}}, {2, {33, 10}}, {3, {5, 70, 3}}, {2, {600, 100}}};

static void every_softmax(void) {
    for (size_t s = 0; s < COUNT_OF(softmax_shapes); s++)
        for (int dtype = ND_I32; dtype < ND_DTYPE_COUNT; dtype++)
            for (int how = dtype < ND_I8 || is_float((nd_dtype)dtype) ? 0 : LAYOUTS; how < LAYOUTS;
                 how++) {
                nd_auto nd_tensor *x =
                    random_tensor((layout)how, softmax_shapes[s].ndim, softmax_shapes[s].shape,
                                  (nd_dtype)dtype, -40, 40);
                for (int axis = 0; axis < softmax_shapes[s].ndim; axis++)
                    check_softmax(x, axis);
            }
}

static void on_every_isa(void (*test)(void)) {
    static const char *const names[] = {"baseline", "x86_64_v3", "x86_64_v4"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (nd__cpu_use_isa(names[i]))
            test();
    nd__cpu_use_isa(NULL);
}

static void test_softmax(void **state) {
    (void)state;
    on_every_isa(every_softmax);
}

/// What a program does next with a long double: the x87 stack must be as empty as it was.
static void check_long_doubles(void) {
    volatile long double one = 1, two = 2;
    assert_true(one + one == two);
}

static void long_doubles_after_rows(void) {
    for (int64_t columns = 1; columns < 100; columns++) {
        nd_auto nd_tensor *x =
            random_tensor(DENSE, 2, (const int64_t[]){17, columns}, ND_F32, -4, 4);
        nd_auto nd_tensor *indices = nd_zeros(ND_SHAPE(17), ND_I64);
        const int last = 1;
        nd_auto nd_tensor *smallest = nd_min(x, 1, &last, false);
        check_long_doubles();
        nd_auto nd_tensor *largest = nd_max(x, 1, &last, false);
        check_long_doubles();
        nd_auto nd_tensor *y = nd_softmax(x, 1);
        check_long_doubles();
        nd_auto nd_tensor *logarithm = nd_log_softmax(x, 1);
        check_long_doubles();
        nd_auto nd_tensor *loss = nd_cross_entropy(x, indices);
        check_long_doubles();
        assert_true(smallest && largest && y && logarithm && loss);
    }
}

static void test_long_doubles_of_the_caller_stay_right(void **state) {
    (void)state;
    on_every_isa(long_doubles_after_rows);
}

static void test_F27_softmax_of_special_values(void **state) {
    (void)state;
    const float rows[] = {1,         NAN,       2,        3,      -INFINITY, 0,         1,
                          2,         1,         INFINITY, 2,      3,         -INFINITY, -INFINITY,
                          -INFINITY, -INFINITY, 3e38f,    -3e38f, 3e38f,     0};
    nd_auto nd_tensor *x = nd_from_data(rows, ND_SHAPE(5, 4), ND_F32);
    nd_auto nd_tensor *y = nd_softmax(x, 1);
    for (int64_t i = 0; i < 4; i++) {
        assert_true(isnan(at_flat(y, i)));
        assert_true(isnan(at_flat(y, 8 + i)));
        assert_true(isnan(at_flat(y, 12 + i)));
        assert_close("huge", at_flat(y, 16 + i), i % 2 ? 0.0 : 0.5, 1e-6, 0);
    }
    assert_true(at_flat(y, 4) == 0.0);
    assert_close("rest", at_flat(y, 7), 1 / (1 + exp(-1) + exp(-2)), 1e-6, 0);
    nd_auto nd_tensor *scalar = nd_scalar(1, ND_F32);
    nd_auto nd_tensor *empty = nd_zeros(ND_SHAPE(3, 0), ND_F32);
    nd_auto nd_tensor *nothing = nd_softmax(empty, 1);
    assert_handle(nothing);
    assert_refused(nd_softmax(scalar, 0), ND_ERROR_INVALID_ARGUMENT, "softmax: axis 0");
}

/// Against sums over what the mask keeps; the mask lies and broadcasts as `how` and `full` say.
static void check_masked_softmax(const nd_tensor *x, const nd_tensor *mask, int axis) {
    nd_auto nd_tensor *y = nd_masked_softmax(x, mask, axis);
    nd_auto nd_tensor *seen = nd_expand(mask, nd_get_ndim(x), nd_get_shape(x));
    assert_handle(y);
    assert_handle(seen);
    assert_int_equal(nd_get_dtype(y), nd_get_dtype(x));
    const int ndim = nd_get_ndim(x);
    const nd_dtype dtype = nd_get_dtype(x);
    const double tolerance = dtype == ND_F64    ? 1e-13
                             : dtype == ND_F16  ? 0x1p-10
                             : dtype == ND_BF16 ? 0x1p-8
                                                : 1e-6;
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        int64_t index[ND_MAX_DIMS], size = nd_get_shape(x)[axis];
        coordinates_of(ndim, nd_get_shape(x), flat, index);
        if (index[axis] != 0)
            continue;
        double largest = -INFINITY, sum = 0;
        for (index[axis] = 0; index[axis] < size; index[axis]++)
            if (at(seen, ndim, index) != 0)
                largest = fmax(largest, at(x, ndim, index));
        for (index[axis] = 0; index[axis] < size; index[axis]++)
            if (at(seen, ndim, index) != 0)
                sum += exp(at(x, ndim, index) - largest);
        for (index[axis] = 0; index[axis] < size; index[axis]++) {
            const double found = at(y, ndim, index);
            if (at(seen, ndim, index) == 0)
                assert_true(found == 0);
            else
                assert_close("masked_softmax", found, exp(at(x, ndim, index) - largest) / sum,
                             tolerance, tolerance / 10);
        }
    }
}

static void every_masked_softmax(void) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    for (size_t s = 0; s < COUNT_OF(softmax_shapes); s++)
        for (int how = 0; how < LAYOUTS * (int)COUNT_OF(dtypes); how++) {
            const int ndim = softmax_shapes[s].ndim;
            const int64_t *shape = softmax_shapes[s].shape;
            nd_auto nd_tensor *x =
                random_tensor((layout)(how % LAYOUTS), ndim, shape, dtypes[how / LAYOUTS], -40, 40);
            for (int from = 0; from < ndim; from++)
                for (int axis = 0; axis < ndim; axis++) {
                    nd_auto nd_tensor *numbers = random_tensor((layout)(how % LAYOUTS), ndim - from,
                                                               shape + from, ND_F32, -2, 1);
                    nd_auto nd_tensor *zero = nd_zeros_like(numbers);
                    nd_auto nd_tensor *mask = nd_greater(numbers, zero);
                    check_masked_softmax(x, mask, axis);
                }
        }
}

static void test_masked_softmax(void **state) {
    (void)state;
    on_every_isa(every_masked_softmax);
}

static void test_masked_softmax_of_special_values(void **state) {
    (void)state;
    const float rows[] = {1,         NAN,       2,         3,  // what is not looked at may be NaN
                          NAN,       INFINITY,  -INFINITY, 0,  // nothing is kept
                          -INFINITY, -INFINITY, 1,         2,  // -infinity alone is kept
                          1,         NAN,       5,         6}; // NaN is kept
    const uint8_t kept[] = {1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1};
    nd_auto nd_tensor *x = nd_from_data(rows, ND_SHAPE(4, 4), ND_F32);
    nd_auto nd_tensor *mask = nd_from_data(kept, ND_SHAPE(4, 4), ND_BOOL);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *y = nd_masked_softmax(x, mask, 1);
    assert_close("kept", at_flat(y, 2), 1 / (1 + exp(-1)), 1e-6, 0);
    for (int64_t i = 0; i < 16; i++)
        if (!kept[i])
            assert_true(at_flat(y, i) == 0);
        else if (i >= 8)
            assert_true(isnan(at_flat(y, i)));
    nd_auto nd_tensor *half = nd_slice(y, 0, 2, 1, 0);
    nd_auto nd_tensor *square = nd_square(half);
    nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    for (int64_t i = 0; i < 8; i++)
        assert_true(kept[i] ? at_flat(nd_get_grad(x), i) != 0 : at_flat(nd_get_grad(x), i) == 0);
}

static void test_masked_softmax_refuses(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(3, 4), ND_F32);
    nd_auto nd_tensor *wide = nd_ones(ND_SHAPE(2, 3, 4), ND_BOOL);
    nd_auto nd_tensor *other = nd_ones(ND_SHAPE(3), ND_BOOL);
    nd_auto nd_tensor *mask = nd_ones(ND_SHAPE(4), ND_BOOL);
    assert_refused(nd_masked_softmax(x, x, 1), ND_ERROR_DTYPE,
                   "masked_softmax: the mask is float32 and must be bool");
    assert_refused(nd_masked_softmax(x, wide, 1), ND_ERROR_SHAPE,
                   "masked_softmax: a mask of shape [2, 3, 4] does not broadcast to x's [3, 4]");
    assert_refused(nd_masked_softmax(x, other, 1), ND_ERROR_SHAPE, "masked_softmax: a mask of");
    assert_refused(nd_masked_softmax(x, mask, 2), ND_ERROR_INVALID_ARGUMENT,
                   "masked_softmax: axis 2");
    assert_refused(nd_masked_softmax(x, NULL, 1), ND_ERROR_INVALID_ARGUMENT, "masked_softmax:");
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(3, 0), ND_F32);
    nd_auto nd_tensor *no_mask = nd_zeros(ND_SHAPE(3, 0), ND_BOOL);
    nd_auto nd_tensor *nothing = nd_masked_softmax(none, no_mask, 1);
    assert_handle(nothing);
}

/// Rows of every short length, many at once: each has the bits that it has alone, whatever its
/// neighbours hold, and they are right.
static void every_short_row(void) {
    enum { ROWS = 37, LONGEST = 50 };
    static const float special[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0};
    for (int64_t n = 1; n <= LONGEST; n++) {
        float numbers[ROWS * LONGEST];
        for (int64_t i = 0; i < ROWS * n; i++)
            numbers[i] = rand() % 64 ? (float)(rand() % 20000 - 10000) / 500
                                     : special[(size_t)rand() % COUNT_OF(special)];
        for (int64_t i = 0; i < n; i++) // rows of one number
            numbers[i] = -INFINITY, numbers[ROWS / 2 * n + i] = 7;
        nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(ROWS, n), ND_F32);
        nd_auto nd_tensor *wide = nd_cast(x, ND_F64);
        for (int of_log = 0; of_log < 2; of_log++) {
            nd_auto nd_tensor *y = of_log ? nd_log_softmax(x, 1) : nd_softmax(x, 1);
            nd_auto nd_tensor *right = of_log ? nd_log_softmax(wide, 1) : nd_softmax(wide, 1);
            assert_handle(y);
            assert_handle(right);
            const float *found = nd_get_data(y);
            for (int64_t row = 0; row < ROWS; row++) {
                nd_auto nd_tensor *alone = nd_slice(x, row, row + 1, 1, 0);
                nd_auto nd_tensor *y_alone =
                    of_log ? nd_log_softmax(alone, 1) : nd_softmax(alone, 1);
                assert_handle(y_alone);
                const float *found_alone = nd_get_data(y_alone);
                for (int64_t i = 0; i < n; i++) {
                    const float value = found[row * n + i];
                    const double expected = at_flat(right, row * n + i);
                    if (isnan(value) || isnan(found_alone[i]))
                        assert_true(isnan(value) && isnan(found_alone[i]) && isnan(expected));
                    else if (fabs(expected) < 1e38) { // else f32 has no such number
                        assert_memory_equal(&value, &found_alone[i], sizeof value);
                        assert_close("a short row", (double)value, expected, 5e-6,
                                     of_log ? 2e-6 : 1e-37);
                    }
                }
            }
        }
    }
}

static void test_short_rows_do_not_see_their_neighbours(void **state) {
    (void)state;
    on_every_isa(every_short_row);
}

static void check_cross_entropy(int64_t n, int64_t classes, nd_dtype dtype, layout how) {
    static const nd_dtype integers[] = {ND_I64, ND_I32, ND_I16, ND_I8,
                                        ND_U64, ND_U32, ND_U16, ND_U8};
    nd_dtype integer = integers[rand() % (int)COUNT_OF(integers)];
    nd_auto nd_tensor *logits = random_tensor(how, ND_SHAPE(n, classes), dtype, -20, 20);
    nd_auto nd_tensor *targets = nd_empty(ND_SHAPE(n), integer);
    for (int64_t i = 0; i < n; i++)
        set_element(nd_get_data(targets), integer, i, (double)(rand() % classes));
    nd_auto nd_tensor *loss = nd_cross_entropy(logits, targets);
    assert_handle(loss);
    double expected = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++)
            sum += exp(at_flat(logits, i * classes + c));
        expected += log(sum) - at_flat(logits, i * classes + (int64_t)at_flat(targets, i));
    }
    double tolerance = dtype == ND_F16 ? 0x1p-11 : dtype == ND_BF16 ? 0x1p-8 : 1e-6;
    assert_int_equal(nd_get_dtype(loss), dtype);
    assert_close("cross_entropy", at_flat(loss, 0), expected / (double)n, tolerance, 1e-6);
}

static void test_cross_entropy(void **state) {
    (void)state;
    for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            check_cross_entropy(1, 1, (nd_dtype)dtype, (layout)how);
            check_cross_entropy(77, 10, (nd_dtype)dtype, (layout)how);
            check_cross_entropy(5000, 13, (nd_dtype)dtype, (layout)how);
        }
    check_cross_entropy(77, 10, ND_F16, TRANSPOSED);
    check_cross_entropy(77, 10, ND_BF16, DENSE);
    nd_auto nd_tensor *logits = nd_ones(ND_SHAPE(3, 4), ND_F32);
    const int64_t bad[] = {0, 4, 1}, negative[] = {0, -1, 1};
    nd_auto nd_tensor *above = nd_from_data(bad, ND_SHAPE(3), ND_I64);
    nd_auto nd_tensor *below = nd_from_data(negative, ND_SHAPE(3), ND_I64);
    nd_auto nd_tensor *few = nd_zeros(ND_SHAPE(2), ND_I64);
    assert_refused(nd_cross_entropy(logits, above), ND_ERROR_INVALID_ARGUMENT,
                   "cross_entropy: a target is outside 0 ... 3");
    assert_refused(nd_cross_entropy(logits, below), ND_ERROR_INVALID_ARGUMENT, "cross_entropy");
    assert_refused(nd_cross_entropy(logits, few), ND_ERROR_SHAPE,
                   "cross_entropy: logits have shape");
    assert_refused(nd_cross_entropy(logits, logits), ND_ERROR_DTYPE, "cross_entropy: logits are");
}

static void test_mse_loss(void **state) {
    (void)state;
    nd_auto nd_tensor *a = random_tensor(DENSE, ND_SHAPE(7, 9), ND_F32, -2, 2);
    nd_auto nd_tensor *b = random_tensor(TRANSPOSED, ND_SHAPE(7, 9), ND_F32, -2, 2);
    nd_auto nd_tensor *loss = nd_mse_loss(a, b);
    double expected = 0;
    for (int64_t i = 0; i < 63; i++)
        expected += pow(at_flat(a, i) - at_flat(b, i), 2) / 63;
    assert_close("mse_loss", nd_get_item(loss), expected, 1e-6, 0);
    assert_refused(nd_mse_loss(a, NULL), ND_ERROR_INVALID_ARGUMENT, "mse_loss: b is NULL");
}

// ------------------------------------------------------------------------------------- convolution

/// ci is that of x, and the weight has ci / groups.
typedef struct conv_case {
    int64_t n, ci, h, w, co, kh, kw;
    int64_t stride[2], padding[2], dilation[2], groups;
} conv_case;

static const conv_case conv_cases[] = {
    {1, 1, 5, 5, 1, 3, 3, {1, 1}, {0, 0}, {1, 1}, 1},
    {2, 3, 8, 7, 4, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {3, 2, 9, 9, 5, 3, 2, {2, 2}, {1, 1}, {1, 1}, 1},
    {2, 1, 28, 28, 8, 5, 5, {1, 1}, {2, 2}, {1, 1}, 1},
    {1, 4, 6, 6, 2, 1, 1, {3, 3}, {0, 0}, {1, 1}, 1},
    {2, 2, 4, 5, 3, 4, 5, {1, 1}, {3, 3}, {1, 1}, 1},
    {2, 8, 12, 12, 16, 3, 3, {2, 2}, {0, 0}, {1, 1}, 1},
    {1, 2, 7, 7, 2, 2, 2, {5, 5}, {2, 2}, {1, 1}, 1},
    // Another number for each axis, dilation, groups.
    {2, 3, 8, 9, 4, 2, 3, {1, 3}, {2, 0}, {1, 1}, 1},
    {2, 3, 9, 7, 4, 3, 2, {1, 1}, {0, 2}, {2, 5}, 1},
    {2, 6, 8, 8, 9, 3, 3, {1, 2}, {1, 0}, {1, 1}, 3},
    {1, 16, 9, 9, 16, 3, 3, {1, 1}, {2, 2}, {2, 2}, 16},
    {2, 5, 7, 6, 10, 3, 1, {2, 1}, {0, 1}, {1, 3}, 5},
    {2, 32, 6, 6, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 2},
    // By direct sums: padded, strips that are not all alike, windows that move by more, groups, fewer
    // channels than a block, and elements at their own places, in groups and of a plane of any size.
    {2, 3, 21, 30, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {1, 4, 26, 37, 8, 3, 5, {1, 1}, {2, 1}, {1, 2}, 1},
    {1, 3, 29, 40, 8, 7, 7, {2, 2}, {3, 3}, {1, 1}, 1},
    {1, 4, 25, 62, 15, 3, 2, {3, 2}, {1, 0}, {1, 1}, 1},
    {2, 6, 17, 33, 14, 2, 4, {2, 3}, {1, 2}, {2, 1}, 2},
    {2, 16, 8, 14, 32, 1, 1, {1, 1}, {0, 0}, {1, 1}, 2},
    {1, 700, 4, 28, 8, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {1, 8, 5, 23, 8, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    // Each channel by itself, in wide lines; in several strips; each with several results.
    {2, 3, 20, 17, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3},
    {1, 2, 190, 33, 2, 5, 5, {1, 1}, {2, 1}, {1, 2}, 2},
    {2, 2, 6, 40, 6, 3, 3, {1, 1}, {3, 0}, {2, 3}, 2},
    {1, 4, 3, 16, 4, 5, 5, {1, 1}, {2, 5}, {1, 1}, 4},
};

typedef struct conv_sums {
    double *out, *grad_x, *grad_weight;
} conv_sums;

/// The three convolutions at once, from their definition: out = sum x w, grad_x = sum g w,
/// grad_weight = sum g x.
static void reference_conv(const conv_case *c, const nd_tensor *x, const nd_tensor *weight,
                           const nd_tensor *g, conv_sums *sums) {
    int64_t oh = nd_get_size(g, 2), ow = nd_get_size(g, 3), at_out = 0;
    int64_t channels = c->ci / c->groups, filters = c->co / c->groups;
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t co = 0; co < c->co; co++)
            for (int64_t i = 0; i < oh * ow; i++, at_out++)
                for (int64_t k = 0; k < channels * c->kh * c->kw; k++) {
                    int64_t ci = co / filters * channels + k / (c->kh * c->kw);
                    int64_t ky = k / c->kw % c->kh, kx = k % c->kw;
                    int64_t y = i / ow * c->stride[0] - c->padding[0] + ky * c->dilation[0];
                    int64_t column = i % ow * c->stride[1] - c->padding[1] + kx * c->dilation[1];
                    if (y < 0 || y >= c->h || column < 0 || column >= c->w)
                        continue;
                    int64_t at_x = ((n * c->ci + ci) * c->h + y) * c->w + column;
                    int64_t at_weight = co * channels * c->kh * c->kw + k;
                    double in = at_flat(x, at_x), factor = at_flat(weight, at_weight);
                    sums->out[at_out] += in * factor;
                    sums->grad_x[at_x] += at_flat(g, at_out) * factor;
                    sums->grad_weight[at_weight] += at_flat(g, at_out) * in;
                }
}

static void assert_sums(const char *what, const nd_tensor *y, double *sums) {
    assert_handle(y);
    double tolerance = nd_get_dtype(y) == ND_F64 ? 1e-12 : 1e-4;
    for (int64_t i = 0; i < nd_get_numel(y); i++)
        assert_close(what, at_flat(y, i), sums[i], tolerance, tolerance);
    free(sums);
}

static int64_t windows_along(const conv_case *c, int axis) {
    int64_t size = axis == 0 ? c->h : c->w, kernel = axis == 0 ? c->kh : c->kw;
    int64_t free = size + 2 * c->padding[axis] - c->dilation[axis] * (kernel - 1) - 1;
    return free < 0 ? 0 : free / c->stride[axis] + 1;
}

static void check_conv(const conv_case *c, nd_dtype dtype, layout how) {
    int64_t oh = windows_along(c, 0), ow = windows_along(c, 1);
    nd_conv2d_options options = *CONV_WITH(c->stride[0], c->stride[1], c->padding[0], c->padding[1],
                                           c->dilation[0], c->dilation[1], c->groups);
    nd_auto nd_tensor *x = random_tensor(how, ND_SHAPE(c->n, c->ci, c->h, c->w), dtype, -1, 1);
    nd_auto nd_tensor *weight =
        random_tensor(how, ND_SHAPE(c->co, c->ci / c->groups, c->kh, c->kw), dtype, -1, 1);
    nd_auto nd_tensor *g = random_tensor(DENSE, ND_SHAPE(c->n, c->co, oh, ow), dtype, -1, 1);
    conv_sums sums = {calloc((size_t)nd_get_numel(g), sizeof(double)),
                      calloc((size_t)nd_get_numel(x), sizeof(double)),
                      calloc((size_t)nd_get_numel(weight), sizeof(double))};
    reference_conv(c, x, weight, g, &sums);
    nd_auto nd_tensor *y = nd_conv2d(x, weight, NULL, &options);
    nd__conv_options read;
    assert_int_equal(nd__conv_options_2d("test", &options, &read), ND_OK);
    nd_auto nd_tensor *grad_x = nd__conv_grad_input(g, weight, nd_get_shape(x), &read.geometry);
    nd_auto nd_tensor *grad_weight =
        nd__conv_grad_weight(x, g, nd_get_shape(weight), &read.geometry);
    assert_shape(y, ND_SHAPE(c->n, c->co, oh, ow));
    assert_sums("conv2d", y, sums.out);
    assert_sums("conv2d_grad_input", grad_x, sums.grad_x);
    assert_sums("conv2d_grad_weight", grad_weight, sums.grad_weight);
}

static int64_t random_below(int64_t n) {
    return rand() % n;
}

/// Any shapes and options that make at least one window.
static conv_case random_conv(void) {
    conv_case c;
    do {
        c.groups = random_below(2) ? 1 : 1 + random_below(5);
        c.n = 1 + random_below(3);
        c.ci = c.groups * (1 + random_below(4));
        c.co = c.groups * (1 + random_below(4));
        c.h = 1 + random_below(9);
        c.w = 1 + random_below(9);
        c.kh = 1 + random_below(4);
        c.kw = 1 + random_below(4);
        for (int axis = 0; axis < 2; axis++) {
            c.stride[axis] = 1 + random_below(3);
            c.padding[axis] = random_below(4);
            c.dilation[axis] = 1 + random_below(3);
        }
    } while (windows_along(&c, 0) == 0 || windows_along(&c, 1) == 0);
    return c;
}

static void every_conv(void) {
    for (size_t c = 0; c < COUNT_OF(conv_cases); c++)
        for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
            for (int how = 0; how < LAYOUTS; how++)
                check_conv(&conv_cases[c], (nd_dtype)dtype, (layout)how);
    for (int i = 0; i < 200; i++) {
        conv_case c = random_conv();
        check_conv(&c, i % 2 ? ND_F32 : ND_F64, (layout)(i / 2 % LAYOUTS));
    }
}

static void test_every_convolution_by_the_library(void **state) {
    (void)state;
    every_conv();
}

static void test_every_convolution_portable(void **state) {
    (void)state;
    nd__cpu_use_onednn(false);
    every_conv();
    nd__cpu_use_onednn(true);
}

/// The last of the cases: those that the loops of each instruction set do.
static void every_direct_conv(void) {
    for (size_t c = COUNT_OF(conv_cases) - 12; c < COUNT_OF(conv_cases); c++)
        for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
            check_conv(&conv_cases[c], (nd_dtype)dtype, DENSE);
}

static void test_direct_convolution(void **state) {
    (void)state;
    on_every_isa(every_direct_conv);
}

/// More shapes than the cache of primitives holds.
static void test_many_convolution_shapes(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++)
        for (int64_t h = 3; h < 93; h++) {
            conv_case c = {1, 1, h, 3, 1, 3, 3, {1, 1}, {0, 0}, {1, 1}, 1};
            check_conv(&c, ND_F32, DENSE);
        }
}

static void test_convolution_bias_and_bad_input(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(2, 3, 6, 6), ND_F32, -1, 1);
    nd_auto nd_tensor *weight = random_tensor(DENSE, ND_SHAPE(4, 3, 3, 3), ND_F32, -1, 1);
    nd_auto nd_tensor *bias = random_tensor(DENSE, ND_SHAPE(4), ND_F32, -1, 1);
    nd_auto nd_tensor *plain = nd_conv2d(x, weight, NULL, NULL);
    nd_auto nd_tensor *y = nd_conv2d(x, weight, bias, NULL);
    assert_handle(y);
    for (int64_t i = 0; i < nd_get_numel(y); i++)
        assert_close("bias", at_flat(y, i), at_flat(plain, i) + at_flat(bias, i / 16 % 4), 1e-6,
                     1e-6);
    nd_auto nd_tensor *wide = nd_cast(x, ND_F64);
    nd_auto nd_tensor *large = nd_ones(ND_SHAPE(1, 3, 7, 7), ND_F32);
    assert_refused(nd_conv2d(x, large, NULL, NULL), ND_ERROR_SHAPE,
                   "conv2d: a weight of shape [1, 3, 7, 7] does not fit");
    assert_refused(nd_conv2d(x, weight, NULL, CONV_WITH(1, 1, 0, 1, 3, 1, 1)), ND_ERROR_SHAPE,
                   "conv2d: a weight of shape [4, 3, 3, 3] does not fit into x of shape [2, 3, 6, "
                   "6] with padding [0, 1] and dilation [3, 1]");
    nd_auto nd_tensor *pointless = nd_ones(ND_SHAPE(1, 3, 3, 0), ND_F32);
    assert_refused(nd_conv2d(x, pointless, NULL, NULL), ND_ERROR_SHAPE, "conv2d: a weight of");
    nd_auto nd_tensor *grey = nd_ones(ND_SHAPE(4, 1, 3, 3), ND_F32);
    assert_refused(nd_conv2d(x, grey, NULL, NULL), ND_ERROR_SHAPE,
                   "conv2d: x has shape [2, 3, 6, 6] and weight [4, 1, 3, 3]; with groups 1 the "
                   "weight's second size must be 3");
    assert_refused(nd_conv2d(wide, weight, NULL, NULL), ND_ERROR_DTYPE, "conv2d: x is float64");
    assert_refused(nd_conv2d(x, bias, NULL, NULL), ND_ERROR_SHAPE, "conv2d: x has shape");
    assert_refused(nd_conv2d(x, weight, weight, NULL), ND_ERROR_SHAPE,
                   "conv2d: bias is float32 of shape");
}

static void test_convolution_of_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(4, 3, 3, 3), ND_F32);
    nd_auto nd_tensor *bias = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 3, 6, 6), ND_F32);
    nd_auto nd_tensor *nothing = nd_conv2d(none, weight, bias, NULL);
    assert_shape(nothing, ND_SHAPE(0, 4, 4, 4));
    nd_auto nd_tensor *grouped = nd_conv2d(none, weight, NULL, CONV_WITH(2, 1, 0, 0, 1, 2, 1));
    assert_shape(grouped, ND_SHAPE(0, 4, 2, 2));
    // No channels: sums of nothing.
    nd_auto nd_tensor *black = nd_zeros(ND_SHAPE(2, 0, 6, 6), ND_F64);
    nd_auto nd_tensor *blind = nd_zeros(ND_SHAPE(4, 0, 3, 3), ND_F64);
    nd_auto nd_tensor *zeros = nd_conv2d(black, blind, NULL, CONV_WITH(1, 1, 0, 0, 1, 1, 2));
    assert_shape(zeros, ND_SHAPE(2, 4, 4, 4));
    for (int64_t i = 0; i < nd_get_numel(zeros); i++)
        assert_true(at_flat(zeros, i) == 0.0);
    nd_auto nd_tensor *unseen = nd_zeros(ND_SHAPE(0, 3, 3, 3), ND_F32);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3, 6, 6), ND_F32);
    nd_auto nd_tensor *empty = nd_conv2d(x, unseen, NULL, NULL);
    assert_shape(empty, ND_SHAPE(2, 0, 4, 4));
}

/// An option that is wrong is named with its value, and numbers of any size are only wrong.
static void test_convolution_options(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 4, 5, 5), ND_F32);
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(6, 4, 3, 3), ND_F32);
    nd_auto nd_tensor *point = nd_ones(ND_SHAPE(6, 4, 1, 1), ND_F32);
    const struct {
        const nd_conv2d_options *options;
        nd_status status;
        const char *says;
    } refused[] = {
        {CONV_WITH(0, 1, 0, 0, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT, "conv2d: stride[0] is 0"},
        {CONV_WITH(1, -7, 0, 0, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT, "conv2d: stride[1] is -7"},
        {CONV_WITH(1, 1, 0, -1, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT, "conv2d: padding[1] is -1"},
        {CONV_WITH(1, 1, 0, 0, 0, 1, 1), ND_ERROR_INVALID_ARGUMENT, "conv2d: dilation[0] is 0"},
        {CONV_WITH(1, 1, 0, 0, 1, 1, 0), ND_ERROR_INVALID_ARGUMENT, "conv2d: groups is 0"},
        {CONV_WITH(1, 1, 0, 0, 1, 1, 4), ND_ERROR_INVALID_ARGUMENT,
         "conv2d: groups is 4 and must divide the 4 channels of x and the 6 of the result"},
        {CONV_WITH(1, 1, 0, 0, 1, 1, INT64_MAX), ND_ERROR_INVALID_ARGUMENT, "conv2d: groups is 92"},
        {CONV_WITH(1, 1, 0, 0, 1, 1, 2), ND_ERROR_SHAPE,
         "conv2d: x has shape [1, 4, 5, 5] and weight [6, 4, 3, 3]; with groups 2 the weight's "
         "second size must be 2"},
        {CONV_WITH(1, 1, INT64_MAX, 0, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "conv2d: padding[0] is 9223372036854775807, too large"},
        {CONV_WITH(1, 1, 0, INT64_MAX / 2, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "conv2d: padding[1] is 4611686018427387903, too large"},
        {CONV_WITH(1, 1, 0, 0, 1, INT64_MAX, 1), ND_ERROR_SHAPE,
         "conv2d: a weight of shape [6, 4, 3, 3] does not fit"},
        {CONV_WITH(1, 1, 0, 0, INT64_MAX / 2, 1, 1), ND_ERROR_SHAPE,
         "conv2d: a weight of shape [6, 4, 3, 3] does not fit"},
    };
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        assert_refused(nd_conv2d(x, weight, NULL, refused[i].options), refused[i].status,
                       refused[i].says);
    // As large as can be, and right all the same.
    nd_auto nd_tensor *once =
        nd_conv2d(x, weight, NULL, CONV_WITH(INT64_MAX, INT64_MAX, 1, 0, 1, 1, 1));
    assert_shape(once, ND_SHAPE(1, 6, 1, 1));
    assert_true(at_flat(once, 0) == 4 * 2 * 3);
    nd_auto nd_tensor *apart =
        nd_conv2d(x, point, NULL, CONV_WITH(1, 1, 0, 0, INT64_MAX, INT64_MAX, 1));
    assert_shape(apart, ND_SHAPE(1, 6, 5, 5));
    assert_true(at_flat(apart, 7) == 4);
    assert_null(nd_conv2d(x, point, NULL, CONV_WITH(1, 1, INT64_MAX / 4, INT64_MAX / 4, 1, 1, 1)));
    nd_error_clear();
    nd_conv2d_options unversioned = {0};
    assert_refused(
        nd_conv2d(x, weight, NULL, &unversioned), ND_ERROR_INVALID_ARGUMENT,
        "conv2d: a struct of size 0 and version 0; begin it with ND_CONV2D_OPTIONS_INIT");
    // A program that was built before there were groups.
    nd_conv2d_options shorter = ND_CONV2D_OPTIONS_INIT;
    shorter.size = offsetof(nd_conv2d_options, groups);
    shorter.groups = 77;
    nd_auto nd_tensor *y = nd_conv2d(x, weight, NULL, &shorter);
    assert_shape(y, ND_SHAPE(1, 6, 3, 3));
}

typedef struct pool_case {
    int64_t h, w, kernel[2], stride[2], padding[2], dilation[2];
} pool_case;

/// The largest in the window of the result at `index`.
static double reference_pool(const pool_case *c, const nd_tensor *x, const int64_t *stride,
                             const int64_t *index) {
    double largest = -INFINITY;
    for (int64_t i = 0; i < c->kernel[0] * c->kernel[1]; i++) {
        int64_t y = index[2] * stride[0] - c->padding[0] + i / c->kernel[1] * c->dilation[0];
        int64_t column = index[3] * stride[1] - c->padding[1] + i % c->kernel[1] * c->dilation[1];
        if (y < 0 || y >= c->h || column < 0 || column >= c->w)
            continue;
        double value = at(x, 4, (const int64_t[]){index[0], index[1], y, column});
        largest = isnan(value) || isnan(largest) ? (double)NAN : fmax(value, largest);
    }
    return largest;
}

static int64_t pools_along(const pool_case *c, int axis, int64_t stride) {
    int64_t size = axis == 0 ? c->h : c->w;
    int64_t free = size + 2 * c->padding[axis] - c->dilation[axis] * (c->kernel[axis] - 1) - 1;
    bool none = free < 0 || (c->padding[axis] > 0 && c->dilation[axis] > size);
    return none ? 0 : free / stride + 1;
}

/// All below -1, so that a chosen place of the padding shows.
static void check_pool(const pool_case *c, nd_dtype dtype, layout how) {
    int64_t stride[2], counts[2];
    for (int axis = 0; axis < 2; axis++) {
        stride[axis] = c->stride[axis] ? c->stride[axis] : c->kernel[axis];
        counts[axis] = pools_along(c, axis, stride[axis]);
    }
    nd_auto nd_tensor *x = random_tensor(how, ND_SHAPE(2, 3, c->h, c->w), dtype, -3, -1);
    if (how == DENSE)
        set_element(nd_get_data(x), dtype, c->h * c->w, (double)NAN);
    const nd_max_pool2d_options *options =
        POOL_WITH(c->kernel[0], c->kernel[1], c->stride[0], c->stride[1], c->padding[0],
                  c->padding[1], c->dilation[0], c->dilation[1]);
    if (counts[0] == 0 || counts[1] == 0) {
        assert_refused(nd_max_pool2d(x, options), ND_ERROR_SHAPE, "max_pool2d: kernel[");
        return;
    }
    nd_auto nd_tensor *y = nd_max_pool2d(x, options);
    assert_shape(y, ND_SHAPE(2, 3, counts[0], counts[1]));
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        int64_t index[4];
        coordinates_of(4, nd_get_shape(y), flat, index);
        double largest = reference_pool(c, x, stride, index);
        assert_close("max_pool2d", at_flat(y, flat), largest, 0, 0);
    }
}

static void test_max_pool2d(void **state) {
    (void)state;
    static const pool_case cases[] = {
        {8, 8, {2, 2}, {2, 2}, {0, 0}, {1, 1}}, {7, 9, {3, 3}, {2, 2}, {0, 0}, {1, 1}},
        {5, 5, {5, 5}, {1, 1}, {0, 0}, {1, 1}}, {6, 4, {1, 1}, {3, 3}, {0, 0}, {1, 1}},
        {7, 9, {3, 2}, {0, 0}, {1, 1}, {1, 2}}, {8, 6, {2, 4}, {1, 3}, {1, 2}, {4, 1}},
        {1, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}}, {1, 3, {2, 2}, {1, 1}, {1, 1}, {2, 1}},
    };
    for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (size_t i = 0; i < COUNT_OF(cases); i++)
                check_pool(&cases[i], (nd_dtype)dtype, (layout)how);
    for (int i = 0; i < 400; i++) {
        pool_case c = {.h = 1 + random_below(9), .w = 1 + random_below(9)};
        for (int axis = 0; axis < 2; axis++) {
            c.kernel[axis] = 1 + random_below(4);
            c.stride[axis] = random_below(4);
            c.padding[axis] = random_below(c.kernel[axis] / 2 + 1);
            c.dilation[axis] = 1 + random_below(3);
        }
        check_pool(&c, i % 2 ? ND_F32 : ND_F64, (layout)(i / 2 % LAYOUTS));
    }
}

static void test_max_pool2d_refuses(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 1, 3, 3), ND_F32);
    nd_auto nd_tensor *flat = nd_ones(ND_SHAPE(9), ND_F32);
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(1, 1, 3, 3), ND_I32);
    const struct {
        const nd_max_pool2d_options *options;
        nd_status status;
        const char *says;
    } refused[] = {
        {POOL_WITH(2, 4, 1, 1, 0, 0, 1, 1), ND_ERROR_SHAPE,
         "max_pool2d: kernel[1] is 4, which with padding 0 and dilation 1 does not fit into x of "
         "shape [1, 1, 3, 3]"},
        {POOL_WITH(2, 2, 1, 1, 0, 1, 1, 4), ND_ERROR_SHAPE,
         "max_pool2d: kernel[1] is 2, which with padding 1 and dilation 4 reaches no element"},
        {POOL(0, 1), ND_ERROR_INVALID_ARGUMENT, "max_pool2d: kernel[0] is 0"},
        {NULL, ND_ERROR_INVALID_ARGUMENT, "max_pool2d: kernel[0] is 0"},
        {POOL_WITH(2, 2, 1, -1, 0, 0, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: stride[1] is -1"},
        {POOL_WITH(2, 2, 1, 1, -1, 0, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: padding[0] is -1"},
        {POOL_WITH(2, 3, 1, 1, 1, 2, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: padding[1] is 2 and must be at most half of kernel[1], which is 3"},
        {POOL_WITH(2, 2, 1, 1, 0, 0, 1, 0), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: dilation[1] is 0"},
        {POOL_WITH(2, 2, 1, 1, 0, 0, 1, INT64_MAX), ND_ERROR_SHAPE, "max_pool2d: kernel[1] is 2"},
        {POOL_WITH(INT64_MAX, 2, 1, 1, INT64_MAX / 2, 0, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: padding[0] is 4611686018427387903, too large"},
    };
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        assert_refused(nd_max_pool2d(x, refused[i].options), refused[i].status, refused[i].says);
    assert_refused(nd_max_pool2d(flat, POOL(2, 2)), ND_ERROR_SHAPE, "max_pool2d: x has shape [9]");
    assert_refused(nd_max_pool2d(whole, POOL(2, 2)), ND_ERROR_DTYPE, "max_pool2d: x is int32");
    nd_max_pool2d_options unversioned = {0};
    assert_refused(nd_max_pool2d(x, &unversioned), ND_ERROR_INVALID_ARGUMENT,
                   "max_pool2d: a struct of size 0");
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 2, 4, 4), ND_F64);
    nd_auto nd_tensor *nothing = nd_max_pool2d(none, POOL_WITH(2, 3, 0, 1, 1, 1, 1, 1));
    assert_shape(nothing, ND_SHAPE(0, 2, 3, 4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_softmax),
        ND_TEST(test_long_doubles_of_the_caller_stay_right),
        ND_TEST(test_F27_softmax_of_special_values),
        ND_TEST(test_masked_softmax),
        ND_TEST(test_masked_softmax_of_special_values),
        ND_TEST(test_masked_softmax_refuses),
        ND_TEST(test_short_rows_do_not_see_their_neighbours),
        ND_TEST(test_cross_entropy),
        ND_TEST(test_mse_loss),
        ND_TEST(test_every_convolution_by_the_library),
        ND_TEST(test_every_convolution_portable),
        ND_TEST(test_direct_convolution),
        ND_TEST(test_many_convolution_shapes),
        ND_TEST(test_convolution_bias_and_bad_input),
        ND_TEST(test_convolution_of_nothing),
        ND_TEST(test_convolution_options),
        ND_TEST(test_max_pool2d),
        ND_TEST(test_max_pool2d_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
