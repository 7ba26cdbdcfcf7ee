// classifier, with counts by hand: a network learns which points have coordinates of one sign. Each
// step releases what it made when it is not needed any more, the views of the batch as well.
#include <math.h>
#include <nd/nd.h>
#include <stdio.h>

enum { POINTS = 2000, BATCH = 50, EPOCHS = 6 };

/// Whether the coordinates of points [n, 2] have different signs: 0 or 1, [n]. Owned.
static nd_tensor *get_labels(const nd_tensor *points) {
    nd_tensor *product = nd_prod(points, 1, (int[]){1}, false);
    nd_tensor *negative = nd_signbit(product);
    nd_tensor *labels = nd_cast(negative, ND_I64);
    nd_release(negative);
    nd_release(product);
    return labels;
}

/// Two layers. Owned; the key decides with which parameters it begins.
static nd_module *make_model(nd_key key) {
    return ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), 2, 32, true), nd_tanh_module(),
                         nd_linear_module(nd_key_fold(key, 1), 32, 2, true));
}

/// One step of the optimizer for one batch.
static nd_status train_batch(const nd_module *model, nd_optimizer *optimizer,
                             const nd_tensor *points, const nd_tensor *labels) {
    nd_tensor *logits = nd_module_forward(model, points);
    nd_tensor *loss = nd_cross_entropy(logits, labels);
    nd_release(logits); // or it would keep the record of this batch
    // Takes the loss over and frees the record as it goes; fails as well if anything before failed.
    nd_status status = nd_backward_release(loss, NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(optimizer);
    nd_optimizer_zero_grad(optimizer);
    return status;
}

static nd_status train(const nd_module *model) {
    nd_tensor *points = nd_randn(nd_key_new(1), ND_SHAPE(POINTS, 2), ND_F32);
    nd_tensor *labels = get_labels(points);
    nd_adam_options options = ND_ADAMW_OPTIONS_INIT;
    options.rate = 0.01;
    nd_optimizer *optimizer = nd_adamw(model, &options);
    nd_status status = ND_OK;
    for (int i = 0; status == ND_OK && i < EPOCHS * POINTS; i += BATCH) {
        int first = i % POINTS;
        // Views: nothing is copied.
        nd_tensor *x = nd_slice(points, first, first + BATCH, 1, 0);
        nd_tensor *y = nd_slice(labels, first, first + BATCH, 1, 0);
        status = train_batch(model, optimizer, x, y);
        nd_release(y);
        nd_release(x);
    }
    nd_release(optimizer);
    nd_release(labels);
    nd_release(points);
    return status;
}

/// The share of new points that the model gets right; NaN on error.
static double measure_accuracy(const nd_module *model) {
    nd_tensor *points = nd_randn(nd_key_new(2), ND_SHAPE(POINTS, 2), ND_F32);
    nd_tensor *labels = get_labels(points);
    double accuracy = NAN;
    nd_no_grad { // nothing is recorded, so nothing is kept for a backward pass
        nd_tensor *logits = nd_module_forward(model, points);
        nd_tensor *answers = nd_argmax(logits, 1, false);
        nd_tensor *right = nd_equal(answers, labels);
        nd_tensor *share = nd_mean(right, 0, NULL, false);
        accuracy = nd_get_item(share);
        nd_release(share);
        nd_release(right);
        nd_release(answers);
        nd_release(logits);
    }
    nd_release(labels);
    nd_release(points);
    return accuracy;
}

static void show(const char *file) {
    nd_module *model = make_model(nd_key_new(3));
    nd_module *again = make_model(nd_key_new(4)); // begins with other parameters
    if (train(model) == ND_OK && nd_save_parameters(model, file) == ND_OK &&
        nd_load_parameters(again, file) == ND_OK)
        printf("%.0f of 10 new points are classified rightly\n",
               floor(10 * measure_accuracy(again)));
    nd_release(again);
    nd_release(model);
}

int main(int argc, char **argv) {
    show(argc > 1 ? argv[1] : "classifier.safetensors");
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
