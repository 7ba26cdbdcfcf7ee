// The process-wide barrier of memory order (membarrier). The write barrier is the gate:
// lib/object/gate.h.
#ifndef ND_LIB_BASE_BARRIER_H
#define ND_LIB_BASE_BARRIER_H
#include "lib/base/atomics.h"

/// Makes every running thread of the process execute a full fence, so that its own threads need
/// none on their fast path. Prepare once; false when the kernel cannot.
bool nd__barrier_prepare(void);
/// False when the kernel refuses: then there was none.
bool nd__barrier_run(void);
/// In its place: takes a millisecond, and cannot be refused.
void nd__barrier_run_slow(void);
#endif
