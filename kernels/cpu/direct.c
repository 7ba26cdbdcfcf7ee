// Convolutions over two axes, and their gradients for x where windows move by one, without unfolding
// x and without another layout of it.
//
// A strip of an image, some lines of all channels of a group, is copied with the zeros around it.
// The element of a window that a result takes from a channel, a tap, then stands at the same
// distance for all results, counted along the lines of the copy; so a result of a block of channels
// is a sum over taps of a weight times neighbouring elements. What is computed beyond the end of a
// line is dropped. Windows that move by more take every so many lines and columns: these lie apart
// in the copy, by where they begin (phases), so that neighbours are neighbours again.
//
// Sums have one order, that of the taps: results do not depend on strips, blocks and threads.
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/windows.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/// What the copy of a strip may take, and what its shortest one may.
#define STRIP_BYTES ((int64_t)192 << 10)
#define MOST_STRIP_BYTES ((int64_t)768 << 10)
#define FEWEST_LINES 4
/// Multiplications of a convolution below which oneDNN's preparations cost more than they give.
#define LEAST_FOR_LIBRARY ((int64_t)1 << 21)

enum { HEIGHT = 1, WIDTH };

typedef struct direct_work {
    const nd_kernel_call *call;
    nd__taps_loop loop;
    nd__conv_sizes sizes; ///< of the convolution that is computed; ci and co of one group
    bool gradient;        ///< of x: the weight is read turned
    int type;
    int64_t bytes;               ///< of an element
    int64_t phases[3];           ///< by axis
    int64_t line, rows, channel; ///< elements of a line, lines and elements of a channel's copy
    int64_t lines, strips;       ///< of results in a strip; strips of an image
    int64_t taps, blocks;        ///< blocks of ND__TAPS_ROWS channels of a group
    int64_t *offsets;
    char *weight; ///< [groups][blocks][taps][ND__TAPS_ROWS]
    atomic_bool failed;
} direct_work;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// ------------------------------------------------------------------------------------------ strips

/// memcpy() of a line, most of which are so short that its call costs more than they do.
static inline void copy_bytes(char *to, const char *from, size_t bytes) {
    if (bytes < 16 || bytes > 256) {
        nd__bytes_copy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i + 16 <= bytes; i += 16)
        memcpy(to + i, from + i, 16);
    memcpy(to + bytes - 16, from + bytes - 16, 16);
}

/// Of `count` elements, `stride` apart.
static void copy_elements(const direct_work *w, char *to, const char *from, int64_t count,
                          int64_t stride) {
    if (stride == 1)
        copy_bytes(to, from, (size_t)(count * w->bytes));
    else if (w->bytes == 4)
        for (int64_t i = 0; i < count; i++)
            memcpy(to + 4 * i, from + 4 * i * stride, 4);
    else
        for (int64_t i = 0; i < count; i++)
            memcpy(to + 8 * i, from + 8 * i * stride, 8);
}

/// A line of a phase: every so many elements of a line of x, from the `phase`-th on, zeros outside.
/// `from` NULL: zeros.
static void copy_line(const direct_work *w, char *to, const char *from, int64_t phase) {
    const nd__conv_sizes *s = &w->sizes;
    int64_t stride = s->stride[WIDTH], first = phase - s->padding[WIDTH];
    int64_t begin = first >= 0 ? 0 : smaller((-first - 1) / stride + 1, w->line);
    int64_t end = s->x[WIDTH] > first ? (s->x[WIDTH] - 1 - first) / stride + 1 : 0;
    end = from ? smaller(end, w->line) : begin;
    end = end > begin ? end : begin;
    memset(to, 0, (size_t)(begin * w->bytes));
    if (from && end > begin)
        copy_elements(w, to + begin * w->bytes, from + (first + begin * stride) * w->bytes,
                      end - begin, stride);
    memset(to + end * w->bytes, 0, (size_t)((w->line - end) * w->bytes));
}

/// The lines of all channels from `x` on that results from line `first` on need.
static void copy_strip(const direct_work *w, const char *x, int64_t first, char *strip) {
    const nd__conv_sizes *s = &w->sizes;
    for (int64_t c = 0; c < s->ci; c++, x += s->x[HEIGHT] * s->x[WIDTH] * w->bytes)
        for (int64_t down = 0; down < w->phases[HEIGHT]; down++)
            for (int64_t across = 0; across < w->phases[WIDTH]; across++)
                for (int64_t row = 0; row < w->rows; row++, strip += w->line * w->bytes) {
                    int64_t y = (first + row) * s->stride[HEIGHT] + down - s->padding[HEIGHT];
                    bool inside = y >= 0 && y < s->x[HEIGHT];
                    copy_line(w, strip, inside ? x + y * s->x[WIDTH] * w->bytes : NULL, across);
                }
}

/// Results of a strip of a block of channels, from how they were computed to where they belong.
static void put_results(const direct_work *w, const char *results, int64_t stride, int64_t channels,
                        int64_t lines, char *y) {
    size_t columns = (size_t)(w->sizes.y[WIDTH] * w->bytes);
    for (int64_t c = 0; c < channels; c++) {
        const char *from = results + c * stride * w->bytes;
        char *to = y + c * w->sizes.y[HEIGHT] * w->sizes.y[WIDTH] * w->bytes;
        for (int64_t i = 0; i < lines; i++, to += columns, from += w->line * w->bytes)
            copy_bytes(to, from, columns);
    }
}

/// The weights of a block of channels of a group, with all that a strip of any place has in common.
static nd__taps taps_of(const direct_work *w, int64_t group, int64_t block) {
    int64_t weights = (group * w->blocks + block) * w->taps * ND__TAPS_ROWS;
    return (nd__taps){
        .weight = w->weight + weights * w->bytes, .offsets = w->offsets, .taps = w->taps};
}

/// Strips of groups of images where a result takes the element at its own place: read and written
/// where they lie.
static void run_places(void *context, int64_t begin, int64_t end) {
    const direct_work *w = (const direct_work *)context;
    const nd__conv_sizes *s = &w->sizes;
    const nd_operand *operand = w->call->operand;
    for (int64_t at = begin; at < end; at++) {
        int64_t image = at / w->strips, first = at % w->strips * w->lines;
        int64_t count = smaller(w->channel - first, w->lines);
        for (int64_t block = 0; block < w->blocks; block++) {
            nd__taps taps = taps_of(w, image % s->groups, block);
            int64_t to = image * s->co + block * ND__TAPS_ROWS;
            taps.x =
                (const char *)operand[1].data + (image * s->ci * w->channel + first) * w->bytes;
            taps.out = (char *)operand[0].data + (to * w->channel + first) * w->bytes;
            taps.count = count;
            taps.out_stride = w->channel;
            w->loop(&taps);
        }
    }
}

/// Strips of groups of images.
static void run_strips(void *context, int64_t begin, int64_t end) {
    direct_work *w = (direct_work *)context;
    const nd__conv_sizes *s = &w->sizes;
    int64_t stride = w->lines * w->line + ND__TAPS_VECTOR / w->bytes;
    int64_t strip_bytes = s->ci * w->channel * w->bytes + ND__TAPS_VECTOR;
    char *strip = nd__cpu_scratch((size_t)(strip_bytes + ND__TAPS_ROWS * stride * w->bytes));
    if (!strip) {
        atomic_store(&w->failed, true);
        return;
    }
    char *results = strip + strip_bytes;
    int64_t x_plane = s->x[HEIGHT] * s->x[WIDTH], y_plane = s->y[HEIGHT] * s->y[WIDTH];
    memset(results - ND__TAPS_VECTOR, 0, ND__TAPS_VECTOR);
    for (int64_t at = begin; at < end; at++) {
        int64_t image = at / w->strips, first = at % w->strips * w->lines;
        int64_t lines = smaller(s->y[HEIGHT] - first, w->lines);
        copy_strip(w, (const char *)w->call->operand[1].data + image * s->ci * x_plane * w->bytes,
                   first, strip);
        for (int64_t block = 0; block < w->blocks; block++) {
            int64_t top = block * ND__TAPS_ROWS;
            nd__taps taps = taps_of(w, image % s->groups, block);
            taps.x = strip;
            taps.out = results;
            taps.count = (lines - 1) * w->line + s->y[WIDTH];
            taps.out_stride = stride;
            w->loop(&taps);
            int64_t to = (image * s->co + top) * y_plane + first * s->y[WIDTH];
            put_results(w, results, stride, smaller(s->co - top, ND__TAPS_ROWS), lines,
                        (char *)w->call->operand[0].data + to * w->bytes);
        }
    }
}

// ------------------------------------------------------------------------------------- preparation

/// Elements between weights of neighbouring channels of the result and of x; taps follow each other,
/// backwards where the weight is turned.
typedef struct weight_strides {
    int64_t out, in;
} weight_strides;

/// Writes the weights of blocks of channels in the order of their use, zeros where a block has more
/// channels than there are. False where one is infinite or NaN: times the zeros around x it would
/// be NaN.
#define DIRECT_PACK(T)                                                                  \
    static bool pack_##T(const direct_work *w, const T *weight, weight_strides strides, \
                         int64_t channels, T *to) {                                     \
        int64_t window = w->sizes.kernel[HEIGHT] * w->sizes.kernel[WIDTH];              \
        T nothing = 0;                                                                  \
        for (int64_t tap = 0; tap < w->taps; tap++, to += ND__TAPS_ROWS) {              \
            int64_t place = w->gradient ? window - 1 - tap % window : tap % window;     \
            const T *from = weight + tap / window * strides.in + place;                 \
            for (int64_t row = 0; row < ND__TAPS_ROWS; row++) {                         \
                to[row] = row < channels ? from[row * strides.out] : 0;                 \
                nothing += 0 * to[row];                                                 \
            }                                                                           \
        }                                                                               \
        return nothing == 0;                                                            \
    }
DIRECT_PACK(float)
DIRECT_PACK(double)

/// Blocks of channels, counted through the groups.
static void pack_blocks(void *context, int64_t begin, int64_t end) {
    direct_work *w = (direct_work *)context;
    const nd__conv_sizes *s = &w->sizes;
    int64_t window = s->kernel[HEIGHT] * s->kernel[WIDTH];
    weight_strides strides = {w->gradient ? window : s->ci * window,
                              w->gradient ? s->co * window : window};
    for (int64_t block = begin; block < end; block++) {
        int64_t top = block % w->blocks * ND__TAPS_ROWS;
        int64_t from = block / w->blocks * s->co * s->ci * window + top * strides.out;
        int64_t channels = smaller(s->co - top, ND__TAPS_ROWS),
                to = block * w->taps * ND__TAPS_ROWS;
        const void *weight = w->call->operand[2].data;
        bool finite = w->type == 0 ? pack_float(w, (const float *)weight + from, strides, channels,
                                                (float *)w->weight + to)
                                   : pack_double(w, (const double *)weight + from, strides,
                                                 channels, (double *)w->weight + to);
        if (!finite)
            atomic_store(&w->failed, true);
    }
}

static void find_offsets(const direct_work *w) {
    const nd__conv_sizes *s = &w->sizes;
    int64_t *offset = w->offsets;
    for (int64_t c = 0; c < s->ci; c++)
        for (int64_t ky = 0; ky < s->kernel[HEIGHT]; ky++)
            for (int64_t kx = 0; kx < s->kernel[WIDTH]; kx++) {
                int64_t down = ky * s->dilation[HEIGHT], across = kx * s->dilation[WIDTH];
                int64_t phase =
                    down % s->stride[HEIGHT] * w->phases[WIDTH] + across % s->stride[WIDTH];
                *offset++ = c * w->channel +
                            (phase * w->rows + down / s->stride[HEIGHT]) * w->line +
                            across / s->stride[WIDTH];
            }
}

/// Of a gradient for x: the convolution of that of y with the turned weight.
static void turn(nd__conv_sizes *s) {
    int64_t channels = s->ci;
    s->ci = s->co;
    s->co = channels;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        int64_t size = s->x[axis];
        s->x[axis] = s->y[axis];
        s->y[axis] = size;
        s->padding[axis] = (s->kernel[axis] - 1) * s->dilation[axis] - s->padding[axis];
    }
}

static bool sizes_suit(const nd_kernel_call *call, const nd__conv_sizes *s) {
    bool moves_by_one = s->stride[HEIGHT] == 1 && s->stride[WIDTH] == 1;
    bool flat = s->x[0] == 1 && s->y[0] == 1 && s->kernel[0] == 1 && s->padding[0] == 0;
    bool op_suits = call->op == ND_OP_conv || (call->op == ND_OP_conv_grad_input && moves_by_one);
    if (!op_suits || !flat || s->n == 0 || s->ci == 0 || s->co == 0)
        return false;
    for (int axis = HEIGHT; axis <= WIDTH; axis++) {
        int64_t reach = (s->kernel[axis] - 1) * s->dilation[axis];
        if (s->stride[axis] > 4 || reach > 64 || s->padding[axis] > reach)
            return false;
    }
    return true;
}

/// The same for strips that are not copied. False where they must be, since vectors would not end
/// with a plane or blocks not with the channels.
static bool measure_places(direct_work *w) {
    nd__conv_sizes *s = &w->sizes;
    bool places = true;
    for (int axis = HEIGHT; axis <= WIDTH; axis++)
        places = places && s->kernel[axis] == 1 && s->stride[axis] == 1 && s->padding[axis] == 0;
    int64_t multiple = ND__TAPS_VECTOR / w->bytes;
    w->channel = s->y[HEIGHT] * s->y[WIDTH];
    if (!places || w->channel % multiple != 0 || s->co % ND__TAPS_ROWS != 0)
        return false;
    w->blocks = s->co / ND__TAPS_ROWS;
    w->taps = s->ci;
    w->line = 1;
    int64_t held = STRIP_BYTES / (s->ci * w->bytes) / multiple * multiple;
    w->lines = smaller(held > 3 * multiple ? held : 3 * multiple, w->channel);
    w->strips = (w->channel + w->lines - 1) / w->lines;
    return true;
}

/// Whether little enough of what is computed is dropped, at the ends of lines and of vectors: less
/// where oneDNN could do it, whose blocks of 16 channels fit, and which has enough to do.
static bool is_worth_it(const direct_work *w) {
    const nd__conv_sizes *s = &w->sizes;
    int64_t used = s->y[HEIGHT] * s->y[WIDTH], vector = ND__TAPS_VECTOR / w->bytes;
    int64_t computed = (s->y[HEIGHT] - 1) * w->line + s->y[WIDTH];
    computed = (computed + vector - 1) / vector * vector;
    bool library = w->type == 0 && nd__onednn_is_used() && s->ci >= 16 && s->co % 16 == 0 &&
                   s->n * s->groups * s->co * w->taps * used >= LEAST_FOR_LIBRARY;
    bool places = s->kernel[HEIGHT] * s->kernel[WIDTH] == 1 && s->stride[WIDTH] == 1;
    return 100 * used >= (library ? 92 : 80) * computed && !(library && places) &&
           5 * s->co >= 4 * w->blocks * ND__TAPS_ROWS;
}

/// How strips and blocks lie. False where somebody else should do it.
static bool measure(direct_work *w) {
    nd__conv_sizes *s = &w->sizes;
    int64_t more[3];
    for (int axis = HEIGHT; axis <= WIDTH; axis++) {
        int64_t reach = (s->kernel[axis] - 1) * s->dilation[axis];
        w->phases[axis] = smaller(s->stride[axis], reach + 1);
        more[axis] = reach / s->stride[axis];
    }
    w->blocks = (s->co + ND__TAPS_ROWS - 1) / ND__TAPS_ROWS;
    w->taps = s->ci * s->kernel[HEIGHT] * s->kernel[WIDTH];
    w->line = s->y[WIDTH] + more[WIDTH];
    int64_t row = s->ci * w->phases[HEIGHT] * w->phases[WIDTH] * w->line * w->bytes;
    if (!is_worth_it(w) || (FEWEST_LINES + more[HEIGHT]) * row > MOST_STRIP_BYTES)
        return false;
    int64_t held = STRIP_BYTES / row - more[HEIGHT];
    int64_t all = s->n * s->groups, wanted = 2 * nd__cpu_threads();
    if (all < wanted)
        held = smaller(held, s->y[HEIGHT] * all / wanted);
    w->lines = smaller(held > FEWEST_LINES ? held : FEWEST_LINES, s->y[HEIGHT]);
    w->strips = (s->y[HEIGHT] + w->lines - 1) / w->lines;
    w->lines = (s->y[HEIGHT] + w->strips - 1) / w->strips;
    w->strips = (s->y[HEIGHT] + w->lines - 1) / w->lines;
    w->rows = w->lines + more[HEIGHT];
    w->channel = w->phases[HEIGHT] * w->phases[WIDTH] * w->rows * w->line;
    return true;
}

bool nd__cpu_direct(const nd_kernel_call *call) {
    direct_work w = {.call = call,
                     .sizes = nd__conv_sizes_of(call),
                     .gradient = call->op == ND_OP_conv_grad_input,
                     .type = nd__float_index(call->operand[0].dtype),
                     .bytes = nd__dtype_bytes(call->operand[0].dtype)};
    nd__conv_sizes *s = &w.sizes;
    if (w.type < 0 || !sizes_suit(call, s))
        return false;
    if (w.gradient)
        turn(s);
    s->ci /= s->groups;
    s->co /= s->groups;
    bool places = measure_places(&w);
    if (!places && !measure(&w))
        return false;
    w.loop = nd__cpu_loops_now()->taps[w.type];
    w.offsets = malloc((size_t)w.taps * sizeof *w.offsets);
    w.weight = malloc((size_t)(s->groups * w.blocks * w.taps * ND__TAPS_ROWS * w.bytes));
    bool done = w.offsets && w.weight;
    if (done) {
        find_offsets(&w);
        nd__cpu_parallel(s->groups * w.blocks, w.taps * ND__TAPS_ROWS, 1, pack_blocks, &w);
    }
    if (done && !atomic_load(&w.failed)) {
        int64_t places_of_strip = places ? w.lines : w.lines * w.line;
        nd__cpu_parallel(s->n * s->groups * w.strips,
                         w.blocks * ND__TAPS_ROWS * w.taps * places_of_strip / 16, 1,
                         places ? run_places : run_strips, &w);
    }
    free(w.offsets);
    free(w.weight);
    return done && !atomic_load(&w.failed);
}
