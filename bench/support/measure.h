// Time, medians, and the loop that measures something short.
#ifndef ND_BENCH_MEASURE_H
#define ND_BENCH_MEASURE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Seconds of a clock that only goes forward.
double bench_seconds(void);

/// Median of `count` values, which it sorts; NaN of none.
double bench_median(double *values, size_t count);

/// Does the work `iterations` times. False stops the measurement (an operation failed).
typedef bool (*bench_work)(void *data, uint64_t iterations);

/// Median nanoseconds of one iteration over `repeats` timed batches of 0.2 milliseconds or more, or
/// over fewer where they take longer than ten seconds. What
/// runs before them, to find out how many iterations that takes and to warm up, is not counted. NaN
/// when the work failed or there was no memory.
double bench_measure_ns(bench_work work, void *data, size_t repeats);

/// Another length of batches, for work whose begin or end takes long: waiting for a GPU takes 20
/// microseconds.
void bench_set_shortest_batch(double seconds);

/// Whether something was measured with fewer batches than it should be, because it took too long.
bool bench_measured_less(void);

enum { BENCH_SIDES = 5 };

/// One of several works that are measured beside each other.
typedef struct bench_side {
    bench_work work; ///< NULL: not measured
    void *data;
    double ns;  ///< written; NaN when it was not measured or failed
    bool spins; ///< its threads spin on after it: give them time to go to sleep
} bench_side;

/// bench_measure_ns() of at most BENCH_SIDES works, a batch of each in turn: a machine that speeds
/// up or slows down meanwhile does so for all of them. Where one of them spins, each batch begins
/// with an iteration that is not counted, since threads that slept have to wake.
void bench_measure_sides(bench_side *sides, size_t count, size_t repeats);

/// A thread that does nothing but be there: libraries are more careful then. NULL: it could not be
/// begun.
typedef struct bench_second_thread bench_second_thread;
bench_second_thread *bench_second_thread_begin(void);
/// Ends it. NULL is fine.
void bench_second_thread_end(bench_second_thread *second);

#endif
