// A piece has a share of each rank. In ranks - 1 exchanges the shares go round and are added up, so
// that each rank has the sums of one; in as many more the sums go round.
#include "lib/distributed/ring.h"

/// A piece on its way.
typedef struct piece {
    int64_t number; ///< of the array's; the same place has number + depth next, on all ranks
    char *data;
    int64_t count;
    int step; ///< exchange that is under way: up to ranks - 1 to add up, as many more to spread
} piece;

typedef struct walk {
    const nd_ring *ring;
    char *data;
    int64_t count;
    piece pieces[ND__RING_DEPTH];
    int under_way;
} walk;

typedef struct share {
    char *data;
    int64_t count;
} share;

/// That of a rank, or of one that is so many behind it.
static share share_of(const nd_ring *ring, const piece *piece, int rank) {
    int index = (rank % ring->ranks + ring->ranks) % ring->ranks;
    nd_ring_share of = nd__ring_share(piece->count, index, ring->ranks);
    return (share){piece->data + of.first * ring->sums.size, of.count};
}

static share received_at(const nd_ring *ring, const piece *piece) {
    return share_of(ring, piece, ring->rank - 1 - piece->step);
}

static bool adds_up(const nd_ring *ring, const piece *piece) {
    return piece->step < ring->ranks - 1;
}

/// Where what a place adds up arrives.
static char *memory_of(const nd_ring *ring, int place) {
    return ring->received + place * ring->message * ring->sums.size;
}

static nd_status begin_step(walk *walk, int place) {
    const nd_ring *ring = walk->ring;
    const piece *piece = &walk->pieces[place];
    share sent = share_of(ring, piece, ring->rank - piece->step);
    share received = received_at(ring, piece);
    return ring->begin(ring->context, place, sent.data, sent.count,
                       adds_up(ring, piece) ? memory_of(ring, place) : received.data,
                       received.count);
}

/// A piece in that place, if there is one of that number.
static nd_status begin_piece(walk *walk, int place, int64_t number) {
    const nd_ring *ring = walk->ring;
    int64_t most = ring->message * ring->ranks, at = number * most, left = walk->count - at;
    if (left <= 0)
        return ND_OK;
    walk->pieces[place] = (piece){.number = number,
                                  .data = walk->data + at * ring->sums.size,
                                  .count = left < most ? left : most};
    walk->under_way++;
    return begin_step(walk, place);
}

/// What a place has exchanged is there.
static nd_status end_step(walk *walk, int place) {
    const nd_ring *ring = walk->ring;
    piece *piece = &walk->pieces[place];
    nd_status status = ND_OK;
    if (adds_up(ring, piece)) {
        share sum = received_at(ring, piece);
        status =
            ring->sums.combine(ring->sums.context, memory_of(ring, place), sum.data, sum.count);
        if (status == ND_OK && piece->step == ring->ranks - 2)
            ring->sums.settle(ring->sums.context, sum.data, sum.count);
    }
    if (status != ND_OK)
        return status;
    if (++piece->step < 2 * (ring->ranks - 1))
        return begin_step(walk, place);
    walk->under_way--;
    return begin_piece(walk, place, piece->number + ring->depth);
}

nd_status nd__ring_reduce(const nd_ring *ring, void *data, int64_t count) {
    walk walk = {.ring = ring, .data = data, .count = count};
    nd_status status = ND_OK;
    for (int place = 0; status == ND_OK && place < ring->depth; place++)
        status = begin_piece(&walk, place, place);
    while (status == ND_OK && walk.under_way > 0) {
        int place = 0;
        status = ring->wait(ring->context, &place);
        if (status == ND_OK)
            status = end_step(&walk, place);
    }
    return status;
}
