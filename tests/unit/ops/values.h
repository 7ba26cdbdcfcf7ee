// Values of tensors for the tests of operations: random tensors in several layouts, and an element
// of any tensor as a double, read by its shape and strides alone.
#ifndef ND_TESTS_UNIT_OPS_VALUES_H
#define ND_TESTS_UNIT_OPS_VALUES_H
#include "tests/elements.h"
#include "tests/testing.h"
#include <math.h>
#include <stdlib.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/// How a tensor lies in memory.
typedef enum layout { DENSE, TRANSPOSED, STEPPED, EXPANDED, ODD, LAYOUTS } layout;

/// Coordinates of a flat row-major index.
static inline void coordinates_of(int ndim, const int64_t *shape, int64_t flat,
                                  int64_t *ret_index) {
    for (int i = ndim - 1; i >= 0; i--) {
        ret_index[i] = flat % shape[i];
        flat /= shape[i];
    }
}

/// Element of x at coordinates; coordinates before x's first axis and along axes of size 1 are
/// ignored, as broadcasting does.
static inline double at(const nd_tensor *x, int ndim, const int64_t *index) {
    int64_t offset = 0;
    int missing = ndim - nd_get_ndim(x);
    for (int i = 0; i < nd_get_ndim(x); i++)
        if (nd_get_shape(x)[i] != 1)
            offset += index[i + missing] * nd_get_strides(x)[i];
    return element_as_double(nd_get_data(x), nd_get_dtype(x), offset);
}

static inline double at_flat(const nd_tensor *x, int64_t flat) {
    int64_t index[ND_MAX_DIMS];
    coordinates_of(nd_get_ndim(x), nd_get_shape(x), flat, index);
    return at(x, nd_get_ndim(x), index);
}

static inline double random_unit(void) {
    return (double)rand() / ((double)RAND_MAX + 1.0);
}

/// Random values that every operation takes: floats in (low, high), integers of both signs (without
/// one 0 to 15), bools.
static inline double random_value(nd_dtype dtype, double low, double high) {
    if (is_float(dtype))
        return low + (high - low) * random_unit();
    return dtype == ND_BOOL ? rand() % 2 : is_unsigned(dtype) ? rand() % 16 : rand() % 25 - 12;
}

static inline nd_tensor *random_dense(int ndim, const int64_t *shape, nd_dtype dtype, double low,
                                      double high) {
    nd_tensor *x = nd_empty(ndim, shape, dtype);
    assert_handle(x);
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        set_element(nd_get_data(x), dtype, i, random_value(dtype, low, high));
    return x;
}

/// Owned random tensor of the shape, lying as asked: every layout but DENSE is a view.
static inline nd_tensor *random_tensor(layout how, int ndim, const int64_t *shape, nd_dtype dtype,
                                       double low, double high) {
    int64_t base[ND_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        base[i] = shape[i];
    if (ndim == 0 || how == DENSE)
        return random_dense(ndim, shape, dtype, low, high);
    if (how == TRANSPOSED) {
        base[0] = shape[ndim - 1];
        base[ndim - 1] = shape[0];
        nd_auto nd_tensor *x = random_dense(ndim, base, dtype, low, high);
        return nd_transpose(x, 0, ndim - 1);
    }
    if (how == STEPPED) {
        base[ndim - 1] = 2 * shape[ndim - 1] + 1;
        nd_auto nd_tensor *x = random_dense(ndim, base, dtype, low, high);
        return nd_slice(x, 1, INT64_MAX, 2, ndim - 1);
    }
    if (how == ODD) { // axes of size 1 have strides that lead nowhere
        nd_auto nd_tensor *x = random_dense(ndim, shape, dtype, low, high);
        int64_t strides[ND_MAX_DIMS];
        for (int i = 0; i < ndim; i++)
            strides[i] = shape[i] == 1 ? 1000003 : nd_get_strides(x)[i];
        return nd_as_strided(x, ndim, shape, strides, 0);
    }
    base[0] = 1;
    nd_auto nd_tensor *x = random_dense(ndim, base, dtype, low, high);
    return nd_expand(x, ndim, shape);
}

/// NaN equals NaN, infinities are equal by sign, else within `relative` of the larger, or
/// `absolute`.
static inline bool close_to(double got, double expected, double relative, double absolute) {
    if (isnan(expected) || isnan(got))
        return isnan(expected) && isnan(got);
    if (isinf(expected) || isinf(got))
        return expected == got;
    return fabs(got - expected) <= relative * fabs(expected) + absolute;
}

static inline void assert_close(const char *what, double got, double expected, double relative,
                                double absolute) {
    if (!close_to(got, expected, relative, absolute))
        fail_msg("%s: got %.9g, expected %.9g", what, got, expected);
}

static inline void assert_shape(const nd_tensor *x, int ndim, const int64_t *shape) {
    assert_int_equal(nd_get_ndim(x), ndim);
    for (int i = 0; i < ndim; i++)
        assert_int_equal(nd_get_shape(x)[i], shape[i]);
}

/// Asserts that an expression gives NULL with a status, and that the sentence begins with `name`.
#define assert_refused(expression, status, name)                                           \
    do {                                                                                   \
        nd_error_clear();                                                                  \
        nd_tensor *nd_refused_ = (expression);                                             \
        assert_null(nd_refused_);                                                          \
        if (nd_error_get_status() != (status) ||                                           \
            strncmp(nd_error_get_message(), name, strlen(name)))                           \
            fail_msg("%s: %s: %s", #expression, nd_status_get_name(nd_error_get_status()), \
                     nd_error_get_message());                                              \
        nd_error_clear();                                                                  \
    } while (0)
#define assert_status(expression, status)                                       \
    do {                                                                        \
        nd_error_clear();                                                       \
        nd_status nd_status_ = (expression);                                    \
        if (nd_status_ != (status))                                             \
            fail_msg("%s: %s: %s", #expression, nd_status_get_name(nd_status_), \
                     nd_error_get_message());                                   \
        nd_error_clear();                                                       \
    } while (0)
#endif
