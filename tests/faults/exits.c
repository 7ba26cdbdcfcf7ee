// exit() and fork() beside threads that compute with oneDNN, whose destructors give back the code
// that they run, or on a device, which answers no more once exit has begun.
//
// Each round is a process that nothing has been computed in yet, this program started anew: the
// moment is everywhere from before the first product to long after it, for oneDNN makes and
// registers its things during the first ones.
#include "tests/testing.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40, COMPUTING = 2, FORKS = 500, WAITS = 10000 };

static atomic_uint started;
static atomic_bool ending; ///< exit() is called

/// Sizes of which oneDNN treats some differently.
static bool multiply(int64_t m, int64_t k, int64_t n) {
    nd_tensor *a = nd_ones(ND_SHAPE(m, k), ND_F32), *b = nd_ones(ND_SHAPE(n, k), ND_F32);
    nd_tensor *transposed = nd_transpose(b, 0, 1), *c = nd_matmul(a, transposed);
    nd_tensor *sum = c ? nd_sum(c, 0, NULL, false) : NULL;
    bool right = sum && nd_get_item(sum) == (double)(m * k * n);
    nd_release(sum);
    nd_release(c);
    nd_release(transposed);
    nd_release(b);
    nd_release(a);
    return right;
}

static bool convolve(int64_t size) {
    nd_tensor *x = nd_ones(ND_SHAPE(2, 3, size, size), ND_F32);
    nd_tensor *weight = nd_ones(ND_SHAPE(4, 3, 3, 3), ND_F32);
    nd_conv2d_options options = ND_CONV2D_OPTIONS_INIT;
    options.padding[0] = options.padding[1] = 1;
    nd_tensor *y = nd_conv2d(x, weight, NULL, &options);
    nd_release(x);
    nd_release(weight);
    nd_release(y);
    return y != NULL;
}

static void *compute(void *data) {
    if (nd_test_use_device() != ND_OK)
        _exit(2);
    atomic_fetch_add(&started, 1);
    for (int64_t i = 0;; i++) {
        bool right = multiply(33 + i % 5, 40, 33) && multiply(8, 32, 2000) && convolve(16 + i % 3);
        // It goes on beside the end of the process, and must be right until then.
        if (!right && (nd_test_device().kind == ND_CPU || !atomic_load(&ending)))
            _exit(2);
    }
    return data;
}

static void nap(long nanoseconds) {
    nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
}

/// Uses a device once. exit() in the moment between the driver's handler, which it registers when it is
/// first used, and ndarc's, which can only be registered then, is the driver's to answer.
static void prepare_device(void) {
    if (nd_test_use_device() != ND_OK)
        _exit(2);
    if (nd_test_device().kind != ND_CPU)
        nd_release(nd_zeros(ND_SHAPE(1), ND_F32));
}

/// Threads that do this, until they have said as often that they have begun, or have done it once.
static void start(void *(*run)(void *), unsigned times) {
    pthread_t thread;
    for (int i = 0; i < COMPUTING; i++)
        if (pthread_create(&thread, NULL, run, NULL) != 0)
            _exit(3);
    while (atomic_load(&started) < times)
        nap(10000);
}

static void start_computing(long then_wait_ns) {
    prepare_device();
    start(compute, COMPUTING);
    nap(then_wait_ns);
}

static void exit_beside_products(long wait_ns) {
    start_computing(wait_ns);
    atomic_store(&ending, true);
    exit(0);
}

static void *exit_from_here(void *data) {
    bool right = data && nd_test_use_device() == ND_OK && multiply(33, 40, 33);
    atomic_store(&ending, true);
    exit(right ? 0 : 1);
}

static void exit_by_another_thread(long wait_ns) {
    start_computing(wait_ns);
    pthread_t thread;
    if (pthread_create(&thread, NULL, exit_from_here, &started) == 0)
        pthread_join(thread, NULL);
    _exit(4);
}

/// The status of a child; -1, and it is killed, when it has not ended after a minute. An alarm of its
/// own would not do: in the middle of a product signals wait.
static int end_of(pid_t child) {
    int status = -1;
    for (int i = 0; i < 6000; i++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        nap(i < 1000 ? 100000 : 10000000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

static void fork_beside_products(long wait_ns) {
    start_computing(wait_ns);
    pid_t child = fork();
    if (child == 0) {
        bool right = nd_set_default_device((nd_device){ND_CPU, 0}) == ND_OK && // the only one
                     multiply(33, 40, 33) && multiply(8, 32, 2000) && convolve(16);
        _exit(right ? 0 : 5); // what the threads of the parent held is nobody's
    }
    int status = end_of(child);
    _exit(status >= 0 ? status : 6);
}

static void *multiply_large(void *data) {
    atomic_fetch_add(&started, 1);
    while (multiply(200, 200, 200) || atomic_load(&ending))
        ;
    _exit(2);
    return data;
}

/// Beside products of a new kind, which threads of the library's own share, by a thread that has had
/// oneDNN compute.
static void exit_beside_shared_products(long wait_ns) {
    nd_set_num_threads(2);
    if (!multiply(33, 40, 33))
        _exit(2);
    start(multiply_large, COMPUTING);
    nap(wait_ns);
    atomic_store(&ending, true);
    exit(0);
}

/// oneDNN takes a lock for a moment in each product, also in the thousandth of a kind: so as many
/// as can be, of the smallest that it computes.
static bool multiply_many(void) {
    nd_tensor *a = nd_ones(ND_SHAPE(50, 32, 32), ND_F32);
    nd_tensor *transposed = nd_transpose(a, 1, 2), *c = nd_matmul(a, transposed);
    nd_tensor *sum = c ? nd_sum(c, 0, NULL, false) : NULL;
    bool right = sum && nd_get_item(sum) == 50.0 * 32 * 32 * 32;
    nd_release(sum);
    nd_release(c);
    nd_release(transposed);
    nd_release(a);
    return right;
}

static void *multiply_always(void *data) {
    for (bool right = true; right;) {
        right = multiply_many();
        atomic_fetch_add(&started, 1);
    }
    _exit(2);
    return data;
}

static void fork_beside_known_products(long times) {
    start(multiply_always, 100);
    for (long i = 0; i < times; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(multiply_many() ? 0 : 5);
        if (end_of(child) != 0)
            _exit(6);
    }
    _exit(0);
}

typedef enum way { BY_EXIT, BY_ANOTHER_THREAD, BY_SHARED_EXIT, BY_FORK, BY_MANY_FORKS } way;
static void (*const ways[])(long) = {exit_beside_products, exit_by_another_thread,
                                     exit_beside_shared_products, fork_beside_products,
                                     fork_beside_known_products};

/// In a process of its own, whose status is returned.
static int run_anew(way way, long argument) {
    char number[8], text[24];
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        snprintf(number, sizeof number, "%d", way);
        snprintf(text, sizeof text, "%ld", argument);
        execl("/proc/self/exe", "exits", number, text, (char *)NULL);
        _exit(7);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/// In a process each, after 0 to some 8 milliseconds, most of them soon.
static void end_at_any_moment(way way) {
    for (int round = 0; round < ROUNDS; round++) {
        int status = run_anew(way, round * round * 5000);
        if (status != 0)
            fail_msg("round %d: status %d, signal %d", round, WEXITSTATUS(status),
                     WTERMSIG(status));
    }
}

static void test_exit_beside_products(void **state) {
    (void)state;
    end_at_any_moment(BY_EXIT);
}

static void test_exit_by_another_thread(void **state) {
    (void)state;
    end_at_any_moment(BY_ANOTHER_THREAD);
}

/// exit() waits for the library's threads, and none of these for exit(): a thread that does gives its core
/// up thousands of times.
static void test_exit_waits_for_nobody_who_waits_for_it(void **state) {
    (void)state;
    if (nd_test_device().kind != ND_CPU)
        skip(); // products on the CPU
    long most = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct rusage before, after;
        assert_int_equal(getrusage(RUSAGE_CHILDREN, &before), 0);
        assert_int_equal(run_anew(BY_SHARED_EXIT, round * round * 1000), 0);
        assert_int_equal(getrusage(RUSAGE_CHILDREN, &after), 0);
        const long waits = after.ru_nvcsw - before.ru_nvcsw;
        most = waits > most ? waits : most;
    }
    print_message("at most %ld waits\n", most);
    assert_true(most < WAITS);
}

static void test_F31_fork_beside_first_products(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); // GCC 12's AddressSanitizer leaves its own locks as fork() finds them: the child waits for them for ever
#endif
    end_at_any_moment(BY_FORK);
}

static void test_F31_fork_beside_known_products(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); // as above
#endif
    if (nd_test_device().kind != ND_CPU)
        skip(); // products on the CPU
    assert_int_equal(run_anew(BY_MANY_FORKS, FORKS), 0);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        alarm(300);
        ways[atoi(argv[1])](atol(argv[2]));
    }
    const struct CMUnitTest tests[] = {
        ND_TEST(test_exit_beside_products),
        ND_TEST(test_exit_by_another_thread),
        ND_TEST(test_exit_waits_for_nobody_who_waits_for_it),
        ND_TEST(test_F31_fork_beside_first_products),
        ND_TEST(test_F31_fork_beside_known_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
