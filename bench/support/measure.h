// Time, medians, and the loop that measures something short.
#ifndef ND_BENCH_MEASURE_H
#define ND_BENCH_MEASURE_H
#include <stddef.h>
#include <stdint.h>

/// Seconds of a clock that only goes forward.
double bench_seconds(void);

/// Median of `count` values, which it sorts; NaN of none.
double bench_median(double *values, size_t count);

/// Does the work `iterations` times. False stops the measurement (an operation failed).
typedef _Bool (*bench_work)(void *data, uint64_t iterations);

/// Median nanoseconds of one iteration over `repeats` timed batches of 0.2 milliseconds or more. What
/// runs before them, to find out how many iterations that takes and to warm up, is not counted. NaN when the work failed or there was no memory.
double bench_measure_ns(bench_work work, void *data, size_t repeats);

#endif
