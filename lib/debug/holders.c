// Who holds an object.
//
// Every edge to x is followed back to something the program holds (a count that edges do not
// explain). One forward walk from all such objects, which does not pass through x, gives the
// shortest path to each holder; a second one, from x, finds the cycles that keep x alive by itself.
// What neither reaches hangs on a cycle elsewhere.
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/debug/census.h"
#include "lib/debug/text.h"
#include "lib/manager/manager.h"
#include "lib/object/object.h"
#include <inttypes.h>
#include <nd/debug.h>
#include <string.h>

#define NOT_REACHED UINT32_MAX
#define START (UINT32_MAX - 1)

/// Paths that are printed, and how many objects of a long one.
enum { SHOWN_PATHS = 16, SHOWN_STEPS = 24 };

/// A breadth-first walk: for every object reached the edge that led there.
typedef struct walk {
    uint32_t *by; ///< edge, NOT_REACHED or START
    size_t first, last;
} walk;

typedef struct holders {
    census graph;
    uint32_t x;
    uint32_t *memory; ///< of both walks and of the queue
    uint32_t *queue;
    walk from_program, from_x;
} holders;

static void begin_walk(holders *self, walk *walk, uint32_t *by) {
    walk->by = by;
    walk->first = walk->last = 0;
    for (size_t i = 0; i < self->graph.count; i++)
        by[i] = NOT_REACHED;
}

static void reach(holders *self, walk *walk, uint32_t object, uint32_t by) {
    if (walk->by[object] != NOT_REACHED)
        return;
    walk->by[object] = by;
    self->queue[walk->last++] = object;
}

/// Follows edges from everything reached so far; does not pass through x unless it began there.
static void go(holders *self, walk *walk) {
    while (walk->first < walk->last) {
        uint32_t place = self->queue[walk->first++];
        if (place == self->x && walk->by[place] != START)
            continue;
        const census_object *object = &self->graph.objects[place];
        for (uint32_t i = 0; i < object->edges_out; i++) {
            uint32_t to = self->graph.edges[object->first_edge + i].to;
            if (to != NO_OBJECT)
                reach(self, walk, to, object->first_edge + i);
        }
    }
}

static bool held_by_program(const census_object *object) {
    return nd__census_handles(object) > 0 || object->dying;
}

/// Whether an edge to x comes from what the program reaches without x; its own edges do not.
static bool is_held(const holders *self, uint32_t from) {
    return from != self->x && self->from_program.by[from] != NOT_REACHED;
}

static bool find_holders(holders *self) {
    size_t count = self->graph.count;
    self->memory = nd__alloc(3 * (count + 1) * sizeof *self->memory);
    if (!self->memory)
        return false;
    self->queue = self->memory + 2 * count;
    begin_walk(self, &self->from_program, self->memory);
    for (uint32_t i = 0; i < count; i++)
        if (i != self->x && held_by_program(&self->graph.objects[i]))
            reach(self, &self->from_program, i, START);
    go(self, &self->from_program);
    begin_walk(self, &self->from_x, self->memory + count);
    reach(self, &self->from_x, self->x, START);
    go(self, &self->from_x);
    return true;
}

// -------------------------------------------------------------------------------------------- text

/// What a path begins at, and why that is alive.
static void write_start(FILE *stream, const holders *self, uint32_t place) {
    const census_object *object = &self->graph.objects[place];
    uint32_t handles = nd__census_handles(object);
    fputs("  [", stream);
    nd__census_write_object(stream, object);
    if (object->dying)
        fputs(": being destroyed", stream);
    else
        fprintf(stream, ": %" PRIu32 " handle%s of the program", handles, handles == 1 ? "" : "s");
    nd__census_write_site(stream, "; ", object);
    fprintf(stream, "; manager %s]",
            nd__text_plain((char[ND__TEXT_PLAIN]){0},
                           self->graph.managers.items[object->manager]->name));
}

/// "a -item-> b -grad-> x": the walk's path to the edge's source, and the edge. What lies in the
/// middle of a long path is counted.
static void write_path(FILE *stream, const holders *self, const walk *walk, uint32_t edge) {
    const census *graph = &self->graph;
    size_t length = 1;
    uint32_t start = graph->edges[edge].from;
    for (; walk->by[start] < START; start = graph->edges[walk->by[start]].from)
        length++;
    nd__census_write_object(stream, &graph->objects[start]);
    // Edges lead back, so the n-th step from the front is found from the back each time; the number
    // of printed steps is bounded.
    for (size_t step = 0; step < length; step++) {
        if (length > SHOWN_STEPS && step == SHOWN_STEPS / 2) {
            size_t left_out = length - SHOWN_STEPS;
            fprintf(stream, " -> ... %zu more ...", left_out);
            step += left_out;
        }
        uint32_t at = edge;
        for (size_t back = length - 1; back > step; back--)
            at = walk->by[graph->edges[at].from];
        fprintf(stream, " -%s-> ",
                nd__text_plain((char[ND__TEXT_PLAIN]){0}, graph->edges[at].label));
        nd__census_write_object(stream, &graph->objects[graph->edges[at].to]);
    }
    if (start != self->x)
        write_start(stream, self, start);
}

static void write_edge(FILE *stream, const holders *self, uint32_t edge) {
    uint32_t from = self->graph.edges[edge].from;
    fputs("  ", stream);
    if (is_held(self, from)) {
        write_path(stream, self, &self->from_program, edge);
    } else if (self->from_x.by[from] != NOT_REACHED) {
        fputs("cycle: ", stream);
        write_path(stream, self, &self->from_x, edge);
    } else {
        fputs("behind a cycle: ", stream);
        nd__census_write_object(stream, &self->graph.objects[from]);
        fprintf(stream, " -%s-> ",
                nd__text_plain((char[ND__TEXT_PLAIN]){0}, self->graph.edges[edge].label));
        nd__census_write_object(stream, &self->graph.objects[self->x]);
        write_start(stream, self, from);
    }
    fputc('\n', stream);
}

static void write_holders(FILE *stream, const holders *self, const nd_holders *result) {
    const census_object *x = &self->graph.objects[self->x];
    nd__census_write_object(stream, x);
    fprintf(
        stream,
        ": count %" PRIu64 " = %" PRIu64 " handle%s of the program + %" PRIu64
        " edge%s; manager %s",
        result->count, result->handles, result->handles == 1 ? "" : "s", result->edges,
        result->edges == 1 ? "" : "s",
        nd__text_plain((char[ND__TEXT_PLAIN]){0}, self->graph.managers.items[x->manager]->name));
    if (x->accounted)
        fprintf(stream, "; %" PRIu64 " bytes", x->bytes);
    nd__census_write_site(stream, "; ", x);
    fputc('\n', stream);
    size_t shown = 0;
    for (size_t i = 0; i < self->graph.edge_count && shown < SHOWN_PATHS; i++) {
        if (self->graph.edges[i].to == self->x) {
            write_edge(stream, self, (uint32_t)i);
            shown++;
        }
    }
    if (shown < result->edges)
        fprintf(stream, "  ... %" PRIu64 " more edges\n", result->edges - shown);
}

static void count_holders(const holders *self, nd_holders *result) {
    const census_object *x = &self->graph.objects[self->x];
    result->count = x->count;
    result->edges = x->edges_in;
    result->handles = nd__census_handles(x);
    result->held_edges = result->cycle_edges = 0;
    for (size_t i = 0; i < self->graph.edge_count; i++) {
        if (self->graph.edges[i].to != self->x)
            continue;
        if (is_held(self, self->graph.edges[i].from))
            result->held_edges++;
        else
            result->cycle_edges++;
    }
}

// ---------------------------------------------------------------------------------------- managers

/// A manager is in no manager's list; its children hold it, and so does whoever made it current.
static nd_status manager_holders(nd_manager *manager, FILE *stream, nd_holders *result) {
    nd__manager_array managers = {0};
    nd__text out = {0};
    if ((stream && !nd__text_begin(&out)) || !nd__manager_subtree(manager, &managers)) {
        nd__text_drop(&out);
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "debug_holders: no memory to list the managers");
    }
    result->count = nd_get_count(manager) - 1; // less the one of the list
    result->edges = 0;
    for (size_t i = 1; i < managers.count; i++)
        result->edges += managers.items[i]->parent == manager;
    result->handles = result->count > result->edges ? result->count - result->edges : 0;
    result->held_edges = result->edges;
    result->cycle_edges = 0;
    if (stream) {
        fprintf(out.stream,
                "manager %s: count %" PRIu64 " = %" PRIu64 " handles of the program + %" PRIu64
                " open children\n",
                nd__text_plain((char[ND__TEXT_PLAIN]){0}, manager->name), result->count,
                result->handles, result->edges);
        for (size_t i = 1; i < managers.count; i++)
            if (managers.items[i]->parent == manager)
                fprintf(out.stream, "  manager %s -parent-> manager %s\n",
                        nd__text_plain((char[ND__TEXT_PLAIN]){0}, managers.items[i]->name),
                        nd__text_plain((char[ND__TEXT_PLAIN]){0}, manager->name));
    }
    nd__manager_array_free(&managers);
    return stream ? nd__text_end(&out, "debug_holders", stream) : ND_OK;
}

// ------------------------------------------------------------------------------------------ public

nd_status nd_debug_get_holders(const void *handle, FILE *stream, nd_holders *ret_holders) {
    ND__UNCANCELLED;
    if (!handle)
        return nd__error_null("debug_holders", "object");
    nd_status status = ND_OK;
    if (ret_holders)
        status = nd__versioned_check("debug_holders", "ND_HOLDERS_INIT", ret_holders);
    if (status != ND_OK)
        return status;
    nd_holders result = ND_HOLDERS_INIT;
    nd_object *object = (nd_object *)(uintptr_t)handle;
    if (object->type->flags & ND__TYPE_MANAGER) {
        status = manager_holders((nd_manager *)object, stream, &result);
    } else {
        holders self = {0};
        nd__text out = {0};
        if ((stream && !nd__text_begin(&out)) || !nd__census_take(&self.graph, NULL)) {
            nd__text_drop(&out);
            return nd__error(ND_ERROR_OUT_OF_MEMORY,
                             "debug_holders: no memory to list the objects");
        }
        self.x = nd__census_find(&self.graph, object);
        if (self.x == NO_OBJECT)
            status = nd__error(
                ND_ERROR_STATE,
                "debug_holders: the %s is being destroyed, or on its way to another manager",
                object->type->name);
        else if (!find_holders(&self))
            status = nd__error(ND_ERROR_OUT_OF_MEMORY, "debug_holders: no memory for the paths");
        if (status == ND_OK) {
            count_holders(&self, &result);
            if (stream)
                write_holders(out.stream, &self, &result);
        }
        nd__alloc_free(self.memory);
        nd__census_free(&self.graph);
        if (status != ND_OK)
            nd__text_drop(&out);
        else if (stream)
            status = nd__text_end(&out, "debug_holders", stream);
    }
    if (status == ND_OK && ret_holders)
        nd__versioned_write(ret_holders, &result, sizeof result);
    return status;
}

nd_status nd_debug_holders(const void *object, FILE *stream) {
    ND__UNCANCELLED;
    if (!stream)
        return nd__error_null("debug_holders", "stream");
    return nd_debug_get_holders(object, stream, NULL);
}
