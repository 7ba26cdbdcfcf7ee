// Options of convolution and pooling from numbers, with the address of a literal that lives in the
// block around it, and cases of convolutions.
#ifndef ND_TESTS_WINDOWS_H
#define ND_TESTS_WINDOWS_H
#include <nd/ops.h>

/// A convolution of two axes; ci is that of x, and the weight has ci / groups.
typedef struct conv_case {
    int64_t n, ci, h, w, co, kh, kw;
    int64_t stride[2], padding[2], dilation[2], groups;
} conv_case;

/// Both axes alike.
#define CONV(stride, padding) CONV_WITH(stride, stride, padding, padding, 1, 1, 1)
/// Each pair of h and w.
#define CONV_WITH(stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups) \
    (&(const nd_conv2d_options){sizeof(nd_conv2d_options),                                  \
                                1,                                                          \
                                {stride_h, stride_w},                                       \
                                {padding_h, padding_w},                                     \
                                {dilation_h, dilation_w},                                   \
                                groups,                                                     \
                                {0, 0}})

#define POOL(kernel, stride) POOL_WITH(kernel, kernel, stride, stride, 0, 0, 1, 1)
#define POOL_WITH(kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, \
                  dilation_w)                                                               \
    (&(const nd_max_pool2d_options){sizeof(nd_max_pool2d_options),                          \
                                    1,                                                      \
                                    {kernel_h, kernel_w},                                   \
                                    {stride_h, stride_w},                                   \
                                    {padding_h, padding_w},                                 \
                                    {dilation_h, dilation_w},                               \
                                    false})
#endif
