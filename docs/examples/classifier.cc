// classifier, in C++: a network learns which points have coordinates of one sign. Modules and
// optimizers are owned as tensors are.
#include <cmath>
#include <cstdio>
#include <nd/nd.hpp>

enum { POINTS = 2000, BATCH = 50, EPOCHS = 6 };

/// Random points of the plane, [n, 2].
static nd::tensor make_points(nd_key key) {
    return nd::randn(key, ND_SHAPE(POINTS, 2), ND_F32);
}

/// Whether the coordinates of points [n, 2] have different signs: 0 or 1, [n].
static nd::tensor get_labels(const nd::tensor &points) {
    const int coordinates[] = {1};
    return nd::cast(nd::signbit(nd::prod(points, 1, coordinates, false)), ND_I64);
}

/// Two layers; the key decides with which parameters it begins.
static nd::module make_model(nd_key key) {
    return nd::module(ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), 2, 32, true),
                                    nd_tanh_module(),
                                    nd_linear_module(nd_key_fold(key, 1), 32, 2, true)));
}

/// One step of the optimizer for one batch.
static nd_status train_batch(const nd::module &model, nd::optimizer &optimizer,
                             const nd::tensor &points, const nd::tensor &labels) {
    nd::tensor loss = nd::cross_entropy(nd::module_forward(model, points), labels);
    nd_status status = nd_backward(loss, nullptr); // fails as well if anything before failed
    if (status == ND_OK)
        status = nd_optimizer_step(optimizer.get());
    nd_optimizer_zero_grad(optimizer.get());
    return status; // and the record of this batch is released
}

static nd_status train(const nd::module &model) {
    nd::tensor points = make_points(nd_key_new(1));
    nd::tensor labels = get_labels(points);
    nd_adam_options options = ND_ADAMW_OPTIONS_INIT;
    options.rate = 0.01;
    nd::optimizer optimizer(nd_adamw(model, &options));
    nd_status status = ND_OK;
    for (int i = 0; status == ND_OK && i < EPOCHS * POINTS; i += BATCH) {
        int first = i % POINTS;
        status = train_batch(model, optimizer, nd::slice(points, first, first + BATCH, 1, 0),
                             nd::slice(labels, first, first + BATCH, 1, 0));
    }
    return status;
}

/// The share of new points that the model gets right; NaN on error.
static double measure_accuracy(const nd::module &model) {
    nd::tensor points = make_points(nd_key_new(2));
    double accuracy = NAN;
    nd_no_grad { // nothing is recorded, so nothing is kept for a backward pass
        nd::tensor answers = nd::argmax(nd::module_forward(model, points), 1, false);
        nd::tensor right = nd::equal(answers, get_labels(points));
        accuracy = nd_get_item(nd::mean(right, 0, nullptr, false));
    }
    return accuracy;
}

static void show(const char *file) {
    nd::module model = make_model(nd_key_new(3));
    nd::module again = make_model(nd_key_new(4)); // begins with other parameters
    if (train(model) == ND_OK && nd_save_parameters(model, file) == ND_OK &&
        nd_load_parameters(again, file) == ND_OK)
        std::printf("%.0f of 10 new points are classified rightly\n",
                    std::floor(10 * measure_accuracy(again)));
}

int main(int argc, char **argv) {
    show(argc > 1 ? argv[1] : "classifier.safetensors");
    std::printf("%d objects left; %s\n", static_cast<int>(nd_manager_get_total_objects(nullptr)),
                nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
