// Inside of lib/autograd: what a gradient rule is called with, and what the files here share.
//
// Invariant of every gradient that leaves this layer (a leaf's grad, a result of nd_grad): it has
// the shape, dtype and device of what it belongs to, is contiguous, and shares its memory with
// nothing that anybody else can write.
#ifndef ND_LIB_AUTOGRAD_AUTOGRAD_H
#define ND_LIB_AUTOGRAD_AUTOGRAD_H
#include "lib/tensor/node.h"
#include <nd/autograd.h>
#include <nd/ops.h>

// -------------------------------------------------------------------------------------------------
// rules

typedef struct nd_pass nd_pass;

/// One call of a gradient rule. A rule writes an owned gradient to ret_grads[i] for every input
/// with wanted[i], or leaves it NULL for zero. On error it may leave some written: the caller
/// releases them.
typedef struct nd_rule_call {
    nd_pass *pass;
    const nd_node *node;
    nd_tensor *const *grads; ///< one per output; NULL: zero. Not all are NULL
    const bool *wanted;      ///< one per input
    nd_tensor **ret_grads;   ///< one per input, all NULL at first
} nd_rule_call;

typedef nd_status (*nd_rule)(const nd_rule_call *call);

/// Runs the rule of the node's row. While nothing is recorded, a row with an ND_DERIVATIVE row has
/// that run instead: one kernel.
nd_status nd__rules_run(const nd_rule_call *call);

/// Stores `gradient` (owned, consumed; NULL: an operation failed and has set the error) for
/// ret_grads[input], summed down to the input's shape and cast to its dtype.
nd_status nd__rule_give(const nd_rule_call *call, uint32_t input, nd_tensor *gradient);

/// The gradient that waits for an input already, contiguous and of its shape, dtype and device, where
/// nobody can tell that the rule adds to it in place instead of giving one of its own; else NULL.
/// Borrowed until the rule returns.
nd_tensor *nd__engine_waiting(const nd_rule_call *call, uint32_t input);

/// x as f32 where it is a float of 16 bits, in which a chain of operations would round each time;
/// else x. Owned.
nd_tensor *nd__rules_wide_half(const nd_tensor *x);

/// 0-d tensor of that dtype and device, placed where a result of `like` belongs. Owned.
nd_tensor *nd__rules_constant(const nd_tensor *like, nd_dtype dtype, double value);

/// A number to compare x with, in what x is computed in, which is f32 for halves. Owned; NULL for
/// NULL.
nd_tensor *nd__rules_limit(const nd_tensor *x, double value);

/// x where `mask` (bool, broadcasts to x) holds, else exactly 0, also where x is not finite. Owned.
nd_tensor *nd__rules_zero_unless(const nd_tensor *mask, const nd_tensor *x);

/// Zeros of an input's shape, dtype and device. Owned.
nd_tensor *nd__rules_zeros_of(const nd_tensor *like, const nd_node_input *input);

// -------------------------------------------------------------------------------------------------
// gradients

/// True when the holder of this one handle is the only one who can reach the memory under x, and x
/// covers it without overlap: x may be written in place.
bool nd__gradient_exclusively_owned(const nd_tensor *x);

/// ND_OK when `gradient` has the shape, dtype and device of `input`; else an error that names both.
/// `what` says whose it is: "mul: the gradient returned by a hook".
nd_status nd__gradient_check(const char *what, const nd_tensor *gradient,
                             const nd_node_input *input);

/// Describes x as the input of a node would (source left NULL).
nd_node_input nd__gradient_describe(const nd_tensor *x);

/// Whether x, which is open, may hold that gradient.
nd_status nd__gradient_check_leaf(const char *operation, const nd_tensor *x, const nd_tensor *grad);
/// Turns an owned gradient (consumed) into one that keeps the invariant above, at the manager of
/// `home`. Owned, or NULL. Records the copy, if there is one, when recording is on.
nd_tensor *nd__gradient_settle(const char *operation, nd_tensor *gradient, const nd_tensor *home);

/// The gradients that a backward pass found for `count` leaves, added to what the leaves have: all
/// or nothing. `gradients` are settled and owned; they are consumed when the status is ND_OK.
nd_status nd__gradient_commit(const char *operation, nd_tensor *const *leaves,
                              nd_tensor **gradients, size_t count, bool create_graph);

/// Serialises what changes gradients and hooks of leaves. Held for a few kernel launches at most:
/// nothing is allocated, released or called back while it is held.
void nd__gradient_lock(void);
void nd__gradient_unlock(void);

/// Puts `value` (owned, may be NULL) into an edge slot of `owner`, which is published, and returns
/// what was there, owned; `value` itself when the owner is closed. Counts do not change hands: safe
/// while nd__gradient_lock is held.
void *nd__gradient_edge_exchange(nd_object *owner, void *slot, void *value);

/// Whether an edge slot that another thread may be changing holds anything.
static inline bool nd__autograd_edge_is_set(nd_object *const *slot) {
    return __atomic_load_n(slot, __ATOMIC_RELAXED) != NULL;
}

// -------------------------------------------------------------------------------------------------
// hooks

/// Runs the hooks for output `output_index` on *gradient (owned), which they may replace. `hooks`
/// is the edge slot of a node or leaf; `input` says what a gradient must look like.
nd_status nd__hooks_run(const char *operation, nd_object *const *hooks, uint32_t output_index,
                        const nd_node_input *input, nd_tensor **gradient);

// -------------------------------------------------------------------------------------------------
// options

/// Checks and copies options (NULL: defaults) of nd_backward or nd_grad.
nd_status nd__gradient_read_options(const char *operation, const nd_backward_options *options,
                                    nd_backward_options *ret_options);

/// Gradient of the output to start with: options->grad, checked and retained, or one. Owned.
nd_tensor *nd__gradient_seed(const char *operation, const nd_tensor *output, const nd_tensor *grad);
#endif
