// Gradients as tensors hold them: reading, setting, and the step that ends a backward pass.
//
// A leaf's grad slot is an edge of a published object: it changes inside the gate, and under the
// gradient lock, so that two passes over the same leaf add up. What the slot held is released after
// the lock is given back, because a release may run anybody's destructor.
#include "lib/autograd/autograd.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/versioned.h"
#include "lib/device/registry.h"
#include "lib/manager/member.h"
#include "lib/manager/place.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"
#include <pthread.h>
#include <stddef.h>

enum { INLINE_SLOTS = 16 };

static pthread_mutex_t gradient_mutex = PTHREAD_MUTEX_INITIALIZER;

static void unlock_after_fork(bool child) {
    if (child)
        pthread_mutex_init(&gradient_mutex, NULL);
    else
        nd__gradient_unlock();
}
ND__FORK_PART(fork_gradients, ND__FORK_GRADIENTS, NULL, 0, 0, nd__gradient_lock, unlock_after_fork,
              NULL);

static uint32_t count_of(const nd_object *object);
static bool same_shape(const nd_tensor *x, const nd_node_input *input);
static nd_status add_existing(const char *operation, nd_tensor *gradient,
                              const nd_tensor *existing);
static void swap_in(nd_tensor *const *leaves, nd_tensor **gradients, size_t count);
static nd_status commit_plain(const char *operation, nd_tensor *const *leaves,
                              nd_tensor **gradients, size_t count);
static nd_status commit_recorded(const char *operation, nd_tensor *const *leaves,
                                 nd_tensor **gradients, size_t count, nd_tensor **seen,
                                 nd_tensor **totals);
static nd_status recorded_totals(const char *operation, nd_tensor *const *leaves,
                                 nd_tensor *const *gradients, size_t count, nd_tensor *const *seen,
                                 nd_tensor **totals);

// -------------------------------------------------------------------------------------------------
// public

const nd_tensor *nd_get_grad(const nd_tensor *x) {
    return x ? x->grad : NULL;
}

nd_status nd__gradient_check_leaf(const char *operation, const nd_tensor *x,
                                  const nd_tensor *grad) {
    nd_status status = nd__tensor_check_operand(operation, "grad", grad);
    if (status != ND_OK)
        return status;
    if (!nd_is_leaf(x))
        return nd__error(ND_ERROR_STATE,
                         "%s: x is the result of '%s'; only a leaf holds a gradient", operation,
                         nd_node_get_name(nd_get_node(x)));
    if (grad == x)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a tensor cannot be its own gradient",
                         operation);
    char what[48];
    snprintf(what, sizeof what, "%s: grad", operation);
    nd_node_input described = nd__gradient_describe(x);
    return nd__gradient_check(what, grad, &described);
}

nd_status nd_set_grad(nd_tensor *x, const nd_tensor *grad) {
    nd_status status = nd__tensor_check_operand("set_grad", "x", x);
    if (status == ND_OK && grad)
        status = nd__gradient_check_leaf("set_grad", x, grad);
    if (status != ND_OK)
        return status;
    if (grad)
        nd__member_track(&x->header);
    nd_tensor *retained = nd_retain(grad);
    nd__gradient_lock();
    nd_tensor *previous = nd__gradient_edge_exchange(&x->header, &x->grad, retained);
    if (!retained && nd__tensor_has_own(x, ND__GRAD_DIVIDED))
        nd__tensor_set_own(x, ND__GRAD_DIVIDED, false);
    nd__gradient_unlock();
    nd_release(previous);
    return ND_OK;
}

nd_status nd_zero_grad(nd_tensor *x) {
    nd_status status = nd__tensor_check_operand("zero_grad", "x", x);
    return status == ND_OK ? nd_set_grad(x, NULL) : status;
}

// -------------------------------------------------------------------------------------------------
// checks

bool nd__gradient_exclusively_owned(const nd_tensor *x) {
    if (nd__object_is_closed(x) || !nd__tensor_is_contiguous(x) || count_of(&x->header) != 1 ||
        nd__tensor_base(x)) // whose storage it may borrow
        return false;
    const nd_storage *storage = nd__tensor_storage_now(x);
    return !storage ||
           (count_of(&storage->accounted.header) == 1 && !storage->borrowed && !storage->free);
}

nd_status nd__gradient_check(const char *what, const nd_tensor *gradient,
                             const nd_node_input *input) {
    nd_status status = nd__tensor_check_operand(what, "the gradient", gradient);
    if (status != ND_OK)
        return status;
    char expected[ND__SHAPE_TEXT];
    char given[ND__SHAPE_TEXT];
    if (!same_shape(gradient, input))
        return nd__error(ND_ERROR_SHAPE, "%s has shape %s; it must be %s", what,
                         nd__shape_text(given, gradient->ndim, gradient->shape),
                         nd__shape_text(expected, input->ndim, input->shape));
    if (gradient->dtype != input->dtype)
        return nd__error(ND_ERROR_DTYPE, "%s of shape %s is %s; it must be %s", what,
                         nd__shape_text(given, gradient->ndim, gradient->shape),
                         nd_dtype_get_name(gradient->dtype), nd_dtype_get_name(input->dtype));
    if (gradient->device.kind != input->device.kind ||
        gradient->device.index != input->device.index) {
        // The text of a device may share one buffer per thread, so it is taken one at a time.
        char device[32];
        snprintf(device, sizeof device, "%s", nd__registry_device_text(gradient->device));
        return nd__error(ND_ERROR_DEVICE, "%s of shape %s is on %s; it must be on %s", what,
                         nd__shape_text(given, gradient->ndim, gradient->shape), device,
                         nd__registry_device_text(input->device));
    }
    return ND_OK;
}

nd_node_input nd__gradient_describe(const nd_tensor *x) {
    nd_node_input input = {
        .dtype = x->dtype, .device = x->device, .ndim = x->ndim, .output_index = x->output_index};
    for (int i = 0; i < x->ndim; i++)
        input.shape[i] = x->shape[i];
    return input;
}

nd_status nd__gradient_read_options(const char *operation, const nd_backward_options *options,
                                    nd_backward_options *ret_options) {
    *ret_options = (nd_backward_options)ND_BACKWARD_OPTIONS_INIT;
    return nd__versioned_read(operation, "ND_BACKWARD_OPTIONS_INIT", options, ret_options,
                              sizeof *ret_options);
}

nd_tensor *nd__gradient_seed(const char *operation, const nd_tensor *output,
                             const nd_tensor *grad) {
    char shape[ND__SHAPE_TEXT];
    if (grad) {
        char what[48];
        snprintf(what, sizeof what, "%s: options.grad", operation);
        nd_node_input described = nd__gradient_describe(output);
        return nd__gradient_check(what, grad, &described) == ND_OK ? nd_retain(grad) : NULL;
    }
    if (output->numel != 1) {
        nd__error(ND_ERROR_SHAPE,
                  "%s: an output of shape %s has no gradient of its own; sum it to one element or "
                  "set options.grad",
                  operation, nd__shape_text(shape, output->ndim, output->shape));
        return NULL;
    }
    nd_auto nd_tensor *seed = nd__tensor_result(operation, &output, 1, output->device,
                                                output->dtype, output->ndim, output->shape);
    if (!seed || nd_fill_(seed, 1.0) != ND_OK)
        return NULL;
    return nd_steal(&seed);
}

// -------------------------------------------------------------------------------------------------
// settling and committing

/// Moves a gradient to where its leaf is, or will be once the closes that have begun are done.
static nd_status move_home(nd_tensor *gradient, const nd_tensor *home) {
    nd_error_state before;
    const bool has_error = nd_error_get_status() != ND_OK;
    if (has_error)
        nd__error_save(&before);
    for (;;) {
        nd_place place = nd__place_of(&home->header);
        nd_manager *target = nd__manager_nearest_open(place.manager);
        nd_status status = ND_OK;
        if (target != nd_get_manager(gradient))
            status = nd_manager_attach(target, gradient);
        const bool closed = status == ND_ERROR_CLOSED && !nd__manager_open(target);
        nd__place_end(place);
        if (!closed)
            return status;
        if (has_error) // another thread has closed it meanwhile
            nd__error_restore(&before);
        else
            nd_error_clear();
    }
}

nd_tensor *nd__gradient_settle(const char *operation, nd_tensor *gradient, const nd_tensor *home) {
    nd_auto nd_tensor *settled = gradient;
    if (!nd_is_grad_enabled() && nd__tensor_requires_grad(settled)) {
        // A hook or user function that recorded on its own: its history is not asked for.
        nd_tensor *plain = nd_detach(settled);
        nd_release(settled);
        settled = plain;
        if (!settled)
            return NULL;
    }
    size_t bytes = (size_t)settled->numel * nd_dtype_get_size(settled->dtype);
    if (!nd__gradient_exclusively_owned(settled) ||
        nd_get_storage_bytes(settled) > 2 * bytes + 64) {
        nd_tensor *copy = nd_clone(settled);
        nd_release(settled);
        settled = copy;
        if (!settled)
            return NULL;
    }
    if (home && move_home(settled, home) != ND_OK)
        return NULL;
    (void)operation;
    return nd_steal(&settled);
}

nd_status nd__gradient_commit(const char *operation, nd_tensor *const *leaves,
                              nd_tensor **gradients, size_t count, bool create_graph) {
    for (size_t i = 0; i < count; i++)
        nd__member_track(&leaves[i]->header);
    if (!create_graph)
        return commit_plain(operation, leaves, gradients, count);
    nd_tensor *inline_slots[2 * INLINE_SLOTS];
    nd_tensor **slots = inline_slots;
    if (count > INLINE_SLOTS) {
        slots = nd__pressure_alloc(2 * count * sizeof *slots);
        if (!slots)
            return nd__error(ND_ERROR_OUT_OF_MEMORY,
                             "%s: no memory to add the gradients of %zu leaves", operation, count);
    }
    nd_status status = commit_recorded(operation, leaves, gradients, count, slots, slots + count);
    if (slots != inline_slots)
        nd__alloc_free(slots);
    return status;
}

void nd__gradient_lock(void) {
    pthread_mutex_lock(&gradient_mutex);
}

void nd__gradient_unlock(void) {
    pthread_mutex_unlock(&gradient_mutex);
}

void *nd__gradient_edge_exchange(nd_object *owner, void *slot, void *value) {
    void **edge = slot;
    if (nd__object_is_closing(owner))
        return value;
    nd__gate_enter();
    void *previous = *edge;
    __atomic_store_n(edge, value, __ATOMIC_RELAXED);
    nd__object_note_moved(previous);
    nd__gate_leave();
    return previous;
}

// -------------------------------------------------------------------------------------------------

static uint32_t count_of(const nd_object *object) {
    return (uint32_t)atomic_load_explicit(&((nd_object *)(uintptr_t)object)->word,
                                          memory_order_acquire);
}

static bool same_shape(const nd_tensor *x, const nd_node_input *input) {
    if (x->ndim != input->ndim)
        return false;
    for (int i = 0; i < input->ndim; i++)
        if (x->shape[i] != input->shape[i])
            return false;
    return true;
}

/// Gradients are of what the leaf was where the graph used it, which a module's parameters need not
/// be any more (nd_module_to, nd_module_cast).
static nd_status check_leaf(const char *operation, const nd_tensor *leaf,
                            const nd_tensor *gradient) {
    nd_status status = nd__tensor_check_operand(operation, "a leaf", leaf);
    if (status != ND_OK ||
        (leaf->dtype == gradient->dtype && leaf->device.kind == gradient->device.kind &&
         leaf->device.index == gradient->device.index))
        return status;
    char shape[ND__SHAPE_TEXT], device[32];
    snprintf(device, sizeof device, "%s", nd__registry_device_text(leaf->device));
    return nd__error(
        ND_ERROR_STATE,
        "%s: a leaf of shape %s was cast or moved since the graph was made: it is %s on "
        "%s, and the gradient %s on %s",
        operation, nd__shape_text(shape, leaf->ndim, leaf->shape), nd_dtype_get_name(leaf->dtype),
        device, nd_dtype_get_name(gradient->dtype), nd__registry_device_text(gradient->device));
}

/// A hook, or a callback for memory, may have closed one.
static nd_status check_leaves(const char *operation, nd_tensor *const *leaves,
                              nd_tensor *const *gradients, size_t count) {
    nd_status status = ND_OK;
    for (size_t i = 0; i < count && status == ND_OK; i++)
        status = check_leaf(operation, leaves[i], gradients[i]);
    return status;
}

/// The new gradients take the old ones' values in; then slots and gradients change places, which
/// cannot fail. Until then no leaf has changed.
static nd_status commit_plain(const char *operation, nd_tensor *const *leaves,
                              nd_tensor **gradients, size_t count) {
    nd__gradient_lock();
    nd_status status = check_leaves(operation, leaves, gradients, count);
    for (size_t i = 0; i < count && status == ND_OK; i++)
        if (leaves[i]->grad)
            status = add_existing(operation, gradients[i], leaves[i]->grad);
    if (status == ND_OK)
        swap_in(leaves, gradients, count);
    nd__gradient_unlock();
    if (status == ND_OK)
        for (size_t i = 0; i < count; i++)
            nd_release(gradients[i]);
    return status;
}

/// gradient += existing, by one kernel: nothing is allocated or recorded.
static nd_status add_existing(const char *operation, nd_tensor *gradient,
                              const nd_tensor *existing) {
    nd_status status = nd__tensor_check_operand(operation, "the gradient of a leaf", existing);
    if (status != ND_OK)
        return status;
    nd_kernel_call call = {.op = ND_OP_add, .noperands = 3, .ndim = gradient->ndim};
    for (int i = 0; i < gradient->ndim; i++)
        call.shape[i] = gradient->shape[i];
    call.operand[0] = nd__shape_broadcast_operand(gradient, gradient->ndim, gradient->shape);
    call.operand[1] = call.operand[0];
    call.operand[2] = nd__shape_broadcast_operand(existing, gradient->ndim, gradient->shape);
    nd__shape_collapse(&call);
    return nd__launch(operation, gradient->device, &call);
}

/// Afterwards gradients[] holds what the leaves had.
static void swap_in(nd_tensor *const *leaves, nd_tensor **gradients, size_t count) {
    for (size_t i = 0; i < count; i++)
        gradients[i] =
            nd__gradient_edge_exchange(&leaves[i]->header, &leaves[i]->grad, gradients[i]);
}

/// A recorded sum allocates, so it is made without the lock and kept when the leaves still have
/// the gradients it was made of; else it is made again. Each turn means that another pass got
/// through.
static nd_status commit_recorded(const char *operation, nd_tensor *const *leaves,
                                 nd_tensor **gradients, size_t count, nd_tensor **seen,
                                 nd_tensor **totals) {
    nd_status status = ND_OK;
    for (bool done = false; !done && status == ND_OK;) {
        nd__gradient_lock();
        status = check_leaves(operation, leaves, gradients, count);
        for (size_t i = 0; i < count; i++)
            seen[i] = nd_retain(leaves[i]->grad);
        nd__gradient_unlock();
        for (size_t i = 0; i < count; i++)
            totals[i] = NULL;
        if (status == ND_OK)
            status = recorded_totals(operation, leaves, gradients, count, seen, totals);
        if (status == ND_OK) {
            nd__gradient_lock();
            status = check_leaves(operation, leaves, totals, count);
            done = status == ND_OK;
            for (size_t i = 0; i < count; i++)
                done = done && leaves[i]->grad == seen[i];
            if (done)
                swap_in(leaves, totals, count);
            nd__gradient_unlock();
        }
        for (size_t i = 0; i < count; i++) {
            nd_release(seen[i]);
            nd_release(totals[i]);
        }
    }
    if (status == ND_OK)
        for (size_t i = 0; i < count; i++)
            nd_release(gradients[i]);
    return status;
}

static nd_status recorded_totals(const char *operation, nd_tensor *const *leaves,
                                 nd_tensor *const *gradients, size_t count, nd_tensor *const *seen,
                                 nd_tensor **totals) {
    for (size_t i = 0; i < count; i++) {
        if (seen[i]) {
            nd_tensor *sum = nd_add(seen[i], gradients[i]);
            totals[i] = sum ? nd__gradient_settle(operation, sum, leaves[i]) : NULL;
            if (!totals[i])
                return nd_error_get_status();
        } else {
            totals[i] = nd_retain(gradients[i]);
        }
    }
    return ND_OK;
}
