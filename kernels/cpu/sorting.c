// Sorting and searching along an axis.
//
// A row becomes pairs of a key (kernels/sorting.h) and a position, which are sorted stably: few by
// insertion, more by their digits, from the lowest, leaving out digits that all share. The order of
// a stable sort is unique, so how the work is cut never changes a result. Threads share the rows, or
// the pieces of one long row, whose sorted pieces are then merged.
#include "kernels/sorting.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <stdatomic.h>
#include <string.h>

#define INSERTED 48      ///< rows up to here are sorted by insertion
#define PIECE (1 << 16)  ///< of a row that threads share
#define MERGED (1 << 14) ///< results of a merge that one thread writes at least
#define DIGITS 8         ///< of a key
#define DIGIT_VALUES 256

typedef struct pair {
    uint64_t key;
    int64_t position;
} pair;

typedef struct sort_work {
    const nd_kernel_call *call;
    int64_t size, kept; ///< of the axis, and how many of its positions are wanted
    int64_t stride, out_stride;
    bool descending;
    atomic_bool no_memory;
    // One row that threads share.
    pair *from, *to;
    int64_t width; ///< of the sorted pieces of `from`
    const void *row;
} sort_work;

// ------------------------------------------------------------------------------------ pieces of a row

static void read_keys(const sort_work *work, const void *row, int64_t begin, int64_t end,
                      pair *ret_pairs) {
    uint64_t turned = work->descending ? UINT64_MAX : 0;
    switch (work->call->operand[1].dtype) {
#define ND_DTYPE(ENUMERATOR, name, text, T, kind)                                            \
    case ND_##ENUMERATOR:                                                                    \
        for (int64_t i = begin; i < end; i++)                                                \
            ret_pairs[i - begin] =                                                           \
                (pair){nd__sorting_key(row, ND_##ENUMERATOR, i * work->stride) ^ turned, i}; \
        break;
#include "kernels/dtypes.inc"
#undef ND_DTYPE
    default:
        break;
    }
}

static void insert_sort(pair *pairs, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        pair moved = pairs[i];
        int64_t at = i;
        for (; at > 0 && pairs[at - 1].key > moved.key; at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = moved;
    }
}

/// Sorts pairs in place, with room for as many.
static void digit_sort(pair *pairs, pair *room, int64_t n) {
    int64_t counts[DIGITS][DIGIT_VALUES];
    pair *from = pairs, *to = room;
    memset(counts, 0, sizeof counts);
    for (int64_t i = 0; i < n; i++)
        for (int digit = 0; digit < DIGITS; digit++)
            counts[digit][from[i].key >> 8 * digit & 0xFF]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        if (counts[digit][from[0].key >> 8 * digit & 0xFF] == n)
            continue;
        int64_t places[DIGIT_VALUES], place = 0;
        for (int value = 0; value < DIGIT_VALUES; value++) {
            places[value] = place;
            place += counts[digit][value];
        }
        for (int64_t i = 0; i < n; i++)
            to[places[from[i].key >> 8 * digit & 0xFF]++] = from[i];
        pair *other = from;
        from = to;
        to = other;
    }
    if (from != pairs)
        memcpy(pairs, from, (size_t)n * sizeof *pairs);
}

static void sort_pairs(pair *pairs, pair *room, int64_t n) {
    if (n <= INSERTED)
        insert_sort(pairs, n);
    else
        digit_sort(pairs, room, n);
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

/// Moves the first k of n pairs in their order, sorted, to the front; the rest is lost.
static void select_pairs(pair *pairs, pair *room, int64_t n, int64_t k) {
    for (int64_t at = k / 2; at-- > 0;)
        sink(pairs, k, at);
    for (int64_t i = k; i < n; i++)
        if (comes_before(pairs[i], pairs[0])) {
            pairs[0] = pairs[i];
            sink(pairs, k, 0);
        }
    // Equal pairs have lost their order in the heap: by position first, then stably by key.
    for (int64_t i = 0; i < k; i++) {
        uint64_t key = pairs[i].key;
        pairs[i].key = (uint64_t)pairs[i].position;
        pairs[i].position = (int64_t)key;
    }
    sort_pairs(pairs, room, k);
    for (int64_t i = 0; i < k; i++) {
        uint64_t position = pairs[i].key;
        pairs[i].key = (uint64_t)pairs[i].position;
        pairs[i].position = (int64_t)position;
    }
    sort_pairs(pairs, room, k);
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

static void sort_rows(void *context, int64_t begin, int64_t end) {
    sort_work *work = (sort_work *)context;
    int64_t n = work->size;
    pair *pairs = (pair *)nd__cpu_scratch(2 * (size_t)n * sizeof *pairs);
    if (!pairs) {
        atomic_store(&work->no_memory, true);
        return;
    }
    for (; begin < end; begin++) {
        read_keys(work, row_of(work->call, 1, begin), 0, n, pairs);
        if (work->kept < n / 8)
            select_pairs(pairs, pairs + n, n, work->kept);
        else
            sort_pairs(pairs, pairs + n, n);
        write_positions(work, pairs, begin);
    }
}

// -------------------------------------------------------------------------------------- one long row

static void sort_pieces(void *context, int64_t begin, int64_t end) {
    const sort_work *work = (const sort_work *)context;
    for (; begin < end; begin++) {
        int64_t first = begin * PIECE, left = work->size - first, n = left < PIECE ? left : PIECE;
        read_keys(work, work->row, first, first + n, work->from + first);
        sort_pairs(work->from + first, work->to + first, n);
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
    for (work->width = PIECE; work->width < work->size; work->width *= 2) {
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
    sort_work work = {.call = call,
                      .size = call->shape[last],
                      .kept = call->attrs.i[1],
                      .stride = call->operand[1].strides[last],
                      .out_stride = call->operand[0].strides[last],
                      .descending = call->attrs.i[0] != 0};
    int64_t rows = 1;
    for (int axis = 0; axis < last; axis++)
        rows *= call->shape[axis];
    bool is_long = work.size >= 2 * PIECE && work.kept >= work.size / 8;
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
