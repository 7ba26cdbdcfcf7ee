// The containers of a backward pass (pending.h). Nothing here knows what a gradient means; nothing
// here calls an operation, so a table is never changed behind the back of its user.
#include "lib/autograd/pending.h"
#include "lib/base/alloc.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"

static uint32_t hash_of(const nd_pointer_map *map, const void *key);
static uint32_t find_slot(const nd_pointer_map *map, const void *key);
static bool grow_map(nd_pointer_map *map);
static bool is_indexed(const nd_pending *pending);
static uint32_t position_of(const nd_pending *pending, const nd_object *key);
static bool grow_entries(nd_pending *pending);
static bool comes_before(const nd_order_item *a, const nd_order_item *b);

// -------------------------------------------------------------------------------------------------
// map

void nd__pending_map_free(nd_pointer_map *map) {
    nd__alloc_free(map->keys);
    nd__alloc_free(map->values);
}

uint32_t nd__pending_map_get(const nd_pointer_map *map, const void *key) {
    if (map->capacity == 0)
        return ND__ABSENT;
    uint32_t slot = find_slot(map, key);
    return map->keys[slot] ? map->values[slot] : ND__ABSENT;
}

bool nd__pending_map_set(nd_pointer_map *map, const void *key, uint32_t value) {
    // Room is made first, also for a key that is known: then nothing needs to be looked up twice.
    if (2 * (map->count + 1) > map->capacity && !grow_map(map))
        return false;
    uint32_t slot = find_slot(map, key);
    if (!map->keys[slot]) {
        map->keys[slot] = key;
        map->count++;
    }
    map->values[slot] = value;
    return true;
}

void nd__pending_map_remove(nd_pointer_map *map, const void *key) {
    uint32_t mask = map->capacity - 1;
    uint32_t hole = find_slot(map, key);
    // Keys that were pushed past the hole move back into it, so that no marker of a removal is
    // needed.
    for (uint32_t slot = (hole + 1) & mask; map->keys[slot]; slot = (slot + 1) & mask) {
        uint32_t home = hash_of(map, map->keys[slot]);
        if (((slot - home) & mask) >= ((slot - hole) & mask)) {
            map->keys[hole] = map->keys[slot];
            map->values[hole] = map->values[slot];
            hole = slot;
        }
    }
    map->keys[hole] = NULL;
    map->count--;
}

// -------------------------------------------------------------------------------------------------
// pending gradients

void nd__pending_init(nd_pending *pending) {
    pending->index = (nd_pointer_map){NULL, NULL, 0, 0};
    pending->entries = pending->inline_entries;
    pending->capacity = ND__PENDING_INLINE;
    pending->count = 0;
}

void nd__pending_free(nd_pending *pending) {
    for (uint32_t i = 0; i < pending->count; i++)
        nd__pending_entry_free(&pending->entries[i]);
    if (pending->entries != pending->inline_entries)
        nd__alloc_free(pending->entries);
    nd__pending_map_free(&pending->index);
}

nd_tensor **nd__pending_slot(nd_pending *pending, const nd_object *key, uint32_t outputs,
                             uint32_t output, bool *ret_new) {
    uint32_t position = position_of(pending, key);
    *ret_new = position == ND__ABSENT;
    if (*ret_new) {
        nd_tensor **gradients = NULL;
        if (pending->count == pending->capacity && !grow_entries(pending))
            return NULL;
        if (outputs > 1) {
            gradients = nd__pressure_alloc_zeroed(outputs * sizeof *gradients);
            if (!gradients)
                return NULL;
        }
        position = pending->count;
        if (is_indexed(pending) && !nd__pending_map_set(&pending->index, key, position)) {
            nd__alloc_free(gradients);
            return NULL;
        }
        pending->entries[position] = (nd_pending_entry){nd_retain(key), NULL, gradients, outputs};
        pending->count++;
    }
    return nd__pending_gradients(&pending->entries[position]) + output;
}

nd_pending_entry *nd__pending_find(nd_pending *pending, const nd_object *key) {
    uint32_t position = position_of(pending, key);
    return position == ND__ABSENT ? NULL : &pending->entries[position];
}

nd_pending_entry nd__pending_take(nd_pending *pending, const nd_object *key) {
    uint32_t position = position_of(pending, key);
    nd_pending_entry entry = pending->entries[position];
    if (is_indexed(pending))
        nd__pending_map_remove(&pending->index, key);
    pending->count--;
    if (position != pending->count) {
        pending->entries[position] = pending->entries[pending->count];
        // The key is known and one has just been removed: this needs no memory.
        if (is_indexed(pending))
            nd__pending_map_set(&pending->index, pending->entries[position].key, position);
    }
    return entry;
}

void nd__pending_entry_free(nd_pending_entry *entry) {
    nd_tensor **gradients = nd__pending_gradients(entry);
    for (uint32_t i = 0; i < entry->count; i++)
        nd_release(gradients[i]);
    nd__alloc_free(entry->gradients);
    nd_release(entry->key);
}

// -------------------------------------------------------------------------------------------------
// order

void nd__pending_order_init(nd_order *order) {
    order->items = order->inline_items;
    order->capacity = ND__PENDING_INLINE;
    order->count = 0;
    order->next_sequence = 0;
}

void nd__pending_order_free(nd_order *order) {
    if (order->items != order->inline_items)
        nd__alloc_free(order->items);
}

bool nd__pending_order_push(nd_order *order, const nd_node *node) {
    if (order->count == order->capacity) {
        uint32_t capacity = 2 * order->capacity;
        bool on_stack = order->items == order->inline_items;
        nd_order_item *items =
            nd__pressure_alloc_resize(on_stack ? NULL : order->items, capacity * sizeof *items);
        if (!items)
            return false;
        if (on_stack)
            for (uint32_t i = 0; i < order->count; i++)
                items[i] = order->inline_items[i];
        order->items = items;
        order->capacity = capacity;
    }
    nd_order_item item = {node, node->level, order->next_sequence++};
    uint32_t position = order->count++;
    while (position > 0 && comes_before(&item, &order->items[(position - 1) / 2])) {
        order->items[position] = order->items[(position - 1) / 2];
        position = (position - 1) / 2;
    }
    order->items[position] = item;
    return true;
}

const nd_node *nd__pending_order_pop(nd_order *order) {
    if (order->count == 0)
        return NULL;
    const nd_node *first = order->items[0].node;
    nd_order_item last = order->items[--order->count];
    uint32_t position = 0;
    for (;;) {
        uint32_t child = 2 * position + 1;
        if (child >= order->count)
            break;
        if (child + 1 < order->count &&
            comes_before(&order->items[child + 1], &order->items[child]))
            child++;
        if (!comes_before(&order->items[child], &last))
            break;
        order->items[position] = order->items[child];
        position = child;
    }
    order->items[position] = last;
    return first;
}

// -------------------------------------------------------------------------------------------------

/// Objects are aligned, so the low bits say nothing: multiply, and take the high ones.
static uint32_t hash_of(const nd_pointer_map *map, const void *key) {
    uint64_t product = (uint64_t)(uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(product >> 32) & (map->capacity - 1);
}

/// Slot where the key is, or the empty one where it belongs.
static uint32_t find_slot(const nd_pointer_map *map, const void *key) {
    uint32_t slot = hash_of(map, key);
    while (map->keys[slot] && map->keys[slot] != key)
        slot = (slot + 1) & (map->capacity - 1);
    return slot;
}

static bool grow_map(nd_pointer_map *map) {
    if (map->capacity > UINT32_MAX / 4)
        return false;
    nd_pointer_map larger = {
        .capacity = map->capacity > 0 ? 2 * map->capacity : 4 * ND__PENDING_INLINE,
        .count = map->count,
    };
    larger.keys = nd__pressure_alloc_zeroed(larger.capacity * sizeof *larger.keys);
    larger.values = nd__pressure_alloc(larger.capacity * sizeof *larger.values);
    if (!larger.keys || !larger.values) {
        nd__pending_map_free(&larger);
        return false;
    }
    for (uint32_t i = 0; i < map->capacity; i++)
        if (map->keys[i]) {
            uint32_t slot = find_slot(&larger, map->keys[i]);
            larger.keys[slot] = map->keys[i];
            larger.values[slot] = map->values[i];
        }
    nd__pending_map_free(map);
    *map = larger;
    return true;
}

static bool is_indexed(const nd_pending *pending) {
    return pending->entries != pending->inline_entries;
}

static uint32_t position_of(const nd_pending *pending, const nd_object *key) {
    if (is_indexed(pending))
        return nd__pending_map_get(&pending->index, key);
    for (uint32_t i = 0; i < pending->count; i++)
        if (pending->entries[i].key == key)
            return i;
    return ND__ABSENT;
}

/// Makes room for more; the first time, also the index of what is there.
static bool grow_entries(nd_pending *pending) {
    uint32_t capacity = 2 * pending->capacity;
    bool first = !is_indexed(pending);
    for (uint32_t i = 0; first && i < pending->count; i++)
        if (!nd__pending_map_set(&pending->index, pending->entries[i].key, i))
            return false;
    nd_pending_entry *entries =
        nd__pressure_alloc_resize(first ? NULL : pending->entries, capacity * sizeof *entries);
    if (!entries)
        return false;
    for (uint32_t i = 0; first && i < pending->count; i++)
        entries[i] = pending->inline_entries[i];
    pending->entries = entries;
    pending->capacity = capacity;
    return true;
}

static bool comes_before(const nd_order_item *a, const nd_order_item *b) {
    return a->level > b->level || (a->level == b->level && a->sequence < b->sequence);
}
