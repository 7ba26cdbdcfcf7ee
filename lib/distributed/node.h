// Memory that the ranks of one machine have in common, and what goes through it: agreements, and
// reductions and copies in pieces.
//
// A file without a name in any folder (memfd), which rank 0 makes and the others open by its process
// and number: nothing of it is left when all of them end, however they do. Each rank has a line,
// where it says how far it is, and two slots, which pieces of an array have in turn:
//
//   slot of rank r    the shares of the others, as r has them; in the place of its own share the
//                     sum of that, or what it has itself, for the others
//
// Invariants: `at` of a line counts the meetings of all ranks, and each rank makes the same ones in
// the same order. What a rank has written before a meeting the others read behind it. A slot's
// shares are read between the meeting that follows on writing them and the next one, where its sum
// is written, which is read behind that. Pieces take turns in the two slots, also those of two calls
// that follow on each other, so that the next one may begin to write before all have read the last
// piece of this one. Nothing of it is mapped in a forked child.
#ifndef ND_LIB_DISTRIBUTED_NODE_H
#define ND_LIB_DISTRIBUTED_NODE_H
#include "lib/distributed/ring.h"
#include <stdbool.h>

typedef struct nd_node nd_node;
typedef struct nd_transport_call nd_transport_call;

enum { ND__NODE_VALUES = 3 }; ///< of an agreement

/// By what the others find the memory that rank 0 has made.
typedef struct nd_node_key {
    uint64_t name;
    int64_t process, bytes;
    int32_t file; ///< -1: there is none
} nd_node_key;

/// On rank 0: memory for so many ranks. NULL, with no error set and a key that says so: the system
/// has none to give, or ND_SHARED_MEMORY is "off".
nd_node *nd__node_make(int ranks, nd_node_key *ret_key);
/// On the others. NULL, with no error set: rank 0 is on another machine or has made none, this
/// process may not open it, or ND_SHARED_MEMORY is "off".
nd_node *nd__node_join(const nd_node_key *key, int rank, int ranks);
/// All have opened it, or will not: nobody else can from here on.
void nd__node_seal(nd_node *node);
/// Never waits. NULL does nothing; a forked child has no part of it to unmap.
void nd__node_free(nd_node *node);

/// What a rank does now and then while it waits; not ND_OK, with an error: it gives up.
typedef struct nd_node_idle {
    nd_status (*run)(void *context, const nd_transport_call *call);
    void *context;
} nd_node_idle;

/// The largest of each of ND__NODE_VALUES values over all ranks: a meeting.
nd_status nd__node_agree(nd_node *node, const nd_transport_call *call, const nd_node_idle *idle,
                         uint64_t *values);
/// Before an all-reduce of `count` elements at `data`: puts what the others need of the first piece
/// where they read it behind the next meeting. The elements come from `from`; where `data` is
/// somewhere else they are copied there, but for what the others bring back of the first piece.
void nd__node_stage(nd_node *node, const void *from, void *data, int64_t count, int64_t size);
/// In place. `staged`: so is the first piece, and the ranks have met since.
nd_status nd__node_reduce(nd_node *node, const nd_transport_call *call, const nd_node_idle *idle,
                          const nd_sums *sums, void *data, int64_t count, bool staged);

/// In place: counts[rank] elements of each rank, one rank's behind the other's, of which this one's
/// stand at their place.
nd_status nd__node_gather(nd_node *node, const nd_transport_call *call, const nd_node_idle *idle,
                          void *data, const int64_t *counts, int64_t size);
/// In place: of so many elements for each rank this one's become the sums of all. Rank r's are
/// begun with its own, to which those of r + 1, r + 2, ... are added.
nd_status nd__node_scatter(nd_node *node, const nd_transport_call *call, const nd_node_idle *idle,
                           const nd_sums *sums, void *data, const int64_t *counts);

/// How many elements go through at once: more are several pieces.
int64_t nd__node_piece(const nd_node *node, int64_t size);
/// Bytes of a share, at most; tests make it smaller before they make communicators.
extern int64_t nd__node_share;
/// Bytes of a piece of what is copied, at most: shorter, so that those who read it begin early.
extern int64_t nd__node_copied;
#endif
