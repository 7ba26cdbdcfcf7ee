// A piece has a share of each rank. In ranks - 1 exchanges the shares go round and are added up, so
// that each rank has the sums of one; in as many more the sums go round.
#include "lib/distributed/ring.h"

typedef struct share {
    char *data;
    int64_t count;
} share;

/// That of a rank, or of one that is so many behind it.
static share share_of(const nd_ring *ring, char *piece, int64_t count, int rank) {
    int64_t index = (rank % ring->ranks + ring->ranks) % ring->ranks;
    int64_t begin = count * index / ring->ranks, end = count * (index + 1) / ring->ranks;
    return (share){piece + begin * ring->size, end - begin};
}

static nd_status reduce_piece(const nd_ring *ring, char *piece, int64_t count) {
    nd_status status = ND_OK;
    for (int step = 0; status == ND_OK && step < ring->ranks - 1; step++) {
        share sent = share_of(ring, piece, count, ring->rank - step);
        share sum = share_of(ring, piece, count, ring->rank - step - 1);
        status = ring->exchange(ring->context, sent.data, sent.count, ring->received, sum.count);
        if (status == ND_OK)
            status = ring->combine(ring->context, ring->received, sum.data, sum.count);
    }
    if (status == ND_OK) {
        share own = share_of(ring, piece, count, ring->rank + 1);
        ring->settle(ring->context, own.data, own.count);
    }
    for (int step = 0; status == ND_OK && step < ring->ranks - 1; step++) {
        share sent = share_of(ring, piece, count, ring->rank + 1 - step);
        share received = share_of(ring, piece, count, ring->rank - step);
        status =
            ring->exchange(ring->context, sent.data, sent.count, received.data, received.count);
    }
    return status;
}

nd_status nd__ring_reduce(const nd_ring *ring, void *data, int64_t count) {
    int64_t piece = ring->message * ring->ranks;
    nd_status status = ND_OK;
    for (int64_t at = 0; status == ND_OK && at < count; at += piece)
        status = reduce_piece(ring, (char *)data + at * ring->size,
                              count - at < piece ? count - at : piece);
    return status;
}
