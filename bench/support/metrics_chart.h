// The chart of a table of figures: ours beside the rivals', as ratios, and what they shall be.
#ifndef ND_BENCH_METRICS_CHART_H
#define ND_BENCH_METRICS_CHART_H
#include "bench/support/metrics.h"

/// Draws it into the file, .png or .svg, with gnuplot. Where no line has a rival's figure or a target
/// there is nothing to draw, which is said and is no failure. False with a printed message on failure.
bool metrics_chart_draw(const bench_table *table, const char *path);

#endif
