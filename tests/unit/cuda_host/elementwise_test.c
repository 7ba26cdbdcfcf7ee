// UNARY, BINARY, COMPARE, LOGICAL, TERNARY and COPY in every layout a call can have.
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include <math.h>

#define TOLERANCE 64

/// How the operands of one call lie in memory.
typedef struct layout {
    int ndim;
    int64_t shape[ND_MAX_DIMS];
    int64_t out[ND_MAX_DIMS]; ///< strides
    int64_t in[3][ND_MAX_DIMS];
    int64_t shift; ///< elements by which every operand misses its alignment
} layout;

static layout row_major(int ndim, const int64_t *shape, int64_t shift) {
    layout made = {.ndim = ndim, .shift = shift};
    int64_t stride = 1;
    for (int axis = ndim - 1; axis >= 0; axis--) {
        made.shape[axis] = shape[axis];
        made.out[axis] = made.in[0][axis] = made.in[1][axis] = made.in[2][axis] = stride;
        stride *= shape[axis];
    }
    return made;
}

/// Whether an operation is the derivative of another. Its first operand, a factor of the whole, is
/// kept small: a huge one would make a huge difference of what rounding leaves of a sum that
/// cancels.
static bool is_derivative(nd_op op) {
    static const bool derivatives[ND_OP_COUNT] = {
#define ND_DERIVATIVE(name, ...) [ND_OP_##name##_grad] = true,
#include "kernels/ops.inc"
    };
    return derivatives[op];
}

/// 0 where both sides make one IEEE operation after another. A function of the math library is one
/// side's own, and so are products that a compiler adds without rounding them.
static double tolerance_of(nd_op op) {
    static const int costs[ND_OP_COUNT] = {
#define ND_UNARY(name, types, expression, cost, ...) [ND_OP_##name] = cost,
#define ND_BINARY ND_UNARY
#define ND_DERIVATIVE(name, expression, cost) [ND_OP_##name##_grad] = 32,
#include "kernels/ops.inc"
    };
    return costs[op] <= 1 && op != ND_OP_add_scaled ? 0 : TOLERANCE;
}

/// Runs an operation in one layout on memory of exactly the size it needs.
static void run_layout(nd_op op, const layout *how, int inputs, const nd_dtype *in, nd_dtype out,
                       void *(*fill)(nd_dtype, int64_t)) {
    nd_kernel_call call = {.op = op, .noperands = 1 + inputs, .ndim = how->ndim};
    memcpy(call.shape, how->shape, sizeof call.shape);
    call.attrs.f[0] = 2;
    call.attrs.f[1] = op == ND_OP_clip ? 5 : 3;
    // What i64 is given, and no double is.
    call.attrs.i[0] = op == ND_OP_pow_scalar ? 3 : ((int64_t)1 << 53) + 1;
    call.attrs.i[1] = ((int64_t)1 << 53) + 3;
    // The output's memory starts at the shifted address: whole and shifted give different packs.
    int64_t length = extent(&call, how->out) + how->shift;
    char *data = values(out, length);
    call.operand[0] = strided(&call, data + (size_t)how->shift * dtype_bytes(out), out, how->out);
    for (int i = 0; i < inputs; i++) {
        void *(*fill_input)(nd_dtype, int64_t) = i == 0 && is_derivative(op) ? values : fill;
        char *x = fill_input(in[i], extent(&call, how->in[i]) + how->shift);
        call.operand[1 + i] =
            strided(&call, x + (size_t)how->shift * dtype_bytes(in[i]), in[i], how->in[i]);
    }
    length -= how->shift;
    both(&call, 1, &length, tolerance_of(op));
}

static void run_layouts(nd_op op, int inputs, const nd_dtype *in, nd_dtype out,
                        void *(*fill)(nd_dtype, int64_t)) {
    // Lengths around the sizes of packs and blocks.
    static const int64_t lengths[] = {0, 1, 2, 3, 4, 15, 16, 17, 255, 1023, 1024, 2049, 4099, 9000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int64_t shift = 0; shift < 2; shift++) {
            layout line = row_major(1, &lengths[i], shift);
            run_layout(op, &line, inputs, in, out, fill);
        }
    layout scalar = row_major(0, NULL, 0);
    run_layout(op, &scalar, inputs, in, out, fill);

    // Broadcast: each input in turn repeats along rows, along columns, and is one number.
    static const int64_t repeated[3][2] = {{0, 1}, {1, 0}, {0, 0}};
    for (int input = 0; input < inputs; input++)
        for (int how = 0; how < 3; how++) {
            layout matrix = row_major(2, (const int64_t[]){37, 53}, 0);
            memcpy(matrix.in[input], repeated[how], sizeof repeated[how]);
            run_layout(op, &matrix, inputs, in, out, fill);
        }
    // Transposed input; output with gaps; a window inside a larger tensor; eight axes.
    layout transposed = row_major(3, (const int64_t[]){5, 60, 7}, 0);
    memcpy(transposed.in[0], (const int64_t[]){1, 35, 5}, 3 * sizeof(int64_t));
    run_layout(op, &transposed, inputs, in, out, fill);
    layout gaps = row_major(2, (const int64_t[]){31, 33}, 1);
    memcpy(gaps.out, (const int64_t[]){70, 2}, 2 * sizeof(int64_t));
    run_layout(op, &gaps, inputs, in, out, fill);
    layout window = row_major(2, (const int64_t[]){20, 16}, 0);
    memcpy(window.in[inputs - 1], (const int64_t[]){40, 1}, 2 * sizeof(int64_t));
    run_layout(op, &window, inputs, in, out, fill);
    layout eight = row_major(8, (const int64_t[]){2, 3, 1, 2, 4, 1, 3, 2}, 0);
    memcpy(eight.in[0], (const int64_t[]){144, 1, 0, 3, 6, 7, 24, 72}, 8 * sizeof(int64_t));
    run_layout(op, &eight, inputs, in, out, fill);
}

/// out is exactly an input.
static void run_in_place(nd_op op, int inputs, nd_dtype dtype, int same) {
    nd_kernel_call call = {.op = op,
                           .noperands = 1 + inputs,
                           .ndim = 1,
                           .shape = {5000},
                           .attrs = {.f = {2, 3}, .i = {2, 3}}};
    for (int i = 0; i <= inputs; i++)
        call.operand[i] = contiguous(&call, values(dtype, 5000), dtype);
    call.operand[0] = call.operand[same];
    both(&call, 1, call.shape, tolerance_of(op));
}

/// Every dtype, so that both sides must also agree about which they refuse.
static void run_operation(nd_op op, int inputs, bool to_bool) {
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        const nd_dtype in[2] = {(nd_dtype)dtype, (nd_dtype)dtype};
        nd_dtype out = to_bool ? ND_BOOL : (nd_dtype)dtype;
        run_layouts(op, inputs, in, out, values);
        run_layouts(op, inputs, in, out, special_values);
        if (!to_bool)
            for (int same = 1; same <= inputs; same++)
                run_in_place(op, inputs, (nd_dtype)dtype, same);
        free_values();
    }
}

static void run_family(const char *family, int inputs, bool to_bool) {
    for (int op = ND_OP_none + 1; op < ND_OP_COUNT; op++)
        if (strcmp(op_family((nd_op)op), family) == 0)
            run_operation((nd_op)op, inputs, to_bool);
}

void test_unary_operations_agree(void **state) {
    (void)state;
    run_family("UNARY", 1, false);
}

void test_binary_operations_agree(void **state) {
    (void)state;
    run_family("BINARY", 2, false);
}

void test_predicates_agree(void **state) {
    (void)state;
    run_family("PREDICATE", 1, true);
}

void test_comparisons_agree(void **state) {
    (void)state;
    run_family("COMPARE", 2, true);
}

void test_logical_operations_agree(void **state) {
    (void)state;
    const nd_dtype in[2] = {ND_BOOL, ND_BOOL};
    for (int op = ND_OP_none + 1; op < ND_OP_COUNT; op++)
        if (strcmp(op_family((nd_op)op), "LOGICAL") == 0)
            run_layouts((nd_op)op, op == ND_OP_logical_not ? 1 : 2, in, ND_BOOL, values);
}

void test_where_agrees(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        const nd_dtype in[3] = {ND_BOOL, (nd_dtype)dtype, (nd_dtype)dtype};
        run_layouts(ND_OP_where, 3, in, (nd_dtype)dtype, special_values);
        free_values();
    }
}

void test_copies_and_casts_agree(void **state) {
    (void)state;
    for (int from = 0; from < ND_DTYPE_COUNT; from++)
        for (int to = 0; to < ND_DTYPE_COUNT; to++) {
            const nd_dtype in[1] = {(nd_dtype)from};
            run_layouts(ND_OP_cast, 1, in, (nd_dtype)to, values);
            run_layouts(ND_OP_cast, 1, in, (nd_dtype)to, special_values);
            free_values();
        }
    // The other rows of the family, but for concat, are the same kernel under names that gradients need.
    const nd_dtype in[1] = {ND_F32};
    for (int op = ND_OP_none + 1; op < ND_OP_COUNT; op++)
        if (strcmp(op_family((nd_op)op), "COPY") == 0 && op != ND_OP_concat)
            run_layouts((nd_op)op, 1, in, ND_F32, values);
}

/// x's axes in another order than out's, `order[i]` being how many of x's are outside of axis i.
static void transpose(nd_dtype dtype, int ndim, const int64_t *shape, const int *order,
                      int64_t gap) {
    nd_kernel_call call = {.op = ND_OP_cast, .noperands = 2, .ndim = ndim};
    memcpy(call.shape, shape, (size_t)ndim * sizeof *shape);
    int64_t strides[ND_MAX_DIMS], stride = 1;
    for (int place = ndim - 1; place >= 0; place--)
        for (int axis = 0; axis < ndim; axis++)
            if (order[axis] == place) {
                strides[axis] = stride;
                stride = stride * shape[axis] + gap;
            }
    int64_t length = extent(&call, strides), dense = 1;
    for (int axis = 0; axis < ndim; axis++)
        dense *= shape[axis];
    call.operand[0] = contiguous(&call, values(dtype, dense), dtype);
    call.operand[1] = strided(&call, values(dtype, length), dtype, strides);
    assert_int_equal(both(&call, 1, &dense, 0), ND_OK);
    call.operand[0] = strided(&call, values(dtype, length), dtype, strides);
    call.operand[1] = contiguous(&call, values(dtype, dense), dtype);
    assert_int_equal(both(&call, 1, &length, 0), ND_OK);
}

void test_transposes_agree(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_U8, ND_BF16, ND_F32, ND_F64};
    for (int which = 0; which < 4; which++)
        for (int64_t gap = 0; gap < 2; gap++) {
            nd_dtype dtype = dtypes[which];
            static const int64_t sides[] = {15, 16, 31, 32, 33, 100};
            for (int i = 0; i < 36; i++)
                transpose(dtype, 2, (const int64_t[]){sides[i / 6], sides[i % 6]},
                          (const int[]){1, 0}, gap);
            transpose(dtype, 3, (const int64_t[]){3, 40, 50}, (const int[]){0, 2, 1}, gap);
            transpose(dtype, 3, (const int64_t[]){40, 3, 50}, (const int[]){2, 1, 0}, gap);
            transpose(dtype, 3, (const int64_t[]){40, 50, 3}, (const int[]){1, 0, 2}, gap);
            transpose(dtype, 4, (const int64_t[]){2, 33, 3, 35}, (const int[]){1, 3, 0, 2}, gap);
            free_values();
        }
}

/// One cast of `count` elements that lie one after another.
/// A slice of rows, its axes in an order that keeps the innermost, from element `shift` on: runs of
/// `inner` elements in both operands, of which one has gaps.
static void copy_runs(nd_dtype dtype, int64_t inner, int64_t gap, int64_t shift) {
    nd_kernel_call call = {.op = ND_OP_cast, .noperands = 2, .ndim = 3, .shape = {5, 7, inner}};
    const int64_t row = 5 * inner + gap, apart[] = {inner, row, 1};
    int64_t length = extent(&call, apart), dense = 35 * inner;
    char *x = values(dtype, length + shift);
    call.operand[0] = contiguous(&call, values(dtype, dense), dtype);
    call.operand[1] = strided(&call, x + (size_t)shift * dtype_bytes(dtype), dtype, apart);
    assert_int_equal(both(&call, 1, &dense, 0), ND_OK);
    call.operand[0] = strided(&call, values(dtype, length), dtype, apart);
    call.operand[1] = contiguous(
        &call, (char *)values(dtype, dense + shift) + (size_t)shift * dtype_bytes(dtype), dtype);
    assert_int_equal(both(&call, 1, &length, 0), ND_OK);
}

void test_copies_of_runs_agree(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_U8, ND_BF16, ND_F32, ND_F64};
    static const int64_t inners[] = {2, 3, 4, 6, 8, 12, 16, 20, 64, 300};
    for (int which = 0; which < 4; which++)
        for (size_t i = 0; i < sizeof inners / sizeof *inners; i++)
            for (int64_t gap = 0; gap <= 32; gap = gap ? 2 * gap : 1)
                for (int64_t shift = 0; shift <= 8; shift = shift ? 2 * shift : 1) {
                    copy_runs(dtypes[which], inners[i], gap, shift);
                    free_values();
                }
}

/// gelu of f32 against the formula in long doubles: 4 ulp, also where it is small, and signs.
void test_gelu_keeps_its_digits(void **state) {
    (void)state;
    enum { COUNT = 60000 };
    float *x = values(ND_F32, COUNT), *y = values(ND_F32, COUNT);
    for (int i = 0; i < COUNT; i++)
        x[i] = i < 30000 ? (float)(i - 15000) * 1.0e-3f : ldexpf((float)(i % 997 - 498), -i % 130);
    x[0] = INFINITY, x[1] = -INFINITY, x[2] = 0.0f, x[3] = -0.0f, x[4] = NAN, x[5] = -3e38f;
    nd_kernel_call call = {.op = ND_OP_gelu, .noperands = 2, .ndim = 1, .shape = {COUNT}};
    call.operand[0] = contiguous(&call, y, ND_F32);
    call.operand[1] = contiguous(&call, x, ND_F32);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    assert_true(y[0] == INFINITY && y[1] == 0 && y[2] == 0 && !signbit(y[2]) && signbit(y[3]) &&
                isnan(y[4]) && y[5] == 0);
    for (int i = 6; i < COUNT; i++) {
        long double expected = (long double)x[i] / 2 * erfcl(-(long double)x[i] / sqrtl(2));
        long double unit = fmaxl(fabsl(expected) * 0x1p-23L, 0x1p-149L);
        if (fabsl((long double)y[i] - expected) > 4 * unit)
            fail_msg("gelu(%.9g) is %.9g, not %.9Lg", (double)x[i], (double)y[i], expected);
    }
    count_compared(ND_OP_gelu);
    free_values();
}

/// Far from 0 the slopes of activations are 0 or 1, whatever the powers of their operands are.
void test_slopes_far_from_zero(void **state) {
    (void)state;
    static const nd_op ops[] = {ND_OP_gelu_grad, ND_OP_gelu_tanh_grad, ND_OP_silu_grad,
                                ND_OP_mish_grad};
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F32, ND_F64};
    static const double sizes[] = {1000, 6e4, 1e13, 1e20, 3e38, 1e300};
    enum { COUNT = 2 * sizeof sizes / sizeof *sizes };
    for (size_t which = 0; which < sizeof ops / sizeof *ops; which++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            nd_dtype dtype = dtypes[d];
            int64_t count = dtype == ND_F16 ? 4 : dtype == ND_F64 ? COUNT : COUNT - 2;
            char *x = values(dtype, count), *y = values(dtype, count), *g = values(dtype, count);
            for (int64_t i = 0; i < count; i++) {
                set_element(x, dtype, i, i % 2 ? -sizes[i / 2] : sizes[i / 2]);
                set_element(g, dtype, i, 3);
            }
            nd_kernel_call call = {.op = ops[which], .noperands = 3, .ndim = 1, .shape = {count}};
            call.operand[0] = contiguous(&call, y, dtype);
            call.operand[1] = contiguous(&call, g, dtype);
            call.operand[2] = contiguous(&call, x, dtype);
            assert_int_equal(run_on_cuda(&call), ND_OK);
            for (int64_t i = 0; i < count; i++) {
                double found = element_as_double(y, dtype, i), expected = i % 2 ? 0 : 3;
                if (found != expected)
                    fail_msg("%s of %g: %g, not %g", op_name(ops[which]),
                             element_as_double(x, dtype, i), found, expected);
            }
            free_values();
        }
}

static void run_cast(nd_dtype from, nd_dtype to, void *data, int64_t count) {
    nd_kernel_call call = {.op = ND_OP_cast, .noperands = 2, .ndim = 1, .shape = {count}};
    call.operand[0] = contiguous(&call, values(to, count), to);
    call.operand[1] = contiguous(&call, data, from);
    assert_int_equal(both(&call, 1, &count, 0), ND_OK);
}

/// Half-way between two numbers of a float of so many bits, and next to that on either side: what is
/// rounded to a wider float on its way is rounded twice, and comes out on the wrong side.
static void cast_ties(nd_dtype to, int bits) {
    enum { MANTISSAS = 4, SIDES = 3 };
    int64_t integers[64 * MANTISSAS * SIDES], count = 0;
    double reals[64 * MANTISSAS * SIDES];
    for (int shift = 0; shift + bits + 1 < 63; shift++)
        for (int64_t mantissa = 0; mantissa < MANTISSAS; mantissa++)
            for (int64_t side = -1; side <= 1; side++, count++) {
                int64_t tie = ((int64_t)1 << bits) + 2 * mantissa + 1;
                integers[count] = (tie << shift) + side;
                reals[count] = ldexp((double)tie * (1 + (double)side * 0x1p-45), shift - 24);
            }
    int64_t *negative = memcpy(values(ND_I64, count), integers, (size_t)count * sizeof *integers);
    for (int64_t i = 0; i < count; i++)
        negative[i] = -negative[i];
    run_cast(ND_I64, to, integers, count);
    run_cast(ND_U64, to, integers, count);
    run_cast(ND_I64, to, negative, count);
    run_cast(ND_F64, to, reals, count);
}

void test_casts_round_ties_once(void **state) {
    (void)state;
    cast_ties(ND_F16, 11);
    cast_ties(ND_BF16, 8);
    cast_ties(ND_F32, 24);
}

/// Numbers of a call that the dtype does not hold are taken to its nearest end.
void test_numbers_out_of_range_agree(void **state) {
    (void)state;
    static const nd_op ops[] = {ND_OP_add_scalar, ND_OP_clip, ND_OP_pow_scalar};
    static const double numbers[][2] = {{-1e10, 3e9}, {3e9, 1e10}, {-200, 70000}, {NAN, 1.75}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++) {
                int64_t count = 1000;
                nd_kernel_call call = {.op = ops[i], .noperands = 2, .ndim = 1, .shape = {count}};
                for (int which = 0; which < 2; which++) {
                    call.attrs.f[which] = numbers[k][which];
                    call.attrs.i[which] = isnan(numbers[k][which]) ? 0 : (int64_t)numbers[k][which];
                }
                nd_dtype type = (nd_dtype)dtype;
                call.operand[0] = contiguous(&call, values(type, count), type);
                call.operand[1] = contiguous(&call, special_values(type, count), type);
                assert_int_equal(both(&call, 1, &count, tolerance_of(ops[i])), ND_OK);
            }
}
