// All-reduces by the clock: this library's beside those of the MPI below it.
#ifndef ND_BENCH_DATA_PARALLEL_REDUCTION_H
#define ND_BENCH_DATA_PARALLEL_REDUCTION_H
#include <nd/distributed.h>

enum { REDUCTION_SIZES = 4 };
extern const struct reduction_size {
    const char *name; ///< in keys
    int64_t bytes;
} reduction_sizes[REDUCTION_SIZES];

typedef struct reduction_times {
    double ours;     ///< seconds of nd_all_reduce(), a new tensor
    double in_place; ///< of nd_all_reduce_()
    double mpi;      ///< of MPI_Allreduce() from the same memory to memory that is there
} reduction_times;

/// Medians of calls that the ranks begin together, one of each kind in turn, of f32 and a sum.
/// False, with the thread's error set, on failure.
bool reduction_measure(const nd_communicator *world, int64_t bytes, reduction_times *ret_times);

#endif
