// The Fourier transforms there are, and their definition in long doubles.
#ifndef ND_TESTS_UNIT_OPS_TRANSFORMS_H
#define ND_TESTS_UNIT_OPS_TRANSFORMS_H
#include "tests/unit/ops/values.h"
#include <complex.h>
#include <nd/fft.h>

/// Complex numbers in row-major order; freed by grid_free.
typedef struct grid {
    int ndim;
    int64_t shape[ND_MAX_DIMS];
    long double complex *values;
} grid;

static inline int64_t grid_count(const grid *g, int from, int to) {
    int64_t count = 1;
    for (int i = from; i < to; i++)
        count *= g->shape[i];
    return count;
}

static inline grid grid_new(int ndim, const int64_t *shape) {
    grid g = {.ndim = ndim};
    for (int i = 0; i < ndim; i++)
        g.shape[i] = shape[i];
    g.values = calloc((size_t)grid_count(&g, 0, ndim) + 1, sizeof *g.values);
    assert_non_null(g.values);
    return g;
}

static inline void grid_free(grid *g) {
    free(g->values);
    g->values = NULL;
}

/// The values of a tensor, of pairs or of numbers.
static inline grid grid_of(const nd_tensor *x, bool pairs) {
    grid g = grid_new(nd_get_ndim(x) - pairs, nd_get_shape(x));
    for (int64_t i = 0; i < grid_count(&g, 0, g.ndim); i++) {
        int64_t at = pairs ? 2 * i : i;
        g.values[i] = at_flat(x, at) + (pairs ? at_flat(x, at + 1) : 0) * (long double complex)I;
    }
    return g;
}

/// g (consumed) with `places` places along an axis: cut, or continued with zeros.
static inline grid grid_resized(grid g, int axis, int64_t places) {
    int64_t outer = grid_count(&g, 0, axis), inner = grid_count(&g, axis + 1, g.ndim);
    int64_t size = g.shape[axis];
    g.shape[axis] = places;
    grid to = grid_new(g.ndim, g.shape);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < places && j < size; j++)
            for (int64_t i = 0; i < inner; i++)
                to.values[(o * places + j) * inner + i] = g.values[(o * size + j) * inner + i];
    grid_free(&g);
    return to;
}

/// Of n / 2 + 1 places or more (consumed) along an axis the n of which they are the first half.
static inline grid grid_whole(grid half, int axis, int64_t n) {
    grid to = grid_resized(grid_resized(half, axis, n / 2 + 1), axis, n);
    int64_t outer = grid_count(&to, 0, axis), inner = grid_count(&to, axis + 1, to.ndim);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            long double complex *line = to.values + o * n * inner + i;
            line[0] = creall(line[0]);
            if (n % 2 == 0)
                line[n / 2 * inner] = creall(line[n / 2 * inner]);
            for (int64_t k = n / 2 + 1; k < n; k++)
                line[k * inner] = conjl(line[(n - k) * inner]);
        }
    return to;
}

/// The transform of all of an axis of g, which is consumed.
static inline grid grid_transformed(grid g, int axis, int sign, nd_fft_norm norm) {
    int64_t n = g.shape[axis];
    int64_t outer = grid_count(&g, 0, axis), inner = grid_count(&g, axis + 1, g.ndim);
    long double by = 1;
    if (norm == ND_FFT_NORM_ORTHO)
        by = sqrtl((long double)n);
    else if ((norm == ND_FFT_NORM_FORWARD) == (sign < 0))
        by = (long double)n;
    long double complex *roots = malloc((size_t)n * sizeof *roots);
    for (int64_t k = 0; k < n; k++) {
        long double angle = 2 * sign * acosl(-1) * (long double)k / (long double)n;
        roots[k] = (cosl(angle) + sinl(angle) * (long double complex)I) / by;
    }
    grid to = grid_new(g.ndim, g.shape);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            for (int64_t k = 0; k < n; k++) {
                long double complex sum = 0;
                for (int64_t j = 0; j < n; j++)
                    sum += g.values[(o * n + j) * inner + i] * roots[j * k % n];
                to.values[(o * n + k) * inner + i] = sum;
            }
    free(roots);
    grid_free(&g);
    return to;
}

// The transforms along one axis, and what they make of what.
typedef nd_tensor *(*transform)(const nd_tensor *, int64_t, int, nd_fft_norm);
static const struct {
    const char *name;
    transform f;
    int sign;
    bool from_half, to_half, from_pairs, to_pairs;
} kinds[] __attribute__((unused)) = {
    {"fft", nd_fft, -1, false, false, true, true},
    {"ifft", nd_ifft, 1, false, false, true, true},
    {"rfft", nd_rfft, -1, false, true, false, true},
    {"irfft", nd_irfft, 1, true, false, true, false},
    {"hfft", nd_hfft, -1, true, false, true, false},
    {"ihfft", nd_ihfft, 1, false, true, false, true},
};

// Those along several.
typedef nd_tensor *(*transform_axes)(const nd_tensor *, int, const int64_t *, const int *,
                                     nd_fft_norm);
static const struct {
    const char *name;
    transform_axes f;
    int sign;
    bool from_half, to_half;
} kinds_of_axes[] __attribute__((unused)) = {
    {"fftn", nd_fftn, -1, false, false},
    {"ifftn", nd_ifftn, 1, false, false},
    {"rfftn", nd_rfftn, -1, false, true},
    {"irfftn", nd_irfftn, 1, true, false},
};

/// The same dtype, shape and values.
static inline void assert_alike(const nd_tensor *x, const nd_tensor *y) {
    assert_handle(x);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(x), nd_get_dtype(y));
    assert_shape(x, nd_get_ndim(y), nd_get_shape(y));
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        assert_true(at_flat(x, i) == at_flat(y, i));
}
#endif
