// Objects that were lent to a manager which closes.
#ifndef ND_LIB_MANAGER_ATTACH_H
#define ND_LIB_MANAGER_ATTACH_H
#include "lib/manager/manager.h"

/// Sends a temp-attached object of a closing manager back to where it came from. False: another
/// thread has moved it meanwhile.
bool nd__attach_return(nd_object *object, nd_manager *from);
#endif
