// The graph of objects as JSON and as DOT, from one census.
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/locale.h"
#include "lib/debug/census.h"
#include "lib/debug/text.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include <inttypes.h>
#include <nd/debug.h>

/// Takes the census and begins the text, or sets the error.
static nd_status begin(const char *operation, const nd_manager *manager, FILE *stream,
                       census *result, nd__text *out) {
    if (!stream)
        return nd__error_null(operation, "stream");
    if (!nd__text_begin(out))
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the text", operation);
    if (!nd__census_take(result, manager)) {
        nd__text_drop(out);
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to list the objects", operation);
    }
    return ND_OK;
}

static size_t shown_objects(const census *result, uint64_t limit) {
    return limit && limit < result->count ? (size_t)limit : result->count;
}

static size_t manager_index(const census *result, const nd_manager *manager) {
    for (size_t i = 0; i < result->managers.count; i++)
        if (result->managers.items[i] == manager)
            return i;
    return result->managers.count;
}

static uint64_t own_bytes(nd_manager *manager) {
    nd__counters count = nd__shard_total(manager);
    uint64_t bytes = 0;
    for (int kind = 0; kind < ND__KIND_PLACES; kind++)
        bytes += count.own_bytes[kind];
    return bytes;
}

// -------------------------------------------------------------------------------------------- JSON

static void write_json_site(FILE *stream, const census_object *object) {
    if (!object->file)
        return;
    fputs(", \"file\": ", stream);
    nd__text_write_json(stream, object->file);
    fprintf(stream, ", \"line\": %" PRIu32, object->line);
}

static void write_json_object(FILE *stream, const census *result, size_t place) {
    const census_object *object = &result->objects[place];
    fprintf(stream, "{\"id\": %zu, \"type\": ", place);
    nd__text_write_json(stream, object->what);
    if (object->name[0]) {
        fputs(", \"name\": ", stream);
        nd__text_write_json(stream, object->name);
    }
    fprintf(stream,
            ", \"manager\": %" PRIu32 ", \"count\": %" PRIu32 ", \"handles\": %" PRIu32
            ", \"tracked\": %s, \"closed\": %s",
            object->manager, object->count, nd__census_handles(object),
            object->tracked ? "true" : "false", object->closed ? "true" : "false");
    if (object->accounted)
        fprintf(stream, ", \"bytes\": %" PRIu64, object->bytes);
    write_json_site(stream, object);
    fputc('}', stream);
}

static void write_json(FILE *stream, const census *result, size_t shown) {
    fprintf(stream, "{\"format\": \"ndarc dump\", \"version\": 1, \"objects_alive\": %zu,\n",
            result->count);
    fputs("\"managers\": [", stream);
    for (size_t i = 0; i < result->managers.count; i++) {
        nd_manager *manager = result->managers.items[i];
        fprintf(stream, "%s\n  {\"id\": %zu, \"name\": ", i ? "," : "", i);
        nd__text_write_json(stream, manager->name);
        if (i > 0)
            fprintf(stream, ", \"parent\": %zu", manager_index(result, manager->parent));
        fprintf(stream, ", \"bytes\": %" PRIu64 "}", own_bytes(manager));
    }
    fputs("],\n\"objects\": [", stream);
    for (size_t i = 0; i < shown; i++) {
        fputs(i ? ",\n  " : "\n  ", stream);
        write_json_object(stream, result, i);
    }
    fputs("],\n\"edges\": [", stream);
    const char *separator = "\n  ";
    for (size_t i = 0; i < result->edge_count; i++) {
        const census_edge *edge = &result->edges[i];
        if (edge->from >= shown || edge->to >= shown)
            continue;
        fprintf(stream, "%s{\"from\": %" PRIu32 ", \"to\": %" PRIu32 ", \"label\": ", separator,
                edge->from, edge->to);
        nd__text_write_json(stream, edge->label);
        fputc('}', stream);
        separator = ",\n  ";
    }
    fputs("]}\n", stream);
}

nd_status nd_debug_dump_json(const nd_manager *manager, FILE *stream, uint64_t limit) {
    ND__UNCANCELLED;
    census result;
    nd__text out;
    nd_status status = begin("debug_dump_json", manager, stream, &result, &out);
    if (status != ND_OK)
        return status;
    write_json(out.stream, &result, shown_objects(&result, limit));
    nd__census_free(&result);
    return nd__text_end(&out, "debug_dump_json", stream);
}

// --------------------------------------------------------------------------------------------- DOT

static void write_bytes(FILE *stream, uint64_t bytes) {
    locale_t before = nd__locale_begin_plain();
    if (bytes < 1024)
        fprintf(stream, "%" PRIu64 " B", bytes);
    else if (bytes < UINT64_C(1048576))
        fprintf(stream, "%.1f KiB", (double)bytes / 1024);
    else
        fprintf(stream, "%.1f MiB", (double)bytes / 1048576);
    nd__locale_end(before);
}

/// Bold and shaded: held by the program. Grey: nothing the collector looks at.
static void write_dot_object(FILE *stream, const census *result, size_t place) {
    const census_object *object = &result->objects[place];
    uint32_t handles = nd__census_handles(object);
    fprintf(stream, "o%zu [label=\"", place);
    nd__text_write_dot(stream, object->what);
    if (object->name[0]) {
        fputs("\\n", stream);
        nd__text_write_dot(stream, object->name);
    }
    if (object->accounted) {
        fputs("\\n", stream);
        write_bytes(stream, object->bytes);
    }
    if (handles)
        fprintf(stream, "\\n%" PRIu32 " handle%s", handles, handles == 1 ? "" : "s");
    if (object->file) {
        fputs("\\n", stream);
        nd__text_write_dot(stream, object->file);
        fprintf(stream, ":%" PRIu32, object->line);
    }
    fprintf(stream, "\"%s%s%s];\n", handles ? ", style=\"filled,bold\", fillcolor=\"#fff2cc\"" : "",
            object->tracked ? "" : ", color=gray50, fontcolor=gray30",
            object->closed ? ", peripheries=2" : "");
}

/// Objects are in the order of their managers.
static size_t first_object_of(const census *result, size_t manager) {
    size_t low = 0, high = result->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (result->objects[middle].manager < manager)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/// Opens a manager's cluster and writes its objects.
static void write_dot_cluster(FILE *stream, const census *result, size_t manager, size_t shown) {
    nd_manager *self = result->managers.items[manager];
    fprintf(stream, "subgraph cluster_%zu {\nlabel=\"manager ", manager);
    nd__text_write_dot(stream, self->name);
    fputs("  ", stream);
    write_bytes(stream, own_bytes(self));
    fputs("\";\n", stream);
    size_t first = first_object_of(result, manager), i = first;
    for (; i < shown && result->objects[i].manager == manager; i++)
        write_dot_object(stream, result, i);
    // A cluster without a node is not drawn.
    if (i == first)
        fprintf(stream, "m%zu [label=\"(no objects)\", shape=plaintext];\n", manager);
}

static void write_dot(FILE *stream, const census *result, size_t shown) {
    fputs("digraph ndarc {\nrankdir=LR;\nfontname=\"sans-serif\";\n"
          "node [shape=box, fontname=\"sans-serif\", fontsize=10];\n"
          "edge [fontname=\"sans-serif\", fontsize=9];\n",
          stream);
    const nd_manager *top = result->managers.items[0];
    write_dot_cluster(stream, result, 0, shown);
    // Down to the first child, on to the next sibling, up: the managers are the stack.
    const nd_manager *at = top;
    size_t last_child = 0; // children are appended behind their parent, so indices rise in a level
    for (;;) {
        size_t next = last_child + 1;
        while (next < result->managers.count && result->managers.items[next]->parent != at)
            next++;
        if (next < result->managers.count) {
            write_dot_cluster(stream, result, next, shown);
            at = result->managers.items[next];
            last_child = next;
            continue;
        }
        fputs("}\n", stream);
        if (at == top)
            break;
        last_child = manager_index(result, at);
        at = at->parent;
    }
    for (size_t i = 0; i < result->edge_count; i++) {
        const census_edge *edge = &result->edges[i];
        if (edge->from >= shown || edge->to >= shown)
            continue;
        fprintf(stream, "o%" PRIu32 " -> o%" PRIu32 " [label=\"", edge->from, edge->to);
        nd__text_write_dot(stream, edge->label);
        fputs("\"];\n", stream);
    }
    if (shown < result->count)
        fprintf(stream, "rest [label=\"%zu more objects\", shape=plaintext];\n",
                result->count - shown);
    fputs("}\n", stream);
}

nd_status nd_debug_dump_dot(const nd_manager *manager, FILE *stream, uint64_t limit) {
    ND__UNCANCELLED;
    census result;
    nd__text out;
    nd_status status = begin("debug_dump_dot", manager, stream, &result, &out);
    if (status != ND_OK)
        return status;
    write_dot(out.stream, &result, shown_objects(&result, limit));
    nd__census_free(&result);
    return nd__text_end(&out, "debug_dump_dot", stream);
}
