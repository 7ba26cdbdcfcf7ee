// Who is told of watched objects.
#include "lib/object/watch.h"

_Atomic(void (*)(const nd_object *object, nd__watch_kind kind, uint32_t count)) nd__watch_note;
