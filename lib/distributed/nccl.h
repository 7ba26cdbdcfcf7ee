// NCCL as a transport, in the memory of one CUDA device: between GPUs, of one machine or several.
//
// The library is opened when the first such communicator is made. Each has a stream of its own, and
// what it asks NCCL for comes there behind all that other streams do with the same memory, and
// before all that they do with it later (nd_stream_functions: lend). Invariant: NCCL is asked when
// this rank's own work before it is done, so that nothing but other ranks can keep it waiting; a call
// ends when its work is done; and what does not end in time is aborted (ncclCommAbort), after which
// nothing touches the memory.
#ifndef ND_LIB_DISTRIBUTED_NCCL_H
#define ND_LIB_DISTRIBUTED_NCCL_H
#include "lib/distributed/nccl_numbers.h"
#include "lib/distributed/transport.h"

/// ND_OK when NCCL can be opened, and the device is one of CUDA.
nd_status nd__nccl_check(const char *operation, nd_device device);
nd_status nd__nccl_make_id(const char *operation, nd_nccl_id *ret_id);
/// Joins: returns when all ranks have, or with an error. NCCL was checked.
nd_transport *nd__nccl_new(const nd_transport_call *call, const nd_nccl_id *id, int rank, int size,
                           nd_device device);
#endif
