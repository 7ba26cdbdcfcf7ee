// Weak references, for those who end an object.
#ifndef ND_LIB_OBJECT_WEAK_H
#define ND_LIB_OBJECT_WEAK_H
#include "lib/object/object.h"

/// Clears every weak reference to a dead or dying object and runs their callbacks.
void nd__weak_clear(nd_object *object);
#endif
