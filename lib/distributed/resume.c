// A run of several ranks that can be stopped at any moment: which samples are each rank's, and the
// state of the training, saved by rank 0 and loaded by all.
//
// Invariant: what follows depends on what was saved alone. So a run that goes on without having been
// stopped makes at each save what one that loads has: buffers of rank 0, and the first order of
// gradients (of more than two ranks, MPI's sums may depend on where in a message a number stands).
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/distributed/agreement.h"
#include "lib/distributed/sharded.h"
#include "lib/io/dataset.h"
#include "lib/nn/optimizer.h"
#include "lib/nn/state.h"
#include "lib/tensor/tensor.h"
#include <nd/autograd.h>

#include <string.h>
#include <unistd.h>

// -------------------------------------------------------------------------------------------------
// data sets

/// What must be the same on all ranks: the tensors' shape, and where reading stands.
static void describe_dataset(nd_description *mine, const nd_dataset *dataset,
                             const nd_dataset_position *position) {
    const nd_tensor *images = nd__dataset_images(dataset);
    mine->dtype = (int32_t)images->dtype;
    mine->ndim = images->ndim;
    memcpy(mine->shape, images->shape, (size_t)images->ndim * sizeof *mine->shape);
    const nd_tensor *labels = nd__dataset_labels(dataset);
    const int64_t of_labels[] = {labels->dtype, labels->ndim};
    uint64_t hash = nd__agreement_hash(0, position, sizeof *position);
    hash = nd__agreement_hash(hash, of_labels, sizeof of_labels);
    hash = nd__agreement_hash(hash, labels->shape, (size_t)labels->ndim * sizeof *labels->shape);
    mine->argument = (int32_t)(hash ^ hash >> 32);
}

nd_status nd_dataset_shard(nd_dataset *dataset, const nd_communicator *comm) {
    ND__UNCANCELLED;
    static const char operation[] = "dataset_shard";
    nd_transport_call call;
    nd_status status = nd__communicator_enter(operation, comm, &call);
    if (status != ND_OK)
        return status;
    nd_dataset_position position;
    nd_description mine = {.call = ND__CALL_DATASET};
    status = nd__dataset_get_position(operation, dataset, &position);
    if (status == ND_OK)
        status = nd__dataset_check_rank(operation, dataset, comm->rank, comm->size);
    mine.status = (int32_t)status;
    if (status == ND_OK)
        describe_dataset(&mine, dataset, &position);
    status = nd__agreement_reach(comm, &call, &mine);
    if (status == ND_OK)
        nd__dataset_set_rank(dataset, comm->rank, comm->size);
    nd__communicator_leave(comm);
    return status;
}

// -------------------------------------------------------------------------------------------------
// the state

/// Says this rank's status to all others, and hears theirs.
static nd_status agree(const char *operation, const nd_parallel_work *work, nd_status status) {
    return nd__buckets_gather(work->buckets, operation, false, status);
}

/// Whether all ranks have what is to be saved, before anything of it changes. The path is rank 0's.
static nd_status agree_on_state(const char *operation, const nd_data_parallel *parallel,
                                const nd_parallel_work *work, const nd_optimizer *optimizer,
                                const nd_state *state, const char *path) {
    nd_transport_call call;
    nd_status entered = nd__communicator_enter(operation, parallel->comm, &call);
    if (entered != ND_OK)
        return entered;
    uint64_t hash = 0;
    nd_status status = nd__state_hash(operation, state, &hash);
    if (status == ND_OK && parallel->sharded)
        status = nd__optimizer_check(operation, optimizer);
    if (status == ND_OK && parallel->comm->rank == 0 && !path)
        status = nd__error_null(operation, "path");
    if (status == ND_OK)
        status = nd__sharded_check_together(operation, work);
    nd_description mine = {.call = ND__CALL_SAVE, .status = (int32_t)status};
    mine.shape[0] = (int64_t)hash;
    status = nd__agreement_reach(parallel->comm, &call, &mine);
    nd__communicator_leave(parallel->comm);
    return status;
}

/// nd_data_parallel_save_state, of what all ranks have.
static nd_status save(const char *operation, nd_data_parallel *parallel, nd_parallel_work *work,
                      nd_optimizer *optimizer, const nd_state *state, const char *path) {
    nd_status status =
        nd__data_parallel_take_values(operation, parallel, parallel->parameters); // the buffers
    if (status == ND_OK && parallel->sharded)
        status = nd__sharded_gather(operation, parallel, work, optimizer);
    if (status == ND_OK)
        status = nd__buckets_forget_order(work->buckets, operation);
    // Before the file is written: where one rank has failed, there is none.
    status = agree(operation, work, status);
    if (status == ND_OK) {
        status = parallel->comm->rank == 0 ? nd__state_save(operation, state, path) : ND_OK;
        status = agree(operation, work, status);
    }
    nd_error_state own;
    nd__error_save(&own);
    nd_status dropped =
        parallel->sharded ? nd__sharded_drop(operation, parallel, work, optimizer) : ND_OK;
    if (status != ND_OK)
        nd__error_restore(&own);
    return status != ND_OK ? status : dropped;
}

nd_status nd_data_parallel_save_state(nd_data_parallel *parallel, nd_optimizer *optimizer,
                                      const nd_state *state, const char *path) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_save_state";
    nd_parallel_work *work;
    nd_status status = nd__data_parallel_enter(operation, parallel, &work);
    if (status != ND_OK)
        return status;
    status = agree_on_state(operation, parallel, work, optimizer, state, path);
    if (status == ND_OK)
        status = save(operation, parallel, work, optimizer, state, path);
    nd__data_parallel_leave(work);
    return status;
}

/// Whether the file is to be read: any rank sees it, or any does not do without (`needed`).
static nd_status ask_for_file(const char *operation, const nd_communicator *comm, const char *path,
                              bool needed, bool *ret_there, bool *ret_read) {
    nd_transport_call call;
    nd_status status = nd__communicator_enter(operation, comm, &call);
    if (status != ND_OK)
        return status;
    nd_description mine = {.call = ND__CALL_STATE};
    if (!path)
        mine.status = (int32_t)nd__error_null(operation, "path");
    status = nd__agreement_reach(comm, &call, &mine);
    uint64_t any[] = {path && access(path, F_OK) == 0, needed};
    if (status == ND_OK)
        status = nd__communicator_note(
            comm, comm->transport->functions->agree(comm->transport, &call, any, 2));
    nd__communicator_leave(comm);
    *ret_there = any[0] != 0;
    *ret_read = any[0] || any[1];
    return status;
}

/// Whether all ranks have read the same file, which fits on all of them.
static nd_status agree_on_file(const char *operation, const nd_communicator *comm,
                               const nd_state_stream *stream, nd_status status) {
    nd_transport_call call;
    nd_error_state own;
    nd__error_save(&own);
    nd_status entered = nd__communicator_enter(operation, comm, &call);
    if (entered != ND_OK)
        return entered;
    nd__error_restore(&own);
    nd_description mine = {.call = ND__CALL_STATE, .status = (int32_t)status};
    uint64_t hash = 0;
    for (size_t i = 0; status == ND_OK && i < nd_list_get_size(stream->tensors); i++) {
        const nd_tensor *x = (const nd_tensor *)nd_list_get(stream->tensors, i);
        hash = nd__agreement_hash(hash, x->data, (size_t)x->numel * nd_dtype_get_size(x->dtype));
    }
    mine.shape[0] = (int64_t)hash;
    status = nd__agreement_reach(comm, &call, &mine);
    nd__communicator_leave(comm);
    return status;
}

/// All of the file on all ranks, or an error on all and nothing anywhere.
static nd_status load(const char *operation, nd_data_parallel *parallel, nd_parallel_work *work,
                      nd_optimizer *optimizer, const nd_state *state, const char *path) {
    nd_state_stream stream;
    nd_status status = nd__state_check_file(&stream, operation, state, path);
    if (status == ND_OK && parallel->sharded)
        status = nd__optimizer_check(operation, optimizer);
    status = agree_on_file(operation, parallel->comm, &stream, status);
    if (status == ND_OK) {
        status = nd__state_commit(&stream, state);
        if (status == ND_OK && parallel->sharded)
            status = nd__sharded_drop(operation, parallel, work, optimizer);
        if (status == ND_OK)
            status = nd__buckets_forget_order(work->buckets, operation);
        status = agree(operation, work, status);
        if (status == ND_OK)
            status = nd__data_parallel_take_values(operation, parallel, parallel->parameters);
        work->apart &= status != ND_OK;
    }
    nd__state_stream_end(&stream);
    return status;
}

nd_status nd_data_parallel_load_state(nd_data_parallel *parallel, nd_optimizer *optimizer,
                                      const nd_state *state, const char *path, bool *ret_loaded) {
    ND__UNCANCELLED;
    static const char operation[] = "data_parallel_load_state";
    nd_parallel_work *work;
    nd_status status = nd__data_parallel_enter(operation, parallel, &work);
    if (status != ND_OK)
        return status;
    bool there = false, read = false;
    status = ask_for_file(operation, parallel->comm, path, !ret_loaded, &there, &read);
    if (status == ND_OK && read)
        status = load(operation, parallel, work, optimizer, state, path);
    if (status == ND_OK && ret_loaded)
        *ret_loaded = there;
    nd__data_parallel_leave(work);
    return status;
}
