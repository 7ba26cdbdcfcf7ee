// Signals wait for a moment.
//
// A thread that holds them is not interrupted by a handler, so in a process with one thread nobody
// else changes a count meanwhile. What is an instruction's own doing (SIGSEGV and its like) comes
// through: waiting would end the process.
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
#endif
#endif
