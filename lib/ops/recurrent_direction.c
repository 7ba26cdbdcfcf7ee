// What both ways of a direction begin with.
#include "lib/ops/recurrent_direction.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/create.h"

void nd__recurrent_direction_release(nd__recurrent_result *result) {
    nd_release(result->output);
    nd_release(result->hidden);
    nd_release(result->memory);
    *result = (nd__recurrent_result){0};
}

nd_status nd__recurrent_direction_make_list(const char *name, int64_t count,
                                            nd__recurrent_list *ret_list) {
    ret_list->count = (size_t)count;
    ret_list->at = nd__pressure_alloc_zeroed((size_t)count * sizeof *ret_list->at);
    return ret_list->at ? ND_OK
                        : nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %lld tensors", name,
                                    (long long)count);
}

void nd__recurrent_direction_release_list(nd__recurrent_list *list) {
    for (size_t i = 0; list->at && i < list->count; i++)
        nd_release(list->at[i]);
    nd__alloc_free(list->at);
}

nd_tensor *nd__recurrent_direction_state(const nd__recurrent_direction *d, const nd_tensor *given) {
    const nd_tensor *input = d->input;
    const int64_t size = input->shape[2] / nd_cell_gates(d->cell);
    const int64_t shape[] = {input->shape[1], size};
    if (given)
        return nd_retain(given);
    return nd__create_filled(
        d->name, nd__tensor_result(d->name, &input, 1, input->device, input->dtype, 2, shape),
        ND_NUMBER(0));
}

nd_tensor *nd__recurrent_direction_product(const nd__recurrent_direction *d,
                                           const nd_tensor *hidden) {
    nd_auto nd_tensor *factor = hidden ? nd__operands_as_dtype(hidden, d->weight->dtype) : NULL;
    nd_auto nd_tensor *product = factor ? nd_linear(factor, d->weight, d->bias) : NULL;
    return product ? nd__operands_as_dtype(product, d->input->dtype) : NULL;
}
