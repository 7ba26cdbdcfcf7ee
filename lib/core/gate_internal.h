// The collector's side of the gate.
#ifndef ND_LIB_CORE_GATE_INTERNAL_H
#define ND_LIB_CORE_GATE_INTERNAL_H
#include "lib/core/gate.h"
#include "lib/core/object.h"

/// Before it is closed again: gives those who waited the last time their chance. The caller holds the
/// collection lock.
void nd__gate_let_in(void);
/// Closes the gate and waits until every writer has left. The caller holds the collection lock and
/// is no writer.
void nd__gate_close(void);
/// Opens it and lets everybody in. Follow with nd__bury_parked().
void nd__gate_open(void);

/// Puts a dead object aside because the gate is closed. Lock-free. If the gate has opened
/// meanwhile, buries it at once.
void nd__park(nd_object *object);
/// Destroys what has been parked.
void nd__bury_parked(void);
#endif
