// Sorting and searching along an axis.
//
// A row becomes pairs of a key (kernels/sorting.h) and a position, which are sorted stably: few by
// insertion, or by how many come before each, more by their digits (digits.c). Bytes are counted. The
// order of a stable sort is unique, so how the work is cut never changes a result. Threads share the
// rows, or the pieces of one long row, whose sorted pieces are then merged.
#include "kernels/sorting.h"
#include "kernels/cpu/digits.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/ranks.h"
#include "kernels/cpu/scratch.h"
#include <stdatomic.h>
#include <string.h>

#define SHORT ND__ORDERED ///< rows up to here are not sorted by digits
#define FEW 7             ///< elements that are compared each with each, in registers
#define WIDE 8            ///< up to here numbers of 64 bits are no dearer to compare than of 32
#define ROW_KEYS 512      ///< of short rows, read at once
#define FEW_KEPT 24       ///< of a long row
#define KEYS 256          ///< read at once
#define COMPARED 64       ///< of them, with the last of those that are kept so far
#define PIECE (1 << 16)   ///< of a row that threads share
#define MERGED (1 << 14)  ///< results of a merge that one thread writes at least
#define BYTE_VALUES 256

typedef nd__pair pair;

typedef struct sort_work {
    const nd_kernel_call *call;
    int64_t size, kept;   ///< of the axis, and how many of its positions are wanted
    const int64_t *ranks; ///< `kept` of them; NULL: the first ones
    int64_t stride, out_stride;
    bool descending, is_float;
    atomic_bool no_memory;
    // One row that threads share.
    pair *from, *to;
    int64_t width; ///< of the sorted pieces of `from`
    const void *row;
} sort_work;

// ------------------------------------------------------------------------------------ pieces of a row

/// Keys begin ... begin + n - 1 of a row; returns the least.
static uint64_t read_keys(const sort_work *work, const void *row, int64_t begin, int64_t n,
                          uint64_t *ret_keys) {
    nd_dtype dtype = work->call->operand[1].dtype;
    return nd__cpu_loops_now()->sorting->keys[dtype](
        (const char *)row + begin * work->stride * nd__dtype_bytes(dtype), work->stride, n,
        work->descending ? UINT64_MAX : 0, ret_keys);
}

static void read_pairs(const sort_work *work, const void *row, int64_t begin, int64_t end,
                       pair *ret_pairs) {
    uint64_t keys[KEYS];
    while (begin < end) {
        int64_t n = end - begin < KEYS ? end - begin : KEYS;
        read_keys(work, row, begin, n, keys);
        for (int64_t i = 0; i < n; i++)
            *ret_pairs++ = (pair){keys[i], begin + i};
        begin += n;
    }
}

/// Brings the first `kept` of n pairs in their order to the front; what is behind them is lost.
static void insert_sort(pair *pairs, int64_t n, int64_t kept) {
    for (int64_t i = 1; i < n; i++) {
        pair moved = pairs[i];
        int64_t at = i;
        if (i >= kept) {
            if (kept == 0 || pairs[kept - 1].key <= moved.key)
                continue;
            at = kept - 1;
        }
        for (; at > 0 && pairs[at - 1].key > moved.key; at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = moved;
    }
}

// ---------------------------------------------------------------------------- what is kept of a row

static bool comes_before(pair a, pair b) {
    return a.key < b.key || (a.key == b.key && a.position < b.position);
}

/// Lets the pair at the root of a heap with the last pair on top sink to its place.
static void sink(pair *heap, int64_t n, int64_t at) {
    for (int64_t below = 2 * at + 1; below < n; at = below, below = 2 * at + 1) {
        below += below + 1 < n && comes_before(heap[below], heap[below + 1]);
        if (!comes_before(heap[at], heap[below]))
            return;
        pair other = heap[at];
        heap[at] = heap[below];
        heap[below] = other;
    }
}

/// Key for position, and the other way round.
static void turn_pairs(pair *pairs, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        pairs[i] = (pair){(uint64_t)pairs[i].position, (int64_t)pairs[i].key};
}

/// Sorts the k pairs of a heap, in which equal ones have lost their order: few by both, more by
/// position first, then stably by key.
static void sort_heap(pair *pairs, pair *room, int64_t k) {
    if (k > SHORT) {
        turn_pairs(pairs, k);
        nd__digits_sort(pairs, room, k);
        turn_pairs(pairs, k);
        nd__digits_sort(pairs, room, k);
        return;
    }
    for (int64_t i = 1; i < k; i++) {
        pair moved = pairs[i];
        int64_t at = i;
        for (; at > 0 && comes_before(moved, pairs[at - 1]); at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = moved;
    }
}

/// The first of a row's n pairs in their order, as many as are kept: a heap of the best so far, whose
/// last one the keys of the others are compared with, many at once. Few are better.
static void select_pairs(const sort_work *work, const void *row, pair *pairs, pair *room) {
    int64_t n = work->size, k = work->kept;
    uint64_t keys[COMPARED];
    read_pairs(work, row, 0, k, pairs);
    for (int64_t at = k / 2; at-- > 0;)
        sink(pairs, k, at);
    for (int64_t begin = k; begin < n && k > 0; begin += COMPARED) {
        int64_t count = n - begin < COMPARED ? n - begin : COMPARED;
        if (read_keys(work, row, begin, count, keys) >= pairs[0].key)
            continue; // equal ones come behind those that are there
        for (int64_t i = 0; i < count; i++)
            if (keys[i] < pairs[0].key) {
                pairs[0] = (pair){keys[i], begin + i};
                sink(pairs, k, 0);
            }
    }
    sort_heap(pairs, room, k);
}

// ---------------------------------------------------------------------------------------------- rows

/// Address of an operand's row.
static char *row_of(const nd_kernel_call *call, int which, int64_t row) {
    const nd_operand *operand = &call->operand[which];
    int64_t offset = 0;
    for (int axis = call->ndim - 2; axis >= 0; axis--) {
        offset += row % call->shape[axis] * operand->strides[axis];
        row /= call->shape[axis];
    }
    return (char *)operand->data + offset * nd__dtype_bytes(operand->dtype);
}

static void write_positions(const sort_work *work, const pair *pairs, int64_t row) {
    int64_t *out = (int64_t *)(void *)row_of(work->call, 0, row);
    for (int64_t i = 0; i < work->kept; i++)
        out[i * work->out_stride] = pairs[i].position;
}

// ---------------------------------------------------------------------------------------- short rows

/// Each element's place among a few: how many come before it, which no branch depends on.
static inline __attribute__((always_inline)) void rank_few(const uint64_t *keys, const int n,
                                                           int64_t *ret_positions) {
    int64_t places[FEW] = {0};
    for (int later = 1; later < n; later++)
        for (int i = 0; i < later; i++) {
            const bool goes_before = keys[later] < keys[i];
            places[i] += goes_before;
            places[later] += !goes_before;
        }
    for (int i = 0; i < n; i++)
        ret_positions[places[i]] = i;
}

static void order_row(const sort_work *work, const uint64_t *keys, int64_t *ret_positions) {
    const nd__sorting_loops *loops = nd__cpu_loops_now()->sorting;
    switch (work->size) {
    case 1:
        ret_positions[0] = 0;
        return;
    case 2:
        rank_few(keys, 2, ret_positions);
        return;
    case 3:
        rank_few(keys, 3, ret_positions);
        return;
    case 4:
        rank_few(keys, 4, ret_positions);
        return;
    case 5:
        rank_few(keys, 5, ret_positions);
        return;
    case 6:
        rank_few(keys, 6, ret_positions);
        return;
    case FEW:
        rank_few(keys, FEW, ret_positions);
        return;
    default:
        (work->size > WIDE && nd__dtype_bytes(work->call->operand[1].dtype) <= 4
             ? loops->order_narrow
             : loops->order)(keys, work->size, ret_positions);
    }
}

/// Whether rows are put in their order at once, by order_row().
static bool is_ordered(const sort_work *work) {
    const int64_t n = work->size;
    return n <= SHORT && (n <= FEW || nd__cpu_loops_now()->sorting->order);
}

/// Keys of `rows` rows, one row behind the other. Where x's rows lie side by side, or are one, many
/// elements are read in one go.
static void read_rows(const sort_work *work, const char *x, int64_t apart, int64_t rows,
                      uint64_t *ret_keys) {
    const int64_t n = work->size, bytes = nd__dtype_bytes(work->call->operand[1].dtype);
    uint64_t column[ROW_KEYS];
    if (work->stride == 1 && apart == n) {
        read_keys(work, x, 0, rows * n, ret_keys);
    } else if (apart == 1 && rows > n) {
        sort_work along = *work;
        along.stride = 1;
        for (int64_t i = 0; i < n; i++) {
            read_keys(&along, x + i * work->stride * bytes, 0, rows, column);
            for (int64_t row = 0; row < rows; row++)
                ret_keys[row * n + i] = column[row];
        }
    } else {
        for (int64_t row = 0; row < rows; row++)
            read_keys(work, x + row * apart * bytes, 0, n, ret_keys + row * n);
    }
}

/// The wanted rank, or the last one where a NaN is there.
static int64_t rank_of(const sort_work *work, uint64_t last_key, int64_t which) {
    return work->is_float && last_key == UINT64_MAX ? work->size - 1 : work->ranks[which];
}

/// What is wanted of a row's positions.
static void write_wanted(const sort_work *work, const uint64_t *keys, const int64_t *positions,
                         int64_t *out) {
    const uint64_t last_key = work->ranks ? keys[positions[work->size - 1]] : 0;
    for (int64_t i = 0; i < work->kept; i++)
        out[i * work->out_stride] = positions[work->ranks ? rank_of(work, last_key, i) : i];
}

/// Rows that lie `apart` from each other, in elements, in out and in x.
static void order_rows(const sort_work *work, int64_t *out, int64_t out_apart, const char *x,
                       int64_t x_apart, int64_t rows) {
    const int64_t n = work->size, kept = work->kept;
    const int64_t x_bytes = nd__dtype_bytes(work->call->operand[1].dtype);
    const bool writes_all = !work->ranks && kept == n && work->out_stride == 1;
    uint64_t keys[ROW_KEYS];
    while (rows > 0) {
        const int64_t count = rows < ROW_KEYS / n ? rows : ROW_KEYS / n;
        read_rows(work, x, x_apart, count, keys);
        for (int64_t row = 0; row < count; row++, out += out_apart) {
            int64_t positions[SHORT];
            order_row(work, keys + row * n, writes_all ? out : positions);
            if (!writes_all)
                write_wanted(work, keys + row * n, positions, out);
        }
        x += count * x_apart * x_bytes;
        rows -= count;
    }
}

/// Those along the axis before the last together.
static void order_range(const sort_work *work, int64_t begin, int64_t end) {
    const nd_kernel_call *call = work->call;
    const int before = call->ndim - 2;
    const int64_t along = before < 0 ? 1 : call->shape[before];
    while (begin < end) {
        int64_t rows = along - begin % along;
        rows = rows < end - begin ? rows : end - begin;
        order_rows(work, (int64_t *)(void *)row_of(call, 0, begin),
                   before < 0 ? 0 : call->operand[0].strides[before], row_of(call, 1, begin),
                   before < 0 ? 0 : call->operand[1].strides[before], rows);
        begin += rows;
    }
}

/// Whether so few are kept that the others are only compared with the last of those. Of many that is no
/// cheaper than to sort all, by as many digits as a key has.
static bool is_selected(const sort_work *work) {
    const int64_t many = nd__dtype_bytes(work->call->operand[1].dtype) > 4 ? 16 : 32;
    return work->kept < work->size / 8 &&
           (work->kept <= FEW_KEPT || work->kept < work->size / many);
}

/// Positions at the wanted ranks of a row of any length.
static void write_ranks(const sort_work *work, const void *x, pair *pairs, pair *room,
                        int64_t row) {
    const nd_dtype dtype = work->call->operand[1].dtype;
    const int64_t n = work->size;
    const nd__ranked_row ranked = {
        x, nd__dtype_bytes(dtype), work->stride,
        n, work->is_float,         nd__cpu_loops_now()->sorting->keys[dtype]};
    int64_t positions[ND__SORTING_RANKS];
    if (n > SHORT) {
        nd__ranks_find(&ranked, work->ranks, work->kept, pairs, room, positions);
    } else { // where order_row() has no vectors
        read_pairs(work, x, 0, n, pairs);
        insert_sort(pairs, n, n);
        for (int64_t i = 0; i < work->kept; i++)
            positions[i] = pairs[rank_of(work, pairs[n - 1].key, i)].position;
    }
    int64_t *out = (int64_t *)(void *)row_of(work->call, 0, row);
    for (int64_t i = 0; i < work->kept; i++)
        out[i * work->out_stride] = positions[i];
}

/// The positions of a row of bytes, without pairs: as many as there are of each byte, in their order.
static void count_row(const sort_work *work, const void *x, int64_t row) {
    int64_t *out = (int64_t *)(void *)row_of(work->call, 0, row);
    int64_t places[BYTE_VALUES] = {0}, place = 0;
    uint64_t keys[KEYS];
    for (int64_t begin = 0; begin < work->size; begin += KEYS) {
        const int64_t left = work->size - begin, n = left < KEYS ? left : KEYS;
        read_keys(work, x, begin, n, keys);
        for (int64_t i = 0; i < n; i++)
            places[keys[i] & 0xFF]++;
    }
    for (int value = 0; value < BYTE_VALUES; value++) {
        const int64_t count = places[value];
        places[value] = place;
        place += count;
    }
    for (int64_t begin = 0; begin < work->size; begin += KEYS) {
        const int64_t left = work->size - begin, n = left < KEYS ? left : KEYS;
        read_keys(work, x, begin, n, keys);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = places[keys[i] & 0xFF]++;
            if (at < work->kept)
                out[at * work->out_stride] = begin + i;
        }
    }
}

static void sort_rows(void *context, int64_t begin, int64_t end) {
    sort_work *work = (sort_work *)context;
    int64_t n = work->size;
    if (is_ordered(work)) {
        order_range(work, begin, end);
        return;
    }
    // A sample of a short row has as much room behind it as itself.
    pair *pairs = (pair *)nd__cpu_scratch(2 * (size_t)(n + SHORT) * sizeof *pairs);
    if (!pairs) {
        atomic_store(&work->no_memory, true);
        return;
    }
    pair *room = pairs + n + SHORT;
    for (; begin < end; begin++) {
        const void *row = row_of(work->call, 1, begin);
        if (work->ranks) {
            write_ranks(work, row, pairs, room, begin);
            continue;
        }
        bool few = n > SHORT && is_selected(work);
        if (n > SHORT && !few && nd__dtype_bytes(work->call->operand[1].dtype) == 1) {
            count_row(work, row, begin);
            continue;
        }
        if (few)
            select_pairs(work, row, pairs, room);
        else
            read_pairs(work, row, 0, n, pairs);
        if (n <= SHORT)
            insert_sort(pairs, n, work->kept);
        else if (!few)
            nd__digits_sort(pairs, room, n);
        write_positions(work, pairs, begin);
    }
}

// -------------------------------------------------------------------------------------- one long row

static void sort_pieces(void *context, int64_t begin, int64_t end) {
    const sort_work *work = (const sort_work *)context;
    for (; begin < end; begin++) {
        int64_t first = begin * PIECE, left = work->size - first, n = left < PIECE ? left : PIECE;
        read_pairs(work, work->row, first, first + n, work->from + first);
        nd__digits_sort(work->from + first, work->to + first, n);
    }
}

/// How many of the first `rank` pairs of a stable merge of a and b are a's.
static int64_t share_of(const pair *a, int64_t na, const pair *b, int64_t nb, int64_t rank) {
    int64_t low = rank > nb ? rank - nb : 0, high = rank < na ? rank : na;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (a[middle].key <= b[rank - middle - 1].key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/// Whether sorted pieces are the sorted row.
static bool are_in_order(const sort_work *work) {
    int64_t at = work->width;
    while (at < work->size && work->from[at - 1].key <= work->from[at].key)
        at += work->width;
    return at >= work->size;
}

/// Results begin ... end - 1 of the merges of neighbouring pieces.
static void merge_pieces(void *context, int64_t begin, int64_t end) {
    const sort_work *work = (const sort_work *)context;
    while (begin < end) {
        int64_t first = begin / (2 * work->width) * (2 * work->width), left = work->size - first;
        int64_t na = left < work->width ? left : work->width;
        int64_t nb = left - na < work->width ? left - na : work->width;
        const pair *a = work->from + first, *b = a + na;
        int64_t stop = first + na + nb < end ? first + na + nb : end;
        int64_t i = share_of(a, na, b, nb, begin - first), j = begin - first - i;
        for (; begin < stop; begin++)
            work->to[begin] = j >= nb || (i < na && a[i].key <= b[j].key) ? a[i++] : b[j++];
    }
}

static nd_status sort_long_row(sort_work *work, int64_t row) {
    pair *pairs = (pair *)nd__cpu_scratch(2 * (size_t)work->size * sizeof *pairs);
    if (!pairs)
        return ND_ERROR_OUT_OF_MEMORY;
    work->from = pairs;
    work->to = pairs + work->size;
    work->row = row_of(work->call, 1, row);
    nd__cpu_parallel((work->size + PIECE - 1) / PIECE, 16 * (int64_t)PIECE, 1, sort_pieces, work);
    for (work->width = PIECE; !are_in_order(work); work->width *= 2) {
        nd__cpu_parallel(work->size, 4, MERGED, merge_pieces, work);
        pair *other = work->from;
        work->from = work->to;
        work->to = other;
    }
    write_positions(work, work->from, row);
    return ND_OK;
}

static nd_status argsort(const nd_kernel_call *call) {
    int last = call->ndim - 1;
    const nd_dtype dtype = call->operand[1].dtype;
    sort_work work = {.call = call,
                      .size = call->shape[last],
                      .kept = call->attrs.i[1],
                      .stride = call->operand[1].strides[last],
                      .out_stride = call->operand[0].strides[last],
                      .ranks = call->attrs.i[2] ? call->attrs.i + 3 : NULL,
                      .descending = call->attrs.i[0] != 0,
                      .is_float = dtype == ND_F16 || dtype == ND_BF16 || dtype == ND_F32 ||
                                  dtype == ND_F64};
    int64_t rows = 1;
    for (int axis = 0; axis < last; axis++)
        rows *= call->shape[axis];
    bool is_long =
        work.size >= 2 * PIECE && !work.ranks && nd__dtype_bytes(dtype) > 1 && !is_selected(&work);
    if (is_long && rows < nd__cpu_threads()) {
        nd_status status = ND_OK;
        for (int64_t row = 0; row < rows && status == ND_OK; row++)
            status = sort_long_row(&work, row);
        return status;
    }
    nd__cpu_parallel(rows, 16 * work.size, 1, sort_rows, &work);
    return atomic_load(&work.no_memory) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}

// --------------------------------------------------------------------------------------- searchsorted

static void search_values(void *context, int64_t begin, int64_t end) {
    const nd_kernel_call *call = (const nd_kernel_call *)context;
    const nd_operand *out = &call->operand[0], *sorted = &call->operand[1],
                     *values = &call->operand[2];
    for (; begin < end; begin++) {
        int64_t rest = begin, offset[3] = {0, 0, 0};
        for (int axis = call->ndim - 1; axis >= 0; axis--) {
            int64_t at = rest % call->shape[axis];
            rest /= call->shape[axis];
            for (int i = 0; i < 3; i++)
                offset[i] += at * call->operand[i].strides[axis];
        }
        uint64_t key = nd__sorting_key(values->data, values->dtype, offset[2]);
        ((int64_t *)out->data)[offset[0]] =
            nd__sorting_rank(sorted->data, sorted->dtype, offset[1], call->attrs.i[1],
                             call->attrs.i[0], key, call->attrs.i[2] != 0);
    }
}

nd_status nd__cpu_sorting(const nd_kernel_call *call) {
    switch (call->op) {
    case ND_OP_argsort:
        return argsort(call);
    case ND_OP_searchsorted: {
        nd_kernel_call searched = *call;
        nd__cpu_parallel(nd__call_total(call), 64, 16, search_values, &searched);
        return ND_OK;
    }
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
