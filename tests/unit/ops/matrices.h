// Matrices for the tests of linear algebra.
#ifndef ND_TESTS_UNIT_OPS_MATRICES_H
#define ND_TESTS_UNIT_OPS_MATRICES_H
#include "tests/testing.h"
#include <nd/linalg.h>

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
#endif
