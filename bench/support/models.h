// Models that several benchmarks train. bench/peers has the same ones for the rivals.
#ifndef ND_BENCH_MODELS_H
#define ND_BENCH_MODELS_H
#include <nd/nd.h>

/// 784-128-64-10 with ReLU.
nd_module *models_new_mlp(nd_key key) ND_OWNED;
/// Images of 28 x 28, twice (convolution 3 x 3, batch normalisation, ReLU, pooling 2 x 2) to 16 and
/// 32 channels, linear to 10.
nd_module *models_new_cnn(nd_key key) ND_OWNED;

#endif
