// NCCL as a transport. Declares itself what it uses of NCCL and the driver, by the names of their
// headers, so that a machine without them builds it: NCCL 2.14 or newer, whose communicators do not
// block.
#include "lib/distributed/nccl.h"
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/optional.h"
#include "lib/device/registry.h"

#include <string.h>

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *CUstream;
enum { ncclSuccess = 0, ncclInProgress = 7 };
enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_READY = 600, CU_STREAM_NON_BLOCKING = 1 };
typedef struct ncclConfig {
    size_t size;
    unsigned magic, version;
    int blocking;
} ncclConfig;

/// The functions, by their names.
#define NCCL_FUNCTIONS(ONE)                                                                     \
    ONE(ncclGetUniqueId, int, (nd_nccl_id *))                                                   \
    ONE(ncclCommInitRankConfig, int, (ncclComm_t *, int, nd_nccl_id, int, ncclConfig *))        \
    ONE(ncclCommDestroy, int, (ncclComm_t))                                                     \
    ONE(ncclCommAbort, int, (ncclComm_t))                                                       \
    ONE(ncclCommGetAsyncError, int, (ncclComm_t, int *))                                        \
    ONE(ncclGetErrorString, const char *, (int))                                                \
    ONE(ncclAllReduce, int, (const void *, void *, size_t, int, int, ncclComm_t, CUstream))     \
    ONE(ncclReduceScatter, int, (const void *, void *, size_t, int, int, ncclComm_t, CUstream)) \
    ONE(ncclAllGather, int, (const void *, void *, size_t, int, ncclComm_t, CUstream))          \
    ONE(ncclBroadcast, int, (const void *, void *, size_t, int, int, ncclComm_t, CUstream))     \
    ONE(ncclSend, int, (const void *, size_t, int, int, ncclComm_t, CUstream))                  \
    ONE(ncclRecv, int, (void *, size_t, int, int, ncclComm_t, CUstream))                        \
    ONE(ncclGroupStart, int, (void))                                                            \
    ONE(ncclGroupEnd, int, (void))
#define DRIVER_FUNCTIONS(ONE)                        \
    ONE(cuStreamCreate, int, (CUstream *, unsigned)) \
    ONE(cuStreamQuery, int, (CUstream))              \
    ONE(cuStreamDestroy_v2, int, (CUstream))

#define FIELD(name, type, parameters) type(*name) parameters;
static struct {
    NCCL_FUNCTIONS(FIELD)
    DRIVER_FUNCTIONS(FIELD)
} api;

enum { INT8 = 0, UINT8 = 1, UINT64 = 5, MAX = 2 };

/// Bytes of device memory for the small messages of a call.
enum { EXCHANGE = 2048 };

typedef struct nd_nccl {
    nd_transport transport;
    ncclComm_t comm; ///< NULL once aborted
    CUstream stream;
    void *exchange; ///< on the device
    nd_nccl_id id;  ///< of rank 0, until it is connected
} nd_nccl;

static const nd_transport_functions functions;

// -------------------------------------------------------------------------------------------------
// opening

/// Both libraries, and their functions into `api`. Only success is remembered.
static nd_status open_all(const char *operation) {
#define NAME(name, type, parameters) #name,
    static const char *const nccl_names[] = {NCCL_FUNCTIONS(NAME)};
    static const char *const driver_names[] = {DRIVER_FUNCTIONS(NAME)};
#undef NAME
    static const char *const nccl_files[] = {"libnccl.so.2", NULL};
    static const char *const driver_files[] = {"libcuda.so.1", NULL};
    static nd_optional nccl = {.what = "NCCL 2.14 or newer",
                               .package = "libnccl2",
                               .variable = "ND_NCCL",
                               .files = nccl_files,
                               .count = sizeof nccl_names / sizeof *nccl_names,
                               .names = nccl_names};
    static nd_optional driver = {.what = "the driver of CUDA",
                                 .package = "libcuda1",
                                 .variable = "ND_CUDA_DRIVER",
                                 .files = driver_files,
                                 .count = sizeof driver_names / sizeof *driver_names,
                                 .names = driver_names};
    static nd_lock lock;
    const void *of_nccl = nd__optional_functions(&nccl);
    const void *of_driver = of_nccl ? nd__optional_functions(&driver) : NULL;
    if (!of_driver) {
        char why[ND__OPTIONAL_TEXT];
        nd_status status = nd__optional_explain(of_nccl ? &driver : &nccl, why);
        return nd__error(status, "%s: %s", operation, why);
    }
    nd__lock_acquire(&lock);
    static bool copied;
    if (!copied) {
        memcpy(&api.ncclGetUniqueId, of_nccl, sizeof nccl_names);
        memcpy(&api.cuStreamCreate, of_driver, sizeof driver_names);
    }
    copied = true;
    nd__lock_release(&lock);
    return ND_OK;
}

nd_status nd__nccl_check(const char *operation, nd_device device) {
    if (device.kind != ND_CUDA)
        return nd__error(ND_ERROR_DEVICE, "%s: NCCL is for CUDA devices, and %s is none", operation,
                         nd__registry_device_text(device));
    nd_status status = nd__registry_device_check(operation, device);
    return status == ND_OK ? open_all(operation) : status;
}

// -------------------------------------------------------------------------------------------------
// waiting

/// Gives up the communicator: the other ranks hear of it, and the device's memory is free.
static nd_status give_up(nd_nccl *nccl, const nd_transport_call *call, int answer) {
    if (nccl->comm)
        api.ncclCommAbort(nccl->comm);
    nccl->comm = NULL;
    if (answer != ncclSuccess)
        return nd__error(ND_ERROR_IO, "%s: NCCL failed: %s", call->operation,
                         api.ncclGetErrorString(answer));
    return nd__error(ND_ERROR_IO, ND__TRANSPORT_SILENCE, call->operation, call->seconds);
}

/// Waits until NCCL has taken a call and, with `queued`, until the device has done it.
static nd_status wait(nd_nccl *nccl, const nd_transport_call *call, int answer, bool queued) {
    uint64_t begin = nd__clock_now_ns();
    for (;;) {
        if (answer == ncclInProgress || answer == ncclSuccess) {
            int asynchronous = ncclSuccess;
            int asked = api.ncclCommGetAsyncError(nccl->comm, &asynchronous);
            answer = asked != ncclSuccess ? asked : asynchronous;
        }
        if (answer != ncclSuccess && answer != ncclInProgress)
            return give_up(nccl, call, answer);
        if (answer == ncclSuccess) {
            int stream = queued ? api.cuStreamQuery(nccl->stream) : CUDA_SUCCESS;
            if (stream == CUDA_SUCCESS)
                return ND_OK;
            if (stream != CUDA_ERROR_NOT_READY)
                return nd__error(ND_ERROR_DEVICE, "%s: the device failed with error %d of CUDA",
                                 call->operation, stream);
        }
        double waited = (double)(nd__clock_now_ns() - begin) * 1e-9;
        if (waited > call->seconds)
            return give_up(nccl, call, ncclSuccess);
        if (waited > 1e-3)
            nanosleep(&(struct timespec){0, waited > 1 ? 1000000 : 20000}, NULL);
    }
}

/// Before each call: what was queued on the device is done, and this thread's context is the
/// device's.
static nd_status settle(const nd_nccl *nccl, const nd_transport_call *call) {
    return nd__registry_synchronize(call->operation, nccl->transport.device);
}

/// One call of NCCL's.
#define CALL(nccl, call, begin)                                       \
    ({                                                                \
        nd_status status_ = settle(nccl, call);                       \
        status_ == ND_OK ? wait(nccl, call, (begin), true) : status_; \
    })

// -------------------------------------------------------------------------------------------------
// begin and end

nd_status nd__nccl_make_id(const char *operation, nd_nccl_id *ret_id) {
    int answer = api.ncclGetUniqueId(ret_id);
    return answer == ncclSuccess ? ND_OK
                                 : nd__error(ND_ERROR_IO, "%s: NCCL failed: %s", operation,
                                             api.ncclGetErrorString(answer));
}

static void free_transport(nd_transport *transport, bool broken) {
    nd_nccl *nccl = (nd_nccl *)transport;
    const nd_backend *backend = nd__registry_backend(transport->device.kind);
    bool lost = backend->lost && backend->lost(transport->device.index);
    if (nccl->comm && !lost) {
        if (broken)
            api.ncclCommAbort(nccl->comm);
        else
            api.ncclCommDestroy(nccl->comm);
    }
    if (nccl->stream && !lost)
        api.cuStreamDestroy_v2(nccl->stream);
    if (nccl->exchange)
        backend->release(transport->device.index, nccl->exchange, EXCHANGE);
    nd__alloc_free(nccl);
}

/// All but NCCL's communicator.
static nd_nccl *reserve_on(const nd_transport_call *call, int rank, int size, nd_device device) {
    nd_nccl *nccl = nd__alloc_zeroed(sizeof *nccl);
    if (!nccl) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a communicator", call->operation);
        return NULL;
    }
    nccl->transport =
        (nd_transport){.functions = &functions, .rank = rank, .size = size, .device = device};
    nd_status status = settle(nccl, call);
    const nd_backend *backend = nd__registry_backend(device.kind);
    if (status == ND_OK && backend->allocate(device.index, EXCHANGE, &nccl->exchange) != ND_OK)
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory on the device", call->operation);
    if (status == ND_OK &&
        api.cuStreamCreate(&nccl->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        status =
            nd__error(ND_ERROR_DEVICE, "%s: the device has no stream to give", call->operation);
    if (status == ND_OK)
        return nccl;
    free_transport(&nccl->transport, true);
    return NULL;
}

static nd_status connect(nd_nccl *nccl, const nd_transport_call *call, const nd_nccl_id *id) {
    ncclConfig config = {sizeof config, 0xcafebeefu, 21400, 0};
    return wait(nccl, call,
                api.ncclCommInitRankConfig(&nccl->comm, nccl->transport.size, *id,
                                           nccl->transport.rank, &config),
                false);
}

nd_transport *nd__nccl_new(const nd_transport_call *call, const nd_nccl_id *id, int rank, int size,
                           nd_device device) {
    nd_nccl *nccl = reserve_on(call, rank, size, device);
    if (nccl && connect(nccl, call, id) != ND_OK) {
        free_transport(&nccl->transport, true);
        nccl = NULL;
    }
    return nccl ? &nccl->transport : NULL;
}

/// Rank 0 makes the id here, where all hear of it if it cannot.
static nd_transport *reserve(nd_transport *transport, const nd_transport_call *call) {
    nd_nccl *nccl = reserve_on(call, transport->rank, transport->size, transport->device);
    if (nccl && transport->rank == 0 && nd__nccl_make_id(call->operation, &nccl->id) != ND_OK) {
        free_transport(&nccl->transport, true);
        nccl = NULL;
    }
    return nccl ? &nccl->transport : NULL;
}

static nd_status check(nd_transport *transport, const char *operation) {
    return nd__registry_device_check(operation, transport->device);
}

static nd_status duplicate(nd_transport *transport, const nd_transport_call *call,
                           nd_transport *reserved) {
    nd_nccl *nccl = (nd_nccl *)transport;
    const nd_backend *backend = nd__registry_backend(transport->device.kind);
    nd_nccl_id id = ((nd_nccl *)reserved)->id;
    nd_status status =
        backend->copy_from_host(transport->device.index, nccl->exchange, &id, sizeof id);
    if (status == ND_OK)
        status = CALL(nccl, call,
                      api.ncclBroadcast(nccl->exchange, nccl->exchange, sizeof id, INT8, 0,
                                        nccl->comm, nccl->stream));
    if (status == ND_OK)
        status = backend->copy_to_host(transport->device.index, &id, nccl->exchange, sizeof id);
    return status == ND_OK ? connect((nd_nccl *)reserved, call, &id) : status;
}

// -------------------------------------------------------------------------------------------------
// small messages

static nd_status device_failed(const nd_transport_call *call, nd_status status) {
    return status == ND_OK ? ND_OK
                           : nd__error(status, "%s: copying from or to the device failed with %s",
                                       call->operation, nd_status_get_name(status));
}

static nd_status agree(nd_transport *transport, const nd_transport_call *call, uint64_t *values,
                       int count) {
    nd_nccl *nccl = (nd_nccl *)transport;
    const nd_backend *backend = nd__registry_backend(transport->device.kind);
    size_t bytes = (size_t)count * sizeof *values;
    nd_status status = device_failed(
        call, backend->copy_from_host(transport->device.index, nccl->exchange, values, bytes));
    if (status == ND_OK)
        status = CALL(nccl, call,
                      api.ncclAllReduce(nccl->exchange, nccl->exchange, (size_t)count, UINT64, MAX,
                                        nccl->comm, nccl->stream));
    return status == ND_OK
               ? device_failed(call, backend->copy_to_host(transport->device.index, values,
                                                           nccl->exchange, bytes))
               : status;
}

/// Rank by rank, through the little memory that there is: this is for sentences about mistakes.
static nd_status gather_records(nd_transport *transport, const nd_transport_call *call,
                                void *records, int bytes) {
    nd_nccl *nccl = (nd_nccl *)transport;
    const nd_backend *backend = nd__registry_backend(transport->device.kind);
    nd_status status = ND_OK;
    for (int root = 0; status == ND_OK && root < transport->size; root++) {
        char *record = (char *)records + root * bytes;
        status =
            device_failed(call, backend->copy_from_host(transport->device.index, nccl->exchange,
                                                        record, (size_t)bytes));
        if (status == ND_OK)
            status = CALL(nccl, call,
                          api.ncclBroadcast(nccl->exchange, nccl->exchange, (size_t)bytes, INT8,
                                            root, nccl->comm, nccl->stream));
        if (status == ND_OK)
            status = device_failed(call, backend->copy_to_host(transport->device.index, record,
                                                               nccl->exchange, (size_t)bytes));
    }
    return status;
}

static int send_and_receive(nd_nccl *nccl, int rank, char *theirs, size_t bytes) {
    int answer = api.ncclGroupStart();
    if (answer != ncclSuccess)
        return answer;
    int sent = api.ncclSend(nccl->exchange, bytes, INT8, rank, nccl->comm, nccl->stream);
    int received = api.ncclRecv(theirs, bytes, INT8, rank, nccl->comm, nccl->stream);
    answer = api.ncclGroupEnd();
    bool well = (sent == ncclSuccess || sent == ncclInProgress) &&
                (received == ncclSuccess || received == ncclInProgress);
    return well ? answer : sent != ncclSuccess ? sent : received;
}

static nd_status exchange_records(nd_transport *transport, const nd_transport_call *call, int rank,
                                  const void *record, void *ret_record, int bytes) {
    nd_nccl *nccl = (nd_nccl *)transport;
    const nd_backend *backend = nd__registry_backend(transport->device.kind);
    char *theirs = (char *)nccl->exchange + EXCHANGE / 2;
    nd_status status =
        device_failed(call, backend->copy_from_host(transport->device.index, nccl->exchange, record,
                                                    (size_t)bytes));
    if (status == ND_OK)
        status = CALL(nccl, call, send_and_receive(nccl, rank, theirs, (size_t)bytes));
    return status == ND_OK
               ? device_failed(call, backend->copy_to_host(transport->device.index, ret_record,
                                                           theirs, (size_t)bytes))
               : status;
}

// -------------------------------------------------------------------------------------------------
// data

/// NCCL's number of a dtype; -1: it has none.
static int type_of(nd_dtype dtype) {
    static const int types[ND_DTYPE_COUNT] = {
        [ND_BOOL] = UINT8, [ND_U8] = UINT8, [ND_I32] = 2,  [ND_I64] = 4,  [ND_F32] = 7,
        [ND_F64] = 8,      [ND_I8] = INT8,  [ND_I16] = -1, [ND_U16] = -1, [ND_U32] = 3,
        [ND_U64] = UINT64, [ND_F16] = 6,    [ND_BF16] = 9,
    };
    return types[dtype];
}

static bool reduces(nd_dtype dtype) {
    return type_of(dtype) >= 0;
}

static int number_of(nd_collective op) {
    static const int numbers[] = {
        [ND_COLLECTIVE_SUM] = 0,
        [ND_COLLECTIVE_MEAN] = 4,
        [ND_COLLECTIVE_MAX] = MAX,
        [ND_COLLECTIVE_MIN] = 3,
    };
    return numbers[op];
}

static nd_status all_reduce(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t count, nd_dtype dtype, nd_collective op) {
    nd_nccl *nccl = (nd_nccl *)transport;
    return CALL(nccl, call,
                api.ncclAllReduce(data, data, (size_t)count, type_of(dtype), number_of(op),
                                  nccl->comm, nccl->stream));
}

static nd_status reduce_scatter(nd_transport *transport, const nd_transport_call *call, void *data,
                                int64_t count, nd_dtype dtype, nd_collective op,
                                int64_t *ret_first) {
    nd_nccl *nccl = (nd_nccl *)transport;
    *ret_first = transport->rank * count;
    char *share = (char *)data + (size_t)*ret_first * nd_dtype_get_size(dtype);
    return CALL(nccl, call,
                api.ncclReduceScatter(data, share, (size_t)count, type_of(dtype), number_of(op),
                                      nccl->comm, nccl->stream));
}

static nd_status all_gather(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t bytes) {
    nd_nccl *nccl = (nd_nccl *)transport;
    const char *own = (char *)data + transport->rank * bytes;
    return CALL(nccl, call,
                api.ncclAllGather(own, data, (size_t)bytes, INT8, nccl->comm, nccl->stream));
}

static nd_status broadcast(nd_transport *transport, const nd_transport_call *call, void *data,
                           int64_t bytes, int root) {
    nd_nccl *nccl = (nd_nccl *)transport;
    return CALL(nccl, call,
                api.ncclBroadcast(data, data, (size_t)bytes, INT8, root, nccl->comm, nccl->stream));
}

static nd_status send_data(nd_transport *transport, const nd_transport_call *call, void *data,
                           int64_t bytes, int rank) {
    nd_nccl *nccl = (nd_nccl *)transport;
    return CALL(nccl, call,
                api.ncclSend(data, (size_t)bytes, INT8, rank, nccl->comm, nccl->stream));
}

static nd_status receive_data(nd_transport *transport, const nd_transport_call *call, void *data,
                              int64_t bytes, int rank) {
    nd_nccl *nccl = (nd_nccl *)transport;
    return CALL(nccl, call,
                api.ncclRecv(data, (size_t)bytes, INT8, rank, nccl->comm, nccl->stream));
}

static const nd_transport_functions functions = {
    .name = "NCCL",
    .reduces = reduces,
    .check = check,
    .reserve = reserve,
    .duplicate = duplicate,
    .free = free_transport,
    .agree = agree,
    .gather_records = gather_records,
    .exchange_records = exchange_records,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .send = send_data,
    .receive = receive_data,
};
