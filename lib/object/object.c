// Counts of objects, and their memory.
//
// Invariant: a count that reached zero never rises again (except inside a finalizer, before
// anything was cleared). What happens at zero is lib/manager/destroy.c's.
#include "lib/object/object.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/seam.h"
#include "lib/object/block.h"
#include "lib/object/checked.h"
#include "lib/object/watch.h"
#include <inttypes.h>
#include <nd/detail/counts.h>
#include <stdio.h>
#include <string.h>

#define RETAIN_STEP (ND__VERSION_STEP + 1)
// What programs were built with (ND_INLINE_COUNTS).
_Static_assert(offsetof(nd_object, word) == 0 && RETAIN_STEP == ND__RETAIN_STEP &&
                   ND__COUNT_LIMIT == UINT32_C(0x80000000),
               "binary interface");

ND_API _Thread_local const nd_site *nd__site;
bool nd__object_sites_enabled = true;

void nd__object_print_site(char *ret_text, size_t room, const nd_site *site) {
    char line[16];
    const size_t most = room - 1 - (size_t)snprintf(line, sizeof line, ":%" PRIu32, site->line);
    const size_t length = strlen(site->file);
    if (length <= most)
        snprintf(ret_text, room, "%s%s", site->file, line);
    else
        snprintf(ret_text, room, "...%s%s", site->file + length - (most - strlen("...")), line);
}

// --------------------------------------------------------------------------------- retain, release

__attribute__((cold, noinline)) void *nd__object_retained_beyond(nd_object *object,
                                                                 uint32_t count) {
    if (nd__watch_includes(count)) {
        nd__watch_tell(object, ND__WATCH_RETAIN, nd__watch_count(count) + 1);
        return object;
    }
    if (nd__watch_count(count) == 0)
        nd__checked_tell_dead("retain", object);
    nd__error_fatal("count of a %s at %p overflows", object->type->name, (void *)object);
}

__attribute__((cold, noinline)) bool nd__object_released_beyond(nd_object *object, uint32_t count) {
    if (!nd__watch_includes(count))
        nd__checked_tell_dead("release", object);
    uint32_t left = nd__watch_count(count) - 1;
    nd__watch_tell(object, ND__WATCH_RELEASE, left);
    return left == 0;
}

/// What a release does that was the last one, or met a count beyond. Apart, so that others save no
/// registers.
__attribute__((noinline)) static void release_last(nd_object *object, uint32_t count) {
    if (count == 1 || nd__object_released_beyond(object, count))
        nd__seam_died(object);
}

// While the process has one thread these two are an addition that is not locked and a look at the
// count, with nothing to jump around: each jump taken costs as much as the rest.

void *nd_object_retain(const void *handle) {
    if (__builtin_expect(!handle, 0))
        return NULL;
    nd_object *object = (nd_object *)(uintptr_t)handle;
    if (nd__atomic_single_threaded()) {
        uint64_t before = nd__atomic_add_alone(&object->word, RETAIN_STEP);
        if (__builtin_expect((uint32_t)before - 1 >= ND__COUNT_LIMIT - 2, 0))
            return nd__object_retained_beyond(object, (uint32_t)before);
        return object;
    }
    uint32_t count = (uint32_t)nd__atomic_fetch_add(&object->word, RETAIN_STEP, relaxed);
    if (__builtin_expect(count - 1 >= ND__COUNT_LIMIT - 2, 0))
        return nd__object_retained_beyond(object, count);
    return object;
}

void nd_object_release(void *handle) {
    if (__builtin_expect(!handle, 0))
        return;
    nd_object *object = handle;
    // The last one of most objects needs no count: a lock that their end takes keeps others out.
    if ((uint32_t)nd__atomic_load_relaxed(&object->word) == 1 && nd__seam_release_alone(object))
        return;
    if (nd__atomic_single_threaded()) {
        uint64_t before = nd__atomic_add_alone(&object->word, UINT64_MAX);
        if (__builtin_expect((uint32_t)before - 2 > ND__COUNT_LIMIT - 2, 0))
            release_last(object, (uint32_t)before);
        return;
    }
    uint32_t count = (uint32_t)nd__atomic_fetch_sub(&object->word, 1, acq_rel);
    if (__builtin_expect(count > 1 && count <= ND__COUNT_LIMIT, 1))
        return;
    release_last(object, count);
}

bool nd__object_try_retain(nd_object *object) {
    uint32_t flags = nd__object_flags(object); // once: suspicion turns into dying
    if (__builtin_expect(flags & (ND__DYING | ND__SUSPECT), 0) &&
        ((flags & ND__DYING) || !nd__seam_suspect_may_live()))
        return false;
    uint64_t word = nd__atomic_load(&object->word, relaxed);
    do {
        if (nd__watch_count(word) == 0)
            return false;
        if (__builtin_expect((uint32_t)word == ND__COUNT_LIMIT - 1, 0))
            nd__object_retained_beyond(object, (uint32_t)word);
    } while (!nd__atomic_cas(&object->word, &word, word + RETAIN_STEP, acquire, relaxed));
    if (__builtin_expect(nd__watch_includes(word), 0))
        nd__watch_tell(object, ND__WATCH_UPGRADE, nd__watch_count(word) + 1);
    return true;
}

uint32_t nd_get_count(const void *object) {
    return object ? nd__watch_count(nd__atomic_load_relaxed(&((const nd_object *)object)->word))
                  : 0;
}

const char *nd_get_type_name(const void *object) {
    return object ? ((const nd_object *)object)->type->name : "NULL";
}

// ------------------------------------------------------------------------------------------ memory

nd_object *nd__object_new(const nd_type *type, size_t size) {
    nd_object *object = nd__object_new_bare(type, size);
    if (__builtin_expect(object != NULL, 1))
        memset(object + 1, 0, size - sizeof *object);
    return object;
}

nd_object *nd__object_new_bare(const nd_type *type, size_t size) {
    void *memory = nd__block_new(size);
    if (__builtin_expect(!memory, 0))
        memory = nd__seam_alloc_object(type, size);
    return memory ? nd__object_begin(type, memory) : NULL;
}

void *nd__object_publish_or_discard(const char *operation, void *object) {
    if (nd__seam_publish(operation, object) == ND_OK)
        return object;
    nd__object_discard(object);
    return NULL;
}

void nd__object_discard(void *handle) {
    nd_object *object = handle;
    atomic_init(&object->word, 0);
    nd__block_free(object);
}

const nd_type *nd_object_get_type(const void *object) {
    return object ? ((const nd_object *)object)->type : NULL;
}
