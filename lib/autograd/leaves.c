// Counting the uses of leaves, and handing over gradients that are complete.
#include "lib/autograd/leaves.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/pressure/pressure_alloc.h"

/// Nodes that are still to be looked at.
typedef struct node_stack {
    const nd_node **items;
    size_t count, capacity;
} node_stack;

static bool push(node_stack *stack, const nd_node *node) {
    if (stack->count == stack->capacity) {
        size_t capacity = stack->capacity ? 2 * stack->capacity : 64;
        const nd_node **items =
            nd__pressure_alloc_resize(stack->items, capacity * sizeof *stack->items);
        if (!items)
            return false;
        stack->items = items;
        stack->capacity = capacity;
    }
    stack->items[stack->count++] = node;
    return true;
}

/// One more use of a leaf, or a node that was not seen yet. False: no memory.
static bool count_input(nd_pass *pass, node_stack *stack, const nd_node_input *input) {
    if (!input->source)
        return true;
    uint32_t known = nd__pending_map_get(&pass->uses, input->source);
    if (!input->source_is_node)
        return nd__pending_map_set(&pass->uses, input->source, known == ND__ABSENT ? 1 : known + 1);
    return known != ND__ABSENT || (nd__pending_map_set(&pass->uses, input->source, 0) &&
                                   push(stack, (const nd_node *)input->source));
}

nd_status nd__leaves_count(nd_pass *pass, const nd_tensor *output) {
    if (!output->node)
        return ND_OK;
    node_stack stack = {NULL, 0, 0};
    bool well = push(&stack, output->node);
    while (well && stack.count > 0) {
        const nd_node *node = stack.items[--stack.count];
        for (uint32_t i = 0; well && i < node->ninputs; i++)
            well = count_input(pass, &stack, &node->inputs[i]);
    }
    nd__alloc_free(stack.items);
    return well
               ? ND_OK
               : nd__error(ND_ERROR_OUT_OF_MEMORY,
                           "%s: no memory to count the uses of leaves in a graph", pass->operation);
}

_Thread_local bool nd__leaves_will_be_parts;

nd_status nd__leaves_complete(nd_pass *pass, nd_pending_entry *entry) {
    nd_tensor *leaf = (nd_tensor *)entry->key;
    if (!pass->are_parts && nd__autograd_edge_is_set(&leaf->hooks)) {
        nd_node_input described = nd__gradient_describe(leaf);
        nd_status status =
            nd__hooks_run(pass->operation, &leaf->hooks, 0, &described, &entry->only);
        if (status != ND_OK)
            return status;
    }
    if (!pass->watch || !pass->watch->wants(pass->watch->data, leaf))
        return ND_OK;
    return pass->watch->complete(pass->watch->data, leaf, nd_steal(&entry->only));
}

nd_status nd__leaves_visited(nd_pass *pass, const nd_node *node) {
    nd_status status = ND_OK;
    for (uint32_t i = 0; status == ND_OK && i < node->ninputs; i++) {
        const nd_node_input *input = &node->inputs[i];
        uint32_t uses = input->source && !input->source_is_node
                            ? nd__pending_map_get(&pass->uses, input->source)
                            : ND__ABSENT;
        if (uses == ND__ABSENT || uses == 0)
            continue;
        nd__pending_map_set(&pass->uses, input->source, uses - 1); // known: needs no memory
        nd_pending_entry *entry =
            uses == 1 && pass->watch->wants(pass->watch->data, (const nd_tensor *)input->source)
                ? nd__pending_find(&pass->leaves, input->source)
                : NULL;
        if (entry && entry->only)
            status = nd__leaves_complete(pass, entry);
    }
    return status;
}
