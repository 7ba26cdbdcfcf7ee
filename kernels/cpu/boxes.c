// Cuts an elementwise call into boxes whose operands fill a part of the nearest cache.
//
// Invariant: a box holds whole cache lines of every operand, as far as they belong to it: it is long
// along the axes along which the result's elements lie behind each other, and along those along
// which an operand's do. What does not lie in rows as the result does is brought so into a buffer
// (box_loops.c), and a result of short rows is made in one. So each element is read once and
// written once, by one thread, after all of its box were read.
//
// Where both of two operands lie as one another and the result otherwise, a box is computed in rows
// along the operands, into a buffer, and the result alone is turned round.
#include "kernels/cpu/boxes.h"
#include "kernels/cpu/parallel.h"
#include <string.h>

/// Of the buffers of a box, on the stack, and of one operand's at most.
#define ROOM_BYTES 49152
#define MOST_BYTES 32768
/// Of each of two buffers of a result that is computed along the operands; and as much of it as is used
/// where all elements are small, of which as many lie across, and no fewer may.
#define ALONG_BYTES 24576
#define ALONG_BYTES_OF_SMALL 16384
#define ACROSS_OF_SMALL 64
#define SMALL_BYTES 2
/// Of a run of neighbours on either side of a box.
#define RUN_BYTES 512
/// In elements: of bytes there would be no room for more.
#define LONGEST_RUN 128
/// Rows of so many elements are long enough for a call each, in a box and without one.
#define BOX_ROW 32
#define LONG_ROW 32
/// Of a result that is computed along the operands: bytes of a row, and elements of the result's own
/// rows.
#define LEAST_ALONG_BYTES 256
#define LEAST_ACROSS 16
/// How far apart the result's rows are not written in turns: in pages of their own, or places that
/// they share.
#define FAR_BYTES 4096
#define CROWDED_BYTES 512
/// Up to so many rows of the result are written in turns.
#define DIRECT_ROWS 8

// ------------------------------------------------------------------------------------ order of axes

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/// Walks each axis in the direction in which the result ascends.
static void ascend(nd_kernel_call *call) {
    for (int axis = 0; axis < call->ndim; axis++) {
        if (call->operand[0].strides[axis] >= 0)
            continue;
        for (int i = 0; i < call->noperands; i++) {
            nd_operand *operand = &call->operand[i];
            operand->data = (char *)operand->data + (call->shape[axis] - 1) *
                                                        operand->strides[axis] *
                                                        nd__dtype_bytes(operand->dtype);
            operand->strides[axis] = -operand->strides[axis];
        }
    }
}

static void swap_axes(nd_kernel_call *call, int a, int b) {
    const int64_t size = call->shape[a];
    call->shape[a] = call->shape[b];
    call->shape[b] = size;
    for (int i = 0; i < call->noperands; i++) {
        int64_t *strides = call->operand[i].strides;
        const int64_t stride = strides[a];
        strides[a] = strides[b];
        strides[b] = stride;
    }
}

/// Whether axis b continues axis a, the one before it, in all operands.
static bool is_continued(const nd_kernel_call *call, int a, int b) {
    for (int i = 0; i < call->noperands; i++) {
        const int64_t *strides = call->operand[i].strides;
        if (strides[a] != call->shape[b] * strides[b])
            return false;
    }
    return true;
}

/// How many operands have elements one behind the other along an axis, where the others are one
/// element for all of a row that a body takes so; else 0.
static int operands_in_rows(const nd_kernel_call *call, unsigned repeats, int axis) {
    int count = 0;
    for (int i = 1; i < call->noperands; i++) {
        const int64_t stride = call->operand[i].strides[axis];
        if (stride != 1 && (stride != 0 || !(repeats >> i & 1)))
            return 0;
        count += stride == 1 && call->operand[i].strides[call->ndim - 1] != 0;
    }
    return count;
}

/// Whether it takes less to turn the result round than both operands: rows are long.
static bool is_worth_going_along(const nd_kernel_call *call, unsigned repeats, int axis) {
    const int64_t bytes = nd__dtype_bytes(call->operand[call->noperands - 1].dtype);
    const int64_t across = bytes <= SMALL_BYTES ? ACROSS_OF_SMALL : LEAST_ACROSS;
    return call->shape[axis] * bytes >= LEAST_ALONG_BYTES &&
           call->shape[call->ndim - 1] >= across && operands_in_rows(call, repeats, axis) == 2;
}

/// Orders the axes as the operands lie, where rows along them are another axis than the result's.
/// False, and nothing is changed, where they are not.
static bool order_along_operands(nd_kernel_call *call, unsigned repeats) {
    int along = -1;
    for (int axis = 0; axis < call->ndim - 1 && along < 0; axis++)
        if (is_worth_going_along(call, repeats, axis))
            along = axis;
    if (along < 0 || operands_in_rows(call, repeats, call->ndim - 1) > 0)
        return false;
    for (int axis = along; axis < call->ndim - 1; axis++)
        swap_axes(call, axis, axis + 1);
    const int64_t *strides = call->operand[1].strides;
    for (int axis = 1; axis < call->ndim - 1; axis++)
        for (int i = axis; i > 0 && magnitude(strides[i - 1]) < magnitude(strides[i]); i--)
            swap_axes(call, i - 1, i);
    return true;
}

void nd__boxes_order(nd_kernel_call *call) {
    ascend(call);
    const int64_t *out = call->operand[0].strides;
    int kept = 0;
    for (int axis = 0; axis < call->ndim; axis++)
        if (call->shape[axis] != 1)
            swap_axes(call, kept++, axis);
    call->ndim = kept;
    for (int axis = 1; axis < kept; axis++)
        for (int i = axis; i > 0 && out[i - 1] < out[i]; i--)
            swap_axes(call, i - 1, i);
    kept = 0;
    for (int axis = 0; axis < call->ndim; axis++) {
        const bool joins = kept > 0 && is_continued(call, kept - 1, axis);
        const int to = joins ? kept - 1 : kept++;
        const int64_t size = (joins ? call->shape[to] : 1) * call->shape[axis];
        call->shape[to] = size;
        for (int i = 0; i < call->noperands; i++)
            call->operand[i].strides[to] = call->operand[i].strides[axis];
    }
    call->ndim = kept;
}

bool nd__boxes_has_long_rows(const nd_kernel_call *call, unsigned repeats) {
    const int last = call->ndim - 1;
    if (last < 0)
        return true;
    if ((last > 0 && call->shape[last] < LONG_ROW) || call->operand[0].strides[last] != 1)
        return false;
    for (int i = 1; i < call->noperands; i++) {
        const int64_t stride = call->operand[i].strides[last];
        if (stride != 1 && (stride != 0 || !(repeats >> i & 1)))
            return false;
    }
    return true;
}

// --------------------------------------------------------------------------------- sizes of a box

typedef struct boxes {
    const nd_kernel_call *call;
    nd__box_body body;
    const void *context;
    nd__box_copy copy;
    int64_t room; ///< of an operand's buffer
    int64_t bytes[ND__BOX_OPERANDS];
    int64_t extent[ND_MAX_DIMS], pieces[ND_MAX_DIMS]; ///< of a box along each axis, and boxes there
    bool moved[ND__BOX_OPERANDS];                     ///< goes through a buffer
    bool direct; ///< the result is turned round, or x copied, to its place at once
    bool along;  ///< rows lie along the operands, which stay where they are
} boxes;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t extent_total(const boxes *b) {
    int64_t total = 1;
    for (int axis = 0; axis < b->call->ndim; axis++)
        total *= b->extent[axis];
    return total;
}

/// Makes the box so long along an operand's axes, the nearest first, that runs of neighbours have
/// `wanted` elements.
static void extend_along(boxes *b, int operand, int64_t wanted) {
    const int64_t *strides = b->call->operand[operand].strides;
    unsigned seen = 0;
    for (int64_t run = 1; run < wanted;) {
        int nearest = -1;
        for (int axis = b->call->ndim - 1; axis >= 0; axis--)
            if (!(seen >> axis & 1) && strides[axis] != 0 &&
                (nearest < 0 || magnitude(strides[axis]) < magnitude(strides[nearest])))
                nearest = axis;
        // Neighbours further apart share no cache line, nor what is fetched with it.
        if (nearest < 0 || magnitude(strides[nearest]) * b->bytes[operand] >= RUN_BYTES)
            return;
        seen |= 1u << nearest;
        const int64_t needed = least((wanted + run - 1) / run, b->call->shape[nearest]);
        if (b->extent[nearest] < needed)
            b->extent[nearest] = needed;
        run *= b->extent[nearest];
    }
}

static void choose_extents(boxes *b) {
    const nd_kernel_call *call = b->call;
    int64_t widest = 1;
    for (int i = 0; i < call->noperands; i++)
        widest = b->bytes[i] > widest ? b->bytes[i] : widest;
    const bool is_small = b->along && widest <= SMALL_BYTES;
    const int64_t room = is_small ? ALONG_BYTES_OF_SMALL : b->room;
    const int64_t most = room / (b->along ? b->bytes[0] : widest);
    const int64_t wanted = is_small ? ACROSS_OF_SMALL : least(RUN_BYTES / widest, LONGEST_RUN);
    for (int axis = 0; axis < call->ndim; axis++)
        b->extent[axis] = 1;
    for (int i = 0; i < call->noperands; i++)
        extend_along(b, i, wanted);
    int64_t total = extent_total(b);
    while (total > most) {
        int longest = 0;
        for (int axis = 1; axis < call->ndim; axis++)
            if (b->extent[axis] > b->extent[longest])
                longest = axis;
        b->extent[longest] = (b->extent[longest] + 1) / 2;
        total = extent_total(b);
    }
    for (int axis = call->ndim - 1; axis >= 0; axis--) {
        b->extent[axis] = least(b->extent[axis] * (most / total), call->shape[axis]);
        total = extent_total(b);
    }
    for (int axis = 0; axis < call->ndim; axis++) { // of equal sizes, nearly
        b->pieces[axis] = (call->shape[axis] + b->extent[axis] - 1) / b->extent[axis];
        b->extent[axis] = (call->shape[axis] + b->pieces[axis] - 1) / b->pieces[axis];
    }
}

/// The first of the last axes along which the elements of a box lie behind each other in the result,
/// and how many these are.
static int find_run(const boxes *b, int64_t *ret_run) {
    const int64_t *strides = b->call->operand[0].strides;
    int first = b->call->ndim;
    int64_t run = 1;
    while (first > 0 && strides[first - 1] == run) {
        first--;
        run *= b->extent[first];
        if (b->extent[first] < b->call->shape[first])
            break;
    }
    *ret_run = run;
    return first;
}

/// Whether a body may read operand i where it lies, in runs along the axes from `first` on.
static bool lies_in_rows(const boxes *b, int i, int first, bool may_repeat) {
    const int64_t *strides = b->call->operand[i].strides;
    int64_t run = 1;
    bool follows = true, repeats = may_repeat;
    for (int axis = b->call->ndim - 1; axis >= first; axis--) {
        if (b->extent[axis] == 1)
            continue;
        follows = follows && strides[axis] == run;
        repeats = repeats && strides[axis] == 0;
        run *= b->extent[axis];
    }
    return follows || repeats;
}

/// Whether x's elements lie nearest to each other along the axis along which the result's do.
static bool lies_alike(const nd_kernel_call *call) {
    const int64_t *strides = call->operand[1].strides, nearest = strides[call->ndim - 1];
    for (int axis = 0; axis < call->ndim - 1; axis++)
        if (strides[axis] != 0 && magnitude(strides[axis]) < magnitude(nearest))
            return false;
    return true;
}

static void choose_moved(boxes *b, unsigned repeats) {
    if (b->along) {
        const int64_t apart = b->call->operand[0].strides[b->call->ndim - 1] * b->bytes[0];
        b->direct = apart < FAR_BYTES && apart % CROWDED_BYTES != 0;
        b->moved[0] = true;
        return;
    }
    int64_t run, total = extent_total(b);
    int first = find_run(b, &run);
    b->direct = run * DIRECT_ROWS >= total || (!b->body && lies_alike(b->call));
    b->moved[0] = run < BOX_ROW && run < total;
    if (b->moved[0])
        first = 0;
    bool all_repeat = true;
    for (int i = 1; i < b->call->noperands; i++) {
        b->moved[i] = !lies_in_rows(b, i, first, repeats >> i & 1);
        all_repeat = all_repeat && !b->moved[i] && !lies_in_rows(b, i, first, false);
    }
    if (all_repeat)
        b->moved[1] = true;
}

// ------------------------------------------------------------------------------------ a box's rows

/// Rows of the part along its last axis.
static void run_rows(const boxes *b, int ndim, const int64_t *shape, char **data,
                     int64_t (*strides)[ND_MAX_DIMS]) {
    const int count = b->call->noperands, last = ndim - 1;
    int64_t steps[ND__BOX_OPERANDS], index[ND_MAX_DIMS] = {0};
    for (int i = 0; i < count; i++)
        steps[i] = ndim > 0 ? strides[i][last] : 1;
    if (ndim <= 1) {
        b->body(b->context, ndim > 0 ? shape[0] : 1, data, steps);
        return;
    }
    for (;;) {
        b->body(b->context, shape[last], data, steps);
        int axis = last - 1;
        for (;; axis--) {
            for (int i = 0; i < count; i++)
                data[i] += strides[i][axis] * b->bytes[i];
            if (++index[axis] < shape[axis])
                break;
            if (axis == 0)
                return;
            for (int i = 0; i < count; i++)
                data[i] -= shape[axis] * strides[i][axis] * b->bytes[i];
            index[axis] = 0;
        }
    }
}

/// Makes one of axes that are one in all operands. How many are left.
static int join_axes(const boxes *b, int64_t *shape, int64_t (*strides)[ND_MAX_DIMS]) {
    int kept = 0;
    for (int axis = 0; axis < b->call->ndim; axis++) {
        if (shape[axis] == 1)
            continue;
        bool joins = kept > 0;
        for (int i = 0; i < b->call->noperands && joins; i++)
            joins = strides[i][kept - 1] == shape[axis] * strides[i][axis];
        const int to = joins ? kept - 1 : kept++;
        shape[to] = joins ? shape[to] * shape[axis] : shape[axis];
        for (int i = 0; i < b->call->noperands; i++)
            strides[i][to] = strides[i][axis];
    }
    return kept;
}

/// Where a box begins in each operand, and its sizes.
static void find_box(const boxes *b, int64_t number, char **data, int64_t *shape) {
    const nd_kernel_call *call = b->call;
    for (int i = 0; i < call->noperands; i++)
        data[i] = (char *)call->operand[i].data;
    for (int axis = call->ndim - 1; axis >= 0; axis--) {
        const int64_t begin = number % b->pieces[axis] * b->extent[axis];
        number /= b->pieces[axis];
        shape[axis] = least(b->extent[axis], call->shape[axis] - begin);
        for (int i = 0; i < call->noperands; i++)
            data[i] += begin * call->operand[i].strides[axis] * b->bytes[i];
    }
}

/// The call is a copy of same bytes: each box goes from x to the result, through a buffer where the
/// result's rows would be written a few elements at a time.
static void copy_box(const boxes *b, const int64_t *shape, const int64_t *dense, char *const *lies,
                     char *buffer) {
    const nd_kernel_call *call = b->call;
    const int64_t bytes = b->bytes[0];
    nd__box in = {.ndim = call->ndim}, out = {.ndim = call->ndim};
    for (int axis = 0; axis < call->ndim; axis++) {
        in.shape[axis] = out.shape[axis] = shape[axis];
        in.from[axis] = call->operand[1].strides[axis] * bytes;
        out.to[axis] = call->operand[0].strides[axis] * bytes;
        in.to[axis] = b->direct ? out.to[axis] : dense[axis] * bytes;
        out.from[axis] = dense[axis] * bytes;
    }
    b->copy(&in, bytes, b->direct ? lies[0] : buffer, lies[1]);
    if (!b->direct)
        b->copy(&out, bytes, lies[0], buffer);
}

/// Copies operand i between its place and a buffer, in which it lies in rows.
static void move(const boxes *b, int i, const int64_t *shape, const int64_t *dense, char *lies,
                 char *buffer) {
    nd__box box = {.ndim = b->call->ndim};
    for (int axis = 0; axis < box.ndim; axis++) {
        const int64_t out = b->call->operand[i].strides[axis] * b->bytes[i];
        const int64_t in = dense[axis] * b->bytes[i];
        box.shape[axis] = shape[axis];
        box.to[axis] = i == 0 ? out : in;
        box.from[axis] = i == 0 ? in : out;
    }
    b->copy(&box, b->bytes[i], i == 0 ? lies : buffer, i == 0 ? buffer : lies);
}

/// Brings a result that was computed along the operands to its place, turned round in another buffer
/// first.
static void put_turned(const boxes *b, const int64_t *shape, const int64_t *dense, char *lies,
                       char *buffer) {
    const int ndim = b->call->ndim;
    const int64_t *strides = b->call->operand[0].strides, bytes = b->bytes[0];
    nd__box in = {.ndim = ndim}, out = {.ndim = ndim};
    for (int axis = 0; axis < ndim; axis++) {
        int64_t step = bytes; // of the elements of the axes on which the result's lie nearer
        for (int other = 0; other < ndim; other++)
            step *= strides[other] < strides[axis] ? shape[other] : 1;
        in.shape[axis] = out.shape[axis] = shape[axis];
        in.from[axis] = dense[axis] * bytes;
        in.to[axis] = out.from[axis] = step;
        out.to[axis] = strides[axis] * bytes;
    }
    b->copy(&in, bytes, buffer + ALONG_BYTES, buffer);
    b->copy(&out, bytes, lies, buffer + ALONG_BYTES);
}

static void run_boxes(void *context, int64_t begin, int64_t end) {
    _Alignas(64) char buffers[ROOM_BYTES];
    const boxes *b = (const boxes *)context;
    const int count = b->call->noperands, ndim = b->call->ndim;
    char *before[ND__BOX_OPERANDS] = {NULL}; // what the buffers hold
    int64_t shape_before[ND_MAX_DIMS] = {0};
    for (int64_t number = begin; number < end; number++) {
        char *data[ND__BOX_OPERANDS], *lies[ND__BOX_OPERANDS];
        int64_t shape[ND_MAX_DIMS], dense[ND_MAX_DIMS], strides[ND__BOX_OPERANDS][ND_MAX_DIMS];
        find_box(b, number, lies, shape);
        int64_t step = 1;
        for (int axis = ndim - 1; axis >= 0; axis--) {
            dense[axis] = step;
            step *= shape[axis];
        }
        if (!b->body) {
            copy_box(b, shape, dense, lies, buffers);
            continue;
        }
        bool same = true; // sizes as the box before
        for (int axis = 0; axis < ndim; axis++) {
            same = same && shape[axis] == shape_before[axis];
            shape_before[axis] = shape[axis];
        }
        for (int i = 0; i < count; i++) {
            data[i] = b->moved[i] ? buffers + i * b->room : lies[i];
            memcpy(strides[i], b->moved[i] ? dense : b->call->operand[i].strides,
                   (size_t)ndim * sizeof(int64_t));
            // What repeats along the axis between two boxes need not be brought again.
            if (i > 0 && b->moved[i] && !(same && before[i] == lies[i]))
                move(b, i, shape, dense, lies[i], data[i]);
            before[i] = lies[i];
        }
        int64_t joined[ND_MAX_DIMS];
        memcpy(joined, shape, (size_t)ndim * sizeof(int64_t));
        run_rows(b, join_axes(b, joined, strides), joined, data, strides);
        if (b->along && !b->direct)
            put_turned(b, shape, dense, lies[0], buffers);
        else if (b->moved[0])
            move(b, 0, shape, dense, lies[0], buffers);
    }
}

void nd__boxes_run(const nd_kernel_call *call, unsigned repeats, int64_t cost, nd__box_body body,
                   const void *context) {
    boxes b = {
        .call = call, .body = body, .context = context, .copy = nd__cpu_loops_now()->box_copy};
    nd_kernel_call along;
    if (body && call->noperands == 3) {
        along = *call;
        b.along = order_along_operands(&along, repeats);
        b.call = call = b.along ? &along : call;
    }
    for (int i = 0; i < call->noperands; i++)
        b.bytes[i] = nd__dtype_bytes(call->operand[i].dtype);
    b.room = b.along ? ALONG_BYTES
             : body  ? least(ROOM_BYTES / call->noperands / 64 * 64, MOST_BYTES)
                     : MOST_BYTES;
    choose_extents(&b);
    choose_moved(&b, repeats);
    int64_t count = 1;
    for (int axis = 0; axis < call->ndim; axis++)
        count *= b.pieces[axis];
    nd__cpu_parallel(count, extent_total(&b) * cost, 1, run_boxes, &b);
}
