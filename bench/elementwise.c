// T8: what every elementwise function of floats costs, and softmax and its kin, in nanoseconds for
// a thousand elements, on one thread, beside PyTorch with one thread.
//
// Each is measured for f32, f64, f16 and bf16 with a thousand elements, where the call itself is
// most of it, and with a million. PyTorch's process is run for each dtype and size right behind our
// own measurement of them, twice, and the lesser of both medians is kept for each: a machine that is
// busy for a while spoils neither side alone.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"

#include <nd/nd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2, REPEATS = 15, ROW = 128 };

typedef struct operands {
    nd_tensor *x;        ///< between -1 and 1, and so is y
    nd_tensor *y;        ///
    nd_tensor *positive; ///< between 0.1 and 4
    nd_tensor *above;    ///< between 1 and 4
} operands;

// The names are those of bench/peers/pytorch_elementwise.py.
#define CALLS(CALL)                                              \
    CALL(exp, nd_exp(in->x))                                     \
    CALL(expm1, nd_expm1(in->x))                                 \
    CALL(log, nd_log(in->positive))                              \
    CALL(log1p, nd_log1p(in->positive))                          \
    CALL(log2, nd_log2(in->positive))                            \
    CALL(log10, nd_log10(in->positive))                          \
    CALL(sqrt, nd_sqrt(in->positive))                            \
    CALL(rsqrt, nd_rsqrt(in->positive))                          \
    CALL(sin, nd_sin(in->x))                                     \
    CALL(cos, nd_cos(in->x))                                     \
    CALL(tan, nd_tan(in->x))                                     \
    CALL(asin, nd_asin(in->x))                                   \
    CALL(acos, nd_acos(in->x))                                   \
    CALL(atan, nd_atan(in->x))                                   \
    CALL(sinh, nd_sinh(in->x))                                   \
    CALL(cosh, nd_cosh(in->x))                                   \
    CALL(asinh, nd_asinh(in->x))                                 \
    CALL(acosh, nd_acosh(in->above))                             \
    CALL(atanh, nd_atanh(in->x))                                 \
    CALL(tanh, nd_tanh(in->x))                                   \
    CALL(sigmoid, nd_sigmoid(in->x))                             \
    CALL(relu, nd_relu(in->x))                                   \
    CALL(gelu, nd_gelu(in->x))                                   \
    CALL(gelu_tanh, nd_gelu_tanh(in->x))                         \
    CALL(silu, nd_silu(in->x))                                   \
    CALL(mish, nd_mish(in->x))                                   \
    CALL(softplus, nd_softplus(in->x))                           \
    CALL(logsigmoid, nd_logsigmoid(in->x))                       \
    CALL(softsign, nd_softsign(in->x))                           \
    CALL(relu6, nd_relu6(in->x))                                 \
    CALL(hardsigmoid, nd_hardsigmoid(in->x))                     \
    CALL(hardswish, nd_hardswish(in->x))                         \
    CALL(hardtanh, nd_hardtanh(in->x, -1.0, 1.0))                \
    CALL(leaky_relu, nd_leaky_relu(in->x, 0.01))                 \
    CALL(elu, nd_elu(in->x, 1.0))                                \
    CALL(selu, nd_selu(in->x))                                   \
    CALL(erf, nd_erf(in->x))                                     \
    CALL(reciprocal, nd_reciprocal(in->positive))                \
    CALL(div_scalar, nd_div_scalar(in->x, 3.0))                  \
    CALL(square, nd_square(in->x))                               \
    CALL(floor, nd_floor(in->x))                                 \
    CALL(round, nd_round(in->x))                                 \
    CALL(pow_2, nd_pow_scalar(in->x, 2.0))                       \
    CALL(pow_3, nd_pow_scalar(in->x, 3.0))                       \
    CALL(pow_half, nd_pow_scalar(in->positive, 0.5))             \
    CALL(pow_scalar, nd_pow_scalar(in->positive, 2.3))           \
    CALL(pow, nd_pow(in->positive, in->y))                       \
    CALL(add, nd_add(in->x, in->y))                              \
    CALL(div, nd_div(in->x, in->positive))                       \
    CALL(atan2, nd_atan2(in->x, in->y))                          \
    CALL(hypot, nd_hypot(in->x, in->y))                          \
    CALL(logaddexp, nd_logaddexp(in->x, in->y))                  \
    CALL(remainder, nd_remainder(in->positive, in->above))       \
    CALL(floor_divide, nd_floor_divide(in->positive, in->above)) \
    CALL(softmax, nd_softmax(in->x, 1))                          \
    CALL(log_softmax, nd_log_softmax(in->x, 1))                  \
    CALL(logsumexp, nd_logsumexp(in->x, 1, (int[]){1}, false))

#define WORK(name, call)                                  \
    static bool work_##name(void *data, uint64_t count) { \
        const operands *in = data;                        \
        for (uint64_t i = 0; i < count; i++) {            \
            nd_tensor *result = call;                     \
            if (!result)                                  \
                return false;                             \
            nd_release(result);                           \
        }                                                 \
        return true;                                      \
    }
CALLS(WORK)

static const struct {
    const char *name;
    bench_work work;
} calls[] = {
#define ROW_OF_CALL(name, call) {#name, work_##name},
    CALLS(ROW_OF_CALL)};

static const struct {
    const char *name;
    nd_dtype dtype;
} dtypes[] = {{"f32", ND_F32}, {"f64", ND_F64}, {"f16", ND_F16}, {"bf16", ND_BF16}};
static const struct {
    const char *name;
    int64_t elements;
} sizes[] = {{"1k", 1024}, {"1m", 1 << 20}};

enum {
    NCALLS = sizeof calls / sizeof *calls,
    NDTYPES = sizeof dtypes / sizeof *dtypes,
    NSIZES = sizeof sizes / sizeof *sizes,
    NMETRICS = NCALLS * NDTYPES * NSIZES
};

typedef struct texts {
    char work[48];
    char key[48];
} texts;

/// Uniform between `low` and `high`.
static nd_tensor *uniform(uint64_t seed, int64_t elements, nd_dtype dtype, double low,
                          double high) {
    nd_auto nd_tensor *unit = nd_rand(nd_key_new(seed), ND_SHAPE(elements / ROW, ROW), ND_F32);
    nd_auto nd_tensor *wide = nd_mul_scalar(unit, high - low);
    nd_auto nd_tensor *shifted = nd_add_scalar(wide, low);
    return nd_cast(shifted, dtype);
}

static bool operands_begin(operands *in, int64_t elements, nd_dtype dtype) {
    *in = (operands){.x = uniform(1, elements, dtype, -1, 1),
                     .y = uniform(2, elements, dtype, -1, 1),
                     .positive = uniform(3, elements, dtype, 0.1, 4),
                     .above = uniform(4, elements, dtype, 1, 4)};
    return in->x && in->y && in->positive && in->above;
}

static void operands_end(operands *in) {
    nd_release(in->x);
    nd_release(in->y);
    nd_release(in->positive);
    nd_release(in->above);
}

/// Keeps the lesser of what was measured.
static void keep(double *best, double figure) {
    if (isfinite(figure) && (!(*best > 0) || figure < *best))
        *best = figure;
}

/// All calls for one dtype and size, ours and PyTorch's, when that part of all is done.
static bool measure(bench_metric *metrics, size_t dtype, size_t size, double done,
                    bench_peer *pytorch) {
    const double part = 1.0 / (2 * ROUNDS * NDTYPES * NSIZES); // ours, and PyTorch's as much
    char text[48];
    operands in;
    double elements = (double)sizes[size].elements;
    bool right = operands_begin(&in, sizes[size].elements, dtypes[dtype].dtype);
    for (size_t i = 0; i < NCALLS && right; i++) {
        bench_progress_show(metrics[i].work, done + part * (double)i / NCALLS);
        double ns = bench_measure_ns(calls[i].work, &in, REPEATS);
        right = isfinite(ns);
        keep(&metrics[i].ours, 1e3 * ns / elements);
    }
    operands_end(&in);
    char argument[32];
    snprintf(argument, sizeof argument, "%s:%lld", dtypes[dtype].name,
             (long long)sizes[size].elements);
    snprintf(text, sizeof text, "PyTorch, %s, %s", dtypes[dtype].name, sizes[size].name);
    bench_progress_show(text, done + part);
    bench_peer_run_own(pytorch, "pytorch_elementwise.py", argument, "python3-torch");
    for (size_t i = 0; i < NCALLS; i++)
        keep(&metrics[i].rivals[0], bench_peer_number(pytorch, calls[i].name));
    return right;
}

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T8: elementwise functions on one thread, beside PyTorch.", &files);
    if (answer >= 0)
        return answer;
    static bench_metric metrics[NMETRICS];
    static texts names[NMETRICS];
    bench_peer pytorch;
    bool right = nd_set_num_threads(1) == ND_OK;
    for (size_t m = 0; m < NMETRICS; m++) {
        const char *call = calls[m % NCALLS].name, *size = sizes[m / NCALLS % NSIZES].name;
        const char *dtype = dtypes[m / NCALLS / NSIZES].name;
        snprintf(names[m].work, sizeof names[m].work, "%s, %s, %s", call, dtype, size);
        snprintf(names[m].key, sizeof names[m].key, "T8_%s_%s_%s_ns", call, dtype, size);
        metrics[m] = (bench_metric){
            .work = names[m].work, .name = names[m].key, .unit = "ns", .ratio = 1.15};
    }
    for (int round = 0; round < ROUNDS && right; round++)
        for (size_t group = 0; group < NDTYPES * NSIZES && right; group++)
            right =
                measure(metrics + group * NCALLS, group / NSIZES, group % NSIZES,
                        ((double)round + (double)group / (NDTYPES * NSIZES)) / ROUNDS, &pytorch);
    if (!right) {
        bench_progress_clear();
        fprintf(stderr, "elementwise: %s\n", nd_error_get_message());
        return 2;
    }
    bench_table table = {
        .bench = "elementwise",
        .metrics = metrics,
        .count = NMETRICS,
        .mean = 0.8,
        .worst = 10,
        .rivals = {{.title = "PyTorch", .key = "rival_pytorch", .peer = &pytorch}}};
    return bench_table_finish(&table, &files);
}
