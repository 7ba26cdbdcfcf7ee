// Collective calls on tensors, and messages between two ranks.
//
// Invariant: what a transport is given is memory of the call's own, never a tensor's that the
// program has: so no strides, no device, no close and no collection gets between, and a call that
// fails has written nothing. That memory is under a tensor from the beginning (`work`), which
// borrows it until the transport is done; so a quota refuses before anything is sent, and where the
// transport fails the tensor goes and the memory stays (nd__transport_keep). What makes tensors is
// before `agree` or behind `leave`, since it may run code of the program's (communicator.h).
#include "lib/distributed/collectives.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/distributed/agreement.h"
#include "lib/manager/place.h"
#include "lib/memory/host.h"
#include "lib/memory/ladder.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/overlap.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>

#include <string.h>

/// One call.
typedef struct job {
    const nd_communicator *comm;
    nd_transport_call call;
    nd_description mine;
    nd_tensor *work; ///< on the transport's device, contiguous
    void *data;      ///< its first element
    void *lent;      ///< memory that it borrows, of the host: the call's until it succeeds; or NULL
    size_t bytes;    ///< of that
    bool entered;    ///< the communicator is locked
} job;

static nd_status begin(job *job, const char *operation, nd_call_kind kind, int argument,
                       const nd_communicator *comm) {
    *job = (struct job){.comm = comm, .mine = {.call = (int32_t)kind, .argument = argument}};
    return nd__communicator_check(operation, comm, &job->call);
}

static const nd_transport_functions *transport_of(const job *job) {
    return job->comm->functions;
}

/// What the ranks must have in common of a tensor that is usable.
static void describe(job *job, const nd_tensor *x) {
    job->mine.dtype = (int32_t)x->dtype;
    job->mine.ndim = x->ndim;
    nd__shape_copy(job->mine.shape, x->shape, x->ndim);
}

static int64_t bytes_of(const nd_tensor *x) {
    return x->numel * nd__dtype_bytes[x->dtype];
}

// -------------------------------------------------------------------------------------------------
// memory on its way

/// Host memory under a tensor at a manager.
static nd_tensor *on_host_memory(job *job, nd_manager *manager, nd_dtype dtype, int ndim,
                                 const int64_t *shape, int64_t numel) {
    const char *operation = job->call.operation;
    job->lent = nd__ladder_alloc_host(job->bytes);
    if (!job->lent) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu bytes on their way", operation,
                  job->bytes);
        return NULL;
    }
    nd_storage *storage =
        nd__storage_wrap(operation, manager, (nd_device){ND_CPU, 0}, job->lent, job->bytes);
    return storage ? nd__tensor_on(manager, storage, dtype, ndim, shape, numel) : NULL;
}

/// Takes memory of the transport's device under a tensor of that shape, placed where a result of x
/// belongs.
static nd_status take_work(job *job, const nd_tensor *x, int ndim, const int64_t *shape) {
    const char *operation = job->call.operation;
    nd_device device = job->comm->device;
    int64_t numel;
    nd_status status = nd__shape_check(operation, ndim, shape, x->dtype, &numel);
    if (status != ND_OK)
        return status;
    job->bytes = numel > 0 ? (size_t)numel * nd__dtype_bytes[x->dtype] : 1;
    const nd_object *operand = &x->header;
    nd_place place = nd__place_begin(&operand, 1);
    job->work = device.kind == ND_CPU
                    ? on_host_memory(job, place.manager, x->dtype, ndim, shape, numel)
                    : nd__tensor_new(operation, place.manager, device, x->dtype, ndim, shape);
    nd__place_end(place);
    job->data = job->work ? job->work->data : NULL;
    return job->work ? ND_OK : nd_error_get_status();
}

/// Copies x to where it goes: `work` from that element on.
static nd_status fill(job *job, const nd_tensor *x, int64_t first) {
    int64_t strides[ND_MAX_DIMS];
    nd__tensor_contiguous_strides(x->ndim, x->shape, strides);
    nd_auto nd_tensor *part = nd__tensor_view(job->work, x->ndim, x->shape, strides, first);
    return part ? nd__copy_into(job->call.operation, part, x) : nd_error_get_status();
}

/// Makes the memory the tensor's. Error: the tensor was closed meanwhile.
static nd_status give_to_work(job *job) {
    nd_storage *storage =
        nd__tensor_is_usable(job->work) ? nd__tensor_storage_now(job->work) : NULL;
    if (!storage)
        return nd__error(ND_ERROR_CLOSED, "%s: the manager of the result was disposed of meanwhile",
                         job->call.operation);
    storage->borrowed = false;
    job->lent = NULL;
    return ND_OK;
}

/// Notes what the transport answered; on an error the memory is its own from now on.
static nd_status sent(job *job, nd_status status) {
    if (status != ND_OK && job->lent) {
        nd__transport_keep(job->lent);
        job->lent = NULL;
    }
    return nd__communicator_note(job->comm, status);
}

/// The ranks are through with it.
static void leave(job *job) {
    if (job->entered)
        nd__communicator_leave(job->comm);
    job->entered = false;
}

/// Ends the call. Whatever it still has goes.
static void end(job *job) {
    leave(job);
    nd_release(job->work);
    if (job->lent)
        nd__host_free(job->lent, job->bytes);
}

/// This rank's turn, of which `status` is what it has failed at already. An error of the
/// communicator's comes before that.
static nd_status enter(job *job, nd_status status) {
    nd_error_state own;
    nd__error_save(&own);
    nd_transport_call call;
    nd_status entered = nd__communicator_enter(job->call.operation, job->comm, &call);
    if (entered != ND_OK)
        return entered;
    nd__error_restore(&own);
    job->entered = true;
    job->mine.status = (int32_t)status;
    return ND_OK;
}

/// Tells the others whether this rank takes part, and hears whether all do.
static nd_status agree(job *job, nd_status status) {
    nd_status entered = enter(job, status);
    return entered == ND_OK ? nd__agreement_reach(job->comm, &job->call, &job->mine) : entered;
}

// -------------------------------------------------------------------------------------------------
// checks

static nd_status check_op(const job *job, nd_collective op, nd_dtype dtype) {
    const char *operation = job->call.operation;
    if (op < ND_COLLECTIVE_SUM || op > ND_COLLECTIVE_MIN)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: op is %d, which is no nd_collective",
                         operation, (int)op);
    if (op == ND_COLLECTIVE_MEAN && !nd__dtype_is_float(dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: a mean is one of floats, and x is %s", operation,
                         nd_dtype_get_name(dtype));
    if (op == ND_COLLECTIVE_SUM && dtype == ND_BOOL)
        return nd__error(ND_ERROR_DTYPE, "%s: bools have no sum; cast x to an integer", operation);
    if (!transport_of(job)->reduces(dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: %s has no reductions of %s", operation,
                         transport_of(job)->name, nd_dtype_get_name(dtype));
    return ND_OK;
}

static nd_status check_rank(const char *operation, const char *what, const nd_communicator *comm,
                            int rank) {
    return rank >= 0 && rank < comm->size
               ? ND_OK
               : nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is %d; there are %d ranks", operation,
                           what, rank, comm->size);
}

/// x is usable and may be written in place.
static nd_status check_target(const char *operation, const nd_tensor *x) {
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    if (status == ND_OK)
        status = nd__tensor_check_writable(operation, "x", x);
    if (status != ND_OK)
        return status;
    char text[ND__SHAPE_TEXT];
    if (nd_is_grad_enabled() && nd__tensor_requires_grad(x))
        return nd__error(ND_ERROR_STATE,
                         "%s: x requires a gradient, and what other ranks sent has none; use "
                         "nd_no_grad",
                         operation);
    if (nd__overlap_within(x))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: elements of x (shape %s) share memory with each other, so it cannot "
                         "be written in place",
                         operation, nd__shape_text(text, x->ndim, x->shape));
    return ND_OK;
}

static nd_status check_rows(const char *operation, const nd_tensor *x, int ranks) {
    if (x->ndim == 0)
        return nd__error(ND_ERROR_SHAPE, "%s: x has no axis to share", operation);
    char text[ND__SHAPE_TEXT];
    if (x->shape[0] % ranks != 0)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: the first axis of x, of shape %s, is not divisible by the %d ranks",
                         operation, nd__shape_text(text, x->ndim, x->shape), ranks);
    return ND_OK;
}

/// Whether `work` can be the result itself: it is where x is.
static bool is_direct(const job *job, const nd_tensor *x) {
    nd_device device = job->comm->device;
    return x->device.kind == device.kind && x->device.index == device.index;
}

/// A tensor where x is, to be filled from `work`.
static nd_status take_result(const job *job, const nd_tensor *x, int ndim, const int64_t *shape,
                             nd_tensor **ret_result) {
    *ret_result = nd__tensor_result(job->call.operation, &x, 1, x->device, x->dtype, ndim, shape);
    return *ret_result ? ND_OK : nd_error_get_status();
}

// -------------------------------------------------------------------------------------------------
// reductions

nd_status nd__collectives_reduce(const nd_communicator *comm, const nd_transport_call *call,
                                 void *data, int64_t count, nd_dtype dtype, nd_collective op) {
    nd_transport *transport = comm->transport;
    return count == 0 ? ND_OK
                      : transport->functions->all_reduce(transport, call, data, count, dtype, op);
}

/// agree(), with x on its way where that can be so early: from `work`, or from where x is, which was
/// not copied then (`apart`).
static nd_status agree_to_reduce(job *job, nd_status status, const nd_tensor *x, bool apart) {
    nd_status entered = enter(job, status);
    if (entered != ND_OK)
        return entered;
    if (status == ND_OK && apart)
        status =
            nd__tensor_check_operand(job->call.operation, "x", x); // another thread may close it
    if (status == ND_OK && job->comm->stages && x->numel > 0) {
        transport_of(job)->stage(job->comm->transport, apart ? x->data : job->data, job->data,
                                 x->numel, x->dtype);
        job->call.staged = true;
    }
    job->mine.status = (int32_t)status;
    return nd__agreement_reach(job->comm, &job->call, &job->mine);
}

/// Everything of an all-reduce up to the sum, in `work`.
static nd_status reduce(job *job, nd_status status, const nd_tensor *x, nd_collective op) {
    if (status == ND_OK)
        status = check_op(job, op, x->dtype);
    if (status == ND_OK) {
        describe(job, x);
        status = take_work(job, x, x->ndim, x->shape);
    }
    bool apart = status == ND_OK && job->comm->stages && x->numel > 0 && is_direct(job, x) &&
                 nd_is_contiguous(x);
    if (status == ND_OK && !apart)
        status = fill(job, x, 0);
    status = agree_to_reduce(job, status, x, apart);
    if (status == ND_OK)
        status = sent(
            job, nd__collectives_reduce(job->comm, &job->call, job->data, x->numel, x->dtype, op));
    leave(job);
    return status;
}

/// Ends a call with its result: `work` itself, or a tensor elsewhere (`result`, else NULL) with the
/// values of `work`. NULL with an error.
static nd_tensor *end_with_result(job *job, nd_status status, nd_tensor *result) {
    if (status == ND_OK && result)
        status = nd__copy_into(job->call.operation, result, job->work);
    if (status == ND_OK)
        status = give_to_work(job);
    if (status == ND_OK && !result)
        result = nd_steal(&job->work);
    end(job);
    if (status == ND_OK)
        return result;
    nd_release(result);
    return NULL;
}

nd_tensor *nd__collectives_all_reduce(const char *operation, const nd_tensor *x,
                                      const nd_communicator *comm, nd_collective op,
                                      nd_status status) {
    job job;
    if (begin(&job, operation, ND__CALL_ALL_REDUCE, (int)op, comm) != ND_OK)
        return NULL;
    nd_tensor *result = NULL;
    if (status == ND_OK)
        status = nd__tensor_check_operand(operation, "x", x);
    bool direct = status == ND_OK && is_direct(&job, x);
    if (status == ND_OK && !direct)
        status = take_result(&job, x, x->ndim, x->shape, &result);
    status = reduce(&job, status, x, op);
    return end_with_result(&job, status, result);
}

nd_tensor *nd_all_reduce(const nd_tensor *x, const nd_communicator *comm, nd_collective op) {
    ND__UNCANCELLED;
    return nd__collectives_all_reduce("all_reduce", x, comm, op, ND_OK);
}

/// The last step of what is in place: `work` into x.
static nd_status write_back(job *job, nd_tensor *x) {
    nd_status status = nd__tensor_check_operand(job->call.operation, "x", x);
    if (status == ND_OK)
        status = give_to_work(job);
    if (status == ND_OK) {
        status = nd__copy_into(job->call.operation, x, job->work);
        nd__tensor_bump_version(x);
    }
    return status;
}

nd_status nd_all_reduce_(nd_tensor *x, const nd_communicator *comm, nd_collective op) {
    ND__UNCANCELLED;
    job job;
    nd_status status = begin(&job, "all_reduce_", ND__CALL_ALL_REDUCE, (int)op, comm);
    if (status != ND_OK)
        return status;
    status = reduce(&job, check_target(job.call.operation, x), x, op);
    if (status == ND_OK)
        status = write_back(&job, x);
    end(&job);
    return status;
}

nd_tensor *nd_reduce_scatter(const nd_tensor *x, const nd_communicator *comm, nd_collective op) {
    ND__UNCANCELLED;
    static const char operation[] = "reduce_scatter";
    job job;
    if (begin(&job, operation, ND__CALL_REDUCE_SCATTER, (int)op, comm) != ND_OK)
        return NULL;
    int64_t shape[ND_MAX_DIMS] = {0};
    nd_tensor *result = NULL;
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    if (status == ND_OK)
        status = check_op(&job, op, x->dtype);
    if (status == ND_OK)
        status = check_rows(operation, x, comm->size);
    if (status == ND_OK) {
        describe(&job, x);
        nd__shape_copy(shape, x->shape, x->ndim);
        shape[0] /= comm->size;
        status = take_result(&job, x, x->ndim, shape, &result);
    }
    if (status == ND_OK)
        status = take_work(&job, x, x->ndim, x->shape);
    if (status == ND_OK)
        status = fill(&job, x, 0);
    status = agree(&job, status);
    int64_t count = result ? result->numel : 0, first = 0;
    if (status == ND_OK && count > 0)
        status = sent(&job, transport_of(&job)->reduce_scatter(comm->transport, &job.call, job.data,
                                                               count, x->dtype, op, &first));
    leave(&job);
    if (status == ND_OK)
        status = give_to_work(&job);
    nd_auto nd_tensor *share =
        status == ND_OK && count > 0
            ? nd__tensor_view(job.work, x->ndim, shape, nd__tensor_strides(result), first)
            : NULL;
    if (share)
        status = nd__copy_into(operation, result, share);
    else if (status == ND_OK && count > 0)
        status = nd_error_get_status();
    end(&job);
    if (status == ND_OK)
        return result;
    nd_release(result);
    return NULL;
}

// -------------------------------------------------------------------------------------------------
// copies

nd_status nd_barrier(const nd_communicator *comm) {
    ND__UNCANCELLED;
    job job;
    nd_status status = begin(&job, "barrier", ND__CALL_BARRIER, 0, comm);
    if (status != ND_OK)
        return status;
    status = agree(&job, ND_OK);
    end(&job);
    return status;
}

nd_status nd__collectives_broadcast(const char *operation, nd_tensor *x,
                                    const nd_communicator *comm, int root, nd_status status) {
    job job;
    nd_status begun = begin(&job, operation, ND__CALL_BROADCAST, root, comm);
    if (begun != ND_OK)
        return begun;
    if (status == ND_OK)
        status = check_target(operation, x);
    if (status == ND_OK)
        status = check_rank(operation, "root", comm, root);
    if (status == ND_OK) {
        describe(&job, x);
        status = take_work(&job, x, x->ndim, x->shape);
    }
    bool is_root = root == comm->rank;
    if (status == ND_OK && is_root)
        status = fill(&job, x, 0);
    status = agree(&job, status);
    if (status == ND_OK && x->numel > 0)
        status = sent(&job, transport_of(&job)->broadcast(comm->transport, &job.call, job.data,
                                                          bytes_of(x), root));
    leave(&job);
    if (status == ND_OK)
        status = is_root ? give_to_work(&job) : write_back(&job, x);
    end(&job);
    return status;
}

nd_status nd_broadcast_(nd_tensor *x, const nd_communicator *comm, int root) {
    ND__UNCANCELLED;
    return nd__collectives_broadcast("broadcast_", x, comm, root, ND_OK);
}

nd_tensor *nd_all_gather(const nd_tensor *x, const nd_communicator *comm) {
    ND__UNCANCELLED;
    static const char operation[] = "all_gather";
    job job;
    if (begin(&job, operation, ND__CALL_ALL_GATHER, 0, comm) != ND_OK)
        return NULL;
    int64_t shape[ND_MAX_DIMS] = {0};
    nd_tensor *result = NULL;
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    if (status == ND_OK)
        status = check_rows(operation, x, 1);
    bool direct = status == ND_OK && is_direct(&job, x);
    if (status == ND_OK) {
        describe(&job, x);
        nd__shape_copy(shape, x->shape, x->ndim);
        if (__builtin_mul_overflow(shape[0], (int64_t)comm->size, &shape[0]))
            status = nd__error(ND_ERROR_SHAPE, "%s: %d times the rows of x are too many", operation,
                               comm->size);
    }
    if (status == ND_OK)
        status = take_work(&job, x, x->ndim, shape);
    if (status == ND_OK && !direct)
        status = take_result(&job, x, x->ndim, shape, &result);
    int64_t each = status == ND_OK ? bytes_of(x) : 0;
    if (status == ND_OK)
        status = fill(&job, x, comm->rank * x->numel);
    status = agree(&job, status);
    if (status == ND_OK && each > 0)
        status =
            sent(&job, transport_of(&job)->all_gather(comm->transport, &job.call, job.data, each));
    leave(&job);
    return end_with_result(&job, status, result);
}

// -------------------------------------------------------------------------------------------------
// two ranks

/// Takes memory for x, and agrees with the other rank.
static nd_status meet(job *job, nd_status status, const nd_tensor *x, int rank, bool sends) {
    if (status == ND_OK) {
        describe(job, x);
        status = take_work(job, x, x->ndim, x->shape);
    }
    if (status == ND_OK && sends)
        status = fill(job, x, 0);
    nd_status entered = enter(job, status);
    return entered == ND_OK ? nd__agreement_with(job->comm, &job->call, rank, &job->mine) : entered;
}

/// A rank to exchange something with; another one nobody can be told of.
static nd_status check_partner(const char *operation, const nd_communicator *comm, int rank) {
    nd_status status = check_rank(operation, "rank", comm, rank);
    return status == ND_OK && rank == comm->rank
               ? nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: rank %d is this one", operation, rank)
               : status;
}

nd_status nd__collectives_send(const char *operation, const nd_tensor *x,
                               const nd_communicator *comm, int rank, nd_status status) {
    job job;
    nd_status begun = begin(&job, operation, ND__CALL_SEND, 0, comm);
    if (begun != ND_OK)
        return begun;
    begun = check_partner(operation, comm, rank);
    if (begun == ND_OK && status == ND_OK)
        status = nd__tensor_check_operand(operation, "x", x);
    status = begun == ND_OK ? meet(&job, status, x, rank, true) : begun;
    if (status == ND_OK && x->numel > 0)
        status = sent(&job, transport_of(&job)->send(comm->transport, &job.call, job.data,
                                                     bytes_of(x), rank));
    leave(&job);
    if (status == ND_OK)
        status = give_to_work(&job);
    end(&job);
    return status;
}

nd_status nd_send(const nd_tensor *x, const nd_communicator *comm, int rank) {
    ND__UNCANCELLED;
    return nd__collectives_send("send", x, comm, rank, ND_OK);
}

nd_status nd__collectives_receive(const char *operation, nd_tensor *x, const nd_communicator *comm,
                                  int rank, nd_status status) {
    job job;
    nd_status begun = begin(&job, operation, ND__CALL_RECEIVE, 0, comm);
    if (begun != ND_OK)
        return begun;
    begun = check_partner(operation, comm, rank);
    if (begun == ND_OK && status == ND_OK)
        status = check_target(operation, x);
    status = begun == ND_OK ? meet(&job, status, x, rank, false) : begun;
    if (status == ND_OK && x->numel > 0)
        status = sent(&job, transport_of(&job)->receive(comm->transport, &job.call, job.data,
                                                        bytes_of(x), rank));
    leave(&job);
    if (status == ND_OK)
        status = write_back(&job, x);
    end(&job);
    return status;
}

nd_status nd_receive_(nd_tensor *x, const nd_communicator *comm, int rank) {
    ND__UNCANCELLED;
    return nd__collectives_receive("receive_", x, comm, rank, ND_OK);
}
