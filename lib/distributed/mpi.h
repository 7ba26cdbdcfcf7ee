// MPI as a transport, in host memory.
//
// Invariants: MPI is called under one lock of the process, so that MPI_THREAD_SERIALIZED suffices,
// and by calls that do not block, so that every wait has a deadline; the lock is not held between
// them. No communicator of the program's is touched beyond its duplication, and every error comes
// back as an answer (MPI_ERRORS_RETURN).
#ifndef ND_LIB_DISTRIBUTED_MPI_H
#define ND_LIB_DISTRIBUTED_MPI_H
#include "lib/distributed/transport.h"

bool nd__mpi_is_there(void);
/// Transport over a communicator's ranks; `mpi_comm` is the address of an MPI_Comm, NULL: the
/// world, for which MPI is initialised where nobody did. NULL with an error.
nd_transport *nd__mpi_new(const nd_transport_call *call, const void *mpi_comm);

/// Elements that one MPI call moves at most, for tests: MPI counts in an int.
extern int64_t nd__mpi_largest_count;
/// Bytes of a message of the ring that reduces large tensors (ring.h), and what a tensor has for each
/// rank at least to be large; tests make them smaller. A message is long, because the thread that
/// waits for it has no core of its own where all compute: the system lets it look every few
/// milliseconds only, so that many short ones would take the time of as many looks.
extern int64_t nd__mpi_ring_message, nd__mpi_ring_share;
#endif
