// fork() beside threads that open libraries for the first time: the C library lets the copy be made
// in the middle of that, and the child would crash in its next look for a name.
//
// dlopen() and backtrace(), for which the C library opens what unwinds the stack, are this program's
// own: they take their time before they do what they are for, so that forks meet them.
#include "tests/testing.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_uint inside;       ///< threads in one of the two
static atomic_uint opened;       ///< calls of dlopen() by threads
static _Thread_local bool asked; ///< by a thread of this test's, not before main()

static void take_time(void) {
    nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
}

void *dlopen(const char *file, int flags) {
    void *(*real)(const char *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    if (!asked)
        return real(file, flags);
    atomic_fetch_add(&opened, 1);
    atomic_fetch_add(&inside, 1);
    take_time();
    void *handle = real(file, flags);
    take_time();
    atomic_fetch_sub(&inside, 1);
    return handle;
}

int backtrace(void **frames, int size) {
    int (*real)(void **, int);
    *(void **)&real = dlsym(RTLD_NEXT, "backtrace");
    if (!asked)
        return real(frames, size);
    atomic_fetch_add(&inside, 1);
    take_time();
    int count = real(frames, size);
    atomic_fetch_sub(&inside, 1);
    return count;
}

static atomic_bool ready, finished;
static atomic_int forks;

/// On a busy machine one of the two might be through before the other begins.
static void await_fork(void) {
    const int before = atomic_load(&forks);
    while (atomic_load(&forks) == before)
        sched_yield();
}

/// A product and FFTW's transforms: whichever library is not there is looked for all
/// the same.
static void *compute(void *data) {
    asked = true;
    nd_tensor *matrix = nd_eye(40, ND_F64);
    atomic_store(&ready, true);
    await_fork();
    nd_release(nd_matmul(matrix, matrix));
    nd_tensor *single = nd_ones(ND_SHAPE(40, 40), ND_F32);
    nd_release(nd_matmul(single, single));
    await_fork();
    nd_release(nd_rfft(single, 0, -1, ND_FFT_NORM_BACKWARD));
    await_fork();
    nd_release(nd_rfft(matrix, 0, -1, ND_FFT_NORM_BACKWARD));
    nd_release(single);
    nd_release(matrix);
    atomic_store(&finished, true);
    return data;
}

static void test_F31_no_fork_beside_who_opens_a_library(void **state) {
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, compute, NULL), 0);
    while (!atomic_load(&ready))
        ;
    int beside = 0;
    while (!atomic_load(&finished)) {
        pid_t child = fork();
        if (child == 0)
            _exit(atomic_load(&inside) != 0);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        atomic_fetch_add(&forks, 1);
        beside += WEXITSTATUS(status);
    }
    pthread_join(thread, NULL);
    assert_true(atomic_load(&forks) > 2 && atomic_load(&opened) > 1);
    assert_int_equal(beside, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F31_no_fork_beside_who_opens_a_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
