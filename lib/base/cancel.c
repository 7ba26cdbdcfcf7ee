// Cancellation, off and on.
#include "lib/base/cancel.h"
#include "lib/base/thread.h"
#include <pthread.h>

nd_thread *nd__cancel_disable(void) {
    nd_thread *thread = &nd__thread_record; // not to be registered for this, perhaps under a lock
    if (thread->uncancelled++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &thread->cancel_state);
    return thread;
}

void nd__cancel_restore(nd_thread **thread) {
    if (--(*thread)->uncancelled == 0)
        pthread_setcancelstate((*thread)->cancel_state, NULL);
}
