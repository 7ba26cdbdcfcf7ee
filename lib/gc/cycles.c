// Explanation of garbage: how many groups, and the path of a cycle in each.
//
// Runs outside the gate over objects marked ND__DYING: nobody else can reach them, so their edges
// stand still. Work per path is bounded; a group whose cycle is not found within the bound is
// reported by its size alone.
#include "lib/gc/cycles.h"
#include "lib/base/alloc.h"
#include "lib/base/locale.h"
#include "lib/gc/collection.h"
#include "lib/manager/shard.h"
#include "lib/object/cut.h"
#include "lib/object/object.h"
#include <stdio.h>
#include <string.h>

// ------------------------------------------------------------------------------------------ groups

typedef struct group_visitor {
    nd_visitor visitor;
    nd_collection *collection;
    uint32_t index;
    double bytes; ///< each edge to memory contributes its share, so that shared storage counts once
} group_visitor;

static void visit_group(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    group_visitor *self = (group_visitor *)visitor;
    if (!nd__object_is_own_garbage(target))
        return;
    nd__cut_group_join(self->collection->internal, self->index, target->gc_index);
}

uint32_t *nd__cycles_begin(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++)
        collection->internal[i] = (uint32_t)i;
    return collection->internal;
}

/// Joins the groups of the candidate and of the garbage it points to.
static void join_groups(nd_collection *collection, size_t index) {
    nd_object *object = collection->objects[index];
    group_visitor visitor = {
        .visitor = {visit_group}, .collection = collection, .index = (uint32_t)index};
    nd__object_traverse(object, &visitor.visitor);
}

size_t nd__cycles_count(const nd_collection *collection) {
    size_t groups = 0;
    for (size_t i = 0; i < collection->count; i++)
        groups += collection->internal[i] == i;
    return groups;
}

#define LAST_OF_GROUP UINT32_MAX

/// stack[i]: the next member of i's group, in order, beginning at its representative.
static void chain_groups(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++)
        collection->words[i] = LAST_OF_GROUP;
    for (size_t i = collection->count; i-- > 0;) {
        uint32_t group = nd__cut_group_of(collection->internal, (uint32_t)i);
        collection->stack[i] = (uint32_t)collection->words[group];
        collection->words[group] = i;
    }
}

// -------------------------------------------------------------------------------------------- path

enum { PATH_LIMIT = 32, EDGE_BUDGET = 200000 };

/// The `wanted`-th edge of an object into the set.
typedef struct edge_visitor {
    nd_visitor visitor;
    nd_collection *collection;
    uint32_t wanted, seen;
    nd_object *target;
    const char *label;
} edge_visitor;

static void visit_edge(nd_visitor *visitor, nd_object *target, const char *label) {
    edge_visitor *self = (edge_visitor *)visitor;
    if (nd__object_is_own_garbage(target) && self->seen++ == self->wanted) {
        self->target = target;
        self->label = label;
    }
}

typedef struct step {
    nd_object *object;
    uint32_t edge;
    const char *label; ///< of the edge that led here
} step;

/// Depth-first walk from `start` until an edge leads back onto the walk. Returns the cycle's first
/// step in *ret_from and the walk's length, 0 when none was found. live[]: 0 not seen, 1 done, 2 on
/// the walk.
static size_t find_cycle(nd_collection *collection, nd_object *start, step *walk, size_t limit,
                         size_t *ret_from, const char **ret_label, size_t *budget) {
    size_t length = 0;
    walk[length++] = (step){start, 0, NULL};
    collection->live[start->gc_index] = 2;
    while (length > 0 && *budget > 0) {
        step *at = &walk[length - 1];
        edge_visitor visitor = {
            .visitor = {visit_edge}, .collection = collection, .wanted = at->edge++};
        nd__object_traverse(at->object, &visitor.visitor);
        *budget -= visitor.seen < *budget ? visitor.seen + 1 : *budget;
        if (!visitor.target) {
            collection->live[at->object->gc_index] = 1;
            length--;
            continue;
        }
        uint8_t state = collection->live[visitor.target->gc_index];
        if (state == 2) {
            size_t from = length;
            while (walk[--from].object != visitor.target)
                ;
            *ret_from = from;
            *ret_label = visitor.label;
            return length;
        }
        if (state == 0 && length < limit) {
            collection->live[visitor.target->gc_index] = 2;
            walk[length++] = (step){visitor.target, 0, visitor.label};
        }
    }
    return 0;
}

static size_t append(char *text, size_t size, size_t used, const char *piece) {
    int written = used < size ? snprintf(text + used, size - used, "%s", piece) : 0;
    return used + (size_t)(written > 0 ? written : 0);
}

static size_t append_object(char *text, size_t size, size_t used, const nd_object *object) {
    char name[64];
    used = append(text, size, used, nd__object_text(object));
    nd_get_name(object, name, sizeof name);
    if (name[0]) {
        used = append(text, size, used, "(");
        used = append(text, size, used, name);
        used = append(text, size, used, ")");
    }
    return used;
}

static void format_bytes(char *buffer, size_t size, double bytes) {
    locale_t before = nd__locale_begin_plain();
    if (bytes < 1024)
        snprintf(buffer, size, "%.0f B", bytes);
    else if (bytes < 1048576)
        snprintf(buffer, size, "%.1f KiB", bytes / 1024);
    else
        snprintf(buffer, size, "%.1f MiB", bytes / 1048576);
    nd__locale_end(before);
}

/// "a -x-> b -y-> a  12.0 MiB  file.c:88"
static void format_path(char *text, size_t size, const step *walk, size_t from, size_t length,
                        const char *back_label, double bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = from; i < length; i++) {
        if (i > from) {
            used = append(text, size, used, " -");
            used = append(text, size, used, walk[i].label);
            used = append(text, size, used, "-> ");
        }
        if (i - from == PATH_LIMIT) {
            used = append(text, size, used, "...");
            break;
        }
        used = append_object(text, size, used, walk[i].object);
    }
    used = append(text, size, used, " -");
    used = append(text, size, used, back_label);
    used = append(text, size, used, "-> ");
    used = append_object(text, size, used, walk[from].object);
    char amount[32];
    format_bytes(amount, sizeof amount, bytes);
    used = append(text, size, used, "  ");
    used = append(text, size, used, amount);
    const nd_site *site = walk[from].object->site;
    if (site && used < size)
        snprintf(text + used, size - used, "  %s:%u", site->file, site->line);
}

/// Of what is garbage itself the bytes are added where it is met as a member.
static void visit_bytes(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    group_visitor *self = (group_visitor *)visitor;
    uint32_t held = nd_get_count(target);
    if (!(target->type->flags & ND__TYPE_ACCOUNTED) || !held || nd__object_is_own_garbage(target))
        return;
    nd_shard *shard = nd__shard_lock_of(target); // who still holds it may be making its storage
    self->bytes += (double)((const nd_accounted *)target)->bytes / held;
    if (shard)
        nd__shard_unlock(shard);
}

void nd__cycles_explain(nd_collection *collection, nd_gc_cycle_callback callback, void *data) {
    enum { WALK_LIMIT = 4096 };
    step *walk = nd__alloc(WALK_LIMIT * sizeof *walk);
    if (!walk)
        return;
    nd__cycles_begin(collection);
    for (size_t i = 0; i < collection->count; i++)
        join_groups(collection, i);
    chain_groups(collection);
    memset(collection->live, 0, collection->count);
    for (size_t first = 0; first < collection->count; first++) {
        if (nd__cut_group_of(collection->internal, (uint32_t)first) != first)
            continue;
        group_visitor sum = {.visitor = {visit_bytes}, .collection = collection};
        size_t members = 0, length = 0, from = 0, budget = EDGE_BUDGET;
        const char *back_label = "";
        for (uint32_t i = (uint32_t)first; i != LAST_OF_GROUP; i = collection->stack[i]) {
            nd_object *object = collection->objects[i];
            members++;
            nd__object_traverse(object, &sum.visitor);
            if (object->type->flags & ND__TYPE_ACCOUNTED)
                sum.bytes += (double)((const nd_accounted *)object)->bytes;
            if (length == 0 && collection->live[i] == 0 && budget > 0)
                length =
                    find_cycle(collection, object, walk, WALK_LIMIT, &from, &back_label, &budget);
        }
        char text[1024];
        if (length)
            format_path(text, sizeof text, walk, from, length, back_label, sum.bytes);
        else
            snprintf(text, sizeof text, "%zu objects whose cycle is too long to print", members);
        callback(text, members, (uint64_t)(sum.bytes + 0.5), data);
    }
    nd__alloc_free(walk);
}
