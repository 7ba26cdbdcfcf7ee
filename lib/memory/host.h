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
/// From now on keeps at most so many bytes of freed data, and an eighth (1 MiB at least) more between two looks;
/// UINT64_MAX: as at first. The system's allocator says nothing of blocks below ND__KEPT_LEAST.
void nd__host_set_limit(uint64_t bytes);
/// Bytes of freed data that are kept, or ND__UNKNOWN_BYTES.
uint64_t nd__host_cached_bytes(void);

/// Whoever else keeps host memory for reuse.
typedef struct nd_host_keeper {
    uint64_t (*trim)(void);   ///< gives back what nobody uses. Bytes
    uint64_t (*bytes)(void);  ///< that it has
    void (*trim_plans)(void); ///< gives back what takes time to make and is in no `bytes`
    struct nd_host_keeper *next;
} nd_host_keeper;
/// At load, before there are threads. It lives as long as the process.
void nd__host_add_keeper(nd_host_keeper *keeper);
/// Bytes that all of them have.
uint64_t nd__host_keeper_bytes(void);
/// What the ladder for memory leaves alone: whoever is at his limit would make it anew each time.
void nd__host_trim_plans(void);

/// Bytes asked for and not yet given back.
uint64_t nd__host_live_bytes(void);
#endif
