// What //bench:data_parallel_scaling has simulated, for its chart.
#ifndef ND_BENCH_DATA_PARALLEL_SCALING_H
#define ND_BENCH_DATA_PARALLEL_SCALING_H
#include "bench/data_parallel/simulate.h"
#include "bench/data_parallel/timeline.h"

enum { SCALING_LINKS = 2, SCALING_RUNS = 11, SCALING_SHOWN = 6 };
/// Of the time of one rank: below that it does not scale any more.
#define SCALING_ENOUGH 0.8

/// A step of one rank by itself.
typedef struct scaling_model {
    timeline line;
    double ready;  ///< from the beginning of the backward pass to the last gradient
    double tail;   ///< what follows the last bucket: gradients copied, the optimizer's step
    double spread; ///< simulate.h
    bool overlap;  ///< buckets are sent when they are ready, else when all are
} scaling_model;

/// Simulated on 1 << run ranks.
typedef struct scaling_link {
    const char *name, *key;
    sim_costs costs;
    double steps[SIM_ALGORITHMS][SCALING_RUNS];
    sim_result results[SIM_ALGORITHMS][SCALING_RUNS];
} scaling_link;

/// Seconds; NaN where there is no memory.
double scaling_step(const scaling_model *model, const sim_costs *costs, int ranks,
                    sim_algorithm algorithm, sim_result *ret_result);
/// Of the time of one rank.
double scaling_efficiency(const scaling_link *link, int algorithm, int run);
/// A step of 1 << SCALING_SHOWN ranks over the second link, and efficiency over ranks.
bool scaling_draw(const scaling_model *model, const scaling_link *links, const char *path);

#endif
