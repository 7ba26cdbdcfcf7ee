// Many short batches, and the median of them: long enough for the clock not to matter, and so short
// that most of them run between two turns of the scheduler. A neighbour that takes the core away
// spoils some batches, not the figure.
#include "bench/support/measure.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

static const double shortest_batch_seconds = 2e-4;

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
    uint64_t iterations = 1;
    for (;;) {
        double begin = bench_seconds();
        if (!work(data, iterations))
            return NAN;
        if (bench_seconds() - begin >= shortest_batch_seconds)
            break;
        iterations *= 2;
    }
    double *batches = calloc(repeats, sizeof *batches);
    if (!batches)
        return NAN;
    double median = NAN;
    size_t done = 0;
    for (; done < repeats; done++) {
        double begin = bench_seconds();
        if (!work(data, iterations))
            break;
        batches[done] = (bench_seconds() - begin) * 1e9 / (double)iterations;
    }
    if (done == repeats)
        median = bench_median(batches, repeats);
    free(batches);
    return median;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}
