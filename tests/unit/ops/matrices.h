// Matrices for the tests of linear algebra.
#ifndef ND_TESTS_UNIT_OPS_MATRICES_H
#define ND_TESTS_UNIT_OPS_MATRICES_H
#include "tests/testing.h"
#include "tests/unit/ops/values.h"
#include <float.h>
#include <math.h>
#include <nd/linalg.h>

static inline double epsilon(nd_dtype dtype) {
    return dtype == ND_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
}

/// One number of a dense matrix.
static inline void set(nd_tensor *x, int64_t i, int64_t j, double value) {
    int64_t at = i * nd_get_shape(x)[1] + j;
    if (nd_get_dtype(x) == ND_F32)
        ((float *)nd_get_data(x))[at] = (float)value;
    else
        ((double *)nd_get_data(x))[at] = value;
}

/// x + d times the identity.
static inline nd_tensor *shifted(const nd_tensor *x, double d) {
    nd_auto nd_tensor *one = nd_eye(nd_get_shape(x)[nd_get_ndim(x) - 1], nd_get_dtype(x));
    nd_auto nd_tensor *part = nd_mul_scalar(one, d);
    return nd_add(x, part);
}

/// x y, or x y^T.
static inline nd_tensor *product(const nd_tensor *x, const nd_tensor *y, bool turned) {
    nd_auto nd_tensor *right = turned ? nd_transpose(y, -2, -1) : nd_retain(y);
    return nd_matmul(x, right);
}

/// The largest absolute value of x - y, or of x; consumes neither.
static inline double largest(const nd_tensor *x, const nd_tensor *y) {
    assert_handle(x);
    nd_auto nd_tensor *difference = y ? nd_sub(x, y) : nd_retain(x);
    assert_handle(difference);
    double most = 0;
    for (int64_t i = 0; i < nd_get_numel(difference); i++)
        most = fmax(most, fabs(at_flat(difference, i)));
    return most;
}

/// x is y but for so many roundings of numbers as large as `scale`; consumes x.
static inline void assert_near(const char *what, nd_tensor *x, const nd_tensor *y, double scale) {
    int64_t side = 1;
    for (int i = 1; i <= 2 && i <= nd_get_ndim(y); i++)
        side =
            side > nd_get_shape(y)[nd_get_ndim(y) - i] ? side : nd_get_shape(y)[nd_get_ndim(y) - i];
    double unit = epsilon(nd_get_dtype(y));
    double bound = 32 * unit * (double)(side + 8) * fmax(scale, 1), apart = largest(x, y);
    if (!(apart <= bound))
        fail_msg("%s of %s: %g apart, and not %g", what, nd_dtype_get_name(nd_get_dtype(y)), apart,
                 bound);
    nd_release(x);
}

/// The four conditions of Penrose, and least squares by the pseudo-inverse.
static inline void check_pinv(const nd_tensor *x) {
    nd_auto nd_tensor *p = nd_pinv(x, -1);
    nd_auto nd_tensor *xp = nd_matmul(x, p);
    nd_auto nd_tensor *px = nd_matmul(p, x);
    // Random matrices have condition numbers of some hundreds.
    double scale = largest(x, NULL) * largest(p, NULL) * 100;
    assert_near("x p x", nd_matmul(xp, x), x, scale);
    assert_near("p x p", nd_matmul(px, p), p, scale * largest(p, NULL));
    nd_auto nd_tensor *xp_turned = nd_transpose(xp, -2, -1);
    nd_auto nd_tensor *px_turned = nd_transpose(px, -2, -1);
    assert_near("x p", nd_retain(xp), xp_turned, scale);
    assert_near("p x", nd_retain(px), px_turned, scale);
    nd_auto nd_tensor *expected = nd_matmul(p, x);
    assert_near("lstsq", nd_lstsq(x, x, -1), expected, scale * largest(p, NULL));
}
#endif
