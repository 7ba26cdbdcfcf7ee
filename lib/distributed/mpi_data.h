// What goes through MPI: the table of the transport, whose other half is mpi.c.
#ifndef ND_LIB_DISTRIBUTED_MPI_DATA_H
#define ND_LIB_DISTRIBUTED_MPI_DATA_H
#include "lib/distributed/transport.h"

extern const nd_transport_functions nd__mpi_data_functions;

/// Elements that one MPI call moves at most, for tests: MPI counts in an int.
extern int64_t nd__mpi_largest_count;
/// Bytes of a message of the ring that reduces large tensors (ring.h), and what a tensor has for each
/// rank at least to be large; tests make them smaller. A message is long, because the thread that
/// waits for it has no core of its own where all compute: the system lets it look every few
/// milliseconds only, so that many short ones would take the time of as many looks.
extern int64_t nd__mpi_ring_message, nd__mpi_ring_share;
/// Bytes of all ranks together that are gathered in memory in common, at most: MPI is faster with
/// more, as it is with every broadcast.
extern int64_t nd__mpi_gathered;
#endif
