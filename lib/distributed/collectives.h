// What of the collective calls serves others: reductions of memory, inside a call.
#ifndef ND_LIB_DISTRIBUTED_COLLECTIVES_H
#define ND_LIB_DISTRIBUTED_COLLECTIVES_H
#include "lib/distributed/communicator.h"

/// An all-reduce in place of memory that is given up on an error, as a transport's; all ranks have
/// agreed on it. The caller notes the answer (nd__communicator_note).
nd_status nd__collectives_reduce(const nd_communicator *comm, const nd_transport_call *call,
                                 void *data, int64_t count, nd_dtype dtype, nd_collective op);
#endif
