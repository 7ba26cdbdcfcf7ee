// Taking a copy of the graph of objects.
//
// Two steps. With the gate closed each manager is locked in turn and its objects, their edges and
// their texts are copied into memory reserved before; an object is valid memory under that lock,
// and its edges stand still because their writers wait at the gate, and so do their labels, which
// are freed only by who has taken the edge away or destroys the object. Garbage that a collection
// is freeing (condemned, see steps.h) is left out: its edges are being cut. After the gate has
// opened, targets are looked up by address.
#include "lib/debug/census.h"
#include "lib/base/alloc.h"
#include "lib/debug/text.h"
#include "lib/gc/look.h"
#include "lib/gc/steps.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include <inttypes.h>
#include <string.h>

static void release_memory(census *result) {
    nd__alloc_free(result->objects);
    nd__alloc_free(result->edges);
    nd__alloc_free(result->text);
    nd__alloc_free(result->index);
    result->objects = NULL;
    result->edges = NULL;
    result->text = NULL;
    result->index = NULL;
}

static size_t index_size_for(size_t objects) {
    size_t size = 64;
    while (size < 2 * objects)
        size *= 2;
    return size;
}

static bool reserve(census *result, size_t objects, size_t edges, size_t text) {
    release_memory(result);
    result->index_size = index_size_for(objects);
    if (objects >= NO_OBJECT || edges >= NO_OBJECT)
        return false;
    result->objects = nd__alloc(objects * sizeof *result->objects);
    result->edges = nd__alloc(edges * sizeof *result->edges);
    result->text = nd__alloc(text);
    result->index = nd__alloc(result->index_size * sizeof *result->index);
    if (!result->objects || !result->edges || !result->text || !result->index) {
        release_memory(result);
        return false;
    }
    result->capacity = objects;
    result->edge_capacity = edges;
    result->text_capacity = text;
    return true;
}

// --------------------------------------------------------------------------------- inside the gate

/// The texts that were kept last, one per slot: most objects and edges share theirs with others.
/// Equal texts are known by what they say: memory that one had may be another one's a moment later.
enum { RECENT = 256 };
typedef struct copy_visitor {
    nd_visitor visitor;
    census *result;
    uint32_t from;
    const char *recent[RECENT];
} copy_visitor;

/// A copy of a text, perhaps one that there is. Counts what would be needed when there is no room.
static const char *keep_text(copy_visitor *self, const char *text) {
    census *result = self->result;
    uint32_t hash = 5381;
    size_t length = 0;
    for (; text[length]; length++)
        hash = hash * 33 + (unsigned char)text[length];
    const char **slot = &self->recent[(hash ^ hash >> 8) % RECENT];
    if (*slot && strcmp(*slot, text) == 0)
        return *slot;
    char *copy = result->text + result->text_size;
    result->text_size += length + 1;
    if (result->text_size > result->text_capacity)
        return "";
    memcpy(copy, text, length + 1);
    *slot = copy;
    return copy;
}

static void visit_copy(nd_visitor *visitor, nd_object *target, const char *label) {
    copy_visitor *self = (copy_visitor *)visitor;
    census *result = self->result;
    const char *kept = keep_text(self, label ? label : "");
    if (result->edge_count < result->edge_capacity)
        result->edges[result->edge_count] =
            (census_edge){.target = target, .label = kept, .from = self->from, .to = NO_OBJECT};
    result->edge_count++;
}

static void copy_object(copy_visitor *self, nd_object *object, uint32_t manager) {
    census *result = self->result;
    size_t place = result->count++;
    uint32_t flags = nd__object_flags(object);
    char name[64];
    nd_get_name(object, name, sizeof name);
    const nd_site *site = object->site;
    const char *what = keep_text(self, nd__object_text(object));
    const char *kept_name = name[0] ? keep_text(self, name) : "";
    const char *file = site ? keep_text(self, site->file) : NULL;
    if (place >= result->capacity) {
        result->full = true;
        return;
    }
    bool accounted = nd__object_shows_bytes(object);
    size_t first_edge = result->edge_count;
    census_object *entry = &result->objects[place];
    *entry = (census_object){
        .object = object,
        .what = what,
        .name = kept_name,
        .file = file,
        .line = site ? site->line : 0,
        .bytes = accounted ? ((const nd_accounted *)object)->bytes : 0,
        .count = nd_get_count(object), // before the edges, as the collector reads them
        .first_edge = (uint32_t)first_edge,
        .manager = manager,
        .tracked = (flags & ND__TRACKED) != 0,
        .closed = (flags & ND__CLOSED) != 0,
        .accounted = accounted,
    };
    entry->dying = entry->count == 0;
    self->from = (uint32_t)place;
    nd__object_traverse(object, &self->visitor);
    entry->edges_out = (uint32_t)(result->edge_count - first_edge);
}

static void copy_all(void *data) {
    census *result = data;
    copy_visitor visitor = {.visitor = {visit_copy}, .result = result};
    result->count = result->edge_count = result->text_size = 0;
    result->full = false;
    for (size_t i = 0; i < result->managers.count; i++) {
        nd_manager *manager = result->managers.items[i];
        for (nd_shard *shard = nd__shard_first(manager); shard; shard = nd__shard_next(shard)) {
            shard = nd__shard_lock_in(shard, manager);
            for (int list = 1; list >= 0; list--) // tracked objects first
                for (nd_object *object = shard->lists[list].last; object; object = object->previous)
                    if (!nd__steps_is_condemned(nd__object_flags(object)))
                        copy_object(&visitor, object, (uint32_t)i);
            nd__shard_unlock(shard);
        }
    }
    result->full |=
        result->edge_count > result->edge_capacity || result->text_size > result->text_capacity;
}

// ------------------------------------------------------------------------------------- afterwards

static size_t slot_of(const census *result, const void *object) {
    size_t slot = ((uintptr_t)object >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20;
    return slot & (result->index_size - 1);
}

uint32_t nd__census_find(const census *result, const void *object) {
    for (size_t slot = slot_of(result, object);; slot = (slot + 1) & (result->index_size - 1)) {
        uint32_t entry = result->index[slot];
        if (entry == 0)
            return NO_OBJECT;
        if (result->objects[entry - 1].object == object)
            return entry - 1;
    }
}

/// An object that another thread moved meanwhile may have been met twice: the first entry is the
/// one that edges lead to.
static void connect_edges(census *result) {
    memset(result->index, 0, result->index_size * sizeof *result->index);
    for (size_t i = 0; i < result->count; i++) {
        size_t slot = slot_of(result, result->objects[i].object);
        while (result->index[slot] &&
               result->objects[result->index[slot] - 1].object != result->objects[i].object)
            slot = (slot + 1) & (result->index_size - 1);
        if (!result->index[slot])
            result->index[slot] = (uint32_t)i + 1;
    }
    for (size_t i = 0; i < result->edge_count; i++) {
        census_edge *edge = &result->edges[i];
        edge->to = nd__census_find(result, edge->target);
        if (edge->to != NO_OBJECT)
            result->objects[edge->to].edges_in++;
    }
}

bool nd__census_take(census *result, const nd_manager *top) {
    *result = (census){0};
    nd_manager *manager = top ? (nd_manager *)(uintptr_t)top : &nd__manager_root;
    if (!nd__manager_subtree(manager, &result->managers))
        return false;
    size_t objects = 64;
    for (size_t i = 0; i < result->managers.count; i++)
        objects += nd__shard_total(result->managers.items[i]).live;
    size_t edges = 2 * objects, text = 4096;
    do {
        if (!reserve(result, objects, edges, text)) {
            nd__manager_array_free(&result->managers);
            return false;
        }
        nd__look_inspect(copy_all, result);
        // What was missing, and a little more, because others go on meanwhile.
        if (result->count > result->capacity)
            objects = result->count + result->count / 8;
        if (result->edge_count > result->edge_capacity / 2)
            edges = 2 * result->edge_count + 64;
        if (result->text_size > result->text_capacity)
            text = result->text_size + result->text_size / 8 + 4096;
    } while (result->full);
    connect_edges(result);
    return true;
}

void nd__census_free(census *result) {
    release_memory(result);
    nd__manager_array_free(&result->managers);
}

void nd__census_write_object(FILE *stream, const census_object *object) {
    fputs(object->what, stream);
    if (object->name[0])
        fprintf(stream, "(%s)", nd__text_plain((char[ND__TEXT_PLAIN]){0}, object->name));
}

void nd__census_write_site(FILE *stream, const char *before, const census_object *object) {
    if (object->file)
        fprintf(stream, "%smade at %s:%" PRIu32, before, object->file, object->line);
}
