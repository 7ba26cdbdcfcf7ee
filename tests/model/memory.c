// Arena, shadow and snapshot (memory.h); takes the place of lib/base/alloc.c.
//
// What must survive from one execution to the next lives outside the program's static data, which
// the snapshot puts back. Of the static data that is the reserve of lib/base/reserve.c: two
// megabytes of zeros, which are only put back when a program has been there.
#include "tests/model/memory.h"
#include "lib/base/alloc.h"
#include "tests/model/scheduler.h"
#include "tests/model/scheduler_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PART = 1 << 18, ///< of the arena, for each thread, so that addresses do not depend on order
    ARENA = PART * MODEL_THREADS,
    UNIT = 16, ///< of liveness
    CELL = 4,  ///< of the arena's shadow; that of statics, of which the linker puts any two side
               ///< by side, has a cell for each byte
    CHUNK = 1 << 8, ///< of the arena, of which is known whether it was touched
    PAGE = 1 << 12,
    MOST_ZERO_PAGES = 1 << 10,
};
enum { FRESH = 0, LIVE = 1, FREED = 2 };

/// Who touched four bytes last. Valid when its execution is the current one.
typedef struct cell {
    uint64_t execution;
    uint32_t read[MODEL_THREADS], touched[MODEL_THREADS]; ///< time of plain and of atomic accesses
    uint32_t written;                                     ///< time of the last plain write
    uint8_t writer;
} cell;

typedef struct block {
    size_t size, units;
} block;

typedef struct arena {
    _Alignas(64) char bytes[ARENA];
    uint8_t state[ARENA / UNIT];
    size_t used[MODEL_THREADS], live;
    cell cells[ARENA / CELL];
    // The snapshot.
    char saved_bytes[ARENA];
    uint8_t saved_state[ARENA / UNIT];
    size_t saved_used[MODEL_THREADS], saved_live;
    char *statics, *saved_statics;
    size_t statics_size;
    cell *static_cells;
    size_t zero, zero_end;              ///< the largest part of the static data that is zero
    bool zero_touched[MOST_ZERO_PAGES]; ///< its pages
    uint64_t touched[ARENA / CHUNK];    ///< the last execution that did
    uint64_t execution;
} arena;

static arena *memory;
bool memory_races_reported = true;
bool (*nd__alloc_should_fail)(size_t bytes);

extern char __data_start[], _end[];

static void *map(size_t bytes) {
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        fputs("no memory for the arena\n", stderr);
        exit(1);
    }
    return mapped;
}

static void begin(void) {
    memory = map(sizeof *memory);
    memory->statics = __data_start;
    memory->statics_size = (size_t)(_end - __data_start);
    memory->saved_statics = map(memory->statics_size);
    memory->static_cells = map((memory->statics_size + sizeof(max_align_t)) * sizeof(cell));
    memory->execution = 1;
}

// ------------------------------------------------------------------------------------- allocation

static size_t part_of(const char *place) {
    return (size_t)(place - memory->bytes) / PART;
}

void *nd__alloc(size_t bytes) {
    if (!nd__alloc_allowed(bytes))
        return NULL;
    if (!memory)
        begin();
    int thread = model_current();
    size_t total = (sizeof(block) + bytes + 63) / 64 * 64 + 64;
    if (memory->used[thread] + total > PART) {
        model_fail("the arena of a thread is full");
        return NULL;
    }
    // Payloads begin on a cache line, behind the line of the header: nothing shares a line.
    char *at = memory->bytes + (size_t)thread * PART + memory->used[thread] + 64;
    memory->used[thread] += total;
    block *header = (block *)(void *)(at - sizeof(block));
    header->size = bytes;
    header->units = (bytes + UNIT - 1) / UNIT;
    memset(memory->state + (at - memory->bytes) / UNIT, LIVE, header->units);
    memory->live++;
    memset(at, 0xA5, bytes);
    return at;
}

void *nd__alloc_zeroed(size_t bytes) {
    void *made = nd__alloc(bytes);
    return made ? memset(made, 0, bytes) : NULL;
}

void *nd__alloc_aligned(size_t alignment, size_t bytes) {
    (void)alignment; // of a cache line, as every block here
    return nd__alloc(bytes);
}

void *nd__alloc_resize(void *pointer, size_t bytes) {
    void *made = nd__alloc(bytes);
    if (made && pointer) {
        size_t before = ((block *)pointer - 1)->size;
        memcpy(made, pointer, before < bytes ? before : bytes);
        nd__alloc_free(pointer);
    }
    return made;
}

void nd__alloc_free(void *pointer) {
    if (!pointer)
        return;
    char *at = pointer;
    block *header = (block *)pointer - 1;
    uint8_t *state = memory->state + (at - memory->bytes) / UNIT;
    if (part_of(at) >= MODEL_THREADS || *state != LIVE) {
        model_fail("free of a block that is %s", *state == FREED ? "free already" : "none");
        return;
    }
    model_free_here(pointer, header->size);
    memset(state, FREED, header->units);
    memory->live--;
}

size_t memory_live_blocks(void) {
    return memory ? memory->live : 0;
}

// ---------------------------------------------------------------------------------------- accesses

static cell *cells_of(const char *place, size_t size, size_t *ret_count) {
    size_t offset = (size_t)(place - memory->bytes);
    if (offset < ARENA) {
        memory->touched[offset / CHUNK] = memory->execution;
        *ret_count = (size + CELL - 1) / CELL;
        return memory->cells + offset / CELL;
    }
    offset = (size_t)(place - memory->statics);
    if (offset >= memory->statics_size)
        return NULL;
    if (offset - memory->zero < memory->zero_end - memory->zero)
        memory->zero_touched[(offset - memory->zero) / PAGE] = true;
    *ret_count = size;
    return memory->static_cells + offset;
}

static const char *race_of(const cell *touched, int thread, const model_clock *clock, bool write,
                           bool atomic) {
    if (touched->written && touched->writer != thread &&
        touched->written > clock->time[touched->writer])
        return "a write";
    for (int other = 0; other < MODEL_THREADS; other++) {
        if (other == thread)
            continue;
        if (write && !atomic && touched->read[other] > clock->time[other])
            return "a read";
        if (write && !atomic && touched->touched[other] > clock->time[other])
            return "an atomic access";
    }
    return NULL;
}

void memory_access(const volatile void *where, size_t size, int thread, const model_clock *clock,
                   bool write, bool atomic) {
    const char *place = (const char *)(uintptr_t)where;
    if (!memory)
        return;
    size_t offset = (size_t)(place - memory->bytes);
    if (offset < ARENA && memory->state[offset / UNIT] != LIVE) {
        char name[64];
        model_place_name(place, name, sizeof name);
        model_fail("%s of %s, which is %s", write ? "write" : "read", name,
                   memory->state[offset / UNIT] == FREED ? "free" : "no block");
        return;
    }
    size_t count = 0;
    cell *touched = cells_of(place, size, &count);
    if (!touched || thread == MODEL_MAIN) // which runs before all others, and after them
        return;
    for (cell *last = touched + count; touched < last; touched++) {
        if (touched->execution != memory->execution) {
            memset(touched, 0, sizeof *touched);
            touched->execution = memory->execution;
        }
        const char *race =
            memory_races_reported ? race_of(touched, thread, clock, write, atomic) : NULL;
        if (race) {
            char name[64];
            model_place_name(place, name, sizeof name);
            model_fail("%s of %s is not ordered with %s by another thread",
                       atomic  ? "atomic access"
                       : write ? "plain write or free"
                               : "plain read",
                       name, race);
            return;
        }
        if (atomic) {
            touched->touched[thread] = clock->time[thread];
        } else if (write) {
            touched->written = clock->time[thread];
            touched->writer = (uint8_t)thread;
        } else {
            touched->read[thread] = clock->time[thread];
        }
    }
}

void memory_free(void *block_begin, size_t size, int thread, const model_clock *clock) {
    char *at = block_begin, *end = at + size;
    while (at < end) {
        size_t offset = (size_t)(at - memory->bytes);
        char *next = memory->bytes + (offset / CHUNK + 1) * CHUNK;
        size_t length = (size_t)((next < end ? next : end) - at);
        if (memory->touched[offset / CHUNK] == memory->execution) {
            memory_access(at, length, thread, clock, true, false);
            model_freed(at, length);
        }
        at = next;
    }
}

// ---------------------------------------------------------------------------------------- snapshot

/// The longest row of pages without anything in them.
static void find_zeros(void) {
    static const char nothing[PAGE];
    size_t begin = 0;
    memory->zero = memory->zero_end = 0;
    for (size_t at = 0; at + PAGE <= memory->statics_size; at += PAGE) {
        if (memcmp(memory->statics + at, nothing, PAGE) != 0)
            begin = at + PAGE;
        else if (at + PAGE - begin > memory->zero_end - memory->zero &&
                 at + PAGE - begin <= (size_t)MOST_ZERO_PAGES * PAGE)
            memory->zero = begin, memory->zero_end = at + PAGE;
    }
}

void memory_take_snapshot(void) {
    if (!memory)
        begin();
    for (int thread = 0; thread < MODEL_THREADS; thread++)
        memcpy(memory->saved_bytes + (size_t)thread * PART, memory->bytes + (size_t)thread * PART,
               memory->used[thread]);
    memcpy(memory->saved_state, memory->state, sizeof memory->state);
    memcpy(memory->saved_used, memory->used, sizeof memory->used);
    memory->saved_live = memory->live;
    memcpy(memory->saved_statics, memory->statics, memory->statics_size);
    find_zeros();
}

void memory_restore_snapshot(void) {
    memory->execution++;
    for (size_t thread = 0; thread < MODEL_THREADS; thread++) {
        size_t used = memory->used[thread], saved = memory->saved_used[thread];
        char *bytes = memory->bytes + thread * PART;
        memcpy(bytes, memory->saved_bytes + thread * PART, saved);
        memcpy(memory->state + thread * PART / UNIT, memory->saved_state + thread * PART / UNIT,
               used / UNIT);
    }
    memcpy(memory->used, memory->saved_used, sizeof memory->used);
    memory->live = memory->saved_live;
    for (size_t page = 0; page < (memory->zero_end - memory->zero) / PAGE; page++)
        if (memory->zero_touched[page]) {
            memset(memory->statics + memory->zero + page * PAGE, 0, PAGE);
            memory->zero_touched[page] = false;
        }
    memcpy(memory->statics, memory->saved_statics, memory->zero);
    memcpy(memory->statics + memory->zero_end, memory->saved_statics + memory->zero_end,
           memory->statics_size - memory->zero_end);
}
