// A slower link between the ranks than the memory of one machine: what MPI reports as complete it
// reports when a link of this latency and bandwidth would have brought it. The wait costs no
// processor time, as that for a network does not, so it can be hidden even where every core
// computes.
#ifndef ND_BENCH_DATA_PARALLEL_LINK_H
#define ND_BENCH_DATA_PARALLEL_LINK_H

/// Seconds of a message, and bytes of a second. A bandwidth of 0: messages are as fast as they are.
void link_set(double latency, double bandwidth);
/// Seconds since then that the link has brought something to this rank: they need no processor.
double link_busy(void);

#endif
