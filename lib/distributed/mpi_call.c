// Waiting for MPI.
#if ND_HAVE_MPI
#include "lib/distributed/mpi_call.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"

#include <sched.h>

nd_lock nd__mpi_call_lock;
ND__FORK_LOCK(ND__FORK_SINGLE, nd__mpi_call_lock);
bool nd__mpi_call_given_up, nd__mpi_call_over;

nd_status nd__mpi_call_refused(const nd_transport_call *call, int answer) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    nd__lock_acquire(&nd__mpi_call_lock);
    nd__mpi_call_given_up = true;
    MPI_Error_string(answer, text, &length);
    nd__lock_release(&nd__mpi_call_lock);
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

/// A set of requests that are waited for together.
typedef struct set {
    MPI_Request *requests;
    int count;
    bool *begun; ///< NULL: they are
} set;

/// Whether a set is done: its place. -1: none yet.
static int look(const set *sets, int set_count, MPI_Status *statuses, int *ret_answer) {
    int done = 0;
    nd__lock_acquire(&nd__mpi_call_lock);
    *ret_answer = nd__mpi_call_over ? MPI_ERR_OTHER : MPI_SUCCESS;
    int place = 0;
    for (; place < set_count && *ret_answer == MPI_SUCCESS; place++) {
        const set *of = &sets[place];
        if (of->begun && !*of->begun)
            continue;
        *ret_answer = MPI_Testall(of->count, of->requests, &done, statuses);
        if (done)
            break;
    }
    nd__lock_release(&nd__mpi_call_lock);
    return done && *ret_answer == MPI_SUCCESS ? place : -1;
}

static nd_status give_up(const nd_transport_call *call) {
    nd__lock_acquire(&nd__mpi_call_lock);
    nd__mpi_call_given_up = true;
    nd__lock_release(&nd__mpi_call_lock);
    return nd__error(ND_ERROR_IO, ND__TRANSPORT_SILENCE, call->operation, call->seconds);
}

static nd_status wait_for(const nd_transport_call *call, int answer, const set *sets, int set_count,
                          int64_t bytes, int *ret_place) {
    uint64_t begin = nd__clock_now_ns();
    uint64_t patience = UINT64_C(50000000) + (uint64_t)bytes * 10; // at 100 MB/s
    MPI_Status statuses[2];
    while (answer == MPI_SUCCESS) {
        *ret_place = look(sets, set_count, statuses, &answer);
        if (answer != MPI_SUCCESS || *ret_place >= 0)
            break;
        uint64_t waited = nd__clock_now_ns() - begin;
        if ((double)waited * 1e-9 > call->seconds)
            return give_up(call);
        rest(waited, patience);
    }
    if (answer == MPI_ERR_IN_STATUS)
        for (int i = 0; i < 2; i++)
            if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
                answer = statuses[i].MPI_ERROR;
    return answer == MPI_SUCCESS ? ND_OK : nd__mpi_call_refused(call, answer);
}

nd_status nd__mpi_call_wait(const nd_transport_call *call, int answer, MPI_Request *requests,
                            int count, int64_t bytes) {
    int place = 0;
    set only = {requests, count, NULL};
    return wait_for(call, answer, &only, 1, bytes, &place);
}

nd_status nd__mpi_call_wait_pairs(const nd_transport_call *call, MPI_Request (*pairs)[2],
                                  bool *begun, int pair_count, int64_t bytes, int *ret_place) {
    set sets[ND__RING_DEPTH];
    for (int i = 0; i < pair_count; i++)
        sets[i] = (set){pairs[i], 2, &begun[i]};
    nd_status status = wait_for(call, MPI_SUCCESS, sets, pair_count, bytes, ret_place);
    if (status == ND_OK)
        begun[*ret_place] = false;
    return status;
}
#else
_Static_assert(1, "no MPI");
#endif
