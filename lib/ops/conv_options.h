// The options of convolutions, read and checked: one form for one, two and three axes.
#ifndef ND_LIB_OPS_CONV_OPTIONS_H
#define ND_LIB_OPS_CONV_OPTIONS_H
#include "lib/ops/conv.h"

/// What a program asked for, by axis of three. Of a convolution, or of a transposed one.
typedef struct nd__conv_options {
    nd__conv_geometry geometry;
    int64_t extra_padding[ND_WINDOW_AXES];  ///< 0 of a transposed one
    int64_t output_padding[ND_WINDOW_AXES]; ///< 0 of one that is not
} nd__conv_options;

// Each reads the options that a program gave to an operation, or to a module that holds them; NULL:
// the defaults. Errors as in lib/base/versioned.h, and ND_ERROR_INVALID_ARGUMENT for a number that
// no convolution can have; then nothing is written. ret_options may be NULL.
nd_status nd__conv_options_1d(const char *name, const nd_conv1d_options *options,
                              nd__conv_options *ret_options);
nd_status nd__conv_options_2d(const char *name, const nd_conv2d_options *options,
                              nd__conv_options *ret_options);
nd_status nd__conv_options_3d(const char *name, const nd_conv3d_options *options,
                              nd__conv_options *ret_options);
nd_status nd__conv_options_transpose1d(const char *name, const nd_conv_transpose1d_options *options,
                                       nd__conv_options *ret_options);
nd_status nd__conv_options_transpose2d(const char *name, const nd_conv_transpose2d_options *options,
                                       nd__conv_options *ret_options);
nd_status nd__conv_options_transpose3d(const char *name, const nd_conv_transpose3d_options *options,
                                       nd__conv_options *ret_options);
#endif
