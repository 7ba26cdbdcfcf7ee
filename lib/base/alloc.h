// Host memory for the library's own structures: one path, so that tests can make any allocation
// fail.
//
// Invariant: every block obtained here is given back here (LeakSanitizer checks it in the tests).
// Objects do not lie in it, but in blocks (block.h).
#ifndef ND_LIB_BASE_ALLOC_H
#define ND_LIB_BASE_ALLOC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Uninitialised / zeroed memory, or NULL (no error is set: the caller knows what it was for).
void *nd__alloc(size_t bytes);
void *nd__alloc_zeroed(size_t bytes);
/// Uninitialised, at a multiple of `alignment`, a power of two.
void *nd__alloc_aligned(size_t alignment, size_t bytes);
/// Grows or shrinks; on failure NULL and `pointer` is still valid.
void *nd__alloc_resize(void *pointer, size_t bytes);
void nd__alloc_free(void *pointer);

/// When set, asked before every allocation of the library, host storage included; true makes it
/// fail. For tests.
extern bool (*nd__alloc_should_fail)(size_t bytes);
/// False when the test hook refuses. Every allocator of the library (host storage, fake device)
/// asks.
static inline bool nd__alloc_allowed(size_t bytes) {
    return __builtin_expect(nd__alloc_should_fail == NULL, 1) || !nd__alloc_should_fail(bytes);
}
#endif
