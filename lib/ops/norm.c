// Normalisation: layer, RMS, group, instance and batch norm, in one kernel, which is told what is
// normalised by itself (NORM in kernels/kernel.h).
//
// Statistics are computed in f64 for f64 and in f32 for everything else. x of 16 bits is cast to f32
// before and back behind, but where the device has kernels that read and write it as it is, or, under
// autocast, read it as it is and write f32. Running
// statistics are written last, when the result is made, and unrecorded.
#include "lib/ops/norm.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/autocast.h"
#include "lib/ops/operands.h"
#include "lib/ops/precision.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/overlap.h"
#include "lib/tensor/record.h"
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

static nd_status check_shape(const char *name, const char *argument, const nd_tensor *parameter,
                             int ndim, const int64_t *shape) {
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

/// Weight or bias: NULL, or of this shape beside x, in a dtype that goes with x's.
static nd_status check_parameter(const char *name, const char *argument, const nd_tensor *x,
                                 const nd_tensor *parameter, int ndim, const int64_t *shape) {
    if (!parameter)
        return ND_OK;
    nd_status status = nd__operands_check_pair(name, "x", x, argument, parameter);
    if (status == ND_OK)
        status = nd__precision_check_beside(name, argument, parameter, x);
    return status == ND_OK ? check_shape(name, argument, parameter, ndim, shape) : status;
}

// -------------------------------------------------------------------------------------------------
// the kernels

nd_op_attrs nd__norm_attrs(int64_t samples, int64_t channels, int64_t places, int64_t groups,
                           double epsilon, bool centered) {
    return (nd_op_attrs){.f = {epsilon},
                         .i = {samples, channels, places, groups, centered ? 1 : 0}};
}

/// Sets of numbers that a NORM call normalises each by itself.
static int64_t sets_of(const nd_op_attrs *attrs) {
    return attrs->i[3] > 0 ? attrs->i[0] * attrs->i[3] : attrs->i[1];
}

/// An operand that, where it is missing, is of x's dtype.
static nd_operand operand_of(const nd_tensor *operand, const nd_tensor *x) {
    return (nd_operand){.data = operand ? operand->data : NULL,
                        .dtype = operand ? operand->dtype : x->dtype};
}

/// The dtype of parameters, statistics and their gradients beside x.
static nd_dtype wide_of(const nd_tensor *x) {
    return nd__dtype_is_half(x->dtype) ? ND_F32 : x->dtype;
}

/// The same of the dtype that x is computed in.
static nd_operand parameter_of(const nd_tensor *operand, const nd_tensor *x) {
    return (nd_operand){.data = operand ? operand->data : NULL, .dtype = wide_of(x)};
}

/// ND_ERROR_UNSUPPORTED is no error where x has 16 bits.
static nd_status launch(const char *name, const nd_tensor *x, const nd_kernel_call *call) {
    return nd__dtype_is_half(x->dtype) ? nd__launch_where_supported(name, x->device, call)
                                       : nd__launch(name, x->device, call);
}

/// A parameter in the dtype that x is computed in, dense, recorded. NULL gives NULL.
static nd_tensor *dense_parameter(const nd_tensor *parameter, const nd_tensor *x) {
    nd_auto nd_tensor *wide = parameter ? nd__operands_as_dtype(parameter, wide_of(x)) : NULL;
    return wide ? nd_contiguous(wide) : NULL;
}

/// x normalised, as x or f32 (`dtype`), recorded. statistics: those of channel_norm; else
/// ret_statistics (or NULL) gets those that x has. Of x of 16 bits ND_ERROR_UNSUPPORTED without an error
/// where the device has no kernel.
static nd_status normalise(const char *name, const nd_tensor *x, nd_dtype dtype,
                           const nd_tensor *weight, const nd_tensor *bias,
                           const nd_tensor *statistics, const nd_op_attrs *attrs,
                           nd_tensor **ret_statistics, nd_tensor **ret_result) {
    nd_auto nd_tensor *dense = x ? nd_contiguous(x) : NULL;
    nd_auto nd_tensor *factors = dense ? dense_parameter(weight, dense) : NULL;
    nd_auto nd_tensor *added = dense ? dense_parameter(bias, dense) : NULL;
    if (!dense || (weight && !factors) || (bias && !added))
        return nd_error_get_status();
    const nd_tensor *inputs[] = {dense, factors, statistics ? statistics : added, added};
    size_t count = statistics ? 4 : 3;
    nd_auto nd_tensor *result =
        nd__tensor_result(name, inputs, count, dense->device, dtype, dense->ndim, dense->shape);
    nd_auto nd_tensor *written =
        result && ret_statistics ? nd__tensor_result(name, inputs, 1, dense->device, wide_of(dense),
                                                     2, (const int64_t[]){2, sets_of(attrs)})
                                 : NULL;
    if (!result || (ret_statistics && !written))
        return nd_error_get_status();
    nd_kernel_call call;
    call.op = statistics ? ND_OP_channel_norm : ND_OP_layer_norm;
    call.noperands = 5;
    call.ndim = 0;
    call.operand[0] = operand_of(result, dense);
    call.operand[statistics ? 1 : 2] = operand_of(dense, dense);
    call.operand[statistics ? 2 : 3] = parameter_of(factors, dense);
    call.operand[statistics ? 3 : 1] = parameter_of(statistics ? statistics : written, dense);
    call.operand[4] = parameter_of(added, dense);
    call.attrs = *attrs;
    call.attrs.i[5] = factors ? 1 : 0;
    nd_status status = launch(name, dense, &call);
    if (status != ND_OK)
        return status;
    *ret_result = nd__record(call.op, nd_steal(&result), inputs, count, &call.attrs);
    if (*ret_result && ret_statistics)
        *ret_statistics = nd_steal(&written);
    return *ret_result ? ND_OK : nd_error_get_status();
}

/// As nd__norm_grad(); ND_ERROR_UNSUPPORTED without an error where the device has no kernel.
static nd_status grad_where_supported(const nd_tensor *grad, const nd_tensor *x,
                                      const nd_tensor *weight, const nd_tensor *statistics,
                                      const nd_op_attrs *attrs, nd_tensor **ret_grad,
                                      nd_tensor **ret_sums) {
    const char *name = statistics ? "batch_norm" : "layer_norm";
    nd_auto nd_tensor *dense_grad = nd_contiguous(grad);
    if (!dense_grad)
        return nd_error_get_status();
    const nd_tensor *operands[] = {dense_grad, x, weight};
    nd_auto nd_tensor *result = NULL, *sums = NULL;
    if (ret_grad)
        result = nd__tensor_result(name, operands, 3, x->device, x->dtype, x->ndim, x->shape);
    if (ret_sums)
        sums = nd__tensor_result(name, operands, 3, x->device, wide_of(x), 2,
                                 (const int64_t[]){2, attrs->i[1]});
    if ((ret_grad && !result) || (ret_sums && !sums))
        return nd_error_get_status();
    nd_kernel_call call;
    call.op = statistics ? ND_OP_channel_norm_grad : ND_OP_layer_norm_grad;
    call.noperands = statistics ? 6 : 5;
    call.ndim = 0;
    call.operand[0] = operand_of(result, x);
    call.operand[1] = parameter_of(sums, x);
    call.operand[2] = operand_of(dense_grad, x);
    call.operand[3] = operand_of(x, x);
    call.operand[4] = parameter_of(weight, x);
    call.operand[5] = parameter_of(statistics, x);
    call.attrs = *attrs;
    nd_status status = launch(name, x, &call);
    if (status != ND_OK)
        return status;
    if (ret_grad)
        *ret_grad = nd_steal(&result);
    if (ret_sums)
        *ret_sums = nd_steal(&sums);
    return ND_OK;
}

nd_status nd__norm_grad(const nd_tensor *grad, const nd_tensor *x, const nd_tensor *weight,
                        const nd_tensor *statistics, const nd_op_attrs *attrs, nd_tensor **ret_grad,
                        nd_tensor **ret_sums) {
    nd_status status = grad_where_supported(grad, x, weight, statistics, attrs, ret_grad, ret_sums);
    if (status != ND_ERROR_UNSUPPORTED || !nd__dtype_is_half(x->dtype))
        return status;
    nd_auto nd_tensor *wide = nd_cast(x, ND_F32);
    nd_auto nd_tensor *wide_grad = nd_cast(grad, ND_F32);
    return wide && wide_grad ? grad_where_supported(wide_grad, wide, weight, statistics, attrs,
                                                    ret_grad, ret_sums)
                             : nd_error_get_status();
}

/// Whether it is worth asking for a kernel that reads x of 16 bits as it is.
static bool may_stay_narrow(const nd_tensor *x) {
    return nd__dtype_is_half(x->dtype) && x->numel > 0;
}

/// Weight or bias for an x that autocast would raise: as f32 in a block. NULL gives NULL.
static nd_tensor *raised(const nd_tensor *parameter) {
    return nd__autocast_dtype != ND_F32 && nd__tensor_is_usable(parameter)
               ? nd__autocast_raise(parameter)
               : nd_retain(parameter);
}

/// x, of any float dtype, normalised in f32 or f64.
static nd_tensor *by_sets(const char *name, const nd_tensor *x, const nd_tensor *weight,
                          const nd_tensor *bias, nd_dtype dtype, const nd_op_attrs *attrs) {
    nd_auto nd_tensor *normal = NULL;
    const nd_dtype wanted = nd__autocast_result(x->dtype);
    if (may_stay_narrow(x)) {
        nd_status status = normalise(name, x, wanted, weight, bias, NULL, attrs, NULL, &normal);
        if (status != ND_ERROR_UNSUPPORTED)
            return nd_steal(&normal);
    }
    nd_auto nd_tensor *wide = nd__operands_as_dtype(x, dtype);
    if (normalise(name, wide, dtype, weight, bias, NULL, attrs, NULL, &normal) != ND_OK)
        return NULL;
    return nd__operands_as_dtype(normal, wanted);
}

// -------------------------------------------------------------------------------------------------
// by rows

static nd_tensor *norm_of_last_axes(const char *name, const nd_tensor *x, const nd_tensor *weight,
                                    const nd_tensor *bias, double epsilon, int naxes,
                                    bool centered) {
    ND__ERROR_NAMED(name);
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
    int64_t n = 1;
    for (int i = 0; i < naxes; i++)
        n *= shape[i];
    nd_op_attrs attrs = nd__norm_attrs(n > 0 ? x->numel / n : 0, n, 1, 1, epsilon, centered);
    return by_sets(name, x, weight, bias, dtype, &attrs);
}

nd_tensor *nd_layer_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                         double epsilon, int naxes) {
    nd_auto nd_tensor *factors = raised(weight), *added = raised(bias);
    if ((weight && !factors) || (bias && !added))
        return NULL;
    return norm_of_last_axes("layer_norm", x, factors, added, epsilon, naxes, true);
}

nd_tensor *nd_rms_norm(const nd_tensor *x, const nd_tensor *weight, double epsilon, int naxes) {
    nd_auto nd_tensor *factors = raised(weight);
    return weight && !factors
               ? NULL
               : norm_of_last_axes("rms_norm", x, factors, NULL, epsilon, naxes, false);
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

/// Places of a channel in a sample.
static int64_t places_of(const nd_tensor *x) {
    int64_t places = 1;
    for (int i = 2; i < x->ndim; i++)
        places *= x->shape[i];
    return places;
}

nd_tensor *nd_group_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                         int64_t groups, double epsilon) {
    ND__ERROR_NAMED("group_norm");
    const char *name = "group_norm";
    nd_dtype dtype;
    nd_auto nd_tensor *factors = raised(weight), *added = raised(bias);
    if ((weight && !factors) || (bias && !added) ||
        check_channels(name, x, factors, added, 2, &dtype) != ND_OK ||
        check_epsilon(name, epsilon) != ND_OK)
        return NULL;
    if (groups < 1 || x->shape[1] % groups != 0) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "%s: groups is %lld and must divide the %lld channels of x", name,
                  (long long)groups, (long long)x->shape[1]);
        return NULL;
    }
    nd_op_attrs attrs =
        nd__norm_attrs(x->shape[0], x->shape[1], places_of(x), groups, epsilon, true);
    return by_sets(name, x, factors, added, dtype, &attrs);
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
    return places_of(n->x) * (n->first_reduced == 0 ? n->x->shape[0] : 1);
}

/// A running statistic, or NULL. Of 16 bits beside an f32 x inside a block of autocast, which raises
/// weights there, too: a cast module's statistics are as narrow as its weights.
static nd_status check_statistic(const batch_norm *n, const char *argument,
                                 const nd_tensor *running) {
    const bool raised = running && nd__autocast_dtype != ND_F32 && n->x->dtype != ND_F64 &&
                        nd__dtype_is_half(running->dtype);
    if (!raised)
        return check_parameter(n->name, argument, n->x, running, 1, n->x->shape + 1);
    nd_status status = nd__operands_check_pair(n->name, "x", n->x, argument, running);
    return status == ND_OK ? check_shape(n->name, argument, running, 1, n->x->shape + 1) : status;
}

static nd_status check_running(const batch_norm *n) {
    if (!n->running_mean != !n->running_var)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is NULL and %s is not", n->name,
                         n->running_mean ? "running_var" : "running_mean",
                         n->running_mean ? "running_mean" : "running_var");
    if (n->running_mean && n->running_mean == n->running_var)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: running_mean and running_var are one tensor", n->name);
    nd_status status = check_statistic(n, "running_mean", n->running_mean);
    return status == ND_OK ? check_statistic(n, "running_var", n->running_var) : status;
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

/// What one running statistic becomes with that of this batch, `row` of the statistics of all sets.
static nd_tensor *updated(const batch_norm *n, const nd_tensor *running,
                          const nd_tensor *statistics, int64_t row, double factor) {
    const int samples = 0;
    const int64_t sets[] = {-1, n->x->shape[1]};
    nd_auto nd_tensor *own = nd_select(statistics, row, 0);
    // A set that is a channel of all samples has the one mean.
    nd_auto nd_tensor *by_sample = n->first_reduced == 0 ? NULL : nd_reshape(own, 2, sets);
    nd_auto nd_tensor *mean =
        n->first_reduced == 0 ? nd_retain(own) : nd_mean(by_sample, 1, &samples, false);
    nd_auto nd_tensor *part = nd_mul_scalar(mean, n->options.momentum * factor);
    nd_auto nd_tensor *wide = nd_cast(running, n->dtype);
    nd_auto nd_tensor *kept = nd_mul_scalar(wide, 1.0 - n->options.momentum);
    return nd_add(kept, part);
}

/// Whether both running statistics can be written where they lie, by a chain each.
static bool may_be_chains(const batch_norm *n, const nd_tensor *statistics) {
    const nd_tensor *mean = n->running_mean, *var = n->running_var;
    return nd__launch_has_chains(n->x->device) && n->first_reduced == 0 &&
           nd__tensor_is_contiguous(mean) && nd__tensor_is_contiguous(var) &&
           nd__tensor_is_contiguous(statistics) && mean->dtype == n->dtype &&
           var->dtype == n->dtype && statistics->dtype == n->dtype && !nd__overlap_any(mean, var);
}

/// The same numbers as updated(), in one launch: here four would be for each.
static nd_status update_by_chains(const batch_norm *n, const nd_tensor *statistics) {
    enum { RUNNING, OWN, PART };
    const double elements = (double)elements_per_mean(n), momentum = n->options.momentum;
    nd_tensor *running[] = {n->running_mean, n->running_var};
    const double factor[] = {1.0, elements / (elements - 1.0)};
    const size_t row = (size_t)n->x->shape[1] * nd__dtype_bytes[n->dtype];
    nd_chain chains[2];
    for (int i = 0; i < 2; i++)
        chains[i] =
            (nd_chain){.count = n->x->shape[1],
                       .steps = 3,
                       .data = {running[i]->data, (char *)statistics->data + (size_t)i * row, NULL},
                       .dtype = {n->dtype, n->dtype, n->dtype},
                       .step = {{ND_OP_mul_scalar, PART, OWN, -1, momentum * factor[i]},
                                {ND_OP_mul_scalar, RUNNING, RUNNING, -1, 1.0 - momentum},
                                {ND_OP_add, RUNNING, RUNNING, PART, 0}}};
    nd_status status = nd__launch_chains(n->name, n->x->device, 2, chains);
    for (int i = 0; i < 2 && status == ND_OK; i++)
        nd__tensor_bump_version(running[i]);
    return status;
}

/// Writes both running statistics, when both are computed.
static nd_status update_running(const batch_norm *n, const nd_tensor *statistics) {
    if (may_be_chains(n, statistics))
        return update_by_chains(n, statistics);
    double elements = (double)elements_per_mean(n);
    nd_status status = ND_OK;
    nd_no_grad {
        nd_auto nd_tensor *next_mean = updated(n, n->running_mean, statistics, 0, 1.0);
        nd_auto nd_tensor *next_var =
            updated(n, n->running_var, statistics, 1, elements / (elements - 1.0));
        status = next_mean && next_var ? ND_OK : nd_error_get_status();
        if (status == ND_OK)
            status = nd_copy_(n->running_mean, next_mean);
        if (status == ND_OK)
            status = nd_copy_(n->running_var, next_var);
    }
    return status;
}

/// As normalise_batch(). The running statistics are written last, when nothing can be refused.
static nd_status by_own_statistics(const batch_norm *n, const nd_tensor *x, nd_dtype dtype,
                                   nd_dtype wanted, const nd_op_attrs *attrs,
                                   nd_tensor **ret_result) {
    // There is nothing to learn from a batch of nothing.
    bool updates = n->running_mean && n->options.training && x->numel > 0;
    nd_auto nd_tensor *statistics = NULL;
    nd_auto nd_tensor *computed = NULL, *result = NULL;
    nd_status status = normalise(n->name, x, dtype, n->weight, n->bias, NULL, attrs,
                                 updates ? &statistics : NULL, &computed);
    if (status == ND_OK && !(result = nd__operands_as_dtype(computed, wanted)))
        status = nd_error_get_status();
    if (status == ND_OK && updates)
        status = update_running(n, statistics);
    if (status == ND_OK)
        *ret_result = nd_steal(&result);
    return status;
}

static nd_status by_running_statistics(const batch_norm *n, const nd_tensor *x, nd_dtype dtype,
                                       nd_dtype wanted, const nd_op_attrs *attrs,
                                       nd_tensor **ret_result) {
    nd_auto nd_tensor *mean = nd_cast(n->running_mean, n->dtype);
    nd_auto nd_tensor *variance = nd_cast(n->running_var, n->dtype);
    const nd_tensor *both[] = {mean, variance};
    nd_auto nd_tensor *statistics = mean && variance ? nd_stack(2, both, 0) : NULL;
    nd_auto nd_tensor *computed = NULL;
    nd_status status = statistics ? normalise(n->name, x, dtype, n->weight, n->bias, statistics,
                                              attrs, NULL, &computed)
                                  : nd_error_get_status();
    if (status == ND_OK && !(*ret_result = nd__operands_as_dtype(computed, wanted)))
        status = nd_error_get_status();
    return status;
}

/// x, which n->x is or was cast to, normalised, as x or f32 (`dtype`), and then as `wanted`.
/// ND_ERROR_UNSUPPORTED as normalise().
static nd_status normalise_batch(const batch_norm *n, const nd_tensor *x, nd_dtype dtype,
                                 nd_dtype wanted, nd_tensor **ret_result) {
    const nd_op_attrs attrs =
        nd__norm_attrs(x->shape[0], x->shape[1], places_of(x),
                       n->first_reduced == 0 ? 0 : x->shape[1], n->options.epsilon, true);
    return n->own ? by_own_statistics(n, x, dtype, wanted, &attrs, ret_result)
                  : by_running_statistics(n, x, dtype, wanted, &attrs, ret_result);
}

static nd_tensor *batch_norm_of(batch_norm *n, const nd_batch_norm_options *options) {
    ND__ERROR_NAMED(n->name);
    if (check_batch_norm(n, options) != ND_OK)
        return NULL;
    const nd_dtype wanted = nd__autocast_result(n->x->dtype);
    nd_auto nd_tensor *result = NULL;
    if (may_stay_narrow(n->x)) {
        nd_status status = normalise_batch(n, n->x, wanted, wanted, &result);
        if (status != ND_ERROR_UNSUPPORTED)
            return nd_steal(&result);
    }
    nd_auto nd_tensor *wide = nd__operands_as_dtype(n->x, n->dtype);
    return wide && normalise_batch(n, wide, n->dtype, wanted, &result) == ND_OK ? nd_steal(&result)
                                                                                : NULL;
}

nd_tensor *nd_batch_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                         nd_tensor *running_mean, nd_tensor *running_var,
                         const nd_batch_norm_options *options) {
    nd_auto nd_tensor *factors = raised(weight), *added = raised(bias);
    if ((weight && !factors) || (bias && !added))
        return NULL;
    batch_norm n = {.name = "batch_norm",
                    .x = x,
                    .weight = factors,
                    .bias = added,
                    .running_mean = running_mean,
                    .running_var = running_var};
    return batch_norm_of(&n, options);
}

nd_tensor *nd_instance_norm(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                            nd_tensor *running_mean, nd_tensor *running_var,
                            const nd_batch_norm_options *options) {
    nd_auto nd_tensor *factors = raised(weight), *added = raised(bias);
    if ((weight && !factors) || (bias && !added))
        return NULL;
    batch_norm n = {.name = "instance_norm",
                    .x = x,
                    .weight = factors,
                    .bias = added,
                    .running_mean = running_mean,
                    .running_var = running_var,
                    .first_reduced = 2};
    return batch_norm_of(&n, options);
}
