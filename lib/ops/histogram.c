// Counting: histogram and bincount add ones, or weights, at indices.
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/ops/operands.h"
#include "lib/tensor/shape.h"
#include <nd/sorting.h>

/// Weights have x's shape, stand beside it and are numbers.
static nd_status check_weights(const char *name, const nd_tensor *x, const nd_tensor *weights) {
    if (!weights)
        return ND_OK;
    nd_status status = nd__operands_check_pair(name, "x", x, "weights", weights);
    if (status != ND_OK)
        return status;
    if (weights->dtype == ND_BOOL)
        return nd__error(ND_ERROR_DTYPE, "%s: the weights are bool and must be numbers", name);
    if (nd__operands_same_shape(x, weights))
        return ND_OK;
    char x_text[ND__SHAPE_TEXT], weights_text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and the weights %s", name,
                     nd__shape_text(x_text, x->ndim, x->shape),
                     nd__shape_text(weights_text, weights->ndim, weights->shape));
}

/// Ones, or weights, added at `places` [n], all in 0 ... size - 1.
static nd_tensor *added(const char *name, const nd_tensor *places, const nd_tensor *weights,
                        int64_t size) {
    if (!places)
        return NULL;
    nd_dtype dtype = weights ? weights->dtype : ND_I64;
    nd_auto nd_tensor *zero = nd__operands_number_like(name, places, dtype, ND_NUMBER(0));
    nd_auto nd_tensor *zeros = nd_expand(zero, 1, &size);
    nd_auto nd_tensor *one =
        weights ? NULL : nd__operands_number_like(name, places, dtype, ND_NUMBER(1));
    nd_auto nd_tensor *source =
        weights ? nd_reshape(weights, 1, &places->numel) : nd_expand(one, 1, &places->numel);
    return nd_scatter_add(zeros, places, source, 0);
}

nd_tensor *nd_histogram(const nd_tensor *x, const nd_tensor *edges, const nd_tensor *weights) {
    ND__ERROR_NAMED("histogram");
    if (nd__operands_check_pair("histogram", "x", x, "edges", edges) != ND_OK ||
        check_weights("histogram", x, weights) != ND_OK)
        return NULL;
    if (edges->ndim != 1 || edges->numel < 2) {
        char text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "histogram: edges has shape %s and must be [n + 1] for n bins",
                  nd__shape_text(text, edges->ndim, edges->shape));
        return NULL;
    }
    int64_t bins = edges->numel - 1;
    // Place 0 is below the first edge, bins + 1 above the last.
    nd_auto nd_tensor *flat = nd_reshape(x, 1, &x->numel);
    nd_auto nd_tensor *found = nd_searchsorted(edges, flat, true);
    nd_auto nd_tensor *end = nd_slice(edges, bins, bins + 1, 1, 0);
    nd_auto nd_tensor *at_end = nd_equal(flat, end);
    nd_auto nd_tensor *last =
        at_end ? nd__operands_number_like("histogram", x, ND_I64, ND_NUMBER(bins)) : NULL;
    nd_auto nd_tensor *places = nd_where(at_end, last, found);
    nd_auto nd_tensor *sums = added("histogram", places, weights, bins + 2);
    return nd_slice(sums, 1, bins + 1, 1, 0);
}

nd_tensor *nd_bincount(const nd_tensor *x, const nd_tensor *weights, int64_t minimum) {
    ND__ERROR_NAMED("bincount");
    if (nd__tensor_check_operand("bincount", "x", x) != ND_OK ||
        check_weights("bincount", x, weights) != ND_OK)
        return NULL;
    if (x->ndim != 1 || nd__dtype_is_float(x->dtype) || x->dtype == ND_BOOL || minimum < 0) {
        char text[ND__SHAPE_TEXT];
        nd__error(minimum < 0    ? ND_ERROR_INVALID_ARGUMENT
                  : x->ndim != 1 ? ND_ERROR_SHAPE
                                 : ND_ERROR_DTYPE,
                  "bincount: x is %s of shape %s and must be [n] of integers, and the minimum %lld "
                  "at least 0",
                  nd_dtype_get_name(x->dtype), nd__shape_text(text, x->ndim, x->shape),
                  (long long)minimum);
        return NULL;
    }
    if (nd__capture_check_size("bincount", x->device) != ND_OK)
        return NULL;
    int64_t size = minimum, least = 0, greatest = -1;
    nd_auto nd_tensor *places = nd_cast(x, ND_I64);
    if (x->numel > 0) {
        nd_auto nd_tensor *low = nd_min(places, 0, NULL, false);
        nd_auto nd_tensor *high = nd_max(places, 0, NULL, false);
        if (!high || nd_get_item_i64(low, &least) != ND_OK ||
            nd_get_item_i64(high, &greatest) != ND_OK)
            return NULL;
    }
    if (least < 0 || greatest == INT64_MAX) {
        // What is negative as i64 was 2^63 or more as u64.
        int64_t number = least < 0 ? least : greatest;
        char text[ND__NUMBER_TEXT];
        nd__error(ND_ERROR_INVALID_ARGUMENT, "bincount: %s is in x and cannot be counted",
                  nd__number_text(text, x->dtype == ND_U64 ? ND_NUMBER((uint64_t)number)
                                                           : ND_NUMBER(number)));
        return NULL;
    }
    size = greatest + 1 > size ? greatest + 1 : size;
    return added("bincount", places, weights, size);
}
