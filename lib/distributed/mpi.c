// MPI as a transport.
//
// MPI is begun by whoever comes first, the program or this file, and ended by the same. At the exit
// of a process that began it here the ranks wait for each other once more, with a deadline, before
// MPI_Finalize(), which has none: where a rank is missing, or a call was given up, the process ends
// without it, and mpirun says so.
#include "lib/distributed/mpi.h"
#include "lib/base/error.h"

int64_t nd__mpi_largest_count = INT64_C(1) << 30;
int64_t nd__mpi_ring_message = INT64_C(4) << 20;
int64_t nd__mpi_ring_share = INT64_C(128) << 10;

#if ND_HAVE_MPI
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/fork.h"
#include "lib/distributed/mpi_ops.h"
#include "lib/distributed/ring.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/// Bytes of the small messages of one call: an agreement, or two records.
enum { EXCHANGE = 2048 };
enum { TAG_RECORD = 1, TAG_DATA = 2, TAG_RING = 3 };

typedef struct nd_mpi {
    nd_transport transport;
    MPI_Comm comm;
    int *counts, *places; ///< of each rank, while shares of it are on their way; one block
    void *received;       ///< a message of a ring
    unsigned char exchange[EXCHANGE];
} nd_mpi;

static const nd_transport_functions functions;
static void free_transport(nd_transport *transport, bool broken);

static nd_lock lock; ///< around each call of MPI but those that begin and end it
ND__FORK_LOCK(ND__FORK_SINGLE, lock);
static bool given_up;       ///< a call has not ended: MPI may not be finalized
static bool over;           ///< the process exits, and with it MPI
static double exit_seconds; ///< how long the exit waits for the other ranks
static uint32_t generation; ///< of processes, in which MPI was first used
static bool used;
/// Around the beginning of MPI, which may fork: no lock that a fork takes.
static nd_lock begin_lock;

bool nd__mpi_is_there(void) {
    return true;
}

// -------------------------------------------------------------------------------------------------
// waiting

static nd_status refused(const nd_transport_call *call, int answer) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    nd__lock_acquire(&lock);
    given_up = true;
    MPI_Error_string(answer, text, &length);
    nd__lock_release(&lock);
    return nd__error(ND_ERROR_IO, "%s: MPI failed: %.300s", call->operation, text);
}

/// What the time is worth that a poll has found nothing: at first that of others on this processor,
/// later sleep.
static void rest(uint64_t waited, uint64_t patience) {
    if (waited < patience) {
        sched_yield();
        return;
    }
    long ns = waited > UINT64_C(1000000000) ? 1000000 : 50000;
    nanosleep(&(struct timespec){0, ns}, NULL);
}

/// Waits for what was begun with `answer`, a transfer of some bytes.
static nd_status wait(const nd_transport_call *call, int answer, MPI_Request *requests, int count,
                      int64_t bytes) {
    uint64_t begin = nd__clock_now_ns();
    uint64_t patience = UINT64_C(50000000) + (uint64_t)bytes * 10; // at 100 MB/s
    MPI_Status statuses[2];
    int done = 0;
    while (answer == MPI_SUCCESS) {
        nd__lock_acquire(&lock);
        answer = over ? MPI_ERR_OTHER : MPI_Testall(count, requests, &done, statuses);
        nd__lock_release(&lock);
        if (answer != MPI_SUCCESS || done)
            break;
        uint64_t waited = nd__clock_now_ns() - begin;
        if ((double)waited * 1e-9 > call->seconds) {
            nd__lock_acquire(&lock);
            given_up = true;
            nd__lock_release(&lock);
            return nd__error(ND_ERROR_IO,
                             "%s: nothing came from the other ranks for %g s: one of them has "
                             "died, hangs, or has left",
                             call->operation, call->seconds);
        }
        rest(waited, patience);
    }
    if (answer == MPI_ERR_IN_STATUS)
        for (int i = 0; i < count; i++)
            if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
                answer = statuses[i].MPI_ERROR;
    return answer == MPI_SUCCESS ? ND_OK : refused(call, answer);
}

/// One nonblocking call of MPI, begun under the lock and waited for.
#define CALL(call, bytes, begin)                      \
    ({                                                \
        MPI_Request request_;                         \
        nd__lock_acquire(&lock);                      \
        int answer_ = over ? MPI_ERR_OTHER : (begin); \
        nd__lock_release(&lock);                      \
        wait(call, answer_, &request_, 1, (bytes));   \
    })

// -------------------------------------------------------------------------------------------------
// begin and end

/// At exit: the last of MPI where it was begun here.
static void finish(void) {
    if (generation != nd__fork_generation)
        return;
    nd__lock_acquire(&lock);
    int finalized = 0;
    MPI_Finalized(&finalized);
    bool alone = given_up || finalized;
    nd__lock_release(&lock);
    if (alone)
        return;
    nd_transport_call call = {"exit", exit_seconds};
    if (CALL(&call, 0, MPI_Ibarrier(MPI_COMM_WORLD, &request_)) != ND_OK)
        return;
    nd__lock_acquire(&lock);
    over = true;
    nd__mpi_ops_free();
    nd__lock_release(&lock);
    MPI_Finalize();
}

static nd_status begin(const char *operation) {
    int is = 0, provided = MPI_THREAD_SINGLE;
    MPI_Finalized(&is);
    if (is)
        return nd__error(ND_ERROR_STATE, "%s: MPI was finalized", operation);
    if (used && generation != nd__fork_generation)
        return nd__error(ND_ERROR_STATE,
                         "%s: this process was forked by one that uses MPI, and is none of its "
                         "ranks",
                         operation);
    MPI_Initialized(&is);
    if (is) {
        MPI_Query_thread(&provided);
    } else {
        int answer = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
        if (answer != MPI_SUCCESS)
            return nd__error(ND_ERROR_IO, "%s: MPI cannot be initialised: error %d", operation,
                             answer);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        atexit(finish);
    }
    used = true;
    generation = nd__fork_generation;
    if (provided < MPI_THREAD_SERIALIZED)
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: MPI was initialised for a single thread; it wants "
                         "MPI_Init_thread() with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE",
                         operation);
    return ND_OK;
}

/// Whether MPI can be called by this process.
static nd_status check_locked(const char *operation) {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (generation != nd__fork_generation)
        return nd__error(ND_ERROR_STATE,
                         "%s: the communicator stayed in the parent process when that forked",
                         operation);
    return finalized ? nd__error(ND_ERROR_STATE, "%s: MPI was finalized", operation) : ND_OK;
}

static nd_status check(nd_transport *transport, const char *operation) {
    (void)transport;
    nd__lock_acquire(&lock);
    nd_status status = check_locked(operation);
    nd__lock_release(&lock);
    return status;
}

/// A transport for a duplicate of `comm`, which it has not yet.
static nd_mpi *reserve_on(const nd_transport_call *call, MPI_Comm comm) {
    nd_mpi *mpi = nd__alloc_zeroed(sizeof *mpi);
    if (mpi) {
        mpi->transport.functions = &functions;
        mpi->comm = MPI_COMM_NULL;
        nd__lock_acquire(&lock);
        MPI_Comm_rank(comm, &mpi->transport.rank);
        MPI_Comm_size(comm, &mpi->transport.size);
        nd__lock_release(&lock);
        mpi->counts = nd__alloc(2 * (size_t)mpi->transport.size * sizeof *mpi->counts);
        mpi->received = nd__alloc((size_t)nd__mpi_ring_message);
    }
    if (mpi && mpi->counts && mpi->received) {
        mpi->places = mpi->counts + mpi->transport.size;
        return mpi;
    }
    nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a communicator", call->operation);
    if (mpi)
        free_transport(&mpi->transport, false);
    return NULL;
}

/// An error of the duplication is handled as `comm` says; MPI may write the communicator there yet.
static nd_status duplicate_to(nd_mpi *mpi, const nd_transport_call *call, MPI_Comm comm) {
    nd_status status = CALL(call, 0, MPI_Comm_idup(comm, &mpi->comm, &request_));
    if (status != ND_OK)
        return status;
    nd__lock_acquire(&lock);
    exit_seconds = call->seconds;
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    nd__lock_release(&lock);
    return ND_OK;
}

nd_transport *nd__mpi_new(const nd_transport_call *call, const void *mpi_comm) {
    MPI_Comm comm = MPI_COMM_WORLD;
    if (mpi_comm)
        memcpy(&comm, mpi_comm, sizeof comm);
    nd__lock_acquire(&begin_lock);
    nd_status status = begin(call->operation);
    nd__lock_release(&begin_lock);
    int between = 0;
    nd__lock_acquire(&lock);
    if (status == ND_OK && comm == MPI_COMM_NULL)
        status =
            nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: mpi_comm is MPI_COMM_NULL", call->operation);
    if (status == ND_OK && MPI_Comm_test_inter(comm, &between) == MPI_SUCCESS && between)
        status =
            nd__error(ND_ERROR_INVALID_ARGUMENT,
                      "%s: mpi_comm is an intercommunicator, between two groups", call->operation);
    nd__lock_release(&lock);
    nd_mpi *mpi = status == ND_OK ? reserve_on(call, comm) : NULL;
    if (mpi && duplicate_to(mpi, call, comm) != ND_OK) {
        free_transport(&mpi->transport, true);
        mpi = NULL;
    }
    return mpi ? &mpi->transport : NULL;
}

static nd_transport *reserve(nd_transport *transport, const nd_transport_call *call) {
    nd_mpi *mpi = reserve_on(call, ((nd_mpi *)transport)->comm);
    return mpi ? &mpi->transport : NULL;
}

static nd_status duplicate(nd_transport *transport, const nd_transport_call *call,
                           nd_transport *reserved) {
    return duplicate_to((nd_mpi *)reserved, call, ((nd_mpi *)transport)->comm);
}

static void free_transport(nd_transport *transport, bool broken) {
    nd_mpi *mpi = (nd_mpi *)transport;
    if (broken) {
        nd__transport_keep(mpi);
        return;
    }
    int finalized = 0;
    nd__lock_acquire(&lock);
    MPI_Finalized(&finalized);
    if (mpi->comm != MPI_COMM_NULL && generation == nd__fork_generation && !finalized)
        MPI_Comm_free(&mpi->comm);
    nd__lock_release(&lock);
    nd__alloc_free(mpi->counts);
    nd__alloc_free(mpi->received);
    nd__alloc_free(mpi);
}

// -------------------------------------------------------------------------------------------------
// small messages

static nd_status agree(nd_transport *transport, const nd_transport_call *call, uint64_t *values,
                       int count) {
    nd_mpi *mpi = (nd_mpi *)transport;
    size_t bytes = (size_t)count * sizeof *values;
    memcpy(mpi->exchange, values, bytes);
    nd_status status = CALL(call, 0,
                            MPI_Iallreduce(MPI_IN_PLACE, mpi->exchange, count, MPI_UINT64_T,
                                           MPI_MAX, mpi->comm, &request_));
    if (status == ND_OK)
        memcpy(values, mpi->exchange, bytes);
    return status;
}

static nd_status gather_records(nd_transport *transport, const nd_transport_call *call,
                                void *records, int bytes) {
    nd_mpi *mpi = (nd_mpi *)transport;
    return CALL(call, 0,
                MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, records, bytes, MPI_BYTE,
                               mpi->comm, &request_));
}

static nd_status exchange_records(nd_transport *transport, const nd_transport_call *call, int rank,
                                  const void *record, void *ret_record, int bytes) {
    nd_mpi *mpi = (nd_mpi *)transport;
    unsigned char *theirs = mpi->exchange + EXCHANGE / 2;
    memcpy(mpi->exchange, record, (size_t)bytes);
    MPI_Request requests[2];
    nd__lock_acquire(&lock);
    int answer = MPI_Irecv(theirs, bytes, MPI_BYTE, rank, TAG_RECORD, mpi->comm, &requests[0]);
    if (answer == MPI_SUCCESS)
        answer =
            MPI_Isend(mpi->exchange, bytes, MPI_BYTE, rank, TAG_RECORD, mpi->comm, &requests[1]);
    nd__lock_release(&lock);
    nd_status status = wait(call, answer, requests, 2, 0);
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

/// The operation, or an error.
static nd_status find_op(const nd_transport_call *call, nd_dtype dtype, nd_collective op,
                         MPI_Op *ret_op) {
    nd__lock_acquire(&lock);
    int answer = nd__mpi_ops_get(dtype, op, ret_op);
    nd__lock_release(&lock);
    return answer == MPI_SUCCESS ? ND_OK : refused(call, answer);
}

/// One all-reduce in a ring.
typedef struct reduction {
    nd_mpi *mpi;
    const nd_transport_call *call;
    nd_dtype dtype;
    nd_collective op;
    MPI_Op operation;
} reduction;

static nd_status exchange(void *context, const void *sent, int64_t sent_count, void *received,
                          int64_t received_count) {
    const reduction *of = context;
    nd_mpi *mpi = of->mpi;
    MPI_Datatype type = nd__mpi_ops_type(of->dtype);
    int rank = mpi->transport.rank, ranks = mpi->transport.size;
    MPI_Request requests[2];
    nd__lock_acquire(&lock);
    int answer = over ? MPI_ERR_OTHER
                      : MPI_Irecv(received, (int)received_count, type, (rank + ranks - 1) % ranks,
                                  TAG_RING, mpi->comm, &requests[0]);
    if (answer == MPI_SUCCESS)
        answer = MPI_Isend(sent, (int)sent_count, type, (rank + 1) % ranks, TAG_RING, mpi->comm,
                           &requests[1]);
    nd__lock_release(&lock);
    return wait(of->call, answer, requests, 2,
                received_count * (int64_t)nd_dtype_get_size(of->dtype));
}

static nd_status combine(void *context, const void *from, void *into, int64_t count) {
    const reduction *of = context;
    nd__lock_acquire(&lock);
    int answer =
        over ? MPI_ERR_OTHER
             : MPI_Reduce_local(from, into, (int)count, nd__mpi_ops_type(of->dtype), of->operation);
    nd__lock_release(&lock);
    return answer == MPI_SUCCESS ? ND_OK : refused(of->call, answer);
}

static void settle(void *context, void *sums, int64_t count) {
    const reduction *of = context;
    if (of->op == ND_COLLECTIVE_MEAN)
        nd__mpi_ops_divide(sums, count, of->dtype, of->mpi->transport.size);
}

static nd_status all_reduce(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t count, nd_dtype dtype, nd_collective op) {
    nd_mpi *mpi = (nd_mpi *)transport;
    MPI_Op operation;
    nd_status status = find_op(call, dtype, op, &operation);
    int64_t size = (int64_t)nd_dtype_get_size(dtype);
    if (status == ND_OK && transport->size > 1 &&
        count * size >= nd__mpi_ring_share * transport->size) {
        reduction of = {mpi, call, dtype, op, operation};
        nd_ring ring = {.rank = transport->rank,
                        .ranks = transport->size,
                        .size = size,
                        .message = nd__mpi_ring_message / size,
                        .received = mpi->received,
                        .context = &of,
                        .exchange = exchange,
                        .combine = combine,
                        .settle = settle};
        return nd__ring_reduce(&ring, data, count);
    }
    for (int64_t at = 0; status == ND_OK && at < count; at += piece(count - at))
        status = CALL(call, piece(count - at) * size,
                      MPI_Iallreduce(MPI_IN_PLACE, (char *)data + at * size, piece(count - at),
                                     nd__mpi_ops_type(dtype), operation, mpi->comm, &request_));
    if (status == ND_OK && op == ND_COLLECTIVE_MEAN && transport->size > 1)
        nd__mpi_ops_divide(data, count, dtype, transport->size);
    return status;
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
            status = CALL(call, piece(count - at) * size,
                          MPI_Ireduce(from, part, piece(count - at), nd__mpi_ops_type(dtype),
                                      operation, root, mpi->comm, &request_));
        }
    if (status == ND_OK)
        memmove(data, data + mpi->transport.rank * count * size, (size_t)(count * size));
    return status;
}

static nd_status reduce_scatter(nd_transport *transport, const nd_transport_call *call, void *data,
                                int64_t count, nd_dtype dtype, nd_collective op,
                                int64_t *ret_first) {
    nd_mpi *mpi = (nd_mpi *)transport;
    MPI_Op operation;
    nd_status status = find_op(call, dtype, op, &operation);
    if (status != ND_OK)
        return status;
    *ret_first = 0;
    if (count * transport->size > nd__mpi_largest_count)
        status = reduce_shares(mpi, call, data, count, dtype, operation);
    else
        status =
            CALL(call, count * transport->size * (int64_t)nd_dtype_get_size(dtype),
                 MPI_Ireduce_scatter_block(MPI_IN_PLACE, data, (int)count, nd__mpi_ops_type(dtype),
                                           operation, mpi->comm, &request_));
    if (status == ND_OK && op == ND_COLLECTIVE_MEAN)
        nd__mpi_ops_divide(data, count, dtype, transport->size);
    return status;
}

static nd_status broadcast(nd_transport *transport, const nd_transport_call *call, void *data,
                           int64_t bytes, int root) {
    nd_mpi *mpi = (nd_mpi *)transport;
    nd_status status = ND_OK;
    for (int64_t at = 0; status == ND_OK && at < bytes; at += piece(bytes - at))
        status = CALL(
            call, piece(bytes - at),
            MPI_Ibcast((char *)data + at, piece(bytes - at), MPI_BYTE, root, mpi->comm, &request_));
    return status;
}

static nd_status all_gather(nd_transport *transport, const nd_transport_call *call, void *data,
                            int64_t bytes) {
    nd_mpi *mpi = (nd_mpi *)transport;
    if (bytes <= nd__mpi_largest_count)
        return CALL(call, bytes * transport->size,
                    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, (int)bytes, MPI_BYTE,
                                   mpi->comm, &request_));
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
    bool fits;
    int64_t total = take_shares(mpi, counts, &fits), size = (int64_t)nd_dtype_get_size(dtype);
    if (!fits)
        return all_reduce(transport, call, data, total, dtype, op);
    MPI_Op operation;
    nd_status status = find_op(call, dtype, op, &operation);
    if (status == ND_OK)
        status = CALL(call, total * size,
                      MPI_Ireduce_scatter(MPI_IN_PLACE, data, mpi->counts, nd__mpi_ops_type(dtype),
                                          operation, mpi->comm, &request_));
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
    bool fits;
    int64_t size = (int64_t)nd_dtype_get_size(dtype);
    int64_t total = take_shares(mpi, counts, &fits);
    if (fits)
        return CALL(call, total * size,
                    MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, mpi->counts,
                                    mpi->places, nd__mpi_ops_type(dtype), mpi->comm, &request_));
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
        status = CALL(call, piece(bytes - at),
                      MPI_Isend((char *)data + at, piece(bytes - at), MPI_BYTE, rank, TAG_DATA,
                                mpi->comm, &request_));
    return status;
}

static nd_status receive_data(nd_transport *transport, const nd_transport_call *call, void *data,
                              int64_t bytes, int rank) {
    nd_mpi *mpi = (nd_mpi *)transport;
    nd_status status = ND_OK;
    for (int64_t at = 0; status == ND_OK && at < bytes; at += piece(bytes - at))
        status = CALL(call, piece(bytes - at),
                      MPI_Irecv((char *)data + at, piece(bytes - at), MPI_BYTE, rank, TAG_DATA,
                                mpi->comm, &request_));
    return status;
}

static bool reduces(nd_dtype dtype) {
    (void)dtype;
    return true;
}

static const nd_transport_functions functions = {
    .name = "MPI",
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
    .reduce_shares = reduce_to_shares,
    .gather_shares = gather_shares,
    .broadcast = broadcast,
    .send = send_data,
    .receive = receive_data,
};
#else
bool nd__mpi_is_there(void) {
    return false;
}

nd_transport *nd__mpi_new(const nd_transport_call *call, const void *mpi_comm) {
    (void)mpi_comm;
    nd__error(ND_ERROR_UNSUPPORTED,
              "%s: this library was built on a machine without MPI (docs/distributed.md)",
              call->operation);
    return NULL;
}
#endif
