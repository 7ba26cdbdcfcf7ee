// Edges of an owner that may be closing (the others are <nd/object.h>'s).
#ifndef ND_LIB_OBJECT_EDGE_H
#define ND_LIB_OBJECT_EDGE_H
#include "lib/object/object.h"

/// A user's object whose `destroy` runs on this thread, perhaps inside that of another one.
typedef struct nd_destroying {
    const nd_object *object;
    const struct nd_destroying *outer;
} nd_destroying;

/// nd_edge_set() of an edge of `owner`. False, and nothing has changed, when that is closing.
bool nd__edge_set_in(nd_object *owner, void *slot, const void *target);
#endif
