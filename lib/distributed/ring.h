// An all-reduce of large arrays in a ring: each rank sends to the next and receives from the one
// before (Patarasuk and Yuan 2009).
//
// MPI's own calls that do not block take memory of the array's size for what they receive, and add
// up what has left the caches meanwhile. Here the array goes piece by piece, of a message for each
// rank, so that what is received is added up where it arrived, and a few messages' memory suffices.
// Several pieces are on their way at once, each at its own step: while one is added up, or the
// thread has no core, the link has others to bring.
//
// Invariant: each element is added up in the order of the ring, which begins at the same rank
// everywhere, and is copied from there: all ranks have the same bits.
#ifndef ND_LIB_DISTRIBUTED_RING_H
#define ND_LIB_DISTRIBUTED_RING_H
#include <nd/error.h>
#include <stdbool.h>
#include <stdint.h>

/// What is done to elements.
typedef struct nd_sums {
    int64_t size;  ///< bytes of an element
    void *context; ///< given to the functions, as are counts of elements
    /// into += from
    nd_status (*combine)(void *context, const void *from, void *into, int64_t count);
    /// What becomes of sums, once each.
    void (*settle)(void *context, void *sums, int64_t count);
} nd_sums;

enum { ND__RING_DEPTH = 4 };

/// What a ring is made of. Counts are of elements, of which 0 is one.
typedef struct nd_ring {
    int rank, ranks;
    nd_sums sums;
    int64_t message; ///< elements that are sent at once, at most
    int depth;       ///< pieces that are on their way at once, ND__RING_DEPTH at most
    char *received;  ///< memory for as many messages
    void *context;   ///< of the functions that follow
    /// Begins to send to the next rank and to receive from the one before, of a piece by its place
    /// among those on their way.
    nd_status (*begin)(void *context, int place, const void *sent, int64_t sent_count,
                       void *received, int64_t received_count);
    /// Waits until one of those that were begun is done.
    nd_status (*wait)(void *context, int *ret_place);
} nd_ring;

/// In place. The first error ends it.
nd_status nd__ring_reduce(const nd_ring *ring, void *data, int64_t count);

/// The part of a piece of `count` elements that is one rank's, in elements.
typedef struct nd_ring_share {
    int64_t first, count;
} nd_ring_share;

static inline nd_ring_share nd__ring_share(int64_t count, int rank, int ranks) {
    int64_t begin = count * rank / ranks, end = count * (rank + 1) / ranks;
    return (nd_ring_share){begin, end - begin};
}
#endif
