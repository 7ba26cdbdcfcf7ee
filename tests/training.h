// Optimizers from numbers, and whether there was a batch.
#ifndef ND_TESTS_TRAINING_H
#define ND_TESTS_TRAINING_H
#include <nd/nd.h>

static inline nd_optimizer *sgd_of(const nd_module *module, double rate, double momentum,
                                   double weight_decay) {
    nd_sgd_options options = ND_SGD_OPTIONS_INIT;
    options.rate = rate;
    options.momentum = momentum;
    options.weight_decay = weight_decay;
    return nd_sgd(module, &options);
}

static inline nd_adam_options adam_options_of(double rate, double beta1, double beta2, double eps,
                                              double weight_decay) {
    nd_adam_options options = ND_ADAM_OPTIONS_INIT;
    options.rate = rate;
    options.beta1 = beta1;
    options.beta2 = beta2;
    options.eps = eps;
    options.weight_decay = weight_decay;
    return options;
}

static inline nd_optimizer *adam_of(const nd_module *module, double rate, double beta1,
                                    double beta2, double eps, double weight_decay) {
    nd_adam_options options = adam_options_of(rate, beta1, beta2, eps, weight_decay);
    return nd_adam(module, &options);
}

static inline nd_optimizer *adamw_of(const nd_module *module, double rate, double beta1,
                                     double beta2, double eps, double weight_decay) {
    nd_adam_options options = adam_options_of(rate, beta1, beta2, eps, weight_decay);
    return nd_adamw(module, &options);
}

/// Whether there was one more batch: neither the end nor an error.
static inline bool next_batch(nd_dataset *dataset, nd_tensor **ret_images, nd_tensor **ret_labels) {
    return nd_dataset_next_batch(dataset, ret_images, ret_labels) == ND_OK && *ret_images;
}
#endif
