// nd_list: a growable array of edges.
//
// The array may move when it grows, and the collector may be reading it: it is exchanged inside the
// gate.
#include "lib/core/alloc.h"
#include "lib/core/error.h"
#include "lib/core/gate.h"
#include "lib/core/manager.h"
#include "lib/core/object.h"
#include "lib/core/pressure.h"
#include <string.h>

struct nd_list {
    nd_object header;
    size_t size, capacity;
    nd_object **items; ///< edges
};

static void list_traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_list *list = (const nd_list *)self;
    for (size_t i = 0; i < list->size; i++)
        nd_visit(visitor, list->items[i], "item");
}

static void list_clear(nd_object *self) {
    nd_list *list = (nd_list *)self;
    for (size_t i = list->size; i-- > 0;)
        nd_edge_clear(&list->items[i]);
    list->size = 0;
}

static void list_destroy(nd_object *self) {
    nd_list *list = (nd_list *)self;
    nd__free(list->items);
    list->items = NULL;
    list->capacity = 0;
}

static const nd_type list_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "list",
    .traverse = list_traverse,
    .clear = list_clear,
    .destroy = list_destroy,
};

nd_list *nd_list_new(void) {
    nd_list *list = (nd_list *)nd__object_new(&list_type, sizeof *list);
    if (!list)
        return NULL;
    nd_place place = nd__place_begin(NULL, 0);
    nd_status status = nd__object_publish(&list->header, place.manager);
    nd__place_end(place);
    if (status != ND_OK) {
        nd__free(list);
        return NULL;
    }
    return list;
}

static nd_status check(const char *operation, const nd_list *list) {
    if (!list)
        return nd__error_null(operation, "list");
    if (nd__is_closed(list))
        return nd__error(ND_ERROR_CLOSED, "%s: the list is closed", operation);
    return ND_OK;
}

static nd_status grow(nd_list *list) {
    size_t capacity = list->capacity ? 2 * list->capacity : 8;
    nd_object **items = nd__obtain(capacity * sizeof *items);
    if (!items)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "list_append: no memory for %zu items", capacity);
    if (capacity <= list->capacity) { // a callback for memory has used the list meanwhile
        nd__free(items);
        return ND_OK;
    }
    nd__gate_enter();
    nd_object **before = list->items;
    if (list->size)
        memcpy(items, before, list->size * sizeof *items);
    list->items = items;
    list->capacity = capacity;
    nd__gate_leave();
    nd__free(before);
    return ND_OK;
}

nd_status nd_list_append(nd_list *list, const void *object) {
    nd_status status = check("list_append", list);
    if (status == ND_OK && !object)
        status = nd__error_null("list_append", "object");
    while (status == ND_OK && list->size == list->capacity)
        status = grow(list);
    if (status != ND_OK)
        return status;
    nd_object *item = nd_object_retain(object);
    nd__gate_enter();
    list->items[list->size++] = item;
    nd__gate_leave();
    return ND_OK;
}

const nd_object *nd_list_get(const nd_list *list, size_t index) {
    if (check("list_get", list) != ND_OK)
        return NULL;
    if (index >= list->size) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "list_get: index %zu is out of range, the list has %zu items", index, list->size);
        return NULL;
    }
    return list->items[index];
}

size_t nd_list_size(const nd_list *list) {
    return list ? list->size : 0;
}

nd_status nd_list_clear(nd_list *list) {
    nd_status status = check("list_clear", list);
    if (status != ND_OK)
        return status;
    while (list->size) {
        nd__gate_enter();
        nd_object *item = list->items[--list->size];
        nd__gate_leave();
        nd_object_release(item);
    }
    return ND_OK;
}
