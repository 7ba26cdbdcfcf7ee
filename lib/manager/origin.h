// Where temp-attached objects came from.
#ifndef ND_LIB_MANAGER_ORIGIN_H
#define ND_LIB_MANAGER_ORIGIN_H
#include "lib/manager/manager.h"

// Origins of temp-attached objects (origin.c). Records that are not in use are a list, `spare`.
// What changes the origins of a living object, or asks for them to move it, holds the lock of its
// shard.

/// Adds so many records to the list; walks the ladder, so no lock may be held. False: no memory.
bool nd__origin_reserve(nd_origin **spare, int count);
void nd__origin_discard(nd_origin *spare);
/// The object goes from one manager to another, for a time. True when it has origins afterwards:
/// it has none when it is lent to where it first came from.
bool nd__origin_lend(nd_object *object, nd_manager *from, nd_manager *target, nd_origin **spare);
/// Where the object returns to when its manager closes; NULL when it has no origins. Valid only to
/// compare with.
const nd_manager *nd__origin_peek(const nd_object *object);
/// The same, or an ancestor of it, retained. No lock may be held.
nd_manager *nd__origin_get(const nd_object *object);
/// The object goes back to `target`, if that is still where it returns to. *ret_away: it has other
/// origins afterwards.
bool nd__origin_return(nd_object *object, const nd_manager *target, bool *ret_away,
                       nd_origin **spare);
/// Gives `other`, which has none, the origins of an object, when there are no more than `count`,
/// for which `spare` has the records. Returns how many there are: when more, nothing was done.
int nd__origin_copy(const nd_object *object, nd_object *other, int count, nd_origin **spare);
/// It stays where it is from now on.
void nd__origin_drop(nd_object *object, nd_origin **spare);
/// It is dead.
void nd__origin_forget(nd_object *object);
/// Records that name a manager that is no longer open are sent on to the nearest ancestor that is:
/// `outside` or one above it.
void nd__origin_forward(nd_manager *closed, nd_manager *outside);
/// Records in use, of all objects.
uint64_t nd__origin_count(void);
/// How many objects a lookup by object looks at, at most. For tests.
uint64_t nd__origin_longest(void);
#endif
