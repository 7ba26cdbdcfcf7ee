// Forecast: what would be freed with garbage that is only reported.
//
//   outside    what edges of garbage lead to beside garbage, and the edges of what of that would be
//              freed: objects that the collector does not examine, or not in this collection
//   explained  how many edges to it come from what would be freed. When that is its count, it would
//              be freed, too
//
// Invariant: what is outside is valid memory: garbage, whose edges stand still as nobody else reaches
// it, leads there, or the forecast holds it. Its own edges are read with the gate closed, a few
// objects' at a time; nothing is allocated then, so what has no room is read again.
#include "lib/gc/forecast.h"
#include "lib/base/alloc.h"
#include "lib/gc/cycles.h"
#include "lib/gc/look.h"
#include "lib/manager/shard.h"
#include "lib/object/cut.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include <nd/object.h>
#include <string.h>

/// So many objects' edges are read while the gate is closed once.
enum { BATCH = 128 };

typedef struct outside {
    nd_object *object;
    uint32_t explained;
    bool held; ///< once, by the forecast
    bool freed;
} outside;

typedef struct forecast {
    nd_visitor visitor;
    nd_collection *collection;
    uint32_t from; ///< the garbage whose edges are read
    outside *found;
    uint32_t *freed;  ///< places in `found`, in the order in which it came up
    uint32_t *places; ///< a table of twice the room: place in `found`, and one more; 0: none
    size_t count, room;
    size_t freed_count, followed;
    size_t edges; ///< of the object for which there was no room
    bool memory;
} forecast;

// ------------------------------------------------------------------------------------------- table

/// Where the table has an object, or would have it.
static uint32_t *place_of(const forecast *f, const nd_object *object) {
    const size_t mask = 2 * f->room - 1;
    size_t at = (size_t)(((uintptr_t)object >> 5) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & mask;
    while (f->places[at] && f->found[f->places[at] - 1].object != object)
        at = (at + 1) & mask;
    return &f->places[at];
}

/// Room for so many more. False, and f->memory, without memory.
static bool make_room(forecast *f, size_t more) {
    size_t room = f->room ? f->room : 64;
    while (room < f->count + more)
        room *= 2;
    if (room == f->room)
        return true;
    outside *found = nd__alloc_resize(f->found, room * sizeof *found);
    f->found = found ? found : f->found;
    uint32_t *freed = found ? nd__alloc_resize(f->freed, room * sizeof *freed) : NULL;
    f->freed = freed ? freed : f->freed;
    uint32_t *places = freed ? nd__alloc_zeroed(2 * room * sizeof *places) : NULL;
    f->memory = places != NULL;
    if (!places)
        return false;
    nd__alloc_free(f->places);
    f->places = places;
    f->room = room;
    for (size_t i = 0; i < f->count; i++)
        *place_of(f, found[i].object) = (uint32_t)i + 1;
    return true;
}

/// An edge leads to an object; there is room for it. Returns its entry.
static outside *explain_edge(forecast *f, nd_object *target) {
    uint32_t *place = place_of(f, target);
    if (!*place) {
        f->found[f->count++] = (outside){.object = target};
        *place = (uint32_t)f->count;
    }
    outside *entry = &f->found[*place - 1];
    entry->explained++;
    return entry;
}

/// Whether only what would be freed refers to it.
static void settle(forecast *f, outside *entry) {
    if (entry->freed || nd_get_count(entry->object) != entry->explained + entry->held)
        return;
    entry->freed = true;
    f->freed[f->freed_count++] = (uint32_t)(entry - f->found);
}

// ------------------------------------------------------------------------------------------- edges

/// Managers are not: they are no objects of a manager.
static bool is_counted(const nd_object *target) {
    return !(target->type->flags & ND__TYPE_MANAGER);
}

static void visit_of_garbage(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    forecast *f = (forecast *)visitor;
    if (nd__object_is_own_garbage(target))
        nd__cut_group_join(f->collection->internal, f->from, target->gc_index);
    else if (is_counted(target) && f->memory && make_room(f, 1))
        explain_edge(f, target);
}

static void visit_to_count(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)target, (void)label;
    ((forecast *)visitor)->edges++;
}

static void visit_of_outside(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    forecast *f = (forecast *)visitor;
    if (nd__object_is_own_garbage(target) || !is_counted(target))
        return;
    size_t before = f->count;
    outside *entry = explain_edge(f, target);
    if (f->count > before) {
        nd__object_keep(target); // the edge stands still, so it is alive
        entry->held = true;
    }
    settle(f, entry);
}

/// Follows the edges of what would be freed, as far as there is room.
static void follow_some(void *data) {
    forecast *f = data;
    for (int i = 0; i < BATCH && f->followed < f->freed_count; i++) {
        const nd_object *object = f->found[f->freed[f->followed]].object;
        f->edges = 0;
        f->visitor.visit = visit_to_count;
        nd__collection_traverse(object, &f->visitor);
        if (f->count + f->edges > f->room)
            return;
        f->edges = 0;
        f->visitor.visit = visit_of_outside;
        nd__collection_traverse(object, &f->visitor);
        f->followed++;
    }
}

// --------------------------------------------------------------------------------------- the whole

static uint64_t bytes_of(nd_object *object) {
    const nd_accounted *account = nd__object_accounted(object);
    if (!account)
        return 0;
    nd_shard *shard = nd__shard_lock_of(object); // who got hold of it may be making its storage
    uint64_t bytes = account->bytes;
    if (shard)
        nd__shard_unlock(shard);
    return bytes;
}

static void read_garbage(forecast *f) {
    nd_collection *collection = f->collection;
    nd__cycles_begin(collection);
    for (size_t i = 0; i < collection->count; i++) {
        f->from = (uint32_t)i;
        nd__collection_traverse(collection->objects[i], &f->visitor);
        collection->report.collected_bytes += bytes_of(collection->objects[i]);
    }
    collection->report.collected_objects += collection->count;
    collection->report.cycles += nd__cycles_count(collection);
}

static void follow_outside(forecast *f) {
    nd_collection *collection = f->collection;
    for (size_t i = 0, count = f->count; i < count; i++)
        settle(f, &f->found[i]);
    while (f->followed < f->freed_count && make_room(f, f->edges)) {
        uint64_t closed = nd__look_step(follow_some, f);
        if (closed > collection->report.gate_closed_ns)
            collection->report.gate_closed_ns = closed;
    }
}

bool nd__forecast(nd_collection *collection) {
    forecast f = {.visitor = {visit_of_garbage}, .collection = collection, .memory = true};
    read_garbage(&f);
    bool looks = f.count > 0;
    if (looks)
        follow_outside(&f);
    for (size_t i = 0; i < f.freed_count; i++)
        collection->report.collected_bytes += bytes_of(f.found[f.freed[i]].object);
    collection->report.collected_objects += f.freed_count;
    for (size_t i = 0; i < f.count; i++)
        if (f.found[i].held)
            nd_object_release(f.found[i].object);
    nd__alloc_free(f.found);
    nd__alloc_free(f.freed);
    nd__alloc_free(f.places);
    if (looks)
        nd__gate_destroy_parked();
    return f.memory;
}
