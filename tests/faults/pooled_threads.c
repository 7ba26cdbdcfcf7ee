// A process whose threads were large becomes small again, also where data are the system's malloc's, as in
// libnd.so: that keeps what is free at the end of each thread's heap, up to twice of the largest block that
// the program itself has ever freed. Looks at what the system says.
#include "tests/faults/resident.h"
#include "tests/testing.h"
#include <nd/nd.h>
#include <pthread.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

enum { THREADS = 8, PART = 48 }; // MiB of each

static pthread_barrier_t full, empty;
static int64_t elements; // of each tensor

static void *fill_and_empty(void *data) {
    const size_t count = PART * MIB / ((size_t)elements * sizeof(float));
    nd_tensor **tensors = calloc(count, sizeof(nd_tensor *));
    for (size_t i = 0; tensors && i < count; i++)
        tensors[i] = nd_ones(ND_SHAPE(elements), ND_F32);
    pthread_barrier_wait(&full);
    pthread_barrier_wait(&full);
    for (size_t i = 0; tensors && i < count; i++)
        nd_release(tensors[i]);
    free(tensors);
    pthread_barrier_wait(&empty); // the thread, and its heap, are still there when it is looked
    pthread_barrier_wait(&empty);
    return data;
}

/// Bytes that are left of tensors of this many elements on all threads, when they are gone and the
/// caches were trimmed.
static uint64_t left_of(int64_t count) {
    pthread_t threads[THREADS];
    elements = count;
    const uint64_t before = resident();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fill_and_empty, NULL), 0);
    pthread_barrier_wait(&full);
    const uint64_t large = resident();
    pthread_barrier_wait(&full);
    pthread_barrier_wait(&empty);
    nd_memory_trim(ND_CPU);
    const uint64_t after = resident();
    pthread_barrier_wait(&empty);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    print_message("%lld elements: resident %.1f MiB, at most %.1f, trimmed %.1f\n",
                  (long long)count, (double)before / MIB, (double)large / MIB, (double)after / MIB);
    assert_true(large > before + THREADS * PART / 4 * 3 * MIB);
    return after > before ? after - before : 0;
}

static void test_threads_that_were_large_leave_nothing(void **state) {
    (void)state;
    static const int64_t counts[] = {1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 18, 1 << 14};
    nd_release(nd_ones(ND_SHAPE(1 << 22), ND_F32)); // libraries are loaded
    void *volatile of_the_program = malloc(24 * MIB);
    free(of_the_program);
    pthread_barrier_init(&full, NULL, THREADS + 1);
    pthread_barrier_init(&empty, NULL, THREADS + 1);
    nd_memory_trim(ND_CPU);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        // A block of malloc's begins and ends within pages, which it shares with its neighbours.
        const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = (uint64_t)counts[i] * 4;
        assert_in_range(left_of(counts[i]), 0,
                        THREADS * PART * MIB / bytes * page * 3 / 2 + 8 * MIB);
    }
    pthread_barrier_destroy(&full);
    pthread_barrier_destroy(&empty);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_threads_that_were_large_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
