// An all-reduce of large arrays in a ring: each rank sends to the next and receives from the one
// before (Patarasuk and Yuan 2009).
//
// MPI's own calls that do not block take memory of the array's size for what they receive, and add
// up what has left the caches meanwhile. Here the array goes piece by piece, of a message for each
// rank, so that what is received is added up where it arrived, and one message's memory suffices.
//
// Invariant: each element is added up in the order of the ring, which begins at the same rank
// everywhere, and is copied from there: all ranks have the same bits.
#ifndef ND_LIB_DISTRIBUTED_RING_H
#define ND_LIB_DISTRIBUTED_RING_H
#include <nd/error.h>
#include <stdint.h>

/// What a ring is made of. The functions are given `context`, and counts of elements, of which 0 is
/// one.
typedef struct nd_ring {
    int rank, ranks;
    int64_t size;    ///< bytes of an element
    int64_t message; ///< elements that are sent at once, at most
    void *received;  ///< memory for so many
    void *context;
    /// Sends to the next rank and receives from the one before.
    nd_status (*exchange)(void *context, const void *sent, int64_t sent_count, void *received,
                          int64_t received_count);
    /// into += from
    nd_status (*combine)(void *context, const void *from, void *into, int64_t count);
    /// What becomes of sums, once each.
    void (*settle)(void *context, void *sums, int64_t count);
} nd_ring;

/// In place. The first error ends it.
nd_status nd__ring_reduce(const nd_ring *ring, void *data, int64_t count);
#endif
