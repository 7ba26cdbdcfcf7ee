// Host blocks: jemalloc's non-standard API where the build has it, else the system's allocator, with
// large blocks kept for reuse (kept.h).
//
// Large blocks come from an arena of their own: jemalloc's default for them (a special arena that
// returns its pages to the system at once) would fault in every large result anew. The arena keeps
// them for its decay time instead, and kept.h does for the system's. Huge blocks start on a huge
// page, ask for them, and are the system's and kept.h's either way: for such an alignment jemalloc
// looks at the first free extent of each size only, and where that lies otherwise every result is
// fresh memory.
//
// jemalloc puts a block of whole pages at a random line of the first of one page more, so that
// blocks do not meet in the processor's caches. 4,096 floats would use five pages in place of four:
// blocks of pages begin on a page here, and the one more is never touched.
#include "lib/memory/host.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/clock.h"
#include "lib/base/reserve.h"
#include "lib/base/spawn.h"
#include "lib/manager/request.h"
#include "lib/memory/kept.h"
#include "lib/object/block.h"
#include "lib/pressure/pressure.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/// With a limit, of what is kept, that is smaller: looked at each time that so much has been freed.
#define LEAST_LOOK ((uint64_t)1 << 20)

// What sanitizers are to see go has to go.
#if defined(__SANITIZE_ADDRESS__)
#define KEEPS 0
#elif defined(__has_feature)
#define KEEPS !__has_feature(address_sanitizer)
#else
#define KEEPS 1
#endif

#define HUGE_BLOCK ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

static char *map(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/// Pages that ask for huge ones, and begin on one unless there is no room to choose.
static void *map_huge(size_t size) {
    char *memory = map(size + HUGE_PAGE);
    if (!memory)
        return map(size);
    const size_t before = -(uintptr_t)memory & (HUGE_PAGE - 1);
    if (before)
        munmap(memory, before);
    munmap(memory + before + size, HUGE_PAGE - before);
    madvise(memory + before, size & ~(HUGE_PAGE - 1), MADV_HUGEPAGE); // advice: failing is fine
    return memory + before;
}

/// Of a block that was kept.
static void give_back(void *pointer, size_t size);

static uint64_t give_back_all(nd_kept *blocks) {
    uint64_t bytes = 0;
    while (blocks) {
        nd_kept *next = blocks->next;
        bytes += blocks->bytes;
        give_back(blocks, blocks->bytes);
        blocks = next;
    }
    return bytes;
}

#if ND_HAVE_JEMALLOC
#include <jemalloc/jemalloc.h>
#include <stdio.h>

#define SMALL_PAGE ((size_t)4 << 10)
#define PAGED_BLOCK ((size_t)14 << 10) // beyond that jemalloc gives whole pages
#define LARGE_BLOCK ((size_t)32 << 10) // what a thread's cache no longer takes

/// What a collection frees lies together, and jemalloc joins it into extents of hundreds of MiB. As a
/// rule it takes nothing from an extent 64 times as large as what is asked for, so until these decayed
/// all that was made next would be fresh memory, with or without a quota. A program's own one wins.
__attribute__((weak)) const char *malloc_conf = "lg_extent_max_active_fit:63";

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
    int flags = MALLOCX_ALIGN(SMALL_PAGE);
    return large_arena ? flags | MALLOCX_ARENA(large_arena) | MALLOCX_TCACHE_NONE : flags;
}

static void give_back(void *pointer, size_t size) {
    munmap(pointer, size);
}

static void *system_alloc(size_t bytes) {
    if (!KEEPS || bytes < HUGE_BLOCK)
        return nd__spawn_may_allocate() ? mallocx(bytes, block_flags(bytes)) : NULL;
    const size_t size = nd__kept_size(bytes);
    void *pointer = nd__kept_take(size);
    return pointer ? pointer : map_huge(size);
}

static void purge(void) {
    char name[48];
    snprintf(name, sizeof name, "arena.%u.purge", (unsigned)MALLCTL_ARENAS_ALL);
    mallctl(name, NULL, NULL, NULL, 0);
}

static void keep_within(uint64_t limit) {
    give_back_all(nd__kept_set_most(limit));
    uint64_t cached = nd__host_cached_bytes();
    if (cached != ND__UNKNOWN_BYTES && cached > limit)
        purge();
}

static void system_free(void *pointer, size_t bytes) {
    if (!KEEPS || bytes < HUGE_BLOCK)
        sdallocx(pointer, bytes, block_flags(bytes));
    else
        give_back_all(nd__kept_put(pointer, nd__kept_size(bytes), nd__clock_coarse_ns()));
}

/// Pages of all arenas in one of jemalloc's states of being unused.
static size_t unused_pages(const char *state) {
    char name[48];
    snprintf(name, sizeof name, "stats.arenas.%u.%s", (unsigned)MALLCTL_ARENAS_ALL, state);
    size_t pages = 0, size = sizeof pages;
    return mallctl(name, &pages, &size, NULL, 0) == 0 ? pages : 0;
}

/// Bytes that no block uses and that the system has not got back.
uint64_t nd__host_cached_bytes(void) {
    uint64_t epoch = 1;
    size_t page = 0, size = sizeof page;
    if (!nd__spawn_may_allocate() || mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) != 0 ||
        mallctl("arenas.page", &page, &size, NULL, 0) != 0)
        return ND__UNKNOWN_BYTES;
    return (uint64_t)(unused_pages("pdirty") + unused_pages("pmuzzy")) * page + nd__kept_bytes();
}

uint64_t nd__host_trim(void) {
    const bool has = nd__spawn_may_allocate();
    if (has)
        mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    uint64_t before = nd__host_cached_bytes();
    give_back_all(nd__kept_empty());
    if (has)
        purge();
    uint64_t after = nd__host_cached_bytes();
    return before == ND__UNKNOWN_BYTES || after == ND__UNKNOWN_BYTES ? ND__UNKNOWN_BYTES
           : before > after                                          ? before - after
                                                                     : 0;
}

#else
#include <malloc.h>

static size_t size_of(size_t bytes) {
    const size_t mask = ND__HOST_ALIGNMENT - 1;
    return KEEPS && bytes >= ND__KEPT_LEAST ? nd__kept_size(bytes) : (bytes + mask) & ~mask;
}

static void *obtain(size_t size) {
    return KEEPS && size >= HUGE_BLOCK ? map_huge(size) : aligned_alloc(ND__HOST_ALIGNMENT, size);
}

/// Lets go of the pages that are a block's alone, whoever has their addresses afterwards.
static void drop_pages(char *pointer, size_t size) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)pointer + page - 1) & -page;
    const uintptr_t last = ((uintptr_t)pointer + size) & -page;
    if (first < last)
        madvise(pointer + (first - (uintptr_t)pointer), last - first, MADV_DONTNEED); // advice
}

/// malloc keeps what is free at the end of another thread's heap, tens of MiB of each, also when it is
/// asked (malloc_trim()): it gets blocks whose pages are gone.
static void give_back(void *pointer, size_t size) {
    if (KEEPS && size >= HUGE_BLOCK) {
        munmap(pointer, size);
        return;
    }
    if (KEEPS && size >= ND__KEPT_LEAST)
        drop_pages(pointer, size);
    free(pointer);
}

static void *system_alloc(size_t bytes) {
    const size_t size = size_of(bytes);
    void *pointer = KEEPS && bytes >= ND__KEPT_LEAST ? nd__kept_take(size) : NULL;
    return pointer ? pointer : obtain(size);
}

static void system_free(void *pointer, size_t bytes) {
    const size_t size = size_of(bytes);
    if (KEEPS && bytes >= ND__KEPT_LEAST)
        give_back_all(nd__kept_put(pointer, size, nd__clock_coarse_ns()));
    else
        give_back(pointer, size);
}

/// What malloc returns to the system it does not say.
uint64_t nd__host_trim(void) {
    const uint64_t bytes = give_back_all(nd__kept_empty());
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return KEEPS ? bytes : ND__UNKNOWN_BYTES;
}

/// Of kept blocks there is never more; what malloc keeps of others it does not say.
static void keep_within(uint64_t limit) {
    give_back_all(nd__kept_set_most(limit));
#ifdef __GLIBC__
    if (limit != UINT64_MAX)
        malloc_trim(0);
#endif
}

/// What malloc keeps it does not say.
uint64_t nd__host_cached_bytes(void) {
    return KEEPS ? nd__kept_bytes() : ND__UNKNOWN_BYTES;
}
#endif

static _Atomic uint64_t live_bytes;
static _Atomic uint64_t limit_of_cached = UINT64_MAX;
static _Atomic uint64_t freed_bytes; ///< since somebody looked how much is cached

/// Looking takes time, so it is done when so much has been freed that it may matter.
static void count_freed(uint64_t limit, size_t bytes) {
    const uint64_t often = limit / 8 > LEAST_LOOK ? limit / 8 : LEAST_LOOK;
    if (nd__atomic_fetch_add(&freed_bytes, bytes, relaxed) + bytes < often)
        return;
    nd__atomic_store(&freed_bytes, 0, relaxed);
    keep_within(limit);
}

void nd__host_set_limit(uint64_t bytes) {
    nd__atomic_store(&limit_of_cached, bytes, relaxed);
    keep_within(bytes);
}

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
    if (bytes >= ND__KEPT_LEAST)
        nd__block_look();
    const uint64_t limit = nd__atomic_load_relaxed(&limit_of_cached);
    if (__builtin_expect(limit != UINT64_MAX, 0))
        count_freed(limit, bytes);
}

uint64_t nd__host_live_bytes(void) {
    return nd__atomic_load_relaxed(&live_bytes);
}

static nd_host_keeper *keepers;

void nd__host_add_keeper(nd_host_keeper *keeper) {
    keeper->next = keepers;
    keepers = keeper;
}

uint64_t nd__host_keeper_bytes(void) {
    uint64_t bytes = 0;
    for (const nd_host_keeper *keeper = keepers; keeper; keeper = keeper->next)
        bytes += keeper->bytes();
    return bytes;
}

void nd__host_trim_plans(void) {
    for (const nd_host_keeper *keeper = keepers; keeper; keeper = keeper->next)
        keeper->trim_plans();
}

static uint64_t trim(int index) {
    (void)index;
    uint64_t kept = nd__reserve_trim() + nd__block_trim();
    for (const nd_host_keeper *keeper = keepers; keeper; keeper = keeper->next)
        kept += keeper->trim();
    uint64_t bytes = nd__host_trim();
    return bytes == ND__UNKNOWN_BYTES ? bytes : bytes + kept;
}

/// A quarter for objects, which are small, the rest for data.
static void limit(int index, uint64_t bytes) {
    (void)index;
    nd__block_set_limit(bytes == UINT64_MAX ? bytes : bytes / 4);
    nd__host_set_limit(bytes == UINT64_MAX ? bytes : bytes - bytes / 4);
}

static void usage(int index, nd_memory_usage *ret_usage) {
    (void)index;
    ret_usage->cached = nd__host_cached_bytes();
    if (ret_usage->cached != ND__UNKNOWN_BYTES)
        ret_usage->cached += nd__block_cached_bytes() + nd__host_keeper_bytes();
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    ret_usage->limit = limited ? limit.rlim_cur : ND__UNKNOWN_BYTES;
}

const nd_memory_functions nd__ladder_functions = {.trim = trim, .limit = limit, .usage = usage};
