// Bookkeeping of one backward pass, in plain C memory: a map from pointers to small numbers, the
// gradients that wait for their node or leaf, and the order in which nodes are visited.
//
// The lists begin on the stack and move to the heap when they grow, and few entries are found by
// looking at all of them, so that a small pass allocates and clears nothing. Entries own (retain)
// their key and their gradients.
#ifndef ND_LIB_AUTOGRAD_PENDING_H
#define ND_LIB_AUTOGRAD_PENDING_H
#include "lib/tensor/node.h"

enum { ND__PENDING_INLINE = 16 };

/// Open-addressing map from a non-NULL pointer to a number. Empty when all bytes are zero.
typedef struct nd_pointer_map {
    const void **keys;
    uint32_t *values;
    uint32_t capacity; ///< 0, or a power of two of at least twice the count
    uint32_t count;
} nd_pointer_map;

#define ND__ABSENT UINT32_MAX

void nd__pending_map_free(nd_pointer_map *map);
/// Value of `key`, or ND__ABSENT.
uint32_t nd__pending_map_get(const nd_pointer_map *map, const void *key);
/// Sets the value of a key, new or known. False: no memory, nothing changed.
bool nd__pending_map_set(nd_pointer_map *map, const void *key, uint32_t value);
/// Removes a key that is there.
void nd__pending_map_remove(nd_pointer_map *map, const void *key);

/// What waits for one node or leaf: one gradient per output, NULL where none has come yet.
typedef struct nd_pending_entry {
    nd_object *key;        ///< node or leaf tensor, owned
    nd_tensor *only;       ///< its gradient, when there is one output
    nd_tensor **gradients; ///< otherwise; own block
    uint32_t count;
} nd_pending_entry;

typedef struct nd_pending {
    nd_pointer_map index; ///< key -> position in entries; empty while they fit inline
    nd_pending_entry *entries;
    uint32_t capacity;
    uint32_t count;
    nd_pending_entry inline_entries[ND__PENDING_INLINE];
} nd_pending;

void nd__pending_init(nd_pending *pending);
/// Releases all keys and gradients.
void nd__pending_free(nd_pending *pending);
/// Slot of output `output` of a key. A new key is retained; *ret_new tells. NULL: no memory,
/// nothing changed. Valid until the next call for the same table.
nd_tensor **nd__pending_slot(nd_pending *pending, const nd_object *key, uint32_t outputs,
                             uint32_t output, bool *ret_new);
/// The entry of a key; NULL: there is none. Valid until the next nd__pending_slot.
nd_pending_entry *nd__pending_find(nd_pending *pending, const nd_object *key);
/// Takes the entry of a key that is there out of the table; the caller owns what it holds.
nd_pending_entry nd__pending_take(nd_pending *pending, const nd_object *key);
static inline nd_tensor **nd__pending_gradients(nd_pending_entry *entry) {
    return entry->gradients ? entry->gradients : &entry->only;
}
/// Releases what an entry holds.
void nd__pending_entry_free(nd_pending_entry *entry);

/// Heap of nodes: the largest level first, and among equals the one that came first, so that sums
/// are made in the same order in every run. Borrows the nodes.
typedef struct nd_order_item {
    const nd_node *node;
    uint32_t level;
    uint32_t sequence;
} nd_order_item;

typedef struct nd_order {
    nd_order_item *items;
    uint32_t capacity;
    uint32_t count;
    uint32_t next_sequence;
    nd_order_item inline_items[ND__PENDING_INLINE];
} nd_order;

void nd__pending_order_init(nd_order *order);
void nd__pending_order_free(nd_order *order);
/// False: no memory, nothing changed.
bool nd__pending_order_push(nd_order *order, const nd_node *node);
/// The first node, or NULL when none is left.
const nd_node *nd__pending_order_pop(nd_order *order);
#endif
