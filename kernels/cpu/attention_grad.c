// attention_grad: the gradients of queries, keys and values, from weights that are computed again, tile by
// tile (attention_loops.c).
//
// A gradient of a key is a sum over the queries, and over the batch entries that share the key; one
// of a query is a sum over the keys. Where there are enough keys' gradients that are apart, a task is
// one of these, and does all of it at once. Else queries and parts of the keys are tasks of their own,
// which compute the weights twice. Every sum has one order in both ways, that of its terms, and so
// the bits are the same for any number of threads.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include <stdatomic.h>
#include <string.h>

enum { OF_QUERY, OF_KEY, OF_VALUE, QUERY, KEY, VALUE, MASK, GRAD, RESULT, LOG_SUMS };

/// Keys of a task, where there are too few tasks otherwise.
#define SOME_KEYS (2 * ND__ATTENTION_KEYS)

typedef struct grad_work {
    const nd_kernel_call *call;
    const nd__attention_loops *loops;
    int64_t bytes;   ///< of an element
    int64_t tiles;   ///< of a batch entry
    int64_t owners;  ///< keys' gradients that are apart
    int64_t members; ///< batch entries that share one
    int64_t keys;    ///< of a task
    int64_t parts;   ///< tasks that an owner's keys are
    bool of_queries, of_keys;
    atomic_bool failed;
} grad_work;

static bool is_shared(const nd_kernel_call *call, int axis) {
    return call->operand[OF_KEY].strides[axis] == 0 && call->operand[OF_VALUE].strides[axis] == 0;
}

/// The batch entry that is the `member`th of an owner.
static int64_t entry_of(const nd_kernel_call *call, int64_t owner, int64_t member) {
    int64_t entry = 0, step = 1;
    for (int axis = call->ndim - 1; axis >= 0; axis--) {
        int64_t *from = is_shared(call, axis) ? &member : &owner;
        entry += *from % call->shape[axis] * step;
        *from /= call->shape[axis];
        step *= call->shape[axis];
    }
    return entry;
}

static bool begin_tiles(grad_work *work, nd__attention_tile *ret_tile) {
    const nd_kernel_call *call = work->call;
    *ret_tile = nd__attention_tile_of(call, QUERY);
    ret_tile->grad_stride = call->attrs.i[7];
    ret_tile->out_stride = call->attrs.i[11];
    ret_tile->room = nd__attention_room(call, call->operand[QUERY].dtype);
    if (!ret_tile->room)
        atomic_store(&work->failed, true);
    return ret_tile->room != NULL;
}

static void one_tile(const grad_work *work, nd__attention_tile *tile, int64_t entry,
                     int64_t number) {
    char *data[ND_MAX_OPERANDS];
    nd__attention_entry(work->call, entry, data);
    nd__attention_place(tile, data + QUERY, work->call->attrs.i[0], number);
    if (tile->causal && tile->row + tile->rows <= tile->first_key)
        return;
    tile->grad = data[GRAD];
    tile->out = data[RESULT];
    tile->log_sums = data[LOG_SUMS];
    tile->query_grad = work->of_queries ? data[OF_QUERY] : NULL;
    tile->key_grad = work->of_keys ? data[OF_KEY] : NULL;
    tile->value_grad = work->of_keys ? data[OF_VALUE] : NULL;
    work->loops->backward(tile);
}

static void clear_keys(const grad_work *work, const nd__attention_tile *tile, int64_t owner) {
    char *data[ND_MAX_OPERANDS];
    nd__attention_entry(work->call, entry_of(work->call, owner, 0), data);
    const int64_t keys = tile->keys - tile->first_key;
    const int64_t row = tile->size * work->bytes, value_row = tile->value_size * work->bytes;
    memset(data[OF_KEY] + tile->first_key * row, 0, (size_t)(keys * row));
    memset(data[OF_VALUE] + tile->first_key * value_row, 0, (size_t)(keys * value_row));
}

/// Parts of the keys, each with all queries.
static void by_keys(void *context, int64_t begin, int64_t end) {
    grad_work *work = (grad_work *)context;
    nd__attention_tile tile;
    if (!begin_tiles(work, &tile))
        return;
    const int64_t keys = tile.keys;
    for (int64_t at = begin; at < end; at++) {
        const int64_t owner = at / work->parts;
        tile.first_key = at % work->parts * work->keys;
        tile.keys = keys - tile.first_key < work->keys ? keys : tile.first_key + work->keys;
        clear_keys(work, &tile, owner);
        for (int64_t member = 0; member < work->members; member++)
            for (int64_t number = 0; number < work->tiles; number++)
                one_tile(work, &tile, entry_of(work->call, owner, member), number);
    }
}

/// Queries, each with all keys.
static void by_queries(void *context, int64_t begin, int64_t end) {
    grad_work *work = (grad_work *)context;
    nd__attention_tile tile;
    if (!begin_tiles(work, &tile))
        return;
    for (int64_t at = begin; at < end; at++)
        one_tile(work, &tile, at / work->tiles, at % work->tiles);
}

nd_status nd__cpu_attention_grad(const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    const int type = nd__float_index(call->operand[QUERY].dtype);
    if (type < 0 || !nd__attention_suits(call))
        return ND_ERROR_UNSUPPORTED;
    grad_work work = {.call = call,
                      .loops = &nd__cpu_loops_now()->attention[type],
                      .bytes = nd__dtype_bytes(call->operand[QUERY].dtype),
                      .tiles = nd__attention_tiles(call),
                      .owners = 1,
                      .members = 1,
                      .keys = i[1],
                      .parts = 1};
    for (int axis = 0; axis < call->ndim; axis++)
        *(is_shared(call, axis) ? &work.members : &work.owners) *= call->shape[axis];
    const bool queries = call->operand[OF_QUERY].data, keys = call->operand[OF_KEY].data;
    const int64_t batches = work.owners * work.members;
    const int64_t cost = i[0] * i[1] * 3 * (i[2] + i[3]) / ND__ATTENTION_SPEED;
    const int threads = nd__cpu_threads();
    const bool few = threads > 1 && work.owners < 2 * threads && work.tiles > 1;
    work.of_queries = queries && (few || !keys);
    if (work.of_queries)
        nd__cpu_parallel(batches * work.tiles, cost / work.tiles, 1, by_queries, &work);
    work.of_queries = queries && !few;
    work.of_keys = keys;
    if (keys && few)
        work.keys = SOME_KEYS;
    work.parts = (i[1] + work.keys - 1) / work.keys;
    if (keys)
        nd__cpu_parallel(work.owners * work.parts, work.members * cost / work.parts, 1, by_keys,
                         &work);
    return atomic_load(&work.failed) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}
