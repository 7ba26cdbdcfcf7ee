// The calls of MPI that lib/distributed makes, by MPI's profiling interface: a library's MPI_Isend
// is this one, which calls PMPI_Isend.
//
// A request is known by the address of its handle, which stays where it is until it is complete.
// All of these calls are made under one lock of the process (docs/distributed.md).
#include "bench/data_parallel/link.h"

#include "bench/support/measure.h"

#include <stdbool.h>
#include <stddef.h>

#if ND_HAVE_MPI
#include <mpi.h>

enum { WAITING = 16 };

static double latency, bandwidth;
static double idle_from; ///< the link is busy until then
static double busy;
static struct {
    const MPI_Request *request; ///< NULL: free
    double due;
} waiting[WAITING];

void link_set(double of_latency, double of_bandwidth) {
    latency = of_latency;
    bandwidth = of_bandwidth;
    idle_from = busy = 0;
}

double link_busy(void) {
    return busy;
}

/// The request may be reported as complete when `messages` of so many bytes have come one after the
/// other, behind those that are on their way.
static int delay(int answer, const MPI_Request *request, int count, MPI_Datatype type,
                 int messages) {
    int size = 0;
    if (bandwidth <= 0 || answer != MPI_SUCCESS)
        return answer;
    PMPI_Type_size(type, &size);
    double now = bench_seconds(), begin = idle_from > now ? idle_from : now;
    idle_from = begin + messages * (double)count * size / bandwidth;
    busy += idle_from - begin;
    for (int i = 0; i < WAITING; i++)
        if (!waiting[i].request) {
            waiting[i].request = request;
            waiting[i].due = idle_from + messages * latency;
            return answer;
        }
    return answer;
}

/// Messages of an exchange in which the ranks that have met double each time.
static int rounds(MPI_Comm comm) {
    int ranks = 1, messages = 0;
    PMPI_Comm_size(comm, &ranks);
    while (1 << messages < ranks)
        messages++;
    return messages;
}

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request) {
    return delay(PMPI_Iallreduce(from, to, count, type, op, comm, request), request, count, type,
                 rounds(comm));
}

int MPI_Irecv(void *to, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request *request) {
    return delay(PMPI_Irecv(to, count, type, source, tag, comm, request), request, count, type, 1);
}

int MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses) {
    int answer = PMPI_Testall(count, requests, done, statuses);
    if (answer != MPI_SUCCESS || !*done)
        return answer;
    bool early = false;
    for (int i = 0; i < WAITING; i++) {
        if (waiting[i].request < requests || waiting[i].request >= requests + count)
            continue;
        if (bench_seconds() < waiting[i].due)
            early = true;
        else
            waiting[i].request = NULL;
    }
    *done = !early;
    return answer;
}
#else
void link_set(double of_latency, double of_bandwidth) {
    (void)of_latency;
    (void)of_bandwidth;
}

double link_busy(void) {
    return 0;
}
#endif
