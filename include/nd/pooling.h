/// @file
/// Pooling: the largest or the mean element of windows that move over images.
///
/// Images, halves, ownership, devices, errors, threads and gradients as in <nd/convolution.h>.
#ifndef ND_POOLING_H
#define ND_POOLING_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

// Sizes: a size s becomes (s + 2 padding - dilation (kernel - 1) - 1) / stride + 1, rounded down,
// or with ceil_mode rounded up: then the last window may reach beyond the padding, but begins
// before it.

// ----------------------------------------------------------------------------------------- largest

/// Options of nd_max_pool1d().
typedef struct nd_max_pool1d_options {
    uint32_t size;    ///< sizeof(nd_max_pool1d_options)
    uint32_t version; ///< 1
    int64_t kernel;   ///< size of a window; must be set
    int64_t stride;   ///< from one window to the next; 0: the kernel's size
    /// Places on either side of x that are never chosen; at most half of the kernel.
    int64_t padding;
    int64_t dilation; ///< from one element of a window to the next, at least 1
    bool ceil_mode;   ///< rounds the number of windows up
} nd_max_pool1d_options;
/// What an nd_max_pool1d_options must begin as; `kernel` must be set. Stride of the kernel's size,
/// no padding, dilation 1, numbers of windows rounded down.
#define ND_MAX_POOL1D_OPTIONS_INIT \
    { sizeof(nd_max_pool1d_options), 1, 0, 0, 0, 1, false }

/// Options of nd_max_pool2d(). Pairs are of h and w, in this order.
typedef struct nd_max_pool2d_options {
    uint32_t size;     ///< sizeof(nd_max_pool2d_options)
    uint32_t version;  ///< 1
    int64_t kernel[2]; ///< size of a window; must be set
    int64_t stride[2]; ///< from one window to the next; 0: the kernel's size
    /// Places on either side of x that are never chosen; at most half of the kernel.
    int64_t padding[2];
    int64_t dilation[2]; ///< from one element of a window to the next, at least 1
    bool ceil_mode;      ///< rounds the number of windows up
} nd_max_pool2d_options;
/// What an nd_max_pool2d_options must begin as; `kernel` must be set. Stride of the kernel's size,
/// no padding, dilation 1, numbers of windows rounded down.
#define ND_MAX_POOL2D_OPTIONS_INIT \
    { sizeof(nd_max_pool2d_options), 1, {0, 0}, {0, 0}, {0, 0}, {1, 1}, false }

/// Options of nd_max_pool3d(). Numbers are of d, h and w, in this order.
typedef struct nd_max_pool3d_options {
    uint32_t size;     ///< sizeof(nd_max_pool3d_options)
    uint32_t version;  ///< 1
    int64_t kernel[3]; ///< size of a window; must be set
    int64_t stride[3]; ///< from one window to the next; 0: the kernel's size
    /// Places on either side of x that are never chosen; at most half of the kernel.
    int64_t padding[3];
    int64_t dilation[3]; ///< from one element of a window to the next, at least 1
    bool ceil_mode;      ///< rounds the number of windows up
} nd_max_pool3d_options;
/// What an nd_max_pool3d_options must begin as; `kernel` must be set. Stride of the kernel's size,
/// no padding, dilation 1, numbers of windows rounded down.
#define ND_MAX_POOL3D_OPTIONS_INIT \
    { sizeof(nd_max_pool3d_options), 1, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}, false }

/// Largest element of each window; NaN wins, and of equal elements the first gets the gradient. x:
/// [n, c, l] -> [n, c, ol]. A window that reaches no element of x, as a dilation beyond its size
/// allows, is ND_ERROR_SHAPE.
ND_API nd_tensor *nd_max_pool1d(const nd_tensor *x, const nd_max_pool1d_options *options) ND_OWNED;
/// As nd_max_pool1d(): x: [n, c, h, w] -> [n, c, oh, ow].
ND_API nd_tensor *nd_max_pool2d(const nd_tensor *x, const nd_max_pool2d_options *options) ND_OWNED;
/// As nd_max_pool1d(): x: [n, c, d, h, w] -> [n, c, od, oh, ow].
ND_API nd_tensor *nd_max_pool3d(const nd_tensor *x, const nd_max_pool3d_options *options) ND_OWNED;

/// nd_max_pool1d(), and where in x's axes, counted in row-major order from the beginning of each
/// channel, the element stands that was chosen: i64, of the result's shape. Both owned by the
/// caller.
ND_API nd_status nd_max_pool1d_with_indices(const nd_tensor *x,
                                            const nd_max_pool1d_options *options,
                                            nd_tensor **ret_values, nd_tensor **ret_indices);
/// The same for nd_max_pool2d().
ND_API nd_status nd_max_pool2d_with_indices(const nd_tensor *x,
                                            const nd_max_pool2d_options *options,
                                            nd_tensor **ret_values, nd_tensor **ret_indices);
/// The same for nd_max_pool3d().
ND_API nd_status nd_max_pool3d_with_indices(const nd_tensor *x,
                                            const nd_max_pool3d_options *options,
                                            nd_tensor **ret_values, nd_tensor **ret_indices);

// -------------------------------------------------------------------------------------------- mean

/// Options of nd_avg_pool1d().
typedef struct nd_avg_pool1d_options {
    uint32_t size;          ///< sizeof(nd_avg_pool1d_options)
    uint32_t version;       ///< 1
    int64_t kernel;         ///< size of a window; must be set
    int64_t stride;         ///< from one window to the next; 0: the kernel's size
    int64_t padding;        ///< zeros on either side of x; at most half of the kernel
    bool ceil_mode;         ///< rounds the number of windows up
    bool count_include_pad; ///< whether the zeros of the padding count in the divisor
    int64_t divisor;        ///< what sums are divided by; 0: the number of elements of the window
} nd_avg_pool1d_options;
/// What an nd_avg_pool1d_options must begin as; `kernel` must be set. Stride of the kernel's size,
/// no padding, numbers of windows rounded down, and a padding would count.
#define ND_AVG_POOL1D_OPTIONS_INIT \
    { sizeof(nd_avg_pool1d_options), 1, 0, 0, 0, false, true, 0 }

/// Options of nd_avg_pool2d(). Pairs are of h and w, in this order.
typedef struct nd_avg_pool2d_options {
    uint32_t size;          ///< sizeof(nd_avg_pool2d_options)
    uint32_t version;       ///< 1
    int64_t kernel[2];      ///< size of a window; must be set
    int64_t stride[2];      ///< from one window to the next; 0: the kernel's size
    int64_t padding[2];     ///< zeros on either side of x; at most half of the kernel
    bool ceil_mode;         ///< rounds the number of windows up
    bool count_include_pad; ///< whether the zeros of the padding count in the divisor
    int64_t divisor;        ///< what sums are divided by; 0: the number of elements of the window
} nd_avg_pool2d_options;
/// What an nd_avg_pool2d_options must begin as; `kernel` must be set. Stride of the kernel's size,
/// no padding, numbers of windows rounded down, and a padding would count.
#define ND_AVG_POOL2D_OPTIONS_INIT \
    { sizeof(nd_avg_pool2d_options), 1, {0, 0}, {0, 0}, {0, 0}, false, true, 0 }

/// Options of nd_avg_pool3d(). Numbers are of d, h and w, in this order.
typedef struct nd_avg_pool3d_options {
    uint32_t size;          ///< sizeof(nd_avg_pool3d_options)
    uint32_t version;       ///< 1
    int64_t kernel[3];      ///< size of a window; must be set
    int64_t stride[3];      ///< from one window to the next; 0: the kernel's size
    int64_t padding[3];     ///< zeros on either side of x; at most half of the kernel
    bool ceil_mode;         ///< rounds the number of windows up
    bool count_include_pad; ///< whether the zeros of the padding count in the divisor
    int64_t divisor;        ///< what sums are divided by; 0: the number of elements of the window
} nd_avg_pool3d_options;
/// What an nd_avg_pool3d_options must begin as; `kernel` must be set. Stride of the kernel's size,
/// no padding, numbers of windows rounded down, and a padding would count.
#define ND_AVG_POOL3D_OPTIONS_INIT \
    { sizeof(nd_avg_pool3d_options), 1, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, false, true, 0 }

/// Mean of each window: x: [n, c, l] -> [n, c, ol]. What a window of ceil_mode has beyond the
/// padding does not count.
ND_API nd_tensor *nd_avg_pool1d(const nd_tensor *x, const nd_avg_pool1d_options *options) ND_OWNED;
/// As nd_avg_pool1d(): x: [n, c, h, w] -> [n, c, oh, ow].
ND_API nd_tensor *nd_avg_pool2d(const nd_tensor *x, const nd_avg_pool2d_options *options) ND_OWNED;
/// As nd_avg_pool1d(): x: [n, c, d, h, w] -> [n, c, od, oh, ow].
ND_API nd_tensor *nd_avg_pool3d(const nd_tensor *x, const nd_avg_pool3d_options *options) ND_OWNED;

// ---------------------------------------------------------------------------------------- adaptive
//
// So many windows as are asked for: window i of o over a size s is [i s / o, (i + 1) s / o), its
// begin rounded down and its end up, so that neighbours may overlap. A size of -1 leaves the axis
// as it is.

/// Means of adaptive windows: x: [n, c, l] -> [n, c, length].
ND_API nd_tensor *nd_adaptive_avg_pool1d(const nd_tensor *x, int64_t length) ND_OWNED;
/// Means of adaptive windows: x: [n, c, xh, xw] -> [n, c, h, w].
ND_API nd_tensor *nd_adaptive_avg_pool2d(const nd_tensor *x, int64_t h, int64_t w) ND_OWNED;
/// Means of adaptive windows: x: [n, c, xd, xh, xw] -> [n, c, d, h, w].
ND_API nd_tensor *nd_adaptive_avg_pool3d(const nd_tensor *x, int64_t d, int64_t h,
                                         int64_t w) ND_OWNED;
/// Largest elements, with ties and NaN as nd_max_pool1d() of adaptive windows: x: [n, c, l] -> [n,
/// c, length].
ND_API nd_tensor *nd_adaptive_max_pool1d(const nd_tensor *x, int64_t length) ND_OWNED;
/// Largest elements, with ties and NaN as nd_max_pool1d() of adaptive windows: x: [n, c, xh, xw] ->
/// [n, c, h, w].
ND_API nd_tensor *nd_adaptive_max_pool2d(const nd_tensor *x, int64_t h, int64_t w) ND_OWNED;
/// Largest elements, with ties and NaN as nd_max_pool1d() of adaptive windows: x: [n, c, xd, xh,
/// xw] -> [n, c, d, h, w].
ND_API nd_tensor *nd_adaptive_max_pool3d(const nd_tensor *x, int64_t d, int64_t h,
                                         int64_t w) ND_OWNED;

/// Mean of each channel: x: [n, c, one to three axes] -> [n, c, 1, ...].
ND_API nd_tensor *nd_global_avg_pool(const nd_tensor *x) ND_OWNED;
/// Largest element of each channel, with ties and NaN as nd_max_pool1d(): x: [n, c, one to three
/// axes] -> [n, c, 1, ...].
ND_API nd_tensor *nd_global_max_pool(const nd_tensor *x) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
