// Steps of training on the GPU: forward, loss, backward, optimizer, call by call and captured in a
// graph. A batch of steps is queued and then waited for. The same models are in
// bench/peers/pytorch_gpu.py.
#include "bench/gpu/gpu.h"
#include "bench/support/measure.h"
#include "bench/support/models.h"
#include "bench/support/progress.h"
#include "bench/workloads/gpt.h"

#include <math.h>

enum { LENGTH = 256 };

typedef struct training {
    nd_module *model;
    nd_optimizer *optimizer;
    nd_tensor *x;
    nd_tensor *labels;
    bool tokens; ///< the model is a GPT
} training;

static const nd_device gpu = {ND_CUDA, 0};

static nd_tensor *step(const training *work) {
    nd_tensor *loss = NULL;
    if (work->tokens) {
        loss = gpt_loss(work->model, work->x, work->labels, false);
    } else {
        nd_auto nd_tensor *y = nd_module_forward(work->model, work->x);
        loss = nd_cross_entropy(y, work->labels);
    }
    if (nd_optimizer_zero_grad(work->optimizer) == ND_OK && nd_backward(loss, NULL) == ND_OK &&
        nd_optimizer_step(work->optimizer) == ND_OK)
        return loss;
    nd_release(loss);
    return NULL;
}

static bool steps(void *data, uint64_t count) {
    const training *work = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_auto nd_tensor *loss = step(work);
        if (!loss)
            return false;
    }
    return nd_synchronize(gpu) == ND_OK;
}

static bool launches(void *data, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (nd_graph_launch(data) != ND_OK)
            return false;
    return nd_synchronize(gpu) == ND_OK;
}

/// Microseconds of a step that is captured once; NaN with an error.
static double captured_us(const training *work) {
    nd_auto nd_graph *graph = NULL;
    nd_auto nd_tensor *loss = NULL;
    nd_with_capture(gpu, &graph) loss = step(work);
    return graph && loss ? bench_measure_ns(launches, graph, gpu_repeats(51)) / 1e3 : (double)NAN;
}

static training begin_mlp(int64_t batch) {
    nd_key key = nd_key_new(7);
    nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
    sgd.rate = 0.01;
    training work = {.model = models_new_mlp(key)};
    work.optimizer = nd_sgd(work.model, &sgd);
    work.x = nd_rand(nd_key_fold(key, 3), ND_SHAPE(batch, 784), ND_F32);
    work.labels = nd_randint(nd_key_fold(key, 4), 0, 10, ND_SHAPE(batch), ND_I64);
    return work;
}

static training begin_cnn(int64_t batch) {
    nd_key key = nd_key_new(22);
    nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
    sgd.rate = 0.01;
    sgd.momentum = 0.9;
    training work = {.model = models_new_cnn(key)};
    work.optimizer = nd_sgd(work.model, &sgd);
    work.x = nd_rand(nd_key_fold(key, 3), ND_SHAPE(batch, 1, 28, 28), ND_F32);
    work.labels = nd_randint(nd_key_fold(key, 4), 0, 10, ND_SHAPE(batch), ND_I64);
    return work;
}

static training begin_gpt(int64_t batch) {
    const bool fake = rival_is_fake();
    const gpt_sizes small = {16, 8, 8, 1, 2}, whole = GPT_124M;
    const gpt_sizes *sizes = fake ? &small : &whole;
    const int64_t length = fake ? 4 : LENGTH;
    nd_key key = nd_key_new(21);
    training work = {.model = gpt_new(sizes, key), .tokens = true};
    nd_auto nd_tensor *window =
        nd_randint(nd_key_fold(key, 1), 0, sizes->vocabulary, ND_SHAPE(batch, length + 1), ND_I64);
    work.optimizer = nd_adamw(work.model, NULL);
    work.x = nd_slice(window, 0, length, 1, 1);
    work.labels = nd_slice(window, 1, length + 1, 1, 1);
    return work;
}

bool steps_measure(bench_metric *metrics, size_t *count) {
    static const struct {
        const char *work, *name, *captured;
        training (*begin)(int64_t batch);
        int64_t batch;
        double ratio; ///< that time by PyTorch's shall be at most
        int beside;   ///< which one of PyTorch's
    } rows[] = {
        {"step of MLP 784-128-64-10, batch 128", "TG_us_mlp_128", "TG_us_captured_mlp_128",
         begin_mlp, 128, 0.5, EAGER},
        {"step of MLP 784-128-64-10, batch 4096", "TG_us_mlp_4096", "TG_us_captured_mlp_4096",
         begin_mlp, 4096, 0.5, EAGER},
        {"step of a CNN, batch 128", "TG_us_cnn_128", "TG_us_captured_cnn_128", begin_cnn, 128, 0.5,
         EAGER},
        {"step of GPT-2, 124 M, 8 x 256 tokens", "TG_us_gpt", "TG_us_captured_gpt", begin_gpt, 8, 1,
         COMPILED},
    };
    bool right = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && right; i++) {
        bench_progress_show(rows[i].work, (double)*count / GPU_METRICS_MAX);
        training work = rows[i].begin(rival_is_fake() ? 2 : rows[i].batch);
        double us = NAN, captured = NAN;
        if (work.optimizer && work.x && work.labels) {
            us = bench_measure_ns(steps, &work, gpu_repeats(51)) / 1e3;
            captured = captured_us(&work);
        }
        nd_release(work.x);
        nd_release(work.labels);
        nd_release(work.optimizer);
        nd_release(work.model);
        nd_memory_trim(ND_CUDA);
        right = isfinite(us) && isfinite(captured);
        metrics[(*count)++] = (bench_metric){.work = rows[i].work,
                                             .name = rows[i].name,
                                             .unit = "us",
                                             .ours = us,
                                             .ratio = rows[i].ratio,
                                             .beside = 1u << rows[i].beside};
        metrics[(*count)++] = (bench_metric){
            .work = "… as a graph", .name = rows[i].captured, .unit = "us", .ours = captured};
    }
    return right;
}
