// T7 of weights of 8 and 4 bits: x [m, 4096] times a weight [4096, 4096] in groups of 128, in
// microseconds, beside nd_linear() with the same weight in f32. With one row both do little but read
// the weight: 64 MiB in f32, 16 MiB in int8, 8 MiB in int4. Batch by batch in turns.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/progress.h"

#include <nd/nd.h>

#include <math.h>
#include <stdio.h>

enum { SIZE = 4096, GROUP = 128, REPEATS = 21, KINDS = 2, ROWS = 2, METRICS = KINDS * ROWS };

typedef struct operands {
    nd_tensor *x, *weight;
    nd_tensor *values[KINDS], *scales[KINDS]; ///< int8, int4
    int kind;
} operands;

static bool full(void *data, uint64_t count) {
    const operands *in = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *y = nd_linear(in->x, in->weight, NULL);
        if (!y)
            return false;
        nd_release(y);
    }
    return true;
}

static bool quantized(void *data, uint64_t count) {
    const operands *in = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *y =
            nd_quantized_linear(in->x, in->values[in->kind], in->scales[in->kind], NULL, NULL);
        if (!y)
            return false;
        nd_release(y);
    }
    return true;
}

static bool operands_begin(operands *data) {
    nd_key key = nd_key_new(13);
    *data = (operands){.weight = nd_randn(nd_key_fold(key, 0), ND_SHAPE(SIZE, SIZE), ND_F32)};
    for (int kind = 0; kind < KINDS; kind++)
        if (nd_quantize(data->weight, kind == 0 ? 8 : 4, GROUP, ND_F16, &data->values[kind],
                        &data->scales[kind], NULL) != ND_OK)
            return false;
    return true;
}

static void operands_end(operands *data) {
    nd_release(data->x);
    nd_release(data->weight);
    for (int kind = 0; kind < KINDS; kind++) {
        nd_release(data->values[kind]);
        nd_release(data->scales[kind]);
    }
}

static bool measure(bench_metric *metrics) {
    static const struct {
        int64_t rows;
        const char *work[KINDS], *name[KINDS];
    } rows[ROWS] = {{1,
                     {"linear, 1 x 4096 x 4096, int8", "linear, 1 x 4096 x 4096, int4"},
                     {"T7_us_1_int8", "T7_us_1_int4"}},
                    {64,
                     {"linear, 64 x 4096 x 4096, int8", "linear, 64 x 4096 x 4096, int4"},
                     {"T7_us_64_int8", "T7_us_64_int4"}}};
    operands data;
    bool right = operands_begin(&data);
    for (int i = 0; i < ROWS && right; i++) {
        bench_progress_show(rows[i].work[0], (double)i / ROWS);
        nd_release(data.x);
        data.x = nd_randn(nd_key_new(17), ND_SHAPE(rows[i].rows, SIZE), ND_F32);
        operands sides_data[KINDS] = {data, data};
        sides_data[1].kind = 1;
        bench_side sides[] = {{.work = quantized, .data = &sides_data[0]},
                              {.work = quantized, .data = &sides_data[1]},
                              {.work = full, .data = &data}};
        bench_measure_sides(sides, 3, REPEATS);
        for (int kind = 0; kind < KINDS; kind++) {
            right = right && isfinite(sides[kind].ns) && isfinite(sides[2].ns);
            metrics[i * KINDS + kind] = (bench_metric){.work = rows[i].work[kind],
                                                       .name = rows[i].name[kind],
                                                       .unit = "us",
                                                       .ours = sides[kind].ns / 1e3,
                                                       .rivals = {sides[2].ns / 1e3}};
        }
    }
    operands_end(&data);
    return right;
}

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "Products with weights of 8 and 4 bits, beside those in f32.", &files);
    if (answer >= 0)
        return answer;
    bench_metric metrics[METRICS] = {{0}};
    bench_table table = {.bench = "quantized",
                         .metrics = metrics,
                         .count = METRICS,
                         .rivals = {{.title = "f32",
                                     .key = "f32",
                                     .what = "nd_linear with the weight in f32, in this process"}}};
    if (!measure(metrics)) {
        bench_progress_clear();
        fprintf(stderr, "quantized: %s\n", nd_error_get_message());
        return 2;
    }
    return bench_table_finish(&table, &files);
}
