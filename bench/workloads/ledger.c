// Numbers for objects, counted and walked as a collector would.
#include "bench/workloads/ledger.h"

#include <stdlib.h>

static void ledger_drop(ledger *ledger, uint32_t id);
static void ledger_die(ledger *ledger, uint32_t id);

nd_status ledger_reserve(ledger *ledger, uint32_t more) {
    if (ledger->size + more <= ledger->room)
        return ND_OK;
    uint32_t room = 2 * (ledger->size + more);
    ledger_item *items = realloc(ledger->items, room * sizeof *items);
    ledger->items = items ? items : ledger->items;
    uint32_t *dead = realloc(ledger->dead, room * sizeof *dead);
    ledger->dead = dead ? dead : ledger->dead;
    uint32_t *stack = realloc(ledger->stack, room * sizeof *stack);
    ledger->stack = stack ? stack : ledger->stack;
    if (!items || !dead || !stack)
        return ND_ERROR_OUT_OF_MEMORY;
    ledger->room = room;
    return ND_OK;
}

uint32_t ledger_new(ledger *ledger, uint32_t weight) {
    uint32_t id = ledger->dead_count ? ledger->dead[--ledger->dead_count] : ledger->size++;
    ledger->items[id] = (ledger_item){.weight = weight, .handles = 1, .count = 1};
    ledger->alive += weight;
    return id;
}

void ledger_retain(ledger *ledger, uint32_t id) {
    ledger->items[id].handles++;
    ledger->items[id].count++;
}

void ledger_release(ledger *ledger, uint32_t id) {
    ledger->items[id].handles--;
    ledger_drop(ledger, id);
}

void ledger_link(ledger *ledger, uint32_t from, uint32_t to) {
    ledger_item *item = &ledger->items[from];
    item->edges[item->edge_count++] = to;
    ledger->items[to].count++;
}

void ledger_unlink(ledger *ledger, uint32_t from, uint32_t to) {
    ledger_item *item = &ledger->items[from];
    uint32_t i = 0;
    while (item->edges[i] != to)
        i++;
    item->edges[i] = item->edges[--item->edge_count];
    ledger_drop(ledger, to);
}

void ledger_collect(ledger *ledger) {
    uint32_t found = 0;
    for (uint32_t id = 0; id < ledger->size; id++) {
        ledger->items[id].reached = ledger->items[id].weight && ledger->items[id].handles;
        if (ledger->items[id].reached)
            ledger->stack[found++] = id;
    }
    while (found > 0) {
        const ledger_item *item = &ledger->items[ledger->stack[--found]];
        for (uint32_t i = 0; i < item->edge_count; i++)
            if (!ledger->items[item->edges[i]].reached) {
                ledger->items[item->edges[i]].reached = true;
                ledger->stack[found++] = item->edges[i];
            }
    }
    for (uint32_t id = 0; id < ledger->size; id++) {
        const ledger_item *item = &ledger->items[id];
        if (!item->weight || item->reached)
            continue;
        for (uint32_t i = 0; i < item->edge_count; i++)
            ledger->items[item->edges[i]].count--;
        ledger_die(ledger, id);
    }
}

void ledger_free(ledger *ledger) {
    free(ledger->items);
    free(ledger->dead);
    free(ledger->stack);
    *ledger = (struct ledger){0};
}

/// A handle or an edge to it is gone: dies, and what nobody else holds of what it held.
static void ledger_drop(ledger *ledger, uint32_t id) {
    uint32_t dying = 0;
    if (--ledger->items[id].count == 0)
        ledger->stack[dying++] = id;
    while (dying > 0) {
        const ledger_item *dead = &ledger->items[id = ledger->stack[--dying]];
        ledger_die(ledger, id);
        for (uint32_t i = 0; i < dead->edge_count; i++)
            if (--ledger->items[dead->edges[i]].count == 0)
                ledger->stack[dying++] = dead->edges[i];
    }
}

static void ledger_die(ledger *ledger, uint32_t id) {
    ledger->alive -= ledger->items[id].weight;
    ledger->items[id].weight = 0;
    ledger->dead[ledger->dead_count++] = id;
}
