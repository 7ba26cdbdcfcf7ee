// The leak report: managers that are still open, and what is alive, by type and creation site, on
// request and when the program ends.
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/debug/text.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include <inttypes.h>
#include <nd/debug.h>
#include <stdlib.h>
#include <string.h>

/// Live objects with the same type and creation site.
typedef struct leak_group {
    const char *what;
    const char *file; ///< of the site; NULL: not known
    uint32_t line;
    uint64_t objects, bytes;
} leak_group;

/// The texts are copies: what they are copied from may be gone once its manager's lock is given up.
typedef struct leak_groups {
    leak_group *items;
    size_t count, capacity;
    char *text;
    size_t text_size, text_capacity;
    uint64_t objects;
} leak_groups;

/// Empty, with twice the room.
static bool make_room(leak_groups *groups) {
    size_t capacity = groups->capacity ? 2 * groups->capacity : 4096;
    nd__alloc_free(groups->items);
    nd__alloc_free(groups->text);
    *groups = (leak_groups){.capacity = capacity, .text_capacity = 64 * capacity};
    groups->items = nd__alloc(capacity * sizeof *groups->items);
    groups->text = nd__alloc(groups->text_capacity);
    return groups->items && groups->text;
}

/// NULL for NULL, and when there is no room.
static const char *keep_text(leak_groups *groups, const char *text) {
    size_t size = text ? strlen(text) + 1 : 0;
    if (size == 0 || size > groups->text_capacity - groups->text_size)
        return NULL;
    char *copy = groups->text + groups->text_size;
    groups->text_size += size;
    return memcpy(copy, text, size);
}

static bool is_in(const leak_group *group, const char *what, const char *file, uint32_t line) {
    return group->line == line && strcmp(group->what, what) == 0 &&
           (file ? group->file && strcmp(group->file, file) == 0 : !group->file);
}

/// Adds an object, called `what`, to its group. False: no room for a new one.
static bool add_leak(leak_groups *groups, const nd_object *object, const char *what) {
    uint64_t bytes =
        (object->type->flags & ND__TYPE_ACCOUNTED) ? ((const nd_accounted *)object)->bytes : 0;
    const char *file = object->site ? object->site->file : NULL;
    uint32_t line = object->site ? object->site->line : 0;
    groups->objects++;
    for (size_t i = 0; i < groups->count; i++) {
        if (is_in(&groups->items[i], what, file, line)) {
            groups->items[i].objects++;
            groups->items[i].bytes += bytes;
            return true;
        }
    }
    leak_group group = {keep_text(groups, what), keep_text(groups, file), line, 1, bytes};
    if (groups->count == groups->capacity || !group.what || (file && !group.file))
        return false;
    groups->items[groups->count++] = group;
    return true;
}

/// Adds the objects of a shard. False: there was no room for all.
static bool add_leaks(leak_groups *groups, nd_shard *shard, nd_manager *manager) {
    bool room = true;
    shard = nd__shard_lock_in(shard, manager);
    for (int list = 0; list < 2; list++)
        for (nd_object *object = shard->lists[list].last; object && room; object = object->previous)
            room = add_leak(groups, object, nd__object_text(object));
    nd__shard_unlock(shard);
    return room;
}

/// False: no memory.
static bool group_all(leak_groups *groups, const nd__manager_array *managers) {
    bool done = false;
    while (!done && make_room(groups)) {
        done = true;
        for (size_t i = 0; i < managers->count && done; i++)
            for (nd_shard *shard = nd__shard_first(managers->items[i]); shard && done;
                 shard = nd__shard_next(shard))
                done = add_leaks(groups, shard, managers->items[i]);
    }
    return done;
}

/// The managers below the topmost one that nobody has closed. False: no memory.
static bool group_open(leak_groups *groups, const nd__manager_array *managers) {
    bool done = managers->count <= 1;
    while (!done && make_room(groups)) {
        done = true;
        for (size_t i = 1; i < managers->count && done; i++)
            if (nd__manager_open(managers->items[i]))
                done = add_leak(groups, &managers->items[i]->header, managers->items[i]->name);
    }
    return done;
}

static int by_bytes(const void *left, const void *right) {
    const leak_group *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->objects < b->objects ? 1 : a->objects > b->objects ? -1 : 0;
}

static void end_line(FILE *stream, const leak_group *group) {
    if (group->file)
        fprintf(stream, ", made at %s:%" PRIu32, group->file, group->line);
    fputc('\n', stream);
}

static bool is_shown(const leak_groups *groups, size_t i, uint64_t limit) {
    return i < groups->count && (limit == 0 || i < limit);
}

static void write_open(const leak_groups *groups, const char *top, uint64_t limit, FILE *stream) {
    if (groups->objects == 0)
        return;
    bool one = groups->objects == 1;
    fprintf(stream, "ndarc: nobody has closed %" PRIu64 " manager%s below manager %s\n",
            groups->objects, one ? "" : "s", nd__text_plain((char[ND__TEXT_PLAIN]){0}, top));
    for (size_t i = 0; is_shown(groups, i, limit); i++) {
        const leak_group *group = &groups->items[i];
        fprintf(stream, "  %" PRIu64 " x manager %s", group->objects,
                nd__text_plain((char[ND__TEXT_PLAIN]){0}, group->what));
        end_line(stream, group);
    }
}

static void write_leaks(const leak_groups *groups, const char *top, uint64_t limit, FILE *stream) {
    if (groups->objects == 0)
        return;
    uint64_t bytes = 0;
    for (size_t i = 0; i < groups->count; i++)
        bytes += groups->items[i].bytes;
    fprintf(stream, "ndarc: %" PRIu64 " objects, %" PRIu64 " bytes are alive below manager %s\n",
            groups->objects, bytes, nd__text_plain((char[ND__TEXT_PLAIN]){0}, top));
    for (size_t i = 0; is_shown(groups, i, limit); i++) {
        const leak_group *group = &groups->items[i];
        fprintf(stream, "  %" PRIu64 " x %s, %" PRIu64 " bytes", group->objects, group->what,
                group->bytes);
        end_line(stream, group);
    }
}

static void sort(leak_groups *groups) {
    if (groups->count)
        qsort(groups->items, groups->count, sizeof *groups->items, by_bytes);
}

static void free_groups(leak_groups *groups) {
    nd__alloc_free(groups->items);
    nd__alloc_free(groups->text);
}

/// *ret_open: how many managers are.
static uint64_t report(nd_manager *top, FILE *stream, uint64_t limit, uint64_t *ret_open) {
    ND__UNCANCELLED;
    nd__manager_array managers = {0};
    leak_groups groups = {0}, open = {0};
    bool listed = nd__manager_subtree(top, &managers) && group_open(&open, &managers) &&
                  group_all(&groups, &managers);
    nd__manager_array_free(&managers);
    uint64_t total = listed ? groups.objects : nd_manager_get_total_objects(top);
    *ret_open = open.objects;
    if (listed && stream) {
        sort(&open);
        sort(&groups);
        write_open(&open, top->name, limit, stream);
        write_leaks(&groups, top->name, limit, stream);
    }
    free_groups(&groups);
    free_groups(&open);
    return total;
}

uint64_t nd_debug_report_leaks(const nd_manager *handle, FILE *stream, uint64_t limit) {
    uint64_t open;
    return report(handle ? (nd_manager *)(uintptr_t)handle : &nd__manager_root, stream, limit,
                  &open);
}

static void report_leaks_at_exit(void) {
    uint64_t open;
    if (report(&nd__manager_root, stderr, 0, &open) == 0 && open == 0)
        fputs("ndarc: no leaks\n", stderr);
}

__attribute__((constructor)) static void read_environment(void) {
    const char *check = secure_getenv("ND_LEAK_CHECK");
    if (check && strcmp(check, "1") == 0)
        atexit(report_leaks_at_exit);
    else if (check && *check && strcmp(check, "0") != 0)
        nd__error_print("ND_LEAK_CHECK: \"%.40s\" is neither 1 nor 0", check);
}
