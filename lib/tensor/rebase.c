// Views that follow a base: one history for all windows onto a storage.
//
// Invariants. A base is contiguous and follows nobody. A view's node is current when it carries the
// storage's version, or when neither it nor the base has history. Nodes of views that follow change
// under the lock of this file, inside the gate; one that is current changes only by a write, which
// nobody may do beside readers.
#include "lib/tensor/rebase.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

enum { OFFSET = 8, WITHIN = 9 }; // slots of nd_op_attrs.i

static nd_lock node_lock;
ND__FORK_LOCK(ND__FORK_SINGLE, node_lock);

/// The window that view is, in elements of base; false where base has not all of them.
static bool window_of(const nd_tensor *base, const nd_tensor *view, nd_op_attrs *ret_attrs) {
    *ret_attrs = (nd_op_attrs){.i = {0}};
    if (!nd__tensor_is_contiguous(base))
        return false;
    ret_attrs->i[WITHIN] = 1;
    if (view->numel == 0)
        return true;
    int64_t first = nd__tensor_offset(view) - nd__tensor_offset(base), last = first;
    ret_attrs->i[OFFSET] = first;
    for (int i = 0; i < view->ndim; i++) {
        if (view->shape[i] == 1) // its stride may be anything
            continue;
        ret_attrs->i[i] = nd__tensor_strides(view)[i];
        int64_t reach = (view->shape[i] - 1) * nd__tensor_strides(view)[i];
        *(reach < 0 ? &first : &last) += reach;
    }
    ret_attrs->i[WITHIN] = first >= 0 && last < base->numel;
    return ret_attrs->i[WITHIN] != 0;
}

// ------------------------------------------------------------------------------------------------
// making views

nd_tensor *nd__rebase_view(const nd_tensor *x, int ndim, const int64_t *shape,
                           const int64_t *strides, int64_t offset) {
    bool cut;
    nd_tensor *base = nd__rebase_base_of_view(x, &cut);
    nd_tensor *view = nd__tensor_view_following(base, x, ndim, shape, strides, offset);
    if (__builtin_expect(cut, 0) && view)
        nd__tensor_set_own(view, ND__GRAD_CUT, true);
    return view;
}

nd_tensor *nd__rebase_record_where_on(nd_op op, nd_tensor *view, const nd_tensor *x,
                                      const nd_op_attrs *attrs) {
    if (nd__node_recording_off)
        return view;
    nd_op_attrs window;
    if (op == ND_OP_as_strided) {
        const nd_tensor *base = nd__tensor_base(view);
        x = base ? base : x;
        window_of(x, view, &window);
        attrs = &window;
    }
    return nd__record(op, view, &x, 1, attrs);
}

// ------------------------------------------------------------------------------------------------
// the node of a view

/// Under the lock.
static bool is_current(const nd_tensor *x, const nd_tensor *base) {
    const nd_node *node = x->node;
    return node ? nd__tensor_has_own(base, ND__GRAD_REQUIRED) &&
                      nd__record_view_version(node) == nd__tensor_version(x)
                : !nd__tensor_has_own(base, ND__GRAD_REQUIRED);
}

static bool is_current_now(const nd_tensor *x, const nd_tensor *base) {
    nd__lock_acquire(&node_lock);
    bool current = is_current(x, base);
    nd__lock_release(&node_lock);
    return current;
}

static nd_status refuse_closed_base(const char *operation, const nd_tensor *x) {
    char text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_CLOSED,
                     "%s: the tensor that a view of shape %s was made of was closed", operation,
                     nd__shape_text(text, x->ndim, x->shape));
}

/// A module has moved the base, which has got another storage.
static nd_status refuse_moved_base(const char *operation, const nd_tensor *x) {
    char text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_STATE,
                     "%s: the tensor that a view of shape %s was made of was cast or moved since, "
                     "and has another history; make the view again",
                     operation, nd__shape_text(text, x->ndim, x->shape));
}

nd_status nd__rebase_refresh(const nd_tensor *x) {
    nd_tensor *base = nd__tensor_base(x);
    if (!base || is_current_now(x, base))
        return ND_OK;
    if (nd__object_is_closed(base))
        return refuse_closed_base("as_strided", x);
    if (!nd__tensor_share_storage(x, base))
        return refuse_moved_base("as_strided", x);
    nd_node *unused = NULL;
    if (nd__tensor_has_own(base, ND__GRAD_REQUIRED)) {
        nd_op_attrs window;
        window_of(base, x, &window);
        const nd_tensor *input = base;
        unused = nd__record_build(ND_OP_as_strided, x, &input, 1, &window, false);
        if (!unused)
            return nd_error_get_status();
    }
    nd_tensor *view = (nd_tensor *)(uintptr_t)x;
    nd__gate_enter();
    nd__lock_acquire(&node_lock);
    if (!nd__object_is_closing(view) && !is_current(view, base)) { // else another thread was first
        nd_node *before = view->node;
        view->node = unused;
        view->output_index = 0;
        unused = before;
        nd__object_note_moved((nd_object *)before); // NULL where there was no history
    }
    nd__lock_release(&node_lock);
    nd__gate_leave();
    nd_object_release(unused);
    return ND_OK;
}

nd_node *nd__rebase_hold_node(const nd_tensor *x, uint32_t *ret_output) {
    nd__gate_enter();
    nd__lock_acquire(&node_lock);
    nd_node *node = x->node ? nd_object_retain(x->node) : NULL;
    *ret_output = x->output_index;
    nd__lock_release(&node_lock);
    nd__gate_leave();
    return node;
}

// ------------------------------------------------------------------------------------------------
// writing

nd_status nd__rebase_check_cut(const char *operation, const nd_tensor *x) {
    const nd_storage *storage = nd__tensor_storage_now(x);
    if (nd__node_recording_off || !storage)
        return ND_OK;
    if (atomic_load_explicit(&storage->shows_leaf, memory_order_relaxed))
        return nd__error(ND_ERROR_STATE,
                         "%s: a view of what x is a part of was made a leaf that requires a "
                         "gradient, once, and its history would miss this write; write it inside "
                         "nd_no_grad, or write a clone",
                         operation);
    if (nd__tensor_base(x) && !nd__tensor_share_storage(x, nd__tensor_base(x)))
        return refuse_moved_base(operation, x);
    if (!nd__tensor_has_own(x, ND__GRAD_CUT) || nd_get_count(&storage->accounted.header) == 1)
        return ND_OK;
    return nd__error(ND_ERROR_STATE,
                     "%s: x is a view that was made inside nd_no_grad, or of a tensor that is not "
                     "contiguous, so that this write would be missing in the history of what it is "
                     "a view of; make the view while recording, or write a clone",
                     operation);
}

nd_status nd__rebase_check_write(const char *operation, const nd_tensor *x) {
    const nd_tensor *base = nd__tensor_base(x);
    if (nd__object_is_closed(base))
        return refuse_closed_base(operation, x);
    if (nd__tensor_has_own(base, ND__GRAD_REQUIRED) && !base->node)
        return nd__error(ND_ERROR_STATE,
                         "%s: x is a view of a leaf that requires a gradient; write it inside "
                         "nd_no_grad",
                         operation);
    if (!nd__tensor_share_storage(x, base))
        return nd__tensor_has_own(base, ND__GRAD_REQUIRED) ? refuse_moved_base(operation, x)
                                                           : ND_OK;
    nd_op_attrs window;
    if (!window_of(base, x, &window))
        return nd__error(ND_ERROR_STATE,
                         "%s: x is a view that reaches beyond the tensor it was made of, so its "
                         "history cannot continue; write it inside nd_no_grad",
                         operation);
    return nd__rebase_refresh(x);
}

nd_node *nd__rebase_build_write(const nd_tensor *view, nd_node *part) {
    const nd_tensor *base = nd__tensor_base(view);
    nd_op_attrs window;
    window_of(base, view, &window);
    const nd_tensor *inputs[] = {base, NULL};
    // What is written everywhere owes nothing to what there was.
    if (view->numel == base->numel)
        inputs[0] = NULL;
    return nd__record_build_scatter(base, inputs[0], view, part, &window);
}

// ------------------------------------------------------------------------------------------------
// windows as operations

nd_tensor *nd__rebase_read_window(const nd_tensor *x, int ndim, const int64_t *shape,
                                  const nd_op_attrs *attrs) {
    nd_tensor *view =
        nd__rebase_view(x, ndim, shape, attrs->i, nd__tensor_offset(x) + attrs->i[OFFSET]);
    return view ? nd__rebase_record(ND_OP_as_strided, view, x, NULL) : NULL;
}

nd_tensor *nd__rebase_write_window(const nd_tensor *x, const nd_tensor *part,
                                   const nd_op_attrs *attrs) {
    static const char operation[] = "as_strided_scatter";
    const nd_tensor *inputs[] = {x, part};
    nd_tensor *result =
        nd__tensor_result(operation, inputs, 2, x->device, x->dtype, x->ndim, x->shape);
    if (!result)
        return NULL;
    nd_tensor *window = NULL;
    bool written = nd__copy_into(operation, result, x) == ND_OK &&
                   (window = nd__tensor_view(result, part->ndim, part->shape, attrs->i,
                                             attrs->i[OFFSET])) != NULL &&
                   nd__copy_into(operation, window, part) == ND_OK;
    nd_object_release(window);
    if (!written) {
        nd_object_release(result);
        return NULL;
    }
    return nd__record(ND_OP_as_strided_scatter, result, inputs, 2, attrs);
}
