// INDEX and CREATE: what lands where, and that an index out of range is told and harms nothing.
#include "tests/unit/cuda_host/harness.h"
#include <math.h>

#define TOLERANCE 64

/// By x's strides; 0: contiguous.
static nd_status take_by(nd_dtype dtype, int64_t outer, int64_t count, int64_t inner, int64_t n,
                         int64_t *index, const int64_t *by) {
    const int64_t dense[] = {n * inner, inner, 1}, *strides = by ? by : dense;
    nd_kernel_call call = {
        .op = ND_OP_take,
        .noperands = 3,
        .attrs = {.i = {outer, count, inner, n, strides[0], strides[1], strides[2]}}};
    int64_t length = outer * count * inner;
    call.operand[0] = contiguous(&call, values(dtype, length), dtype);
    call.operand[1] = contiguous(&call, values(dtype, 2 * outer * n * inner), dtype);
    call.operand[2] = contiguous(&call, index, ND_I64);
    return both(&call, 1, &length, 0);
}

static nd_status take(nd_dtype dtype, int64_t outer, int64_t count, int64_t inner, int64_t n,
                      int64_t *index) {
    return take_by(dtype, outer, count, inner, n, index, NULL);
}

void test_take_agrees(void **state) {
    (void)state;
    // Rows of 1 to 17 elements: every width in which they may be moved.
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int64_t inner = 0; inner < 18; inner++) {
            take((nd_dtype)dtype, 3, 50, inner, 7, indices(50, 7));
            take((nd_dtype)dtype, 1, 1, inner, 1, indices(1, 1));
            take((nd_dtype)dtype, 2, 0, inner, 4, indices(0, 4));
            take_by((nd_dtype)dtype, 1, 50, inner, 7, indices(50, 7), (int64_t[]){1, inner, 1});
            // Rows of a wider table, rows that repeat, rows and planes the other way round.
            take_by((nd_dtype)dtype, 3, 50, inner, 7, indices(50, 7),
                    (int64_t[]){14 * inner, 2 * inner, 1});
            take_by((nd_dtype)dtype, 3, 50, inner, 7, indices(50, 7), (int64_t[]){0, inner, 1});
            take_by((nd_dtype)dtype, 3, 50, inner, 7, indices(50, 7), (int64_t[]){1, 3, 21});
            take_by((nd_dtype)dtype, 3, 50, inner, 7, indices(50, 7), (int64_t[]){1, 6, 2 * 21});
            free_values();
        }
}

/// Whether what is scattered is to be joined in the same order each time.
static bool in_order;
static nd_scatter_kind kind; ///< of scatter_reduce

/// gather: out[i] = x[... index[i] ...]; scatter_add: out[... index[i] ...] += source[i]. `size` is
/// that of the tensor that is indexed, along the axis; transposed strides when asked for.
static nd_status along_axis(nd_op op, nd_dtype dtype, int ndim, const int64_t *shape, int axis,
                            int64_t size, int64_t *index, bool transposed) {
    nd_kernel_call call = {
        .op = op, .noperands = 3, .ndim = ndim, .attrs = {.i = {axis, size, in_order, kind}}};
    nd_kernel_call whole = call; // the indexed tensor's shape
    memcpy(call.shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(whole.shape, shape, (size_t)ndim * sizeof *shape);
    whole.shape[axis] = size;
    int64_t strides[ND_MAX_DIMS], stride = 1;
    for (int i = 0; i < ndim; i++) {
        int at = transposed ? i : ndim - 1 - i;
        strides[at] = stride;
        stride *= whole.shape[at];
    }
    int64_t numel = extent(&call, contiguous(&call, NULL, dtype).strides);
    nd_operand indexed = strided(&whole, values(dtype, stride), dtype, strides);
    nd_operand plain = contiguous(&call, values(dtype, numel), dtype);
    nd_operand by = contiguous(&call, index, ND_I64);
    bool gather = op == ND_OP_gather;
    call.operand[0] = gather ? plain : indexed;
    call.operand[1] = gather ? indexed : by;
    call.operand[2] = gather ? by : plain;
    int64_t length = gather ? numel : stride;
    return both(&call, 1, &length, gather ? 0 : 500);
}

static void run_along_axis(nd_op op) {
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int transposed = 0; transposed < 2; transposed++) {
            for (int axis = 0; axis < 3; axis++)
                along_axis(op, (nd_dtype)dtype, 3, (const int64_t[]){6, 7, 8}, axis, 5,
                           indices(6 * 7 * 8, 5), transposed);
            // Many lines; few long ones; one.
            along_axis(op, (nd_dtype)dtype, 2, (const int64_t[]){1100, 70}, 1, 9,
                       indices(1100 * 70, 9), transposed);
            along_axis(op, (nd_dtype)dtype, 2, (const int64_t[]){300, 2}, 0, 11, indices(600, 11),
                       transposed);
            along_axis(op, (nd_dtype)dtype, 1, (const int64_t[]){5000}, 0, 3, indices(5000, 3),
                       transposed);
            free_values();
        }
}

void test_gather_agrees(void **state) {
    (void)state;
    run_along_axis(ND_OP_gather);
}

void test_scatter_add_agrees(void **state) {
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        in_order = ordered;
        run_along_axis(ND_OP_scatter_add);
    }
    in_order = false;
}

void test_scatter_reduce_agrees(void **state) {
    (void)state;
    for (int i = 0; i < 2 * ND_SCATTER_KINDS; i++) {
        kind = (nd_scatter_kind)(i / 2);
        in_order = i % 2;
        run_along_axis(ND_OP_scatter_reduce);
    }
    in_order = false;
}

static nd_status one_hot(nd_dtype dtype, int64_t count, int64_t classes, int64_t *index) {
    nd_kernel_call call = {.op = ND_OP_one_hot, .noperands = 2, .attrs = {.i = {count, classes}}};
    int64_t length = count * classes;
    call.operand[0] = contiguous(&call, values(dtype, length), dtype);
    call.operand[1] = contiguous(&call, index, ND_I64);
    return both(&call, 1, &length, 0);
}

void test_one_hot_agrees(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        one_hot((nd_dtype)dtype, 100, 10, indices(100, 10));
        one_hot((nd_dtype)dtype, 1, 1, indices(1, 1));
        one_hot((nd_dtype)dtype, 0, 5, indices(0, 5));
        free_values();
    }
}

void test_masked_select_agrees(void **state) {
    (void)state;
    static const int64_t lengths[] = {0, 1, 255, 256, 257, 5000, 70001};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
            int64_t n = lengths[i], selected = 0;
            nd_kernel_call call = {.op = ND_OP_masked_select, .noperands = 3};
            uint8_t *mask = values(ND_BOOL, n);
            for (int64_t element = 0; element < n; element++)
                selected += mask[element];
            call.attrs.i[0] = n;
            call.attrs.i[1] = selected;
            call.operand[0] = contiguous(&call, values((nd_dtype)dtype, selected), (nd_dtype)dtype);
            call.operand[1] = contiguous(&call, values((nd_dtype)dtype, n), (nd_dtype)dtype);
            call.operand[2] = contiguous(&call, mask, ND_BOOL);
            both(&call, 1, &selected, 0);
            free_values();
        }
}

static void nonzero(int axes, const int64_t *sizes, int64_t every) {
    int64_t n = 1, count = 0;
    nd_kernel_call call = {.op = ND_OP_nonzero, .noperands = 2};
    call.attrs.i[2] = axes;
    for (int axis = 0; axis < axes; axis++)
        n *= call.attrs.i[3 + axis] = sizes[axis];
    uint8_t *mask = values(ND_BOOL, n);
    for (int64_t element = 0; element < n; element++) {
        mask[element] = every ? element % every == every - 1 : mask[element];
        count += mask[element];
    }
    if (count > 0) {
        int64_t written = count * axes;
        call.attrs.i[0] = n;
        call.attrs.i[1] = count;
        call.operand[0] = contiguous(&call, values(ND_I64, written), ND_I64);
        call.operand[1] = contiguous(&call, mask, ND_BOOL);
        both(&call, 1, &written, 0);
    }
    free_values();
}

void test_nonzero_agrees(void **state) {
    (void)state;
    static const int64_t shapes[][8] = {{70001, 1, 1, 1, 1, 1, 1, 1},
                                        {3, 257, 1, 2, 1, 5, 1, 1},
                                        {300, 7, 5, 2, 1, 1, 3, 2},
                                        {1, 1, 1, 1, 1, 1, 1, 1}};
    // Each second or so, all, one in a thousand.
    static const int64_t every[] = {0, 1, 1000};
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
        for (int axes = 1; axes <= 8; axes++)
            for (size_t i = 0; i < sizeof every / sizeof *every; i++)
                nonzero(axes, shapes[shape], every[i]);
}

void test_index_out_of_range_is_reported(void **state) {
    (void)state;
    static const int64_t wrong[] = {-1, -6, 5, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t *index = indices(600, 5);
        index[pick(600)] = wrong[i];
        assert_int_equal(take(ND_F32, 2, 600, 3, 5, index), ND_ERROR_INVALID_ARGUMENT);
        assert_int_equal(one_hot(ND_F32, 600, 5, index), ND_ERROR_INVALID_ARGUMENT);
        // -1 the two take differently in the others (INDEX in kernels/kernel.h).
        for (int axis = 0; axis < 2 && wrong[i] != -1; axis++) {
            assert_int_equal(along_axis(ND_OP_gather, ND_F32, 2, (const int64_t[]){20, 30}, axis, 5,
                                        index, false),
                             ND_ERROR_INVALID_ARGUMENT);
            assert_int_equal(along_axis(ND_OP_scatter_add, ND_F32, 2, (const int64_t[]){20, 30},
                                        axis, 5, index, false),
                             ND_ERROR_INVALID_ARGUMENT);
        }
        if (wrong[i] != -1)
            assert_int_equal(along_axis(ND_OP_scatter_add, ND_F32, 1, (const int64_t[]){600}, 0, 5,
                                        index, false),
                             ND_ERROR_INVALID_ARGUMENT);
        nd_kernel_call loss = {.op = ND_OP_cross_entropy, .noperands = 3, .attrs = {.i = {600, 5}}};
        int64_t one = 1;
        loss.operand[0] = contiguous(&loss, values(ND_F32, 1), ND_F32);
        loss.operand[1] = contiguous(&loss, values(ND_F32, 3000), ND_F32);
        loss.operand[2] = contiguous(&loss, index, ND_I64);
        assert_int_equal(both(&loss, 1, &one, TOLERANCE), ND_ERROR_INVALID_ARGUMENT);
    }
}

static void create(nd_op op, nd_dtype dtype, int ndim, const int64_t *shape,
                   const nd_op_attrs *attrs, double tolerance) {
    nd_kernel_call call = {.op = op, .noperands = 1, .ndim = ndim, .attrs = *attrs};
    memcpy(call.shape, shape, (size_t)ndim * sizeof *shape);
    nd_operand out = contiguous(&call, NULL, dtype);
    int64_t length = extent(&call, out.strides);
    out.data = values(dtype, length);
    call.operand[0] = out;
    both(&call, 1, &length, tolerance);
}

void test_fill_arange_eye_agree(void **state) {
    (void)state;
    static const double numbers[] = {0, 1, -2.7, 300, 1e30, NAN, -INFINITY};
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        nd_dtype type = (nd_dtype)dtype;
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            nd_op_attrs fill = {.f = {numbers[i]}, .i = {INT64_MIN + 3}};
            create(ND_OP_fill, type, 1, (const int64_t[]){1000}, &fill, 0);
            create(ND_OP_fill, type, 0, (const int64_t[]){0}, &fill, 0);
        }
        nd_op_attrs range = {.f = {-3.5, 0.75}};
        create(ND_OP_arange, type, 1, (const int64_t[]){700}, &range, 4);
        nd_op_attrs integers = {.f = {-9, 3}, .i = {INT64_MIN + 1, ((int64_t)1 << 53) + 1, 1}};
        create(ND_OP_arange, type, 1, (const int64_t[]){700}, &integers, 0);
        nd_op_attrs eye = {.i = {23}};
        create(ND_OP_eye, type, 2, (const int64_t[]){23, 23}, &eye, 0);
        free_values();
    }
    // fill_ of a view: the window and nothing else.
    nd_kernel_call window = {
        .op = ND_OP_fill, .noperands = 1, .ndim = 2, .shape = {9, 5}, .attrs = {.f = {7}}};
    const int64_t strides[] = {20, 3};
    int64_t length = extent(&window, strides);
    window.operand[0] = strided(&window, values(ND_F32, length), ND_F32, strides);
    both(&window, 1, &length, 0);
}

void test_random_tensors_agree(void **state) {
    (void)state;
    // Lengths that end inside a block of the generator; seeds and streams of more than 32 bits.
    static const int64_t lengths[] = {1, 2, 3, 4, 5, 1001, 4096};
    static const int64_t seeds[] = {0, 1, -1, 0x123456789abcdef};
    static const int64_t ranges[][2] = {{0, 1}, {0, 10}, {-5, 250}, {INT64_MIN, INT64_MAX}};
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
                nd_op_attrs key = {.i = {seeds[s], ~seeds[s] * 3}};
                nd_dtype type = (nd_dtype)dtype;
                create(ND_OP_rand, type, 1, &lengths[i], &key, 0);
                create(ND_OP_randn, type, 1, &lengths[i], &key, 2);
                key.i[2] = ranges[s][0];
                key.i[3] = ranges[s][1];
                create(ND_OP_randint, type, 1, &lengths[i], &key, 0);
            }
}
