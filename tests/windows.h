// Options of convolution and pooling from numbers, with the address of a literal that lives in the
// block around it.
#ifndef ND_TESTS_WINDOWS_H
#define ND_TESTS_WINDOWS_H
#include <nd/ops.h>

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
