// Registry of thread records.
#include "lib/core/thread.h"
#include "lib/core/atomics.h"
#include "lib/core/block.h"
#include <nd/scope.h>
#include <pthread.h>

#ifndef ND_MODEL
ND__THREAD_LOCAL nd_thread nd__thread_record;
#endif
ND_API _Thread_local const nd_site *nd__site;
bool nd__sites_enabled = true;

static nd_lock registry_lock;
static nd_thread *registry;
static pthread_key_t exit_key;
static pthread_once_t exit_key_once = PTHREAD_ONCE_INIT;

/// Runs when a thread ends: nothing it owned through the library is left behind.
static void thread_exit(void *data) {
    nd_thread *thread = data;
    while (thread->scope)
        nd_scope_end(thread->scope);
    nd__block_thread_end();
    nd__lock(&registry_lock);
    if (thread->previous)
        thread->previous->next = thread->next;
    else
        registry = thread->next;
    if (thread->next)
        thread->next->previous = thread->previous;
    thread->registered = false; // a later destructor of the same thread registers it again
    nd__unlock(&registry_lock);
}

static void make_exit_key(void) {
    pthread_key_create(&exit_key, thread_exit);
}

void nd__thread_register(nd_thread *thread) {
    pthread_once(&exit_key_once, make_exit_key);
    pthread_setspecific(exit_key, thread);
    nd__lock(&registry_lock);
    static uint32_t last_number;
    thread->number = last_number++;
    thread->previous = NULL;
    thread->next = registry;
    if (registry)
        registry->previous = thread;
    registry = thread;
    thread->registered = true;
    nd__unlock(&registry_lock);
}

void nd__thread_each(void (*visit)(nd_thread *thread, void *data), void *data) {
    nd__lock(&registry_lock);
    for (nd_thread *thread = registry; thread; thread = thread->next)
        visit(thread, data);
    nd__unlock(&registry_lock);
}
