// Products and convolutions of lib/device/cuda on the fake runtime: by every library that is found, by those that refuse,
// and without any.
//
// tests/cudart/planted/ holds bugs that these tests must notice.
#include "tests/cudart/backend.h"
#include <stdlib.h>
#include <string.h>

static void assert_nothing_left_on_devices(void) {
    for (int i = 0; i < nd_get_device_count(ND_CUDA); i++)
        assert_ok(nd_synchronize(cuda(i)));
    assert_int_equal(statistics().live_blocks, 0);
    assert_int_equal(statistics().refused, 0);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
}

static void test_products_are_in_order(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        cudart_set_seed(seed);
        nd_tensor *flat = full_on(cuda(0), 64, 1.0 / 8);
        nd_tensor *x = nd_reshape(flat, ND_SHAPE(8, 8));
        nd_release(flat);
        for (int i = 0; i < 5; i++) {
            nd_tensor *next = nd_matmul(x, x);
            assert_handle(next);
            nd_release(x);
            x = next;
        }
        nd_tensor *sum = nd_sum(x, 0, NULL, false);
        assert_true(nd_get_item(sum) == 8);
        nd_release(sum);
        nd_release(x);
    }
    assert_nothing_left_on_devices();
}

static nd_tensor *random_on(nd_device device, uint64_t stream, int64_t rows, int64_t columns,
                            nd_dtype dtype) {
    nd_tensor *wide = nd_randn((nd_key){5, stream}, ND_SHAPE(rows, columns), ND_F64);
    nd_tensor *x = nd_cast(wide, dtype), *there = nd_to(x, device);
    nd_release(wide);
    nd_release(x);
    return there;
}

/// How far two devices are apart, in units of the dtype's precision; -1: an error.
static double distance(nd_tensor *found, nd_tensor *expected) {
    static const double precision[ND_DTYPE_COUNT] = {
        [ND_F16] = 0x1p-10, [ND_BF16] = 0x1p-7, [ND_F32] = 0x1p-23, [ND_F64] = 0x1p-52};
    if (!found || !expected)
        return -1;
    nd_tensor *here = nd_to(found, cpu), *a = nd_cast(here, ND_F64), *b = nd_cast(expected, ND_F64);
    nd_tensor *difference = nd_sub(a, b), *size = nd_abs(difference);
    nd_tensor *largest = nd_max(size, 0, NULL, false);
    double apart = largest ? nd_get_item(largest) / precision[nd_get_dtype(expected)] : -1;
    nd_release(here);
    nd_release(a);
    nd_release(b);
    nd_release(difference);
    nd_release(size);
    nd_release(largest);
    return apart;
}

/// activation -1: none.
static nd_tensor *linear_on(nd_device device, nd_dtype dtype, bool has_bias, int activation) {
    nd_tensor *x = random_on(device, 1, 9, 200, dtype),
              *weight = random_on(device, 2, 24, 200, dtype);
    nd_tensor *row = random_on(device, 3, 1, 24, dtype), *bias = nd_reshape(row, ND_SHAPE(24));
    nd_tensor *y = activation < 0 ? nd_linear(x, weight, has_bias ? bias : NULL)
                                  : nd_linear_activation(x, weight, has_bias ? bias : NULL,
                                                         (nd_activation)activation);
    nd_release(x);
    nd_release(weight);
    nd_release(row);
    nd_release(bias);
    return y;
}

/// Every linear layer in every float dtype, whatever libraries there are. How many pieces of work
/// they queued is the exit status, less 100; or what was wrong.
static int multiply_by_libraries(void) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    for (int i = 0; i < 4; i++)
        for (int has_bias = 0; has_bias < 2; has_bias++)
            for (int activation = -1; activation <= (int)ND_ACTIVATION_TANH; activation++) {
                nd_tensor *there = linear_on(cuda(0), dtypes[i], has_bias, activation);
                nd_tensor *here = linear_on(cpu, dtypes[i], has_bias, activation);
                double apart = distance(there, here);
                nd_release(there);
                nd_release(here);
                // A bf16 of 64 differs from its neighbour by that many units.
                if (apart < 0 || apart > (dtypes[i] == ND_F32 || dtypes[i] == ND_F64 ? 500 : 64)) {
                    fprintf(stderr, "dtype %d, bias %d, activation %d: %g\n", (int)dtypes[i],
                            has_bias, activation, apart);
                    return 1;
                }
            }
    if (nd_synchronize(cuda(0)) != ND_OK || nd_manager_get_total_objects(NULL) != 0 ||
        statistics().live_blocks != 0)
        return 2;
    return 100 + (int)statistics().libraries;
}

/// Each in its process, because a library is looked for once.
static void test_F21_linear_by_every_library(void **state) {
    (void)state;
    const char *cublas = getenv("ND_CUBLAS");
    assert_non_null(cublas);
    char kept[4096], said[4096];
    snprintf(kept, sizeof kept, "%s", cublas);
    const struct {
        const char *variable, *value;
        int least, most; ///< pieces of work by libraries
    } cases[] = {
        {"ND_CUBLAS", kept, 40, 40},
        {"ND_CUBLAS", "/nonexistent/libcublas.so", 0, 0},
        {"ND_CUBLAS", "libm.so.6", 0, 0},
        {"ND_CUDART_CUBLASLT", "1", 40, 40},   // it cannot begin: cuBLAS in three steps
        {"ND_CUDART_CUBLASLT", "100", 40, 40}, // it knows no algorithm
        {"ND_CUDART_CUBLASLT", "101", 40, 40},
        {"ND_CUDART_CUBLASLT", "102", 40, 40},
        {"ND_CUDART_CUBLASLT", "103", 40, 40}, // of two activations the product is the same one
        {"ND_CUDART_CUBLAS", "1", 18, 18},     // only what cuBLASLt has: a bias or relu, not of f64
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv(cases[i].variable, cases[i].value, 1);
        int status = run_role("multiply_by_libraries", said, sizeof said);
        unsetenv(cases[i].variable);
        setenv("ND_CUBLAS", kept, 1);
        int queued = WIFEXITED(status) ? WEXITSTATUS(status) - 100 : -1;
        if (queued < cases[i].least || queued > cases[i].most)
            fail_msg("%s=%s: status %d: %s", cases[i].variable, cases[i].value, status, said);
    }
}

static nd_tensor *bytes_on(nd_device device, uint64_t stream, int64_t rows, int64_t columns,
                           nd_dtype dtype) {
    const int64_t low = dtype == ND_I8 ? -128 : 0;
    nd_tensor *x = nd_randint((nd_key){7, stream}, low, low + 256, ND_SHAPE(rows, columns), dtype);
    nd_tensor *there = nd_to(x, device);
    nd_release(x);
    return there;
}

/// Bit 0 and 1 of `how`: a and b have no sign; bit 2: zero points of a's rows.
static nd_tensor *integers_on(nd_device device, const int64_t *size, int how) {
    nd_tensor *a = bytes_on(device, 1, size[0], size[2], how & 1 ? ND_U8 : ND_I8);
    nd_tensor *b = bytes_on(device, 2, size[2], size[1], how & 2 ? ND_U8 : ND_I8);
    nd_tensor *zeros = nd_slice(a, 0, 1, 1, 1);
    nd_tensor *y = nd_matmul_integer(a, b, how & 4 ? zeros : NULL, NULL);
    nd_release(a);
    nd_release(b);
    nd_release(zeros);
    return y;
}

/// Of the products of bytes those of i8 by i8, without zero points and in whole words, are cuBLAS's:
/// two. Answers as multiply_by_libraries().
static int multiply_integers(void) {
    static const int64_t sizes[][3] = {{9, 24, 200}, {140, 132, 64}, {9, 24, 201},
                                       {9, 23, 200}, {1, 30, 70},    {30, 1, 70}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 8; how++) {
            nd_tensor *there = integers_on(cuda(0), sizes[i], how);
            nd_tensor *here = integers_on(cpu, sizes[i], how);
            nd_tensor *back = there && here ? nd_to(there, cpu) : NULL;
            const bool same = back && nd_get_dtype(back) == ND_I32 &&
                              memcmp(nd_get_data(back), nd_get_data(here),
                                     (size_t)nd_get_numel(here) * sizeof(int32_t)) == 0;
            nd_release(there);
            nd_release(here);
            nd_release(back);
            if (!same) {
                fprintf(stderr, "size %d, how %d\n", (int)i, how);
                return 1;
            }
        }
    if (nd_synchronize(cuda(0)) != ND_OK || nd_manager_get_total_objects(NULL) != 0 ||
        statistics().live_blocks != 0)
        return 2;
    return 100 + (int)statistics().libraries;
}

static void test_integers_by_every_library(void **state) {
    (void)state;
    const char *cublas = getenv("ND_CUBLAS");
    assert_non_null(cublas);
    char kept[4096], said[4096];
    snprintf(kept, sizeof kept, "%s", cublas);
    for (int with = 0; with < 2; with++) {
        setenv("ND_CUBLAS", with ? kept : "/nonexistent/libcublas.so", 1);
        int status = run_role("multiply_integers", said, sizeof said);
        setenv("ND_CUBLAS", kept, 1);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 100 + 2 * with)
            fail_msg("%s cuBLAS: status %d: %s", with ? "with" : "without", status, said);
    }
}

/// Convolution number `which` on a device, or its gradients: the sum of squares is taken back to x or
/// the weight. Of one axis, of two in groups, and of three.
static nd_tensor *convolved_on(nd_device device, nd_dtype dtype, int which, int of) {
    static const int64_t shapes[3][2][5] = {{{2, 9, 21, 0, 0}, {10, 9, 4, 0, 0}},
                                            {{3, 4, 7, 9, 0}, {6, 2, 3, 2, 0}},
                                            {{2, 3, 4, 5, 6}, {4, 3, 2, 3, 3}}};
    static const nd_key keys[2] = {{6, 1}, {6, 2}};
    nd_tensor *operands[2];
    for (int i = 0; i < 2; i++) {
        nd_tensor *wide = nd_randn(keys[i], 3 + which, shapes[which][i], ND_F64);
        nd_tensor *here = nd_cast(wide, dtype);
        operands[i] = nd_to(here, device);
        nd_set_requires_grad(operands[i], of > 0);
        nd_release(wide);
        nd_release(here);
    }
    nd_conv1d_options one = ND_CONV1D_OPTIONS_INIT;
    nd_conv2d_options two = ND_CONV2D_OPTIONS_INIT;
    nd_conv3d_options three = ND_CONV3D_OPTIONS_INIT;
    one.stride = 2;
    two.groups = 2;
    two.padding[1] = three.padding[0] = 1;
    two.dilation[0] = 2;
    nd_tensor *y = which == 0   ? nd_conv1d(operands[0], operands[1], NULL, &one)
                   : which == 1 ? nd_conv2d(operands[0], operands[1], NULL, &two)
                                : nd_conv3d(operands[0], operands[1], NULL, &three);
    nd_tensor *result = NULL;
    if (of == 0) {
        result = nd_retain(y);
    } else if (y) {
        nd_tensor *squares = nd_square(y), *sum = nd_sum(squares, 0, NULL, false);
        if (nd_backward(sum, NULL) == ND_OK)
            result = nd_retain(nd_get_grad(operands[of - 1]));
        nd_release(squares);
        nd_release(sum);
    }
    nd_release(y);
    nd_release(operands[0]);
    nd_release(operands[1]);
    return result;
}

/// Every convolution and its gradients, in f32 and f64, twice; the status as multiply_by_libraries.
static int convolve_by_libraries(void) {
    for (int which = 0; which < 6; which++)
        for (int wide = 0; wide < 2; wide++)
            for (int of = 0; of < 3; of++) {
                nd_tensor *there = convolved_on(cuda(0), wide ? ND_F64 : ND_F32, which % 3, of);
                nd_tensor *here = convolved_on(cpu, wide ? ND_F64 : ND_F32, which % 3, of);
                double apart = distance(there, here);
                nd_release(there);
                nd_release(here);
                if (apart < 0 || apart > 4000) {
                    fprintf(stderr, "convolution %d, f64 %d, of %d: %g\n", which, wide, of, apart);
                    return 1;
                }
            }
    if (nd_synchronize(cuda(0)) != ND_OK || nd_manager_get_total_objects(NULL) != 0 ||
        statistics().live_blocks != 0)
        return 2;
    return 100 + (int)statistics().libraries;
}

/// How many of 18 linear layers, convolutions and gradients of f32 the device rounded: they are
/// thousands of units of f32's precision from the CPU's, and still near.
static int rounded_in_f32(void) {
    int count = 0;
    for (int which = 0; which < 6; which++)
        for (int of = 0; of < 3; of++) {
            const bool is_linear = which > 2;
            nd_tensor *there = is_linear ? linear_on(cuda(0), ND_F32, which > 3, of - 1)
                                         : convolved_on(cuda(0), ND_F32, which, of);
            nd_tensor *here = is_linear ? linear_on(cpu, ND_F32, which > 3, of - 1)
                                        : convolved_on(cpu, ND_F32, which, of);
            const double apart = distance(there, here);
            nd_release(there);
            nd_release(here);
            assert_true(apart >= 0 && apart < 0x1p25);
            count += apart > 4000;
        }
    return count;
}

/// What libraries answered for the one is not taken for the other.
static void test_tf32_where_it_is_allowed(void **state) {
    (void)state;
    assert_false(nd_is_tf32());
    for (int round = 0; round < 2; round++) {
        assert_int_equal(rounded_in_f32(), 0);
        nd_set_tf32(true);
        assert_true(nd_is_tf32());
        assert_int_equal(rounded_in_f32(), 18);
        nd_tensor *there = linear_on(cuda(0), ND_F64, true, -1);
        nd_tensor *here = linear_on(cpu, ND_F64, true, -1);
        assert_true(distance(there, here) <= 500);
        nd_release(there);
        nd_release(here);
        nd_set_tf32(false);
    }
    assert_nothing_left_on_devices();
}

static void test_F21_convolutions_by_every_library(void **state) {
    (void)state;
    const char *cudnn = getenv("ND_CUDNN");
    assert_non_null(cudnn);
    char kept[4096], said[4096];
    snprintf(kept, sizeof kept, "%s", cudnn);
    const struct {
        const char *variable, *value;
        int queued; ///< pieces of work by cuDNN: one, or a forward and two gradients
    } cases[] = {
        {"ND_CUDNN", kept, 84},         {"ND_CUDNN", "/nonexistent/libcudnn.so", 0},
        {"ND_CUDNN", "libm.so.6", 0},   {"ND_CUDART_CUDNN", "1001", 0}, // it cannot begin
        {"ND_CUDART_CUDNN", "100", 0},                                  // it refuses to choose
        {"ND_CUDART_CUDNN", "101", 0},                                  // all it offers is refused
        {"ND_CUDART_CUDNN", "102", 0},  // it wants more memory than there is
        {"ND_CUDART_CUDNN", "103", 0},  // it refuses at last
        {"ND_CUDART_CUDNN", "104", 84}, // the second offer needs no memory
        {"ND_CUDART_CUDNN", "107", 84}, // it would end the program if it were asked twice
    };
    setenv("ND_CUDART_MEMORY", "100000000", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv(cases[i].variable, cases[i].value, 1);
        int status = run_role("convolve_by_libraries", said, sizeof said);
        unsetenv(cases[i].variable);
        setenv("ND_CUDNN", kept, 1);
        int queued = WIFEXITED(status) ? WEXITSTATUS(status) - 100 : -1;
        if (queued != cases[i].queued)
            fail_msg("%s=%s: status %d: %s", cases[i].variable, cases[i].value, status, said);
    }
    unsetenv("ND_CUDART_MEMORY");
}

/// A bias and relu are one piece of work, without a kernel.
static void test_an_epilogue_is_no_kernel(void **state) {
    (void)state;
    nd_tensor *x = random_on(cuda(0), 1, 9, 40, ND_F32),
              *weight = random_on(cuda(0), 2, 24, 40, ND_F32);
    nd_tensor *row = random_on(cuda(0), 3, 1, 24, ND_F32), *bias = nd_reshape(row, ND_SHAPE(24));
    assert_ok(nd_synchronize(cuda(0)));
    for (int activation = ND_ACTIVATION_RELU; activation <= (int)ND_ACTIVATION_GELU; activation++) {
        cudart_statistics before = statistics();
        nd_tensor *y = nd_linear_activation(x, weight, bias, (nd_activation)activation);
        assert_handle(y);
        assert_int_equal(statistics().libraries - before.libraries, 1);
        // Its own GELU is another function than nd_gelu.
        assert_int_equal(statistics().kernels - before.kernels, activation == ND_ACTIVATION_GELU);
        nd_release(y);
    }
    nd_release(x);
    nd_release(weight);
    nd_release(row);
    nd_release(bias);
    assert_nothing_left_on_devices();
}

/// Long sums of 16-bit floats are added up in f32.
static void test_halves_are_added_up_in_f32(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16};
    for (int i = 0; i < 2; i++) {
        nd_tensor *ones = nd_full(ND_SHAPE(1, 4096), 1, dtypes[i]), *x = nd_to(ones, cuda(0));
        nd_tensor *turned = nd_transpose(x, 0, 1), *product = nd_matmul(x, turned);
        assert_handle(product);
        assert_true(nd_get_item(product) == 4096);
        nd_release(ones);
        nd_release(x);
        nd_release(turned);
        nd_release(product);
    }
    assert_nothing_left_on_devices();
}

static const role roles[] = {
    {"multiply_by_libraries", multiply_by_libraries},
    {"multiply_integers", multiply_integers},
    {"convolve_by_libraries", convolve_by_libraries},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_products_are_in_order),      ND_TEST(test_F21_linear_by_every_library),
        ND_TEST(test_integers_by_every_library),  ND_TEST(test_tf32_where_it_is_allowed),
        ND_TEST(test_an_epilogue_is_no_kernel),   ND_TEST(test_F21_convolutions_by_every_library),
        ND_TEST(test_halves_are_added_up_in_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
