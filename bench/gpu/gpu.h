// What the files of //bench:gpu share.
#ifndef ND_BENCH_GPU_GPU_H
#define ND_BENCH_GPU_GPU_H
#include "bench/gpu/rival.h"
#include "bench/support/metrics.h"

/// The columns beside ours.
enum { DIRECT, EAGER, COMPILED };
/// Most lines of the table.
enum { GPU_METRICS_MAX = 40 };

/// How often to measure: as often as usual on a GPU, once where the figures mean nothing.
size_t gpu_repeats(size_t usual);

/// Append a line for each product, beside `direct`, and for each step of training, on the default device.
/// False with an error.
bool products_measure(bench_metric *metrics, size_t *count, rival *direct);
bool steps_measure(bench_metric *metrics, size_t *count);

#endif
