// One growing block of working memory per thread.
//
// A block above ND__KEEP_BYTES is given back by the next smaller request, so that one large call
// does not pin its memory for good.
#include "kernels/cpu/scratch.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define ND__KEEP_BYTES ((size_t)16 << 20)

static _Thread_local struct {
    void *block;
    size_t bytes;
} scratch;

static _Atomic uint64_t all_bytes; ///< of all threads' blocks

static pthread_key_t thread_end;
static bool key_exists;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forget_block(void) {
    atomic_fetch_sub_explicit(&all_bytes, scratch.bytes, memory_order_relaxed);
    scratch.block = NULL;
    scratch.bytes = 0;
}

/// Destructors of other keys may compute after this one.
static void free_at_end(void *block) {
    forget_block();
    free(block);
}

static void make_key(void) {
    key_exists = pthread_key_create(&thread_end, free_at_end) == 0;
}

/// At load: later the program may have used up the keys. Without one a thread's block stays when it
/// ends.
__attribute__((constructor)) static void make_key_early(void) {
    pthread_once(&once, make_key);
}

uint64_t nd__cpu_scratch_trim(void) {
    const uint64_t bytes = scratch.bytes;
    if (bytes > 0) {
        free(scratch.block);
        forget_block();
        if (key_exists)
            pthread_setspecific(thread_end, NULL);
    }
    return bytes;
}

uint64_t nd__cpu_scratch_bytes(void) {
    return atomic_load_explicit(&all_bytes, memory_order_relaxed);
}

void *nd__cpu_scratch(size_t bytes) {
    if (bytes <= scratch.bytes && (scratch.bytes <= ND__KEEP_BYTES || bytes > ND__KEEP_BYTES))
        return scratch.block;
    pthread_once(&once, make_key);
    nd__cpu_scratch_trim();
    const size_t pages = (bytes + 4095) & ~(size_t)4095;
    scratch.block = bytes < SIZE_MAX - 4096 ? aligned_alloc(64, pages) : NULL;
    if (scratch.block) {
        scratch.bytes = pages;
        atomic_fetch_add_explicit(&all_bytes, pages, memory_order_relaxed);
    }
    if (key_exists)
        pthread_setspecific(thread_end, scratch.block);
    return scratch.block;
}
