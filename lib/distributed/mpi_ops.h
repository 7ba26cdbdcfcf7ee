// What MPI calls ndarc's dtypes and reductions. Only where there is MPI.
//
// MPI's own operations serve where they say what is wanted; for floats of 16 bits, which MPI has
// not, for maxima of floats, of which MPI does not say what becomes of NaN, for sums of integers of
// 8 and 16 bits, which some MPIs stop at the largest number, and for maxima of unsigned integers,
// which MPICH 4.0 compares as signed ones, there are operations of ours. Called under the lock of
// mpi.c.
#ifndef ND_LIB_DISTRIBUTED_MPI_OPS_H
#define ND_LIB_DISTRIBUTED_MPI_OPS_H
#include <mpi.h>
#include <nd/distributed.h>

MPI_Datatype nd__mpi_ops_type(nd_dtype dtype);
/// MPI_SUCCESS, or why the operation cannot be made. Of the mean it is the sum.
int nd__mpi_ops_get(nd_dtype dtype, nd_collective op, MPI_Op *ret_op);
/// data /= divisor, of a float dtype, rounded once.
void nd__mpi_ops_divide(void *data, int64_t count, nd_dtype dtype, int divisor);
/// Before MPI is finalized.
void nd__mpi_ops_free(void);
#endif
