// Gradient rules of indexing, copies and views. In every comment, g is the gradient of the result.
// What an operation picked, its gradient puts back: take, gather and masked_select add into zeros,
// slice fills the rest with zeros.
#include "lib/autograd/rules.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/ops/index.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/create.h"
#include "lib/tensor/join.h"
#include "lib/tensor/rebase.h"
#include "lib/tensor/record.h"
#include <nd/manipulation.h>

static nd_tensor *row_index(const nd_tensor *indices, const int64_t *flat);
static nd_tensor *selected_positions(const nd_tensor *mask, const nd_node_input *x);

// -------------------------------------------------------------------------------------------------
// indexing

/// x: [outer, n, inner], indices: [count] -> [outer, count, inner]: g's rows added to the rows they
/// came from.
nd_status nd__rule_take(const nd_rule_call *call) {
    if (!call->wanted[0])
        return ND_OK;
    const nd_node_input *x = &call->node->inputs[0];
    const nd_node_input *indices = &call->node->inputs[1];
    int axis = (int)call->node->attrs.i[0];
    int64_t target[3] = {1, x->shape[axis], 1};
    int64_t source[3] = {1, 1, 1};
    for (int i = 0; i < axis; i++)
        target[0] *= x->shape[i];
    for (int i = axis + 1; i < x->ndim; i++)
        target[2] *= x->shape[i];
    for (int i = 0; i < indices->ndim; i++)
        source[1] *= indices->shape[i];
    source[0] = target[0];
    source[2] = target[2];
    nd_auto nd_tensor *saved = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *index = row_index(saved, source);
    nd_auto nd_tensor *rows = nd_reshape(nd__rules_output_grad(call), 3, source);
    nd_tensor *waiting =
        rows && !nd__dtype_is_half(rows->dtype) ? nd__engine_waiting(call, 0) : NULL;
    if (waiting && waiting->dtype == rows->dtype) {
        nd_auto nd_tensor *planes = nd_reshape(waiting, 3, target);
        return nd__index_scatter_add_to(planes, rows, index, 1);
    }
    nd_auto nd_tensor *sums = nd__index_scatter_zeros(rows, index, 1, 3, target);
    return nd__rule_give(call, 0, nd_reshape(sums, x->ndim, x->shape));
}

nd_status nd__rule_gather(const nd_rule_call *call) {
    if (!call->wanted[0])
        return ND_OK;
    const nd_node_input *x = &call->node->inputs[0];
    nd_auto nd_tensor *index = nd__record_saved(call->node, 0);
    return nd__rule_give(call, 0,
                         nd__index_scatter_zeros(nd__rules_output_grad(call), index,
                                                 (int)call->node->attrs.i[0], x->ndim, x->shape));
}

/// x with source added at index: g for x, g's elements at index for source.
nd_status nd__rule_scatter_add(const nd_rule_call *call) {
    nd_status status = ND_OK;
    if (call->wanted[0])
        status = nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
    if (call->wanted[2] && status == ND_OK) {
        nd_auto nd_tensor *index = nd__record_saved(call->node, 0);
        status = nd__rule_give(
            call, 2, nd_gather(nd__rules_output_grad(call), index, (int)call->node->attrs.i[0]));
    }
    return status;
}

nd_status nd__rule_masked_select(const nd_rule_call *call) {
    if (!call->wanted[0])
        return ND_OK;
    const nd_node_input *x = &call->node->inputs[0];
    int64_t numel = 1;
    for (int i = 0; i < x->ndim; i++)
        numel *= x->shape[i];
    nd_auto nd_tensor *mask = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *positions = selected_positions(mask, x);
    nd_auto nd_tensor *sums =
        nd__index_scatter_zeros(nd__rules_output_grad(call), positions, 0, 1, &numel);
    return nd__rule_give(call, 0, nd_reshape(sums, x->ndim, x->shape));
}

// -------------------------------------------------------------------------------------------------
// copies

/// nd__rule_give casts back.
nd_status nd__rule_cast(const nd_rule_call *call) {
    return nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
}

nd_status nd__rule_clone(const nd_rule_call *call) {
    return nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
}

nd_status nd__rule_to(const nd_rule_call *call) {
    return nd__rule_give(call, 0, nd_to(nd__rules_output_grad(call), call->node->inputs[0].device));
}

nd_status nd__rule_concat(const nd_rule_call *call) {
    int axis = (int)call->node->attrs.i[0];
    int64_t start = 0;
    nd_status status = ND_OK;
    for (uint32_t i = 0; i < call->node->ninputs && status == ND_OK; i++) {
        int64_t stop = start + call->node->inputs[i].shape[axis];
        if (call->wanted[i])
            status =
                nd__rule_give(call, i, nd_slice(nd__rules_output_grad(call), start, stop, 1, axis));
        start = stop;
    }
    return status;
}

// -------------------------------------------------------------------------------------------------
// views

nd_status nd__rule_reshape(const nd_rule_call *call) {
    const nd_node_input *x = &call->node->inputs[0];
    return nd__rule_give(call, 0, nd_reshape(nd__rules_output_grad(call), x->ndim, x->shape));
}

nd_status nd__rule_permute(const nd_rule_call *call) {
    int naxes = call->node->inputs[0].ndim;
    int inverse[ND_MAX_DIMS];
    for (int i = 0; i < naxes; i++)
        inverse[call->node->attrs.i[i]] = i;
    return nd__rule_give(call, 0, nd_permute(nd__rules_output_grad(call), naxes, inverse));
}

/// nd__rule_give sums what was repeated.
nd_status nd__rule_expand(const nd_rule_call *call) {
    return nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
}

nd_status nd__rule_slice(const nd_rule_call *call) {
    const nd_node_input *x = &call->node->inputs[0];
    const int64_t *i = call->node->attrs.i;
    return nd__rule_give(
        call, 0,
        nd__join_unslice(nd__rules_output_grad(call), x->ndim, x->shape, (int)i[0], i[1], i[3]));
}

nd_status nd__rule_unslice(const nd_rule_call *call) {
    const int64_t *i = call->node->attrs.i;
    int64_t count = call->node->inputs[0].shape[i[0]];
    // An empty slice may start at -1, before the first element, which nd_slice would read as the
    // last one. Every start gives the same nothing.
    int64_t start = count > 0 ? i[1] : 0;
    int64_t stop = count > 0 ? start + (count - 1) * i[3] + (i[3] > 0 ? 1 : -1) : start;
    stop = stop < 0 ? INT64_MIN : stop; // before the first element
    return nd__rule_give(call, 0,
                         nd_slice(nd__rules_output_grad(call), start, stop, i[3], (int)i[0]));
}

/// g's parts, zeros where a part has none, one behind the other.
nd_status nd__rule_split(const nd_rule_call *call) {
    const nd_node *node = call->node;
    const nd_tensor *like = NULL;
    for (uint32_t k = 0; k < node->noutputs; k++)
        like = like ? like : call->grads[k];
    nd_tensor **parts = nd__pressure_alloc_zeroed(node->noutputs * sizeof *parts);
    if (!parts)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "split: no memory for %u gradients",
                         node->noutputs);
    uint32_t made = 0;
    for (; made < node->noutputs; made++) {
        parts[made] = call->grads[made] ? nd_retain(call->grads[made])
                                        : nd__rules_zeros_of(like, &node->outputs[made]);
        if (!parts[made])
            break;
    }
    nd_auto nd_tensor *whole =
        made == node->noutputs
            ? nd_concat(made, (const nd_tensor *const *)parts, (int)node->attrs.i[0])
            : NULL;
    for (uint32_t k = 0; k < made; k++)
        nd_release(parts[k]);
    nd__alloc_free(parts);
    return nd__rule_give(call, 0, nd_steal(&whole));
}

/// g: [outer..., count, inner..., size], window i from i step on: its elements added where they
/// were taken.
nd_status nd__rule_sliding_window(const nd_rule_call *call) {
    const nd_node_input *x = &call->node->inputs[0], *windows = call->node->outputs;
    int axis = (int)call->node->attrs.i[0];
    int64_t size = call->node->attrs.i[1], step = call->node->attrs.i[2];
    int64_t count = windows->shape[axis];
    int64_t target[3] = {1, x->shape[axis], 1};
    for (int i = 0; i < x->ndim; i++)
        if (i != axis)
            target[i < axis ? 0 : 2] *= x->shape[i];
    const int64_t source[3] = {target[0], count * size, target[2]};
    nd_auto nd_tensor *firsts = nd__create_counted("sliding_window", x->device, count);
    nd_auto nd_tensor *starts = firsts ? nd_mul_scalar(firsts, step) : NULL;
    nd_auto nd_tensor *column = nd_unsqueeze(starts, 1);
    nd_auto nd_tensor *inside = nd__create_counted("sliding_window", x->device, size);
    nd_auto nd_tensor *places = nd_add(column, inside);
    nd_auto nd_tensor *flat = nd_reshape(places, 1, &source[1]);
    nd_auto nd_tensor *index = row_index(flat, source);
    nd_auto nd_tensor *near = nd_moveaxis(nd__rules_output_grad(call), -1, axis + 1);
    nd_auto nd_tensor *rows = nd_reshape(near, 3, source);
    nd_auto nd_tensor *sums = nd__index_scatter_zeros(rows, index, 1, 3, target);
    return nd__rule_give(call, 0, nd_reshape(sums, x->ndim, x->shape));
}

/// Whether no two elements of a window are the same one.
static bool is_one_to_one(const nd_op_attrs *attrs, int ndim, const int64_t *shape) {
    int64_t reach = 0; // of the axes with smaller strides
    uint32_t seen = 0;
    for (int done = 0; done < ndim; done++) {
        int next = -1;
        for (int i = 0; i < ndim; i++)
            if (!(seen & (1u << i)) && (next < 0 || attrs->i[i] < attrs->i[next]))
                next = i;
        seen |= 1u << next;
        if (shape[next] == 1)
            continue;
        if (attrs->i[next] <= reach)
            return false;
        reach += (shape[next] - 1) * attrs->i[next];
    }
    return true;
}

/// g is put back where the window lies; elements that it shows twice get the sum.
nd_status nd__rule_as_strided(const nd_rule_call *call) {
    const nd_node_input *x = &call->node->inputs[0], *window = call->node->outputs;
    const nd_op_attrs *attrs = &call->node->attrs;
    const nd_tensor *g = nd__rules_output_grad(call);
    if (!attrs->i[9])
        return nd__error(ND_ERROR_NOT_DIFFERENTIABLE,
                         "as_strided: a window onto a tensor that is not contiguous, or reaching "
                         "beyond it, has no gradient");
    nd_auto nd_tensor *zeros = nd__rules_zeros_of(g, x);
    if (!zeros || zeros->numel == 0 || g->numel == 0)
        return nd__rule_give(call, 0, nd_retain(zeros));
    if (is_one_to_one(attrs, window->ndim, window->shape))
        return nd__rule_give(call, 0, nd__rebase_write_window(zeros, g, attrs));
    nd_auto nd_tensor *counted = nd__create_counted("as_strided", x->device, zeros->numel);
    nd_auto nd_tensor *shown =
        counted ? nd__rebase_read_window(counted, window->ndim, window->shape, attrs) : NULL;
    nd_auto nd_tensor *positions = nd_reshape(shown, 1, &g->numel);
    nd_auto nd_tensor *flat = nd_reshape(g, 1, &g->numel);
    nd_auto nd_tensor *sums =
        positions ? nd__index_scatter_zeros(flat, positions, 0, 1, &zeros->numel) : NULL;
    return nd__rule_give(call, 0, nd_reshape(sums, x->ndim, x->shape));
}

/// The window's part of g is what was put there; the rest is x's.
nd_status nd__rule_as_strided_scatter(const nd_rule_call *call) {
    const nd_node_input *part = &call->node->inputs[1];
    const nd_tensor *g = nd__rules_output_grad(call);
    nd_status status = ND_OK;
    if (call->wanted[0]) {
        nd_auto nd_tensor *zeros = nd__rules_zeros_of(g, part);
        status = nd__rule_give(
            call, 0, zeros ? nd__rebase_write_window(g, zeros, &call->node->attrs) : NULL);
    }
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *dense = nd_contiguous(g);
        status = nd__rule_give(
            call, 1,
            dense ? nd__rebase_read_window(dense, part->ndim, part->shape, &call->node->attrs)
                  : NULL);
    }
    return status;
}

// -------------------------------------------------------------------------------------------------

/// indices repeated to the flat shape [outer, count, inner], for scatter_add.
static nd_tensor *row_index(const nd_tensor *indices, const int64_t *flat) {
    int64_t column[3] = {1, flat[1], 1};
    nd_auto nd_tensor *wide = indices ? nd_cast(indices, ND_I64) : NULL;
    nd_auto nd_tensor *shaped = nd_reshape(wide, 3, column);
    return nd_expand(shaped, 3, flat);
}

/// Where in row-major order the mask holds, on x's device: [count], i64.
static nd_tensor *selected_positions(const nd_tensor *mask, const nd_node_input *x) {
    if (!mask)
        return NULL;
    int64_t numel = 1;
    for (int i = 0; i < x->ndim; i++)
        numel *= x->shape[i];
    nd_auto nd_tensor *counted = nd__create_counted("masked_select", x->device, numel);
    nd_auto nd_tensor *shaped = nd_reshape(counted, x->ndim, x->shape);
    return nd_masked_select(shaped, mask);
}
