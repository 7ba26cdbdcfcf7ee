// Convolutions of each channel by itself, with windows of 3 x 3 or 5 x 5 that move by one.
//
// There is no sum over channels, so nothing is gained by a product of matrices or by a layout in
// blocks of channels. A strip of a plane is copied with the zeros around it, so that every result
// takes the same steps, and the copy is small enough to stay in the nearest cache. Results do not
// depend on where strips end.
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/windows.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/// What the copy of a strip may take, unless eight lines of results need more.
#define STRIP_BYTES 24576
#define FEWEST_LINES 8

enum { DEPTH, HEIGHT, WIDTH };

typedef struct depthwise_work {
    const nd_kernel_call *call;
    nd__depthwise lines;
    nd__conv_sizes sizes;
    int64_t bytes;    ///< of an element
    int64_t line;     ///< elements of a line with the zeros around it
    int64_t more;     ///< lines of x that a strip needs beyond those of its results
    int64_t strip;    ///< lines of results
    int64_t multiple; ///< results of a channel
    int64_t x, y;     ///< elements of a plane
    atomic_bool failed;
} depthwise_work;

/// Copies the lines of a plane that results from `first` on need.
static void copy_strip(const depthwise_work *w, const char *plane, int64_t first, int64_t lines,
                       char *strip) {
    const nd__conv_sizes *s = &w->sizes;
    size_t line = (size_t)(w->line * w->bytes), filled = (size_t)(s->x[WIDTH] * w->bytes);
    size_t before = (size_t)(s->padding[WIDTH] * w->bytes);
    for (int64_t i = 0; i < lines + w->more; i++, strip += line) {
        int64_t from = first + i - s->padding[HEIGHT];
        if (from < 0 || from >= s->x[HEIGHT]) {
            memset(strip, 0, line);
            continue;
        }
        memset(strip, 0, before);
        nd__bytes_copy(strip + before, plane + (size_t)from * filled, filled);
        memset(strip + before + filled, 0, line - before - filled);
    }
}

/// Planes of x: channels of images.
static void run_planes(void *context, int64_t begin, int64_t end) {
    depthwise_work *w = (depthwise_work *)context;
    const nd__conv_sizes *s = &w->sizes;
    const nd_operand *operand = w->call->operand;
    int64_t window = s->kernel[HEIGHT] * s->kernel[WIDTH] * w->bytes;
    char *strip = nd__cpu_scratch((size_t)((w->strip + w->more) * w->line * w->bytes));
    if (!strip) {
        atomic_store(&w->failed, true);
        return;
    }
    for (int64_t plane = begin; plane < end; plane++)
        for (int64_t first = 0; first < s->y[HEIGHT]; first += w->strip) {
            int64_t rest = s->y[HEIGHT] - first, lines = rest < w->strip ? rest : w->strip;
            copy_strip(w, (const char *)operand[1].data + plane * w->x * w->bytes, first, lines,
                       strip);
            for (int64_t i = 0; i < w->multiple; i++) {
                int64_t from = plane % s->ci * w->multiple + i, to = plane * w->multiple + i;
                const nd__depthwise_lines d = {
                    .x = strip,
                    .weight = (const char *)operand[2].data + from * window,
                    .out = (char *)operand[0].data + (to * w->y + first * s->y[WIDTH]) * w->bytes,
                    .line = w->line,
                    .lines = lines,
                    .columns = s->y[WIDTH],
                    .window = s->kernel[WIDTH],
                    .dilation = {s->dilation[HEIGHT], s->dilation[WIDTH]},
                };
                w->lines(&d);
            }
        }
}

/// Not where a weight is infinite or NaN: times the zeros around x it would be NaN.
static bool weights_are_finite(const depthwise_work *w, int type) {
    const void *weight = w->call->operand[2].data;
    int64_t count = w->sizes.co * w->sizes.kernel[HEIGHT] * w->sizes.kernel[WIDTH];
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(type == 0 ? ((const float *)weight)[i] : ((const double *)weight)[i]))
            return false;
    return true;
}

static bool sizes_suit(const nd__conv_sizes *s) {
    bool suit = s->groups == s->ci && s->ci > 1 && s->x[DEPTH] == 1 && s->y[DEPTH] == 1 &&
                s->padding[DEPTH] == 0 && s->kernel[DEPTH] == 1 &&
                s->kernel[HEIGHT] == s->kernel[WIDTH] &&
                (s->kernel[WIDTH] == 3 || s->kernel[WIDTH] == 5) && s->stride[HEIGHT] == 1 &&
                s->stride[WIDTH] == 1;
    // Wide lines only: of narrow ones little is left for vectors.
    return suit && s->y[WIDTH] >= 14 && s->padding[WIDTH] <= s->x[WIDTH] &&
           s->dilation[WIDTH] <= s->x[WIDTH] && s->dilation[HEIGHT] <= 8;
}

bool nd__cpu_depthwise(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    depthwise_work w = {.call = call, .sizes = nd__conv_sizes_of(call)};
    const nd__conv_sizes *s = &w.sizes;
    if (type < 0 || call->op != ND_OP_conv || !sizes_suit(s) || !weights_are_finite(&w, type))
        return false;
    w.lines = nd__cpu_loops_now()->depthwise[type];
    w.bytes = nd__dtype_bytes(call->operand[0].dtype);
    w.line = s->x[WIDTH] + 2 * s->padding[WIDTH];
    w.more = (s->kernel[HEIGHT] - 1) * s->dilation[HEIGHT];
    int64_t held = STRIP_BYTES / (w.line * w.bytes) - w.more;
    w.strip = held > FEWEST_LINES ? held : FEWEST_LINES;
    w.multiple = s->co / s->groups;
    w.x = s->x[HEIGHT] * s->x[WIDTH];
    w.y = s->y[HEIGHT] * s->y[WIDTH];
    nd__cpu_parallel(s->n * s->ci, w.y * w.multiple * s->kernel[WIDTH], 1, run_planes, &w);
    return !atomic_load(&w.failed);
}
