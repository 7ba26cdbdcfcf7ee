// conv2d and its two gradients as matrix products over unfolded images, where oneDNN is not asked.
//
// For one image x [ci, h, w] the unfolded matrix U [ci kh kw, oh ow] holds in each column the window of
// one result. Then out = W U, grad of x = fold(W^T grad), grad of W = sum over images of grad U^T.
// Images are shared between threads, but for the weight gradient, where each product is shared.
#include "kernels/cpu/families.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct conv_work {
    const nd_kernel_call *call;
    nd__matmul matmul;
    int64_t n, ci, h, w, co, kh, kw, stride, padding, oh, ow;
    int64_t window; ///< ci kh kw
    int64_t plane;  ///< oh ow
    int64_t bytes;
    atomic_bool failed;
} conv_work;

/// The range of output columns whose input column, at offset `kx` of the window, is inside the image.
static void inside(int64_t kx, int64_t padding, int64_t stride, int64_t size, int64_t out,
                   int64_t *ret_begin, int64_t *ret_end) {
    int64_t first = padding - kx, last = size - 1 + padding - kx;
    int64_t begin = first <= 0 ? 0 : (first + stride - 1) / stride;
    int64_t end = last < 0 ? 0 : last / stride + 1;
    *ret_end = end < out ? end : out;
    *ret_begin = begin < *ret_end ? begin : *ret_end;
}

#define CONV_FOLDING(T)                                                     \
    static void unfold_##T(const conv_work *c, const T *x, T *matrix) {     \
        for (int64_t row = 0; row < c->window; row++, matrix += c->plane) { \
            int64_t kx = row % c->kw, ky = row / c->kw % c->kh, begin, end; \
            const T *channel = x + row / (c->kw * c->kh) * c->h * c->w;     \
            inside(kx, c->padding, c->stride, c->w, c->ow, &begin, &end);   \
            for (int64_t y = 0; y < c->oh; y++) {                           \
                T *to = matrix + y * c->ow;                                 \
                int64_t from_y = y * c->stride - c->padding + ky;           \
                if (from_y < 0 || from_y >= c->h) {                         \
                    memset(to, 0, sizeof(T) * (size_t)c->ow);               \
                    continue;                                               \
                }                                                           \
                const T *from = channel + from_y * c->w - c->padding + kx;  \
                for (int64_t i = 0; i < begin; i++)                         \
                    to[i] = 0;                                              \
                for (int64_t i = begin; i < end; i++)                       \
                    to[i] = from[i * c->stride];                            \
                for (int64_t i = end; i < c->ow; i++)                       \
                    to[i] = 0;                                              \
            }                                                               \
        }                                                                   \
    }                                                                       \
    static void fold_##T(const conv_work *c, const T *matrix, T *x) {       \
        memset(x, 0, sizeof(T) * (size_t)(c->ci * c->h * c->w));            \
        for (int64_t row = 0; row < c->window; row++, matrix += c->plane) { \
            int64_t kx = row % c->kw, ky = row / c->kw % c->kh, begin, end; \
            T *channel = x + row / (c->kw * c->kh) * c->h * c->w;           \
            inside(kx, c->padding, c->stride, c->w, c->ow, &begin, &end);   \
            for (int64_t y = 0; y < c->oh; y++) {                           \
                int64_t to_y = y * c->stride - c->padding + ky;             \
                if (to_y < 0 || to_y >= c->h)                               \
                    continue;                                               \
                T *to = channel + to_y * c->w - c->padding + kx;            \
                for (int64_t i = begin; i < end; i++)                       \
                    to[i * c->stride] += matrix[y * c->ow + i];             \
            }                                                               \
        }                                                                   \
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

static void *image(const conv_work *c, int operand, int64_t index, int64_t elements) {
    return (char *)c->call->operand[operand].data + index * elements * c->bytes;
}

/// Scratch memory serves the products, so the unfolded matrix has memory of its own.
static void *unfolded(conv_work *c) {
    void *memory = malloc((size_t)(c->window * c->plane * c->bytes) + 64);
    if (!memory)
        atomic_store(&c->failed, true);
    return memory;
}

static void forward(void *context, int64_t begin, int64_t end) {
    conv_work *c = (conv_work *)context;
    void *columns = unfolded(c);
    for (int64_t i = begin; columns && i < end; i++) {
        unfold(c, image(c, 1, i, c->ci * c->h * c->w), columns);
        nd__product product = {
            .m = c->co,
            .n = c->plane,
            .k = c->window,
            .a = matrix(c->call->operand[2].data, c->window, 1),
            .b = matrix(columns, c->plane, 1),
            .out = matrix(image(c, 0, i, c->co * c->plane), c->plane, 1),
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
            .a = matrix(c->call->operand[2].data, 1, c->window),
            .b = matrix(image(c, 1, i, c->co * c->plane), c->plane, 1),
            .out = matrix(columns, c->plane, 1),
        };
        c->matmul(&product);
        fold(c, columns, image(c, 0, i, c->ci * c->h * c->w));
    }
    free(columns);
}

static void grad_weight(conv_work *c) {
    void *columns = unfolded(c);
    memset(c->call->operand[0].data, 0, (size_t)(c->co * c->window * c->bytes));
    for (int64_t i = 0; columns && i < c->n; i++) {
        unfold(c, image(c, 1, i, c->ci * c->h * c->w), columns);
        nd__product product = {
            .m = c->co,
            .n = c->window,
            .k = c->plane,
            .a = matrix(image(c, 2, i, c->co * c->plane), c->plane, 1),
            .b = matrix(columns, 1, c->plane),
            .out = matrix(c->call->operand[0].data, c->window, 1),
            .accumulate = true,
        };
        c->matmul(&product);
    }
    free(columns);
}

nd_status nd__cpu_conv(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    if (type == 0 && nd__onednn_conv(call))
        return ND_OK;
    const int64_t *attrs = call->attrs.i;
    conv_work c = {.call = call,
                   .matmul = nd__cpu_loops_now()->matmul[type],
                   .n = attrs[0],
                   .ci = attrs[1],
                   .h = attrs[2],
                   .w = attrs[3],
                   .co = attrs[4],
                   .kh = attrs[5],
                   .kw = attrs[6],
                   .stride = attrs[7],
                   .padding = attrs[8],
                   .oh = attrs[9],
                   .ow = attrs[10],
                   .window = attrs[1] * attrs[5] * attrs[6],
                   .plane = attrs[9] * attrs[10],
                   .bytes = nd__dtype_bytes(call->operand[0].dtype)};
    int64_t cost = c.co * c.window * c.plane / 8 + 1;
    if (call->op == ND_OP_conv2d)
        nd__cpu_parallel(c.n, cost, 1, forward, &c);
    else if (call->op == ND_OP_conv2d_grad_input)
        nd__cpu_parallel(c.n, cost, 1, grad_input, &c);
    else
        grad_weight(&c);
    return atomic_load(&c.failed) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}
