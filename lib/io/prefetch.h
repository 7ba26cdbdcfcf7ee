// One thread that prepares numbered pieces of work ahead of the one that uses them, in a ring of
// slots.
//
// Invariant: pieces come out in order, each once. The thread touches nothing but what `fill` is
// given: no object, no gate, no allocation, no error; so it can be joined from a destructor, and
// nothing it does can fail. A slot belongs to the thread from nd__prefetch_done until
// nd__prefetch_wait returns it, and to the caller in between.
#ifndef ND_LIB_IO_PREFETCH_H
#define ND_LIB_IO_PREFETCH_H
#include <nd/error.h>
#include <pthread.h>

/// Fills `slot` with piece number `piece`. `context` must stay as it is until nd__prefetch_stop.
typedef void (*nd_prefetch_fill)(const void *context, int64_t piece, void *slot);

typedef struct nd_prefetch {
    nd_prefetch_fill fill;
    const void *context;
    unsigned char *slots; ///< depth * slot_bytes, the caller's
    size_t slot_bytes;
    int64_t depth;
    int64_t first; ///< piece that is prepared first
    int64_t pieces;
    bool running;        ///< the thread was started and not joined; the caller's alone
    uint32_t generation; ///< of processes, in which it was started (fork.h)
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled;  ///< prepared has grown
    pthread_cond_t emptied; ///< used has grown, or stop was set
    int64_t prepared;       ///< pieces up to which all are ready; under lock
    int64_t used;           ///< pieces up to which the caller is done; under lock
    bool stop;              ///< under lock
} nd_prefetch;

/// Starts the thread on the pieces from `first` to before `pieces`; the struct is zero or was
/// stopped. On error nothing runs.
nd_status nd__prefetch_start(nd_prefetch *prefetch, const char *operation, nd_prefetch_fill fill,
                             const void *context, void *slots, size_t slot_bytes, int64_t depth,
                             int64_t first, int64_t pieces);
/// Waits for the next piece and returns its slot, which stays the caller's until nd__prefetch_done.
/// Once for each piece. NULL with an error in a forked child, where the thread is not.
void *nd__prefetch_wait(nd_prefetch *prefetch);
void nd__prefetch_done(nd_prefetch *prefetch);
/// Stops and joins the thread, wherever it is. Idempotent; also on a zeroed struct.
void nd__prefetch_stop(nd_prefetch *prefetch);
#endif
