// Working memory of kernels: one block per thread, kept and grown, freed when its thread ends.
#ifndef ND_KERNELS_CPU_SCRATCH_H
#define ND_KERNELS_CPU_SCRATCH_H
#include <stddef.h>
#include <stdint.h>

/// At least `bytes` bytes, 64-byte aligned, uninitialised, this thread's until its next call. NULL
/// when there is no memory.
void *nd__cpu_scratch(size_t bytes);

/// Frees the calling thread's block, which nothing uses. Its bytes.
uint64_t nd__cpu_scratch_trim(void);
/// Bytes of all threads' blocks, in use or not.
uint64_t nd__cpu_scratch_bytes(void);
#endif
