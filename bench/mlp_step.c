// T9: one training step of the MLP 784-128-64-10 (forward, cross-entropy, backward, SGD without
// momentum), batch 32 and 128, ours beside PyTorch's in one run. Random data. The rival runs
// between two halves of our measurement, so that a machine that speeds up or slows down does not
// decide.
//
// T19: the same step with as many threads as there are, by that on one thread, directly behind it. On
// a machine that others use, too, sharing work must not cost more than it brings.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/models.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"

#include <nd/nd.h>

#include <math.h>
#include <stdio.h>

enum { SIZES = 2, REPEATS = 1001, WARM_UP = 100 };
static const int64_t batches[SIZES] = {32, 128};

typedef struct workload {
    nd_manager *manager;
    nd_module *model;
    nd_optimizer *optimizer;
    nd_tensor *images;
    nd_tensor *labels;
} workload;

static bool workload_begin(workload *work, int64_t batch);
static void workload_end(workload *work);
static bool steps(void *data, uint64_t count);
static bool measure_half(size_t done, double *us, double *us_alone);

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T9: one training step of an MLP 784-128-64-10, beside PyTorch.", &files);
    if (answer >= 0)
        return answer;

    double first[SIZES], second[SIZES];
    double first_alone[SIZES], second_alone[SIZES];
    bench_peer peer;
    if (!measure_half(0, first, first_alone))
        return 2;
    bench_progress_show("PyTorch", 1.0 / 3);
    bench_peer_run_own(&peer, "pytorch_mlp.py", NULL, "python3-torch");
    if (!measure_half(2 * SIZES, second, second_alone))
        return 2;

    bench_metric metrics[2 * SIZES] = {
        {.work = "step of MLP 784-128-64-10, SGD, batch 32", .name = "T9_us_batch32", .ratio = 0.3},
        {.work = "step of MLP 784-128-64-10, SGD, batch 128",
         .name = "T9_us_batch128",
         .ratio = 0.4},
        {.work = "batch 32, all threads / one", .name = "T19_ratio_batch32"},
        {.work = "batch 128, all threads / one", .name = "T19_ratio_batch128"},
    };
    for (size_t i = 0; i < SIZES; i++) {
        metrics[i].unit = "us";
        metrics[i].ours = (first[i] + second[i]) / 2;
        metrics[SIZES + i].unit = "x";
        metrics[SIZES + i].target = 1.5;
        metrics[SIZES + i].ours = (first[i] + second[i]) / (first_alone[i] + second_alone[i]);
    }
    bench_table table = {.bench = "mlp_step",
                         .metrics = metrics,
                         .count = 2 * SIZES,
                         .rivals = {{"PyTorch", "rival_pytorch", &peer, NULL}}};
    return bench_table_finish(&table, &files);
}

/// Median microseconds of a step with that many threads; NaN with an error.
static double measure(workload *work, int threads) {
    return nd_set_num_threads(threads) == ND_OK ? bench_measure_ns(steps, work, REPEATS) / 1e3
                                                : NAN;
}

/// The same per batch size, with as many threads as there are and on one, when so many are done,
/// PyTorch's counted in. False, with the error printed, on failure.
static bool measure_half(size_t done, double *us, double *us_alone) {
    const int threads = nd_get_num_threads();
    for (size_t i = 0; i < SIZES; i++) {
        workload work;
        bench_progress_show("ndarc", (double)(done + i) / (3 * SIZES));
        const bool begun = workload_begin(&work, batches[i]);
        us_alone[i] = begun ? measure(&work, 1) : NAN;
        us[i] = isfinite(us_alone[i]) ? measure(&work, threads) : NAN;
        workload_end(&work);
        if (!isfinite(us[i])) {
            bench_progress_clear();
            fprintf(stderr, "mlp_step: batch %lld: %s\n", (long long)batches[i],
                    nd_error_get_message());
            return false;
        }
    }
    return true;
}

static bool workload_begin(workload *work, int64_t batch) {
    nd_key key = nd_key_new(7);
    *work = (workload){.manager = nd_manager_new(NULL, "mlp_step")};
    nd_with_manager(work->manager) {
        work->model = models_new_mlp(key);
        nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
        sgd.rate = 0.01;
        work->optimizer = nd_sgd(work->model, &sgd);
        work->images = nd_rand(nd_key_fold(key, 3), ND_SHAPE(batch, 784), ND_F32);
        work->labels = nd_randint(nd_key_fold(key, 4), 0, 10, ND_SHAPE(batch), ND_I64);
    }
    return work->optimizer && work->images && work->labels;
}

static void workload_end(workload *work) {
    nd_release(work->images);
    nd_release(work->labels);
    nd_release(work->optimizer);
    nd_release(work->model);
    nd_release(work->manager);
}

static bool steps(void *data, uint64_t count) {
    workload *work = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_auto nd_tensor *logits = nd_module_forward(work->model, work->images);
        nd_auto nd_tensor *loss = nd_cross_entropy(logits, work->labels);
        if (nd_optimizer_zero_grad(work->optimizer) != ND_OK ||
            nd_backward_release(nd_steal(&loss), NULL) != ND_OK ||
            nd_optimizer_step(work->optimizer) != ND_OK)
            return false;
    }
    return true;
}
