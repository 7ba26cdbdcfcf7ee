// Short lines are transformed in bundles (fft_lines.h), however many there are, so that a line
// gives the same alone.
//
// A longer line is copied into a buffer, transformed into another one and copied out of that:
// however the tensor lies, buffers begin where FFTW's fast loops want them to. Lines that lie side
// by side are copied together, so that what is read from memory at once is used at once.
#include "kernels/cpu/fft.h"
#include "kernels/cpu/fft_lines.h"
#include "kernels/cpu/fftw.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "lib/base/float_mode.h"
#include <stdatomic.h>
#include <string.h>

/// Lines side by side: as many as lie in a line of the cache, while their buffers stay in it.
enum { BYTES_TOGETHER = 64, BYTES_OF_BUFFERS = 1 << 19 };

/// One side of the transform: the tensor and the buffers.
typedef struct side {
    size_t element;     ///< bytes of a place: a number, or a pair of them
    int64_t in_tensor;  ///< places along the axis of the tensor
    int64_t in_line;    ///< places of a line as FFTW sees it
    int64_t both;       ///< the smaller number
    size_t line_stride; ///< bytes from buffer to buffer
} side;

typedef struct job {
    const nd__fft_call *call;
    const nd__fftw_plan *plan;
    side x, out;
    int64_t together; ///< lines
    int64_t blocks;   ///< of so many lines, side by side
    atomic_bool failed;
} job;

// -------------------------------------------------------------------------------------------------
// numbers

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/// `scale` multiplies all; `weigh` the places of a half, where those at its ends are real.
#define DEFINE_FACTORS(T)                                                               \
    static void scale_##T(T *line, int64_t count, double factor) {                      \
        T by = (T)factor;                                                               \
        for (int64_t i = 0; i < count; i++)                                             \
            line[i] *= by;                                                              \
    }                                                                                   \
    static void weigh_##T(T *half, int64_t n, double ends, double inner, double sign) { \
        T at_end = (T)ends, real = (T)inner, imaginary = (T)(sign * inner);             \
        half[0] *= at_end;                                                              \
        half[1] = 0;                                                                    \
        if (n % 2 == 0) {                                                               \
            half[n] *= at_end;                                                          \
            half[n + 1] = 0;                                                            \
        }                                                                               \
        if (real == 1 && imaginary == 1)                                                \
            return;                                                                     \
        for (int64_t k = 1; k <= (n - 1) / 2; k++) {                                    \
            half[2 * k] *= real;                                                        \
            half[2 * k + 1] *= imaginary;                                               \
        }                                                                               \
    }
DEFINE_FACTORS(float)
DEFINE_FACTORS(double)

static void scale(const nd__fft_call *call, void *line, int64_t count) {
    if (call->scale == 1)
        return;
    if (call->dtype == ND_F32)
        scale_float(line, count, call->scale);
    else
        scale_double(line, count, call->scale);
}

static void weigh(const nd__fft_call *call, void *half, double ends, double sign) {
    if (call->dtype == ND_F32)
        weigh_float(half, call->n, ends, ends * call->weight, sign);
    else
        weigh_double(half, call->n, ends, ends * call->weight, sign);
}

/// Transforms a line from buffer to buffer, with its factors. False: there is no memory.
static bool transform(const job *j, void *in, void *out) {
    const nd__fft_call *call = j->call;
    if (call->op == ND_OP_irfft)
        weigh(call, in, 1, call->sign); // FFTW's sign is 1
    if (!nd__fftw_run(j->plan, in, out))
        return false;
    if (call->op == ND_OP_rfft)
        weigh(call, out, call->scale, -call->sign); // FFTW's sign is -1
    else
        scale(call, out, call->op == ND_OP_irfft ? call->n : 2 * call->n);
    return true;
}

// -------------------------------------------------------------------------------------------------
// places

/// Copies between lines of buffers and lines that lie side by side in a tensor, `row` bytes from
/// place to place.
#define DEFINE_MOVES(bytes)                                                             \
    static void gather_##bytes(char *line, size_t stride, const char *x, size_t row,    \
                               int64_t places, int64_t lines) {                         \
        for (int64_t j = 0; j < places; j++)                                            \
            for (int64_t l = 0; l < lines; l++)                                         \
                memcpy(line + (size_t)l * stride + (size_t)j * bytes,                   \
                       x + (size_t)j * row + (size_t)l * bytes, bytes);                 \
    }                                                                                   \
    static void scatter_##bytes(const char *line, size_t stride, char *out, size_t row, \
                                int64_t places, int64_t lines) {                        \
        for (int64_t j = 0; j < places; j++)                                            \
            for (int64_t l = 0; l < lines; l++)                                         \
                memcpy(out + (size_t)j * row + (size_t)l * bytes,                       \
                       line + (size_t)l * stride + (size_t)j * bytes, bytes);           \
    }
DEFINE_MOVES(4)
DEFINE_MOVES(8)
DEFINE_MOVES(16)

static void gather(const side *s, char *line, const char *x, size_t row, int64_t lines) {
    if (row == s->element)
        memcpy(line, x, (size_t)s->both * s->element);
    else if (s->element == 4)
        gather_4(line, s->line_stride, x, row, s->both, lines);
    else if (s->element == 8)
        gather_8(line, s->line_stride, x, row, s->both, lines);
    else
        gather_16(line, s->line_stride, x, row, s->both, lines);
    for (int64_t l = 0; l < lines && s->in_line > s->both; l++)
        memset(line + (size_t)l * s->line_stride + (size_t)s->both * s->element, 0,
               (size_t)(s->in_line - s->both) * s->element);
}

static void scatter(const side *s, const char *line, char *out, size_t row, int64_t lines) {
    if (row == s->element)
        memcpy(out, line, (size_t)s->both * s->element);
    else if (s->element == 4)
        scatter_4(line, s->line_stride, out, row, s->both, lines);
    else if (s->element == 8)
        scatter_8(line, s->line_stride, out, row, s->both, lines);
    else
        scatter_16(line, s->line_stride, out, row, s->both, lines);
    for (int64_t place = s->both; place < s->in_tensor; place++)
        memset(out + (size_t)place * row, 0, (size_t)lines * s->element);
}

// -------------------------------------------------------------------------------------------------
// lines

static size_t bytes_of_side(const job *j, const side *s) {
    return (size_t)j->together * s->line_stride;
}

/// The buffers of this thread: those of x, behind them those of the result. NULL: no memory.
static char *buffers(const job *j) {
    return nd__cpu_scratch(bytes_of_side(j, &j->x) + bytes_of_side(j, &j->out));
}

/// Where the block's first line begins.
static size_t offset_of(const job *j, const side *s, int64_t block) {
    int64_t outer = block / j->blocks, beside = block % j->blocks * j->together;
    return (size_t)(outer * s->in_tensor * j->call->inner + beside) * s->element;
}

static void transform_blocks(void *context, int64_t begin, int64_t end) {
    job *j = context;
    const nd__fft_call *call = j->call;
    char *in = buffers(j);
    if (!in) {
        atomic_store_explicit(&j->failed, true, memory_order_relaxed);
        return;
    }
    char *out = in + bytes_of_side(j, &j->x);
    for (int64_t block = begin; block < end; block++) {
        int64_t lines = least(j->together, call->inner - block % j->blocks * j->together);
        gather(&j->x, in, (const char *)call->x + offset_of(j, &j->x, block),
               (size_t)call->inner * j->x.element, lines);
        for (int64_t l = 0; l < lines; l++)
            if (!transform(j, in + (size_t)l * j->x.line_stride,
                           out + (size_t)l * j->out.line_stride))
                atomic_store_explicit(&j->failed, true, memory_order_relaxed);
        scatter(&j->out, out, (char *)call->out + offset_of(j, &j->out, block),
                (size_t)call->inner * j->out.element, lines);
    }
}

/// Buffers are a line of the cache further apart than they are long: else all that a long power of
/// two puts side by side would have one place in the cache.
static side side_of(const nd__fft_call *call, bool pairs, bool half, int64_t in_tensor) {
    size_t number = call->dtype == ND_F32 ? 4 : 8, element = pairs ? 2 * number : number;
    int64_t in_line = half ? call->n / 2 + 1 : call->n;
    size_t mask = ND__FFTW_ALIGNMENT - 1;
    size_t stride = (((size_t)in_line * element + mask) & ~mask) + ND__FFTW_ALIGNMENT;
    return (side){element, in_tensor, in_line, least(in_tensor, in_line), stride};
}

static nd__fftw_kind kind_of(const nd__fft_call *call) {
    return call->op == ND_OP_rfft    ? ND__FFTW_REAL
           : call->op == ND_OP_irfft ? ND__FFTW_HALF
           : call->sign < 0          ? ND__FFTW_FORWARD
                                     : ND__FFTW_BACKWARD;
}

/// The work of a line, in additions; FFTW's loops do several at once.
static int64_t cost_of_line(int64_t n) {
    int64_t cost = 16;
    for (int64_t length = n; length > 1; length /= 2)
        cost += n;
    return cost;
}

static nd__fft_result transform_long(const nd__fft_call *call) {
    bool from_half = call->op == ND_OP_irfft, to_half = call->op == ND_OP_rfft;
    job j = {.call = call,
             .x = side_of(call, !to_half, from_half, call->from),
             .out = side_of(call, !from_half, to_half, call->to)};
    atomic_init(&j.failed, false);
    int64_t side_by_side = least(call->inner, BYTES_TOGETHER / (int64_t)j.x.element);
    int64_t fitting = BYTES_OF_BUFFERS / (int64_t)(j.x.line_stride + j.out.line_stride);
    j.together = least(side_by_side, fitting > 1 ? fitting : 1);
    j.blocks = (call->inner + j.together - 1) / j.together;
    char *in = buffers(&j);
    nd__fftw_plan *plan = in ? nd__fftw_plan_acquire(call->dtype, kind_of(call), (int)call->n, in,
                                                     in + bytes_of_side(&j, &j.x))
                             : NULL;
    if (!plan)
        return ND__FFT_NO_MEMORY;
    j.plan = plan;
    nd__cpu_parallel(call->outer * j.blocks, j.together * cost_of_line(call->n), 1,
                     transform_blocks, &j);
    nd__fftw_plan_release(plan);
    bool failed = atomic_load_explicit(&j.failed, memory_order_relaxed);
    return failed ? ND__FFT_NO_MEMORY : ND__FFT_DONE;
}

// -------------------------------------------------------------------------------------------------
// short lines

typedef struct short_job {
    nd__fft_lines lines;
    nd__fft_lines_loop loop;
    int64_t bundle, count; ///< lines
    atomic_bool failed;
} short_job;

static void transform_bundles(void *context, int64_t begin, int64_t end) {
    short_job *j = context;
    void *room = nd__cpu_scratch(nd__fft_lines_room(j->lines.call->n));
    if (!room) {
        atomic_store_explicit(&j->failed, true, memory_order_relaxed);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        j->loop(&j->lines, i * j->bundle, least((i + 1) * j->bundle, j->count), room);
}

static nd__fft_result transform_short(const nd__fft_call *call) {
    bool is_f32 = call->dtype == ND_F32;
    short_job j = {.loop = nd__cpu_loops_now()->fft_lines[!is_f32],
                   .bundle = ND__FFT_BUNDLE(is_f32 ? sizeof(float) : sizeof(double)),
                   .count = call->outer * call->inner};
    atomic_init(&j.failed, false);
    if (!nd__fft_lines_begin(&j.lines, call))
        return ND__FFT_NO_MEMORY;
    nd__cpu_parallel((j.count + j.bundle - 1) / j.bundle, 4 * cost_of_line(call->n), 1,
                     transform_bundles, &j);
    nd__fft_lines_end();
    bool failed = atomic_load_explicit(&j.failed, memory_order_relaxed);
    return failed ? ND__FFT_NO_MEMORY : ND__FFT_DONE;
}

static nd__fft_result transform_all(const nd__fft_call *call) {
    if (!nd__fftw_exists(call->dtype))
        return ND__FFT_MISSING;
    return nd__fft_is_short(call->n) ? transform_short(call) : transform_long(call);
}

nd__fft_result nd__cpu_fft(const nd__fft_call *call) {
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    nd__fft_result result = transform_all(call);
    nd__float_mode_end(&mode);
    return result;
}
