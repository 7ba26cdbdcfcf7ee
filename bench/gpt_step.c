// T21: a training step (forward, loss, backward, AdamW) of GPT-2's architecture at its size of 124 M
// parameters, which are random: 4 windows of 64 tokens, ours beside PyTorch's in one run, on one
// thread and on as many as there are cores. The rival runs between two halves of our measurement.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"
#include "bench/workloads/gpt.h"

#include <math.h>
#include <stdio.h>

enum { BATCH = 4, LENGTH = 64, REPEATS = 5 };

static const char *const names[] = {"T21_ms_step_one_thread", "T21_ms_step"};
static const char *const works[] = {"step of GPT-2, 124 M, one thread", "step of GPT-2, 124 M"};
enum { CELLS = sizeof names / sizeof *names };

typedef struct workload {
    nd_module *model;
    nd_optimizer *optimizer;
    nd_tensor *ids, *targets;
} workload;

static bool workload_begin(workload *work);
static void workload_end(workload *work);
static bool steps(void *data, uint64_t count);
static bool measure_half(double *ms);

int main(int argc, char **argv) {
    const char *json = NULL;
    int answer = bench_metrics_options(
        argc, argv, "T21: a training step of GPT-2's architecture, beside PyTorch.", &json);
    if (answer >= 0)
        return answer;

    double first[CELLS];
    double second[CELLS];
    bench_peer peer;
    if (!measure_half(first))
        return 2;
    bench_peer_run_own(&peer, "pytorch_gpt.py", NULL, "python3-torch");
    if (!measure_half(second))
        return 2;

    bench_metric metrics[CELLS];
    for (size_t i = 0; i < CELLS; i++)
        metrics[i] = (bench_metric){
            .work = works[i], .name = names[i], .unit = "ms", .ours = (first[i] + second[i]) / 2};
    bench_table table = {.bench = "gpt_step",
                         .metrics = metrics,
                         .count = CELLS,
                         .rivals = {{"PyTorch", "rival_pytorch", &peer, NULL}}};
    return bench_table_finish(&table, json);
}

/// Median milliseconds of a step, per cell. False, with the error printed, on failure.
static bool measure_half(double *ms) {
    const int threads = nd_get_num_threads();
    workload work;
    bool good = workload_begin(&work);
    for (size_t i = 0; i < CELLS && good; i++) {
        nd_set_num_threads(i == 0 ? 1 : threads);
        ms[i] = bench_measure_ns(steps, &work, REPEATS) / 1e6;
        good = isfinite(ms[i]);
    }
    nd_set_num_threads(threads);
    workload_end(&work);
    if (!good)
        fprintf(stderr, "gpt_step: %s\n", nd_error_get_message());
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
        nd_auto nd_tensor *loss = gpt_loss(work->model, work->ids, work->targets, false);
        if (nd_optimizer_zero_grad(work->optimizer) != ND_OK || nd_backward(loss, NULL) != ND_OK ||
            nd_optimizer_step(work->optimizer) != ND_OK)
            return false;
    }
    return true;
}
