// Activation checkpointing (Chen et al. 2016): only the inputs of a function are kept for the
// backward pass, which runs the function once more.
//
// Invariant: the second run sees what the first did: the same inputs (an in-place change since is
// an error), the same random keys, the same autocast dtype. The gradients are those of the second
// run's graph, which lives for the length of one rule.
#include "lib/nn/checkpoint.h"
#include "lib/autograd/leaves.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/manager/place.h"
#include "lib/nn/parameters.h"
#include "lib/ops/autocast.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/nn.h>

#include <string.h>

typedef struct nd_key_frame {
    struct nd_key_frame *outer;
    bool replays;
    nd_key *keys; ///< noted, or to be handed out again
    size_t count, capacity, next;
} nd_key_frame;

static _Thread_local nd_key_frame *frames; ///< of this thread, innermost first

// What a node keeps of one call: its context object.
typedef struct nd_checkpoint_call {
    nd_object header;
    nd_checkpoint_function function;
    nd_object *context; ///< edge: the user's
    nd_key *keys;       ///< that the function drew
    size_t key_count;
    nd_dtype autocast;
    size_t aliased; ///< inputs that the second run gets as aliases; the others it finds by itself
    size_t count;
    struct {
        nd_tensor *tensor; ///< edge
        uint64_t version;
    } inputs[];
} nd_checkpoint_call;

static void traverse(const nd_object *self, nd_visitor *visitor);
static void clear(nd_object *self);
static void destroy(nd_object *self);
static const nd_type call_type = {.size = sizeof(nd_type),
                                  .version = 1,
                                  .name = "checkpoint",
                                  .traverse = traverse,
                                  .clear = clear,
                                  .destroy = destroy};

static nd_status forward(const nd_object *context, size_t ninputs, const nd_tensor *const *inputs,
                         size_t noutputs, nd_tensor **ret_outputs);
static nd_status backward(const nd_object *context, size_t noutputs,
                          const nd_tensor *const *grad_outputs, size_t ninputs,
                          nd_tensor **ret_grad_inputs);
static const nd_function checkpoint_function = {.size = sizeof(nd_function),
                                                .version = 1,
                                                .name = "checkpoint",
                                                .forward = forward,
                                                .backward = backward};

static nd_tensor *call_checkpointed(nd_checkpoint_function function, const void *context,
                                    size_t aliased, size_t count, const nd_tensor *const *inputs);
static nd_status check_versions(const nd_checkpoint_call *call);
static nd_tensor *run_again(const nd_checkpoint_call *call, nd_tensor *const *aliases);
static nd_tensor *alias_of(const nd_checkpoint_call *call, const nd_tensor *x, bool recorded);

/// The call whose second run is differentiated on this thread: gradients end at its inputs then, even
/// where one comes from another.
static _Thread_local const nd_checkpoint_call *differentiated;

static nd_status input_backward(const nd_object *context, size_t noutputs,
                                const nd_tensor *const *grad_outputs, size_t ninputs,
                                nd_tensor **ret_grad_inputs);
static const nd_function input_function = {.size = sizeof(nd_function),
                                           .version = 1,
                                           .name = "checkpoint_input",
                                           .backward = input_backward};

nd_tensor *nd_checkpoint(nd_checkpoint_function function, const void *context, size_t count,
                         const nd_tensor *const *inputs) {
    static const char operation[] = "checkpoint";
    if (!function || (count > 0 && !inputs)) {
        nd__error_null(operation, function ? "inputs" : "function");
        return NULL;
    }
    return call_checkpointed(function, context, count, count, inputs);
}

static nd_tensor *run_module(const nd_object *context, size_t count,
                             const nd_tensor *const *inputs) {
    (void)count;
    return nd_module_forward((const nd_module *)context, inputs[0]);
}

nd_tensor *nd_checkpoint_module(const nd_module *module, const nd_tensor *x) {
    static const char operation[] = "checkpoint_module";
    if (nd__tensor_check_operand(operation, "x", x) != ND_OK)
        return NULL;
    size_t count = 0;
    nd_tensor **parameters =
        nd__parameters_collect(operation, module, ND__MEMBER_PARAMETER, &count);
    const nd_tensor **inputs = parameters ? nd__pressure_alloc((count + 1) * sizeof *inputs) : NULL;
    if (parameters && !inputs)
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu inputs", operation,
                  count + 1);
    nd_tensor *y = NULL;
    if (inputs) {
        inputs[0] = x;
        for (size_t i = 0; i < count; i++)
            inputs[i + 1] = parameters[i];
        y = call_checkpointed(run_module, module, 1, count + 1, inputs);
    }
    nd__alloc_free(inputs);
    nd__alloc_free(parameters);
    return y;
}

/// Runs the function and records it as one node whose context has what a second run needs.
static nd_tensor *call_checkpointed(nd_checkpoint_function function, const void *context,
                                    size_t aliased, size_t count, const nd_tensor *const *inputs) {
    nd_checkpoint_call *call = (nd_checkpoint_call *)nd__object_new(
        &call_type, sizeof(*call) + count * sizeof(*call->inputs));
    if (!call)
        return NULL;
    call->function = function;
    call->context = nd_object_retain(context);
    call->autocast = nd__autocast_dtype;
    call->aliased = aliased;
    call->count = count;
    for (size_t i = 0; i < count; i++) {
        if (nd__tensor_check_operand("checkpoint", "an input", inputs[i]) != ND_OK) {
            nd_object_release(call);
            return NULL;
        }
        call->inputs[i].tensor = nd_retain(inputs[i]);
        call->inputs[i].version = nd__tensor_version(inputs[i]);
    }
    call = nd__place_publish_or_release(nd__place_begin(NULL, 0), &call->header);
    nd_tensor *output = NULL;
    if (call)
        nd_function_apply(&checkpoint_function, call, count, inputs, 1, &output);
    nd_object_release(call);
    return output;
}

/// Runs the function; NULL with an error.
static nd_tensor *run_function(const nd_checkpoint_call *call, const nd_tensor *const *inputs) {
    const unsigned errors = nd__error_count();
    nd_tensor *output = call->function(call->context, call->aliased, inputs);
    if (!output && nd__error_count() == errors)
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "checkpoint: the function gave no result and set no error");
    return output;
}

/// The first run, unrecorded; notes the keys that are drawn.
static nd_status forward(const nd_object *context, size_t ninputs, const nd_tensor *const *inputs,
                         size_t noutputs, nd_tensor **ret_outputs) {
    nd_checkpoint_call *call = (nd_checkpoint_call *)(uintptr_t)context;
    nd_key_frame frame = {.outer = frames};
    (void)noutputs;
    (void)ninputs;
    frames = &frame;
    *ret_outputs = run_function(call, inputs);
    frames = frame.outer;
    call->keys = frame.keys;
    call->key_count = frame.count;
    return *ret_outputs ? ND_OK : nd_error_get_status();
}

/// Whether the second run gave what the first one did.
static nd_status check_output(const nd_tensor *output, const nd_tensor *grad) {
    char again[ND__SHAPE_TEXT], before[ND__SHAPE_TEXT];
    if (output->ndim == grad->ndim &&
        memcmp(output->shape, grad->shape, (size_t)grad->ndim * sizeof *grad->shape) == 0 &&
        output->dtype == grad->dtype)
        return ND_OK;
    return nd__error(
        ND_ERROR_INVALID_ARGUMENT,
        "checkpoint: the function gave %s of shape %s when it was run again, and %s of "
        "shape %s before",
        nd_dtype_get_name(output->dtype), nd__shape_text(again, output->ndim, output->shape),
        nd_dtype_get_name(grad->dtype), nd__shape_text(before, grad->ndim, grad->shape));
}

/// The second run, recorded, and the gradients of its output.
static nd_status backward(const nd_object *context, size_t noutputs,
                          const nd_tensor *const *grad_outputs, size_t ninputs,
                          nd_tensor **ret_grad_inputs) {
    const nd_checkpoint_call *call = (const nd_checkpoint_call *)context;
    (void)noutputs;
    if (!grad_outputs[0])
        return ND_OK;
    nd_status status = check_versions(call);
    // Room for aliases, for those of which a gradient is wanted, and for the gradients.
    nd_tensor **room =
        status == ND_OK ? nd__pressure_alloc_zeroed(3 * (ninputs + 1) * sizeof *room) : NULL;
    if (status == ND_OK && !room)
        status =
            nd__error(ND_ERROR_OUT_OF_MEMORY, "checkpoint: no memory for %zu gradients", ninputs);
    if (status != ND_OK)
        return status;
    nd_tensor **aliases = room, **grads = room + 2 * (ninputs + 1);
    const nd_tensor **targets = (const nd_tensor **)(room + ninputs + 1);
    const bool create_graph = nd_is_grad_enabled();
    size_t count = 0;
    nd_grad_block block = nd__grad_block_begin(true);
    for (size_t i = 0; status == ND_OK && i < ninputs; i++) {
        const nd_tensor *x = call->inputs[i].tensor;
        aliases[i] = i < call->aliased ? alias_of(call, x, create_graph) : nd_retain(x);
        if (!aliases[i])
            status = nd_error_get_status();
        else if (nd_requires_grad(x))
            targets[count++] = aliases[i];
    }
    nd_auto nd_tensor *output = status == ND_OK ? run_again(call, aliases) : NULL;
    if (status == ND_OK && !output)
        status = nd_error_get_status();
    nd__grad_block_end(&block);
    if (status == ND_OK)
        status = check_output(output, grad_outputs[0]);
    if (status == ND_OK && nd_requires_grad(output)) {
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = create_graph;
        options.allow_unused = true;
        options.grad = grad_outputs[0];
        const nd_checkpoint_call *outer = differentiated;
        differentiated = call;
        nd__leaves_will_be_parts = true;
        status = nd_grad(output, count, targets, &options, grads);
        nd__leaves_will_be_parts = false; // where no pass began
        differentiated = outer;
    }
    for (size_t i = 0, k = 0; status == ND_OK && i < ninputs; i++)
        if (nd_requires_grad(call->inputs[i].tensor))
            ret_grad_inputs[i] = grads[k++];
    for (size_t i = 0; i < ninputs; i++)
        nd_release(aliases[i]);
    nd__alloc_free(room);
    return status;
}

static nd_status check_versions(const nd_checkpoint_call *call) {
    for (size_t i = 0; i < call->count; i++) {
        const nd_tensor *x = call->inputs[i].tensor;
        nd_status status = nd__tensor_check_operand("checkpoint", "an input", x);
        if (status != ND_OK)
            return status;
        if (nd__tensor_version(x) != call->inputs[i].version)
            return nd__error(ND_ERROR_STATE,
                             "checkpoint: input %zu was changed in place: version %llu, kept at "
                             "%llu",
                             i, (unsigned long long)nd__tensor_version(x),
                             (unsigned long long)call->inputs[i].version);
    }
    return ND_OK;
}

static nd_tensor *run_again(const nd_checkpoint_call *call, nd_tensor *const *aliases) {
    nd_key_frame frame = {
        .outer = frames, .replays = true, .keys = call->keys, .count = call->key_count};
    nd_autocast_block block = nd__autocast_block_begin(call->autocast);
    frames = &frame;
    nd_tensor *output = run_function(call, (const nd_tensor *const *)aliases);
    frames = frame.outer;
    nd__autocast_block_end(&block);
    return output;
}

/// An alias has the input's history for every pass but that over the call's own second run.
static nd_status input_backward(const nd_object *context, size_t noutputs,
                                const nd_tensor *const *grad_outputs, size_t ninputs,
                                nd_tensor **ret_grad_inputs) {
    (void)noutputs, (void)ninputs;
    if (context != (const nd_object *)differentiated)
        *ret_grad_inputs = nd_retain(grad_outputs[0]);
    return ND_OK;
}

/// x without its history for a plain pass, and with it when the pass itself is recorded.
static nd_tensor *alias_of(const nd_checkpoint_call *call, const nd_tensor *x, bool recorded) {
    nd_auto nd_tensor *alias = nd_detach(x);
    if (!alias || !nd_requires_grad(x))
        return nd_steal(&alias);
    nd_status status = recorded
                           ? nd__record_function(&input_function, &call->header, &alias, 1, &x, 1)
                           : nd_set_requires_grad(alias, true);
    return status == ND_OK ? nd_steal(&alias) : NULL;
}

// -------------------------------------------------------------------------------------------------
// keys

bool nd__checkpoint_is_replaying(void) {
    for (const nd_key_frame *frame = frames; frame; frame = frame->outer)
        if (frame->replays)
            return true;
    return false;
}

static bool is_same(nd_key a, nd_key b) {
    return a.seed == b.seed && a.stream == b.stream;
}

void nd__checkpoint_give_back(const nd_module *of, const nd_key *key) {
    nd_module *module = (nd_module *)(uintptr_t)of;
    for (nd_key_frame *frame = frames; frame; frame = frame->outer) {
        size_t *used = frame->replays ? &frame->next : &frame->count;
        if (*used == 0 || !is_same(frame->keys[*used - 1], *key))
            return;
        --*used;
        if (frame->replays)
            return;
    }
    uint64_t drawn = atomic_load_explicit(&module->drawn, memory_order_relaxed);
    if (drawn > 0 && is_same(nd_key_fold(module->key, drawn - 1), *key))
        atomic_compare_exchange_strong_explicit(&module->drawn, &drawn, drawn - 1,
                                                memory_order_relaxed, memory_order_relaxed);
}

static nd_status draw(const char *operation, nd_key_frame *frame, nd_module *module,
                      nd_key *ret_key) {
    if (!frame) {
        const uint64_t number = atomic_fetch_add_explicit(&module->drawn, 1, memory_order_relaxed);
        *ret_key = nd_key_fold(module->key, number);
        return ND_OK;
    }
    if (frame->replays) {
        if (frame->next == frame->count)
            return nd__error(ND_ERROR_STATE,
                             "%s: a checkpoint's function draws more keys in its second run",
                             operation);
        *ret_key = frame->keys[frame->next++];
        return ND_OK;
    }
    if (frame->count == frame->capacity) {
        const size_t capacity = frame->capacity ? 2 * frame->capacity : 8;
        nd_key *keys = nd__pressure_alloc_resize(frame->keys, capacity * sizeof *keys);
        if (!keys)
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu keys", operation,
                             capacity);
        frame->keys = keys;
        frame->capacity = capacity;
    }
    nd_status status = draw(operation, frame->outer, module, ret_key);
    if (status == ND_OK)
        frame->keys[frame->count++] = *ret_key;
    return status;
}

nd_status nd__checkpoint_draw(const char *operation, nd_module *module, nd_key *ret_key) {
    return draw(operation, frames, module, ret_key);
}

// -------------------------------------------------------------------------------------------------
// the object

static void traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_checkpoint_call *call = (const nd_checkpoint_call *)self;
    nd_visit(visitor, call->context, "context");
    for (size_t i = 0; i < call->count; i++)
        nd_visit(visitor, call->inputs[i].tensor, "input");
}

static void clear(nd_object *self) {
    nd_checkpoint_call *call = (nd_checkpoint_call *)self;
    nd_edge_clear(&call->context);
    for (size_t i = 0; i < call->count; i++)
        nd_edge_clear(&call->inputs[i].tensor);
}

static void destroy(nd_object *self) {
    nd_checkpoint_call *call = (nd_checkpoint_call *)self;
    nd__alloc_free(call->keys);
    call->keys = NULL;
    call->key_count = 0;
}
