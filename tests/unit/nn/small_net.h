// A net of two layers with a loss, for tests of what becomes of its gradients.
#ifndef ND_TESTS_UNIT_NN_SMALL_NET_H
#define ND_TESTS_UNIT_NN_SMALL_NET_H
#include "tests/testing.h"
#include "tests/training.h"

static inline nd_module *new_net(void) {
    nd_module *net = ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 4, 8, true), nd_tanh_module(),
                                   nd_linear_module(nd_key_new(2), 8, 3, true));
    assert_handle(net);
    return net;
}

static inline nd_tensor *loss_of(const nd_module *net, uint64_t seed, int64_t rows,
                                 nd_dtype dtype) {
    nd_auto nd_tensor *drawn = nd_randn(nd_key_new(seed), ND_SHAPE(rows, 4), ND_F32);
    nd_auto nd_tensor *x = nd_cast(drawn, dtype);
    nd_auto nd_tensor *labels = nd_randint(nd_key_new(seed + 1), 0, 3, ND_SHAPE(rows), ND_I64);
    nd_auto nd_tensor *logits = nd_module_forward(net, x);
    nd_auto nd_tensor *wide = nd_cast(logits, ND_F32);
    nd_tensor *loss = nd_cross_entropy(wide, labels);
    assert_handle(loss);
    return loss;
}

static inline void backward(const nd_module *net, uint64_t seed) {
    nd_auto nd_tensor *loss = loss_of(net, seed, 6, ND_F32);
    assert_ok(nd_backward(loss, NULL));
}
#endif
