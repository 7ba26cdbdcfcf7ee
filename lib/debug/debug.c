// Dump of the manager tree, leak report, check of invariants, creation sites.
//
// Objects are looked at under their manager's lock: they may die at any moment otherwise. Only
// headers and accounts are read there, and text is collected first and written after, so that no
// lock is held while a stream blocks.
#include "lib/core/alloc.h"
#include "lib/core/error.h"
#include "lib/core/manager_internal.h"
#include <inttypes.h>
#include <nd/debug.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_OBJECTS = 5 };

/// Text that grows; an allocation that fails cuts it.
typedef struct text {
    char *data;
    size_t size;
    FILE *stream;
} text;

static bool text_begin(text *out) {
    *out = (text){0};
    out->stream = open_memstream(&out->data, &out->size);
    return out->stream != NULL;
}

static void text_end(text *out, FILE *stream) {
    if (!out->stream)
        return;
    fclose(out->stream);
    fwrite(out->data, 1, out->size, stream);
    free(out->data);
}

static const char *describe(const nd_object *object) {
    return object->type->describe ? object->type->describe(object) : object->type->name;
}

static void write_object(FILE *stream, const nd_object *object, int indent) {
    char name[64];
    nd_get_name(object, name, sizeof name);
    fprintf(stream, "%*s- %s%s%s%s  count %" PRIu32, indent, "", describe(object),
            name[0] ? "(" : "", name, name[0] ? ")" : "", nd_get_count(object));
    if (object->type->flags & ND__TYPE_ACCOUNTED)
        fprintf(stream, "  %" PRIu64 " bytes", ((const nd_accounted *)object)->bytes);
    if (object->site)
        fprintf(stream, "  %s:%" PRIu32, object->site->file, object->site->line);
    fputc('\n', stream);
}

/// One manager: a line of figures and its oldest objects. Appends its children, retained, to
/// `managers`.
static void write_manager(FILE *stream, nd_manager *manager, int indent) {
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    nd_manager_get_stats(manager, &stats);
    uint64_t own = 0, below = 0;
    for (int kind = 0; kind < ND_DEVICE_KIND_COUNT; kind++) {
        own += stats.live_bytes[kind];
        below += stats.subtree_bytes[kind];
    }
    fprintf(stream,
            "%*smanager %s: %" PRIu64 " objects (%" PRIu64 " tracked), %" PRIu64 " bytes (%" PRIu64
            " with children); created %" PRIu64 ", freed %" PRIu64 ", collected %" PRIu64
            ", escaped %" PRIu64 "\n",
            indent, "", manager->name, stats.live_objects, stats.tracked_objects, own, below,
            stats.created_objects, stats.freed_objects, stats.collected_objects,
            stats.escaped_objects);
    nd__lock(&manager->lock);
    for (int list = 1; list >= 0; list--) {
        int shown = 0;
        for (nd_object *object = manager->lists[list].last; object && shown < SHOWN_OBJECTS;
             object = object->previous, shown++)
            write_object(stream, object, indent + 2);
    }
    nd__unlock(&manager->lock);
}

static int depth_below(const nd_manager *manager, const nd_manager *top) {
    return (int)(manager->depth - top->depth);
}

/// Managers of a subtree in the order of a tree listing: every child behind its parent and the
/// parent's earlier children.
static void sort_as_tree(nd__manager_array *managers) {
    nd_manager **items = managers->items;
    for (size_t i = 1; i < managers->count; i++) {
        size_t parent = 0;
        while (items[parent] != items[i]->parent)
            parent++;
        size_t place = parent + 1;
        while (place < i && items[place]->depth > items[parent]->depth)
            place++;
        nd_manager *moved = items[i];
        memmove(items + place + 1, items + place, (i - place) * sizeof *items);
        items[place] = moved;
    }
}

nd_status nd_debug_dump(const nd_manager *handle, FILE *stream) {
    nd_manager *top = handle ? (nd_manager *)(uintptr_t)handle : &nd__root;
    if (!stream)
        return nd__error_null("debug_dump", "stream");
    nd__manager_array managers = {0};
    text out;
    if (!text_begin(&out) || !nd__manager_subtree(top, &managers)) {
        text_end(&out, stream);
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "debug_dump: no memory to list the managers");
    }
    sort_as_tree(&managers);
    for (size_t i = 0; i < managers.count; i++)
        write_manager(out.stream, managers.items[i], 2 * depth_below(managers.items[i], top));
    nd__manager_array_free(&managers);
    text_end(&out, stream);
    return ND_OK;
}

// ------------------------------------------------------------------------------------- leak report

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
    const char *what = describe(object);
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
    for (size_t i = 0; i < managers.count; i++) {
        nd__lock(&managers.items[i]->lock);
        for (int list = 0; list < 2; list++)
            for (nd_object *object = managers.items[i]->lists[list].last; object;
                 object = object->previous) {
                add_leak(&groups, object);
                total++;
            }
        nd__unlock(&managers.items[i]->lock);
    }
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

// ----------------------------------------------------------------------------- check of invariants

static nd_status check_manager(nd_manager *manager) {
    uint64_t live = 0, tracked = 0, own[ND_DEVICE_KIND_COUNT] = {0};
    const char *broken = NULL;
    nd__lock(&manager->lock);
    for (int list = 0; list < 2; list++) {
        const nd_object *previous = NULL;
        for (nd_object *object = manager->lists[list].first; object;
             previous = object, object = object->next) {
            live++;
            tracked += (uint64_t)list;
            if (object->previous != previous)
                broken = "a link points to the wrong neighbour";
            if (nd__atomic_load(&object->manager, relaxed) != manager)
                broken = "an object names another manager";
            if (((nd__flags(object) & ND__TRACKED) != 0) != (list == ND__TRACKED_LIST))
                broken = "an object is in the wrong list";
            if (object->type->flags & ND__TYPE_ACCOUNTED)
                own[((nd_accounted *)object)->kind] += ((nd_accounted *)object)->bytes;
        }
        if (manager->lists[list].last != previous)
            broken = "the last object is not the last";
    }
    if (live != manager->live || tracked != manager->tracked)
        broken = "the number of objects is wrong";
    if (manager->created + manager->arrived !=
        manager->freed + manager->collected + manager->departed + manager->live)
        broken = "created + arrived is not freed + collected + departed + live";
    for (int kind = 0; kind < ND_DEVICE_KIND_COUNT; kind++)
        if (own[kind] != manager->own_bytes[kind])
            broken = "the bytes of its objects are not its account";
    nd__unlock(&manager->lock);
    return broken ? nd__error(ND_ERROR_STATE, "debug_check: manager %s: %s", manager->name, broken)
                  : ND_OK;
}

/// subtree_bytes = own bytes + those of the children. Only true while no other thread allocates.
static nd_status check_accounts(const nd__manager_array *managers) {
    for (size_t i = 0; i < managers->count; i++) {
        for (int kind = 0; kind < ND_DEVICE_KIND_COUNT; kind++) {
            uint64_t sum = managers->items[i]->own_bytes[kind];
            for (size_t k = 0; k < managers->count; k++)
                if (managers->items[k]->parent == managers->items[i] &&
                    nd__atomic_load(&managers->items[k]->state, relaxed) != ND__MANAGER_CLOSED)
                    sum += nd__load_relaxed(&managers->items[k]->subtree_bytes[kind]);
            uint64_t account = nd__load_relaxed(&managers->items[i]->subtree_bytes[kind]);
            if (sum != account)
                return nd__error(ND_ERROR_STATE,
                                 "debug_check: manager %s: its objects and children hold %" PRIu64
                                 " bytes, its account says %" PRIu64,
                                 managers->items[i]->name, sum, account);
        }
    }
    return ND_OK;
}

nd_status nd_debug_check(void) {
    nd__manager_array managers = {0};
    if (!nd__manager_subtree(&nd__root, &managers))
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "debug_check: no memory to list the managers");
    nd_status status = ND_OK;
    for (size_t i = 0; i < managers.count && status == ND_OK; i++)
        status = check_manager(managers.items[i]);
    if (status == ND_OK)
        status = check_accounts(&managers);
    nd__manager_array_free(&managers);
    return status;
}

// ---------------------------------------------------------------------------------- creation sites

void nd_debug_track_sites(bool on) {
    nd__sites_enabled = on;
}

const char *nd_debug_site(const void *handle, char *buffer, size_t size) {
    if (!buffer || size == 0)
        return "";
    buffer[0] = '\0';
    const nd_object *object = handle;
    if (object && object->site)
        snprintf(buffer, size, "%s:%" PRIu32, object->site->file, object->site->line);
    return buffer;
}
