// max_pool2d: the largest element of each window and where in its plane it stands. NaN wins; of
// equal elements the first.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/windows.h"
#include <string.h>

typedef struct pool_work {
    const nd_kernel_call *call;
} pool_work;

/// The windows whose place `offset` behind their first is in x.
static inline void windows_with(const nd__pool_axis *axis, int64_t offset, int64_t *ret_begin,
                                int64_t *ret_end) {
    int64_t first = offset - axis->padding, last = first + (axis->out - 1) * axis->stride;
    *ret_begin = first >= 0 ? 0 : (-first - 1) / axis->stride + 1;
    *ret_end = last < axis->size    ? axis->out
               : first < axis->size ? (axis->size - 1 - first) / axis->stride + 1
                                    : 0;
}

// A row of results is made place by place of its windows. Each place is compared with all results
// of the row, and what is kept is chosen by masks: a branch would be mispredicted, the numbers
// being anything. BITS is an integer as wide as T.
#define POOL_PLANES(T, BITS)                                                                      \
    static void pool_place_##T(const T *restrict x, int64_t at, int64_t stride, int64_t count,    \
                               T *restrict out, int64_t *restrict positions) {                    \
        for (int64_t i = 0; i < count; i++, at += stride) {                                       \
            T value = x[at], largest = out[i];                                                    \
            bool better = !(value <= largest) & (largest == largest);                             \
            BITS mask = -(BITS)better, kept, found;                                               \
            memcpy(&kept, &largest, sizeof kept);                                                 \
            memcpy(&found, &value, sizeof found);                                                 \
            kept = (found & mask) | (kept & ~mask);                                               \
            memcpy(&out[i], &kept, sizeof kept);                                                  \
            positions[i] = (at & -(int64_t)better) | (positions[i] & ((int64_t)better - 1));      \
        }                                                                                         \
    }                                                                                             \
    /* `at`: where a line of x begins. Windows of an adaptive axis have no common stride. */      \
    static void pool_line_##T(const T *x, int64_t at, const nd__pool_axis *wide, T *out,          \
                              int64_t *positions) {                                               \
        int64_t begin, end;                                                                       \
        for (int64_t i = 0; wide->kernel == 0 && i < wide->out; i++) {                            \
            nd__pool_axis_reach(wide, i, &begin, &end);                                           \
            for (int64_t place = begin; place < end; place++)                                     \
                pool_place_##T(x, at + place, 0, 1, out + i, positions + i);                      \
        }                                                                                         \
        for (int64_t place = 0; place < wide->kernel; place++) {                                  \
            int64_t offset = place * wide->dilation;                                              \
            windows_with(wide, offset, &begin, &end);                                             \
            if (begin < end)                                                                      \
                pool_place_##T(x, at + begin * wide->stride + offset - wide->padding,             \
                               wide->stride, end - begin, out + begin, positions + begin);        \
        }                                                                                         \
    }                                                                                             \
    static void pool_row_##T(const T *x, const nd__pool_axis *axes, int64_t row, T *out,          \
                             int64_t *positions) {                                                \
        const nd__pool_axis *deep = axes, *high = axes + 1, *wide = axes + 2;                     \
        int64_t front, back, top, bottom, begin, end;                                             \
        nd__pool_axis_reach(deep, row / high->out, &front, &back);                                \
        nd__pool_axis_reach(high, row % high->out, &top, &bottom);                                \
        for (int64_t i = 0; i < wide->out; i++) {                                                 \
            nd__pool_axis_reach(wide, i, &begin, &end);                                           \
            positions[i] = (front * high->size + top) * wide->size + begin;                       \
            out[i] = x[positions[i]];                                                             \
        }                                                                                         \
        for (int64_t z = front; z < back; z += deep->dilation)                                    \
            for (int64_t y = top; y < bottom; y += high->dilation)                                \
                pool_line_##T(x, (z * high->size + y) * wide->size, wide, out, positions);        \
    }                                                                                             \
    static void pool_planes_##T(void *context, int64_t begin, int64_t end) {                      \
        const nd_kernel_call *call = ((const pool_work *)context)->call;                          \
        nd__pool_axis axes[ND_WINDOW_AXES];                                                       \
        int64_t block = 1;                                                                        \
        for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {                                       \
            axes[axis] = nd__pool_axis_of(call, axis);                                            \
            block *= axes[axis].size;                                                             \
        }                                                                                         \
        int64_t rows = axes[0].out * axes[1].out;                                                 \
        for (int64_t row = begin * rows; row < end * rows; row++)                                 \
            pool_row_##T((const T *)call->operand[2].data + row / rows * block, axes, row % rows, \
                         (T *)call->operand[0].data + row * axes[2].out,                          \
                         (int64_t *)call->operand[1].data + row * axes[2].out);                   \
    }
POOL_PLANES(float, uint32_t)
POOL_PLANES(double, uint64_t)

nd_status nd__cpu_pool(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    pool_work work = {call};
    int64_t cost = 1;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        nd__pool_axis of = nd__pool_axis_of(call, axis);
        cost *= of.out * (of.kernel > 0 ? of.kernel : (of.size - 1) / of.out + 1);
    }
    nd__cpu_parallel(call->shape[0], cost, 1, type == 0 ? pool_planes_float : pool_planes_double,
                     &work);
    return ND_OK;
}
