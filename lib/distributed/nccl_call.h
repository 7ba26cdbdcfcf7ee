// A call of NCCL's: the library, opened; waiting for it and for the device, with a deadline.
#ifndef ND_LIB_DISTRIBUTED_NCCL_CALL_H
#define ND_LIB_DISTRIBUTED_NCCL_CALL_H
#include "lib/device/registry.h"
#include "lib/distributed/nccl_numbers.h"
#include "lib/distributed/transport.h"

/// Its functions, once it is open.
#define ND__NCCL_FIELD(name, type, parameters) type(*name) parameters;
typedef struct nd_nccl_api {
    ND__NCCL_FUNCTIONS(ND__NCCL_FIELD)
} nd_nccl_api;
extern nd_nccl_api nd__nccl_call_api;

/// Opens it. Only success is remembered.
nd_status nd__nccl_call_open(const char *operation);

typedef struct nd_nccl {
    nd_transport transport;
    nd_nccl_comm comm; ///< NULL once aborted
    void *stream;      ///< of the backend
    void *exchange;    ///< on the device
    nd_nccl_id id;     ///< of rank 0, until it is connected
    uint64_t begin;    ///< when NCCL was asked for what is under way
} nd_nccl;

/// What NCCL is asked for, on a stream of CUDA's.
typedef struct nd_nccl_request {
    nd_nccl *nccl;
    const nd_transport_call *call;
    int (*ask)(const struct nd_nccl_request *request, nd_nccl_stream stream);
    const void *from; ///< read; `into` or a part of it, where that is the only memory
    void *into;       ///< written
    size_t count;
    int type;
    int reduction;
    int rank;              ///< a root, or another rank
    const int64_t *counts; ///< of each rank, one behind the other; `count` is that of all
    size_t element;        ///< bytes, with `counts`
    bool explained;        ///< the thread's error says what has failed
} nd_nccl_request;

static inline const nd_backend *nd__nccl_call_backend(const nd_nccl *nccl) {
    return nd__registry_backend(nccl->transport.device.kind);
}

/// Asks NCCL for work on the transport's stream, behind all that others do with its memory, and waits
/// until that is done.
nd_status nd__nccl_call_run(nd_nccl_request *request);
/// Whether an answer of NCCL's is no failure.
static inline bool nd__nccl_call_is_well(int answer) {
    return answer == ND__NCCL_SUCCESS || answer == ND__NCCL_IN_PROGRESS;
}
/// The error of a backend's status in words; ND_OK as it is.
nd_status nd__nccl_call_device(const nd_nccl *nccl, const nd_transport_call *call,
                               nd_status status);
#endif
