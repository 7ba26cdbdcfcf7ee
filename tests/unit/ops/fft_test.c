// Fourier transforms against their definition, of every dtype, layout and length, and their
// gradients against differences.
#include "kernels/cpu/fftw.h"
#include "lib/device/fake/fake.h"
#include "tests/unit/ops/transforms.h"
#include <float.h>

static const nd_fft_norm norms[] = {ND_FFT_NORM_BACKWARD, ND_FFT_NORM_ORTHO, ND_FFT_NORM_FORWARD};

// -------------------------------------------------------------------------------------------------
// the definition

/// The result is the grid (consumed), but for some roundings of sums of n numbers below 1.
static void assert_grid(const char *what, const nd_tensor *got, bool pairs, grid expected,
                        int64_t n) {
    assert_handle(got);
    grid found = grid_of(got, pairs);
    assert_int_equal(found.ndim, expected.ndim);
    for (int i = 0; i < found.ndim; i++)
        assert_int_equal(found.shape[i], expected.shape[i]);
    long double unit = nd_get_dtype(got) == ND_F32 ? FLT_EPSILON : DBL_EPSILON;
    long double most = 0;
    int64_t count = grid_count(&found, 0, found.ndim);
    for (int64_t i = 0; i < count; i++)
        most = fmaxl(most, cabsl(expected.values[i]));
    long double bound = 8 * unit * (most + unit) * log2l((long double)n + 1);
    for (int64_t i = 0; i < count; i++)
        if (!(cabsl(found.values[i] - expected.values[i]) <= bound))
            fail_msg("%s of %lld, %s, element %lld: %Lg apart, and not %Lg", what, (long long)n,
                     nd_dtype_get_name(nd_get_dtype(got)), (long long)i,
                     cabsl(found.values[i] - expected.values[i]), bound);
    grid_free(&found);
    grid_free(&expected);
}

/// Holds a transform of x along an axis against the definition; n as it is given.
static void check(size_t kind, const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) {
    grid g = grid_of(x, kinds[kind].from_pairs);
    int along = axis < 0 ? axis + g.ndim : axis;
    int64_t size = g.shape[along];
    int64_t length = n > 0 ? n : kinds[kind].from_half ? 2 * (size - 1) : size;
    if (length < 1) {
        grid_free(&g);
        return;
    }
    g = kinds[kind].from_half ? grid_whole(g, along, length) : grid_resized(g, along, length);
    g = grid_transformed(g, along, kinds[kind].sign, norm);
    if (kinds[kind].to_half)
        g = grid_resized(g, along, length / 2 + 1);
    nd_auto nd_tensor *y = kinds[kind].f(x, n, axis, norm);
    assert_grid(kinds[kind].name, y, kinds[kind].to_pairs, g, length);
}

/// x of the shape, with pairs where the kind wants them.
static nd_tensor *operand_of(size_t kind, layout how, int ndim, const int64_t *shape,
                             nd_dtype dtype) {
    int64_t wide[ND_MAX_DIMS];
    memcpy(wide, shape, (size_t)ndim * sizeof *shape);
    wide[ndim] = 2;
    return random_tensor(how, ndim + kinds[kind].from_pairs, wide, dtype, -1, 1);
}

static void check_size(int64_t size, nd_dtype dtype, nd_fft_norm norm) {
    for (size_t kind = 0; kind < COUNT_OF(kinds); kind++) {
        nd_auto nd_tensor *line = operand_of(kind, DENSE, ND_SHAPE(size), dtype);
        check(kind, line, 0, 0, norm);
        nd_auto nd_tensor *lines = operand_of(kind, DENSE, ND_SHAPE(2, size, 3), dtype);
        check(kind, lines, 0, 1, norm);
        check(kind, lines, 2 * size - 1, -2, norm); // odd, also of halves
    }
}

/// More lines than are transformed at once, behind each other and side by side.
static void check_many(int64_t size, nd_dtype dtype) {
    for (size_t kind = 0; kind < COUNT_OF(kinds); kind++) {
        nd_auto nd_tensor *behind = operand_of(kind, DENSE, ND_SHAPE(21, size), dtype);
        check(kind, behind, 0, 1, ND_FFT_NORM_BACKWARD);
        nd_auto nd_tensor *beside = operand_of(kind, DENSE, ND_SHAPE(size, 21), dtype);
        check(kind, beside, 0, 0, ND_FFT_NORM_ORTHO);
    }
}

static void test_fft_of_every_size(void **state) {
    (void)state;
    const int64_t larger[] = {47, 48, 60, 64, 97, 101, 128, 211, 243, 256};
    for (int dtype = 0; dtype < 2; dtype++)
        for (size_t norm = 0; norm < COUNT_OF(norms); norm++) {
            for (int64_t size = 1; size <= 40; size++)
                check_size(size, dtype ? ND_F64 : ND_F32, norms[norm]);
            check_size(larger[(size_t)rand() % COUNT_OF(larger)], ND_F64, norms[norm]);
        }
    for (int64_t size = 1; size <= 64; size++)
        check_many(size, size % 2 ? ND_F64 : ND_F32);
    check_many(131, ND_F32);
    check_many(256, ND_F64);
    for (size_t i = 0; i < COUNT_OF(larger); i++)
        check_size(larger[i], i % 2 ? ND_F64 : ND_F32, ND_FFT_NORM_BACKWARD);
    for (size_t kind = 0; kind < COUNT_OF(kinds);
         kind++) { // Rader's and Bluestein's ways, and none
        const int64_t lengths[] = {1009, 1021, 1024, 1000};
        nd_auto nd_tensor *x = operand_of(kind, DENSE, ND_SHAPE(700), ND_F64);
        for (size_t i = 0; i < COUNT_OF(lengths); i++)
            check(kind, x, lengths[i], 0, ND_FFT_NORM_ORTHO);
    }
}

/// Every axis, however the tensor lies, cut and continued.
static void test_fft_of_every_axis_and_layout(void **state) {
    (void)state;
    static const struct {
        int ndim;
        int64_t shape[4];
    } shapes[] = {{1, {6}}, {2, {5, 4}}, {3, {4, 5, 3}}, {3, {1, 6, 1}}, {4, {2, 3, 1, 19}}};
    static const int64_t lengths[] = {0, 1, 2, 3, 4, 7, 20};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t kind = 0; kind < COUNT_OF(kinds); kind++)
            for (int how = DENSE; how < LAYOUTS; how++) {
                int ndim = shapes[s].ndim;
                nd_auto nd_tensor *x =
                    operand_of(kind, (layout)how, ndim, shapes[s].shape, how % 2 ? ND_F64 : ND_F32);
                for (int axis = -ndim; axis < ndim; axis++)
                    for (size_t n = 0; n < COUNT_OF(lengths); n++)
                        check(kind, x, lengths[n], axis, norms[n % 3]);
            }
}

/// Backwards, every second, a window of a window, and pairs that lie apart.
static void test_fft_of_views(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(2, 9, 12), ND_F64, -1, 1);
    nd_auto nd_tensor *turned = nd_slice(x, INT64_MAX, INT64_MIN, -1, 1);
    nd_auto nd_tensor *stepped = nd_slice(turned, 1, 8, 2, 2);
    nd_auto nd_tensor *last = nd_permute(stepped, 3, (const int[]){2, 1, 0}); // the pairs in front
    nd_auto nd_tensor *windows = nd_sliding_window(x, 4, 1, 2);
    nd_auto nd_tensor *same = nd_expand(x, ND_SHAPE(3, 2, 9, 12));
    for (size_t kind = 0; kind < COUNT_OF(kinds); kind++) {
        check(kind, last, 0, 0, ND_FFT_NORM_BACKWARD);
        check(kind, last, 5, 1, ND_FFT_NORM_BACKWARD);
        if (kinds[kind].from_pairs)
            continue;
        check(kind, turned, 0, 1, ND_FFT_NORM_BACKWARD);
        check(kind, stepped, 0, 2, ND_FFT_NORM_BACKWARD);
        check(kind, windows, 0, 3, ND_FFT_NORM_BACKWARD);
        check(kind, same, 4, 0, ND_FFT_NORM_BACKWARD);
    }
    nd_auto nd_tensor *one = nd_scalar(3.0, ND_F32);
    nd_auto nd_tensor *row = nd_expand(one, ND_SHAPE(7));
    check(2, row, 0, 0, ND_FFT_NORM_BACKWARD);
}

// -------------------------------------------------------------------------------------------------
// several axes

static void check_axes(size_t kind, const nd_tensor *x, int naxes, const int64_t *sizes,
                       const int *axes, nd_fft_norm norm) {
    grid g = grid_of(x, !kinds_of_axes[kind].to_half);
    int count = naxes ? naxes : g.ndim;
    int64_t longest = 1;
    for (int place = 0; place < count; place++) { // the last one first, where numbers come in
        int i = kinds_of_axes[kind].to_half ? count - 1 - place : place;
        int axis = axes ? (axes[i] + g.ndim) % g.ndim : i;
        bool from_half = kinds_of_axes[kind].from_half && i == count - 1;
        int64_t n = sizes && sizes[i] ? sizes[i]
                    : from_half       ? 2 * (g.shape[axis] - 1)
                                      : g.shape[axis];
        g = from_half ? grid_whole(g, axis, n) : grid_resized(g, axis, n);
        g = grid_transformed(g, axis, kinds_of_axes[kind].sign, norm);
        if (kinds_of_axes[kind].to_half && i == count - 1)
            g = grid_resized(g, axis, n / 2 + 1);
        longest *= n;
    }
    nd_auto nd_tensor *y = kinds_of_axes[kind].f(x, naxes, sizes, axes, norm);
    assert_grid(kinds_of_axes[kind].name, y, !kinds_of_axes[kind].from_half, g, longest);
}

static void test_fft_of_several_axes(void **state) {
    (void)state;
    static const int64_t sizes[] = {3, 0, 8};
    static const int orders[][3] = {{0, 1, 2}, {2, 0, 1}, {-1, -3, -2}};
    for (size_t kind = 0; kind < COUNT_OF(kinds_of_axes); kind++)
        for (int how = DENSE; how < LAYOUTS; how++)
            for (size_t norm = 0; norm < COUNT_OF(norms); norm++) {
                size_t like = kinds_of_axes[kind].to_half ? 2 : 0; // of numbers, or pairs
                nd_auto nd_tensor *x =
                    operand_of(like, (layout)how, ND_SHAPE(4, 5, 6), norm ? ND_F64 : ND_F32);
                check_axes(kind, x, 0, NULL, NULL, norms[norm]);
                for (size_t order = 0; order < COUNT_OF(orders); order++)
                    for (int naxes = 1; naxes <= 3; naxes++) {
                        check_axes(kind, x, naxes, NULL, orders[order], norms[norm]);
                        check_axes(kind, x, naxes, sizes, orders[order], norms[norm]);
                    }
            }
}

// -------------------------------------------------------------------------------------------------
// dtypes, nothing, frequencies

static void test_fft_of_other_dtypes(void **state) {
    (void)state;
    const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_I8,  ND_I16, ND_I32, ND_I64,
                               ND_U8,  ND_U16,  ND_U32, ND_U64, ND_F32, ND_F64};
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        nd_auto nd_tensor *x = random_dense(ND_SHAPE(3, 6), dtypes[i], -2, 2);
        nd_auto nd_tensor *computed = nd_cast(x, dtypes[i] == ND_F64 ? ND_F64 : ND_F32);
        nd_auto nd_tensor *expected = nd_rfft(computed, 0, 1, ND_FFT_NORM_BACKWARD);
        nd_auto nd_tensor *got = nd_rfft(x, 0, 1, ND_FFT_NORM_BACKWARD);
        assert_alike(got, expected);
        nd_autocast(ND_BF16) {
            nd_auto nd_tensor *inside = nd_rfft(x, 0, 1, ND_FFT_NORM_BACKWARD);
            assert_alike(inside, expected);
            nd_auto nd_tensor *back = nd_irfftn(inside, 0, NULL, NULL, ND_FFT_NORM_BACKWARD);
            assert_int_equal(nd_get_dtype(back), dtypes[i] == ND_F64 ? ND_F64 : ND_F32);
        }
    }
}

/// A batch of nothing gives nothing, and an axis of nothing is continued with zeros.
static void test_fft_of_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 5), ND_F32);
    nd_auto nd_tensor *of_none = nd_rfft(none, 0, 1, ND_FFT_NORM_BACKWARD);
    assert_shape(of_none, ND_SHAPE(0, 3, 2));
    nd_auto nd_tensor *back = nd_irfft(of_none, 5, 1, ND_FFT_NORM_BACKWARD);
    assert_shape(back, ND_SHAPE(0, 5));
    nd_auto nd_tensor *zeros =
        nd_rfftn(none, 2, (const int64_t[]){3, 0}, (const int[]){0, 1}, ND_FFT_NORM_BACKWARD);
    assert_shape(zeros, ND_SHAPE(3, 3, 2));
    for (int64_t i = 0; i < 18; i++)
        assert_true(at_flat(zeros, i) == 0);
    assert_ok(nd_set_requires_grad(none, true));
    nd_auto nd_tensor *tracked = nd_rfft(none, 4, 0, ND_FFT_NORM_BACKWARD);
    assert_shape(tracked, ND_SHAPE(3, 5, 2));
    nd_auto nd_tensor *sum = nd_sum(tracked, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    assert_shape(nd_get_grad(none), ND_SHAPE(0, 5));
}

/// What is not read may be anything: the imaginary parts at the ends of a half.
static void test_irfft_ignores_imaginary_ends(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 66; n++) {
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(n / 2 + 1, 2), ND_F64);
        double *values = nd_get_data(x);
        for (int64_t i = 0; i < 2 * (n / 2 + 1); i++)
            values[i] = random_unit();
        values[1] = 0;
        if (n % 2 == 0)
            values[n + 1] = 0;
        nd_auto nd_tensor *expected = nd_irfft(x, n, 0, ND_FFT_NORM_BACKWARD);
        values[1] = NAN;
        if (n % 2 == 0)
            values[n + 1] = -INFINITY;
        nd_auto nd_tensor *got = nd_irfft(x, n, 0, ND_FFT_NORM_BACKWARD);
        assert_alike(got, expected);
    }
}

static void test_frequencies(void **state) {
    (void)state;
    const nd_dtype dtypes[] = {ND_F64, ND_F32, ND_F16, ND_BF16};
    for (int64_t n = 1; n <= 33; n++)
        for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
            double spacing = i % 2 ? -0.3 : 0.25;
            nd_auto nd_tensor *all = nd_fftfreq(n, spacing, dtypes[i]);
            nd_auto nd_tensor *half = nd_rfftfreq(n, spacing, dtypes[i]);
            assert_shape(all, ND_SHAPE(n));
            assert_shape(half, ND_SHAPE(n / 2 + 1));
            for (int64_t k = 0; k < n; k++) {
                double cycles = (double)(k < (n + 1) / 2 ? k : k - n);
                nd_auto nd_tensor *one = nd_scalar(cycles / ((double)n * spacing), dtypes[i]);
                assert_true(at_flat(all, k) == at_flat(one, 0));
                nd_auto nd_tensor *other = nd_scalar((double)k / ((double)n * spacing), dtypes[i]);
                assert_true(k > n / 2 || at_flat(half, k) == at_flat(other, 0));
            }
            assert_int_equal(nd_get_dtype(all), dtypes[i]);
        }
}

/// Element k of an axis of n goes to (k + n / 2) mod n, and back.
static void test_shifts(void **state) {
    (void)state;
    for (int how = DENSE; how < LAYOUTS; how++)
        for (unsigned mask = 1; mask < 8; mask++) {
            nd_auto nd_tensor *x = random_tensor((layout)how, ND_SHAPE(4, 1, 5), ND_I32, -9, 9);
            int axes[3], naxes = 0;
            for (int axis = 2; axis >= 0; axis--)
                if (mask >> axis & 1)
                    axes[naxes++] = axis - 3 * (axis % 2);
            nd_auto nd_tensor *there =
                mask == 7 ? nd_fftshift(x, 0, NULL) : nd_fftshift(x, naxes, axes);
            nd_auto nd_tensor *back = nd_ifftshift(there, naxes, axes);
            assert_alike(back, x);
            for (int64_t i = 0; i < 20; i++) {
                int64_t at[] = {i / 5, 0, i % 5}, from[] = {i / 5, 0, i % 5};
                if (mask & 1)
                    at[0] = (at[0] + 2) % 4;
                if (mask & 4)
                    at[2] = (at[2] + 2) % 5;
                assert_true(at_flat(there, at[0] * 5 + at[2]) == at_flat(x, from[0] * 5 + from[2]));
            }
        }
    nd_auto nd_tensor *point = nd_scalar(3, ND_F32);
    nd_auto nd_tensor *same = nd_fftshift(point, 0, NULL);
    assert_ptr_not_equal(same, point);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 3), ND_F32);
    nd_auto nd_tensor *of_none = nd_ifftshift(none, 0, NULL);
    assert_shape(of_none, ND_SHAPE(0, 3));
}

// -------------------------------------------------------------------------------------------------
// gradients

typedef struct gradient_case {
    size_t kind;
    int64_t n;
    int axis;
    nd_fft_norm norm;
} gradient_case;

/// Squared, so that the second derivative is not 0.
static nd_tensor *squared_transform(size_t count, const nd_tensor *const *x, void *data) {
    (void)count;
    const gradient_case *c = data;
    nd_auto nd_tensor *y = kinds[c->kind].f(x[0], c->n, c->axis, c->norm);
    return nd_square(y);
}

static void assert_gradients(nd_gradcheck_function f, void *data, const char *name, nd_tensor *x) {
    nd_auto nd_tensor *leaf = x;
    assert_ok(nd_set_requires_grad(leaf, true));
    const nd_tensor *inputs[] = {leaf};
    for (int order = 1; order <= 2; order++)
        if (nd_gradcheck(f, data, 1, inputs, order, 1e-6, 1e-5) != ND_OK)
            fail_msg("%s, order %d: %s", name, order, nd_error_get_message());
}

/// Of even and odd lengths, cut and continued: each place counts as often as it should.
static void test_gradients_of_fft(void **state) {
    (void)state;
    for (size_t kind = 0; kind < COUNT_OF(kinds); kind++)
        for (int64_t n = 1; n <= 9; n++)
            for (int axis = 0; axis < 2; axis++) {
                gradient_case c = {kind, n, axis, norms[n % 3]};
                assert_gradients(squared_transform, &c, kinds[kind].name,
                                 operand_of(kind, DENSE, ND_SHAPE(4, 3), ND_F64));
            }
}

static nd_tensor *filtered(size_t count, const nd_tensor *const *x, void *data) {
    (void)count, (void)data;
    nd_auto nd_tensor *y = nd_rfftn(x[0], 0, NULL, NULL, ND_FFT_NORM_ORTHO);
    nd_auto nd_tensor *power = nd_mul(y, y);
    nd_auto nd_tensor *moved = nd_fftshift(power, 1, (const int[]){0});
    nd_auto nd_tensor *again = nd_ifftn(moved, 1, NULL, (const int[]){1}, ND_FFT_NORM_BACKWARD);
    nd_auto nd_tensor *back =
        nd_irfftn(again, 2, (const int64_t[]){3, 5}, (const int[]){1, 0}, ND_FFT_NORM_FORWARD);
    return nd_ifftshift(back, 0, NULL);
}

static void test_gradients_of_several_axes(void **state) {
    (void)state;
    for (int how = DENSE; how < EXPANDED; how++) {
        nd_auto nd_tensor *x = random_tensor((layout)how, ND_SHAPE(3, 4), ND_F64, -1, 1);
        assert_gradients(filtered, NULL, "rfftn and back", nd_detach(x));
    }
}

/// The gradient of a half keeps the dtype and the place of the operand.
static void test_gradients_of_other_dtypes_and_devices(void **state) {
    (void)state;
    nd_auto nd_tensor *here = random_dense(ND_SHAPE(3, 6), ND_BF16, -1, 1);
    nd_auto nd_tensor *there = nd_to(here, (nd_device){ND_FAKE, 0});
    assert_ok(nd_set_requires_grad(here, true));
    assert_ok(nd_set_requires_grad(there, true));
    const nd_tensor *leaves[] = {here, there};
    for (int i = 0; i < 2; i++) {
        nd_auto nd_tensor *y = nd_rfft(leaves[i], 4, 0, ND_FFT_NORM_BACKWARD);
        assert_int_equal(nd_get_device(y).kind, nd_get_device(leaves[i]).kind);
        nd_auto nd_tensor *square = nd_square(y);
        nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
        assert_ok(nd_backward(sum, NULL));
        assert_int_equal(nd_get_dtype(nd_get_grad(leaves[i])), ND_BF16);
        assert_int_equal(nd_get_device(nd_get_grad(leaves[i])).kind, nd_get_device(leaves[i]).kind);
    }
    nd_auto nd_tensor *back = nd_to(nd_get_grad(there), (nd_device){ND_CPU, 0});
    assert_alike(back, nd_get_grad(here));
    nd_auto nd_tensor *shifted = nd_fftshift(there, 0, NULL);
    assert_int_equal(nd_get_device(shifted).kind, ND_FAKE);
}

int main(void) {
    if (!nd__fftw_exists(ND_F32) || !nd__fftw_exists(ND_F64)) {
        puts("SKIPPED: no FFTW");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        ND_TEST(test_fft_of_every_size),
        ND_TEST(test_fft_of_every_axis_and_layout),
        ND_TEST(test_fft_of_views),
        ND_TEST(test_fft_of_several_axes),
        ND_TEST(test_fft_of_other_dtypes),
        ND_TEST(test_fft_of_nothing),
        ND_TEST(test_irfft_ignores_imaginary_ends),
        ND_TEST(test_frequencies),
        ND_TEST(test_shifts),
        ND_TEST(test_gradients_of_fft),
        ND_TEST(test_gradients_of_several_axes),
        ND_TEST(test_gradients_of_other_dtypes_and_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
