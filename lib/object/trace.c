// Who listens.
#include "lib/object/trace.h"

_Atomic(const nd__listener *) nd__trace_listening;
