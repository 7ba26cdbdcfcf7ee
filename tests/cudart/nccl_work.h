// The work of the fake NCCL: queued on streams in parts, which are done when all whom they take have
// come.
#ifndef ND_TESTS_CUDART_NCCL_WORK_H
#define ND_TESTS_CUDART_NCCL_WORK_H
#include "tests/cudart/control.h"
#include "tests/cudart/nccl.h"
#include "tests/cudart/nccl_meet.h"
#include <pthread.h>

enum { WORK_MEAN = 4, WORK_GROUP = 64 };
typedef enum kind { ALL_REDUCE = 1, REDUCE, SCATTER, GATHER, BROADCAST, SEND, RECEIVE } kind;

typedef struct comm comm;

/// What a call has asked for.
typedef struct operation {
    comm *of;
    kind kind;
    const char *from;
    char *into;
    uint64_t count;
    int type, reduction;
    int root; ///< or the other rank
    cudaStream_t stream;
} operation;

struct comm {
    comm *next; ///< of all that ever were
    int rank, ranks, ordinal;
    meet *at;
    char path[MEET_PATH];
    pthread_mutex_t lock; ///< held while its work touches memory, and to abort it
    _Atomic bool aborted; ///< set with the lock
    _Atomic bool stuck;   ///< no work is done any more
    bool over;            ///< work_lock, but for its own rank
    int error;            ///< asynchronous, once `questions` is 0
    unsigned questions;   ///< until then, or until what is in progress is queued
    uint64_t meetings;    ///< for which work is queued
    uint64_t sent[MEET_RANKS], received[MEET_RANKS];
    _Atomic uint64_t taken, done;  ///< steps
    operation pending[WORK_GROUP]; ///< in progress
    int pending_count;
};

/// Guards the statistics, and the list of communicators.
extern pthread_mutex_t work_lock;
extern nccl_statistics work_counts;

/// Ends the program.
_Noreturn void work_misuse(const char *name, const char *what);
/// The current device.
int work_ordinal(void);
/// Queues what a call or a group asks for on its stream.
void work_queue(const operation *first, int count);
#endif
