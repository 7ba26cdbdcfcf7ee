// Many short batches, and the median of them: long enough for the clock not to matter, and so short
// that most of them run between two turns of the scheduler. A neighbour that takes the core away
// spoils some batches, not the figure.
#include "bench/support/measure.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

static double shortest_batch_seconds = 2e-4;
/// A slow or busy machine measures less, not longer.
static const double longest_measurement_seconds = 10;
enum { LEAST_REPEATS = 3 };
static bool measured_less;

/// OpenMP's threads spin for 300,000 pauses, which take up to 50 ns each.
static const struct timespec until_threads_sleep = {.tv_nsec = 30000000};

static uint64_t iterations_of_a_batch(const bench_side *side);
static int compare_doubles(const void *a, const void *b);

double bench_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double bench_median(double *values, size_t count) {
    if (count == 0)
        return NAN;
    qsort(values, count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double bench_measure_ns(bench_work work, void *data, size_t repeats) {
    bench_side side = {.work = work, .data = data, .ns = NAN};
    bench_measure_sides(&side, 1, repeats);
    return side.ns;
}

void bench_measure_sides(bench_side *sides, size_t count, size_t repeats) {
    uint64_t iterations[BENCH_SIDES];
    double *batches[BENCH_SIDES];
    bool settle = false;
    assert(count <= BENCH_SIDES);
    for (size_t i = 0; i < count; i++) {
        settle = settle || (sides[i].work && sides[i].spins);
        iterations[i] = sides[i].work ? iterations_of_a_batch(&sides[i]) : 0;
        batches[i] = iterations[i] ? calloc(repeats, sizeof(double)) : NULL;
    }
    double start = bench_seconds();
    size_t done = 0;
    for (; done < repeats; done++) {
        if (done >= LEAST_REPEATS && bench_seconds() - start > longest_measurement_seconds) {
            measured_less = true;
            break;
        }
        for (size_t i = 0; i < count; i++) {
            if (settle && batches[i])
                sides[i].work(sides[i].data, 1);
            double begin = bench_seconds();
            if (batches[i] && sides[i].work(sides[i].data, iterations[i])) {
                batches[i][done] = (bench_seconds() - begin) * 1e9 / (double)iterations[i];
            } else {
                free(batches[i]);
                batches[i] = NULL;
            }
            if (sides[i].spins)
                nanosleep(&until_threads_sleep, NULL);
        }
    }
    for (size_t i = 0; i < count; i++) {
        sides[i].ns = batches[i] ? bench_median(batches[i], done) : (double)NAN;
        free(batches[i]);
    }
}

void bench_set_shortest_batch(double seconds) {
    shortest_batch_seconds = seconds;
}

bool bench_measured_less(void) {
    return measured_less;
}

/// 0 when the work fails. A batch is long enough when it is so twice: the first time of anything may
/// be that of loading a library or a kernel.
static uint64_t iterations_of_a_batch(const bench_side *side) {
    bool was_long = false;
    for (uint64_t iterations = 1;;) {
        double begin = bench_seconds();
        if (!side->work(side->data, iterations))
            return 0;
        const bool is_long = bench_seconds() - begin >= shortest_batch_seconds;
        if (is_long && was_long)
            return iterations;
        if (!is_long)
            iterations *= 2;
        was_long = is_long;
    }
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench_second_thread {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done;
};

static void *wait_until_done(void *data) {
    bench_second_thread *second = data;
    pthread_mutex_lock(&second->mutex);
    while (!second->done)
        pthread_cond_wait(&second->changed, &second->mutex);
    pthread_mutex_unlock(&second->mutex);
    return NULL;
}

bench_second_thread *bench_second_thread_begin(void) {
    bench_second_thread *second = malloc(sizeof *second);
    if (!second)
        return NULL;
    *second = (bench_second_thread){.mutex = PTHREAD_MUTEX_INITIALIZER,
                                    .changed = PTHREAD_COND_INITIALIZER};
    if (pthread_create(&second->thread, NULL, wait_until_done, second) == 0)
        return second;
    free(second);
    return NULL;
}

void bench_second_thread_end(bench_second_thread *second) {
    if (!second)
        return;
    pthread_mutex_lock(&second->mutex);
    second->done = true;
    pthread_cond_signal(&second->changed);
    pthread_mutex_unlock(&second->mutex);
    pthread_join(second->thread, NULL);
    free(second);
}
