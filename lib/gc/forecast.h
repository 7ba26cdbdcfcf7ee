// What freeing the garbage of a collection would free, for one that only warns.
#ifndef ND_LIB_GC_FORECAST_H
#define ND_LIB_GC_FORECAST_H
#include "lib/gc/collection.h"

/// Adds to the report what a collection with the mode on would free of this garbage, which is marked
/// ND__DYING: groups, objects, bytes; finalizers and destructors left aside. False without memory: then
/// of what is not garbage itself only some is in it. Frees what died meanwhile (runs user code,
/// holding no lock).
bool nd__forecast(nd_collection *collection);
#endif
