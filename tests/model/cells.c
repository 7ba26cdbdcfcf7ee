// What the programs are made of (cells.h).
#include "tests/model/cells.h"
#include "lib/object/callback.h"
#include "lib/object/object.h"
#include "tests/model/memory.h"
#include "tests/model/scheduler.h"

nd_object *cells[CELLS];
int handles[CELLS];
int deaths[CELLS];
static int made;
nd_manager *managers[MANAGERS];
nd_weak *weak;
nd_object *found;
nd_list *list;

cell *cell_of(const nd_object *object) {
    // nd_object_get_data is no event either
    return (cell *)(uintptr_t)(const void *)((const char *)object + ND__PAYLOAD);
}

static void cell_traverse(const nd_object *self, nd_visitor *visitor) {
    nd_visit(visitor, cell_of(self)->edges[0], "first");
    nd_visit(visitor, cell_of(self)->edges[1], "second");
}

static void cell_clear(nd_object *self) {
    nd_edge_clear(&cell_of(self)->edges[0]);
    nd_edge_clear(&cell_of(self)->edges[1]);
}

static void cell_destroy(nd_object *self) {
    model_assert(!nd__callback_running());
    deaths[cell_of(self)->number]++;
}

const nd_type cell_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "cell",
    .traverse = cell_traverse,
    .clear = cell_clear,
    .destroy = cell_destroy,
};

static void cell_revive(nd_object *self) {
    found = nd_retain(self);
}

const nd_type reviving_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "reviving_cell",
    .traverse = cell_traverse,
    .clear = cell_clear,
    .finalize = cell_revive,
    .destroy = cell_destroy,
};

// ------------------------------------------------------------------------------- setup and finish

nd_object *make_of(const nd_type *type, const nd_manager *manager, int count) {
    static const char *const names[] = {"A", "B", "C", "D", "E"};
    nd_object *object = NULL;
    nd_with_manager(manager) {
        object = nd_object_new(type, sizeof(cell));
    }
    model_assert(object);
    cell_of(object)->number = made;
    handles[made] = count;
    for (int i = 1; i < count; i++)
        nd__object_keep(object);
    model_name(object, names[made]);
    cells[made++] = object;
    return object;
}

nd_object *make(const nd_manager *manager, int count) {
    return make_of(&cell_type, manager, count);
}

void give_up(nd_object *object) {
    handles[cell_of(object)->number]--;
    nd_release(object);
}

void make_ring(const nd_manager *manager, int first_handles, int second_handles) {
    nd_object *first = make(manager, first_handles + 1);
    nd_object *second = make(manager, second_handles + 1);
    nd_edge_set(&cell_of(first)->edges[0], second);
    nd_edge_set(&cell_of(second)->edges[0], first);
    give_up(first);
    give_up(second);
}

bool threads_begin_late;
size_t managers_made;

void make_managers(int count) {
    managers_made = (size_t)count;
    for (int i = 0; i < count; i++) {
        managers[i] = nd_manager_new(NULL, "m");
        model_assert(managers[i]);
        model_name(managers[i], i ? "M1" : "M0");
    }
    model_name(nd_manager_get_root(), "root");
    model_name(deaths, "deaths");
    model_name(&deaths[CELLS], "static data");
    if (!threads_begin_late)
        model_register_threads();
}

void must_live(const nd_object *object) {
    model_assert(nd_get_count(object) > 0);
    model_assert(deaths[cell_of(object)->number] == 0);
}

/// What lives on is where it can be found.
static void must_be_placed(const void *object) {
    model_assert(nd_manager_is_open(nd_get_manager(object)));
}

void finish(void) {
    for (int i = 0; i < made; i++)
        if (handles[i])
            must_be_placed(cells[i]);
    if (list)
        must_be_placed(list);
    for (int i = 0; i < made; i++)
        for (int k = 0; k < handles[i]; k++) {
            model_assert(nd_get_count(cells[i]) > 0);
            nd_release(cells[i]);
        }
    nd_release(weak);
    nd_release(list);
    for (int i = 0; i < 2; i++) { // a finalizer may revive what the first one finds
        nd_release(found);
        found = NULL;
        model_assert(nd_gc_collect(NULL, NULL) == ND_OK);
    }
    for (int i = 0; i < made; i++)
        if (deaths[i] != 1)
            model_fail("cell %d has died %d times", i, deaths[i]);
    for (int i = 0; i < MANAGERS && managers[i]; i++) {
        nd_manager_close(managers[i], NULL);
        nd_release(managers[i]);
    }
    if (nd_debug_check() != ND_OK)
        model_fail("%s", nd_error_get_message());
    model_assert(nd_manager_get_total_objects(NULL) == 0);
    // A manager's memory is kept for the next one.
    if (memory_live_blocks() > managers_made)
        model_fail("%zu blocks are left", memory_live_blocks() - managers_made);
}
