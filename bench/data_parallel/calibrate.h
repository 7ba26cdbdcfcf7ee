// What a message and an addition cost between two ranks, for the simulation.
#ifndef ND_BENCH_DATA_PARALLEL_CALIBRATE_H
#define ND_BENCH_DATA_PARALLEL_CALIBRATE_H
#include "bench/data_parallel/simulate.h"

#include <nd/distributed.h>

/// Of exchanges between two ranks that both send at the same time, as in a ring: the latency from
/// messages of 8 bytes, the rest from messages of 4 MiB out of arrays that no cache holds. False on
/// failure.
bool calibrate(const nd_communicator *world, sim_costs *ret_costs);

#endif
