// See cusolver.h.
#include "tests/cudart/cusolver.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SWEEPS = 100 }; ///< of a Jacobi method at most; about 10 are needed
/// Columns of a matrix whose largest number is about 1 count as zero when they are shorter: their
/// squares must not underflow.
static const double ZERO_COLUMN = 1e-140;

double *solver_matrix(int64_t rows, int64_t columns) {
    double *made = calloc((size_t)(rows * columns) + 1, sizeof *made);
    if (!made)
        abort();
    return made;
}

static void swap(double *x, double *y) {
    const double kept = *x;
    *x = *y;
    *y = kept;
}

static void fill(double *x, int64_t count, double value) {
    for (int64_t i = 0; i < count; i++)
        x[i] = value;
}

static double dot(const double *x, const double *y, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

/// The largest magnitude; NaN where there is a number that is not finite.
static double largest_of(const double *x, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(x[i]))
            return (double)NAN;
        largest = fmax(largest, fabs(x[i]));
    }
    return largest;
}

/// The Euclidean norm, whose squares neither overflow nor underflow.
static double norm(const double *x, int64_t count) {
    const double largest = largest_of(x, count);
    if (largest == 0)
        return 0;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (x[i] / largest) * (x[i] / largest);
    return largest * sqrt(sum);
}

// --------------------------------------------------------------------------------- Cholesky and LU

int solver_cholesky(double *a, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        double square = a[j + j * n];
        for (int64_t k = 0; k < j; k++)
            square -= a[j + k * n] * a[j + k * n];
        if (!(square > 0))
            return (int)(j + 1);
        a[j + j * n] = sqrt(square);
        for (int64_t i = j + 1; i < n; i++) {
            for (int64_t k = 0; k < j; k++)
                a[i + j * n] -= a[i + k * n] * a[j + k * n];
            a[i + j * n] /= a[j + j * n];
        }
    }
    return 0;
}

static void swap_rows(double *a, int64_t rows, int64_t columns, int64_t i, int64_t other) {
    for (int64_t j = 0; i != other && j < columns; j++)
        swap(a + i + j * rows, a + other + j * rows);
}

/// cuSOLVER was seen to divide by a pivot that is 0 all the same, and to write no pivots from there on.
int solver_lu(double *a, int64_t m, int64_t n, int64_t *ret_pivots) {
    int first_zero = 0;
    for (int64_t k = 0; k < m && k < n; k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < m; i++)
            if (fabs(a[i + k * m]) > fabs(a[best + k * m]))
                best = i;
        if (a[best + k * m] == 0) // and so is all below it
            first_zero = first_zero ? first_zero : (int)(k + 1);
        if (!first_zero)
            ret_pivots[k] = best + 1;
        swap_rows(a, m, n, k, best);
        for (int64_t i = k + 1; i < m; i++)
            a[i + k * m] /= a[k + k * m];
        for (int64_t j = k + 1; j < n; j++)
            for (int64_t i = k + 1; i < m; i++)
                a[i + j * m] -= a[i + k * m] * a[k + j * m];
    }
    return first_zero;
}

/// Solves L x = b or L^T x = b, with ones on the diagonal of L.
static void solve_lower(const double *lu, bool transpose, int64_t n, double *b) {
    if (!transpose)
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = j + 1; i < n; i++)
                b[i] -= lu[i + j * n] * b[j];
    else
        for (int64_t j = n - 1; j >= 0; j--)
            for (int64_t i = j + 1; i < n; i++)
                b[j] -= lu[i + j * n] * b[i];
}

/// Solves U x = b or U^T x = b.
static void solve_upper(const double *lu, bool transpose, int64_t n, double *b) {
    if (!transpose)
        for (int64_t j = n - 1; j >= 0; j--) {
            b[j] /= lu[j + j * n];
            for (int64_t i = 0; i < j; i++)
                b[i] -= lu[i + j * n] * b[j];
        }
    else
        for (int64_t j = 0; j < n; j++) {
            for (int64_t i = 0; i < j; i++)
                b[j] -= lu[i + j * n] * b[i];
            b[j] /= lu[j + j * n];
        }
}

void solver_lu_solve(const double *lu, const int64_t *pivots, bool transpose, int64_t n, double *b,
                     int64_t columns) {
    for (int64_t i = 0; i < n; i++)
        if (pivots[i] < i + 1 || pivots[i] > n) {
            fputs("cuSOLVER was given pivots that no factorisation makes\n", stderr);
            abort();
        }
    for (int64_t i = 0; !transpose && i < n; i++)
        swap_rows(b, n, columns, i, pivots[i] - 1);
    for (int64_t j = 0; j < columns; j++)
        if (transpose) {
            solve_upper(lu, true, n, b + j * n);
            solve_lower(lu, true, n, b + j * n);
        } else {
            solve_lower(lu, false, n, b + j * n);
            solve_upper(lu, false, n, b + j * n);
        }
    for (int64_t i = n - 1; transpose && i >= 0; i--)
        swap_rows(b, n, columns, i, pivots[i] - 1);
}

// ------------------------------------------------------------------------------------- reflections

/// Applies I - tau v v^T, where v[0] stands for 1, to a column.
static void reflect(const double *v, double tau, int64_t rows, double *column) {
    if (tau == 0)
        return;
    const double sum = tau * (column[0] + dot(v + 1, column + 1, rows - 1));
    column[0] -= sum;
    for (int64_t i = 1; i < rows; i++)
        column[i] -= sum * v[i];
}

void solver_qr(double *a, int64_t m, int64_t n, double *ret_tau) {
    for (int64_t k = 0; k < m && k < n; k++) {
        double *v = a + k + k * m;
        const int64_t rows = m - k;
        ret_tau[k] = 0;
        if (norm(v + 1, rows - 1) == 0)
            continue;
        const double first = v[0], beta = -copysign(norm(v, rows), first);
        ret_tau[k] = (beta - first) / beta;
        for (int64_t i = 1; i < rows; i++)
            v[i] /= first - beta;
        for (int64_t j = k + 1; j < n; j++)
            reflect(v, ret_tau[k], rows, a + k + j * m);
        v[0] = beta;
    }
}

void solver_orthogonal(double *a, int64_t m, int64_t n, int64_t k, const double *tau) {
    double *q = solver_matrix(m, n);
    for (int64_t i = 0; i < n; i++)
        q[i + i * m] = 1;
    for (int64_t i = k - 1; i >= 0; i--)
        for (int64_t j = i; j < n; j++)
            reflect(a + i + i * m, tau[i], m - i, q + i + j * m);
    for (int64_t i = 0; i < m * n; i++)
        a[i] = q[i];
    free(q);
}

// ------------------------------------------------------------------------------ Jacobi's rotations

typedef struct rotation {
    double cosine, sine;
} rotation;

/// That which makes the matrix of p, r; r, q diagonal; r is not 0.
static rotation rotation_of(double p, double q, double r) {
    const double cotangent = (q - p) / (2 * r); // of twice the angle
    const double tangent = copysign(1 / (fabs(cotangent) + hypot(1, cotangent)), cotangent);
    const double cosine = 1 / hypot(1, tangent);
    return (rotation){cosine, cosine * tangent};
}

/// Rotates numbers of x with those of y, as many elements apart as `stride` says.
static void rotate(rotation by, double *x, double *y, int64_t count, int64_t stride) {
    for (int64_t i = 0; i < count * stride; i += stride) {
        const double before = x[i];
        x[i] = by.cosine * before - by.sine * y[i];
        y[i] = by.sine * before + by.cosine * y[i];
    }
}

/// Multiplies by the power of two that brings the largest number to between 0.5 and 1. False where
/// a number is not finite.
static bool scale(double *x, int64_t count, int *ret_exponent) {
    const double largest = largest_of(x, count);
    if (isnan(largest))
        return false;
    frexp(largest, ret_exponent);
    for (int64_t i = 0; i < count; i++)
        x[i] = ldexp(x[i], -*ret_exponent);
    return true;
}

static void scale_back(double *x, int64_t count, int exponent) {
    for (int64_t i = 0; i < count; i++)
        x[i] = ldexp(x[i], exponent);
}

static void set_identity(double *a, int64_t n) {
    fill(a, n * n, 0);
    for (int64_t i = 0; i < n; i++)
        a[i + i * n] = 1;
}

static void swap_columns(double *a, int64_t rows, int64_t i, int64_t other) {
    for (int64_t k = 0; k < rows; k++)
        swap(a + k + i * rows, a + k + other * rows);
}

/// Sorts values, and with them the columns of x: [rows, n] and, unless it is NULL, of y: [n, n].
static void sort(double *values, int64_t n, bool descending, double *x, int64_t rows, double *y) {
    for (int64_t i = 0; i < n; i++) {
        int64_t next = i;
        for (int64_t j = i + 1; j < n; j++)
            if (descending ? values[j] > values[next] : values[j] < values[next])
                next = j;
        if (next == i)
            continue;
        swap(values + i, values + next);
        swap_columns(x, rows, i, next);
        if (y)
            swap_columns(y, n, i, next);
    }
}

/// Makes a[p, q] zero, where it is not negligible in a matrix whose largest number is about 1; true
/// where it was not.
static bool annihilate(double *a, double *vectors, int64_t n, int64_t p, int64_t q) {
    const double r = a[p + q * n];
    if (fabs(r) < 1e-17)
        return false;
    const rotation by = rotation_of(a[p + p * n], a[q + q * n], r);
    rotate(by, a + p * n, a + q * n, n, 1);
    rotate(by, a + p, a + q, n, n);
    a[p + q * n] = a[q + p * n] = 0;
    rotate(by, vectors + p * n, vectors + q * n, n, 1);
    return true;
}

/// The cyclic Jacobi method.
int solver_eigen(double *a, int64_t n, double *ret_values, double *ret_vectors) {
    int exponent;
    if (!scale(a, n * n, &exponent)) {
        fill(ret_values, n, (double)NAN);
        fill(ret_vectors, n * n, (double)NAN);
        return 1;
    }
    set_identity(ret_vectors, n);
    bool turned = true;
    for (int sweep = 0; turned && sweep < SWEEPS; sweep++) {
        turned = false;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++)
                turned = annihilate(a, ret_vectors, n, p, q) || turned;
    }
    for (int64_t i = 0; i < n; i++)
        ret_values[i] = a[i + i * n];
    scale_back(ret_values, n, exponent);
    sort(ret_values, n, false, ret_vectors, n, NULL);
    return turned ? 2 : 0;
}

/// Makes two columns of a: [m, n] orthogonal, where they are not yet; true where they were not.
static bool make_orthogonal(double *a, int64_t m, double *v, int64_t n, int64_t p, int64_t q) {
    double *x = a + p * m, *y = a + q * m;
    const double xx = dot(x, x, m), yy = dot(y, y, m), xy = dot(x, y, m);
    const double zero = ZERO_COLUMN * ZERO_COLUMN;
    if (xx < zero || yy < zero || fabs(xy) <= 4e-16 * sqrt((double)m) * sqrt(xx) * sqrt(yy))
        return false;
    const rotation by = rotation_of(xx, yy, xy);
    rotate(by, x, y, m, 1);
    rotate(by, v + p * n, v + q * n, n, 1);
    return true;
}

/// Sets column j of u: [m, ...] to a unit vector that is orthogonal to the columns before it, which
/// are orthonormal and fewer than m.
static void complete(double *u, int64_t m, int64_t j) {
    double *column = u + j * m, least = 2;
    int64_t farthest = 0; // from the space of those columns of all axes
    for (int64_t i = 0; i < m; i++) {
        double square = 0;
        for (int64_t k = 0; k < j; k++)
            square += u[i + k * m] * u[i + k * m];
        if (square < least) {
            least = square;
            farthest = i;
        }
    }
    fill(column, m, 0);
    column[farthest] = 1;
    for (int64_t k = 0; k < 2 * j; k++) { // twice: once leaves rounding errors
        const double *before = u + k % j * m, part = dot(before, column, m);
        for (int64_t i = 0; i < m; i++)
            column[i] -= part * before[i];
    }
    const double length = norm(column, m);
    for (int64_t i = 0; i < m; i++)
        column[i] /= length;
}

/// The columns of a, which are orthogonal and in descending order, become U.
static void normalise(double *a, int64_t m, int64_t n, double *s) {
    for (int64_t j = 0; j < n; j++)
        if (s[j] < ZERO_COLUMN) {
            s[j] = 0;
            complete(a, m, j);
        } else
            for (int64_t i = 0; i < m; i++)
                a[i + j * m] /= s[j];
}

/// The one-sided Jacobi method of Hestenes: a V = U S.
int solver_svd(double *a, int64_t m, int64_t n, double *ret_s, double *ret_v) {
    int exponent;
    if (!scale(a, m * n, &exponent)) {
        fill(a, m * n, (double)NAN);
        fill(ret_s, n, (double)NAN);
        fill(ret_v, n * n, (double)NAN);
        return 1;
    }
    set_identity(ret_v, n);
    bool turned = true;
    for (int sweep = 0; turned && sweep < SWEEPS; sweep++) {
        turned = false;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++)
                turned = make_orthogonal(a, m, ret_v, n, p, q) || turned;
    }
    for (int64_t j = 0; j < n; j++)
        ret_s[j] = norm(a + j * m, m);
    sort(ret_s, n, true, a, m, ret_v);
    normalise(a, m, n, ret_s);
    scale_back(ret_s, n, exponent);
    return turned ? 2 : 0;
}
