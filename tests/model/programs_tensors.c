// Programs of an object that the collector may see and which has a storage, as a tensor with
// history, or a view that follows its base: the death of one takes one pass of the gate and one
// lock (lib/manager/destroy.c), and what computed it dies with it.
#include "lib/base/atomics.h"
#include "lib/manager/account.h"
#include "lib/manager/borrow.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/member.h"
#include "lib/manager/publish.h"
#include "lib/object/object.h"
#include "tests/model/cells.h"
#include "tests/model/programs.h"
#include "tests/model/shared.h"

enum { BYTES = 100 };

static nd__stored *base, *view;
static int held_base, held_view; ///< handles that the end releases

static void sheet_traverse(const nd_object *self, nd_visitor *visitor) {
    if (!nd__borrow_is_borrower((const nd__stored *)self))
        nd_visit(visitor, nd__object_storage(self), "paint");
    for (int i = 0; i < ND__STORED_EDGES; i++)
        nd_visit(visitor, ((const nd__stored *)self)->edges[i], "edge");
}

static void sheet_clear(nd_object *self) {
    nd__stored *sheet = (nd__stored *)self;
    nd__borrow_clear(sheet);
    for (int i = 0; i < ND__STORED_EDGES; i++)
        if (sheet->edges[i])
            nd_edge_clear(&sheet->edges[i]);
}

static const nd_type sheet_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "sheet",
    .flags = ND__TYPE_TENSOR | ND__TYPE_ACCOUNTED | ND__TYPE_UNTRACKED,
    .traverse = sheet_traverse,
    .clear = sheet_clear,
};

static const nd_type paint_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "paint",
    .flags = ND_TYPE_GREEN | ND__TYPE_ACCOUNTED | ND__TYPE_UNCAPPED,
};

static nd__stored *begin_sheet(const char *name) {
    nd__stored *sheet = (nd__stored *)nd__object_new(&sheet_type, sizeof *sheet);
    model_assert(sheet);
    model_name(sheet, name);
    return sheet;
}

/// With a storage of its own.
static nd__stored *make_sheet(nd_manager *manager, const char *name) {
    nd__stored *sheet = begin_sheet(name);
    nd_accounted *paint = (nd_accounted *)nd__object_new(&paint_type, sizeof *paint);
    model_assert(paint && nd__charge("paint", manager, ND_CPU, BYTES) == ND_OK);
    model_name(paint, "paint");
    paint->bytes = BYTES;
    atomic_init(&sheet->storage, &paint->header);
    model_assert(nd__publish_both(&sheet->accounted.header, &paint->header, manager) == ND_OK);
    return sheet;
}

/// Another one of the same storage, tracked from the start, with an edge to where that is from.
static nd__stored *make_view(nd_manager *manager, nd__stored *of) {
    nd__stored *sheet = begin_sheet("view");
    nd__stored *from = nd__borrow_base(of) ? nd__borrow_base(of) : of;
    atomic_init(&sheet->storage, nd__object_storage(&of->accounted.header));
    nd__object_keep(from);
    sheet->edges[ND__STORED_BASE] = &from->accounted.header;
    nd__atomic_set_flags(&sheet->accounted.header.flags, ND__TRACKED); // still private
    model_assert(nd__publish_view(sheet, manager) == ND_OK);
    return sheet;
}

// What computed an object of that kind, and holds what it was computed of.

typedef struct note {
    nd_object header;
    nd_object *edges[2];
} note;

static note *history; ///< of the result, which is `view` here; the leaf below it is `base`
static int held_history;

static void note_traverse(const nd_object *self, nd_visitor *visitor) {
    for (int i = 0; i < 2; i++)
        nd_visit(visitor, ((const note *)self)->edges[i], "edge");
}

static void note_clear(nd_object *self) {
    for (int i = 0; i < 2; i++)
        nd_edge_clear(&((note *)self)->edges[i]);
}

static void note_drop(nd_object *self) {
    for (int i = 0; i < 2; i++)
        nd_object_release(((note *)self)->edges[i]);
}

static const nd__dropping_type note_type = {
    .type = {.size = sizeof(nd_type),
             .version = 1,
             .name = "note",
             .flags = ND__TYPE_DROPS,
             .traverse = note_traverse,
             .clear = note_clear},
    .drop = note_drop,
};

static note *begin_note(const char *name, void *of) {
    note *made = (note *)nd__object_new(&note_type.type, sizeof *made);
    model_assert(made);
    model_name(made, name);
    made->edges[0] = nd_object_retain(of);
    return made;
}

/// A view, whose one handle a thread releases; the base is held to the end.
static void setup_view(void) {
    make_managers(2);
    base = make_sheet(managers[0], "base");
    view = make_view(managers[0], base);
    held_base = 1;
    held_view = 0;
}

/// Collections are in steps of one object's edges.
static void setup_view_in_steps(void) {
    setup_view();
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    model_assert(nd_manager_set_gc_policy(NULL, &policy) == ND_OK);
}

/// Two threads have a handle on the view.
static void setup_view_shared(void) {
    setup_view();
    nd__object_keep(view);
}

static void setup_view_shared_in_steps(void) {
    setup_view_in_steps();
    nd__object_keep(view);
}

/// The base's one handle is a thread's, too.
static void setup_view_and_base(void) {
    setup_view();
    held_base = 0;
}

/// The base's one handle is a thread's, the view's is kept to the end.
static void setup_base(void) {
    setup_view();
    held_base = 0;
    held_view = 1;
}

/// The view borrows, and has moved to another manager since.
static void setup_view_apart(void) {
    setup_view_and_base();
    model_assert(nd_manager_attach(managers[1], view) == ND_OK);
}

/// The base is closed already, and keeps its storage for the view alone.
static void setup_closed_base(void) {
    setup_view();
    model_assert(nd_close(base) == ND_OK && nd__object_storage(&base->accounted.header));
}

/// The collector may see the base, which is closed, and the view has moved elsewhere.
static void setup_closed_base_apart(void) {
    setup_view_apart();
    nd__member_track(&base->accounted.header);
    model_assert(nd_close(base) == ND_OK && nd__object_storage(&base->accounted.header));
    held_base = 1;
}

/// The view lives in another manager than base and storage.
static void setup_view_elsewhere(void) {
    make_managers(2);
    base = make_sheet(managers[0], "base");
    view = make_view(managers[1], base);
    held_base = held_view = 0;
}

/// The base leads back to the view, as a gradient that keeps its graph does.
static void setup_view_ring(void) {
    setup_view();
    nd_edge_set(&base->edges[0], view);
    nd__member_track(&base->accounted.header);
    nd_release(base);
    held_base = 0;
}

/// A tracked cell in garbage holds a view that lives elsewhere, and dies with the garbage.
static void setup_view_in_ring(void) {
    setup_view_elsewhere();
    make_ring(managers[0], 0, 0);
    nd_edge_set(&cell_of(cells[0])->edges[1], view);
    nd_release(view);
    held_base = 1;
}

/// A result, whose one handle a thread releases, with what computed it; the leaf is held to the end.
static void setup_history(void) {
    make_managers(2);
    base = make_sheet(managers[0], "leaf");
    view = make_sheet(managers[0], "result");
    history = begin_note("history", base);
    model_assert(nd__publish_beside(&history->header, &view->accounted.header,
                                    &view->edges[ND__STORED_HISTORY]));
    held_base = 1;
    held_view = held_history = 0;
}

static void setup_history_in_steps(void) {
    setup_history();
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    model_assert(nd_manager_set_gc_policy(NULL, &policy) == ND_OK);
}

/// A thread has a handle on what computed the result, too.
static void setup_history_shared(void) {
    setup_history();
    nd__object_keep(history);
}

static void setup_history_shared_in_steps(void) {
    setup_history_in_steps();
    nd__object_keep(history);
}

/// The result was computed of another one, which nobody has any more.
static void setup_history_of_two(void) {
    setup_history();
    note *earlier = begin_note("earlier", base);
    model_assert(nd__publish(&earlier->header, managers[0]) == ND_OK);
    nd_edge_set(&history->edges[1], earlier);
    nd_release(earlier);
}

static void setup_history_of_two_in_steps(void) {
    setup_history_in_steps();
    note *earlier = begin_note("earlier", base);
    model_assert(nd__publish(&earlier->header, managers[0]) == ND_OK);
    nd_edge_set(&history->edges[1], earlier);
    nd_release(earlier);
}

/// The leaf leads back to what was computed of it, as a gradient with a graph does.
static void setup_history_ring(void) {
    setup_history();
    nd_edge_set(&base->edges[0], view);
    nd__member_track(&base->accounted.header);
    nd_release(base);
    held_base = 0;
}

/// What computed the result lives elsewhere.
static void setup_history_elsewhere(void) {
    setup_history();
    model_assert(nd_manager_attach(managers[1], history) == ND_OK);
}

static void release_view(void) {
    nd_release(view);
}
static void release_history(void) {
    nd_release(history);
}

/// Looks at what it leads to, which must be there.
static void look_at_history(void) {
    model_assert(history->edges[0] == &base->accounted.header && nd_get_count(base) > 0);
    nd_release(history);
}

static void attach_history(void) {
    model_assert(nd_manager_attach(managers[1], history) == ND_OK);
    nd_release(history);
}

static void upgrade_history(void) {
    nd_weak *weakly = nd_weak_new(history);
    nd_release(history);
    nd_object *got = nd_weak_get(weakly);
    if (got)
        model_assert(((note *)got)->edges[0] == &base->accounted.header);
    nd_release(got);
    nd_release(weakly);
}
static void release_base(void) {
    nd_release(base);
}

/// Uses the base by way of the view, then lets go.
static void follow_and_release(void) {
    model_assert(nd_get_count(base) > 0);
    nd_object *kept = nd_retain(view->edges[ND__STORED_BASE]);
    nd_release(view);
    model_assert(kept == &base->accounted.header && nd_get_count(kept) > 0);
    nd_release(kept);
}

/// The view becomes a leaf with its own history, and is let go.
static void part_and_release(void) {
    nd__borrow_settle(view);
    nd_edge_clear(&view->edges[ND__STORED_BASE]);
    nd_release(view);
}

static void attach_and_release(void) {
    model_assert(nd_manager_attach(managers[1], view) == ND_OK);
    nd_release(view);
}

static void close_and_release(void) {
    model_assert(nd_close(view) == ND_OK);
    nd_release(view);
}

/// Of the storage, which nothing but the view needs then.
static void close_base(void) {
    model_assert(nd_close(base) == ND_OK);
    nd_release(base);
}

/// Looks at what it is a window onto, which a closed base must have kept.
static void look_and_release(void) {
    nd_object *paint = nd__object_storage(&view->accounted.header);
    model_assert(paint && nd_get_count(paint) > 0 && ((nd_accounted *)paint)->bytes == BYTES);
    nd_release(view);
}

/// A view of the view borrows what that has borrowed, also where the base is closed.
static void view_again_and_release(void) {
    nd__stored *second = make_view(managers[0], view);
    nd_release(view);
    nd_object *paint = nd__object_storage(&second->accounted.header);
    model_assert(paint && nd_get_count(paint) > 0 && ((nd_accounted *)paint)->bytes == BYTES);
    nd_release(second);
}

static void view_elsewhere_and_release(void) {
    nd__stored *second = make_view(managers[1], view);
    nd_release(view);
    nd_release(second);
}

/// Where the two are not born in one shard, or have parted.
static void attach_base(void) {
    model_assert(nd_manager_attach(managers[1], base) == ND_OK);
    nd_release(base);
}

/// As a module does that moves to another device.
static void replace_and_release(void) {
    nd__stored *copy = make_sheet(managers[0], "copy");
    nd__borrow_replace(base, nd__object_storage(&copy->accounted.header));
    nd_release(copy);
    nd_release(base);
}

static void upgrade_view(void) {
    nd_weak *weakly = nd_weak_new(view);
    nd_release(view);
    nd_object *got = nd_weak_get(weakly);
    if (got)
        model_assert(nd_get_count(base) > 0);
    nd_release(got);
    nd_release(weakly);
}

static void close_first(void) {
    model_assert(nd_manager_close(managers[0], NULL) == ND_OK);
}
static void dispose_first(void) {
    model_assert(nd_manager_dispose(managers[0], NULL) == ND_OK);
}

static void finish_views(void) {
    while (held_base-- > 0)
        nd_release(base);
    while (held_view-- > 0)
        nd_release(view);
    while (held_history-- > 0)
        nd_release(history);
    model_assert(nd_gc_collect(NULL, NULL) == ND_OK);
    for (int i = 0; i < MANAGERS && managers[i]; i++)
        model_assert(nd__account_bytes(managers[i], ND_CPU) == 0);
    model_assert(nd__account_bytes(nd_manager_get_root(), ND_CPU) == 0);
    finish();
}

#define VIEW(name, what, setup, ...) \
    { name, what, setup, {__VA_ARGS__}, finish_views, 0, 0 }
/// Too many interleavings for a test.
#define VIEW_BOUNDED(name, what, setup, ...) \
    { name, what, setup, {__VA_ARGS__}, finish_views, 30000, 0 }

const model_program model_tensors_programs[] = {
    VIEW("view_collection", "the last handle of a view is released beside a collection", setup_view,
         release_view, collect),
    VIEW("view_releasers", "two threads release a view, and one of them frees it",
         setup_view_shared, release_view, follow_and_release),
    VIEW("view_releasers_collected", "two threads release a view beside a collection",
         setup_view_shared, release_view, release_view, collect),
    VIEW("view_base", "a view and its base are released by two threads", setup_view_and_base,
         release_view, release_base),
    VIEW("view_base_collection", "the same beside a collection", setup_view_and_base, release_view,
         release_base, collect),
    VIEW("view_elsewhere", "the same where the view is in another manager", setup_view_elsewhere,
         release_view, release_base, collect_all),
    VIEW("view_ring", "the only handle on a ring of view and base is released beside a collection",
         setup_view_ring, release_view, collect),
    VIEW("view_in_ring", "garbage holds a view of another manager", setup_view_in_ring,
         collect_all),
    VIEW("view_parted", "a view leaves its base and is released beside a collection", setup_view,
         part_and_release, collect),
    VIEW("view_attach", "a view moves to another manager as another thread releases it",
         setup_view_shared, attach_and_release, release_view),
    VIEW("view_closed", "a view is closed as another thread releases it", setup_view_shared,
         close_and_release, release_view),
    VIEW("view_weak", "a weak reference to a view is made beside the last release",
         setup_view_shared, upgrade_view, release_view),
    VIEW("view_borrows", "a base is closed as its view is released", setup_view_and_base,
         look_and_release, close_base),
    VIEW("view_borrows_collected", "a base is closed beside a collection", setup_base, close_base,
         collect),
    VIEW("view_borrows_ending", "the view of a closed base is released beside a collection",
         setup_closed_base, look_and_release, collect),
    VIEW("view_borrows_seen",
         "a collection looks at a closed base whose view is released elsewhere",
         setup_closed_base_apart, look_and_release, collect_all),
    VIEW("view_borrows_again", "a view is made of a view whose base is closed", setup_view_and_base,
         view_again_and_release, close_base),
    VIEW("view_borrows_two", "two threads make views of a view and release them", setup_view_shared,
         view_again_and_release, view_again_and_release),
    VIEW("view_borrows_both", "the same, one of them in another manager", setup_view_shared,
         view_again_and_release, view_elsewhere_and_release),
    VIEW("view_borrows_apart", "a base is closed as its view in another manager is released",
         setup_view_apart, look_and_release, close_base),
    VIEW("view_borrows_away", "a base moves to another manager as its view is released",
         setup_view_and_base, view_again_and_release, attach_base),
    VIEW("view_borrows_moved", "a view moves to another manager as its base is closed",
         setup_view_and_base, attach_and_release, close_base),
    VIEW("view_borrows_replaced", "a base gets another storage as its view is released",
         setup_view_and_base, view_again_and_release, replace_and_release),
    VIEW("view_close", "the last handle of a view is released as its manager closes", setup_view,
         release_view, close_first),
    VIEW("view_dispose", "the same as its manager is disposed of, which takes handles for a while",
         setup_view, release_view, dispose_first),
    VIEW("view_steps", "the last handle of a view is released beside a collection in steps",
         setup_view_in_steps, release_view, collect),
    VIEW("view_steps_releasers", "two threads release a view beside a collection in steps",
         setup_view_shared_in_steps, release_view, follow_and_release, collect),
    VIEW("history_collection", "the last handle of a result is released beside a collection",
         setup_history, release_view, collect),
    VIEW("history_two", "the same of one that was computed of another one", setup_history_of_two,
         release_view, collect),
    VIEW("history_elsewhere", "the same where what computed it lives in another manager",
         setup_history_elsewhere, release_view, collect_all),
    VIEW("history_shared", "a result and what computed it are released by two threads",
         setup_history_shared, release_view, look_at_history),
    VIEW_BOUNDED("history_shared_collected", "the same beside a collection", setup_history_shared,
                 release_view, look_at_history, collect),
    VIEW("history_attach", "what computed a result moves as the result is released",
         setup_history_shared, release_view, attach_history),
    VIEW("history_weak", "a weak reference to what computed a result is made as that is released",
         setup_history_shared, release_view, upgrade_history),
    VIEW("history_ring",
         "the only handle on a ring of leaf and result is released beside a collection",
         setup_history_ring, release_view, collect),
    VIEW("history_close", "the last handle of a result is released as its manager closes",
         setup_history, release_view, close_first),
    VIEW("history_dispose", "the same as its manager is disposed of", setup_history, release_view,
         dispose_first),
    VIEW("history_steps", "the last handle of a result is released beside a collection in steps",
         setup_history_in_steps, release_view, collect),
    VIEW("history_steps_two", "the same of one that was computed of another one",
         setup_history_of_two_in_steps, release_view, collect),
    VIEW("history_steps_shared", "what computed a result outlives it, beside a collection in steps",
         setup_history_shared_in_steps, release_view, release_history, collect),
};
const size_t model_tensors_program_count =
    sizeof model_tensors_programs / sizeof model_tensors_programs[0];
