// The leak report: what is alive, by type and creation site, on request and when the program ends.
#include "lib/core/alloc.h"
#include "lib/core/manager_internal.h"
#include "lib/debug/text.h"
#include <inttypes.h>
#include <nd/debug.h>
#include <stdlib.h>
#include <string.h>

/// Live objects with the same type and creation site.
typedef struct leak_group {
    const char *what;
    const nd_site *site;
    uint64_t objects, bytes;
} leak_group;

typedef struct leak_groups {
    leak_group *items;
    size_t count, capacity;
} leak_groups;

static bool grow(leak_groups *groups) {
    size_t capacity = groups->capacity ? 2 * groups->capacity : 64;
    leak_group *items = nd__realloc(groups->items, capacity * sizeof *items);
    if (!items)
        return false;
    groups->items = items;
    groups->capacity = capacity;
    return true;
}

/// Adds an object to its group; a new group needs room, which the caller made.
static void add_leak(leak_groups *groups, const nd_object *object) {
    uint64_t bytes =
        (object->type->flags & ND__TYPE_ACCOUNTED) ? ((const nd_accounted *)object)->bytes : 0;
    const char *what = nd__object_text(object);
    for (size_t i = 0; i < groups->count; i++) {
        if (groups->items[i].site == object->site && strcmp(groups->items[i].what, what) == 0) {
            groups->items[i].objects++;
            groups->items[i].bytes += bytes;
            return;
        }
    }
    if (groups->count < groups->capacity)
        groups->items[groups->count++] = (leak_group){what, object->site, 1, bytes};
}

/// Adds the objects of a shard. Returns how many.
static uint64_t add_leaks(leak_groups *groups, nd_shard *shard) {
    uint64_t added = 0;
    nd__lock(&shard->lock);
    for (int list = 0; list < 2; list++)
        for (nd_object *object = shard->lists[list].last; object; object = object->previous) {
            add_leak(groups, object);
            added++;
        }
    nd__unlock(&shard->lock);
    return added;
}

static int by_bytes(const void *left, const void *right) {
    const leak_group *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->objects < b->objects ? 1 : a->objects > b->objects ? -1 : 0;
}

uint64_t nd_debug_report_leaks(const nd_manager *handle, FILE *stream, uint64_t limit) {
    nd_manager *top = handle ? (nd_manager *)(uintptr_t)handle : &nd__root;
    nd__manager_array managers = {0};
    leak_groups groups = {0};
    uint64_t total = 0, bytes = 0;
    while (groups.capacity < 4096 && grow(&groups))
        ;
    if (!nd__manager_subtree(top, &managers))
        return nd_manager_total_objects(top);
    for (size_t i = 0; i < managers.count; i++)
        for (nd_shard *shard = nd__first_shard(managers.items[i]); shard;
             shard = nd__next_shard(shard))
            total += add_leaks(&groups, shard);
    nd__manager_array_free(&managers);
    for (size_t i = 0; i < groups.count; i++)
        bytes += groups.items[i].bytes;
    qsort(groups.items, groups.count, sizeof *groups.items, by_bytes);
    if (stream && total) {
        fprintf(stream,
                "ndarc: %" PRIu64 " objects, %" PRIu64 " bytes are alive below manager %s\n", total,
                bytes, top->name);
        for (size_t i = 0; i < groups.count && (limit == 0 || i < limit); i++) {
            const leak_group *group = &groups.items[i];
            fprintf(stream, "  %" PRIu64 " x %s, %" PRIu64 " bytes", group->objects, group->what,
                    group->bytes);
            if (group->site)
                fprintf(stream, ", made at %s:%" PRIu32, group->site->file, group->site->line);
            fputc('\n', stream);
        }
    }
    nd__free(groups.items);
    return total;
}

static void report_leaks_at_exit(void) {
    if (nd_debug_report_leaks(NULL, stderr, 0) == 0)
        fputs("ndarc: no leaks\n", stderr);
}

__attribute__((constructor)) static void read_environment(void) {
    const char *check = getenv("ND_LEAK_CHECK");
    if (check && strcmp(check, "1") == 0)
        atexit(report_leaks_at_exit);
}
