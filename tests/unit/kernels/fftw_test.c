// Plans of FFTW: made by many threads at once, replaced by others, and after a fork.
#include "kernels/cpu/fft.h"
#include "kernels/cpu/fftw.h"
#include "lib/base/pool.h"
#include "tests/testing.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8 };

/// The transform of a line of n ones and its inverse: one number n, then zeros, and ones again.
static bool transforms_ones(nd_dtype dtype, int64_t n) {
    size_t number = dtype == ND_F32 ? sizeof(float) : sizeof(double), places = (size_t)n / 2 + 1;
    char *x = malloc((size_t)n * number), *half = malloc(2 * places * number);
    for (int64_t i = 0; i < n; i++)
        if (dtype == ND_F32)
            ((float *)(void *)x)[i] = 1;
        else
            ((double *)(void *)x)[i] = 1;
    nd__fft_call call = {
        .op = ND_OP_rfft,
        .dtype = dtype,
        .sign = -1,
        .n = n,
        .outer = 1,
        .inner = 1,
        .from = n,
        .to = n / 2 + 1,
        .scale = 1,
        .weight = 1,
        .x = x,
        .out = half,
    };
    bool right = nd__cpu_fft(&call) == ND__FFT_DONE;
    for (size_t i = 0; i < 2 * places && right; i++) {
        double got =
            dtype == ND_F32 ? (double)((float *)(void *)half)[i] : ((double *)(void *)half)[i];
        right = fabs(got - (i == 0 ? (double)n : 0)) <= 1e-4 * (double)n;
    }
    call.op = ND_OP_irfft;
    call.sign = 1;
    call.from = n / 2 + 1;
    call.to = n;
    call.scale = 1 / (double)n;
    call.x = half;
    call.out = x;
    right = right && nd__cpu_fft(&call) == ND__FFT_DONE;
    for (int64_t i = 0; i < n && right; i++) {
        double got = dtype == ND_F32 ? (double)((float *)(void *)x)[i] : ((double *)(void *)x)[i];
        right = fabs(got - 1) <= 1e-4;
    }
    free(x);
    free(half);
    return right;
}

static void *plan_and_run(void *argument) {
    int64_t which = (int64_t)(intptr_t)argument;
    bool right = true;
    // More lengths than plans are kept, some of them shared between threads.
    for (int64_t round = 0; round < 60 && right; round++)
        right = transforms_ones(round % 2 ? ND_F32 : ND_F64, 1 + (which * 11 + round * 7) % 150);
    return (void *)(intptr_t)right;
}

static void test_many_threads_plan(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, plan_and_run, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *right;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
}

static char buffers[2][1 << 12] __attribute__((aligned(ND__FFTW_ALIGNMENT)));

static nd__fftw_plan *plan_of(int n) {
    nd__fftw_plan *plan =
        nd__fftw_plan_acquire(ND_F64, ND__FFTW_FORWARD, n, buffers[0], buffers[1]);
    assert_non_null(plan);
    return plan;
}

/// Two who ask for the same get one plan, and what is in use is not replaced by others.
static void test_plans_are_kept_while_they_are_used(void **state) {
    (void)state;
    enum { MANY = 200 };
    nd__fftw_plan *used = plan_of(96), *same = plan_of(96), *others[MANY];
    assert_ptr_equal(used, same);
    for (int i = 0; i < MANY; i++)
        others[i] = plan_of(1 + i % 95); // with all of them in use
    for (int i = 0; i < MANY; i++)
        nd__fftw_plan_release(others[i]);
    for (int i = 0; i < MANY; i++)
        nd__fftw_plan_release(plan_of(97 + i % 120));
    nd__fftw_plan *again = plan_of(96);
    assert_ptr_equal(again, used);
    double *x = (double *)(void *)buffers[0], *y = (double *)(void *)buffers[1];
    for (int i = 0; i < 2 * 96; i++)
        x[i] = i % 2 == 0;
    assert_true(nd__fftw_run(again, x, y));
    for (int i = 0; i < 2 * 96; i++)
        assert_true(fabs(y[i] - (i == 0 ? 96 : 0)) < 1e-12);
    nd__fftw_plan_release(again);
    nd__fftw_plan_release(same);
    nd__fftw_plan_release(used);
}

static void test_planning_touches_no_data(void **state) {
    (void)state;
    memset(buffers, 0x5a, sizeof buffers);
    for (int n = 230; n < 250; n++)
        nd__fftw_plan_release(plan_of(n));
    for (size_t i = 0; i < sizeof buffers; i++)
        assert_int_equal(((const char *)buffers)[i], 0x5a);
}

/// Longer than any that is kept.
static void test_a_long_line(void **state) {
    (void)state;
    assert_true(transforms_ones(ND_F64, (1 << 20) + 2));
    assert_true(transforms_ones(ND_F32, (1 << 20) + 2));
}

static atomic_bool stop;

static void *plan_until_stopped(void *argument) {
    bool right = true;
    for (int64_t round = 0; !atomic_load(&stop) && right; round++)
        right = transforms_ones(ND_F64, 1 + (round * 13 + (intptr_t)argument) % 400);
    return (void *)(intptr_t)right;
}

static void fork_once(void) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(300);
#if defined(__SANITIZE_THREAD__) // which has no threads in a child
        nd__pool_set_limit(1);
#endif
        bool right = true;
        for (int64_t n = 1; n < 80 && right; n++)
            right = transforms_ones(n % 2 ? ND_F32 : ND_F64, n);
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/// A child can plan, whatever another thread was planning.
static void test_fork_beside_threads_that_plan(void **state) {
    (void)state;
    pthread_t threads[3];
    atomic_store(&stop, false);
    for (intptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, plan_until_stopped, (void *)i), 0);
    for (int i = 0; i < 30; i++)
        fork_once();
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) {
        void *right;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
}

int main(void) {
    if (!nd__fftw_exists(ND_F32) || !nd__fftw_exists(ND_F64)) {
        puts("SKIPPED: no FFTW");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        ND_TEST(test_many_threads_plan),
        ND_TEST(test_plans_are_kept_while_they_are_used),
        ND_TEST(test_planning_touches_no_data),
        ND_TEST(test_a_long_line),
        ND_TEST(test_fork_beside_threads_that_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
