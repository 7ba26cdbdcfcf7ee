/// @file
/// Reverse-mode differentiation, of any order.
///
/// A tensor that requires a gradient, or is computed from one while recording is on, carries a
/// node: the operation, the tensors it saved, and its inputs. All of these are counted objects with
/// traversed edges. create_graph makes cycles (parameter -> gradient -> graph -> parameter); they
/// are what the collector is for.
#ifndef ND_AUTOGRAD_H
#define ND_AUTOGRAD_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Marks a leaf of a float dtype. Error: x has history.
ND_API nd_status nd_set_requires_grad(nd_tensor *x, bool requires_grad);
/// True for such a leaf and for everything computed from one.
ND_API bool nd_requires_grad(const nd_tensor *x);
/// True when x was not computed from other tensors by a recorded operation.
ND_API bool nd_is_leaf(const nd_tensor *x);
/// Accumulated gradient of a leaf, in its dtype (each addition rounds, also in 16 bits): borrowed
/// until the next backward or nd_zero_grad. NULL when there is none.
ND_API const nd_tensor *nd_get_grad(const nd_tensor *x);
/// Sets (retains) or, with NULL, drops the gradient of a leaf. Shape, dtype and device must be x's.
ND_API nd_status nd_set_grad(nd_tensor *x, const nd_tensor *grad);
/// Drops the gradient of x, if it has one.
ND_API nd_status nd_zero_grad(nd_tensor *x);
/// The node that computed x, borrowed; NULL for a leaf.
ND_API const nd_node *nd_get_node(const nd_tensor *x);
/// Name of the operation of a node, such as "mul". Static storage.
ND_API const char *nd_node_get_name(const nd_node *node);
/// How often x's storage was written in place.
ND_API uint64_t nd_get_version(const nd_tensor *x);

/// nd_no_grad { ... }: nothing in the block is recorded, on this thread.
#define nd_no_grad ND__FOR_BLOCK(nd_grad_block, nd__grad_block_begin(false), nd__grad_block_end)
/// nd_enable_grad { ... }: records again inside nd_no_grad.
#define nd_enable_grad ND__FOR_BLOCK(nd_grad_block, nd__grad_block_begin(true), nd__grad_block_end)
/// What nd_no_grad and nd_enable_grad keep. Not for users to touch.
typedef struct nd_grad_block {
    bool once;     ///< whether the block is still to run
    bool previous; ///< whether recording was on outside
} nd_grad_block;
ND_API nd_grad_block nd__grad_block_begin(bool enabled);
ND_API void nd__grad_block_end(nd_grad_block *block);
/// Whether this thread records.
ND_API bool nd_is_grad_enabled(void);

/// Options of a backward pass. NULL means all defaults.
typedef struct nd_backward_options {
    uint32_t size;     ///< sizeof(nd_backward_options)
    uint32_t version;  ///< 1
    bool create_graph; ///< record the backward pass, so that gradients can be differentiated again
    bool allow_unused; ///< nd_grad: an input that requires a gradient and that the output does not
                       ///< depend on gives NULL instead of an error
    const nd_tensor *grad; ///< gradient of the output; NULL: one (the output must have one element)
} nd_backward_options;
/// What an nd_backward_options must begin as: nothing recorded, no input unused, a gradient of one.
#define ND_BACKWARD_OPTIONS_INIT ND__SIZED(nd_backward_options)

/// Adds d output / d leaf to the gradient of every leaf below `output`. Gradients live at their
/// leaf's manager. The graph stays usable until its handles are released. On error no gradient has
/// changed. Concurrent backward passes over graphs that share leaves are safe for the graph; the
/// leaves' accumulation is serialised.
ND_API nd_status nd_backward(const nd_tensor *output, const nd_backward_options *options);

/// nd_backward() that gives up the caller's handle of `output`, always, also on error (NULL: an error
/// and nothing else). The pass then holds the rest of the graph alone: what nobody else holds, an
/// operation's saved tensors first of all, is freed as soon as its gradient is computed, and its
/// memory serves what comes later in the pass. What somebody else holds stays usable. On error no
/// gradient has changed, but the part of the graph that was walked is gone. `output` must not belong
/// to a scope (nd_tmp()).
ND_API nd_status nd_backward_release(nd_tensor *output, const nd_backward_options *options);

/// Functional form: writes owned d output / d inputs[i] to ret_grads, touching no .grad. Inputs may
/// be any tensors of the graph. Each gradient is contiguous and shares memory with nothing, also
/// where it repeats one number, as that of a sum does: it may be written in place. On error nothing
/// is written.
ND_API nd_status nd_grad(const nd_tensor *output, size_t count, const nd_tensor *const *inputs,
                         const nd_backward_options *options, nd_tensor **ret_grads);

/// Hook of a tensor: called during backward with the (summed) gradient of x; may return an owned
/// replacement of the same shape, or NULL to keep it. Runs outside all locks, with an error of its
/// own (<nd/error.h>), which begins empty. NULL beside an error is what something that failed in the
/// hook left: the pass fails with that error. A hook that fails at something and keeps the gradient
/// all the same calls nd_error_clear(). What it computes is recorded where the pass is (create_graph),
/// and inside nd_enable_grad. `context` (may be NULL) is an edge of x: a hook that
/// captures x makes a cycle, which the collector finds. A hook is of the value that x has when it is
/// added: once x is written in place it gets the gradient of the value before, as far as that is
/// used. Of a view that others write, through what it is a view of, that is what was used before.
typedef nd_tensor *(*nd_hook)(const nd_tensor *grad, const nd_object *context);
/// Adds a hook to x, called after those that are there already, in the same short time however many
/// these are. Errors: ND_ERROR_STATE (x requires no gradient), ND_ERROR_CLOSED,
/// ND_ERROR_OUT_OF_MEMORY.
ND_API nd_status nd_register_hook(nd_tensor *x, nd_hook hook, const void *context);
/// nd_register_hook() for a hook that nd_remove_hook() shall remove: writes what to remove it by to
/// `ret_id`, which is never 0. With NULL in its place the hook stays until nd_remove_hooks().
ND_API nd_status nd_add_hook(nd_tensor *x, nd_hook hook, const void *context, uint64_t *ret_id);
/// Removes one hook of x, and the edge to its context, in the same short time whichever it is, and one
/// that x got before it was written in place, which is looked for write by write. A pass that is
/// running the hooks of x just then may still call it. Errors: ND_ERROR_INVALID_ARGUMENT (x has no
/// such hook: it was removed, is another tensor's, or of a value that x does not lead to any more,
/// since nd_fill_ or nd_copy_ put another in its place, or others wrote what x is a view of; such a
/// hook stays with what uses that value).
ND_API nd_status nd_remove_hook(nd_tensor *x, uint64_t id);
/// Removes all hooks of x, and the edges to their contexts, but those of values that x had before it
/// was written in place.
ND_API nd_status nd_remove_hooks(nd_tensor *x);

/// User-defined differentiable function. Set size and version = 1. `forward` runs unrecorded and
/// writes owned outputs; `backward` gets one gradient per output (NULL: zero) and writes one owned
/// gradient per input (NULL: zero); when it is written with nd_ operations it can itself be
/// differentiated. It has an error of its own, as a hook has: NULL for an input that wants a
/// gradient, beside an error, fails the pass with that, whatever backward answers. `context` is an
/// object of the user's (may be NULL) that the node holds as an edge: its type supplies `traverse`,
/// and both functions may keep saved tensors in it. The struct must outlive every graph it was
/// applied in. An output that has history, or shares memory with an input or another output, is
/// copied: a write in place would change both. Else the output is the tensor that forward gave,
/// whoever holds it.
typedef struct nd_function {
    uint32_t size;    ///< sizeof(nd_function)
    uint32_t version; ///< 1
    const char *name; ///< in reports and errors
    /// Computes the outputs, unrecorded.
    nd_status (*forward)(const nd_object *context, size_t ninputs, const nd_tensor *const *inputs,
                         size_t noutputs, nd_tensor **ret_outputs);
    /// Computes the gradients of the inputs.
    nd_status (*backward)(const nd_object *context, size_t noutputs,
                          const nd_tensor *const *grad_outputs, size_t ninputs,
                          nd_tensor **ret_grad_inputs);
} nd_function;
/// Applies a user-defined function: writes `noutputs` owned outputs to ret_outputs. On error
/// nothing is written.
ND_API nd_status nd_function_apply(const nd_function *function, const void *context, size_t ninputs,
                                   const nd_tensor *const *inputs, size_t noutputs,
                                   nd_tensor **ret_outputs);

/// What nd_gradcheck() checks: maps `count` inputs to one owned tensor; NULL on error. NULL without one
/// is ND_ERROR_INVALID_ARGUMENT.
typedef nd_tensor *(*nd_gradcheck_function)(size_t count, const nd_tensor *const *inputs,
                                            void *data);
/// Compares analytic gradients with central differences. `f` maps inputs (f64; f32 wants a larger
/// eps) to one tensor; order 1 or 2. It is called with copies of the inputs; those that require a
/// gradient are checked. The tolerance is relative above 1, absolute below. ND_OK, or
/// ND_ERROR_STATE with the input, element, both values in the message. eps 1e-6, tolerance 1e-4
/// are usual.
ND_API nd_status nd_gradcheck(nd_gradcheck_function f, void *data, size_t count,
                              const nd_tensor *const *inputs, int order, double eps,
                              double tolerance);

#ifdef __cplusplus
}
#endif
#endif
