/// @file
/// Retain and release without a call, for translation units that define ND_INLINE_COUNTS.
///
/// While the process has one thread, a count that neither dies nor overflows is changed in place,
/// by one instruction that adds, so that a signal handler may do the same; everything else is
/// nd_object_retain() and nd_object_release(). What this builds into a program is
/// part of the library's binary interface: the first eight bytes of every object are its count
/// word, whose low half is the strong count and whose high half is a version; a retain adds
/// ND__RETAIN_STEP and a release subtracts 1, and what this does to a count beyond 1 and
/// ND__COUNT_LIMIT it undoes before it calls.
///
/// gcc does not attach an owner to what an inline function returns: leave the macro undefined where
/// -fanalyzer shall find leaked and doubly released handles.
#ifndef ND_DETAIL_COUNTS_H
#define ND_DETAIL_COUNTS_H
#include <nd/base.h>
#ifdef __has_include
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define ND__SINGLE_THREADED __libc_single_threaded
#endif
#endif
#ifndef ND__SINGLE_THREADED
#define ND__SINGLE_THREADED 0
#endif
#ifdef __cplusplus
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast" // inline functions that are C, too
extern "C" {
#endif

#define ND__RETAIN_STEP ((UINT64_C(1) << 32) + 1)
#define ND__COUNT_LIMIT UINT32_C(0x80000000)

void *nd_object_retain(const void *object);

/// Adds in one instruction, so that no count of a signal handler is lost, and returns what was there
/// before, but for what a handler changes between that and the look at it (lib/base/atomics.h).
static inline uint64_t nd__add_to_count(uint64_t *word, uint64_t value) {
#ifdef __x86_64__
    __asm__ volatile("addq %1, %0" : "+m"(*word) : "er"(value) : "cc", "memory");
    return __atomic_load_n(word, __ATOMIC_RELAXED) - value;
#else
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
#endif
}

__attribute__((__warn_unused_result__)) static inline void *nd__retain_inline(const void *object) {
    if (__builtin_expect(object && ND__SINGLE_THREADED, 1)) {
        uint64_t *word = (uint64_t *)(uintptr_t)object;
        uint64_t before = nd__add_to_count(word, ND__RETAIN_STEP);
        if (__builtin_expect((uint32_t)before - 1 < ND__COUNT_LIMIT - 2, 1))
            return (void *)word;
        nd__add_to_count(word, UINT64_C(0) - ND__RETAIN_STEP);
    }
    return nd_object_retain(object);
}

static inline void nd__release_inline(void *object) {
    if (__builtin_expect(object && ND__SINGLE_THREADED, 1)) {
        uint64_t *word = (uint64_t *)object;
        uint64_t before = nd__add_to_count(word, UINT64_MAX);
        if (__builtin_expect((uint32_t)before - 2 <= ND__COUNT_LIMIT - 2, 1))
            return;
        nd__add_to_count(word, 1);
    }
    nd_object_release(object);
}

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif
#endif
