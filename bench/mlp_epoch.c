// T10: one epoch of 57,000 random samples through the MLP 784-500-10 (ReLU, cross-entropy, AdamW),
// batch 500, shuffled, ours beside PyTorch's in one run. The rival runs between two halves of our
// measurement, so that a machine that speeds up or slows down does not decide.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"

#include <nd/nd.h>

#include <math.h>
#include <stdio.h>

enum { SAMPLES = 57000, PIXELS = 784, HIDDEN = 500, CLASSES = 10, BATCH = 500, EPOCHS = 5 };

typedef struct workload {
    nd_manager *manager;
    nd_module *model;
    nd_optimizer *optimizer;
    nd_dataset *dataset;
} workload;

static bool workload_begin(workload *work);
static void workload_end(workload *work);
static bool epoch(workload *work, uint64_t number);
static double measure_half(int done);

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T10: one epoch of an MLP 784-500-10, batch 500, beside PyTorch.", &files);
    if (answer >= 0)
        return answer;
    bench_peer peer;
    double first = measure_half(0);
    bench_progress_show("PyTorch", 1.0 / 3);
    bench_peer_run_own(&peer, "pytorch_mlp.py", "--epoch", "python3-torch");
    double second = measure_half(2 * EPOCHS);
    bench_progress_clear();
    if (!isfinite(first) || !isfinite(second)) {
        fprintf(stderr, "mlp_epoch: %s\n", nd_error_get_message());
        return 2;
    }
    bench_metric metric = {.work = "epoch of MLP 784-500-10, 57,000 samples",
                           .name = "T10_s",
                           .unit = "s",
                           .ours = (first + second) / 2,
                           .ratio = 0.5};
    bench_table table = {.bench = "mlp_epoch",
                         .metrics = &metric,
                         .count = 1,
                         .rivals = {{"PyTorch", "rival_pytorch", &peer, NULL}}};
    return bench_table_finish(&table, &files);
}

/// Median seconds of an epoch, when so many are done, PyTorch's counted in; NaN on failure.
static double measure_half(int done) {
    double seconds[EPOCHS];
    workload work;
    bool right = workload_begin(&work) && epoch(&work, 0); // the first warms up
    for (uint64_t i = 0; i < EPOCHS && right; i++) {
        bench_progress_show("ndarc", (double)(done + (int)i) / (3 * EPOCHS));
        double begin = bench_seconds();
        right = epoch(&work, i + 1);
        seconds[i] = bench_seconds() - begin;
    }
    workload_end(&work);
    return right ? bench_median(seconds, EPOCHS) : (double)NAN;
}

static bool workload_begin(workload *work) {
    nd_key key = nd_key_new(10);
    *work = (workload){.manager = nd_manager_new(NULL, "mlp_epoch")};
    nd_with_manager(work->manager) {
        work->model = ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), PIXELS, HIDDEN, true),
                                    nd_relu_module(),
                                    nd_linear_module(nd_key_fold(key, 1), HIDDEN, CLASSES, true));
        work->optimizer = nd_adamw(work->model, NULL);
        nd_auto nd_tensor *images = nd_rand(nd_key_fold(key, 2), ND_SHAPE(SAMPLES, PIXELS), ND_F32);
        nd_auto nd_tensor *labels =
            nd_randint(nd_key_fold(key, 3), 0, CLASSES, ND_SHAPE(SAMPLES), ND_I64);
        nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
        options.batch = BATCH;
        options.key = nd_key_fold(key, 4);
        options.shuffle = true;
        work->dataset = nd_dataset_new(images, labels, &options);
    }
    return work->optimizer && work->dataset;
}

static void workload_end(workload *work) {
    nd_release(work->dataset);
    nd_release(work->optimizer);
    nd_release(work->model);
    nd_release(work->manager);
}

static bool epoch(workload *work, uint64_t number) {
    int64_t batches = 0;
    if (nd_dataset_start(work->dataset, number) != ND_OK)
        return false;
    for (;; batches++) {
        nd_auto nd_tensor *images = NULL;
        nd_auto nd_tensor *labels = NULL;
        if (nd_dataset_next_batch(work->dataset, &images, &labels) != ND_OK || !images)
            break;
        nd_auto nd_tensor *logits = nd_module_forward(work->model, images);
        nd_auto nd_tensor *loss = nd_cross_entropy(logits, labels);
        if (nd_optimizer_zero_grad(work->optimizer) != ND_OK ||
            nd_backward_release(nd_steal(&loss), NULL) != ND_OK ||
            nd_optimizer_step(work->optimizer) != ND_OK)
            return false;
    }
    return batches == SAMPLES / BATCH;
}
