// NCCL as a transport. Its interface is declared here (nccl_numbers.h), so that a machine without it
// builds this: NCCL 2.14 or newer, whose communicators do not block.
#include "lib/distributed/nccl.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/distributed/nccl_call.h"

#include <string.h>

#define api nd__nccl_call_api

/// Bytes of device memory for the small messages of a call.
enum { EXCHANGE = 2048 };

static const nd_transport_functions functions;

// -------------------------------------------------------------------------------------------------
// begin and end

nd_status nd__nccl_check(const char *operation, nd_device device) {
    if (device.kind != ND_CUDA)
        return nd__error(ND_ERROR_DEVICE, "%s: NCCL is for CUDA devices, and %s is none", operation,
                         nd__registry_device_text(device));
    nd_status status = nd__registry_device_check(operation, device);
    return status == ND_OK ? nd__nccl_call_open(operation) : status;
}

nd_status nd__nccl_make_id(const char *operation, nd_nccl_id *ret_id) {
    int answer = api.ncclGetUniqueId(ret_id);
    return answer == ND__NCCL_SUCCESS ? ND_OK
                                      : nd__error(ND_ERROR_IO, "%s: NCCL failed: %s", operation,
                                                  api.ncclGetErrorString(answer));
}

static void free_transport(nd_transport *transport, bool broken) {
    nd_nccl *nccl = (nd_nccl *)transport;
    const nd_backend *backend = nd__nccl_call_backend(nccl);
    bool lost = backend->lost && backend->lost(transport->device.index);
    if (nccl->comm && !lost) {
        if (broken)
            api.ncclCommAbort(nccl->comm);
        else
            api.ncclCommDestroy(nccl->comm);
    }
    if (nccl->exchange)
        backend->release(transport->device.index, nccl->exchange, EXCHANGE);
    if (nccl->stream)
        backend->streams->release(transport->device.index, nccl->stream);
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
    const nd_backend *backend = nd__nccl_call_backend(nccl);
    nd_status status = backend->allocate(device.index, EXCHANGE, &nccl->exchange);
    if (status == ND_OK)
        status = backend->streams->make(device.index, &nccl->stream);
    if (status == ND_OK)
        return nccl;
    nd__error(status, "%s: %s has no memory or no stream to give: %s", call->operation,
              nd__registry_device_text(device), nd_status_get_name(status));
    free_transport(&nccl->transport, true);
    return NULL;
}

static int ask_to_join(const nd_nccl_request *request, nd_nccl_stream stream) {
    (void)stream;
    nd_nccl *nccl = request->nccl;
    nd_nccl_config config = {sizeof config, ND__NCCL_MAGIC, ND__NCCL_VERSION, 0};
    return api.ncclCommInitRankConfig(&nccl->comm, nccl->transport.size, nccl->id,
                                      nccl->transport.rank, &config);
}

static nd_status connect(nd_nccl *nccl, const nd_transport_call *call, const nd_nccl_id *id) {
    nccl->id = *id;
    nd_nccl_request request = {.nccl = nccl, .call = call, .ask = ask_to_join};
    return nd__nccl_call_run(&request);
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

// -------------------------------------------------------------------------------------------------
// small messages

/// Values of the host's to the exchange memory, or back from it. What a copy from the device hears of
/// the data of other work is no failure of this call.
static nd_status exchange(nd_nccl *nccl, const nd_transport_call *call, size_t place, void *values,
                          size_t bytes, bool back) {
    const nd_backend *backend = nd__nccl_call_backend(nccl);
    const int index = nccl->transport.device.index;
    char *memory = (char *)nccl->exchange + place;
    void *before = backend->streams->use(index, nccl->stream);
    nd_status status = back ? backend->copy_to_host(index, values, memory, bytes)
                            : backend->copy_from_host(index, memory, values, bytes);
    backend->streams->use(index, before);
    if (back && status == ND_ERROR_INVALID_ARGUMENT) {
        nccl->transport.noticed = status;
        status = ND_OK;
    }
    return nd__nccl_call_device(nccl, call, status);
}

/// A request for the exchange memory, from values to values.
static nd_status run_with(nd_nccl_request *request, void *values, size_t bytes) {
    request->from = request->into = request->nccl->exchange;
    nd_status status = exchange(request->nccl, request->call, 0, values, bytes, false);
    if (status == ND_OK)
        status = nd__nccl_call_run(request);
    return status == ND_OK ? exchange(request->nccl, request->call, 0, values, bytes, true)
                           : status;
}

static int ask_to_reduce(const nd_nccl_request *r, nd_nccl_stream stream) {
    return api.ncclAllReduce(r->from, r->into, r->count, r->type, r->reduction, r->nccl->comm,
                             stream);
}

static int ask_to_broadcast(const nd_nccl_request *r, nd_nccl_stream stream) {
    return api.ncclBroadcast(r->from, r->into, r->count, r->type, r->rank, r->nccl->comm, stream);
}

static nd_status agree(nd_transport *transport, const nd_transport_call *call, uint64_t *values,
                       int count) {
    nd_nccl_request request = {.nccl = (nd_nccl *)transport,
                               .call = call,
                               .ask = ask_to_reduce,
                               .count = (size_t)count,
                               .type = ND__NCCL_U64,
                               .reduction = ND__NCCL_MAX};
    return run_with(&request, values, (size_t)count * sizeof *values);
}

/// Through the little memory that there is.
static nd_status broadcast_values(nd_transport *transport, const nd_transport_call *call,
                                  void *values, int64_t bytes, int root) {
    nd_status status = ND_OK;
    for (int64_t at = 0; status == ND_OK && at < bytes; at += EXCHANGE) {
        nd_nccl_request request = {.nccl = (nd_nccl *)transport,
                                   .call = call,
                                   .ask = ask_to_broadcast,
                                   .count = bytes - at < EXCHANGE ? (size_t)(bytes - at) : EXCHANGE,
                                   .type = ND__NCCL_I8,
                                   .rank = root};
        status = run_with(&request, (char *)values + at, request.count);
    }
    return status;
}

/// Rank by rank: this is for sentences about mistakes.
static nd_status gather_records(nd_transport *transport, const nd_transport_call *call,
                                void *records, int bytes) {
    nd_status status = ND_OK;
    for (int root = 0; status == ND_OK && root < transport->size; root++)
        status = broadcast_values(transport, call, (char *)records + root * bytes, bytes, root);
    return status;
}

/// Of the calls of a group, all of which are made: what the group has answered.
static int worse(int answer, int next) {
    return !nd__nccl_call_is_well(answer) ||
                   (nd__nccl_call_is_well(next) && answer == ND__NCCL_IN_PROGRESS)
               ? answer
               : next;
}

static int ask_to_exchange(const nd_nccl_request *r, nd_nccl_stream stream) {
    int answer = api.ncclGroupStart();
    if (answer != ND__NCCL_SUCCESS)
        return answer;
    char *theirs = (char *)r->into + EXCHANGE / 2;
    answer = api.ncclSend(r->from, r->count, r->type, r->rank, r->nccl->comm, stream);
    answer = worse(answer, api.ncclRecv(theirs, r->count, r->type, r->rank, r->nccl->comm, stream));
    return worse(answer, api.ncclGroupEnd());
}

static nd_status exchange_records(nd_transport *transport, const nd_transport_call *call, int rank,
                                  const void *record, void *ret_record, int bytes) {
    nd_nccl *nccl = (nd_nccl *)transport;
    nd_nccl_request request = {.nccl = nccl,
                               .call = call,
                               .ask = ask_to_exchange,
                               .from = nccl->exchange,
                               .into = nccl->exchange,
                               .count = (size_t)bytes,
                               .type = ND__NCCL_I8,
                               .rank = rank};
    memcpy(ret_record, record, (size_t)bytes);
    nd_status status = exchange(nccl, call, 0, ret_record, (size_t)bytes, false);
    if (status == ND_OK)
        status = nd__nccl_call_run(&request);
    return status == ND_OK ? exchange(nccl, call, EXCHANGE / 2, ret_record, (size_t)bytes, true)
                           : status;
}

static nd_status duplicate(nd_transport *transport, const nd_transport_call *call,
                           nd_transport *reserved) {
    nd_nccl_id id = ((nd_nccl *)reserved)->id;
    nd_status status = broadcast_values(transport, call, &id, sizeof id, 0);
    return status == ND_OK ? connect((nd_nccl *)reserved, call, &id) : status;
}

// -------------------------------------------------------------------------------------------------
// data

/// NCCL's number of a dtype; -1: it has none.
static int type_of(nd_dtype dtype) {
    static const int types[ND_DTYPE_COUNT] = {
        [ND_BOOL] = ND__NCCL_U8,   [ND_U8] = ND__NCCL_U8,   [ND_I32] = ND__NCCL_I32,
        [ND_I64] = ND__NCCL_I64,   [ND_F32] = ND__NCCL_F32, [ND_F64] = ND__NCCL_F64,
        [ND_I8] = ND__NCCL_I8,     [ND_I16] = -1,           [ND_U16] = -1,
        [ND_U32] = ND__NCCL_U32,   [ND_U64] = ND__NCCL_U64, [ND_F16] = ND__NCCL_F16,
        [ND_BF16] = ND__NCCL_BF16,
    };
    return types[dtype];
}

static bool reduces(nd_dtype dtype) {
    return type_of(dtype) >= 0;
}

static int number_of(nd_collective op) {
    static const int numbers[] = {
        [ND_COLLECTIVE_SUM] = ND__NCCL_SUM,
        [ND_COLLECTIVE_MEAN] = ND__NCCL_MEAN,
        [ND_COLLECTIVE_MAX] = ND__NCCL_MAX,
        [ND_COLLECTIVE_MIN] = ND__NCCL_MIN,
    };
    return numbers[op];
}

static nd_status all_reduce(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t count, nd_dtype dtype, nd_collective op) {
    nd_nccl_request request = {.nccl = (nd_nccl *)transport,
                               .call = call,
                               .ask = ask_to_reduce,
                               .from = data,
                               .into = data,
                               .count = (size_t)count,
                               .type = type_of(dtype),
                               .reduction = number_of(op)};
    return nd__nccl_call_run(&request);
}

static nd_status reduce_values(nd_transport *transport, const nd_transport_call *call, void *values,
                               int64_t count, nd_dtype dtype, nd_collective op) {
    const int64_t size = (int64_t)nd_dtype_get_size(dtype), most = EXCHANGE / size;
    nd_status status = ND_OK;
    for (int64_t at = 0; status == ND_OK && at < count; at += most) {
        nd_nccl_request request = {.nccl = (nd_nccl *)transport,
                                   .call = call,
                                   .ask = ask_to_reduce,
                                   .count = (size_t)(count - at < most ? count - at : most),
                                   .type = type_of(dtype),
                                   .reduction = number_of(op)};
        status = run_with(&request, (char *)values + at * size, request.count * (size_t)size);
    }
    return status;
}

static int ask_to_scatter(const nd_nccl_request *r, nd_nccl_stream stream) {
    return api.ncclReduceScatter(r->from, r->into, r->count, r->type, r->reduction, r->nccl->comm,
                                 stream);
}

static nd_status reduce_scatter(nd_transport *transport, const nd_transport_call *call, void *data,
                                int64_t count, nd_dtype dtype, nd_collective op,
                                int64_t *ret_first) {
    *ret_first = transport->rank * count;
    nd_nccl_request request = {.nccl = (nd_nccl *)transport,
                               .call = call,
                               .ask = ask_to_scatter,
                               .from = data,
                               .into = (char *)data + (size_t)*ret_first * nd_dtype_get_size(dtype),
                               .count = (size_t)count,
                               .type = type_of(dtype),
                               .reduction = number_of(op)};
    return nd__nccl_call_run(&request);
}

static int ask_to_gather(const nd_nccl_request *r, nd_nccl_stream stream) {
    return api.ncclAllGather(r->from, r->into, r->count, r->type, r->nccl->comm, stream);
}

static nd_status all_gather(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t bytes) {
    nd_nccl_request request = {.nccl = (nd_nccl *)transport,
                               .call = call,
                               .ask = ask_to_gather,
                               .from = (char *)data + transport->rank * bytes,
                               .into = data,
                               .count = (size_t)bytes,
                               .type = ND__NCCL_I8};
    return nd__nccl_call_run(&request);
}

/// Whether all shares are alike, for which NCCL has calls of their own.
static bool are_alike(const nd_nccl_request *r) {
    for (int rank = 1; rank < r->nccl->transport.size; rank++)
        if (r->counts[rank] != r->counts[0])
            return false;
    return true;
}

/// The same call for each rank that has a share.
static int ask_for_each(const nd_nccl_request *r, nd_nccl_stream stream,
                        int (*ask)(const nd_nccl_request *share, nd_nccl_stream stream)) {
    int answer = api.ncclGroupStart();
    if (answer != ND__NCCL_SUCCESS)
        return answer;
    char *place = r->into;
    for (int rank = 0; rank < r->nccl->transport.size; rank++) {
        nd_nccl_request share = *r;
        share.from = share.into = place;
        share.count = (size_t)r->counts[rank];
        share.rank = rank;
        if (share.count > 0)
            answer = worse(answer, ask(&share, stream));
        place += share.count * r->element;
    }
    return worse(answer, api.ncclGroupEnd());
}

static int ask_to_reduce_to_one(const nd_nccl_request *r, nd_nccl_stream stream) {
    return api.ncclReduce(r->from, r->into, r->count, r->type, r->reduction, r->rank, r->nccl->comm,
                          stream);
}

static int ask_to_reduce_shares(const nd_nccl_request *r, nd_nccl_stream stream) {
    if (!are_alike(r))
        return ask_for_each(r, stream, ask_to_reduce_to_one);
    nd_nccl_request alike = *r;
    alike.count = (size_t)r->counts[0];
    alike.into = (char *)r->into + (size_t)r->nccl->transport.rank * alike.count * r->element;
    return ask_to_scatter(&alike, stream);
}

static int ask_to_gather_shares(const nd_nccl_request *r, nd_nccl_stream stream) {
    if (!are_alike(r))
        return ask_for_each(r, stream, ask_to_broadcast);
    nd_nccl_request alike = *r;
    alike.count = (size_t)r->counts[0];
    alike.from = (const char *)r->from + (size_t)r->nccl->transport.rank * alike.count * r->element;
    return ask_to_gather(&alike, stream);
}

/// A request for all shares.
static nd_status run_shares(nd_nccl_request *request, void *data, const int64_t *counts,
                            nd_dtype dtype) {
    request->from = request->into = data;
    request->counts = counts;
    request->element = nd_dtype_get_size(dtype);
    request->type = type_of(dtype);
    for (int rank = 0; rank < request->nccl->transport.size; rank++)
        request->count += (size_t)counts[rank];
    return request->count > 0 ? nd__nccl_call_run(request) : ND_OK;
}

static nd_status reduce_shares(nd_transport *transport, const nd_transport_call *call, void *data,
                               const int64_t *counts, nd_dtype dtype, nd_collective op) {
    nd_nccl_request request = {.nccl = (nd_nccl *)transport,
                               .call = call,
                               .ask = ask_to_reduce_shares,
                               .reduction = number_of(op)};
    return run_shares(&request, data, counts, dtype);
}

static nd_status gather_shares(nd_transport *transport, const nd_transport_call *call, void *data,
                               const int64_t *counts, nd_dtype dtype) {
    nd_nccl_request request = {
        .nccl = (nd_nccl *)transport, .call = call, .ask = ask_to_gather_shares};
    return run_shares(&request, data, counts, dtype);
}

static nd_status broadcast(nd_transport *transport, const nd_transport_call *call, void *data,
                           int64_t bytes, int root) {
    nd_nccl_request request = {.nccl = (nd_nccl *)transport,
                               .call = call,
                               .ask = ask_to_broadcast,
                               .from = data,
                               .into = data,
                               .count = (size_t)bytes,
                               .type = ND__NCCL_I8,
                               .rank = root};
    return nd__nccl_call_run(&request);
}

static int ask_to_send(const nd_nccl_request *r, nd_nccl_stream stream) {
    return api.ncclSend(r->from, r->count, r->type, r->rank, r->nccl->comm, stream);
}

static int ask_to_receive(const nd_nccl_request *r, nd_nccl_stream stream) {
    return api.ncclRecv(r->into, r->count, r->type, r->rank, r->nccl->comm, stream);
}

/// A message, to another rank or from one.
static nd_status pass(nd_transport *transport, const nd_transport_call *call, void *data,
                      int64_t bytes, int rank, bool sends) {
    nd_nccl_request request = {.nccl = (nd_nccl *)transport,
                               .call = call,
                               .ask = sends ? ask_to_send : ask_to_receive,
                               .from = data,
                               .into = data,
                               .count = (size_t)bytes,
                               .type = ND__NCCL_I8,
                               .rank = rank};
    return nd__nccl_call_run(&request);
}

static nd_status send_data(nd_transport *transport, const nd_transport_call *call, void *data,
                           int64_t bytes, int rank) {
    return pass(transport, call, data, bytes, rank, true);
}

static nd_status receive_data(nd_transport *transport, const nd_transport_call *call, void *data,
                              int64_t bytes, int rank) {
    return pass(transport, call, data, bytes, rank, false);
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
    .reduce_shares = reduce_shares,
    .gather_shares = gather_shares,
    .broadcast = broadcast,
    .broadcast_values = broadcast_values,
    .reduce_values = reduce_values,
    .send = send_data,
    .receive = receive_data,
};
