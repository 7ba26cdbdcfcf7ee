// T20: sentence embeddings of all-MiniLM-L6-v2, ours beside PyTorch's and ONNX Runtime's in one run,
// of the same file: 1, 8 and 32 sentences of 64 tokens, on one thread and on as many as there are
// cores. The rivals run between two halves of our measurement, so that a machine that speeds up or
// slows down does not decide. A batch is both a latency and, of as many sentences as it has, a
// throughput. Where tools/get_minilm has put no model, nothing is measured.
#include "docs/examples/minilm/minilm.h"
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"

#include <math.h>
#include <stdio.h>

enum { LENGTH = 64, MOST = 32 };

typedef struct cell {
    const char *name, *work;
    const char *rate, *rate_work;
    size_t count;
    size_t repeats;
    bool one_thread;
} cell;
static const cell cells[] = {
    {"T20_us_1_one_thread", "1 sentence, one thread", "T20_per_s_1_one_thread",
     "sentences a second, 1 at a time, one thread", 1, 151, true},
    {"T20_us_8_one_thread", "8 sentences, one thread", "T20_per_s_8_one_thread",
     "sentences a second, 8 at a time, one thread", 8, 25, true},
    {"T20_us_32_one_thread", "32 sentences, one thread", "T20_per_s_32_one_thread",
     "sentences a second, 32 at a time, one thread", 32, 9, true},
    {"T20_us_1", "1 sentence", "T20_per_s_1", "sentences a second, 1 at a time", 1, 151, false},
    {"T20_us_8", "8 sentences", "T20_per_s_8", "sentences a second, 8 at a time", 8, 25, false},
    {"T20_us_32", "32 sentences", "T20_per_s_32", "sentences a second, 32 at a time", 32, 9, false},
};
enum { CELLS = sizeof cells / sizeof *cells };
enum { PARTS = 4 * CELLS }; ///< of the progress: two halves of ours, and each rival's as many

typedef struct workload {
    const nd_object *model;
    size_t count;
} workload;

static bool embed(void *data, uint64_t times);
static bool measure_half(const nd_object *model, size_t done, double *us);

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T20: sentence embeddings, beside PyTorch and ONNX Runtime.", &files);
    if (answer >= 0)
        return answer;
    nd_auto nd_object *model = minilm_open(NULL);
    if (!model) {
        printf("SKIPPED: %s\n", minilm_get_problem());
        return 0;
    }

    double first[CELLS];
    double second[CELLS];
    bench_peer pytorch, onnxruntime;
    if (!measure_half(model, 0, first))
        return 2;
    bench_progress_show("PyTorch", (double)CELLS / PARTS);
    bench_peer_run_own(&pytorch, "pytorch_minilm.py", NULL, "python3-torch");
    bench_progress_show("ONNX Runtime", (double)(CELLS + CELLS) / PARTS);
    bench_peer_run_own(&onnxruntime, "onnxruntime_minilm.py", NULL, "onnxruntime and onnx");
    if (!measure_half(model, PARTS - CELLS, second))
        return 2;

    bench_metric metrics[2 * CELLS];
    for (size_t i = 0; i < CELLS; i++) {
        const double us = (first[i] + second[i]) / 2;
        metrics[i] = (bench_metric){
            .work = cells[i].work, .name = cells[i].name, .unit = "us", .ours = us, .ratio = 0.8};
        metrics[CELLS + i] = (bench_metric){.work = cells[i].rate_work,
                                            .name = cells[i].rate,
                                            .unit = "/s",
                                            .ours = (double)cells[i].count * 1e6 / us,
                                            .ratio = 1 / 0.8,
                                            .at_least = true};
    }
    bench_table table = {.bench = "minilm",
                         .metrics = metrics,
                         .count = 2 * CELLS,
                         .rivals = {{"PyTorch", "rival_pytorch", &pytorch, NULL},
                                    {"ONNX Runtime", "rival_onnxruntime", &onnxruntime, NULL}}};
    return bench_table_finish(&table, &files);
}

/// Median microseconds of a batch, per cell, when so many parts are done. False, with the error
/// printed, on failure.
static bool measure_half(const nd_object *model, size_t done, double *us) {
    const int threads = nd_get_num_threads();
    for (size_t i = 0; i < CELLS; i++) {
        workload work = {model, cells[i].count};
        bench_progress_show(cells[i].work, (double)(done + i) / PARTS);
        nd_set_num_threads(cells[i].one_thread ? 1 : threads);
        us[i] = bench_measure_ns(embed, &work, cells[i].repeats) / 1e3;
        nd_set_num_threads(threads);
        if (!isfinite(us[i])) {
            bench_progress_clear();
            fprintf(stderr, "minilm: %s: %s\n", cells[i].name, minilm_get_problem());
            return false;
        }
    }
    return true;
}

static bool embed(void *data, uint64_t times) {
    const workload *work = data;
    int32_t ids[MOST * LENGTH];
    int64_t lengths[MOST];
    for (size_t i = 0; i < work->count * LENGTH; i++)
        ids[i] = (int32_t)(1000 + i * 7919 % 20000); // as bench/peers/minilm_files.py
    for (size_t i = 0; i < work->count; i++)
        lengths[i] = LENGTH;
    for (uint64_t i = 0; i < times; i++) {
        nd_auto nd_tensor *embeddings =
            minilm_forward(work->model, work->count, LENGTH, ids, lengths);
        if (!embeddings)
            return false;
    }
    return true;
}
