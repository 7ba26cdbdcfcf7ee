// Weights follow from the key, on the default device.
#include "bench/support/models.h"

nd_module *models_new_mlp(nd_key key) {
    return ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), 784, 128, true), nd_relu_module(),
                         nd_linear_module(nd_key_fold(key, 1), 128, 64, true), nd_relu_module(),
                         nd_linear_module(nd_key_fold(key, 2), 64, 10, true));
}

nd_module *models_new_cnn(nd_key key) {
    nd_conv2d_options padded = ND_CONV2D_OPTIONS_INIT;
    padded.padding[0] = padded.padding[1] = 1;
    nd_max_pool2d_options pool = ND_MAX_POOL2D_OPTIONS_INIT;
    pool.kernel[0] = pool.kernel[1] = 2;
    return ND_SEQUENTIAL(
        nd_conv2d_module(nd_key_fold(key, 0), 1, 16, 3, 3, true, &padded),
        nd_batch_norm_module(16, NULL), nd_relu_module(), nd_max_pool2d_module(&pool),
        nd_conv2d_module(nd_key_fold(key, 1), 16, 32, 3, 3, true, &padded),
        nd_batch_norm_module(32, NULL), nd_relu_module(), nd_max_pool2d_module(&pool),
        nd_flatten_module(), nd_linear_module(nd_key_fold(key, 2), 32 * 7 * 7, 10, true));
}
