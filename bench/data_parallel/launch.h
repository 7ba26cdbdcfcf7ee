// Starts this program as so many ranks under mpirun.
#ifndef ND_BENCH_DATA_PARALLEL_LAUNCH_H
#define ND_BENCH_DATA_PARALLEL_LAUNCH_H
#include "bench/support/peer.h"

/// What an argument list begins with when the program is a rank.
#define LAUNCH_RANK "--rank"

/// Why there can be no ranks; NULL: there can.
const char *launch_missing(void);
/// Runs `ranks` of them with an argument more, which take any core and may be more than there are cores, and reads what
/// rank 0 prints.
void launch_ranks(int ranks, const char *seconds, bench_peer *ret_figures);

#endif
