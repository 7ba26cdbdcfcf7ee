// Memory under pressure: the ladder between "no memory" and an error (include/nd/memory.h).
//
// Whoever has an attempt that failed for want of memory or of quota hands it over; every stage is
// followed by another attempt. No lock is held at any stage, and several of them run user code
// (destructors, finalizers, callbacks), so the caller must own what it uses and be outside the gate
// (inside it, a walk gives up at once; so it does while the thread captures a graph, because stages
// ask the device and wait for it).
//
//   pressure.c            the stages and their statistics
//   pressure_callback.c   who is asked, and what keeps a callback valid while it runs
//   pressure_error.c      the sentence at the end
//   pressure_alloc.c      the library's own structures
#ifndef ND_LIB_PRESSURE_PRESSURE_H
#define ND_LIB_PRESSURE_PRESSURE_H
#include "lib/manager/request.h"
#include <nd/memory.h>

/// Walks the ladder after a first attempt that ended with `failure`. Returns the status of the last
/// attempt and leaves the thread's error as it was.
nd_status nd__pressure_walk(nd_pressure *pressure, nd_status failure);

// For the other files.
void nd__pressure_reach(nd_pressure *pressure, nd_memory_stage stage);
void nd__pressure_brought(nd_pressure *pressure, nd_memory_stage stage, uint64_t bytes);
/// Another attempt, after a stage.
nd_status nd__pressure_attempt(nd_pressure *pressure, nd_memory_stage stage);
/// After one that gave something up, which may lie in a cache now.
nd_status nd__pressure_look(nd_pressure *pressure, nd_memory_stage stage);
/// True for the failures that the ladder is for.
static inline bool nd__pressure_includes(nd_status status) {
    return status == ND_ERROR_OUT_OF_MEMORY || status == ND_ERROR_QUOTA;
}

/// What can be done about host memory. Defined where lib/memory is linked: the core alone has
/// nothing to trim.
extern const nd_memory_functions nd__ladder_functions __attribute__((weak));
#endif
