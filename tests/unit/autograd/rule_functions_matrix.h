// The functions of rule_cases.h, for linear algebra and Fourier transforms.
#ifndef ND_TESTS_UNIT_AUTOGRAD_RULE_FUNCTIONS_MATRIX_H
#define ND_TESTS_UNIT_AUTOGRAD_RULE_FUNCTIONS_MATRIX_H
#include "lib/device/fake/fake.h"
#include "tests/unit/autograd/rule_case.h"

#include <nd/fft.h>
#include <nd/linalg.h>

// -------------------------------------------------------------------------------------------------
// linear algebra on the host

/// x + 4 times the identity.
static nd_tensor *regular(const nd_tensor *x) {
    nd_auto nd_tensor *one = nd_eye(nd_get_shape(x)[nd_get_ndim(x) - 1], nd_get_dtype(x));
    nd_auto nd_tensor *part = nd_mul_scalar(one, 4);
    return nd_add(x, part);
}

F(f_solve) {
    UNUSED;
    nd_auto nd_tensor *a = regular(x[0]);
    return nd_solve(a, x[1]);
}

F(f_inv_elsewhere) {
    UNUSED;
    nd_auto nd_tensor *a = regular(x[0]);
    nd_auto nd_tensor *far = nd_to(a, (nd_device){ND_FAKE, 0});
    nd_auto nd_tensor *inverse = nd_inv(far);
    return nd_to(inverse, (nd_device){ND_CPU, 0});
}

F(f_solve_upper) {
    UNUSED;
    nd_auto nd_tensor *a = regular(x[0]);
    return nd_solve_triangular(a, x[1], true, false);
}

F(f_solve_unit_lower) {
    UNUSED;
    return nd_solve_triangular(x[0], x[1], false, true);
}

F(f_lstsq) {
    UNUSED;
    return nd_lstsq(x[0], x[1], -1);
}

F(f_pinv) {
    UNUSED;
    return nd_pinv(x[0], -1);
}

F(f_cholesky) {
    UNUSED;
    nd_auto nd_tensor *turned = nd_transpose(x[0], -2, -1);
    nd_auto nd_tensor *square = nd_matmul(x[0], turned);
    nd_auto nd_tensor *positive = regular(square);
    return nd_cholesky(positive);
}

/// Both parts of a decomposition, which it consumes, in one row.
static nd_tensor *both_parts(nd_tensor *first, nd_tensor *second) {
    nd_auto nd_tensor *left = nd_flatten(first, 0);
    nd_auto nd_tensor *right = nd_flatten(second, 0);
    const nd_tensor *parts[] = {left, right};
    nd_release(first);
    nd_release(second);
    return left && right ? nd_concat(2, parts, 0) : NULL;
}

F(f_qr) {
    UNUSED;
    nd_tensor *q = NULL, *r = NULL;
    return nd_qr(x[0], &q, &r) == ND_OK ? both_parts(q, r) : NULL;
}

F(f_svd) {
    UNUSED;
    nd_tensor *u = NULL, *s = NULL, *vt = NULL;
    if (nd_svd(x[0], &u, &s, &vt) != ND_OK)
        return NULL;
    nd_auto nd_tensor *row = nd_unsqueeze(s, -2);
    nd_tensor *scaled = nd_mul(u, row);
    nd_release(u);
    nd_release(s);
    return both_parts(scaled, vt);
}

F(f_eigh) {
    UNUSED;
    nd_tensor *values = NULL, *vectors = NULL;
    return nd_eigh(x[0], &values, &vectors) == ND_OK ? both_parts(values, vectors) : NULL;
}

F(f_slogdet) {
    UNUSED;
    nd_auto nd_tensor *a = regular(x[0]);
    nd_auto nd_tensor *det = nd_det(a);
    nd_tensor *logarithm = NULL;
    if (nd_slogdet(a, NULL, &logarithm) != ND_OK)
        return NULL;
    nd_tensor *product = nd_mul(det, logarithm);
    nd_release(logarithm);
    return product;
}

// -------------------------------------------------------------------------------------------------
// Fourier transforms on the host

F(f_fft) {
    UNUSED;
    return nd_fft(x[0], 0, 1, ND_FFT_NORM_BACKWARD);
}

F(f_ifft) {
    UNUSED;
    return nd_ifft(x[0], 5, 0, ND_FFT_NORM_ORTHO);
}

F(f_rfft) {
    UNUSED;
    return nd_rfft(x[0], 0, 1, ND_FFT_NORM_FORWARD);
}

F(f_rfft_elsewhere) {
    UNUSED;
    nd_auto nd_tensor *far = nd_to(x[0], (nd_device){ND_FAKE, 0});
    nd_auto nd_tensor *half = nd_rfft(far, 2, 0, ND_FFT_NORM_BACKWARD);
    return nd_to(half, (nd_device){ND_CPU, 0});
}

F(f_irfft) {
    UNUSED;
    return nd_irfft(x[0], 0, 1, ND_FFT_NORM_BACKWARD);
}

F(f_hfft) {
    UNUSED;
    return nd_hfft(x[0], 7, 0, ND_FFT_NORM_ORTHO);
}
#endif
