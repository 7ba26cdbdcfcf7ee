// The cells of cell.h. Death is recorded with atomics: cells may die on any thread.
#include "tests/behaviour/cell.h"
#include <stdlib.h>

enum { ORDERED = 64 };

void (*cell_on_finalize)(nd_object *self);
void (*cell_on_destroy)(nd_object *self);
void (*cell_on_traverse)(const nd_object *self);

static _Atomic uint8_t *deaths;
static uint32_t deaths_size;
static _Atomic uint64_t total_deaths;
static _Atomic uint32_t order[ORDERED];

static const char *edge_label(uint32_t edge) {
    static const char *const labels[] = {"first", "second", "third", "fourth"};
    return edge < 4 ? labels[edge] : "more";
}

static void cell_traverse(const nd_object *self, nd_visitor *visitor) {
    const cell *c = cell_of(self);
    uint32_t count = atomic_load_explicit(&c->count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++)
        nd_visit(visitor, c->edges[i], edge_label(i));
}

static void cell_watched_traverse(const nd_object *self, nd_visitor *visitor) {
    if (cell_on_traverse)
        cell_on_traverse(self);
    cell_traverse(self, visitor);
}

static void cell_clear(nd_object *self) {
    cell *c = cell_of(self);
    for (uint32_t i = 0; i < c->count; i++)
        nd_edge_clear(&c->edges[i]);
}

static void cell_finalize(nd_object *self) {
    if (cell_on_finalize)
        cell_on_finalize(self);
}

static void cell_destroy(nd_object *self) {
    if (cell_on_destroy)
        cell_on_destroy(self);
    uint32_t number = cell_of(self)->number;
    if (number < deaths_size)
        atomic_fetch_add(&deaths[number], 1);
    uint64_t n = atomic_fetch_add(&total_deaths, 1);
    if (n < ORDERED)
        atomic_store(&order[n], number);
}

const nd_type cell_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "cell",
    .traverse = cell_traverse,
    .clear = cell_clear,
    .destroy = cell_destroy,
};

const nd_type cell_finalized_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "finalized_cell",
    .traverse = cell_traverse,
    .clear = cell_clear,
    .finalize = cell_finalize,
    .destroy = cell_destroy,
};

const nd_type cell_watched_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "watched_cell",
    .traverse = cell_watched_traverse,
    .clear = cell_clear,
    .destroy = cell_destroy,
};

void cell_begin(uint32_t numbers) {
    cell_end();
    deaths = calloc(numbers ? numbers : 1, sizeof *deaths);
    if (!deaths)
        abort();
    deaths_size = numbers;
}

void cell_end(void) {
    cell_on_finalize = NULL;
    cell_on_destroy = NULL;
    cell_on_traverse = NULL;
    atomic_store(&total_deaths, 0);
    deaths_size = 0;
    free((void *)deaths);
    deaths = NULL;
}

nd_object *cell_new_of(const nd_type *type, uint32_t number, uint32_t edges) {
    nd_object *object = nd_object_new(type, sizeof(cell) + edges * sizeof(nd_object *));
    if (!object)
        return NULL;
    // It has been published with count 0, that is, without edges; another thread's collection may
    // be looking at it now.
    cell *c = cell_of(object);
    c->number = number;
    atomic_store_explicit(&c->count, edges, memory_order_release);
    return object;
}

nd_object *cell_new(uint32_t number, uint32_t edges) {
    return cell_new_of(&cell_type, number, edges);
}

cell *cell_of(const nd_object *object) {
    return nd_object_get_data(object);
}

void cell_link(nd_object *from, uint32_t edge, const void *to) {
    nd_edge_set(&cell_of(from)->edges[edge], to);
}

void cell_unlink(nd_object *from, uint32_t edge) {
    nd_edge_clear(&cell_of(from)->edges[edge]);
}

void cell_ring(nd_object *const *cells, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        cell_link(cells[i], 0, cells[(i + 1) % count]);
}

void cell_drop_ring(uint32_t first, uint32_t count) {
    nd_object *start = cell_new(first, 1);
    nd_object *end = nd_retain(start);
    for (uint32_t i = 1; start && i < count; i++) {
        nd_object *next = cell_new(first + i, 1);
        if (!next)
            break;
        cell_link(end, 0, next);
        nd_release(end);
        end = next;
    }
    if (end)
        cell_link(end, 0, start);
    nd_release(end);
    nd_release(start);
}

uint32_t cell_deaths(uint32_t number) {
    return number < deaths_size ? atomic_load(&deaths[number]) : 0;
}

uint64_t cell_total_deaths(void) {
    return atomic_load(&total_deaths);
}

uint32_t cell_death_at(uint32_t n) {
    return n < ORDERED && n < atomic_load(&total_deaths) ? atomic_load(&order[n]) : UINT32_MAX;
}
