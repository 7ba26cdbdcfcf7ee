// The work of T1 as a program does it that defines ND_INLINE_COUNTS.
#define ND_INLINE_COUNTS
#include "bench/refcount_inline.h"
#include <nd/nd.h>

bool retain_release_inline(void *data, uint64_t count) {
    nd_tensor *x = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *handle = nd_retain(x);
        nd_release(handle);
    }
    return true;
}
