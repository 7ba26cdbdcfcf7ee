/// @file
/// Retain and release without a call, for translation units that define ND_INLINE_COUNTS.
///
/// While the process has one thread, a count that neither dies nor overflows is changed in place;
/// everything else is nd_object_retain() and nd_object_release(). What this builds into a program is
/// part of the library's binary interface: the first eight bytes of every object are its count word,
/// whose low half is the strong count and whose high half is a version; a retain adds ND__RETAIN_STEP
/// and a release subtracts 1, both only while the count is between 1 and ND__COUNT_LIMIT.
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
extern "C" {
#endif

#define ND__RETAIN_STEP ((UINT64_C(1) << 32) + 1)
#define ND__COUNT_LIMIT UINT32_C(0x80000000)

void *nd_object_retain(const void *object);

__attribute__((warn_unused_result)) static inline void *nd__retain_inline(const void *object) {
    if (__builtin_expect(object && ND__SINGLE_THREADED, 1)) {
        uint64_t *word = (uint64_t *)(uintptr_t)object;
        uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect((uint32_t)before - 1 < ND__COUNT_LIMIT - 2, 1)) {
            __atomic_store_n(word, before + ND__RETAIN_STEP, __ATOMIC_RELAXED);
            return (void *)word;
        }
    }
    return nd_object_retain(object);
}

static inline void nd__release_inline(void *object) {
    if (__builtin_expect(object && ND__SINGLE_THREADED, 1)) {
        uint64_t *word = (uint64_t *)object;
        uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect((uint32_t)before - 2 <= ND__COUNT_LIMIT - 2, 1)) {
            __atomic_store_n(word, before - 1, __ATOMIC_RELAXED);
            return;
        }
    }
    nd_object_release(object);
}

#ifdef __cplusplus
}
#endif
#endif
