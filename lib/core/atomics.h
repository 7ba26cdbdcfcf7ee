// The atomic operations and the lock that the core is made of; nothing in lib/core uses
// <stdatomic.h> operations on shared words except through here, or spells out its memory order.
//
// While the process has one thread (glibc's __libc_single_threaded) a read-modify-write is a plain
// load and store: an order of magnitude cheaper, and not observable. The flag only ever changes in
// this thread, by creating another.
#ifndef ND_LIB_CORE_ATOMICS_H
#define ND_LIB_CORE_ATOMICS_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

static inline bool nd__single_threaded(void) {
    return __builtin_expect(__libc_single_threaded, 0);
}

static inline uint64_t nd__load_relaxed(const _Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

/// Adds and returns what was there before.
static inline uint64_t nd__fetch_add_relaxed(_Atomic uint64_t *word, uint64_t value) {
    if (nd__single_threaded()) {
        uint64_t before = atomic_load_explicit(word, memory_order_relaxed);
        atomic_store_explicit(word, before + value, memory_order_relaxed);
        return before;
    }
    return atomic_fetch_add_explicit(word, value, memory_order_relaxed);
}

/// Subtracts and returns what was there before; everything the thread did before is visible to
/// whoever subtracts last.
static inline uint64_t nd__fetch_sub_acq_rel(_Atomic uint64_t *word, uint64_t value) {
    if (nd__single_threaded()) {
        uint64_t before = atomic_load_explicit(word, memory_order_relaxed);
        atomic_store_explicit(word, before - value, memory_order_relaxed);
        return before;
    }
    return atomic_fetch_sub_explicit(word, value, memory_order_acq_rel);
}

static inline uint32_t nd__fetch_or_flags(_Atomic uint32_t *flags, uint32_t bits) {
    if (nd__single_threaded()) {
        uint32_t before = atomic_load_explicit(flags, memory_order_relaxed);
        atomic_store_explicit(flags, before | bits, memory_order_relaxed);
        return before;
    }
    return atomic_fetch_or_explicit(flags, bits, memory_order_acq_rel);
}

static inline uint32_t nd__fetch_clear_flags(_Atomic uint32_t *flags, uint32_t bits) {
    return atomic_fetch_and_explicit(flags, ~bits, memory_order_acq_rel);
}

/// Raises *peak to at least value.
static inline void nd__raise_to(_Atomic uint64_t *peak, uint64_t value) {
    uint64_t seen = atomic_load_explicit(peak, memory_order_relaxed);
    while (seen < value && !atomic_compare_exchange_weak_explicit(
                               peak, &seen, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

/// A mutex of one word: 0 free, 1 held, 2 held with waiters. Static zero is free.
typedef struct nd_lock {
    _Atomic uint32_t state;
} nd_lock;

void nd__lock_wait(nd_lock *lock);
void nd__lock_wake(nd_lock *lock);

static inline bool nd__try_lock(nd_lock *lock) {
    uint32_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&lock->state, &expected, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void nd__lock(nd_lock *lock) {
    if (nd__single_threaded())
        atomic_store_explicit(&lock->state, 1, memory_order_relaxed);
    else if (!nd__try_lock(lock))
        nd__lock_wait(lock);
}

static inline void nd__unlock(nd_lock *lock) {
    if (nd__single_threaded())
        atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
    else if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2)
        nd__lock_wake(lock);
}

/// Tells the core that this is a spin.
static inline void nd__cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/// Sleeps while *word == value (may return early). Wakes everybody who sleeps on it.
void nd__futex_wait(_Atomic uint32_t *word, uint32_t value);
void nd__futex_wake_all(_Atomic uint32_t *word);
#endif
