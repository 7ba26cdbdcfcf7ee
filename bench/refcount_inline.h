// retain + release in a translation unit that defines ND_INLINE_COUNTS.
#ifndef ND_BENCH_REFCOUNT_INLINE_H
#define ND_BENCH_REFCOUNT_INLINE_H
#include <stdbool.h>
#include <stdint.h>

bool retain_release_inline(void *data, uint64_t count);
#endif
