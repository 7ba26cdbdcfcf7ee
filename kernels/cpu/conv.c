// Convolution, its two gradients, unfold and fold, as matrix products over unfolded images, where
// neither direct sums (direct.c, depthwise.c), products without them (pointwise.c) nor oneDNN do it.
//
// For one group of channels of an image, x [ci, x's sizes] with ci those of the group, the unfolded
// matrix U [ci window, y's sizes] holds in each column the window of one result. Then out = W U,
// grad of x = fold(W^T grad), grad of W = sum over images of grad U^T. Groups of all images are
// shared between threads, but for the weight gradient: there only groups are, and where there is
// one, each product.
#include "kernels/cpu/families.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/windows.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct conv_work {
    const nd_kernel_call *call;
    nd__matmul matmul;
    nd__conv_sizes sizes; ///< ci and co of one group
    int64_t window;       ///< elements of ci windows
    int64_t image;        ///< elements of ci planes of x
    int64_t plane;        ///< elements of a plane of y
    int64_t bytes;
    atomic_bool failed;
} conv_work;

enum { DEPTH, HEIGHT, WIDTH };

/// The range of output columns whose input column, `offset` behind the window's first, is inside
/// the image.
static void inside(const nd__conv_sizes *c, int64_t offset, int64_t *ret_begin, int64_t *ret_end) {
    int64_t stride = c->stride[WIDTH];
    int64_t first = c->padding[WIDTH] - offset, last = c->x[WIDTH] - 1 + first;
    int64_t begin = first <= 0 ? 0 : (first - 1) / stride + 1;
    int64_t end = last < 0 ? 0 : last / stride + 1;
    *ret_end = end < c->y[WIDTH] ? end : c->y[WIDTH];
    *ret_begin = begin < *ret_end ? begin : *ret_end;
}

/// Where an element of the window stands: its channel, and how far behind the window's first along
/// each axis.
typedef struct conv_tap {
    int64_t channel, offset[ND_WINDOW_AXES];
} conv_tap;

static conv_tap tap_of(const nd__conv_sizes *c, int64_t row) {
    conv_tap tap;
    for (int axis = WIDTH; axis >= DEPTH; axis--) {
        tap.offset[axis] = row % c->kernel[axis] * c->dilation[axis];
        row /= c->kernel[axis];
    }
    tap.channel = row;
    return tap;
}

/// The element of x from which a row of results takes its tap, were its first column inside; false
/// when the row is outside. `line`: which row of y, counted through its planes.
static bool line_of(const nd__conv_sizes *c, const conv_tap *tap, int64_t line, int64_t *ret_from) {
    int64_t z = line / c->y[HEIGHT] * c->stride[DEPTH] - c->padding[DEPTH] + tap->offset[DEPTH];
    int64_t y = line % c->y[HEIGHT] * c->stride[HEIGHT] - c->padding[HEIGHT] + tap->offset[HEIGHT];
    if (z < 0 || z >= c->x[DEPTH] || y < 0 || y >= c->x[HEIGHT])
        return false;
    *ret_from = ((tap->channel * c->x[DEPTH] + z) * c->x[HEIGHT] + y) * c->x[WIDTH] -
                c->padding[WIDTH] + tap->offset[WIDTH];
    return true;
}

#define CONV_FOLDING(T)                                                             \
    static void unfold_##T(const conv_work *work, const T *x, T *matrix) {          \
        const nd__conv_sizes *c = &work->sizes;                                     \
        int64_t stride = c->stride[WIDTH], columns = c->y[WIDTH], begin, end, from; \
        for (int64_t row = 0; row < work->window; row++, matrix += work->plane) {   \
            conv_tap tap = tap_of(c, row);                                          \
            inside(c, tap.offset[WIDTH], &begin, &end);                             \
            for (int64_t line = 0; line < c->y[DEPTH] * c->y[HEIGHT]; line++) {     \
                T *to = matrix + line * columns;                                    \
                if (!line_of(c, &tap, line, &from)) {                               \
                    memset(to, 0, sizeof(T) * (size_t)columns);                     \
                    continue;                                                       \
                }                                                                   \
                for (int64_t i = 0; i < begin; i++)                                 \
                    to[i] = 0;                                                      \
                if (stride == 1)                                                    \
                    for (int64_t i = begin; i < end; i++)                           \
                        to[i] = x[from + i];                                        \
                else                                                                \
                    for (int64_t i = begin; i < end; i++)                           \
                        to[i] = x[from + i * stride];                               \
                for (int64_t i = end; i < columns; i++)                             \
                    to[i] = 0;                                                      \
            }                                                                       \
        }                                                                           \
    }                                                                               \
    static void fold_##T(const conv_work *work, const T *matrix, T *x) {            \
        const nd__conv_sizes *c = &work->sizes;                                     \
        int64_t stride = c->stride[WIDTH], columns = c->y[WIDTH], begin, end, to;   \
        memset(x, 0, sizeof(T) * (size_t)work->image);                              \
        for (int64_t row = 0; row < work->window; row++, matrix += work->plane) {   \
            conv_tap tap = tap_of(c, row);                                          \
            inside(c, tap.offset[WIDTH], &begin, &end);                             \
            for (int64_t line = 0; line < c->y[DEPTH] * c->y[HEIGHT]; line++)       \
                if (line_of(c, &tap, line, &to))                                    \
                    for (int64_t i = begin; i < end; i++)                           \
                        x[to + i * stride] += matrix[line * columns + i];           \
        }                                                                           \
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
        unfold(c, block(c, 1, i, c->image), columns);
        nd__product product = {
            .m = c->sizes.co,
            .n = c->plane,
            .k = c->window,
            .a = matrix(block(c, 2, i % c->sizes.groups, c->sizes.co * c->window), c->window, 1),
            .b = matrix(columns, c->plane, 1),
            .out = matrix(block(c, 0, i, c->sizes.co * c->plane), c->plane, 1),
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
            .k = c->sizes.co,
            .a = matrix(block(c, 2, i % c->sizes.groups, c->sizes.co * c->window), 1, c->window),
            .b = matrix(block(c, 1, i, c->sizes.co * c->plane), c->plane, 1),
            .out = matrix(columns, c->plane, 1),
        };
        c->matmul(&product);
        fold(c, columns, block(c, 0, i, c->image));
    }
    free(columns);
}

static void grad_weight(void *context, int64_t begin, int64_t end) {
    conv_work *c = (conv_work *)context;
    void *columns = unfolded(c);
    for (int64_t group = begin; columns && group < end; group++) {
        void *out = block(c, 0, group, c->sizes.co * c->window);
        memset(out, 0, (size_t)(c->sizes.co * c->window * c->bytes));
        for (int64_t image = 0; image < c->sizes.n; image++) {
            int64_t i = image * c->sizes.groups + group;
            unfold(c, block(c, 1, i, c->image), columns);
            nd__product product = {
                .m = c->sizes.co,
                .n = c->window,
                .k = c->plane,
                .a = matrix(block(c, 2, i, c->sizes.co * c->plane), c->plane, 1),
                .b = matrix(columns, 1, c->plane),
                .out = matrix(out, c->window, 1),
                .accumulate = true,
            };
            c->matmul(&product);
        }
    }
    free(columns);
}

/// Planes of x, by image, to matrices, or back.
static void unfold_images(void *context, int64_t begin, int64_t end) {
    conv_work *c = (conv_work *)context;
    for (int64_t i = begin; i < end; i++)
        unfold(c, block(c, 1, i, c->image), block(c, 0, i, c->window * c->plane));
}
static void fold_images(void *context, int64_t begin, int64_t end) {
    conv_work *c = (conv_work *)context;
    for (int64_t i = begin; i < end; i++)
        fold(c, block(c, 1, i, c->window * c->plane), block(c, 0, i, c->image));
}

static void share(conv_work *c) {
    int64_t n = c->sizes.n, groups = c->sizes.groups;
    int64_t cost = c->sizes.co * c->window * c->plane / 8 + 1;
    switch (c->call->op) {
    case ND_OP_conv:
        nd__cpu_parallel(n * groups, cost, 1, forward, c);
        break;
    case ND_OP_conv_grad_input:
        nd__cpu_parallel(n * groups, cost, 1, grad_input, c);
        break;
    case ND_OP_conv_grad_weight:
        if (groups == 1)
            grad_weight(c, 0, 1);
        else
            nd__cpu_parallel(groups, n * cost, 1, grad_weight, c);
        break;
    default:
        nd__cpu_parallel(n, c->window * c->plane, 1,
                         c->call->op == ND_OP_unfold ? unfold_images : fold_images, c);
    }
}

/// Of bf16, which nobody computes as they are but oneDNN: others in f32, by whoever calls.
static nd_status halves(const nd_kernel_call *call, bool sparing) {
    const bool convolves = call->op == ND_OP_conv || call->op == ND_OP_conv_grad_input ||
                           call->op == ND_OP_conv_grad_weight;
    if (!convolves || sparing || nd__onednn_least_product(ND_BF16) == INT64_MAX)
        return ND_ERROR_UNSUPPORTED;
    nd__onednn_watch_thread();
    return nd__onednn_conv(call);
}

nd_status nd__cpu_conv(const nd_kernel_call *call, bool sparing) {
    if (call->operand[0].dtype == ND_BF16)
        return halves(call, sparing);
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    bool folding = call->op == ND_OP_unfold || call->op == ND_OP_fold;
    nd__onednn_watch_thread();
    if (nd__cpu_depthwise(call) || nd__cpu_direct(call) || nd__cpu_pointwise(call))
        return ND_OK;
    nd_status status = type == 0 && !folding ? nd__onednn_conv(call) : ND_ERROR_UNSUPPORTED;
    if (status == ND_OK || (status == ND_ERROR_OUT_OF_MEMORY && !sparing))
        return status;
    conv_work c = {.call = call,
                   .matmul = nd__cpu_loops_now()->matmul[type == 0 ? ND_F32 : ND_F64],
                   .sizes = nd__conv_sizes_of(call),
                   .bytes = nd__dtype_bytes(call->operand[0].dtype)};
    c.sizes.ci /= c.sizes.groups;
    c.sizes.co /= c.sizes.groups;
    c.window = c.sizes.ci * nd__windows_volume(c.sizes.kernel);
    c.image = c.sizes.ci * nd__windows_volume(c.sizes.x);
    c.plane = nd__windows_volume(c.sizes.y);
    share(&c);
    return atomic_load(&c.failed) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}
