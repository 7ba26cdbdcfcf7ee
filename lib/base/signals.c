// Signals wait for a moment (signals.h).
#include "lib/base/signals.h"
#ifndef ND_MODEL
#include <stddef.h>

bool nd__signals_hold(sigset_t *ret_before) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t held;
    sigfillset(&held);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&held, own[i]);
    return pthread_sigmask(SIG_BLOCK, &held, ret_before) == 0;
}

void nd__signals_let(const sigset_t *before) {
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
#endif
