// How many objects of a program must be alive, by arithmetic that has nothing to do with the library:
// what the program says it makes, links and lets go, as numbers.
//
// Invariant: `alive` is what counts leave, as long as nothing is collected; ledger_collect() makes it
// what the program's handles reach.
#ifndef ND_BENCH_LEDGER_H
#define ND_BENCH_LEDGER_H
#include <nd/nd.h>

enum { LEDGER_EDGES = 24 }; ///< that one item has at most

/// What is known of an object.
typedef struct ledger_item {
    uint32_t weight; ///< objects that it stands for, its lists and maps included. 0: dead
    uint32_t handles;
    uint32_t count; ///< handles and edges to it
    uint32_t edge_count;
    uint32_t edges[LEDGER_EDGES];
    bool reached;
} ledger_item;

/// Begins as zeros.
typedef struct ledger {
    ledger_item *items;
    uint32_t *dead;  ///< numbers of dead items
    uint32_t *stack; ///< room for all of them
    uint32_t size, dead_count, room;
    uint64_t alive; ///< objects, of all items
} ledger;

/// Room for so many more items, so that nothing can fail afterwards.
nd_status ledger_reserve(ledger *ledger, uint32_t more);
/// A new item with one handle; its number.
uint32_t ledger_new(ledger *ledger, uint32_t weight);
/// One more handle.
void ledger_retain(ledger *ledger, uint32_t id);
/// One handle less: what counts free is dead.
void ledger_release(ledger *ledger, uint32_t id);
/// One more edge.
void ledger_link(ledger *ledger, uint32_t from, uint32_t to);
/// One edge less.
void ledger_unlink(ledger *ledger, uint32_t from, uint32_t to);
/// What no handle reaches is dead.
void ledger_collect(ledger *ledger);
/// Frees its memory.
void ledger_free(ledger *ledger);

#endif
