// What a compiler's stub hands to the fake runtime in the place of machine code for a GPU: how a
// kernel's function, compiled for the host, is called with the arguments that a launch copied.
#ifndef ND_TESTS_CUDART_FAT_BINARY_H
#define ND_TESTS_CUDART_FAT_BINARY_H
#include <stddef.h>
#include <stdint.h>

#define CUDART_FAT_BINARY_MAGIC 0x46414B45u
#define CUDART_MAX_ARGUMENTS 8

typedef struct cudart_fat_binary {
    unsigned magic;
    unsigned capability; ///< that a device must have (90 for 9.0)
    unsigned arguments;
    size_t sizes[CUDART_MAX_ARGUMENTS];
    /// One thread's work: function(arguments…).
    void (*call)(const void *function, void *const *arguments);
} cudart_fat_binary;

#ifdef __cplusplus
extern "C" {
#endif
/// True when __cudaRegisterFunction has seen it.
int cudart_is_registered(const void *function);
/// The dynamic shared memory of the block that runs, as much as its launch asked for; poison at first.
void *cudart_shared_memory(void);
/// Where a kernel that was launched to overlap waits for what is queued before it.
void cudart_earlier_awaited(void);
/// Where all threads of a block wait for one another.
void cudart_barrier(void);
/// Where the lanes of a warp that `mask` names wait for one another; the word of lane `source`.
uint32_t cudart_exchange(unsigned mask, uint32_t word, unsigned source);
#ifdef __cplusplus
}
#endif
#endif
