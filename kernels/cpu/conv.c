// conv2d and its two gradients as matrix products over unfolded images, where oneDNN is not asked.
//
// For one group of channels of an image, x [ci, h, w] with ci those of the group, the unfolded
// matrix U [ci kh kw, oh ow] holds in each column the window of one result. Then out = W U, grad of
// x = fold(W^T grad), grad of W = sum over images of grad U^T. Groups of all images are shared
// between threads, but for the weight gradient: there only groups are, and where there is one, each
// product.
#include "kernels/cpu/families.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct conv_work {
    const nd_kernel_call *call;
    nd__matmul matmul;
    int64_t n, ci, h, w, co, kh, kw, oh, ow; ///< ci and co of one group
    int64_t groups;
    int64_t stride[2], padding[2], dilation[2]; ///< of h and w
    int64_t window;                             ///< ci kh kw
    int64_t plane;                              ///< oh ow
    int64_t bytes;
    atomic_bool failed;
} conv_work;

/// The range of output columns whose input column, `offset` behind the window's first, is inside
/// the image.
static void inside(const conv_work *c, int64_t offset, int64_t *ret_begin, int64_t *ret_end) {
    int64_t stride = c->stride[1];
    int64_t first = c->padding[1] - offset, last = c->w - 1 + first;
    int64_t begin = first <= 0 ? 0 : (first - 1) / stride + 1;
    int64_t end = last < 0 ? 0 : last / stride + 1;
    *ret_end = end < c->ow ? end : c->ow;
    *ret_begin = begin < *ret_end ? begin : *ret_end;
}

/// Where an element of the window stands: its channel's plane, and how far behind the window's
/// first row and column.
typedef struct conv_tap {
    int64_t plane, y, x;
} conv_tap;

static conv_tap tap_of(const conv_work *c, int64_t row) {
    conv_tap tap = {row / (c->kw * c->kh) * c->h * c->w, row / c->kw % c->kh * c->dilation[0],
                    row % c->kw * c->dilation[1]};
    return tap;
}

#define CONV_FOLDING(T)                                                           \
    static void unfold_##T(const conv_work *c, const T *x, T *matrix) {           \
        int64_t stride = c->stride[1], begin, end;                                \
        for (int64_t row = 0; row < c->window; row++, matrix += c->plane) {       \
            conv_tap tap = tap_of(c, row);                                        \
            inside(c, tap.x, &begin, &end);                                       \
            for (int64_t y = 0; y < c->oh; y++) {                                 \
                T *to = matrix + y * c->ow;                                       \
                int64_t from_y = y * c->stride[0] - c->padding[0] + tap.y;        \
                if (from_y < 0 || from_y >= c->h) {                               \
                    memset(to, 0, sizeof(T) * (size_t)c->ow);                     \
                    continue;                                                     \
                }                                                                 \
                int64_t from = tap.plane + from_y * c->w - c->padding[1] + tap.x; \
                for (int64_t i = 0; i < begin; i++)                               \
                    to[i] = 0;                                                    \
                if (stride == 1)                                                  \
                    for (int64_t i = begin; i < end; i++)                         \
                        to[i] = x[from + i];                                      \
                else                                                              \
                    for (int64_t i = begin; i < end; i++)                         \
                        to[i] = x[from + i * stride];                             \
                for (int64_t i = end; i < c->ow; i++)                             \
                    to[i] = 0;                                                    \
            }                                                                     \
        }                                                                         \
    }                                                                             \
    static void fold_##T(const conv_work *c, const T *matrix, T *x) {             \
        int64_t stride = c->stride[1], begin, end;                                \
        memset(x, 0, sizeof(T) * (size_t)(c->ci * c->h * c->w));                  \
        for (int64_t row = 0; row < c->window; row++, matrix += c->plane) {       \
            conv_tap tap = tap_of(c, row);                                        \
            inside(c, tap.x, &begin, &end);                                       \
            for (int64_t y = 0; y < c->oh; y++) {                                 \
                int64_t to_y = y * c->stride[0] - c->padding[0] + tap.y;          \
                if (to_y < 0 || to_y >= c->h)                                     \
                    continue;                                                     \
                int64_t to = tap.plane + to_y * c->w - c->padding[1] + tap.x;     \
                for (int64_t i = begin; i < end; i++)                             \
                    x[to + i * stride] += matrix[y * c->ow + i];                  \
            }                                                                     \
        }                                                                         \
    }
CONV_FOLDING(float)
CONV_FOLDING(double)

static void unfold(const conv_work *c, const void *x, void *matrix) {
    if (c->bytes == 4)
        unfold_float(c, (const float *)x, (float *)matrix);
    else
        unfold_double(c, (const double *)x, (double *)matrix);
}
static void fold(const conv_work *c, const void *matrix, void *x) {
    if (c->bytes == 4)
        fold_float(c, (const float *)matrix, (float *)x);
    else
        fold_double(c, (const double *)matrix, (double *)x);
}

static nd__matrix matrix(void *data, int64_t row_stride, int64_t column_stride) {
    nd__matrix m = {data, row_stride, column_stride};
    return m;
}

/// The `index`-th of an operand's blocks of so many elements: a group of an image, or of the
/// weight.
static void *block(const conv_work *c, int operand, int64_t index, int64_t elements) {
    return (char *)c->call->operand[operand].data + index * elements * c->bytes;
}

/// Scratch memory serves the products, so the unfolded matrix has memory of its own.
static void *unfolded(conv_work *c) {
    int64_t bytes;
    bool small = !__builtin_mul_overflow(c->window, c->plane, &bytes) &&
                 !__builtin_mul_overflow(bytes, c->bytes, &bytes) && bytes < INT64_MAX - 64;
    void *memory = small ? malloc((size_t)bytes + 64) : NULL;
    if (!memory)
        atomic_store(&c->failed, true);
    return memory;
}

static void forward(void *context, int64_t begin, int64_t end) {
    conv_work *c = (conv_work *)context;
    void *columns = unfolded(c);
    for (int64_t i = begin; columns && i < end; i++) {
        unfold(c, block(c, 1, i, c->ci * c->h * c->w), columns);
        nd__product product = {
            .m = c->co,
            .n = c->plane,
            .k = c->window,
            .a = matrix(block(c, 2, i % c->groups, c->co * c->window), c->window, 1),
            .b = matrix(columns, c->plane, 1),
            .out = matrix(block(c, 0, i, c->co * c->plane), c->plane, 1),
        };
        c->matmul(&product);
    }
    free(columns);
}

static void grad_input(void *context, int64_t begin, int64_t end) {
    conv_work *c = (conv_work *)context;
    void *columns = unfolded(c);
    for (int64_t i = begin; columns && i < end; i++) {
        nd__product product = {
            .m = c->window,
            .n = c->plane,
            .k = c->co,
            .a = matrix(block(c, 2, i % c->groups, c->co * c->window), 1, c->window),
            .b = matrix(block(c, 1, i, c->co * c->plane), c->plane, 1),
            .out = matrix(columns, c->plane, 1),
        };
        c->matmul(&product);
        fold(c, columns, block(c, 0, i, c->ci * c->h * c->w));
    }
    free(columns);
}

static void grad_weight(void *context, int64_t begin, int64_t end) {
    conv_work *c = (conv_work *)context;
    void *columns = unfolded(c);
    for (int64_t group = begin; columns && group < end; group++) {
        void *out = block(c, 0, group, c->co * c->window);
        memset(out, 0, (size_t)(c->co * c->window * c->bytes));
        for (int64_t image = 0; image < c->n; image++) {
            int64_t i = image * c->groups + group;
            unfold(c, block(c, 1, i, c->ci * c->h * c->w), columns);
            nd__product product = {
                .m = c->co,
                .n = c->window,
                .k = c->plane,
                .a = matrix(block(c, 2, i, c->co * c->plane), c->plane, 1),
                .b = matrix(columns, 1, c->plane),
                .out = matrix(out, c->window, 1),
                .accumulate = true,
            };
            c->matmul(&product);
        }
    }
    free(columns);
}

nd_status nd__cpu_conv(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    if (type == 0 && nd__onednn_conv(call))
        return ND_OK;
    const int64_t *s = call->shape, *i = call->attrs.i;
    conv_work c = {.call = call,
                   .matmul = nd__cpu_loops_now()->matmul[type == 0 ? ND_F32 : ND_F64],
                   .n = s[0],
                   .ci = s[1] / i[6],
                   .h = s[2],
                   .w = s[3],
                   .co = s[4] / i[6],
                   .kh = s[5],
                   .kw = s[6],
                   .oh = i[7],
                   .ow = i[8],
                   .groups = i[6],
                   .stride = {i[0], i[1]},
                   .padding = {i[2], i[3]},
                   .dilation = {i[4], i[5]},
                   .window = s[1] / i[6] * s[5] * s[6],
                   .plane = i[7] * i[8],
                   .bytes = nd__dtype_bytes(call->operand[0].dtype)};
    int64_t cost = c.co * c.window * c.plane / 8 + 1;
    if (call->op == ND_OP_conv2d)
        nd__cpu_parallel(c.n * c.groups, cost, 1, forward, &c);
    else if (call->op == ND_OP_conv2d_grad_input)
        nd__cpu_parallel(c.n * c.groups, cost, 1, grad_input, &c);
    else if (c.groups == 1)
        grad_weight(&c, 0, 1);
    else
        nd__cpu_parallel(c.groups, c.n * cost, 1, grad_weight, &c);
    return atomic_load(&c.failed) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}
