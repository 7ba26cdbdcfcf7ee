// Which windows onto a storage share elements: in-place operations must know before they write.
//
// Two windows share an element when the sum of stride * index terms of one equals that of the other
// plus the distance between them: a bounded linear equation in integers. It is searched term by
// term, the largest stride first, and a branch is cut as soon as the terms left cannot reach what
// is missing.
#include "lib/ops/overlap.h"
#include "lib/ops/operands.h"
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
    if (x->contiguous || x->numel <= 1)
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

nd_overlap nd__overlap(const nd_tensor *x, const nd_tensor *y) {
    if (!nd__tensor_share_storage(x, y) || x->numel == 0 || y->numel == 0)
        return ND__APART;
    nd_operand seen = nd__shape_broadcast_operand(y, x->ndim, x->shape);
    // x's element minus y's: offset + sum(x stride * i) - sum(y stride * j) = 0, with every term
    // turned so that its stride is positive.
    int64_t missing = nd__tensor_offset(y) - nd__tensor_offset(x);
    term terms[2 * ND_MAX_DIMS];
    int count = 0;
    bool same = missing == 0;
    for (int i = 0; i < x->ndim; i++) {
        int64_t most = x->shape[i] - 1, mine = nd__tensor_strides(x)[i], theirs = seen.strides[i];
        same = same && (most == 0 || mine == theirs);
        if (mine < 0)
            missing -= mine * most;
        if (theirs > 0)
            missing += theirs * most;
        count = add_term(terms, count, mine < 0 ? -mine : mine, most);
        count = add_term(terms, count, theirs < 0 ? -theirs : theirs, most);
    }
    if (same)
        return ND__SAME;
    int steps = SEARCH_STEPS;
    return reachable(terms, count, missing, &steps) ? ND__PARTIAL : ND__APART;
}
