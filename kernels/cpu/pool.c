// max_pool2d: the largest element of each window and where in its plane it stands. NaN wins; of
// equal elements the first.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include <string.h>

typedef struct pool_work {
    const nd_kernel_call *call;
} pool_work;

/// A window along one axis, `dilation` between its places.
typedef struct pool_axis {
    int64_t size, kernel, stride, padding, dilation, out;
} pool_axis;

static pool_axis axis_of(const nd_kernel_call *call, int axis) {
    const int64_t *i = call->attrs.i + axis;
    pool_axis of = {call->shape[2 + axis], i[0], i[2], i[4], i[6], i[8]};
    return of;
}

/// Which places of a window there are, in x: from *ret_first, below *ret_end.
static inline void reach(const pool_axis *axis, int64_t window, int64_t *ret_first,
                         int64_t *ret_end) {
    int64_t first = window * axis->stride - axis->padding;
    int64_t end = first + axis->dilation * (axis->kernel - 1) + 1;
    *ret_first = first >= 0 ? first : axis->dilation - 1 - (-first - 1) % axis->dilation;
    *ret_end = end < axis->size ? end : axis->size;
}

/// The windows whose place `offset` behind their first is in x.
static inline void windows_with(const pool_axis *axis, int64_t offset, int64_t *ret_begin,
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
    static void pool_row_##T(const T *x, const pool_axis *high, const pool_axis *wide,            \
                             int64_t row, T *out, int64_t *positions) {                           \
        int64_t top, bottom, begin, end;                                                          \
        reach(high, row, &top, &bottom);                                                          \
        for (int64_t i = 0; i < wide->out; i++) {                                                 \
            reach(wide, i, &begin, &end);                                                         \
            positions[i] = top * wide->size + begin;                                              \
            out[i] = x[positions[i]];                                                             \
        }                                                                                         \
        for (int64_t y = top; y < bottom; y += high->dilation)                                    \
            for (int64_t place = 0; place < wide->kernel; place++) {                              \
                int64_t offset = place * wide->dilation;                                          \
                windows_with(wide, offset, &begin, &end);                                         \
                int64_t at = y * wide->size + begin * wide->stride + offset - wide->padding;      \
                if (begin < end)                                                                  \
                    pool_place_##T(x, at, wide->stride, end - begin, out + begin,                 \
                                   positions + begin);                                            \
            }                                                                                     \
    }                                                                                             \
    static void pool_planes_##T(void *context, int64_t begin, int64_t end) {                      \
        const nd_kernel_call *call = ((const pool_work *)context)->call;                          \
        const pool_axis high = axis_of(call, 0), wide = axis_of(call, 1);                         \
        for (int64_t row = begin * high.out; row < end * high.out; row++)                         \
            pool_row_##T(                                                                         \
                (const T *)call->operand[2].data + row / high.out * high.size * wide.size, &high, \
                &wide, row % high.out, (T *)call->operand[0].data + row * wide.out,               \
                (int64_t *)call->operand[1].data + row * wide.out);                               \
    }
POOL_PLANES(float, uint32_t)
POOL_PLANES(double, uint64_t)

nd_status nd__cpu_max_pool2d(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    pool_work work = {call};
    pool_axis high = axis_of(call, 0), wide = axis_of(call, 1);
    int64_t cost = high.out * wide.out * high.kernel * wide.kernel;
    nd__cpu_parallel(call->shape[0] * call->shape[1], cost, 1,
                     type == 0 ? pool_planes_float : pool_planes_double, &work);
    return ND_OK;
}
