// Registry of thread records.
#include "lib/base/thread.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/base/seam.h"
#include <pthread.h>
#include <stdlib.h>

#ifndef ND_MODEL
_Thread_local nd_thread nd__thread_record;
#endif

static nd_lock registry_lock;
static nd_thread *registry;
static pthread_key_t exit_key;
static bool exit_key_exists;
static pthread_once_t exit_key_once = PTHREAD_ONCE_INIT;

static void leave_registry(nd_thread *thread) {
    nd__lock_acquire(&registry_lock);
    if (thread->previous)
        thread->previous->next = thread->next;
    else
        registry = thread->next;
    if (thread->next)
        thread->next->previous = thread->previous;
    thread->registered = false;
    nd__lock_release(&registry_lock);
}

/// Runs when a thread ends: nothing it owned through the library is left behind. Destructors of
/// other keys may use the library afterwards, in the last round, too, after which nobody would come
/// back for the record.
static void thread_exit(void *data) {
    nd_thread *thread = data;
    thread->end_awaited = false;
    nd__seam_thread_ends(thread);
    nd__error_thread_ends();
    free(thread->name);
    thread->name = NULL;
    thread->unlisted = true;
    if (thread->registered)
        leave_registry(thread);
}

static void make_exit_key(void) {
    exit_key_exists = pthread_key_create(&exit_key, thread_exit) == 0;
}

/// At load: later the program may have used up the keys.
__attribute__((constructor)) static void make_exit_key_early(void) {
    pthread_once(&exit_key_once, make_exit_key);
}

bool nd__thread_await_end(void) {
    nd_thread *thread = &nd__thread_record;
    pthread_once(&exit_key_once, make_exit_key);
    if (!thread->end_awaited)
        thread->end_awaited = exit_key_exists && pthread_setspecific(exit_key, thread) == 0;
    return thread->end_awaited;
}

/// The highest bit is a mark.
enum { LOCK_IDS_MOST = INT32_MAX };

void nd__thread_register(nd_thread *thread) {
    static uint32_t last_number, last_lock_id;
    bool awaited = nd__thread_await_end();
    if (thread->unlisted)
        return;
    thread->unlisted = !awaited;
    nd__lock_acquire(&registry_lock);
    thread->number = last_number++;
    if (last_lock_id < LOCK_IDS_MOST)
        thread->lock_id = ++last_lock_id;
    thread->previous = NULL;
    if (awaited) {
        thread->next = registry;
        if (registry)
            registry->previous = thread;
        registry = thread;
        thread->registered = true;
    }
    nd__lock_release(&registry_lock);
}

/// The child has but this thread.
static void forget_other_threads(bool child) {
    if (!child)
        return;
    nd_thread *self = &nd__thread_record;
    self->previous = self->next = NULL;
    registry = self->registered ? self : NULL;
}
ND__FORK_PART(fork_threads, ND__FORK_THREADS, &registry_lock, 1, sizeof registry_lock, NULL,
              forget_other_threads, NULL);

char *nd__thread_name(size_t bytes) {
    nd_thread *thread = nd__thread();
    if (!thread->name)
        thread->name = malloc(bytes);
    return thread->name;
}

void nd__thread_each(void (*visit)(nd_thread *thread, void *data), void *data) {
    nd__lock_acquire(&registry_lock);
    for (nd_thread *thread = registry; thread; thread = thread->next)
        visit(thread, data);
    nd__lock_release(&registry_lock);
}
