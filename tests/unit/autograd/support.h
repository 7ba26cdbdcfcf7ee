// Small makers and checks for the tests of lib/autograd.
#ifndef ND_TESTS_UNIT_AUTOGRAD_SUPPORT_H
#define ND_TESTS_UNIT_AUTOGRAD_SUPPORT_H
#include "tests/testing.h"

#include <math.h>

/// VALUES(1, 2, 3): the arguments `count, values` of the functions below.
#define VALUES(...)                                                                       \
    (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)), (const double[]) { \
        __VA_ARGS__                                                                       \
    }

/// [count] f64 on the CPU.
static inline nd_tensor *make_vector(int64_t count, const double *values) {
    nd_tensor *x = nd_from_data(values, 1, &count, ND_F64);
    assert_handle(x);
    return x;
}

/// The same, requiring a gradient.
static inline nd_tensor *make_leaf(int64_t count, const double *values) {
    nd_tensor *x = make_vector(count, values);
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

/// Sum of all elements, with history.
static inline nd_tensor *total(const nd_tensor *x) {
    nd_tensor *sum = nd_sum(x, 0, NULL, false);
    assert_handle(sum);
    return sum;
}

/// Asserts the elements of x, row-major, to 1e-6.
static inline void assert_values(const nd_tensor *x, int64_t count, const double *values) {
    assert_handle(x);
    assert_int_equal(nd_get_numel(x), count);
    nd_auto nd_tensor *plain = nd_detach(x);
    nd_auto nd_tensor *wide = nd_cast(plain, ND_F64);
    double found[64];
    assert_true(count <= 64);
    assert_ok(nd_copy_to_host(wide, found, (size_t)count * sizeof(double)));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(found[i] - values[i]) <= 1e-6))
            fail_msg("element %lld is %.9g, not %.9g", (long long)i, found[i], values[i]);
}

/// Asserts that the thread's error has a status and that its sentence contains `part`.
static inline void assert_error(nd_status status, const char *part) {
    if (nd_error_get_status() != status || !strstr(nd_error_get_message(), part))
        fail_msg("expected %s with '%s', got %s: %s", nd_status_get_name(status), part,
                 nd_status_get_name(nd_error_get_status()), nd_error_get_message());
    nd_error_clear();
}

#endif
