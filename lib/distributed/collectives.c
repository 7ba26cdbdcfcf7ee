// Collective calls on tensors, and messages between two ranks.
//
// Invariant: what a transport is given is memory of the call's own, never a tensor's that the program
// has: so no strides, no device, no close and no collection gets between, and a call that fails has
// written nothing. That memory is under a tensor from the beginning (`work`), which borrows it until
// the transport is done; so a quota refuses before anything is sent, and where the transport fails the
// tensor goes and the memory stays (nd__transport_keep).
#include "lib/distributed/collectives.h"
#include "kernels/half.h"
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

/// One call, from the lock to its release.
typedef struct job {
    const nd_communicator *comm;
    nd_transport_call call;
    nd_description mine;
    nd_tensor *work; ///< on the host, contiguous; borrows `data`
    void *data;
    size_t bytes;
} job;

static nd_status begin(job *job, const char *operation, nd_call_kind kind, int argument,
                       const nd_communicator *comm) {
    *job = (struct job){.comm = comm, .mine = {.call = kind, .argument = argument}};
    return nd__communicator_enter(operation, comm, &job->call);
}

static const nd_transport_functions *transport_of(const job *job) {
    return job->comm->transport->functions;
}

/// What the ranks must have in common of a tensor that is usable.
static void describe(job *job, const nd_tensor *x) {
    job->mine.dtype = (int32_t)x->dtype;
    job->mine.ndim = x->ndim;
    nd__shape_copy(job->mine.shape, x->shape, x->ndim);
}

// -------------------------------------------------------------------------------------------------
// memory on its way

/// Takes memory under a tensor of that shape, placed where a result of x belongs.
static nd_status take_work(job *job, const nd_tensor *x, int ndim, const int64_t *shape) {
    const char *operation = job->call.operation;
    int64_t numel;
    nd_status status = nd__shape_check(operation, ndim, shape, x->dtype, &numel);
    if (status != ND_OK)
        return status;
    job->bytes = (size_t)numel * nd__dtype_bytes[x->dtype];
    job->data = nd__ladder_alloc_host(job->bytes ? job->bytes : 1);
    if (!job->data)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu bytes on their way",
                         operation, job->bytes);
    const nd_object *operand = &x->header;
    nd_place place = nd__place_begin(&operand, 1);
    nd_storage *storage = nd__storage_wrap(operation, place.manager, (nd_device){ND_CPU, 0},
                                           job->data, job->bytes ? job->bytes : 1);
    job->work =
        storage ? nd__tensor_on(place.manager, storage, x->dtype, ndim, shape, numel) : NULL;
    nd__place_end(place);
    return job->work ? ND_OK : nd_error_get_status();
}

/// Makes the memory the tensor's. False: the tensor was closed meanwhile, which it then says.
static nd_status give_to_work(job *job) {
    nd_storage *storage =
        nd__tensor_is_usable(job->work) ? nd__tensor_storage_now(job->work) : NULL;
    if (!storage)
        return nd__error(ND_ERROR_CLOSED, "%s: the manager of the result was disposed of meanwhile",
                         job->call.operation);
    storage->borrowed = false;
    job->data = NULL;
    return ND_OK;
}

/// Notes what the transport answered; on an error the memory is its own from now on.
static nd_status sent(job *job, nd_status status) {
    if (status != ND_OK && job->data) {
        nd__transport_keep(job->data);
        job->data = NULL;
    }
    return nd__communicator_note(job->comm, status);
}

/// Ends the call. Whatever it still has goes.
static void end(job *job) {
    nd__communicator_leave(job->comm);
    nd_release(job->work);
    if (job->data)
        nd__host_free(job->data, job->bytes ? job->bytes : 1);
}

/// Tells the others whether this rank takes part, and hears whether all do.
static nd_status agree(job *job, nd_status status) {
    job->mine.status = (int32_t)status;
    return nd__agreement_reach(job->comm, &job->call, &job->mine);
}

// -------------------------------------------------------------------------------------------------
// checks

static nd_status check_op(const char *operation, nd_collective op, nd_dtype dtype) {
    if (op < ND_COLLECTIVE_SUM || op > ND_COLLECTIVE_MIN)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: op is %d, which is no nd_collective",
                         operation, (int)op);
    if (op == ND_COLLECTIVE_MEAN && !nd__dtype_is_float(dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: a mean is one of floats, and x is %s", operation,
                         nd_dtype_get_name(dtype));
    if (op == ND_COLLECTIVE_SUM && dtype == ND_BOOL)
        return nd__error(ND_ERROR_DTYPE, "%s: bools have no sum; cast x to an integer", operation);
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

/// A result where x is: `work` itself, or a tensor on x's device, to be filled from it.
static nd_status take_result(const job *job, const nd_tensor *x, int ndim, const int64_t *shape,
                             nd_tensor **ret_result) {
    *ret_result = nd__tensor_result(job->call.operation, &x, 1, x->device, x->dtype, ndim, shape);
    return *ret_result ? ND_OK : nd_error_get_status();
}

// -------------------------------------------------------------------------------------------------
// reductions

#define DIVIDE(type, load, store, wide) \
    for (int64_t i = 0; i < count; i++) \
    ((type *)data)[i] = store(load(((type *)data)[i]) / (wide)divisor)
#define SAME(x) (x)

void nd__collectives_divide(void *data, int64_t count, nd_dtype dtype, int divisor) {
    if (dtype == ND_F32)
        DIVIDE(float, SAME, SAME, float);
    else if (dtype == ND_F64)
        DIVIDE(double, SAME, SAME, double);
    else if (dtype == ND_F16)
        DIVIDE(uint16_t, nd__f16_to_f32, nd__f32_to_f16, float);
    else
        DIVIDE(uint16_t, nd__bf16_to_f32, nd__f32_to_bf16, float);
}

nd_status nd__collectives_reduce(const nd_communicator *comm, const nd_transport_call *call,
                                 void *data, int64_t count, nd_dtype dtype, nd_collective op) {
    nd_transport *transport = comm->transport;
    bool mean = op == ND_COLLECTIVE_MEAN;
    nd_status status = count == 0
                           ? ND_OK
                           : transport->functions->all_reduce(transport, call, data, count, dtype,
                                                              mean ? ND_COLLECTIVE_SUM : op);
    if (status == ND_OK && mean && comm->size > 1)
        nd__collectives_divide(data, count, dtype, comm->size);
    return status;
}

/// Everything of an all-reduce up to the sum, in `work`.
static nd_status reduce(job *job, nd_status status, const nd_tensor *x, nd_collective op) {
    if (status == ND_OK)
        status = check_op(job->call.operation, op, x->dtype);
    if (status == ND_OK) {
        describe(job, x);
        status = take_work(job, x, x->ndim, x->shape);
    }
    if (status == ND_OK)
        status = nd__copy_to_host(job->call.operation, x, job->data);
    status = agree(job, status);
    return status == ND_OK ? sent(job, nd__collectives_reduce(job->comm, &job->call, job->data,
                                                              x->numel, x->dtype, op))
                           : status;
}

nd_tensor *nd_all_reduce(const nd_tensor *x, const nd_communicator *comm, nd_collective op) {
    ND__UNCANCELLED;
    static const char operation[] = "all_reduce";
    job job;
    if (begin(&job, operation, ND__CALL_ALL_REDUCE, (int)op, comm) != ND_OK)
        return NULL;
    nd_tensor *result = NULL;
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    bool on_host = status == ND_OK && x->device.kind == ND_CPU;
    if (status == ND_OK && !on_host)
        status = take_result(&job, x, x->ndim, x->shape, &result);
    status = reduce(&job, status, x, op);
    if (status == ND_OK && result)
        status = nd__copy_into(operation, result, job.work);
    if (status == ND_OK)
        status = give_to_work(&job);
    if (status == ND_OK && on_host)
        result = nd_steal(&job.work);
    end(&job);
    if (status == ND_OK)
        return result;
    nd_release(result);
    return NULL;
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
        status = check_op(operation, op, x->dtype);
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
        status = nd__copy_to_host(operation, x, job.data);
    status = agree(&job, status);
    int64_t count = result ? result->numel : 0;
    nd_collective sums = op == ND_COLLECTIVE_MEAN ? ND_COLLECTIVE_SUM : op;
    if (status == ND_OK && count > 0)
        status = sent(&job, transport_of(&job)->reduce_scatter(comm->transport, &job.call, job.data,
                                                               count, x->dtype, sums));
    if (status == ND_OK && op == ND_COLLECTIVE_MEAN)
        nd__collectives_divide(job.data, count, x->dtype, comm->size);
    if (status == ND_OK)
        status = give_to_work(&job);
    nd_auto nd_tensor *share =
        status == ND_OK && count > 0
            ? nd__tensor_view(job.work, x->ndim, shape, nd__tensor_strides(result), 0)
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

nd_status nd_broadcast_(nd_tensor *x, const nd_communicator *comm, int root) {
    ND__UNCANCELLED;
    static const char operation[] = "broadcast_";
    job job;
    nd_status status = begin(&job, operation, ND__CALL_BROADCAST, root, comm);
    if (status != ND_OK)
        return status;
    status = check_target(operation, x);
    if (status == ND_OK)
        status = check_rank(operation, "root", comm, root);
    if (status == ND_OK) {
        describe(&job, x);
        status = take_work(&job, x, x->ndim, x->shape);
    }
    bool is_root = root == comm->rank;
    if (status == ND_OK && is_root)
        status = nd__copy_to_host(operation, x, job.data);
    status = agree(&job, status);
    if (status == ND_OK && job.bytes > 0)
        status = sent(&job, transport_of(&job)->broadcast(comm->transport, &job.call, job.data,
                                                          (int64_t)job.bytes, root));
    if (status == ND_OK)
        status = is_root ? give_to_work(&job) : write_back(&job, x);
    end(&job);
    return status;
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
    bool on_host = status == ND_OK && x->device.kind == ND_CPU;
    if (status == ND_OK) {
        describe(&job, x);
        nd__shape_copy(shape, x->shape, x->ndim);
        if (__builtin_mul_overflow(shape[0], (int64_t)comm->size, &shape[0]))
            shape[0] = INT64_MAX; // which the check of the shape refuses
        status = take_work(&job, x, x->ndim, shape);
    }
    if (status == ND_OK && !on_host)
        status = take_result(&job, x, x->ndim, shape, &result);
    size_t each = job.bytes / (size_t)comm->size;
    if (status == ND_OK)
        status = nd__copy_to_host(operation, x, (char *)job.data + (size_t)comm->rank * each);
    status = agree(&job, status);
    if (status == ND_OK && each > 0)
        status = sent(&job, transport_of(&job)->all_gather(comm->transport, &job.call, job.data,
                                                           (int64_t)each));
    if (status == ND_OK && result)
        status = nd__copy_into(operation, result, job.work);
    if (status == ND_OK)
        status = give_to_work(&job);
    if (status == ND_OK && on_host)
        result = nd_steal(&job.work);
    end(&job);
    if (status == ND_OK)
        return result;
    nd_release(result);
    return NULL;
}

// -------------------------------------------------------------------------------------------------
// two ranks

/// Takes memory for x, and agrees with the other rank.
static nd_status meet(job *job, nd_status status, const nd_tensor *x, int rank, bool sends) {
    const char *operation = job->call.operation;
    if (status == ND_OK) {
        describe(job, x);
        status = take_work(job, x, x->ndim, x->shape);
    }
    if (status == ND_OK && sends)
        status = nd__copy_to_host(operation, x, job->data);
    job->mine.status = (int32_t)status;
    return nd__agreement_with(job->comm, &job->call, rank, &job->mine);
}

/// A rank to exchange something with; another one nobody can be told of.
static nd_status check_partner(const char *operation, const nd_communicator *comm, int rank) {
    nd_status status = check_rank(operation, "rank", comm, rank);
    return status == ND_OK && rank == comm->rank
               ? nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: rank %d is this one", operation, rank)
               : status;
}

nd_status nd_send(const nd_tensor *x, const nd_communicator *comm, int rank) {
    ND__UNCANCELLED;
    static const char operation[] = "send";
    job job;
    nd_status status = begin(&job, operation, ND__CALL_SEND, 0, comm);
    if (status != ND_OK)
        return status;
    status = check_partner(operation, comm, rank);
    if (status == ND_OK)
        status = meet(&job, nd__tensor_check_operand(operation, "x", x), x, rank, true);
    if (status == ND_OK && job.bytes > 0)
        status = sent(&job, transport_of(&job)->send(comm->transport, &job.call, job.data,
                                                     (int64_t)job.bytes, rank));
    if (status == ND_OK)
        status = give_to_work(&job);
    end(&job);
    return status;
}

nd_status nd_receive_(nd_tensor *x, const nd_communicator *comm, int rank) {
    ND__UNCANCELLED;
    static const char operation[] = "receive_";
    job job;
    nd_status status = begin(&job, operation, ND__CALL_RECEIVE, 0, comm);
    if (status != ND_OK)
        return status;
    status = check_partner(operation, comm, rank);
    if (status == ND_OK)
        status = meet(&job, check_target(operation, x), x, rank, false);
    if (status == ND_OK && job.bytes > 0)
        status = sent(&job, transport_of(&job)->receive(comm->transport, &job.call, job.data,
                                                        (int64_t)job.bytes, rank));
    if (status == ND_OK)
        status = write_back(&job, x);
    end(&job);
    return status;
}
