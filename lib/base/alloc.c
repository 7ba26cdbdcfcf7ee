// Host memory for the library's own structures. Malloc is jemalloc's where the build links it.
#include "lib/base/alloc.h"
#include "lib/base/spawn.h"
#include <stdlib.h>

bool (*nd__alloc_should_fail)(size_t bytes);

static bool is_possible(size_t bytes) {
    return nd__alloc_allowed(bytes) && nd__spawn_may_allocate();
}

void *nd__alloc(size_t bytes) {
    return is_possible(bytes) ? malloc(bytes) : NULL;
}

void *nd__alloc_zeroed(size_t bytes) {
    return is_possible(bytes) ? calloc(1, bytes) : NULL;
}

void *nd__alloc_aligned(size_t alignment, size_t bytes) {
    void *pointer;
    return is_possible(bytes) && posix_memalign(&pointer, alignment, bytes) == 0 ? pointer : NULL;
}

void *nd__alloc_resize(void *pointer, size_t bytes) {
    return is_possible(bytes) ? realloc(pointer, bytes) : NULL;
}

void nd__alloc_free(void *pointer) {
    free(pointer);
}
