// Where a result belongs.
//
// What every small operation calls is inline: saving registers for a call and giving them back is a
// twentieth of what the smallest of them cost.
#ifndef ND_LIB_MANAGER_PLACE_H
#define ND_LIB_MANAGER_PLACE_H
#include "lib/base/thread.h"
#include "lib/manager/manager.h"
#include "lib/manager/publish.h"
#include "lib/manager/trigger.h"

/// A manager chosen for a result, kept valid until nd__place_end.
typedef struct nd_place {
    nd_manager *manager;
    bool pinned;
} nd_place;

/// Outside all nd_with_manager blocks, for nd__place_begin.
nd_place nd__place_choose(const nd_object *const *operands, size_t count);
/// Where a result of these operands belongs: the innermost nd_with_manager block's manager; else
/// the deepest of the operands' managers when they lie on one path to the root, else their lowest
/// common ancestor; without operands the root. NULL operands are skipped. End with nd__place_end.
/// May collect (the triggers of nd_gc_policy), so the caller must own what it uses.
static inline nd_place nd__place_begin(const nd_object *const *operands, size_t count) {
    nd_manager *current = (nd_manager *)(uintptr_t)nd__thread()->current;
    nd_place place = current ? (nd_place){current, false} : nd__place_choose(operands, count);
    nd__trigger_poll(place.manager);
    return place;
}
/// The manager of `object` itself, whatever is current (gradients, optimizer state, *_like).
nd_place nd__place_of(const nd_object *object);
static inline void nd__place_end(nd_place place) {
    if (place.pinned)
        nd_object_release(place.manager);
}

/// Publishes a private object in a place, which ends with that. ND_OK, or the error of
/// nd__publish; then the object is private as before.
static inline nd_status nd__place_publish(nd_place place, nd_object *object) {
    nd_status status = nd__publish(object, place.manager);
    nd__place_end(place);
    return status;
}
/// Publishes a private object in the current manager, which is charged with its bytes. On failure
/// it is still private. Errors: cap, quota.
nd_status nd__place_publish_current(const char *operation, nd_object *object);
/// As nd__place_publish, as the last step of a constructor: the object, or NULL with an error, and
/// then it is released.
void *nd__place_publish_or_release(nd_place place, nd_object *object);

/// The lowest manager that both are at or below.
nd_manager *nd__place_common_ancestor(nd_manager *a, nd_manager *b);
#endif
