// Views that follow a base: one history for all windows onto a storage.
//
// A view made while recording has an edge to its base, the tensor that the first of a row of views
// was made of (tensor.h: nd__tensor_base). What is written through the view is written to the base:
// the base's node becomes as_strided_scatter(what the base was, what was written). A view's own
// node only repeats the base's history, and is made anew where the storage was written since.
//
// No edge to a base: where the dtype has no gradients, and where the base is a leaf that requires
// one, which nobody may write while recording. ND__GRAD_CUT instead: the view was made inside
// nd_no_grad, or of a tensor that is not contiguous, so that its base cannot learn of a recorded
// write.
//
// The edge is counted and the view tracked from the start, also where there is no history yet: so
// the base outlives the view, and siblings that were made before the base got history learn of it
// through the base. A weak link would lose that when the program releases the base first. A view
// that were green until the base has history would hide the edge from the collector where a
// program's object holds the view in a cycle, because nobody could find the views to track then.
// What that costs is kept small where a view dies (lib/manager/destroy.c: is_tracked_tensor).
//
// Nothing that a node holds leads to a view that follows a base (what it saves is an alias of the
// view, record.c), so the edge closes no cycle by itself.
#ifndef ND_LIB_TENSOR_REBASE_H
#define ND_LIB_TENSOR_REBASE_H
#include "lib/tensor/node.h"
#include "lib/tensor/record.h"

/// A fresh view of x that follows x's base, or x, where that is right; not yet recorded. offset in
/// elements. Owned; NULL with an error.
nd_tensor *nd__rebase_view(const nd_tensor *x, int ndim, const int64_t *shape,
                           const int64_t *strides, int64_t offset);
/// The base that a view of x follows, or NULL; *ret_cut: no base could learn of a recorded write.
static inline nd_tensor *nd__rebase_base_of_view(const nd_tensor *x, bool *ret_cut) {
    *ret_cut = false;
    if (!nd__dtype_is_float(x->dtype))
        return NULL;
    nd_tensor *followed = nd__tensor_base(x),
              *base = followed ? followed : (nd_tensor *)(uintptr_t)x;
    bool is_of_leaf = base == x && nd__tensor_has_own(x, ND__GRAD_REQUIRED) &&
                      (!x->node || nd__record_is_view(x->node)); // never written
    *ret_cut = nd__tensor_has_own(x, ND__GRAD_CUT) || nd__node_recording_off ||
               (!is_of_leaf && !nd__tensor_is_contiguous(base));
    return *ret_cut || is_of_leaf ? NULL : base;
}
/// nd__rebase_view in nd__tensor_view_along's form.
static inline nd_tensor *nd__rebase_view_along(const nd_tensor *x, int axis, int64_t first,
                                               int64_t count, int64_t stride) {
    bool cut;
    nd_tensor *base = nd__rebase_base_of_view(x, &cut);
    nd_tensor *view = nd__tensor_view_along(base, x, axis, first, count, stride);
    if (__builtin_expect(cut, 0) && view)
        nd__tensor_set_own(view, ND__GRAD_CUT, true);
    return view;
}

/// nd__rebase_record for an x that requires a gradient.
nd_tensor *nd__rebase_record_where_on(nd_op op, nd_tensor *view, const nd_tensor *x,
                                      const nd_op_attrs *attrs);
/// Records how a fresh view came about. Consumes the view; returns
/// it, or NULL with an error. attrs may be NULL; as_strided needs none.
static inline nd_tensor *nd__rebase_record(nd_op op, nd_tensor *view, const nd_tensor *x,
                                           const nd_op_attrs *attrs) {
    return nd__tensor_requires_grad(x) ? nd__rebase_record_where_on(op, view, x, attrs) : view;
}

/// Makes x's node what x's base says it is, before it is read. Safe beside other threads that do
/// the same. No-op where x follows nobody. Errors: no memory; the base was closed.
nd_status nd__rebase_refresh(const nd_tensor *x);

/// x's node, owned, and which of its outputs x is: another thread that reads x may replace that of a
/// view just then. NULL: none.
nd_node *nd__rebase_hold_node(const nd_tensor *x, uint32_t *ret_output);

/// Before a recorded write: refuses an x whose base, or a leaf that shares its memory, could not learn
/// of it.
nd_status nd__rebase_check_cut(const char *operation, const nd_tensor *x);
/// Before a write while recording, of an x that follows a base: refuses one whose base is a leaf
/// that requires a gradient, was closed, or has not all of x's elements. x's node is fresh after
/// it.
nd_status nd__rebase_check_write(const char *operation, const nd_tensor *x);
/// Before a write through a view: what will be its base's node, which continues the base's history
/// with `part` (consumed), the node of what is written; NULL: that has no history. Owned and
/// published; NULL with an error.
nd_node *nd__rebase_build_write(const nd_tensor *view, nd_node *part);

/// The part of x (contiguous) that the attributes of as_strided mean: a view, recorded.
nd_tensor *nd__rebase_read_window(const nd_tensor *x, int ndim, const int64_t *shape,
                                  const nd_op_attrs *attrs);
/// A copy of x with that part of it replaced by `part`: as_strided_scatter, recorded.
nd_tensor *nd__rebase_write_window(const nd_tensor *x, const nd_tensor *part,
                                   const nd_op_attrs *attrs);
#endif
