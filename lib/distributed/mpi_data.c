// What goes through MPI, and through the memory that the ranks of one machine have in common.
#include "lib/distributed/mpi_data.h"

int64_t nd__mpi_largest_count = INT64_C(1) << 30;
int64_t nd__mpi_ring_message = INT64_C(2) << 20;
int64_t nd__mpi_ring_share = INT64_C(128) << 10;
int64_t nd__mpi_gathered = INT64_C(8) << 20;

#if ND_HAVE_MPI
#include "lib/base/error.h"
#include "lib/distributed/mpi.h"
#include "lib/distributed/mpi_call.h"
#include "lib/distributed/mpi_ops.h"

#include <string.h>

enum { TAG_RECORD = 1, TAG_DATA = 2, TAG_NONE = 3, TAG_RING = 4 };

// -------------------------------------------------------------------------------------------------
// small messages

/// While a rank waits for others in memory, messages of the program's own go on: the ranks may need
/// them to come here.
static nd_status progress(void *context, const nd_transport_call *call) {
    const nd_mpi *mpi = context;
    int there = 0;
    nd__lock_acquire(&nd__mpi_call_lock);
    int answer = nd__mpi_call_over
                     ? MPI_ERR_OTHER
                     : MPI_Iprobe(MPI_ANY_SOURCE, TAG_NONE, mpi->comm, &there, MPI_STATUS_IGNORE);
    nd__lock_release(&nd__mpi_call_lock);
    return answer == MPI_SUCCESS ? ND_OK : nd__mpi_call_refused(call, answer);
}

/// The operation, or an error.
static nd_status find_op(const nd_transport_call *call, nd_dtype dtype, nd_collective op,
                         MPI_Op *ret_op) {
    nd__lock_acquire(&nd__mpi_call_lock);
    int answer = nd__mpi_ops_get(dtype, op, ret_op);
    nd__lock_release(&nd__mpi_call_lock);
    return answer == MPI_SUCCESS ? ND_OK : nd__mpi_call_refused(call, answer);
}

/// What came of memory in common; where a rank did not come MPI need not wait for it at exit either.
static nd_status met(nd_status status) {
    if (status != ND_OK) {
        nd__lock_acquire(&nd__mpi_call_lock);
        nd__mpi_call_given_up = true;
        nd__lock_release(&nd__mpi_call_lock);
    }
    return status;
}

static nd_status agree(nd_transport *transport, const nd_transport_call *call, uint64_t *values,
                       int count) {
    nd_mpi *mpi = (nd_mpi *)transport;
    nd_node_idle idle = {progress, mpi};
    if (mpi->node && count == ND__NODE_VALUES)
        return met(nd__node_agree(mpi->node, call, &idle, values));
    size_t bytes = (size_t)count * sizeof *values;
    memcpy(mpi->exchange, values, bytes);
    MPI_Op largest;
    nd_status status = find_op(call, ND_U64, ND_COLLECTIVE_MAX, &largest);
    if (status == ND_OK)
        status = ND__MPI_CALL(call, 0,
                              MPI_Iallreduce(MPI_IN_PLACE, mpi->exchange, count, MPI_UINT64_T,
                                             largest, mpi->comm, &request_));
    if (status == ND_OK)
        memcpy(values, mpi->exchange, bytes);
    return status;
}

static nd_status gather_records(nd_transport *transport, const nd_transport_call *call,
                                void *records, int bytes) {
    nd_mpi *mpi = (nd_mpi *)transport;
    return ND__MPI_CALL(call, 0,
                        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, records, bytes, MPI_BYTE,
                                       mpi->comm, &request_));
}

static nd_status exchange_records(nd_transport *transport, const nd_transport_call *call, int rank,
                                  const void *record, void *ret_record, int bytes) {
    nd_mpi *mpi = (nd_mpi *)transport;
    unsigned char *theirs = mpi->exchange + ND__MPI_EXCHANGE / 2;
    memcpy(mpi->exchange, record, (size_t)bytes);
    MPI_Request requests[2];
    nd__lock_acquire(&nd__mpi_call_lock);
    int answer = MPI_Irecv(theirs, bytes, MPI_BYTE, rank, TAG_RECORD, mpi->comm, &requests[0]);
    if (answer == MPI_SUCCESS)
        answer =
            MPI_Isend(mpi->exchange, bytes, MPI_BYTE, rank, TAG_RECORD, mpi->comm, &requests[1]);
    nd__lock_release(&nd__mpi_call_lock);
    nd_status status = nd__mpi_call_wait(call, answer, requests, 2, 0);
    if (status == ND_OK)
        memcpy(ret_record, theirs, (size_t)bytes);
    return status;
}

// -------------------------------------------------------------------------------------------------
// data, in pieces that an int counts

/// How many elements the next piece has.
static int piece(int64_t left) {
    return (int)(left < nd__mpi_largest_count ? left : nd__mpi_largest_count);
}

/// One all-reduce in a ring.
typedef struct reduction {
    nd_mpi *mpi;
    const nd_transport_call *call;
    nd_dtype dtype;
    nd_collective op;
    MPI_Op operation;
} reduction;

static nd_status begin_exchange(void *context, int place, const void *sent, int64_t sent_count,
                                void *received, int64_t received_count) {
    const reduction *of = context;
    nd_mpi *mpi = of->mpi;
    MPI_Datatype type = nd__mpi_ops_type(of->dtype);
    int rank = mpi->transport.rank, ranks = mpi->transport.size;
    MPI_Request *requests = mpi->requests[place];
    nd__lock_acquire(&nd__mpi_call_lock);
    int answer = nd__mpi_call_over
                     ? MPI_ERR_OTHER
                     : MPI_Irecv(received, (int)received_count, type, (rank + ranks - 1) % ranks,
                                 TAG_RING + place, mpi->comm, &requests[0]);
    if (answer == MPI_SUCCESS)
        answer = MPI_Isend(sent, (int)sent_count, type, (rank + 1) % ranks, TAG_RING + place,
                           mpi->comm, &requests[1]);
    nd__lock_release(&nd__mpi_call_lock);
    mpi->begun[place] = answer == MPI_SUCCESS;
    return answer == MPI_SUCCESS ? ND_OK : nd__mpi_call_refused(of->call, answer);
}

static nd_status wait_for_exchange(void *context, int *ret_place) {
    const reduction *of = context;
    return nd__mpi_call_wait_pairs(of->call, of->mpi->requests, of->mpi->begun, ND__RING_DEPTH,
                                   nd__mpi_ring_message, ret_place);
}

static nd_status combine(void *context, const void *from, void *into, int64_t count) {
    const reduction *of = context;
    nd__lock_acquire(&nd__mpi_call_lock);
    int answer = nd__mpi_call_over ? MPI_ERR_OTHER
                                   : MPI_Reduce_local(from, into, (int)count,
                                                      nd__mpi_ops_type(of->dtype), of->operation);
    nd__lock_release(&nd__mpi_call_lock);
    return answer == MPI_SUCCESS ? ND_OK : nd__mpi_call_refused(of->call, answer);
}

static void settle(void *context, void *sums, int64_t count) {
    const reduction *of = context;
    if (of->op == ND_COLLECTIVE_MEAN)
        nd__mpi_ops_divide(sums, count, of->dtype, of->mpi->transport.size);
}

static void stage(nd_transport *transport, const void *from, void *data, int64_t count,
                  nd_dtype dtype) {
    nd_node *node = ((nd_mpi *)transport)->node;
    nd__node_stage(node, from, data, count, (int64_t)nd_dtype_get_size(dtype));
}

static nd_status reduce_in_ring(reduction *of, const nd_sums *sums, void *data, int64_t count) {
    nd_mpi *mpi = of->mpi;
    nd_ring ring = {.rank = mpi->transport.rank,
                    .ranks = mpi->transport.size,
                    .sums = *sums,
                    .message = nd__mpi_ring_message / sums->size,
                    .depth = ND__RING_DEPTH,
                    .received = mpi->received,
                    .context = of,
                    .begin = begin_exchange,
                    .wait = wait_for_exchange};
    return nd__ring_reduce(&ring, data, count);
}

/// Of less than a ring is for: as MPI chooses.
static nd_status reduce_by_mpi(const reduction *of, void *data, int64_t count, int64_t size) {
    nd_status status = ND_OK;
    for (int64_t at = 0; status == ND_OK && at < count; at += piece(count - at))
        status = ND__MPI_CALL(of->call, piece(count - at) * size,
                              MPI_Iallreduce(MPI_IN_PLACE, (char *)data + at * size,
                                             piece(count - at), nd__mpi_ops_type(of->dtype),
                                             of->operation, of->mpi->comm, &request_));
    if (status == ND_OK && of->mpi->transport.size > 1)
        settle((void *)(uintptr_t)of, data, count);
    return status;
}

static nd_status all_reduce(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t count, nd_dtype dtype, nd_collective op) {
    nd_mpi *mpi = (nd_mpi *)transport;
    reduction of = {mpi, call, dtype, op, MPI_OP_NULL};
    nd_status status = find_op(call, dtype, op, &of.operation);
    if (status != ND_OK)
        return status;
    nd_sums sums = {(int64_t)nd_dtype_get_size(dtype), &of, combine, settle};
    if (mpi->node) {
        nd_node_idle idle = {progress, mpi};
        return met(nd__node_reduce(mpi->node, call, &idle, &sums, data, count, call->staged));
    }
    bool large = count * sums.size >= nd__mpi_ring_share * transport->size;
    return transport->size > 1 && large ? reduce_in_ring(&of, &sums, data, count)
                                        : reduce_by_mpi(&of, data, count, sums.size);
}

/// reduce_scatter() of more than one piece: the share of one rank after the other.
static nd_status reduce_shares(nd_mpi *mpi, const nd_transport_call *call, char *data,
                               int64_t count, nd_dtype dtype, MPI_Op operation) {
    int64_t size = (int64_t)nd_dtype_get_size(dtype);
    nd_status status = ND_OK;
    for (int root = 0; root < mpi->transport.size; root++)
        for (int64_t at = 0; status == ND_OK && at < count; at += piece(count - at)) {
            char *part = data + (root * count + at) * size;
            const void *from = mpi->transport.rank == root ? MPI_IN_PLACE : part;
            status =
                ND__MPI_CALL(call, piece(count - at) * size,
                             MPI_Ireduce(from, part, piece(count - at), nd__mpi_ops_type(dtype),
                                         operation, root, mpi->comm, &request_));
        }
    if (status == ND_OK)
        memmove(data, data + mpi->transport.rank * count * size, (size_t)(count * size));
    return status;
}

/// Whether so many bytes of all ranks together are gathered in memory in common.
static bool gathers_in_node(const nd_mpi *mpi, int64_t bytes) {
    return mpi->node && bytes <= nd__mpi_gathered;
}

static nd_status gather_in_node(nd_mpi *mpi, const nd_transport_call *call, void *data,
                                const int64_t *shares, int64_t size) {
    nd_node_idle idle = {progress, mpi};
    return met(nd__node_gather(mpi->node, call, &idle, data, shares, size));
}

static nd_status scatter_in_node(nd_mpi *mpi, const nd_transport_call *call, void *data,
                                 const int64_t *shares, nd_dtype dtype, nd_collective op) {
    reduction of = {mpi, call, dtype, op, MPI_OP_NULL};
    nd_status status = find_op(call, dtype, op, &of.operation);
    if (status != ND_OK)
        return status;
    nd_sums sums = {(int64_t)nd_dtype_get_size(dtype), &of, combine, settle};
    nd_node_idle idle = {progress, mpi};
    return met(nd__node_scatter(mpi->node, call, &idle, &sums, data, shares));
}

/// So many for each rank.
static const int64_t *equal_shares(nd_mpi *mpi, int64_t count) {
    for (int rank = 0; rank < mpi->transport.size; rank++)
        mpi->shares[rank] = count;
    return mpi->shares;
}

static nd_status reduce_scatter(nd_transport *transport, const nd_transport_call *call, void *data,
                                int64_t count, nd_dtype dtype, nd_collective op,
                                int64_t *ret_first) {
    nd_mpi *mpi = (nd_mpi *)transport;
    if (mpi->node) {
        *ret_first = transport->rank * count;
        return scatter_in_node(mpi, call, data, equal_shares(mpi, count), dtype, op);
    }
    MPI_Op operation;
    nd_status status = find_op(call, dtype, op, &operation);
    if (status != ND_OK)
        return status;
    *ret_first = 0;
    if (count * transport->size > nd__mpi_largest_count)
        status = reduce_shares(mpi, call, data, count, dtype, operation);
    else
        status = ND__MPI_CALL(call, count * transport->size * (int64_t)nd_dtype_get_size(dtype),
                              MPI_Ireduce_scatter_block(MPI_IN_PLACE, data, (int)count,
                                                        nd__mpi_ops_type(dtype), operation,
                                                        mpi->comm, &request_));
    if (status == ND_OK && op == ND_COLLECTIVE_MEAN)
        nd__mpi_ops_divide(data, count, dtype, transport->size);
    return status;
}

static nd_status broadcast(nd_transport *transport, const nd_transport_call *call, void *data,
                           int64_t bytes, int root) {
    nd_mpi *mpi = (nd_mpi *)transport;
    nd_status status = ND_OK;
    for (int64_t at = 0; status == ND_OK && at < bytes; at += piece(bytes - at))
        status = ND__MPI_CALL(
            call, piece(bytes - at),
            MPI_Ibcast((char *)data + at, piece(bytes - at), MPI_BYTE, root, mpi->comm, &request_));
    return status;
}

static nd_status all_gather(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t bytes) {
    nd_mpi *mpi = (nd_mpi *)transport;
    if (gathers_in_node(mpi, bytes * transport->size))
        return gather_in_node(mpi, call, data, equal_shares(mpi, bytes), 1);
    if (bytes <= nd__mpi_largest_count)
        return ND__MPI_CALL(call, bytes * transport->size,
                            MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, (int)bytes,
                                           MPI_BYTE, mpi->comm, &request_));
    nd_status status = ND_OK;
    for (int root = 0; status == ND_OK && root < transport->size; root++)
        status = broadcast(transport, call, (char *)data + root * bytes, bytes, root);
    return status;
}

/// How many elements shares have together, and whether an int counts them.
static int64_t take_shares(nd_mpi *mpi, const int64_t *counts, bool *ret_fits) {
    int64_t total = 0;
    for (int rank = 0; rank < mpi->transport.size; rank++)
        total += counts[rank];
    *ret_fits = total <= nd__mpi_largest_count;
    for (int rank = 0, place = 0; *ret_fits && rank < mpi->transport.size; rank++) {
        mpi->counts[rank] = (int)counts[rank];
        mpi->places[rank] = place;
        place += mpi->counts[rank];
    }
    return total;
}

static nd_status reduce_to_shares(nd_transport *transport, const nd_transport_call *call,
                                  void *data, const int64_t *counts, nd_dtype dtype,
                                  nd_collective op) {
    nd_mpi *mpi = (nd_mpi *)transport;
    if (mpi->node)
        return scatter_in_node(mpi, call, data, counts, dtype, op);
    bool fits;
    int64_t total = take_shares(mpi, counts, &fits), size = (int64_t)nd_dtype_get_size(dtype);
    if (!fits)
        return all_reduce(transport, call, data, total, dtype, op);
    MPI_Op operation;
    nd_status status = find_op(call, dtype, op, &operation);
    if (status == ND_OK)
        status = ND__MPI_CALL(call, total * size,
                              MPI_Ireduce_scatter(MPI_IN_PLACE, data, mpi->counts,
                                                  nd__mpi_ops_type(dtype), operation, mpi->comm,
                                                  &request_));
    if (status != ND_OK)
        return status;
    // MPI puts the share at the beginning.
    int64_t own = counts[transport->rank];
    char *place = (char *)data + mpi->places[transport->rank] * size;
    memmove(place, data, (size_t)(own * size));
    if (op == ND_COLLECTIVE_MEAN)
        nd__mpi_ops_divide(place, own, dtype, transport->size);
    return ND_OK;
}

static nd_status gather_shares(nd_transport *transport, const nd_transport_call *call, void *data,
                               const int64_t *counts, nd_dtype dtype) {
    nd_mpi *mpi = (nd_mpi *)transport;
    int64_t size = (int64_t)nd_dtype_get_size(dtype);
    bool fits;
    int64_t total = take_shares(mpi, counts, &fits);
    if (gathers_in_node(mpi, total * size))
        return gather_in_node(mpi, call, data, counts, size);
    if (fits)
        return ND__MPI_CALL(call, total * size,
                            MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, mpi->counts,
                                            mpi->places, nd__mpi_ops_type(dtype), mpi->comm,
                                            &request_));
    nd_status status = ND_OK;
    char *share = data;
    for (int root = 0; status == ND_OK && root < transport->size; root++) {
        status = broadcast(transport, call, share, counts[root] * size, root);
        share += counts[root] * size;
    }
    return status;
}

static nd_status send_data(nd_transport *transport, const nd_transport_call *call, void *data,
                           int64_t bytes, int rank) {
    nd_mpi *mpi = (nd_mpi *)transport;
    nd_status status = ND_OK;
    for (int64_t at = 0; status == ND_OK && at < bytes; at += piece(bytes - at))
        status = ND__MPI_CALL(call, piece(bytes - at),
                              MPI_Isend((char *)data + at, piece(bytes - at), MPI_BYTE, rank,
                                        TAG_DATA, mpi->comm, &request_));
    return status;
}

static nd_status receive_data(nd_transport *transport, const nd_transport_call *call, void *data,
                              int64_t bytes, int rank) {
    nd_mpi *mpi = (nd_mpi *)transport;
    nd_status status = ND_OK;
    for (int64_t at = 0; status == ND_OK && at < bytes; at += piece(bytes - at))
        status = ND__MPI_CALL(call, piece(bytes - at),
                              MPI_Irecv((char *)data + at, piece(bytes - at), MPI_BYTE, rank,
                                        TAG_DATA, mpi->comm, &request_));
    return status;
}

static bool reduces(nd_dtype dtype) {
    (void)dtype;
    return true;
}

const nd_transport_functions nd__mpi_data_functions = {
    .name = "MPI",
    .reduces = reduces,
    .check = nd__mpi_check,
    .reserve = nd__mpi_reserve,
    .duplicate = nd__mpi_duplicate,
    .free = nd__mpi_free,
    .agree = agree,
    .gather_records = gather_records,
    .exchange_records = exchange_records,
    .stage = stage,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .reduce_shares = reduce_to_shares,
    .gather_shares = gather_shares,
    .broadcast = broadcast,
    .broadcast_values = broadcast,
    .reduce_values = all_reduce,
    .send = send_data,
    .receive = receive_data,
};
#endif
