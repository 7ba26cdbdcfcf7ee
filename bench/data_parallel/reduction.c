// As the OSU benchmarks do it: all ranks meet at a barrier, call, and the time until the call has
// returned counts. The same buffer is sent by each side, in turns.
#include "bench/data_parallel/reduction.h"

#include "bench/support/measure.h"

#include <nd/nd.h>

#include <stdlib.h>

#if ND_HAVE_MPI
#include <mpi.h>

const struct reduction_size reduction_sizes[REDUCTION_SIZES] = {
    {"64k", INT64_C(64) << 10},
    {"1m", INT64_C(1) << 20},
    {"4m", INT64_C(4) << 20},
    {"25m", INT64_C(25) << 20},
};

enum { REPEATS = 61, FEW_REPEATS = 15, WARM_UP = 3, MANY_BYTES = 8 << 20 };

static bool once(const nd_communicator *world, nd_tensor *x, nd_tensor *in_place, float *to,
                 reduction_times *ret_times) {
    double begin[4];
    MPI_Barrier(MPI_COMM_WORLD);
    begin[0] = bench_seconds();
    nd_auto nd_tensor *sum = nd_all_reduce(x, world, ND_COLLECTIVE_SUM);
    begin[1] = bench_seconds();
    MPI_Barrier(MPI_COMM_WORLD);
    double second = bench_seconds();
    nd_status status = nd_all_reduce_(in_place, world, ND_COLLECTIVE_MEAN);
    begin[2] = bench_seconds();
    MPI_Barrier(MPI_COMM_WORLD);
    begin[3] = bench_seconds();
    int answer =
        MPI_Allreduce(nd_get_data(x), to, (int)nd_get_numel(x), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    ret_times->mpi = bench_seconds() - begin[3];
    ret_times->ours = begin[1] - begin[0];
    ret_times->in_place = begin[2] - second;
    return sum && status == ND_OK && answer == MPI_SUCCESS;
}

bool reduction_measure(const nd_communicator *world, int64_t bytes, reduction_times *ret_times) {
    nd_key key = nd_key_new(17 + (uint64_t)nd_communicator_get_rank(world));
    nd_auto nd_tensor *x = nd_randn(key, ND_SHAPE(bytes / 4), ND_F32);
    nd_auto nd_tensor *in_place = nd_randn(key, ND_SHAPE(bytes / 4), ND_F32);
    float *to = malloc((size_t)bytes);
    double ours[REPEATS], places[REPEATS], theirs[REPEATS];
    int repeats = bytes > MANY_BYTES ? FEW_REPEATS : REPEATS;
    bool good = x && in_place && to;
    for (int i = -WARM_UP; good && i < repeats; i++) {
        reduction_times times;
        good = once(world, x, in_place, to, &times);
        int place = i < 0 ? 0 : i;
        ours[place] = times.ours;
        places[place] = times.in_place;
        theirs[place] = times.mpi;
    }
    free(to);
    if (good)
        *ret_times = (reduction_times){bench_median(ours, (size_t)repeats),
                                       bench_median(places, (size_t)repeats),
                                       bench_median(theirs, (size_t)repeats)};
    return good;
}
#else
const struct reduction_size reduction_sizes[REDUCTION_SIZES] = {{"none", 0}};

bool reduction_measure(const nd_communicator *world, int64_t bytes, reduction_times *ret_times) {
    (void)world;
    (void)bytes;
    (void)ret_times;
    return false;
}
#endif
