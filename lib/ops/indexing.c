// Several indices at once: they become one, of the rows that x's first axes make together, which
// take and scatter_add read. An index that is outside its own axis becomes one outside of all rows,
// so that the kernel finds it where it finds every other.
#include "lib/base/error.h"
#include "lib/ops/index.h"
#include "lib/tensor/shape.h"
#include <nd/indexing.h>
#include <nd/ops.h>
#include <nd/sorting.h>

/// Indices of x's first axes, one for each.
typedef struct columns {
    int count;
    nd_tensor *index[ND_MAX_DIMS]; ///< owned, i64
} columns;

static void release_columns(columns *c) {
    for (int i = 0; i < c->count; i++)
        nd_release(c->index[i]);
}

/// A mask of the axes from c->count on becomes an index for each.
static nd_status add_mask(const char *name, const nd_tensor *x, const nd_tensor *mask, columns *c) {
    bool fits = mask->ndim > 0 && c->count + mask->ndim <= x->ndim;
    for (int i = 0; i < mask->ndim && fits; i++)
        fits = mask->shape[i] == x->shape[c->count + i];
    char x_text[ND__SHAPE_TEXT], mask_text[ND__SHAPE_TEXT];
    if (!fits)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: a mask of shape %s does not fit the axes from %d on of x of shape %s",
                         name, nd__shape_text(mask_text, mask->ndim, mask->shape), c->count,
                         nd__shape_text(x_text, x->ndim, x->shape));
    nd_auto nd_tensor *places = nd_nonzero(mask);
    for (int i = 0; i < mask->ndim; i++) {
        nd_tensor *column = nd_select(places, i, 1);
        if (!column)
            return nd_error_get_status();
        c->index[c->count++] = column;
    }
    return ND_OK;
}

static nd_status read_columns(const char *name, const nd_tensor *x, size_t count,
                              const nd_tensor *const *indices, columns *c) {
    nd_status status = nd__tensor_check_operand(name, "x", x);
    if (status == ND_OK && (!indices || count == 0))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %zu indices at %s", name, count,
                           indices ? "an address" : "NULL");
    for (size_t i = 0; i < count && status == ND_OK; i++) {
        const nd_tensor *index = indices[i];
        status = nd__operands_check_pair(name, "x", x, "an index", index);
        if (status != ND_OK)
            break;
        if (index->dtype == ND_BOOL) {
            status = add_mask(name, x, index, c);
        } else if (index->dtype != ND_I64 && index->dtype != ND_I32) {
            status =
                nd__error(ND_ERROR_DTYPE, "%s: index %zu is %s and must be int64, int32 or bool",
                          name, i, nd_dtype_get_name(index->dtype));
        } else if (c->count == x->ndim) {
            status =
                nd__error(ND_ERROR_SHAPE, "%s: more indices than the %d axes of x", name, x->ndim);
        } else {
            c->index[c->count] = nd__operands_as_dtype(index, ND_I64);
            status = c->index[c->count] ? ND_OK : nd_error_get_status();
            c->count += status == ND_OK;
        }
    }
    return status;
}

/// `flat`, the index of the axes before, with that of one more axis; outside of them, -1 stays.
static nd_tensor *with_axis(const char *name, const nd_tensor *flat, const nd_tensor *index,
                            int64_t size) {
    nd_auto nd_tensor *zero = nd__operands_number_like(name, index, ND_I64, ND_NUMBER(0));
    nd_auto nd_tensor *end = nd__operands_number_like(name, index, ND_I64, ND_NUMBER(size));
    nd_auto nd_tensor *outside = nd__operands_number_like(name, index, ND_I64, ND_NUMBER(-1));
    nd_auto nd_tensor *negative = nd_less(index, zero);
    nd_auto nd_tensor *shifted = nd_add_scalar(index, size);
    nd_auto nd_tensor *place = nd_where(negative, shifted, index);
    nd_auto nd_tensor *is_below = nd_less(place, zero);
    nd_auto nd_tensor *is_above = nd_greater_equal(place, end);
    nd_auto nd_tensor *is_outside = nd_logical_or(is_below, is_above);
    if (!flat)
        return nd_where(is_outside, outside, place);
    nd_auto nd_tensor *was_outside = nd_less(flat, zero);
    nd_auto nd_tensor *any_outside = nd_logical_or(is_outside, was_outside);
    nd_auto nd_tensor *scaled = nd_mul_scalar(flat, size);
    nd_auto nd_tensor *joined = nd_add(scaled, place);
    return nd_where(any_outside, outside, joined);
}

/// Which of x's rows the indices name: i64, of the indices' shape; their number for what is outside.
/// A row is what is left of x behind the `ret_axes` axes that are indexed.
static nd_tensor *rows_of(const char *name, const nd_tensor *x, size_t count,
                          const nd_tensor *const *indices, int *ret_axes, int64_t *ret_rows) {
    columns c = {.count = 0};
    nd_auto nd_tensor *flat = NULL;
    *ret_rows = 1;
    bool whole = read_columns(name, x, count, indices, &c) == ND_OK;
    for (int i = 0; i < c.count && whole; i++) {
        nd_tensor *next = with_axis(name, flat, c.index[i], x->shape[i]);
        nd_release(flat);
        flat = next;
        whole = flat != NULL;
        *ret_rows *= x->shape[i];
    }
    *ret_axes = c.count;
    release_columns(&c);
    if (!whole)
        return NULL;
    nd_auto nd_tensor *zero = nd__operands_number_like(name, flat, ND_I64, ND_NUMBER(0));
    nd_auto nd_tensor *end = nd__operands_number_like(name, flat, ND_I64, ND_NUMBER(*ret_rows));
    nd_auto nd_tensor *is_outside = nd_less(flat, zero);
    return nd_where(is_outside, end, flat);
}

/// Behind a refusal of rows, which says nothing of the indices that they are made of: says which of
/// these it was. After other errors nothing.
static void say_which(const char *name, const nd_tensor *x, size_t count,
                      const nd_tensor *const *indices) {
    if (nd_error_get_status() != ND_ERROR_INVALID_ARGUMENT)
        return;
    nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: an index is outside its axis of x", name);
    int axis = 0;
    for (size_t i = 0; i < count;
         axis += indices[i]->dtype == ND_BOOL ? indices[i]->ndim : 1, i++) {
        int64_t size = x->shape[axis];
        nd_stray stray;
        if (indices[i]->dtype == ND_BOOL ||
            !nd__index_find_outside(indices[i], -size, size - 1, NULL, &stray))
            continue;
        if (size == 0)
            nd__error(ND_ERROR_INVALID_ARGUMENT,
                      "%s: index %zu holds %s, and axis %d of x has no elements", name, i,
                      stray.text, axis);
        else
            nd__error(ND_ERROR_INVALID_ARGUMENT,
                      "%s: index %zu holds %s, outside %lld ... %lld (axis %d of x)", name, i,
                      stray.text, (long long)-size, (long long)size - 1, axis);
        return;
    }
}

nd_tensor *nd_index(const nd_tensor *x, size_t count, const nd_tensor *const *indices) {
    ND__ERROR_NAMED("index");
    int axes;
    int64_t rows, shape[ND_MAX_DIMS + 1];
    nd_auto nd_tensor *flat = rows_of("index", x, count, indices, &axes, &rows);
    if (!flat)
        return NULL;
    shape[0] = rows;
    for (int i = axes; i < x->ndim; i++)
        shape[1 + i - axes] = x->shape[i];
    nd_auto nd_tensor *table = nd_reshape(x, 1 + x->ndim - axes, shape);
    nd_tensor *result = nd_take(table, flat, 0);
    if (!result)
        say_which("index", x, count, indices);
    return result;
}

// -------------------------------------------------------------------------------------------------

/// For each of `rows` rows 1 + the last place in `flat` [n] that names it, 0 where none does.
static nd_tensor *last_writers(const nd_tensor *flat, int64_t rows) {
    nd_auto nd_tensor *zero = nd__operands_number_like("index_put", flat, ND_I64, ND_NUMBER(0));
    nd_auto nd_tensor *zeros = nd_expand(zero, 1, &rows);
    nd_auto nd_tensor *ones = nd_ones_like(flat);
    nd_auto nd_tensor *writers = nd_cumsum(ones, 0);
    return nd_scatter(zeros, flat, writers, 0, ND_SCATTER_AMAX, true);
}

/// table [rows, inner] with source [n, inner] in the rows that flat [n] names.
static nd_tensor *replaced(const nd_tensor *table, const nd_tensor *flat, const nd_tensor *source) {
    int64_t rows = table->shape[0];
    nd_auto nd_tensor *writers = last_writers(flat, rows);
    nd_auto nd_tensor *column = nd_reshape(writers, 2, (const int64_t[]){rows, 1});
    nd_auto nd_tensor *zero =
        column ? nd__operands_number_like("index_put", table, ND_I64, ND_NUMBER(0)) : NULL;
    nd_auto nd_tensor *is_written = nd_greater(column, zero);
    nd_auto nd_tensor *places = nd_sub_scalar(writers, 1);
    nd_auto nd_tensor *from = nd_maximum(places, zero);
    nd_auto nd_tensor *values = nd_take(source, from, 0);
    return nd_where(is_written, values, table);
}

static nd_tensor *accumulated(const nd_tensor *table, const nd_tensor *flat,
                              const nd_tensor *source) {
    nd_auto nd_tensor *column = nd_unsqueeze(flat, 1);
    nd_auto nd_tensor *index = nd_expand(column, 2, source->shape);
    return nd_scatter_add(table, index, source, 0);
}

/// For indices of slices without elements, which nothing else looks at: whether all are in range.
static bool points_into(const nd_tensor *x, const nd_tensor *indices, int axis) {
    nd_auto nd_tensor *slices = nd_take(x, indices, axis);
    return slices != NULL;
}

nd_tensor *nd_index_put(const nd_tensor *x, size_t count, const nd_tensor *const *indices,
                        const nd_tensor *values, bool accumulate) {
    ND__ERROR_NAMED("index_put");
    const char *name = "index_put";
    int axes;
    int64_t rows, shape[2 * ND_MAX_DIMS];
    nd_auto nd_tensor *places = rows_of(name, x, count, indices, &axes, &rows);
    if (!places || nd__operands_check_pair(name, "x", x, "values", values) != ND_OK)
        return NULL;
    if (values->dtype != x->dtype) {
        nd__error(ND_ERROR_DTYPE, "%s: x is %s and the values %s", name,
                  nd_dtype_get_name(x->dtype), nd_dtype_get_name(values->dtype));
        return NULL;
    }
    if (accumulate && x->dtype == ND_BOOL) {
        nd__error(ND_ERROR_DTYPE, "%s: x is bool, and only numbers can be added up", name);
        return NULL;
    }
    int64_t inner = 1;
    int ndim = places->ndim + x->ndim - axes;
    for (int i = 0; i < places->ndim; i++)
        shape[i] = places->shape[i];
    for (int i = axes; i < x->ndim; i++)
        inner *= shape[places->ndim + i - axes] = x->shape[i];
    nd_auto nd_tensor *spread = nd_expand(values, ndim, shape);
    nd_auto nd_tensor *source = nd_reshape(spread, 2, (const int64_t[]){places->numel, inner});
    nd_auto nd_tensor *flat = nd_reshape(places, 1, &places->numel);
    nd_auto nd_tensor *table = nd_reshape(x, 2, (const int64_t[]){rows, inner});
    if (!source || !flat || !table)
        return NULL;
    bool into = source->numel > 0 || points_into(table, flat, 0);
    const bool is_nothing = into && source->numel == 0;
    if (is_nothing && !nd__dtype_is_float(x->dtype))
        return nd_clone(x);
    // Nothing is added up where nothing is written: the values keep their part in the history.
    nd_auto nd_tensor *result = !into                      ? NULL
                                : accumulate || is_nothing ? accumulated(table, flat, source)
                                                           : replaced(table, flat, source);
    if (!result)
        say_which(name, x, count, indices);
    return nd_reshape(result, x->ndim, x->shape);
}

nd_tensor *nd_index_add(const nd_tensor *x, const nd_tensor *indices, const nd_tensor *source,
                        int axis) {
    ND__ERROR_NAMED("index_add");
    const char *name = "index_add";
    if (nd__operands_check_pair(name, "x", x, "indices", indices) != ND_OK ||
        nd__operands_check_pair(name, "x", x, "source", source) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis(name, axis, x->ndim);
    if (axis < 0)
        return NULL;
    int64_t line[ND_MAX_DIMS];
    bool fits = indices->ndim == 1 && source->ndim == x->ndim;
    for (int i = 0; i < x->ndim && fits; i++) {
        line[i] = i == axis ? indices->numel : 1;
        fits = source->shape[i] == (i == axis ? indices->numel : x->shape[i]);
    }
    if (!fits) {
        char x_text[ND__SHAPE_TEXT], source_text[ND__SHAPE_TEXT], text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE,
                  "%s: source of shape %s and indices of shape %s do not fit axis %d of x of shape "
                  "%s",
                  name, nd__shape_text(source_text, source->ndim, source->shape),
                  nd__shape_text(text, indices->ndim, indices->shape), axis,
                  nd__shape_text(x_text, x->ndim, x->shape));
        return NULL;
    }
    if (source->numel == 0 && !points_into(x, indices, axis))
        return NULL;
    nd_auto nd_tensor *lined = nd_reshape(indices, x->ndim, line);
    nd_auto nd_tensor *index = nd_expand(lined, x->ndim, source->shape);
    nd_tensor *result = nd_scatter_add(x, index, source, axis);
    // Of the indices as they were given.
    if (!result && nd_error_get_status() == ND_ERROR_INVALID_ARGUMENT)
        nd__index_refuse_place(name, indices, x->shape[axis]);
    return result;
}
