// What the tests of lib/device/cuda on the fake runtime share.
#ifndef ND_TESTS_CUDART_BACKEND_H
#define ND_TESTS_CUDART_BACKEND_H
#include "tests/cudart/control.h"
#include "tests/cudart/roles.h"

static const nd_device cpu = {ND_CPU, 0};

static inline nd_device cuda(int index) {
    return (nd_device){ND_CUDA, index};
}

/// n times the same value.
static inline nd_tensor *full_on(nd_device device, int64_t n, double value) {
    nd_tensor *x = NULL;
    if (nd_set_default_device(device) == ND_OK)
        x = nd_full(ND_SHAPE(n), value, ND_F32);
    nd_set_default_device(cpu);
    return x;
}

static inline cudart_statistics statistics(void) {
    cudart_statistics now;
    cudart_get_statistics(&now);
    return now;
}
#endif
