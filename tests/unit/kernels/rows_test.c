// Calls that go row by row against plain loops over single elements: elementwise operations of any
// strides, rows of several operands behind each other, and rows that are scattered; with one
// thread and several, and nothing written beside the results.
#include "kernels/cpu/cpu.h"
#include "lib/base/pool.h"
#include "tests/testing.h"
#include "tests/unit/kernels/calls.h"
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 300, AXES = 4, GUARD = 64 };

static uint64_t state_of_random = 1;

static int64_t below(int64_t end) {
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state_of_random >> 33) % (uint64_t)end);
}

/// `count` numbers that f32 and i32 hold, behind a number of others.
static void *numbers(nd_dtype dtype, int64_t count) {
    int32_t *all = malloc((size_t)count * sizeof *all);
    assert_non_null(all);
    for (int64_t i = 0; i < count; i++) {
        const int32_t number = (int32_t)below(2001) - 1000;
        const float real = (float)number / 8;
        memcpy(&all[i], dtype == ND_F32 ? (const void *)&real : (const void *)&number, 4);
    }
    return all;
}

static int64_t total_of(const nd_kernel_call *call) {
    int64_t total = 1;
    for (int axis = 0; axis < call->ndim; axis++)
        total *= call->shape[axis];
    return total;
}

/// A sum in which any axis of an operand may repeat, be turned round or have room between.
static void check_elementwise(nd_dtype dtype) {
    nd_kernel_call call = {.op = ND_OP_add, .noperands = 3, .ndim = 2 + (int)below(AXES - 1)};
    int64_t bytes[3], first[3];
    for (int axis = 0; axis < call.ndim; axis++)
        call.shape[axis] = axis == call.ndim - 1 ? 1 + below(300) : 1 + below(12);
    for (int k = 0; k < 3; k++) {
        int64_t size = 1 + (k > 0 ? below(3) : 0);
        first[k] = below(GUARD);
        for (int axis = call.ndim - 1; axis >= 0; axis--) {
            int64_t stride = size + (axis < call.ndim - 1 ? below(3) : 0);
            const bool repeats = k > 0 && below(4) == 0, turned = !repeats && below(6) == 0;
            size = stride * call.shape[axis];
            first[k] += turned ? (call.shape[axis] - 1) * stride : 0;
            call.operand[k].strides[axis] = repeats ? 0 : turned ? -stride : stride;
        }
        bytes[k] = (size + 2 * GUARD) * 4;
        call.operand[k].dtype = dtype;
    }
    void *all[3], *expected = malloc((size_t)bytes[0]);
    for (int k = 0; k < 3; k++) {
        all[k] = numbers(dtype, bytes[k] / 4);
        call.operand[k].data = (int32_t *)all[k] + first[k];
    }
    assert_non_null(expected);
    memcpy(expected, all[0], (size_t)bytes[0]);
    for (int64_t i = 0; i < total_of(&call); i++) {
        const int64_t to = first[0] + offset_of(&call, 0, i), a = first[1] + offset_of(&call, 1, i),
                      b = first[2] + offset_of(&call, 2, i);
        if (dtype == ND_F32)
            ((float *)expected)[to] = ((float *)all[1])[a] + ((float *)all[2])[b];
        else
            ((int32_t *)expected)[to] = ((int32_t *)all[1])[a] + ((int32_t *)all[2])[b];
    }
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
    assert_memory_equal(all[0], expected, (size_t)bytes[0]);
    for (int k = 0; k < 3; k++)
        free(all[k]);
    free(expected);
}

static void test_elementwise_with_any_strides(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        nd__pool_set_limit(threads);
        for (int round = 0; round < ROUNDS; round++)
            check_elementwise(round % 2 ? ND_I32 : ND_F32);
    }
}

/// Rows of `parts` operands behind each other, of so many rows and so many elements at most.
static void check_concat(nd_dtype dtype, int64_t bytes, int parts, int64_t rows, int64_t most) {
    nd_kernel_call call = {.op = ND_OP_concat, .noperands = 1 + parts, .ndim = 1, .shape = {rows}};
    char *all[ND_MAX_OPERANDS], *expected;
    int64_t columns = 0, first = below(8);
    for (int k = 1; k <= parts; k++) {
        const int64_t run = 1 + below(most), stride = run + below(5), begin = below(8);
        call.attrs.i[k - 1] = run;
        columns += run;
        all[k] = numbers(ND_I32, ((rows * stride + begin) * bytes + 3) / 4);
        call.operand[k] = (nd_operand){all[k] + begin * bytes, dtype, {stride}};
    }
    const int64_t stride = columns + below(3), size = (rows * stride + 2 * GUARD) * bytes;
    all[0] = numbers(ND_I32, (size + 3) / 4);
    expected = malloc((size_t)size);
    assert_non_null(expected);
    memcpy(expected, all[0], (size_t)size);
    call.operand[0] = (nd_operand){all[0] + first * bytes, dtype, {stride}};
    for (int64_t row = 0; row < rows; row++) {
        char *to = expected + (first + row * stride) * bytes;
        for (int k = 1; k <= parts; k++)
            for (int64_t i = 0; i < call.attrs.i[k - 1]; i++, to += bytes)
                memcpy(to,
                       (char *)call.operand[k].data +
                           (row * call.operand[k].strides[0] + i) * bytes,
                       (size_t)bytes);
    }
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
    assert_memory_equal(all[0], expected, (size_t)size);
    for (int k = 0; k <= parts; k++)
        free(all[k]);
    free(expected);
}

static void test_rows_behind_each_other(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_U8, ND_BF16, ND_F32, ND_I64};
    for (int threads = 1; threads <= 3; threads++) {
        nd__pool_set_limit(threads);
        for (int round = 0; round < ROUNDS; round++)
            check_concat(dtypes[round % 4], 1 << round % 4, 1 + (int)below(ND_MAX_OPERANDS - 1),
                         1 + below(80), 1 + below(200));
        check_concat(ND_F32, 4, 2, 1024, 1500);
        check_concat(ND_I64, 8, 3, 3, 1 << 20); // past the caches
        check_concat(ND_F32, 4, 3, 1, 1 << 18); // one row
        check_concat(ND_F16, 2, 4, 300, 1);     // columns
    }
}

static float joined(const nd_kernel_call *call, float own, float came) {
    if (call->op == ND_OP_scatter_add)
        return own + came;
    if (call->attrs.i[3] == ND_SCATTER_PRODUCT)
        return own * came;
    if (call->attrs.i[3] == ND_SCATTER_LEAST)
        return came < own ? came : own;
    return came > own ? came : own;
}

/// Rows of `inner` elements, `count` of each of `outer`, into `size` of each, by one index a row.
static void check_scatter(int64_t outer, int64_t count, int64_t inner, int64_t size, bool wrong) {
    const bool sums = below(2) == 0;
    const int64_t room = below(3), index_outer = below(2) ? count : 0;
    nd_kernel_call call = {.op = sums ? ND_OP_scatter_add : ND_OP_scatter_reduce,
                           .noperands = 3,
                           .ndim = 3,
                           .shape = {outer, count, inner}};
    call.attrs.i[0] = 1, call.attrs.i[1] = size;
    call.attrs.i[3] = sums ? 0 : below(ND_SCATTER_KINDS);
    int64_t *index = calloc((size_t)(outer * count), sizeof *index);
    assert_non_null(index);
    for (int64_t i = 0; i < outer * count; i++)
        index[i] = below(2 * size) - size;
    if (wrong)
        index[count - 1] = below(2) ? size : -size - 1;
    const int64_t out_numbers = outer * size * (inner + room);
    float *out = numbers(ND_F32, out_numbers), *expected = malloc((size_t)out_numbers * 4),
          *source = numbers(ND_F32, outer * count * inner * 2);
    const int64_t step = 1 + below(2);
    assert_non_null(expected);
    memcpy(expected, out, (size_t)out_numbers * 4);
    call.operand[0] = (nd_operand){out, ND_F32, {size * (inner + room), inner + room, 1}};
    call.operand[1] = (nd_operand){index, ND_I64, {index_outer, 1, 0}};
    call.operand[2] = (nd_operand){source, ND_F32, {count * inner * step, inner * step, step}};
    for (int64_t i = 0; i < outer * count * inner && !wrong; i++) {
        int64_t to = index[offset_of(&call, 1, i)];
        to += to < 0 ? size : 0;
        float *own = &expected[(i / inner / count * size + to) * (inner + room) + i % inner];
        *own = joined(&call, *own, source[offset_of(&call, 2, i)]);
    }
    assert_int_equal(nd__cpu_launch(&call), wrong ? ND_ERROR_INVALID_ARGUMENT : ND_OK);
    if (!wrong)
        assert_memory_equal(out, expected, (size_t)out_numbers * 4);
    free(index);
    free(out);
    free(expected);
    free(source);
}

static void test_rows_that_are_scattered(void **state) {
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        nd__pool_set_limit(threads);
        for (int round = 0; round < ROUNDS / 3; round++)
            check_scatter(1 + below(4), 1 + below(60), 60 + below(140), 1 + below(50),
                          round % 10 == 0);
        check_scatter(1, 700, 301, 90, false);
        check_scatter(2, 40, 700, 3, false);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_elementwise_with_any_strides),
        ND_TEST(test_rows_behind_each_other),
        ND_TEST(test_rows_that_are_scattered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
