// Clipping: by the norm of all gradients together, and by value.
//
// Invariant: gradients are replaced, not written: a gradient may be shared, expanded, or have
// history. All new ones are made before the first is put in its place.
#include "lib/nn/gradients.h"
#include "lib/autograd/autograd.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/nn/parameters.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/copy.h"
#include <nd/autograd.h>

#include <math.h>

typedef nd_tensor *(*nd_gradient_map)(const nd_tensor *grad, double number);

/// The sum of squares in a dtype.
static nd_status sum_of_squares(const char *operation, const nd_tensor *grad, nd_dtype dtype,
                                double *ret_sum) {
    nd_auto nd_tensor *wide = nd_cast(grad, dtype);
    nd_auto nd_tensor *square = nd_square(wide);
    nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
    if (!sum)
        return nd_error_get_status();
    float narrow = 0;
    double wide_sum = 0;
    const bool is_narrow = sum->dtype == ND_F32;
    nd_status status = nd__copy_to_host(operation, sum, is_narrow ? (void *)&narrow : &wide_sum);
    if (status == ND_OK)
        *ret_sum = is_narrow ? (double)narrow : wide_sum;
    return status;
}

/// The norm of what has no squares in f64: times its largest magnitude that of what is divided by it.
static nd_status norm_of_far(const char *operation, const nd_tensor *grad, double *ret_norm) {
    nd_auto nd_tensor *wide = nd_cast(grad, ND_F64);
    nd_auto nd_tensor *magnitude = nd_abs(wide);
    nd_auto nd_tensor *largest = nd_max(magnitude, 0, NULL, false);
    double most = 0, sum = 0;
    nd_status status =
        largest ? nd__copy_to_host(operation, largest, &most) : nd_error_get_status();
    *ret_norm = most;
    if (status != ND_OK || !isfinite(most) || most == 0)
        return status;
    nd_auto nd_tensor *near = nd_div_scalar(wide, most);
    status = near ? sum_of_squares(operation, near, ND_F64, &sum) : nd_error_get_status();
    *ret_norm = most * sqrt(sum);
    return status;
}

/// The root of the sum of squares of gradients; NULL ones count nothing.
static nd_status norm_of(const char *operation, const nd_tensor *const *grads, size_t count,
                         double *ret_norm) {
    double total = 0, far = 0;
    nd_status status = ND_OK;
    nd_grad_block block = nd__grad_block_begin(false);
    for (size_t i = 0; status == ND_OK && i < count; i++) {
        const nd_tensor *grad = grads[i];
        double sum = 0, norm = 0;
        if (!grad)
            continue;
        status = nd__tensor_check_operand(operation, "a gradient", grad);
        if (status == ND_OK)
            status = nd__capture_check(operation, grad->device);
        const nd_dtype dtype = grad->dtype == ND_F64 ? ND_F64 : ND_F32;
        if (status == ND_OK)
            status = sum_of_squares(operation, grad, dtype, &sum);
        // Squares leave the range of f32 long before the numbers do.
        if (status == ND_OK && dtype == ND_F32 && (!isfinite(sum) || sum < 1e-30))
            status = sum_of_squares(operation, grad, ND_F64, &sum);
        // And of f64.
        if (status == ND_OK && dtype == ND_F64 && grad->numel > 0 &&
            (!isfinite(sum) || sum < 1e-280)) {
            status = norm_of_far(operation, grad, &norm);
            sum = 0;
        }
        total += sum;
        far = hypot(far, norm);
    }
    nd__grad_block_end(&block);
    if (status == ND_OK)
        *ret_norm = far > 0 || isnan(far) ? hypot(sqrt(total), far) : sqrt(total);
    return status;
}

/// Room for a gradient of each parameter, all NULL, to be ended by end_list(). NULL with an error.
static nd_tensor **begin_list(const char *operation, size_t count) {
    nd_tensor **list = nd__pressure_alloc_zeroed((count + 1) * sizeof *list);
    if (!list)
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu gradients", operation,
                  count);
    return list;
}

static void end_list(nd_tensor **list, size_t count) {
    for (size_t i = 0; list && i < count; i++)
        nd_release(list[i]);
    nd__alloc_free(list);
}

nd_status nd__gradients_norm(const char *operation, nd_tensor *const *parameters, size_t count,
                             double *ret_norm) {
    nd_tensor **grads = begin_list(operation, count);
    nd_status status = grads ? ND_OK : nd_error_get_status();
    for (size_t i = 0; status == ND_OK && i < count; i++) {
        status = nd__tensor_check_operand(operation, "a parameter", parameters[i]);
        grads[i] = status == ND_OK ? nd_retain(parameters[i]->grad) : NULL;
    }
    if (status == ND_OK)
        status = norm_of(operation, (const nd_tensor *const *)grads, count, ret_norm);
    end_list(grads, count);
    return status;
}

/// What `map` makes of every gradient, where its parameter is.
static nd_status make_all(const char *operation, nd_tensor *const *parameters, size_t count,
                          nd_gradient_map map, double number, nd_tensor **ret_made) {
    nd_status status = ND_OK;
    nd_grad_block block = nd__grad_block_begin(false);
    for (size_t i = 0; status == ND_OK && i < count; i++) {
        status = nd__tensor_check_operand(operation, "a parameter", parameters[i]);
        const nd_tensor *grad = status == ND_OK ? parameters[i]->grad : NULL;
        if (!grad)
            continue;
        status = nd__tensor_check_operand(operation, "a gradient", grad);
        if (status != ND_OK)
            break;
        nd_tensor *made = map(grad, number);
        ret_made[i] = made ? nd__gradient_settle(operation, made, parameters[i]) : NULL;
        status = ret_made[i] ? nd__gradient_check_leaf(operation, parameters[i], ret_made[i])
                             : nd_error_get_status();
    }
    nd__grad_block_end(&block);
    return status;
}

static nd_status put_all(nd_tensor *const *parameters, size_t count, nd_tensor *const *made) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < count; i++)
        if (made[i])
            status = nd_set_grad(parameters[i], made[i]);
    return status;
}

/// Replaces every gradient by what `map` makes of it.
static nd_status replace_all(const char *operation, nd_tensor *const *parameters, size_t count,
                             nd_gradient_map map, double number) {
    nd_tensor **made = begin_list(operation, count);
    if (!made)
        return nd_error_get_status();
    nd_status status = make_all(operation, parameters, count, map, number, made);
    if (status == ND_OK)
        status = put_all(parameters, count, made);
    end_list(made, count);
    return status;
}

static nd_tensor *scaled(const nd_tensor *grad, double factor) {
    return nd_mul_scalar(grad, factor);
}

static nd_tensor *clipped(const nd_tensor *grad, double limit) {
    return nd_clip(grad, -limit, limit);
}

nd_status nd__gradients_scale(const char *operation, nd_tensor *const *parameters, size_t count,
                              double factor) {
    return replace_all(operation, parameters, count, scaled, factor);
}

nd_status nd__gradients_divide(const char *operation, nd_tensor *const *parameters, size_t count,
                               double scale, bool *ret_finite) {
    double norm = 0;
    nd_status status = nd__gradients_norm(operation, parameters, count, &norm);
    *ret_finite = isfinite(norm);
    if (status != ND_OK || !isfinite(norm))
        return status;
    nd_tensor **made = begin_list(operation, count);
    if (!made)
        return nd_error_get_status();
    status = make_all(operation, parameters, count, scaled, 1 / scale, made);
    // Divided by less than 1 a gradient may leave the range.
    if (status == ND_OK && scale < 1)
        status = norm_of(operation, (const nd_tensor *const *)made, count, &norm);
    if (status == ND_OK)
        status = put_all(parameters, count, made);
    end_list(made, count);
    *ret_finite = isfinite(norm);
    return status;
}

nd_status nd_clip_grad_norm(const nd_module *module, double limit, double *ret_norm) {
    static const char operation[] = "clip_grad_norm";
    ND__ERROR_NAMED(operation);
    if (!(limit >= 0))
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the limit is %g; it must be at least 0",
                         operation, limit);
    size_t count = 0;
    nd_tensor **parameters =
        nd__parameters_collect(operation, module, ND__MEMBER_PARAMETER, &count);
    if (!parameters)
        return nd_error_get_status();
    double norm = 0;
    nd_status status = nd__gradients_norm(operation, parameters, count, &norm);
    if (status == ND_OK && isfinite(norm) && norm > limit)
        status = nd__gradients_scale(operation, parameters, count, limit / norm);
    nd__alloc_free(parameters);
    if (status == ND_OK && ret_norm)
        *ret_norm = norm;
    return status;
}

nd_status nd_clip_grad_value(const nd_module *module, double limit) {
    static const char operation[] = "clip_grad_value";
    ND__ERROR_NAMED(operation);
    if (!(limit >= 0))
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the limit is %g; it must be at least 0",
                         operation, limit);
    size_t count = 0;
    nd_tensor **parameters =
        nd__parameters_collect(operation, module, ND__MEMBER_PARAMETER, &count);
    if (!parameters)
        return nd_error_get_status();
    nd_status status = replace_all(operation, parameters, count, clipped, limit);
    nd__alloc_free(parameters);
    return status;
}
