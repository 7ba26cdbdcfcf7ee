// Signals wait for a moment (signals.h).
#include "lib/base/signals.h"
#ifndef ND_MODEL
#include <errno.h>
#include <stddef.h>
#include <time.h>

static const int of_writing[] = {SIGPIPE, SIGXFSZ};
enum { OF_WRITING = sizeof of_writing / sizeof of_writing[0] };

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

void nd__signals_write_begin(nd_signals_writing *ret_writing) {
    sigset_t waiting;
    sigemptyset(&waiting);
    for (size_t i = 0; i < OF_WRITING; i++)
        sigaddset(&waiting, of_writing[i]);
    sigemptyset(&ret_writing->awaited);
    pthread_sigmask(SIG_BLOCK, &waiting, &ret_writing->before);
    sigpending(&ret_writing->awaited);
}

/// A write raises its signal for this thread alone, and at once. One that was pending before has
/// taken it up: it stays.
void nd__signals_write_end(const nd_signals_writing *writing, bool failed) {
    const struct timespec at_once = {0};
    int error = errno;
    for (size_t i = 0; failed && i < OF_WRITING; i++) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, of_writing[i]);
        if (sigismember(&writing->awaited, of_writing[i]) == 1)
            continue;
        while (sigtimedwait(&one, NULL, &at_once) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &writing->before, NULL);
    errno = error;
}
#endif
