// As in reduction.c: all ranks meet at a barrier, call, and the time until the call has returned
// counts, of the slowest rank: a root has sent long before the others have received.
#include "bench/data_parallel/collective.h"

#include "bench/support/measure.h"

#include <nd/nd.h>

#include <stdlib.h>

const char *const collective_names[COLLECTIVE_KINDS] = {"broadcast", "all_gather",
                                                        "reduce_scatter"};

#if ND_HAVE_MPI
#include <mpi.h>

enum { REPEATS = 41, FEW_REPEATS = 11, WARM_UP = 3, MANY_BYTES = 8 << 20, RANKS_MOST = 64 };

/// What a measurement works with.
typedef struct work {
    collective_kind kind;
    nd_tensor *x;  ///< of this rank
    float *to;     ///< for MPI
    int64_t numel; ///< of the whole
    int ranks;
} work;

static bool call_ours(const work *work, const nd_communicator *comm) {
    if (work->kind == COLLECTIVE_BROADCAST)
        return nd_broadcast_(work->x, comm, 0) == ND_OK;
    nd_auto nd_tensor *result = work->kind == COLLECTIVE_ALL_GATHER
                                    ? nd_all_gather(work->x, comm)
                                    : nd_reduce_scatter(work->x, comm, ND_COLLECTIVE_SUM);
    return result != NULL;
}

static bool call_mpi(const work *work) {
    void *data = nd_get_data(work->x);
    int share = (int)(work->numel / work->ranks), counts[RANKS_MOST];
    for (int rank = 0; rank < work->ranks; rank++)
        counts[rank] = share;
    if (work->kind == COLLECTIVE_BROADCAST)
        return MPI_Bcast(data, (int)work->numel, MPI_FLOAT, 0, MPI_COMM_WORLD) == MPI_SUCCESS;
    if (work->kind == COLLECTIVE_ALL_GATHER)
        return MPI_Allgather(data, share, MPI_FLOAT, work->to, share, MPI_FLOAT, MPI_COMM_WORLD) ==
               MPI_SUCCESS;
    return MPI_Reduce_scatter(data, work->to, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
           MPI_SUCCESS;
}

/// Seconds of the slowest rank; `comm` NULL: of MPI.
static bool time_call(const work *work, const nd_communicator *comm, double *ret_seconds) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = bench_seconds();
    bool good = comm ? call_ours(work, comm) : call_mpi(work);
    double took = bench_seconds() - begin;
    MPI_Allreduce(&took, ret_seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return good;
}

bool collective_measure(const nd_communicator *world, const nd_communicator *apart,
                        collective_kind kind, int64_t bytes, collective_times *ret_times) {
    int ranks = nd_communicator_get_size(world);
    int64_t numel = bytes / 4 / ranks * ranks;
    int64_t own = kind == COLLECTIVE_ALL_GATHER ? numel / ranks : numel;
    nd_key key = nd_key_new(17 + (uint64_t)nd_communicator_get_rank(world));
    nd_auto nd_tensor *x = nd_randn(key, ND_SHAPE(own), ND_F32);
    work work = {kind, x, malloc((size_t)bytes), numel, ranks};
    double ours[REPEATS], others[REPEATS], theirs[REPEATS];
    int repeats = bytes > MANY_BYTES ? FEW_REPEATS : REPEATS;
    bool good = x && work.to && ranks <= RANKS_MOST;
    for (int i = -WARM_UP; good && i < repeats; i++) {
        int place = i < 0 ? 0 : i;
        good = time_call(&work, world, &ours[place]) && time_call(&work, apart, &others[place]) &&
               time_call(&work, NULL, &theirs[place]);
    }
    free(work.to);
    if (good)
        *ret_times = (collective_times){bench_median(ours, (size_t)repeats),
                                        bench_median(others, (size_t)repeats),
                                        bench_median(theirs, (size_t)repeats)};
    return good;
}
#else
bool collective_measure(const nd_communicator *world, const nd_communicator *apart,
                        collective_kind kind, int64_t bytes, collective_times *ret_times) {
    (void)world;
    (void)apart;
    (void)kind;
    (void)bytes;
    (void)ret_times;
    return false;
}
#endif
