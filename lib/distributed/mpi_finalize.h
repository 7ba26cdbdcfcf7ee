// The end of MPI, with a deadline. Only where there is MPI.
#ifndef ND_LIB_DISTRIBUTED_MPI_FINALIZE_H
#define ND_LIB_DISTRIBUTED_MPI_FINALIZE_H

/// MPI_Finalize(), at the exit of the process. Where it does not return within so many seconds the
/// process ends there, with a sentence on stderr and EXIT_FAILURE; what stdio has buffered is written.
void nd__mpi_finalize(double seconds);
#endif
