// Quantiles: the reduced axes are sorted as one, and a result is made of the one or two elements
// that its rank lies between. Which they are is known before the elements are: they are slices, and
// the gradient is that of slices of a sort. Where the device can, only the ranks that are wanted are found, if
// they are few.
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/ops/sorting.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"
#include <math.h>
#include <nd/sorting.h>

/// Where the reduced axes went: x's kept axes, then one of `size` elements.
typedef struct rows {
    int ndim; ///< without that one
    int64_t shape[ND_MAX_DIMS];
    int64_t size;
    int result_ndim;
    int64_t result_shape[ND_MAX_DIMS];
} rows;

static nd_tensor *rows_of(const nd_tensor *x, int mask, bool keepdims, rows *ret_rows) {
    int order[ND_MAX_DIMS], at = 0;
    *ret_rows = (rows){.size = 1};
    for (int reduced = 0; reduced < 2; reduced++)
        for (int i = 0; i < x->ndim; i++)
            if ((mask >> i & 1) == reduced) {
                order[at++] = i;
                if (reduced)
                    ret_rows->size *= x->shape[i];
                else
                    ret_rows->shape[ret_rows->ndim++] = x->shape[i];
            }
    for (int i = 0; i < x->ndim; i++)
        if (keepdims || !(mask >> i & 1))
            ret_rows->result_shape[ret_rows->result_ndim++] = mask >> i & 1 ? 1 : x->shape[i];
    int64_t shape[ND_MAX_DIMS + 1];
    for (int i = 0; i < ret_rows->ndim; i++)
        shape[i] = ret_rows->shape[i];
    shape[ret_rows->ndim] = ret_rows->size;
    if (mask == 0 && x->ndim == ND_MAX_DIMS)
        return nd_retain(x); // every element is a row of its own
    nd_auto nd_tensor *turned = nd_permute(x, x->ndim, order);
    return nd_reshape(turned, ret_rows->ndim + 1, shape);
}

/// The place of q among the sorted elements.
static double rank_of(double q, double size, nd_quantile_method method) {
    switch (method) {
    case ND_QUANTILE_INVERTED_CDF:
    case ND_QUANTILE_AVERAGED_INVERTED_CDF:
    case ND_QUANTILE_INTERPOLATED_INVERTED_CDF:
        return size * q - 1;
    case ND_QUANTILE_CLOSEST_OBSERVATION:
        return size * q - 1.5;
    case ND_QUANTILE_HAZEN:
        return size * q + 0.5 - 1;
    case ND_QUANTILE_WEIBULL:
        return size * q + q - 1;
    case ND_QUANTILE_MEDIAN_UNBIASED:
        return size * q + (1 / 3.0 + q * (1 - 1 / 3.0 - 1 / 3.0)) - 1;
    case ND_QUANTILE_NORMAL_UNBIASED:
        return size * q + (3 / 8.0 + q * (1 - 3 / 8.0 - 3 / 8.0)) - 1;
    default:
        return q * (size - 1);
    }
}

/// How much of the next element there is at a place `share` behind the one at `below`.
static double share_of(double below, double share, nd_quantile_method method) {
    switch (method) {
    case ND_QUANTILE_LOWER:
        return 0;
    case ND_QUANTILE_HIGHER:
    case ND_QUANTILE_INVERTED_CDF:
        return share > 0;
    case ND_QUANTILE_MIDPOINT:
        return share > 0 ? 0.5 : 0;
    case ND_QUANTILE_NEAREST:
        return nearbyint(below + share) - below;
    case ND_QUANTILE_AVERAGED_INVERTED_CDF:
        return share > 0 ? 1 : 0.5;
    case ND_QUANTILE_CLOSEST_OBSERVATION:
        return share > 0 || fmod(below, 2) == 0;
    default:
        return share;
    }
}

static int64_t clipped(double place, int64_t size) {
    return place < 0 ? 0 : place > (double)(size - 1) ? size - 1 : (int64_t)place;
}

/// The elements below and above the place, and how much of the second there is in the result.
static void place_of(double q, int64_t size, nd_quantile_method method, int64_t *ret_low,
                     int64_t *ret_high, double *ret_share) {
    double rank = rank_of(q, (double)size, method), below = floor(rank);
    double share = share_of(below, rank - below, method);
    int64_t low = clipped(below, size), high = clipped(below + 1, size);
    *ret_low = share == 1 ? high : low;
    *ret_high = share == 0 ? low : high;
    *ret_share = *ret_low == *ret_high ? 0 : share;
}

/// From a towards b; from the nearer of the two, so that what is at its place comes out exactly.
static nd_tensor *between(const nd_tensor *a, const nd_tensor *b, double share) {
    if (share == 0.5) { // without a difference, which two infinities do not have
        nd_auto nd_tensor *half_a = nd_mul_scalar(a, 0.5);
        nd_auto nd_tensor *half_b = nd_mul_scalar(b, 0.5);
        return nd_add(half_a, half_b);
    }
    nd_auto nd_tensor *distance = nd_sub(b, a);
    nd_auto nd_tensor *part = nd_mul_scalar(distance, share < 0.5 ? share : 1 - share);
    return share < 0.5 ? nd_add(a, part) : nd_sub(b, part);
}

/// Sorted rows, or what they have at some ranks, where rows with a NaN have nothing else.
typedef struct ordered {
    nd_tensor *elements;
    int count; ///< of ranks; 0: all are there
    int64_t ranks[ND__SORTING_RANKS];
} ordered;

static void add_rank(ordered *of, int64_t rank) {
    int at = of->count;
    while (at > 0 && of->ranks[at - 1] >= rank)
        at--;
    if (at < of->count && of->ranks[at] == rank)
        return;
    for (int i = of->count++; i > at; i--)
        of->ranks[i] = of->ranks[i - 1];
    of->ranks[at] = rank;
}

/// Of rows of more than one element.
static ordered order(const nd_tensor *x, size_t count, const double *q, nd_quantile_method method) {
    ordered of = {.count = 0};
    const int64_t size = x->shape[x->ndim - 1];
    if (nd__launch_selects_ranks(x->device) && 2 * count <= ND__SORTING_RANKS) {
        for (size_t i = 0; i < count; i++) {
            int64_t low, high;
            double share;
            place_of(q[i], size, method, &low, &high, &share);
            add_rank(&of, low);
            add_rank(&of, high);
        }
        of.elements = nd__sorting_at_ranks("quantile", x, of.count, of.ranks);
    } else {
        of.elements = nd_sort(x, -1, false);
    }
    return of;
}

/// One element of each row, as `dtype`.
static nd_tensor *element(const ordered *of, int64_t rank, nd_dtype dtype, const rows *rows) {
    int64_t at = of->count ? 0 : rank;
    while (at < of->count && of->ranks[at] != rank)
        at++;
    nd_auto nd_tensor *one =
        of->count == 1 ? nd_retain(of->elements) : nd_slice(of->elements, at, at + 1, 1, -1);
    nd_auto nd_tensor *wide = one ? nd__operands_as_dtype(one, dtype) : NULL;
    return nd_reshape(wide, rows->result_ndim, rows->result_shape);
}

static nd_tensor *quantile(const ordered *of, double q, nd_quantile_method method, nd_dtype dtype,
                           const rows *rows) {
    int64_t low, high;
    double share;
    place_of(q, rows->size, method, &low, &high, &share);
    nd_auto nd_tensor *a = element(of, low, dtype, rows);
    nd_auto nd_tensor *b = share > 0 ? element(of, high, dtype, rows) : NULL;
    nd_auto nd_tensor *result = share > 0 ? between(a, b, share) : nd_retain(a);
    if (of->count > 0)
        return nd_steal(&result);
    // The greatest is NaN if any is.
    nd_auto nd_tensor *last = element(of, rows->size - 1, dtype, rows);
    nd_auto nd_tensor *is_nan = nd_not_equal(last, last);
    return nd_where(is_nan, last, result);
}

static nd_status check_quantiles(const char *name, size_t count, const double *q,
                                 nd_quantile_method method) {
    if (count == 0 || !q)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %zu quantiles at %s", name, count,
                         q ? "an address" : "NULL");
    for (size_t i = 0; i < count; i++)
        if (!(q[i] >= 0 && q[i] <= 1))
            return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: q[%zu] is %g and must be in [0, 1]",
                             name, i, q[i]);
    if ((unsigned)method > ND_QUANTILE_NORMAL_UNBIASED)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: there is no method %d", name, (int)method);
    return ND_OK;
}

/// Owned results, one for each q, which the caller releases, on error too.
static nd_status quantiles(const char *name, const nd_tensor *x, size_t count, const double *q,
                           nd_quantile_method method, int mask, bool keepdims,
                           nd_tensor **ret_results) {
    rows rows;
    nd_auto nd_tensor *flat = rows_of(x, mask, keepdims, &rows);
    if (!flat)
        return nd_error_get_status();
    if (rows.size == 0) {
        char text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_SHAPE, "%s: shape %s has no elements along the reduced axes",
                         name, nd__shape_text(text, x->ndim, x->shape));
    }
    nd_dtype dtype = nd__dtype_is_float(x->dtype) ? x->dtype : ND_F32;
    nd_dtype wide = nd__dtype_is_half(dtype) ? ND_F32 : dtype;
    const ordered of =
        rows.size > 1 ? order(flat, count, q, method) : (ordered){.elements = nd_retain(flat)};
    nd_auto nd_tensor *consumed = of.elements;
    for (size_t i = 0; i < count && consumed; i++) {
        nd_auto nd_tensor *result = quantile(&of, q[i], method, wide, &rows);
        ret_results[i] = result ? nd__operands_as_dtype(result, dtype) : NULL;
        if (!ret_results[i])
            return nd_error_get_status();
    }
    return consumed ? ND_OK : nd_error_get_status();
}

nd_tensor *nd_quantile(const nd_tensor *x, size_t count, const double *q, nd_quantile_method method,
                       int naxes, const int *axes, bool keepdims) {
    ND__ERROR_NAMED("quantile");
    if (nd__tensor_check_operand("quantile", "x", x) != ND_OK ||
        check_quantiles("quantile", count, q, method) != ND_OK)
        return NULL;
    int mask = nd__operands_axes_mask("quantile", x, naxes, axes);
    if (mask < 0)
        return NULL;
    nd_tensor **results = nd__pressure_alloc_zeroed(count * sizeof *results);
    if (!results) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "quantile: no memory for %zu results", count);
        return NULL;
    }
    nd_tensor *joined = NULL;
    if (quantiles("quantile", x, count, q, method, mask, keepdims, results) == ND_OK)
        joined = nd_stack(count, (const nd_tensor *const *)results, 0);
    for (size_t i = 0; i < count; i++)
        nd_release(results[i]);
    nd__alloc_free(results);
    return joined;
}

nd_tensor *nd_median(const nd_tensor *x, int naxes, const int *axes, bool keepdims) {
    ND__ERROR_NAMED("median");
    if (nd__tensor_check_operand("median", "x", x) != ND_OK)
        return NULL;
    int mask = nd__operands_axes_mask("median", x, naxes, axes);
    if (mask < 0)
        return NULL;
    nd_tensor *result = NULL;
    const double half = 0.5;
    quantiles("median", x, 1, &half, ND_QUANTILE_MIDPOINT, mask, keepdims, &result);
    return result;
}
