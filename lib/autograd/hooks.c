// Hooks of tensors. A hook list is an object that never changes once published: registering makes
// a longer one and exchanges the edge, so that a pass that runs the hooks of the old one, and the
// collector that looks at it, need no lock.
//
// A leaf's list hangs on the leaf, a result's on its node, with the number of the output. The
// context of a hook is an edge: a hook that captured its owner makes a cycle that the collector
// can see.
#include "lib/autograd/autograd.h"

typedef struct nd_hook_entry {
    nd_hook hook;
    uint32_t output_index;
    nd_object *context; ///< edge, or NULL
} nd_hook_entry;

typedef struct nd_hooks {
    nd_object header;
    uint32_t count;
    nd_hook_entry entries[];
} nd_hooks;

static void hooks_traverse(const nd_object *self, nd_visitor *visitor);
static void hooks_clear(nd_object *self);
static nd_object **hooks_slot(nd_tensor *x);
static nd_object *snapshot(nd_object *const *slot);
static nd_status exchange(nd_tensor *x, nd_object **slot, const nd_object *expected,
                          nd_hooks *replacement, bool *ret_done);
static nd_hooks *hooks_new(size_t count);
static nd_status with_hook(const nd_hooks *old, nd_hook hook, const void *context,
                           uint32_t output_index, nd_hooks **ret_hooks);
static nd_status without_output(const nd_hooks *old, uint32_t output_index, nd_hooks **ret_hooks);

static const nd_type hooks_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "hooks",
    .traverse = hooks_traverse,
    .clear = hooks_clear,
};

nd_status nd_register_hook(nd_tensor *x, nd_hook hook, const void *context) {
    nd_status status = nd__check_operand("register_hook", "x", x);
    if (status != ND_OK)
        return status;
    if (!hook)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "register_hook: hook is NULL");
    if (!x->requires_grad && !x->node) {
        char shape[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_STATE,
                         "register_hook: x, %s of shape %s, does not require a gradient, so that "
                         "no hook of it would ever run",
                         nd_dtype_name(x->dtype), nd__shape_text(shape, x->ndim, x->shape));
    }
    nd_object **slot = hooks_slot(x);
    for (bool done = false; status == ND_OK && !done;) {
        nd_auto nd_object *old = snapshot(slot);
        nd_hooks *longer = NULL;
        status = with_hook((const nd_hooks *)old, hook, context, x->output_index, &longer);
        if (status == ND_OK)
            status = exchange(x, slot, old, longer, &done);
    }
    return status;
}

nd_status nd_remove_hooks(nd_tensor *x) {
    nd_status status = nd__check_operand("remove_hooks", "x", x);
    nd_object **slot = status == ND_OK ? hooks_slot(x) : NULL;
    for (bool done = false; status == ND_OK && !done;) {
        nd_auto nd_object *old = snapshot(slot);
        if (!old)
            return ND_OK;
        nd_hooks *shorter = NULL;
        status = without_output((const nd_hooks *)old, x->output_index, &shorter);
        if (status == ND_OK)
            status = exchange(x, slot, old, shorter, &done);
    }
    return status;
}

nd_status nd__run_hooks(const char *operation, nd_object *const *slot, uint32_t output_index,
                        const nd_node_input *input, nd_tensor **gradient) {
    nd_auto nd_object *held = snapshot(slot);
    const nd_hooks *hooks = (const nd_hooks *)held;
    if (!hooks || nd__is_closed(hooks))
        return ND_OK;
    for (uint32_t i = 0; i < hooks->count; i++) {
        const nd_hook_entry *entry = &hooks->entries[i];
        if (entry->output_index != output_index)
            continue;
        nd_tensor *replacement = entry->hook(*gradient, entry->context);
        if (!replacement)
            continue;
        char what[64];
        snprintf(what, sizeof what, "%s: the gradient returned by a hook", operation);
        nd_status status = nd__check_gradient(what, replacement, input);
        if (status != ND_OK) {
            nd_release(replacement);
            return status;
        }
        nd_release(*gradient);
        *gradient = replacement;
    }
    return ND_OK;
}

// --------------------------------------------------------------------------------------------------

static void hooks_traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_hooks *hooks = (const nd_hooks *)self;
    for (uint32_t i = 0; i < hooks->count; i++)
        nd_visit(visitor, hooks->entries[i].context, "hook");
}

static void hooks_clear(nd_object *self) {
    nd_hooks *hooks = (nd_hooks *)self;
    for (uint32_t i = 0; i < hooks->count; i++)
        nd_edge_clear(&hooks->entries[i].context);
}

static nd_object **hooks_slot(nd_tensor *x) {
    return x->node ? &x->node->hooks : &x->hooks;
}

/// What the slot holds, owned. The lock keeps it alive between the look and the retain.
static nd_object *snapshot(nd_object *const *slot) {
    nd__gradient_lock();
    nd_object *held = nd_retain(*slot);
    nd__gradient_unlock();
    return held;
}

/// Puts `replacement` (owned, consumed, may be NULL) in place of `expected`, unless somebody was
/// quicker.
static nd_status exchange(nd_tensor *x, nd_object **slot, const nd_object *expected,
                          nd_hooks *replacement, bool *ret_done) {
    nd_object *owner = x->node ? &x->node->header : &x->header;
    if (replacement) {
        nd_place place = nd__place_of(owner);
        nd_status status = nd__object_publish(&replacement->header, place.manager);
        nd__place_end(place);
        if (status != ND_OK) {
            nd_release(replacement);
            return status;
        }
        nd__object_track(owner);
    }
    nd_object *unused = (nd_object *)replacement;
    nd__gradient_lock();
    *ret_done = *slot == expected;
    if (*ret_done)
        unused = nd__edge_exchange(owner, slot, replacement);
    nd__gradient_unlock();
    nd_release(unused);
    return ND_OK;
}

static nd_hooks *hooks_new(size_t count) {
    return (nd_hooks *)nd__object_new(&hooks_type,
                                      sizeof(nd_hooks) + count * sizeof(nd_hook_entry));
}

/// Copy of `old` (may be NULL) with one hook more; still private.
static nd_status with_hook(const nd_hooks *old, nd_hook hook, const void *context,
                           uint32_t output_index, nd_hooks **ret_hooks) {
    uint32_t count = old ? old->count : 0;
    nd_hooks *longer = hooks_new((size_t)count + 1);
    if (!longer)
        return nd_error_status();
    for (uint32_t i = 0; i < count; i++) {
        longer->entries[i] = old->entries[i];
        longer->entries[i].context = nd_retain(old->entries[i].context);
    }
    longer->entries[count] =
        (nd_hook_entry){hook, output_index, nd_retain((const nd_object *)context)};
    longer->count = count + 1;
    *ret_hooks = longer;
    return ND_OK;
}

/// Copy of `old` without the hooks of one output; NULL when none is left.
static nd_status without_output(const nd_hooks *old, uint32_t output_index, nd_hooks **ret_hooks) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < old->count; i++)
        left += old->entries[i].output_index != output_index;
    if (left == 0)
        return ND_OK;
    nd_hooks *shorter = hooks_new(left);
    if (!shorter)
        return nd_error_status();
    for (uint32_t i = 0; i < old->count; i++)
        if (old->entries[i].output_index != output_index) {
            nd_hook_entry *entry = &shorter->entries[shorter->count++];
            *entry = old->entries[i];
            entry->context = nd_retain(old->entries[i].context);
        }
    *ret_hooks = shorter;
    return ND_OK;
}
