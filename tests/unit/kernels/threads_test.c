// Kernels on many threads at once, after a fork, and inside a user's own parallel region.
#include "kernels/cpu/cpu.h"
#include "tests/testing.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8

static void set_dense(nd_kernel_call *call, int operand, void *data, nd_dtype dtype) {
    call->operand[operand].data = data;
    call->operand[operand].dtype = dtype;
    call->operand[operand].strides[0] = 1;
}

/// A convolution of n images of ones by a weight of ones: every result is 9.
static bool convolve(int64_t n, int64_t size) {
    int64_t out = size - 2;
    size_t x_count = (size_t)(n * size * size), y_count = (size_t)(n * out * out);
    float *x = malloc(x_count * sizeof *x), *y = malloc(y_count * sizeof *y), weight[9];
    for (size_t i = 0; i < x_count; i++)
        x[i] = 1;
    for (int i = 0; i < 9; i++)
        weight[i] = 1;
    nd_kernel_call call = {.op = ND_OP_conv2d, .noperands = 3};
    set_dense(&call, 0, y, ND_F32);
    set_dense(&call, 1, x, ND_F32);
    set_dense(&call, 2, weight, ND_F32);
    const int64_t attrs[] = {n, 1, size, size, 1, 3, 3, 1, 0, out, out};
    memcpy(call.attrs.i, attrs, sizeof attrs);
    bool right = nd__cpu_launch(&call) == ND_OK;
    for (size_t i = 0; i < y_count; i++)
        right = right && y[i] == 9.0f;
    free(x);
    free(y);
    return right;
}

/// The sum of n ones, and a product of two matrices of ones.
static bool add_up(int64_t n) {
    float *x = malloc((size_t)n * sizeof *x), sum = 0;
    for (int64_t i = 0; i < n; i++)
        x[i] = 1;
    nd_kernel_call call = {.op = ND_OP_sum, .noperands = 2, .ndim = 1, .shape = {n}};
    set_dense(&call, 1, x, ND_F32);
    set_dense(&call, 0, &sum, ND_F32);
    call.operand[0].strides[0] = 0;
    call.attrs.i[0] = n;
    bool right = nd__cpu_launch(&call) == ND_OK && sum == (float)n;
    float product[64 * 64];
    nd_kernel_call matmul = {.op = ND_OP_matmul, .noperands = 3};
    set_dense(&matmul, 0, product, ND_F32);
    set_dense(&matmul, 1, x, ND_F32);
    set_dense(&matmul, 2, x, ND_F32);
    const int64_t attrs[] = {64, 64, 100, 100, 1, 64, 1, 64, 1};
    memcpy(matmul.attrs.i, attrs, sizeof attrs);
    right = right && nd__cpu_launch(&matmul) == ND_OK;
    for (int i = 0; i < 64 * 64; i++)
        right = right && product[i] == 100.0f;
    free(x);
    return right;
}

static void *work(void *argument) {
    int64_t which = (int64_t)(intptr_t)argument;
    bool right = true;
    // More shapes than the cache of primitives holds, some of them shared between threads.
    for (int64_t round = 0; round < 30; round++)
        right = right && convolve(1 + round % 3, 4 + (which * 7 + round) % 90) && add_up(100000);
    return (void *)(intptr_t)right;
}

static void test_many_threads(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *right;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
}

static void test_F22_after_a_fork(void **state) {
    (void)state;
    // The parent has its team of threads, and a plan for the child's convolution.
    assert_true(add_up(1000000) && convolve(2, 30));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        _exit(add_up(1000000) && convolve(2, 30) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(add_up(1000000));
}

static void test_inside_a_parallel_region(void **state) {
    (void)state;
    int right = 1;
#if ND_HAVE_OPENMP
#pragma omp parallel num_threads(3) reduction(&& : right)
#endif
    right = right && add_up(200000);
    assert_true(right);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_many_threads),
        ND_TEST(test_F22_after_a_fork),
        ND_TEST(test_inside_a_parallel_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
