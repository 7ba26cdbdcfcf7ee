// nd_list: a growable array of edges.
//
// The array may move when it grows, and the collector may be reading it: it is exchanged inside the
// gate.
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/seam.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
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
    nd__alloc_free(list->items);
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
    return nd__object_publish_or_discard("list_new", list);
}

static nd_status check(const char *operation, const nd_list *list) {
    if (!list)
        return nd__error_null(operation, "list");
    if (nd__object_is_closing(list))
        return nd__error(ND_ERROR_CLOSED, "%s: the list is closed", operation);
    return ND_OK;
}

/// `limit`: one more than the largest index that there may be.
static nd_status check_index(const char *operation, const nd_list *list, size_t index,
                             size_t limit) {
    if (index < limit)
        return ND_OK;
    return nd__error(ND_ERROR_INVALID_ARGUMENT,
                     "%s: index %zu is out of range, the list has %zu items", operation, index,
                     list->size);
}

static nd_status check_item(const char *operation, const nd_list *list, size_t index) {
    nd_status status = check(operation, list);
    return status == ND_OK ? check_index(operation, list, index, list->size) : status;
}

static nd_status grow(const char *operation, nd_list *list) {
    size_t capacity = list->capacity ? 2 * list->capacity : 8;
    nd_object **items = nd__seam_alloc(capacity * sizeof *items);
    if (!items)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu items", operation,
                         capacity);
    // A callback for memory may have used the list meanwhile, or closed it.
    if (capacity <= list->capacity || nd__object_is_closing(list)) {
        nd__alloc_free(items);
        return check(operation, list);
    }
    nd__gate_enter();
    nd_object **before = list->items;
    if (list->size)
        memcpy(items, before, list->size * sizeof *items);
    list->items = items;
    list->capacity = capacity;
    nd__gate_leave();
    nd__alloc_free(before);
    return ND_OK;
}

/// Room for one more, and nothing runs after it that could take it away.
static nd_status reserve(const char *operation, nd_list *list, const void *object) {
    nd_status status = check(operation, list);
    if (status == ND_OK && !object)
        status = nd__error_null(operation, "object");
    while (status == ND_OK && list->size == list->capacity)
        status = grow(operation, list);
    return status;
}

static void insert(nd_list *list, size_t index, const void *object) {
    nd_object *item = nd_object_retain(object);
    nd__gate_enter();
    memmove(list->items + index + 1, list->items + index,
            (list->size - index) * sizeof *list->items);
    list->items[index] = item;
    list->size++;
    nd__gate_leave();
}

/// An item, which is the caller's now.
static nd_object *take(nd_list *list, size_t index) {
    nd__gate_enter_to_clear();
    nd_object *item = list->items[index];
    list->size--;
    memmove(list->items + index, list->items + index + 1,
            (list->size - index) * sizeof *list->items);
    nd__object_note_moved(item);
    nd__gate_leave();
    return item;
}

nd_status nd_list_append(nd_list *list, const void *object) {
    nd_status status = reserve("list_append", list, object);
    if (status == ND_OK)
        insert(list, list->size, object);
    return status;
}

nd_status nd_list_insert(nd_list *list, size_t index, const void *object) {
    static const char operation[] = "list_insert";
    nd_status status = reserve(operation, list, object);
    if (status == ND_OK)
        status = check_index(operation, list, index, list->size + 1);
    if (status == ND_OK)
        insert(list, index, object);
    return status;
}

nd_status nd_list_set(nd_list *list, size_t index, const void *object) {
    static const char operation[] = "list_set";
    nd_status status = check(operation, list);
    if (status == ND_OK && !object)
        status = nd__error_null(operation, "object");
    if (status == ND_OK)
        status = check_index(operation, list, index, list->size);
    if (status == ND_OK)
        nd_edge_set(&list->items[index], object);
    return status;
}

const nd_object *nd_list_get(const nd_list *list, size_t index) {
    return check_item("list_get", list, index) == ND_OK ? list->items[index] : NULL;
}

nd_object *nd_list_remove(nd_list *list, size_t index) {
    return check_item("list_remove", list, index) == ND_OK ? take(list, index) : NULL;
}

nd_object *nd_list_pop(nd_list *list) {
    if (check("list_pop", list) != ND_OK)
        return NULL;
    if (list->size)
        return take(list, list->size - 1);
    nd__error(ND_ERROR_INVALID_ARGUMENT, "list_pop: the list is empty");
    return NULL;
}

size_t nd_list_get_size(const nd_list *list) {
    return list ? list->size : 0;
}

nd_status nd_list_clear(nd_list *list) {
    nd_status status = check("list_clear", list);
    if (status != ND_OK)
        return status;
    nd_object *held = nd_object_retain(list); // what dies may release the caller's handle
    while (list->size) {
        nd__gate_enter_to_clear();
        nd_object *item = list->items[--list->size];
        nd__gate_leave();
        nd_object_release(item);
    }
    nd_object_release(held);
    return ND_OK;
}
