// The atomic operations that the core is made of: nothing in its rooms uses <stdatomic.h>
// operations on shared words except through here, or spells out its memory order.
//
// While the process has one thread (glibc's __libc_single_threaded) a read-modify-write is not
// locked: an order of magnitude cheaper. The flag only ever changes in this thread, by creating
// another. One that adds is a single instruction all the same, because signal handlers may retain
// and release (threading.md).
#ifndef ND_LIB_BASE_ATOMICS_H
#define ND_LIB_BASE_ATOMICS_H
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
#define nd__atomic_full_fence() atomic_thread_fence(memory_order_seq_cst)
/// Keeps the compiler, not the processor, from moving memory accesses.
#define nd__atomic_compiler_fence() atomic_signal_fence(memory_order_seq_cst)

static inline bool nd__atomic_single_threaded(void) {
    return __builtin_expect(__libc_single_threaded, 0);
}
#endif

static inline uint64_t nd__atomic_load_relaxed(const _Atomic uint64_t *word) {
    return nd__atomic_load(word, relaxed);
}

/// Adds and returns what was there before, in a process with one thread. A signal handler does not
/// come into the addition, but may come before the look at what it made. That tells right all the
/// same whether a count was the last one: what a handler may touch there has a handle that stays
/// while it runs. (One instruction that does both, xadd, takes four times as long, as processors do
/// not hand what it stores on to the next one.)
static inline uint64_t nd__atomic_add_alone(_Atomic uint64_t *word, uint64_t value) {
#if defined(ND_MODEL)
    // A thread stands for the signal handler, of which its thread sees everything in order; it may
    // be interrupted, which no handler is by its own thread, so this is one step.
    return nd__atomic_fetch_add(word, value, acq_rel);
#elif defined(__x86_64__)
    __asm__ volatile("addq %1, %0" : "+m"(*(uint64_t *)(uintptr_t)word) : "er"(value) : "cc");
    return nd__atomic_load(word, relaxed) - value;
#else
    return nd__atomic_fetch_add(word, value, relaxed);
#endif
}

/// Adds and returns what was there before.
static inline uint64_t nd__atomic_add_relaxed(_Atomic uint64_t *word, uint64_t value) {
    if (nd__atomic_single_threaded())
        return nd__atomic_add_alone(word, value);
    return nd__atomic_fetch_add(word, value, relaxed);
}

/// Subtracts and returns what was there before; everything the thread did before is visible to
/// whoever subtracts last.
static inline uint64_t nd__atomic_subtract(_Atomic uint64_t *word, uint64_t value) {
    if (nd__atomic_single_threaded())
        return nd__atomic_add_alone(word, UINT64_C(0) - value);
    return nd__atomic_fetch_sub(word, value, acq_rel);
}

static inline uint32_t nd__atomic_set_flags(_Atomic uint32_t *flags, uint32_t bits) {
    if (nd__atomic_single_threaded()) {
        uint32_t before = nd__atomic_load(flags, relaxed);
        nd__atomic_store(flags, before | bits, relaxed);
        return before;
    }
    return nd__atomic_fetch_or(flags, bits, acq_rel);
}

static inline uint32_t nd__atomic_clear_flags(_Atomic uint32_t *flags, uint32_t bits) {
    return nd__atomic_fetch_and(flags, ~bits, acq_rel);
}

/// Raises *peak to at least value.
static inline void nd__atomic_raise(_Atomic uint64_t *peak, uint64_t value) {
    uint64_t seen = nd__atomic_load(peak, relaxed);
    while (seen < value && !nd__atomic_cas(peak, &seen, value, relaxed, relaxed))
        ;
}

#endif
