// When a backward pass has the gradients of each bucket.
#ifndef ND_BENCH_DATA_PARALLEL_TIMELINE_H
#define ND_BENCH_DATA_PARALLEL_TIMELINE_H
#include "bench/data_parallel/training.h"

enum { TIMELINE_BUCKETS = 16 };

typedef struct timeline {
    double step;     ///< seconds of a step without communication
    double forward;  ///< of these: until the backward pass begins
    double backward; ///< of these: the backward pass
    size_t count;
    struct timeline_bucket {
        double bytes;
        double ready; ///< seconds from the beginning of the backward pass to the last gradient
    } buckets[TIMELINE_BUCKETS];
} timeline;

/// Of steps without communication, medians; the buckets are those that nd_data_parallel fills
/// (docs/distributed.md) in the order in which gradients come. No collective call. False on failure.
bool timeline_measure(training *train, timeline *ret_timeline);

/// Seconds from the beginning of the backward pass until the last bucket is there, when buckets are
/// sent one after the other, each as soon as it is ready, bucket i in seconds[i].
double timeline_finish(const timeline *line, const double *seconds);

#endif
