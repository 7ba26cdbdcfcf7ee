// nd_gradcheck: analytic gradients against central differences, first and second order.
//
// What is differentiated is one number made of all results: the sum of each element times a fixed
// weight, so that no error can hide in a sum that cancels (a softmax sums to one). Order 2 does the
// same to the gradients of that number. The caller's inputs are not touched: all work is done on
// copies.
#include "lib/autograd/autograd.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include <math.h>

typedef struct nd_check {
    nd_gradcheck_function f;
    void *data;
    const nd_tensor *const *inputs; ///< the caller's
    size_t count;
    int order;
    double eps;
    double tolerance;
    nd_tensor **copies;    ///< leaves, owned
    nd_tensor **gradients; ///< owned; NULL: does not depend on that input
    nd_tensor **recorded;  ///< the same, computed with create_graph
} nd_check;

static nd_status check_arguments(const nd_check *check);
static nd_status copy_inputs(nd_check *check);
static nd_tensor *weighted_sum(const nd_tensor *x, uint64_t seed);
static nd_tensor *value_of(const nd_check *check);
static nd_tensor *gradient_value_of(const nd_check *check);
static nd_status analytic_gradients(nd_check *check, bool create_graph, nd_tensor **gradients);
static nd_status compare_input(nd_check *check, size_t index);
static nd_status compare_element(const nd_check *check, size_t index, int64_t element,
                                 const double *analytic, double difference);
static nd_status difference_at(nd_check *check, size_t index, int64_t element, double *values,
                               double *ret_difference);
static nd_status value_with(nd_check *check, size_t index, const double *values, double *ret_value);
static nd_tensor *from_values(const nd_tensor *like, const double *values);
static nd_status read_values(const nd_tensor *x, double **ret_values);
static void release_all(nd_tensor **tensors, size_t count);

nd_status nd_gradcheck(nd_gradcheck_function f, void *data, size_t count,
                       const nd_tensor *const *inputs, int order, double eps, double tolerance) {
    ND__UNCANCELLED;
    nd_check check = {f, data, inputs, count, order, eps, tolerance, NULL, NULL, NULL};
    nd_status status = check_arguments(&check);
    if (status != ND_OK)
        return status;
    check.copies = nd__pressure_alloc_zeroed(3 * count * sizeof *check.copies);
    if (!check.copies)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "gradcheck: no memory for copies of %zu inputs",
                         count);
    check.gradients = check.copies + count;
    check.recorded = check.gradients + count;
    // Values are compared with recording on, whatever the caller's block says.
    nd_enable_grad {
        status = copy_inputs(&check);
        if (status == ND_OK)
            status = analytic_gradients(&check, false, check.gradients);
        if (status == ND_OK)
            status = analytic_gradients(&check, true, check.recorded);
        for (size_t i = 0; i < count && status == ND_OK; i++)
            if (nd__tensor_requires_grad(check.copies[i]))
                status = compare_input(&check, i);
    }
    release_all(check.copies, 3 * count);
    nd__alloc_free(check.copies);
    return status;
}

// -------------------------------------------------------------------------------------------------

static nd_status check_arguments(const nd_check *check) {
    if (!check->f)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "gradcheck: f is NULL");
    if (check->count == 0 || check->count > INT32_MAX || !check->inputs)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "gradcheck: there are no inputs to check");
    if (check->order != 1 && check->order != 2)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "gradcheck: order %d is neither 1 nor 2",
                         check->order);
    if (!(check->eps > 0.0) || !(check->tolerance > 0.0))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "gradcheck: eps %g and tolerance %g must be positive", check->eps,
                         check->tolerance);
    bool any = false;
    for (size_t i = 0; i < check->count; i++) {
        char argument[32];
        snprintf(argument, sizeof argument, "inputs[%zu]", i);
        nd_status status = nd__tensor_check_operand("gradcheck", argument, check->inputs[i]);
        if (status == ND_OK)
            status = nd__capture_check("gradcheck", check->inputs[i]->device);
        if (status != ND_OK)
            return status;
        any = any || nd_requires_grad(check->inputs[i]);
    }
    if (!any)
        return nd__error(ND_ERROR_STATE, "gradcheck: none of the %zu inputs requires a gradient",
                         check->count);
    return ND_OK;
}

static nd_status copy_inputs(nd_check *check) {
    for (size_t i = 0; i < check->count; i++) {
        nd_auto nd_tensor *plain = nd_detach(check->inputs[i]);
        check->copies[i] = nd_clone(plain);
        if (!check->copies[i])
            return nd_error_get_status();
        nd_status status =
            nd_set_requires_grad(check->copies[i], nd_requires_grad(check->inputs[i]));
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

/// sum(x * weights), the weights drawn from the seed: [].
static nd_tensor *weighted_sum(const nd_tensor *x, uint64_t seed) {
    if (!x)
        return NULL;
    nd_auto nd_tensor *drawn =
        nd_rand(nd_key_new(seed), x->ndim, x->shape, x->dtype == ND_F32 ? ND_F32 : ND_F64);
    nd_auto nd_tensor *weights = nd_add_scalar(drawn, 0.5);
    nd_auto nd_tensor *local = weights ? nd_to(weights, x->device) : NULL;
    nd_auto nd_tensor *product = nd_mul(x, local);
    return nd_sum(product, 0, NULL, false);
}

/// What the program's function makes of the copies; NULL with an error.
static nd_tensor *result_of(const nd_check *check) {
    const unsigned errors = nd__error_count();
    nd_tensor *result =
        check->f(check->count, (const nd_tensor *const *)check->copies, check->data);
    if (!result && nd__error_count() == errors)
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "gradcheck: the function gave no result and set no error");
    return result;
}

/// The number that is differentiated, from the copies. Order 2: made of first gradients.
static nd_tensor *value_of(const nd_check *check) {
    if (check->order == 2)
        return gradient_value_of(check);
    nd_auto nd_tensor *result = result_of(check);
    return weighted_sum(result, 1);
}

static nd_tensor *gradient_value_of(const nd_check *check) {
    nd_auto nd_tensor *result = result_of(check);
    nd_auto nd_tensor *value = weighted_sum(result, 1);
    if (!value)
        return NULL;
    nd_auto nd_tensor *total = nd__rules_constant(value, value->dtype, 0.0);
    for (size_t i = 0; i < check->count && total; i++) {
        if (!nd__tensor_requires_grad(check->copies[i]) || !nd__tensor_requires_grad(value))
            continue;
        const nd_tensor *input = check->copies[i];
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        options.allow_unused = true;
        nd_auto nd_tensor *gradient = NULL;
        if (nd_grad(value, 1, &input, &options, &gradient) != ND_OK)
            return NULL;
        if (!gradient)
            continue;
        nd_auto nd_tensor *part = weighted_sum(gradient, 2 + i);
        nd_tensor *sum = nd_add(total, part);
        nd_release(total);
        total = sum;
    }
    return nd_steal(&total);
}

/// Gradients of the number by nd_grad. It may depend on no input (then all are zero): the second
/// order of a linear function. A rule may take a shorter way when nothing is recorded, so both ways
/// are checked.
static nd_status analytic_gradients(nd_check *check, bool create_graph, nd_tensor **gradients) {
    nd_auto nd_tensor *value = value_of(check);
    if (!value)
        return nd_error_get_status();
    if (!nd__tensor_requires_grad(value))
        return ND_OK;
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = create_graph;
    options.allow_unused = true;
    for (size_t i = 0; i < check->count; i++) {
        const nd_tensor *input = check->copies[i];
        if (!nd__tensor_requires_grad(input))
            continue;
        nd_status status = nd_grad(value, 1, &input, &options, &gradients[i]);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

static nd_status compare_input(nd_check *check, size_t index) {
    double *values = NULL;
    double *analytic = NULL;
    double *recorded = NULL;
    nd_status status = read_values(check->copies[index], &values);
    if (status == ND_OK && check->gradients[index])
        status = read_values(check->gradients[index], &analytic);
    if (status == ND_OK && check->recorded[index])
        status = read_values(check->recorded[index], &recorded);
    int64_t numel = check->copies[index]->numel;
    for (int64_t i = 0; i < numel && status == ND_OK; i++) {
        double difference = 0.0;
        status = difference_at(check, index, i, values, &difference);
        if (status == ND_OK)
            status = compare_element(check, index, i, analytic, difference);
        if (status == ND_OK)
            status = compare_element(check, index, i, recorded, difference);
    }
    nd__alloc_free(values);
    nd__alloc_free(analytic);
    nd__alloc_free(recorded);
    return status;
}

/// `analytic` may be NULL: all zero.
static nd_status compare_element(const nd_check *check, size_t index, int64_t element,
                                 const double *analytic, double difference) {
    double found = analytic ? analytic[element] : 0.0;
    double scale = fmax(1.0, fmax(fabs(found), fabs(difference)));
    // Written so that a NaN on either side fails.
    if (fabs(found - difference) <= check->tolerance * scale)
        return ND_OK;
    return nd__error(ND_ERROR_STATE,
                     "gradcheck: order %d, input %zu, element %lld: the analytic gradient is %.9g, "
                     "the central difference %.9g",
                     check->order, index, (long long)element, found, difference);
}

static nd_status difference_at(nd_check *check, size_t index, int64_t element, double *values,
                               double *ret_difference) {
    double middle = values[element];
    double above = 0.0;
    double below = 0.0;
    values[element] = middle + check->eps;
    nd_status status = value_with(check, index, values, &above);
    values[element] = middle - check->eps;
    if (status == ND_OK)
        status = value_with(check, index, values, &below);
    values[element] = middle;
    *ret_difference = (above - below) / (2.0 * check->eps);
    return status;
}

/// The number with other values in one of the inputs.
static nd_status value_with(nd_check *check, size_t index, const double *values,
                            double *ret_value) {
    nd_tensor *original = check->copies[index];
    nd_auto nd_tensor *changed = from_values(original, values);
    if (!changed)
        return nd_error_get_status();
    check->copies[index] = changed;
    nd_auto nd_tensor *value = value_of(check);
    check->copies[index] = original;
    if (!value)
        return nd_error_get_status();
    *ret_value = nd_get_item(value);
    return ND_OK;
}

/// Leaf of the shape, dtype and device of `like`.
static nd_tensor *from_values(const nd_tensor *like, const double *values) {
    nd_device previous = nd_get_default_device();
    if (nd_set_default_device((nd_device){ND_CPU, 0}) != ND_OK)
        return NULL;
    nd_auto nd_tensor *host = nd_from_data(values, like->ndim, like->shape, ND_F64);
    nd_set_default_device(previous);
    nd_auto nd_tensor *converted = host ? nd_cast(host, like->dtype) : NULL;
    nd_auto nd_tensor *local = converted ? nd_to(converted, like->device) : NULL;
    if (!local || nd_set_requires_grad(local, true) != ND_OK)
        return NULL;
    return nd_steal(&local);
}

/// Elements as doubles, row-major; the caller frees them.
static nd_status read_values(const nd_tensor *x, double **ret_values) {
    nd_auto nd_tensor *plain = nd_detach(x);
    nd_auto nd_tensor *wide = plain ? nd_cast(plain, ND_F64) : NULL;
    if (!wide)
        return nd_error_get_status();
    size_t bytes = (size_t)wide->numel * sizeof(double);
    double *values = nd__pressure_alloc(bytes > 0 ? bytes : 1);
    if (!values)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "gradcheck: no memory for %zu bytes of values",
                         bytes);
    nd_status status = nd_copy_to_host(wide, values, bytes);
    if (status != ND_OK) {
        nd__alloc_free(values);
        return status;
    }
    *ret_values = values;
    return ND_OK;
}

static void release_all(nd_tensor **tensors, size_t count) {
    for (size_t i = 0; i < count; i++)
        nd_release(tensors[i]);
}
