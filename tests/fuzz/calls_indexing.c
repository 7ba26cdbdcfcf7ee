// Calls of operations that order, count, index and rearrange, and of scans.
#include "tests/fuzz/tensors.h"
#include <math.h>

/// Of operations with several results the one that a number means; the others are released.
static nd_tensor *one_of(nd_status status, nd_tensor **results, int count, uint8_t number) {
    if (status != ND_OK)
        return NULL;
    for (int i = 0; i < count; i++)
        if (i != number % count)
            nd_release(results[i]);
    return results[number % count];
}

static nd_tensor *topk(const nd_tensor *x, const fuzz_step *s) {
    nd_tensor *results[2] = {NULL, NULL};
    nd_status status = nd_topk(x, s->d / 4 % 8 - 1, fuzz_axis(s->c), s->d % 2, &results[0],
                               s->d == 255 ? NULL : &results[1]);
    return one_of(status, results, 2, s->d == 255 ? 0 : s->d / 2);
}

static nd_tensor *distinct(const nd_tensor *x, const fuzz_step *s) {
    nd_tensor *results[4] = {NULL, NULL, NULL, NULL};
    nd_status status = nd_unique(x, &results[0], &results[1], &results[2], &results[3]);
    return one_of(status, results, 4, s->c);
}

static nd_tensor *quantile(const nd_tensor *x, const fuzz_step *s) {
    static const double shares[][2] = {{0.5, 0.25}, {0, 1}, {1, 0}, {-0.5, 2}, {0.1, 0.9}};
    const int axes[] = {fuzz_axis(s->c), fuzz_axis(s->c / 10)};
    return nd_quantile(x, s->d / 16 % 3, shares[s->d % 5], (nd_quantile_method)(s->d / 5 % 7),
                       s->d / 48 % 3, axes, s->c % 2);
}

/// Of numbers that stay small, so that the counts do.
static nd_tensor *bincount(const nd_tensor *x, const nd_tensor *weights, const fuzz_step *s) {
    nd_auto nd_tensor *small = x ? nd_clip(x, s->d % 8 ? 0 : -1, 100) : NULL;
    nd_auto nd_tensor *unsigned_ones = small && s->d / 8 % 4 == 3 ? nd_cast(small, ND_U64) : NULL;
    return nd_bincount(unsigned_ones ? unsigned_ones : small, s->a / 16 % 2 ? weights : NULL,
                       s->d / 32 - 1);
}

/// One of up to four parts along the first axis or another.
static nd_tensor *parts(const nd_tensor *x, const fuzz_step *s) {
    enum { MOST = 4 };
    nd_tensor *results[MOST] = {NULL, NULL, NULL, NULL};
    static const int64_t sizes[] = {1, 2, 0, 3, 1, -1};
    size_t count = s->d / 4 % MOST + 1;
    if (s->d % 2 || !x || nd_get_ndim(x) == 0 || nd_get_size(x, 0) > MOST ||
        nd_get_size(x, 0) == 0) {
        nd_status status = nd_split(x, count, &sizes[s->d / 2 % 3], fuzz_axis(s->c), results);
        return one_of(status, results, (int)count, s->d / 16);
    }
    return one_of(nd_unstack(x, 0, results), results, (int)nd_get_size(x, 0), s->d / 16);
}

static nd_tensor *grid(const nd_tensor *x, const nd_tensor *y, const fuzz_step *s) {
    nd_tensor *results[2] = {NULL, NULL};
    const nd_tensor *const inputs[] = {x, y};
    nd_status status =
        s->d % 2 ? nd_broadcast_arrays(2, inputs, results)
                 : nd_meshgrid(2, inputs, s->d / 2 % 2 ? ND_INDEXING_XY : ND_INDEXING_IJ, results);
    return one_of(status, results, 2, s->d / 4);
}

static nd_tensor *pad(const nd_tensor *x, const fuzz_step *s) {
    const int64_t before_and_behind[] = {s->c % 5 - 1, s->c / 5 % 4, s->c / 20 % 3, 1};
    return nd_pad(x, s->d % 3, before_and_behind, fuzz_value(s->d), (nd_padding)(s->d / 3 % 5));
}

static nd_tensor *triangle(const nd_tensor *x, const fuzz_step *s) {
    return (s->c % 2 ? nd_tril : nd_triu)(x, s->d % 9 - 4);
}

static nd_tensor *scan(const nd_tensor *x, const fuzz_step *s) {
    static nd_tensor *(*const functions[])(const nd_tensor *, int) = {nd_cumsum, nd_cumprod,
                                                                      nd_cummax, nd_cummin};
    return functions[s->d % 4](x, fuzz_axis(s->c));
}

static nd_tensor *reduction(const nd_tensor *x, const fuzz_step *s) {
    static nd_tensor *(*const functions[])(const nd_tensor *, int, const int *, bool) = {
        nd_prod, nd_any, nd_all, nd_count_nonzero, nd_logsumexp};
    const int axes[] = {fuzz_axis(s->c), fuzz_axis(s->c / 10)};
    return functions[s->d / 6 % 5](x, s->d % 3, axes, s->d / 3 % 2);
}

/// The same into tensors that are there: of reductions, of scans, and what remains.
static nd_status write_reduction(nd_tensor *out, const nd_tensor *x, const fuzz_step *s) {
    static nd_status (*const functions[])(const nd_tensor *, int, const int *, bool,
                                          nd_tensor *) = {
        nd_prod_out,      nd_any_out,  nd_all_out, nd_count_nonzero_out,
        nd_logsumexp_out, nd_mean_out, nd_min_out};
    const int axes[] = {fuzz_axis(s->c), fuzz_axis(s->c / 10)};
    return functions[s->d / 6 % 7](x, s->d % 3, axes, s->d / 3 % 2, out);
}

static nd_status write_scan(nd_tensor *out, const nd_tensor *x, const fuzz_step *s) {
    static nd_status (*const functions[])(const nd_tensor *, int, nd_tensor *) = {
        nd_cumprod_out, nd_cummax_out, nd_cummin_out, nd_log_softmax_out};
    return functions[s->d % 4](x, fuzz_axis(s->c), out);
}

static void out_along_axes(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->b), *y = fuzz_tensor(me, s->c);
    nd_tensor *to = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    if (fuzz_is_large(x) || fuzz_is_large(y) || (!to && fuzz_threaded))
        return;
    nd_status status;
    switch (s->a / 8 % 8) {
    case 0:
        status = nd_var_out(x, 1, &(const int){fuzz_axis(s->c)}, s->d % 2, s->d / 2 % 2, to);
        break;
    case 1:
        status = nd_argmax_out(x, fuzz_axis(s->c), s->d % 2, to);
        break;
    case 2:
        status = nd_masked_softmax_out(x, y, fuzz_axis(s->d), to);
        break;
    case 3:
        status = nd_matmul_integer_out(x, y, NULL, NULL, to);
        break;
    case 4:
    case 5:
        status = write_scan(to, x, s);
        break;
    default:
        status = write_reduction(to, x, s);
    }
    fuzz_expect(me, status == ND_OK);
}

static nd_tensor *norm(const nd_tensor *x, const fuzz_step *s) {
    static const double orders[] = {2, 1, 0, 3, -1, (double)INFINITY, -(double)INFINITY, 0.5};
    const int axes[] = {fuzz_axis(s->c), fuzz_axis(s->c / 10)};
    return nd_norm(x, orders[s->d / 6 % 8], s->d % 3, axes, s->d / 3 % 2);
}

#define AXES                                  \
    s->d % 3, (const int[]) {                 \
        fuzz_axis(s->c), fuzz_axis(s->c / 10) \
    }

WITH(sort, 1, nd_sort(in[0], fuzz_axis(s->c), s->d % 2))
WITH(argsort, 1, nd_argsort(in[0], fuzz_axis(s->c), s->d % 2))
WITH(topk, 1, topk(in[0], s))
WITH(searchsorted, 2, nd_searchsorted(in[0], in[1], s->d % 2))
ONE(nonzero)
WITH(unique, 1, distinct(in[0], s))
WITH(quantile, 1, quantile(in[0], s))
WITH(median, 1, nd_median(in[0], AXES, s->d / 3 % 2))
WITH(histogram, 3, nd_histogram(in[0], in[1], s->a / 16 % 2 ? in[2] : NULL))
WITH(bincount, 2, bincount(in[0], in[1], s))
WITH(index, 3, nd_index(in[0], s->a / 16 % 3, in + 1))
WITH(index_put, 3, nd_index_put(in[0], 1, in + 1, in[2], s->a / 16 % 2))
WITH(index_add, 3, nd_index_add(in[0], in[1], in[2], s->a / 16 % 4 - 1))
WITH(scatter, 3,
     nd_scatter(in[0], in[1], in[2], s->a / 16 % 3 - 1, (nd_scatter_reduction)((s->b ^ s->c) % 6),
                s->d / 64 % 2))
WITH(sliding_window, 1, nd_sliding_window(in[0], s->d % 6 - 1, s->d / 8 % 5 - 1, fuzz_axis(s->c)))
WITH(diff, 1, nd_diff(in[0], s->d % 4, fuzz_axis(s->c)))
WITH(diagonal, 1, nd_diagonal(in[0], s->d % 7 - 3, fuzz_axis(s->c), fuzz_axis(s->c / 10)))
WITH(trace, 1, nd_trace(in[0], s->d % 7 - 3))
WITH(parts, 1, parts(in[0], s))
WITH(grid, 2, grid(in[0], in[1], s))
WITH(pad, 1, pad(in[0], s))
WITH(flip, 1, nd_flip(in[0], AXES))
WITH(roll, 1, nd_roll(in[0], s->d == 255 ? INT64_MIN : s->d % 16 - 8, fuzz_axis(s->c)))
WITH(repeat, 1, nd_repeat(in[0], s->d % 5 - 1, fuzz_axis(s->c)))
WITH(tile, 1, nd_tile(in[0], s->d % 3, ((const int64_t[]){s->c % 4, s->c / 4 % 3})))
WITH(moveaxis, 1, nd_moveaxis(in[0], fuzz_axis(s->c), fuzz_axis(s->c / 10)))
WITH(triangle, 1, triangle(in[0], s))
WITH(scan, 1, scan(in[0], s))
WITH(reduction, 1, reduction(in[0], s))
WITH(std, 1, nd_std(in[0], AXES, s->d / 6 % 3, s->d / 3 % 2))
WITH(norm, 1, norm(in[0], s))
WITH(embedding, 2, nd_embedding(in[0], in[1], s->d % 4 ? ND_NO_PADDING : s->d / 4 % 5 - 2))

const fuzz_call fuzz_indexing_calls[] = {
    // clang-format off
    ENTRY(sort) ENTRY(argsort) ENTRY(topk) ENTRY(searchsorted) WAITING(nonzero) WAITING(unique) WAITING(quantile) WAITING(median)
    WAITING(histogram) WAITING(bincount) WAITING(index) WAITING(index_put) WAITING(index_add) WAITING(scatter)
    ENTRY(sliding_window) ENTRY(diff) ENTRY(diagonal) ENTRY(trace) ENTRY(parts) ENTRY(grid) ENTRY(pad) ENTRY(flip) ENTRY(roll)
    ENTRY(repeat) ENTRY(tile) ENTRY(moveaxis) ENTRY(triangle) ENTRY(scan) ENTRY(reduction) ENTRY(std) ENTRY(embedding)
    ENTRY(norm)
    // clang-format on
    {"out_along_axes", out_along_axes, 0},
    {0},
};
