// Agreement: a hash of all, and where it is not the same the whole of it.
#include "lib/distributed/agreement.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/tensor/shape.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 300 };

static const char *const calls[] = {
    [ND__CALL_BARRIER] = "barrier",
    [ND__CALL_DUPLICATE] = "communicator_duplicate",
    [ND__CALL_BROADCAST] = "broadcast_",
    [ND__CALL_ALL_REDUCE] = "all_reduce",
    [ND__CALL_REDUCE_SCATTER] = "reduce_scatter",
    [ND__CALL_ALL_GATHER] = "all_gather",
    [ND__CALL_SEND] = "send",
    [ND__CALL_RECEIVE] = "receive_",
    [ND__CALL_NCCL] = "communicator_from_nccl",
    [ND__CALL_MODULE] = "data_parallel_new",
    [ND__CALL_PARALLEL] = "data_parallel_backward",
    [ND__CALL_DATASET] = "dataset_shard",
    [ND__CALL_STATE] = "data_parallel_load_state",
    [ND__CALL_SAVE] = "data_parallel_save_state",
    [ND__CALL_CLIP] = "data_parallel_clip_grad_norm",
    [ND__CALL_SCALED] = "data_parallel_unscale or data_parallel_step_scaled",
};
static const char *const reductions[] = {
    [ND_COLLECTIVE_SUM] = "sum",
    [ND_COLLECTIVE_MEAN] = "mean",
    [ND_COLLECTIVE_MAX] = "max",
    [ND_COLLECTIVE_MIN] = "min",
};

void *nd__agreement_records(int ranks) {
    return nd__alloc_zeroed((size_t)ranks * sizeof(nd_description));
}

uint64_t nd__agreement_hash(uint64_t hash, const void *data, size_t bytes) {
    hash ^= UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, (const char *)data + i, bytes - i < sizeof word ? bytes - i : sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 32;
    }
    return hash;
}

static const char *name_of(const nd_description *said) {
    size_t known = sizeof calls / sizeof *calls;
    return said->call > 0 && (size_t)said->call < known ? calls[said->call] : "another call";
}

/// "float32 [2, 3]"
static const char *tensor_text(char *text, const nd_description *said) {
    char shape[ND__SHAPE_TEXT];
    snprintf(text, TEXT, "%s %s", nd_dtype_get_name((nd_dtype)said->dtype),
             nd__shape_text(shape, said->ndim, said->shape));
    return text;
}

static bool same_shape(const nd_description *a, const nd_description *b) {
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

static const char *truth(int32_t flag) {
    return flag ? "true" : "false";
}

/// The sentence for two ranks that train other modules, or in another way (data_parallel.c).
static nd_status modules_differ(const char *operation, int rank_a, const nd_description *a,
                                int rank_b, const nd_description *b) {
    if (a->shape[0] != b->shape[0] || a->shape[1] != b->shape[1] || a->shape[2] != b->shape[2])
        return nd__error(ND_ERROR_SHAPE,
                         "%s: the module of rank %d, with %lld parameters and %lld buffers, is not "
                         "like that of rank %d, with %lld and %lld, in their shapes and dtypes",
                         operation, rank_a, (long long)a->shape[0], (long long)a->shape[1], rank_b,
                         (long long)b->shape[0], (long long)b->shape[1]);
    if (a->argument != b->argument)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: shard_optimizer is %s on rank %d and %s on rank %d", operation,
                         truth(a->argument), rank_a, truth(b->argument), rank_b);
    return nd__error(ND_ERROR_INVALID_ARGUMENT,
                     "%s: bucket_bytes and first_bucket_bytes are %llu and %llu on rank %d and "
                     "%llu and %llu on rank %d",
                     operation, (unsigned long long)a->shape[3], (unsigned long long)a->shape[4],
                     rank_a, (unsigned long long)b->shape[3], (unsigned long long)b->shape[4],
                     rank_b);
}

/// The same of a limit, or of a scale.
static nd_status numbers_differ(const char *operation, const char *what, int rank_a,
                                const nd_description *a, int rank_b, const nd_description *b) {
    double number_a, number_b;
    memcpy(&number_a, &a->shape[0], sizeof number_a);
    memcpy(&number_b, &b->shape[0], sizeof number_b);
    return nd__error(ND_ERROR_INVALID_ARGUMENT,
                     "%s: the %s is %.17g on rank %d and %.17g on rank %d", operation, what,
                     number_a, rank_a, number_b, rank_b);
}

/// The sentence for two ranks that differ.
static nd_status differ(const char *operation, int rank_a, const nd_description *a, int rank_b,
                        const nd_description *b) {
    char text_a[TEXT], text_b[TEXT];
    if (a->call != b->call)
        return nd__error(ND_ERROR_STATE, "%s: rank %d calls %s and rank %d %s", operation, rank_a,
                         name_of(a), rank_b, name_of(b));
    if (a->call == ND__CALL_MODULE)
        return modules_differ(operation, rank_a, a, rank_b, b);
    if (a->call == ND__CALL_CLIP)
        return numbers_differ(operation, "limit", rank_a, a, rank_b, b);
    if (a->call == ND__CALL_SCALED)
        return numbers_differ(operation, "scale", rank_a, a, rank_b, b);
    if (a->call == ND__CALL_SAVE)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: the state of rank %d and that of rank %d have other parts", operation,
                         rank_a, rank_b);
    if (a->call == ND__CALL_PARALLEL && a->argument != b->argument)
        return nd__error(ND_ERROR_STATE,
                         "%s: rank %d is at part %d of the step and rank %d at part %d", operation,
                         rank_a, a->argument, rank_b, b->argument);
    if (a->call == ND__CALL_STATE)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: the file that rank %d has read is not that of rank %d", operation,
                         rank_a, rank_b);
    if (a->dtype != b->dtype || !same_shape(a, b))
        return nd__error(a->dtype != b->dtype ? ND_ERROR_DTYPE : ND_ERROR_SHAPE,
                         "%s: rank %d has %s and rank %d %s", operation, rank_a,
                         tensor_text(text_a, a), rank_b, tensor_text(text_b, b));
    if (a->call == ND__CALL_DATASET)
        return nd__error(
            ND_ERROR_INVALID_ARGUMENT,
            "%s: the data sets of rank %d and rank %d differ in their labels, batch, key, "
            "order or position",
            operation, rank_a, rank_b);
    bool reduces = a->call == ND__CALL_ALL_REDUCE || a->call == ND__CALL_REDUCE_SCATTER;
    if (reduces)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: rank %d wants the %s and rank %d the %s",
                         operation, rank_a, reductions[a->argument], rank_b,
                         reductions[b->argument]);
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: rank %d says root %d and rank %d root %d",
                     operation, rank_a, a->argument, rank_b, b->argument);
}

/// The sentence for a rank that does not take part.
static nd_status stays_away(const char *operation, int rank, const nd_description *said) {
    return nd__error((nd_status)said->status, "%s: rank %d does not take part: %.*s", operation,
                     rank, (int)sizeof said->message, said->message);
}

/// This rank's own words, before the thread's error becomes another one. What its device has said of
/// earlier work meanwhile all ranks hear now.
static void say(const nd_communicator *comm, const nd_transport_call *call, nd_description *mine,
                nd_error_state *ret_own) {
    nd_status noticed = comm->transport->noticed;
    comm->transport->noticed = ND_OK;
    if (mine->status == ND_OK && noticed != ND_OK)
        mine->status = (int32_t)nd__error(noticed, "%s: work queued earlier on %s failed with %s",
                                          call->operation, nd__registry_device_text(comm->device),
                                          nd_status_get_name(noticed));
    nd__error_save(ret_own);
    if (mine->status != ND_OK)
        snprintf(mine->message, sizeof mine->message, "%s", nd_error_get_message());
}

/// The verdict on what all have said.
static nd_status judge(const nd_communicator *comm, const char *operation,
                       const nd_error_state *own) {
    const nd_description *said = comm->records;
    if (said[comm->rank].status != ND_OK) {
        nd__error_restore(own);
        return (nd_status)said[comm->rank].status;
    }
    for (int rank = 0; rank < comm->size; rank++)
        if (said[rank].status != ND_OK)
            return stays_away(operation, rank, &said[rank]);
    for (int rank = 1; rank < comm->size; rank++)
        if (memcmp(&said[0], &said[rank], offsetof(nd_description, status)) != 0)
            return differ(operation, 0, &said[0], rank, &said[rank]);
    return nd__error(ND_ERROR_STATE, "%s: the ranks differ in what they say of the call",
                     operation);
}

nd_status nd__agreement_reach(const nd_communicator *comm, const nd_transport_call *call,
                              nd_description *mine) {
    nd_error_state own;
    say(comm, call, mine, &own);
    const nd_transport_functions *functions = comm->transport->functions;
    uint64_t hash = nd__agreement_hash(0, mine, offsetof(nd_description, status));
    uint64_t largest[] = {hash, ~hash, mine->status != ND_OK};
    nd_status status =
        nd__communicator_note(comm, functions->agree(comm->transport, call, largest, 3));
    if (status != ND_OK || (largest[0] == ~largest[1] && !largest[2]))
        return status;
    memcpy((nd_description *)comm->records + comm->rank, mine, sizeof *mine);
    status = nd__communicator_note(
        comm, functions->gather_records(comm->transport, call, comm->records, sizeof *mine));
    return status == ND_OK ? judge(comm, call->operation, &own) : status;
}

nd_status nd__agreement_with(const nd_communicator *comm, const nd_transport_call *call, int rank,
                             nd_description *mine) {
    nd_error_state own;
    say(comm, call, mine, &own);
    nd_description theirs = {0};
    nd_status status =
        nd__communicator_note(comm, comm->transport->functions->exchange_records(
                                        comm->transport, call, rank, mine, &theirs, sizeof theirs));
    if (status != ND_OK)
        return status;
    if (mine->status != ND_OK) {
        nd__error_restore(&own);
        return (nd_status)mine->status;
    }
    if (theirs.status != ND_OK)
        return stays_away(call->operation, rank, &theirs);
    if (mine->call == theirs.call)
        return nd__error(ND_ERROR_STATE, "%s: rank %d and rank %d both call %s", call->operation,
                         comm->rank < rank ? comm->rank : rank,
                         comm->rank < rank ? rank : comm->rank, name_of(mine));
    nd_description as_mine = theirs;
    as_mine.call = mine->call;
    bool first = comm->rank < rank; // the same sentence on both
    if (memcmp(mine, &as_mine, offsetof(nd_description, status)) == 0)
        return ND_OK;
    return differ(call->operation, first ? comm->rank : rank, first ? mine : &as_mine,
                  first ? rank : comm->rank, first ? &as_mine : mine);
}
