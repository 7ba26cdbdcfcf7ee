// The functions behind tests/model/atomics.h, and the kernel's part of lib/base/atomics.h: each
// says what the event is and which accesses of shared words it consists of.
#include "lib/base/atomics.h"
#include "lib/base/barrier.h"
#include "lib/base/futex.h"
#include "lib/base/lock.h"
#include "lib/base/pause.h"
#include "tests/model/scheduler_internal.h"
#include "tests/model/words.h"
#include <errno.h>

bool nd__model_alone;

// Stands for the queue of a futex.
#define QUEUE_OF(word) ((uintptr_t)(word) | 2)

#define OPERATION(...) ((operation){__VA_ARGS__, .caller = __builtin_return_address(0)})

static uint64_t modify(event_kind kind, access_type type, volatile void *word, size_t size,
                       uint64_t value, int order, void *caller) {
    return model_event((operation){.kind = kind,
                                   .accesses = {{(uintptr_t)word, type}},
                                   .word = word,
                                   .size = size,
                                   .value = value,
                                   .order = order,
                                   .caller = caller});
}

uint64_t nd__model_load(const volatile void *word, size_t size, memory_order order) {
    return modify(EVENT_LOAD, ACCESS_LOAD, (volatile void *)(uintptr_t)word, size, 0, (int)order,
                  __builtin_return_address(0));
}

void nd__model_store(volatile void *word, size_t size, uint64_t value, memory_order order) {
    modify(EVENT_STORE, ACCESS_WRITE, word, size, value, (int)order, __builtin_return_address(0));
}

uint64_t nd__model_exchange(volatile void *word, size_t size, uint64_t value, memory_order order) {
    return modify(EVENT_EXCHANGE, ACCESS_WRITE, word, size, value, (int)order,
                  __builtin_return_address(0));
}

bool nd__model_cas(volatile void *word, size_t size, void *expected, uint64_t value,
                   memory_order order, memory_order failure_order) {
    uint64_t wanted = words_raw(expected, size);
    uint64_t before =
        model_event(OPERATION(.kind = EVENT_CAS, .accesses = {{(uintptr_t)word, ACCESS_WRITE}},
                              .word = word, .size = size, .value = value, .expected = wanted,
                              .order = (int)order, .failure_order = (int)failure_order));
    if (before == wanted)
        return true;
    words_set_raw(expected, size, before);
    return false;
}

uint64_t nd__model_fetch_add(volatile void *word, size_t size, uint64_t value, memory_order order) {
    return modify(EVENT_ADD, ACCESS_WRITE, word, size, value, (int)order,
                  __builtin_return_address(0));
}

uint64_t nd__model_fetch_or(volatile void *word, size_t size, uint64_t value, memory_order order) {
    return modify(EVENT_OR, ACCESS_WRITE, word, size, value, (int)order,
                  __builtin_return_address(0));
}

uint64_t nd__model_fetch_and(volatile void *word, size_t size, uint64_t value, memory_order order) {
    return modify(EVENT_AND, ACCESS_WRITE, word, size, value, (int)order,
                  __builtin_return_address(0));
}

void nd__model_fence(void) {
    model_event(OPERATION(.kind = EVENT_FENCE));
}

void nd__lock_wait(nd_lock *lock) {
    modify(EVENT_LOCK, ACCESS_LOCK, &lock->state, sizeof lock->state, 1, memory_order_acquire,
           __builtin_return_address(0));
}

void nd__lock_wake(nd_lock *lock) {
    (void)lock; // who waits does so in EVENT_LOCK
}

void nd__futex_wait(_Atomic uint32_t *word, uint32_t value) {
    model_event(
        OPERATION(.kind = EVENT_FUTEX,
                  .accesses = {{(uintptr_t)word, ACCESS_LOOK}, {QUEUE_OF(word), ACCESS_SHARE}},
                  .word = word, .size = sizeof *word, .value = value));
    if (model_woken())
        return;
    model_event(OPERATION(.kind = EVENT_SLEEP, .accesses = {{QUEUE_OF(word), ACCESS_LOOK}},
                          .word = word, .size = sizeof *word));
}

// The order of those who sleep matters here, since not all are woken.
int model_futex_wait(_Atomic uint32_t *word, uint32_t value, bool bounded) {
    model_event(
        OPERATION(.kind = EVENT_FUTEX,
                  .accesses = {{(uintptr_t)word, ACCESS_LOOK}, {QUEUE_OF(word), ACCESS_WRITE}},
                  .word = word, .size = sizeof *word, .value = value));
    if (model_woken())
        return 0;
    uint64_t woken = model_event(OPERATION(.kind = bounded ? EVENT_NAP : EVENT_SLEEP,
                                           .accesses = {{QUEUE_OF(word), ACCESS_WRITE}},
                                           .word = word, .size = sizeof *word));
    if (woken)
        return 0;
    nd__barrier_run_slow();
    errno = ETIMEDOUT;
    return -1;
}

int model_futex_wake(_Atomic uint32_t *word, uint32_t most) {
    model_event(OPERATION(.kind = EVENT_WAKE, .accesses = {{QUEUE_OF(word), ACCESS_WRITE}},
                          .word = word, .size = sizeof *word, .value = most));
    return 0;
}

bool nd__futex_wake_all(_Atomic uint32_t *word) {
    model_event(OPERATION(.kind = EVENT_WAKE, .accesses = {{QUEUE_OF(word), ACCESS_WRITE}},
                          .word = word, .size = sizeof *word));
    return false; // time stands still, so there is none to let them in
}

bool nd__barrier_prepare(void) {
    return true;
}

bool nd__model_barrier_refused;

bool nd__barrier_run(void) {
    if (nd__model_barrier_refused)
        return false;
    nd__barrier_run_slow();
    return true;
}

void nd__barrier_run_slow(void) {
    model_event(OPERATION(.kind = EVENT_BARRIER));
    model_event(OPERATION(.kind = EVENT_BARRIER_END));
}

void nd__pause_nap(uint64_t nanoseconds) {
    (void)nanoseconds; // any other thread may run at any event as it is
}

void nd__pause_yield(void) {
    model_spin();
}
