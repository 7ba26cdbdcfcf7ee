// Every elementwise operation of floats, those of backward passes too, gives an element the same bits
// wherever it lies: at any place of a row of any length, with any stride, beside large angles, and on
// any thread. Of a sum of two products a compiler fuses now the one, now the other, so no row has one.
#include "lib/base/pool.h"
#include "tests/unit/kernels/ulps.h"
#include <string.h>

enum { N = 1200, MANY = 200000 };

typedef struct operation {
    const char *name;
    nd_op op;
    int operands;
    bool gives_bool;
} operation;

static const operation operations[] = {
#define ND__HAS_FLOATS_ANY 1
#define ND__HAS_FLOATS_NUMBER 1
#define ND__HAS_FLOATS_FLOAT 1
#define ND__HAS_FLOATS_INTEGER 0
#define ND__HAS_FLOATS_BITS 0
#define ROW(name, types, inputs, is_bool) \
    {#name, ND_OP_##name, ND__HAS_FLOATS_##types * inputs, is_bool},
#define ND_UNARY(name, types, ...) ROW(name, types, 1, false)
#define ND_PREDICATE(name, types, ...) ROW(name, types, 1, true)
#define ND_BINARY(name, types, ...) ROW(name, types, 2, false)
#define ND_COMPARE(name, types, ...) ROW(name, types, 2, true)
#define ND_LOGICAL(...)
#define ND_DERIVATIVE(name, ...) ROW(name##_grad, FLOAT, 2, false)
#define ND_OP(...)
#include "kernels/ops.inc"
};

typedef struct operand {
    void *data;
    int64_t stride;
} operand;

static int64_t bytes_of(nd_dtype dtype) {
    return dtype == ND_F64 ? 8 : dtype == ND_F32 ? 4 : 1;
}

static void run(const operation *operation, nd_dtype dtype, int64_t n, operand out, operand a,
                operand b) {
    nd_kernel_call call = {
        .op = operation->op, .noperands = operation->operands + 1, .ndim = 1, .shape = {n}};
    const operand operands[] = {out, a, b};
    for (int i = 0; i < call.noperands; i++) {
        call.operand[i].data = operands[i].data;
        call.operand[i].dtype = i == 0 && operation->gives_bool ? ND_BOOL : dtype;
        call.operand[i].strides[0] = operands[i].stride;
    }
    call.attrs.f[0] = 0.75;
    call.attrs.f[1] = 1.25;
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
}

static bool same_bits(const void *a, const void *b, nd_dtype dtype) {
    bool both_nan = dtype == ND_F32   ? isnan(*(const float *)a) && isnan(*(const float *)b)
                    : dtype == ND_F64 ? isnan(*(const double *)a) && isnan(*(const double *)b)
                                      : false;
    return both_nan || memcmp(a, b, (size_t)bytes_of(dtype)) == 0;
}

static double random_value(void) {
    double x = 8.0 * ((double)rand() / RAND_MAX) - 4.0;
    return rand() % 8 == 0 ? ldexp(x, rand() % 100 - 50) : x;
}

static void fill(void *data, nd_dtype dtype, int64_t n, bool large) {
    for (int64_t i = 0; i < n; i++) {
        double x = large && rand() % 64 == 0 ? 1e9 * random_value() : random_value();
        if (dtype == ND_F32)
            ((float *)data)[i] = (float)x;
        else
            ((double *)data)[i] = x;
    }
}

static char *at(void *data, nd_dtype dtype, int64_t i) {
    return (char *)data + i * bytes_of(dtype);
}

/// Compares n results, `stride` apart, with those of a run over contiguous operands.
static void check(const operation *operation, nd_dtype dtype, int64_t n, void *out, int64_t stride,
                  void *expected, const char *how) {
    nd_dtype result = operation->gives_bool ? ND_BOOL : dtype;
    for (int64_t i = 0; i < n; i++)
        if (!same_bits(at(out, result, i * stride), at(expected, result, i), result))
            fail_msg("%s of %s, %s: element %d of %d differs (%s)", operation->name,
                     dtype == ND_F32 ? "f32" : "f64", how, (int)i, (int)n, nd__cpu_isa());
}

static void check_layouts(const operation *operation, nd_dtype dtype, bool large) {
    static double a[N], b[N], expected[N], out[3 * N], spread_a[3 * N], spread_b[3 * N];
    fill(a, dtype, N, large);
    fill(b, dtype, N, large);
    operand none = {expected, 1};
    run(operation, dtype, N, none, (operand){a, 1}, (operand){b, 1});
    static const int64_t lengths[] = {1,  2,  3,  5,  7,  8,   9,   15, 16,
                                      17, 31, 33, 63, 65, 255, 257, 700};
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        int64_t begin = rand() % (N - 700), n = lengths[l];
        nd_dtype result = operation->gives_bool ? ND_BOOL : dtype;
        void *from = at(expected, result, begin);
        operand part_a = {at(a, dtype, begin), 1}, part_b = {at(b, dtype, begin), 1};
        run(operation, dtype, n, (operand){out, 1}, part_a, part_b);
        check(operation, dtype, n, out, 1, from, "a part");
        for (int64_t stride = -2; stride <= 3; stride++) {
            if (stride == 0)
                continue;
            int64_t first = stride < 0 ? (n - 1) * -stride : 0;
            for (int64_t i = 0; i < n; i++) {
                memcpy(at(spread_a, dtype, first + i * stride), at(a, dtype, begin + i),
                       (size_t)bytes_of(dtype));
                memcpy(at(spread_b, dtype, first + i * stride), at(b, dtype, begin + i),
                       (size_t)bytes_of(dtype));
            }
            operand step_a = {at(spread_a, dtype, first), stride};
            operand step_b = {at(spread_b, dtype, first), stride};
            run(operation, dtype, n, (operand){out, 1}, step_a, part_b);
            check(operation, dtype, n, out, 1, from, "operands apart");
            run(operation, dtype, n, (operand){out, 2}, part_a, step_b);
            check(operation, dtype, n, out, 2, from, "result and operand apart");
        }
    }
}

/// One number against many: as many times that number.
static void check_repeated(const operation *operation, nd_dtype dtype) {
    static double a[N], b[N], expected[N], out[N];
    for (int which = 0; which < operation->operands; which++)
        for (int times = 0; times < 4; times++) {
            fill(a, dtype, N, false);
            fill(b, dtype, N, false);
            void *repeated = which == 0 ? a : b;
            for (int64_t i = 1; i < N; i++)
                memcpy(at(repeated, dtype, i), repeated, (size_t)bytes_of(dtype));
            run(operation, dtype, N, (operand){expected, 1}, (operand){a, 1}, (operand){b, 1});
            run(operation, dtype, N, (operand){out, 1}, (operand){a, which != 0},
                (operand){b, which != 1});
            check(operation, dtype, N, out, 1, expected, "an operand repeated");
        }
}

static void every_layout(void) {
    for (size_t i = 0; i < COUNT_OF(operations); i++)
        for (int d = 0; d < 2 && operations[i].operands; d++) {
            nd_dtype dtype = d ? ND_F64 : ND_F32;
            check_layouts(&operations[i], dtype, false);
            check_layouts(&operations[i], dtype, true);
            check_repeated(&operations[i], dtype);
        }
}

static void test_the_same_bits_in_every_layout(void **state) {
    (void)state;
    on_each_isa(every_layout);
}

static void test_the_same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    double *a = malloc(MANY * sizeof *a), *b = malloc(MANY * sizeof *b);
    double *one = malloc(MANY * sizeof *one), *several = malloc(MANY * sizeof *several);
    assert_true(a && b && one && several);
    int limit = nd__pool_limit();
    for (size_t i = 0; i < COUNT_OF(operations); i++)
        for (int d = 0; d < 2 && operations[i].operands; d++) {
            nd_dtype dtype = d ? ND_F64 : ND_F32;
            fill(a, dtype, MANY, i % 2 == 0);
            fill(b, dtype, MANY, i % 2 == 0);
            nd__pool_set_limit(1);
            run(&operations[i], dtype, MANY, (operand){one, 1}, (operand){a, 1}, (operand){b, 1});
            nd__pool_set_limit(3);
            run(&operations[i], dtype, MANY, (operand){several, 1}, (operand){a, 1},
                (operand){b, 1});
            check(&operations[i], dtype, MANY, several, 1, one, "three threads");
        }
    nd__pool_set_limit(limit);
    free(a);
    free(b);
    free(one);
    free(several);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_the_same_bits_in_every_layout),
        ND_TEST(test_the_same_bits_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
