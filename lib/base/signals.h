// Signals wait for a moment.
//
// A thread that holds them is not interrupted by a handler, so in a process with one thread nobody
// else changes a count meanwhile. What is an instruction's own doing (SIGSEGV and its like) comes
// through: waiting would end the process.
//
// A thread that writes to a pipe that nobody reads, or beyond RLIMIT_FSIZE, gets SIGPIPE or SIGXFSZ
// beside an error, or beside a number of bytes that is too small. The library answers with an error
// and never by a signal: both wait while it writes, and what its own write has raised is taken.
// Afterwards the thread's mask and what is pending are as they were.
#ifndef ND_LIB_BASE_SIGNALS_H
#define ND_LIB_BASE_SIGNALS_H
#include <signal.h>
#include <stdbool.h>

#ifdef ND_MODEL // where a thread stands for the handler, which waits for nobody
static inline bool nd__signals_hold(sigset_t *ret_before) {
    (void)ret_before;
    return false;
}
static inline void nd__signals_let(const sigset_t *before) {
    (void)before;
}
#else
/// From here on they wait. False: they do not.
bool nd__signals_hold(sigset_t *ret_before);
/// What has waited comes, and all is as it was before.
void nd__signals_let(const sigset_t *before);

/// A thread that writes.
typedef struct nd_signals_writing {
    sigset_t before;  ///< its mask
    sigset_t awaited; ///< what was pending already, and is the program's
} nd_signals_writing;

/// From here on SIGPIPE and SIGXFSZ wait.
void nd__signals_write_begin(nd_signals_writing *ret_writing);
/// As before. `failed`: something was not written, or not all of it. Keeps errno.
void nd__signals_write_end(const nd_signals_writing *writing, bool failed);
#endif
#endif
