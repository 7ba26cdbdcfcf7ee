// Reads what rank 0 has printed (rank.h).
#ifndef ND_BENCH_DATA_PARALLEL_FIGURES_H
#define ND_BENCH_DATA_PARALLEL_FIGURES_H
#include "bench/data_parallel/timeline.h"
#include "bench/support/peer.h"

/// The figure us_OF_WHAT; NaN where there is none.
double figures_us(const bench_peer *peer, const char *of, const char *what);
/// The timeline of a model, in microseconds, and the bytes of all its buckets.
timeline figures_timeline(const bench_peer *peer, const char *model, double *ret_bytes);

#endif
