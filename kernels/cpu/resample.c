// RESAMPLE: every result along an axis is a sum of a few elements of x, and the adjoint adds each
// result's gradient to them.
//
// What each result is made of is worked out once for the whole call. A gradient is added in the
// order of the results, whatever the number of threads: they share the places before the axis.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/windows.h"
#include <stdlib.h>
#include <string.h>

typedef struct resample_work {
    const nd_kernel_call *call;
    nd__resample_axis axis;
    nd__resample_taps *taps; ///< one for each result
} resample_work;

// Rows of `inner` elements: results are rows of out, shared between threads. A mean is a sum first,
// so that that of equal numbers is that number.
#define RESAMPLE_LOOPS(T)                                                                          \
    static void sum_row_##T(const resample_work *work, int64_t row) {                              \
        const nd__resample_axis *axis = &work->axis;                                               \
        const nd__resample_taps *taps = &work->taps[row % axis->out];                              \
        int64_t inner = axis->inner;                                                               \
        const T *x = (const T *)work->call->operand[1].data +                                      \
                     (row / axis->out * axis->in + taps->first) * inner;                           \
        T *out = (T *)work->call->operand[0].data + row * inner;                                   \
        for (int64_t j = 0; j < taps->count; j++, x += inner) {                                    \
            T weight = taps->even ? (T)1 : (T)taps->weight[j];                                     \
            for (int64_t i = 0; i < inner; i++)                                                    \
                out[i] = j == 0 ? weight * x[i] : out[i] + weight * x[i];                          \
        }                                                                                          \
        if (taps->even && taps->weight[0] != 1)                                                    \
            for (int64_t i = 0; i < inner; i++)                                                    \
                out[i] /= (T)taps->weight[0];                                                      \
    }                                                                                              \
    static void sum_rows_##T(void *context, int64_t begin, int64_t end) {                          \
        for (int64_t row = begin; row < end; row++)                                                \
            sum_row_##T((const resample_work *)context, row);                                      \
    }                                                                                              \
    static void spread_row_##T(const resample_work *work, int64_t row) {                           \
        const nd__resample_axis *axis = &work->axis;                                               \
        const nd__resample_taps *taps = &work->taps[row % axis->out];                              \
        int64_t inner = axis->inner;                                                               \
        const T *grad = (const T *)work->call->operand[1].data + row * inner;                      \
        T *out =                                                                                   \
            (T *)work->call->operand[0].data + (row / axis->out * axis->in + taps->first) * inner; \
        for (int64_t j = 0; j < taps->count; j++, out += inner)                                    \
            if (taps->even)                                                                        \
                for (int64_t i = 0; i < inner; i++)                                                \
                    out[i] += grad[i] / (T)taps->weight[0];                                        \
            else                                                                                   \
                for (int64_t i = 0; i < inner; i++)                                                \
                    out[i] += grad[i] * (T)taps->weight[j];                                        \
    }                                                                                              \
    static void spread_blocks_##T(void *context, int64_t begin, int64_t end) {                     \
        const resample_work *work = (const resample_work *)context;                                \
        int64_t block = work->axis.in * work->axis.inner;                                          \
        memset((T *)work->call->operand[0].data + begin * block, 0,                                \
               (size_t)((end - begin) * block) * sizeof(T));                                       \
        for (int64_t row = begin * work->axis.out; row < end * work->axis.out; row++)              \
            spread_row_##T(work, row);                                                             \
    }
RESAMPLE_LOOPS(float)
RESAMPLE_LOOPS(double)

nd_status nd__cpu_resample(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    resample_work work = {.call = call, .axis = nd__resample_axis_of(call)};
    const nd__resample_axis *axis = &work.axis;
    work.taps = calloc((size_t)axis->out, sizeof *work.taps);
    if (!work.taps)
        return ND_ERROR_OUT_OF_MEMORY;
    int64_t places = 0;
    for (int64_t o = 0; o < axis->out; o++) {
        work.taps[o] = nd__resample_taps_of(axis, o);
        places += work.taps[o].count;
    }
    int64_t cost = places * axis->inner;
    if (call->op == ND_OP_resample)
        nd__cpu_parallel(axis->outer * axis->out, cost / axis->out + 1, 1,
                         type == 0 ? sum_rows_float : sum_rows_double, &work);
    else
        nd__cpu_parallel(axis->outer, cost + axis->in * axis->inner, 1,
                         type == 0 ? spread_blocks_float : spread_blocks_double, &work);
    free(work.taps);
    return ND_OK;
}
