// An NCCL without GPUs: what a test tells it, and asks of it. The environment says the same for a whole
// program:
//
//   ND_NCCL_SEED=N             which calls answer that they are in progress, and for how long; 0: none
//   ND_NCCL_FAIL=[R:]NAME:N:E  the N-th call of NAME (by rank R) answers error number E
//   ND_NCCL_LATE=[R:]N:E       the N-th piece of work (of rank R) is taken and never done; some questions
//                              later the communicator has the asynchronous error E
//   ND_NCCL_LOSE=[R:]N         the same without an error, as where another rank has died
#ifndef ND_TESTS_CUDART_NCCL_H
#define ND_TESTS_CUDART_NCCL_H
#include <stdint.h>

typedef struct nccl_statistics {
    uint64_t alive;     ///< communicators that were begun and neither destroyed nor aborted
    uint64_t destroyed; ///< theirs are these calls
    uint64_t aborted;
    uint64_t unblocked; ///< of the aborted, those that had work on its way
    uint64_t taken;     ///< pieces of work: one for each call, a group's too
    uint64_t done;
    uint64_t reduced;  ///< bytes of all-reduces, reduces and reduce-scatters that are done
    uint64_t failures; ///< asked for, that have happened
} nccl_statistics;

/// What libnccl.so has beside NCCL's own functions.
typedef struct nccl_control {
    void (*get_statistics)(nccl_statistics *ret_statistics);
    void (*set_seed)(uint64_t seed);
    /// Rank -1: whichever. n = 0: none.
    void (*fail_call)(int rank, const char *name, uint64_t n, int error);
    /// Error 0: there is none, the work is just never done.
    void (*fail_late)(int rank, uint64_t n, int error);
} nccl_control;

/// The name of the nccl_control in the library.
#define NCCL_CONTROL "nccl_control_table"
#endif
