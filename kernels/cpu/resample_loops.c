// The loops of RESAMPLE (resample.c). No product and sum are rounded at once here (BUILD.bazel):
// results are the same in every instruction set.
#include "kernels/cpu/isa.h"
#include "kernels/windows.h"
#include <string.h>

/// Results of a line whose gradients are divided before they are added.
#define BLOCK 256
/// Lines that are walked together: what a result is made of is read once for all of them.
#define LINES 4

// Along the last axis: results `begin` ... `end` - 1 of a line, of which those within r->whole are
// means of windows of which all places are in x. Those are made place by place, many results at once;
// each is still made of its places in their order.
#define PLACES(step)                \
    for (int64_t i = 0; i < n; i++) \
        out[i] = j == 0 ? from[i * (step)] : out[i] + from[i * (step)];
#define SPREAD(step)                \
    for (int64_t i = 0; i < n; i++) \
        to[i * (step)] += share[i];

// The sum of a long window of neighbours, n at least LONG_SUMS: that many sums side by side, which are
// added as a tree, in the same order for every instruction set. What is longer than PART is made in
// parts, so that no sum gets large beside what is added to it.
#define LONG_SUMS 32
#define PART 4096
#define LONG_SUM(T)                                           \
    static T part_sum_##T(const T *x, int64_t n) {            \
        T sums[LONG_SUMS];                                    \
        memcpy(sums, x, sizeof sums);                         \
        int64_t i = LONG_SUMS;                                \
        for (; i + LONG_SUMS <= n; i += LONG_SUMS)            \
            for (int lane = 0; lane < LONG_SUMS; lane++)      \
                sums[lane] += x[i + lane];                    \
        for (int lane = 0; i + lane < n; lane++)              \
            sums[lane] += x[i + lane];                        \
        for (int half = LONG_SUMS / 2; half > 0; half /= 2)   \
            for (int lane = 0; lane < half; lane++)           \
                sums[lane] += sums[lane + half];              \
        return sums[0];                                       \
    }                                                         \
    static T long_sum_##T(const T *x, int64_t n) {            \
        if (n < 2 * PART)                                     \
            return part_sum_##T(x, n);                        \
        double totals[LONG_SUMS] = {0};                       \
        for (; n >= PART; x += PART, n -= PART) {             \
            T sums[LONG_SUMS];                                \
            memcpy(sums, x, sizeof sums);                     \
            for (int i = LONG_SUMS; i < PART; i += LONG_SUMS) \
                for (int lane = 0; lane < LONG_SUMS; lane++)  \
                    sums[lane] += x[i + lane];                \
            for (int lane = 0; lane < LONG_SUMS; lane++)      \
                totals[lane] += (double)sums[lane];           \
        }                                                     \
        for (int64_t i = 0; i < n; i++)                       \
            totals[i % LONG_SUMS] += (double)x[i];            \
        for (int half = LONG_SUMS / 2; half > 0; half /= 2)   \
            for (int lane = 0; lane < half; lane++)           \
                totals[lane] += totals[lane + half];          \
        return (T)totals[0];                                  \
    }
LONG_SUM(float)
LONG_SUM(double)

/// Elements of a row whose long sums are made together, in f64.
#define COLUMNS 64
#define LONG_COLUMN 128

// Rows of `inner` elements: results are rows of out. A mean is a sum first, so that that of equal
// numbers is that number.
#define RESAMPLE_LOOPS(T)                                                                           \
    static void sum_whole_##T(const nd__resample_rows *r, const T *restrict x, T *restrict out) {   \
        const nd__resample_axis *axis = r->axis;                                                    \
        int64_t n = r->whole[1] - r->whole[0], stride = axis->stride;                               \
        x += r->whole[0] * stride - axis->padding;                                                  \
        out += r->whole[0];                                                                         \
        for (int64_t j = 0; j < axis->kernel && n > 0; j++) {                                       \
            const T *from = x + j;                                                                  \
            if (stride == 1)                                                                        \
                PLACES(1)                                                                           \
            else if (stride == 2)                                                                   \
                PLACES(2)                                                                           \
            else                                                                                    \
                PLACES(stride)                                                                      \
        }                                                                                           \
        T divisor = n > 0 ? (T)r->taps[r->whole[0]].weight[0] : (T)1;                               \
        for (int64_t i = 0; i < n && divisor != (T)1; i++)                                          \
            out[i] /= divisor;                                                                      \
    }                                                                                               \
    static void sum_long_row_##T(const nd__resample_taps *taps, int64_t inner,                      \
                                 const T *restrict x, T *restrict out) {                            \
        for (int64_t begin = 0; begin < inner; begin += COLUMNS) {                                  \
            const int64_t n = inner - begin < COLUMNS ? inner - begin : COLUMNS;                    \
            double sums[COLUMNS] = {0};                                                             \
            for (int64_t j = 0; j < taps->count; j++)                                               \
                for (int64_t i = 0; i < n; i++)                                                     \
                    sums[i] += (double)x[j * inner + begin + i];                                    \
            for (int64_t i = 0; i < n; i++)                                                         \
                out[begin + i] = (T)(sums[i] / taps->weight[0]);                                    \
        }                                                                                           \
    }                                                                                               \
    static void sum_row_##T(const nd__resample_rows *r, int64_t row) {                              \
        const nd__resample_axis *axis = r->axis;                                                    \
        const nd__resample_taps *taps = &r->taps[row % axis->out];                                  \
        int64_t inner = axis->inner;                                                                \
        const T *restrict x =                                                                       \
            (const T *)r->x + (row / axis->out * axis->in + taps->first) * inner;                   \
        T *restrict out = (T *)r->out + row * inner;                                                \
        if (taps->even && taps->count >= LONG_COLUMN) {                                             \
            sum_long_row_##T(taps, inner, x, out);                                                  \
            return;                                                                                 \
        }                                                                                           \
        for (int64_t j = 0; j < taps->count; j++, x += inner) {                                     \
            T weight = taps->even ? (T)1 : (T)taps->weight[j];                                      \
            for (int64_t i = 0; i < inner; i++)                                                     \
                out[i] = j == 0 ? weight * x[i] : out[i] + weight * x[i];                           \
        }                                                                                           \
        if (taps->even && taps->weight[0] != 1)                                                     \
            for (int64_t i = 0; i < inner; i++)                                                     \
                out[i] /= (T)taps->weight[0];                                                       \
    }                                                                                               \
    /* Lines of single elements, `in` of x and `out` results long: LINES of them, or one. */        \
    static inline void sum_lines_##T(const nd__resample_rows *r, int64_t line, const int lines) {   \
        const int64_t in = r->axis->in, count = r->axis->out;                                       \
        const T *restrict x = (const T *)r->x + line * in;                                          \
        T *restrict out = (T *)r->out + line * count;                                               \
        for (int64_t o = 0; o < count; o++) {                                                       \
            const nd__resample_taps *taps = &r->taps[o];                                            \
            const bool is_long = taps->even && taps->count >= LONG_SUMS;                            \
            T sums[LINES], weight = taps->even ? (T)1 : (T)taps->weight[0];                         \
            for (int i = 0; i < lines; i++) {                                                       \
                const T *from = x + i * in + taps->first;                                           \
                sums[i] = is_long ? long_sum_##T(from, taps->count) : weight * *from;               \
            }                                                                                       \
            for (int64_t j = 1; j < taps->count && !is_long; j++) {                                 \
                weight = taps->even ? (T)1 : (T)taps->weight[j];                                    \
                for (int i = 0; i < lines; i++)                                                     \
                    sums[i] += weight * x[i * in + taps->first + j];                                \
            }                                                                                       \
            const T divisor = taps->even ? (T)taps->weight[0] : (T)1;                               \
            for (int i = 0; i < lines; i++)                                                         \
                out[i * count + o] = divisor == (T)1 ? sums[i] : sums[i] / divisor;                 \
        }                                                                                           \
    }                                                                                               \
    /* Lines begin ... end - 1 of the results of which none are made together. */                   \
    static void sum_all_lines_##T(const nd__resample_rows *r, int64_t begin, int64_t end) {         \
        for (; begin + LINES <= end; begin += LINES)                                                \
            sum_lines_##T(r, begin, LINES);                                                         \
        for (; begin < end; begin++)                                                                \
            sum_lines_##T(r, begin, 1);                                                             \
    }                                                                                               \
    static void sum_rows_##T(const nd__resample_rows *r, int64_t begin, int64_t end) {              \
        const nd__resample_axis *axis = r->axis;                                                    \
        if (axis->inner == 1 && r->whole[0] == r->whole[1]) {                                       \
            sum_all_lines_##T(r, begin / axis->out, end / axis->out);                               \
            return;                                                                                 \
        }                                                                                           \
        while (begin < end) {                                                                       \
            if (r->whole[0] < r->whole[1] && begin % axis->out == r->whole[0]) {                    \
                int64_t line = begin / axis->out;                                                   \
                sum_whole_##T(r, (const T *)r->x + line * axis->in,                                 \
                              (T *)r->out + line * axis->out);                                      \
                begin += r->whole[1] - r->whole[0];                                                 \
            } else {                                                                                \
                sum_row_##T(r, begin++);                                                            \
            }                                                                                       \
        }                                                                                           \
    }                                                                                               \
    /* Later results reach later places: from the last place on, each element of out still gets   \
       its shares in the order of the results. */ \
    static void spread_whole_##T(const nd__resample_rows *r, const T *restrict grad,                \
                                 T *restrict out) {                                                 \
        const nd__resample_axis *axis = r->axis;                                                    \
        T share[BLOCK], divisor = (T)r->taps[r->whole[0]].weight[0];                                \
        int64_t stride = axis->stride;                                                              \
        for (int64_t begin = r->whole[0]; begin < r->whole[1]; begin += BLOCK) {                    \
            int64_t n = r->whole[1] - begin < BLOCK ? r->whole[1] - begin : BLOCK;                  \
            for (int64_t i = 0; i < n; i++)                                                         \
                share[i] = grad[begin + i] / divisor;                                               \
            for (int64_t j = axis->kernel - 1; j >= 0; j--) {                                       \
                T *to = out + begin * stride - axis->padding + j;                                   \
                if (stride == 1)                                                                    \
                    SPREAD(1)                                                                       \
                else if (stride == 2)                                                               \
                    SPREAD(2)                                                                       \
                else                                                                                \
                    SPREAD(stride)                                                                  \
            }                                                                                       \
        }                                                                                           \
    }                                                                                               \
    static void spread_row_##T(const nd__resample_rows *r, int64_t row) {                           \
        const nd__resample_axis *axis = r->axis;                                                    \
        const nd__resample_taps *taps = &r->taps[row % axis->out];                                  \
        int64_t inner = axis->inner;                                                                \
        const T *restrict grad = (const T *)r->x + row * inner;                                     \
        T *restrict out = (T *)r->out + (row / axis->out * axis->in + taps->first) * inner;         \
        for (int64_t j = 0; j < taps->count; j++, out += inner)                                     \
            if (taps->even)                                                                         \
                for (int64_t i = 0; i < inner; i++)                                                 \
                    out[i] += grad[i] / (T)taps->weight[0];                                         \
            else                                                                                    \
                for (int64_t i = 0; i < inner; i++)                                                 \
                    out[i] += grad[i] * (T)taps->weight[j];                                         \
    }                                                                                               \
    /* As sum_lines: the gradients of LINES lines, or of one. */                                    \
    static inline void spread_lines_##T(const nd__resample_rows *r, int64_t line,                   \
                                        const int lines) {                                          \
        const int64_t in = r->axis->in, count = r->axis->out;                                       \
        const T *restrict grad = (const T *)r->x + line * count;                                    \
        T *restrict out = (T *)r->out + line * in;                                                  \
        for (int64_t o = 0; o < count; o++) {                                                       \
            const nd__resample_taps *taps = &r->taps[o];                                            \
            for (int i = 0; i < lines && taps->even; i++) {                                         \
                T *to = out + i * in + taps->first,                                                 \
                  share = grad[i * count + o] / (T)taps->weight[0];                                 \
                for (int64_t j = 0; j < taps->count; j++)                                           \
                    to[j] += share;                                                                 \
            }                                                                                       \
            for (int64_t j = 0; j < taps->count && !taps->even; j++)                                \
                for (int i = 0; i < lines; i++)                                                     \
                    out[i * in + taps->first + j] += grad[i * count + o] * (T)taps->weight[j];      \
        }                                                                                           \
    }                                                                                               \
    static void spread_blocks_##T(const nd__resample_rows *r, int64_t begin, int64_t end) {         \
        const nd__resample_axis *axis = r->axis;                                                    \
        int64_t block = axis->in * axis->inner;                                                     \
        memset((T *)r->out + begin * block, 0, (size_t)((end - begin) * block) * sizeof(T));        \
        const bool by_lines = axis->inner == 1 && r->whole[0] == r->whole[1];                       \
        for (; by_lines && begin + LINES <= end; begin += LINES)                                    \
            spread_lines_##T(r, begin, LINES);                                                      \
        for (; by_lines && begin < end; begin++)                                                    \
            spread_lines_##T(r, begin, 1);                                                          \
        for (; begin < end; begin++)                                                                \
            for (int64_t o = 0; o < axis->out; o++) {                                               \
                if (r->whole[0] < r->whole[1] && o == r->whole[0]) {                                \
                    spread_whole_##T(r, (const T *)r->x + begin * axis->out,                        \
                                     (T *)r->out + begin * block);                                  \
                    o = r->whole[1] - 1;                                                            \
                } else {                                                                            \
                    spread_row_##T(r, begin * axis->out + o);                                       \
                }                                                                                   \
            }                                                                                       \
    }
RESAMPLE_LOOPS(float)
RESAMPLE_LOOPS(double)

const nd__resample_loops ND_ISA_NAME(nd__cpu_resample_loops)[2] = {
    {sum_rows_float, spread_blocks_float}, {sum_rows_double, spread_blocks_double}};
