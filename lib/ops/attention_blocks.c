// Attention by blocks: a tile of scores, some queries by some keys, at a time.
//
// Forward keeps for each query the largest score so far, the sum of the powers below it and the sum
// of values weighted with them, and scales both sums when a larger score comes (Milakov,
// Gimelshein 2018; Dao et al. 2022). Backward computes each tile of weights again, from the
// logarithms of the sums. What is as large as a tile of scores is written over where it can be: new
// memory takes longer than the numbers that go there. Nothing here is recorded.
#include "lib/ops/attention_blocks.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/ops/dropout.h"
#include "lib/ops/operands.h"
#include "lib/ops/reduce.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/create.h"
#include <math.h>
#include <nd/out.h>

static const char *const name = "attention";

enum { QUERY, KEY, VALUE, MASK };

/// One tile: queries first ... last - 1 by keys likewise.
typedef struct tile {
    int64_t row, rows, column, columns;
    int64_t number; ///< of the tile among all, whatever is left out
} tile;

/// Side of a tile: the same for the same shapes, since dropout counts tiles. Scores of one tile are
/// a few million at most.
static int64_t side_of(const nd__attention *a) {
    int64_t batch = 1, side = 256;
    for (int i = 0; i < a->query->ndim - 2; i++)
        batch *= a->query->shape[i];
    while (side > 32 && batch * side * side > (int64_t)1 << 22)
        side /= 2;
    return side;
}

static int64_t size_at(const nd_tensor *x, int axis) {
    return x->shape[x->ndim + axis];
}

static nd_tensor *rows_of(const nd_tensor *x, int64_t start, int64_t count) {
    return nd_slice(x, start, start + count, 1, -2);
}

static nd_tensor *number_like(const nd_tensor *x, double value) {
    return x ? nd__operands_number_like(name, x, x->dtype, ND_NUMBER(value)) : NULL;
}

/// x a, or x where a is NULL; takes over x.
static nd_tensor *times(nd_tensor *x, const nd_tensor *a) {
    if (!a || !x)
        return x;
    nd_tensor *product = nd_mul(x, a);
    nd_release(x);
    return product;
}

/// `value` where x equals `special`, else x.
static nd_tensor *without(const nd_tensor *x, double special, double value) {
    nd_auto nd_tensor *what = number_like(x, special);
    nd_auto nd_tensor *mask = nd_equal(x, what);
    nd_auto nd_tensor *number = number_like(x, value);
    return nd_where(mask, number, x);
}

/// start, start + 1, ...: [count, 1] or [1, count].
static nd_tensor *counted(const nd_tensor *like, int64_t start, int64_t count, bool as_column) {
    const int64_t shape[] = {as_column ? count : 1, as_column ? 1 : count};
    nd_op_attrs attrs = {.i = {start, 1, 1}};
    return nd__create_with(name, ND_OP_arange,
                           nd__tensor_result(name, &like, 1, like->device, ND_I64, 2, shape),
                           &attrs);
}

nd_tensor *nd__attention_blocks_seen(const nd_tensor *like, int64_t row, int64_t rows,
                                     int64_t column, int64_t columns) {
    nd_auto nd_tensor *queries = counted(like, row, rows, true);
    nd_auto nd_tensor *keys = counted(like, column, columns, false);
    return nd_less_equal(keys, queries);
}

/// What of the mask is seen by a tile; axes of size 1 repeat.
static nd_tensor *mask_of(const nd_tensor *mask, const tile *t) {
    nd_auto nd_tensor *seen = nd_retain(mask);
    if (mask->ndim > 1 && size_at(mask, -2) > 1) {
        nd_tensor *rows = rows_of(seen, t->row, t->rows);
        nd_release(seen);
        seen = rows;
    }
    if (seen && mask->ndim > 0 && size_at(mask, -1) > 1) {
        nd_tensor *columns = nd_slice(seen, t->column, t->column + t->columns, 1, -1);
        nd_release(seen);
        seen = columns;
    }
    return nd_steal(&seen);
}

/// -infinity where a score does not count; takes over the scores.
static nd_tensor *hidden(nd_tensor *scores, const nd_tensor *seen) {
    nd_auto nd_tensor *all = scores;
    nd_auto nd_tensor *nothing = number_like(scores, -INFINITY);
    return nd_where_out(seen, all, nothing, all) == ND_OK ? nd_steal(&all) : NULL;
}

/// e^x in place of x; takes over x.
static nd_tensor *powers_of(nd_tensor *x) {
    nd_auto nd_tensor *powers = x;
    return nd_exp_out(powers, powers) == ND_OK ? nd_steal(&powers) : NULL;
}

/// The scores of a tile: [..., rows, columns]. `queries` are scaled.
static nd_tensor *scores_of(const nd__attention *a, const nd_tensor *queries, const nd_tensor *keys,
                            const tile *t) {
    nd_auto nd_tensor *turned = nd_transpose(keys, -2, -1);
    nd_auto nd_tensor *scores = nd_matmul(queries, turned);
    if (a->mask && scores) {
        nd_auto nd_tensor *mask = mask_of(a->mask, t);
        if (a->mask->dtype == ND_BOOL) {
            scores = hidden(nd_steal(&scores), mask);
        } else {
            nd_auto nd_tensor *wide = mask ? nd_cast(mask, scores->dtype) : NULL;
            nd_tensor *sum = nd_add(scores, wide);
            nd_release(scores);
            scores = sum;
        }
    }
    if (a->causal && scores && t->column + t->columns - 1 > t->row) {
        nd_auto nd_tensor *seen =
            nd__attention_blocks_seen(scores, t->row, t->rows, t->column, t->columns);
        scores = hidden(nd_steal(&scores), seen);
    }
    return nd_steal(&scores);
}

/// The dropout's factors of a tile: [..., rows, columns]. NULL, without an error, when there are
/// none.
static nd_tensor *factors_of(const nd__attention *a, const tile *t) {
    if (a->dropout == 0.0)
        return NULL;
    int64_t shape[ND_MAX_DIMS];
    int ndim = a->query->ndim;
    for (int i = 0; i < ndim - 2; i++)
        shape[i] = a->query->shape[i];
    shape[ndim - 2] = t->rows;
    shape[ndim - 1] = t->columns;
    return nd__dropout_factors(name, a->query, ndim, shape, a->query->dtype,
                               nd_key_fold(a->seed, (uint64_t)t->number), a->dropout);
}

/// Sets the tile to the first of a run of queries, or moves it along the keys. False at the end: no
/// more keys, or none that these queries see.
static bool next_tile(const nd__attention *a, int64_t side, tile *t, bool first) {
    int64_t keys = size_at(a->key, -2);
    t->column = first ? 0 : t->column + t->columns;
    int64_t left = keys - t->column;
    t->columns = left < side ? left : side;
    int64_t per_run = (keys + side - 1) / side;
    t->number = t->row / side * per_run + t->column / side;
    return left > 0 && !(a->causal && t->column >= t->row + t->rows);
}

/// The next run of queries; false at the end.
static bool next_rows(const nd__attention *a, int64_t side, tile *t, bool first) {
    t->row = first ? 0 : t->row + t->rows;
    int64_t left = size_at(a->query, -2) - t->row;
    t->rows = left < side ? left : side;
    return left > 0;
}

static nd_tensor *scaled_queries(const nd__attention *a, const tile *t) {
    nd_auto nd_tensor *queries = rows_of(a->query, t->row, t->rows);
    return a->scale == 1.0 ? nd_steal(&queries) : nd_mul_scalar(queries, a->scale);
}

// -------------------------------------------------------------------------------------------------
// forward

/// What is kept of a run of queries while the keys go by.
typedef struct run {
    nd_tensor *largest; ///< score so far: [..., rows, 1]
    nd_tensor *sum;     ///< of e^(score - largest): [..., rows, 1]
    nd_tensor *values;  ///< weighted with that: [..., rows, v]
} run;

static void release_run(run *r) {
    nd_release(r->largest);
    nd_release(r->sum);
    nd_release(r->values);
}

/// The sum so far, scaled, with what one tile adds.
static void accumulate(nd_tensor **sum, const nd_tensor *scale, nd_tensor *more) {
    nd_auto nd_tensor *added = more;
    if (*sum && added && nd_mul_(*sum, scale) == ND_OK && nd_add_(*sum, added) == ND_OK)
        return;
    nd_release(*sum);
    *sum = NULL;
}

static void attend_first(run *r, nd_tensor *largest, nd_tensor *sum, nd_tensor *values) {
    r->largest = largest;
    r->sum = sum;
    r->values = values;
}

static nd_status attend_tile(const nd__attention *a, const nd_tensor *queries, const tile *t,
                             run *r) {
    const int last = -1;
    nd_auto nd_tensor *keys = rows_of(a->key, t->column, t->columns);
    nd_auto nd_tensor *values = rows_of(a->value, t->column, t->columns);
    nd_auto nd_tensor *scores = scores_of(a, queries, keys, t);
    nd_auto nd_tensor *top = nd_max(scores, 1, &last, true);
    nd_auto nd_tensor *largest = r->largest ? nd_maximum(r->largest, top) : nd_retain(top);
    // A row that has seen nothing yet has no largest score to subtract.
    nd_auto nd_tensor *base = without(largest, -INFINITY, 0.0);
    if (!base || nd_sub_(scores, base) != ND_OK)
        return nd_error_get_status();
    nd_auto nd_tensor *powers = powers_of(nd_steal(&scores));
    nd_auto nd_tensor *sum = nd_sum(powers, 1, &last, true);
    nd_auto nd_tensor *factors = factors_of(a, t);
    if (!sum || (a->dropout != 0.0 && !factors))
        return nd_error_get_status();
    nd_auto nd_tensor *weights = times(nd_steal(&powers), factors);
    nd_auto nd_tensor *weighted = nd_matmul(weights, values);
    if (!r->largest) {
        attend_first(r, nd_steal(&largest), nd_steal(&sum), nd_steal(&weighted));
        return r->largest && r->sum && r->values ? ND_OK : nd_error_get_status();
    }
    nd_auto nd_tensor *fall = nd_sub(r->largest, base);
    nd_auto nd_tensor *scale = nd_exp(fall);
    accumulate(&r->sum, scale, nd_steal(&sum));
    accumulate(&r->values, scale, nd_steal(&weighted));
    nd_release(r->largest);
    r->largest = nd_steal(&largest);
    return r->largest && r->sum && r->values ? ND_OK : nd_error_get_status();
}

/// The run's result, which it gives away, and its logarithms of sums.
static nd_status finish_run(run *r, nd_tensor **ret_result, nd_tensor **ret_log_sums) {
    nd_auto nd_tensor *divisor = without(r->sum, 0.0, 1.0);
    if (!divisor || nd_div_(r->values, divisor) != ND_OK)
        return nd_error_get_status();
    nd_auto nd_tensor *logarithm = nd_log(r->sum);
    nd_auto nd_tensor *sum = nd_add(logarithm, r->largest);
    nd_auto nd_tensor *log_sums = without(sum, -INFINITY, INFINITY);
    if (!log_sums)
        return nd_error_get_status();
    *ret_result = nd_steal(&r->values);
    *ret_log_sums = nd_steal(&log_sums);
    return ND_OK;
}

static nd_status attend_run(const nd__attention *a, int64_t side, tile *t, nd_tensor **ret_result,
                            nd_tensor **ret_log_sums) {
    __attribute__((cleanup(release_run))) run r = {0};
    nd_auto nd_tensor *queries = scaled_queries(a, t);
    if (!queries)
        return nd_error_get_status();
    nd_status status = ND_OK;
    for (bool more = next_tile(a, side, t, true); more && status == ND_OK;
         more = next_tile(a, side, t, false))
        status = attend_tile(a, queries, t, &r);
    return status == ND_OK ? finish_run(&r, ret_result, ret_log_sums) : status;
}

/// Runs of queries one behind the other, along the axis before the last.
static nd_tensor *joined(nd_tensor **parts, size_t count) {
    if (count == 1)
        return nd_retain(parts[0]);
    return nd_concat(count, (const nd_tensor *const *)parts, -2);
}

static void release_parts(nd_tensor **parts, size_t count) {
    for (size_t i = 0; i < count; i++)
        nd_release(parts[i]);
    nd__alloc_free(parts);
}

nd_status nd__attention_blocks_forward(const nd__attention *a, nd_tensor **ret_result,
                                       nd_tensor **ret_log_sums) {
    int64_t side = side_of(a);
    size_t count = (size_t)((size_at(a->query, -2) + side - 1) / side);
    nd_tensor **parts = nd__pressure_alloc_zeroed(2 * count * sizeof *parts);
    if (!parts)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu parts", name, count);
    nd_status status = ND_OK;
    tile t = {0};
    size_t at = 0;
    for (bool more = next_rows(a, side, &t, true); more && status == ND_OK;
         more = next_rows(a, side, &t, false), at++)
        status = attend_run(a, side, &t, &parts[at], &parts[count + at]);
    nd_auto nd_tensor *result = status == ND_OK ? joined(parts, count) : NULL;
    nd_auto nd_tensor *log_sums = result ? joined(parts + count, count) : NULL;
    release_parts(parts, 2 * count);
    if (!log_sums)
        return nd_error_get_status();
    *ret_result = nd_steal(&result);
    *ret_log_sums = nd_steal(&log_sums);
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------
// backward

/// Adds to rows of a gradient what may have to be summed over leading axes first. Where there is no
/// gradient yet, all rows are that, and some are added to zeros.
static nd_status add_rows(nd_tensor **grad, const nd_tensor *like, int64_t start, int64_t count,
                          const nd_tensor *more) {
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < like->ndim; i++)
        shape[i] = i == like->ndim - 2 ? count : like->shape[i];
    nd_auto nd_tensor *fitting = more ? nd__reduce_sum_to(more, like->ndim, shape) : NULL;
    if (!fitting)
        return nd_error_get_status();
    if (!*grad && count == size_at(like, -2)) {
        *grad = nd_steal(&fitting);
        return ND_OK;
    }
    if (!*grad && !(*grad = nd_zeros_like(like)))
        return nd_error_get_status();
    nd_auto nd_tensor *rows = rows_of(*grad, start, count);
    return rows ? nd_add_(rows, fitting) : nd_error_get_status();
}

static nd_status add_mask_gradient(nd_tensor *sum, const tile *t, const nd_tensor *slopes) {
    nd_auto nd_tensor *part = mask_of(sum, t);
    nd_auto nd_tensor *fitting =
        part && slopes ? nd__reduce_sum_to(slopes, part->ndim, part->shape) : NULL;
    return fitting ? nd_add_(part, fitting) : nd_error_get_status();
}

/// What a run of queries brings along.
typedef struct backward_run {
    const nd_tensor *queries;  ///< scaled
    const nd_tensor *grad;     ///< of the result
    const nd_tensor *delta;    ///< grad result, summed over the values' axis
    const nd_tensor *log_sums; ///< see nd__attention_blocks_forward
    nd_tensor **query_grad;    ///< added up here, not scaled; NULL before the first tile
} backward_run;

/// weight (grad value^T factor - delta): the gradient of the scores.
static nd_tensor *score_gradient(const backward_run *r, const nd_tensor *weights,
                                 const nd_tensor *values, const nd_tensor *factors) {
    nd_auto nd_tensor *turned = nd_transpose(values, -2, -1);
    nd_auto nd_tensor *slopes = times(nd_matmul(r->grad, turned), factors);
    if (!slopes || nd_sub_(slopes, r->delta) != ND_OK || nd_mul_(slopes, weights) != ND_OK)
        return NULL;
    return nd_steal(&slopes);
}

static nd_status give_tile(const nd__attention *a, const tile *t, const bool *wanted,
                           const backward_run *r, const nd_tensor *keys, const nd_tensor *slopes,
                           nd_tensor **grads) {
    nd_status status = slopes ? ND_OK : nd_error_get_status();
    if (status == ND_OK && wanted[QUERY]) {
        nd_auto nd_tensor *part = nd_matmul(slopes, keys);
        status = add_rows(r->query_grad, r->queries, 0, t->rows, part);
    }
    if (status == ND_OK && wanted[KEY]) {
        nd_auto nd_tensor *turned = nd_transpose(slopes, -2, -1);
        nd_auto nd_tensor *part = nd_matmul(turned, r->queries);
        status = add_rows(&grads[KEY], a->key, t->column, t->columns, part);
    }
    if (status == ND_OK && a->mask && wanted[MASK])
        status = add_mask_gradient(grads[MASK], t, slopes);
    return status;
}

static nd_status backward_tile(const nd__attention *a, const tile *t, const bool *wanted,
                               const backward_run *r, nd_tensor **grads) {
    nd_auto nd_tensor *keys = rows_of(a->key, t->column, t->columns);
    nd_auto nd_tensor *values = rows_of(a->value, t->column, t->columns);
    nd_auto nd_tensor *scores = scores_of(a, r->queries, keys, t);
    if (!values || !scores || nd_sub_(scores, r->log_sums) != ND_OK)
        return nd_error_get_status();
    nd_auto nd_tensor *weights = powers_of(nd_steal(&scores));
    nd_auto nd_tensor *factors = factors_of(a, t);
    if (!weights || (a->dropout != 0.0 && !factors))
        return nd_error_get_status();
    nd_status status = ND_OK;
    if (wanted[VALUE]) {
        nd_auto nd_tensor *dropped = times(nd_retain(weights), factors);
        nd_auto nd_tensor *turned = nd_transpose(dropped, -2, -1);
        nd_auto nd_tensor *part = nd_matmul(turned, r->grad);
        status = add_rows(&grads[VALUE], a->value, t->column, t->columns, part);
    }
    if (status != ND_OK || !(wanted[QUERY] || wanted[KEY] || wanted[MASK]))
        return status;
    nd_auto nd_tensor *slopes = score_gradient(r, weights, values, factors);
    return give_tile(a, t, wanted, r, keys, slopes, grads);
}

static nd_status backward_tiles(const nd__attention *a, int64_t side, tile *t, const bool *wanted,
                                const nd_tensor *grad, const nd_tensor *result,
                                const nd_tensor *log_sums, nd_tensor **grads) {
    const int last = -1;
    nd_auto nd_tensor *queries = scaled_queries(a, t);
    nd_auto nd_tensor *grad_rows = rows_of(grad, t->row, t->rows);
    nd_auto nd_tensor *result_rows = rows_of(result, t->row, t->rows);
    nd_auto nd_tensor *product = nd_mul(grad_rows, result_rows);
    nd_auto nd_tensor *delta = nd_sum(product, 1, &last, true);
    nd_auto nd_tensor *sums = rows_of(log_sums, t->row, t->rows);
    nd_auto nd_tensor *query_grad = NULL;
    if (!queries || !delta || !sums)
        return nd_error_get_status();
    const backward_run r = {queries, grad_rows, delta, sums, &query_grad};
    nd_status status = ND_OK;
    for (bool more = next_tile(a, side, t, true); more && status == ND_OK;
         more = next_tile(a, side, t, false))
        status = backward_tile(a, t, wanted, &r, grads);
    if (status == ND_OK && wanted[QUERY])
        status = nd_mul_scalar_(query_grad, a->scale);
    if (status == ND_OK && wanted[QUERY])
        status = add_rows(&grads[QUERY], a->query, t->row, t->rows, query_grad);
    return status;
}

nd_status nd__attention_blocks_backward(const nd__attention *a, const nd_tensor *grad,
                                        const nd_tensor *result, const nd_tensor *log_sums,
                                        const bool *wanted, nd_tensor **ret_grads) {
    const nd_tensor *inputs[] = {a->query, a->key, a->value, a->mask};
    nd_tensor *grads[4] = {0};
    nd_status status = ND_OK;
    if (wanted[MASK] && !(grads[MASK] = nd_zeros_like(a->mask)))
        return nd_error_get_status();
    int64_t side = side_of(a);
    tile t = {0};
    for (bool more = next_rows(a, side, &t, true); more && status == ND_OK;
         more = next_rows(a, side, &t, false))
        status = backward_tiles(a, side, &t, wanted, grad, result, log_sums, grads);
    for (int i = 0; i < 4 && status == ND_OK; i++)
        if (wanted[i] && !grads[i] && !(grads[i] = nd_zeros_like(inputs[i])))
            status = nd_error_get_status();
    for (int i = 0; i < 4; i++) {
        if (status == ND_OK)
            ret_grads[i] = grads[i];
        else
            nd_release(grads[i]);
    }
    return status;
}

// -------------------------------------------------------------------------------------------------

nd_tensor *nd__attention_blocks_factors(const nd__attention *a) {
    int64_t shape[ND_MAX_DIMS], side = side_of(a);
    int ndim = a->query->ndim;
    for (int i = 0; i < ndim - 1; i++)
        shape[i] = a->query->shape[i];
    shape[ndim - 1] = size_at(a->key, -2);
    nd_auto nd_tensor *all = nd__create_filled(
        name, nd__tensor_result(name, &a->query, 1, a->query->device, a->query->dtype, ndim, shape),
        ND_NUMBER(0));
    tile t = {0};
    for (bool rows = next_rows(a, side, &t, true); rows && all;
         rows = next_rows(a, side, &t, false))
        for (bool more = next_tile(a, side, &t, true); more && all;
             more = next_tile(a, side, &t, false)) {
            nd_auto nd_tensor *factors = factors_of(a, &t);
            nd_auto nd_tensor *part = mask_of(all, &t);
            if (!factors || !part || nd_copy_(part, factors) != ND_OK) {
                nd_release(all);
                all = NULL;
            }
        }
    return nd_steal(&all);
}
