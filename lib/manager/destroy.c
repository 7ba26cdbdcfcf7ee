// The end of objects: out of their manager, weak references and edges cleared, destroyed, freed.
//
// Invariants: destruction is a loop over the thread's list of dead objects, never a recursion;
// an object that the collector may see dies inside the gate, so a dead tracked object that meets a
// closed gate is parked; nothing is destroyed in a callback that a device runs (callback.h).
#include "lib/manager/destroy.h"
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/thread.h"
#include "lib/manager/adopt.h"
#include "lib/manager/borrow.h"
#include "lib/manager/member.h"
#include "lib/manager/shard.h"
#include "lib/object/block.h"
#include "lib/object/block_order.h"
#include "lib/object/callback.h"
#include "lib/object/checked.h"
#include "lib/object/dead.h"
#include "lib/object/edge.h"
#include "lib/object/gate.h"
#include "lib/object/name.h"
#include "lib/object/object.h"
#include "lib/object/user_code.h"
#include "lib/object/weak.h"

/// Runs the `destroy` of a user's object, which must not set edges in it, nor touch the program's
/// error.
__attribute__((noinline)) static void run_destroy(nd_object *object) {
    ND__UNCANCELLED;
    nd_thread *thread = nd__thread();
    nd_destroying here = {object, thread->destroying};
    nd_user_code code;
    nd__user_code_begin(&code);
    thread->destroying = &here;
    object->type->destroy(object);
    thread->destroying = here.outer;
    nd__user_code_end(&code);
}

static inline void destroy(nd_object *object, uint32_t flags) {
    if (flags & ND__USER)
        run_destroy(object);
    else
        object->type->destroy(object);
}

void nd__destroy_payload(nd_object *object) {
    destroy(object, nd__object_flags(object));
}

/// The last steps of an object that is in no manager, but for its block. False: that is another
/// object's already, or still is of use.
static bool end_unlinked(nd_object *object) {
    uint32_t flags = nd__object_flags(object);
    const nd_type *type = object->type;
    bool recycled = (type->flags & ND__TYPE_MANAGER) != 0;
    // Others keep their name, for who uses them dead; it goes when the block is used again.
    if ((flags & ND__NAMED) && (type->flags & ND__TYPE_MANAGER))
        nd__name_remove(object);
    if (type->destroy && !(flags & ND__CLOSED)) {
        // A program's may close the object, which nobody else knows any more: that is under way.
        if (flags & ND__USER)
            nd__atomic_store(&object->flags, flags | ND__CLOSING, relaxed);
        destroy(object, flags);
    }
    // The destroy of a manager has recycled its memory: it may be another one already.
    if (recycled)
        return false;
    if (__builtin_expect(flags & ND__LENT, 0)) {
        nd__adopt_end(object);
        return false;
    }
    return true;
}

static void free_unlinked(nd_object *object) {
    if (end_unlinked(object))
        nd__block_free(object);
}

/// Whether the block is all that is left of an object, and is its own. (Managers have a `destroy`.)
static inline bool is_a_block(const nd_object *object) {
    return !object->type->destroy && !(nd__object_flags(object) & ND__LENT);
}

void nd__destroy_garbage(nd_object *const *objects, size_t count) {
    nd_object *ended[ND__BLOCK_ORDER_MOST];
    size_t blocks = 0;
    // Who watches memory is to see what the next destructors do with it, and a large block is to go
    // before they make others.
    const uint32_t waits = nd__checked_is_on() ? 0 : nd__block_class(ND__BLOCK_FINE) + 1;
    for (size_t i = 0; i < count; i++) {
        nd_object *object = objects[i];
        if (!is_a_block(object) && !end_unlinked(object))
            continue;
        if (nd__object_flags(object) >> ND__CLASS_SHIFT < waits)
            ended[blocks++] = object;
        else
            nd__block_free(object);
    }
    nd__block_free_all(ended, blocks);
}

/// Last steps of an object nobody can reach any more, edges already cleared: out of its manager,
/// out of the side tables, `destroy`, memory. Runs user code.
static void destroy_object(nd_object *object) {
    if (nd__object_shard(object))
        nd__member_unlink(object);
    free_unlinked(object);
}

void nd__destroy_finalize(nd_object *object) {
    nd_user_code code;
    nd__user_code_begin(&code);
    object->type->finalize(object);
    nd__user_code_end(&code);
}

/// Runs the finalizer of an object whose count just reached zero. True when it revived the object.
static bool finalize_dead(nd_object *object) {
    nd__member_return(object); // where it died as part of a longer chain
    if (!nd__destroy_claim_finalizer(object))
        return false;
    ND__UNCANCELLED;
    nd__atomic_add_relaxed(&object->word, ND__RETAIN_STEP);
    nd__destroy_finalize(object);
    nd__member_reattach(object); // where it was in no manager
    uint32_t count = (uint32_t)nd__atomic_subtract(&object->word, 1);
    return count != 1 && !(count > ND__COUNT_LIMIT && nd__object_released_beyond(object, count));
}

/// What a plain object may have of flags, and a plain tensor that the collector may see.
static const uint32_t PLAIN_BITS = ND__CLASS_BITS | ND__USER | ND__SMALL | ND__LENT;
static const uint32_t TENSOR_BITS = ND__CLASS_BITS | ND__LENT | ND__TRACKED;

/// True for what has nothing to be done for it but to leave its manager and be freed: green, in no
/// table, without a finalizer.
static bool is_plain(const nd_object *object) {
    return !(nd__object_flags(object) & ~PLAIN_BITS) && !object->type->finalize;
}

/// True for a tensor that the collector may see and which is plain apart from that.
static bool is_tracked_tensor(const nd_object *object) {
    return (object->type->flags & ND__TYPE_TENSOR) && !(nd__object_flags(object) & ~TENSOR_BITS);
}

/// True for what the collector may see, which is plain apart from that and can drop its edges.
static inline bool is_dropper(const nd_object *object) {
    return (object->type->flags & ND__TYPE_DROPS) &&
           !(nd__object_flags(object) & ~(ND__CLASS_BITS | ND__TRACKED));
}

/// The end of one that is in no manager, after a moment inside the gate at which that was so and its
/// count was zero: no collection has it as a candidate, and none can find it.
static void end_dropper(nd_object *object) {
    ((const nd__dropping_type *)object->type)->drop(object);
    nd__block_free(object);
}

/// What computed a tracked tensor that dies, if this tensor alone has it, leaves the shard that both
/// are in, with a count of zero. Inside the gate, and under the lock of that. Apart, so that tensors
/// which have none save no registers.
__attribute__((noinline)) static void take_history(nd_object *history, nd_shard *shard,
                                                   nd_thread *thread, bool cutting) {
    if (nd__object_shard(history) != shard)
        return;
    const uint64_t word = nd__atomic_load(&history->word, acquire);
    if ((uint32_t)word != 1 || !is_dropper(history))
        return;
    nd__checked_death(history);
    nd__atomic_store(&history->word, word - 1, relaxed);
    nd__member_die(shard, history, history->type->flags, thread, cutting);
}

/// After the gate.
__attribute__((noinline)) static void release_history(nd_object *history) {
    if ((uint32_t)nd__atomic_load(&history->word, relaxed) == 0)
        end_dropper(history);
    else
        nd_object_release(history);
}

/// What a release does that was the last one, or met a count beyond.
static void release_last(nd_object *object, uint32_t count) {
    if (count == 1 || nd__object_released_beyond(object, count))
        nd__destroy_died(object);
}

/// A plain or tracked tensor and, when this was its last tensor, the storage: out of their manager
/// under one lock, which is `shard`'s, is held, and is given up. NULL: the tensor is in none.
///
/// A plain one without the gate: who looks at edges of green objects does so under that lock. A
/// tracked one inside the gate, which is left. So no collection is looking at it, none has it as a
/// candidate (one in steps would hold it), and none can find it once it is in no list, as nothing
/// leads to what has a count of zero. Hence its edges need not be cleared there one by one: they are
/// released after the gate, and what dies of that waits in the thread's list of the dead. What
/// computed it, if nobody else has that, goes the same way beside it.
///
/// `idle`: but for this, and for the gate, the thread is known to be.
static inline __attribute__((always_inline)) void destroy_with_storage(nd_object *object,
                                                                       nd_shard *shard,
                                                                       nd_thread *thread,
                                                                       bool tracked, bool idle) {
    const bool cutting = !idle && thread->cutting;
    nd_object *storage = nd__object_storage(object), *left = NULL;
    nd_object *const *edges = ((const nd__stored *)object)->edges; // the base among them
    if (shard) {
        nd__member_die(shard, object, ND__TYPE_OF_TENSORS, thread, cutting);
        if (tracked && edges[ND__STORED_HISTORY])
            take_history(edges[ND__STORED_HISTORY], shard, thread, cutting);
    }
    nd__stored *borrower =
        tracked && nd__borrow_is_borrower((nd__stored *)object) ? (nd__stored *)object : NULL;
    if (borrower) {
        nd__stored *base = nd__borrow_base(borrower);
        if (__builtin_expect(shard && nd__object_shard(&base->accounted.header) == shard, 1)) {
            left = nd__borrow_end_locked(base, storage);
            borrower = NULL;
        }
        storage = NULL; // which is the base's
    }
    uint32_t count = 2; // the storage's, before the tensor lets go of it
    bool together = storage && shard && nd__object_shard(storage) == shard;
    if (together && (uint32_t)nd__atomic_load(&storage->word, acquire) == 1) {
        // Ours alone: nobody can take a count of it but a walk over the manager, under this lock.
        nd__atomic_store(&storage->word, nd__atomic_load_relaxed(&storage->word) - 1, relaxed);
        count = 1;
    } else if (storage) {
        count = (uint32_t)nd__atomic_subtract(&storage->word, 1);
    }
    bool both = count == 1 && is_plain(storage);
    if (both && together)
        nd__member_die(shard, storage, storage->type->flags, thread, cutting);
    if (shard)
        nd__shard_unlock(shard);
    // Inside the gate: a base that is closed shows its storage to a collection.
    if (__builtin_expect(borrower != NULL, 0))
        left = nd__borrow_end(borrower);
    if (tracked && idle)
        nd__gate_leave_idle(thread);
    else if (tracked)
        nd__gate_leave_as(thread);
    if (both)
        destroy_object(storage);
    else if (count <= 1 || count > ND__COUNT_LIMIT)
        release_last(storage, count);
    if (__builtin_expect(left != NULL, 0))
        nd_object_release(left);
        // As a rule one is there, and no loop: counting takes longer than looking at them.
#pragma GCC unroll ND__STORED_EDGES
    for (int i = 0; tracked && i < ND__STORED_EDGES; i++) {
        if (!edges[i])
            continue;
        if (i == ND__STORED_HISTORY)
            release_history(edges[i]);
        else
            nd_object_release(edges[i]);
    }
    if (__builtin_expect(nd__object_flags(object) & ND__LENT, 0))
        nd__adopt_end(object);
    else
        nd__block_free(object);
}

static void destroy_dead(nd_object *object, nd_thread *thread) {
    if (__builtin_expect(is_plain(object), 1)) {
        if (object->type->flags & ND__TYPE_TENSOR) {
            destroy_with_storage(object, nd__shard_lock_of(object), thread, false, false);
            return;
        }
        nd__member_unlink(object);
        if (object->type->clear)
            object->type->clear(object);
        free_unlinked(object);
        return;
    }
    // Not while this thread cuts garbage, which counts the edges that it clears.
    if (is_tracked_tensor(object) && !thread->cut && nd__gate_try_enter_as(thread)) {
        destroy_with_storage(object, nd__shard_lock_of(object), thread, true, false);
        return;
    }
    if (is_dropper(object) && !thread->cut && nd__gate_try_enter_as(thread)) {
        nd__member_unlink(object);
        nd__gate_leave_as(thread);
        end_dropper(object);
        return;
    }
    if (nd__object_flags(object) & ND__HAS_WEAK)
        nd__weak_clear(object);
    if (finalize_dead(object))
        return;
    if (object->type->finalize && (nd__object_flags(object) & ND__HAS_WEAK))
        nd__weak_clear(object); // the finalizer, or who got a reference from it, may have made some
    if (nd__object_flags(object) & ND__TRACKED) {
        nd__member_unlink(object); // frees the links for the parked list
        if (!nd__gate_try_enter()) {
            nd__gate_park(object);
            return;
        }
        if (object->type->clear && !nd__object_is_closed(object))
            object->type->clear(object);
        nd__gate_leave();
    } else if (object->type->clear && !nd__object_is_closed(object)) {
        object->type->clear(object); // green: the collector never looks at its edges
    }
    destroy_object(object);
}

bool nd__destroy_begin(nd_thread *thread) {
    bool outermost = !thread->is_destroying;
    thread->is_destroying = true;
    return outermost;
}

static inline void destroy_all(nd_thread *thread) {
    while (thread->dead) {
        nd_object *object = thread->dead;
        thread->dead = object->next;
        destroy_dead(object, thread);
    }
}

/// What callbacks of a device have left. Not while a collection counts what dies.
__attribute__((cold, noinline)) static void destroy_deferred(nd_thread *thread) {
    while (nd__callback_any_deferred() && !thread->cutting) {
        nd__destroy_list(nd__callback_take_deferred());
        destroy_all(thread);
    }
}

static inline __attribute__((always_inline)) void end_destruction(nd_thread *thread) {
    destroy_all(thread);
    if (nd__callback_any_deferred())
        destroy_deferred(thread);
    if (__builtin_expect(thread->dead_taken != 0, 0) && !thread->nested_code)
        nd__dead_settle(thread);
    thread->is_destroying = false;
}

/// Locks the shard of an object of which this is the only reference, if it has no other bits than
/// those; that of a tracked one inside the gate. NULL, and nothing is locked, if it is none such.
static inline __attribute__((always_inline)) nd_shard *lock_alone(nd_object *object,
                                                                  uint32_t bits) {
    nd_shard *shard = nd__shard_lock_of_hot(object);
    if (!shard)
        return NULL;
    // Once more: a walk may have given it to somebody, who may have let it go again, weakly held.
    uint64_t word = nd__atomic_load(&object->word, acquire);
    if (__builtin_expect((uint32_t)word == 1 && !(nd__object_flags(object) & ~bits), 1)) {
        nd__atomic_store(&object->word, word - 1, relaxed);
        return shard;
    }
    nd__shard_unlock(shard);
    return NULL;
}

/// On a thread that destroys others, the release of an object of which this is the only reference:
/// out of its manager and onto the thread's list of the dead. As for nd__destroy_alone the lock
/// keeps everybody else from taking a count. The collector only reads that of a tracked one, and
/// its edges are cleared later, inside the gate. Not while this thread cuts garbage, which counts
/// the edges that it clears.
static bool add_dead_alone(nd_thread *thread, nd_object *object) {
    const uint32_t bits = ND__CLASS_BITS | ND__USER | ND__SMALL | ND__LENT | ND__TRACKED;
    if (thread->in_callback || thread->cut || object->type->finalize ||
        (nd__object_flags(object) & ~bits))
        return false;
    nd_shard *shard = nd__shard_lock_of(object);
    if (!shard)
        return false;
    uint64_t word = nd__atomic_load(&object->word, acquire);
    bool alone = (uint32_t)word == 1 && !(nd__object_flags(object) & ~bits);
    if (alone) {
        nd__checked_death(object);
        nd__atomic_store(&object->word, word - 1, relaxed);
        nd__member_die(shard, object, object->type->flags, thread, thread->cutting);
    }
    nd__shard_unlock(shard);
    if (alone) {
        object->next = thread->dead;
        thread->dead = object;
    }
    return alone;
}

/// That of a tracked tensor, on an idle thread.
static inline bool destroy_tracked_alone(nd_object *object, nd_thread *thread) {
    if (!nd__gate_try_enter_idle(thread))
        return false;
    nd_shard *shard = lock_alone(object, TENSOR_BITS);
    if (!shard) {
        nd__gate_leave_as(thread);
        return false;
    }
    nd__checked_death(object);
    thread->is_destroying = true;
    destroy_with_storage(object, shard, thread, true, true);
    return true;
}

/// That of a plain object, on an idle thread.
static inline bool destroy_plain_alone(nd_object *object, nd_thread *thread) {
    nd_shard *shard = lock_alone(object, PLAIN_BITS);
    if (!shard)
        return false;
    nd__checked_death(object);
    thread->is_destroying = true;
    if (object->type->flags & ND__TYPE_TENSOR) {
        destroy_with_storage(object, shard, thread, false, true);
        return true;
    }
    nd__member_die(shard, object, object->type->flags, thread, false);
    nd__shard_unlock(shard);
    if (object->type->clear)
        object->type->clear(object);
    free_unlinked(object);
    return true;
}

/// The release of a plain object, or a tracked tensor, of which this is the only reference: without
/// a locked decrement, since the lock that its death takes anyway keeps everybody else from taking
/// a count. Who has none gets one from a weak reference, which such an object has not, or from a
/// walk over its manager, under that lock; a collection in steps takes it in such a walk. False:
/// nothing was done, because it is no such object, or because others have a part in the release.
bool nd__destroy_alone(nd_object *object) {
    nd_thread *thread = &nd__thread_record;
    if (__builtin_expect(!nd__thread_is_idle(thread), 0))
        return nd__thread()->is_destroying && add_dead_alone(thread, object);
    const bool destroyed = is_plain(object)            ? destroy_plain_alone(object, thread)
                           : is_tracked_tensor(object) ? destroy_tracked_alone(object, thread)
                                                       : false;
    if (destroyed)
        end_destruction(thread);
    return destroyed;
}

void nd__destroy_end(nd_thread *thread, bool outermost) {
    if (outermost)
        end_destruction(thread);
}

/// Puts an object whose count is zero on the thread's list of the dead. Its `next` is in use while
/// it is still in a manager's list, so it leaves that first.
static void add_dead(nd_thread *thread, nd_object *object) {
    nd__member_unlink_dead(object);
    object->next = thread->dead;
    thread->dead = object;
}

void nd__destroy_died(nd_object *object) {
    nd_thread *thread = nd__thread();
    nd__checked_death(object);
    // Garbage of the collection that this thread is running: the collection frees it.
    if (thread->collecting && (nd__object_flags(object) & ND__DYING))
        return;
    if (thread->is_destroying) {
        if (thread->in_callback)
            nd__callback_defer(object);
        else
            add_dead(thread, object);
        return;
    }
    thread->is_destroying = true;
    destroy_dead(object, thread);
    end_destruction(thread);
}

static void defer_list(nd_object *list) {
    while (list) {
        nd_object *next = list->next;
        nd__callback_defer(list);
        list = next;
    }
}

void nd__destroy_list(nd_object *list) {
    nd_thread *thread = nd__thread();
    if (__builtin_expect(thread->in_callback, 0)) {
        defer_list(list);
        return;
    }
    bool outermost = nd__destroy_begin(thread);
    while (list) {
        nd_object *next = list->next;
        list->next = thread->dead;
        thread->dead = list;
        list = next;
    }
    nd__destroy_end(thread, outermost);
}
