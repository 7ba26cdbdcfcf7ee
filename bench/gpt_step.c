// T21: a training step (forward, loss, backward, AdamW) of GPT-2's architecture at its size of 124 M
// parameters, which are random: 4 windows of 64 tokens, ours beside PyTorch's in one run, on one
// thread and on as many as there are cores. The rival runs between two halves of our measurement. And how
// much a step takes at its peak above weights and gradients, without and with checkpoints.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"
#include "bench/workloads/gpt.h"

#include <math.h>
#include <stdio.h>

enum { BATCH = 4, LENGTH = 64, REPEATS = 5 };

static const char *const names[] = {"T21_ms_step_one_thread", "T21_ms_step"};
static const char *const works[] = {"step of GPT-2, 124 M, one thread", "step of GPT-2, 124 M"};
enum { CELLS = sizeof names / sizeof *names };

static const struct peak {
    const char *name, *work;
    int64_t length;
    bool graph_kept, checkpointed;
} peaks[] = {
    {"T21_mb_peak_64_kept", "peak of windows of 64, graph kept", 64, true, false},
    {"T21_mb_peak_64", "peak of windows of 64", 64, false, false},
    {"T21_mb_peak_64_checkpointed", "peak of windows of 64, checkpoints", 64, false, true},
    {"T21_mb_peak_256_kept", "peak of windows of 256, graph kept", 256, true, false},
    {"T21_mb_peak_256", "peak of windows of 256", 256, false, false},
    {"T21_mb_peak_256_checkpointed", "peak of windows of 256, checkpoints", 256, false, true},
};
enum { PEAKS = sizeof peaks / sizeof *peaks };
enum { PARTS = 3 * CELLS + PEAKS }; ///< of the progress: PyTorch's are as many as ours

typedef struct workload {
    nd_module *model;
    nd_optimizer *optimizer;
    nd_tensor *ids, *targets;
} workload;

static bool workload_begin(workload *work);
static void workload_end(workload *work);
static bool steps(void *data, uint64_t count);
static bool measure_half(size_t done, double *ms);
static bool measure_peaks(double *mb);

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T21: a training step of GPT-2's architecture, beside PyTorch.", &files);
    if (answer >= 0)
        return answer;

    double first[CELLS];
    double second[CELLS];
    double mb[PEAKS];
    bench_peer peer;
    if (!measure_half(0, first))
        return 2;
    bench_progress_show("PyTorch", (double)CELLS / PARTS);
    bench_peer_run_own(&peer, "pytorch_gpt.py", NULL, "python3-torch");
    if (!measure_half(2 * CELLS, second) || !measure_peaks(mb))
        return 2;

    bench_metric metrics[CELLS + PEAKS];
    for (size_t i = 0; i < CELLS; i++)
        metrics[i] = (bench_metric){.work = works[i],
                                    .name = names[i],
                                    .unit = "ms",
                                    .ours = (first[i] + second[i]) / 2,
                                    .ratio = 0.9};
    for (size_t i = 0; i < PEAKS; i++)
        metrics[CELLS + i] = (bench_metric){
            .work = peaks[i].work, .name = peaks[i].name, .unit = "MB", .ours = mb[i]};
    bench_table table = {.bench = "gpt_step",
                         .metrics = metrics,
                         .count = CELLS + PEAKS,
                         .rivals = {{"PyTorch", "rival_pytorch", &peer, NULL}}};
    return bench_table_finish(&table, &files);
}

static void print_error(void) {
    bench_progress_clear();
    fprintf(stderr, "gpt_step: %s\n", nd_error_get_message());
}

/// Median milliseconds of a step, per cell, when so many parts are done. False, with the error
/// printed, on failure.
static bool measure_half(size_t done, double *ms) {
    const int threads = nd_get_num_threads();
    workload work;
    bool good = workload_begin(&work);
    for (size_t i = 0; i < CELLS && good; i++) {
        bench_progress_show(works[i], (double)(done + i) / PARTS);
        nd_set_num_threads(i == 0 ? 1 : threads);
        ms[i] = bench_measure_ns(steps, &work, REPEATS) / 1e6;
        good = isfinite(ms[i]);
    }
    nd_set_num_threads(threads);
    workload_end(&work);
    if (!good)
        print_error();
    return good;
}

/// Of the parameters, which all have one.
static uint64_t bytes_of_gradients(const nd_module *module) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < nd_module_get_parameter_count(module); i++)
        bytes += nd_get_storage_bytes(nd_get_grad(nd_module_get_parameter_at(module, i, NULL)));
    return bytes;
}

/// The most megabytes that forward and backward take above what is there before and the gradients
/// that they leave; gradients of a step before are gone, as a step begins.
static double find_peak(const nd_module *model, const nd_tensor *ids, const struct peak *peak) {
    nd_auto nd_manager *step = nd_manager_new(NULL, "step");
    nd_status status = nd_module_zero_grad(model);
    nd_with_manager(step) {
        nd_auto nd_tensor *loss = gpt_loss(model, ids, ids, peak->checkpointed);
        if (status == ND_OK)
            status = peak->graph_kept ? nd_backward(loss, NULL)
                                      : nd_backward_release(nd_steal(&loss), NULL);
    }
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    if (status == ND_OK)
        status = nd_manager_get_stats(step, &stats);
    const double most = (double)stats.peak_bytes[ND_CPU];
    return status == ND_OK ? (most - (double)bytes_of_gradients(model)) / 1e6 : NAN;
}

/// False, with the error printed, on failure.
static bool measure_peaks(double *mb) {
    const gpt_sizes sizes = GPT_124M;
    nd_auto nd_module *model = gpt_new(&sizes, nd_key_new(21));
    bool good = model != NULL;
    for (size_t i = 0; i < PEAKS && good; i++) {
        nd_auto nd_tensor *ids = nd_randint(nd_key_new(22), 0, sizes.vocabulary,
                                            ND_SHAPE(BATCH, peaks[i].length), ND_I64);
        bench_progress_show(peaks[i].work, (double)(3 * CELLS + i) / PARTS);
        mb[i] = find_peak(model, ids, &peaks[i]);
        good = isfinite(mb[i]);
    }
    if (!good)
        print_error();
    return good;
}

static bool workload_begin(workload *work) {
    const gpt_sizes sizes = GPT_124M;
    nd_key key = nd_key_new(21);
    *work = (workload){.model = gpt_new(&sizes, key)};
    nd_auto nd_tensor *window =
        nd_randint(nd_key_fold(key, 1), 0, sizes.vocabulary, ND_SHAPE(BATCH, LENGTH + 1), ND_I64);
    work->optimizer = nd_adamw(work->model, NULL);
    work->ids = nd_slice(window, 0, LENGTH, 1, 1);
    work->targets = nd_slice(window, 1, LENGTH + 1, 1, 1);
    return work->optimizer && work->targets;
}

static void workload_end(workload *work) {
    nd_release(work->ids);
    nd_release(work->targets);
    nd_release(work->optimizer);
    nd_release(work->model);
}

static bool steps(void *data, uint64_t count) {
    workload *work = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_tensor *loss = gpt_loss(work->model, work->ids, work->targets, false);
        if (nd_optimizer_zero_grad(work->optimizer) != ND_OK ||
            nd_backward_release(loss, NULL) != ND_OK || nd_optimizer_step(work->optimizer) != ND_OK)
            return false;
    }
    return true;
}
