// Recording: giving results their node, and giving saved tensors back.
#ifndef ND_LIB_TENSOR_RECORD_H
#define ND_LIB_TENSOR_RECORD_H
#include "lib/tensor/node.h"
#include <string.h>

/// True when recording is on in this thread and one of the inputs requires a gradient.
bool nd__record_wants_history(const nd_tensor *const *inputs, size_t count);

/// nd__record for inputs one of which requires a gradient.
nd_tensor *nd__record_where_on(nd_op op, nd_tensor *result, const nd_tensor *const *inputs,
                               size_t count, const nd_op_attrs *attrs);

/// Attributes that are all zero. In parts, for which compilers write stores: where they see all of
/// it they write an instruction that repeats itself, which takes longer to begin than these take.
static inline void nd__record_clear_attrs(nd_op_attrs *ret_attrs) {
    _Static_assert(sizeof ret_attrs->f <= 64 && sizeof ret_attrs->i / 2 <= 64, "as said");
    memset(ret_attrs->f, 0, sizeof ret_attrs->f);
    memset(ret_attrs->i, 0, sizeof ret_attrs->i / 2);
    memset((char *)ret_attrs->i + sizeof ret_attrs->i / 2, 0, sizeof ret_attrs->i / 2);
}

/// Before an in-place write, while recording: refuses x when it is a leaf that requires a gradient,
/// or a view of one, or of a tensor that would not learn of the write. Also refuses NULL and closed
/// tensors, recording or not. A view's history is fresh after it.
nd_status nd__record_check_in_place(const char *operation, const nd_tensor *x);

/// What an in-place write does to the history, made before it: whatever can be refused is refused
/// then, and the write cannot be without its history.
typedef struct nd__record_write {
    nd_tensor *target; ///< whose node changes: x, or the base that it follows; NULL: nobody's
    nd_node *node;     ///< owned and published; NULL: the target loses its history
} nd__record_write;

/// Behind nd__record_check_in_place and before the write of x by an op whose row saves no result:
/// makes the new node of x, or of its base (rebase.h) where it is a view. `inputs`: an input that
/// is x itself stands for its old history; its old value will be gone, so where the op's row saves
/// that operand and another input wants a gradient, hand in nd_clone(x) (recorded) in its place. A
/// saved operand that is x all the same is kept empty, and nd__record_saved answers ND_ERROR_STATE
/// for it. When no input wants history, or the op's row says ZERO, x will lose the history it had.
/// Nothing changes when nothing is recorded on this thread. A callback for memory may have closed
/// an input when it returns. On an error there is nothing to end.
nd_status nd__record_before_write(nd_op op, nd_tensor *x, const nd_tensor *const *inputs,
                                  size_t count, const nd_op_attrs *attrs,
                                  nd__record_write *ret_write);
/// Ends that: the history changes when x was written, and the node is dropped when not. Cannot fail.
void nd__record_after_write(const nd__record_write *write, bool written);

/// Both at once, for a fresh x that was written already.
nd_status nd__record_in_place(nd_op op, nd_tensor *x, const nd_tensor *const *inputs, size_t count,
                              const nd_op_attrs *attrs);

// Views: nd_op_attrs.i of a view's node keeps the version that its storage had, or that it is none.
#define ND__VERSION_SLOT 11
#define ND__NO_VIEW (-1)

/// Whether the node made a view, not a copy.
static inline bool nd__record_is_view(const nd_node *node) {
    return nd__op_infos[node->op].is_view && node->attrs.i[ND__VERSION_SLOT] != ND__NO_VIEW;
}
static inline uint64_t nd__record_view_version(const nd_node *node) {
    return (uint64_t)node->attrs.i[ND__VERSION_SLOT];
}

/// Owned published node for `result`, or NULL with an error. in_place: result was written already.
nd_node *nd__record_build(nd_op op, const nd_tensor *result, const nd_tensor *const *inputs,
                          size_t count, const nd_op_attrs *attrs, bool in_place);
/// Owned published node of as_strided_scatter for `base`, which was written through the view
/// `part`: continues the history of `old`, which is base, or NULL where all of it was written, and
/// that of part_node (consumed), or NULL. NULL with an error.
nd_node *nd__record_build_scatter(const nd_tensor *base, const nd_tensor *old,
                                  const nd_tensor *part, nd_node *part_node,
                                  const nd_op_attrs *attrs);
/// Makes `node` (owned, consumed; may be NULL) what computed the published x, unless a callback for
/// memory has closed that.
void nd__record_replace_node(nd_tensor *x, nd_node *node);

/// One node for the parts of x that nd_split makes, fresh views of x along an axis; no-op where
/// nothing is recorded.
nd_status nd__record_split(nd_tensor *const *parts, size_t count, const nd_tensor *x, int axis);

/// Node with `noutputs` for a user function; recorded onto all results at once.
nd_status nd__record_function(const nd_function *function, const nd_object *context,
                              nd_tensor *const *results, size_t noutputs,
                              const nd_tensor *const *inputs, size_t count);

/// That a tensor which was saved at this version is open and was not written in place since: for what
/// the context of a function saves by itself.
nd_status nd__record_check_saved(const char *operation, const nd_tensor *x, uint64_t version);

/// Owned saved tensor `index` of a node, an output with its history restored. NULL with
/// ND_ERROR_STATE when it was written in place since ("mul: a saved tensor of shape [..] was
/// changed in place: version 3, saved at 2"), ND_ERROR_CLOSED when closed.
nd_tensor *nd__record_saved(const nd_node *node, uint32_t index);

/// Gives `result` (owned by the caller, fresh) a node for `op` when nd__record_wants_history says
/// so, with what the op's row saves. Inputs may be NULL (an absent bias). Returns result, or NULL
/// (result released) when memory runs out. An op whose row says ZERO records nothing; one that says
/// NO records a node whose rule answers ND_ERROR_NOT_DIFFERENTIABLE.
///
/// What `attrs` must hold for the operations of lib/ops, because the rule reads it:
///   add_scalar, mul_scalar, pow_scalar, add_scaled   f[0] = the number
///   clip                                             f[0], f[1] = low, high
///   sum, mean, max, min                              i[0] = bit mask of the reduced axes
///   softmax, log_softmax, masked_softmax, take       i[0] = axis, not negative
///   layer_norm, channel_norm                         as the kernel (kernels/kernel.h); i[5] = 1: with weight
///   pair_loss                                        as the kernel
///   nll_loss                                         as the kernel; i[5] = 1: with weight
///   gather, scatter_add                              i[0] = axis, not negative
///   conv and its two gradients                       i[0..9] = strides, paddings, dilations, groups (nd__conv_geometry)
///   max_pool                                         as the kernel
///   unfold, fold                                     i[0..7] as lib/ops/fold.h
///   resample, resample_adjoint                       as the kernel (kernels/kernel.h)
///   solve_triangular, pinv, lstsq                    as lib/ops/linalg.h
///   fft, rfft, irfft                                 as lib/ops/fft.h
/// Sizes come from the node's inputs and outputs.
static inline nd_tensor *nd__record(nd_op op, nd_tensor *result, const nd_tensor *const *inputs,
                                    size_t count, const nd_op_attrs *attrs) {
    return nd__node_any_requires_grad(inputs, count)
               ? nd__record_where_on(op, result, inputs, count, attrs)
               : result;
}
#endif
