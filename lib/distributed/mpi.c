// MPI as a transport.
//
// MPI is begun by whoever comes first, the program or this file, and ended by the same. At the exit
// of a process that began it here the ranks wait for each other once more, with a deadline, before
// MPI_Finalize(): where a rank is missing, or a call was given up, the process ends without it, and
// mpirun says so.
#include "lib/distributed/mpi.h"
#include "lib/base/error.h"

#if ND_HAVE_MPI
#include "lib/base/alloc.h"
#include "lib/base/fork.h"
#include "lib/distributed/mpi_call.h"
#include "lib/distributed/mpi_data.h"
#include "lib/distributed/mpi_finalize.h"
#include "lib/distributed/mpi_ops.h"

#include <stdlib.h>
#include <string.h>

static double exit_seconds; ///< how long the exit waits for the other ranks
static uint32_t generation; ///< of processes, in which MPI was first used
static bool used;
/// Around the beginning of MPI, which may fork: no lock that a fork takes.
static nd_lock begin_lock;

bool nd__mpi_is_there(void) {
    return true;
}

// -------------------------------------------------------------------------------------------------
// begin and end

/// At exit: the last of MPI where it was begun here.
static void finish(void) {
    if (generation != nd__fork_generation)
        return;
    nd__lock_acquire(&nd__mpi_call_lock);
    int finalized = 0;
    MPI_Finalized(&finalized);
    bool alone = nd__mpi_call_given_up || finalized;
    nd__lock_release(&nd__mpi_call_lock);
    if (alone)
        return;
    nd_transport_call call = {.operation = "exit", .seconds = exit_seconds};
    if (ND__MPI_CALL(&call, 0, MPI_Ibarrier(MPI_COMM_WORLD, &request_)) != ND_OK)
        return;
    nd__lock_acquire(&nd__mpi_call_lock);
    nd__mpi_call_over = true;
    nd__mpi_ops_free();
    nd__lock_release(&nd__mpi_call_lock);
    nd__mpi_finalize(exit_seconds);
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

nd_status nd__mpi_check(nd_transport *transport, const char *operation) {
    (void)transport;
    nd__lock_acquire(&nd__mpi_call_lock);
    nd_status status = check_locked(operation);
    nd__lock_release(&nd__mpi_call_lock);
    return status;
}

/// A transport for a duplicate of `comm`, which it has not yet.
static nd_mpi *reserve_on(const nd_transport_call *call, MPI_Comm comm) {
    nd_mpi *mpi = nd__alloc_zeroed(sizeof *mpi);
    if (mpi) {
        mpi->transport.functions = &nd__mpi_data_functions;
        mpi->comm = MPI_COMM_NULL;
        nd__lock_acquire(&nd__mpi_call_lock);
        MPI_Comm_rank(comm, &mpi->transport.rank);
        MPI_Comm_size(comm, &mpi->transport.size);
        nd__lock_release(&nd__mpi_call_lock);
        mpi->shares = nd__alloc((size_t)mpi->transport.size *
                                (sizeof *mpi->shares + 2 * sizeof *mpi->counts));
        mpi->received = nd__alloc((size_t)nd__mpi_ring_message * ND__RING_DEPTH);
    }
    if (mpi && mpi->shares && mpi->received) {
        mpi->counts = (int *)(mpi->shares + mpi->transport.size);
        mpi->places = mpi->counts + mpi->transport.size;
        return mpi;
    }
    nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a communicator", call->operation);
    if (mpi)
        nd__mpi_free(&mpi->transport, false);
    return NULL;
}

/// Whether all ranks can share memory: they do, or none does. Until then what MPI may write yet is
/// in `exchange`.
static nd_status share_memory(nd_mpi *mpi, const nd_transport_call *call) {
    int rank = mpi->transport.rank, ranks = mpi->transport.size;
    nd_node_key key = {.file = -1};
    _Static_assert(sizeof key + sizeof(int) <= ND__MPI_EXCHANGE, "both fit");
    int *missing = (int *)(void *)(mpi->exchange + sizeof key);
    if (ranks == 1)
        return ND_OK;
    if (rank == 0)
        mpi->node = nd__node_make(ranks, &key);
    memcpy(mpi->exchange, &key, sizeof key);
    nd_status status = ND__MPI_CALL(
        call, 0, MPI_Ibcast(mpi->exchange, sizeof key, MPI_BYTE, 0, mpi->comm, &request_));
    memcpy(&key, mpi->exchange, sizeof key);
    if (status == ND_OK && rank != 0)
        mpi->node = nd__node_join(&key, rank, ranks);
    *missing = !mpi->node;
    if (status == ND_OK)
        status = ND__MPI_CALL(
            call, 0,
            MPI_Iallreduce(MPI_IN_PLACE, missing, 1, MPI_INT, MPI_MAX, mpi->comm, &request_));
    if (status == ND_OK && !*missing) {
        nd__node_seal(mpi->node);
        mpi->transport.stages = true;
    } else {
        nd__node_free(mpi->node);
        mpi->node = NULL;
    }
    return status;
}

/// An error of the duplication is handled as `comm` says; MPI may write the communicator there yet.
static nd_status duplicate_to(nd_mpi *mpi, const nd_transport_call *call, MPI_Comm comm) {
    nd_status status = ND__MPI_CALL(call, 0, MPI_Comm_idup(comm, &mpi->comm, &request_));
    if (status != ND_OK)
        return status;
    nd__lock_acquire(&nd__mpi_call_lock);
    exit_seconds = call->seconds;
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    nd__lock_release(&nd__mpi_call_lock);
    return share_memory(mpi, call);
}

nd_transport *nd__mpi_new(const nd_transport_call *call, const void *mpi_comm) {
    MPI_Comm comm = MPI_COMM_WORLD;
    if (mpi_comm)
        memcpy(&comm, mpi_comm, sizeof comm);
    nd__lock_acquire(&begin_lock);
    nd_status status = begin(call->operation);
    nd__lock_release(&begin_lock);
    int between = 0;
    nd__lock_acquire(&nd__mpi_call_lock);
    if (status == ND_OK && comm == MPI_COMM_NULL)
        status =
            nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: mpi_comm is MPI_COMM_NULL", call->operation);
    if (status == ND_OK && MPI_Comm_test_inter(comm, &between) == MPI_SUCCESS && between)
        status =
            nd__error(ND_ERROR_INVALID_ARGUMENT,
                      "%s: mpi_comm is an intercommunicator, between two groups", call->operation);
    nd__lock_release(&nd__mpi_call_lock);
    nd_mpi *mpi = status == ND_OK ? reserve_on(call, comm) : NULL;
    if (mpi && duplicate_to(mpi, call, comm) != ND_OK) {
        nd__mpi_free(&mpi->transport, true);
        mpi = NULL;
    }
    return mpi ? &mpi->transport : NULL;
}

nd_transport *nd__mpi_reserve(nd_transport *transport, const nd_transport_call *call) {
    nd_mpi *mpi = reserve_on(call, ((nd_mpi *)transport)->comm);
    return mpi ? &mpi->transport : NULL;
}

nd_status nd__mpi_duplicate(nd_transport *transport, const nd_transport_call *call,
                            nd_transport *reserved) {
    return duplicate_to((nd_mpi *)reserved, call, ((nd_mpi *)transport)->comm);
}

void nd__mpi_free(nd_transport *transport, bool broken) {
    nd_mpi *mpi = (nd_mpi *)transport;
    nd__node_free(mpi->node);
    mpi->node = NULL;
    if (broken) {
        nd__transport_keep(mpi);
        return;
    }
    int finalized = 0;
    nd__lock_acquire(&nd__mpi_call_lock);
    MPI_Finalized(&finalized);
    if (mpi->comm != MPI_COMM_NULL && generation == nd__fork_generation && !finalized)
        MPI_Comm_free(&mpi->comm);
    nd__lock_release(&nd__mpi_call_lock);
    nd__alloc_free(mpi->shares);
    nd__alloc_free(mpi->received);
    nd__alloc_free(mpi);
}

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
