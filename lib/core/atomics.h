// The atomic operations and the lock that the core is made of; nothing in lib/core uses
// <stdatomic.h> operations on shared words except through here, or spells out its memory order.
//
// While the process has one thread (glibc's __libc_single_threaded) a read-modify-write is not
// locked: an order of magnitude cheaper. The flag only ever changes in this thread, by creating another. One that adds is a
// single instruction all the same, because signal handlers may retain and release (threading.md).
#ifndef ND_LIB_CORE_ATOMICS_H
#define ND_LIB_CORE_ATOMICS_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

// The exhaustive checker of tests/model compiles the core against its own primitives.
#ifdef ND_MODEL
#include "tests/model/atomics.h"
#else
// The primitives. A memory order is written without its prefix: nd__atomic_load(&word, acquire).
#define nd__atomic_load(word, order) atomic_load_explicit(word, memory_order_##order)
#define nd__atomic_store(word, value, order) \
    atomic_store_explicit(word, value, memory_order_##order)
#define nd__atomic_exchange(word, value, order) \
    atomic_exchange_explicit(word, value, memory_order_##order)
#define nd__atomic_cas(word, expected, value, success, failure)                            \
    atomic_compare_exchange_strong_explicit(word, expected, value, memory_order_##success, \
                                            memory_order_##failure)
#define nd__atomic_fetch_add(word, value, order) \
    atomic_fetch_add_explicit(word, value, memory_order_##order)
#define nd__atomic_fetch_sub(word, value, order) \
    atomic_fetch_sub_explicit(word, value, memory_order_##order)
#define nd__atomic_fetch_or(word, value, order) \
    atomic_fetch_or_explicit(word, value, memory_order_##order)
#define nd__atomic_fetch_and(word, value, order) \
    atomic_fetch_and_explicit(word, value, memory_order_##order)
#define nd__full_fence() atomic_thread_fence(memory_order_seq_cst)
/// Keeps the compiler, not the processor, from moving memory accesses.
#define nd__compiler_fence() atomic_signal_fence(memory_order_seq_cst)

static inline bool nd__single_threaded(void) {
    return __builtin_expect(__libc_single_threaded, 0);
}
#endif

static inline uint64_t nd__load_relaxed(const _Atomic uint64_t *word) {
    return nd__atomic_load(word, relaxed);
}

/// Adds and returns what was there before, in a process with one thread: nothing but a signal handler
/// can come in between, and none does.
static inline uint64_t nd__fetch_add_alone(_Atomic uint64_t *word, uint64_t value) {
#if defined(ND_MODEL)
    // A thread stands for the signal handler, of which its thread sees everything in order.
    return nd__atomic_fetch_add(word, value, acq_rel);
#elif defined(__x86_64__)
    __asm__ volatile("xaddq %0, %1" : "+r"(value), "+m"(*(uint64_t *)(uintptr_t)word) : : "cc");
    return value;
#else
    return nd__atomic_fetch_add(word, value, relaxed);
#endif
}

/// Adds and returns what was there before.
static inline uint64_t nd__fetch_add_relaxed(_Atomic uint64_t *word, uint64_t value) {
    if (nd__single_threaded())
        return nd__fetch_add_alone(word, value);
    return nd__atomic_fetch_add(word, value, relaxed);
}

/// Subtracts and returns what was there before; everything the thread did before is visible to
/// whoever subtracts last.
static inline uint64_t nd__fetch_sub_acq_rel(_Atomic uint64_t *word, uint64_t value) {
    if (nd__single_threaded())
        return nd__fetch_add_alone(word, UINT64_C(0) - value);
    return nd__atomic_fetch_sub(word, value, acq_rel);
}

static inline uint32_t nd__fetch_or_flags(_Atomic uint32_t *flags, uint32_t bits) {
    if (nd__single_threaded()) {
        uint32_t before = nd__atomic_load(flags, relaxed);
        nd__atomic_store(flags, before | bits, relaxed);
        return before;
    }
    return nd__atomic_fetch_or(flags, bits, acq_rel);
}

static inline uint32_t nd__fetch_clear_flags(_Atomic uint32_t *flags, uint32_t bits) {
    return nd__atomic_fetch_and(flags, ~bits, acq_rel);
}

/// Raises *peak to at least value.
static inline void nd__raise_to(_Atomic uint64_t *peak, uint64_t value) {
    uint64_t seen = nd__atomic_load(peak, relaxed);
    while (seen < value && !nd__atomic_cas(peak, &seen, value, relaxed, relaxed))
        ;
}

/// A mutex: 0 free, 1 held. Static zero is free. Giving it up takes no locked instruction, and looks at
/// `waiters` afterwards, so it lies in memory that stays a lock (nd__lock_wait).
typedef struct nd_lock {
    _Atomic uint32_t state;
    _Atomic uint32_t waiters; ///< threads that sleep, or are about to
} nd_lock;

void nd__lock_wait(nd_lock *lock);
void nd__lock_wake(nd_lock *lock);

/// Free, with nobody waiting: what a lock is in a forked child, where those who held it or waited are not.
static inline void nd__lock_begin(nd_lock *lock) {
    nd__atomic_store(&lock->state, 0, relaxed);
    nd__atomic_store(&lock->waiters, 0, relaxed);
}

static inline bool nd__try_lock(nd_lock *lock) {
    uint32_t expected = 0;
    return nd__atomic_cas(&lock->state, &expected, 1, acquire, relaxed);
}

/// Takes the lock if that needs no waiting.
static inline bool nd__lock_at_once(nd_lock *lock) {
#ifdef ND_MODEL
    nd__lock_wait(lock); // one step: waits until it is free, and takes it
    return true;
#else
    if (!nd__single_threaded())
        return nd__try_lock(lock);
    nd__atomic_store(&lock->state, 1, relaxed);
    return true;
#endif
}

static inline void nd__lock(nd_lock *lock) {
    if (__builtin_expect(!nd__lock_at_once(lock), 0))
        nd__lock_wait(lock);
}

static inline void nd__unlock(nd_lock *lock) {
    nd__atomic_store(&lock->state, 0, release);
#ifndef ND_MODEL // where nobody sleeps: taking it waits, in one step
    nd__compiler_fence();
    if (__builtin_expect(nd__atomic_load(&lock->waiters, relaxed) != 0, 0))
        nd__lock_wake(lock);
#endif
}

/// Lets another thread run.
void nd__yield(void);

/// Sleeps for so many nanoseconds, or about.
void nd__nap(uint64_t nanoseconds);

/// Tells the core that this is a spin.
static inline void nd__cpu_relax(void) {
#if defined(ND_MODEL)
    nd__yield();
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/// Sleeps while *word == value (may return early).
void nd__futex_wait(_Atomic uint32_t *word, uint32_t value);
/// Wakes everybody who sleeps on the word. True when there was somebody.
bool nd__futex_wake_all(_Atomic uint32_t *word);

/// Makes every running thread of the process execute a full fence, so that its own threads need none
/// on their fast path. Prepare once; false when the kernel cannot.
bool nd__process_barrier_prepare(void);
/// False when the kernel refuses: then there was none.
bool nd__process_barrier(void);
/// In its place: takes a millisecond, and cannot be refused.
void nd__process_barrier_slow(void);
#endif
