// What operations_test.c gives the operations: the same values on the CPU and on the GPU, in a dtype
// of numbers, in shapes that cross what a block of threads takes.
#ifndef ND_TESTS_GPU_INPUTS_H
#define ND_TESTS_GPU_INPUTS_H
#include "tests/elements.h"
#include "tests/gpu/gpu.h"

typedef struct inputs {
    nd_tensor *a, *b;        ///< [37, 53]
    nd_tensor *row, *column; ///< [53], [37, 1]
    nd_tensor *positive;     ///< [37, 53], from 0.5 on
    nd_tensor *condition;    ///< bool [37, 53]
    nd_tensor *flat;         ///< [70000]
    nd_tensor *index;        ///< i64 [37, 53] in 0 ... 36
    nd_tensor *bins;         ///< i64 [5000] in 0 ... 36
    nd_tensor *labels;       ///< i64 [37] in 0 ... 36
    nd_tensor *cube;         ///< [3, 37, 53]
    nd_tensor *image;        ///< [2, 3, 9, 11]
    nd_tensor *filter;       ///< [4, 3, 3, 3]
    nd_tensor *depthwise;    ///< [6, 1, 3, 2]
    nd_tensor *bias;         ///< [4]
} inputs;

/// Takes the owned x to a dtype; consumes it.
static inline nd_tensor *as(nd_tensor *x, nd_dtype dtype) {
    nd_tensor *cast = nd_cast(x, dtype);
    nd_release(x);
    return cast;
}

static inline nd_tensor *normal(uint64_t stream, int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_tensor *x = nd_randn((nd_key){7, stream}, ndim, shape, ND_F64);
    nd_tensor *scaled = nd_mul_scalar(x, 3);
    nd_release(x);
    // Without a sign they cannot hold what is below zero in a way that says much.
    if (is_unsigned(dtype)) {
        nd_tensor *positive = nd_abs(scaled);
        nd_release(scaled);
        scaled = positive;
    }
    return as(scaled, dtype);
}

static inline inputs inputs_on_cpu(nd_dtype dtype) {
    inputs in = {
        .a = normal(1, ND_SHAPE(37, 53), dtype),
        .b = normal(2, ND_SHAPE(37, 53), dtype),
        .row = normal(3, ND_SHAPE(53), dtype),
        .column = normal(4, ND_SHAPE(37, 1), dtype),
        .positive = as(nd_rand((nd_key){7, 5}, ND_SHAPE(37, 53), ND_F64), dtype),
        .flat = normal(6, ND_SHAPE(70000), dtype),
        .index = nd_randint((nd_key){7, 7}, 0, 37, ND_SHAPE(37, 53), ND_I64),
        .bins = nd_randint((nd_key){7, 14}, 0, 37, ND_SHAPE(5000), ND_I64),
        .labels = nd_randint((nd_key){7, 8}, 0, 37, ND_SHAPE(37), ND_I64),
        .cube = normal(9, ND_SHAPE(3, 37, 53), dtype),
        .image = normal(10, ND_SHAPE(2, 3, 9, 11), dtype),
        .filter = normal(11, ND_SHAPE(4, 3, 3, 3), dtype),
        .depthwise = normal(13, ND_SHAPE(6, 1, 3, 2), dtype),
        .bias = normal(12, ND_SHAPE(4), dtype),
    };
    nd_tensor *raised = nd_add_scalar(in.positive, is_float(dtype) ? 0.5 : 1);
    nd_release(in.positive);
    in.positive = raised;
    nd_tensor *choice = nd_randint((nd_key){7, 13}, 0, 2, ND_SHAPE(37, 53), ND_U8);
    in.condition = as(choice, ND_BOOL);
    return in;
}

enum { INPUTS = sizeof(inputs) / sizeof(nd_tensor *) };

static inline inputs inputs_on_cuda(const inputs *cpu) {
    inputs cuda;
    for (size_t i = 0; i < INPUTS; i++) {
        nd_tensor *x = ((nd_tensor *const *)cpu)[i];
        assert_handle(x);
        ((nd_tensor **)&cuda)[i] = nd_to(x, CUDA_DEVICE);
        assert_handle(((nd_tensor **)&cuda)[i]);
    }
    return cuda;
}

static inline void release_inputs(inputs *in) {
    for (size_t i = 0; i < INPUTS; i++)
        nd_release(((nd_tensor **)in)[i]);
}
#endif
