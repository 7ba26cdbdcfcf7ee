// All-reduces of a training step between any number of ranks, message by message, in simulated time.
//
// A message of n bytes takes a rank's link for n * per_byte, behind those that the rank has sent
// before, and arrives latency after that; what a rank receives it adds up at per_sum_byte, one message
// after the other. A piece of an array goes on when the rank's own message has left and the other
// rank's is there and added up. A ring has four pieces on their way at once, like lib/distributed's
// ring.h; the other algorithms have one. Nothing else takes time, and messages of two ranks do not get
// into each other's way.
#ifndef ND_BENCH_DATA_PARALLEL_SIMULATE_H
#define ND_BENCH_DATA_PARALLEL_SIMULATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Seconds.
typedef struct sim_costs {
    double latency, per_byte, per_sum_byte;
} sim_costs;

typedef enum sim_algorithm {
    SIM_RING,     ///< of nd_all_reduce, in pieces of 2 MiB for each rank, four at once
    SIM_HALVING,  ///< recursive halving, then doubling (Rabenseifner 2004)
    SIM_DOUBLING, ///< recursive doubling of whole arrays
    SIM_CHOSEN,   ///< a ring where a bucket has 128 KiB for each rank, else halving and doubling
    SIM_ALGORITHMS,
} sim_algorithm;

enum { SIM_BUCKETS = 16 };

typedef struct sim_step {
    int ranks; ///< a power of two
    sim_algorithm algorithm;
    sim_costs costs;
    size_t count; ///< of buckets, which are reduced one after the other
    double bytes[SIM_BUCKETS];
    double ready[SIM_BUCKETS]; ///< seconds from the beginning until a rank has it
    double spread;             ///< part by which ranks are later than that, from 0 to this, random
} sim_step;

typedef struct sim_result {
    double begin[SIM_BUCKETS], end[SIM_BUCKETS]; ///< on rank 0
    double finish;                               ///< of the last rank
    uint64_t messages;
} sim_result;

/// False: `ranks` is no power of two, there are too many buckets, or no memory.
bool simulate(const sim_step *step, sim_result *ret_result);

#endif
