// Names of objects, for those who end one.
#ifndef ND_LIB_OBJECT_NAME_H
#define ND_LIB_OBJECT_NAME_H
#include "lib/object/object.h"

/// Removes the name of an object, or of the dead one whose block it is.
void nd__name_remove(nd_object *object);
#endif
