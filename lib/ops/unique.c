// What a tensor holds, and where: unique, of comparisons, sorts and selections.
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/ops/operands.h"
#include <nd/sorting.h>

/// Before each of n sorted elements: whether it differs from the one before it.
static nd_tensor *beginnings(const nd_tensor *sorted) {
    if (!sorted)
        return NULL;
    int64_t n = sorted->numel, one = n > 0;
    nd_auto nd_tensor *here = nd_slice(sorted, 1, n, 1, 0);
    nd_auto nd_tensor *before = nd_slice(sorted, 0, n - one, 1, 0);
    nd_auto nd_tensor *differs = nd_not_equal(here, before);
    nd_auto nd_tensor *number = nd__operands_number_like("unique", sorted, ND_BOOL, ND_NUMBER(1));
    nd_auto nd_tensor *first = nd_expand(number, 1, &one);
    const nd_tensor *parts[] = {first, differs};
    return first && differs ? nd_concat(2, parts, 0) : NULL;
}

/// For each element of x the place of its value. order: where the sorted elements stand.
static nd_tensor *inverse_of(const nd_tensor *x, const nd_tensor *order, const nd_tensor *begins) {
    nd_auto nd_tensor *wide = nd_cast(begins, ND_I64);
    nd_auto nd_tensor *counted = nd_cumsum(wide, 0);
    nd_auto nd_tensor *places = nd_sub_scalar(counted, 1);
    nd_auto nd_tensor *zeros = nd_zeros_like(places);
    nd_auto nd_tensor *inverse = nd_scatter_add(zeros, order, places, 0);
    return nd_reshape(inverse, x->ndim, x->shape);
}

static nd_tensor *counts_of(const nd_tensor *x, const nd_tensor *begins) {
    int64_t one = x->numel > 0;
    nd_auto nd_tensor *counted = nd__operands_counted("unique", x, 1, &x->numel);
    nd_auto nd_tensor *starts = counted ? nd_masked_select(counted, begins) : NULL;
    nd_auto nd_tensor *next = nd_slice(starts, 1, INT64_MAX, 1, 0);
    nd_auto nd_tensor *number = nd__operands_number_like("unique", x, ND_I64, ND_NUMBER(x->numel));
    nd_auto nd_tensor *end = nd_expand(number, 1, &one);
    const nd_tensor *parts[] = {next, end};
    nd_auto nd_tensor *stops = next && end ? nd_concat(2, parts, 0) : NULL;
    return nd_sub(stops, starts);
}

nd_status nd_unique(const nd_tensor *x, nd_tensor **ret_values, nd_tensor **ret_positions,
                    nd_tensor **ret_inverse, nd_tensor **ret_counts) {
    ND__ERROR_NAMED("unique");
    nd_status status = nd__tensor_check_operand("unique", "x", x);
    if (status == ND_OK)
        status = nd__capture_check_size("unique", x->device);
    if (status != ND_OK)
        return status;
    nd_auto nd_tensor *flat = nd_reshape(x, 1, &x->numel);
    nd_auto nd_tensor *order = nd_argsort(flat, 0, false);
    nd_auto nd_tensor *sorted = nd_gather(flat, order, 0);
    nd_auto nd_tensor *begins = beginnings(sorted);
    if (!begins)
        return nd_error_get_status();
    nd_auto nd_tensor *values = ret_values ? nd_masked_select(sorted, begins) : NULL;
    nd_auto nd_tensor *positions = ret_positions ? nd_masked_select(order, begins) : NULL;
    nd_auto nd_tensor *inverse = ret_inverse ? inverse_of(x, order, begins) : NULL;
    nd_auto nd_tensor *counts = ret_counts ? counts_of(x, begins) : NULL;
    if ((ret_values && !values) || (ret_positions && !positions) || (ret_inverse && !inverse) ||
        (ret_counts && !counts))
        return nd_error_get_status();
    if (ret_values)
        *ret_values = nd_steal(&values);
    if (ret_positions)
        *ret_positions = nd_steal(&positions);
    if (ret_inverse)
        *ret_inverse = nd_steal(&inverse);
    if (ret_counts)
        *ret_counts = nd_steal(&counts);
    return ND_OK;
}
