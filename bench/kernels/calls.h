// The calls that //bench:kernels times, and what they are given.
//
// Each stands once, in the file of its kind, under the name that it has in
// bench/peers/pytorch_kernels.py, too.
#ifndef ND_BENCH_KERNELS_CALLS_H
#define ND_BENCH_KERNELS_CALLS_H
#include "bench/support/measure.h"

#include <nd/nd.h>

#include <stddef.h>

/// Tensors that calls read; all belong to the scope that was open when they were made.
typedef struct operands {
    // Of n x n, float32 unless the name says otherwise; made by operands_of_size().
    int64_t n;
    const nd_tensor *x, *y;         ///< between -1 and 1
    const nd_tensor *positive;      ///< between 0.1 and 4
    const nd_tensor *above;         ///< between 1 and 4
    const nd_tensor *x64, *y64;     ///< float64
    const nd_tensor *positive64;    ///< float64
    const nd_tensor *xh;            ///< float16
    const nd_tensor *xb, *yb;       ///< bfloat16
    const nd_tensor *i, *j;         ///< int64, between 1 and 99
    const nd_tensor *mask;          ///< bool, half of it true
    const nd_tensor *index;         ///< int64, 0 to n - 1
    const nd_tensor *row, *column;  ///< [n] and [n, 1]
    const nd_tensor *rows;          ///< [n], int64, 0 to n - 1
    const nd_tensor *short_rows;    ///< x as [n * n / 16, 16]
    const nd_tensor *images;        ///< x as [batch, channels, height, width]
    const nd_tensor *leaf, *leaf2;  ///< x and y, which require a gradient
    const nd_tensor *high;          ///< between 1 and 4, which does, too
    const nd_tensor *weight, *bias; ///< [n], which do, too

    // Of the usual shapes; made by operands_of_shapes().
    const nd_tensor *square[4];                    ///< [256 << i, 256 << i]
    const nd_tensor *leaf_square;                  ///< [512, 512], which requires a gradient
    const nd_tensor *square64, *square_b;          ///< [512, 512], float64 and bfloat16
    const nd_tensor *bytes[4];                     ///< [256 << i, 256 << i], int8
    const nd_tensor *few_bytes[2];                 ///< [1, 1024] and [64, 1024], int8
    const nd_tensor *vector;                       ///< [1, 1024]
    const nd_tensor *long_vector;                  ///< [1 << 20]
    const nd_tensor *batch;                        ///< [128, 784]
    const nd_tensor *layer, *layer_bias;           ///< [512, 784], [512], which require gradients
    const nd_tensor *tokens;                       ///< [512, 768]
    const nd_tensor *projection, *projection_bias; ///< [3072, 768], [3072], which do, too
    const nd_tensor *stack_a, *stack_b;            ///< [64, 128, 64], [64, 64, 128]
    const nd_tensor *heads;                        ///< [512, 64, 64]
    const nd_tensor *pictures;                     ///< [8, 64, 56, 56], which requires a gradient
    const nd_tensor *photos;                       ///< [8, 3, 112, 112]
    const nd_tensor *conv1, *conv3, *conv7, *depthwise; ///< their weights, of size 1, 3, 7 and 3
    const nd_tensor *scale, *shift;                     ///< [64], which require gradients
    nd_tensor *mean, *variance;                         ///< [64]
    const nd_tensor *query, *key, *value; ///< [8, 8, 128, 64], which require gradients
    const nd_tensor *table;               ///< [32000, 256], which requires a gradient
    const nd_tensor *words;               ///< [32, 128], int64, 0 to 31999

    const nd_tensor *seed; ///< the gradient of what is differentiated; one for each call
} operands;

typedef struct kernel_call {
    const char *name;
    bench_work work; ///< its data are the operands
} kernel_call;

typedef struct kernel_calls {
    const kernel_call *calls;
    size_t count;
} kernel_calls;

extern const kernel_calls elementwise_calls, reduction_calls, layout_calls, creation_calls,
    gradient_calls;                                     ///< of operands_of_size()
extern const kernel_calls product_calls, network_calls; ///< of operands_of_shapes()

/// Fills `in` for matrices of n x n. A scope must be open. False: an operation failed.
bool operands_of_size(operands *in, int64_t n);
bool operands_of_shapes(operands *in);

/// Releases the result of a call. False for NULL.
bool call_done(nd_tensor *result);
/// Differentiates the result of a call by `count` inputs, and releases it. False for NULL.
bool call_differentiated(operands *in, nd_tensor *result, size_t count,
                         const nd_tensor *const *inputs);

/// A call forward, unrecorded: the expression gives a tensor, made from `in`.
#define FORWARD(name, expression)                            \
    static bool forward_##name(void *data, uint64_t count) { \
        const operands *in = data;                           \
        bool right = true;                                   \
        nd_no_grad {                                         \
            for (uint64_t i = 0; i < count && right; i++)    \
                right = call_done(expression);               \
        }                                                    \
        return right;                                        \
    }
/// The same, and its gradients by the inputs that follow.
#define BACKWARD(name, expression, ...)                                                       \
    static bool backward_##name(void *data, uint64_t count) {                                 \
        operands *in = data;                                                                  \
        const nd_tensor *const inputs[] = {__VA_ARGS__};                                      \
        for (uint64_t i = 0; i < count; i++)                                                  \
            if (!call_differentiated(in, expression, sizeof inputs / sizeof *inputs, inputs)) \
                return false;                                                                 \
        return true;                                                                          \
    }
#define ROW_OF_FORWARD(name, ...) {#name, forward_##name},
#define ROW_OF_BACKWARD(name, ...) {#name "_backward", backward_##name},
/// What a file of calls ends with.
#define KERNEL_CALLS(rows) \
    { rows, sizeof rows / sizeof *rows }

#endif
