// Recording: giving results their node, and giving saved tensors back.
//
// A node is filled while private, published, and only then made an edge of its result; a failure
// on the way leaves the result without history and the node released. Nothing here computes.
#include "lib/tensor/record.h"
#include "lib/base/error.h"
#include "lib/manager/member.h"
#include "lib/manager/place.h"
#include "lib/manager/publish.h"
#include "lib/object/callback.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/tensor/node.h"
#include "lib/tensor/rebase.h"
#include "lib/tensor/shape.h"

bool nd__record_wants_history(const nd_tensor *const *inputs, size_t count) {
    return !nd__node_recording_off && nd__node_any_requires_grad(inputs, count);
}

// ------------------------------------------------------------------------------------------------
// building a node

static nd_node *new_node(nd_op op, size_t ninputs, size_t nsaved, size_t noutputs) {
    if (ninputs > UINT32_MAX || noutputs > UINT32_MAX) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: too many operands to record",
                  nd__node_op_name(op));
        return NULL;
    }
    size_t size =
        sizeof(nd_node) + (ninputs + noutputs) * sizeof(nd_node_input) + nsaved * sizeof(nd_saved);
    nd_node *node = (nd_node *)nd__object_new(&nd__node_type.type, size);
    if (!node)
        return NULL;
    node->op = op;
    node->level = 1;
    node->ninputs = (uint32_t)ninputs;
    node->nsaved = (uint32_t)nsaved;
    node->noutputs = (uint32_t)noutputs;
    node->inputs = (nd_node_input *)(node + 1);
    node->outputs = node->inputs + ninputs;
    node->saved = (nd_saved *)(node->outputs + noutputs);
    return node;
}

static void describe(nd_node_input *slot, const nd_tensor *x) {
    slot->dtype = x->dtype;
    slot->device = x->device;
    slot->ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++)
        slot->shape[i] = x->shape[i];
}

/// Whether a view's history ends in a leaf still, which no recorded write has changed.
static bool shows_a_leaf(const nd_node *node) {
    while (node && nd__record_is_view(node) && node->inputs[0].source_is_node)
        node = (const nd_node *)node->inputs[0].source; // NULL once the node was closed
    if (!node || !nd__record_is_view(node))
        return false;
    const nd_tensor *leaf = (const nd_tensor *)node->inputs[0].source;
    return leaf && !leaf->node;
}

/// A recorded view is only usable while its history tells how its values came about: one that
/// follows a base is given a new one.
static nd_status check_view(nd_op op, const nd_tensor *x) {
    if (nd__tensor_base(x)) {
        ND__ERROR_NAMED(nd__node_op_name(op));
        return nd__rebase_refresh(x);
    }
    const nd_node *node = x->node;
    if (!node || !nd__record_is_view(node) ||
        nd__record_view_version(node) == nd__tensor_version(x) || shows_a_leaf(node))
        return ND_OK;
    char text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_STATE,
                     "%s: an input of shape %s is a view (%s) whose storage was written in place "
                     "since; make the view again",
                     nd__node_op_name(op), nd__shape_text(text, x->ndim, x->shape),
                     nd__node_op_name(node->op));
}

/// `written`: the tensor that an in-place operation has written, or NULL; what shares its storage
/// had its history made fresh before that.
static nd_status fill_inputs(nd_node *node, const nd_tensor *const *inputs, size_t count,
                             const nd_tensor *written) {
    for (size_t k = 0; k < count; k++) {
        const nd_tensor *x = inputs[k];
        if (!x)
            continue;
        nd_node_input *slot = &node->inputs[k];
        describe(slot, x);
        if (!nd__tensor_requires_grad(x))
            continue;
        bool is_old = written && nd__tensor_base(x) && nd__tensor_share_storage(x, written);
        nd_status status = is_old ? ND_OK : check_view(node->op, x);
        if (status != ND_OK)
            return status;
        if (x->node) {
            slot->source = nd_object_retain(x->node);
            slot->source_is_node = true;
            slot->output_index = x->output_index;
            if (x->node->level >= node->level)
                node->level = x->node->level + 1;
        } else {
            slot->source = nd_object_retain(x);
        }
    }
    return ND_OK;
}

/// What a node saves of x: x, or where x follows a base an alias with x's history and no edge to
/// the base, whose history may come to lead to this node. NULL with an error.
static nd_tensor *saved_of(const nd_tensor *x) {
    if (!nd__tensor_base(x))
        return nd_retain(x);
    nd_tensor *alias =
        nd__tensor_view(x, x->ndim, x->shape, nd__tensor_strides(x), nd__tensor_offset(x));
    if (!alias)
        return NULL;
    nd__tensor_set_own(alias, ND__GRAD_CUT, true);
    if (nd__tensor_requires_grad(x)) { // x->node is fresh: fill_inputs has been here
        nd__tensor_set_own(alias, ND__GRAD_REQUIRED, true);
        alias->output_index = x->output_index;
        nd__member_track_with(&alias->header, &alias->node, nd_object_retain(x->node));
    }
    return alias;
}

/// Saves what the op's row says. An input on the storage that an in-place operation wrote has lost
/// the value it had; its entry stays empty.
static nd_status fill_saved(nd_node *node, const nd_tensor *const *inputs, size_t count,
                            const nd_tensor *result, bool in_place) {
    nd_saved *entry = node->saved;
    unsigned saves = nd__op_infos[node->op].saves;
    for (size_t k = 0; k < 3; k++) {
        if (!(saves & ((unsigned)ND_SAVE_A << k)))
            continue;
        const nd_tensor *x = k < count ? inputs[k] : NULL;
        if (x && !(in_place && nd__tensor_share_storage(x, result))) {
            entry->tensor = saved_of(x);
            if (!entry->tensor)
                return nd_error_get_status();
            entry->version = nd__tensor_version(x);
        }
        entry++;
    }
    if (saves & ND_SAVE_OUT) {
        entry->tensor = nd__tensor_view(result, result->ndim, result->shape,
                                        nd__tensor_strides(result), nd__tensor_offset(result));
        if (!entry->tensor)
            return nd_error_get_status();
        entry->version = nd__tensor_version(result);
        entry->is_output = true;
    }
    return ND_OK;
}

/// A private node; NULL with an error.
static nd_node *build(nd_op op, const nd_tensor *result, const nd_tensor *const *inputs,
                      size_t count, const nd_op_attrs *attrs, bool in_place) {
    const nd_op_info *info = &nd__op_infos[op];
    nd_node *node = new_node(op, count, info->nsaved, 1);
    if (!node)
        return NULL;
    if (attrs)
        node->attrs = *attrs;
    if (info->is_view) // a reshape may have copied
        node->attrs.i[ND__VERSION_SLOT] = nd__tensor_share_storage(result, inputs[0])
                                              ? (int64_t)nd__tensor_version(result)
                                              : ND__NO_VIEW;
    describe(node->outputs, result);
    if (fill_inputs(node, inputs, count, in_place ? result : NULL) == ND_OK &&
        fill_saved(node, inputs, count, result, in_place) == ND_OK)
        return node;
    nd_object_release(node);
    return NULL;
}

nd_node *nd__record_build(nd_op op, const nd_tensor *result, const nd_tensor *const *inputs,
                          size_t count, const nd_op_attrs *attrs, bool in_place) {
    nd_node *node = build(op, result, inputs, count, attrs, in_place);
    if (node && nd__place_publish(nd__place_of(&result->header), &node->header) == ND_OK)
        return node;
    nd_object_release(node);
    return NULL;
}

/// A published tensor that only this thread knows gets its published node (owned, consumed).
static void give_node(nd_tensor *result, nd_node *node) {
    if (!(nd__object_flags(&result->header) & ND__TRACKED)) {
        nd__member_track_with(&result->header, &result->node, node);
        return;
    }
    nd__gate_enter(); // a view that follows a base
    result->node = node;
    nd__gate_leave();
}

/// The same for a private node, which is published where the tensor is. An error leaves it private.
static nd_status give_private_node(nd_tensor *result, nd_node *node) {
    bool tracked = (nd__object_flags(&result->header) & ND__TRACKED) != 0;
    void *slot = tracked ? NULL : &result->node;
    if (__builtin_expect(nd__publish_beside(&node->header, &result->header, slot), 1)) {
        if (tracked)
            give_node(result, node);
        return ND_OK;
    }
    nd_status status = nd__place_publish(nd__place_of(&result->header), &node->header);
    if (status == ND_OK)
        give_node(result, node);
    return status;
}

nd_tensor *nd__record_where_on(nd_op op, nd_tensor *result, const nd_tensor *const *inputs,
                               size_t count, const nd_op_attrs *attrs) {
    if (!result || nd__node_recording_off || nd__op_infos[op].is_constant ||
        !nd__dtype_is_float(result->dtype))
        return result;
    nd_node *node = build(op, result, inputs, count, attrs, false);
    if (node && nd__object_is_closing(result)) { // by a callback for memory
        nd_object_release(node);
        return result;
    }
    nd__tensor_set_own(result, ND__GRAD_REQUIRED, !nd__tensor_base(result));
    if (__builtin_expect(node && give_private_node(result, node) == ND_OK, 1))
        return result;
    nd_object_release(node);
    nd_object_release(result);
    return NULL;
}

nd_status nd__record_split(nd_tensor *const *parts, size_t count, const nd_tensor *x, int axis) {
    if (count == 0 || !nd__dtype_is_float(x->dtype) || !nd__record_wants_history(&x, 1))
        return ND_OK;
    nd_auto nd_node *node = new_node(ND_OP_split, 1, 0, count);
    if (!node)
        return nd_error_get_status();
    node->attrs = (nd_op_attrs){.i = {axis}};
    node->attrs.i[ND__VERSION_SLOT] = (int64_t)nd__tensor_version(x);
    for (size_t i = 0; i < count; i++)
        describe(&node->outputs[i], parts[i]);
    nd_status status = fill_inputs(node, &x, 1, NULL);
    if (status == ND_OK)
        status = nd__place_publish(nd__place_of(&parts[0]->header), &node->header);
    for (size_t i = 0; i < count && status == ND_OK; i++) {
        if (nd__object_is_closing(parts[i])) // by a callback for memory
            continue;
        nd__tensor_set_own(parts[i], ND__GRAD_REQUIRED, !nd__tensor_base(parts[i]));
        parts[i]->output_index = (uint32_t)i;
        give_node(parts[i], nd_retain(node));
    }
    return status;
}

// ------------------------------------------------------------------------------------------------
// in place

nd_status nd__record_check_in_place(const char *operation, const nd_tensor *x) {
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    if (status == ND_OK)
        status = nd__callback_check(operation);
    if (status == ND_OK)
        status = nd__tensor_check_writable(operation, "x", x);
    if (status != ND_OK || nd__node_recording_off)
        return status;
    if (nd__tensor_base(x))
        return nd__rebase_check_write(operation, x);
    if (!nd__tensor_has_own(x, ND__GRAD_REQUIRED))
        return ND_OK;
    if (!x->node)
        return nd__error(ND_ERROR_STATE,
                         "%s: x is a leaf that requires a gradient; write it inside nd_no_grad",
                         operation);
    if (nd__record_is_view(x->node))
        return nd__error(ND_ERROR_STATE,
                         "%s: x is a view (%s) of %s; write a clone of it, or inside nd_no_grad",
                         operation, nd_node_get_name(x->node),
                         shows_a_leaf(x->node) ? "a leaf that requires a gradient"
                                               : "a tensor that cannot learn of the write");
    return ND_OK;
}

void nd__record_replace_node(nd_tensor *x, nd_node *node) {
    if (nd__object_is_closing(x)) {
        nd_object_release(node);
        return;
    }
    if (node)
        nd__member_track(&x->header);
    nd__gate_enter();
    nd_node *before = x->node;
    x->node = node;
    nd__gate_leave();
    x->output_index = 0;
    nd__tensor_set_own(x, ND__GRAD_REQUIRED, node != NULL);
    nd_object_release(before);
}

nd_node *nd__record_build_scatter(const nd_tensor *base, const nd_tensor *old,
                                  const nd_tensor *part, nd_node *part_node,
                                  const nd_op_attrs *attrs) {
    nd_node *node = new_node(ND_OP_as_strided_scatter, 2, 0, 1);
    if (!node) {
        nd_object_release(part_node);
        return NULL;
    }
    node->attrs = *attrs;
    describe(node->outputs, base);
    describe(&node->inputs[0], base);
    describe(&node->inputs[1], part);
    if (part_node) {
        node->inputs[1].source = &part_node->header; // takes it over
        node->inputs[1].source_is_node = true;
        node->level = part_node->level + 1;
    }
    if (fill_inputs(node, &old, 1, NULL) == ND_OK &&
        nd__place_publish(nd__place_of(&base->header), &node->header) == ND_OK)
        return node;
    nd_object_release(node);
    return NULL;
}

/// A write through a view: what is recorded is the base's.
static nd_status through_view(nd_op op, nd_tensor *x, const nd_tensor *const *inputs, size_t count,
                              const nd_op_attrs *attrs, nd__record_write *ret_write) {
    nd_node *part = NULL;
    if (nd__record_wants_history(inputs, count) && !nd__op_infos[op].is_constant) {
        part = nd__record_build(op, x, inputs, count, attrs, true);
        if (!part)
            return nd_error_get_status();
    } else if (!nd__tensor_requires_grad(x)) {
        return ND_OK;
    }
    ret_write->node = nd__rebase_build_write(x, part);
    ret_write->target = ret_write->node ? nd__tensor_base(x) : NULL;
    return ret_write->node ? ND_OK : nd_error_get_status();
}

static nd_status on_itself(nd_op op, nd_tensor *x, const nd_tensor *const *inputs, size_t count,
                           const nd_op_attrs *attrs, nd__record_write *ret_write) {
    if (!nd__record_wants_history(inputs, count) || nd__op_infos[op].is_constant ||
        !nd__dtype_is_float(x->dtype)) {
        ret_write->target = x->node ? x : NULL;
        return ND_OK;
    }
    ret_write->node = nd__record_build(op, x, inputs, count, attrs, true);
    ret_write->target = ret_write->node ? x : NULL;
    return ret_write->node ? ND_OK : nd_error_get_status();
}

nd_status nd__record_before_write(nd_op op, nd_tensor *x, const nd_tensor *const *inputs,
                                  size_t count, const nd_op_attrs *attrs,
                                  nd__record_write *ret_write) {
    *ret_write = (nd__record_write){NULL, NULL};
    if (nd__node_recording_off)
        return ND_OK;
    const uint64_t version = nd__tensor_version(x);
    nd_status status = nd__tensor_base(x) ? through_view(op, x, inputs, count, attrs, ret_write)
                                          : on_itself(op, x, inputs, count, attrs, ret_write);
    if (status != ND_OK || nd__object_is_closed(x) || nd__tensor_version(x) == version)
        return status;
    nd__record_after_write(ret_write, false);
    return nd__error(ND_ERROR_STATE, "%s: a callback for memory has written x meanwhile",
                     nd__node_op_name(op));
}

void nd__record_after_write(const nd__record_write *write, bool written) {
    if (write->target && written)
        nd__record_replace_node(write->target, write->node);
    else
        nd_object_release(write->node);
}

nd_status nd__record_in_place(nd_op op, nd_tensor *x, const nd_tensor *const *inputs, size_t count,
                              const nd_op_attrs *attrs) {
    nd__record_write write;
    nd_status status = nd__record_before_write(op, x, inputs, count, attrs, &write);
    if (status == ND_OK)
        nd__record_after_write(&write, true);
    return status;
}

// ------------------------------------------------------------------------------------------------
// user functions

static nd_status check_results(const nd_function *function, nd_tensor *const *results,
                               size_t noutputs, const nd_tensor *const *inputs, size_t count) {
    for (size_t i = 0; i < noutputs; i++)
        for (size_t k = 0; k < count && results[i]; k++)
            if (results[i] == inputs[k])
                return nd__error(ND_ERROR_STATE,
                                 "%s: output %zu is input %zu itself; return a copy or a view",
                                 function->name, i, k);
    return ND_OK;
}

nd_status nd__record_function(const nd_function *function, const nd_object *context,
                              nd_tensor *const *results, size_t noutputs,
                              const nd_tensor *const *inputs, size_t count) {
    if (noutputs == 0 || !nd__record_wants_history(inputs, count))
        return ND_OK;
    nd_status status = check_results(function, results, noutputs, inputs, count);
    if (status != ND_OK)
        return status;
    nd_node *node = new_node(ND_OP_function, count, 0, noutputs);
    if (!node)
        return nd_error_get_status();
    node->function = function;
    node->context = nd_object_retain(context);
    const nd_tensor *first = NULL;
    for (size_t i = 0; i < noutputs; i++) {
        if (results[i]) {
            describe(&node->outputs[i], results[i]);
            first = first ? first : results[i];
        }
    }
    status = fill_inputs(node, inputs, count, NULL);
    if (status == ND_OK && first)
        status = nd__place_publish(nd__place_of(&first->header), &node->header);
    if (status == ND_OK && first) {
        for (size_t i = 0; i < noutputs; i++) {
            if (!results[i] || !nd__dtype_is_float(results[i]->dtype))
                continue;
            nd__record_replace_node(results[i], nd_object_retain(node));
            results[i]->output_index = (uint32_t)i;
        }
    }
    nd_object_release(node);
    return status;
}

// ------------------------------------------------------------------------------------------------
// saved tensors

/// An alias of the saved output with the history it had as the result.
static nd_tensor *with_history(const nd_node *node, const nd_saved *saved) {
    const nd_tensor *x = saved->tensor;
    nd_tensor *alias =
        nd__tensor_view(x, x->ndim, x->shape, nd__tensor_strides(x), nd__tensor_offset(x));
    if (!alias)
        return NULL;
    alias->output_index = saved->output_index;
    nd__tensor_set_own(alias, ND__GRAD_CUT, true);
    nd__tensor_set_own(alias, ND__GRAD_REQUIRED, true);
    nd__member_track_with(&alias->header, &alias->node, nd_object_retain(node));
    return alias;
}

nd_status nd__record_check_saved(const char *operation, const nd_tensor *x, uint64_t version) {
    nd_status status = nd__tensor_check_operand(operation, "a saved tensor", x);
    if (status != ND_OK || nd__tensor_version(x) == version)
        return status;
    char text[ND__SHAPE_TEXT];
    return nd__error(
        ND_ERROR_STATE,
        "%s: a saved tensor of shape %s was changed in place: version %llu, saved at %llu",
        operation, nd__shape_text(text, x->ndim, x->shape),
        (unsigned long long)nd__tensor_version(x), (unsigned long long)version);
}

nd_tensor *nd__record_saved(const nd_node *node, uint32_t index) {
    const nd_saved *saved = index < node->nsaved ? &node->saved[index] : NULL;
    const nd_tensor *x = saved ? saved->tensor : NULL;
    if (!x || nd__object_is_closed(x)) {
        if (x || nd__object_is_closed(node))
            nd__error(ND_ERROR_CLOSED, "%s: a tensor saved for the gradient was closed",
                      nd_node_get_name(node));
        else
            nd__error(
                ND_ERROR_STATE,
                "%s: the value that the in-place write replaced was not kept for the gradient",
                nd_node_get_name(node));
        return NULL;
    }
    if (nd__record_check_saved(nd_node_get_name(node), x, saved->version) != ND_OK)
        return NULL;
    if (saved->is_output && !nd__node_recording_off)
        return with_history(node, saved);
    return nd_retain(x);
}
