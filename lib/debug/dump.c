// The manager tree as text.
//
// Objects are looked at under their manager's lock: they may die at any moment otherwise. Only
// headers and accounts are read there, and text is collected first and written after, so that no
// lock is held while a stream blocks.
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/debug/text.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include <inttypes.h>
#include <nd/debug.h>
#include <string.h>

enum { SHOWN_OBJECTS = 5 };

static void write_object(FILE *stream, const nd_object *object, int indent) {
    char name[64];
    nd_get_name(object, name, sizeof name);
    fprintf(stream, "%*s- %s%s%s%s  count %" PRIu32, indent, "", nd__object_text(object),
            name[0] ? "(" : "", nd__text_plain((char[ND__TEXT_PLAIN]){0}, name), name[0] ? ")" : "",
            nd_get_count(object));
    if (nd__object_shows_bytes(object))
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
    for (int kind = 0; kind < ND__KIND_PLACES; kind++) {
        own += stats.live_bytes[kind];
        below += stats.subtree_bytes[kind];
    }
    fprintf(stream,
            "%*smanager %s: %" PRIu64 " objects (%" PRIu64 " tracked), %" PRIu64 " bytes (%" PRIu64
            " with children); created %" PRIu64 ", freed %" PRIu64 ", collected %" PRIu64
            ", escaped %" PRIu64 "\n",
            indent, "", nd__text_plain((char[ND__TEXT_PLAIN]){0}, manager->name),
            stats.live_objects, stats.tracked_objects, own, below, stats.created_objects,
            stats.freed_objects, stats.collected_objects, stats.escaped_objects);
    for (int list = 1; list >= 0; list--) {
        int shown = 0;
        for (nd_shard *shard = nd__shard_first(manager); shard; shard = nd__shard_next(shard)) {
            shard = nd__shard_lock_in(shard, manager);
            for (nd_object *object = shard->lists[list].last; object && shown < SHOWN_OBJECTS;
                 object = object->previous, shown++)
                write_object(stream, object, indent + 2);
            nd__shard_unlock(shard);
        }
    }
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
    ND__UNCANCELLED;
    nd_manager *top = handle ? (nd_manager *)(uintptr_t)handle : &nd__manager_root;
    if (!stream)
        return nd__error_null("debug_dump", "stream");
    nd__manager_array managers = {0};
    nd__text out;
    if (!nd__text_begin(&out) || !nd__manager_subtree(top, &managers)) {
        nd__text_drop(&out);
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "debug_dump: no memory to list the managers");
    }
    sort_as_tree(&managers);
    for (size_t i = 0; i < managers.count; i++)
        write_manager(out.stream, managers.items[i], 2 * depth_below(managers.items[i], top));
    nd__manager_array_free(&managers);
    return nd__text_end(&out, "debug_dump", stream);
}
