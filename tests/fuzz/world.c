// Slots, the user's types, and what numbers mean.
#include "tests/fuzz/program.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// ------------------------------------------------------------------------------------------- slots

static fuzz_slot *find(fuzz_actor *me, fuzz_kind kind, uint8_t number) {
    if (number >= 224)
        return NULL;
    for (unsigned i = 0; i < FUZZ_SLOTS; i++) {
        fuzz_slot *slot = &me->slots[kind][(number + i) % FUZZ_SLOTS];
        if (slot->handle)
            return slot;
    }
    return NULL;
}

static void pin(fuzz_actor *me, fuzz_slot *slot) {
    if (me->pinned_count == sizeof me->pinned / sizeof *me->pinned)
        fuzz_die("a step takes too many operands");
    slot->pins++;
    me->pinned[me->pinned_count++] = slot;
}

void *fuzz_pick(fuzz_actor *me, fuzz_kind kind, uint8_t number) {
    fuzz_slot *slot = find(me, kind, number);
    if (!slot)
        return NULL;
    pin(me, slot);
    slot->fresh = false;
    return slot->handle;
}

void *fuzz_pick_to_write(fuzz_actor *me, fuzz_kind kind, uint8_t number) {
    fuzz_slot *slot = find(me, kind, number);
    if (!slot || (fuzz_threaded && !slot->fresh))
        return NULL;
    // The same object may be in another slot, too, and an operand from there.
    for (unsigned i = 0; i < me->pinned_count; i++)
        if (me->pinned[i]->handle == slot->handle)
            return NULL;
    pin(me, slot);
    return slot->handle;
}

void *fuzz_pick_any(fuzz_actor *me, uint8_t number) {
    if (number >= 224)
        return NULL;
    fuzz_kind first = (fuzz_kind)(number / FUZZ_SLOTS % FUZZ_KINDS);
    for (unsigned i = 0; i < FUZZ_KINDS; i++) {
        void *found = fuzz_pick(me, (first + i) % FUZZ_KINDS, number);
        if (found)
            return found;
    }
    return NULL;
}

static void put(fuzz_actor *me, fuzz_kind kind, uint8_t number, void *owned, bool fresh) {
    fuzz_slot *slot = &me->slots[kind][number % FUZZ_SLOTS];
    if (slot->pins) {
        nd_object_release(owned);
        return;
    }
    void *old = slot->handle;
    fuzz_held(owned, 1);
    fuzz_held(old, -1);
    slot->handle = owned;
    slot->fresh = fresh;
    nd_object_release(old);
}

void fuzz_put(fuzz_actor *me, fuzz_kind kind, uint8_t number, void *owned) {
    put(me, kind, number, owned, false);
}

void fuzz_put_fresh(fuzz_actor *me, fuzz_kind kind, uint8_t number, void *owned) {
    put(me, kind, number, owned, true);
}

void *fuzz_take(fuzz_actor *me, fuzz_kind kind, uint8_t number) {
    fuzz_slot *slot = &me->slots[kind][number % FUZZ_SLOTS];
    if (slot->pins)
        return NULL;
    void *taken = slot->handle;
    fuzz_held(taken, -1);
    slot->handle = NULL;
    return taken;
}

void fuzz_drop(fuzz_actor *me) {
    for (int kind = 0; kind < FUZZ_KINDS; kind++)
        for (uint8_t i = 0; i < FUZZ_SLOTS; i++)
            nd_object_release(fuzz_take(me, (fuzz_kind)kind, i));
}

// ------------------------------------------------------------------------------------ user's types

/// What an object of the user's types holds. All zero it has no edges.
typedef struct fuzz_cell {
    _Atomic uint32_t held; ///< by slots
    _Atomic uint32_t finalized;
    _Atomic uint32_t destroyed;
    bool half; ///< filled: nobody has seen it
    void *edges[FUZZ_EDGES];
} fuzz_cell;

static _Atomic int64_t cells_alive;

int64_t fuzz_cells_alive(void) {
    return atomic_load(&cells_alive);
}

static void cell_traverse(const nd_object *self, nd_visitor *visitor) {
    static const char *const labels[FUZZ_EDGES] = {"first", "second", "third", "fourth"};
    const fuzz_cell *cell = nd_object_get_data(self);
    for (int i = 0; i < FUZZ_EDGES; i++)
        nd_visit(visitor, cell->edges[i], labels[i]);
}

static void cell_clear(nd_object *self) {
    fuzz_cell *cell = nd_object_get_data(self);
    for (int i = 0; i < FUZZ_EDGES; i++)
        nd_edge_clear(&cell->edges[i]);
}

static void cell_destroy(nd_object *self) {
    fuzz_cell *cell = nd_object_get_data(self);
    if (atomic_fetch_add(&cell->destroyed, 1) != 0)
        fuzz_die("an object was destroyed twice");
    if (atomic_load(&cell->held) != 0 && !nd_is_closed(self))
        fuzz_die("an object was destroyed that a handle holds");
    for (int i = 0; i < FUZZ_EDGES; i++)
        if (cell->edges[i])
            fuzz_die("an object was destroyed before its edges were cleared");
    atomic_fetch_sub(&cells_alive, 1);
}

static void cell_destroy_busily(nd_object *self) {
    fuzz_nest();
    cell_destroy(self);
}

/// Revives every second one: whoever finalizes it keeps it in a slot.
static void cell_finalize(nd_object *self) {
    fuzz_cell *cell = nd_object_get_data(self);
    if (cell->half)
        fuzz_die("an object was finalized that nobody has seen");
    if (atomic_fetch_add(&cell->finalized, 1) != 0)
        fuzz_die("an object was finalized twice");
    if (fuzz_me && !fuzz_me->quiet && ((uintptr_t)self / 64) % 2)
        fuzz_put(fuzz_me, FUZZ_OBJECT, (uint8_t)fuzz_me->next, nd_retain(self));
    fuzz_nest();
}

/// May be asked from any thread while edges change, so it must not look at them.
static const char *cell_describe(const nd_object *self) {
    return (uintptr_t)self / 64 % 2 ? "odd cell" : "even cell";
}

static const nd_type cell_types[] = {
    {.size = sizeof(nd_type),
     .version = 1,
     .name = "plain",
     .traverse = cell_traverse,
     .clear = cell_clear,
     .destroy = cell_destroy},
    {.size = sizeof(nd_type),
     .version = 1,
     .name = "finalized",
     .traverse = cell_traverse,
     .clear = cell_clear,
     .finalize = cell_finalize,
     .destroy = cell_destroy,
     .describe = cell_describe},
    {.size = sizeof(nd_type),
     .version = 1,
     .name = "busy",
     .traverse = cell_traverse,
     .clear = cell_clear,
     .destroy = cell_destroy_busily},
    {.size = sizeof(nd_type),
     .version = 1,
     .name = "green",
     .flags = ND_TYPE_GREEN,
     .destroy = cell_destroy},
};
enum { CELL_TYPES = sizeof cell_types / sizeof *cell_types };

nd_object *fuzz_cell_new(uint8_t which) {
    nd_object *object = nd_object_new(&cell_types[which % CELL_TYPES], sizeof(fuzz_cell));
    if (object)
        atomic_fetch_add(&cells_alive, 1);
    return object;
}

typedef struct filling {
    void *const *objects;
    nd_status status;
    bool green;
} filling;

static nd_status fill(nd_object *self, void *data) {
    const filling *how = data;
    fuzz_cell *cell = nd_object_get_data(self);
    atomic_fetch_add(&cells_alive, 1); // from here on it is destroyed, whatever happens
    cell->half = how->status != ND_OK;
    fuzz_nest();
    for (int i = 0; i < (cell->half ? FUZZ_EDGES / 2 : FUZZ_EDGES) && !how->green; i++)
        cell->edges[i] = nd_object_retain(how->objects[i]);
    nd_error_clear(); // what the steps have left; a status without a sentence gets one
    return how->status;
}

nd_object *fuzz_cell_new_with(uint8_t which, void *const *objects, nd_status status) {
    const nd_type *type = &cell_types[which % CELL_TYPES];
    filling how = {objects, status, type->flags & ND_TYPE_GREEN};
    return nd_object_new_with(type, sizeof(fuzz_cell), fill, &how);
}

static bool is_cell(const void *object) {
    const nd_type *type = nd_object_get_type(object);
    return type >= cell_types && type < cell_types + CELL_TYPES;
}

/// The payload, or NULL for a closed cell, without an error.
static fuzz_cell *cell_of(const void *object) {
    return is_cell(object) && !nd_is_closed(object) ? nd_object_get_data(object) : NULL;
}

void **fuzz_edge(fuzz_actor *me, nd_object *object, uint8_t number) {
    fuzz_cell *cell = cell_of(object);
    if (!cell || nd_object_get_type(object)->flags & ND_TYPE_GREEN)
        return NULL;
    return &cell->edges[fuzz_threaded ? me->number % FUZZ_EDGES : number % FUZZ_EDGES];
}

void fuzz_held(void *object, int by) {
    fuzz_cell *cell = object ? cell_of(object) : NULL;
    if (!cell)
        return;
    if (atomic_load(&cell->destroyed))
        fuzz_die("a handle of a destroyed object was handed out");
    atomic_fetch_add(&cell->held, (uint32_t)by);
}

fuzz_kind fuzz_kind_of(const void *object) {
    static const char *const names[FUZZ_KINDS] = {
        [FUZZ_TENSOR] = "tensor",      [FUZZ_MANAGER] = "manager",
        [FUZZ_WEAK] = "weak",          [FUZZ_LIST] = "list",
        [FUZZ_MODULE] = "module",      [FUZZ_OPTIMIZER] = "optimizer",
        [FUZZ_DATASET] = "dataset",    [FUZZ_MAP] = "map",
        [FUZZ_SCHEDULE] = "schedule",  [FUZZ_EMA] = "ema",
        [FUZZ_SCALER] = "loss_scaler", [FUZZ_STATE] = "state",
        [FUZZ_STREAM] = "stream",      [FUZZ_EVENT] = "event",
    };
    if (is_cell(object))
        return FUZZ_OBJECT;
    const char *name = nd_object_get_type(object)->name;
    for (int kind = 0; kind < FUZZ_KINDS; kind++)
        if (names[kind] && strcmp(names[kind], name) == 0)
            return (fuzz_kind)kind;
    return FUZZ_KINDS;
}

// ------------------------------------------------------------------------------ what numbers mean

int fuzz_shape(uint8_t number, const int64_t **ret_shape) {
    static const struct {
        int ndim;
        int64_t shape[ND_MAX_DIMS];
    } shapes[] = {
        {0, {0}},
        {1, {1}},
        {1, {2}},
        {1, {3}},
        {1, {4}},
        {1, {0}},
        {2, {2, 3}},
        {2, {3, 2}},
        {2, {1, 3}},
        {2, {3, 1}},
        {2, {2, 2}},
        {2, {4, 4}},
        {3, {2, 1, 3}},
        {3, {1, 1, 4}},
        {3, {2, 3, 4}},
        {3, {2, 0, 3}},
        {4, {1, 1, 1, 1}},
        {4, {2, 1, 2, 2}},
        {8, {1, 1, 2, 1, 1, 2, 1, 2}},
        {1, {5}},
        {1, {16}},
        {2, {16, 8}},
        {1, {1000}},
        {2, {40, 30}},
        {4, {1, 1, 4, 4}},
        {4, {2, 1, 3, 3}},
        {4, {1, 2, 5, 5}},
        {4, {2, 2, 2, 2}},
        {2, {0, 3}},
        {2, {4, 1}},
        {3, {1, 3, 1}},
        {2, {-1, 3}},
    };
    number %= sizeof shapes / sizeof *shapes;
    *ret_shape = shapes[number].shape;
    return shapes[number].ndim;
}

nd_dtype fuzz_dtype(uint8_t number) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F64,  ND_I64, ND_I32,
                                      ND_U8,  ND_BOOL, ND_F32, ND_F32};
    return dtypes[number % 8];
}

double fuzz_value(uint8_t number) {
    static const double values[] = {
        0, 1,   -1,   0.5,         2,    3,      -0.25, 4,
        7, 255, -128, (double)NAN, 1e30, -1e300, 1e-40, (double)INFINITY};
    return values[number % 16];
}

// ---------------------------------------------------------------------------------------- verdicts

void fuzz_die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("fuzz: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    abort();
}

void fuzz_expect(fuzz_actor *me, bool success) {
    if (me->disturbed)
        return;
    nd_status status = nd_error_get_status();
    if (success && status != ND_OK)
        fuzz_die("a call succeeded and left an error: %s", nd_error_get_message());
    if (!success && status == ND_OK)
        fuzz_die("a call failed and set no error");
    if (!success && fuzz_traced)
        fprintf(stderr, "    refused: %s\n", nd_error_get_message());
    if (!success && !nd_error_get_message()[0])
        fuzz_die("an error has no sentence");
}
