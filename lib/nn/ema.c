// Exponential moving averages of a module's parameters.
//
// Invariant: updating, applying and restoring take all memory before anything changes. Nothing is
// recorded.
#include "lib/nn/ema.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/manager/place.h"
#include "lib/nn/optimizer.h"
#include "lib/nn/parameters.h"
#include "lib/object/edge.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/launch.h"
#include <nd/autograd.h>

#include <string.h>

static void traverse(const nd_object *self, nd_visitor *visitor);
static void clear(nd_object *self);
static void destroy(nd_object *self);
static const nd_type ema_type = {.size = sizeof(nd_type),
                                 .version = 1,
                                 .name = "ema",
                                 .traverse = traverse,
                                 .clear = clear,
                                 .destroy = destroy};

static nd_status check_all(const char *operation, const nd_ema *ema, bool applied);

nd_ema *nd_ema_new(const nd_module *module, double decay) {
    static const char operation[] = "ema_new";
    if (!(decay >= 0 && decay < 1)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: decay is %g; it must be at least 0 and below 1",
                  operation, decay);
        return NULL;
    }
    size_t count = 0;
    nd_tensor **parameters =
        nd__parameters_collect(operation, module, ND__MEMBER_PARAMETER, &count);
    if (!parameters)
        return NULL;
    nd_ema *ema = (nd_ema *)nd__object_new(&ema_type, sizeof(*ema) + count * sizeof(*ema->of));
    nd_status status = ema ? ND_OK : nd_error_get_status();
    if (ema) {
        ema->decay = decay;
        ema->count = count;
        ema->names =
            nd__parameters_names(operation, module, ND__MEMBER_PARAMETER, parameters, count);
        status = ema->names ? ND_OK : nd_error_get_status();
    }
    for (size_t i = 0; status == ND_OK && i < count; i++) {
        ema->of[i].parameter = nd_retain(parameters[i]);
        ema->of[i].average =
            nd__parameters_copy_to(operation, parameters[i], parameters[i], parameters[i]->device,
                                   nd__optimizer_state_dtype(parameters[i]));
        status = ema->of[i].average ? ND_OK : nd_error_get_status();
    }
    nd__alloc_free(parameters);
    if (status != ND_OK) {
        nd_release(ema);
        return NULL;
    }
    return nd__place_publish_or_release(nd__place_begin(NULL, 0), &ema->header);
}

/// Every parameter as its average's dtype, dense, owned: itself where it is so.
static nd_status widen(const nd_ema *ema, nd_tensor **wide) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < ema->count; i++) {
        nd_tensor *parameter = ema->of[i].parameter;
        const nd_dtype dtype = ema->of[i].average->dtype;
        nd_auto nd_tensor *dense = nd_contiguous(parameter);
        wide[i] = !dense || dense->dtype == dtype ? nd_retain(dense) : nd_cast(dense, dtype);
        status = wide[i] ? ND_OK : nd_error_get_status();
    }
    return status;
}

static nd_chain chain_of(const nd_ema *ema, const nd_tensor *average, const nd_tensor *now) {
    return (nd_chain){.count = average->numel,
                      .steps = 2,
                      .data = {average->data, now->data},
                      .dtype = {average->dtype, now->dtype},
                      .step = {{ND_OP_mul_scalar, 0, 0, -1, ema->decay},
                               {ND_OP_add_scaled, 0, 0, 1, 1 - ema->decay}}};
}

/// Averages that lie dense, as do what they become averages of, a launch for many: on an error of
/// memory none of a launch's is changed. *ret_begun: some were.
static nd_status update_by_chains(const char *operation, const nd_ema *ema, nd_tensor *const *wide,
                                  bool *ret_begun) {
    nd_chain chains[ND__LAUNCH_CHAINS_MAX];
    nd_status status = ND_OK;
    size_t i = 0;
    while (status == ND_OK && i < ema->count) {
        const nd_device device = ema->of[i].average->device;
        size_t count = 0;
        for (; count < ND__LAUNCH_CHAINS_MAX && i < ema->count; i++) {
            nd_tensor *average = ema->of[i].average;
            if (!nd__module_same_device(average->device, device))
                break;
            if (average->numel > 0)
                chains[count++] = chain_of(ema, average, wide[i]);
            nd__tensor_bump_version(average);
        }
        if (count > 0)
            status = nd__launch_chains(operation, device, count, chains);
        *ret_begun = *ret_begun || status == ND_OK;
    }
    return status;
}

static nd_status update_by_calls(const nd_ema *ema, nd_tensor *const *wide, bool *ret_begun) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < ema->count; i++) {
        status = nd_mul_scalar_(ema->of[i].average, ema->decay);
        *ret_begun = *ret_begun || status == ND_OK;
        if (status == ND_OK)
            status = nd_add_scaled_(ema->of[i].average, wide[i], 1 - ema->decay);
    }
    return status;
}

/// Whether each is a chain.
static bool are_chains(const nd_ema *ema, nd_tensor *const *wide) {
    for (size_t i = 0; i < ema->count; i++)
        if (!nd__launch_has_chains(wide[i]->device) || !nd__tensor_is_contiguous(wide[i]) ||
            !nd__tensor_is_contiguous(ema->of[i].average))
            return false;
    return true;
}

/// All memory is there.
static nd_status move_averages(const char *operation, const nd_ema *ema, nd_tensor *const *wide) {
    bool begun = false;
    nd_status status = are_chains(ema, wide) ? update_by_chains(operation, ema, wide, &begun)
                                             : update_by_calls(ema, wide, &begun);
    if (status != ND_ERROR_OUT_OF_MEMORY || !begun)
        return status;
    return nd__error(ND_ERROR_DEVICE,
                     "%s: the device had no memory to run a kernel when some averages were moved",
                     operation);
}

nd_status nd_ema_update(nd_ema *ema) {
    static const char operation[] = "ema_update";
    nd_status status = check_all(operation, ema, false);
    if (status != ND_OK)
        return status;
    const size_t count = ema->count;
    nd_tensor **wide = nd__pressure_alloc_zeroed((count + 1) * sizeof *wide);
    if (!wide)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu parameters",
                         operation, count);
    nd_grad_block block = nd__grad_block_begin(false);
    status = widen(ema, wide);
    if (status == ND_OK)
        status = check_all(operation, ema, false); // a callback for memory may have closed one
    for (size_t i = 0; status == ND_OK && i < count; i++)
        status = nd__tensor_check_writable(operation, "an average", ema->of[i].average);
    if (status == ND_OK)
        status = move_averages(operation, ema, wide);
    nd__grad_block_end(&block);
    for (size_t i = 0; i < count; i++)
        nd_release(wide[i]);
    nd__alloc_free(wide);
    return status;
}

static void drop_kept(nd_ema *ema) {
    for (size_t i = 0; i < ema->count; i++)
        nd__edge_set_in(&ema->header, &ema->of[i].kept, NULL);
}

nd_status nd_ema_apply(nd_ema *ema) {
    static const char operation[] = "ema_apply";
    nd_status status = check_all(operation, ema, false);
    for (size_t i = 0; status == ND_OK && i < ema->count; i++) {
        const nd_tensor *parameter = ema->of[i].parameter;
        status = nd__tensor_check_writable(operation, "a parameter", parameter);
        if (status != ND_OK)
            break;
        nd_tensor *kept = nd__parameters_copy_to(operation, parameter, parameter, parameter->device,
                                                 parameter->dtype);
        status = kept ? ND_OK : nd_error_get_status();
        if (kept && !nd__edge_set_in(&ema->header, &ema->of[i].kept, kept))
            status = nd__ema_check(operation, ema);
        nd_release(kept);
    }
    if (status == ND_OK)
        status = check_all(operation, ema, false); // a callback for memory may have closed one
    for (size_t i = 0; status == ND_OK && i < ema->count; i++) {
        status = nd__copy_into(operation, ema->of[i].parameter, ema->of[i].average);
        nd__tensor_bump_version(ema->of[i].parameter);
        ema->applied = true;
    }
    if (status != ND_OK && ema && !nd__object_is_closed(ema) && !ema->applied)
        drop_kept(ema);
    return status;
}

nd_status nd_ema_restore(nd_ema *ema) {
    static const char operation[] = "ema_restore";
    nd_status status = check_all(operation, ema, true);
    for (size_t i = 0; status == ND_OK && i < ema->count; i++) {
        status = nd__copy_into(operation, ema->of[i].parameter, ema->of[i].kept);
        nd__tensor_bump_version(ema->of[i].parameter);
    }
    if (status == ND_OK) {
        drop_kept(ema);
        ema->applied = false;
    }
    return status;
}

const nd_tensor *nd_ema_get_average(const nd_ema *ema, const char *name) {
    static const char operation[] = "ema_get_average";
    if (nd__ema_check(operation, ema) != ND_OK)
        return NULL;
    for (size_t i = 0; name && i < ema->count; i++)
        if (strcmp(ema->names[i], name) == 0)
            return ema->of[i].average;
    nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: there is no average of '%.200s'", operation,
              name ? name : "");
    return NULL;
}

nd_status nd__ema_check(const char *operation, const nd_ema *ema) {
    if (!ema)
        return nd__error_null(operation, "ema");
    if (nd__object_is_closed(ema))
        return nd__error(ND_ERROR_CLOSED, "%s: the averages were closed", operation);
    return ND_OK;
}

/// Everything usable, averages where their parameters are, and applied or not.
static nd_status check_all(const char *operation, const nd_ema *ema, bool applied) {
    nd_status status = nd__ema_check(operation, ema);
    if (status == ND_OK && ema->applied != applied)
        status = nd__error(ND_ERROR_STATE,
                           applied ? "%s: the averages were not applied"
                                   : "%s: the averages are applied (nd_ema_restore)",
                           operation);
    for (size_t i = 0; status == ND_OK && i < ema->count; i++) {
        const nd_tensor *parameter = ema->of[i].parameter;
        status = nd__tensor_check_operand(operation, "a parameter", parameter);
        if (status == ND_OK)
            status = nd__tensor_check_operand(operation, "an average", ema->of[i].average);
        if (status == ND_OK &&
            !nd__module_same_device(parameter->device, ema->of[i].average->device))
            status = nd__error(ND_ERROR_DEVICE,
                               "%s: the parameter '%.100s' has moved since the averages were made",
                               operation, ema->names[i]);
    }
    return status;
}

static void traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_ema *ema = (const nd_ema *)self;
    for (size_t i = 0; i < ema->count; i++) {
        nd_visit(visitor, ema->of[i].parameter, "parameter");
        nd_visit(visitor, ema->of[i].average, "average");
        nd_visit(visitor, ema->of[i].kept, "kept");
    }
}

static void clear(nd_object *self) {
    nd_ema *ema = (nd_ema *)self;
    for (size_t i = 0; i < ema->count; i++) {
        nd_edge_clear(&ema->of[i].parameter);
        nd_edge_clear(&ema->of[i].average);
        nd_edge_clear(&ema->of[i].kept);
    }
}

static void destroy(nd_object *self) {
    nd_ema *ema = (nd_ema *)self;
    nd__alloc_free(ema->names);
    ema->names = NULL;
}
