// Sorting and searching: CUDA kernels on the host beside the CPU's.
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"

static void sort(nd_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides,
                 int64_t kept, bool descending) {
    nd_kernel_call call = {.op = ND_OP_argsort, .noperands = 2, .ndim = ndim};
    memcpy(call.shape, shape, (size_t)ndim * sizeof *shape);
    call.attrs.i[0] = descending;
    call.attrs.i[1] = kept;
    int64_t length = 1;
    for (int axis = 0; axis < ndim; axis++)
        length *= shape[axis];
    int64_t reach = strides ? extent(&call, strides) : length;
    void *x = special_values(dtype, reach);
    call.operand[1] = strides ? strided(&call, x, dtype, strides) : contiguous(&call, x, dtype);
    // The positions take every second place of a row.
    int64_t out[ND_MAX_DIMS], elements = 2 * kept;
    out[ndim - 1] = 2;
    for (int axis = ndim - 2; axis >= 0; elements *= shape[axis--])
        out[axis] = elements;
    call.operand[0] = strided(&call, values(ND_I64, elements), ND_I64, out);
    assert_int_equal(both(&call, 1, &elements, 0), ND_OK);
}

void test_sorting_agrees(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        nd_dtype type = (nd_dtype)dtype;
        for (int descending = 0; descending < 2; descending++) {
            sort(type, 1, (const int64_t[]){1}, NULL, 1, descending);
            sort(type, 2, (const int64_t[]){30, 17}, NULL, 17, descending);
            sort(type, 2, (const int64_t[]){5, 300}, NULL, 300, descending);
            sort(type, 2, (const int64_t[]){4, 400}, NULL, 9, descending);
            sort(type, 2, (const int64_t[]){12, 10}, (const int64_t[]){1, 12}, 10, descending);
            sort(type, 3, (const int64_t[]){3, 2, 9}, (const int64_t[]){0, 50, 3}, 4, descending);
        }
        free_values();
    }
    // One row that the CPU's threads share.
    sort(ND_F32, 1, (const int64_t[]){300001}, NULL, 300001, false);
}

static void search(nd_dtype dtype, int64_t rows, int64_t n, int64_t m, int64_t stride, bool right) {
    nd_kernel_call call = {.op = ND_OP_searchsorted, .noperands = 3, .ndim = 2};
    call.shape[0] = rows;
    call.shape[1] = m;
    call.attrs.i[0] = n;
    call.attrs.i[1] = stride;
    call.attrs.i[2] = right;
    int64_t length = rows * m;
    call.operand[0] = contiguous(&call, values(ND_I64, length), ND_I64);
    // Not sorted: both halve alike.
    call.operand[1] = strided(&call, special_values(dtype, rows * n * stride + 1), dtype,
                              (const int64_t[]){n * stride, 0});
    call.operand[2] = contiguous(&call, special_values(dtype, length), dtype);
    assert_int_equal(both(&call, 1, &length, 0), ND_OK);
}

void test_searching_agrees(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int right = 0; right < 2; right++) {
            search((nd_dtype)dtype, 1, 0, 5, 1, right);
            search((nd_dtype)dtype, 1, 100, 300, 1, right);
            search((nd_dtype)dtype, 7, 33, 12, 3, right);
            free_values();
        }
}
