// Nodes of the autograd graph and how operations record them. What a node *means* (its gradient
// rule) is lib/autograd's.
//
// Edges of a node, all traversed: source of every input that wants a gradient (the node that made
// it, or the leaf tensor itself), saved tensors, a user function's context, hook lists. A result's
// node never saves the result itself: it saves an alias without history (is_output), which
// nd__record_saved turns back into the result, so that saving makes no cycle. A node is filled
// while private and published last; after that its edges only change by clear.
#ifndef ND_LIB_TENSOR_NODE_H
#define ND_LIB_TENSOR_NODE_H
#include "lib/tensor/tensor.h"
#include <nd/autograd.h>

enum { ND_SAVE_A = 1, ND_SAVE_B = 2, ND_SAVE_C = 4, ND_SAVE_OUT = 8 };

typedef struct nd_node_input {
    nd_object *source; ///< edge: nd_node or leaf nd_tensor; NULL: no gradient wanted for this input
    bool source_is_node;
    uint32_t output_index; ///< which output of that node
    nd_dtype dtype;
    nd_device device;
    int ndim;
    int64_t shape[ND_MAX_DIMS];
} nd_node_input;

typedef struct nd_saved {
    nd_tensor *tensor; ///< edge
    uint64_t version;  ///< of its storage when it was saved
    bool is_output;
    uint32_t output_index;
} nd_saved;

// Attributes (nd_node.attrs) that the operations of lib/tensor record; those of lib/ops stand in
// kernels/kernel.h.
//
//   reshape      none: the old shape is inputs[0].shape (also squeeze, unsqueeze, flatten)
//   permute      i[0 .. ndim-1] = axes: result axis k is input axis i[k] (also transpose)
//   expand       none
//   slice        i[0] = axis, i[1] = start, i[2] = stop, i[3] = step; resolved: 0 <= start <= stop
//                <= size, step > 0; or -1 <= stop <= start < size, step < 0, and a copy
//   split        i[0] = axis; an output for each part, in their order
//   sliding_window   i[0] = axis, i[1] = size, i[2] = step
//   unslice      as slice; the result's shape is outputs[0].shape, the slice's is inputs[0].shape
//   concat       i[0] = axis (resolved); sizes along it are inputs[k].shape[axis]
//   cast, clone, to   none: the other dtype or device is inputs[0]'s (nd_contiguous records clone)
//   as_strided, as_strided_scatter   the window (shape: of the result, or of inputs[1]) in elements
//                of inputs[0], which is taken in row-major order: i[0 .. ndim-1] = strides, i[8] =
//                offset, i[9] = 1. as_strided with i[9] = 0: not within inputs[0], so no gradient
//
// Views also keep, in i[11], the version their storage had. Once it has been written in place, a
// view that follows a base gets a new node when it is next used (rebase.h); using any other is
// refused, unless its history ends in a leaf, because it no longer tells how the view was computed.

struct nd_node {
    nd_object header;
    nd_op op;
    uint32_t level; ///< 1 + the largest level of its inputs' nodes: descending level is a
                    ///< topological order
    uint32_t ninputs;
    uint32_t nsaved;
    uint32_t noutputs;
    nd_op_attrs attrs;
    const nd_function *function; ///< of a user function, else NULL
    nd_object *context;          ///< edge: of a user function, or NULL
    nd_object *hooks;            ///< edge: lib/autograd's hook lists of the outputs, or NULL
    nd_node_input *inputs;       ///< in the node's own block
    nd_saved *saved; ///< in the node's own block; [inputs saved in order A, B, C, then OUT]
    nd_node_input
        *outputs; ///< in the node's own block: dtype, device, shape of each output (source unused)
};

extern const nd__dropping_type nd__node_type;

/// A row of the table of operations, as recording sees it.
typedef struct nd_op_info {
    const char *name;
    uint8_t saves;    ///< ND_SAVE_ bits
    uint8_t nsaved;   ///< how many
    bool is_view;     ///< shares its input's storage
    bool is_constant; ///< ZERO: piecewise constant, its result never requires a gradient
} nd_op_info;
extern const nd_op_info nd__op_infos[ND_OP_COUNT];

/// Inside nd_no_grad.
extern _Thread_local bool nd__node_recording_off;

static inline bool nd__node_any_requires_grad(const nd_tensor *const *inputs, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (inputs[i] && nd__tensor_requires_grad(inputs[i]))
            return true;
    return false;
}

/// "mul", "exp", ...: name of an op; a user function's own name for its node.
const char *nd__node_op_name(nd_op op);
#endif
