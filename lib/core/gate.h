// The gate: edge writers pass through it, the collector closes it while it looks at edges.
//
// A writer between nd__gate_enter and nd__gate_leave may write edges of published objects. It must
// be short: no lock that a collecting thread could hold, no allocation, no user code, no release (a
// release may destroy). Entering costs no locked instruction: a per-thread flag and a load; the
// collector pays with a process-wide barrier. Order of locks: gate, then manager locks (by
// address), then weak locks.
#ifndef ND_LIB_CORE_GATE_H
#define ND_LIB_CORE_GATE_H
#include <stdbool.h>

/// Waits while the gate is closed, then holds it open. Nests.
void nd__gate_enter(void);
/// As nd__gate_enter, but answers false instead of waiting.
bool nd__gate_try_enter(void);
void nd__gate_leave(void);
#endif
