// nd_backward and nd_grad: checks, the pass, and what becomes of its gradients. Nothing that a user
// can see changes before everything that can fail has succeeded.
#include "lib/autograd/backward.h"
#include "lib/autograd/leaves.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/object/callback.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/rebase.h"
#include "lib/tensor/shape.h"
#include <nd/autocast.h>

enum { INLINE_LEAVES = 16 };

static nd_status check_output(const char *operation, const nd_tensor *output);
static nd_status backward(const char *operation, const nd_tensor *output,
                          const nd_backward_options *options, const nd_leaf_watch *watch,
                          nd_tensor **ret_released);
static nd_status run_backward(nd_pass *pass, const nd_tensor *output, const nd_tensor *grad,
                              nd_tensor **ret_released);
static nd_status store_leaf_gradients(nd_pass *pass);
static nd_status run_grad(nd_pass *pass, const nd_tensor *output,
                          const nd_backward_options *options);
static nd_status make_targets(nd_pass *pass, const nd_tensor *const *inputs, size_t count);
static nd_status complete_targets(nd_pass *pass, const nd_tensor *const *inputs, bool allow_unused);

nd_status nd_backward(const nd_tensor *output, const nd_backward_options *options) {
    ND__UNCANCELLED;
    nd_backward_options chosen;
    nd_status status = check_output("backward", output);
    if (status == ND_OK)
        status = nd__gradient_read_options("backward", options, &chosen);
    return status == ND_OK ? backward("backward", output, &chosen, NULL, NULL) : status;
}

nd_status nd_backward_release(nd_tensor *output, const nd_backward_options *options) {
    static const char operation[] = "backward_release";
    ND__UNCANCELLED;
    nd_backward_options chosen;
    nd_status status = check_output(operation, output);
    if (status == ND_OK)
        status = nd__gradient_read_options(operation, options, &chosen);
    if (status == ND_OK)
        status = backward(operation, output, &chosen, NULL, &output);
    nd_release(output);
    return status;
}

nd_status nd__backward_watched(const char *operation, const nd_tensor *output,
                               const nd_backward_options *options, const nd_leaf_watch *watch) {
    nd_backward_options chosen;
    nd_status status = check_output(operation, output);
    if (status == ND_OK)
        status = nd__gradient_read_options(operation, options, &chosen);
    if (status == ND_OK && chosen.create_graph)
        status = nd__error(ND_ERROR_UNSUPPORTED,
                           "%s: what other ranks sent has no history, so the pass cannot be "
                           "recorded (create_graph)",
                           operation);
    return status == ND_OK ? backward(operation, output, &chosen, watch, NULL)
                           : watch->finish(watch->data, status);
}

static nd_status backward(const char *operation, const nd_tensor *output,
                          const nd_backward_options *options, const nd_leaf_watch *watch,
                          nd_tensor **ret_released) {
    nd_pass pass;
    nd__engine_pass_init(&pass, operation, options->create_graph);
    pass.watch = watch;
    nd_grad_block block = nd__grad_block_begin(options->create_graph);
    nd_autocast_block autocast = nd__autocast_block_begin(ND_F32); // rules say their dtypes
    nd_status status = run_backward(&pass, output, options->grad, ret_released);
    nd__engine_pass_free(&pass);
    nd__autocast_block_end(&autocast);
    nd__grad_block_end(&block);
    return status;
}

nd_status nd_grad(const nd_tensor *output, size_t count, const nd_tensor *const *inputs,
                  const nd_backward_options *options, nd_tensor **ret_grads) {
    ND__UNCANCELLED;
    nd_backward_options chosen;
    nd_status status = check_output("grad", output);
    if (status == ND_OK)
        status = nd__gradient_read_options("grad", options, &chosen);
    if (status != ND_OK)
        return status;
    if (count > 0 && !inputs)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "grad: inputs is NULL");
    if (count > 0 && !ret_grads)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "grad: ret_grads is NULL");
    nd_pass pass;
    nd__engine_pass_init(&pass, "grad", chosen.create_graph);
    pass.only_targets = true;
    nd_grad_block block = nd__grad_block_begin(chosen.create_graph);
    nd_autocast_block autocast = nd__autocast_block_begin(ND_F32); // rules say their dtypes
    status = make_targets(&pass, inputs, count);
    if (status == ND_OK)
        status = run_grad(&pass, output, &chosen);
    nd__engine_pass_free(&pass);
    if (status == ND_OK)
        status = complete_targets(&pass, inputs, chosen.allow_unused);
    nd__autocast_block_end(&autocast);
    nd__grad_block_end(&block);
    for (size_t i = 0; i < pass.target_count; i++) {
        if (status == ND_OK)
            ret_grads[i] = nd_steal(&pass.targets[i].gradient);
        nd_release(pass.targets[i].gradient);
        nd_release(pass.targets[i].source);
    }
    nd__alloc_free(pass.targets);
    return status;
}

// -------------------------------------------------------------------------------------------------
// shared

static nd_status check_output(const char *operation, const nd_tensor *output) {
    nd_status status = nd__tensor_check_operand(operation, "output", output);
    if (status == ND_OK)
        status = nd__callback_check(operation);
    if (status != ND_OK)
        return status;
    char shape[ND__SHAPE_TEXT];
    status = nd__rebase_refresh(output);
    if (status != ND_OK)
        return status;
    if (!nd__tensor_requires_grad(output))
        return nd__error(
            ND_ERROR_STATE,
            "%s: the output %s of shape %s has no history: nothing it was computed from required a "
            "gradient, or it was computed inside nd_no_grad or detached",
            operation, nd_dtype_get_name(output->dtype),
            nd__shape_text(shape, output->ndim, output->shape));
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------
// backward

static nd_status run_backward(nd_pass *pass, const nd_tensor *output, const nd_tensor *grad,
                              nd_tensor **ret_released) {
    nd_tensor *seed = nd__gradient_seed(pass->operation, output, grad);
    nd_status status =
        seed ? nd__engine_pass_run(pass, output, seed, ret_released) : nd_error_get_status();
    if (pass->watch)
        status = pass->watch->finish(pass->watch->data, status);
    return status == ND_OK ? store_leaf_gradients(pass) : status;
}

static nd_status store_leaf_gradients(nd_pass *pass) {
    nd_tensor *inline_leaves[INLINE_LEAVES];
    nd_tensor *inline_gradients[INLINE_LEAVES];
    nd_tensor **leaves = inline_leaves;
    nd_tensor **gradients = inline_gradients;
    uint32_t found = pass->leaves.count;
    if (found > INLINE_LEAVES) {
        leaves = nd__pressure_alloc(2 * (size_t)found * sizeof *leaves);
        if (!leaves)
            return nd__error(ND_ERROR_OUT_OF_MEMORY,
                             "backward: no memory to list the gradients of %u leaves", found);
        gradients = leaves + found;
    }
    nd_status status = ND_OK;
    size_t count = 0;
    for (uint32_t i = 0; i < found && status == ND_OK; i++) {
        nd_pending_entry *entry = &pass->leaves.entries[i];
        nd_tensor *leaf = (nd_tensor *)entry->key;
        if (!entry->only) // handed over
            continue;
        status = nd__tensor_check_operand(pass->operation, "a leaf of the graph", leaf);
        if (status != ND_OK)
            break;
        // Whoever turned a leaf's requires_grad off since then wants no gradient there.
        if (!nd__tensor_has_own(leaf, ND__GRAD_REQUIRED))
            continue;
        nd_tensor *settled = nd__gradient_settle(pass->operation, nd_steal(&entry->only), leaf);
        if (!settled) {
            status = nd_error_get_status();
            break;
        }
        leaves[count] = leaf;
        gradients[count++] = settled;
    }
    if (status == ND_OK)
        status = nd__gradient_commit(pass->operation, leaves, gradients, count, pass->create_graph);
    if (status != ND_OK)
        for (size_t i = 0; i < count; i++)
            nd_release(gradients[i]);
    if (leaves != inline_leaves)
        nd__alloc_free(leaves);
    return status;
}

// -------------------------------------------------------------------------------------------------
// functional form

static nd_status run_grad(nd_pass *pass, const nd_tensor *output,
                          const nd_backward_options *options) {
    nd_tensor *seed = nd__gradient_seed(pass->operation, output, options->grad);
    return seed ? nd__engine_pass_run(pass, output, seed, NULL) : nd_error_get_status();
}

static nd_status make_targets(nd_pass *pass, const nd_tensor *const *inputs, size_t count) {
    if (count == 0)
        return ND_OK;
    if (count > SIZE_MAX / sizeof *pass->targets)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "grad: %zu inputs are too many", count);
    pass->targets = nd__pressure_alloc_zeroed(count * sizeof *pass->targets);
    if (!pass->targets)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "grad: no memory for a list of %zu inputs", count);
    for (size_t i = 0; i < count; i++) {
        char argument[32];
        snprintf(argument, sizeof argument, "inputs[%zu]", i);
        nd_status status = nd__tensor_check_operand("grad", argument, inputs[i]);
        if (status != ND_OK)
            return status;
        const nd_tensor *input = inputs[i];
        char shape[ND__SHAPE_TEXT];
        status = nd__rebase_refresh(input);
        if (status != ND_OK)
            return status;
        if (!nd__tensor_requires_grad(input))
            return nd__error(
                ND_ERROR_STATE, "grad: inputs[%zu], %s of shape %s, does not require a gradient", i,
                nd_dtype_get_name(input->dtype), nd__shape_text(shape, input->ndim, input->shape));
        nd_target *target = &pass->targets[pass->target_count++];
        target->source_is_node = input->node != NULL;
        target->source = nd_retain(target->source_is_node ? &input->node->header : &input->header);
        target->output_index = input->output_index;
    }
    return ND_OK;
}

/// Settles the gradients found; zeros for inputs that were reached by zero gradients only, but in the
/// pass of a checkpoint, where these have none, as without it.
static nd_status complete_targets(nd_pass *pass, const nd_tensor *const *inputs,
                                  bool allow_unused) {
    for (size_t i = 0; i < pass->target_count; i++) {
        nd_target *target = &pass->targets[i];
        if (target->gradient) {
            target->gradient = nd__gradient_settle("grad", nd_steal(&target->gradient), NULL);
        } else if (target->reached && !pass->are_parts) {
            nd_node_input described = nd__gradient_describe(inputs[i]);
            target->gradient = nd__rules_zeros_of(inputs[i], &described);
        } else if (allow_unused) {
            continue;
        } else {
            char shape[ND__SHAPE_TEXT];
            return nd__error(ND_ERROR_STATE,
                             "grad: the output does not depend on inputs[%zu], %s of shape %s "
                             "(allow_unused would give NULL for it)",
                             i, nd_dtype_get_name(inputs[i]->dtype),
                             nd__shape_text(shape, inputs[i]->ndim, inputs[i]->shape));
        }
        if (!target->gradient)
            return nd_error_get_status();
    }
    return ND_OK;
}
