// Handles that the threads of a stress share: each slot owns one, or is NULL.
#ifndef ND_TESTS_STRESS_SLOTS_H
#define ND_TESTS_STRESS_SLOTS_H
#include <nd/object.h>
#include <pthread.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; ///< of all slots

/// What was in the slot, owned, and `value` in it instead.
static inline void *exchange_shared(void *slot, void *value) {
    pthread_mutex_lock(&table_lock);
    void *before = *(void **)slot;
    *(void **)slot = value;
    pthread_mutex_unlock(&table_lock);
    return before;
}

/// One more handle on what is in the slot; NULL when it is empty.
static inline void *retain_shared(void *slot) {
    pthread_mutex_lock(&table_lock);
    void *handle = nd_object_retain(*(void **)slot);
    pthread_mutex_unlock(&table_lock);
    return handle;
}
#endif
