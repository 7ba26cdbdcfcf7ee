// Comparing the values of tensors, whatever their dtype, layout and device.
#ifndef ND_TESTS_UNIT_TENSOR_VALUES_H
#define ND_TESTS_UNIT_TENSOR_VALUES_H
#include "lib/device/fake/fake.h"
#include "tests/elements.h"
#include "tests/testing.h"

#define VALUES_MAX 64

/// Asserts that x has exactly these values in row-major order.
#define assert_values(x, ...)                                                                      \
    assert_values_of(x, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__}, \
                     __FILE__, __LINE__)

static inline void assert_values_of(const nd_tensor *x, size_t count, const double *expected,
                                    const char *file, int line) {
    union {
        char bytes[VALUES_MAX * sizeof(double)];
        double alignment;
    } data;
    if (!x)
        fail_msg("%s:%d: tensor is NULL: %s", file, line, nd_error_get_message());
    if ((size_t)nd_get_numel(x) != count || count > VALUES_MAX)
        fail_msg("%s:%d: %lld elements, not %zu", file, line, (long long)nd_get_numel(x), count);
    nd_dtype dtype = nd_get_dtype(x);
    assert_ok(nd_copy_to_host(x, data.bytes, count * nd_dtype_get_size(dtype)));
    for (size_t i = 0; i < count; i++)
        if (element_as_double(data.bytes, dtype, (int64_t)i) != expected[i])
            fail_msg("%s:%d: element %zu is %g, not %g", file, line, i,
                     element_as_double(data.bytes, dtype, (int64_t)i), expected[i]);
}

/// Asserts that x has exactly this shape.
#define assert_shape(x, ...) assert_shape_of(x, ND_SHAPE(__VA_ARGS__), __FILE__, __LINE__)

static inline void assert_shape_of(const nd_tensor *x, int ndim, const int64_t *shape,
                                   const char *file, int line) {
    if (!x)
        fail_msg("%s:%d: tensor is NULL: %s", file, line, nd_error_get_message());
    if (nd_get_ndim(x) != ndim)
        fail_msg("%s:%d: %d dimensions, not %d", file, line, nd_get_ndim(x), ndim);
    for (int i = 0; i < ndim; i++)
        if (nd_get_shape(x)[i] != shape[i])
            fail_msg("%s:%d: size %lld at axis %d, not %lld", file, line,
                     (long long)nd_get_shape(x)[i], i, (long long)shape[i]);
}

/// Asserts that an expression answers NULL with this status, and clears the error.
#define assert_refused(expression, expected)                                                       \
    do {                                                                                           \
        nd_error_clear();                                                                          \
        nd_tensor *refused_ = (expression);                                                        \
        if (refused_) {                                                                            \
            nd_release(refused_);                                                                  \
            fail_msg("%s was not refused", #expression);                                           \
        }                                                                                          \
        if (nd_error_get_status() != (expected))                                                   \
            fail_msg("%s: %s, not %s: %s", #expression, nd_status_get_name(nd_error_get_status()), \
                     nd_status_get_name(expected), nd_error_get_message());                        \
    } while (0)

/// 0, 1, 2, ... of a shape, on a device.
static inline nd_tensor *counted(nd_device device, nd_dtype dtype, int ndim, const int64_t *shape) {
    int64_t numel = 1;
    for (int i = 0; i < ndim; i++)
        numel *= shape[i];
    nd_device before = nd_get_default_device();
    assert_ok(nd_set_default_device(device));
    nd_tensor *flat = nd_arange(0, (double)numel, 1, dtype);
    assert_ok(nd_set_default_device(before));
    nd_tensor *x = nd_reshape(flat, ndim, shape);
    nd_release(flat);
    assert_handle(x);
    return x;
}

static const nd_device on_cpu = {ND_CPU, 0};
static const nd_device on_fake = {ND_FAKE, 1};
#endif
