// Plain MPI between the two ranks of the world, and its additions. Long messages are as those of a
// ring (lib/distributed/ring.h): four of 2 MiB at once, each from and to memory of its own.
#include "bench/data_parallel/calibrate.h"

#include "bench/support/measure.h"

#include <stdlib.h>
#include <string.h>

#if ND_HAVE_MPI
#include <mpi.h>

enum {
    MESSAGE = 2 << 20,
    AT_ONCE = 4,
    TIMES = 6,
    MESSAGES = AT_ONCE * TIMES,
    REPEATS = 9,
    SHORT_REPEATS = 201
};

static double exchange(const char *from, char *to, int bytes, int at_once, int other) {
    MPI_Request requests[2 * AT_ONCE];
    MPI_Status statuses[2 * AT_ONCE]; // MPICH's MPI_STATUSES_IGNORE is an address that gcc warns of
    double begin = bench_seconds();
    for (int i = 0; i < at_once; i++) {
        MPI_Irecv(to + (size_t)i * MESSAGE, bytes, MPI_BYTE, other, 7, MPI_COMM_WORLD,
                  &requests[2 * i]);
        MPI_Isend(from + (size_t)i * MESSAGE, bytes, MPI_BYTE, other, 7, MPI_COMM_WORLD,
                  &requests[2 * i + 1]);
    }
    MPI_Waitall(2 * at_once, requests, statuses);
    return bench_seconds() - begin;
}

bool calibrate(const nd_communicator *world, sim_costs *ret_costs) {
    int other = 1 - nd_communicator_get_rank(world);
    double short_ones[SHORT_REPEATS], long_ones[REPEATS], sums[REPEATS];
    char *data = malloc((size_t)MESSAGE * MESSAGES), *received = malloc((size_t)MESSAGE * AT_ONCE);
    if (data && received) {
        memset(data, 0, (size_t)MESSAGE * MESSAGES);
        memset(received, 0, (size_t)MESSAGE * AT_ONCE);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < SHORT_REPEATS; i++)
            short_ones[i] = exchange(data, received, 8, 1, other);
        for (int i = 0; i < REPEATS; i++) {
            long_ones[i] = sums[i] = 0;
            for (int k = 0; k < MESSAGES; k += AT_ONCE) {
                char *at = data + (size_t)k * MESSAGE;
                long_ones[i] += exchange(at, received, MESSAGE, AT_ONCE, other) / MESSAGES;
                double begin = bench_seconds();
                MPI_Reduce_local(received, at, AT_ONCE * MESSAGE / 4, MPI_FLOAT, MPI_SUM);
                sums[i] += (bench_seconds() - begin) / MESSAGES;
            }
        }
        ret_costs->latency = bench_median(short_ones, SHORT_REPEATS);
        ret_costs->per_byte = bench_median(long_ones, REPEATS) / MESSAGE;
        ret_costs->per_sum_byte = bench_median(sums, REPEATS) / MESSAGE;
    }
    bool good = data && received;
    free(data);
    free(received);
    return good;
}
#else
bool calibrate(const nd_communicator *world, sim_costs *ret_costs) {
    (void)world;
    (void)ret_costs;
    return false;
}
#endif
