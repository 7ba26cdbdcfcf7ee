// The functions of rule_cases.h, for indexing, copies, views, and a function of a user's.
#ifndef ND_TESTS_UNIT_AUTOGRAD_RULE_FUNCTIONS_VIEW_H
#define ND_TESTS_UNIT_AUTOGRAD_RULE_FUNCTIONS_VIEW_H
#include "lib/device/fake/fake.h"
#include "lib/tensor/join.h"
#include "lib/tensor/rebase.h"
#include "tests/unit/autograd/rule_case.h"

// -------------------------------------------------------------------------------------------------
// indexing

F(f_take) {
    UNUSED;
    const int64_t rows[] = {2, 0, 2, 1};
    nd_auto nd_tensor *indices = nd_from_data(rows, ND_SHAPE(2, 2), ND_I64);
    return nd_take(x[0], indices, 1);
}

F(f_take_i32) {
    UNUSED;
    const int32_t rows[] = {1, 1, 0};
    nd_auto nd_tensor *indices = nd_from_data(rows, ND_SHAPE(3), ND_I32);
    return nd_take(x[0], indices, 0);
}

static nd_tensor *index_tensor(void) {
    const int64_t index[] = {2, 0, 1, 1, 1, 2};
    return nd_from_data(index, ND_SHAPE(2, 3), ND_I64);
}

F(f_gather) {
    UNUSED;
    nd_auto nd_tensor *index = index_tensor();
    return nd_gather(x[0], index, 0);
}

F(f_scatter_add) {
    UNUSED;
    nd_auto nd_tensor *index = index_tensor();
    return nd_scatter_add(x[0], index, x[1], 0);
}

static nd_tensor *scatter_reduced(const nd_tensor *const *x, nd_scatter_reduction reduction) {
    nd_auto nd_tensor *index = index_tensor();
    return nd_scatter(x[0], index, x[1], 0, reduction, true);
}

F(f_scatter_prod) {
    UNUSED;
    return scatter_reduced(x, ND_SCATTER_PROD);
}

F(f_scatter_amin) {
    UNUSED;
    return scatter_reduced(x, ND_SCATTER_AMIN);
}

F(f_scatter_amax) {
    UNUSED;
    return scatter_reduced(x, ND_SCATTER_AMAX);
}

static nd_tensor *mask_tensor(void) {
    const uint8_t mask[] = {1, 0, 0, 1, 1, 0, 1, 0, 1, 0, 0, 1};
    return nd_from_data(mask, ND_SHAPE(3, 4), ND_BOOL);
}

F(f_masked_select) {
    UNUSED;
    nd_auto nd_tensor *mask = mask_tensor();
    return nd_masked_select(x[0], mask);
}

F(f_masked_softmax) {
    UNUSED;
    nd_auto nd_tensor *mask = mask_tensor();
    return nd_masked_softmax(x[0], mask, 1);
}

/// A row and a column of which nothing is kept, one number along the axis.
F(f_masked_softmax_first) {
    UNUSED;
    const uint8_t kept[] = {1, 0, 1};
    nd_auto nd_tensor *mask = nd_from_data(kept, ND_SHAPE(3), ND_BOOL);
    return nd_masked_softmax(x[0], mask, 0);
}

F(f_masked_fill) {
    UNUSED;
    nd_auto nd_tensor *mask = mask_tensor();
    return nd_masked_fill(x[0], mask, 7.0);
}

// -------------------------------------------------------------------------------------------------
// copies and views

F(f_cast) {
    UNUSED;
    nd_auto nd_tensor *narrow = nd_cast(x[0], ND_F32);
    return nd_cast(narrow, ND_F64);
}

F(f_to) {
    UNUSED;
    nd_auto nd_tensor *far = nd_to(x[0], (nd_device){ND_FAKE, 0});
    nd_auto nd_tensor *square = nd_square(far);
    return nd_to(square, (nd_device){ND_CPU, 0});
}

F(f_contiguous) {
    UNUSED;
    nd_auto nd_tensor *transposed = nd_transpose(x[0], 0, 1);
    return nd_contiguous(transposed);
}

F(f_unslice) {
    UNUSED;
    return nd__join_unslice(x[0], 2, (const int64_t[]){3, 9}, 1, 1, 2);
}

F(f_as_strided) {
    UNUSED;
    return nd_as_strided(x[0], 2, (const int64_t[]){2, 3}, (const int64_t[]){6, 2}, 1);
}

F(f_as_strided_overlapping) {
    UNUSED;
    return nd_as_strided(x[0], 3, (const int64_t[]){3, 2, 4}, (const int64_t[]){1, 0, 2}, 2);
}

F(f_as_strided_scatter) {
    UNUSED;
    const nd_op_attrs window = {.i = {6, 2, [8] = 1, [9] = 1}};
    return nd__rebase_write_window(x[0], x[1], &window);
}

/// x[0] with a row of it multiplied by x[1], through a view of a view.
F(f_written_through_views) {
    UNUSED;
    nd_auto nd_tensor *base = nd_square(x[0]);
    nd_auto nd_tensor *turned = nd_transpose(base, 0, 1);
    nd_auto nd_tensor *part = nd_select(turned, 1, 0);
    nd_auto nd_tensor *other = nd_flatten(base, 0);
    if (!part || nd_mul_(part, x[1]) != ND_OK)
        return NULL;
    return nd_mul(other, other);
}

F(f_concat) {
    UNUSED;
    const nd_tensor *parts[] = {x[0], x[1], x[0]};
    return nd_concat(3, parts, 1);
}

F(f_stack) {
    UNUSED;
    return nd_stack(2, x, 1);
}

F(f_reshape) {
    UNUSED;
    return nd_reshape(x[0], ND_SHAPE(2, -1));
}

F(f_reshape_copy) {
    UNUSED;
    nd_auto nd_tensor *transposed = nd_transpose(x[0], 0, 1);
    return nd_flatten(transposed, 0);
}

F(f_permute) {
    UNUSED;
    return nd_permute(x[0], 3, (const int[]){2, 0, 1});
}

F(f_expand) {
    UNUSED;
    return nd_expand(x[0], ND_SHAPE(2, 3, 4));
}

F(f_slice) {
    UNUSED;
    return nd_slice(x[0], 1, INT64_MAX, 2, 1);
}

F(f_slice_empty) {
    UNUSED;
    nd_auto nd_tensor *nothing = nd_slice(x[0], 2, 2, 1, 1);
    const nd_tensor *parts[] = {nothing, x[0]};
    return nd_concat(2, parts, 1);
}

F(f_slice_backwards) {
    UNUSED;
    return nd_slice(x[0], -2, INT64_MIN, -2, 1);
}

/// The product of parts, of which one is left out.
F(f_split) {
    UNUSED;
    nd_tensor *parts[3];
    if (nd_split(x[0], 3, (const int64_t[]){2, 1, 2}, 1, parts) != ND_OK)
        return NULL;
    nd_tensor *product = nd_mul(parts[0], parts[2]);
    for (int i = 0; i < 3; i++)
        nd_release(parts[i]);
    return product;
}

/// Of a result, which the parts follow: what the product saves of them keeps which part it was.
F(f_split_of_result) {
    UNUSED;
    nd_auto nd_tensor *square = nd_square(x[0]);
    const nd_tensor *whole = square;
    return square ? f_split(1, &whole, NULL) : NULL;
}

F(f_sliding_window) {
    UNUSED;
    return nd_sliding_window(x[0], 3, 1, 1);
}

/// Of an input that is not contiguous.
F(f_sliding_window_of_columns) {
    UNUSED;
    nd_auto nd_tensor *transposed = nd_transpose(x[0], 0, 1);
    return nd_sliding_window(transposed, 2, 2, 0);
}

F(f_select) {
    UNUSED;
    nd_auto nd_tensor *row = nd_select(x[0], -1, 0);
    nd_auto nd_tensor *wide = nd_unsqueeze(row, 0);
    nd_auto nd_tensor *narrow = nd_squeeze(wide, 0);
    return nd_square(narrow);
}

// -------------------------------------------------------------------------------------------------
// a user function: the cube, with its input kept in a list as context

static nd_status cube_forward(const nd_object *context, size_t ninputs,
                              const nd_tensor *const *inputs, size_t noutputs,
                              nd_tensor **ret_outputs) {
    (void)ninputs, (void)noutputs;
    ret_outputs[0] = nd_pow_scalar(inputs[0], 3.0);
    return ret_outputs[0] ? nd_list_append((nd_list *)context, inputs[0]) : nd_error_get_status();
}

static nd_status cube_backward(const nd_object *context, size_t noutputs,
                               const nd_tensor *const *grad_outputs, size_t ninputs,
                               nd_tensor **ret_grad_inputs) {
    (void)noutputs, (void)ninputs;
    const nd_tensor *x = (const nd_tensor *)nd_list_get((nd_list *)context, 0);
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *slope = nd_mul_scalar(square, 3.0);
    ret_grad_inputs[0] = nd_mul(grad_outputs[0], slope);
    return ret_grad_inputs[0] ? ND_OK : nd_error_get_status();
}

static const nd_function cube = {
    sizeof(nd_function), 1, "cube", cube_forward, cube_backward,
};

F(f_function) {
    UNUSED;
    nd_auto nd_list *context = nd_list_new();
    nd_tensor *y = NULL;
    return nd_function_apply(&cube, context, 1, x, 1, &y) == ND_OK ? y : NULL;
}

// -------------------------------------------------------------------------------------------------
#endif
