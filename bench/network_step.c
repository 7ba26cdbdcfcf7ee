// T22: a training step of a CNN and of a transformer block, ours beside PyTorch's in one run, on one
// thread and on as many as there are cores. Random data. The rival runs between two halves of our
// measurement, so that a machine that speeds up or slows down does not decide.
//
// The CNN: images of 28 x 28, twice (convolution 3 x 3, batch normalisation, ReLU, pooling 2 x 2) to
// 16 and 32 channels, linear to 10; cross-entropy, SGD with momentum. The block: [8, 64, 256], 8
// heads, both halves normalised first, an MLP four times as wide with GELU; the mean of the squares
// of its results as loss, AdamW.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/models.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"

#include <nd/nd.h>

#include <math.h>
#include <stdio.h>

enum { REPEATS = 301, BATCH = 8, LENGTH = 64, WIDTH = 256, HEADS = 8 };

typedef struct workload {
    nd_manager *manager;
    nd_module *model;
    nd_optimizer *optimizer;
    nd_tensor *x;
    nd_tensor *labels; ///< NULL: the loss is the mean of the squares
} workload;

static nd_module *new_block(nd_key key);
static nd_tensor *block_forward(const nd_module *self, const nd_tensor *x);

// One figure: a model, its batch, and the threads.
typedef struct cell {
    const char *name;
    const char *work;
    nd_module *(*model)(nd_key key);
    int64_t batch;
    bool one_thread;
} cell;
static const cell cells[] = {
    {"T22_us_cnn_batch32_one_thread", "step of a CNN, batch 32, one thread", models_new_cnn, 32,
     true},
    {"T22_us_cnn_batch32", "step of a CNN, batch 32", models_new_cnn, 32, false},
    {"T22_us_cnn_batch128_one_thread", "step of a CNN, batch 128, one thread", models_new_cnn, 128,
     true},
    {"T22_us_cnn_batch128", "step of a CNN, batch 128", models_new_cnn, 128, false},
    {"T22_us_block_one_thread", "step of a transformer block, one thread", new_block, BATCH, true},
    {"T22_us_block", "step of a transformer block", new_block, BATCH, false},
};
enum { CELLS = sizeof cells / sizeof *cells };

static bool workload_begin(workload *work, const cell *of);
static void workload_end(workload *work);
static bool steps(void *data, uint64_t count);
static bool measure_half(size_t done, double *us);

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T22: steps of a CNN and of a transformer block, beside PyTorch.", &files);
    if (answer >= 0)
        return answer;

    double first[CELLS];
    double second[CELLS];
    bench_peer peer;
    if (!measure_half(0, first))
        return 2;
    bench_progress_show("PyTorch", 1.0 / 3);
    bench_peer_run_own(&peer, "pytorch_network.py", NULL, "python3-torch");
    if (!measure_half(2 * CELLS, second))
        return 2;

    bench_metric metrics[CELLS];
    for (size_t i = 0; i < CELLS; i++)
        metrics[i] = (bench_metric){.work = cells[i].work,
                                    .name = cells[i].name,
                                    .unit = "us",
                                    .ours = (first[i] + second[i]) / 2,
                                    .ratio = cells[i].model == new_block ? 0.9 : 0.6};
    bench_table table = {.bench = "network_step",
                         .metrics = metrics,
                         .count = CELLS,
                         .rivals = {{"PyTorch", "rival_pytorch", &peer, NULL}}};
    return bench_table_finish(&table, &files);
}

/// Median microseconds of a step, per cell, when so many are done, PyTorch's counted in. False, with
/// the error printed, on failure.
static bool measure_half(size_t done, double *us) {
    const int threads = nd_get_num_threads();
    for (size_t i = 0; i < CELLS; i++) {
        workload work;
        bench_progress_show(cells[i].work, (double)(done + i) / (3 * CELLS));
        nd_set_num_threads(cells[i].one_thread ? 1 : threads);
        us[i] = workload_begin(&work, &cells[i]) ? bench_measure_ns(steps, &work, REPEATS) / 1e3
                                                 : (double)NAN;
        workload_end(&work);
        nd_set_num_threads(threads);
        if (!isfinite(us[i])) {
            bench_progress_clear();
            fprintf(stderr, "network_step: %s: %s\n", cells[i].name, nd_error_get_message());
            return false;
        }
    }
    return true;
}

static bool workload_begin(workload *work, const cell *of) {
    nd_key key = nd_key_new(22);
    *work = (workload){.manager = nd_manager_new(NULL, "network_step")};
    nd_with_manager(work->manager) {
        work->model = of->model(nd_key_fold(key, 0));
        if (of->model == new_block) {
            work->optimizer = nd_adamw(work->model, NULL);
            work->x = nd_randn(nd_key_fold(key, 1), ND_SHAPE(of->batch, LENGTH, WIDTH), ND_F32);
        } else {
            nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
            sgd.rate = 0.01;
            sgd.momentum = 0.9;
            work->optimizer = nd_sgd(work->model, &sgd);
            work->x = nd_rand(nd_key_fold(key, 1), ND_SHAPE(of->batch, 1, 28, 28), ND_F32);
            work->labels = nd_randint(nd_key_fold(key, 2), 0, 10, ND_SHAPE(of->batch), ND_I64);
        }
    }
    return work->optimizer && work->x && (work->labels || of->model == new_block);
}

static void workload_end(workload *work) {
    nd_release(work->x);
    nd_release(work->labels);
    nd_release(work->optimizer);
    nd_release(work->model);
    nd_release(work->manager);
}

static nd_tensor *loss_of(const workload *work, const nd_tensor *y) {
    if (work->labels)
        return nd_cross_entropy(y, work->labels);
    nd_auto nd_tensor *square = nd_square(y);
    return nd_mean(square, 0, NULL, false);
}

static bool steps(void *data, uint64_t count) {
    workload *work = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_auto nd_tensor *y = nd_module_forward(work->model, work->x);
        nd_auto nd_tensor *loss = loss_of(work, y);
        if (nd_optimizer_zero_grad(work->optimizer) != ND_OK ||
            nd_backward_release(nd_steal(&loss), NULL) != ND_OK ||
            nd_optimizer_step(work->optimizer) != ND_OK)
            return false;
    }
    return true;
}

// ------------------------------------------------------------------------------------------ models

enum block_part { NORM_1, QUERIES, KEYS, VALUES, MIX, NORM_2, WIDEN, NARROW, BLOCK_PARTS };

static const nd_module_type block_type = {.size = sizeof(nd_module_type),
                                          .version = 1,
                                          .name = "transformer_block",
                                          .forward = block_forward};

static nd_module *new_block(nd_key key) {
    static const char *const names[BLOCK_PARTS] = {"norm_1", "queries", "keys",  "values",
                                                   "mix",    "norm_2",  "widen", "narrow"};
    nd_module *block = nd_module_new(&block_type, NULL, 0);
    for (int i = 0; i < BLOCK_PARTS; i++) {
        const int64_t in = i == NARROW ? 4 * WIDTH : WIDTH, out = i == WIDEN ? 4 * WIDTH : WIDTH;
        nd_auto nd_module *part =
            i == NORM_1 || i == NORM_2
                ? nd_layer_norm_module(1e-5, ND_SHAPE(WIDTH))
                : nd_linear_module(nd_key_fold(key, (uint64_t)i), in, out, true);
        nd_module_add_child(block, names[i], part);
    }
    return block;
}

static nd_tensor *part_forward(const nd_module *self, enum block_part part, const nd_tensor *x) {
    return nd_module_forward(nd_module_get_child(self, part), x);
}

/// [batch, length, width] -> [batch, heads, length, width / heads].
static nd_tensor *heads_of(const nd_module *self, enum block_part part, const nd_tensor *x) {
    nd_auto nd_tensor *y = part_forward(self, part, x);
    nd_auto nd_tensor *split = nd_reshape(y, ND_SHAPE(BATCH, LENGTH, HEADS, WIDTH / HEADS));
    return nd_transpose(split, 1, 2);
}

static nd_tensor *attend(const nd_module *self, const nd_tensor *x) {
    nd_auto nd_tensor *queries = heads_of(self, QUERIES, x);
    nd_auto nd_tensor *keys = heads_of(self, KEYS, x);
    nd_auto nd_tensor *values = heads_of(self, VALUES, x);
    nd_auto nd_tensor *seen = nd_attention(queries, keys, values, NULL, NULL);
    nd_auto nd_tensor *back = nd_transpose(seen, 1, 2);
    nd_auto nd_tensor *joined = nd_reshape(back, ND_SHAPE(BATCH, LENGTH, WIDTH));
    return part_forward(self, MIX, joined);
}

static nd_tensor *block_forward(const nd_module *self, const nd_tensor *x) {
    nd_auto nd_tensor *normal_1 = part_forward(self, NORM_1, x);
    nd_auto nd_tensor *attended = attend(self, normal_1);
    nd_auto nd_tensor *half = nd_add(x, attended);
    nd_auto nd_tensor *normal_2 = part_forward(self, NORM_2, half);
    nd_auto nd_tensor *wide = part_forward(self, WIDEN, normal_2);
    nd_auto nd_tensor *active = nd_gelu(wide);
    nd_auto nd_tensor *narrow = part_forward(self, NARROW, active);
    return nd_add(half, narrow);
}
