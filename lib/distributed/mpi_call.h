// Calls of MPI: one lock of the process, a deadline for each, and what the transport's files share.
// Only where there is MPI.
//
// Invariant: every call but those that begin and end MPI is made under the lock, and none of them
// blocks.
#ifndef ND_LIB_DISTRIBUTED_MPI_CALL_H
#define ND_LIB_DISTRIBUTED_MPI_CALL_H
#include "lib/base/lock.h"
#include "lib/distributed/node.h"
#include "lib/distributed/ring.h"
#include "lib/distributed/transport.h"
#include <mpi.h>
#include <stdalign.h>

/// Bytes of the small messages of one call: an agreement, or two records.
enum { ND__MPI_EXCHANGE = 2048 };

typedef struct nd_mpi {
    nd_transport transport;
    MPI_Comm comm;
    nd_node *node;   ///< NULL: its ranks are not all on this machine
    int64_t *shares; ///< of each rank, while they are on their way; one block with the next two
    int *counts, *places; ///< the same, and where they begin
    void *received;       ///< messages of a ring
    MPI_Request requests[ND__RING_DEPTH][2];
    bool begun[ND__RING_DEPTH]; ///< of a ring
    alignas(8) unsigned char exchange[ND__MPI_EXCHANGE];
} nd_mpi;

extern nd_lock nd__mpi_call_lock;
extern bool nd__mpi_call_given_up; ///< lock: a call has not ended; MPI may not be finalized
extern bool nd__mpi_call_over;     ///< lock: the process exits, and with it MPI

/// MPI's answer as an error.
nd_status nd__mpi_call_refused(const nd_transport_call *call, int answer);
/// Waits for one of the pairs of requests whose `begun` is true, each of so many bytes: for both of
/// it. Its `begun` is false from then on, and its place is returned.
nd_status nd__mpi_call_wait_pairs(const nd_transport_call *call, MPI_Request (*pairs)[2],
                                  bool *begun, int pair_count, int64_t bytes, int *ret_place);
/// Waits for what was begun with `answer`, a transfer of some bytes.
nd_status nd__mpi_call_wait(const nd_transport_call *call, int answer, MPI_Request *requests,
                            int count, int64_t bytes);

/// One nonblocking call of MPI, begun under the lock and waited for.
#define ND__MPI_CALL(call, bytes, begin)                           \
    ({                                                             \
        MPI_Request request_;                                      \
        nd__lock_acquire(&nd__mpi_call_lock);                      \
        int answer_ = nd__mpi_call_over ? MPI_ERR_OTHER : (begin); \
        nd__lock_release(&nd__mpi_call_lock);                      \
        nd__mpi_call_wait(call, answer_, &request_, 1, (bytes));   \
    })
#endif
