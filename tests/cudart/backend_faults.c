// Every CUDA call of a small program fails once, with every kind of error, and every piece of its
// work once, for good: each time a result is right or an error was told, everything is released,
// and the process ends.
#include "tests/cudart/backend.h"
#include <math.h>

// Of the calls and steps, under a sanitizer: every one takes a process.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 9 };
#else
enum { STRIDE = 1 };
#endif

/// True when a value is what it must be, or an error says why it is not.
static bool right_or_told(const char *what, double value, double expected) {
    bool right = value == expected || (isnan(value) && nd_error_get_status() != ND_OK);
    if (!right)
        fprintf(stderr, "%s: %g, not %g; error %s\n", what, value, expected,
                nd_status_get_name(nd_error_get_status()));
    nd_error_clear();
    return right;
}

/// The sum of a tensor, which is released; NaN when there is none.
static double sum_and_release(nd_tensor *x) {
    nd_tensor *sum = x ? nd_sum(x, 0, NULL, false) : NULL;
    double value = sum ? nd_get_item(sum) : (double)NAN;
    nd_release(sum);
    nd_release(x);
    return value;
}

static nd_tensor *moved(nd_tensor *owned, nd_device device) {
    nd_tensor *there = owned ? nd_to(owned, device) : NULL;
    nd_release(owned);
    return there;
}

static bool add_small(int device) {
    nd_tensor *x = full_on(cuda(device), 100, 2);
    nd_tensor *y = moved(full_on(cpu, 100, 3), cuda(device));
    nd_tensor *z = x && y ? nd_add(x, y) : NULL;
    nd_release(x);
    nd_release(y);
    return right_or_told("add_small", sum_and_release(z), 500);
}

static bool copy_large(void) {
    return right_or_told("copy_large", sum_and_release(moved(full_on(cpu, 100000, 1), cuda(0))),
                         100000);
}

static bool multiply(void) {
    nd_tensor *flat = full_on(cuda(0), 16, 0.25);
    nd_tensor *x = flat ? nd_reshape(flat, ND_SHAPE(4, 4)) : NULL;
    nd_tensor *y = x ? nd_matmul(x, x) : NULL;
    nd_release(flat);
    nd_release(x);
    return right_or_told("multiply", sum_and_release(y), 4);
}

/// With a bias and an activation: in one piece, or in three.
static bool multiply_and_activate(void) {
    nd_tensor *flat = full_on(cuda(0), 16, 0.25), *bias = full_on(cuda(0), 4, 1);
    nd_tensor *x = flat ? nd_reshape(flat, ND_SHAPE(4, 4)) : NULL;
    nd_tensor *y = x && bias ? nd_linear_activation(x, x, bias, ND_ACTIVATION_RELU) : NULL;
    nd_release(flat);
    nd_release(bias);
    nd_release(x);
    return right_or_told("multiply_and_activate", sum_and_release(y), 20);
}

static bool convolve(void) {
    nd_tensor *flat = full_on(cuda(0), 32, 0.5),
              *x = flat ? nd_reshape(flat, ND_SHAPE(1, 2, 4, 4)) : NULL;
    nd_tensor *windows = full_on(cuda(0), 4, 2);
    nd_tensor *weight = windows ? nd_reshape(windows, ND_SHAPE(2, 2, 1, 1)) : NULL;
    nd_tensor *y = x && weight ? nd_conv2d(x, weight, NULL, NULL) : NULL;
    nd_release(flat);
    nd_release(windows);
    nd_release(x);
    nd_release(weight);
    return right_or_told("convolve", sum_and_release(y), 64);
}

static bool copy_out(void) {
    float found[10] = {0};
    nd_tensor *x = full_on(cuda(0), 10, 6);
    double value =
        x && nd_copy_to_host(x, found, sizeof found) == ND_OK ? (double)found[9] : (double)NAN;
    nd_release(x);
    return right_or_told("copy_out", value, 6);
}

static void release_it(void *data) {
    nd_release((nd_tensor *)data);
}

static bool call_back(void) {
    nd_tensor *x = full_on(cuda(0), 10, 1);
    bool queued = x && nd_queue_callback(cuda(0), release_it, x, NULL) == ND_OK;
    if (!queued)
        nd_release(x);
    return right_or_told("call_back", queued ? 1 : (double)NAN, 1);
}

static bool take_out_of_range(void) {
    nd_tensor *x = full_on(cuda(0), 10, 1);
    nd_tensor *index = moved(nd_full(ND_SHAPE(3), 10, ND_I64), cuda(0));
    nd_tensor *taken = x && index ? nd_take(x, index, 0) : NULL;
    bool queued = taken != NULL;
    nd_release(x);
    nd_release(index);
    nd_release(taken);
    bool told = nd_synchronize(cuda(0)) != ND_OK;
    nd_error_clear();
    if (queued && !told)
        fputs("an index out of range was not told\n", stderr);
    return !queued || told;
}

/// True when the device has failed for good.
static bool is_lost(int device) {
    bool lost = true;
    for (int i = 0; i < 2 && lost; i++)
        lost = nd_synchronize(cuda(device)) == ND_ERROR_DEVICE;
    nd_error_clear();
    return lost;
}

/// Says on stderr how many calls and steps there were.
static int work(void) {
    bool right = add_small(0);
    right = add_small(1) && right;
    right = copy_large() && right;
    right = multiply() && right;
    right = multiply_and_activate() && right;
    right = convolve() && right;
    right = copy_out() && right;
    right = call_back() && right;
    right = take_out_of_range() && right;
    nd_memory_trim(ND_CUDA);
    (void)nd_memory_get_cached(ND_CUDA);
    right = add_small(0) && right;
    if (nd_get_device_count(ND_CUDA) > 0 && !is_lost(0) &&
        nd_manager_get_total_objects(NULL) != 0) {
        fputs("objects were left\n", stderr);
        right = false;
    }
    cudart_statistics all = statistics();
    fprintf(stderr, "%llu calls, %llu steps\n", (unsigned long long)all.calls,
            (unsigned long long)all.steps);
    return right ? 0 : 1;
}

static void assert_survives(const char *variable, const char *value) {
    assert_succeeds_with("work", variable, value);
}

static void count_work(unsigned long long *ret_calls, unsigned long long *ret_steps) {
    char said[8192];
    setenv("ND_CUDART_SEED", "0", 1);
    assert_int_equal(run_role("work", said, sizeof said), 0);
    assert_int_equal(sscanf(said, "%llu calls, %llu steps", ret_calls, ret_steps), 2);
    assert_true(*ret_calls > 50 && *ret_steps > 20);
}

static void test_F02_every_call_fails_once(void **state) {
    (void)state;
    static const cudaError_t errors[] = {
        cudaErrorMemoryAllocation, // passes
        cudaErrorInvalidValue,     // so does this
        cudaErrorLaunchFailure,    // stays
    };
    unsigned long long calls, steps;
    char value[64];
    count_work(&calls, &steps);
    for (unsigned long long n = 1; n <= calls; n += STRIDE)
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
            snprintf(value, sizeof value, "%llu:%d", n, (int)errors[i]);
            assert_survives("ND_CUDART_FAIL", value);
        }
    printf("%llu calls, %zu errors each\n", calls, sizeof errors / sizeof *errors);
    unsetenv("ND_CUDART_SEED");
}

static void test_F19_every_step_fails_once(void **state) {
    (void)state;
    unsigned long long calls, steps;
    char value[64];
    count_work(&calls, &steps);
    for (unsigned long long n = 1; n <= steps; n += STRIDE) {
        snprintf(value, sizeof value, "%llu", n);
        assert_survives("ND_CUDART_LOSE", value);
    }
    printf("%llu steps\n", steps);
    unsetenv("ND_CUDART_SEED");
}

/// cuBLAS that cannot begin: ndarc's own kernel serves.
static void test_F21_every_answer_of_cublas(void **state) {
    (void)state;
    static const char *const answers[] = {"1", "3", "8", "15"};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        assert_survives("ND_CUDART_CUBLAS", answers[i]);
        assert_survives("ND_CUDART_CUBLASLT", answers[i]);
    }
}

static const role roles[] = {{"work", work}, {NULL, NULL}};

int main(int argc, char **argv) {
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F02_every_call_fails_once),
        ND_TEST(test_F19_every_step_fails_once),
        ND_TEST(test_F21_every_answer_of_cublas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
