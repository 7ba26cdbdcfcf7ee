// Garbage is cut, some at a time, and freed.
//
// Invariant: what is freed has a count of zero and its edges are cut. An edge that is still to be
// cut is counted where it leads, so none leads to what is freed. User code (`destroy`) runs between
// the parts, and meets garbage marked ND__DYING only.
#include "lib/gc/sweep.h"
#include "lib/base/atomics.h"
#include "lib/base/thread.h"
#include "lib/gc/collection.h"
#include "lib/gc/cycles.h"
#include "lib/manager/destroy.h"
#include "lib/manager/member.h"
#include "lib/object/block.h"
#include "lib/object/block_order.h"
#include "lib/object/cut.h"
#include "lib/object/object.h"

/// So many at a time. Others wait for their manager's lock meanwhile.
enum { FREE_BATCH = ND__BLOCK_ORDER_MOST };

/// Whether all of some garbage is dead and, as most is, nothing but a block of its own.
static inline bool are_dead_blocks(nd_object *const *objects, size_t count) {
    uint32_t counts = 0, flags = 0;
    bool destroys = false;
    for (size_t i = 0; i < count; i++) {
        counts |= (uint32_t)nd__atomic_load_relaxed(&objects[i]->word);
        flags |= nd__object_flags(objects[i]);
        destroys |= objects[i]->type->destroy != NULL;
    }
    return !counts && !(flags & ND__LENT) && !destroys;
}

/// Frees garbage [from ... to), whose edges are cut, but for what other garbage still refers to.
/// That goes to the place `kept` and behind it; or, when the edges of all are cut, it stays,
/// closed: an edge that was reported was not cleared, or reported twice. Users' destructors run
/// oldest first, so behind one that is kept others are. Returns how much is kept.
static size_t free_some(nd_collection *collection, size_t from, size_t to, size_t kept,
                        bool all_cut, bool *destroys_kept) {
    nd_object *dead[FREE_BATCH];
    size_t dead_count = 0;
    if (from < to && are_dead_blocks(collection->objects + from, to - from)) {
        nd__member_unlink_garbage(collection->objects + from, to - from);
        nd__block_free_all(collection->objects + from, to - from);
        return kept;
    }
    for (size_t i = from; i < to; i++) {
        nd_object *object = collection->objects[i];
        bool ordered = object->type->destroy && (nd__object_flags(object) & ND__USER);
        if (__builtin_expect((uint32_t)nd__atomic_load_relaxed(&object->word) == 0, 1) &&
            !(ordered && *destroys_kept && !all_cut)) {
            dead[dead_count++] = object;
        } else if (!all_cut) {
            collection->objects[kept++] = object;
            *destroys_kept |= ordered;
        } else {
            nd__collection_note_broken(collection, object);
            nd__member_make_revivable(object);
            nd__atomic_clear_flags(&object->flags, ND__DYING | ND__REVIVABLE);
            nd_close(object);
        }
    }
    nd__member_unlink_garbage(dead, dead_count);
    nd__destroy_garbage(dead, dead_count);
    return kept;
}

/// The edges of objects [from ... to) are cut.
static void cut_some(nd_thread *thread, const nd_collection *collection, nd_cut *cut, size_t from,
                     size_t to) {
    thread->cut = cut;
    for (size_t i = from; i < to; i++) {
        nd_object *object = collection->objects[i];
        nd__collection_prefetch_whole(collection->objects, collection->count, i);
        nd__cut_begin(cut, (uint32_t)i);
        if (object->type->clear && !nd__object_is_closed(object))
            object->type->clear(object);
    }
    thread->cut = NULL;
}

void nd__sweep(nd_thread *thread, nd_collection *collection) {
    nd_cut cut = {.group = nd__cycles_begin(collection), .groups = collection->count};
    size_t count = collection->count, kept = 0, parted = 0;
    size_t together = nd__collection_batch < FREE_BATCH ? nd__collection_batch : FREE_BATCH;
    bool early = count > nd__collection_batch, destroys_kept = false;
    for (size_t from = 0, to; from < count; from = to) {
        to = count - from < together ? count : from + together;
        cut_some(thread, collection, &cut, from, to);
        if (!early) {
            kept = to;
            continue;
        }
        // What the part before left, as the edges to it were still to be cut, mostly dies now:
        // freed beside what lies beside it, so that who gets the memory next gets it in order, too.
        size_t left = free_some(collection, parted, kept, parted, false, &destroys_kept);
        parted = left;
        kept = free_some(collection, from, to, left, false, &destroys_kept);
    }
    for (size_t from = 0, to; from < kept; from = to) {
        to = kept - from < FREE_BATCH ? kept : from + FREE_BATCH;
        free_some(collection, from, to, 0, true, &destroys_kept);
    }
    collection->report.cycles += cut.groups;
}
