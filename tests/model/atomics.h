// The primitives of lib/base/atomics.h for the checker: each is a call into the scheduler, which
// decides who runs next and what a load sees. Included by lib/base/atomics.h under ND_MODEL, in
// place of the processor's; nothing else of the core is compiled differently, but for
// nd__lock_acquire (one step) and the thread record (one per simulated thread).
#ifndef ND_TESTS_MODEL_ATOMICS_H
#define ND_TESTS_MODEL_ATOMICS_H
#include "lib/base/atomics.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

uint64_t nd__model_load(const volatile void *word, size_t size, memory_order order);
void nd__model_store(volatile void *word, size_t size, uint64_t value, memory_order order);
uint64_t nd__model_exchange(volatile void *word, size_t size, uint64_t value, memory_order order);
bool nd__model_cas(volatile void *word, size_t size, void *expected, uint64_t value,
                   memory_order order, memory_order failure_order);
uint64_t nd__model_fetch_add(volatile void *word, size_t size, uint64_t value, memory_order order);
uint64_t nd__model_fetch_or(volatile void *word, size_t size, uint64_t value, memory_order order);
uint64_t nd__model_fetch_and(volatile void *word, size_t size, uint64_t value, memory_order order);
void nd__model_fence(void);

// The comma drops _Atomic.
#define ND__MODEL_TYPE(word) __typeof__((void)0, *(word))
#define ND__MODEL_BITS(value) ((uint64_t)(uintptr_t)(value))

#define nd__atomic_load(word, order) \
    ((ND__MODEL_TYPE(word))nd__model_load(word, sizeof *(word), memory_order_##order))
#define nd__atomic_store(word, value, order) \
    nd__model_store(word, sizeof *(word), ND__MODEL_BITS(value), memory_order_##order)
#define nd__atomic_exchange(word, value, order)                                            \
    ((ND__MODEL_TYPE(word))nd__model_exchange(word, sizeof *(word), ND__MODEL_BITS(value), \
                                              memory_order_##order))
#define nd__atomic_cas(word, expected, value, success, failure)                                  \
    nd__model_cas(word, sizeof *(word), expected, ND__MODEL_BITS(value), memory_order_##success, \
                  memory_order_##failure)
#define nd__atomic_fetch_add(word, value, order)                                            \
    ((ND__MODEL_TYPE(word))nd__model_fetch_add(word, sizeof *(word), ND__MODEL_BITS(value), \
                                               memory_order_##order))
#define nd__atomic_fetch_sub(word, value, order) \
    nd__atomic_fetch_add(word, -ND__MODEL_BITS(value), order)
#define nd__atomic_fetch_or(word, value, order)                                            \
    ((ND__MODEL_TYPE(word))nd__model_fetch_or(word, sizeof *(word), ND__MODEL_BITS(value), \
                                              memory_order_##order))
#define nd__atomic_fetch_and(word, value, order)                                            \
    ((ND__MODEL_TYPE(word))nd__model_fetch_and(word, sizeof *(word), ND__MODEL_BITS(value), \
                                               memory_order_##order))
#define nd__atomic_full_fence() nd__model_fence()
#define nd__atomic_compiler_fence() ((void)0)

/// A program says that its second thread is a signal handler of the first one, which retains and
/// releases.
extern bool nd__model_alone;
static inline bool nd__atomic_single_threaded(void) {
    return nd__model_alone;
}

// Time stands still, so that an execution depends on the schedule alone, and a thread's record
// leaves the registry when the simulated thread ends.
int nd__model_clock(struct timespec *time);
void nd__model_at_thread_exit(void (*function)(void *data));
void nd__model_thread_value(const void *data);
#define clock_gettime(clock, time) nd__model_clock(time)
#define pthread_key_create(key, function) ((void)(key), nd__model_at_thread_exit(function), 0)
#define pthread_setspecific(key, data) ((void)(key), nd__model_thread_value(data), 0)
#endif
