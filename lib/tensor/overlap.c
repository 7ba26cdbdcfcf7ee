// Which windows onto a storage share elements: what writes a tensor that is there already must know
// before it writes.
//
// Two windows share an element when the sum of stride * index terms of one equals that of the other
// plus the distance between them: a bounded linear equation in integers. It is searched term by
// term, the largest stride first, and a branch is cut as soon as the terms left cannot reach what
// is missing.
#include "lib/tensor/overlap.h"
#include "lib/tensor/shape.h"

/// Steps of the search before it gives up and calls the windows overlapping.
#define SEARCH_STEPS 10000

typedef struct term {
    int64_t stride; ///< positive
    int64_t most;   ///< index runs from 0 to here
} term;

/// Whether 0 <= index[k] <= most can make the terms sum to `missing`.
static bool reachable(const term *terms, int count, int64_t missing, int *steps) {
    if (missing == 0)
        return true;
    if (count == 0 || missing < 0)
        return false;
    if (--*steps < 0)
        return true;
    int64_t rest = 0;
    for (int k = 1; k < count; k++)
        rest += terms[k].stride * terms[k].most;
    int64_t high = missing / terms->stride;
    if (high > terms->most)
        high = terms->most;
    // The terms left make up at most `rest`.
    int64_t low = missing > rest ? (missing - rest + terms->stride - 1) / terms->stride : 0;
    for (int64_t index = high; index >= low; index--)
        if (reachable(terms + 1, count - 1, missing - index * terms->stride, steps))
            return true;
    return false;
}

static int add_term(term *terms, int count, int64_t stride, int64_t most) {
    if (most == 0 || stride == 0)
        return count;
    int at = count;
    for (; at > 0 && terms[at - 1].stride < stride; at--)
        terms[at] = terms[at - 1];
    terms[at] = (term){stride, most};
    return count + 1;
}

bool nd__overlap_within(const nd_tensor *x) {
    if (nd__tensor_is_contiguous(x) || x->numel <= 1)
        return false;
    term terms[ND_MAX_DIMS];
    int count = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (x->shape[i] > 1 && nd__tensor_strides(x)[i] == 0)
            return true;
        int64_t stride =
            nd__tensor_strides(x)[i] < 0 ? -nd__tensor_strides(x)[i] : nd__tensor_strides(x)[i];
        count = add_term(terms, count, stride, x->shape[i] - 1);
    }
    // No overlap when each stride steps over all that the smaller ones reach. (Windows that
    // interleave in another way do not come from slicing; they count as overlapping.)
    int64_t reach = 0;
    for (int k = count - 1; k >= 0; k--) {
        if (terms[k].stride <= reach)
            return true;
        reach += terms[k].stride * terms[k].most;
    }
    return false;
}

/// Two windows seen from their first elements, their strides made positive.
typedef struct meeting {
    term terms[2 * ND_MAX_DIMS];
    int count;
    int64_t missing; ///< what the terms must sum to
} meeting;

/// x's element minus y's: offset + sum(x stride * i) - sum(y stride * j) = 0, with every term turned
/// so that its stride is positive.
static void begin_meeting(meeting *m, const nd_tensor *x, const nd_tensor *y) {
    m->count = 0;
    m->missing = nd__tensor_offset(y) - nd__tensor_offset(x);
}

static void add_axis_of_x(meeting *m, int64_t stride, int64_t most) {
    if (stride < 0)
        m->missing -= stride * most;
    m->count = add_term(m->terms, m->count, stride < 0 ? -stride : stride, most);
}

static void add_axis_of_y(meeting *m, int64_t stride, int64_t most) {
    if (stride > 0)
        m->missing += stride * most;
    m->count = add_term(m->terms, m->count, stride < 0 ? -stride : stride, most);
}

static bool meet(const meeting *m) {
    int steps = SEARCH_STEPS;
    return reachable(m->terms, m->count, m->missing, &steps);
}

nd_overlap nd__overlap(const nd_tensor *x, const nd_tensor *y) {
    if (!nd__tensor_share_storage(x, y) || x->numel == 0 || y->numel == 0)
        return ND__APART;
    nd_operand seen = nd__shape_broadcast_operand(y, x->ndim, x->shape);
    meeting m;
    begin_meeting(&m, x, y);
    bool same = m.missing == 0;
    for (int i = 0; i < x->ndim; i++) {
        int64_t most = x->shape[i] - 1, mine = nd__tensor_strides(x)[i], theirs = seen.strides[i];
        same = same && (most == 0 || mine == theirs);
        add_axis_of_x(&m, mine, most);
        add_axis_of_y(&m, theirs, most);
    }
    return same ? ND__SAME : meet(&m) ? ND__PARTIAL : ND__APART;
}

bool nd__overlap_any(const nd_tensor *x, const nd_tensor *y) {
    if (!nd__tensor_share_storage(x, y) || x->numel == 0 || y->numel == 0)
        return false;
    meeting m;
    begin_meeting(&m, x, y);
    for (int i = 0; i < x->ndim; i++)
        add_axis_of_x(&m, nd__tensor_strides(x)[i], x->shape[i] - 1);
    for (int i = 0; i < y->ndim; i++)
        add_axis_of_y(&m, nd__tensor_strides(y)[i], y->shape[i] - 1);
    return meet(&m);
}
