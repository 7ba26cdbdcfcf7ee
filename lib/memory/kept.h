// Large blocks of host memory that were given up, kept for who asks for as much next.
//
// The system's allocator returns such memory to the system when it is freed, and every page of the
// next result would have to be faulted in anew, which for a sum of two tensors costs more than the
// addition. Each step of a training asks for the same sizes again.
//
// Invariant: what is kept is at most ND__KEPT_MOST bytes, or an eighth of the memory of the machine or
// of the process's control group where that is less, and nothing that has been kept for longer than ND__KEPT_NS is there after a block
// was put. Who puts or trims gives what comes back to the system, with no lock held. A kept block
// holds its own place in the lists, in its first bytes.
#ifndef ND_LIB_MEMORY_KEPT_H
#define ND_LIB_MEMORY_KEPT_H
#include <stddef.h>
#include <stdint.h>

/// Smaller blocks come back quickly from any allocator.
#define ND__KEPT_LEAST ((size_t)32 << 10)
#define ND__KEPT_MOST ((size_t)1 << 30)
#define ND__KEPT_NS UINT64_C(10000000000)

typedef struct nd_kept nd_kept;
struct nd_kept {
    size_t bytes;           ///< of the block
    uint64_t since_ns;      ///< when it was put
    nd_kept *next;          ///< of its size; of those that come back
    nd_kept *before;        ///< of its size
    nd_kept *older, *newer; ///< of all
};

/// What a block is made of that is asked for with so many bytes, ND__KEPT_LEAST or more: up to an
/// eighth more, so that blocks of about the same size can serve each other.
size_t nd__kept_size(size_t bytes);
/// The block of this size (nd__kept_size) that was put last, or NULL. Any thread.
void *nd__kept_take(size_t size);
/// Keeps a block of this size from now on. Returns what is too much or too old, which may be the
/// block itself: a list by `next`. Any thread.
nd_kept *nd__kept_put(void *block, size_t size, uint64_t now_ns);
/// From now on keeps at most so many bytes; UINT64_MAX: as many as at first. Returns what is too much.
/// Any thread.
nd_kept *nd__kept_set_most(uint64_t bytes);
/// All that is kept, as such a list; then nothing is. Any thread.
nd_kept *nd__kept_empty(void);
/// Bytes that are kept.
uint64_t nd__kept_bytes(void);
#endif
