// One backward pass over a graph, used by nd_backward and nd_grad.
#ifndef ND_LIB_AUTOGRAD_ENGINE_H
#define ND_LIB_AUTOGRAD_ENGINE_H
#include "lib/autograd/autograd.h"
#include "lib/autograd/pending.h"

/// A tensor of the graph whose gradient nd_grad asks for.
typedef struct nd_target {
    nd_object *source; ///< its node, or the leaf itself; owned
    bool source_is_node;
    bool reached; ///< the output depends on it
    uint32_t output_index;
    nd_tensor *gradient; ///< owned; NULL: zero, or not reached
} nd_target;

/// Who wants gradients of leaves before the pass is at its end (leaves.h).
typedef struct nd_leaf_watch nd_leaf_watch;

struct nd_pass {
    const char *operation; ///< "backward" or "grad", for errors
    bool create_graph;
    bool only_targets; ///< visit what leads to a target, nothing else
    bool are_parts;    ///< gradients of leaves are (leaves.h)
    nd_target *targets;
    size_t target_count;
    nd_pointer_map roles;       ///< with only_targets: what a node or leaf is good for
    const nd_leaf_watch *watch; ///< or NULL
    nd_pointer_map uses; ///< with a watch: inputs that a leaf still is; 0: a node that was counted
    nd_pending nodes;
    nd_pending leaves; ///< at the end: the gradient of every leaf reached, in order of discovery
    nd_order order;
};

void nd__engine_pass_init(nd_pass *pass, const char *operation, bool create_graph);
/// Frees what the pass holds; the targets are the caller's.
void nd__engine_pass_free(nd_pass *pass);

/// Runs the pass from `output` with its gradient `seed` (consumed). Recording is on or off as the
/// caller set it. On error the pass can only be freed. `ret_released` (NULL: nobody's), where the
/// caller holds `output`, is released and emptied as soon as the pass has its own hold of the graph,
/// so that what only the pass holds is freed node by node.
nd_status nd__engine_pass_run(nd_pass *pass, const nd_tensor *output, nd_tensor *seed,
                              nd_tensor **ret_released);
#endif
