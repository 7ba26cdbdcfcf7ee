// See factor.h. A batch whose matrices lie behind each other becomes rows of one product. The result
// is contiguous: what a kernel adds up first may depend on how it lies.
#include "lib/ops/factor.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/shape.h"

/// Fills from the operand's last two axes; a 1-d operand is one row, or one column.
static void describe(nd__factor *m, bool as_column) {
    const nd_tensor *x = m->tensor;
    int last = x->ndim - 1;
    m->batch_ndim = x->ndim < 2 ? 0 : x->ndim - 2;
    if (x->ndim == 1) {
        m->rows = as_column ? x->shape[0] : 1;
        m->columns = as_column ? 1 : x->shape[0];
        m->row_stride = as_column ? nd__tensor_strides(x)[0] : x->shape[0];
        m->column_stride = as_column ? 1 : nd__tensor_strides(x)[0];
        return;
    }
    m->rows = x->shape[last - 1];
    m->columns = x->shape[last];
    m->row_stride = nd__tensor_strides(x)[last - 1];
    m->column_stride = nd__tensor_strides(x)[last];
}

bool nd__factor_is_readable(const nd__factor *m) {
    bool by_rows =
        (m->column_stride == 1 || m->columns == 1) && (m->rows == 1 || m->row_stride >= m->columns);
    bool by_columns =
        (m->row_stride == 1 || m->rows == 1) && (m->columns == 1 || m->column_stride >= m->rows);
    return by_rows || by_columns;
}

void nd__factor_make(const char *name, nd__factor *m, const nd_tensor *x, bool as_column) {
    m->tensor = nd_retain(x);
    describe(m, as_column);
    if (nd__factor_is_readable(m))
        return;
    nd_release(m->tensor);
    m->tensor = nd__operands_dense(name, x, x->dtype);
    if (m->tensor)
        describe(m, as_column);
}

void nd__factor_tidy(nd__factor *m) {
    if (m->columns == 1 && m->row_stride != 1)
        m->column_stride = 1;
    else if (m->rows == 1 && m->column_stride != 1)
        m->row_stride = 1;
    else if (m->rows == 1)
        m->row_stride = m->columns;
    else if (m->columns == 1)
        m->column_stride = m->rows;
}

// ------------------------------------------------------------------------------------------- checks

nd_status nd__factor_check_inner(const char *name, const nd_tensor *a, const nd_tensor *b,
                                 int64_t a_inner, int64_t b_inner) {
    if (a_inner == b_inner)
        return ND_OK;
    char a_text[ND__SHAPE_TEXT], b_text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE, "%s: shapes %s and %s do not fit: %lld against %lld", name,
                     nd__shape_text(a_text, a->ndim, a->shape),
                     nd__shape_text(b_text, b->ndim, b->shape), (long long)a_inner,
                     (long long)b_inner);
}

bool nd__factor_make_pair(const char *name, nd__factor *a, nd__factor *b, const nd_tensor *x,
                          const nd_tensor *y) {
    a->tensor = b->tensor = NULL;
    nd__factor_make(name, a, x, false);
    if (a->tensor)
        nd__factor_make(name, b, y, true);
    if (!b->tensor) {
        nd__factor_release_pair(a, b);
        return false;
    }
    nd__factor_tidy(a);
    nd__factor_tidy(b);
    return true;
}

void nd__factor_release_pair(nd__factor *a, nd__factor *b) {
    nd_release(a->tensor);
    nd_release(b->tensor);
}

nd_status nd__factor_check(const char *name, const nd_tensor *a, const nd_tensor *b) {
    if (a->ndim == 0 || b->ndim == 0)
        return nd__error(ND_ERROR_SHAPE, "%s: an operand has no dimensions", name);
    return nd__factor_check_inner(name, a, b, a->shape[a->ndim - 1],
                                  b->shape[b->ndim == 1 ? 0 : b->ndim - 2]);
}

int nd__factor_shape(const char *name, const nd__factor *a, const nd__factor *b, int *ret_batch,
                     int64_t *ret_shape) {
    int batch = nd__shape_broadcast(name, a->batch_ndim, a->tensor->shape, b->batch_ndim,
                                    b->tensor->shape, ret_shape);
    if (batch < 0)
        return -1;
    int ndim = batch;
    if (a->tensor->ndim > 1)
        ret_shape[ndim++] = a->rows;
    if (b->tensor->ndim > 1)
        ret_shape[ndim++] = b->columns;
    *ret_batch = batch;
    return ndim;
}

// --------------------------------------------------------------------------------------- the kernel's

void nd__factor_fill(nd_kernel_call *call, nd_op op, const nd__factor *a, const nd__factor *b,
                     nd_tensor *out) {
    const nd_tensor *operands[] = {out, a->tensor, b->tensor};
    int64_t n = b->columns;
    call->op = op;
    call->noperands = 3;
    call->ndim = 0;
    for (int i = 0; i < 3; i++) {
        call->operand[i].data = operands[i]->data;
        call->operand[i].dtype = operands[i]->dtype;
    }
    const int64_t attrs[9] = {
        a->rows,          n, a->columns, a->row_stride, a->column_stride, b->row_stride,
        b->column_stride, n, 1};
    for (int i = 0; i < 9; i++)
        call->attrs.i[i] = attrs[i];
    call->attrs.f[0] = 0;
}

static void fill_strides(const nd__factor *m, int batch, const int64_t *shape,
                         int64_t *ret_strides) {
    int missing = batch - m->batch_ndim;
    for (int i = 0; i < batch; i++) {
        bool repeats = i < missing || (m->tensor->shape[i - missing] == 1 && shape[i] != 1);
        ret_strides[i] = repeats ? 0 : nd__tensor_strides(m->tensor)[i - missing];
    }
}

void nd__factor_fill_batches(nd_kernel_call *call, const nd__factor *a, const nd__factor *b,
                             int batch, const int64_t *shape) {
    call->ndim = batch;
    int64_t matrix = a->rows * b->columns;
    for (int i = batch - 1; i >= 0; i--) {
        call->shape[i] = shape[i];
        call->operand[0].strides[i] = matrix;
        matrix *= shape[i];
    }
    fill_strides(a, batch, shape, call->operand[1].strides);
    fill_strides(b, batch, shape, call->operand[2].strides);
}

void nd__factor_merge_batch(nd_kernel_call *call) {
    int64_t *attrs = call->attrs.i;
    // The stride from one row to the next is free where there is no next row.
    bool has_zeros = call->op == ND_OP_matmul_integer;
    if (call->ndim == 1 && attrs[0] == 1 && call->operand[1].strides[0] >= attrs[2]) {
        attrs[3] = call->operand[1].strides[0];
        attrs[9] = has_zeros ? call->operand[3].strides[0] : attrs[9];
    }
    bool rows_follow = call->ndim == 1 && call->operand[2].strides[0] == 0 && attrs[4] == 1 &&
                       call->operand[1].strides[0] == attrs[0] * attrs[3] &&
                       call->operand[0].strides[0] == attrs[0] * attrs[7];
    if (rows_follow && has_zeros)
        rows_follow =
            call->operand[3].strides[0] == attrs[0] * attrs[9] && call->operand[4].strides[0] == 0;
    if (!rows_follow)
        return;
    attrs[0] *= call->shape[0];
    call->ndim = 0;
}
