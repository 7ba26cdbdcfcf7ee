/// @file
/// Convolution and its transpose over one, two and three axes.
///
/// Images are [n, channels] and one axis (1d: length), two (2d: height, width) or three (3d: depth,
/// height, width); numbers for each axis stand in this order. Operands are of one float dtype;
/// halves are computed in f32. Ownership, devices, errors and threads as in <nd/ops.h>, which
/// includes this header. Every operation has gradients of any order.
#ifndef ND_CONVOLUTION_H
#define ND_CONVOLUTION_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------- convolution
//
// What frameworks call so: windows are not turned around. With options NULL stride and dilation are
// 1, there is no padding, and one group. Whether a weight that is infinite or NaN meets the zeros of a
// padding, and so makes NaN of them, is left open: it depends on sizes, dtype and device. So is whether
// such an element near the end of a row of more than 512 makes NaN of gradients that it has no part in.

/// Options of nd_conv1d().
typedef struct nd_conv1d_options {
    uint32_t size;         ///< sizeof(nd_conv1d_options)
    uint32_t version;      ///< 1
    int64_t stride;        ///< from one window to the next, at least 1
    int64_t padding;       ///< zeros before and behind x, at least 0
    int64_t dilation;      ///< from one element of a window to the next, at least 1
    int64_t groups;        ///< of channels that see only each other; divides ci and co
    int64_t extra_padding; ///< how many zeros more stand behind x than before it; at least -padding
} nd_conv1d_options;
/// What an nd_conv1d_options must begin as: stride 1, no padding, dilation 1, one group.
#define ND_CONV1D_OPTIONS_INIT \
    { sizeof(nd_conv1d_options), 1, 1, 0, 1, 1, 0 }

/// Options of nd_conv2d(). Pairs are of h and w, in this order.
typedef struct nd_conv2d_options {
    uint32_t size;       ///< sizeof(nd_conv2d_options)
    uint32_t version;    ///< 1
    int64_t stride[2];   ///< from one window to the next, at least 1
    int64_t padding[2];  ///< zeros on either side of x, at least 0
    int64_t dilation[2]; ///< from one element of a window to the next, at least 1
    int64_t groups;      ///< of channels that see only each other; divides ci and co
    int64_t
        extra_padding[2]; ///< how many zeros more stand behind x than before it; at least -padding
} nd_conv2d_options;
/// What an nd_conv2d_options must begin as: stride 1, no padding, dilation 1, one group.
#define ND_CONV2D_OPTIONS_INIT                                     \
    {                                                              \
        sizeof(nd_conv2d_options), 1, {1, 1}, {0, 0}, {1, 1}, 1, { \
            0, 0                                                   \
        }                                                          \
    }

/// Options of nd_conv3d(). Numbers are of d, h and w, in this order.
typedef struct nd_conv3d_options {
    uint32_t size;       ///< sizeof(nd_conv3d_options)
    uint32_t version;    ///< 1
    int64_t stride[3];   ///< from one window to the next, at least 1
    int64_t padding[3];  ///< zeros on either side of x, at least 0
    int64_t dilation[3]; ///< from one element of a window to the next, at least 1
    int64_t groups;      ///< of channels that see only each other; divides ci and co
    int64_t
        extra_padding[3]; ///< how many zeros more stand behind x than before it; at least -padding
} nd_conv3d_options;
/// What an nd_conv3d_options must begin as: stride 1, no padding, dilation 1, one group.
#define ND_CONV3D_OPTIONS_INIT                                              \
    {                                                                       \
        sizeof(nd_conv3d_options), 1, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1, { \
            0, 0, 0                                                         \
        }                                                                   \
    }

/// x: [n, ci, l], weight: [co, ci / groups, k], bias: [co] or NULL -> [n, co, ol], where a size s
/// becomes (s + 2 padding + extra_padding - dilation (k - 1) - 1) / stride + 1. Options NULL: as
/// ND_CONV1D_OPTIONS_INIT. A causal convolution has padding dilation (k - 1) and as much less
/// behind.
ND_API nd_tensor *nd_conv1d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                            const nd_conv1d_options *options) ND_OWNED;
/// x: [n, ci, h, w], weight: [co, ci / groups, kh, kw], bias: [co] or NULL -> [n, co, oh, ow],
/// sizes as for nd_conv1d(). Options NULL: as ND_CONV2D_OPTIONS_INIT.
ND_API nd_tensor *nd_conv2d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                            const nd_conv2d_options *options) ND_OWNED;
/// x: [n, ci, d, h, w], weight: [co, ci / groups, kd, kh, kw], bias: [co] or NULL -> [n, co, od,
/// oh, ow], sizes as for nd_conv1d(). Options NULL: as ND_CONV3D_OPTIONS_INIT.
ND_API nd_tensor *nd_conv3d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                            const nd_conv3d_options *options) ND_OWNED;

// -------------------------------------------------------------------------- transposed convolution
//
// The transpose of the convolution as a linear map of x, its gradient: each element of x adds the
// window, times itself, to the result.

/// Options of nd_conv_transpose1d().
typedef struct nd_conv_transpose1d_options {
    uint32_t size;    ///< sizeof(nd_conv_transpose1d_options)
    uint32_t version; ///< 1
    int64_t stride;   ///< in the result, from one element of x to the next; at least 1
    int64_t padding;  ///< what is left out at either end of the result, at least 0
    int64_t
        output_padding; ///< what the result has more at its end; less than the stride or the dilation
    int64_t dilation;   ///< from one element of a window to the next, at least 1
    int64_t groups;     ///< of channels that see only each other; divides ci and co
} nd_conv_transpose1d_options;
/// What an nd_conv_transpose1d_options must begin as: stride 1, no padding, dilation 1, one group.
#define ND_CONV_TRANSPOSE1D_OPTIONS_INIT \
    { sizeof(nd_conv_transpose1d_options), 1, 1, 0, 0, 1, 1 }

/// Options of nd_conv_transpose2d(). Pairs are of h and w, in this order.
typedef struct nd_conv_transpose2d_options {
    uint32_t size;      ///< sizeof(nd_conv_transpose2d_options)
    uint32_t version;   ///< 1
    int64_t stride[2];  ///< in the result, from one element of x to the next; at least 1
    int64_t padding[2]; ///< what is left out on either side of the result, at least 0
    int64_t output_padding
        [2]; ///< what the result has more at its end; less than the stride or the dilation
    int64_t dilation[2]; ///< from one element of a window to the next, at least 1
    int64_t groups;      ///< of channels that see only each other; divides ci and co
} nd_conv_transpose2d_options;
/// What an nd_conv_transpose2d_options must begin as: stride 1, no padding, dilation 1, one group.
#define ND_CONV_TRANSPOSE2D_OPTIONS_INIT \
    { sizeof(nd_conv_transpose2d_options), 1, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1 }

/// Options of nd_conv_transpose3d(). Numbers are of d, h and w, in this order.
typedef struct nd_conv_transpose3d_options {
    uint32_t size;      ///< sizeof(nd_conv_transpose3d_options)
    uint32_t version;   ///< 1
    int64_t stride[3];  ///< in the result, from one element of x to the next; at least 1
    int64_t padding[3]; ///< what is left out on either side of the result, at least 0
    int64_t output_padding
        [3]; ///< what the result has more at its end; less than the stride or the dilation
    int64_t dilation[3]; ///< from one element of a window to the next, at least 1
    int64_t groups;      ///< of channels that see only each other; divides ci and co
} nd_conv_transpose3d_options;
/// What an nd_conv_transpose3d_options must begin as: stride 1, no padding, dilation 1, one group.
#define ND_CONV_TRANSPOSE3D_OPTIONS_INIT \
    { sizeof(nd_conv_transpose3d_options), 1, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}, 1 }

/// x: [n, ci, l], weight: [ci, co / groups, k], bias: [co] or NULL -> [n, co, ol], where a size s
/// becomes (s - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1. Options NULL: as
/// ND_CONV_TRANSPOSE1D_OPTIONS_INIT.
ND_API nd_tensor *nd_conv_transpose1d(const nd_tensor *x, const nd_tensor *weight,
                                      const nd_tensor *bias,
                                      const nd_conv_transpose1d_options *options) ND_OWNED;
/// x: [n, ci, h, w], weight: [ci, co / groups, kh, kw], bias: [co] or NULL -> [n, co, oh, ow],
/// sizes as for nd_conv_transpose1d(). Options NULL: as ND_CONV_TRANSPOSE2D_OPTIONS_INIT.
ND_API nd_tensor *nd_conv_transpose2d(const nd_tensor *x, const nd_tensor *weight,
                                      const nd_tensor *bias,
                                      const nd_conv_transpose2d_options *options) ND_OWNED;
/// x: [n, ci, d, h, w], weight: [ci, co / groups, kd, kh, kw], bias: [co] or NULL -> [n, co, od,
/// oh, ow], sizes as for nd_conv_transpose1d(). Options NULL: as ND_CONV_TRANSPOSE3D_OPTIONS_INIT.
ND_API nd_tensor *nd_conv_transpose3d(const nd_tensor *x, const nd_tensor *weight,
                                      const nd_tensor *bias,
                                      const nd_conv_transpose3d_options *options) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
