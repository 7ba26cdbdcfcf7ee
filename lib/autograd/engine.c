// The backward pass. Nodes are visited by descending level, which is a topological order: whoever
// adds to a node's gradient has a larger level and has been visited before it, so one walk does,
// without counting consumers first. No function here recurses; a graph may be as deep as memory
// allows.
//
// The pass owns every gradient and every node it still has to visit, so that hooks and user
// functions may release, close or run backward over what they like.
#include "lib/autograd/engine.h"
#include "lib/autograd/leaves.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"

// Values of nd_pass.roles.
enum {
    ROLE_VISITED = 1, ///< looked at by find_roles
    ROLE_TARGET = 2,  ///< its own gradient is asked for
    ROLE_LEADS = 4,   ///< one of its inputs leads to a target
};

enum { INLINE_INPUTS = 8 };

/// A node whose inputs find_roles is walking.
typedef struct nd_walk {
    const nd_node *node;
    uint32_t next_input;
} nd_walk;

typedef struct nd_walk_stack {
    nd_walk *items;
    uint32_t count;
    uint32_t capacity;
} nd_walk_stack;

static nd_status no_memory(const nd_pass *pass);
static uint32_t role_of(const nd_pass *pass, const void *key);
static nd_status find_roles(nd_pass *pass, const nd_tensor *output);
static nd_status walk_roles(nd_pass *pass, nd_walk_stack *stack, const nd_node *root,
                            uint32_t lowest_level);
static bool push_walk(nd_walk_stack *stack, const nd_node *node);
static bool is_wanted(const nd_pass *pass, const nd_node_input *input);
static nd_status visit_node(nd_pass *pass, nd_pending_entry *entry);
static nd_status run_rule(nd_pass *pass, const nd_node *node, nd_tensor *const *grads);
static void capture_targets(nd_pass *pass, const nd_object *source, nd_tensor *const *gradients);
static nd_status finish_leaves(nd_pass *pass);
static nd_status deposit(nd_pass *pass, const nd_object *source, bool source_is_node,
                         uint32_t output_index, nd_tensor *gradient);
static nd_status accumulate(const nd_pass *pass, nd_tensor **slot, nd_tensor *gradient);

void nd__engine_pass_init(nd_pass *pass, const char *operation, bool create_graph) {
    pass->operation = operation;
    pass->create_graph = create_graph;
    pass->only_targets = false;
    pass->are_parts = nd__leaves_will_be_parts;
    nd__leaves_will_be_parts = false;
    pass->targets = NULL;
    pass->target_count = 0;
    pass->roles = (nd_pointer_map){NULL, NULL, 0, 0};
    pass->watch = NULL;
    pass->uses = (nd_pointer_map){NULL, NULL, 0, 0};
    nd__pending_init(&pass->nodes);
    nd__pending_init(&pass->leaves);
    nd__pending_order_init(&pass->order);
}

void nd__engine_pass_free(nd_pass *pass) {
    nd__pending_order_free(&pass->order);
    nd__pending_free(&pass->leaves);
    nd__pending_free(&pass->nodes);
    nd__pending_map_free(&pass->roles);
    nd__pending_map_free(&pass->uses);
}

nd_status nd__engine_pass_run(nd_pass *pass, const nd_tensor *output, nd_tensor *seed,
                              nd_tensor **ret_released) {
    nd_status status = pass->only_targets ? find_roles(pass, output)
                       : pass->watch      ? nd__leaves_count(pass, output)
                                          : ND_OK;
    const nd_object *root = output->node ? &output->node->header : &output->header;
    if (status != ND_OK || (pass->only_targets && role_of(pass, root) <= ROLE_VISITED)) {
        nd_release(seed);
        return status;
    }
    status = deposit(pass, root, output->node != NULL, output->output_index, seed);
    if (status == ND_OK && ret_released)
        nd_release(nd_steal(ret_released));
    while (status == ND_OK) {
        const nd_node *node = nd__pending_order_pop(&pass->order);
        if (!node)
            break;
        nd_pending_entry entry = nd__pending_take(&pass->nodes, &node->header);
        status = visit_node(pass, &entry);
        nd__pending_entry_free(&entry);
    }
    return status == ND_OK ? finish_leaves(pass) : status;
}

// -------------------------------------------------------------------------------------------------
// roles

static nd_status no_memory(const nd_pass *pass) {
    return nd__error(ND_ERROR_OUT_OF_MEMORY,
                     "%s: no memory for the bookkeeping of a pass over %u pending nodes",
                     pass->operation, pass->nodes.count);
}

static uint32_t role_of(const nd_pass *pass, const void *key) {
    uint32_t role = nd__pending_map_get(&pass->roles, key);
    return role == ND__ABSENT ? 0 : role;
}

/// Marks the targets and every node below `output` that leads to one.
static nd_status find_roles(nd_pass *pass, const nd_tensor *output) {
    uint32_t lowest_level = UINT32_MAX;
    for (size_t i = 0; i < pass->target_count; i++) {
        const nd_target *target = &pass->targets[i];
        if (!nd__pending_map_set(&pass->roles, target->source, ROLE_TARGET))
            return no_memory(pass);
        uint32_t level = target->source_is_node ? ((const nd_node *)target->source)->level : 0;
        if (level < lowest_level)
            lowest_level = level;
    }
    nd_status status = ND_OK;
    if (output->node) {
        nd_walk_stack stack = {NULL, 0, 0};
        status = walk_roles(pass, &stack, output->node, lowest_level);
        nd__alloc_free(stack.items);
    } else if (role_of(pass, output) &&
               !nd__pending_map_set(&pass->roles, output, ROLE_TARGET | ROLE_VISITED)) {
        status = no_memory(pass);
    }
    for (size_t i = 0; i < pass->target_count; i++)
        pass->targets[i].reached = (role_of(pass, pass->targets[i].source) & ROLE_VISITED) != 0;
    return status;
}

/// Depth first, without recursion. Nodes below the lowest target cannot lead to one.
static nd_status walk_roles(nd_pass *pass, nd_walk_stack *stack, const nd_node *root,
                            uint32_t lowest_level) {
    if (!nd__pending_map_set(&pass->roles, root, role_of(pass, root) | ROLE_VISITED) ||
        !push_walk(stack, root))
        return no_memory(pass);
    while (stack->count > 0) {
        nd_walk *walk = &stack->items[stack->count - 1];
        const nd_node *node = walk->node;
        if (walk->next_input == node->ninputs) {
            stack->count--;
            continue;
        }
        const nd_node_input *input = &node->inputs[walk->next_input];
        uint32_t role = input->source ? role_of(pass, input->source) : 0;
        if (input->source_is_node && input->source && !(role & ROLE_VISITED) &&
            ((const nd_node *)input->source)->level >= lowest_level) {
            // The input is looked at again, with its role known, when the walk comes back up.
            if (!nd__pending_map_set(&pass->roles, input->source, role | ROLE_VISITED) ||
                !push_walk(stack, (const nd_node *)input->source))
                return no_memory(pass);
            continue;
        }
        walk->next_input++;
        if (!(role & (ROLE_TARGET | ROLE_LEADS)))
            continue;
        if (!nd__pending_map_set(&pass->roles, input->source, role | ROLE_VISITED) ||
            !nd__pending_map_set(&pass->roles, node, role_of(pass, node) | ROLE_LEADS))
            return no_memory(pass);
    }
    return ND_OK;
}

static bool push_walk(nd_walk_stack *stack, const nd_node *node) {
    if (stack->count == stack->capacity) {
        uint32_t capacity = stack->capacity ? 2 * stack->capacity : 64;
        nd_walk *items = nd__pressure_alloc_resize(stack->items, capacity * sizeof *items);
        if (!items)
            return false;
        stack->items = items;
        stack->capacity = capacity;
    }
    stack->items[stack->count++] = (nd_walk){node, 0};
    return true;
}

static bool is_wanted(const nd_pass *pass, const nd_node_input *input) {
    if (!input->source)
        return false;
    return !pass->only_targets || (role_of(pass, input->source) & (ROLE_TARGET | ROLE_LEADS)) != 0;
}

// -------------------------------------------------------------------------------------------------
// visiting

/// All of the node's gradients are complete: hooks, capture, rule.
static nd_status visit_node(nd_pass *pass, nd_pending_entry *entry) {
    const nd_node *node = (const nd_node *)entry->key;
    nd_tensor **gradients = nd__pending_gradients(entry);
    if (nd__object_is_closed(node))
        return nd__error(ND_ERROR_CLOSED, "%s: a node '%s' of the graph was closed",
                         pass->operation, nd_node_get_name(node));
    bool hooked = nd__autograd_edge_is_set(&node->hooks);
    for (uint32_t i = 0; hooked && i < entry->count; i++)
        if (gradients[i]) {
            nd_status status =
                nd__hooks_run(pass->operation, &node->hooks, i, &node->outputs[i], &gradients[i]);
            if (status != ND_OK)
                return status;
        }
    if (pass->only_targets) {
        uint32_t role = role_of(pass, node);
        if (role & ROLE_TARGET)
            capture_targets(pass, entry->key, gradients);
        if (!(role & ROLE_LEADS))
            return ND_OK;
    }
    nd_status status = run_rule(pass, node, gradients);
    return status == ND_OK && pass->watch ? nd__leaves_visited(pass, node) : status;
}

static nd_status run_rule(nd_pass *pass, const nd_node *node, nd_tensor *const *grads) {
    bool inline_wanted[INLINE_INPUTS];
    nd_tensor *inline_results[INLINE_INPUTS];
    bool *wanted = inline_wanted;
    nd_tensor **results = inline_results;
    if (node->ninputs > INLINE_INPUTS) {
        results = nd__pressure_alloc(node->ninputs * (sizeof *results + sizeof *wanted));
        if (!results)
            return no_memory(pass);
        wanted = (bool *)(results + node->ninputs);
    }
    for (uint32_t i = 0; i < node->ninputs; i++) {
        results[i] = NULL;
        wanted[i] = is_wanted(pass, &node->inputs[i]);
    }
    nd_rule_call call = {pass, node, grads, wanted, results};
    nd_status status = nd__rules_run(&call);
    for (uint32_t i = 0; i < node->ninputs; i++) {
        if (!results[i])
            continue;
        const nd_node_input *input = &node->inputs[i];
        if (status == ND_OK && wanted[i])
            status = deposit(pass, input->source, input->source_is_node, input->output_index,
                             results[i]);
        else
            nd_release(results[i]);
    }
    if (results != inline_results)
        nd__alloc_free(results);
    return status;
}

static void capture_targets(nd_pass *pass, const nd_object *source, nd_tensor *const *gradients) {
    for (size_t i = 0; i < pass->target_count; i++) {
        nd_target *target = &pass->targets[i];
        if (target->source == source && !target->gradient)
            target->gradient = nd_retain(gradients[target->output_index]);
    }
}

/// The gradients of the leaves are complete: hooks, capture.
static nd_status finish_leaves(nd_pass *pass) {
    for (uint32_t i = 0; i < pass->leaves.count; i++) {
        nd_pending_entry *entry = &pass->leaves.entries[i];
        if (!entry->only) // handed over
            continue;
        nd_status status = nd__leaves_complete(pass, entry);
        if (status != ND_OK)
            return status;
        if (pass->only_targets)
            capture_targets(pass, entry->key, &entry->only);
    }
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------
// sums

/// Adds `gradient` (consumed) to what waits for `source`.
static nd_status deposit(nd_pass *pass, const nd_object *source, bool source_is_node,
                         uint32_t output_index, nd_tensor *gradient) {
    bool is_new;
    nd_tensor **slot;
    if (source_is_node) {
        const nd_node *node = (const nd_node *)source;
        // The slot comes first: when there is no memory for the order, the entry is freed with the
        // pass.
        slot = nd__pending_slot(&pass->nodes, source, node->noutputs, output_index, &is_new);
        if (slot && is_new && !nd__pending_order_push(&pass->order, node))
            slot = NULL;
    } else {
        slot = nd__pending_slot(&pass->leaves, source, 1, 0, &is_new);
    }
    if (!slot) {
        nd_release(gradient);
        return no_memory(pass);
    }
    if (*slot)
        return accumulate(pass, slot, gradient);
    *slot = gradient;
    return ND_OK;
}

nd_tensor *nd__engine_waiting(const nd_rule_call *call, uint32_t input) {
    nd_pass *pass = call->pass;
    const nd_node_input *described = &call->node->inputs[input];
    if (pass->create_graph)
        return NULL;
    nd_pending *waiting = described->source_is_node ? &pass->nodes : &pass->leaves;
    nd_pending_entry *entry = nd__pending_find(waiting, described->source);
    nd_tensor *sum = entry ? nd__pending_gradients(entry)[described->output_index] : NULL;
    // A parameter may have been cast or moved between two of its uses.
    const bool fits = sum && sum->dtype == described->dtype &&
                      sum->device.kind == described->device.kind &&
                      sum->device.index == described->device.index;
    return fits && nd__gradient_exclusively_owned(sum) ? sum : NULL;
}

/// *slot += gradient (consumed), in place where nobody can tell.
static nd_status accumulate(const nd_pass *pass, nd_tensor **slot, nd_tensor *gradient) {
    nd_status status = ND_OK;
    if (!pass->create_graph && nd__gradient_exclusively_owned(*slot)) {
        status = nd_add_(*slot, gradient);
    } else if (!pass->create_graph && nd__gradient_exclusively_owned(gradient)) {
        status = nd_add_(gradient, *slot);
        if (status == ND_OK) {
            nd_release(*slot);
            *slot = nd_steal(&gradient);
        }
    } else {
        nd_tensor *sum = nd_add(*slot, gradient);
        if (sum) {
            nd_release(*slot);
            *slot = sum;
        } else {
            status = nd_error_get_status();
        }
    }
    nd_release(gradient);
    return status;
}
