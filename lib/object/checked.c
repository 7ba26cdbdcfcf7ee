// Observed blocks: their allocation, the quarantine, and what is said of a dead object (checked.h).
//
// Invariant: a block in quarantine is linked there, its header as its death left it. `bytes` is the
// sum of their classes' sizes. With places a block ends in a record, which begins empty.
#include "lib/object/checked.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/lock.h"
#include "lib/base/seam.h"
#include "lib/object/block.h"
#include "lib/object/name.h"
#include "lib/object/object.h"
#include <execinfo.h>
#include <nd/manager.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif
#ifdef ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ADDRESS_SANITIZER 0
#define ASAN_POISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#endif

#define MEGABYTE ((size_t)1 << 20)
enum { FRAMES = 12, DEFAULT_MEGABYTES = 256, SANITIZER_MEGABYTES = 16, MOST_MEGABYTES = 1 << 20 };
enum { CLASSES = 1 << (32 - ND__CLASS_SHIFT) };

typedef struct place {
    uint32_t count;
    void *frames[FRAMES]; ///< return addresses, innermost first
} place;

/// The end of a block, with places.
typedef struct record {
    place made, released;
} record;

#ifdef ND_MODEL
nd__checked_settings nd__checked_mode = {.decided = true, .careful = true, .returns = true};
#else
nd__checked_settings nd__checked_mode;
#endif

static struct {
    nd_lock lock;
    nd_object *first, *last; ///< by `next`, the oldest first
    size_t bytes;
    nd_object *reusable[CLASSES]; ///< came out, and stay blocks of their class
} quarantine;

// ---------------------------------------------------------------------------------------- the mode

/// Whether valgrind's memcheck runs the program: it has itself preloaded.
static bool runs_in_memcheck(void) {
    const char *preloaded = secure_getenv("LD_PRELOAD");
    return preloaded && strstr(preloaded, "vgpreload_memcheck");
}

void nd__checked_decide(void) {
    nd__checked_settings mode = {.decided = true};
    const char *check = secure_getenv("ND_CHECK");
    char *end = NULL;
    long megabytes = check ? strtol(check, &end, 10) : 0;
    if (check && (megabytes < 0 || *end))
        nd__error_print("ND_CHECK: \"%.40s\" is neither 1, a number of MiB, nor 0", check);
    if (megabytes > 0) {
        megabytes = megabytes == 1               ? DEFAULT_MEGABYTES
                    : megabytes > MOST_MEGABYTES ? MOST_MEGABYTES
                                                 : megabytes;
        mode.careful = mode.places = true;
        mode.limit = (size_t)megabytes * MEGABYTE;
        void *frame;
        backtrace(&frame, 1); // the first one of a process allocates
    } else if (ADDRESS_SANITIZER) {
        mode.careful = mode.returns = true;
        mode.limit = SANITIZER_MEGABYTES * MEGABYTE;
    } else if (runs_in_memcheck()) {
        mode.careful = mode.returns = true;
    }
    nd__checked_mode = mode;
}

__attribute__((constructor)) static void decide_at_start(void) {
    nd__checked_is_on();
}

// ----------------------------------------------------------------------------------------- records

static uint32_t class_of(const nd_object *object) {
    return nd__object_flags(object) >> ND__CLASS_SHIFT;
}

static record *record_in(const nd_object *block) {
    if (!nd__checked_mode.places)
        return NULL;
    char *end = (char *)(uintptr_t)block + nd__block_bytes(class_of(block));
    return (record *)(void *)(end - sizeof(record));
}

static record *record_of(const nd_object *object) {
    return object->type->flags & ND__TYPE_MANAGER ? nd__seam_manager_places(object)
                                                  : record_in(object);
}

__attribute__((noinline)) static void note_place(place *place) {
    void *frames[FRAMES + 2];
    int count = backtrace(frames, FRAMES + 2); // of which two are of this file
    place->count = count > 2 ? (uint32_t)count - 2 : 0;
    memcpy(place->frames, frames + 2, place->count * sizeof frames[0]);
}

void nd__checked_note_death(nd_object *object) {
    record *places = record_of(object);
    if (places)
        note_place(&places->released);
}

size_t nd__checked_places_bytes(void) {
    return nd__checked_is_on() && nd__checked_mode.places ? sizeof(record) : 0;
}

void nd__checked_note_birth(void *places) {
    record *here = places;
    here->released.count = 0;
    note_place(&here->made);
}

size_t nd__checked_waiting(size_t bytes) {
    enum { SHARE = 16 };
    return nd__checked_places_bytes() ? nd__checked_mode.limit / SHARE / bytes : 0;
}

// ------------------------------------------------------------------------------------------ blocks

static nd_object *take_reusable(uint32_t class) {
    nd__lock_acquire(&quarantine.lock);
    nd_object *block = quarantine.reusable[class];
    if (block)
        quarantine.reusable[class] = block->next;
    nd__lock_release(&quarantine.lock);
    return block;
}

void *nd__checked_new(size_t bytes) {
    size_t size = bytes + (nd__checked_mode.places ? sizeof(record) : 0);
    uint32_t class = nd__block_class_of(size);
    size_t whole = nd__block_bytes(class);
    nd_object *block = nd__checked_mode.returns ? NULL : take_reusable(class);
    if (block) {
        nd__block_begin(block, class);
    } else {
        block = nd__alloc_aligned(ND__BLOCK_LINE, whole);
        if (!block)
            return NULL;
        atomic_init(&block->flags, class << ND__CLASS_SHIFT);
    }
    record *places = record_in(block);
    if (places) {
        places->released.count = 0;
        note_place(&places->made);
    } else if (nd__checked_mode.limit) {
        ASAN_POISON_MEMORY_REGION((char *)block + bytes, whole - bytes);
    }
    return block;
}

/// Out of quarantine.
static void let_out(nd_object *block) {
    ASAN_UNPOISON_MEMORY_REGION(block, nd__block_bytes(class_of(block)));
    if (nd__checked_mode.returns) {
        if (nd__object_flags(block) & ND__NAMED)
            nd__name_remove(block);
        nd__alloc_free(block);
        return;
    }
    uint32_t class = class_of(block);
    nd__lock_acquire(&quarantine.lock);
    block->next = quarantine.reusable[class];
    quarantine.reusable[class] = block;
    nd__lock_release(&quarantine.lock);
}

void nd__checked_free(nd_object *object) {
    if (nd__checked_mode.limit == 0) {
#ifndef ND_MODEL // where it would be one more step
        if (nd__object_flags(object) & ND__NAMED)
            nd__name_remove(object);
#endif
        nd__alloc_free(object);
        return;
    }
    record *places = record_in(object);
    if (places && places->released.count == 0) // the collector's, or together with another one
        note_place(&places->released);
    size_t bytes = nd__block_bytes(class_of(object));
    ASAN_POISON_MEMORY_REGION(object + 1, bytes - sizeof *object);
    object->next = NULL;
    nd__lock_acquire(&quarantine.lock);
    if (quarantine.last)
        quarantine.last->next = object;
    else
        quarantine.first = object;
    quarantine.last = object;
    quarantine.bytes += bytes;
    nd_object *out = NULL;
    while (quarantine.bytes > nd__checked_mode.limit) {
        nd_object *oldest = quarantine.first;
        quarantine.first = oldest->next;
        if (!quarantine.first)
            quarantine.last = NULL;
        quarantine.bytes -= nd__block_bytes(class_of(oldest));
        oldest->next = out;
        out = oldest;
    }
    nd__lock_release(&quarantine.lock);
    for (nd_object *next; out; out = next) {
        next = out->next;
        let_out(out);
    }
}

void nd__checked_before_fork(void) {
    nd__lock_acquire(&quarantine.lock);
}

void nd__checked_after_fork(bool child) {
    if (child)
        nd__lock_begin(&quarantine.lock);
    else
        nd__lock_release(&quarantine.lock);
}

uint64_t nd__checked_bytes(void) {
    nd__lock_acquire(&quarantine.lock);
    uint64_t bytes = quarantine.bytes;
    nd__lock_release(&quarantine.lock);
    return bytes;
}

// ------------------------------------------------------------------------------------ the sentence

static void tell_place(const char *what, const place *place) {
    if (!place->count)
        return;
    fprintf(stderr, "  %s:\n", what);
    fflush(stderr);
    backtrace_symbols_fd(place->frames, (int)place->count, STDERR_FILENO);
}

void nd__checked_tell_dead(const char *what, nd_object *object) {
    ND__UNCANCELLED;
    if (!object->type)
        nd__error_fatal("%s of a dead object at %p, whose memory has been given back to the system",
                        what, (void *)object);
    ASAN_UNPOISON_MEMORY_REGION(object, nd__block_bytes(class_of(object)));
    char name[64], site[160] = "", made[128];
    if (object->type->flags &
        ND__TYPE_MANAGER) // has its own, and the memory is no other manager's yet
        snprintf(name, sizeof name, "%s", nd__seam_manager_name(object));
    else
        nd_get_name(object, name, sizeof name);
    if (object->site) {
        nd__object_print_site(made, sizeof made, object->site);
        snprintf(site, sizeof site, ", made at %s", made);
    }
    nd__error_print("%s of a dead %s%s%s%s at %p%s", what, object->type->name, *name ? "(" : "",
                    name, *name ? ")" : "", (void *)object, site);
    const record *places = record_of(object);
    if (places) {
        tell_place("made by", &places->made);
        tell_place("released for the last time by", &places->released);
    }
    abort();
}
