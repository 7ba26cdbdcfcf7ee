// A module that several ranks train: made, and its backward pass.
//
// Invariant: gradients are set when all ranks have agreed that the step has succeeded, and nothing
// can fail any more.
#include "lib/distributed/data_parallel.h"
#include "lib/autograd/backward.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/versioned.h"
#include "lib/device/registry.h"
#include "lib/distributed/agreement.h"
#include "lib/distributed/bucket_memory.h"
#include "lib/distributed/collectives.h"
#include "lib/distributed/keys.h"
#include "lib/manager/place.h"
#include "lib/nn/parameters.h"
#include "lib/pressure/pressure_alloc.h"
#include <nd/ops.h>

#include <string.h>

/// A step, while it is watched.
typedef struct step {
    const char *operation;
    nd_data_parallel *parallel;
    nd_parallel_work *work;
    size_t count;
    nd_status failed;    ///< before the pass began
    nd_tensor **results; ///< for each part, owned
} step;

static void traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_data_parallel *parallel = (const nd_data_parallel *)self;
    nd_visit(visitor, parallel->module, "module");
    nd_visit(visitor, parallel->comm, "communicator");
    for (size_t i = 0; i < parallel->count; i++)
        nd_visit(visitor, parallel->tensors[i], "parameter");
}

/// So that a loss scaler, which sees this rank's gradients alone, does not divide them.
static void mark_shared_out(nd_data_parallel *parallel, bool shared_out) {
    for (size_t i = 0; parallel->sharded && i < parallel->parameters; i++)
        if (parallel->tensors[i])
            nd__tensor_set_own(parallel->tensors[i], ND__GRAD_SHARED_OUT, shared_out);
}

static void clear(nd_object *self) {
    nd_data_parallel *parallel = (nd_data_parallel *)self;
    mark_shared_out(parallel, false);
    nd_edge_clear(&parallel->module);
    nd_edge_clear(&parallel->comm);
    for (size_t i = 0; i < parallel->count; i++)
        nd_edge_clear(&parallel->tensors[i]);
}

static void drop(nd_parallel_work *work) {
    if (atomic_fetch_sub(&work->users, 1) != 1)
        return;
    if (work->buckets)
        nd__buckets_free(work->buckets);
    nd__pending_map_free(&work->index);
    nd__alloc_free(work);
}

static void destroy(nd_object *self) {
    ND__UNCANCELLED;
    nd_data_parallel *parallel = (nd_data_parallel *)self;
    if (parallel->work)
        drop(parallel->work);
    parallel->work = NULL;
}

static const nd_type data_parallel_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "data_parallel",
    .traverse = traverse,
    .clear = clear,
    .destroy = destroy,
};

// -------------------------------------------------------------------------------------------------
// beginning

/// All parameters, then all buffers, each once.
static nd_data_parallel *collect(const char *operation, const nd_module *module) {
    size_t parameters = 0, buffers = 0;
    nd_tensor **first =
        nd__parameters_collect(operation, module, ND__MEMBER_PARAMETER, &parameters);
    nd_tensor **second =
        first ? nd__parameters_collect(operation, module, ND__MEMBER_BUFFER, &buffers) : NULL;
    size_t count = parameters + buffers;
    nd_data_parallel *parallel =
        second ? (nd_data_parallel *)nd__object_new(
                     &data_parallel_type, sizeof *parallel + count * sizeof *parallel->tensors)
               : NULL;
    if (parallel) {
        parallel->generation = nd__fork_generation;
        parallel->module = nd_retain(module);
        parallel->count = count;
        parallel->parameters = parameters;
        for (size_t i = 0; i < count; i++)
            parallel->tensors[i] = nd_retain(i < parameters ? first[i] : second[i - parameters]);
    }
    nd__alloc_free(first);
    nd__alloc_free(second);
    return parallel;
}

/// What of the tensors must be the same on all ranks, in a number.
static int64_t hash_of(const nd_data_parallel *parallel) {
    uint64_t hash = 0;
    for (size_t i = 0; i < parallel->count; i++) {
        const nd_tensor *x = parallel->tensors[i];
        const int64_t of_tensor[] = {x->dtype, x->ndim};
        hash = nd__agreement_hash(hash, of_tensor, sizeof of_tensor);
        hash = nd__agreement_hash(hash, x->shape, (size_t)x->ndim * sizeof *x->shape);
    }
    return (int64_t)(hash >> 1);
}

/// Whether all ranks have such a module and such options, and take part: before anything is made or
/// sent.
static nd_status agree_on_module(const char *operation, const nd_communicator *comm,
                                 const nd_data_parallel *parallel,
                                 const nd_data_parallel_options *options, nd_status status) {
    nd_transport_call call;
    nd_status entered = nd__communicator_enter(operation, comm, &call);
    if (entered != ND_OK)
        return entered;
    nd_description mine = {.call = ND__CALL_MODULE, .status = (int32_t)status};
    if (status == ND_OK) {
        mine.ndim = 5;
        mine.shape[0] = (int64_t)parallel->parameters;
        mine.shape[1] = (int64_t)(parallel->count - parallel->parameters);
        mine.shape[2] = hash_of(parallel);
        mine.shape[3] = (int64_t)options->bucket_bytes;
        mine.shape[4] = (int64_t)options->first_bucket_bytes;
        mine.argument = options->shard_optimizer;
    }
    status = nd__agreement_reach(comm, &call, &mine);
    nd__communicator_leave(comm);
    return status;
}

nd_status nd__data_parallel_take_values(const char *operation, const nd_data_parallel *parallel,
                                        size_t first) {
    nd_auto nd_tensor *keys =
        nd__keys_ask(operation, parallel->module, parallel->comm); // before any changes
    nd_status status = keys ? ND_OK : nd_error_get_status();
    nd_grad_block block = nd__grad_block_begin(false);
    for (size_t i = first; status == ND_OK && i < parallel->count; i++)
        status =
            nd__collectives_broadcast(operation, parallel->tensors[i], parallel->comm, 0, ND_OK);
    nd__grad_block_end(&block);
    if (status == ND_OK)
        nd__keys_take(parallel->module, parallel->comm, keys);
    return status;
}

/// Buckets for the parameters, and which part each of them is.
static nd_status make_buckets(const char *operation, nd_data_parallel *parallel,
                              nd_parallel_work *work, const nd_data_parallel_options *options) {
    size_t count = parallel->parameters;
    nd_dtype *dtypes = nd__alloc((count + 1) * sizeof *dtypes);
    int64_t *numels = nd__alloc((count + 1) * sizeof *numels);
    bool well = dtypes && numels;
    for (size_t i = 0; well && i < count; i++) {
        numels[i] = parallel->tensors[i]->numel;
        dtypes[i] = parallel->tensors[i]->dtype;
        well = nd__pending_map_set(&work->index, parallel->tensors[i], (uint32_t)i);
    }
    nd_bucket_limits limits = {options->first_bucket_bytes, options->bucket_bytes,
                               options->shard_optimizer};
    if (well)
        work->buckets = nd__buckets_new(operation, parallel->comm, count, dtypes, numels, limits);
    nd__alloc_free(dtypes);
    nd__alloc_free(numels);
    return !well ? nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu parameters",
                             operation, count)
           : work->buckets ? ND_OK
                           : nd_error_get_status();
}

static nd_status make_work(const char *operation, nd_data_parallel *parallel,
                           const nd_data_parallel_options *options) {
    nd_parallel_work *work = nd__alloc_zeroed(sizeof *work);
    if (!work)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the buckets", operation);
    atomic_init(&work->users, 1);
    parallel->work = work;
    return make_buckets(operation, parallel, work, options);
}

static nd_status check_options(const char *operation, const nd_data_parallel_options *options,
                               nd_data_parallel_options *ret_options) {
    *ret_options = (nd_data_parallel_options)ND_DATA_PARALLEL_OPTIONS_INIT;
    nd_status status = nd__versioned_read(operation, "ND_DATA_PARALLEL_OPTIONS_INIT", options,
                                          ret_options, sizeof *ret_options);
    if (status == ND_OK && (!ret_options->bucket_bytes || !ret_options->first_bucket_bytes))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a bucket of 0 bytes", operation);
    return status;
}

/// Over MPI parameters may be anywhere; over NCCL they are on its device, which the buckets are on.
static nd_status check_devices(const char *operation, const nd_communicator *comm,
                               const nd_data_parallel *parallel) {
    for (size_t i = 0; comm->device.kind != ND_CPU && i < parallel->parameters; i++) {
        nd_device device = parallel->tensors[i]->device;
        if (device.kind != comm->device.kind || device.index != comm->device.index)
            return nd__error(ND_ERROR_DEVICE,
                             "%s: a parameter is on %s, and comm is one of %s; move the module "
                             "there, or give a communicator of MPI",
                             operation, nd__registry_device_text(device),
                             nd__registry_device_text(comm->device));
    }
    return ND_OK;
}

static nd_data_parallel *publish(nd_data_parallel *parallel) {
    return nd__place_publish_or_release(nd__place_begin(NULL, 0), &parallel->header);
}

nd_data_parallel *nd_data_parallel_new(const nd_module *module, const nd_communicator *comm,
                                       const nd_data_parallel_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_new";
    if (!comm || nd__object_is_closed(comm)) {
        nd_transport_call call;
        nd__communicator_enter(operation, comm, &call); // says what it is
        return NULL;
    }
    nd_data_parallel_options chosen;
    nd_data_parallel *parallel = NULL;
    nd_status status = check_options(operation, options, &chosen);
    if (status == ND_OK) {
        parallel = collect(operation, module);
        status = parallel ? ND_OK : nd_error_get_status();
        if (parallel)
            parallel->sharded = chosen.shard_optimizer;
        if (parallel)
            status = check_devices(operation, comm, parallel);
    }
    status = agree_on_module(operation, comm, parallel, &chosen, status);
    if (status == ND_OK) {
        parallel->comm = nd_communicator_duplicate(comm, NULL);
        if (!parallel->comm) { // then no rank has one
            status = nd_error_get_status();
        } else {
            status = make_work(operation, parallel, &chosen);
            if (status == ND_OK) {
                parallel = publish(parallel);
                status = parallel ? ND_OK : nd_error_get_status();
            }
            status = agree_on_module(operation, comm, parallel, &chosen, status);
        }
    }
    // All have one, or nobody has: what one rank has no room for from here on all hear.
    if (status == ND_OK)
        status = nd__data_parallel_take_values(operation, parallel, 0);
    if (status != ND_OK) {
        nd_release(parallel);
        return NULL;
    }
    mark_shared_out(parallel, true);
    return parallel;
}

// -------------------------------------------------------------------------------------------------
// a step

nd_status nd__data_parallel_check_dtype(const char *operation, const nd_parallel_work *work,
                                        size_t part, nd_dtype dtype) {
    const nd_dtype there = nd__buckets_get_dtype(work->buckets, part);
    if (dtype == there)
        return ND_OK;
    return nd__error(ND_ERROR_DTYPE,
                     "%s: parameter %zu is %s, and was %s when the nd_data_parallel was made; make "
                     "a new one behind nd_module_cast()",
                     operation, part, nd_dtype_get_name(dtype), nd_dtype_get_name(there));
}

nd_status nd__data_parallel_check_dtypes(const char *operation, const nd_data_parallel *parallel,
                                         const nd_parallel_work *work) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < parallel->parameters; i++) {
        status = nd__tensor_check_operand(operation, "a parameter", parallel->tensors[i]);
        if (status == ND_OK)
            status = nd__data_parallel_check_dtype(operation, work, i, parallel->tensors[i]->dtype);
    }
    return status;
}

static bool wants(void *data, const nd_tensor *leaf) {
    const step *step = data;
    return nd__pending_map_get(&step->work->index, leaf) != ND__ABSENT;
}

/// What this pass adds to what is there goes into the bucket.
static nd_status complete(void *data, nd_tensor *leaf, nd_tensor *gradient) {
    step *step = data;
    size_t part = nd__pending_map_get(&step->work->index, leaf);
    nd_auto nd_tensor *added = gradient;
    nd_auto nd_tensor *before = nd_retain(leaf->grad);
    nd_auto nd_tensor *sum = before ? nd_add(before, added) : nd_retain(added);
    if (!sum)
        return nd_error_get_status();
    nd_buckets *buckets = step->work->buckets;
    nd_status status = nd__data_parallel_check_dtype(step->operation, step->work, part, sum->dtype);
    if (status == ND_OK)
        status = nd__bucket_memory_write(step->operation, nd__buckets_get_device(buckets),
                                         nd__buckets_memory(buckets, part), sum);
    if (status == ND_OK)
        nd__buckets_set(buckets, part, true);
    return status;
}

/// What the pass has not reached: the gradient that is there, or zeros. From the last parameter to
/// the first, the order in which most passes come to them: the next buckets may be filled in it.
static nd_status fill_rest(step *step) {
    for (size_t i = step->count; i-- > 0;) {
        if (nd__buckets_is_set(step->work->buckets, i))
            continue;
        nd_tensor *parameter = step->parallel->tensors[i];
        nd_status status = nd__tensor_check_operand(step->operation, "a parameter", parameter);
        if (status == ND_OK)
            status =
                nd__data_parallel_check_dtype(step->operation, step->work, i, parameter->dtype);
        if (status != ND_OK)
            return status;
        nd_auto nd_tensor *before = nd_retain(parameter->grad);
        void *memory = nd__buckets_memory(step->work->buckets, i);
        nd_device device = nd__buckets_get_device(step->work->buckets);
        status = before ? nd__bucket_memory_write(step->operation, device, memory, before)
                        : nd__bucket_memory_clear(step->operation, device, memory, parameter->dtype,
                                                  parameter->numel);
        if (status != ND_OK)
            return status;
        nd__buckets_set(step->work->buckets, i, before != NULL);
    }
    return ND_OK;
}

/// A new gradient at its parameter's manager, with what was reduced.
static nd_status take_result(step *step, size_t part) {
    nd_tensor *parameter = step->parallel->tensors[part];
    nd_status status = nd__tensor_check_operand(step->operation, "a parameter", parameter);
    if (status == ND_OK)
        status = nd__data_parallel_check_dtype(step->operation, step->work, part, parameter->dtype);
    if (status != ND_OK)
        return status;
    nd_place place = nd__place_of(&parameter->header);
    step->results[part] = nd__tensor_new(step->operation, place.manager, parameter->device,
                                         parameter->dtype, parameter->ndim, parameter->shape);
    nd__place_end(place);
    if (!step->results[part])
        return nd_error_get_status();
    return nd__bucket_memory_read(step->operation, nd__buckets_get_device(step->work->buckets),
                                  nd__buckets_memory(step->work->buckets, part),
                                  step->results[part]);
}

/// Takes results while later buckets are on their way; of parts that this rank did not use those
/// that another one did, when all have told.
static nd_status take_results(step *step) {
    const nd_buckets *buckets = step->work->buckets;
    nd_status status = ND_OK;
    for (size_t place = 0; status == ND_OK && place < step->count; place++) {
        size_t part = nd__buckets_get_part(buckets, place);
        if (!nd__buckets_is_own(buckets, part) || !nd__buckets_was_used_here(buckets, part))
            continue;
        status = nd__buckets_wait_for(step->work->buckets, part);
        if (status == ND_OK)
            status = take_result(step, part);
    }
    if (status == ND_OK)
        status = nd__buckets_wait(step->work->buckets);
    for (size_t part = 0; status == ND_OK && part < step->count; part++)
        if (nd__buckets_is_own(buckets, part) && nd__buckets_was_used(buckets, part) &&
            !step->results[part])
            status = take_result(step, part);
    return status;
}

/// The pass is at its end, here and there.
static nd_status finish(void *data, nd_status status) {
    step *step = data;
    if (status == ND_OK && nd__object_is_closed(step->parallel))
        status = nd__error(ND_ERROR_CLOSED, "%s: the nd_data_parallel was closed meanwhile",
                           step->operation);
    if (status == ND_OK)
        status = fill_rest(step);
    if (status == ND_OK)
        status = take_results(step);
    return nd__buckets_end(step->work->buckets, step->operation, status);
}

nd_status nd__data_parallel_enter(const char *operation, nd_data_parallel *parallel,
                                  nd_parallel_work **ret_work) {
    if (!parallel)
        return nd__error_null(operation, "parallel");
    if (nd__object_is_closed(parallel))
        return nd__error(ND_ERROR_CLOSED, "%s: the nd_data_parallel was closed", operation);
    if (parallel->generation != nd__fork_generation)
        return nd__error(ND_ERROR_STATE,
                         "%s: the nd_data_parallel stayed in the parent process when that forked",
                         operation);
    nd_parallel_work *work = parallel->work;
    if (atomic_exchange(&work->busy, true))
        return nd__error(ND_ERROR_STATE, "%s: a step of this nd_data_parallel is under way",
                         operation);
    atomic_fetch_add(&work->users, 1);
    *ret_work = work;
    return ND_OK;
}

void nd__data_parallel_leave(nd_parallel_work *work) {
    atomic_store(&work->busy, false);
    drop(work);
}

nd_status nd_data_parallel_backward(nd_data_parallel *parallel, const nd_tensor *output,
                                    const nd_backward_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_backward";
    step step = {.operation = operation, .parallel = parallel};
    nd_status status = nd__data_parallel_enter(operation, parallel, &step.work);
    if (status != ND_OK)
        return status;
    nd_auto nd_communicator *comm = nd_retain(parallel->comm);
    step.count = parallel->parameters;
    step.results = nd__pressure_alloc_zeroed((step.count + 1) * sizeof *step.results);
    status = step.results
                 ? ND_OK
                 : nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu gradients",
                             operation, step.count);
    nd_status begun = nd__buckets_begin(step.work->buckets, operation);
    status = status != ND_OK ? status : begun;
    if (status == ND_OK)
        status = nd__data_parallel_check_dtypes(operation, parallel, step.work);
    const nd_leaf_watch watch = {wants, complete, finish, &step};
    status = status == ND_OK ? nd__backward_watched(operation, output, options, &watch)
                             : nd__buckets_end(step.work->buckets, operation, status);
    for (size_t i = 0; step.results && i < step.count; i++) {
        if (status == ND_OK)
            status = nd_set_grad(parallel->tensors[i], step.results[i]);
        nd_release(step.results[i]);
    }
    nd__alloc_free(step.results);
    nd__data_parallel_leave(step.work);
    return status;
}

nd_status nd_data_parallel_synchronize(nd_data_parallel *parallel) {
    ND__UNCANCELLED;
    nd_parallel_work *work;
    static const char operation[] = "data_parallel_synchronize";
    nd_status status = nd__data_parallel_enter(operation, parallel, &work);
    if (status != ND_OK)
        return status;
    status = nd__data_parallel_take_values(operation, parallel, 0);
    work->apart &= status != ND_OK;
    nd__data_parallel_leave(work);
    return status;
}

size_t nd_data_parallel_get_bucket_count(const nd_data_parallel *parallel) {
    return parallel && !nd__object_is_closed(parallel)
               ? nd__buckets_get_count(parallel->work->buckets)
               : 0;
}
