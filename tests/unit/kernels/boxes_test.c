// Elementwise calls and copies of operands in any order of axes, that repeat, are turned round or
// have room between, with short last axes, against loops over single elements: every dtype, in place
// too, with one thread and several, and nothing written beside the results.
#include "kernels/cpu/cpu.h"
#include "kernels/half.h"
#include "lib/base/pool.h"
#include "tests/testing.h"
#include "tests/unit/kernels/calls.h"
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 700, GUARD = 64, AXES = 5 };

static uint64_t state_of_random = 7;

static int64_t below(int64_t end) {
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state_of_random >> 33) % (uint64_t)end);
}

static const nd_dtype dtypes[] = {ND_BOOL, ND_U8,  ND_I8,  ND_U16, ND_I16, ND_F16, ND_BF16,
                                  ND_U32,  ND_I32, ND_F32, ND_U64, ND_I64, ND_F64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static int64_t width_of(nd_dtype dtype) {
    static const int8_t widths[ND_DTYPE_COUNT] = {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind) [ND_##ENUMERATOR] = sizeof(T),
#include "kernels/dtypes.inc"
#undef ND_DTYPE
    };
    return widths[dtype];
}

/// Numbers from 0 to 100, which every dtype but bool holds.
static void put(nd_dtype dtype, void *at, int number) {
    const int64_t whole = number;
    const float real = (float)number;
    const double wide = number;
    if (dtype == ND_F16 || dtype == ND_BF16) {
        const uint16_t half = dtype == ND_F16 ? nd__f32_to_f16(real) : nd__f32_to_bf16(real);
        memcpy(at, &half, 2);
    } else if (dtype == ND_F32) {
        memcpy(at, &real, 4);
    } else if (dtype == ND_F64) {
        memcpy(at, &wide, 8);
    } else {
        memcpy(at, &whole, (size_t)width_of(dtype)); // little-endian
    }
}

typedef struct buffer {
    char *data;
    int *numbers; ///< of each element
    int64_t elements;
} buffer;

static buffer make_buffer(nd_dtype dtype, int64_t elements) {
    buffer b = {malloc((size_t)(elements * width_of(dtype))),
                malloc((size_t)elements * sizeof(int)), elements};
    assert_non_null(b.data);
    assert_non_null(b.numbers);
    for (int64_t i = 0; i < elements; i++) {
        b.numbers[i] = (int)below(dtype == ND_BOOL ? 2 : 50);
        put(dtype, b.data + i * width_of(dtype), b.numbers[i]);
    }
    return b;
}

static void free_buffer(const buffer *b) {
    free(b->data);
    free(b->numbers);
}

/// Strides of an operand whose axes follow each other in any order. Elements that it lies among.
static int64_t lay_out(nd_kernel_call *call, int k, bool is_result, int64_t *ret_first) {
    int order[AXES];
    for (int i = 0; i < call->ndim; i++) {
        const int j = (int)below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    if (below(3) == 0)
        for (int i = 0; i < call->ndim; i++)
            order[i] = call->ndim - 1 - i;
    int64_t size = below(5) == 0 ? 1 + below(3) : 1;
    *ret_first = GUARD;
    for (int i = 0; i < call->ndim; i++) {
        const int axis = order[i];
        const bool repeats = !is_result && below(5) == 0, turned = below(10) == 0;
        call->operand[k].strides[axis] = repeats ? 0 : turned ? -size : size;
        if (turned && !repeats)
            *ret_first += (call->shape[axis] - 1) * size;
        if (!repeats)
            size = size * call->shape[axis] + (below(8) == 0 ? below(3) : 0);
    }
    return size + 2 * GUARD;
}

/// What the operation makes of three numbers; `out`: the result's dtype.
static int wanted_of(nd_op op, nd_dtype out, const int *x) {
    switch (op) {
    case ND_OP_add:
        return x[0] + x[1];
    case ND_OP_logical_and:
        return x[0] && x[1];
    case ND_OP_less:
        return x[0] < x[1];
    case ND_OP_maximum:
        return x[0] > x[1] ? x[0] : x[1];
    case ND_OP_where:
        return x[0] ? x[1] : x[2];
    case ND_OP_abs:
    case ND_OP_clone:
        return x[0];
    default:
        return out == ND_BOOL ? x[0] != 0 : x[0]; // a cast
    }
}

static void choose_operation(nd_kernel_call *call, nd_dtype *of) {
    static const nd_op ops[] = {ND_OP_clone, ND_OP_cast,    ND_OP_add,   ND_OP_logical_and,
                                ND_OP_less,  ND_OP_maximum, ND_OP_where, ND_OP_abs};
    const nd_op op = ops[below(sizeof ops / sizeof *ops)];
    nd_dtype dtype = dtypes[below(DTYPES)];
    if (op == ND_OP_logical_and)
        dtype = ND_BOOL;
    else if (dtype == ND_BOOL && (op == ND_OP_add || op == ND_OP_maximum || op == ND_OP_abs))
        dtype = ND_F32;
    call->op = op;
    call->noperands = op == ND_OP_where                                          ? 4
                      : op == ND_OP_clone || op == ND_OP_cast || op == ND_OP_abs ? 2
                                                                                 : 3;
    for (int k = 0; k < 4; k++)
        of[k] = dtype;
    if (op == ND_OP_cast)
        of[0] = dtypes[below(DTYPES)];
    if (op == ND_OP_less)
        of[0] = ND_BOOL;
    if (op == ND_OP_where)
        of[1] = ND_BOOL;
}

static void check(int64_t most) {
    nd_kernel_call call = {.ndim = 1 + (int)below(AXES)};
    int64_t total = 1, first[4];
    nd_dtype of[4];
    buffer buffers[4];
    choose_operation(&call, of);
    for (int axis = call.ndim - 1; axis >= 0; axis--) {
        const int64_t room = most / total;
        const int64_t size = below(3) ? 1 + below(9) : 1 + below(room < 400 ? room : 400);
        call.shape[axis] = size < room ? size : room;
        total *= call.shape[axis];
    }
    for (int k = 0; k < call.noperands; k++) {
        call.operand[k].dtype = of[k];
        buffers[k] = make_buffer(of[k], lay_out(&call, k, k == 0, &first[k]));
        call.operand[k].data = buffers[k].data + first[k] * width_of(of[k]);
    }
    if (of[0] == of[1] && call.op != ND_OP_clone && below(4) == 0) { // in place
        memcpy(call.operand[1].strides, call.operand[0].strides, sizeof call.operand[0].strides);
        call.operand[1].data = call.operand[0].data;
        free_buffer(&buffers[1]);
        buffers[1] =
            (buffer){NULL, malloc((size_t)buffers[0].elements * sizeof(int)), buffers[0].elements};
        memcpy(buffers[1].numbers, buffers[0].numbers, (size_t)buffers[0].elements * sizeof(int));
        first[1] = first[0];
    }
    const int64_t bytes = buffers[0].elements * width_of(of[0]);
    char *expected = malloc((size_t)bytes);
    assert_non_null(expected);
    memcpy(expected, buffers[0].data, (size_t)bytes);
    for (int64_t i = 0; i < total; i++) {
        int x[3] = {0};
        for (int k = 1; k < call.noperands; k++)
            x[k - 1] = buffers[k].numbers[first[k] + offset_of(&call, k, i)];
        put(of[0], expected + (first[0] + offset_of(&call, 0, i)) * width_of(of[0]),
            wanted_of(call.op, of[0], x));
    }
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
    assert_memory_equal(buffers[0].data, expected, (size_t)bytes);
    for (int k = 0; k < call.noperands; k++)
        free_buffer(&buffers[k]);
    free(expected);
}

static void test_operands_in_any_order_of_axes(void **state) {
    (void)state;
    static const char *const isas[] = {NULL, "baseline", "x86_64_v3"};
    for (int i = 0; i < 3; i++) {
        if (!nd__cpu_use_isa(isas[i]))
            continue;
        for (int threads = 1; threads <= 3; threads++) {
            nd__pool_set_limit(threads);
            for (int round = 0; round < ROUNDS; round++)
                check(round % 10 ? 3000 : 120000);
        }
    }
    nd__cpu_use_isa(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_operands_in_any_order_of_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
