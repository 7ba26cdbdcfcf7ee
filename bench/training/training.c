// One run: model, data, epochs, and what it leaves behind.
#include "bench/training/training.h"

#include "bench/support/machine.h"
#include "bench/support/measure.h"
#include "bench/training/report.h"

#include <math.h>
#include <stdlib.h>

enum { PIXELS = 784, HIDDEN1 = 128, HIDDEN2 = 64, CLASSES = 10 };
static const double momentum = 0.9;
static const uint64_t seed = 20;

static nd_module *make_model(nd_key key);
static nd_status make_parts(training *run, const digits *digits);
static nd_status one_step(training *run, nd_manager *step, bool *ret_more);
static nd_status evaluate(training *run, double *ret_accuracy);
static int64_t count_correct(const nd_module *model, const nd_tensor *images,
                             const nd_tensor *labels);
static nd_gc_stats collector_totals(void);

nd_status training_begin(training *run, const scenario *scenario, bool collector_on,
                         const settings *settings, const digits *digits, run_result *result) {
    *run = (training){.scenario = scenario, .settings = settings, .result = result};
    *result = (run_result){
        .scenario = scenario,
        .collector_on = collector_on,
        .batch = settings->batch ? settings->batch : scenario->batch,
        .epochs = calloc((size_t)settings->epochs, sizeof *result->epochs),
    };
    if (!result->epochs)
        return ND_ERROR_OUT_OF_MEMORY;
    run->manager = nd_manager_new(nd_manager_get_root(), scenario->name);
    if (!run->manager)
        return nd_error_get_status();
    nd_status status = nd_manager_set_gc_mode(run->manager, collector_on ? ND_GC_ON : ND_GC_OFF);
    if (status == ND_OK) {
        nd_with_manager(run->manager) status = make_parts(run, digits);
    }
    if (status == ND_OK)
        result->steps = nd_dataset_get_batches(run->train);
    return status;
}

nd_status training_warm_up(const scenario *scenario, const settings *settings,
                           const digits *digits) {
    enum { STEPS = 20 };
    run_result ignored;
    training run;
    double accuracy;
    nd_status status = training_begin(&run, scenario, true, settings, digits, &ignored);
    if (status == ND_OK)
        status = training_start_epoch(&run, 0);
    if (status == ND_OK)
        status = training_steps(&run, STEPS);
    if (status == ND_OK)
        status = evaluate(&run, &accuracy);
    nd_status ended = training_end(&run);
    free(ignored.epochs);
    return status == ND_OK ? ended : status;
}

nd_status training_start_epoch(training *run, int epoch) {
    run->rate = run->scenario->rate * (1 - (double)epoch / run->settings->epochs);
    run->steps_run = 0;
    nd_status status = nd_optimizer_set_rate(run->optimizer, run->rate);
    return status == ND_OK ? nd_dataset_start(run->train, (uint64_t)epoch) : status;
}

nd_status training_steps(training *run, int64_t steps) {
    bool more = true;
    for (int64_t i = 0; i < steps && more; i++) {
        nd_auto nd_manager *step = nd_manager_new(run->manager, "step");
        if (!step)
            return nd_error_get_status();
        nd_status status = one_step(run, step, &more);
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        nd_status closed = nd_manager_close(step, &report);
        if (status != ND_OK || closed != ND_OK)
            return status != ND_OK ? status : closed;
        run->escaped_objects += report.escaped_objects;
        run->escaped_bytes += report.escaped_bytes;
        if (report.escaped_objects)
            run->result->last_escape = report;
    }
    return ND_OK;
}

nd_status training_epoch(training *run, int epoch) {
    enum { STEPS_BETWEEN_PROGRESS = 10 };
    run_result *result = run->result;
    epoch_result *figures = &result->epochs[epoch];
    run->escaped_objects = run->escaped_bytes = 0;
    nd_gc_stats before = collector_totals();
    nd_gc_reset_peak();
    double begin = bench_seconds();
    nd_status status = training_start_epoch(run, epoch);
    for (int64_t step = 0; step < result->steps && status == ND_OK;
         step += STEPS_BETWEEN_PROGRESS) {
        status = training_steps(run, STEPS_BETWEEN_PROGRESS);
        progress_show(run, epoch);
    }
    if (status == ND_OK)
        status = nd_synchronize(run->settings->device);
    figures->seconds = bench_seconds() - begin;
    nd_gc_stats after = collector_totals();
    figures->cycles = after.cycles - before.cycles;
    figures->collected_objects = after.collected_objects - before.collected_objects;
    figures->collected_bytes = after.collected_bytes - before.collected_bytes;
    figures->gate_closed_us_max = (double)after.gate_closed_ns_max / 1e3;
    figures->escaped_objects = run->escaped_objects;
    figures->escaped_bytes = run->escaped_bytes;
    if (status == ND_OK)
        status = evaluate(run, &figures->test_accuracy);
    figures->live_objects = nd_manager_get_total_objects(run->manager);
    figures->live_bytes = nd_manager_get_total_bytes(run->manager);
    figures->resident_bytes = bench_resident_bytes();
    if (status == ND_OK)
        result->epoch_count = epoch + 1;
    return status;
}

nd_status training_end(training *run) {
    nd_release(run->history);
    nd_release(run->train);
    nd_release(run->test);
    nd_release(run->optimizer);
    nd_release(run->model);
    if (!run->manager)
        return ND_OK;
    nd_close_report closed = ND_CLOSE_REPORT_INIT;
    nd_status status = nd_manager_close(run->manager, &closed);
    nd_release(run->manager);
    run->manager = NULL;
    run->result->left_objects = closed.escaped_objects;
    run->result->left_bytes = closed.escaped_bytes;
    if (status != ND_OK)
        return status;
    nd_gc_report collected = ND_GC_REPORT_INIT;
    status = nd_gc_collect(nd_manager_get_root(), &collected);
    run->result->freed_objects = collected.collected_objects;
    run->result->freed_bytes = collected.collected_bytes;
    return status;
}

static nd_status make_parts(training *run, const digits *digits) {
    nd_key key = nd_key_new(seed);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = run->result->batch;
    options.key = nd_key_fold(key, 1);
    options.shuffle = true;
    options.drop_last = true;
    options.device = run->settings->device;
    run->train = nd_dataset_new(digits->train_images, digits->train_labels, &options);
    options.batch = 500;
    options.shuffle = false;
    options.drop_last = false;
    run->test = nd_dataset_new(digits->test_images, digits->test_labels, &options);
    run->model = make_model(nd_key_fold(key, 2));
    if (!run->train || !run->test || !run->model)
        return nd_error_get_status();
    nd_status status = nd_module_to(run->model, run->settings->device);
    if (status != ND_OK)
        return status;
    nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
    sgd.rate = run->scenario->rate;
    sgd.momentum = momentum;
    run->optimizer = nd_sgd(run->model, &sgd);
    if (!run->optimizer)
        return nd_error_get_status();
    return run->scenario->begin ? run->scenario->begin(run) : ND_OK;
}

static nd_module *make_model(nd_key key) {
    return ND_SEQUENTIAL(
        nd_linear_module(nd_key_fold(key, 0), PIXELS, HIDDEN1, true), nd_relu_module(),
        nd_linear_module(nd_key_fold(key, 1), HIDDEN1, HIDDEN2, true), nd_relu_module(),
        nd_linear_module(nd_key_fold(key, 2), HIDDEN2, CLASSES, true));
}

/// Next batch and one step on it, in the step's manager; ret_more is false at the epoch's end.
static nd_status one_step(training *run, nd_manager *step, bool *ret_more) {
    nd_status status = ND_OK;
    nd_with_manager(step) {
        nd_auto nd_tensor *images = NULL;
        nd_auto nd_tensor *labels = NULL;
        status = nd_dataset_next_batch(run->train, &images, &labels);
        *ret_more = status == ND_OK && images;
        if (*ret_more)
            status = run->scenario->step(run, images, labels);
        run->steps_run += *ret_more;
    }
    return status;
}

static nd_status evaluate(training *run, double *ret_accuracy) {
    nd_status status = nd_dataset_start(run->test, 0);
    nd_auto nd_manager *manager = nd_manager_new(run->manager, "test");
    if (!manager || status != ND_OK)
        return nd_error_get_status();
    int64_t correct = 0;
    nd_with_manager(manager) nd_no_grad {
        for (bool more = true; more;) {
            nd_auto nd_tensor *images = NULL;
            nd_auto nd_tensor *labels = NULL;
            status = nd_dataset_next_batch(run->test, &images, &labels);
            more = status == ND_OK && images;
            if (more)
                correct += count_correct(run->model, images, labels);
        }
    }
    *ret_accuracy = (double)correct / (double)nd_dataset_get_size(run->test);
    return status;
}

static int64_t count_correct(const nd_module *model, const nd_tensor *images,
                             const nd_tensor *labels) {
    nd_auto nd_tensor *logits = nd_module_forward(model, images);
    nd_auto nd_tensor *answers = nd_argmax(logits, 1, false);
    nd_auto nd_tensor *right = nd_equal(answers, labels);
    nd_auto nd_tensor *count = nd_sum(right, 0, NULL, false);
    int64_t value = 0;
    return nd_get_item_i64(count, &value) == ND_OK ? value : 0;
}

static nd_gc_stats collector_totals(void) {
    nd_gc_stats stats = ND_GC_STATS_INIT;
    nd_gc_get_stats(&stats);
    return stats;
}
