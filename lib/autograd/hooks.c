// Hooks of tensors.
//
//   list     an object: what a leaf's `hooks`, or those of a result's node, points to. There while it
//            has hooks; a node's has those of all outputs
//   entry    a hook, in a slot of the list's array. Entries in use are linked in the order of their
//            registration, the others wait to be used again
//   id       which entry, and of which registration: says at once whether a hook is still there
//
// Invariant: the list behind a slot, and what is in a list, change under the gradient lock, edges
// and the array inside the gate as well. A pass copies the hooks it is about to run, so that these
// may register and remove others. The context of a hook is an edge: a hook that captured its owner
// makes a cycle that the collector can see.
#include "lib/autograd/autograd.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/manager/member.h"
#include "lib/manager/place.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/rebase.h"
#include "lib/tensor/shape.h"

typedef struct nd_hook_entry {
    nd_hook hook;        ///< NULL: not in use
    nd_object *context;  ///< edge, or NULL
    const nd_tensor *of; ///< whose: compared, never followed
    uint64_t id;
    uint32_t output_index;
    uint32_t next, previous; ///< entries, or NONE
} nd_hook_entry;

typedef struct nd_hooks {
    nd_object header;
    nd_hook_entry *entries;
    uint32_t capacity, used; ///< places: all, and those that an entry was ever in
    uint32_t count;          ///< hooks
    uint32_t first, last;    ///< in the order in which they run
    uint32_t unused;         ///< first of the places that are free again
} nd_hooks;

#define NONE UINT32_MAX
/// An id is its place and, above that, how many hooks were registered before.
enum { PLACE_BITS = 24, PLACES = 1 << PLACE_BITS };

static void hooks_traverse(const nd_object *self, nd_visitor *visitor);
static void hooks_clear(nd_object *self);
static void hooks_destroy(nd_object *self);
static nd_status check_hook(const char *operation, const nd_tensor *x, nd_hook hook);
static nd_object **hooks_slot(nd_tensor *x);
static nd_object *hooks_owner(nd_tensor *x);
static nd_hooks *hooks_in(nd_object *const *slot);
static bool has_room(const nd_hooks *hooks);
static nd_status make_room(const char *operation, nd_tensor *x, nd_object **slot,
                           uint32_t capacity);
static uint64_t put(nd_hooks *hooks, nd_hook hook, nd_object *context, const nd_tensor *x);
static nd_object *take(nd_hooks *hooks, uint32_t place);
static nd_object *drop_if_empty(nd_object *owner, nd_object **slot);

static const nd_type hooks_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "hooks",
    .traverse = hooks_traverse,
    .clear = hooks_clear,
    .destroy = hooks_destroy,
};

static nd_status add(const char *operation, nd_tensor *x, nd_hook hook, const void *context,
                     uint64_t *ret_id) {
    nd_status status = check_hook(operation, x, hook);
    if (status != ND_OK)
        return status;
    nd_object **slot = hooks_slot(x);
    nd_object *held = nd_retain((const nd_object *)context);
    uint64_t id = 0;
    while (status == ND_OK && id == 0) {
        uint32_t capacity = 4;
        nd__gradient_lock();
        nd_hooks *hooks = hooks_in(slot);
        if (hooks && has_room(hooks))
            id = put(hooks, hook, held, x);
        else if (hooks)
            capacity = 2 * hooks->capacity;
        nd__gradient_unlock();
        if (id == 0)
            status = make_room(operation, x, slot, capacity);
    }
    if (status != ND_OK)
        nd_release(held);
    else if (ret_id)
        *ret_id = id;
    return status;
}

nd_status nd_register_hook(nd_tensor *x, nd_hook hook, const void *context) {
    return add("register_hook", x, hook, context, NULL);
}

nd_status nd_add_hook(nd_tensor *x, nd_hook hook, const void *context, uint64_t *ret_id) {
    return add("add_hook", x, hook, context, ret_id);
}

/// Removes one from the list in a slot; false: it is not there.
static bool remove_from(nd_object *owner, nd_object **slot, const nd_tensor *x, uint64_t id) {
    nd_object *context = NULL, *list = NULL;
    uint32_t place = (uint32_t)(id % PLACES);
    nd__gradient_lock();
    nd_hooks *hooks = hooks_in(slot);
    bool found = hooks && place < hooks->used && hooks->entries[place].hook &&
                 hooks->entries[place].id == id && hooks->entries[place].of == x;
    if (found) {
        context = take(hooks, place);
        list = drop_if_empty(owner, slot);
    }
    nd__gradient_unlock();
    nd_release(context);
    nd_release(list);
    return found;
}

static nd_node *source_of(const nd_node *node, uint32_t input) {
    return node && input < node->ninputs && node->inputs[input].source_is_node
               ? (nd_node *)node->inputs[input].source
               : NULL;
}

/// Where a node is a write in place, the value that it wrote over.
static nd_node *value_before(const nd_node *node) {
    return source_of(node, node && node->op == ND_OP_where ? 2 : 0);
}

static bool remove_from_node(nd_node *node, const nd_tensor *x, uint64_t id) {
    return node && nd__autograd_edge_is_set(&node->hooks) &&
           remove_from(&node->header, &node->hooks, x, id);
}

/// Removes one from the value that a node made, or from one that x had before it was written in place:
/// a write's first input, the third one of a choice (nd_masked_fill_). What was written through a view
/// is the second input of what its base is then, and the only one where that was all of the base.
static bool remove_before(nd_node *node, const nd_tensor *x, uint64_t id) {
    while (node) {
        if (remove_from_node(node, x, id))
            return true;
        nd_node *written = NULL;
        if (node->op == ND_OP_as_strided_scatter) {
            written = value_before(source_of(node, 1));
            bool found = remove_from_node(written, x, id);
            while (!found && written && written->op == ND_OP_clone) { // of the value, for the write
                written = value_before(written);
                found = remove_from_node(written, x, id);
            }
            if (found)
                return true;
        }
        nd_node *before = value_before(node);
        node = before ? before : value_before(written);
    }
    return false;
}

nd_status nd_remove_hook(nd_tensor *x, uint64_t id) {
    nd_status status = nd__tensor_check_operand("remove_hook", "x", x);
    if (status != ND_OK)
        return status;
    uint32_t output;
    nd_node *node = nd__rebase_hold_node(x, &output);
    bool found = node ? remove_before(node, x, id) : remove_from(&x->header, &x->hooks, x, id);
    nd_object_release(node);
    return found
               ? ND_OK
               : nd__error(ND_ERROR_INVALID_ARGUMENT,
                           "remove_hook: x has no hook %llu: it was removed, is another tensor's, "
                           "or of a value that x was overwritten with another one",
                           (unsigned long long)id);
}

/// Takes some of the hooks of an output; what is to be released comes into `contexts`.
static uint32_t take_some(nd_hooks *hooks, uint32_t output_index, nd_object **contexts,
                          uint32_t most) {
    uint32_t taken = 0;
    for (uint32_t at = hooks->first, next; at != NONE && taken < most; at = next) {
        next = hooks->entries[at].next;
        if (hooks->entries[at].output_index == output_index)
            contexts[taken++] = take(hooks, at);
    }
    return taken;
}

nd_status nd_remove_hooks(nd_tensor *x) {
    enum { MOST = 256 };
    nd_status status = nd__tensor_check_operand("remove_hooks", "x", x);
    if (status != ND_OK)
        return status;
    uint32_t output;
    nd_node *node = nd__rebase_hold_node(x, &output);
    nd_object *owner = node ? &node->header : &x->header, **slot = node ? &node->hooks : &x->hooks;
    uint32_t taken;
    do {
        nd_object *contexts[MOST], *list = NULL;
        nd__gradient_lock();
        nd_hooks *hooks = hooks_in(slot);
        taken = hooks ? take_some(hooks, output, contexts, MOST) : 0;
        if (hooks)
            list = drop_if_empty(owner, slot);
        nd__gradient_unlock();
        for (uint32_t i = 0; i < taken; i++)
            nd_release(contexts[i]);
        nd_release(list);
    } while (taken == MOST);
    nd_object_release(node);
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------
// running them

typedef struct call {
    nd_hook hook;
    nd_object *context; ///< owned
} call;

/// Copies the hooks of an output, unless there are more than `room` in the list. Returns how many
/// there are.
static uint32_t copy_calls(nd_object *const *slot, uint32_t output_index, call *calls,
                           uint32_t room, uint32_t *ret_count) {
    nd__gradient_lock();
    const nd_hooks *hooks = hooks_in(slot);
    uint32_t needed = hooks ? hooks->count : 0, count = 0;
    for (uint32_t at = needed && needed <= room ? hooks->first : NONE; at != NONE;
         at = hooks->entries[at].next) {
        const nd_hook_entry *entry = &hooks->entries[at];
        if (entry->output_index == output_index)
            calls[count++] = (call){entry->hook, nd_retain(entry->context)};
    }
    nd__gradient_unlock();
    *ret_count = count;
    return needed;
}

/// Asks one hook. A hook has an error of its own, which begins empty: with that it says that NULL
/// is not the answer "keep it" but what a failure inside has left; else it is forgotten.
static nd_status ask(const call *call, const nd_tensor *gradient, nd_tensor **ret_replacement) {
    nd_error_state own, *outer;
    nd__error_begin(&own, &outer);
    *ret_replacement = call->hook(gradient, call->context);
    nd__error_end(outer);
    if (*ret_replacement || own.status == ND_OK)
        return ND_OK;
    nd__error_restore(&own);
    return own.status;
}

/// Runs one hook on *gradient, which it may replace.
static nd_status run(const char *operation, const call *call, const nd_node_input *input,
                     nd_tensor **gradient) {
    nd_tensor *replacement;
    nd_status status = ask(call, *gradient, &replacement);
    if (status != ND_OK || !replacement)
        return status;
    char what[64];
    snprintf(what, sizeof what, "%s: the gradient returned by a hook", operation);
    status = nd__gradient_check(what, replacement, input);
    if (status != ND_OK) {
        nd_release(replacement);
        return status;
    }
    nd_release(*gradient);
    *gradient = replacement;
    return ND_OK;
}

nd_status nd__hooks_run(const char *operation, nd_object *const *slot, uint32_t output_index,
                        const nd_node_input *input, nd_tensor **gradient) {
    enum { FEW = 16 };
    call few[FEW], *calls = few;
    uint32_t room = FEW, count = 0, needed;
    while ((needed = copy_calls(slot, output_index, calls, room, &count)) > room) {
        if (calls != few)
            nd__alloc_free(calls);
        calls = nd__pressure_alloc(needed * sizeof *calls);
        if (!calls)
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to list %u hooks", operation,
                             needed);
        room = needed;
    }
    nd_status status = ND_OK;
    for (uint32_t i = 0; i < count; i++) {
        if (status == ND_OK)
            status = run(operation, &calls[i], input, gradient);
        nd_release(calls[i].context);
    }
    if (calls != few)
        nd__alloc_free(calls);
    return status;
}

// -------------------------------------------------------------------------------------------------
// lists

static void hooks_traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_hooks *hooks = (const nd_hooks *)self;
    for (uint32_t i = 0; i < hooks->used; i++)
        nd_visit(visitor, hooks->entries[i].context, "hook");
}

static void hooks_clear(nd_object *self) {
    nd_hooks *hooks = (nd_hooks *)self;
    for (uint32_t i = 0; i < hooks->used; i++)
        if (hooks->entries[i].context)
            nd_edge_clear(&hooks->entries[i].context);
}

static void hooks_destroy(nd_object *self) {
    nd_hooks *hooks = (nd_hooks *)self;
    nd__gradient_lock(); // a closed list may still be looked at
    nd_hook_entry *entries = hooks->entries;
    hooks->entries = NULL;
    hooks->capacity = hooks->used = hooks->count = 0;
    nd__gradient_unlock();
    nd__alloc_free(entries);
}

static nd_status check_hook(const char *operation, const nd_tensor *x, nd_hook hook) {
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    if (status != ND_OK)
        return status;
    if (!hook)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: hook is NULL", operation);
    status = nd__rebase_refresh(x);
    if (status != ND_OK || nd__tensor_requires_grad(x))
        return status;
    char shape[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_STATE,
                     "%s: x, %s of shape %s, does not require a gradient, so that no "
                     "hook of it would ever run",
                     operation, nd_dtype_get_name(x->dtype),
                     nd__shape_text(shape, x->ndim, x->shape));
}

static nd_object **hooks_slot(nd_tensor *x) {
    return x->node ? &x->node->hooks : &x->hooks;
}

static nd_object *hooks_owner(nd_tensor *x) {
    return x->node ? &x->node->header : &x->header;
}

/// The list in a slot, under the lock; NULL when there is none, or a closed one.
static nd_hooks *hooks_in(nd_object *const *slot) {
    nd_hooks *hooks = (nd_hooks *)*slot;
    return hooks && !nd__object_is_closing(hooks) ? hooks : NULL;
}

static bool has_room(const nd_hooks *hooks) {
    return hooks->unused != NONE || hooks->used < hooks->capacity;
}

/// An empty list in the slot, unless there is one. `entries` are its own from now on.
static nd_status add_list(nd_tensor *x, nd_object **slot, nd_hook_entry *entries,
                          uint32_t capacity) {
    nd_object *owner = hooks_owner(x);
    nd_hooks *hooks = (nd_hooks *)nd__object_new(&hooks_type, sizeof *hooks);
    if (!hooks) {
        nd__alloc_free(entries);
        return nd_error_get_status();
    }
    hooks->entries = entries;
    hooks->capacity = capacity;
    hooks->first = hooks->last = hooks->unused = NONE;
    nd_object *unused = &hooks->header;
    nd_status status = nd__place_publish(nd__place_of(owner), &hooks->header);
    if (status == ND_OK) {
        nd__member_track(owner);
        nd__gradient_lock();
        if (!hooks_in(slot))
            unused = nd__gradient_edge_exchange(owner, slot, hooks);
        nd__gradient_unlock();
    }
    nd_release(unused);
    return status;
}

/// A list with that capacity, unless other threads, or callbacks for memory, have made one.
static nd_status make_room(const char *operation, nd_tensor *x, nd_object **slot,
                           uint32_t capacity) {
    nd_hook_entry *entries =
        capacity <= PLACES ? nd__pressure_alloc_zeroed(capacity * sizeof *entries) : NULL;
    if (!entries)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %u hooks", operation, capacity);
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    if (status == ND_OK && nd__object_is_closing(hooks_owner(x)))
        status = nd__error(ND_ERROR_CLOSED, "%s: the node that made x is closed", operation);
    if (status != ND_OK) {
        nd__alloc_free(entries);
        return status;
    }
    bool is_new = false;
    nd__gradient_lock();
    nd_hooks *hooks = hooks_in(slot);
    if (!hooks) {
        is_new = true;
    } else if (hooks->capacity < capacity) {
        nd_hook_entry *before = hooks->entries;
        memcpy(entries, before, hooks->used * sizeof *entries);
        nd__gate_enter();
        hooks->entries = entries;
        hooks->capacity = capacity;
        nd__gate_leave();
        entries = before;
    }
    nd__gradient_unlock();
    if (is_new)
        return add_list(x, slot, entries, capacity);
    nd__alloc_free(entries);
    return ND_OK;
}

/// Adds a hook behind the others, with its context (owned, consumed). There is room.
static uint64_t put(nd_hooks *hooks, nd_hook hook, nd_object *context, const nd_tensor *x) {
    static uint64_t registered; // gradient lock
    uint32_t place = hooks->unused;
    if (place != NONE)
        hooks->unused = hooks->entries[place].next;
    else
        place = hooks->used;
    nd_hook_entry *entry = &hooks->entries[place];
    nd__gate_enter();
    *entry = (nd_hook_entry){.hook = hook,
                             .context = context,
                             .of = x,
                             .id = ++registered * PLACES + place,
                             .output_index = x->output_index,
                             .next = NONE,
                             .previous = hooks->last};
    if (place == hooks->used)
        hooks->used++;
    nd__gate_leave();
    if (hooks->last == NONE)
        hooks->first = place;
    else
        hooks->entries[hooks->last].next = place;
    hooks->last = place;
    hooks->count++;
    return entry->id;
}

/// Takes a hook out; returns its context, owned.
static nd_object *take(nd_hooks *hooks, uint32_t place) {
    nd_hook_entry *entry = &hooks->entries[place];
    if (entry->previous == NONE)
        hooks->first = entry->next;
    else
        hooks->entries[entry->previous].next = entry->next;
    if (entry->next == NONE)
        hooks->last = entry->previous;
    else
        hooks->entries[entry->next].previous = entry->previous;
    hooks->count--;
    nd_object *context = nd__gradient_edge_exchange(&hooks->header, &entry->context, NULL);
    entry->hook = NULL;
    entry->next = hooks->unused;
    hooks->unused = place;
    return context;
}

/// The list, owned, when it has no hooks any more; else NULL.
static nd_object *drop_if_empty(nd_object *owner, nd_object **slot) {
    return ((nd_hooks *)*slot)->count == 0 ? nd__gradient_edge_exchange(owner, slot, NULL) : NULL;
}
