// Convolutions, and means of windows, by cuDNN 9, which is opened at run time (ND_CUDNN names the
// file, as ND_CUBLAS does).
//
// Of what it offers for a convolution the first is taken that multiplies without tensor cores'
// shorter numbers, is deterministic, and asks for no more working memory than there is and
// MOST_WORKSPACE. Finding the offers takes it some tenths of a millisecond, so those that are
// acceptable are kept.
// A device has one handle, which serves one thread and one stream at a time, under the lock.
#include "lib/device/cuda/cudnn.h"
#include "kernels/windows.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/memo.h"
#include "lib/device/tf32.h"
#include <limits.h>

#define MOST_WORKSPACE ((size_t)256 << 20)

enum { OFFERS = 8, FULL_NDIM = 2 + ND_WINDOW_AXES };

typedef int create_function(void **ret_made);
typedef int destroy_function(void *made);
typedef int set_stream_function(void *handle, cudaStream_t stream);
typedef int set_tensor_function(void *tensor, int type, int ndim, const int *sizes,
                                const int *strides);
typedef int set_filter_function(void *filter, int type, int format, int ndim, const int *sizes);
typedef int set_convolution_function(void *convolution, int axes, const int *padding,
                                     const int *stride, const int *dilation, int mode, int type);
typedef int set_number_function(void *convolution, int number);
/// Descriptors of the two inputs, of the convolution and of the result, in the order of the call.
typedef int offers_function(void *handle, void *first, void *second, void *convolution,
                            void *result, int wanted, int *ret_count,
                            nd_dnn_algorithm *ret_algorithms);
typedef int run_function(void *handle, const void *alpha, void *first_described, const void *first,
                         void *second_described, const void *second, void *convolution,
                         int algorithm, void *workspace, size_t bytes, const void *beta,
                         void *result_described, void *result);

typedef int set_pooling_function(void *pooling, int mode, int nan, int axes, const int *window,
                                 const int *padding, const int *stride);
typedef int pool_function(void *handle, void *pooling, const void *alpha, void *x_described,
                          const void *x, const void *beta, void *y_described, void *y);
/// y and x are read of extremes alone.
typedef int unpool_function(void *handle, void *pooling, const void *alpha, void *y_described,
                            const void *y, void *grad_described, const void *grad,
                            void *x_described, const void *x, const void *beta,
                            void *result_described, void *result);

typedef struct dnn_operation {
    offers_function *offers;
    run_function *run;
} dnn_operation;

static struct {
    create_function *create, *create_tensor, *create_filter, *create_convolution, *create_pooling;
    destroy_function *destroy_tensor, *destroy_filter, *destroy_convolution, *destroy_pooling;
    set_stream_function *set_stream;
    set_tensor_function *set_tensor;
    set_filter_function *set_filter;
    set_convolution_function *set_convolution;
    set_number_function *set_groups, *set_math;
    dnn_operation forward, grad_input, grad_weight;
    set_pooling_function *set_pooling;
    pool_function *pool;
    unpool_function *unpool;
} dnn;

static const nd_library_function functions[] = {
    {"cudnnCreate", &dnn.create},
    {"cudnnSetStream", &dnn.set_stream},
    {"cudnnCreateTensorDescriptor", &dnn.create_tensor},
    {"cudnnSetTensorNdDescriptor", &dnn.set_tensor},
    {"cudnnDestroyTensorDescriptor", &dnn.destroy_tensor},
    {"cudnnCreateFilterDescriptor", &dnn.create_filter},
    {"cudnnSetFilterNdDescriptor", &dnn.set_filter},
    {"cudnnDestroyFilterDescriptor", &dnn.destroy_filter},
    {"cudnnCreateConvolutionDescriptor", &dnn.create_convolution},
    {"cudnnSetConvolutionNdDescriptor", &dnn.set_convolution},
    {"cudnnSetConvolutionGroupCount", &dnn.set_groups},
    {"cudnnSetConvolutionMathType", &dnn.set_math},
    {"cudnnDestroyConvolutionDescriptor", &dnn.destroy_convolution},
    {"cudnnGetConvolutionForwardAlgorithm_v7", &dnn.forward.offers},
    {"cudnnConvolutionForward", &dnn.forward.run},
    {"cudnnGetConvolutionBackwardDataAlgorithm_v7", &dnn.grad_input.offers},
    {"cudnnConvolutionBackwardData", &dnn.grad_input.run},
    {"cudnnGetConvolutionBackwardFilterAlgorithm_v7", &dnn.grad_weight.offers},
    {"cudnnConvolutionBackwardFilter", &dnn.grad_weight.run},
    {"cudnnCreatePoolingDescriptor", &dnn.create_pooling},
    {"cudnnSetPoolingNdDescriptor", &dnn.set_pooling},
    {"cudnnDestroyPoolingDescriptor", &dnn.destroy_pooling},
    {"cudnnPoolingForward", &dnn.pool},
    {"cudnnPoolingBackward", &dnn.unpool},
    {0},
};

static nd_library library = {
    .variable = "ND_CUDNN",
    .stem = "libcudnn",
    .versions = {9},
    .folders = {"cudnn", "cu1[23]"},
    .functions = functions,
    .lock = ND_LIBRARY_LOCK,
};

void *nd__cudnn_library(void) {
    return nd__library_open(&library);
}

/// What a refusal means; everything that is none of memory or of the device is one.
nd_status nd__cudnn_status(int status) {
    if (status == ND__DNN_SUCCESS)
        return ND_OK;
    if (status == ND__DNN_NO_HOST_MEMORY || status == ND__DNN_NO_DEVICE_MEMORY)
        return ND_ERROR_OUT_OF_MEMORY;
    return status < ND__DNN_INTERNAL_ERROR ? ND_ERROR_UNSUPPORTED : ND_ERROR_DEVICE;
}

/// The device's handle. Caller holds blas_lock.
static nd_status make_handle(nd_cuda_device *device) {
    if (device->dnn)
        return ND_OK;
    if (device->dnn_tried || nd__capture_running())
        return ND_ERROR_UNSUPPORTED;
    nd_status status = nd__cudnn_status(dnn.create(&device->dnn));
    if (status != ND_OK)
        device->dnn = NULL;
    if (status == ND_ERROR_OUT_OF_MEMORY)
        return status; // there may be room later
    device->dnn_tried = true;
    return status == ND_OK ? ND_OK : ND_ERROR_UNSUPPORTED;
}

nd_status nd__cudnn_handle(nd_cuda_device *device, const nd_cuda_queue *queue) {
    nd_status status = make_handle(device);
    return status == ND_OK
               ? nd__cudnn_status(dnn.set_stream(device->dnn, (cudaStream_t)queue->stream))
               : status;
}

void nd__cudnn_prepare(nd_cuda_device *device) {
    if (!nd__library_open(&library))
        return;
    pthread_mutex_lock(&device->blas_lock);
    (void)make_handle(device);
    pthread_mutex_unlock(&device->blas_lock);
}

// ------------------------------------------------------------------------------------------------
// describing a call

typedef struct dnn_call {
    nd_cuda_device *device;
    const nd_cuda_queue *queue;
    int type, ndim; ///< 4, or 5 where there is depth
    bool tf32;      ///< f32 may be rounded to it
    // Owned; NULL: not made.
    void *x, *y, *weight, *convolution, *pooling;
} dnn_call;

static void release_call(dnn_call *of) {
    if (of->x)
        dnn.destroy_tensor(of->x);
    if (of->y)
        dnn.destroy_tensor(of->y);
    if (of->weight)
        dnn.destroy_filter(of->weight);
    if (of->convolution)
        dnn.destroy_convolution(of->convolution);
    if (of->pooling)
        dnn.destroy_pooling(of->pooling);
}

/// Two sizes and those of the axes, and dense strides; false: they do not fit in 31 bits.
static bool narrow_sizes(const dnn_call *of, int64_t outer, int64_t channels, const int64_t *axes,
                         int *ret_sizes, int *ret_strides) {
    int64_t sizes[FULL_NDIM] = {outer, channels}, stride = 1;
    for (int i = 2; i < of->ndim; i++)
        sizes[i] = axes[FULL_NDIM - of->ndim + i - 2];
    for (int i = of->ndim - 1; i >= 0; i--) {
        if (sizes[i] > INT_MAX || stride > INT_MAX)
            return false;
        ret_sizes[i] = (int)sizes[i];
        ret_strides[i] = (int)stride;
        stride *= sizes[i];
    }
    return stride <= INT_MAX;
}

static bool narrow_axes(const dnn_call *of, const int64_t *axes, int *ret_axes) {
    for (int i = 0; i < of->ndim - 2; i++) {
        const int64_t number = axes[FULL_NDIM - of->ndim + i];
        if (number > INT_MAX)
            return false;
        ret_axes[i] = (int)number;
    }
    return true;
}

static nd_status describe_image(const dnn_call *of, int64_t outer, int64_t channels,
                                const int64_t *axes, void **ret_image) {
    int sizes[FULL_NDIM], strides[FULL_NDIM];
    if (!narrow_sizes(of, outer, channels, axes, sizes, strides))
        return ND_ERROR_UNSUPPORTED;
    int status = dnn.create_tensor(ret_image);
    if (status == ND__DNN_SUCCESS)
        status = dnn.set_tensor(*ret_image, of->type, of->ndim, sizes, strides);
    return nd__cudnn_status(status);
}

static nd_status describe_images(dnn_call *of, const nd__conv_sizes *s) {
    nd_status status = describe_image(of, s->n, s->ci, s->x, &of->x);
    return status == ND_OK ? describe_image(of, s->n, s->co, s->y, &of->y) : status;
}

static nd_status describe_convolution(dnn_call *of, const nd__conv_sizes *s) {
    int sizes[FULL_NDIM], strides[FULL_NDIM];
    int padding[ND_WINDOW_AXES], stride[ND_WINDOW_AXES], dilation[ND_WINDOW_AXES];
    if (!narrow_sizes(of, s->co, s->ci / s->groups, s->kernel, sizes, strides) ||
        !narrow_axes(of, s->padding, padding) || !narrow_axes(of, s->stride, stride) ||
        !narrow_axes(of, s->dilation, dilation))
        return ND_ERROR_UNSUPPORTED;
    int status = dnn.create_filter(&of->weight);
    if (status == ND__DNN_SUCCESS)
        status = dnn.set_filter(of->weight, of->type, ND__DNN_CHANNELS_FIRST, of->ndim, sizes);
    if (status == ND__DNN_SUCCESS)
        status = dnn.create_convolution(&of->convolution);
    if (status == ND__DNN_SUCCESS)
        status = dnn.set_convolution(of->convolution, of->ndim - 2, padding, stride, dilation,
                                     ND__DNN_CROSS_CORRELATION, of->type);
    if (status == ND__DNN_SUCCESS)
        status = dnn.set_groups(of->convolution, (int)s->groups);
    // Without it f32 may be rounded to TF32.
    if (status == ND__DNN_SUCCESS)
        status = dnn.set_math(of->convolution, of->tf32 ? ND__DNN_DEFAULT_MATH : ND__DNN_FMA_MATH);
    return nd__cudnn_status(status);
}

// ------------------------------------------------------------------------------------------------
// computing

/// What one of the three reads and writes, with its description, in the order of cuDNN's arguments.
typedef struct dnn_step {
    const dnn_operation *operation;
    void *first_described, *second_described, *result_described;
    const void *first, *second;
    void *result;
} dnn_step;

static dnn_step step_of(const dnn_call *of, const nd_kernel_call *call) {
    void *out = call->operand[0].data;
    const void *a = call->operand[1].data, *b = call->operand[2].data;
    if (call->op == ND_OP_conv)
        return (dnn_step){&dnn.forward, of->x, of->weight, of->y, a, b, out};
    if (call->op == ND_OP_conv_grad_input)
        return (dnn_step){&dnn.grad_input, of->weight, of->y, of->x, b, a, out};
    return (dnn_step){&dnn.grad_weight, of->x, of->y, of->weight, a, b, out};
}

/// An algorithm that may be taken.
typedef struct dnn_choice {
    int algorithm;
    size_t workspace;
} dnn_choice;

/// Those of a convolution, the best one first.
typedef struct dnn_choices {
    int count;
    dnn_choice of[OFFERS];
} dnn_choices;

/// All that decides what cuDNN offers.
typedef struct dnn_question {
    int64_t op, type, device, tf32;
    nd__conv_sizes sizes;
} dnn_question;

ND__MEMO(known_choices, 256, dnn_question, dnn_choices);

static nd_status run_by(const dnn_call *of, const dnn_step *step, const dnn_choice *by) {
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool wide = of->type == ND__DNN_F64;
    void *workspace = NULL;
    nd_status status = ND_OK;
    if (by->workspace > 0)
        status = of->queue->allocate(of->queue->context, by->workspace, &workspace);
    if (status != ND_OK)
        return status;
    status = nd__cudnn_status(step->operation->run(
        of->device->dnn, wide ? (const void *)&wide_one : &one, step->first_described, step->first,
        step->second_described, step->second, of->convolution, by->algorithm, workspace,
        by->workspace, wide ? (const void *)&wide_zero : &zero, step->result_described,
        step->result));
    if (workspace)
        of->queue->release(of->queue->context, workspace);
    return status;
}

static bool is_acceptable(const nd_dnn_algorithm *offer, bool tf32) {
    return offer->status == ND__DNN_SUCCESS && offer->determinism == ND__DNN_DETERMINISTIC &&
           (offer->math == ND__DNN_FMA_MATH || offer->math == ND__DNN_DEFAULT_MATH ||
            (tf32 && offer->math == ND__DNN_TENSOR_MATH)) &&
           offer->workspace <= MOST_WORKSPACE;
}

/// From before, or asked for now. An error is not kept.
static nd_status find_choices(const dnn_call *of, const dnn_step *step,
                              const dnn_question *question, dnn_choices *ret_choices) {
    if (nd__memo_recall(&known_choices, question, ret_choices))
        return ND_OK;
    nd_dnn_algorithm offers[OFFERS];
    int count = 0;
    nd_status status = nd__cudnn_status(
        step->operation->offers(of->device->dnn, step->first_described, step->second_described,
                                of->convolution, step->result_described, OFFERS, &count, offers));
    if (status != ND_OK)
        return status == ND_ERROR_OUT_OF_MEMORY ? status : ND_ERROR_UNSUPPORTED;
    *ret_choices = (dnn_choices){0};
    for (int i = 0; i < count && i < OFFERS; i++)
        if (is_acceptable(&offers[i], of->tf32))
            ret_choices->of[ret_choices->count++] =
                (dnn_choice){offers[i].algorithm, offers[i].workspace};
    nd__memo_remember(&known_choices, question, ret_choices);
    return ND_OK;
}

/// By the first that finds its working memory.
static nd_status run_step(const dnn_call *of, const dnn_step *step, const dnn_question *question) {
    dnn_choices choices;
    nd_status status = find_choices(of, step, question, &choices);
    if (status != ND_OK)
        return status;
    for (int i = 0; i < choices.count; i++) {
        status = run_by(of, step, &choices.of[i]);
        if (status != ND_ERROR_UNSUPPORTED && status != ND_ERROR_OUT_OF_MEMORY)
            return status;
    }
    // ndarc's own kernels need none.
    return ND_ERROR_UNSUPPORTED;
}

/// A weight's gradient of few numbers, which are long sums. With the same bits every time cuDNN 9.19
/// takes an H200 274 us for one of 32 x 16 x 5 x 5 over 128 x 14 x 14 places, and ndarc's own kernel
/// 53; for one of 16 x 1 x 5 x 5 over 128 x 28 x 28 some 27 and 67; and 150 more of the host for each.
static bool is_better_summed_here(const nd_kernel_call *call, const nd__conv_sizes *s) {
    enum { FEW = 16384, LONG = 16384 };
    return call->op == ND_OP_conv_grad_weight && s->groups == 1 &&
           s->ci * s->co * nd__windows_volume(s->kernel) <= FEW &&
           s->n * nd__windows_volume(s->y) >= LONG;
}

nd_status nd__cudnn_convolve(nd_cuda_device *device, const nd_cuda_queue *queue,
                             const nd_kernel_call *call) {
    const nd_dtype dtype = call->operand[0].dtype;
    if (!nd__library_open(&library) || (dtype != ND_F32 && dtype != ND_F64))
        return ND_ERROR_UNSUPPORTED;
    const nd__conv_sizes s = nd__conv_sizes_of(call);
    if (is_better_summed_here(call, &s))
        return ND_ERROR_UNSUPPORTED;
    const bool is_flat = s.x[0] == 1 && s.kernel[0] == 1 && s.padding[0] == 0;
    dnn_call of = {.device = device,
                   .queue = queue,
                   .type = dtype == ND_F64 ? ND__DNN_F64 : ND__DNN_F32,
                   .ndim = is_flat ? FULL_NDIM - 1 : FULL_NDIM,
                   .tf32 = dtype == ND_F32 && nd__tf32_allowed()};
    pthread_mutex_lock(&device->blas_lock);
    nd_status status = nd__cudnn_handle(device, queue);
    if (status == ND_OK)
        status = describe_images(&of, &s);
    if (status == ND_OK)
        status = describe_convolution(&of, &s);
    if (status == ND_OK) {
        const dnn_step step = step_of(&of, call);
        const dnn_question question = {(int64_t)call->op, of.type, device->index, of.tf32, s};
        status = run_step(&of, &step, &question);
    }
    release_call(&of);
    pthread_mutex_unlock(&device->blas_lock);
    return status;
}

// ------------------------------------------------------------------------------------------------
// means of windows

/// Whether no window reaches beyond the padding: then both count the same places.
static bool windows_stay_inside(const nd__resample_windows *w) {
    for (int i = 0; i < ND_WINDOW_AXES; i++)
        if ((w->out[i] - 1) * w->stride[i] + w->kernel[i] > w->in[i] + 2 * w->padding[i])
            return false;
    return true;
}

static nd_status describe_pooling(dnn_call *of, const nd__resample_windows *w) {
    int window[ND_WINDOW_AXES], padding[ND_WINDOW_AXES], stride[ND_WINDOW_AXES];
    if (!narrow_axes(of, w->kernel, window) || !narrow_axes(of, w->padding, padding) ||
        !narrow_axes(of, w->stride, stride))
        return ND_ERROR_UNSUPPORTED;
    int status = dnn.create_pooling(&of->pooling);
    if (status == ND__DNN_SUCCESS)
        status = dnn.set_pooling(of->pooling,
                                 w->counts_padding ? ND__DNN_MEAN_WITH_PADDING
                                                   : ND__DNN_MEAN_WITHOUT_PADDING,
                                 ND__DNN_NAN_PROPAGATES, of->ndim - 2, window, padding, stride);
    return nd__cudnn_status(status);
}

static nd_status run_pooling(const dnn_call *of, const nd_kernel_call *call) {
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool wide = of->type == ND__DNN_F64;
    const void *alpha = wide ? (const void *)&wide_one : &one;
    const void *beta = wide ? (const void *)&wide_zero : &zero;
    void *out = call->operand[0].data;
    const void *in = call->operand[1].data;
    if (call->op == ND_OP_resample)
        return nd__cudnn_status(
            dnn.pool(of->device->dnn, of->pooling, alpha, of->x, in, beta, of->y, out));
    // Means need neither x nor y, which cuDNN's interface wants: memory of their sizes.
    return nd__cudnn_status(dnn.unpool(of->device->dnn, of->pooling, alpha, of->y, in, of->y, in,
                                       of->x, out, beta, of->x, out));
}

nd_status nd__cudnn_pool(nd_cuda_device *device, const nd_cuda_queue *queue,
                         const nd_kernel_call *call) {
    const nd_dtype dtype = call->operand[0].dtype;
    if (call->attrs.i[0] != ND__RESAMPLE_WINDOWS || (dtype != ND_F32 && dtype != ND_F64))
        return ND_ERROR_UNSUPPORTED;
    const nd__resample_windows w = nd__resample_windows_of(call);
    if (!nd__library_open(&library) || !windows_stay_inside(&w))
        return ND_ERROR_UNSUPPORTED;
    const bool is_flat = w.in[0] == 1 && w.kernel[0] == 1 && w.padding[0] == 0;
    dnn_call of = {.device = device,
                   .queue = queue,
                   .type = dtype == ND_F64 ? ND__DNN_F64 : ND__DNN_F32,
                   .ndim = is_flat ? FULL_NDIM - 1 : FULL_NDIM};
    pthread_mutex_lock(&device->blas_lock);
    nd_status status = nd__cudnn_handle(device, queue);
    if (status == ND_OK)
        status = describe_image(&of, w.n, w.c, w.in, &of.x);
    if (status == ND_OK)
        status = describe_image(&of, w.n, w.c, w.out, &of.y);
    if (status == ND_OK)
        status = describe_pooling(&of, &w);
    if (status == ND_OK)
        status = run_pooling(&of, call);
    release_call(&of);
    pthread_mutex_unlock(&device->blas_lock);
    return status;
}
