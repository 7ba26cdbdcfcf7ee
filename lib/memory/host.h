// Host memory for tensor data: large aligned blocks, apart from the library's own structures.
//
// Invariant: a block goes back with the size it was asked for, and nd__host_live_bytes() is the sum
// of the sizes outstanding. Every allocation asks nd__alloc_allowed() first, so tests can make it
// fail. No function here sets an error: the caller knows what the memory was for.
#ifndef ND_LIB_MEMORY_HOST_H
#define ND_LIB_MEMORY_HOST_H
#include "lib/pressure/pressure.h"
#include <stddef.h>
#include <stdint.h>

/// Alignment of every block: a cache line, and the widest vector register.
#define ND__HOST_ALIGNMENT 64

/// Uninitialised block of at least one byte, or NULL. Any thread.
void *nd__host_alloc(size_t bytes);
/// Gives a block back; `bytes` is what was asked for. NULL is fine. Any thread.
void nd__host_free(void *pointer, size_t bytes);
/// Returns unused cached memory to the system. Slow (it may have to be faulted in again). Bytes, or
/// ND__UNKNOWN_BYTES.
uint64_t nd__host_trim(void);
/// Bytes asked for and not yet given back.
uint64_t nd__host_live_bytes(void);
#endif
