// Kernels on many threads at once, after a fork, and inside a user's own parallel region.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"
#include "kernels/windows.h"
#include "lib/base/pool.h"
#include "tests/testing.h"
#include "tests/threads.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
// The thread sanitizer cannot see into libgomp.
#if defined(_OPENMP) && !defined(__SANITIZE_THREAD__)
#define USES_OPENMP 1
#include <omp.h>
#endif

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
    nd_kernel_call call = {.op = ND_OP_conv, .noperands = 3};
    set_dense(&call, 0, y, ND_F32);
    set_dense(&call, 1, x, ND_F32);
    set_dense(&call, 2, weight, ND_F32);
    const nd__conv_sizes sizes = {
        n, 1, 1, 1, {1, size, size}, {1, 3, 3}, {1, out, out}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
    nd__conv_sizes_into(&sizes, &call);
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

/// A product of two n x n matrices of ones.
static bool multiply(int64_t n) {
    size_t count = (size_t)(n * n);
    float *x = malloc(count * sizeof *x), *product = malloc(count * sizeof *product);
    for (size_t i = 0; i < count; i++)
        x[i] = 1;
    nd_kernel_call call = {.op = ND_OP_matmul, .noperands = 3};
    set_dense(&call, 0, product, ND_F32);
    set_dense(&call, 1, x, ND_F32);
    set_dense(&call, 2, x, ND_F32);
    const int64_t attrs[] = {n, n, n, n, 1, n, 1, n, 1};
    memcpy(call.attrs.i, attrs, sizeof attrs);
    bool right = nd__cpu_launch(&call) == ND_OK;
    for (size_t i = 0; i < count; i++)
        right = right && product[i] == (float)n;
    free(x);
    free(product);
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
        alarm(300);
#if defined(__SANITIZE_THREAD__) // which has no threads in a child
        nd__pool_set_limit(1);
#endif
        _exit(add_up(1000000) && convolve(2, 30) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(add_up(1000000));
}

#if ND_HAVE_ONEDNN
static atomic_int steps;

/// A computation of oneDNN's that takes longer than a fork waits.
static void *stay_inside(void *data) {
    nd__onednn_before before;
    bool entered = nd__onednn_enter(0, &before);
    atomic_store(&steps, 1);
    while (atomic_load(&steps) == 1)
        sched_yield();
    if (entered)
        nd__onednn_leave(&before);
    return entered ? data : NULL;
}

static void test_F31_a_child_does_without_onednn_where_a_thread_was_inside(void **state) {
    (void)state;
    // Of known kinds: for the first of one a fork waits as long as it takes.
    nd__onednn_before before;
    assert_true(multiply(200) && convolve(2, 30) && nd__onednn_enter(0, &before));
    nd__onednn_leave(&before);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stay_inside, &steps), 0);
    while (atomic_load(&steps) == 0)
        sched_yield();
    pid_t child = fork();
    if (child == 0) {
        bool enters = nd__onednn_enter(0, &before);
        _exit(!enters && multiply(200) && convolve(2, 30) ? 0 : 1);
    }
    atomic_store(&steps, 2);
    void *entered;
    assert_int_equal(pthread_join(thread, &entered), 0);
    assert_non_null(entered);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    // Here it is used as before.
    assert_true(nd__onednn_enter(0, &before));
    nd__onednn_leave(&before);
    assert_true(multiply(200));
}
#endif

static void test_inside_a_parallel_region(void **state) {
    (void)state;
    int right = 1;
#if USES_OPENMP
#pragma omp parallel num_threads(3) reduction(&& : right)
#endif
    right = right && add_up(200000);
    assert_true(right);
}

/// Threads that are there after products and convolutions beyond those before, without the pool's.
static int foreign_threads(void) {
    nd__pool_set_limit(1);
    int before = nd_test_threads();
    nd__pool_set_limit(3);
    bool right = convolve(8, 90) && multiply(384) && convolve(1, 200);
    int after = nd_test_threads() - nd__pool_workers();
    return right ? after - before : -1;
}

static void *foreign_threads_here(void *argument) {
    *(int *)argument = foreign_threads();
    return NULL;
}

// oneDNN would start OpenMP's threads, which spin while they wait for each other.
static void test_no_library_below_starts_threads(void **state) {
    (void)state;
    int threads = -1;
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, foreign_threads_here, &threads), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(threads, 0);
}

static void test_a_users_openmp_stays_as_it_was(void **state) {
    (void)state;
#if USES_OPENMP
    int before = omp_get_max_threads();
    omp_set_num_threads(5);
    assert_true(convolve(8, 90) && multiply(384));
    assert_int_equal(omp_get_max_threads(), 5);
    int team = 0;
#pragma omp parallel
#pragma omp single
    team = omp_get_num_threads();
    assert_int_equal(team, 5);
    omp_set_num_threads(before);
#endif
}

/// All bytes of some results, for the number of threads that is set.
static size_t all_results(float *to) {
    enum { N = 3 * 70000 };
    float *x = malloc(N * sizeof *x);
    for (int i = 0; i < N; i++)
        x[i] = sinf((float)i) * 3;
    size_t used = 0;
    nd_kernel_call sum = {.op = ND_OP_sum, .noperands = 2, .ndim = 1, .shape = {N}};
    set_dense(&sum, 1, x, ND_F32);
    set_dense(&sum, 0, to, ND_F32);
    sum.operand[0].strides[0] = 0;
    sum.attrs.i[0] = N;
    bool right = nd__cpu_launch(&sum) == ND_OK;
    used += 1;
    static const nd_op unary[] = {ND_OP_exp, ND_OP_gelu, ND_OP_sin, ND_OP_softmax};
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
        nd_kernel_call call = {.op = unary[i], .noperands = 2, .ndim = 2, .shape = {700, 300}};
        for (int operand = 0; operand < 2; operand++) {
            set_dense(&call, operand, operand == 0 ? to + used : x, ND_F32);
            call.operand[operand].strides[0] = 300;
            call.operand[operand].strides[1] = 1;
        }
        right = right && nd__cpu_launch(&call) == ND_OK;
        used += N;
    }
    // The portable product, too, and a sum along the first axis.
    nd__cpu_use_onednn(false);
    nd_kernel_call product = {.op = ND_OP_matmul, .noperands = 3};
    set_dense(&product, 0, to + used, ND_F32);
    set_dense(&product, 1, x, ND_F32);
    set_dense(&product, 2, x + 7, ND_F32);
    const int64_t attrs[] = {311, 257, 401, 401, 1, 257, 1, 257, 1};
    memcpy(product.attrs.i, attrs, sizeof attrs);
    right = right && nd__cpu_launch(&product) == ND_OK;
    nd__cpu_use_onednn(true);
    used += 311 * 257;
    nd_kernel_call columns = {.op = ND_OP_sum, .noperands = 2, .ndim = 2, .shape = {700, 300}};
    set_dense(&columns, 0, to + used, ND_F32);
    set_dense(&columns, 1, x, ND_F32);
    columns.operand[0].strides[0] = 0, columns.operand[0].strides[1] = 1;
    columns.operand[1].strides[0] = 300, columns.operand[1].strides[1] = 1;
    columns.attrs.i[0] = 700;
    right = right && nd__cpu_launch(&columns) == ND_OK;
    free(x);
    return right ? (used + 300) * sizeof *to : 0;
}

static void test_results_are_the_same_for_any_number_of_threads(void **state) {
    (void)state;
    enum { ROOM = 1 << 20 };
    float *alone = calloc(ROOM, sizeof *alone), *shared = calloc(ROOM, sizeof *shared);
    nd__pool_set_limit(1);
    size_t bytes = all_results(alone);
    assert_true(bytes > 0 && bytes <= ROOM * sizeof *alone);
    for (int threads = 2; threads <= 7; threads++) {
        nd__pool_set_limit(threads);
        assert_int_equal(all_results(shared), bytes);
        assert_memory_equal(alone, shared, bytes);
    }
    free(alone);
    free(shared);
}

// ------------------------------------------------------------------------ parts of oneDNN's work

static float number_at(int64_t i) {
    return (float)((i * 7919) % 13 - 6); // sums of products stay exact in f32
}

/// A convolution and its gradients, in small integers: every way to cut gives the same. a: images,
/// stride, padding, dilation, groups; ci and co are those of a group.
static bool convolutions_are_exact(const int64_t *a, int64_t ci, int64_t co, int64_t size,
                                   int threads) {
    int64_t n = a[0], out = (size + 2 * a[2] - 2 * a[3] - 1) / a[1] + 1, groups = a[4];
    int64_t counts[] = {n * groups * co * out * out, n * groups * ci * size * size,
                        groups * co * ci * 9};
    nd_op ops[] = {ND_OP_conv, ND_OP_conv_grad_input, ND_OP_conv_grad_weight};
    int roles[3][3] = {{0, 1, 2}, {1, 0, 2}, {2, 1, 0}}; // y, x, weight
    bool right = true;
    for (int which = 0; which < 3 && right; which++) {
        nd_kernel_call call = {.op = ops[which], .noperands = 3};
        float *memory[3], *reference = NULL;
        for (int i = 0; i < 3; i++) {
            int64_t count = counts[roles[which][i]];
            memory[i] = malloc((size_t)count * sizeof(float));
            for (int64_t k = 0; k < count; k++)
                memory[i][k] = number_at(k + i);
            set_dense(&call, i, memory[i], ND_F32);
        }
        size_t bytes = (size_t)counts[roles[which][0]] * sizeof(float);
        reference = malloc(bytes);
        const nd__conv_sizes sizes = {
            n,         groups * ci,   groups * co,     groups,          {1, size, size},
            {1, 3, 3}, {1, out, out}, {1, a[1], a[1]}, {0, a[2], a[2]}, {1, a[3], a[3]}};
        nd__conv_sizes_into(&sizes, &call);
        nd__pool_set_limit(1);
        nd__cpu_use_onednn(false);
        call.operand[0].data = reference;
        right = nd__cpu_launch(&call) == ND_OK;
        nd__cpu_use_onednn(true);
        nd__pool_set_limit(threads);
        call.operand[0].data = memory[0];
        right = right && nd__cpu_launch(&call) == ND_OK && memcmp(memory[0], reference, bytes) == 0;
        for (int i = 0; i < 3; i++)
            free(memory[i]);
        free(reference);
    }
    return right;
}

static void test_parts_of_convolutions_fit_together(void **state) {
    (void)state;
    // Images, stride, padding, dilation, groups.
    static const int64_t shapes[][5] = {
        {1, 1, 1, 1, 1},  {2, 1, 0, 1, 1}, {3, 2, 1, 1, 1}, {7, 1, 1, 1, 1},
        {16, 1, 0, 1, 1}, {2, 1, 2, 2, 1}, {3, 2, 1, 3, 1},
    };
    // The same; then channels of a group, in and out.
    static const int64_t grouped[][7] = {
        {1, 1, 1, 1, 64, 1, 1}, {1, 1, 1, 1, 41, 1, 2},  {2, 2, 1, 1, 7, 3, 5},
        {5, 1, 2, 2, 3, 16, 8}, {1, 1, 1, 1, 4, 24, 24}, {2, 1, 0, 1, 20, 8, 4},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int threads = 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
            assert_true(convolutions_are_exact(shapes[i], 3, 8, 20, threads));
            assert_true(convolutions_are_exact(shapes[i], 40, 72, 14, threads));
            assert_true(convolutions_are_exact(shapes[i], 64, 33, 9, threads));
        }
    for (size_t i = 0; i < sizeof grouped / sizeof *grouped; i++)
        for (int threads = 1; threads <= 8; threads += threads < 3 ? 1 : 5)
            assert_true(
                convolutions_are_exact(grouped[i], grouped[i][5], grouped[i][6], 17, threads));
}

/// Small integers again, with every layout of the operands and a result inside a larger one.
static bool product_is_exact(int64_t m, int64_t n, int64_t k, int layout, int threads) {
    int64_t room = (m + 3) * (n + 3) + m * k + k * n;
    float *memory = malloc((size_t)room * sizeof *memory);
    for (int64_t i = 0; i < room; i++)
        memory[i] = number_at(i);
    float *a = memory, *b = a + m * k, *out = b + k * n;
    bool a_turned = layout & 1, b_turned = layout & 2, add = layout & 4;
    nd_kernel_call call = {.op = ND_OP_matmul, .noperands = 3};
    set_dense(&call, 0, out, ND_F32);
    set_dense(&call, 1, a, ND_F32);
    set_dense(&call, 2, b, ND_F32);
    const int64_t attrs[] = {
        m, n, k, a_turned ? 1 : k, a_turned ? m : 1, b_turned ? 1 : n, b_turned ? k : 1, n + 3, 1};
    memcpy(call.attrs.i, attrs, sizeof attrs);
    call.attrs.f[0] = add;
    float *expected = malloc((size_t)(m * (n + 3)) * sizeof *expected);
    memcpy(expected, out, (size_t)(m * (n + 3)) * sizeof *expected);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = add ? out[i * (n + 3) + j] : 0;
            for (int64_t l = 0; l < k; l++)
                sum += (a_turned ? a[l * m + i] : a[i * k + l]) *
                       (b_turned ? b[j * k + l] : b[l * n + j]);
            expected[i * (n + 3) + j] = sum;
        }
    nd__pool_set_limit(threads);
    bool right = nd__cpu_launch(&call) == ND_OK &&
                 memcmp(out, expected, (size_t)(m * (n + 3) - 3) * sizeof *out) == 0;
    free(expected);
    free(memory);
    return right;
}

static void test_panels_of_products_fit_together(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{128, 128, 64}, {1, 2000, 400},  {2000, 1, 400},
                                       {33, 700, 50},  {700, 33, 50},   {257, 129, 65},
                                       {40, 40, 900},  {100, 500, 300}, {64, 64, 128}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int layout = 0; layout < 8; layout++)
            for (int threads = 1; threads <= 16; threads *= 2)
                assert_true(
                    product_is_exact(sizes[i][0], sizes[i][1], sizes[i][2], layout, threads));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_many_threads),
        ND_TEST(test_F22_after_a_fork),
#if ND_HAVE_ONEDNN
        ND_TEST(test_F31_a_child_does_without_onednn_where_a_thread_was_inside),
#endif
        ND_TEST(test_inside_a_parallel_region),
        ND_TEST(test_no_library_below_starts_threads),
        ND_TEST(test_a_users_openmp_stays_as_it_was),
        ND_TEST(test_results_are_the_same_for_any_number_of_threads),
        ND_TEST(test_parts_of_convolutions_fit_together),
        ND_TEST(test_panels_of_products_fit_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
