// Embedding: rows of a table, whose gradient is added to the rows they came from.
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/neural.h>
#include <nd/out.h>

static nd_status check_embedding(const nd_tensor *weight, const nd_tensor *indices,
                                 int64_t padding) {
    nd_status status = nd__operands_check_pair("embedding", "weight", weight, "indices", indices);
    if (status != ND_OK)
        return status;
    if (indices->dtype != ND_I64 && indices->dtype != ND_I32)
        return nd__error(ND_ERROR_DTYPE, "embedding: the indices are %s and must be int64 or int32",
                         nd_dtype_get_name(indices->dtype));
    if (weight->ndim != 2) {
        char text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_SHAPE, "embedding: weight has shape %s and must be [rows, size]",
                         nd__shape_text(text, weight->ndim, weight->shape));
    }
    int64_t rows = weight->shape[0];
    if (padding != ND_NO_PADDING && (padding < -rows || padding >= rows))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "embedding: padding is %lld, outside %lld ... %lld", (long long)padding,
                         (long long)-rows, (long long)rows - 1);
    return ND_OK;
}

/// Where the indices are not those of a row, however they name it: [..., 1], bool.
static nd_tensor *elsewhere(const nd_tensor *indices, int64_t row, int64_t rows) {
    nd_auto nd_tensor *wide = nd_cast(indices, ND_I64);
    nd_auto nd_tensor *counted =
        wide ? nd__operands_number_like("embedding", wide, ND_I64, ND_NUMBER(row)) : NULL;
    nd_auto nd_tensor *from_end =
        wide ? nd__operands_number_like("embedding", wide, ND_I64, ND_NUMBER(row - rows)) : NULL;
    nd_auto nd_tensor *no_counted = nd_not_equal(wide, counted);
    nd_auto nd_tensor *no_from_end = nd_not_equal(wide, from_end);
    nd_auto nd_tensor *neither = nd_logical_and(no_counted, no_from_end);
    return nd_unsqueeze(neither, -1);
}

nd_tensor *nd_embedding(const nd_tensor *weight, const nd_tensor *indices, int64_t padding) {
    ND__ERROR_NAMED("embedding");
    if (check_embedding(weight, indices, padding) != ND_OK)
        return NULL;
    nd_auto nd_tensor *rows = nd_take(weight, indices, 0);
    if (!rows || padding == ND_NO_PADDING || !nd_requires_grad(rows))
        return nd_steal(&rows);
    int64_t row = padding < 0 ? padding + weight->shape[0] : padding;
    nd_auto nd_tensor *mask = elsewhere(indices, row, weight->shape[0]);
    nd_auto nd_tensor *constant = nd_detach(rows);
    return nd_where(mask, rows, constant);
}

nd_status nd_embedding_out(const nd_tensor *weight, const nd_tensor *indices, int64_t padding,
                           nd_tensor *out) {
    ND__ERROR_NAMED("embedding");
    nd_status status = check_embedding(weight, indices, padding);
    return status == ND_OK ? nd_take_out(weight, indices, 0, out) : status;
}
