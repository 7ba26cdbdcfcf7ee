// Host blocks: jemalloc's non-standard API where the build has it, else aligned_alloc.
//
// Large blocks come from an arena of their own: jemalloc's default for them (a special arena that
// returns its pages to the system at once) would fault in every large result anew. The arena keeps
// them for its decay time instead. Very large blocks start on a huge page and ask for them.
//
// jemalloc puts a block of whole pages at a random line of the first of one page more, so that
// blocks do not meet in the processor's caches. 4,096 floats would use five pages in place of four:
// blocks of pages begin on a page here, and the one more is never touched.
#include "lib/memory/host.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/reserve.h"
#include "lib/manager/request.h"
#include "lib/object/block.h"
#include "lib/pressure/pressure.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#if ND_HAVE_JEMALLOC
#include <jemalloc/jemalloc.h>
#include <stdio.h>

#define SMALL_PAGE ((size_t)4 << 10)
#define PAGED_BLOCK ((size_t)14 << 10) // beyond that jemalloc gives whole pages
#define LARGE_BLOCK ((size_t)32 << 10) // what a thread's cache no longer takes
#define HUGE_BLOCK ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

static unsigned large_arena; // 0: jemalloc's own choice
static pthread_once_t large_arena_once = PTHREAD_ONCE_INIT;

static void create_large_arena(void) {
    unsigned arena = 0;
    size_t size = sizeof arena;
    if (mallctl("arenas.create", &arena, &size, NULL, 0) != 0)
        return;
    large_arena = arena;
    // Blocks from this size on would be returned to the system the moment they are freed.
    char name[48];
    size_t threshold = SIZE_MAX / 2;
    snprintf(name, sizeof name, "arena.%u.oversize_threshold", arena);
    mallctl(name, NULL, NULL, &threshold, sizeof threshold);
}

static int block_flags(size_t bytes) {
    if (bytes < LARGE_BLOCK)
        return MALLOCX_ALIGN(bytes > PAGED_BLOCK ? SMALL_PAGE : ND__HOST_ALIGNMENT);
    pthread_once(&large_arena_once, create_large_arena);
    int flags = MALLOCX_ALIGN(bytes < HUGE_BLOCK ? SMALL_PAGE : HUGE_PAGE);
    return large_arena ? flags | MALLOCX_ARENA(large_arena) | MALLOCX_TCACHE_NONE : flags;
}

static void *system_alloc(size_t bytes) {
    void *pointer = mallocx(bytes, block_flags(bytes));
    if (pointer && bytes >= HUGE_BLOCK)
        madvise(pointer, bytes & ~(HUGE_PAGE - 1), MADV_HUGEPAGE); // advice: failing is fine
    return pointer;
}

static void system_free(void *pointer, size_t bytes) {
    sdallocx(pointer, bytes, block_flags(bytes));
}

/// Pages of all arenas in one of jemalloc's states of being unused.
static size_t unused_pages(const char *state) {
    char name[48];
    snprintf(name, sizeof name, "stats.arenas.%u.%s", (unsigned)MALLCTL_ARENAS_ALL, state);
    size_t pages = 0, size = sizeof pages;
    return mallctl(name, &pages, &size, NULL, 0) == 0 ? pages : 0;
}

/// Bytes that no block uses and that the system has not got back.
static uint64_t cached_bytes(void) {
    uint64_t epoch = 1;
    size_t page = 0, size = sizeof page;
    if (mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) != 0 ||
        mallctl("arenas.page", &page, &size, NULL, 0) != 0)
        return ND__UNKNOWN_BYTES;
    return (uint64_t)(unused_pages("pdirty") + unused_pages("pmuzzy")) * page;
}

uint64_t nd__host_trim(void) {
    char name[48];
    snprintf(name, sizeof name, "arena.%u.purge", (unsigned)MALLCTL_ARENAS_ALL);
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    uint64_t before = cached_bytes();
    mallctl(name, NULL, NULL, NULL, 0);
    uint64_t after = cached_bytes();
    return before == ND__UNKNOWN_BYTES || after == ND__UNKNOWN_BYTES ? ND__UNKNOWN_BYTES
           : before > after                                          ? before - after
                                                                     : 0;
}

#else
#include <malloc.h>

static void *system_alloc(size_t bytes) {
    size_t mask = ND__HOST_ALIGNMENT - 1;
    return aligned_alloc(ND__HOST_ALIGNMENT, (bytes + mask) & ~mask);
}

static void system_free(void *pointer, size_t bytes) {
    (void)bytes;
    free(pointer);
}

uint64_t nd__host_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return ND__UNKNOWN_BYTES;
}

static uint64_t cached_bytes(void) {
    return ND__UNKNOWN_BYTES;
}
#endif

static _Atomic uint64_t live_bytes;

void *nd__host_alloc(size_t bytes) {
    if (bytes == 0)
        bytes = 1;
    if (bytes > PTRDIFF_MAX / 2 || !nd__alloc_allowed(bytes))
        return NULL;
    void *pointer = system_alloc(bytes);
    if (pointer)
        nd__atomic_add_relaxed(&live_bytes, bytes);
    return pointer;
}

void nd__host_free(void *pointer, size_t bytes) {
    if (!pointer)
        return;
    if (bytes == 0)
        bytes = 1;
    nd__atomic_subtract(&live_bytes, bytes);
    system_free(pointer, bytes);
}

uint64_t nd__host_live_bytes(void) {
    return nd__atomic_load_relaxed(&live_bytes);
}

static uint64_t trim(int index) {
    (void)index;
    uint64_t kept = nd__reserve_trim() + nd__block_trim();
    uint64_t bytes = nd__host_trim();
    return bytes == ND__UNKNOWN_BYTES ? bytes : bytes + kept;
}

static void usage(int index, nd_memory_usage *ret_usage) {
    (void)index;
    ret_usage->cached = cached_bytes();
    if (ret_usage->cached != ND__UNKNOWN_BYTES)
        ret_usage->cached += nd__block_cached_bytes();
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    ret_usage->limit = limited ? limit.rlim_cur : ND__UNKNOWN_BYTES;
}

const nd_memory_functions nd__ladder_functions = {.trim = trim, .usage = usage};
