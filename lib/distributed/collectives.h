// What of the collective calls serves others: reductions of memory, inside a call, and calls under
// the name of a public one.
#ifndef ND_LIB_DISTRIBUTED_COLLECTIVES_H
#define ND_LIB_DISTRIBUTED_COLLECTIVES_H
#include "lib/distributed/communicator.h"

/// An all-reduce in place of memory that is given up on an error, as a transport's; all ranks have
/// agreed on it. The caller notes the answer (nd__communicator_note).
nd_status nd__collectives_reduce(const nd_communicator *comm, const nd_transport_call *call,
                                 void *data, int64_t count, nd_dtype dtype, nd_collective op);

/// nd_all_reduce, nd_broadcast_, nd_send and nd_receive_ as a part of `operation`, which their errors name. With a
/// `status` that is not ND_OK this rank has failed: it says so to the others, and keeps its error.
nd_tensor *nd__collectives_all_reduce(const char *operation, const nd_tensor *x,
                                      const nd_communicator *comm, nd_collective op,
                                      nd_status status);
nd_status nd__collectives_broadcast(const char *operation, nd_tensor *x,
                                    const nd_communicator *comm, int root, nd_status status);
nd_status nd__collectives_send(const char *operation, const nd_tensor *x,
                               const nd_communicator *comm, int rank, nd_status status);
nd_status nd__collectives_receive(const char *operation, nd_tensor *x, const nd_communicator *comm,
                                  int rank, nd_status status);
#endif
