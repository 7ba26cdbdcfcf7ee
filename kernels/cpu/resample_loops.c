// The loops of RESAMPLE (resample.c). No product and sum are rounded at once here (BUILD.bazel):
// results are the same in every instruction set.
#include "kernels/cpu/isa.h"
#include "kernels/windows.h"
#include <string.h>

/// Results of a line whose gradients are divided before they are added.
#define BLOCK 256

// Along the last axis: results `begin` ... `end` - 1 of a line, of which those within r->whole are
// means of windows of which all places are in x. Those are made place by place, many results at once;
// each is still made of its places in their order.
#define PLACES(step)                \
    for (int64_t i = 0; i < n; i++) \
        out[i] = j == 0 ? from[i * (step)] : out[i] + from[i * (step)];
#define SPREAD(step)                \
    for (int64_t i = 0; i < n; i++) \
        to[i * (step)] += share[i];

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
    static void sum_row_##T(const nd__resample_rows *r, int64_t row) {                              \
        const nd__resample_axis *axis = r->axis;                                                    \
        const nd__resample_taps *taps = &r->taps[row % axis->out];                                  \
        int64_t inner = axis->inner;                                                                \
        const T *restrict x =                                                                       \
            (const T *)r->x + (row / axis->out * axis->in + taps->first) * inner;                   \
        T *restrict out = (T *)r->out + row * inner;                                                \
        for (int64_t j = 0; j < taps->count; j++, x += inner) {                                     \
            T weight = taps->even ? (T)1 : (T)taps->weight[j];                                      \
            for (int64_t i = 0; i < inner; i++)                                                     \
                out[i] = j == 0 ? weight * x[i] : out[i] + weight * x[i];                           \
        }                                                                                           \
        if (taps->even && taps->weight[0] != 1)                                                     \
            for (int64_t i = 0; i < inner; i++)                                                     \
                out[i] /= (T)taps->weight[0];                                                       \
    }                                                                                               \
    static void sum_rows_##T(const nd__resample_rows *r, int64_t begin, int64_t end) {              \
        const nd__resample_axis *axis = r->axis;                                                    \
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
    static void spread_blocks_##T(const nd__resample_rows *r, int64_t begin, int64_t end) {         \
        const nd__resample_axis *axis = r->axis;                                                    \
        int64_t block = axis->in * axis->inner;                                                     \
        memset((T *)r->out + begin * block, 0, (size_t)((end - begin) * block) * sizeof(T));        \
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
