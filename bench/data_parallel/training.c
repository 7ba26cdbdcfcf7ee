// Steps as a program writes them.
//
// STEP_AFTER has its gradients from nd_backward(), and then sends them by a pass that adds nothing
// to them: nd_data_parallel_backward() of a loss that no parameter has part in. So both ways send
// the same buckets by the same code, once with a backward pass beside it and once without.
#include "bench/data_parallel/training.h"

#include "bench/support/models.h"

#include <stdlib.h>

/// 784-2048-2048-2048-2048-2048-10: 18.4 million parameters, 70 MiB, in five buckets.
static nd_module *new_wide_mlp(nd_key key) {
    nd_module *layers[6];
    for (int i = 0; i < 6; i++)
        layers[i] = nd_linear_module(nd_key_fold(key, (uint64_t)i), i == 0 ? 784 : 2048,
                                     i == 5 ? 10 : 2048, true);
    return ND_SEQUENTIAL(layers[0], nd_relu_module(), layers[1], nd_relu_module(), layers[2],
                         nd_relu_module(), layers[3], nd_relu_module(), layers[4], nd_relu_module(),
                         layers[5]);
}

const training_kind training_kinds[TRAININGS] = {
    [TRAINING_MLP] = {"mlp", "MLP of 18.4 M, 128 per rank", new_wide_mlp, 128, false},
    [TRAINING_CNN] = {"cnn", "CNN of 20 k, 32 per rank", models_new_cnn, 32, true},
};

bool training_begin(training *train, const training_kind *kind, const nd_communicator *world) {
    nd_key key = nd_key_new(13);
    nd_key own = nd_key_fold(key, 100 + (uint64_t)nd_communicator_get_rank(world));
    *train = (training){.manager = nd_manager_new(NULL, "data_parallel")};
    nd_with_manager(train->manager) {
        train->model = kind->model(key);
        nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
        sgd.rate = 1e-3;
        sgd.momentum = 0.9;
        train->optimizer = nd_sgd(train->model, &sgd);
        train->x = kind->images
                       ? nd_rand(nd_key_fold(own, 0), ND_SHAPE(kind->batch, 1, 28, 28), ND_F32)
                       : nd_rand(nd_key_fold(own, 0), ND_SHAPE(kind->batch, 784), ND_F32);
        train->labels = nd_randint(nd_key_fold(own, 1), 0, 10, ND_SHAPE(kind->batch), ND_I64);
        train->nothing = nd_scalar(1, ND_F32);
        if (train->nothing)
            nd_set_requires_grad(train->nothing, true);
        train->parallel = nd_data_parallel_new(train->model, world, NULL);
        setenv("ND_SHARED_MEMORY", "off", 1); // what is made from here on has none
        train->apart = nd_data_parallel_new(train->model, world, NULL);
        unsetenv("ND_SHARED_MEMORY");
    }
    return train->optimizer && train->x && train->labels && train->nothing && train->parallel &&
           train->apart;
}

void training_end(training *train) {
    nd_release(train->parallel);
    nd_release(train->apart);
    nd_release(train->nothing);
    nd_release(train->x);
    nd_release(train->labels);
    nd_release(train->optimizer);
    nd_release(train->model);
    nd_release(train->manager);
}

static nd_status send_what_is_there(training *train, nd_data_parallel *parallel) {
    nd_auto nd_tensor *loss = nd_mul_scalar(train->nothing, 1);
    return nd_data_parallel_backward(parallel, loss, NULL);
}

bool training_run(training *train, training_step how, bool apart) {
    nd_data_parallel *parallel = apart ? train->apart : train->parallel;
    nd_auto nd_tensor *y = nd_module_forward(train->model, train->x);
    nd_auto nd_tensor *loss = nd_cross_entropy(y, train->labels);
    nd_status status = nd_optimizer_zero_grad(train->optimizer);
    if (status == ND_OK)
        status = how == STEP_OVERLAP ? nd_data_parallel_backward(parallel, loss, NULL)
                                     : nd_backward(loss, NULL);
    if (status == ND_OK && how == STEP_AFTER)
        status = send_what_is_there(train, parallel);
    return status == ND_OK && nd_optimizer_step(train->optimizer) == ND_OK;
}
