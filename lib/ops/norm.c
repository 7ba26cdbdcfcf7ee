// Normalisation: layer, RMS, group, batch and instance norm, as compositions of recorded
// operations.
//
// Statistics are computed in f64 for f64 and in f32 for everything else. Running statistics are
// written last, when the result is made, and unrecorded.
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/autocast.h"
#include "lib/ops/operands.h"
#include "lib/ops/precision.h"
#include "lib/tensor/overlap.h"
#include "lib/tensor/shape.h"
#include <math.h>
#include <nd/autograd.h>
#include <nd/neural.h>

static nd_status check_epsilon(const char *name, double epsilon) {
    if (epsilon >= 0.0 && isfinite(epsilon))
        return ND_OK;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: epsilon is %g and must be finite, at least 0",
                     name, epsilon);
}

/// Weight or bias: NULL, or of this shape beside x, in a dtype that goes with x's.
static nd_status check_parameter(const char *name, const char *argument, const nd_tensor *x,
                                 const nd_tensor *parameter, int ndim, const int64_t *shape) {
    if (!parameter)
        return ND_OK;
    nd_status status = nd__operands_check_pair(name, "x", x, argument, parameter);
    if (status == ND_OK)
        status = nd__precision_check_beside(name, argument, parameter, x);
    if (status != ND_OK)
        return status;
    bool fits = parameter->ndim == ndim;
    for (int i = 0; i < ndim && fits; i++)
        fits = parameter->shape[i] == shape[i];
    if (fits)
        return ND_OK;
    char got[ND__SHAPE_TEXT], wanted[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE, "%s: %s has shape %s and must have %s", name, argument,
                     nd__shape_text(got, parameter->ndim, parameter->shape),
                     nd__shape_text(wanted, ndim, shape));
}

/// The root of (variance + epsilon), inverted.
static nd_tensor *inverse_deviation(const nd_tensor *variance, double epsilon) {
    nd_auto nd_tensor *shifted = nd_add_scalar(variance, epsilon);
    nd_auto nd_tensor *root = nd_sqrt(shifted);
    return nd_reciprocal(root);
}

/// Multiplies with weight and adds bias, seen in this shape, and gives the dtype of the operand
/// back (f32 for a half inside nd_autocast).
static nd_tensor *scaled(const nd_tensor *normal, const nd_tensor *weight, const nd_tensor *bias,
                         int ndim, const int64_t *shape, nd_dtype dtype) {
    if (!normal)
        return NULL;
    nd_auto nd_tensor *result = nd_retain(normal);
    if (weight) {
        nd_auto nd_tensor *wide = nd_cast(weight, normal->dtype);
        nd_auto nd_tensor *seen = nd_reshape(wide, ndim, shape);
        nd_tensor *product = nd_mul(result, seen);
        nd_release(result);
        result = product;
    }
    if (bias) {
        nd_auto nd_tensor *wide = nd_cast(bias, normal->dtype);
        nd_auto nd_tensor *seen = nd_reshape(wide, ndim, shape);
        nd_tensor *sum = nd_add(result, seen);
        nd_release(result);
        result = sum;
    }
    return result ? nd__operands_as_dtype(result, nd__autocast_result(dtype)) : NULL;
}

/// x, in the dtype it is computed in, over the deviation of the axes; its mean is taken away when
/// `centered`.
static nd_tensor *normalised(const nd_tensor *x, int naxes, const int *axes, double epsilon,
                             bool centered) {
    nd_auto nd_tensor *mean = centered ? nd_mean(x, naxes, axes, true) : NULL;
    nd_auto nd_tensor *center = centered ? nd_sub(x, mean) : nd_retain(x);
    nd_auto nd_tensor *square = nd_square(center);
    nd_auto nd_tensor *variance = nd_mean(square, naxes, axes, true);
    nd_auto nd_tensor *inverse = inverse_deviation(variance, epsilon);
    return nd_mul(center, inverse);
}

// -------------------------------------------------------------------------------------------------
// over the last axes

static nd_tensor *norm_of_last_axes(const char *name, const nd_tensor *x, const nd_tensor *weight,
                                    const nd_tensor *bias, double epsilon, int naxes,
                                    bool centered) {
    nd_dtype dtype;
    if (nd__precision_check(name, "x", x, &dtype) != ND_OK || check_epsilon(name, epsilon) != ND_OK)
        return NULL;
    if (naxes < 1 || naxes > x->ndim) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: naxes is %d and must be 1 ... %d, the axes of x",
                  name, naxes, x->ndim);
        return NULL;
    }
    const int64_t *shape = x->shape + x->ndim - naxes;
    if (check_parameter(name, "weight", x, weight, naxes, shape) != ND_OK ||
        check_parameter(name, "bias", x, bias, naxes, shape) != ND_OK)
        return NULL;
    int axes[ND_MAX_DIMS];
    for (int i = 0; i < naxes; i++)
        axes[i] = x->ndim - naxes + i;
    nd_auto nd_tensor *wide = nd__operands_as_dtype(x, dtype);
    nd_auto nd_tensor *normal = normalised(wide, naxes, axes, epsilon, centered);
    return scaled(normal, weight, bias, naxes, shape, x->dtype);
}

nd_tensor *nd_layer_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                         double epsilon, int naxes) {
    ND__AUTOCAST(raise, x, weight, bias, nd_layer_norm(x0, x1, x2, epsilon, naxes))
    return norm_of_last_axes("layer_norm", x, weight, bias, epsilon, naxes, true);
}

nd_tensor *nd_rms_norm(const nd_tensor *x, const nd_tensor *weight, double epsilon, int naxes) {
    return norm_of_last_axes("rms_norm", x, weight, NULL, epsilon, naxes, false);
}

// -------------------------------------------------------------------------------------------------
// by channel

/// x: [n, c, ...] with at least `least` axes, and weight and bias: [c].
static nd_status check_channels(const char *name, const nd_tensor *x, const nd_tensor *weight,
                                const nd_tensor *bias, int least, nd_dtype *ret_dtype) {
    nd_status status = nd__precision_check(name, "x", x, ret_dtype);
    if (status != ND_OK)
        return status;
    if (x->ndim < least) {
        char text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must be %s", name,
                         nd__shape_text(text, x->ndim, x->shape),
                         least > 2 ? "[n, c, ...] with an axis of places" : "[n, c, ...]");
    }
    status = check_parameter(name, "weight", x, weight, 1, x->shape + 1);
    return status == ND_OK ? check_parameter(name, "bias", x, bias, 1, x->shape + 1) : status;
}

/// [1, c, 1, ...]: how a value of each channel is seen from x.
static void channel_shape(const nd_tensor *x, int64_t *ret_shape) {
    for (int i = 0; i < x->ndim; i++)
        ret_shape[i] = i == 1 ? x->shape[1] : 1;
}

nd_tensor *nd_group_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                         int64_t groups, double epsilon) {
    const char *name = "group_norm";
    nd_dtype dtype;
    if (check_channels(name, x, weight, bias, 2, &dtype) != ND_OK ||
        check_epsilon(name, epsilon) != ND_OK)
        return NULL;
    if (groups < 1 || x->shape[1] % groups != 0) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "%s: groups is %lld and must divide the %lld channels of x", name,
                  (long long)groups, (long long)x->shape[1]);
        return NULL;
    }
    int64_t grouped[] = {x->shape[0], groups, x->shape[1] / groups}, channels[ND_MAX_DIMS];
    for (int i = 2; i < x->ndim; i++)
        grouped[2] *= x->shape[i];
    channel_shape(x, channels);
    nd_auto nd_tensor *wide = nd__operands_as_dtype(x, dtype);
    nd_auto nd_tensor *runs = nd_reshape(wide, 3, grouped);
    const int axis = 2;
    nd_auto nd_tensor *normal = normalised(runs, 1, &axis, epsilon, true);
    nd_auto nd_tensor *back = nd_reshape(normal, x->ndim, x->shape);
    return scaled(back, weight, bias, x->ndim, channels, x->dtype);
}

/// What nd_batch_norm and nd_instance_norm were asked for.
typedef struct batch_norm {
    const char *name;
    const nd_tensor *x, *weight, *bias;
    nd_tensor *running_mean, *running_var;
    nd_batch_norm_options options;
    nd_dtype dtype;    ///< computed in
    int first_reduced; ///< axes of a group: this one and all behind the channels
    bool own;          ///< normalised by x's own statistics
} batch_norm;

/// Elements that one mean is of.
static int64_t elements_per_mean(const batch_norm *n) {
    int64_t elements = n->first_reduced == 0 ? n->x->shape[0] : 1;
    for (int i = 2; i < n->x->ndim; i++)
        elements *= n->x->shape[i];
    return elements;
}

static nd_status check_running(const batch_norm *n) {
    if (!n->running_mean != !n->running_var)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is NULL and %s is not", n->name,
                         n->running_mean ? "running_var" : "running_mean",
                         n->running_mean ? "running_mean" : "running_var");
    if (n->running_mean && n->running_mean == n->running_var)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: running_mean and running_var are one tensor", n->name);
    nd_status status =
        check_parameter(n->name, "running_mean", n->x, n->running_mean, 1, n->x->shape + 1);
    return status == ND_OK
               ? check_parameter(n->name, "running_var", n->x, n->running_var, 1, n->x->shape + 1)
               : status;
}

/// Both are written or none.
static nd_status check_written(const char *name, const char *argument, const nd_tensor *running) {
    nd_status status = nd__tensor_check_writable(name, argument, running);
    return status == ND_OK && nd__overlap_within(running)
               ? nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: elements of %s share memory", name,
                           argument)
               : status;
}

static nd_status check_batch_norm(batch_norm *n, const nd_batch_norm_options *options) {
    nd_batch_norm_options read = ND_BATCH_NORM_OPTIONS_INIT;
    nd_status status =
        check_channels(n->name, n->x, n->weight, n->bias, n->first_reduced == 0 ? 2 : 3, &n->dtype);
    if (status == ND_OK)
        status =
            nd__versioned_read(n->name, "ND_BATCH_NORM_OPTIONS_INIT", options, &read, sizeof read);
    if (status == ND_OK)
        status = check_epsilon(n->name, read.epsilon);
    if (status == ND_OK && !(read.momentum >= 0.0 && read.momentum <= 1.0))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: momentum is %g and must be 0 to 1",
                           n->name, read.momentum);
    if (status == ND_OK)
        status = check_running(n);
    if (status == ND_OK && read.training && n->running_mean)
        status = check_written(n->name, "running_mean", n->running_mean);
    if (status == ND_OK && read.training && n->running_mean)
        status = check_written(n->name, "running_var", n->running_var);
    if (status != ND_OK)
        return status;
    n->options = read;
    n->own = read.training || !n->running_mean;
    if (n->own && elements_per_mean(n) == 1 && n->x->numel > 0) {
        char text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s, so that each mean is of one element",
                         n->name, nd__shape_text(text, n->x->ndim, n->x->shape));
    }
    return ND_OK;
}

/// What one running statistic becomes with the statistic of this batch: [n or 1, c, 1, ...].
static nd_tensor *updated(const batch_norm *n, const nd_tensor *running, const nd_tensor *batch,
                          double factor) {
    const int samples = 0;
    nd_auto nd_tensor *mean = nd_mean(batch, 1, &samples, false);
    nd_auto nd_tensor *flat = nd_reshape(mean, 1, n->x->shape + 1);
    nd_auto nd_tensor *part = nd_mul_scalar(flat, n->options.momentum * factor);
    nd_auto nd_tensor *wide = nd_cast(running, n->dtype);
    nd_auto nd_tensor *kept = nd_mul_scalar(wide, 1.0 - n->options.momentum);
    return nd_add(kept, part);
}

/// Writes both running statistics, when both are computed.
static nd_status update_running(const batch_norm *n, const nd_tensor *mean,
                                const nd_tensor *variance) {
    double elements = (double)elements_per_mean(n);
    nd_status status = ND_OK;
    nd_no_grad {
        nd_auto nd_tensor *next_mean = updated(n, n->running_mean, mean, 1.0);
        nd_auto nd_tensor *next_var =
            updated(n, n->running_var, variance, elements / (elements - 1.0));
        status = next_mean && next_var ? ND_OK : nd_error_get_status();
        if (status == ND_OK)
            status = nd_copy_(n->running_mean, next_mean);
        if (status == ND_OK)
            status = nd_copy_(n->running_var, next_var);
    }
    return status;
}

static nd_tensor *by_own_statistics(const batch_norm *n, const nd_tensor *x,
                                    const int64_t *channels) {
    int axes[ND_MAX_DIMS], naxes = 0;
    for (int i = n->first_reduced; i < x->ndim; i++)
        if (i != 1)
            axes[naxes++] = i;
    nd_auto nd_tensor *mean = nd_mean(x, naxes, axes, true);
    nd_auto nd_tensor *center = nd_sub(x, mean);
    nd_auto nd_tensor *square = nd_square(center);
    nd_auto nd_tensor *variance = nd_mean(square, naxes, axes, true);
    nd_auto nd_tensor *inverse = inverse_deviation(variance, n->options.epsilon);
    nd_auto nd_tensor *normal = nd_mul(center, inverse);
    nd_auto nd_tensor *result = scaled(normal, n->weight, n->bias, x->ndim, channels, n->x->dtype);
    // There is nothing to learn from a batch of nothing.
    bool updates = n->running_mean && n->options.training && n->x->numel > 0;
    if (!result || (updates && update_running(n, mean, variance) != ND_OK))
        return NULL;
    return nd_steal(&result);
}

static nd_tensor *by_running_statistics(const batch_norm *n, const nd_tensor *x,
                                        const int64_t *channels) {
    nd_auto nd_tensor *wide_mean = nd_cast(n->running_mean, n->dtype);
    nd_auto nd_tensor *wide_var = nd_cast(n->running_var, n->dtype);
    nd_auto nd_tensor *mean = nd_reshape(wide_mean, x->ndim, channels);
    nd_auto nd_tensor *variance = nd_reshape(wide_var, x->ndim, channels);
    nd_auto nd_tensor *inverse = inverse_deviation(variance, n->options.epsilon);
    nd_auto nd_tensor *center = nd_sub(x, mean);
    nd_auto nd_tensor *normal = nd_mul(center, inverse);
    return scaled(normal, n->weight, n->bias, x->ndim, channels, n->x->dtype);
}

static nd_tensor *batch_norm_of(batch_norm *n, const nd_batch_norm_options *options) {
    if (check_batch_norm(n, options) != ND_OK)
        return NULL;
    int64_t channels[ND_MAX_DIMS];
    channel_shape(n->x, channels);
    nd_auto nd_tensor *wide = nd__operands_as_dtype(n->x, n->dtype);
    if (!wide)
        return NULL;
    return n->own ? by_own_statistics(n, wide, channels) : by_running_statistics(n, wide, channels);
}

nd_tensor *nd_batch_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                         nd_tensor *running_mean, nd_tensor *running_var,
                         const nd_batch_norm_options *options) {
    ND__AUTOCAST(raise, x, weight, bias,
                 nd_batch_norm(x0, x1, x2, running_mean, running_var, options))
    batch_norm n = {.name = "batch_norm",
                    .x = x,
                    .weight = weight,
                    .bias = bias,
                    .running_mean = running_mean,
                    .running_var = running_var};
    return batch_norm_of(&n, options);
}

nd_tensor *nd_instance_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                            nd_tensor *running_mean, nd_tensor *running_var,
                            const nd_batch_norm_options *options) {
    batch_norm n = {.name = "instance_norm",
                    .x = x,
                    .weight = weight,
                    .bias = bias,
                    .running_mean = running_mean,
                    .running_var = running_var,
                    .first_reduced = 2};
    return batch_norm_of(&n, options);
}
