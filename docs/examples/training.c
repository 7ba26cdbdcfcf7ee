// Trains a classifier, saves it, and goes on from the file: docs/training.md explains each part.
// training [FILE]: where the parameters are saved; training.safetensors by default.
#include <nd/nd.h>
#include <stdio.h>

enum { SAMPLES = 2000, BATCH = 50, EPOCHS = 6 };

/// Points of the square from -1 to 1, and whether both coordinates have the same sign. Owned.
static nd_dataset *make_data(nd_key key) {
    nd_auto nd_tensor *uniform = nd_rand(key, ND_SHAPE(SAMPLES, 2), ND_F32);
    nd_auto nd_tensor *doubled = nd_mul_scalar(uniform, 2);
    nd_auto nd_tensor *points = nd_add_scalar(doubled, -1);
    nd_auto nd_tensor *x = nd_select(points, 0, 1);
    nd_auto nd_tensor *y = nd_select(points, 1, 1);
    nd_auto nd_tensor *product = nd_mul(x, y);
    nd_auto nd_tensor *zero = nd_scalar(0, ND_F32);
    nd_auto nd_tensor *same_sign = nd_greater(product, zero);
    nd_auto nd_tensor *labels = nd_cast(same_sign, ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = BATCH;
    options.key = nd_key_fold(key, 1);
    options.shuffle = true;
    return nd_dataset_new(points, labels, &options);
}

/// Two layers. Owned; the key decides with which parameters it begins.
static nd_module *make_model(nd_key key) {
    return ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), 2, 32, true), nd_tanh_module(),
                         nd_linear_module(nd_key_fold(key, 1), 32, 2, true));
}

/// One step of the optimizer for one batch.
static nd_status train_batch(const nd_module *model, nd_optimizer *optimizer,
                             const nd_tensor *points, const nd_tensor *labels) {
    nd_auto nd_tensor *logits = nd_module_forward(model, points);
    nd_auto nd_tensor *loss = nd_cross_entropy(logits, labels);
    nd_status status = nd_backward(loss, NULL); // NULL came through if anything before failed
    if (status == ND_OK)
        status = nd_optimizer_step(optimizer);
    nd_optimizer_zero_grad(optimizer);
    return status;
}

/// Once over the data.
static nd_status train_epoch(nd_dataset *data, const nd_module *model, nd_optimizer *optimizer,
                             uint64_t epoch) {
    nd_status status = nd_dataset_start(data, epoch);
    while (status == ND_OK) {
        nd_auto nd_tensor *points = NULL;
        nd_auto nd_tensor *labels = NULL;
        status = nd_dataset_next_batch(data, &points, &labels);
        if (status != ND_OK || !points)
            return status; // NULL and ND_OK at the end of the epoch
        status = train_batch(model, optimizer, points, labels);
    }
    return status;
}

/// How many of the data's labels the model gets right, from 0 to 1; negative on error.
static double measure_accuracy(nd_dataset *data, const nd_module *model) {
    double right = 0;
    if (nd_dataset_start(data, 0) != ND_OK)
        return -1;
    nd_no_grad {
        for (;;) {
            nd_auto nd_tensor *points = NULL;
            nd_auto nd_tensor *labels = NULL;
            if (nd_dataset_next_batch(data, &points, &labels) != ND_OK || !points)
                break;
            nd_auto nd_tensor *logits = nd_module_forward(model, points);
            nd_auto nd_tensor *answers = nd_argmax(logits, 1, false);
            nd_auto nd_tensor *equal = nd_equal(answers, labels);
            nd_auto nd_tensor *ones = nd_cast(equal, ND_F32);
            nd_auto nd_tensor *sum = nd_sum(ones, 0, NULL, false);
            right += nd_get_item(sum);
        }
    }
    return nd_error_get_status() == ND_OK ? right / SAMPLES : -1;
}

/// Trains from one epoch to another, from a file's parameters when there is one to go on from.
static void train(const char *from, const char *to, uint64_t first, uint64_t end) {
    nd_manager *run = nd_manager_new(NULL, "run");
    nd_with_manager(run) {
        nd_auto nd_dataset *training = make_data(nd_key_new(1));
        nd_auto nd_dataset *unseen = make_data(nd_key_new(2));
        nd_auto nd_module *model = make_model(nd_key_new(3));
        if (from)
            nd_load_parameters(model, from);
        nd_adam_options adamw = ND_ADAMW_OPTIONS_INIT;
        adamw.rate = 0.01;
        nd_auto nd_optimizer *optimizer = nd_adamw(model, &adamw);
        for (uint64_t epoch = first; epoch < end && nd_error_get_status() == ND_OK; epoch++) {
            train_epoch(training, model, optimizer, epoch);
            nd_optimizer_set_rate(optimizer, 0.01 / (double)(epoch + 2));
        }
        nd_save_parameters(model, to);
        printf("after %d epochs %d of 10 points are classified rightly\n", (int)end,
               (int)(10 * measure_accuracy(unseen, model)));
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_manager_close(run, &report);
    printf("%d objects escaped; %s\n", (int)report.escaped_objects, nd_error_get_message());
    nd_release(run);
}

int main(int argc, char **argv) {
    const char *file = argc > 1 ? argv[1] : "training.safetensors";
    train(NULL, file, 0, EPOCHS / 2);
    train(file, file, EPOCHS / 2, EPOCHS); // another process could do this, and another day
    return nd_error_get_status() != ND_OK;
}
