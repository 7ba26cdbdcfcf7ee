// What follows a backward pass where each rank steps its share of the parameters only (ZeRO-1). The
// optimizer knows nothing of it: it steps what has a gradient, and makes state for that.
//
// Invariant: no rank steps before all are ready. A rank that a step has failed on after that says so
// before each later one, until all ranks have the same values again.
#include "lib/distributed/sharded.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/distributed/agreement.h"
#include "lib/distributed/bucket_memory.h"
#include "lib/distributed/collectives.h"
#include "lib/manager/place.h"
#include "lib/nn/gradients.h"
#include "lib/nn/loss_scaler.h"
#include "lib/nn/optimizer.h"
#include "lib/nn/optimizer_slots.h"
#include "lib/object/edge.h"
#include <nd/autograd.h>
#include <nd/ops.h>

#include <math.h>
#include <string.h>

/// The parameters' part of the memory that is sent, from their owner or back.
static nd_status copy_part(const char *operation, const nd_data_parallel *parallel,
                           const nd_parallel_work *work, size_t part, bool to_memory) {
    nd_tensor *parameter = parallel->tensors[part];
    nd_status status = nd__tensor_check_operand(operation, "a parameter", parameter);
    if (status == ND_OK)
        status = nd__data_parallel_check_dtype(operation, work, part, parameter->dtype);
    if (status != ND_OK || parameter->numel == 0)
        return status;
    void *memory = nd__buckets_memory(work->buckets, part);
    nd_device device = nd__buckets_get_device(work->buckets);
    if (to_memory)
        return nd__bucket_memory_write(operation, device, memory, parameter);
    status = nd__bucket_memory_read(operation, device, memory, parameter);
    nd__tensor_bump_version(parameter);
    return status;
}

nd_status nd__sharded_check_together(const char *operation, const nd_parallel_work *work) {
    return work->apart ? nd__error(ND_ERROR_STATE,
                                   "%s: a step was made by a part of the ranks, which have "
                                   "different values now: load the last state, or call "
                                   "nd_data_parallel_synchronize()",
                                   operation)
                       : ND_OK;
}

/// A step of all ranks.
typedef struct step {
    const char *operation;
    const nd_data_parallel *parallel;
    nd_parallel_work *work;
    bool agreed; ///< all are ready, and step
} step;

/// Before anything has changed: whether all ranks are ready.
static nd_status agree_to_step(void *data, nd_status status) {
    step *step = data;
    if (status == ND_OK)
        status = nd__sharded_check_together(step->operation, step->work);
    if (status == ND_OK)
        status = nd__data_parallel_check_dtypes(step->operation, step->parallel, step->work);
    status = nd__buckets_gather(step->work->buckets, step->operation, false, status);
    step->agreed = status == ND_OK;
    return status;
}

/// Behind a step of all ranks, or of some of them: the new values go to all.
static nd_status share_values(const char *operation, const nd_data_parallel *parallel,
                              const nd_parallel_work *work, nd_status status) {
    for (size_t i = 0; parallel->sharded && status == ND_OK && i < parallel->parameters; i++)
        if (nd__buckets_is_own(work->buckets, i))
            status = copy_part(operation, parallel, work, i, true);
    status = nd__buckets_gather(work->buckets, operation, parallel->sharded, status);
    for (size_t i = 0; parallel->sharded && status == ND_OK && i < parallel->parameters; i++)
        if (!nd__buckets_is_own(work->buckets, i))
            status = copy_part(operation, parallel, work, i, false);
    return status;
}

static nd_status step_all(const char *operation, const nd_data_parallel *parallel,
                          nd_parallel_work *work, nd_optimizer *optimizer) {
    step step = {.operation = operation, .parallel = parallel, .work = work};
    nd_status status = nd__optimizer_step(optimizer, agree_to_step, &step);
    if (step.agreed) {
        status = share_values(operation, parallel, work, status);
        work->apart = status != ND_OK;
    }
    return status;
}

nd_status nd_data_parallel_step(nd_data_parallel *parallel, nd_optimizer *optimizer) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_step";
    nd_parallel_work *work;
    nd_status status = nd__data_parallel_enter(operation, parallel, &work);
    if (status != ND_OK)
        return status;
    status = step_all(operation, parallel, work, optimizer);
    nd__data_parallel_leave(work);
    return status;
}

// -------------------------------------------------------------------------------------------------
// sums over all gradients

/// The sum over all ranks, which make the same call with the same number, in memory of the call's own.
static nd_status add_up(const nd_communicator *comm, const nd_transport_call *call,
                        nd_call_kind kind, double number, double *sum, nd_status status) {
    nd_description mine = {.call = (int32_t)kind};
    memcpy(&mine.shape[0], &number, sizeof number);
    double *shared = status == ND_OK ? nd__alloc(sizeof *shared) : NULL;
    if (status == ND_OK && !shared)
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a sum", call->operation);
    mine.status = (int32_t)status;
    status = nd__agreement_reach(comm, call, &mine);
    if (status == ND_OK) {
        *shared = *sum;
        status = nd__communicator_note(
            comm, comm->transport->functions->reduce_values(comm->transport, call, shared, 1,
                                                            ND_F64, ND_COLLECTIVE_SUM));
        if (status != ND_OK && comm->device.kind == ND_CPU) {
            nd__transport_keep(shared);
            return status;
        }
        *sum = *shared;
    }
    nd__alloc_free(shared);
    return status;
}

/// The sum over all ranks of what this one has found; with `status` it has failed.
static nd_status share_sum(const char *operation, const nd_data_parallel *parallel,
                           nd_call_kind kind, double number, double *sum, nd_status status) {
    nd_transport_call call;
    nd_error_state own;
    nd__error_save(&own);
    nd_status entered = nd__communicator_enter(operation, parallel->comm, &call);
    if (entered != ND_OK && status == ND_OK)
        return entered;
    nd__error_restore(&own);
    if (entered != ND_OK)
        return status;
    status = add_up(parallel->comm, &call, kind, number, sum, status);
    nd__communicator_leave(parallel->comm);
    return status;
}

nd_status nd_data_parallel_clip_grad_norm(nd_data_parallel *parallel, double limit,
                                          double *ret_norm) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_clip_grad_norm";
    ND__ERROR_NAMED(operation);
    nd_parallel_work *work;
    nd_status status = nd__data_parallel_enter(operation, parallel, &work);
    if (status != ND_OK)
        return status;
    double norm = 0;
    if (!(limit >= 0))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the limit is %g; it must be at least 0",
                           operation, limit);
    if (status == ND_OK)
        status = nd__gradients_norm(operation, parallel->tensors, parallel->parameters, &norm);
    // All ranks have the same gradients, or each its own.
    double squares = parallel->sharded || parallel->comm->rank == 0 ? norm * norm : 0;
    limit += 0.0; // of -0 the bits of 0
    status = share_sum(operation, parallel, ND__CALL_CLIP, limit, &squares, status);
    norm = sqrt(squares);
    if (status == ND_OK && isfinite(norm) && norm > limit)
        status =
            nd__gradients_scale(operation, parallel->tensors, parallel->parameters, limit / norm);
    if (status == ND_OK && ret_norm)
        *ret_norm = norm;
    nd__data_parallel_leave(work);
    return status;
}

/// Divides the gradients that this rank has. All ranks know then whether all gradients are finite.
static nd_status unscale(const char *operation, const nd_data_parallel *parallel,
                         const nd_loss_scaler *scaler, nd_optimizer *optimizer, nd_status status) {
    if (status == ND_OK)
        status = nd__loss_scaler_divide(operation, scaler, optimizer);
    double infinite = status == ND_OK && !optimizer->is_finite;
    status = share_sum(operation, parallel, ND__CALL_SCALED, nd_loss_scaler_get_scale(scaler),
                       &infinite, status);
    if (status == ND_OK)
        optimizer->is_finite = infinite == 0;
    return status;
}

static nd_status check_scaled(const char *operation, const nd_loss_scaler *scaler,
                              const nd_optimizer *optimizer) {
    nd_status status = nd__loss_scaler_check(operation, scaler);
    return status == ND_OK ? nd__optimizer_check(operation, optimizer) : status;
}

nd_status nd_data_parallel_unscale(nd_data_parallel *parallel, nd_loss_scaler *scaler,
                                   nd_optimizer *optimizer) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_unscale";
    ND__ERROR_NAMED(operation);
    nd_parallel_work *work;
    nd_status status = nd__data_parallel_enter(operation, parallel, &work);
    if (status != ND_OK)
        return status;
    status = check_scaled(operation, scaler, optimizer);
    status = unscale(operation, parallel, scaler, optimizer, status);
    nd__data_parallel_leave(work);
    return status;
}

nd_status nd_data_parallel_step_scaled(nd_data_parallel *parallel, nd_loss_scaler *scaler,
                                       nd_optimizer *optimizer, bool *ret_stepped) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_step_scaled";
    ND__ERROR_NAMED(operation);
    nd_parallel_work *work;
    nd_status status = nd__data_parallel_enter(operation, parallel, &work);
    if (status != ND_OK)
        return status;
    status = check_scaled(operation, scaler, optimizer);
    status = unscale(operation, parallel, scaler, optimizer, status);
    const bool steps = status == ND_OK && optimizer->is_finite;
    if (steps)
        status = step_all(operation, parallel, work, optimizer);
    if (status == ND_OK) {
        nd__loss_scaler_end_step(scaler, optimizer, steps);
        if (ret_stepped)
            *ret_stepped = steps;
    }
    nd__data_parallel_leave(work);
    return status;
}

// -------------------------------------------------------------------------------------------------
// the state

/// The optimizer's state of a parameter; NULL: it has none of it.
static nd_parameter_state *state_of(nd_optimizer *optimizer, const nd_tensor *parameter) {
    for (size_t i = 0; i < optimizer->count; i++)
        if (optimizer->states[i].parameter == parameter)
            return &optimizer->states[i];
    return NULL;
}

/// How often each parameter was stepped, and which state it has, from its owner.
enum { NUMBERS = 1 + ND__SLOTS };

static nd_tensor *share_numbers(const char *operation, const nd_data_parallel *parallel,
                                const nd_parallel_work *work, nd_optimizer *optimizer) {
    nd_status status = nd__optimizer_check(operation, optimizer);
    nd_auto nd_tensor *numbers =
        status == ND_OK ? nd_zeros(ND_SHAPE((int64_t)parallel->parameters, NUMBERS), ND_I64) : NULL;
    if (status == ND_OK && !numbers)
        status = nd_error_get_status();
    for (size_t i = 0; numbers && i < parallel->parameters; i++) {
        const nd_parameter_state *state = state_of(optimizer, parallel->tensors[i]);
        if (!state || !nd__buckets_is_own(work->buckets, i))
            continue;
        int64_t *row = (int64_t *)numbers->data + i * NUMBERS;
        row[0] = (int64_t)state->steps;
        for (int slot = 0; slot < ND__SLOTS; slot++)
            row[1 + slot] = state->slot[slot] != NULL;
    }
    return nd__collectives_all_reduce(operation, numbers, parallel->comm, ND_COLLECTIVE_MAX,
                                      status);
}

/// One state tensor from its owner to rank 0. A rank that has failed already (`before`) says so to
/// the other one, which waits for it.
static nd_status bring(const char *operation, nd_data_parallel *parallel, nd_optimizer *optimizer,
                       nd_parameter_state *state, nd_slot slot, int owner, nd_status before) {
    bool sends = parallel->comm->rank == owner;
    nd_status status = before == ND_OK && !sends
                           ? nd__optimizer_slots_prepare_one(operation, optimizer, state, slot)
                           : before;
    nd_tensor *x = status == ND_OK ? state->slot[slot] : NULL;
    return sends ? nd__collectives_send(operation, x, parallel->comm, 0, status)
                 : nd__collectives_receive(operation, x, parallel->comm, owner, status);
}

/// What of a parameter's state its owner has, to rank 0.
static nd_status bring_all(const char *operation, nd_data_parallel *parallel,
                           nd_optimizer *optimizer, nd_parameter_state *state, int owner,
                           const int64_t *row, nd_status status) {
    for (int slot = 0; slot < ND__SLOTS; slot++)
        if (row[1 + slot])
            status = bring(operation, parallel, optimizer, state, (nd_slot)slot, owner, status);
    if (status != ND_OK)
        return status;
    state->steps = (uint64_t)row[0];
    if (parallel->comm->rank == 0)
        state->version = nd__tensor_version(state->parameter);
    return ND_OK;
}

nd_status nd__sharded_gather(const char *operation, nd_data_parallel *parallel,
                             const nd_parallel_work *work, nd_optimizer *optimizer) {
    nd_auto nd_tensor *numbers = share_numbers(operation, parallel, work, optimizer);
    if (!numbers)
        return nd_error_get_status();
    nd_status status = ND_OK;
    int rank = parallel->comm->rank;
    for (size_t i = 0; parallel->sharded && i < parallel->parameters; i++) {
        int owner = nd__buckets_get_owner(work->buckets, i);
        nd_parameter_state *state = state_of(optimizer, parallel->tensors[i]);
        if (owner != 0 && (rank == 0 || rank == owner) && state)
            status = bring_all(operation, parallel, optimizer, state, owner,
                               (const int64_t *)numbers->data + i * NUMBERS, status);
    }
    return status;
}

nd_status nd_data_parallel_gather_state(nd_data_parallel *parallel, nd_optimizer *optimizer) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_gather_state";
    nd_parallel_work *work;
    nd_status status = nd__data_parallel_enter(operation, parallel, &work);
    if (status != ND_OK)
        return status;
    status = nd__sharded_gather(operation, parallel, work, optimizer);
    nd__data_parallel_leave(work);
    return status;
}

nd_status nd__sharded_drop(const char *operation, nd_data_parallel *parallel,
                           const nd_parallel_work *work, nd_optimizer *optimizer) {
    nd_status status = nd__optimizer_check(operation, optimizer);
    for (size_t i = 0; status == ND_OK && i < parallel->parameters; i++) {
        nd_parameter_state *state = state_of(optimizer, parallel->tensors[i]);
        for (int slot = 0; state && !nd__buckets_is_own(work->buckets, i) && slot < ND__SLOTS;
             slot++)
            nd__edge_set_in(&optimizer->header, &state->slot[slot], NULL);
    }
    return status;
}

nd_status nd_data_parallel_drop_state(nd_data_parallel *parallel, nd_optimizer *optimizer) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_drop_state";
    nd_parallel_work *work;
    nd_status status = nd__data_parallel_enter(operation, parallel, &work);
    if (status != ND_OK)
        return status;
    status = nd__sharded_drop(operation, parallel, work, optimizer);
    nd__data_parallel_leave(work);
    return status;
}
