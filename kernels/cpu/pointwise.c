// Convolution by windows of one element that move by one, and its gradients: products of matrices
// where the operands lie.
//
// With x [ci, places], y [co, places] and W [co, ci] those of a group of an image, y = W x, the
// gradient of x is W^T that of y, and the gradient of W the sum over images of that of y times x^T.
// The first two are a batch of products. For the third each range of images makes a sum of its own,
// unless one thread has them all, and the sums are added in order.
#include "kernels/cpu/families.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/panels.h"
#include "kernels/windows.h"
#include <stdatomic.h>
#include <stdlib.h>

/// Multiplications of a product from which many are worth their calls where oneDNN, which has a kernel for
/// all of them, could do it: of a weight's gradient, and of one of several groups.
#define LEAST_GRADIENT ((int64_t)1 << 17)
#define LEAST_OF_GROUP ((int64_t)1 << 12)

typedef struct pointwise_work {
    const nd_kernel_call *call;
    nd_dtype dtype;
    int64_t bytes; ///< of an element
    int64_t n, groups;
    int64_t ci, co, places; ///< of a group
    int64_t ranges;         ///< of images
    char *sums;             ///< of the weight's gradient, of all ranges but the first
    _Atomic nd_status status;
} pointwise_work;

/// A matrix of each group of each image: elements from one image, group, row and column to the next.
typedef struct factor {
    char *data;
    int64_t image, group, rows, columns;
} factor;

static factor picture(const pointwise_work *w, int operand, int64_t channels) {
    return (factor){.data = (char *)w->call->operand[operand].data,
                    .image = w->groups * channels * w->places,
                    .group = channels * w->places,
                    .rows = w->places,
                    .columns = 1};
}

static factor weight(const pointwise_work *w, char *data) {
    return (factor){.data = data, .group = w->co * w->ci, .rows = w->ci, .columns = 1};
}

static factor turned(factor f) {
    const int64_t rows = f.rows;
    f.rows = f.columns;
    f.columns = rows;
    return f;
}

/// out = a b for all groups of so many images, or that added to it.
static nd_status multiply(const pointwise_work *w, int64_t images, factor out, factor a, factor b,
                          int64_t m, int64_t n, int64_t k, bool add) {
    const nd_kernel_call call = {
        .op = ND_OP_matmul,
        .noperands = 3,
        .ndim = 2,
        .shape = {images, w->groups},
        .operand = {{.data = out.data, .dtype = w->dtype, .strides = {out.image, out.group}},
                    {.data = a.data, .dtype = w->dtype, .strides = {a.image, a.group}},
                    {.data = b.data, .dtype = w->dtype, .strides = {b.image, b.group}}},
        .attrs = {.f = {add},
                  .i = {m, n, k, a.rows, a.columns, b.rows, b.columns, out.rows, out.columns}},
    };
    return nd__cpu_matmul(&call);
}

/// The sums of the weight's gradient, of ranges of images.
static void sum_images(void *context, int64_t begin, int64_t end) {
    pointwise_work *w = (pointwise_work *)context;
    for (int64_t range = begin; range < end; range++) {
        const int64_t first = w->n * range / w->ranges, last = w->n * (range + 1) / w->ranges;
        const int64_t elements = w->groups * w->co * w->ci;
        const factor out = weight(w, range == 0 ? (char *)w->call->operand[0].data
                                                : w->sums + (range - 1) * elements * w->bytes);
        nd_status status = ND_OK;
        for (int64_t image = first; image < last && status == ND_OK; image++) {
            factor x = turned(picture(w, 1, w->ci)), y = picture(w, 2, w->co);
            x.data += image * x.image * w->bytes;
            y.data += image * y.image * w->bytes;
            status = multiply(w, 1, out, y, x, w->co, w->ci, w->places, image > first);
        }
        if (status != ND_OK)
            atomic_store(&w->status, status);
    }
}

static void add_sums(void *context, int64_t begin, int64_t end) {
    const pointwise_work *w = (const pointwise_work *)context;
    const int64_t elements = w->groups * w->co * w->ci;
    for (int64_t range = 0; range < w->ranges - 1; range++)
        for (int64_t i = begin; i < end; i++)
            if (w->dtype == ND_F32)
                ((float *)w->call->operand[0].data)[i] +=
                    ((const float *)(const void *)w->sums)[range * elements + i];
            else
                ((double *)w->call->operand[0].data)[i] +=
                    ((const double *)(const void *)w->sums)[range * elements + i];
}

static nd_status grad_weight(pointwise_work *w) {
    const int64_t elements = w->groups * w->co * w->ci, size = w->n * w->places * elements;
    const int64_t parts = nd__parts_of(size);
    w->ranges = w->n < parts ? w->n : parts;
    // Where threads have no images of their own they share each product.
    if (w->ranges == 1) {
        sum_images(w, 0, 1);
        return atomic_load(&w->status);
    }
    w->sums = malloc((size_t)((w->ranges - 1) * elements * w->bytes));
    if (!w->sums)
        return ND_ERROR_OUT_OF_MEMORY;
    nd__cpu_parallel(w->ranges, size / w->ranges / 16 + 16, 1, sum_images, w);
    if (atomic_load(&w->status) == ND_OK)
        nd__cpu_parallel(elements, w->ranges, 64, add_sums, w);
    free(w->sums);
    return atomic_load(&w->status);
}

static bool suits(const nd__conv_sizes *s) {
    bool one = true;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        one = one && s->kernel[axis] == 1 && s->stride[axis] == 1 && s->padding[axis] == 0;
    return one && s->n > 0 && s->ci > 0 && s->co > 0 && nd__windows_volume(s->y) > 0;
}

static bool is_small(const pointwise_work *w) {
    const int64_t size = w->places * w->ci * w->co;
    return (w->call->op == ND_OP_conv_grad_weight && size < LEAST_GRADIENT) ||
           (w->groups > 1 && size < LEAST_OF_GROUP);
}

bool nd__cpu_pointwise(const nd_kernel_call *call) {
    const nd__conv_sizes sizes = nd__conv_sizes_of(call);
    const nd_dtype dtype = call->operand[0].dtype;
    const bool convolves = call->op == ND_OP_conv || call->op == ND_OP_conv_grad_input ||
                           call->op == ND_OP_conv_grad_weight;
    if (!convolves || !suits(&sizes))
        return false;
    pointwise_work w = {.call = call,
                        .dtype = dtype,
                        .bytes = nd__dtype_bytes(dtype),
                        .n = sizes.n,
                        .groups = sizes.groups,
                        .ci = sizes.ci / sizes.groups,
                        .co = sizes.co / sizes.groups,
                        .places = nd__windows_volume(sizes.y)};
    if (dtype == ND_F32 && nd__onednn_is_used() && is_small(&w))
        return false;
    if (call->op == ND_OP_conv_grad_weight)
        return grad_weight(&w) == ND_OK;
    const factor kernel = weight(&w, (char *)call->operand[2].data);
    if (call->op == ND_OP_conv)
        return multiply(&w, w.n, picture(&w, 0, w.co), kernel, picture(&w, 1, w.ci), w.co, w.places,
                        w.ci, false) == ND_OK;
    return multiply(&w, w.n, picture(&w, 0, w.ci), turned(kernel), picture(&w, 1, w.co), w.ci,
                    w.places, w.co, false) == ND_OK;
}
