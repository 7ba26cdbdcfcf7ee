// The end of garbage: its edges are cut, and it is freed.
#ifndef ND_LIB_GC_SWEEP_H
#define ND_LIB_GC_SWEEP_H
#include "lib/base/thread.h"

typedef struct nd_collection nd_collection;

/// Cuts every edge of a collection's garbage and frees it: of more than nd__collection_batch
/// objects what nothing refers to any more while it is in the cache, the rest when all edges are
/// cut. Adds the groups that the edges connected to the report. Runs user code.
void nd__sweep(nd_thread *thread, nd_collection *collection);
#endif
