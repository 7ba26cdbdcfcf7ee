// NCCL as a transport, in the memory of one CUDA device: between GPUs, of one machine or several.
//
// The library is opened when the first such communicator is made, and so is the CUDA driver, for a
// stream of the transport's own. Invariant: a call begins when all work queued on the device is
// done and ends when its own is, so tensors need no order beyond that; and what does not end in
// time is aborted (ncclCommAbort), after which nothing touches the memory.
#ifndef ND_LIB_DISTRIBUTED_NCCL_H
#define ND_LIB_DISTRIBUTED_NCCL_H
#include "lib/distributed/transport.h"

/// What a communicator of NCCL is known by, until all ranks have joined.
typedef struct nd_nccl_id {
    char bytes[128];
} nd_nccl_id;

/// ND_OK when NCCL and the driver can be opened, and the device is one of CUDA.
nd_status nd__nccl_check(const char *operation, nd_device device);
nd_status nd__nccl_make_id(const char *operation, nd_nccl_id *ret_id);
/// Joins: returns when all ranks have, or with an error. NCCL was checked.
nd_transport *nd__nccl_new(const nd_transport_call *call, const nd_nccl_id *id, int rank, int size,
                           nd_device device);
#endif
