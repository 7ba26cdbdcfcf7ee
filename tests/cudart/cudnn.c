// A cuDNN for the fake runtime: libcudnn.so with the functions of cuDNN 9 that lib/device/cuda
// opens at run time. Its numbers are those of the definition, by plain loops, done late.
//
// It offers four algorithms: one that is not deterministic, one with shorter numbers, which both
// write wrong results, one that needs working memory, and one that needs none. dnn.h has what
// ND_CUDART_CUDNN in the environment changes. Of pooling it has means; attention is cudnn_graph.c's.
#include "tests/cudart/dnn.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MATH = 0, FMA_MATH = 3, TENSOR_OP = 1, NOT_DETERMINISTIC = 0, DETERMINISTIC = 1 };
enum { AXES = 3, NDIM = 2 + AXES, ALGORITHMS = 4 };

/// A tensor or a filter, with axes of size 1 in front of those that are there.
typedef struct matrix {
    int magic, type, axes;
    int sizes[NDIM];
} matrix;
typedef struct convolution {
    int magic, type, axes, groups, math;
    int padding[AXES], stride[AXES], dilation[AXES];
} convolution;
typedef struct pooling {
    int magic, axes;
    bool counts_padding;
    int window[AXES], padding[AXES], stride[AXES];
} pooling;
typedef struct offer {
    int algorithm, status;
    float time;
    size_t workspace;
    int determinism, math, reserved[3];
} offer;

typedef enum direction { FORWARD, OF_INPUT, OF_WEIGHT } direction;

/// Work as it is queued.
typedef struct work {
    direction direction;
    bool wide, wrong;
    bool tf32;           ///< operands are cut to 10 bits behind the point
    bool counts_padding; ///< of means
    int n, ci, co, groups;
    int x[AXES], y[AXES], kernel[AXES], padding[AXES], stride[AXES], dilation[AXES];
    const void *x_data, *weight_data, *y_data; ///< the result is one of them
    void *workspace;
    size_t bytes;
} work;

// --------------------------------------------------------------------------------- descriptions

#define MADE(type, number)                    \
    {                                         \
        type *made = calloc(1, sizeof *made); \
        if (!made)                            \
            return NO_HOST_MEMORY;            \
        made->magic = number;                 \
        *ret_made = made;                     \
        return SUCCESS;                       \
    }
#define UNMADE           \
    {                    \
        made->magic = 0; \
        free(made);      \
        return SUCCESS;  \
    }

EXPORT int cudnnCreate(handle **ret_made);
EXPORT int cudnnSetStream(handle *to, cudaStream_t stream);
EXPORT int cudnnCreateTensorDescriptor(matrix **ret_made);
EXPORT int cudnnDestroyTensorDescriptor(matrix *made);
EXPORT int cudnnCreateFilterDescriptor(matrix **ret_made);
EXPORT int cudnnDestroyFilterDescriptor(matrix *made);
EXPORT int cudnnCreateConvolutionDescriptor(convolution **ret_made);
EXPORT int cudnnDestroyConvolutionDescriptor(convolution *made);
EXPORT int cudnnSetTensorNdDescriptor(matrix *to, int type, int ndim, const int *sizes,
                                      const int *strides);
EXPORT int cudnnSetFilterNdDescriptor(matrix *to, int type, int format, int ndim, const int *sizes);
EXPORT int cudnnSetConvolutionNdDescriptor(convolution *to, int axes, const int *padding,
                                           const int *stride, const int *dilation, int mode,
                                           int type);
EXPORT int cudnnSetConvolutionGroupCount(convolution *to, int groups);
EXPORT int cudnnSetConvolutionMathType(convolution *to, int math);

int cudnnCreate(handle **ret_made) {
    int asked = blas_asked("ND_CUDART_CUDNN");
    if (asked >= 1000)
        return asked;
    handle *made = calloc(1, sizeof *made);
    if (!made)
        return NO_HOST_MEMORY;
    *made = (handle){OF_HANDLE, blas_queue(), NULL};
    if (!made->queue) {
        free(made);
        return DNN_NOT_INITIALIZED;
    }
    *ret_made = made;
    return SUCCESS;
}

int cudnnSetStream(handle *to, cudaStream_t stream) {
    to->stream = stream;
    return SUCCESS;
}

int cudnnCreateTensorDescriptor(matrix **ret_made)
    MADE(matrix, OF_TENSOR) int cudnnDestroyTensorDescriptor(matrix *made) UNMADE
    int cudnnCreateFilterDescriptor(matrix **ret_made)
        MADE(matrix, OF_FILTER) int cudnnDestroyFilterDescriptor(matrix *made) UNMADE
    int cudnnCreateConvolutionDescriptor(convolution **ret_made)
        MADE(convolution,
             OF_CONVOLUTION) int cudnnDestroyConvolutionDescriptor(convolution *made) UNMADE

    static int set_sizes(matrix *to, int type, int ndim, const int *sizes) {
    if ((ndim != 4 && ndim != 5) || (type != F32 && type != F64))
        return BAD_PARAM;
    to->type = type;
    to->axes = ndim - 2;
    for (int i = 0; i < NDIM; i++)
        to->sizes[i] = 1;
    to->sizes[0] = sizes[0];
    to->sizes[1] = sizes[1];
    for (int i = 2; i < ndim; i++)
        to->sizes[NDIM - ndim + i] = sizes[i];
    for (int i = 0; i < ndim; i++)
        if (sizes[i] < 1)
            return BAD_PARAM;
    return SUCCESS;
}

/// Dense ones only.
int cudnnSetTensorNdDescriptor(matrix *to, int type, int ndim, const int *sizes,
                               const int *strides) {
    int expected = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        if (strides[i] != expected)
            return NOT_SUPPORTED_SHAPE;
        expected *= sizes[i];
    }
    return to->magic == OF_TENSOR ? set_sizes(to, type, ndim, sizes) : BAD_PARAM;
}

int cudnnSetFilterNdDescriptor(matrix *to, int type, int format, int ndim, const int *sizes) {
    return to->magic == OF_FILTER && format == 0 ? set_sizes(to, type, ndim, sizes) : BAD_PARAM;
}

int cudnnSetConvolutionNdDescriptor(convolution *to, int axes, const int *padding,
                                    const int *stride, const int *dilation, int mode, int type) {
    if (to->magic != OF_CONVOLUTION || mode != 1 || (axes != 2 && axes != 3))
        return BAD_PARAM;
    *to = (convolution){.magic = OF_CONVOLUTION,
                        .type = type,
                        .axes = axes,
                        .groups = 1,
                        .stride = {1, 1, 1},
                        .dilation = {1, 1, 1}};
    for (int i = 0; i < axes; i++) {
        to->padding[AXES - axes + i] = padding[i];
        to->stride[AXES - axes + i] = stride[i];
        to->dilation[AXES - axes + i] = dilation[i];
        if (padding[i] < 0 || stride[i] < 1 || dilation[i] < 1)
            return BAD_PARAM;
    }
    return SUCCESS;
}

int cudnnSetConvolutionGroupCount(convolution *to, int groups) {
    to->groups = groups;
    return groups >= 1 ? SUCCESS : BAD_PARAM;
}

int cudnnSetConvolutionMathType(convolution *to, int math) {
    to->math = math;
    return math >= 0 && math <= FMA_MATH ? SUCCESS : BAD_PARAM;
}

// ------------------------------------------------------------------------------------- the loops

static double number(const work *w, const void *data, int64_t index) {
    return w->wide ? ((const double *)data)[index] : (double)((const float *)data)[index];
}

static void set_number(const work *w, const void *data, int64_t index, double value) {
    if (w->wide)
        ((double *)(uintptr_t)data)[index] = value;
    else
        ((float *)(uintptr_t)data)[index] = (float)value;
}

static int64_t place_in(const int *sizes, const int *at) {
    return ((int64_t)at[0] * sizes[1] + at[1]) * sizes[2] + at[2];
}

static int64_t volume(const int *sizes) {
    return (int64_t)sizes[0] * sizes[1] * sizes[2];
}

static void positions(const int *sizes, int64_t index, int *ret_at) {
    for (int i = AXES - 1; i >= 0; i--) {
        ret_at[i] = (int)(index % sizes[i]);
        index /= sizes[i];
    }
}

/// One product of the definition: which elements of x, of the weight and of y meet.
typedef struct meeting {
    int64_t x, weight, y;
} meeting;

static double factor(const work *w, const void *data, int64_t index) {
    return w->tf32 ? blas_cut_to_tf32(((const float *)data)[index]) : number(w, data, index);
}

/// Adds the product to the sum that it belongs to.
static void meet(const work *w, double *sums, const meeting *m) {
    if (w->direction == FORWARD)
        sums[m->y] += factor(w, w->x_data, m->x) * factor(w, w->weight_data, m->weight);
    else if (w->direction == OF_INPUT)
        sums[m->x] += factor(w, w->y_data, m->y) * factor(w, w->weight_data, m->weight);
    else
        sums[m->weight] += factor(w, w->x_data, m->x) * factor(w, w->y_data, m->y);
}

/// All products of one result of y.
static void meet_window(const work *w, double *sums, int image, int channel, int64_t result) {
    const int gi = w->ci / w->groups, go = w->co / w->groups, first = channel / go * gi;
    int at[AXES], tap_at[AXES], place[AXES];
    positions(w->y, result, at);
    for (int input = 0; input < gi; input++)
        for (int64_t tap = 0; tap < volume(w->kernel); tap++) {
            bool inside = true;
            positions(w->kernel, tap, tap_at);
            for (int i = 0; i < AXES; i++) {
                place[i] = at[i] * w->stride[i] - w->padding[i] + tap_at[i] * w->dilation[i];
                inside = inside && place[i] >= 0 && place[i] < w->x[i];
            }
            const meeting m = {((int64_t)image * w->ci + first + input) * volume(w->x) +
                                   place_in(w->x, place),
                               ((int64_t)channel * gi + input) * volume(w->kernel) + tap,
                               ((int64_t)image * w->co + channel) * volume(w->y) + result};
            if (inside)
                meet(w, sums, &m);
        }
}

static void convolve(void *data) {
    const work *w = data;
    const int64_t results = w->direction == FORWARD ? w->n * w->co * volume(w->y)
                            : w->direction == OF_INPUT
                                ? w->n * w->ci * volume(w->x)
                                : w->co * (w->ci / w->groups) * volume(w->kernel);
    const void *to = w->direction == FORWARD    ? w->y_data
                     : w->direction == OF_INPUT ? w->x_data
                                                : w->weight_data;
    double *sums = calloc((size_t)results, sizeof *sums);
    if (!sums)
        abort();
    if (w->workspace)
        memset(w->workspace, 0xEE, w->bytes);
    for (int image = 0; image < w->n; image++)
        for (int channel = 0; channel < w->co; channel++)
            for (int64_t result = 0; result < volume(w->y); result++)
                meet_window(w, sums, image, channel, result);
    for (int64_t i = 0; i < results; i++)
        set_number(w, to, i, w->wrong ? sums[i] * 1.01 + 0.01 : sums[i]);
    free(sums);
}

// -------------------------------------------------------------------------------------- the calls

/// Whether they fit; fills all but data.
static int describe(const matrix *x, const matrix *weight, const convolution *c, const matrix *y,
                    work *ret_work) {
    work w = {.wide = x->type == F64,
              .n = x->sizes[0],
              .ci = x->sizes[1],
              .co = y->sizes[1],
              .groups = c->groups};
    bool fits = x->magic == OF_TENSOR && y->magic == OF_TENSOR && weight->magic == OF_FILTER &&
                c->magic == OF_CONVOLUTION && x->type == y->type && x->type == weight->type &&
                x->type == c->type && x->axes == y->axes && x->axes == weight->axes &&
                x->axes == c->axes && y->sizes[0] == w.n && weight->sizes[0] == w.co &&
                w.ci % w.groups == 0 && w.co % w.groups == 0 && weight->sizes[1] == w.ci / w.groups;
    if (!fits)
        return BAD_PARAM;
    for (int i = 0; i < AXES; i++) {
        w.x[i] = x->sizes[2 + i];
        w.y[i] = y->sizes[2 + i];
        w.kernel[i] = weight->sizes[2 + i];
        w.padding[i] = c->padding[i];
        w.stride[i] = c->stride[i];
        w.dilation[i] = c->dilation[i];
        int reach = w.dilation[i] * (w.kernel[i] - 1) + 1;
        if (w.y[i] != (w.x[i] + 2 * w.padding[i] - reach) / w.stride[i] + 1)
            return BAD_PARAM;
    }
    *ret_work = w;
    return SUCCESS;
}

static size_t workspace_of(int algorithm) {
    return algorithm == 2 ? 1000 : 0;
}

/// Whether it was asked this before; as many questions as a test has.
static bool is_asked_again(const work *w) {
    static work before[64];
    static size_t count;
    for (size_t i = 0; i < count; i++)
        if (before[i].direction == w->direction && before[i].wide == w->wide &&
            memcmp(&before[i].n, &w->n, offsetof(work, x_data) - offsetof(work, n)) == 0)
            return true;
    if (count < sizeof before / sizeof *before)
        before[count++] = *w;
    return false;
}

static int offer_all(const work *w, int wanted, int *ret_count, offer *ret_offers) {
    int asked = blas_asked("ND_CUDART_CUDNN");
    *ret_count = 0;
    if (asked == ASKED_ONCE && is_asked_again(w)) {
        fputs("cuDNN was asked for the same offers twice\n", stderr);
        abort();
    }
    if (asked == REFUSES)
        return NOT_SUPPORTED_SHAPE;
    for (int i = 0; i < ALGORITHMS && i < wanted; i++) {
        bool much = asked == WANTS_MUCH || (asked == FIRST_WANTS_MUCH && i == 2);
        ret_offers[i] = (offer){.algorithm = i,
                                .status = asked == OFFERS_REFUSED ? NOT_SUPPORTED_SHAPE : SUCCESS,
                                .workspace = much ? (size_t)200 << 20 : workspace_of(i),
                                .determinism = i == 0 ? NOT_DETERMINISTIC : DETERMINISTIC,
                                .math = i == 1 ? TENSOR_OP : FMA_MATH};
        ++*ret_count;
    }
    return SUCCESS;
}

static int run(handle *of, const char *name, work *w, const convolution *c, const void *alpha,
               const void *beta, int algorithm, void *workspace, size_t bytes) {
    if (of->magic != OF_HANDLE || algorithm < 0 || algorithm >= ALGORITHMS ||
        number(w, alpha, 0) != 1 || number(w, beta, 0) != 0 || bytes < workspace_of(algorithm) ||
        (workspace_of(algorithm) > 0 && !workspace))
        return BAD_PARAM;
    if (blas_asked("ND_CUDART_CUDNN") == RUNS_NOT)
        return NOT_SUPPORTED_SHAPE;
    w->tf32 = !w->wide && c->math == DEFAULT_MATH;
    w->wrong = algorithm == 0 || (algorithm == 1 && !w->tf32);
    w->workspace = bytes > 0 ? workspace : NULL;
    w->bytes = bytes;
    return of->queue(of->stream, name, convolve, w, sizeof *w) == cudaSuccess ? SUCCESS : FAILED;
}

EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(handle *of, const matrix *x, const matrix *weight,
                                                  const convolution *c, const matrix *y, int wanted,
                                                  int *ret_count, offer *ret_offers);
EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(handle *of, const matrix *weight,
                                                       const matrix *y, const convolution *c,
                                                       const matrix *x, int wanted, int *ret_count,
                                                       offer *ret_offers);
EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle *of, const matrix *x,
                                                         const matrix *y, const convolution *c,
                                                         const matrix *weight, int wanted,
                                                         int *ret_count, offer *ret_offers);
EXPORT int cudnnConvolutionForward(handle *of, const void *alpha, const matrix *x,
                                   const void *x_data, const matrix *weight,
                                   const void *weight_data, const convolution *c, int algorithm,
                                   void *workspace, size_t bytes, const void *beta, const matrix *y,
                                   void *y_data);
EXPORT int cudnnConvolutionBackwardData(handle *of, const void *alpha, const matrix *weight,
                                        const void *weight_data, const matrix *y,
                                        const void *y_data, const convolution *c, int algorithm,
                                        void *workspace, size_t bytes, const void *beta,
                                        const matrix *x, void *x_data);
EXPORT int cudnnConvolutionBackwardFilter(handle *of, const void *alpha, const matrix *x,
                                          const void *x_data, const matrix *y, const void *y_data,
                                          const convolution *c, int algorithm, void *workspace,
                                          size_t bytes, const void *beta, const matrix *weight,
                                          void *weight_data);

static int offers_of(direction which, const handle *of, const matrix *x, const matrix *weight,
                     const convolution *c, const matrix *y, int wanted, int *ret_count,
                     offer *ret_offers) {
    work w;
    int status = of->magic == OF_HANDLE ? describe(x, weight, c, y, &w) : BAD_PARAM;
    if (status != SUCCESS)
        return status;
    w.direction = which;
    return offer_all(&w, wanted, ret_count, ret_offers);
}

int cudnnGetConvolutionForwardAlgorithm_v7(handle *of, const matrix *x, const matrix *weight,
                                           const convolution *c, const matrix *y, int wanted,
                                           int *ret_count, offer *ret_offers) {
    return offers_of(FORWARD, of, x, weight, c, y, wanted, ret_count, ret_offers);
}

int cudnnGetConvolutionBackwardDataAlgorithm_v7(handle *of, const matrix *weight, const matrix *y,
                                                const convolution *c, const matrix *x, int wanted,
                                                int *ret_count, offer *ret_offers) {
    return offers_of(OF_INPUT, of, x, weight, c, y, wanted, ret_count, ret_offers);
}

int cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle *of, const matrix *x, const matrix *y,
                                                  const convolution *c, const matrix *weight,
                                                  int wanted, int *ret_count, offer *ret_offers) {
    return offers_of(OF_WEIGHT, of, x, weight, c, y, wanted, ret_count, ret_offers);
}

int cudnnConvolutionForward(handle *of, const void *alpha, const matrix *x, const void *x_data,
                            const matrix *weight, const void *weight_data, const convolution *c,
                            int algorithm, void *workspace, size_t bytes, const void *beta,
                            const matrix *y, void *y_data) {
    work w;
    int status = describe(x, weight, c, y, &w);
    if (status != SUCCESS)
        return status;
    w.direction = FORWARD;
    w.x_data = x_data, w.weight_data = weight_data, w.y_data = y_data;
    return run(of, "cudnnConvolutionForward", &w, c, alpha, beta, algorithm, workspace, bytes);
}

int cudnnConvolutionBackwardData(handle *of, const void *alpha, const matrix *weight,
                                 const void *weight_data, const matrix *y, const void *y_data,
                                 const convolution *c, int algorithm, void *workspace, size_t bytes,
                                 const void *beta, const matrix *x, void *x_data) {
    work w;
    int status = describe(x, weight, c, y, &w);
    if (status != SUCCESS)
        return status;
    w.direction = OF_INPUT;
    w.x_data = x_data, w.weight_data = weight_data, w.y_data = y_data;
    return run(of, "cudnnConvolutionBackwardData", &w, c, alpha, beta, algorithm, workspace, bytes);
}

int cudnnConvolutionBackwardFilter(handle *of, const void *alpha, const matrix *x,
                                   const void *x_data, const matrix *y, const void *y_data,
                                   const convolution *c, int algorithm, void *workspace,
                                   size_t bytes, const void *beta, const matrix *weight,
                                   void *weight_data) {
    work w;
    int status = describe(x, weight, c, y, &w);
    if (status != SUCCESS)
        return status;
    w.direction = OF_WEIGHT;
    w.x_data = x_data, w.weight_data = weight_data, w.y_data = y_data;
    return run(of, "cudnnConvolutionBackwardFilter", &w, c, alpha, beta, algorithm, workspace,
               bytes);
}

// ------------------------------------------------------------------------------------- pooling

EXPORT int cudnnCreatePoolingDescriptor(pooling **ret_made);
EXPORT int cudnnDestroyPoolingDescriptor(pooling *made);
EXPORT int cudnnSetPoolingNdDescriptor(pooling *to, int mode, int nan, int axes, const int *window,
                                       const int *padding, const int *stride);
EXPORT int cudnnPoolingForward(handle *of, const pooling *by, const void *alpha, const matrix *x,
                               const void *x_data, const void *beta, const matrix *y, void *y_data);
EXPORT int cudnnPoolingBackward(handle *of, const pooling *by, const void *alpha, const matrix *y,
                                const void *y_data, const matrix *grad, const void *grad_data,
                                const matrix *x, const void *x_data, const void *beta,
                                const matrix *result, void *result_data);

int cudnnCreatePoolingDescriptor(pooling **ret_made)
    MADE(pooling, OF_POOLING) int cudnnDestroyPoolingDescriptor(pooling *made) UNMADE

    int cudnnSetPoolingNdDescriptor(pooling *to, int mode, int nan, int axes, const int *window,
                                    const int *padding, const int *stride) {
    if (to->magic != OF_POOLING || (mode != 1 && mode != 2) || (nan != 0 && nan != 1) ||
        (axes != 2 && axes != 3))
        return BAD_PARAM;
    *to = (pooling){.magic = OF_POOLING,
                    .axes = axes,
                    .counts_padding = mode == 1,
                    .window = {1, 1, 1},
                    .stride = {1, 1, 1}};
    for (int i = 0; i < axes; i++) {
        to->window[AXES - axes + i] = window[i];
        to->padding[AXES - axes + i] = padding[i];
        to->stride[AXES - axes + i] = stride[i];
        if (window[i] < 1 || stride[i] < 1 || padding[i] < 0 || padding[i] >= window[i])
            return BAD_PARAM;
    }
    return SUCCESS;
}

/// One window: its mean, or its gradient to all its places.
static void pool_window(const work *w, double *sums, int64_t plane, int64_t result) {
    const int64_t taps = volume(w->kernel), y = plane * volume(w->y) + result;
    int at[AXES], tap_at[AXES], place[AXES], count = 0;
    int64_t *places = calloc((size_t)taps, sizeof *places);
    if (!places)
        abort();
    positions(w->y, result, at);
    for (int64_t tap = 0; tap < taps; tap++) {
        bool inside = true;
        positions(w->kernel, tap, tap_at);
        for (int i = 0; i < AXES; i++) {
            place[i] = at[i] * w->stride[i] - w->padding[i] + tap_at[i];
            inside = inside && place[i] >= 0 && place[i] < w->x[i];
        }
        if (inside)
            places[count++] = plane * volume(w->x) + place_in(w->x, place);
    }
    const double divisor = w->counts_padding ? (double)taps : count;
    for (int i = 0; i < count; i++)
        if (w->direction == FORWARD)
            sums[y] += number(w, w->x_data, places[i]) / divisor;
        else
            sums[places[i]] += number(w, w->y_data, y) / divisor;
    free(places);
}

static void pool(void *data) {
    const work *w = data;
    const int64_t planes = (int64_t)w->n * w->ci;
    const int64_t results = planes * volume(w->direction == FORWARD ? w->y : w->x);
    double *sums = calloc((size_t)results, sizeof *sums);
    if (!sums)
        abort();
    for (int64_t plane = 0; plane < planes; plane++)
        for (int64_t result = 0; result < volume(w->y); result++)
            pool_window(w, sums, plane, result);
    for (int64_t i = 0; i < results; i++)
        set_number(w, w->direction == FORWARD ? w->y_data : w->x_data, i, sums[i]);
    free(sums);
}

/// Checks and queues; the sizes are those that the division rounded down gives.
static int queue_pooling(handle *of, const char *name, const pooling *by, const matrix *x,
                         const matrix *y, const void *alpha, const void *beta, work *w) {
    bool fits = of->magic == OF_HANDLE && by->magic == OF_POOLING && x->magic == OF_TENSOR &&
                y->magic == OF_TENSOR && x->type == y->type && x->axes == by->axes &&
                y->axes == by->axes && x->sizes[0] == y->sizes[0] && x->sizes[1] == y->sizes[1];
    if (!fits)
        return BAD_PARAM;
    w->wide = x->type == F64;
    w->n = x->sizes[0];
    w->ci = x->sizes[1];
    w->counts_padding = by->counts_padding;
    for (int i = 0; i < AXES; i++) {
        w->x[i] = x->sizes[2 + i];
        w->y[i] = y->sizes[2 + i];
        w->kernel[i] = by->window[i];
        w->padding[i] = by->padding[i];
        w->stride[i] = by->stride[i];
        if (w->y[i] != (w->x[i] + 2 * w->padding[i] - w->kernel[i]) / w->stride[i] + 1)
            return BAD_PARAM;
    }
    if (number(w, alpha, 0) != 1 || number(w, beta, 0) != 0)
        return BAD_PARAM;
    if (blas_asked("ND_CUDART_CUDNN") == RUNS_NOT)
        return NOT_SUPPORTED_SHAPE;
    return of->queue(of->stream, name, pool, w, sizeof *w) == cudaSuccess ? SUCCESS : FAILED;
}

int cudnnPoolingForward(handle *of, const pooling *by, const void *alpha, const matrix *x,
                        const void *x_data, const void *beta, const matrix *y, void *y_data) {
    work w = {.direction = FORWARD, .x_data = x_data, .y_data = y_data};
    return queue_pooling(of, "cudnnPoolingForward", by, x, y, alpha, beta, &w);
}

int cudnnPoolingBackward(handle *of, const pooling *by, const void *alpha, const matrix *y,
                         const void *y_data, const matrix *grad, const void *grad_data,
                         const matrix *x, const void *x_data, const void *beta,
                         const matrix *result, void *result_data) {
    if (!y_data || !x_data || y->magic != OF_TENSOR || x->magic != OF_TENSOR ||
        memcmp(y->sizes, grad->sizes, sizeof y->sizes) != 0 ||
        memcmp(x->sizes, result->sizes, sizeof x->sizes) != 0)
        return BAD_PARAM;
    work w = {.direction = OF_INPUT, .x_data = result_data, .y_data = grad_data};
    return queue_pooling(of, "cudnnPoolingBackward", by, result, grad, alpha, beta, &w);
}
