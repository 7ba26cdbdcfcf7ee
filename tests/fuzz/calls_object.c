// Calls about objects of any kind: handles, edges, weak references, lists, resources, scopes, and
// the board through which threads hand each other objects.
#include "tests/fuzz/program.h"
#include <pthread.h>
#include <stdlib.h>

static void new_cell(fuzz_actor *me, const fuzz_step *s) {
    nd_object *cell = fuzz_cell_new(s->b);
    fuzz_expect(me, cell);
    fuzz_put_fresh(me, FUZZ_OBJECT, s->a, cell);
}

/// What it holds when it worked, and that nothing is left of it when it failed.
static void new_cell_with(fuzz_actor *me, const fuzz_step *s) {
    static const nd_status fails[] = {ND_ERROR_STATE, ND_ERROR_IO, ND_ERROR_INVALID_ARGUMENT};
    void *objects[FUZZ_EDGES];
    uint32_t counts[FUZZ_EDGES];
    for (unsigned i = 0; i < FUZZ_EDGES; i++) {
        objects[i] = fuzz_pick_any(me, (uint8_t)(s->c + 8 * i));
        counts[i] = objects[i] ? (uint32_t)nd_get_count(objects[i]) : 0;
    }
    nd_status status = s->d % 4 ? ND_OK : fails[s->d / 4 % 3];
    nd_object *cell = fuzz_cell_new_with(s->b, objects, status);
    fuzz_expect(me, cell);
    if (cell && status != ND_OK)
        fuzz_die("an object whose init failed was handed out");
    bool alone = !fuzz_threaded && !me->disturbed;
    if (alone && status != ND_OK && nd_error_get_status() != status &&
        nd_error_get_status() != ND_ERROR_OUT_OF_MEMORY)
        fuzz_die("the failure of an init became another: %s", nd_error_get_message());
    for (unsigned i = 0; i < FUZZ_EDGES && alone && !cell; i++)
        if (objects[i] && nd_get_count(objects[i]) != counts[i])
            fuzz_die("an object that was never made holds another");
    for (unsigned i = 0; i < FUZZ_EDGES && alone && cell; i++) {
        void **edge = fuzz_edge(me, cell, (uint8_t)i);
        if (edge && *edge != objects[i])
            fuzz_die("a new object holds something else than its init gave it");
    }
    fuzz_put_fresh(me, FUZZ_OBJECT, s->a, cell);
}

/// A ring that nobody holds.
static void new_ring(fuzz_actor *me, const fuzz_step *s) {
    nd_object *first = fuzz_cell_new(s->b % 3), *last = nd_retain(first);
    for (int i = 0; i < s->a % 8 && last; i++) {
        nd_object *next = fuzz_cell_new(s->b % 3);
        void **edge = fuzz_edge(me, last, 0);
        if (next && edge)
            nd_edge_set(edge, next);
        nd_release(last);
        last = next;
    }
    void **edge = last ? fuzz_edge(me, last, 0) : NULL;
    if (edge)
        nd_edge_set(edge, first);
    nd_release(last);
    nd_release(first);
}

static void release(fuzz_actor *me, const fuzz_step *s) {
    nd_object_release(fuzz_take(me, (fuzz_kind)(s->a / FUZZ_SLOTS % FUZZ_KINDS), s->a));
}

static void retain(fuzz_actor *me, const fuzz_step *s) {
    fuzz_kind kind = (fuzz_kind)(s->a / FUZZ_SLOTS % FUZZ_KINDS);
    void *object = fuzz_pick(me, kind, s->a % 64);
    if (object)
        fuzz_put(me, kind, s->b, nd_object_retain(object));
}

static void close_object(fuzz_actor *me, const fuzz_step *s) {
    void *object = fuzz_pick_to_write(me, (fuzz_kind)(s->a / FUZZ_SLOTS % FUZZ_KINDS), s->a % 64);
    // A manager that threads share may be closed at any time, which is nd_manager_close's affair.
    nd_status status = nd_close(object);
    fuzz_expect(me, status == ND_OK);
    if (status == ND_OK && !nd_is_closed(object))
        fuzz_die("a closed object says it is open");
}

static void set_name(fuzz_actor *me, const fuzz_step *s) {
    static const char *const names[] = {
        NULL, "", "weight",
        "a name that is longer than most names are, and then some more of it \"\\\n"};
    char buffer[8];
    void *object = fuzz_pick_any(me, s->a);
    fuzz_expect(me, nd_set_name(object, names[s->b % 4]) == ND_OK);
    if (object)
        nd_get_name(object, buffer, s->c % sizeof buffer);
}

static void look(fuzz_actor *me, const fuzz_step *s) {
    const void *object = fuzz_pick_any(me, s->a);
    if (object && nd_get_count(object) == 0)
        fuzz_die("an object in a slot is dead");
    if (!nd_get_type_name(object)[0])
        fuzz_die("a type without a name");
    if (object && !nd_object_get_type(object))
        fuzz_die("an object without a type");
}

// ------------------------------------------------------------------------------------------- edges

static void edge_set(fuzz_actor *me, const fuzz_step *s) {
    nd_object *cell = fuzz_pick(me, FUZZ_OBJECT, s->a);
    void **edge = cell ? fuzz_edge(me, cell, s->b) : NULL;
    if (edge)
        nd_edge_set(edge, fuzz_pick_any(me, s->c));
}

static void edge_take(fuzz_actor *me, const fuzz_step *s) {
    nd_object *cell = fuzz_pick(me, FUZZ_OBJECT, s->a);
    void **edge = cell ? fuzz_edge(me, cell, s->b) : NULL;
    void *taken = edge ? nd_edge_take(edge) : NULL;
    if (taken && fuzz_kind_of(taken) < FUZZ_KINDS)
        fuzz_put(me, fuzz_kind_of(taken), s->c, taken);
    else
        nd_object_release(taken);
}

static void edge_clear(fuzz_actor *me, const fuzz_step *s) {
    nd_object *cell = fuzz_pick(me, FUZZ_OBJECT, s->a);
    void **edge = cell ? fuzz_edge(me, cell, s->b) : NULL;
    if (edge)
        nd_edge_clear(edge);
}

// --------------------------------------------------------------------------------- weak references

static void new_weak(fuzz_actor *me, const fuzz_step *s) {
    nd_weak *weak = nd_weak_new(fuzz_pick_any(me, s->b));
    fuzz_expect(me, weak);
    fuzz_put_fresh(me, FUZZ_WEAK, s->a, weak);
}

static void weak_get(fuzz_actor *me, const fuzz_step *s) {
    nd_weak *weak = fuzz_pick(me, FUZZ_WEAK, s->a);
    nd_object *target = nd_weak_get(weak);
    if (target && fuzz_kind_of(target) < FUZZ_KINDS)
        fuzz_put(me, fuzz_kind_of(target), s->b, target);
    else
        nd_release(target);
}

static void weak_get_tensor(fuzz_actor *me, const fuzz_step *s) {
    fuzz_put(me, FUZZ_TENSOR, s->b, nd_weak_get_tensor(fuzz_pick(me, FUZZ_WEAK, s->a)));
}

static void died(void *data) {
    (void)data;
    fuzz_nest();
}

static void weak_callback(fuzz_actor *me, const fuzz_step *s) {
    nd_weak *weak = fuzz_pick(me, FUZZ_WEAK, s->a);
    fuzz_expect(me, nd_weak_set_callback(weak, s->b % 4 ? died : NULL, NULL) == ND_OK);
}

// ------------------------------------------------------------------------------------------- lists

static void new_list(fuzz_actor *me, const fuzz_step *s) {
    nd_list *list = nd_list_new();
    fuzz_expect(me, list);
    fuzz_put_fresh(me, FUZZ_LIST, s->a, list);
}

static void list_append(fuzz_actor *me, const fuzz_step *s) {
    const void *item = fuzz_pick_any(me, s->b);
    nd_list *list = fuzz_pick_to_write(me, FUZZ_LIST, s->a);
    if (!list && fuzz_threaded)
        return;
    size_t before = nd_list_get_size(list);
    nd_status status = nd_list_append(list, item);
    fuzz_expect(me, status == ND_OK);
    if (!me->disturbed && nd_list_get_size(list) != before + (status == ND_OK))
        fuzz_die("a list has another size than it was given items");
}

static void list_get(fuzz_actor *me, const fuzz_step *s) {
    nd_list *list = fuzz_pick(me, FUZZ_LIST, s->a);
    const nd_object *item = nd_list_get(list, s->b % 16);
    fuzz_expect(me, item);
    if (item && fuzz_kind_of(item) < FUZZ_KINDS)
        fuzz_put(me, fuzz_kind_of(item), s->c, nd_object_retain(item));
}

static void list_clear(fuzz_actor *me, const fuzz_step *s) {
    nd_list *list = fuzz_pick_to_write(me, FUZZ_LIST, s->a);
    if (list || !fuzz_threaded)
        fuzz_expect(me, nd_list_clear(list) == ND_OK);
}

/// What a list gives back, into the slot of its kind.
static void put_item(fuzz_actor *me, uint8_t number, nd_object *item) {
    fuzz_expect(me, item);
    if (item && fuzz_kind_of(item) < FUZZ_KINDS)
        fuzz_put(me, fuzz_kind_of(item), number, item);
    else
        nd_release(item);
}

static void list_change(fuzz_actor *me, const fuzz_step *s) {
    const void *item = fuzz_pick_any(me, s->b);
    nd_list *list = fuzz_pick_to_write(me, FUZZ_LIST, s->a);
    if (!list && fuzz_threaded)
        return;
    switch (s->c % 4) {
    case 0:
        fuzz_expect(me, nd_list_insert(list, s->d % 8, item) == ND_OK);
        break;
    case 1:
        fuzz_expect(me, nd_list_set(list, s->d % 8, item) == ND_OK);
        break;
    case 2:
        put_item(me, s->d / 8, nd_list_remove(list, s->d % 8));
        break;
    default:
        put_item(me, s->d, nd_list_pop(list));
    }
}

// --------------------------------------------------------------------------------------- resources

/// Memory of a resource, with an edge of its own.
typedef struct payload {
    void *edge;
} payload;

static void payload_free(void *pointer, size_t bytes) {
    (void)bytes;
    if (((payload *)pointer)->edge)
        fuzz_die("a resource was freed before its edges were cleared");
    fuzz_nest();
    free(pointer);
}

static void payload_traverse(const void *pointer, nd_visitor *visitor) {
    nd_visit(visitor, ((const payload *)pointer)->edge, "payload");
}

static void payload_clear(void *pointer) {
    nd_edge_clear(&((payload *)pointer)->edge);
}

static void new_resource(fuzz_actor *me, const fuzz_step *s) {
    static const size_t sizes[] = {sizeof(payload), 0, 100, 5000};
    static const nd_resource_callbacks green = {
        .size = sizeof green, .version = 1, .free = payload_free};
    static const nd_resource_callbacks tracked = {.size = sizeof tracked,
                                                  .version = 1,
                                                  .free = payload_free,
                                                  .traverse = payload_traverse,
                                                  .clear = payload_clear};
    payload *memory = calloc(1, sizeof *memory);
    if (!memory)
        fuzz_die("no memory");
    nd_resource *resource =
        nd_resource_new("payload", memory, sizes[s->b % 4], s->c % 2 ? &green : &tracked);
    fuzz_expect(me, resource);
    if (!resource)
        free(memory);
    else if (s->c % 2 == 0 && s->d % 4)
        nd_edge_set(&memory->edge,
                    s->d % 4 == 1 ? (const void *)resource : fuzz_pick_any(me, s->d / 4));
    fuzz_put_fresh(me, FUZZ_RESOURCE, s->a, resource);
}

static void resource_get(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me, nd_resource_get(fuzz_pick(me, FUZZ_RESOURCE, s->a)));
}

// ------------------------------------------------------------------------------------------ scopes

static void scope_begin(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    if (me->scope_count == FUZZ_BLOCKS)
        return;
    nd_scope *scope = nd_scope_begin();
    fuzz_expect(me, scope);
    if (scope)
        me->scopes[me->scope_count++] = scope;
}

static void scope_end(fuzz_actor *me, const fuzz_step *s) {
    if (!me->scope_count)
        return;
    unsigned which = s->a % me->scope_count;
    nd_scope *scope = me->scopes[which];
    me->scope_count = which; // those inside end with it
    fuzz_expect(me, nd_scope_end(scope) == ND_OK);
}

static void tmp(fuzz_actor *me, const fuzz_step *s) {
    void *object = fuzz_pick_any(me, s->a);
    fuzz_expect(me, nd_object_tmp(nd_object_retain(object)) || !object);
}

/// The handle itself goes to the scope.
static void tmp_take(fuzz_actor *me, const fuzz_step *s) {
    void *object = fuzz_take(me, (fuzz_kind)(s->a / FUZZ_SLOTS % FUZZ_KINDS), s->a);
    fuzz_expect(me, nd_object_tmp(object) || !object);
}

static void scope_adopt(fuzz_actor *me, const fuzz_step *s) {
    void *object = fuzz_pick_any(me, s->a);
    nd_scope *scope = me->scope_count ? me->scopes[s->b % me->scope_count] : NULL;
    if (scope && object)
        fuzz_expect(me, nd_scope_adopt(scope, nd_object_retain(object)) == ND_OK);
}

static void scope_move_out(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me, nd_scope_move_out(fuzz_pick_any(me, s->a)) == ND_OK);
}

/// Off this thread and on again: nothing may change.
static void scope_hand_over(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    nd_scope *scope = nd_scope_get_current();
    if (!scope)
        return;
    size_t size = nd_scope_get_size(scope);
    if (nd_scope_leave(scope) != ND_OK || nd_scope_get_current() == scope ||
        nd_scope_enter(scope) != ND_OK || nd_scope_get_current() != scope ||
        nd_scope_get_size(scope) != size)
        fuzz_die("a scope changed on its way: %s", nd_error_get_message());
    fuzz_expect(me, true);
}

// ------------------------------------------------------------------------------------------- board

enum { BOARD = 6 };
static struct {
    pthread_mutex_t lock;
    void *objects[BOARD];
    fuzz_kind kinds[BOARD];
} board = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *exchange(uint8_t number, void *object, fuzz_kind *kind) {
    pthread_mutex_lock(&board.lock);
    void *before = board.objects[number % BOARD];
    fuzz_kind kind_before = board.kinds[number % BOARD];
    board.objects[number % BOARD] = object;
    board.kinds[number % BOARD] = *kind;
    pthread_mutex_unlock(&board.lock);
    *kind = kind_before;
    return before;
}

void fuzz_clear_board(void) {
    for (uint8_t i = 0; i < BOARD; i++) {
        fuzz_kind kind = FUZZ_TENSOR;
        nd_object_release(exchange(i, NULL, &kind));
    }
}

/// Puts an object on the board, and takes what was there.
static void post(fuzz_actor *me, const fuzz_step *s) {
    fuzz_kind kind =
        (fuzz_kind)(s->b / FUZZ_SLOTS % FUZZ_MODULE); // modules and what follows are for one thread
    void *given = fuzz_pick(me, kind, s->b % 64);
    void *got = exchange(s->a, nd_object_retain(given), &kind);
    if (got)
        fuzz_put(me, kind, s->c, got);
}

/// A handle of what is on the board, which stays.
static void peek(fuzz_actor *me, const fuzz_step *s) {
    pthread_mutex_lock(&board.lock);
    void *object = nd_object_retain(board.objects[s->a % BOARD]);
    fuzz_kind kind = board.kinds[s->a % BOARD];
    pthread_mutex_unlock(&board.lock);
    if (object)
        fuzz_put(me, kind, s->b, object);
}

const fuzz_call fuzz_object_calls[] = {
    {"new_cell", new_cell, FUZZ_QUEUES},
    {"new_cell_with", new_cell_with, FUZZ_QUEUES},
    {"new_ring", new_ring, FUZZ_QUEUES},
    {"release", release, FUZZ_QUEUES},
    {"retain", retain, FUZZ_QUEUES},
    {"close", close_object, 0},
    {"set_name", set_name, FUZZ_QUEUES},
    {"look", look, FUZZ_QUEUES},
    {"edge_set", edge_set, FUZZ_QUEUES},
    {"edge_take", edge_take, FUZZ_QUEUES},
    {"edge_clear", edge_clear, FUZZ_QUEUES},
    {"new_weak", new_weak, FUZZ_QUEUES},
    {"weak_get", weak_get, FUZZ_QUEUES},
    {"weak_get_tensor", weak_get_tensor, FUZZ_QUEUES},
    {"weak_callback", weak_callback, FUZZ_QUEUES},
    {"new_list", new_list, FUZZ_QUEUES},
    {"list_append", list_append, FUZZ_QUEUES},
    {"list_get", list_get, FUZZ_QUEUES},
    {"list_change", list_change, FUZZ_QUEUES},
    {"list_clear", list_clear, FUZZ_QUEUES},
    {"new_resource", new_resource, FUZZ_QUEUES},
    {"resource_get", resource_get, FUZZ_QUEUES},
    {"scope_begin", scope_begin, FUZZ_OUTER | FUZZ_QUEUES},
    {"scope_end", scope_end, FUZZ_OUTER},
    {"tmp", tmp, FUZZ_QUEUES},
    {"tmp_take", tmp_take, FUZZ_QUEUES},
    {"scope_adopt", scope_adopt, FUZZ_QUEUES},
    {"scope_move_out", scope_move_out, FUZZ_QUEUES},
    {"scope_hand_over", scope_hand_over, FUZZ_OUTER | FUZZ_QUEUES},
    {"post", post, FUZZ_QUEUES},
    {"peek", peek, FUZZ_QUEUES},
    {0},
};
