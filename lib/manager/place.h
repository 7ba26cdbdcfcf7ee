// Where a result belongs.
#ifndef ND_LIB_MANAGER_PLACE_H
#define ND_LIB_MANAGER_PLACE_H
#include "lib/manager/manager.h"

/// A manager chosen for a result, kept valid until nd__place_end.
typedef struct nd_place {
    nd_manager *manager;
    bool pinned;
} nd_place;

/// Where a result of these operands belongs: the innermost nd_with_manager block's manager; else
/// the deepest of the operands' managers when they lie on one path to the root, else their lowest
/// common ancestor; without operands the root. NULL operands are skipped. End with nd__place_end.
/// May collect (the triggers of nd_gc_policy), so the caller must own what it uses.
nd_place nd__place_begin(const nd_object *const *operands, size_t count);
/// The manager of `object` itself, whatever is current (gradients, optimizer state, *_like).
nd_place nd__place_of(const nd_object *object);
void nd__place_end(nd_place place);

/// Publishes a private object in a place, which ends with that. ND_OK, or the error of
/// nd__member_publish; then the object is private as before.
nd_status nd__place_publish(nd_place place, nd_object *object);
/// Publishes a private object in the current manager, which is charged with its bytes. On failure
/// it is still private. Errors: cap, quota.
nd_status nd__place_publish_current(const char *operation, nd_object *object);
/// As nd__place_publish, as the last step of a constructor: the object, or NULL with an error, and
/// then it is released.
void *nd__place_publish_or_release(nd_place place, nd_object *object);

/// The lowest manager that both are at or below.
nd_manager *nd__place_common_ancestor(nd_manager *a, nd_manager *b);
#endif
