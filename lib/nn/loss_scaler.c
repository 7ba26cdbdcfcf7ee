// Loss scaling for f16 (Micikevicius et al. 2018): a loss is multiplied so that its gradients do
// not vanish in f16, and the gradients are divided again before the step, which is left out when
// one of them is not finite.
#include "lib/nn/loss_scaler.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/manager/place.h"
#include "lib/nn/gradients.h"
#include "lib/nn/optimizer.h"
#include "lib/pressure/pressure_alloc.h"

#include <math.h>

static const nd_type loss_scaler_type = {
    .size = sizeof(nd_type), .version = 1, .name = "loss_scaler", .flags = ND_TYPE_GREEN};

nd_loss_scaler *nd_loss_scaler_new(const nd_loss_scaler_options *options) {
    static const char operation[] = "loss_scaler_new";
    nd_loss_scaler_options chosen = ND_LOSS_SCALER_OPTIONS_INIT;
    if (nd__versioned_read(operation, "ND_LOSS_SCALER_OPTIONS_INIT", options, &chosen,
                           sizeof chosen) != ND_OK)
        return NULL;
    if (!(chosen.scale >= ND__LEAST_SCALE) || isinf(chosen.scale) || !(chosen.growth >= 1) ||
        isinf(chosen.growth) || !(chosen.backoff > 0 && chosen.backoff < 1) ||
        chosen.interval < 1) {
        nd__error(
            ND_ERROR_INVALID_ARGUMENT,
            "%s: scale is %g, growth %g, backoff %g, interval %lld; they must be at least %g, "
            "at least 1, between 0 and 1, and at least 1, and finite",
            operation, chosen.scale, chosen.growth, chosen.backoff, (long long)chosen.interval,
            ND__LEAST_SCALE);
        return NULL;
    }
    nd_loss_scaler *scaler = (nd_loss_scaler *)nd__object_new(&loss_scaler_type, sizeof *scaler);
    if (!scaler)
        return NULL;
    scaler->options = chosen;
    scaler->scale = chosen.scale;
    return nd__place_publish_or_release(nd__place_begin(NULL, 0), &scaler->header);
}

nd_tensor *nd_loss_scaler_scale(const nd_loss_scaler *scaler, const nd_tensor *loss) {
    if (nd__loss_scaler_check("loss_scaler_scale", scaler) != ND_OK)
        return NULL;
    ND__ERROR_NAMED("loss_scaler_scale");
    return nd_mul_scalar(loss, scaler->scale);
}

/// The parameters with gradients that were not divided, a list to be freed. NULL with an error.
static nd_tensor **parameters_of(const char *operation, const nd_optimizer *optimizer,
                                 size_t *ret_count) {
    nd_tensor **parameters = nd__pressure_alloc((optimizer->count + 1) * sizeof *parameters);
    if (!parameters) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu parameters", operation,
                  optimizer->count);
        return NULL;
    }
    size_t count = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        nd_tensor *parameter = optimizer->states[i].parameter;
        if (parameter->grad && !nd__tensor_has_own(parameter, ND__GRAD_DIVIDED))
            parameters[count++] = parameter;
    }
    *ret_count = count;
    return parameters;
}

static void mark_divided(nd_optimizer *optimizer, bool divided) {
    for (size_t i = 0; i < optimizer->count; i++) {
        nd_tensor *parameter = optimizer->states[i].parameter;
        nd__tensor_set_own(parameter, ND__GRAD_DIVIDED, divided && parameter->grad);
    }
}

static bool has_divided(const nd_optimizer *optimizer) {
    for (size_t i = 0; i < optimizer->count; i++)
        if (nd__tensor_has_own(optimizer->states[i].parameter, ND__GRAD_DIVIDED))
            return true;
    return false;
}

/// ND_ERROR_UNSUPPORTED where other ranks have gradients that this one would have to see.
static nd_status check_here(const char *operation, const nd_optimizer *optimizer) {
    for (size_t i = 0; i < optimizer->count; i++)
        if (nd__tensor_has_own(optimizer->states[i].parameter, ND__GRAD_SHARED_OUT))
            return nd__error(ND_ERROR_UNSUPPORTED,
                             "%s: the gradient of '%.100s' is on one rank alone, since optimizers "
                             "share their state out (shard_optimizer); call "
                             "nd_data_parallel_step_scaled() and nd_data_parallel_unscale()",
                             operation, optimizer->names[i]);
    return ND_OK;
}

nd_status nd_loss_scaler_unscale(nd_loss_scaler *scaler, nd_optimizer *optimizer) {
    static const char operation[] = "loss_scaler_unscale";
    ND__ERROR_NAMED(operation);
    nd_status status = nd__loss_scaler_check(operation, scaler);
    if (status == ND_OK)
        status = nd__optimizer_check(operation, optimizer);
    if (status == ND_OK && has_divided(optimizer))
        status = nd__error(ND_ERROR_STATE, "%s: the gradients of this step are unscaled already",
                           operation);
    if (status == ND_OK)
        status = check_here(operation, optimizer);
    return status == ND_OK ? nd__loss_scaler_divide(operation, scaler, optimizer) : status;
}

nd_status nd_loss_scaler_step(nd_loss_scaler *scaler, nd_optimizer *optimizer, bool *ret_stepped) {
    static const char operation[] = "loss_scaler_step";
    ND__ERROR_NAMED(operation);
    nd_status status = nd__loss_scaler_check(operation, scaler);
    if (status == ND_OK)
        status = nd__optimizer_check(operation, optimizer);
    if (status == ND_OK)
        status = check_here(operation, optimizer);
    if (status == ND_OK)
        status = nd__loss_scaler_divide(operation, scaler, optimizer);
    if (status == ND_OK && optimizer->is_finite)
        status = nd_optimizer_step(optimizer);
    if (status != ND_OK)
        return status;
    const bool stepped = optimizer->is_finite;
    nd__loss_scaler_end_step(scaler, optimizer, stepped);
    if (ret_stepped)
        *ret_stepped = stepped;
    return ND_OK;
}

double nd_loss_scaler_get_scale(const nd_loss_scaler *scaler) {
    return scaler ? scaler->scale : 0;
}

nd_status nd__loss_scaler_check(const char *operation, const nd_loss_scaler *scaler) {
    if (!scaler)
        return nd__error_null(operation, "scaler");
    if (nd__object_is_closed(scaler))
        return nd__error(ND_ERROR_CLOSED, "%s: the loss scaler was closed", operation);
    return ND_OK;
}

nd_status nd__loss_scaler_divide(const char *operation, const nd_loss_scaler *scaler,
                                 nd_optimizer *optimizer) {
    for (size_t i = 0; i < optimizer->count; i++) {
        const nd_tensor *parameter = optimizer->states[i].parameter;
        if (nd__tensor_check_operand(operation, "a parameter", parameter) != ND_OK)
            return nd_error_get_status();
        if (parameter->dtype == ND_F16)
            return nd__error(ND_ERROR_DTYPE,
                             "%s: the parameter '%.100s' is float16, in which gradients vanish "
                             "when they are divided; keep parameters in float32 "
                             "(nd_module_cast) and compute in float16 inside nd_autocast",
                             operation, optimizer->names[i]);
    }
    size_t count;
    nd_tensor **parameters = parameters_of(operation, optimizer, &count);
    if (!parameters)
        return nd_error_get_status();
    const bool was_finite = !has_divided(optimizer) || optimizer->is_finite;
    bool is_finite = false;
    nd_status status =
        nd__gradients_divide(operation, parameters, count, scaler->scale, &is_finite);
    nd__alloc_free(parameters);
    if (status == ND_OK) {
        mark_divided(optimizer, true);
        optimizer->is_finite = was_finite && is_finite;
    }
    return status;
}

void nd__loss_scaler_end_step(nd_loss_scaler *scaler, nd_optimizer *optimizer, bool stepped) {
    mark_divided(optimizer, false);
    scaler->steps = stepped ? scaler->steps + 1 : 0;
    if (!stepped) {
        scaler->scale = fmax(scaler->scale * scaler->options.backoff, ND__LEAST_SCALE);
    } else if (scaler->steps == scaler->options.interval) {
        const double grown = scaler->scale * scaler->options.growth;
        scaler->scale = isinf((float)grown) ? scaler->scale : grown;
        scaler->steps = 0;
    }
}
