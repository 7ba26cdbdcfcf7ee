// nd_scatter: sums are scatter_add's, products and extremes scatter_reduce's, and a mean is a sum
// divided by a count. Where x itself is left out, a neutral number takes its place in what is
// written.
#include "lib/base/error.h"
#include "lib/ops/index.h"
#include "lib/tensor/shape.h"
#include <math.h>
#include <nd/indexing.h>

/// For each element of x how many of source are scattered there, i64.
static nd_tensor *counts_of(const nd_tensor *x, const nd_tensor *index, int axis) {
    const char *name = "scatter";
    nd_auto nd_tensor *zero = nd__operands_number_like(name, x, ND_I64, ND_NUMBER(0));
    nd_auto nd_tensor *one = nd__operands_number_like(name, x, ND_I64, ND_NUMBER(1));
    nd_auto nd_tensor *zeros = nd_expand(zero, x->ndim, x->shape);
    nd_auto nd_tensor *ones = nd_expand(one, index->ndim, index->shape);
    if (!zeros || !ones)
        return NULL;
    return nd__index_scatter(name, ND_OP_scatter_add, 0, zeros, index, ones, axis);
}

/// The number that the reduction of a dtype (no 16-bit float) leaves out.
static nd_number neutral(nd_scatter_reduction reduction, nd_dtype dtype) {
    bool least = reduction == ND_SCATTER_AMIN;
    int bits = 8 * (int)nd_dtype_get_size(dtype);
    if (reduction == ND_SCATTER_PROD)
        return ND_NUMBER(1);
    if (reduction != ND_SCATTER_AMIN && reduction != ND_SCATTER_AMAX)
        return ND_NUMBER(0);
    switch (dtype) {
    case ND_F32:
    case ND_F64:
        return ND_NUMBER(least ? (double)INFINITY : (double)-INFINITY);
    case ND_U8:
    case ND_U16:
    case ND_U32:
    case ND_U64:
        return ND_NUMBER(least ? UINT64_MAX >> (64 - bits) : (uint64_t)0);
    default:
        return ND_NUMBER(least ? INT64_MAX >> (64 - bits) : INT64_MIN >> (64 - bits));
    }
}

/// x with the neutral number where something is scattered.
static nd_tensor *without_written(const nd_tensor *x, const nd_tensor *counts,
                                  nd_scatter_reduction reduction) {
    nd_auto nd_tensor *zero = nd__operands_number_like("scatter", x, ND_I64, ND_NUMBER(0));
    nd_auto nd_tensor *number =
        nd__operands_number_like("scatter", x, x->dtype, neutral(reduction, x->dtype));
    nd_auto nd_tensor *is_written = nd_greater(counts, zero);
    return nd_where(is_written, number, x);
}

/// sums / how many were added, for integers rounded down.
static nd_tensor *mean_of(const nd_tensor *sums, const nd_tensor *counts, bool include_self) {
    nd_auto nd_tensor *more = include_self ? nd_add_scalar(counts, 1) : nd_retain(counts);
    nd_auto nd_tensor *one =
        more ? nd__operands_number_like("scatter", more, ND_I64, ND_NUMBER(1)) : NULL;
    nd_auto nd_tensor *shares = nd_maximum(more, one);
    nd_auto nd_tensor *divisor = shares && sums ? nd_cast(shares, sums->dtype) : NULL;
    if (!divisor)
        return NULL;
    return nd__dtype_is_float(sums->dtype) ? nd_div(sums, divisor) : nd_floor_divide(sums, divisor);
}

/// x and source have the dtype in which they are reduced.
static nd_tensor *scatter(const nd_tensor *x, const nd_tensor *index, const nd_tensor *source,
                          int axis, nd_scatter_reduction reduction, bool include_self) {
    static const nd_scatter_kind kinds[] = {[ND_SCATTER_PROD] = ND_SCATTER_PRODUCT,
                                            [ND_SCATTER_AMIN] = ND_SCATTER_LEAST,
                                            [ND_SCATTER_AMAX] = ND_SCATTER_GREATEST,
                                            [ND_SCATTER_MEAN] = 0};
    bool mean = reduction == ND_SCATTER_MEAN, adds = mean || reduction == ND_SCATTER_SUM;
    nd_auto nd_tensor *counts = mean || !include_self ? counts_of(x, index, axis) : NULL;
    nd_auto nd_tensor *start = include_self ? nd_retain(x) : without_written(x, counts, reduction);
    if (!start || (mean && !counts))
        return NULL;
    nd_auto nd_tensor *result =
        nd__index_scatter("scatter", adds ? ND_OP_scatter_add : ND_OP_scatter_reduce,
                          kinds[reduction], start, index, source, axis);
    return mean ? mean_of(result, counts, include_self) : nd_steal(&result);
}

/// 16-bit floats are reduced in f32 and rounded once; the sum behind a mean of integers has 64 bits.
static nd_dtype dtype_within(nd_dtype dtype, nd_scatter_reduction reduction) {
    if (nd__dtype_is_half(dtype))
        return ND_F32;
    bool widens = reduction == ND_SCATTER_MEAN && !nd__dtype_is_float(dtype) && dtype != ND_U64;
    return widens ? ND_I64 : dtype;
}

nd_tensor *nd_scatter(const nd_tensor *x, const nd_tensor *index, const nd_tensor *source, int axis,
                      nd_scatter_reduction reduction, bool include_self) {
    ND__ERROR_NAMED("scatter");
    const char *name = "scatter";
    if (nd__index_check_scatter(name, x, index, source) != ND_OK)
        return NULL;
    if ((int)reduction < ND_SCATTER_SUM || reduction > ND_SCATTER_MEAN) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: there is no reduction %d", name, (int)reduction);
        return NULL;
    }
    nd_dtype wide = dtype_within(x->dtype, reduction);
    nd_auto nd_tensor *to = nd__operands_as_dtype(x, wide);
    nd_auto nd_tensor *from = to ? nd__operands_as_dtype(source, wide) : NULL;
    nd_auto nd_tensor *result =
        from ? scatter(to, index, from, axis, reduction, include_self) : NULL;
    return result ? nd__operands_as_dtype(result, x->dtype) : NULL;
}
