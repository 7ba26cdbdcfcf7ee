// The layers that move windows over images, and those that change the size of images: each a module
// type whose forward function calls one operation with the options that the module keeps.
//
// Invariant: options are checked when a module is made, so that its forward function can only
// refuse its input.
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/nn/layers.h"
#include "lib/ops/conv_options.h"
#include "lib/ops/interpolate.h"
#include "lib/ops/pool.h"
#include "lib/tensor/shape.h"

/// The module type of an operation.
#define MODULE_TYPE(kind)                       \
    static const nd_module_type kind##_type = { \
        .size = sizeof(nd_module_type), .version = 1, .name = #kind, .forward = kind##_forward}

// ------------------------------------------------------------------------------------- convolution

/// What a constructor was asked for.
typedef struct conv_request {
    const char *name;
    const nd_module_type *type;
    const void *data; ///< of the module
    size_t bytes;
    int64_t in_channels, out_channels, groups;
    bool transposed, bias;
    int axes;
    int64_t kernel[ND_WINDOW_AXES];
} conv_request;

static nd_status check_request(const conv_request *r) {
    char text[ND__SHAPE_TEXT];
    if (r->in_channels < 1 || r->out_channels < 1 || r->in_channels % r->groups != 0 ||
        r->out_channels % r->groups != 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: in_channels is %lld and out_channels %lld; both must be "
                         "at least 1, and multiples of groups, which is %lld",
                         r->name, (long long)r->in_channels, (long long)r->out_channels,
                         (long long)r->groups);
    for (int axis = 0; axis < r->axes; axis++)
        if (r->kernel[axis] < 1)
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: the kernel's sizes are %s and must be at least 1", r->name,
                             nd__shape_text(text, r->axes, r->kernel));
    return ND_OK;
}

/// The module with its weight: [co, ci / groups, kernel], or, transposed, [ci, co / groups,
/// kernel].
static nd_module *convolution(const conv_request *r, nd_key key) {
    if (check_request(r) != ND_OK)
        return NULL;
    int64_t first = r->transposed ? r->in_channels : r->out_channels;
    int64_t second = (r->transposed ? r->out_channels : r->in_channels) / r->groups;
    int64_t shape[2 + ND_WINDOW_AXES] = {first, second}, fan_in = second;
    for (int axis = 0; axis < r->axes; axis++) {
        shape[2 + axis] = r->kernel[axis];
        if (__builtin_mul_overflow(fan_in, r->kernel[axis], &fan_in)) {
            char text[ND__SHAPE_TEXT];
            nd__error(
                ND_ERROR_INVALID_ARGUMENT,
                "%s: the product of the kernel's sizes %s with %lld channels has no 64-bit number",
                r->name, nd__shape_text(text, r->axes, r->kernel), (long long)second);
            return NULL;
        }
    }
    return nd__layers_with_weights(nd__module_new(r->type, r->data, r->bytes), key, 2 + r->axes,
                                   shape, fan_in, r->bias ? r->out_channels : 0);
}

// `word` is empty or _transpose; `of` names the reader of the options. What follows are the
// parameters that are sizes of the kernel, in brackets, and their names.
#define CONVOLUTION(word, which, of, axes_, INIT, is_transposed, parameters, ...)                  \
    typedef struct conv##word##which##_data {                                                      \
        bool bias;                                                                                 \
        nd_conv##word##which##_options options;                                                    \
    } conv##word##which##_data;                                                                    \
    static nd_tensor *conv##word##which##_forward(const nd_module *self, const nd_tensor *x) {     \
        const conv##word##which##_data *data = self->data;                                         \
        return nd_conv##word##which(                                                               \
            x, nd__layers_parameter(self, ND__LAYERS_WEIGHT),                                      \
            data->bias ? nd__layers_parameter(self, ND__LAYERS_BIAS) : NULL, &data->options);      \
    }                                                                                              \
    MODULE_TYPE(conv##word##which);                                                                \
    nd_module *nd_conv##word##which##_module(                                                      \
        nd_key key, int64_t in_channels, int64_t out_channels, ND__EXPAND parameters, bool bias,   \
        const nd_conv##word##which##_options *options) {                                           \
        const char *name = "conv" #word #which "_module";                                          \
        conv##word##which##_data data = {.bias = bias, .options = INIT};                           \
        if (nd__conv_options_##of(name, options, NULL) != ND_OK ||                                 \
            nd__versioned_read(name, #INIT, options, &data.options, sizeof data.options) != ND_OK) \
            return NULL;                                                                           \
        const conv_request request = {.name = name,                                                \
                                      .type = &conv##word##which##_type,                           \
                                      .data = &data,                                               \
                                      .bytes = sizeof data,                                        \
                                      .in_channels = in_channels,                                  \
                                      .out_channels = out_channels,                                \
                                      .groups = data.options.groups,                               \
                                      .transposed = is_transposed,                                 \
                                      .bias = bias,                                                \
                                      .axes = axes_,                                               \
                                      .kernel = {__VA_ARGS__}};                                    \
        return convolution(&request, key);                                                         \
    }
#define ND__EXPAND(...) __VA_ARGS__
CONVOLUTION(, 1d, 1d, 1, ND_CONV1D_OPTIONS_INIT, false, (int64_t kernel), kernel)
CONVOLUTION(, 2d, 2d, 2, ND_CONV2D_OPTIONS_INIT, false, (int64_t kernel_h, int64_t kernel_w),
            kernel_h, kernel_w)
CONVOLUTION(, 3d, 3d, 3, ND_CONV3D_OPTIONS_INIT, false,
            (int64_t kernel_d, int64_t kernel_h, int64_t kernel_w), kernel_d, kernel_h, kernel_w)
CONVOLUTION(_transpose, 1d, transpose1d, 1, ND_CONV_TRANSPOSE1D_OPTIONS_INIT, true,
            (int64_t kernel), kernel)
CONVOLUTION(_transpose, 2d, transpose2d, 2, ND_CONV_TRANSPOSE2D_OPTIONS_INIT, true,
            (int64_t kernel_h, int64_t kernel_w), kernel_h, kernel_w)
CONVOLUTION(_transpose, 3d, transpose3d, 3, ND_CONV_TRANSPOSE3D_OPTIONS_INIT, true,
            (int64_t kernel_d, int64_t kernel_h, int64_t kernel_w), kernel_d, kernel_h, kernel_w)

// ----------------------------------------------------------------------------------------- pooling

#define POOLING(kind, which, INIT)                                                              \
    static nd_tensor *kind##_pool##which##_forward(const nd_module *self, const nd_tensor *x) { \
        return nd_##kind##_pool##which(x, self->data);                                          \
    }                                                                                           \
    MODULE_TYPE(kind##_pool##which);                                                            \
    nd_module *nd_##kind##_pool##which##_module(                                                \
        const nd_##kind##_pool##which##_options *options) {                                     \
        const char *name = #kind "_pool" #which "_module";                                      \
        nd_##kind##_pool##which##_options read = INIT;                                          \
        if (nd__pool_##kind##which##_options(name, options, NULL) != ND_OK ||                   \
            nd__versioned_read(name, #INIT, options, &read, sizeof read) != ND_OK)              \
            return NULL;                                                                        \
        return nd__module_new(&kind##_pool##which##_type, &read, sizeof read);                  \
    }
POOLING(max, 1d, ND_MAX_POOL1D_OPTIONS_INIT)
POOLING(max, 2d, ND_MAX_POOL2D_OPTIONS_INIT)
POOLING(max, 3d, ND_MAX_POOL3D_OPTIONS_INIT)
POOLING(avg, 1d, ND_AVG_POOL1D_OPTIONS_INIT)
POOLING(avg, 2d, ND_AVG_POOL2D_OPTIONS_INIT)
POOLING(avg, 3d, ND_AVG_POOL3D_OPTIONS_INIT)

/// Sizes that adaptive windows shall make: at least 1, or -1.
static nd_module *adaptive(const char *name, const nd_module_type *type, int axes,
                           const int64_t *sizes) {
    char text[ND__SHAPE_TEXT];
    for (int axis = 0; axis < axes; axis++)
        if (sizes[axis] < 1 && sizes[axis] != -1) {
            nd__error(ND_ERROR_INVALID_ARGUMENT,
                      "%s: sizes %s are asked for; each must be at least 1, or -1", name,
                      nd__shape_text(text, axes, sizes));
            return NULL;
        }
    return nd__module_new(type, sizes, (size_t)axes * sizeof *sizes);
}

#define ADAPTIVE(kind, which, axes, parameters, arguments, ...)                      \
    static nd_tensor *adaptive_##kind##_pool##which##_forward(const nd_module *self, \
                                                              const nd_tensor *x) {  \
        const int64_t *s = self->data;                                               \
        return nd_adaptive_##kind##_pool##which(x, ND__EXPAND arguments);            \
    }                                                                                \
    MODULE_TYPE(adaptive_##kind##_pool##which);                                      \
    nd_module *nd_adaptive_##kind##_pool##which##_module(ND__EXPAND parameters) {    \
        const int64_t sizes[] = {__VA_ARGS__};                                       \
        return adaptive("adaptive_" #kind "_pool" #which "_module",                  \
                        &adaptive_##kind##_pool##which##_type, axes, sizes);         \
    }
ADAPTIVE(avg, 1d, 1, (int64_t length), (s[0]), length)
ADAPTIVE(avg, 2d, 2, (int64_t h, int64_t w), (s[0], s[1]), h, w)
ADAPTIVE(avg, 3d, 3, (int64_t d, int64_t h, int64_t w), (s[0], s[1], s[2]), d, h, w)
ADAPTIVE(max, 1d, 1, (int64_t length), (s[0]), length)
ADAPTIVE(max, 2d, 2, (int64_t h, int64_t w), (s[0], s[1]), h, w)
ADAPTIVE(max, 3d, 3, (int64_t d, int64_t h, int64_t w), (s[0], s[1], s[2]), d, h, w)

// ------------------------------------------------------------------------------------- other sizes

static nd_tensor *upsample_forward(const nd_module *self, const nd_tensor *x) {
    return nd_interpolate(x, self->data);
}
MODULE_TYPE(upsample);

nd_module *nd_upsample_module(const nd_interpolate_options *options) {
    nd_interpolate_options read;
    if (nd__interpolate_options_read("upsample_module", options, &read) != ND_OK)
        return NULL;
    return nd__module_new(&upsample_type, &read, sizeof read);
}

static nd_tensor *pixel_shuffle_forward(const nd_module *self, const nd_tensor *x) {
    return nd_pixel_shuffle(x, *(const int64_t *)self->data);
}
MODULE_TYPE(pixel_shuffle);

nd_module *nd_pixel_shuffle_module(int64_t factor) {
    if (factor < 1) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "pixel_shuffle_module: factor is %lld and must be at least 1", (long long)factor);
        return NULL;
    }
    return nd__module_new(&pixel_shuffle_type, &factor, sizeof factor);
}
