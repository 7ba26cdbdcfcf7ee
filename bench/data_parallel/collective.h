// Broadcasts, all-gathers and reduce-scatters by the clock: this library's, with memory in common and
// without, beside those of the MPI below it.
#ifndef ND_BENCH_DATA_PARALLEL_COLLECTIVE_H
#define ND_BENCH_DATA_PARALLEL_COLLECTIVE_H
#include <nd/distributed.h>

typedef enum collective_kind {
    COLLECTIVE_BROADCAST,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_KINDS,
} collective_kind;
extern const char *const collective_names[COLLECTIVE_KINDS]; ///< in keys

typedef struct collective_times {
    double ours;  ///< seconds of nd_broadcast_(), nd_all_gather() or nd_reduce_scatter()
    double apart; ///< of the same between ranks without memory in common
    double mpi;   ///< of MPI_Bcast(), MPI_Allgather() or MPI_Reduce_scatter()
} collective_times;

/// Medians of calls that the ranks begin together, one of each side in turn, of f32 and a sum.
/// `bytes` are those of the whole: what is sent, the gathered result, what is reduced. False, with
/// the thread's error set, on failure. `apart` is another communicator of the same ranks.
bool collective_measure(const nd_communicator *world, const nd_communicator *apart,
                        collective_kind kind, int64_t bytes, collective_times *ret_times);

#endif
