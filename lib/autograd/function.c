// User-defined differentiable functions: running forward, recording one node for all outputs, and
// calling backward as that node's rule.
//
// A function's code is not trusted: what it returns is checked, what it leaves behind on failure is
// released, and an output that has history, or that shares memory with an input or another output, is
// copied. So recording changes no tensor that others differentiate, and no write changes two of which
// one has its history. An output that the context saves is not: the two make a cycle (G18).
#include "lib/autograd/rules.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/record.h"

static nd_status check_arguments(const nd_function *function, size_t ninputs,
                                 const nd_tensor *const *inputs, size_t noutputs,
                                 nd_tensor **ret_outputs);
static nd_status run_forward(const nd_function *function, nd_object *context,
                             const nd_tensor *const *inputs, size_t ninputs, nd_tensor **outputs,
                             size_t noutputs);
static nd_status own_outputs(const nd_function *function, const nd_tensor *const *inputs,
                             size_t ninputs, nd_tensor **outputs, size_t noutputs);
static bool has_history(const nd_tensor *output);
static bool shares_memory(const nd_tensor *output, const nd_tensor *const *inputs, size_t ninputs,
                          nd_tensor *const *outputs, size_t before);
static nd_status user_failure(const char *name, const char *part, nd_status status);

nd_status nd_function_apply(const nd_function *function, const void *context, size_t ninputs,
                            const nd_tensor *const *inputs, size_t noutputs,
                            nd_tensor **ret_outputs) {
    ND__UNCANCELLED;
    nd_status status = check_arguments(function, ninputs, inputs, noutputs, ret_outputs);
    if (status != ND_OK)
        return status;
    nd_tensor **outputs = nd__pressure_alloc_zeroed(noutputs * sizeof *outputs);
    if (!outputs)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu outputs",
                         function->name, noutputs);
    nd_object *held = (nd_object *)(uintptr_t)context;
    status = run_forward(function, held, inputs, ninputs, outputs, noutputs);
    if (status == ND_OK)
        status = nd__record_function(function, held, outputs, noutputs, inputs, ninputs);
    for (size_t i = 0; i < noutputs; i++) {
        if (status == ND_OK)
            ret_outputs[i] = outputs[i];
        else
            nd_release(outputs[i]);
    }
    nd__alloc_free(outputs);
    return status;
}

/// Runs backward with an error of its own, which begins empty: with that it says that a NULL is not
/// a gradient of zero but what a failure inside has left; else it is forgotten.
static nd_status run_backward(const nd_rule_call *call) {
    const nd_node *node = call->node;
    nd_error_state own, *outer;
    nd__error_begin(&own, &outer);
    nd_status status = node->function->backward(node->context, node->noutputs,
                                                (const nd_tensor *const *)call->grads,
                                                node->ninputs, call->ret_grads);
    nd__error_end(outer);
    for (uint32_t i = 0; i < node->ninputs && status == ND_OK; i++)
        if (call->wanted[i] && !call->ret_grads[i])
            status = own.status;
    if (status == ND_OK)
        return ND_OK;
    nd__error_restore(&own);
    return user_failure(node->function->name, "backward", status);
}

/// The rule of a user function's node.
nd_status nd__rule_function(const nd_rule_call *call) {
    const nd_node *node = call->node;
    const nd_function *function = node->function;
    nd_status status = run_backward(call);
    if (status != ND_OK)
        return status;
    for (uint32_t i = 0; i < node->ninputs; i++) {
        if (!call->wanted[i] || !call->ret_grads[i])
            continue;
        char what[128];
        snprintf(what, sizeof what, "%s: the gradient that backward wrote for input %u",
                 function->name, i);
        status = nd__gradient_check(what, call->ret_grads[i], &node->inputs[i]);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------

static nd_status check_arguments(const nd_function *function, size_t ninputs,
                                 const nd_tensor *const *inputs, size_t noutputs,
                                 nd_tensor **ret_outputs) {
    if (!function)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "function_apply: function is NULL");
    nd_status status =
        nd__versioned_check_kept("function_apply", "nd_function", function, sizeof *function);
    if (status != ND_OK)
        return status;
    if (!function->name || !function->forward || !function->backward)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "function_apply: a function needs a name, a forward and a backward");
    if (noutputs == 0 || noutputs > INT32_MAX || ninputs > INT32_MAX)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: %zu inputs and %zu outputs are out of range", function->name, ninputs,
                         noutputs);
    if (ninputs > 0 && !inputs)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: inputs is NULL", function->name);
    if (!ret_outputs)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: ret_outputs is NULL", function->name);
    for (size_t i = 0; i < ninputs; i++) {
        char argument[32];
        snprintf(argument, sizeof argument, "inputs[%zu]", i);
        nd_status status = nd__tensor_check_operand(function->name, argument, inputs[i]);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

static nd_status run_forward(const nd_function *function, nd_object *context,
                             const nd_tensor *const *inputs, size_t ninputs, nd_tensor **outputs,
                             size_t noutputs) {
    nd_grad_block block = nd__grad_block_begin(false);
    nd_status status = function->forward(context, ninputs, inputs, noutputs, outputs);
    if (status != ND_OK)
        status = user_failure(function->name, "forward", status);
    else
        status = own_outputs(function, inputs, ninputs, outputs, noutputs);
    nd__grad_block_end(&block);
    return status;
}

/// Every output is there, open, and nobody else's tensor.
static nd_status own_outputs(const nd_function *function, const nd_tensor *const *inputs,
                             size_t ninputs, nd_tensor **outputs, size_t noutputs) {
    ND__ERROR_NAMED(function->name);
    for (size_t i = 0; i < noutputs; i++) {
        if (!outputs[i])
            return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: forward wrote no output %zu of %zu",
                             function->name, i, noutputs);
        nd_status status =
            nd__tensor_check_operand(function->name, "an output of forward", outputs[i]);
        if (status != ND_OK)
            return status;
        const bool is_shared = shares_memory(outputs[i], inputs, ninputs, outputs, i);
        if (is_shared || has_history(outputs[i])) {
            nd_tensor *own = nd_clone(outputs[i]);
            if (!own)
                return nd_error_get_status();
            nd_release(outputs[i]);
            outputs[i] = own;
        }
    }
    return ND_OK;
}

static bool has_history(const nd_tensor *output) {
    return output->node || output->base || nd__tensor_has_own(output, ND__GRAD_REQUIRED);
}

static bool shares_memory(const nd_tensor *output, const nd_tensor *const *inputs, size_t ninputs,
                          nd_tensor *const *outputs, size_t before) {
    for (size_t i = 0; i < ninputs; i++)
        if (output == inputs[i] || nd__tensor_share_storage(output, inputs[i]))
            return true;
    for (size_t i = 0; i < before; i++)
        if (output == outputs[i] || nd__tensor_share_storage(output, outputs[i]))
            return true;
    return false;
}

/// Keeps the sentence of the operation that failed inside the user's code, when there is one.
static nd_status user_failure(const char *name, const char *part, nd_status status) {
    if (nd_error_get_status() == status)
        return status;
    return nd__error(status, "%s: %s answered %s", name, part, nd_status_get_name(status));
}
