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

/// The transport's beginning and end (transport.h), for its table in mpi_data.c.
nd_status nd__mpi_check(nd_transport *transport, const char *operation);
nd_transport *nd__mpi_reserve(nd_transport *transport, const nd_transport_call *call);
nd_status nd__mpi_duplicate(nd_transport *transport, const nd_transport_call *call,
                            nd_transport *reserved);
void nd__mpi_free(nd_transport *transport, bool broken);
#endif
