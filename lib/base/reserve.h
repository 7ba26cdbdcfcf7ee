// Memory for what frees memory: when the system has none left, a reserve of the process serves.
//
// A collection needs room for its passes, most of all when there is none. What is obtained here
// must be given back here. For the passes of a collection and for lists of managers, nothing else:
// the reserve is small.
#ifndef ND_LIB_BASE_RESERVE_H
#define ND_LIB_BASE_RESERVE_H
#include <stddef.h>

/// Enough for the passes over some 290,000 tracked objects.
#define ND__RESERVE_BYTES ((size_t)8 << 20)

/// Uninitialised memory, or NULL: neither the system nor the reserve has it. While a test makes
/// allocations fail (nd__alloc_should_fail), the reserve is empty. Any thread.
void *nd__reserve_malloc(size_t bytes);
/// Grows a block of `before` bytes; NULL: as it was.
void *nd__reserve_realloc(void *pointer, size_t before, size_t bytes);
void nd__reserve_free(void *pointer);

/// The same for one large block at a time: the largest that was given up last is kept for the next
/// who asks, because an allocator returns such memory to the system at once, and the next
/// collection would have every page of it faulted in anew. `*bytes` is what is wanted, and becomes
/// what there is.
void *nd__reserve_take_large(size_t *bytes);
/// Gives up such a block, of what it was.
void nd__reserve_keep_large(void *pointer, size_t bytes);
/// Frees the block that is kept. Returns its bytes.
size_t nd__reserve_trim(void);
#endif
