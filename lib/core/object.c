// Counts, life and death of objects.
//
// Invariants: a count that reached zero never rises again (except inside a finalizer, before
// anything was cleared); destruction is a loop over the thread's list of dead objects, never a
// recursion; edges of an object that the collector may see are cleared inside the gate, so a dead
// tracked object that meets a closed gate is parked; nothing is destroyed in a callback that a
// device runs (callback.h).
#include "lib/core/object.h"
#include "lib/core/accompany.h"
#include "lib/core/alloc.h"
#include "lib/core/atomics.h"
#include "lib/core/block.h"
#include "lib/core/callback.h"
#include "lib/core/cancel.h"
#include "lib/core/checked.h"
#include "lib/core/cut.h"
#include "lib/core/error.h"
#include "lib/core/gate_internal.h"
#include "lib/core/life.h"
#include "lib/core/manager_internal.h"
#include "lib/core/member.h"
#include "lib/core/pressure.h"
#include "lib/core/steps.h"
#include "lib/core/thread.h"
#include "lib/core/versioned.h"
#include "lib/core/watch.h"
#include <nd/detail/counts.h>
#include <nd/manager.h>
#include <string.h>

#define RETAIN_STEP (ND__VERSION_STEP + 1)
#define COUNT_LIMIT UINT32_C(0x80000000)
// What programs were built with (ND_INLINE_COUNTS).
_Static_assert(offsetof(nd_object, word) == 0 && RETAIN_STEP == ND__RETAIN_STEP &&
                   COUNT_LIMIT == ND__COUNT_LIMIT,
               "binary interface");

_Atomic(void (*)(const nd_object *object, nd__watch_kind kind, uint32_t count)) nd__watch_note;

static void object_died(nd_object *object);

// --------------------------------------------------------------------------------- retain, release

/// A retain that found a count which ordinary objects do not have.
__attribute__((cold, noinline)) static void *retained_beyond(nd_object *object, uint32_t count) {
    if (nd__is_watched(count)) {
        nd__watch_tell(object, ND__WATCH_RETAIN, nd__count_in(count) + 1);
        return object;
    }
    if (nd__count_in(count) == 0)
        nd__block_tell_dead("retain", object);
    nd__fatal("count of a %s at %p overflows", object->type->name, (void *)object);
}

/// A release that found such a count. True when it was the last one.
__attribute__((cold, noinline)) static bool released_beyond(nd_object *object, uint32_t count) {
    if (!nd__is_watched(count))
        nd__block_tell_dead("release", object);
    uint32_t left = nd__count_in(count) - 1;
    nd__watch_tell(object, ND__WATCH_RELEASE, left);
    return left == 0;
}

/// What a release does that was the last one, or met a count beyond. Apart, so that others save no
/// registers.
__attribute__((noinline)) static void release_last(nd_object *object, uint32_t count) {
    if (count == 1 || released_beyond(object, count))
        object_died(object);
}

// While the process has one thread these two are an addition that is not locked and a look at the count, with
// nothing to jump around: each jump taken costs as much as the rest.

void *nd_object_retain(const void *handle) {
    if (__builtin_expect(!handle, 0))
        return NULL;
    nd_object *object = (nd_object *)(uintptr_t)handle;
    if (nd__single_threaded()) {
        uint64_t before = nd__fetch_add_alone(&object->word, RETAIN_STEP);
        if (__builtin_expect((uint32_t)before - 1 >= COUNT_LIMIT - 2, 0))
            return retained_beyond(object, (uint32_t)before);
        return object;
    }
    uint32_t count = (uint32_t)nd__atomic_fetch_add(&object->word, RETAIN_STEP, relaxed);
    if (__builtin_expect(count - 1 >= COUNT_LIMIT - 2, 0))
        return retained_beyond(object, count);
    return object;
}

static bool release_alone(nd_object *object);

void nd_object_release(void *handle) {
    if (__builtin_expect(!handle, 0))
        return;
    nd_object *object = handle;
    if (nd__single_threaded()) {
        uint64_t before = nd__fetch_add_alone(&object->word, UINT64_MAX);
        if (__builtin_expect((uint32_t)before - 2 > COUNT_LIMIT - 2, 0))
            release_last(object, (uint32_t)before);
        return;
    }
    if ((uint32_t)nd__load_relaxed(&object->word) == 1 && release_alone(object))
        return;
    uint32_t count = (uint32_t)nd__atomic_fetch_sub(&object->word, 1, acq_rel);
    if (__builtin_expect(count > 1 && count <= COUNT_LIMIT, 1))
        return;
    release_last(object, count);
}

bool nd__try_retain(nd_object *object) {
    uint32_t flags = nd__flags(object); // once: suspicion turns into dying
    if (__builtin_expect(flags & (ND__DYING | ND__SUSPECT), 0) &&
        ((flags & ND__DYING) || !nd__suspect_may_live()))
        return false;
    uint64_t word = nd__atomic_load(&object->word, relaxed);
    do {
        if (nd__count_in(word) == 0)
            return false;
    } while (!nd__atomic_cas(&object->word, &word, word + RETAIN_STEP, acquire, relaxed));
    if (__builtin_expect(nd__is_watched(word), 0))
        nd__watch_tell(object, ND__WATCH_UPGRADE, nd__count_in(word) + 1);
    return true;
}

uint32_t nd_get_count(const void *object) {
    return object ? nd__count_in(nd__load_relaxed(&((const nd_object *)object)->word)) : 0;
}

const char *nd_get_type_name(const void *object) {
    return object ? ((const nd_object *)object)->type->name : "NULL";
}

// ------------------------------------------------------------------------------------------- birth

nd_object *nd__object_new(const nd_type *type, size_t size) {
    nd_object *object = nd__object_new_bare(type, size);
    if (__builtin_expect(object != NULL, 1))
        memset(object + 1, 0, size - sizeof *object);
    return object;
}

nd_object *nd__object_new_bare(const nd_type *type, size_t size) {
    void *memory = nd__block_new(size);
    if (__builtin_expect(!memory, 0))
        memory = nd__obtain_object(type, size);
    return memory ? nd__object_begin(type, memory) : NULL;
}

void nd__object_discard(void *handle) {
    nd_object *object = handle;
    atomic_init(&object->word, 0);
    nd__block_free(object);
}

/// A user's object that is still private.
static nd_object *new_user(const char *operation, const nd_type *type, size_t size) {
    if (nd__versioned_check_kept(operation, "nd_type", type, sizeof *type) != ND_OK)
        return NULL;
    if (!type->name) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the type has no name", operation);
        return NULL;
    }
    if (size > SIZE_MAX / 2) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: %zu bytes are too many for a %s", operation, size,
                  type->name);
        return NULL;
    }
    nd_object *object = nd__object_new(type, sizeof(nd_object) + size);
    if (!object)
        return NULL;
    atomic_init(&object->flags, nd__flags(object) | ND__USER);
    return object;
}

/// In the current manager.
static nd_status publish_user(nd_object *object) {
    nd_place place = nd__place_begin(NULL, 0);
    nd_status status = nd__object_publish(object, place.manager);
    nd__place_end(place);
    return status;
}

nd_object *nd_object_new(const nd_type *type, size_t size) {
    nd_object *object = new_user("object_new", type, size);
    if (object && publish_user(object) != ND_OK) {
        nd__object_discard(object);
        return NULL;
    }
    return object;
}

nd_object *nd_object_new_with(const nd_type *type, size_t size, nd_object_init init, void *data) {
    static const char operation[] = "object_new_with";
    if (!init) {
        nd__error_null(operation, "init");
        return NULL;
    }
    if (nd__callback_check(operation) != ND_OK)
        return NULL;
    nd_object *object = new_user(operation, type, size);
    if (!object)
        return NULL;
    nd_status status = init(object, data);
    if (status != ND_OK && nd_error_status() != status)
        nd__error(status, "%s: the init of a %s answered %s", operation, type->name,
                  nd_status_name(status));
    if (status == ND_OK && publish_user(object) == ND_OK)
        return object;
    nd_close(object); // what it holds already goes; who got hold of it has a closed object
    nd_object_release(object);
    return NULL;
}

void *nd_object_data(const nd_object *object) {
    uint32_t flags = object ? nd__flags(object) : 0;
    // The callbacks of the type itself still see the payload of an object that is being closed.
    if (__builtin_expect((flags & (ND__USER | ND__GONE)) == ND__USER, 1))
        return (void *)(uintptr_t)(object + 1);
    if (flags & ND__USER)
        nd__error(ND_ERROR_CLOSED, "object_data: the %s is closed", object->type->name);
    return NULL;
}

const nd_type *nd_object_type(const void *object) {
    return object ? ((const nd_object *)object)->type : NULL;
}

// ------------------------------------------------------------------------------------------- death

/// Runs the `destroy` of a user's object, which must not set edges in it, nor touch the program's error.
__attribute__((noinline)) static void run_destroy(nd_object *object) {
    ND__UNCANCELLED;
    nd_thread *thread = nd__thread();
    nd_object *outer = thread->destroying;
    nd_error_state own, *error;
    nd__error_begin(&own, &error);
    thread->destroying = object;
    object->type->destroy(object);
    thread->destroying = outer;
    nd__error_end(error);
}

static inline void destroy(nd_object *object, uint32_t flags) {
    if (flags & ND__USER)
        run_destroy(object);
    else
        object->type->destroy(object);
}

/// The last steps of nd__object_free, for one that is in no manager.
static void free_unlinked(nd_object *object) {
    uint32_t flags = nd__flags(object);
    const nd_type *type = object->type;
    bool recycled = (type->flags & ND__TYPE_MANAGER) != 0;
    // Others keep their name, for who uses them dead; it goes when the block is used again.
    if ((flags & ND__NAMED) && (type->flags & ND__TYPE_MANAGER))
        nd__name_remove(object);
    if (type->destroy && !(flags & ND__CLOSED))
        destroy(object, flags);
    // The destroy of a manager has recycled its memory: it may be another one already.
    if (recycled)
        return;
    if (__builtin_expect(flags & ND__LENT, 0))
        nd__accompanied_end(object);
    else
        nd__block_free(object);
}

void nd__garbage_free(nd_object *const *objects, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const nd_type *type = objects[i]->type;
        if (!type->destroy && !(type->flags & ND__TYPE_MANAGER))
            nd__block_free(objects[i]);
        else
            free_unlinked(objects[i]);
    }
}

void nd__object_free(nd_object *object) {
    if (nd__home_of(object))
        nd__object_unlink(object);
    free_unlinked(object);
}

void nd__finalize(nd_object *object) {
    nd_error_state own, *error;
    nd__error_begin(&own, &error);
    object->type->finalize(object);
    nd__error_end(error);
}

/// Runs the finalizer of an object whose count just reached zero. True when it revived the object.
static bool finalize_dead(nd_object *object) {
    if (!nd__claim_finalizer(object))
        return false;
    ND__UNCANCELLED;
    nd__fetch_add_relaxed(&object->word, RETAIN_STEP);
    nd__finalize(object);
    // One that died as part of a longer chain has left its manager already: should it live on, it
    // does so at the root.
    nd__object_reattach(object);
    uint32_t count = (uint32_t)nd__fetch_sub_acq_rel(&object->word, 1);
    return count != 1 && !(count > COUNT_LIMIT && released_beyond(object, count));
}

/// True for what has nothing to be done for it but to leave its manager and be freed: green, in no
/// table, without a finalizer.
static bool is_plain(const nd_object *object) {
    const uint32_t plain = ND__CLASS_BITS | ND__USER | ND__LENT;
    return !(nd__flags(object) & ~plain) && !object->type->finalize;
}

/// A plain tensor and, when this was its last tensor, the storage: out of their manager under one lock, which
/// is `home`'s, is held, and is given up. NULL: the tensor is in none.
/// Without the gate: who looks at edges of green objects does so under that lock.
static inline __attribute__((always_inline)) void
bury_accompanied(nd_object *object, nd_shard *home, nd_thread *thread) {
    nd_object *companion = nd__companion_of(object);
    if (home)
        nd__member_die(home, object, thread);
    uint32_t count = 2; // the companion's, before the tensor lets go of it
    bool together = companion && home && nd__home_of(companion) == home;
    if (together && (uint32_t)nd__atomic_load(&companion->word, acquire) == 1) {
        // Ours alone: nobody can take a count of it but a walk over the manager, under this lock.
        nd__atomic_store(&companion->word, nd__load_relaxed(&companion->word) - 1, relaxed);
        count = 1;
    } else if (companion) {
        count = (uint32_t)nd__fetch_sub_acq_rel(&companion->word, 1);
    }
    bool both = count == 1 && is_plain(companion);
    if (both && together)
        nd__member_die(home, companion, thread);
    if (home)
        nd__unlock(&home->lock);
    free_unlinked(object);
    if (both) {
        nd__object_free(companion);
        return;
    }
    if (count <= 1 || count > COUNT_LIMIT)
        release_last(companion, count);
}

static void bury(nd_object *object, nd_thread *thread) {
    if (__builtin_expect(is_plain(object), 1)) {
        if (object->type->flags & ND__TYPE_TENSOR) {
            bury_accompanied(object, nd__lock_home(object), thread);
            return;
        }
        nd__object_unlink(object);
        if (object->type->clear)
            object->type->clear(object);
        free_unlinked(object);
        return;
    }
    if (nd__flags(object) & ND__HAS_WEAK)
        nd__weak_clear(object);
    if (finalize_dead(object))
        return;
    if (object->type->finalize && (nd__flags(object) & ND__HAS_WEAK))
        nd__weak_clear(object); // the finalizer, or who got a reference from it, may have made some
    if (nd__flags(object) & ND__TRACKED) {
        nd__object_unlink(object); // frees the links for the parked list
        if (!nd__gate_try_enter()) {
            nd__park(object);
            return;
        }
        if (object->type->clear && !nd__is_closed(object))
            object->type->clear(object);
        nd__gate_leave();
    } else if (object->type->clear && !nd__is_closed(object)) {
        object->type->clear(object); // green: the collector never looks at its edges
    }
    nd__object_free(object);
}

bool nd__burying_begin(nd_thread *thread) {
    bool outermost = !thread->burying;
    thread->burying = true;
    return outermost;
}

static inline void bury_all(nd_thread *thread) {
    while (thread->dead) {
        nd_object *object = thread->dead;
        thread->dead = object->next;
        bury(object, thread);
    }
}

/// What callbacks of a device have left. Not while a collection counts what dies.
__attribute__((cold, noinline)) static void bury_left(nd_thread *thread) {
    while (nd__any_left() && !thread->cutting) {
        nd__bury_list(nd__take_left());
        bury_all(thread);
    }
}

static inline __attribute__((always_inline)) void end_burying(nd_thread *thread) {
    bury_all(thread);
    if (nd__any_left())
        bury_left(thread);
    thread->burying = false;
}

/// The release of a plain object of which this is the only reference: without a locked decrement, since
/// the lock that its death takes anyway keeps everybody else from taking a count. Who has none gets one
/// from a weak reference, which a plain object has not, or from a walk over its manager, under that lock.
/// (The collector holds tracked objects alone.) False: nothing was done, because it is no such object.
__attribute__((noinline)) static bool release_alone(nd_object *object) {
    nd_thread *thread = nd__thread();
    if (thread->burying || !is_plain(object))
        return false;
    nd_shard *home = nd__lock_home(object);
    if (!home)
        return false;
    // Once more: a walk may have given it to somebody, who may have let it go again, weakly held.
    uint64_t word = nd__atomic_load(&object->word, acquire);
    if ((uint32_t)word != 1 || !is_plain(object)) {
        nd__unlock(&home->lock);
        return false;
    }
    nd__atomic_store(&object->word, word - 1, relaxed);
    nd__note_death(object);
    thread->burying = true;
    if (object->type->flags & ND__TYPE_TENSOR) {
        bury_accompanied(object, home, thread);
    } else {
        nd__member_die(home, object, thread);
        nd__unlock(&home->lock);
        if (object->type->clear)
            object->type->clear(object);
        free_unlinked(object);
    }
    end_burying(thread);
    return true;
}

void nd__burying_end(nd_thread *thread, bool outermost) {
    if (outermost)
        end_burying(thread);
}

/// Puts an object whose count is zero on the thread's list of the dead. Its `next` is in use while
/// it is still in a manager's list, so it leaves that first.
static void add_dead(nd_thread *thread, nd_object *object) {
    nd__object_unlink(object);
    object->next = thread->dead;
    thread->dead = object;
}

static void object_died(nd_object *object) {
    nd_thread *thread = nd__thread();
    nd__note_death(object);
    // Garbage of the collection that this thread is running: the collection frees it.
    if (thread->collecting && (nd__flags(object) & ND__DYING))
        return;
    if (thread->burying) {
        if (thread->in_callback)
            nd__leave(object);
        else
            add_dead(thread, object);
        return;
    }
    thread->burying = true;
    bury(object, thread);
    end_burying(thread);
}

static void leave_list(nd_object *list) {
    while (list) {
        nd_object *next = list->next;
        nd__leave(list);
        list = next;
    }
}

void nd__bury_list(nd_object *list) {
    nd_thread *thread = nd__thread();
    if (__builtin_expect(thread->in_callback, 0)) {
        leave_list(list);
        return;
    }
    bool outermost = nd__burying_begin(thread);
    while (list) {
        nd_object *next = list->next;
        list->next = thread->dead;
        thread->dead = list;
        list = next;
    }
    nd__burying_end(thread, outermost);
}

// ------------------------------------------------------------------------------------------- close

nd_status nd_close(void *handle) {
    if (!handle)
        return nd__error_null("close", "object");
    nd_object *object = handle;
    if (nd__callback_check("close") != ND_OK)
        return ND_ERROR_STATE;
    if (object->type->flags & ND__TYPE_MANAGER)
        return nd_manager_close(handle, NULL);
    if (nd__fetch_or_flags(&object->flags, ND__CLOSING) & ND__CLOSING)
        return ND_OK;
    ND__UNCANCELLED;
    nd_thread *thread = nd__thread();
    bool outermost = nd__burying_begin(thread);
    nd__gate_enter_to_clear();
    if (object->type->clear)
        object->type->clear(object);
    // Inside the gate: no traverse meets what destroy frees.
    nd__fetch_or_flags(&object->flags, ND__CLOSED);
    nd__gate_leave();
    // A report that saw it open may be asking `describe` about it, under its manager's lock.
    nd_shard *home = nd__lock_home(object);
    if (home)
        nd__unlock(&home->lock);
    nd__account_close(object);
    if (object->type->destroy)
        destroy(object, nd__flags(object));
    nd__fetch_or_flags(&object->flags, ND__GONE);
    nd__burying_end(thread, outermost);
    return ND_OK;
}

bool nd_is_closed(const void *object) {
    if (!object)
        return false;
    if (((const nd_object *)object)->type->flags & ND__TYPE_MANAGER)
        return !nd_manager_is_open(object);
    return nd__is_closed(object);
}

// ------------------------------------------------------------------------------------------- edges

/// Whether a slot lies in the payload that a `destroy` of this thread is about to free: an edge that
/// it got now would be cleared by nobody.
__attribute__((cold, noinline)) static bool is_being_destroyed(const void *slot) {
    const nd_object *object = nd__thread_record.destroying;
    uintptr_t offset = (uintptr_t)slot - (uintptr_t)object;
    if (offset >= nd__block_size(object))
        return false;
    nd__error(ND_ERROR_CLOSED, "edge_set: the %s is being destroyed, and takes no edges any more",
              object->type->name);
    return true;
}

void nd_edge_set(void *slot, const void *target) {
    if (__builtin_expect(nd__thread_record.destroying != NULL, 0) && is_being_destroyed(slot))
        return;
    nd_object **edge = slot;
    nd_object *retained = nd_object_retain(target);
    nd__gate_enter();
    nd_object *before = *edge;
    *edge = retained;
    nd__gate_leave();
    nd_object_release(before);
}

bool nd__edge_set_in(nd_object *owner, void *slot, const void *target) {
    if (nd__is_closing(owner))
        return false;
    nd_edge_set(slot, target);
    return true;
}

void *nd_edge_take(void *slot) {
    nd_object **edge = slot;
    nd__gate_enter_to_clear();
    nd_object *before = *edge;
    *edge = NULL;
    nd__note_moved(before);
    nd__gate_leave();
    return before;
}

/// Apart, so that the collector's edges save no registers.
__attribute__((noinline)) static void clear_edge_at_gate(nd_object **edge) {
    nd__gate_enter_to_clear();
    nd_object *before = *edge;
    *edge = NULL;
    nd__gate_leave();
    nd_object_release(before);
}

void nd_edge_clear(void *slot) {
    nd_object **edge = slot;
    nd_cut *cut = nd__thread_record.cut;
    if (!cut || !*edge || !nd__is_own_garbage(*edge)) {
        clear_edge_at_gate(edge);
        return;
    }
    // Both ends are garbage of this thread's collection: nobody else can see the count any more.
    nd_object *target = *edge;
    *edge = NULL;
    uint64_t word = nd__atomic_load(&target->word, relaxed);
    nd__atomic_store(&target->word, word - 1, relaxed);
    nd__cut_edge(cut, target->gc_index);
}
