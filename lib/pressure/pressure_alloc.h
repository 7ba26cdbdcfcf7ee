// Memory for the library's own structures.
#ifndef ND_LIB_PRESSURE_PRESSURE_ALLOC_H
#define ND_LIB_PRESSURE_PRESSURE_ALLOC_H
#include "lib/manager/request.h"

// Host memory for the library's own structures, on behalf of the current manager: as nd__alloc,
// nd__alloc_zeroed and nd__alloc_resize, but with the ladder behind them. NULL: the caller sets the
// error.
void *nd__pressure_alloc(size_t bytes);
void *nd__pressure_alloc_zeroed(size_t bytes);
void *nd__pressure_alloc_resize(void *pointer, size_t bytes);

/// A block for an object of a type, after nd__block_new had none; NULL with an error.
void *nd__pressure_alloc_object(const nd_type *type, size_t bytes);
#endif
