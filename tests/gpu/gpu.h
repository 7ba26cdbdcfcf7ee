// Running a group of tests only where there is a CUDA device.
#ifndef ND_TESTS_GPU_GPU_H
#define ND_TESTS_GPU_GPU_H
#include "tests/testing.h"
#include <stdlib.h>

#define CUDA_DEVICE ((nd_device){ND_CUDA, 0})

/// True when the tests can run. Else says so; ret_exit is what main returns then.
static inline bool gpu_present(int *ret_exit) {
    if (nd_get_device_count(ND_CUDA) > 0)
        return true;
    const char *required = getenv("ND_REQUIRE_GPU");
    bool failure = required && *required && strcmp(required, "0") != 0;
    printf("SKIPPED: no CUDA device%s\n", failure ? ", and ND_REQUIRE_GPU asks for one" : "");
    *ret_exit = failure ? 1 : 0;
    return false;
}
/// A tensor's numbers, wherever it is; the caller frees them.
static inline double *doubles_of(const nd_tensor *x) {
    nd_auto nd_tensor *plain = nd_detach(x);
    nd_auto nd_tensor *wide = nd_cast(plain, ND_F64);
    const size_t bytes = (size_t)nd_get_numel(x) * sizeof(double);
    double *numbers = malloc(bytes + 1);
    assert_non_null(numbers);
    assert_ok(nd_copy_to_host(wide, numbers, bytes));
    return numbers;
}
/// x times a weight that is quantized where it is.
static inline nd_tensor *quantized_product(const nd_tensor *x, const nd_tensor *weight, int bits,
                                           bool with_zeros) {
    nd_auto nd_tensor *values = NULL;
    nd_auto nd_tensor *scales = NULL;
    nd_auto nd_tensor *zeros = NULL;
    if (nd_quantize(weight, bits, 0, ND_BF16, &values, &scales, with_zeros ? &zeros : NULL) !=
        ND_OK)
        return NULL;
    return nd_quantized_linear(x, values, scales, zeros, NULL);
}
/// Of the bytes of twenty times two tensors, the second one turned; each row of x has a zero point.
static inline nd_tensor *integer_product(const nd_tensor *x, const nd_tensor *y, nd_dtype x_dtype,
                                         nd_dtype y_dtype, bool with_zeros) {
    nd_auto nd_tensor *large = nd_mul_scalar(x, 20);
    nd_auto nd_tensor *other = nd_mul_scalar(y, 20);
    nd_auto nd_tensor *a = nd_cast(large, x_dtype);
    nd_auto nd_tensor *lines = nd_cast(other, y_dtype);
    nd_auto nd_tensor *b = nd_transpose(lines, 0, 1);
    nd_auto nd_tensor *zeros = nd_slice(a, 0, 1, 1, 1);
    return nd_matmul_integer(a, b, with_zeros ? zeros : NULL, NULL);
}

#endif
