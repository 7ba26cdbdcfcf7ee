// Leaves whose gradient is complete before the pass is at its end: for who wants to work with it
// meanwhile (lib/distributed).
//
// Invariant: a leaf is complete when every node below the output that has it as an input was
// visited. A leaf below a node that no gradient reaches is complete at the end.
#ifndef ND_LIB_AUTOGRAD_LEAVES_H
#define ND_LIB_AUTOGRAD_LEAVES_H
#include "lib/autograd/engine.h"

/// Who watches a pass.
struct nd_leaf_watch {
    /// Whether it wants a leaf's gradient.
    bool (*wants)(void *data, const nd_tensor *leaf);
    /// Takes the gradient of such a leaf (owned, consumed), whose hooks have run.
    nd_status (*complete)(void *data, nd_tensor *leaf, nd_tensor *gradient);
    /// The pass is at its end, with that status; what it answers is the status of the pass. The
    /// gradients of other leaves are committed after it.
    nd_status (*finish)(void *data, nd_status status);
    void *data;
};

/// Whether gradients of leaves of the next pass on this thread are parts of what a pass around it adds
/// up: that one runs their hooks. Passes that begin inside that one are the program's.
extern _Thread_local bool nd__leaves_will_be_parts;

/// Counts how often each leaf below `output` is an input there.
nd_status nd__leaves_count(nd_pass *pass, const nd_tensor *output);
/// A node was visited: hands over what is complete now.
nd_status nd__leaves_visited(nd_pass *pass, const nd_node *node);
/// Runs the hooks of a leaf with its gradient, and hands it over if the watch wants it.
nd_status nd__leaves_complete(nd_pass *pass, nd_pending_entry *entry);
#endif
