// Graph nodes as objects, the table of operations, and the thread's recording switch.
//
// A node and its three arrays are one block. Its edges are the sources of its inputs, its saved
// tensors, a user function's context and lib/autograd's hooks.
#include "lib/tensor/node.h"
#include "lib/base/error.h"
#include "lib/manager/borrow.h"
#include "lib/tensor/rebase.h"

static void node_traverse(const nd_object *self, nd_visitor *visitor);
static void node_clear(nd_object *self);
static void node_drop(nd_object *self);
static const char *node_describe(const nd_object *self);

const nd__dropping_type nd__node_type = {
    .type = {.size = sizeof(nd_type),
             .version = 1,
             .name = "node",
             .flags = ND__TYPE_DROPS,
             .traverse = node_traverse,
             .clear = node_clear,
             .describe = node_describe},
    .drop = node_drop,
};

static void node_traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_node *node = (const nd_node *)self;
    for (uint32_t i = 0; i < node->ninputs; i++)
        nd_visit(visitor, node->inputs[i].source, "input");
    for (uint32_t i = 0; i < node->nsaved; i++)
        nd_visit(visitor, node->saved[i].tensor, "saved");
    nd_visit(visitor, node->context, "context");
    nd_visit(visitor, node->hooks, "hooks");
}

static void node_clear(nd_object *self) {
    nd_node *node = (nd_node *)self;
    for (uint32_t i = 0; i < node->ninputs; i++)
        if (node->inputs[i].source)
            nd_edge_clear(&node->inputs[i].source);
    for (uint32_t i = 0; i < node->nsaved; i++)
        if (node->saved[i].tensor)
            nd_edge_clear(&node->saved[i].tensor);
    if (node->context)
        nd_edge_clear(&node->context);
    if (node->hooks)
        nd_edge_clear(&node->hooks);
}

static void node_drop(nd_object *self) {
    const nd_node *node = (const nd_node *)self;
    for (uint32_t i = 0; i < node->ninputs; i++)
        nd_object_release(node->inputs[i].source);
    for (uint32_t i = 0; i < node->nsaved; i++)
        nd_object_release(node->saved[i].tensor);
    nd_object_release(node->context);
    nd_object_release(node->hooks);
}

static const char *node_describe(const nd_object *self) {
    return nd_node_get_name((const nd_node *)self);
}

// ------------------------------------------------------------------------------------------------
// the table of operations

enum { FATE_YES, FATE_NO = FATE_YES, FATE_ZERO };
enum {
    FAMILY_UNARY,
    FAMILY_PREDICATE,
    FAMILY_BINARY,
    FAMILY_COMPARE,
    FAMILY_LOGICAL,
    FAMILY_TERNARY,
    FAMILY_REDUCE,
    FAMILY_ARGREDUCE,
    FAMILY_SCAN,
    FAMILY_SORT,
    FAMILY_MATMUL,
    FAMILY_QUANTIZED,
    FAMILY_SOFTMAX,
    FAMILY_LOSS,
    FAMILY_NORM,
    FAMILY_INDEX,
    FAMILY_CREATE,
    FAMILY_COPY,
    FAMILY_CONV,
    FAMILY_POOL,
    FAMILY_RESAMPLE,
    FAMILY_ATTENTION,
    FAMILY_CELL,
    FAMILY_DROPOUT,
    FAMILY_LINALG,
    FAMILY_FFT,
    FAMILY_VIEW,
};

#define IS_SET(saved, bit) (((saved) & (bit)) != 0)
#define ND_OP(op, family, inputs, differentiable, saved)                                           \
    [ND_OP_##op] = {                                                                               \
        .name = #op,                                                                               \
        .saves = saved,                                                                            \
        .nsaved = IS_SET(saved, ND_SAVE_A) + IS_SET(saved, ND_SAVE_B) + IS_SET(saved, ND_SAVE_C) + \
                  IS_SET(saved, ND_SAVE_OUT),                                                      \
        .is_view = FAMILY_##family == FAMILY_VIEW && ND_OP_##op != ND_OP_function,                 \
        .is_constant = FATE_##differentiable == FATE_ZERO,                                         \
    },
const nd_op_info nd__op_infos[ND_OP_COUNT] = {
    [ND_OP_none] = {.name = "none"},
#include "kernels/ops.inc"
};
#undef ND_OP

const char *nd__node_op_name(nd_op op) {
    return (unsigned)op < ND_OP_COUNT ? nd__op_infos[op].name : "invalid";
}

const char *nd_node_get_name(const nd_node *node) {
    if (!node)
        return NULL;
    return node->function && node->function->name ? node->function->name
                                                  : nd__node_op_name(node->op);
}

// ------------------------------------------------------------------------------------------------
// tensors and their history

bool nd_requires_grad(const nd_tensor *x) {
    return x && nd__tensor_requires_grad(x);
}

bool nd_is_leaf(const nd_tensor *x) {
    return x && (nd__tensor_base(x) ? !nd__tensor_requires_grad(x) : !x->node);
}

const nd_node *nd_get_node(const nd_tensor *x) {
    return x && nd__rebase_refresh(x) == ND_OK ? x->node : NULL;
}

nd_status nd_set_requires_grad(nd_tensor *x, bool requires_grad) {
    nd_status status = nd__tensor_check_operand("set_requires_grad", "x", x);
    if (status != ND_OK)
        return status;
    if (!nd_is_leaf(x))
        return nd__error(ND_ERROR_STATE,
                         "set_requires_grad: x was computed by %s; only a leaf can be set",
                         nd_node_get_name(nd_get_node(x)));
    if (requires_grad && !nd__dtype_is_float(x->dtype))
        return nd__error(ND_ERROR_DTYPE,
                         "set_requires_grad: a tensor of %s has no gradient; floats do",
                         nd_dtype_get_name(x->dtype));
    nd_storage *storage = nd__tensor_storage_now(x);
    if (requires_grad && storage && (x->base || nd__tensor_has_own(x, ND__GRAD_CUT)))
        atomic_store_explicit(&storage->shows_leaf, true, memory_order_relaxed); // for good
    if (requires_grad && x->base) { // a leaf has its own history
        nd__borrow_settle((nd__stored *)x);
        if (x->node) // of what the base was before a write that took its history
            nd__record_replace_node(x, NULL);
        nd_edge_clear(&x->base);
    }
    nd__tensor_set_own(x, ND__GRAD_REQUIRED, requires_grad);
    return ND_OK;
}

// ------------------------------------------------------------------------------------------------
// the recording switch

_Thread_local bool nd__node_recording_off;

bool nd_is_grad_enabled(void) {
    return !nd__node_recording_off;
}

nd_grad_block nd__grad_block_begin(bool enabled) {
    nd_grad_block block = {.once = true, .previous = !nd__node_recording_off};
    nd__node_recording_off = !enabled;
    return block;
}

void nd__grad_block_end(nd_grad_block *block) {
    nd__node_recording_off = !block->previous;
}
