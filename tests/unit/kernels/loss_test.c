// Losses of pairs, their sums and gradients against long doubles, in every instruction set that the
// machine has.
#include "kernels/cpu/cpu.h"
#include "tests/testing.h"
#include <math.h>
#include <stdlib.h>

enum { MOST = 40000 };

static const char *const isas[] = {"baseline", "x86_64_v3", "x86_64_v4"};
static const long double limit = 0.75L;

typedef struct expected_loss {
    long double value, slope_a, slope_b;
} expected_loss;

static expected_loss of_difference(nd_pair_loss loss, long double d) {
    long double away = fabsl(d), sign = d > 0 ? 1 : d < 0 ? -1 : d;
    switch (loss) {
    case ND_PAIR_LOSS_l1:
        return (expected_loss){away, sign, -sign};
    case ND_PAIR_LOSS_mse:
        return (expected_loss){d * d, 2 * d, -2 * d};
    case ND_PAIR_LOSS_smooth_l1:
        return away < limit ? (expected_loss){d * d / (2 * limit), d / limit, -d / limit}
                            : (expected_loss){away - limit / 2, sign, -sign};
    default:
        return away < limit
                   ? (expected_loss){d * d / 2, d, -d}
                   : (expected_loss){limit * (away - limit / 2), limit * sign, -limit * sign};
    }
}

static expected_loss expect(nd_pair_loss loss, long double a, long double b) {
    long double logarithm = b > 0 ? logl(b) : 0;
    switch (loss) {
    case ND_PAIR_LOSS_bce:
        return (expected_loss){(1 - b) * a + log1pl(expl(-a)), 1 / (1 + expl(-a)) - b, -a};
    case ND_PAIR_LOSS_kl:
        return (expected_loss){b * logarithm - b * a, -b, (b == 0 ? 0 : logarithm + 1) - a};
    case ND_PAIR_LOSS_kl_log:
        return (expected_loss){expl(b) * (b - a), -expl(b), expl(b) * (b - a + 1)};
    default:
        return of_difference(loss, a - b);
    }
}

/// Operands of one dtype.
typedef struct loss_data {
    nd_dtype dtype;
    void *a, *b, *g, *out, *out_b;
} loss_data;

static long double get(const loss_data *data, const void *array, int64_t at) {
    return data->dtype == ND_F64 ? (long double)((const double *)array)[at]
                                 : (long double)((const float *)array)[at];
}

static void make_data(loss_data *data, nd_dtype dtype) {
    void **arrays[] = {&data->a, &data->b, &data->g, &data->out, &data->out_b};
    uint64_t state = UINT64_C(0x9E3779B97F4A7C15);
    data->dtype = dtype;
    for (int k = 0; k < 5; k++) {
        *arrays[k] = malloc(MOST * sizeof(double));
        for (int64_t i = 0; i < MOST; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            double part = (double)(state >> 40) * 0x1p-24; // 0 to 1, exact in both dtypes
            double value = k == 1 ? (i % 16 == 0 ? 0.0 : part) : 3.0 * part - 1.5;
            if (dtype == ND_F64)
                ((double *)*arrays[k])[i] = value;
            else
                ((float *)*arrays[k])[i] = (float)value;
        }
    }
}

static void free_data(loss_data *data) {
    free(data->a);
    free(data->b);
    free(data->g);
    free(data->out);
    free(data->out_b);
}

static void launch(const loss_data *data, nd_op op, nd_pair_loss loss, int64_t count, bool sums) {
    bool backward = op == ND_OP_pair_loss_grad;
    void *const forward_data[] = {data->out, data->a, data->b};
    void *const backward_data[] = {data->out, data->out_b, data->g, data->a, data->b};
    nd_kernel_call call = {.op = op, .noperands = backward ? 5 : 3};
    for (int i = 0; i < call.noperands; i++)
        call.operand[i] = (nd_operand){.data = backward ? backward_data[i] : forward_data[i],
                                       .dtype = data->dtype};
    call.attrs = (nd_op_attrs){.f = {(double)limit, 0.5}, .i = {(int64_t)loss, count, sums}};
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
}

static void assert_near(const loss_data *data, nd_pair_loss loss, const void *array, int64_t at,
                        long double expected) {
    long double got = get(data, array, at), allowed = data->dtype == ND_F64 ? 1e-13L : 2e-6L;
    if (!(fabsl(got - expected) <= allowed * fmaxl(1.0L, fabsl(expected))))
        fail_msg("%s: loss %d of pair %d is %.17Lg, not %.17Lg", nd__cpu_isa(), (int)loss, (int)at,
                 got, expected);
}

static void check(const loss_data *data, nd_pair_loss loss, int64_t count) {
    long double sum = 0;
    launch(data, ND_OP_pair_loss, loss, count, false);
    for (int64_t i = 0; i < count; i++) {
        expected_loss e = expect(loss, get(data, data->a, i), get(data, data->b, i));
        assert_near(data, loss, data->out, i, e.value / 2);
        sum += e.value / 2;
    }
    launch(data, ND_OP_pair_loss, loss, count, true);
    assert_near(data, loss, data->out, 0, sum);
    for (int sums = 0; sums < 2; sums++) {
        launch(data, ND_OP_pair_loss_grad, loss, count, sums);
        for (int64_t i = 0; i < count; i++) {
            expected_loss e = expect(loss, get(data, data->a, i), get(data, data->b, i));
            long double g = get(data, data->g, sums ? 0 : i) / 2;
            assert_near(data, loss, data->out, i, g * e.slope_a);
            assert_near(data, loss, data->out_b, i, g * e.slope_b);
        }
    }
}

static void test_losses_as_defined(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 3, 17, 100, MOST};
    for (int wide = 0; wide < 2; wide++) {
        loss_data data;
        make_data(&data, wide ? ND_F64 : ND_F32);
        for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
            if (!nd__cpu_use_isa(isas[isa]))
                continue;
            for (int loss = 0; loss < ND_PAIR_LOSSES; loss++)
                for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                    check(&data, (nd_pair_loss)loss, counts[i]);
        }
        free_data(&data);
    }
    nd__cpu_use_isa(NULL);
}

/// Gradients that no cache holds go past the caches: those of many pairs are those of their pieces.
static void test_gradients_of_many_pairs(void **state) {
    (void)state;
    enum { MANY = (32 << 20) / 4 + 21, PIECE = 100003 };
    float *a = malloc(MANY * sizeof *a), *b = malloc(MANY * sizeof *b), g = 1.5f;
    float *out = malloc(MANY * sizeof *out), *piece = malloc(PIECE * sizeof *piece);
    for (int64_t i = 0; i < MANY; i++) {
        a[i] = (float)(i % 1013) * 0.01f;
        b[i] = (float)(i % 577) * 0.02f;
    }
    nd_kernel_call call = {.op = ND_OP_pair_loss_grad, .noperands = 5};
    call.attrs = (nd_op_attrs){.f = {1, 1.0 / MANY}, .i = {ND_PAIR_LOSS_smooth_l1, MANY, 1}};
    void *const data[] = {out, NULL, &g, a, b};
    for (int i = 0; i < 5; i++)
        call.operand[i] = (nd_operand){.data = data[i], .dtype = ND_F32};
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
    call.operand[0].data = piece;
    for (int64_t first = 0; first < MANY; first += PIECE) {
        call.attrs.i[1] = MANY - first < PIECE ? MANY - first : PIECE;
        call.operand[3].data = a + first;
        call.operand[4].data = b + first;
        assert_int_equal(nd__cpu_launch(&call), ND_OK);
        assert_memory_equal(piece, out + first, (size_t)call.attrs.i[1] * sizeof *piece);
    }
    free(a);
    free(b);
    free(out);
    free(piece);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_losses_as_defined),
        ND_TEST(test_gradients_of_many_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
