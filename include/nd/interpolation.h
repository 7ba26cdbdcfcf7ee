/// @file
/// Images of other sizes: interpolation, shuffling of pixels, windows as columns.
///
/// Images, halves, ownership, devices, errors, threads and gradients as in <nd/convolution.h>.
#ifndef ND_INTERPOLATION_H
#define ND_INTERPOLATION_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// How an element between those of x is made.
typedef enum nd_interpolation {
    /// The element at i s / o, rounded down, for element i of o made of s.
    ND_INTERPOLATION_NEAREST,
    /// The one whose centre is nearest: at (i + 0.5) s / o, rounded down.
    ND_INTERPOLATION_NEAREST_EXACT,
    /// Between the two elements beside it along each axis: linear, bilinear, trilinear.
    ND_INTERPOLATION_LINEAR,
    /// Of the four elements around it along each axis (Keys 1981, a = -0.75): bicubic of two axes.
    ND_INTERPOLATION_CUBIC,
} nd_interpolation;

/// Options of nd_interpolate(). As many sizes, or scales, are read as x has axes behind its
/// channels; of each axis one of the two is set.
typedef struct nd_interpolate_options {
    uint32_t size;         ///< sizeof(nd_interpolate_options)
    uint32_t version;      ///< 1
    int64_t sizes[3];      ///< of the result; 0: by the scale
    double scales[3];      ///< the result's size over x's, rounded down; 0: by the size
    nd_interpolation mode; ///< how elements are made
    /// LINEAR, CUBIC: the centres of the first elements of x and the result coincide, and those of
    /// the last; else their outer edges do.
    bool align_corners;
} nd_interpolate_options;
/// What an nd_interpolate_options must begin as: nearest; sizes or scales must be set.
#define ND_INTERPOLATE_OPTIONS_INIT \
    { sizeof(nd_interpolate_options), 1, {0, 0, 0}, {0, 0, 0}, ND_INTERPOLATION_NEAREST, false }
/// x: [n, c, one to three axes] -> the same with other sizes. Element i of an axis stands over
/// (i + 0.5) s / o - 0.5 of x, where s / o is 1 / scale if that was given; elements beyond an end
/// are the end's. No size may exceed 2^31 - 1.
ND_API nd_tensor *nd_interpolate(const nd_tensor *x,
                                 const nd_interpolate_options *options) ND_OWNED;

/// x: [..., c factor^2, h, w] -> [..., c, h factor, w factor] (Shi and others 2016). No view of x,
/// whatever the factor.
ND_API nd_tensor *nd_pixel_shuffle(const nd_tensor *x, int64_t factor) ND_OWNED;
/// The inverse: x: [..., c, h factor, w factor] -> [..., c factor^2, h, w]. No view of x either.
ND_API nd_tensor *nd_pixel_unshuffle(const nd_tensor *x, int64_t factor) ND_OWNED;

/// Options of nd_unfold() and nd_fold(). Pairs are of h and w, in this order.
typedef struct nd_unfold_options {
    uint32_t size;       ///< sizeof(nd_unfold_options)
    uint32_t version;    ///< 1
    int64_t kernel[2];   ///< size of a window; must be set
    int64_t stride[2];   ///< from one window to the next, at least 1
    int64_t padding[2];  ///< zeros on either side of x, at least 0
    int64_t dilation[2]; ///< from one element of a window to the next, at least 1
} nd_unfold_options;
/// What an nd_unfold_options must begin as; `kernel` must be set. Stride 1, no padding, dilation 1.
#define ND_UNFOLD_OPTIONS_INIT                                  \
    {                                                           \
        sizeof(nd_unfold_options), 1, {0, 0}, {1, 1}, {0, 0}, { \
            1, 1                                                \
        }                                                       \
    }
/// Every window as a column (im2col): x: [n, c, h, w] -> [n, c kh kw, windows], of which there are
/// as many as nd_conv2d() has results.
ND_API nd_tensor *nd_unfold(const nd_tensor *x, const nd_unfold_options *options) ND_OWNED;
/// Columns added up where they came from (col2im): x: [n, c kh kw, windows] -> [n, c, h, w].
ND_API nd_tensor *nd_fold(const nd_tensor *x, int64_t h, int64_t w,
                          const nd_unfold_options *options) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
