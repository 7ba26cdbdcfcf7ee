// Results on a device beside those of the CPU, for the tests of NVIDIA's libraries.
#ifndef ND_TESTS_CUDART_RESULTS_H
#define ND_TESTS_CUDART_RESULTS_H
#include "tests/cudart/backend.h"
#include <math.h>
#include <nd/autograd.h>

enum { RESULTS = 3 }; ///< a function of x, its gradient, and the gradient of that

/// The gradient of the sum of y's cubes by x, and that of the sum of that one's squares.
static inline void differentiate_twice(const nd_tensor *y, const nd_tensor *x,
                                       nd_tensor **ret_gradients) {
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    nd_auto nd_tensor *square = nd_square(y), *cube = nd_mul(square, y);
    nd_auto nd_tensor *sum = nd_sum(cube, 0, NULL, false);
    assert_ok(nd_grad(sum, 1, &x, &options, &ret_gradients[0]));
    nd_auto nd_tensor *again = nd_square(ret_gradients[0]);
    nd_auto nd_tensor *total = nd_sum(again, 0, NULL, false);
    assert_ok(nd_grad(total, 1, &x, NULL, &ret_gradients[1]));
}

static inline void release_results(nd_tensor **results) {
    for (int i = 0; i < RESULTS; i++)
        nd_release(results[i]);
}

/// The largest difference beside the largest element.
static inline double distance(const nd_tensor *there, const nd_tensor *here) {
    nd_auto nd_tensor *near = nd_to(there, cpu), *a = nd_cast(near, ND_F64);
    nd_auto nd_tensor *b = nd_cast(here, ND_F64), *apart = nd_sub(a, b);
    nd_auto nd_tensor *off = nd_abs(apart), *size = nd_abs(b);
    nd_auto nd_tensor *most = nd_max(off, 0, NULL, false), *scale = nd_max(size, 0, NULL, false);
    assert_handle(most);
    return nd_get_item(most) / fmax(nd_get_item(scale), 1e-30);
}

/// Of the same dtype and shape, on a device, and not further apart than `most`.
static inline void assert_alike(const char *what, int result, const nd_tensor *got,
                                const nd_tensor *expected, double most) {
    assert_int_equal(nd_get_dtype(got), nd_get_dtype(expected));
    assert_int_equal(nd_get_device(got).kind, ND_CUDA);
    assert_int_equal(nd_get_ndim(got), nd_get_ndim(expected));
    for (int axis = 0; axis < nd_get_ndim(got); axis++)
        assert_int_equal(nd_get_shape(got)[axis], nd_get_shape(expected)[axis]);
    const double apart = distance(got, expected);
    if (!(apart <= most))
        fail_msg("%s, result %d of %s: %g apart", what, result,
                 nd_dtype_get_name(nd_get_dtype(got)), apart);
}
#endif
