// lib/device/cuda on the fake runtime: what it must not rely on, and what it must not forget.
//
// tests/cudart/planted/ holds bugs that these tests must notice.
#include "tests/cudart/backend.h"
#include <pthread.h>
#include <stdlib.h>

static double sum_of(const nd_tensor *x) {
    nd_tensor *sum = nd_sum(x, 0, NULL, false);
    double value = nd_get_item(sum);
    nd_release(sum);
    return value;
}

static void assert_nothing_left_on_devices(void) {
    for (int i = 0; i < nd_get_device_count(ND_CUDA); i++)
        assert_ok(nd_synchronize(cuda(i)));
    assert_int_equal(statistics().live_blocks, 0);
    assert_int_equal(statistics().refused, 0);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
}

// ------------------------------------------------------------------------------------------------
// copies

/// Small ones go through a ring of pinned memory, which must not be written before it was read.
static void test_many_small_copies(void **state) {
    (void)state;
    enum { COPIES = 40 };
    for (uint64_t seed = 0; seed < 10; seed++) {
        cudart_set_seed(seed);
        nd_tensor *there[COPIES];
        for (int i = 0; i < COPIES; i++) {
            nd_tensor *here = full_on(cpu, 100, i);
            there[i] = nd_to(here, cuda(0));
            assert_handle(there[i]);
            nd_release(here);
        }
        for (int i = 0; i < COPIES; i++) {
            assert_true(sum_of(there[i]) == 100.0 * i);
            nd_release(there[i]);
        }
    }
    assert_nothing_left_on_devices();
}

/// Larger ones may be changed as soon as the call is back.
static void test_a_large_copy_has_been_read(void **state) {
    (void)state;
    cudart_set_seed(0);
    const int64_t n = 100000;
    nd_tensor *here = full_on(cpu, n, 1);
    nd_tensor *there = nd_to(here, cuda(0));
    assert_handle(there);
    assert_ok(nd_fill_(here, 7));
    assert_true(sum_of(there) == (double)n);
    nd_release(here);
    nd_release(there);
    assert_nothing_left_on_devices();
}

static void test_a_copy_to_the_host_has_arrived(void **state) {
    (void)state;
    cudart_set_seed(0);
    for (int64_t n = 10; n <= 100000; n *= 100) {
        nd_tensor *x = full_on(cuda(0), n, 3);
        float *found = calloc((size_t)n, sizeof *found);
        assert_ok(nd_copy_to_host(x, found, (size_t)n * sizeof *found));
        assert_true(found[0] == 3 && found[n - 1] == 3);
        free(found);
        nd_release(x);
    }
    assert_nothing_left_on_devices();
}

/// A wait that fails leaves no copy behind that would still write to the caller's memory.
static void test_a_copy_whose_wait_fails(void **state) {
    (void)state;
    cudart_set_seed(0);
    nd_tensor *x = full_on(cuda(0), 100, 3);
    assert_ok(nd_synchronize(cuda(0)));
    float found[100] = {0};
    cudart_fail("cudaStreamSynchronize", 1, cudaErrorUnknown);
    assert_int_equal(nd_copy_to_host(x, found, sizeof found), ND_ERROR_DEVICE);
    assert_int_equal(statistics().pending, 0);
    nd_error_clear();
    nd_tensor *large = full_on(cpu, 100000, 1);
    cudart_fail("cudaStreamSynchronize", 1, cudaErrorUnknown);
    assert_null(nd_to(large, cuda(0)));
    assert_true(statistics().pending <= 1); // the release of what was not filled
    nd_error_clear();
    nd_release(large);
    nd_release(x);
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// memory

/// Released at once, with everything still queued; nothing waits.
static void test_release_behind_queued_work(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        cudart_set_seed(seed);
        nd_tensor *last = full_on(cuda(0), 1000, 1);
        for (int i = 0; i < 20; i++) {
            nd_tensor *next = nd_add(last, last);
            nd_release(last);
            nd_release(full_on(cuda(0), 1000, -1));
            last = next;
        }
        if (seed == 0)
            assert_true(statistics().pending > 60);
        assert_true(sum_of(last) == 1000.0 * (1 << 20));
        nd_release(last);
    }
    assert_nothing_left_on_devices();
}

/// A long sum is made in parts that lie in memory of their own.
static void test_scratch_lives_until_it_was_used(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        cudart_set_seed(seed);
        nd_tensor *x = full_on(cuda(0), 200000, 2);
        assert_true(sum_of(x) == 400000);
        nd_release(x);
    }
    assert_nothing_left_on_devices();
}

static void test_trim_gives_back(void **state) {
    (void)state;
    nd_release(full_on(cuda(0), 100000, 1));
    assert_ok(nd_synchronize(cuda(0)));
    assert_true(nd_memory_get_cached(ND_CUDA) >= 400000);
    assert_true(nd_memory_trim(ND_CUDA) >= 400000);
    assert_int_equal(nd_memory_get_cached(ND_CUDA), 0);
    assert_nothing_left_on_devices();
}

/// What the pool keeps beyond what is in use stays within the limit, when the device has come to the
/// releases.
static void test_a_limit_of_what_is_kept(void **state) {
    (void)state;
    const uint64_t limit = 1000000;
    assert_ok(nd_memory_set_cache_limit(ND_CUDA, limit));
    nd_tensor *kept = full_on(cuda(0), 500000, 1);
    for (int i = 0; i < 40; i++) {
        nd_release(full_on(cuda(0), 100000 + 10000 * (i % 9), i));
        assert_ok(nd_synchronize(cuda(0)));
        nd_release(full_on(cuda(0), 40000, i)); // which looks
        assert_ok(nd_synchronize(cuda(0)));
        assert_true(nd_memory_get_cached(ND_CUDA) <= limit + limit / 8 + 160000);
    }
    assert_true(sum_of(kept) == 500000);
    nd_release(kept);
    assert_ok(nd_synchronize(cuda(0)));
    assert_ok(nd_memory_set_cache_limit(ND_CUDA, 0));
    assert_int_equal(nd_memory_get_cached(ND_CUDA), 0);
    nd_memory_cache_stats stats = ND_MEMORY_CACHE_STATS_INIT;
    assert_ok(nd_memory_get_cache_stats(ND_CUDA, &stats));
    assert_true(stats.limit == 0 && stats.data == 0 && stats.objects == 0);
    assert_ok(nd_memory_set_cache_limit(ND_CUDA, UINT64_MAX));
    assert_nothing_left_on_devices();
}

/// Sizes of which no two fit beside each other: each must wait until the one before it is given
/// back.
static int little_memory(void) {
    for (uint64_t seed = 0; seed < 4; seed++)
        for (int i = 0; i < 30; i++) {
            nd_tensor *x = full_on(cuda(0), 120000 + i * 1000 * (i % 2 ? 1 : -1), i);
            if (!x) {
                fprintf(stderr, "little_memory: %s\n", nd_error_get_message());
                return 1;
            }
            nd_release(x);
        }
    return nd_synchronize(cuda(0)) == ND_OK && statistics().live_blocks == 0 ? 0 : 2;
}

static void test_F02_memory_that_is_on_its_way_back(void **state) {
    (void)state;
    char said[4096];
    setenv("ND_CUDART_MEMORY", "600000", 1);
    for (int seed = 0; seed < 3; seed++) {
        setenv("ND_CUDART_SEED", seed == 0 ? "0" : seed == 1 ? "1" : "2", 1);
        int status = run_role("little_memory", said, sizeof said);
        if (status != 0)
            fail_msg("seed %d: status %d: %s", seed, status, said);
    }
    unsetenv("ND_CUDART_MEMORY");
    unsetenv("ND_CUDART_SEED");
}

static void test_F02_an_error_is_not_left_behind(void **state) {
    (void)state;
    assert_null(full_on(cuda(0), (int64_t)1 << 40, 1));
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    nd_error_clear();
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// devices, products, callbacks

/// ndarc's second device is CUDA's third.
static void test_two_devices_in_turns(void **state) {
    (void)state;
    assert_int_equal(nd_get_device_count(ND_CUDA), 2);
    nd_tensor *x[2];
    for (int i = 0; i < 2; i++)
        x[i] = full_on(cuda(i), 1000, i + 1);
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < 2; i++) {
            assert_handle(x[i]);
            nd_tensor *next = nd_add(x[i], x[i]);
            nd_release(x[i]);
            x[i] = next;
        }
    nd_tensor *moved = nd_to(x[0], cuda(1));
    assert_handle(moved);
    assert_true(sum_of(moved) == 1024000);
    nd_release(moved);
    for (int i = 0; i < 2; i++) {
        assert_true(sum_of(x[i]) == 1024000.0 * (i + 1));
        nd_release(x[i]);
    }
    assert_nothing_left_on_devices();
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
        assert_true(sum_of(x) == 8);
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

/// Every convolution and its gradients, in f32 and f64; the status as multiply_by_libraries.
static int convolve_by_libraries(void) {
    for (int which = 0; which < 3; which++)
        for (int wide = 0; wide < 2; wide++)
            for (int of = 0; of < 3; of++) {
                nd_tensor *there = convolved_on(cuda(0), wide ? ND_F64 : ND_F32, which, of);
                nd_tensor *here = convolved_on(cpu, wide ? ND_F64 : ND_F32, which, of);
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
        {"ND_CUDNN", kept, 42},         {"ND_CUDNN", "/nonexistent/libcudnn.so", 0},
        {"ND_CUDNN", "libm.so.6", 0},   {"ND_CUDART_CUDNN", "1001", 0}, // it cannot begin
        {"ND_CUDART_CUDNN", "100", 0},                                  // it refuses to choose
        {"ND_CUDART_CUDNN", "101", 0},                                  // all it offers is refused
        {"ND_CUDART_CUDNN", "102", 0},  // it wants more memory than there is
        {"ND_CUDART_CUDNN", "103", 0},  // it refuses at last
        {"ND_CUDART_CUDNN", "104", 42}, // the second offer needs no memory
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

static void test_an_index_out_of_range_is_told(void **state) {
    (void)state;
    nd_tensor *x = full_on(cuda(0), 10, 1);
    nd_tensor *far = nd_full(ND_SHAPE(3), 10, ND_I64);
    nd_tensor *index = nd_to(far, cuda(0));
    nd_tensor *taken = nd_take(x, index, 0);
    assert_int_equal(nd_synchronize(cuda(0)), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_synchronize(cuda(0)));
    nd_release(taken);
    nd_release(index);
    nd_release(far);
    nd_release(x);
    assert_nothing_left_on_devices();
}

static void release_it(void *data) {
    nd_release((nd_tensor *)data);
}

/// The callback makes no CUDA call; what it released is given back all the same.
static void test_G37_a_callback_calls_no_device(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        cudart_set_seed(seed);
        for (int i = 0; i < 10; i++)
            assert_ok(nd_queue_callback(cuda(0), release_it, full_on(cuda(0), 100, i), NULL));
        assert_ok(nd_synchronize(cuda(0)));
    }
    assert_nothing_left_on_devices();
}

static void *work_alone(void *argument) {
    int device = *(const int *)argument % 2;
    for (int round = 0; round < 20; round++) {
        nd_tensor *a = full_on(cuda(device), 500, round), *b = nd_add(a, a);
        nd_release(a);
        bool right = b && sum_of(b) == 1000.0 * round;
        nd_release(b);
        if (!right)
            return NULL;
    }
    return argument;
}

static void test_threads_on_two_devices(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, work_alone, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *right;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// ends

/// Work fails for good: every call says so from then on, and nothing comes to harm.
static int lost(void) {
    nd_tensor *x = full_on(cuda(0), 1000, 1);
    if (!x || nd_synchronize(cuda(0)) != ND_OK)
        return 1;
    cudart_lose(1);
    nd_tensor *y = nd_add(x, x);
    for (int i = 0; i < 3; i++)
        if (nd_synchronize(cuda(0)) != ND_ERROR_DEVICE)
            return 2;
    float found[1000];
    if (nd_copy_to_host(x, found, sizeof found) != ND_ERROR_DEVICE)
        return 3;
    nd_tensor *z = nd_add(x, x);
    if (z || nd_error_get_status() != ND_ERROR_DEVICE)
        return 4;
    nd_release(y);
    nd_release(x);
    nd_tensor *there = full_on(cuda(1), 10, 1); // has not failed
    bool right = there && sum_of(there) == 10;
    nd_release(there);
    return right && nd_manager_get_total_objects(NULL) == 0 ? 0 : 5;
}

static void test_F19_a_lost_device_says_so(void **state) {
    (void)state;
    char said[4096];
    assert_int_equal(run_role("lost", said, sizeof said), 0);
}

static int child_after_use(void) {
    nd_tensor *x = full_on(cuda(0), 1000, 1);
    pid_t child = fork();
    if (child == 0) {
        bool right =
            nd_get_device_count(ND_CUDA) == 0 && nd_synchronize(cuda(0)) == ND_ERROR_DEVICE;
        nd_release(x);
        _exit(right ? 0 : 1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    nd_release(x);
    return 0;
}

static nd_tensor *until_exit;

static void release_late(void) {
    nd_release(until_exit);
}

static int exit_with_tensors(void) {
    atexit(release_late);
    until_exit = full_on(cuda(0), 1000, 1);
    return until_exit ? 0 : 1;
}

static void test_F22_F23_child_and_exit(void **state) {
    (void)state;
    char said[4096];
    assert_int_equal(run_role("child_after_use", said, sizeof said), 0);
    assert_int_equal(run_role("exit_with_tensors", said, sizeof said), 0);
}

static const role roles[] = {
    {"little_memory", little_memory},
    {"lost", lost},
    {"child_after_use", child_after_use},
    {"exit_with_tensors", exit_with_tensors},
    {"multiply_by_libraries", multiply_by_libraries},
    {"convolve_by_libraries", convolve_by_libraries},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_many_small_copies),
        ND_TEST(test_a_large_copy_has_been_read),
        ND_TEST(test_a_copy_to_the_host_has_arrived),
        ND_TEST(test_a_copy_whose_wait_fails),
        ND_TEST(test_release_behind_queued_work),
        ND_TEST(test_scratch_lives_until_it_was_used),
        ND_TEST(test_trim_gives_back),
        ND_TEST(test_a_limit_of_what_is_kept),
        ND_TEST(test_F02_memory_that_is_on_its_way_back),
        ND_TEST(test_F02_an_error_is_not_left_behind),
        ND_TEST(test_two_devices_in_turns),
        ND_TEST(test_products_are_in_order),
        ND_TEST(test_F21_linear_by_every_library),
        ND_TEST(test_F21_convolutions_by_every_library),
        ND_TEST(test_an_epilogue_is_no_kernel),
        ND_TEST(test_halves_are_added_up_in_f32),
        ND_TEST(test_an_index_out_of_range_is_told),
        ND_TEST(test_G37_a_callback_calls_no_device),
        ND_TEST(test_threads_on_two_devices),
        ND_TEST(test_F19_a_lost_device_says_so),
        ND_TEST(test_F22_F23_child_and_exit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
