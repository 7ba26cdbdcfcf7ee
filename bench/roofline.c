// T7 and T8: what the CPU's kernels reach, beside what the machine can do and beside PyTorch.
//
//   T7  f32 matrix product n x n, n = 256 to 2048, in GFLOP/s, beside oneDNN's sgemm called directly
//       and PyTorch's, which is MKL's: at least the better of them
//   T8  elementwise work, softmax and sum on 16 M floats, in GB/s of operands and result, beside a
//       plain loop that reads and writes as much: r = a + b for add, r = 2a for what has one operand,
//       s += a for sum. The ratio is the one to PyTorch: a call shall take 1.15 of its time at most.
//       Softmax's is the one to the loop: it shall read and write at 95 % of the loop's rate at least
//
// Ours makes a new result each time; the loops and sgemm write to memory that was there before.
// Batch by batch in turns: ours with the library's threads, the rivals with OpenMP's, which sleep
// before ours begins.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"

#include <nd/nd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#if ND_HAVE_ONEDNN
#include <dnnl.h>
#endif

enum { ROWS = 16384, COLUMNS = 1024, FLOATS = ROWS * COLUMNS, SHORT_COLUMNS = 16 };
enum { REPEATS = 41, PRODUCTS = 4, WORKS = 7, METRICS = PRODUCTS + WORKS };
enum { PARTS = METRICS + METRICS / 2 }; ///< of the progress: what PyTorch takes beside ours
enum { ONEDNN, LOOP, PYTORCH };

typedef struct operands {
    nd_tensor *a, *b; ///< [n, n], [ROWS, COLUMNS], or [..., SHORT_COLUMNS]
    float *result;    ///< of the rivals
    int64_t n;        ///< of products
    float sum;
    bool is_b; ///< which operand was summed last
} operands;

static bool operands_begin(operands *data, int64_t rows, int64_t columns);
static void operands_end(operands *data);
static bool measure_products(bench_metric *metrics);
static bool measure_works(bench_metric *metrics);

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T7 and T8: what the CPU's kernels reach, beside oneDNN, loops and PyTorch.",
        &files);
    if (answer >= 0)
        return answer;
    bench_metric metrics[METRICS] = {{0}};
    bench_peer pytorch;
    bench_table table = {
        .bench = "roofline",
        .metrics = metrics,
        .count = METRICS,
        .rivals = {[ONEDNN] = {.title = "oneDNN",
                               .key = "rival_onednn",
                               .what = ND_HAVE_ONEDNN ? "dnnl_sgemm, in this process"
                                                      : "SKIPPED: not built in (libdnnl-dev)"},
                   [LOOP] = {.title = "loop",
                             .key = "loop",
                             .what = "plain C loops over the same bytes, in this process; "
                                     "softmax's ratio is to them"},
                   [PYTORCH] = {.title = "PyTorch", .key = "rival_pytorch", .peer = &pytorch}}};
    if (!measure_products(metrics) || !measure_works(metrics + PRODUCTS)) {
        bench_progress_clear();
        fprintf(stderr, "roofline: %s\n", nd_error_get_message());
        return 2;
    }
    bench_progress_show("PyTorch", (double)METRICS / PARTS);
    bench_peer_run_own(&pytorch, "pytorch_roofline.py", NULL, "python3-torch");
    return bench_table_finish(&table, &files);
}

static bool operands_begin(operands *data, int64_t rows, int64_t columns) {
    nd_key key = nd_key_new(11);
    size_t bytes = (size_t)(rows * columns) * sizeof(float);
    *data = (operands){
        .a = nd_randn(nd_key_fold(key, 0), ND_SHAPE(rows, columns), ND_F32),
        .b = nd_randn(nd_key_fold(key, 1), ND_SHAPE(rows, columns), ND_F32),
        .result = aligned_alloc(64, bytes),
        .n = columns,
    };
    for (size_t i = 0; data->result && i < bytes / sizeof(float); i++)
        data->result[i] = 0; // its pages are there before the clock starts
    return data->a && data->b && data->result;
}

static void operands_end(operands *data) {
    nd_release(data->a);
    nd_release(data->b);
    free(data->result);
}

// -------------------------------------------------------------------------------------------- T7

static bool matmul(void *data, uint64_t count) {
    const operands *in = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *product = nd_matmul(in->a, in->b);
        if (!product)
            return false;
        nd_release(product);
    }
    return true;
}

#if ND_HAVE_ONEDNN
static bool sgemm(void *data, uint64_t count) {
    const operands *in = data;
    int64_t n = in->n;
    for (uint64_t i = 0; i < count; i++)
        if (dnnl_sgemm('N', 'N', n, n, n, 1.0f, nd_get_data(in->a), n, nd_get_data(in->b), n, 0.0f,
                       in->result, n) != dnnl_success)
            return false;
    return true;
}
#define SGEMM sgemm
#else
#define SGEMM NULL
#endif

static bool measure_products(bench_metric *metrics) {
    static const struct {
        int64_t n;
        const char *work;
        const char *name;
    } rows[PRODUCTS] = {{256, "matmul, 256 x 256", "T7_gflops_256"},
                        {512, "matmul, 512 x 512", "T7_gflops_512"},
                        {1024, "matmul, 1024 x 1024", "T7_gflops_1024"},
                        {2048, "matmul, 2048 x 2048", "T7_gflops_2048"}};
    bool right = true;
    for (size_t i = 0; i < PRODUCTS && right; i++) {
        operands data;
        bench_progress_show(rows[i].work, (double)i / PARTS);
        right = operands_begin(&data, rows[i].n, rows[i].n);
        bench_side sides[] = {{.work = right ? matmul : NULL, .data = &data},
                              {.work = right ? SGEMM : NULL, .data = &data, .spins = true}};
        bench_measure_sides(sides, 2, REPEATS);
        operands_end(&data);
        double flops = 2.0 * (double)(rows[i].n * rows[i].n * rows[i].n);
        right = right && isfinite(sides[0].ns);
        metrics[i] = (bench_metric){.work = rows[i].work,
                                    .name = rows[i].name,
                                    .unit = "GFLOP/s",
                                    .ours = flops / sides[0].ns,
                                    .rivals = {[ONEDNN] = flops / sides[1].ns},
                                    .ratio = 1,
                                    .beside = 1u << ONEDNN | 1u << PYTORCH,
                                    .at_least = true};
    }
    return right;
}

// -------------------------------------------------------------------------------------------- T8

#define WORK(name, call)                           \
    static bool name(void *data, uint64_t count) { \
        const operands *in = data;                 \
        for (uint64_t i = 0; i < count; i++) {     \
            nd_tensor *result = call;              \
            if (!result)                           \
                return false;                      \
            nd_release(result);                    \
        }                                          \
        return true;                               \
    }
WORK(add, nd_add(in->a, in->b))
WORK(exponential, nd_exp(in->a))
WORK(hyperbolic_tangent, nd_tanh(in->a))
WORK(gelu, nd_gelu(in->a))
WORK(softmax, nd_softmax(in->a, 1))

/// Sums are of a and b in turn, so that no last-level cache holds what is read.
static const nd_tensor *next_operand(operands *in) {
    in->is_b = !in->is_b;
    return in->is_b ? in->b : in->a;
}

static bool sum(void *data, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *result = nd_sum(next_operand(data), 0, NULL, false);
        if (!result)
            return false;
        nd_release(result);
    }
    return true;
}

static bool loop_add(void *data, uint64_t count) {
    const operands *in = data;
    const float *a = nd_get_data(in->a), *b = nd_get_data(in->b);
    float *result = in->result;
    for (uint64_t i = 0; i < count; i++) {
#pragma omp parallel for simd
        for (size_t k = 0; k < FLOATS; k++)
            result[k] = a[k] + b[k];
    }
    return true;
}

static bool loop_double(void *data, uint64_t count) {
    const operands *in = data;
    const float *a = nd_get_data(in->a);
    float *result = in->result;
    for (uint64_t i = 0; i < count; i++) {
#pragma omp parallel for simd
        for (size_t k = 0; k < FLOATS; k++)
            result[k] = 2.0f * a[k];
    }
    return true;
}

static bool loop_sum(void *data, uint64_t count) {
    operands *in = data;
    for (uint64_t i = 0; i < count; i++) {
        const float *a = nd_get_data(next_operand(in));
        float total = 0;
#pragma omp parallel for simd reduction(+ : total)
        for (size_t k = 0; k < FLOATS; k++)
            total += a[k];
        in->sum += total;
    }
    return true;
}

static bool measure_works(bench_metric *metrics) {
    static const struct {
        const char *work;
        const char *name;
        bench_work ours;
        bench_work loop;
        int streams; ///< arrays of FLOATS that are read or written
        int64_t columns;
        bool beside_loop; ///< whether the target is of the loop's rate, else of PyTorch's
    } rows[WORKS] = {
        {"add, 16 M floats", "T8_add_gbps", add, loop_add, 3, COLUMNS, false},
        {"exp", "T8_exp_gbps", exponential, loop_double, 2, COLUMNS, false},
        {"tanh", "T8_tanh_gbps", hyperbolic_tangent, loop_double, 2, COLUMNS, false},
        {"gelu", "T8_gelu_gbps", gelu, loop_double, 2, COLUMNS, false},
        {"softmax, rows of 1,024", "T8_softmax_gbps", softmax, loop_double, 2, COLUMNS, true},
        {"softmax, rows of 16", "T8_softmax16_gbps", softmax, loop_double, 2, SHORT_COLUMNS, true},
        {"sum", "T8_sum_gbps", sum, loop_sum, 1, COLUMNS, false},
    };
    bool right = true;
    for (size_t i = 0; i < WORKS && right; i++) {
        operands data;
        bench_progress_show(rows[i].work, (double)(PRODUCTS + i) / PARTS);
        right = operands_begin(&data, FLOATS / rows[i].columns, rows[i].columns);
        bench_side sides[] = {{.work = right ? rows[i].ours : NULL, .data = &data},
                              {.work = right ? rows[i].loop : NULL, .data = &data, .spins = true}};
        bench_measure_sides(sides, 2, REPEATS);
        operands_end(&data);
        double bytes = (double)rows[i].streams * FLOATS * sizeof(float);
        right = right && isfinite(sides[0].ns) && !isnan(data.sum);
        metrics[i] = (bench_metric){.work = rows[i].work,
                                    .name = rows[i].name,
                                    .unit = "GB/s",
                                    .ours = bytes / sides[0].ns,
                                    .rivals = {[LOOP] = bytes / sides[1].ns},
                                    .ratio = rows[i].beside_loop ? 0.95 : 1 / 1.15,
                                    .beside = 1u << (rows[i].beside_loop ? LOOP : PYTORCH),
                                    .at_least = true};
    }
    return right;
}
