// Plans of convolutions and transforms are kept for reuse, and go when memory is trimmed: a process that
// had many sizes becomes small again.
#include "tests/faults/resident.h"
#include "tests/testing.h"
#include <nd/fft.h>
#include <nd/nd.h>
#include <pthread.h>
#include <stdatomic.h>

#define MIB (1024.0 * 1024.0)

static void convolve(int64_t channels) {
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, channels, 12, 12), ND_F32);
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(16 + channels, channels, 3, 3), ND_F32);
    nd_auto nd_tensor *y = nd_conv2d(x, weight, NULL, NULL), *largest = nd_max(y, 0, NULL, false);
    assert_non_null(largest);
    assert_true(nd_get_item(largest) == (double)channels * 9);
}

static void transform(int64_t n) {
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(n), ND_F64);
    nd_auto nd_tensor *y = nd_rfft(x, 0, -1, ND_FFT_NORM_BACKWARD);
    if (y) // else there is no FFTW
        assert_int_equal(nd_get_size(y, 0), n / 2 + 1);
    nd_error_clear();
}

static void test_plans_go_when_memory_is_trimmed(void **state) {
    (void)state;
    convolve(4); // libraries are there
    transform(100);
    nd_memory_trim(ND_CPU);
    const double before = (double)resident() / MIB;
    for (int64_t channels = 1; channels <= 64; channels++)
        convolve(channels);
    static const int64_t primes[] = {499979, 499969, 499957, 499943}; // 70 bytes an element
    for (int i = 0; i < 4; i++)
        transform(primes[i]);
    const double large = (double)resident() / MIB;
    nd_memory_trim(ND_CPU);
    const double after = (double)resident() / MIB;
    print_message("resident: %.1f MiB, with plans %.1f, trimmed %.1f\n", before, large, after);
    assert_true(after < before + (large - before) / 4 + 4);
    convolve(4); // made again
    transform(100);
}

/// While other threads run plans, which then stay.
static atomic_bool stop;

static void *compute(void *data) {
    while (!atomic_load(&stop)) {
        convolve(5);
        transform(1000);
    }
    return data;
}

static void test_plans_that_run_stay(void **state) {
    (void)state;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, compute, NULL), 0);
    for (int i = 0; i < 300; i++) {
        nd_memory_trim(ND_CPU);
        convolve(1 + i % 7);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_plans_go_when_memory_is_trimmed),
        ND_TEST(test_plans_that_run_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
