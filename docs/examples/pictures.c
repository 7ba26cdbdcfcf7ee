// pictures: a small convolutional net learns in which direction the stripes of pictures run.
#include <nd/scoped.h>
#include <stdio.h>

enum { SIDE = 16, BATCH = 32, STEPS = 60, NEW = 200 };

/// Pictures [n, 1, SIDE, SIDE] of stripes with noise, and which way they run: 0 across, 1 down. Each is
/// a wave along one of the axes, from a place of its own.
static const nd_tensor *draw(nd_key key, int64_t count, const nd_tensor **ret_labels) {
    const nd_tensor *labels = nd_randint(nd_key_fold(key, 0), 0, 2, ND_SHAPE(count), ND_I64);
    const nd_tensor *begin =
        nd_mul_scalar(nd_rand(nd_key_fold(key, 1), ND_SHAPE(count, 1, 1, 1), ND_F32), 6.2831853);
    const nd_tensor *steps = nd_reshape(nd_arange(0, SIDE, 1, ND_F32), ND_SHAPE(1, 1, SIDE, 1));
    const nd_tensor *wave = nd_sin(nd_add(nd_mul_scalar(steps, 1.5), begin)); // [n, 1, SIDE, 1]
    const nd_tensor *down = nd_reshape(labels, ND_SHAPE(count, 1, 1, 1));
    const nd_tensor *stripes = nd_where(nd_cast(down, ND_BOOL), nd_transpose(wave, 2, 3), wave);
    const nd_tensor *noise = nd_randn(nd_key_fold(key, 2), ND_SHAPE(count, 1, SIDE, SIDE), ND_F32);
    *ret_labels = labels;
    return nd_add(stripes, noise);
}

/// [n, 1, SIDE, SIDE] -> [n, 2]. Owned.
static nd_module *make_model(nd_key key) {
    nd_conv2d_options padded = ND_CONV2D_OPTIONS_INIT;
    padded.padding[0] = padded.padding[1] = 1;
    nd_max_pool2d_options halves = ND_MAX_POOL2D_OPTIONS_INIT;
    halves.kernel[0] = halves.kernel[1] = 2;
    return ND_SEQUENTIAL(nd_conv2d_module(nd_key_fold(key, 0), 1, 8, 3, 3, true, &padded),
                         nd_batch_norm_module(8, NULL), nd_relu_module(),
                         nd_max_pool2d_module(&halves),
                         nd_conv2d_module(nd_key_fold(key, 1), 8, 16, 3, 3, true, &padded),
                         nd_relu_module(), nd_max_pool2d_module(&halves), nd_flatten_module(),
                         nd_linear_module(nd_key_fold(key, 2), 16 * 4 * 4, 2, true));
}

static nd_status step(const nd_module *model, nd_optimizer *optimizer, nd_key key) {
    nd_auto_scope;
    const nd_tensor *labels = NULL;
    const nd_tensor *images = draw(key, BATCH, &labels);
    nd_status status =
        nd_backward(nd_cross_entropy(nd_module_forward(model, images), labels), NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(optimizer);
    nd_optimizer_zero_grad(optimizer);
    return status;
}

/// The share of new pictures that the model gets right.
static double measure_accuracy(nd_module *model) {
    nd_auto_scope;
    const nd_tensor *labels = NULL;
    const nd_tensor *images = draw(nd_key_new(9), NEW, &labels);
    double share = 0;
    nd_module_set_training(model, false); // batch normalisation takes what it has learnt
    nd_no_grad {
        const nd_tensor *answers = nd_argmax(nd_module_forward(model, images), 1, false);
        share = nd_get_item(nd_mean(nd_equal(answers, labels), 0, NULL, false));
    }
    return share;
}

static void show(void) {
    nd_auto nd_module *model = make_model(nd_key_new(1));
    nd_adam_options options = ND_ADAM_OPTIONS_INIT;
    options.rate = 0.01;
    nd_auto nd_optimizer *optimizer = nd_adam(model, &options);
    nd_status status = ND_OK;
    for (uint64_t i = 0; status == ND_OK && i < STEPS; i++)
        status = step(model, optimizer, nd_key_fold(nd_key_new(2), i));
    if (status == ND_OK)
        printf("more than 95 of 100 new pictures are seen rightly: %s\n",
               measure_accuracy(model) > 0.95 ? "yes" : "no");
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
