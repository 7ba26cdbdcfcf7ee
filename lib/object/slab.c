// The memory of slabs, from the system (slab.h). A huge page is asked for where it is sure to be used.
#include "lib/object/slab.h"
#include <sys/mman.h>

/// What is mapped at once when there are many slabs: a huge page.
#define CHUNK_BYTES ((size_t)2 << 20)

void *nd__slab_map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/// Memory at a multiple of its size, a power of two. The system puts one mapping beside the other,
/// so most are there at once.
static char *map_aligned(size_t bytes) {
    char *memory = nd__slab_map(bytes);
    size_t off = (uintptr_t)memory & (bytes - 1);
    if (!off)
        return memory;
    munmap(memory, bytes);
    memory = nd__slab_map(2 * bytes);
    if (!memory)
        return NULL;
    size_t before = -(uintptr_t)memory & (bytes - 1);
    if (before)
        munmap(memory, before);
    munmap(memory + before + bytes, bytes - before);
    return memory + before;
}

/// Has the system put one huge page there now, and never again: what is given back of it must not
/// come back when the system finds the rest to be in use.
static void make_huge(char *chunk) {
    if (madvise(chunk, CHUNK_BYTES, MADV_HUGEPAGE) != 0)
        return;
    *(volatile char *)chunk = 0;
    madvise(chunk, CHUNK_BYTES, MADV_NOHUGEPAGE);
}

size_t nd__slab_map_some(bool many, char **ret_memory) {
    char *memory = many ? map_aligned(CHUNK_BYTES) : NULL;
    if (memory) {
        make_huge(memory);
        *ret_memory = memory;
        return CHUNK_BYTES / ND__SLAB_BYTES;
    }
    *ret_memory = map_aligned(ND__SLAB_BYTES);
    return *ret_memory != NULL;
}
