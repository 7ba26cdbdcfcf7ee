// The order of what several streams do with the same memory (order.h).
//
// The blocks lie in a treap by address: a search tree whose priorities are drawn from the addresses,
// so that it is balanced whatever the order in which they come. Memory that is in no block is
// somebody else's, and all of it counts as one. One lock guards everything here, and what
// streams keep (cuda_kept.h); no work is queued under it but the waits, and frees of what is kept no
// longer.
//
// Graphs hold blocks. One that the program has released stays in the tree while it is held, and goes
// back when nothing holds it any more. A block that a stream keeps stays in the tree, too: nobody uses
// it, and the stream's next allocation of its size has it with all that is known of it.
#include "lib/device/cuda/order.h"
#include "lib/base/alloc.h"
#include "lib/device/cuda/cuda_kept.h"
#include <string.h>

/// Streams whose reads a block remembers one by one. One more, and the newest waits for the oldest,
/// whose point it then stands for.
#define READERS 4

typedef struct point {
    nd_cuda_stream *stream; ///< NULL: none
    uint64_t at;
} point;

typedef struct nd_cuda_points {
    point written;
    point read[READERS]; ///< since then, each of another stream; the first without a stream ends it
} points;

typedef struct nd_cuda_block {
    uintptr_t start;
    size_t bytes;
    uint64_t priority; ///< above its children's
    struct nd_cuda_block *below, *above;
    nd_cuda_device *device; ///< whose memory it is
    unsigned held;          ///< so many times by graphs
    bool released;          ///< by the program, and held
    struct nd_cuda_block *next_put_off;
    uint64_t listed; ///< number of the newest list of a graph's uses that it is in, and
    size_t place;    ///< where
    points used;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *root;
static block foreign; ///< all memory of others
static _Atomic bool active;

static bool is_active(void) {
    return __builtin_expect(atomic_load(&active), 0);
}

void nd__order_activate(void) {
    atomic_store(&active, true);
}

// ------------------------------------------------------------------------------------------------
// blocks by address

static uint64_t mix(uint64_t bits) {
    bits = (bits ^ (bits >> 31)) * UINT64_C(0x7FB5D329728EA185);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x81DADEF4BC2DD44D);
    return bits ^ (bits >> 33);
}

/// Parts a tree into what starts below an address and the rest.
static void split(block *tree, uintptr_t start, block **ret_below, block **ret_rest) {
    while (tree) {
        if (tree->start < start) {
            *ret_below = tree;
            ret_below = &tree->above;
            tree = tree->above;
        } else {
            *ret_rest = tree;
            ret_rest = &tree->below;
            tree = tree->below;
        }
    }
    *ret_below = NULL;
    *ret_rest = NULL;
}

static void insert(block *new) {
    block **link = &root;
    while (*link && (*link)->priority >= new->priority)
        link = new->start < (*link)->start ? &(*link)->below : &(*link)->above;
    split(*link, new->start, &new->below, &new->above);
    *link = new;
}

/// Takes out the block that starts at an address; NULL: there is none.
static block *take(uintptr_t start) {
    block **link = &root;
    while (*link && (*link)->start != start)
        link = start < (*link)->start ? &(*link)->below : &(*link)->above;
    block *found = *link;
    if (!found)
        return NULL;
    block *below = found->below, *above = found->above;
    while (below && above) {
        if (below->priority >= above->priority) {
            *link = below;
            link = &below->above;
            below = below->above;
        } else {
            *link = above;
            link = &above->below;
            above = above->below;
        }
    }
    *link = below ? below : above;
    return found;
}

static block *block_of(const void *data) {
    const uintptr_t address = (uintptr_t)data;
    block *found = NULL;
    for (block *at = root; at;) {
        if (at->start <= address)
            found = at;
        at = at->start <= address ? at->above : at->below;
    }
    return found && address - found->start < found->bytes ? found : &foreign;
}

// ------------------------------------------------------------------------------------------------
// waiting

/// Whether what `stream` does next comes behind a point anyway.
static bool is_behind(const nd_cuda_stream *stream, point point) {
    return !point.stream || point.stream == stream || point.stream->done >= point.at ||
           stream->known[point.stream->number] >= point.at;
}

static bool is_behind_all(const nd_cuda_stream *stream, const points *used) {
    bool is_last = is_behind(stream, used->written);
    for (int i = 0; is_last && i < READERS; i++)
        is_last = is_behind(stream, used->read[i]);
    return is_last;
}

/// Has a stream wait for a point. The event behind the newest work that was waited for is used
/// again as long as it stands behind the point.
static nd_status wait_for(nd_cuda_stream *stream, point point) {
    if (is_behind(stream, point))
        return ND_OK;
    nd_cuda_stream *other = point.stream;
    if (other->recorded < point.at) {
        nd_status status = nd__cuda_status(cudaEventRecord(other->passed, other->handle));
        if (status != ND_OK)
            return status;
        other->recorded = other->queued;
    }
    nd_status status = nd__cuda_status(cudaStreamWaitEvent(stream->handle, other->passed, 0));
    if (status == ND_OK)
        stream->known[other->number] = other->recorded;
    return status;
}

/// As wait_for(), where nobody could be told of a failure: then the host waits, or the capture gives
/// no graph. A device that has failed does nothing any more, so there is nothing to wait for.
static void must_wait_for(nd_cuda_stream *stream, point point) {
    if (wait_for(stream, point) == ND_OK)
        return;
    if (stream->captured)
        stream->captured->unordered = true;
    else
        (void)nd__cuda_status(cudaStreamSynchronize(point.stream->handle));
}

static nd_status wait_for_points(nd_cuda_stream *stream, const points *used, bool write) {
    nd_status status = wait_for(stream, used->written);
    for (int i = 0; write && status == ND_OK && i < READERS && used->read[i].stream; i++)
        status = wait_for(stream, used->read[i]);
    return status;
}

/// Where the points of a block are that concern a stream. Captured work has listed it.
static points *points_of(const nd_cuda_stream *stream, block *block) {
    return stream->captured ? &stream->captured->points[block->place] : &block->used;
}

/// Takes a captured stream into the capture.
static nd_status join(nd_cuda_stream *stream) {
    if (!stream->captured || stream->joined)
        return ND_OK;
    nd_status status =
        nd__cuda_status(cudaStreamWaitEvent(stream->handle, stream->device->capture_began, 0));
    stream->joined = status == ND_OK;
    return status;
}

nd_status nd__order_before(nd_cuda_stream *stream, size_t count, const nd_cuda_access *accesses) {
    if (!is_active())
        return ND_OK;
    nd_status status = join(stream);
    if (status == ND_OK && stream->captured)
        status = nd__order_list(stream->captured, count, accesses);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; status == ND_OK && i < count; i++)
        if (accesses[i].data)
            status = wait_for_points(stream, points_of(stream, block_of(accesses[i].data)),
                                     accesses[i].write);
    pthread_mutex_unlock(&lock);
    return status;
}

// ------------------------------------------------------------------------------------------------
// points

/// The place for a stream's read: its own, a free one, or, where all are taken by others, that of
/// the oldest, for which the stream waits.
static point *place_for_read(nd_cuda_stream *stream, points *used) {
    for (int i = 0; i < READERS; i++)
        if (!used->read[i].stream || used->read[i].stream == stream)
            return &used->read[i];
    must_wait_for(stream, used->read[0]);
    for (int i = 1; i < READERS; i++)
        used->read[i - 1] = used->read[i];
    return &used->read[READERS - 1];
}

static void note(nd_cuda_stream *stream, uint64_t at, block *block, bool write) {
    points *used = points_of(stream, block);
    if (write) {
        used->written = (point){stream, at};
        for (int i = 0; i < READERS; i++)
            used->read[i] = (point){NULL, 0};
    } else if (!(used->written.stream == stream && used->written.at == at)) {
        *place_for_read(stream, used) = (point){stream, at};
    }
}

void nd__order_after(nd_cuda_stream *stream, size_t count, const nd_cuda_access *accesses) {
    if (!is_active())
        return;
    pthread_mutex_lock(&lock);
    // Writes first: a block that is written and read has the one point.
    const uint64_t at = stream->queued + 1;
    for (size_t i = 0; i < count; i++)
        if (accesses[i].data && accesses[i].write)
            note(stream, at, block_of(accesses[i].data), true);
    for (size_t i = 0; i < count; i++)
        if (accesses[i].data && !accesses[i].write)
            note(stream, at, block_of(accesses[i].data), false);
    stream->queued = at;
    pthread_mutex_unlock(&lock);
}

uint64_t nd__order_queued(nd_cuda_stream *stream) {
    if (!is_active())
        return 0; // more will be number 1
    pthread_mutex_lock(&lock);
    const uint64_t queued = stream->queued;
    pthread_mutex_unlock(&lock);
    return queued;
}

void nd__order_done(nd_cuda_stream *stream, uint64_t queued) {
    pthread_mutex_lock(&lock);
    if (stream->done < queued)
        stream->done = queued;
    pthread_mutex_unlock(&lock);
}

// ------------------------------------------------------------------------------------------------
// allocation and release

/// A block is a stream's from its next piece of work. With the lock held.
static void begin(nd_cuda_stream *stream, block *block) {
    if (is_active())
        stream->queued++;
    block->used = (points){.written = {stream, stream->queued}};
}

nd_status nd__order_add(nd_cuda_stream *stream, void *data, size_t bytes) {
    block *new = nd__alloc_zeroed(sizeof *new);
    if (!new)
        return ND_ERROR_OUT_OF_MEMORY;
    new->start = (uintptr_t)data;
    new->bytes = bytes;
    new->device = stream->device;
    new->priority = mix((uint64_t) new->start);
    pthread_mutex_lock(&lock);
    begin(stream, new);
    insert(new);
    pthread_mutex_unlock(&lock);
    return ND_OK;
}

/// A stream of the device that is behind all points of a block, without any more waiting.
static nd_cuda_stream *last_user(const nd_cuda_device *device, const block *block) {
    for (int i = -1; i < READERS; i++) {
        nd_cuda_stream *stream = i < 0 ? block->used.written.stream : block->used.read[i].stream;
        if (stream && stream->device == device && is_behind_all(stream, &block->used))
            return stream;
    }
    return NULL;
}

// What is kept is given up behind the stream's work, which is behind all that has used it.

static void give_up(nd_cuda_stream *stream, block *kept) {
    block *gone = take(kept->start);
    (void)nd__cuda_status(cudaFreeAsync((void *)gone->start, stream->handle));
    nd__alloc_free(gone);
}

/// Nothing is ever allocated on the stream that gives back what several have used.
static bool keep(nd_cuda_stream *stream, block *gone) {
    if (stream == &stream->device->streams[ND__CUDA_RETIRING])
        return false;
    for (block *other; (other = nd__cuda_kept_take_other(stream, gone->bytes));)
        give_up(stream, other);
    return nd__cuda_kept_put(stream, gone, gone->bytes);
}

void *nd__order_take_kept(nd_cuda_stream *stream, size_t bytes) {
    pthread_mutex_lock(&lock);
    block *kept = nd__cuda_kept_take(stream, bytes);
    if (kept)
        begin(stream, kept);
    void *data = kept ? (void *)kept->start : NULL;
    pthread_mutex_unlock(&lock);
    return data;
}

uint64_t nd__order_give_up_kept(nd_cuda_device *device) {
    uint64_t given_up = 0;
    pthread_mutex_lock(&lock);
    for (int number = 0; number < ND__CUDA_STREAMS; number++) {
        nd_cuda_stream *stream = &device->streams[number];
        for (block *kept; (kept = nd__cuda_kept_take_any(stream));) {
            given_up += kept->bytes;
            give_up(stream, kept);
        }
    }
    pthread_mutex_unlock(&lock);
    return given_up;
}

/// A block that the program has released becomes its stream's to keep, or is forgotten. With the lock
/// held.
static nd_cuda_retired retire(block *gone) {
    nd_cuda_device *device = gone->device;
    nd_cuda_stream *stream = &device->streams[ND__CUDA_DEFAULT];
    if (is_active()) {
        stream = last_user(device, gone);
        if (!stream) {
            stream = &device->streams[ND__CUDA_RETIRING];
            must_wait_for(stream, gone->used.written);
            for (int i = 0; i < READERS; i++)
                must_wait_for(stream, gone->used.read[i]);
        }
    }
    nd_cuda_retired retired = {stream, device, (void *)gone->start, gone->bytes, true};
    gone->released = false;
    if (!keep(stream, gone)) {
        retired.kept = false;
        nd__alloc_free(take(gone->start));
    }
    return retired;
}

/// The block that begins at an address, or NULL.
static block *block_at(const void *data) {
    block *found = block_of(data);
    return found != &foreign && found->start == (uintptr_t)data ? found : NULL;
}

nd_cuda_retired nd__order_remove(nd_cuda_device *device, void *data) {
    nd_cuda_retired retired = {NULL, device, data, 0, false};
    pthread_mutex_lock(&lock);
    block *gone = block_at(data);
    if (gone && gone->held)
        gone->released = true;
    else if (gone)
        retired = retire(gone);
    pthread_mutex_unlock(&lock);
    return retired;
}

// ------------------------------------------------------------------------------------------------
// what graphs hold

static void list_one(nd_cuda_uses *uses, block *used, bool write) {
    if (used->listed != uses->number) {
        used->listed = uses->number;
        used->place = uses->count;
        uses->points[used->place] = (points){0};
        used->held++;
        uses->access[uses->count++] = (nd_cuda_access){(void *)used->start, write};
    } else if (write) {
        uses->access[used->place].write = true;
    }
}

/// Room for so many more.
static bool make_room(nd_cuda_uses *uses, size_t count) {
    if (uses->capacity - uses->count >= count)
        return true;
    const size_t capacity = 2 * uses->capacity + count;
    nd_cuda_access *grown = nd__alloc_resize(uses->access, capacity * sizeof *grown);
    if (!grown)
        return false;
    uses->access = grown;
    points *more = nd__alloc_resize(uses->points, capacity * sizeof *more);
    if (!more)
        return false;
    uses->points = more;
    uses->capacity = capacity;
    return true;
}

nd_status nd__order_list(nd_cuda_uses *uses, size_t count, const nd_cuda_access *accesses) {
    static uint64_t lists;
    if (!make_room(uses, count))
        return ND_ERROR_OUT_OF_MEMORY;
    bool known = true;
    pthread_mutex_lock(&lock);
    if (uses->number == 0)
        uses->number = ++lists;
    for (size_t i = 0; i < count; i++)
        known = known && (!accesses[i].data || block_of(accesses[i].data) != &foreign);
    for (size_t i = 0; i < count && known; i++)
        if (accesses[i].data)
            list_one(uses, block_of(accesses[i].data), accesses[i].write);
    pthread_mutex_unlock(&lock);
    return known ? ND_OK : ND_ERROR_STATE;
}

void nd__order_begin_capture(nd_cuda_device *device, nd_cuda_uses *uses) {
    for (int place = 0; place < ND__CUDA_STREAMS; place++) {
        nd_cuda_stream *stream = &device->capturing[place];
        if (!stream->handle)
            continue;
        stream->queued = stream->recorded = 0;
        memset(stream->known, 0, sizeof stream->known);
        stream->joined = place == ND__CUDA_DEFAULT;
        stream->captured = uses;
    }
}

nd_status nd__order_join_captured(nd_cuda_device *device) {
    nd_cuda_stream *first = &device->capturing[ND__CUDA_DEFAULT];
    nd_status status = first->captured->unordered ? ND_ERROR_DEVICE : ND_OK;
    for (int place = ND__CUDA_DEFAULT + 1; place < ND__CUDA_STREAMS && status == ND_OK; place++) {
        nd_cuda_stream *stream = &device->capturing[place];
        if (!stream->joined)
            continue;
        status = nd__cuda_status(cudaEventRecord(stream->passed, stream->handle));
        if (status == ND_OK)
            status = nd__cuda_status(cudaStreamWaitEvent(first->handle, stream->passed, 0));
    }
    return status;
}

void nd__order_end_capture(nd_cuda_device *device) {
    for (int place = 0; place < ND__CUDA_STREAMS; place++) {
        device->capturing[place].captured = NULL;
        device->capturing[place].joined = false;
    }
}

bool nd__order_is_behind(const nd_cuda_stream *stream, const void *data) {
    pthread_mutex_lock(&lock);
    const bool behind = is_behind_all(stream, points_of(stream, block_of(data)));
    pthread_mutex_unlock(&lock);
    return behind;
}

void nd__order_hold(void *data) {
    pthread_mutex_lock(&lock);
    block_at(data)->held++;
    pthread_mutex_unlock(&lock);
}

/// With the lock held.
static nd_cuda_retired let_go(block *held) {
    if (--held->held > 0 || !held->released)
        return (nd_cuda_retired){NULL, held->device, (void *)held->start, 0, false};
    return retire(held);
}

nd_cuda_retired nd__order_let_go(void *data) {
    pthread_mutex_lock(&lock);
    const nd_cuda_retired retired = let_go(block_at(data));
    pthread_mutex_unlock(&lock);
    return retired;
}

bool nd__order_is_released(const void *data) {
    pthread_mutex_lock(&lock);
    const bool released = block_at(data)->released;
    pthread_mutex_unlock(&lock);
    return released;
}

void nd__order_use_again(void *data) {
    pthread_mutex_lock(&lock);
    block_at(data)->released = false;
    pthread_mutex_unlock(&lock);
}

void nd__order_put_off(nd_cuda_put_off *list, void *data) {
    pthread_mutex_lock(&lock);
    block *gone = block_at(data);
    if (gone) {
        gone->released = true;
        if (gone->held == 0) {
            gone->held = 1;
            gone->next_put_off = list->first;
            list->first = gone;
        }
    }
    pthread_mutex_unlock(&lock);
}

bool nd__order_next_put_off(nd_cuda_put_off *list, nd_cuda_retired *ret_retired) {
    pthread_mutex_lock(&lock);
    block *first = list->first;
    if (first) {
        list->first = first->next_put_off;
        *ret_retired = let_go(first);
    }
    pthread_mutex_unlock(&lock);
    return first != NULL;
}

// ------------------------------------------------------------------------------------------------
// kernel calls

// How many of its first operands a family's calls may write (kernels/kernel.h).
enum {
    WRITES_UNARY = 1,
    WRITES_PREDICATE = 1,
    WRITES_BINARY = 1,
    WRITES_COMPARE = 1,
    WRITES_LOGICAL = 1,
    WRITES_TERNARY = 1,
    WRITES_REDUCE = 1,
    WRITES_ARGREDUCE = 1,
    WRITES_SCAN = 1,
    WRITES_SORT = 1,
    WRITES_MATMUL = 1,
    WRITES_QUANTIZED = 1,
    WRITES_SOFTMAX = 1,
    WRITES_LOSS = 2, ///< pair_loss_grad
    WRITES_NORM = 2, ///< layer_norm and the gradients
    WRITES_INDEX = 1,
    WRITES_CREATE = 1,
    WRITES_COPY = 1,
    WRITES_CONV = 1,
    WRITES_POOL = 2,
    WRITES_RESAMPLE = 1,
    WRITES_ATTENTION = 3, ///< attention_grad
    WRITES_CELL = 3,
    WRITES_DROPOUT = 1,
    WRITES_LINALG = 2,
    WRITES_FFT = 1,
    WRITES_VIEW = ND_MAX_OPERANDS,
};

static const int8_t written_operands[ND_OP_COUNT] = {
#define ND_OP(name, family, inputs, differentiable, saves) [ND_OP_##name] = WRITES_##family,
#include "kernels/ops.inc"
#undef ND_OP
};

size_t nd__order_of_call(const nd_kernel_call *call, nd_cuda_access *ret_accesses) {
    for (int i = 0; i < call->noperands; i++)
        ret_accesses[i] = (nd_cuda_access){call->operand[i].data, i < written_operands[call->op]};
    return (size_t)call->noperands;
}

void nd__order_of_chain(const nd_chain *chain, nd_cuda_access *ret_accesses) {
    for (int i = 0; i < ND_CHAIN_OPERANDS; i++)
        ret_accesses[i] = (nd_cuda_access){chain->data[i], false};
    for (int i = 0; i < chain->steps; i++)
        ret_accesses[chain->step[i].out].write = true;
    ret_accesses[ND_CHAIN_OPERANDS] = (nd_cuda_access){chain->numbers, false};
}
