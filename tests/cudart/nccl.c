// An NCCL for the fake runtime: libnccl.so with the functions that lib/distributed opens at run time,
// between ranks that are threads or processes of this machine.
//
// Work is queued on the caller's stream and done late, when all whom it takes have come; device memory
// is read and written then only. Communicators do not block: joining goes on until all have come, and a
// call may answer that it is in progress, in which case its work is queued while its caller asks for
// the communicator's error. A communicator stays readable for ever, so that a use after its end is told
// instead of being luck; so are mistakes that NCCL leaves undefined: a stream of another device than
// that which it was joined on, ranks that ask for different things, a communicator that is destroyed
// while it has work.
#include "tests/cudart/nccl_work.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE };
enum { IN_PROGRESS = 7, IDS = 256 };
typedef struct id {
    char path[MEET_PATH];
    char rest[128 - MEET_PATH];
} id;

typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

// With work_lock.
static comm *all_comms;
static uint64_t random_state;
static struct {
    int rank;
    char name[40];
    uint64_t n;
    int error;
} to_fail, to_be_late;
static char made_paths[IDS][MEET_PATH];
static int made_count;

static _Thread_local bool in_group;
static _Thread_local operation group[WORK_GROUP];
static _Thread_local int group_count;

// ------------------------------------------------------------------------------------------------
// faults

static uint64_t draw(uint64_t bound) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % bound;
}

/// The number at the end of what is left of a setting, and the rest before it: "R:NAME:N:E".
static void from_environment(void) {
    const char *seed = getenv("ND_NCCL_SEED"), *fail = getenv("ND_NCCL_FAIL"),
               *late = getenv("ND_NCCL_LATE"), *lose = getenv("ND_NCCL_LOSE");
    random_state = seed ? strtoull(seed, NULL, 10) : 0;
    unsigned long long n = 0;
    to_fail.rank = to_be_late.rank = -1;
    if (fail && (sscanf(fail, "%d:%39[a-zA-Z]:%llu:%d", &to_fail.rank, to_fail.name, &n,
                        &to_fail.error) == 4 ||
                 sscanf(fail, "%39[a-zA-Z]:%llu:%d", to_fail.name, &n, &to_fail.error) == 3))
        to_fail.n = n;
    if (late && (sscanf(late, "%d:%llu:%d", &to_be_late.rank, &n, &to_be_late.error) == 3 ||
                 (to_be_late.rank = -1, sscanf(late, "%llu:%d", &n, &to_be_late.error)) == 2))
        to_be_late.n = n;
    if (lose && (sscanf(lose, "%d:%llu", &to_be_late.rank, &n) == 2 ||
                 (to_be_late.rank = -1, sscanf(lose, "%llu", &n)) == 1))
        to_be_late.n = n;
}

/// Whether this call fails, and with which error.
static int asked_to_fail(const char *name, int rank) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, from_environment);
    pthread_mutex_lock(&work_lock);
    bool meant = to_fail.n > 0 && strcmp(to_fail.name, name) == 0 &&
                 (to_fail.rank < 0 || to_fail.rank == rank);
    bool now = meant && --to_fail.n == 0;
    work_counts.failures += now;
    pthread_mutex_unlock(&work_lock);
    return now ? to_fail.error : SUCCESS;
}

/// With the lock held: whether this piece of work is never done.
static bool asked_to_be_late(comm *of) {
    bool meant = to_be_late.n > 0 && (to_be_late.rank < 0 || to_be_late.rank == of->rank);
    if (!meant || --to_be_late.n > 0)
        return false;
    of->error = to_be_late.error;
    of->questions = 3;
    atomic_store(&of->stuck, true);
    work_counts.failures++;
    return true;
}

static void get_statistics(nccl_statistics *ret_statistics) {
    pthread_mutex_lock(&work_lock);
    *ret_statistics = work_counts;
    for (const comm *each = all_comms; each; each = each->next)
        ret_statistics->alive += !each->over;
    pthread_mutex_unlock(&work_lock);
}

static void set_seed(uint64_t seed) {
    pthread_mutex_lock(&work_lock);
    random_state = seed;
    pthread_mutex_unlock(&work_lock);
}

static void fail(int rank, const char *name, uint64_t n, int error) {
    (void)asked_to_fail("", -1); // the environment comes first
    pthread_mutex_lock(&work_lock);
    to_fail.rank = rank;
    snprintf(to_fail.name, sizeof to_fail.name, "%s", name);
    to_fail.n = n;
    to_fail.error = error;
    pthread_mutex_unlock(&work_lock);
}

static void fail_late(int rank, uint64_t n, int error) {
    (void)asked_to_fail("", -1);
    pthread_mutex_lock(&work_lock);
    to_be_late.rank = rank;
    to_be_late.n = n;
    to_be_late.error = error;
    pthread_mutex_unlock(&work_lock);
}

EXPORT extern const nccl_control nccl_control_table;
const nccl_control nccl_control_table = {get_statistics, set_seed, fail, fail_late};

// ------------------------------------------------------------------------------------------------
// calls

/// Takes what a call or a group of them asks for, now or later.
static int take_work(const operation *first, int count) {
    comm *of = first->of;
    pthread_mutex_lock(&work_lock);
    work_counts.taken += (uint64_t)count;
    bool later = false;
    for (int i = 0; i < count; i++)
        later |= asked_to_be_late(of);
    if (!later && random_state && draw(2)) {
        memcpy(of->pending, first, (size_t)count * sizeof *first);
        of->pending_count = count;
        of->questions = (unsigned)draw(4);
    }
    bool pending = of->pending_count > 0;
    pthread_mutex_unlock(&work_lock);
    if (!pending)
        work_queue(first, count);
    return pending ? IN_PROGRESS : SUCCESS;
}

static void check_comm(const char *name, const comm *of) {
    if (!of)
        work_misuse(name, "the communicator is NULL");
    if (of->over)
        work_misuse(name, "the communicator is over");
    if (of->pending_count > 0)
        work_misuse(name, "the communicator is in progress with another call");
    if (!meet_all_joined(of->at, of->ranks))
        work_misuse(name, "not all ranks have joined yet");
}

static int call(const char *name, operation o) {
    check_comm(name, o.of);
    int error = asked_to_fail(name, o.of->rank);
    if (error != SUCCESS)
        return error;
    if (!meet_size(o.type) || o.reduction < 0 || o.reduction > WORK_MEAN || o.root < 0 ||
        o.root >= o.of->ranks || (o.count > 0 && (!o.from || !o.into)))
        return INVALID_ARGUMENT;
    if (o.of->ordinal != work_ordinal())
        return INVALID_USAGE;
    if (!in_group)
        return take_work(&o, 1);
    if (group_count == WORK_GROUP || (group_count > 0 && group[0].of != o.of))
        work_misuse(name, "so large a group, or one of several communicators");
    group[group_count++] = o;
    return SUCCESS;
}

// ------------------------------------------------------------------------------------------------
// NCCL's functions

EXPORT int ncclGetUniqueId(id *ret_id);
EXPORT int ncclCommInitRankConfig(comm **ret_comm, int ranks, id of, int rank, config *with);
EXPORT int ncclCommDestroy(comm *of);
EXPORT int ncclCommAbort(comm *of);
EXPORT int ncclCommGetAsyncError(comm *of, int *ret_error);
EXPORT const char *ncclGetErrorString(int error);
EXPORT int ncclAllReduce(const void *from, void *into, size_t count, int type, int reduction,
                         comm *of, cudaStream_t stream);
EXPORT int ncclReduce(const void *from, void *into, size_t count, int type, int reduction, int root,
                      comm *of, cudaStream_t stream);
EXPORT int ncclReduceScatter(const void *from, void *into, size_t count, int type, int reduction,
                             comm *of, cudaStream_t stream);
EXPORT int ncclAllGather(const void *from, void *into, size_t count, int type, comm *of,
                         cudaStream_t stream);
EXPORT int ncclBroadcast(const void *from, void *into, size_t count, int type, int root, comm *of,
                         cudaStream_t stream);
EXPORT int ncclSend(const void *from, size_t count, int type, int rank, comm *of,
                    cudaStream_t stream);
EXPORT int ncclRecv(void *into, size_t count, int type, int rank, comm *of, cudaStream_t stream);
EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupEnd(void);

int ncclGetUniqueId(id *ret_id) {
    int error = asked_to_fail("ncclGetUniqueId", -1);
    if (error != SUCCESS)
        return error;
    memset(ret_id, 0, sizeof *ret_id);
    if (!meet_make(ret_id->path))
        return SYSTEM_ERROR;
    pthread_mutex_lock(&work_lock);
    memcpy(made_paths[made_count++ % IDS], ret_id->path, MEET_PATH);
    pthread_mutex_unlock(&work_lock);
    return SUCCESS;
}

/// Files of ids that this process made and nobody has joined all of.
__attribute__((destructor)) static void remove_files(void) {
    for (int i = 0; i < IDS; i++)
        if (made_paths[i][0])
            unlink(made_paths[i]);
}

int ncclCommInitRankConfig(comm **ret_comm, int ranks, id of, int rank, config *with) {
    static const char name[] = "ncclCommInitRankConfig";
    *ret_comm = NULL;
    int error = asked_to_fail(name, rank);
    if (error != SUCCESS)
        return error;
    if (with->magic != 0xcafebeefU || with->size < sizeof *with || with->version < 21400 ||
        with->blocking != 0 || rank < 0 || rank >= ranks || ranks > MEET_RANKS)
        return INVALID_ARGUMENT;
    meet *at = meet_open(of.path);
    if (!at)
        return SYSTEM_ERROR;
    comm *made = calloc(1, sizeof *made);
    if (!made)
        return SYSTEM_ERROR;
    made->rank = rank;
    made->ranks = ranks;
    made->ordinal = work_ordinal();
    made->at = at;
    memcpy(made->path, of.path, MEET_PATH);
    pthread_mutex_init(&made->lock, NULL);
    pthread_mutex_lock(&work_lock);
    made->next = all_comms;
    all_comms = made;
    pthread_mutex_unlock(&work_lock);
    if (atomic_exchange(&at->rank[rank].joined, 1))
        work_misuse(name, "the rank has joined already");
    *ret_comm = made;
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(comm *of, int *ret_error) {
    static const char name[] = "ncclCommGetAsyncError";
    if (!of || of->over)
        work_misuse(name, "the communicator is over, or NULL");
    int error = asked_to_fail(name, of->rank);
    if (error != SUCCESS)
        return error;
    *ret_error = SUCCESS;
    if (!meet_all_joined(of->at, of->ranks)) {
        *ret_error = IN_PROGRESS;
        return SUCCESS;
    }
    unlink(of->path); // nobody comes any more
    if (of->questions > 0) {
        of->questions--;
        *ret_error = of->pending_count > 0 ? IN_PROGRESS : SUCCESS;
        return SUCCESS;
    }
    *ret_error = of->error;
    int count = of->pending_count;
    of->pending_count = 0;
    if (count > 0)
        work_queue(of->pending, count);
    return SUCCESS;
}

static int end(comm *of, const char *name, bool aborts) {
    if (!of || of->over)
        work_misuse(name, "the communicator is over, or NULL");
    bool has_work = atomic_load(&of->taken) != atomic_load(&of->done) || of->pending_count > 0;
    if (has_work && !aborts)
        work_misuse(name, "the communicator has work on its way");
    pthread_mutex_lock(&of->lock);
    atomic_store(&of->aborted, true);
    pthread_mutex_unlock(&of->lock);
    unlink(of->path);
    pthread_mutex_lock(&work_lock);
    of->over = true;
    work_counts.aborted += aborts;
    work_counts.destroyed += !aborts;
    work_counts.unblocked += has_work;
    pthread_mutex_unlock(&work_lock);
    return SUCCESS;
}

int ncclCommDestroy(comm *of) {
    return end(of, "ncclCommDestroy", false);
}

int ncclCommAbort(comm *of) {
    return end(of, "ncclCommAbort", true);
}

const char *ncclGetErrorString(int error) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "operation in progress"};
    return error >= 0 && error < 8 ? texts[error] : "unknown result code";
}

int ncclAllReduce(const void *from, void *into, size_t count, int type, int reduction, comm *of,
                  cudaStream_t stream) {
    return call("ncclAllReduce",
                (operation){of, ALL_REDUCE, from, into, count, type, reduction, 0, stream});
}

int ncclReduce(const void *from, void *into, size_t count, int type, int reduction, int root,
               comm *of, cudaStream_t stream) {
    return call("ncclReduce",
                (operation){of, REDUCE, from, into, count, type, reduction, root, stream});
}

int ncclReduceScatter(const void *from, void *into, size_t count, int type, int reduction, comm *of,
                      cudaStream_t stream) {
    return call("ncclReduceScatter",
                (operation){of, SCATTER, from, into, count, type, reduction, 0, stream});
}

int ncclAllGather(const void *from, void *into, size_t count, int type, comm *of,
                  cudaStream_t stream) {
    return call("ncclAllGather", (operation){of, GATHER, from, into, count, type, 0, 0, stream});
}

int ncclBroadcast(const void *from, void *into, size_t count, int type, int root, comm *of,
                  cudaStream_t stream) {
    return call("ncclBroadcast",
                (operation){of, BROADCAST, from, into, count, type, 0, root, stream});
}

int ncclSend(const void *from, size_t count, int type, int rank, comm *of, cudaStream_t stream) {
    return call("ncclSend",
                (operation){of, SEND, from, (char *)(uintptr_t)from, count, type, 0, rank, stream});
}

int ncclRecv(void *into, size_t count, int type, int rank, comm *of, cudaStream_t stream) {
    return call("ncclRecv", (operation){of, RECEIVE, into, into, count, type, 0, rank, stream});
}

int ncclGroupStart(void) {
    int error = asked_to_fail("ncclGroupStart", -1);
    if (error != SUCCESS)
        return error;
    if (in_group)
        work_misuse("ncclGroupStart", "a group in a group");
    in_group = true;
    group_count = 0;
    return SUCCESS;
}

int ncclGroupEnd(void) {
    if (!in_group)
        work_misuse("ncclGroupEnd", "no group was begun");
    in_group = false;
    int error = asked_to_fail("ncclGroupEnd", -1);
    if (error != SUCCESS || group_count == 0)
        return error;
    return take_work(group, group_count);
}
