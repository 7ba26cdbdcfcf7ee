// Programs of an object that has a storage, as a tensor has its storage: they are attached and lent
// as one, beside closes and each other. Some get the storage late, beside that.
#include "lib/base/atomics.h"
#include "lib/manager/account.h"
#include "lib/manager/adopt.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/origin.h"
#include "lib/manager/publish.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include "tests/model/cells.h"
#include "tests/model/programs.h"
#include "tests/model/shared.h"

enum { BYTES = 100 };

static nd__stored *picture;

/// A storage that is made late: the picture's block is its own as well.
typedef struct paint {
    nd_accounted accounted;
    nd_object *base; ///< NULL: none
} paint;
static _Atomic uint32_t late; ///< threads that made the storage

static void picture_traverse(const nd_object *self, nd_visitor *visitor) {
    nd_visit(visitor, nd__object_storage(self), "paint");
}

static void picture_clear(nd_object *self) {
    if (nd__object_storage(self))
        nd_edge_clear(&((nd__stored *)self)->storage);
}

static const nd_type picture_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "picture",
    .flags = ND__TYPE_TENSOR | ND__TYPE_ACCOUNTED | ND__TYPE_UNTRACKED,
    .traverse = picture_traverse,
    .clear = picture_clear,
};

static void paint_destroy(nd_object *self) {
    if (((paint *)self)->base)
        nd__adopt_end(((paint *)self)->base);
}

static const nd_type paint_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "paint",
    .flags = ND_TYPE_GREEN | ND__TYPE_ACCOUNTED | ND__TYPE_UNCAPPED,
    .destroy = paint_destroy,
};

static nd_accounted *make_paint(void) {
    paint *made = (paint *)nd__object_new(&paint_type, sizeof *made);
    model_assert(made);
    model_name(made, "paint");
    return &made->accounted;
}

static void begin_picture(nd_manager *manager) {
    nd__atomic_store(&late, 0, relaxed);
    picture = (nd__stored *)nd__object_new(&picture_type, sizeof *picture);
    model_assert(picture);
    model_name(picture, "picture");
    model_assert(nd__charge("paint", manager, ND_CPU, BYTES) == ND_OK);
}

static void make_picture(nd_manager *manager) {
    begin_picture(manager);
    nd_accounted *storage = make_paint();
    storage->bytes = BYTES;
    atomic_init(&picture->storage, &storage->header);
    model_assert(nd__publish_both(&picture->accounted.header, &storage->header, manager) == ND_OK);
}

/// Without a storage: it has the bytes itself.
static void make_alone(nd_manager *manager) {
    begin_picture(manager);
    picture->accounted.bytes = BYTES;
    model_assert(nd__publish(&picture->accounted.header, manager) == ND_OK);
}

/// What a view does first. True: the storage is this thread's.
static bool accompany(void) {
    nd_accounted *storage = make_paint();
    ((paint *)storage)->base = &picture->accounted.header;
    bool first;
    model_assert(nd__adopt_storage("paint", &picture->accounted.header, storage, &first) == ND_OK);
    if (first)
        (void)nd__atomic_fetch_add(&late, 1, relaxed);
    else
        nd__object_discard(storage);
    model_assert(nd__object_storage(&picture->accounted.header));
    return first;
}
static void accompany_once(void) {
    accompany();
}

/// A view, which outlives the thread's handle on the picture.
static void view_and_release(void) {
    accompany();
    nd_object *seen = nd__object_storage(&picture->accounted.header);
    nd__object_keep(seen);
    nd_release(&picture->accounted.header);
    nd_release(seen);
}
static void release_picture(void) {
    nd_release(&picture->accounted.header);
}

static void must_be_whole(void) {
    const nd_manager *manager = nd_get_manager(picture);
    nd_object *storage = nd__object_storage(&picture->accounted.header);
    model_assert(nd_manager_is_open(manager));
    model_assert(nd__shard_total((nd_manager *)(uintptr_t)manager).own_bytes[ND_CPU] == BYTES);
    if (!storage)
        return;
    model_assert(nd_get_manager(storage) == manager);
    // Both have origins, or neither.
    model_assert(!nd__origin_peek(&picture->accounted.header) == !nd__origin_peek(storage));
}

static void finish_picture(void) {
    must_be_whole();
    for (int i = 0; i < MANAGERS && managers[i]; i++)
        model_assert(nd_manager_is_open(managers[i]) || !managers[i]->origins);
    for (int i = 0; i < MANAGERS && managers[i]; i++) { // what was lent comes home
        nd_manager_close(managers[i], NULL);
        must_be_whole();
    }
    nd_release(picture);
    model_assert(nd__origin_count() == 0);
    finish();
}

static void close_number(int number) {
    model_assert(nd_manager_close(managers[number], NULL) == ND_OK);
}
static void close_first(void) {
    close_number(0);
}
static void close_second(void) {
    close_number(1);
}

static void setup_picture(void) {
    make_managers(2);
    make_picture(managers[0]);
}

static void setup_alone(void) {
    make_managers(2);
    make_alone(managers[0]);
}

/// Each thread has a handle, and gives it up.
static void setup_shared(void) {
    setup_alone();
    nd__object_keep(picture);
}

static void finish_late(void) {
    model_assert(nd__atomic_load(&late, relaxed) == 1);
    finish_picture();
}

static void finish_released(void) {
    model_assert(nd__atomic_load(&late, relaxed) == 1);
    model_assert(nd__shard_total(managers[0]).own_bytes[ND_CPU] == 0);
    finish();
}

/// The second manager is full.
static void setup_full(void) {
    setup_picture();
    model_assert(nd_manager_set_cap(managers[1], 1) == ND_OK);
    nd_with_manager(managers[1]) {
        list = nd_list_new();
    }
}

static void attach_refused(void) {
    model_assert(nd_manager_attach(managers[1], picture) == ND_ERROR_QUOTA);
}

static void attach_second(void) {
    nd_status status = nd_manager_attach(managers[1], picture);
    model_assert(status == ND_OK || status == ND_ERROR_CLOSED);
}

static void attach_root(void) {
    model_assert(nd_manager_attach(nd_manager_get_root(), picture) == ND_OK);
}

static void lend_first(void) {
    nd_status status = nd_manager_lend(managers[0], picture);
    model_assert(status == ND_OK || status == ND_ERROR_CLOSED);
}

static void lend_second(void) {
    nd_status status = nd_manager_lend(managers[1], picture);
    model_assert(status == ND_OK || status == ND_ERROR_CLOSED);
}

static void lend_root(void) {
    model_assert(nd_manager_lend(nd_manager_get_root(), picture) == ND_OK);
}

/// From the first to the second manager.
static void setup_lent(void) {
    setup_picture();
    lend_second();
}

static void setup_alone_lent(void) {
    setup_alone();
    lend_second();
}

/// The picture's two halves are in different shards.
static void setup_spread_lent(void) {
    setup_lent();
    nd__shard_spread(managers[1]);
    managers_made++;
}

/// The second manager is below the first one, and the picture was lent from there to a third.
static void setup_nested(void) {
    make_managers(2);
    nd_release(managers[1]);
    managers[1] = nd_manager_new(managers[0], "m");
    managers[2] = nd_manager_new(NULL, "m");
    managers_made++;
    make_picture(managers[1]);
    model_assert(nd_manager_lend(managers[2], picture) == ND_OK);
}

// ---------------------------------------------------------------------- the last release of a pair

static void dispose_first(void) {
    model_assert(nd_manager_dispose(managers[0], NULL) == ND_OK);
}

static void finish_gone(void) {
    for (int i = 0; i < MANAGERS && managers[i]; i++) {
        nd_manager_close(managers[i], NULL);
        model_assert(nd__account_bytes(managers[i], ND_CPU) == 0);
    }
    model_assert(nd__account_bytes(nd_manager_get_root(), ND_CPU) == 0);
    finish();
}

#define PICTURE(name, what, setup, ...) \
    { name, what, setup, {__VA_ARGS__}, finish_picture, 0, 0 }

#define LATE(name, what, setup, ...) \
    { name, what, setup, {__VA_ARGS__}, finish_late, 0, 0 }
#define RELEASED(name, what, setup, ...) \
    { name, what, setup, {__VA_ARGS__}, finish_released, 0, 0 }

const model_program model_attach_programs[] = {
    PICTURE("B34_refused_close", "a full manager refuses as the one where all was closes",
            setup_full, attach_refused, close_first),
    PICTURE("pair_attach_close", "a pair is attached elsewhere as its manager closes",
            setup_picture, attach_second, close_first),
    PICTURE("pair_attach_twice", "a pair is attached to two managers at once", setup_picture,
            attach_second, attach_root),
    PICTURE("pair_lend_attach", "a pair is lent and attached at once", setup_picture, lend_second,
            attach_root),
    PICTURE("pair_return_lend", "a pair goes home as another thread lends it", setup_lent,
            close_second, lend_root),
    PICTURE("pair_return_home", "a pair goes home as another thread lends it there", setup_lent,
            close_second, lend_first),
    PICTURE("pair_return_attach", "a pair goes home as another thread attaches it", setup_lent,
            close_second, attach_root),
    PICTURE("pair_return_closed", "a pair goes home as home closes", setup_lent, close_second,
            close_first),
    PICTURE("pair_spread_return", "the same from a manager with shards", setup_spread_lent,
            close_second, lend_root),
    PICTURE("origins_close",
            "two managers close, the one below the other, from which a pair was lent", setup_nested,
            close_second, close_first),
    {"alone_close",
     "the last handle of a pair is released as its manager closes",
     setup_picture,
     {release_picture, close_first},
     finish_gone,
     0,
     0},
    {"alone_dispose",
     "the same as its manager is disposed of, which takes handles for a while",
     setup_picture,
     {release_picture, dispose_first},
     finish_gone,
     0,
     0},
    LATE("late_twice", "two threads make the storage of one object", setup_alone, accompany_once,
         accompany_once),
    LATE("late_attach", "a storage is made as its object is attached elsewhere", setup_alone,
         accompany_once, attach_second),
    LATE("late_lend", "a storage is made as its object is lent", setup_alone, accompany_once,
         lend_second),
    LATE("late_close", "a storage is made as its object's manager closes", setup_alone,
         accompany_once, close_first),
    LATE("late_return", "a storage is made as its object goes home", setup_alone_lent,
         accompany_once, close_second),
    RELEASED("late_release", "a view dies as another thread releases the object", setup_shared,
             view_and_release, release_picture),
    RELEASED("late_views", "two views are made and outlive the object", setup_shared,
             view_and_release, view_and_release),
};
const size_t model_attach_program_count =
    sizeof model_attach_programs / sizeof model_attach_programs[0];
