// Buckets, and the thread that sends them.
//
// The thread and the backward pass share four numbers under `lock`: how many buckets are ready, how
// many are reduced, what has failed, and whether to stop. Memory changes hands with them.
#include "lib/distributed/buckets.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/spawn.h"
#include "lib/distributed/agreement.h"
#include "lib/distributed/bucket_memory.h"
#include "lib/distributed/collectives.h"

#include <pthread.h>
#include <string.h>

typedef struct bucket {
    nd_dtype dtype;
    int64_t numel;
    size_t parts, waiting; ///< of this step: those that are not there
    char *memory;          ///< NULL: a transport has kept it
} bucket;

typedef struct part {
    nd_dtype dtype;
    int64_t numel, offset; ///< in elements of its bucket
    uint32_t bucket;
    int owner;
    bool set, used; ///< of this step: here
} part;

struct nd_buckets {
    const nd_communicator *comm;
    nd_bucket_limits limits;
    size_t count, bucket_count; ///< of parts; of buckets, the flags among them
    part *parts;
    bucket *buckets;   ///< count + 1 places
    int64_t *shares;   ///< elements of each rank in each bucket
    uint32_t *order;   ///< parts in the order of their buckets
    uint32_t *arrived; ///< parts in the order of their gradients in this step
    size_t arrived_count;
    bool stepped, reordered; ///< a step has succeeded; `order` is that of rank 0's gradients
    bool laid_out;
    bool agreed_to_fail; ///< this step: all ranks know
    uint32_t generation; ///< of processes, in which the thread runs
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    size_t ready, reduced; ///< lock
    nd_status failed;      ///< lock
    bool stop;             ///< lock
    char message[ND__MESSAGE_SIZE];
};

static const char sending[] = "data_parallel_backward";

// -------------------------------------------------------------------------------------------------
// layout

static size_t bytes_of(const bucket *b) {
    size_t bytes = (size_t)b->numel * nd_dtype_get_size(b->dtype);
    return bytes ? bytes : 1;
}

static bool is_flags(const nd_buckets *buckets, size_t index) {
    return index + 1 == buckets->bucket_count;
}

/// Where a bucket is: with the communicator, but the flags, which the host sets.
static nd_device where(const nd_buckets *buckets, size_t index) {
    return is_flags(buckets, index) ? (nd_device){ND_CPU, 0} : buckets->comm->device;
}

static void free_memory(nd_buckets *buckets) {
    for (size_t i = 0; i < buckets->bucket_count; i++)
        nd__bucket_memory_give_back(where(buckets, i), buckets->buckets[i].memory,
                                    bytes_of(&buckets->buckets[i]));
    buckets->bucket_count = 0;
}

static uint64_t part_bytes(const part *p) {
    return (uint64_t)p->numel * nd_dtype_get_size(p->dtype);
}

/// The bucket that takes the next part of a dtype: the last one of that from `from` on, or a new
/// one.
static bucket *bucket_for(nd_buckets *buckets, const part *p, size_t from) {
    for (size_t i = buckets->bucket_count; i-- > from;) {
        bucket *b = &buckets->buckets[i];
        if (b->dtype != p->dtype)
            continue;
        uint64_t limit = i == 0 ? buckets->limits.first : buckets->limits.others;
        if (bytes_of(b) + part_bytes(p) <= limit)
            return b;
        break;
    }
    bucket *b = &buckets->buckets[buckets->bucket_count++];
    *b = (bucket){.dtype = p->dtype};
    return b;
}

/// How many parts are before the last ones, which have a bucket of their own: nothing is left to
/// hide it behind, so it is the shortest that is worth a message.
static size_t find_tail(const nd_buckets *buckets) {
    uint64_t bytes = 0;
    size_t tail = buckets->count;
    while (tail > 0 && bytes < buckets->limits.first)
        bytes += part_bytes(&buckets->parts[buckets->order[--tail]]);
    return tail;
}

/// Gives each part to the rank that has least so far.
static bool choose_owners(nd_buckets *buckets) {
    size_t ranks = (size_t)buckets->comm->size;
    uint64_t *has = nd__alloc_zeroed(ranks * sizeof *has);
    for (size_t i = 0; has && i < buckets->count; i++) {
        part *p = &buckets->parts[i];
        for (size_t rank = 1; rank < ranks; rank++)
            if (has[rank] < has[p->owner])
                p->owner = (int)rank;
        has[p->owner] += part_bytes(p);
    }
    nd__alloc_free(has);
    return has != NULL;
}

/// Puts the parts of a bucket one behind the other, those of rank 0 first. False: no memory.
static bool place_parts(nd_buckets *buckets) {
    size_t ranks = (size_t)buckets->comm->size, count = (buckets->bucket_count + 1) * ranks;
    int64_t *shares = nd__alloc_zeroed(count * sizeof *shares);
    int64_t *next = nd__alloc_zeroed(count * sizeof *next);
    for (size_t i = 0; shares && next && i < buckets->count; i++) {
        const part *p = &buckets->parts[i];
        shares[p->bucket * ranks + (size_t)p->owner] += p->numel;
    }
    for (size_t i = 1; shares && next && i < buckets->bucket_count * ranks; i++)
        next[i] = i % ranks == 0 ? 0 : next[i - 1] + shares[i - 1];
    for (size_t i = 0; shares && next && i < buckets->count; i++) {
        part *p = &buckets->parts[buckets->order[i]];
        int64_t *place = &next[p->bucket * ranks + (size_t)p->owner];
        p->offset = *place;
        *place += p->numel;
    }
    bool well = shares && next;
    nd__alloc_free(next);
    nd__alloc_free(well ? buckets->shares : shares);
    if (well)
        buckets->shares = shares;
    return well;
}

static void order_backwards(nd_buckets *buckets) {
    for (size_t i = 0; i < buckets->count; i++)
        buckets->order[i] = (uint32_t)(buckets->count - 1 - i);
}

/// Fills buckets in `order`, and takes their memory.
static nd_status lay_out(nd_buckets *buckets, const char *operation) {
    free_memory(buckets);
    buckets->laid_out = false;
    size_t tail = find_tail(buckets), from = 0;
    for (size_t i = 0; i < buckets->count; i++) {
        part *p = &buckets->parts[buckets->order[i]];
        from = i == tail ? buckets->bucket_count : from;
        bucket *b = bucket_for(buckets, p, from);
        p->bucket = (uint32_t)(b - buckets->buckets);
        b->numel += p->numel;
        b->parts++;
    }
    if (!place_parts(buckets))
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the shares of %d ranks",
                         operation, buckets->comm->size);
    buckets->buckets[buckets->bucket_count++] =
        (bucket){.dtype = ND_U8, .numel = (int64_t)buckets->count, .parts = buckets->count};
    for (size_t i = 0; i < buckets->bucket_count; i++) {
        bucket *b = &buckets->buckets[i];
        b->memory = nd__bucket_memory_take(operation, where(buckets, i), bytes_of(b));
        if (!b->memory)
            return nd_error_get_status();
    }
    buckets->laid_out = true;
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------
// the thread

static const int64_t *shares_of(const nd_buckets *buckets, size_t index) {
    return buckets->shares + index * (size_t)buckets->comm->size;
}

/// Notes what the transport answered; on an error the bucket's memory is its own from now on, if it
/// is the host's.
static nd_status sent(const nd_buckets *buckets, bucket *b, nd_status status) {
    if (status != ND_OK && buckets->comm->device.kind == ND_CPU) {
        nd__transport_keep(b->memory);
        b->memory = NULL;
    }
    return nd__communicator_note(buckets->comm, status);
}

/// Which parts had a gradient anywhere.
static nd_status reduce_flags(const nd_buckets *buckets, const nd_transport_call *call, bucket *b) {
    nd_transport *transport = buckets->comm->transport;
    return b->numel == 0 ? ND_OK
                         : transport->functions->reduce_values(transport, call, b->memory, b->numel,
                                                               b->dtype, ND_COLLECTIVE_MAX);
}

/// Agrees on a bucket and reduces it.
static nd_status send(nd_buckets *buckets, size_t index) {
    bucket *b = &buckets->buckets[index];
    nd_transport_call call;
    nd_status status = nd__communicator_enter(sending, buckets->comm, &call);
    if (status != ND_OK)
        return status;
    nd_description mine = {.call = ND__CALL_PARALLEL,
                           .argument = (int32_t)index,
                           .dtype = (int32_t)b->dtype,
                           .ndim = 1,
                           .shape = {b->numel}};
    bool flags = is_flags(buckets, index);
    status = nd__agreement_reach(buckets->comm, &call, &mine);
    nd_transport *transport = buckets->comm->transport;
    if (status == ND_OK && flags)
        status = sent(buckets, b, reduce_flags(buckets, &call, b));
    else if (status == ND_OK && buckets->limits.sharded)
        status = sent(buckets, b,
                      transport->functions->reduce_shares(transport, &call, b->memory,
                                                          shares_of(buckets, index), b->dtype,
                                                          ND_COLLECTIVE_MEAN));
    else if (status == ND_OK)
        status = sent(buckets, b,
                      nd__collectives_reduce(buckets->comm, &call, b->memory, b->numel, b->dtype,
                                             ND_COLLECTIVE_MEAN));
    nd__communicator_leave(buckets->comm);
    return status;
}

static void *run(void *argument) {
    nd_buckets *buckets = argument;
    pthread_mutex_lock(&buckets->lock);
    for (;;) {
        while (!buckets->stop && (buckets->failed != ND_OK || buckets->reduced == buckets->ready))
            pthread_cond_wait(&buckets->wake, &buckets->lock);
        if (buckets->stop)
            break;
        size_t next = buckets->reduced;
        pthread_mutex_unlock(&buckets->lock);
        nd_status status = send(buckets, next);
        pthread_mutex_lock(&buckets->lock);
        if (status == ND_OK) {
            buckets->reduced++;
        } else {
            buckets->failed = status;
            snprintf(buckets->message, sizeof buckets->message, "%s", nd_error_get_message());
        }
        pthread_cond_signal(&buckets->done);
    }
    pthread_mutex_unlock(&buckets->lock);
    return NULL;
}

// -------------------------------------------------------------------------------------------------
// begin and end

static void free_all(nd_buckets *buckets) {
    free_memory(buckets);
    nd__alloc_free(buckets->parts);
    nd__alloc_free(buckets->buckets);
    nd__alloc_free(buckets->order);
    nd__alloc_free(buckets->arrived);
    nd__alloc_free(buckets->shares);
    nd__alloc_free(buckets);
}

nd_buckets *nd__buckets_new(const char *operation, const nd_communicator *comm, size_t count,
                            const nd_dtype *dtypes, const int64_t *numels,
                            nd_bucket_limits limits) {
    nd_buckets *buckets = nd__alloc_zeroed(sizeof *buckets);
    if (buckets) {
        buckets->parts = nd__alloc_zeroed((count + 1) * sizeof *buckets->parts);
        buckets->buckets = nd__alloc_zeroed((count + 1) * sizeof *buckets->buckets);
        buckets->order = nd__alloc_zeroed((count + 1) * sizeof *buckets->order);
        buckets->arrived = nd__alloc_zeroed((count + 1) * sizeof *buckets->arrived);
    }
    if (!buckets || !buckets->parts || !buckets->buckets || !buckets->order || !buckets->arrived) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the buckets of %zu parameters",
                  operation, count);
        if (buckets)
            free_all(buckets);
        return NULL;
    }
    buckets->comm = comm;
    buckets->limits = limits;
    buckets->count = count;
    buckets->generation = nd__fork_generation;
    for (size_t i = 0; i < count; i++)
        buckets->parts[i] = (part){.dtype = dtypes[i], .numel = numels[i]};
    order_backwards(buckets);
    pthread_mutex_init(&buckets->lock, NULL);
    pthread_cond_init(&buckets->wake, NULL);
    pthread_cond_init(&buckets->done, NULL);
    nd_status status = limits.sharded && !choose_owners(buckets)
                           ? nd__error(ND_ERROR_OUT_OF_MEMORY,
                                       "%s: no memory for the shares of %d "
                                       "ranks",
                                       operation, comm->size)
                           : lay_out(buckets, operation);
    if (status == ND_OK && nd__spawn(&buckets->thread, NULL, 0, run, buckets) != 0)
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: the thread that sends cannot be started",
                           operation);
    if (status == ND_OK)
        return buckets;
    free_all(buckets);
    return NULL;
}

void nd__buckets_free(nd_buckets *buckets) {
    if (buckets->generation == nd__fork_generation) {
        pthread_mutex_lock(&buckets->lock);
        buckets->stop = true;
        pthread_cond_signal(&buckets->wake);
        pthread_mutex_unlock(&buckets->lock);
        pthread_join(buckets->thread, NULL);
    }
    free_all(buckets);
}

size_t nd__buckets_get_count(const nd_buckets *buckets) {
    return buckets->bucket_count - 1;
}

// -------------------------------------------------------------------------------------------------
// a step

/// Rank 0's order becomes that of all.
static nd_status share_order(nd_buckets *buckets, const char *operation) {
    size_t bytes = buckets->count * sizeof *buckets->order;
    uint32_t *shared = nd__alloc(bytes + 1);
    if (shared)
        memcpy(shared, buckets->arrived, bytes);
    nd_transport_call call;
    nd_status status = nd__communicator_enter(operation, buckets->comm, &call);
    if (status == ND_OK) {
        nd_description mine = {.call = ND__CALL_PARALLEL, .argument = -1};
        if (!shared)
            mine.status = (int32_t)nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu bytes",
                                             operation, bytes);
        status = nd__agreement_reach(buckets->comm, &call, &mine);
        if (status == ND_OK)
            status = nd__communicator_note(
                buckets->comm, buckets->comm->transport->functions->broadcast_values(
                                   buckets->comm->transport, &call, shared, (int64_t)bytes, 0));
        if (status != ND_OK && buckets->comm->device.kind == ND_CPU &&
            nd_communicator_is_broken(buckets->comm)) {
            nd__transport_keep(shared);
            shared = NULL;
        }
        nd__communicator_leave(buckets->comm);
    }
    if (status == ND_OK)
        memcpy(buckets->order, shared, bytes);
    nd__alloc_free(shared);
    return status;
}

nd_status nd__buckets_begin(nd_buckets *buckets, const char *operation) {
    nd_status status = ND_OK;
    if (buckets->stepped && !buckets->reordered) {
        status = share_order(buckets, operation);
        buckets->reordered = status == ND_OK;
        buckets->laid_out &= status != ND_OK;
    }
    if (status == ND_OK && !buckets->laid_out)
        status = lay_out(buckets, operation);
    for (size_t i = 0; status == ND_OK && i < buckets->bucket_count; i++) {
        buckets->buckets[i].waiting = buckets->buckets[i].parts;
        if (!buckets->buckets[i].memory)
            status = nd__error(ND_ERROR_IO, "%s: the communicator is broken", operation);
    }
    for (size_t i = 0; i < buckets->count; i++)
        buckets->parts[i].set = false;
    buckets->arrived_count = 0;
    buckets->agreed_to_fail = false;
    pthread_mutex_lock(&buckets->lock);
    buckets->ready = buckets->reduced = 0;
    buckets->failed = ND_OK;
    pthread_mutex_unlock(&buckets->lock);
    return status;
}

nd_status nd__buckets_forget_order(nd_buckets *buckets, const char *operation) {
    buckets->stepped = false;
    if (!buckets->reordered)
        return ND_OK;
    buckets->reordered = false;
    order_backwards(buckets);
    return lay_out(buckets, operation);
}

void *nd__buckets_memory(const nd_buckets *buckets, size_t index) {
    const part *p = &buckets->parts[index];
    return buckets->buckets[p->bucket].memory + (size_t)p->offset * nd_dtype_get_size(p->dtype);
}

nd_dtype nd__buckets_get_dtype(const nd_buckets *buckets, size_t index) {
    return buckets->parts[index].dtype;
}

nd_device nd__buckets_get_device(const nd_buckets *buckets) {
    return buckets->comm->device;
}

bool nd__buckets_is_set(const nd_buckets *buckets, size_t index) {
    return buckets->parts[index].set;
}

/// One part less to wait for; whatever is ready by that goes to the thread.
static void arrive(nd_buckets *buckets, bucket *b) {
    b->waiting--;
    pthread_mutex_lock(&buckets->lock);
    size_t ready = buckets->ready;
    while (ready < buckets->bucket_count && buckets->buckets[ready].waiting == 0)
        ready++;
    if (ready != buckets->ready) {
        buckets->ready = ready;
        pthread_cond_signal(&buckets->wake);
    }
    pthread_mutex_unlock(&buckets->lock);
}

void nd__buckets_set(nd_buckets *buckets, size_t index, bool used) {
    part *p = &buckets->parts[index];
    bucket *flags = &buckets->buckets[buckets->bucket_count - 1];
    p->set = true;
    p->used = used;
    buckets->arrived[buckets->arrived_count++] = (uint32_t)index;
    flags->memory[index] = used; // of the host
    arrive(buckets, &buckets->buckets[p->bucket]);
    arrive(buckets, flags);
}

/// Waits until the thread has reduced so many buckets, of those that are ready.
static nd_status wait_until(nd_buckets *buckets, size_t count) {
    pthread_mutex_lock(&buckets->lock);
    while (buckets->failed == ND_OK && buckets->reduced < count)
        pthread_cond_wait(&buckets->done, &buckets->lock);
    nd_status status = buckets->failed;
    pthread_mutex_unlock(&buckets->lock);
    return status;
}

/// Waits until the thread has nothing more to do.
static nd_status rest(nd_buckets *buckets) {
    return wait_until(buckets, buckets->ready);
}

/// The same as part of a step, which fails with it.
static nd_status wait_in_step(nd_buckets *buckets, size_t count) {
    nd_status status = wait_until(buckets, count);
    buckets->agreed_to_fail = status != ND_OK;
    return status == ND_OK ? ND_OK : nd__error(status, "%s", buckets->message);
}

nd_status nd__buckets_wait(nd_buckets *buckets) {
    return wait_in_step(buckets, buckets->ready);
}

nd_status nd__buckets_wait_for(nd_buckets *buckets, size_t index) {
    return wait_in_step(buckets, buckets->parts[index].bucket + (size_t)1);
}

size_t nd__buckets_get_part(const nd_buckets *buckets, size_t place) {
    return buckets->order[place];
}

bool nd__buckets_was_used_here(const nd_buckets *buckets, size_t index) {
    return buckets->parts[index].used;
}

bool nd__buckets_was_used(const nd_buckets *buckets, size_t index) {
    return buckets->buckets[buckets->bucket_count - 1].memory[index] != 0;
}

nd_status nd__buckets_end(nd_buckets *buckets, const char *operation, nd_status status) {
    nd_error_state own;
    nd__error_save(&own);
    if (buckets->agreed_to_fail)
        return status;
    // A rank that has failed by itself may have buckets on their way yet; another one may have
    // failed meanwhile.
    if (rest(buckets) != ND_OK) {
        if (status == ND_OK)
            return nd__error(buckets->failed, "%s", buckets->message);
        nd__error_restore(&own);
        return status;
    }
    nd_transport_call call;
    nd_status entered = nd__communicator_enter(operation, buckets->comm, &call);
    if (entered != ND_OK && status != ND_OK)
        nd__error_restore(&own);
    if (entered != ND_OK)
        return status != ND_OK ? status : entered;
    nd_description mine = {.call = ND__CALL_PARALLEL,
                           .argument = (int32_t)buckets->reduced,
                           .status = (int32_t)status};
    nd__error_restore(&own);
    status = nd__agreement_reach(buckets->comm, &call, &mine);
    nd__communicator_leave(buckets->comm);
    buckets->stepped |= status == ND_OK;
    return status;
}

// -------------------------------------------------------------------------------------------------
// shares

int nd__buckets_get_owner(const nd_buckets *buckets, size_t index) {
    return buckets->parts[index].owner;
}

bool nd__buckets_is_own(const nd_buckets *buckets, size_t index) {
    return !buckets->limits.sharded || buckets->parts[index].owner == buckets->comm->rank;
}

nd_status nd__buckets_gather(nd_buckets *buckets, const char *operation, bool shares,
                             nd_status status) {
    nd_transport_call call;
    nd_status entered = nd__communicator_enter(operation, buckets->comm, &call);
    if (entered != ND_OK)
        return entered;
    nd_transport *transport = buckets->comm->transport;
    if (status == ND_OK && !buckets->laid_out)
        status = nd__error(ND_ERROR_STATE, "%s: there was no memory for buckets", operation);
    nd_description mine = {.call = ND__CALL_PARALLEL, .argument = -2, .status = (int32_t)status};
    status = nd__agreement_reach(buckets->comm, &call, &mine);
    for (size_t i = 0; shares && status == ND_OK && i + 1 < buckets->bucket_count; i++) {
        bucket *b = &buckets->buckets[i];
        status = sent(buckets, b,
                      transport->functions->gather_shares(transport, &call, b->memory,
                                                          shares_of(buckets, i), b->dtype));
    }
    nd__communicator_leave(buckets->comm);
    return status;
}
